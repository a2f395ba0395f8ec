//! The command line as a table: what is parsed, and what help, completions and man pages say.
//!
//! Parsing reads the table directly ([`super::words`]); clap turns it into prose only when somebody asks for that. Building
//! and running clap's parser for one verb took 130 µs of every start, a third of the intake.

use clap::{Arg, ArgAction, Command, ValueHint};

use super::words::Help;

/// A verb.
#[derive(Debug)]
pub struct Verb {
    /// As it is typed.
    pub name: &'static str,
    /// What it does, in one line.
    about: &'static str,
    /// What else there is to say; may be empty.
    more: &'static str,
    /// Options by heading.
    pub options: &'static [(&'static str, &'static [Flag])],
    /// What follows them.
    pub operand: Operand,
}

/// An option.
#[derive(Debug)]
pub struct Flag {
    /// Its name after `--`.
    pub long: &'static str,
    /// Its letter after `-`.
    pub short: Option<char>,
    /// What it takes; nothing when it is a switch.
    pub value: Option<&'static str>,
    /// Whether it may be repeated, each time adding; otherwise the last one counts.
    pub many: bool,
    help: &'static str,
}

/// What follows the options of a verb.
#[derive(Debug)]
pub enum Operand {
    /// Nothing.
    None,
    /// A command with arguments of its own, which are none of our business.
    Command,
    /// At most one word: its name and help.
    Word(&'static str, &'static str),
    /// What to do, which is one of these words and comes before the options, and one word: its name and help.
    Act(&'static [&'static str], &'static str, &'static str),
    /// One word out of these: its name and help.
    Choice(&'static str, &'static str, &'static [&'static str]),
}

/// The verbs, in the order of the help.
pub static VERBS: &[Verb] = &[
    Verb {
        name: "run",
        about: "Run a command in a sandbox",
        more: "The sandbox has namespaces of its own, a read-only view of the host's /usr, no network, no capabilities and \
               nothing of the caller's home. The exit code is the command's own; 128+N when signal N ended it; 124 when its \
               time was up; 125 when it could not be started for a reason of ours; 126 when it was found but could not be \
               executed; 127 when it was not found. Sizes are bytes, or K, M, G, T in powers of 1024; times are 500ms, 30s, \
               5m, 1h or plain seconds.",
        options: RUN,
        operand: Operand::Command,
    },
    Verb {
        name: "plan",
        about: "Show what a run would do, and run nothing",
        more: "Takes the options of run. No report and no line of an audit log is written.",
        options: PLAN,
        operand: Operand::Command,
    },
    Verb {
        name: "doctor",
        about: "Try what this host can enforce",
        more: "Exits with 1 when a run with the default policy could not be fully enforced.",
        options: &[("Options", &[switch("json", "Print the findings as JSON")])],
        operand: Operand::None,
    },
    Verb {
        name: "top",
        about: "Show running sandboxes and what they use",
        more: "Looks at the cgroups of every user's sandboxes, once a period, until it is stopped. CPU% is of one CPU, since the \
               last look; at first, since the sandbox was started. A sandbox without a cgroup, because it has no budget or \
               none could be enforced, is not shown.",
        options: &[(
            "Options",
            &[
                value("interval", "TIME", "The period; 1s unless told"),
                switch("once", "Look once"),
                switch("json", "Print a line of JSON a period"),
            ],
        )],
        operand: Operand::None,
    },
    Verb {
        name: "gc",
        about: "Remove what killed supervisors left behind",
        more: "A supervisor that is killed with SIGKILL takes its sandbox with it, but leaves its cgroup. Removed is what \
               stockade made, for this user, in places where a run started from here would make it, and whose supervisor \
               is dead. Prints what was removed. Exits with 1 when something could not be.",
        options: &[],
        operand: Operand::None,
    },
    Verb {
        name: "audit",
        about: "Verify an audit log",
        more: "Follows the chain of the log that `run --audit FILE` appends to. Exits with 0 and says what it holds when it is \
               intact; with 1, and the number of the first line that breaks it, when it is not.",
        options: &[(
            "Options",
            &[value("head", "SHA256", "A head that was printed earlier: it must still be in the chain")],
        )],
        operand: Operand::Act(&["verify"], "FILE", "The log"),
    },
    Verb {
        name: "completions",
        about: "Print the completions of a shell",
        more: "",
        options: &[],
        operand: Operand::Choice("SHELL", "The shell", &["bash", "zsh", "fish"]),
    },
    Verb {
        name: "man",
        about: "Print the manual page, or write all of them",
        more: "",
        options: &[],
        operand: Operand::Word("DIR", "Directory to write every page to"),
    },
];

/// The verb of this name.
pub fn verb(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|verb| verb.name == name)
}

impl Verb {
    /// Every option.
    pub fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        self.options.iter().flat_map(|(_, flags)| flags.iter())
    }
}

/// The options of run, and then plan's own.
const RUN: &[(&str, &[Flag])] = PLAN.split_at(PLAN.len() - 1).0;

/// One table for both, so that they cannot differ: `run` has all but the last group.
const PLAN: &[(&str, &[Flag])] = &[
    (
        "Policy",
        &[
            list(
                "profile",
                "NAME|FILE",
                "Policy to add: default, strict, build, or a file (with a slash in it or .toml)",
            )
            .short('p'),
            list("allow-degraded", "NAME", "Run even if this host cannot enforce NAME"),
        ],
    ),
    (
        "Files",
        &[
            list("volume", "SRC[:DST][:OPTIONS]", "Mount SRC at DST: ro or rw (default), noexec, optional").short('v'),
            list(
                "mount",
                "type=TYPE,…",
                "Mount by name=value: type=bind|tmpfs, source, destination, readonly, noexec, optional, size, nr_inodes, mode",
            ),
            list("tmpfs", "DST[:OPTIONS]", "Mount an own tmpfs: size=, nr_inodes=, mode=, exec, ro"),
            list("ro", "PATH", "Mount PATH read-only at the same path"),
            list("rw", "PATH", "Mount PATH read-write at the same path"),
            value("workspace", "DIR", "Mount DIR read-write at /workspace, and work there"),
            value("rootfs", "DIR", "Use DIR, read-only, as the root instead of the view of the host"),
            switch("follow", "Follow symlinks in these paths of the host also where other users could have made them"),
            list("device", "PATH", "Provide this host device node"),
            switch("sysfs", "Mount the host's /sys read-only"),
            value("scratch-size", "SIZE", "Most that /tmp, the home and /dev/shm can hold together"),
            value("scratch-inodes", "N", "Most files there"),
        ],
    ),
    (
        "Environment",
        &[
            list("env", "NAME[=VALUE]", "Set a variable, or pass the caller's on").short('e'),
            list("env-file", "FILE", "Read such lines from FILE"),
            switch("keep-env", "Pass the caller's whole environment on, but what makes programs load code"),
            value("workdir", "DIR", "Working directory inside").short('w'),
            value("umask", "MODE", "File mode creation mask, octal"),
        ],
    ),
    (
        "User and privileges",
        &[
            value("user", "UID[:GID]|root|sandbox", "Who the command is, inside").short('u'),
            value("host-user", "UID[:GID]", "Host user that it is, outside (as root)"),
            switch("subuid", "Map the caller's subordinate ids, with newuidmap"),
            list("cap-add", "CAP", "Keep a capability inside the user namespace"),
            list("cap-drop", "CAP", "Drop a capability that a policy keeps, or ALL"),
        ],
    ),
    (
        "Isolation",
        &[
            value("network", "none|loopback|host", "What can be reached"),
            value("hostname", "NAME", "Host name inside"),
            value("name", "NAME", "Name of the sandbox"),
            switch("time-namespace", "Start the monotonic and boot clocks at zero"),
            switch("no-init", "Make the command pid 1, without an init before it"),
        ],
    ),
    (
        "System calls",
        &[
            value(
                "seccomp",
                "FILE|default|strict|docker|unconfined",
                "Filter system calls by this profile; a FILE is OCI's or seccompiler's JSON",
            ),
            value("seccomp-bpf", "FILE", "Filter system calls by this compiled program"),
            list(
                "seccomp-allow",
                "GROUP",
                "Allow these calls too: debug, sysv, aio, splice, nested, setuid-bits or nettools",
            ),
            switch("seccomp-strict", "Refuse a profile with anything to warn about"),
            list("security-opt", "seccomp=FILE|no-new-privileges", "The same in docker's words"),
        ],
    ),
    (
        "Paths and ports",
        &[
            list("allow-read", "PATH[:optional]", "Let nothing be read but what is named so (and /proc and /dev)"),
            list("allow-write", "PATH[:optional]", "Let nothing be written but what is named so"),
            list(
                "allow-exec",
                "PATH[:optional]",
                "Let nothing be executed but what is named so, and nothing on writable mounts",
            ),
            list("allow-connect", "PORT", "Let no TCP port be connected to but what is named so"),
            list("allow-bind", "PORT", "Let no TCP port be bound but what is named so"),
            value(
                "landlock",
                "require|auto|off",
                "What to do without Landlock, which enforces this: refuse, run, not use it",
            ),
            value("landlock-abi", "N", "Refuse to run with less than this Landlock ABI"),
        ],
    ),
    (
        "Limits",
        &[
            value("memory", "SIZE", "Memory of the whole tree, or unlimited").short('m'),
            value("memory-high", "SIZE|PERCENT%", "Memory from which on the tree is slowed down"),
            value("swap", "SIZE", "Swap of the whole tree; none when it has a memory budget and this is not given"),
            value("cpus", "N", "CPUs of the whole tree, such as 0.5, or unlimited"),
            value("cpu-weight", "N", "Share of the CPUs, 1 to 10000; others have 100"),
            value("cpuset-cpus", "LIST", "CPUs it may run on, such as 0-3,7"),
            value("cpuset-mems", "LIST", "NUMA nodes its memory may come from"),
            value("pids-limit", "N", "Processes and threads of the whole tree, or unlimited"),
            list("io-max", "DEV:KEY=N,…", "Traffic with a disk: rbps, wbps (bytes/s), riops, wiops (per second)"),
            value("io-weight", "N", "Share of the disks, 1 to 10000; others have 100"),
            list("hugetlb", "SIZE=LIMIT", "Huge pages of that size, such as 2M=64M"),
            list("cgroup-set", "FILE=VALUE", "Any other file of a cgroup v2 controller, such as memory.low=64M"),
            list("ulimit", "NAME=SOFT[:HARD]", "Resource limit of each process"),
            value("timeout", "TIME", "End the run after this wall-clock time, such as 30s"),
            value("cpu-time", "TIME", "End the run after this CPU time of the whole tree"),
            value("idle-timeout", "TIME", "End the run after this time without output"),
            value("kill-after", "TIME", "Time from the polite signal to SIGKILL"),
            value("oom-score-adj", "N", "-1000 to 1000: when memory is short, kill it later or sooner"),
        ],
    ),
    (
        "Input, output and report",
        &[
            switch("interactive", "Let the command read standard input").short('i'),
            switch("tty", "Give the command a terminal of its own").short('t'),
            value("output-limit", "SIZE[,head|tail|kill]", "Most that is passed on of each output stream"),
            value("report", "FILE|fd:N", "Write the report of the run there, out of the command's reach"),
            value(
                "audit",
                "FILE",
                "Append a line about the run to this log, which no bind shows, also when it is refused",
            ),
            switch("audit-sync", "Have that line on the disk before the end"),
            switch("explain-denials", "List what the command was refused, by which rule, and what would allow it"),
            value("stats", "TIME", "Write a line of JSON about what is used there too, once in this time"),
        ],
    ),
    ("Output", &[switch("json", "Print the plan as JSON")]),
];

const fn value(long: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { long, short: None, value: Some(value), many: false, help }
}

const fn list(long: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { long, short: None, value: Some(value), many: true, help }
}

const fn switch(long: &'static str, help: &'static str) -> Flag {
    Flag { long, short: None, value: None, many: false, help }
}

impl Flag {
    const fn short(mut self, letter: char) -> Self {
        self.short = Some(letter);
        self
    }
}

/// Everything, as clap knows it.
pub fn command() -> Command {
    let tree = Command::new("stockade")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Run a program that is not trusted: contained, bounded and accounted for")
        .subcommand_required(true)
        .disable_help_subcommand(true);
    let tree = VERBS.iter().fold(tree, |tree, verb| tree.subcommand(verb.command()));
    tree.subcommand(super::seccomp::command()) // whose grammar clap parses, too: it is not on the way of a run
}

impl Verb {
    /// The verb, as clap knows it.
    pub fn command(&self) -> Command {
        let command = Command::new(self.name)
            .bin_name(format!("stockade {}", self.name))
            .about(self.about)
            .override_usage(self.usage())
            .disable_help_flag(true);
        let command = match self.more {
            "" => command,
            more => command.long_about(format!("{}.\n\n{more}", self.about)),
        };
        let command = self.options.iter().fold(command, |command, (heading, flags)| {
            command.args(flags.iter().map(|flag| flag.arg().help_heading(*heading)))
        });
        let help = "Print help; --help says more than -h";
        let help = Arg::new("help").short('h').long("help").action(ArgAction::Help).help(help).help_heading("Options");
        let command = command.arg(help);
        match self.operand {
            Operand::None => command,
            Operand::Command => command.arg(
                Arg::new("command")
                    .value_name("COMMAND")
                    .hide(true)
                    .value_hint(ValueHint::CommandWithArguments)
                    .help("The command and its arguments")
                    .num_args(0..)
                    .trailing_var_arg(true),
            ),
            Operand::Act(known, name, help) => command
                .arg(
                    Arg::new("action")
                        .value_name("ACTION")
                        .help("What to do")
                        .value_parser(known.to_vec())
                        .required(true),
                )
                .arg(Arg::new("operand").value_name(name).help(help).value_hint(ValueHint::FilePath).required(true)),
            Operand::Word(name, help) => command.arg(Arg::new("operand").value_name(name).help(help)),
            Operand::Choice(name, help, known) => {
                command.arg(Arg::new("operand").value_name(name).help(help).value_parser(known.to_vec()).required(true))
            }
        }
    }
}

impl Verb {
    /// What is printed for `-h` and `--help`.
    pub fn help(&self, help: Help) -> String {
        let mut command = self.command();
        match help {
            Help::Short => command.render_help().to_string(),
            Help::Long => command.render_long_help().to_string(),
        }
    }

    /// How it is typed, in one line.
    pub fn usage(&self) -> String {
        let options = if self.options.is_empty() { "" } else { " [OPTIONS]" };
        if let Operand::Act(known, name, _) = self.operand {
            return format!("stockade {} {}{options} {name}", self.name, known.join("|"));
        }
        let operand = match self.operand {
            Operand::None | Operand::Act(..) => String::new(),
            Operand::Command => " [--] COMMAND [ARG]...".into(),
            Operand::Word(name, _) => format!(" [{name}]"),
            Operand::Choice(_, _, known) => format!(" {}", known.join("|")),
        };
        format!("stockade {}{options}{operand}", self.name)
    }
}

impl Flag {
    fn arg(&self) -> Arg {
        let arg = Arg::new(self.long).long(self.long).help(self.help);
        let arg = self.short.into_iter().fold(arg, Arg::short);
        let hint = match self.value {
            Some("DIR") => ValueHint::DirPath,
            Some("PATH" | "PATH[:optional]") => ValueHint::AnyPath,
            Some(value) if value.starts_with("FILE") || value.contains("|FILE") || value.contains("SRC") => {
                ValueHint::AnyPath
            }
            _ => ValueHint::Unknown,
        };
        let arg = if hint == ValueHint::Unknown { arg } else { arg.value_hint(hint) };
        match (self.value, self.many) {
            (Some(value), true) => arg.value_name(value).action(ArgAction::Append),
            (Some(value), false) => arg.value_name(value),
            (None, _) => arg.action(ArgAction::SetTrue),
        }
    }
}
