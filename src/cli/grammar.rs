//! The command line as a table, the source of the parser, the help, the completions and the man pages.
//!
//! [`super::words`] parses by the table directly; clap only prints the help. Building and running clap's parser for one verb
//! took 130 µs of every start, a third of the time before the sandbox is created.

use clap::{Arg, ArgAction, Command, ValueHint};

use super::words::Help;

/// A verb.
#[derive(Debug)]
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    about: &'static str,
    /// The rest of its description; may be empty.
    more: &'static str,
    /// Options by heading.
    pub options: &'static [(&'static str, &'static [Flag])],
    /// The words after the options.
    pub operand: Operand,
}

/// An option.
#[derive(Debug)]
pub struct Flag {
    /// Its name after `--`.
    pub long: &'static str,
    /// Its letter after `-`.
    pub short: Option<char>,
    /// The name of its value; `None` for a switch.
    pub value: Option<&'static str>,
    /// Whether every occurrence adds a value; otherwise the last one wins.
    pub many: bool,
    help: &'static str,
}

/// The words that follow the options of a verb.
#[derive(Debug)]
pub enum Operand {
    /// Nothing.
    None,
    /// A command with arguments of its own, which are not parsed.
    Command,
    /// At most one word: its name and help.
    Word(&'static str, &'static str),
    /// One of these actions before the options, and one word after them: its name and help.
    Act(&'static [&'static str], &'static str, &'static str),
    /// One word of a fixed set: its name and help.
    Choice(&'static str, &'static str, &'static [&'static str]),
}

/// The verbs, in the order of the help.
pub static VERBS: &[Verb] = &[
    Verb {
        name: "run",
        about: "Run a command in a sandbox",
        more: "The sandbox has namespaces of its own, a read-only view of the host's /usr, no network, no capabilities and no \
               files of the caller's home. The exit code is the command's own; 128+N if signal N ended it; 124 if it \
               reached a time limit; 125 if stockade could not start it; 126 if it was found but could not be executed; 127 \
               if it was not found. Sizes are bytes, or K, M, G, T in powers of 1024. Times are 500ms, 30s, 5m, 1h or plain \
               seconds.",
        options: RUN,
        operand: Operand::Command,
    },
    Verb {
        name: "plan",
        about: "Print what a run would do, without running it",
        more: "Takes the options of run. Writes no report and no line of an audit log.",
        options: PLAN,
        operand: Operand::Command,
    },
    Verb {
        name: "doctor",
        about: "Test what this host can enforce",
        more: "Exits with 1 if this host cannot fully enforce a run with the default policy.",
        options: &[("Options", &[switch("json", "Print the findings as JSON")])],
        operand: Operand::None,
    },
    Verb {
        name: "top",
        about: "Show running sandboxes and their resource usage",
        more: "Reads the cgroups of every user's sandboxes, once per interval, until it is stopped. CPU% is relative to one \
               CPU, since the last sample; in the first sample, since the sandbox was started. A sandbox without a cgroup is \
               not shown: it has no limits, or the host could not enforce them.",
        options: &[(
            "Options",
            &[
                value("interval", "TIME", "Time between samples, 1s by default"),
                switch("once", "Print one sample and exit"),
                switch("json", "Print one line of JSON per sample"),
            ],
        )],
        operand: Operand::None,
    },
    Verb {
        name: "gc",
        about: "Remove cgroups that killed supervisors left behind",
        more: "When a supervisor is killed with SIGKILL, its sandbox dies with it, but its cgroup remains. gc removes the \
               cgroups that stockade made for this user and whose supervisor is dead, in the places where a run started from \
               here would make them. Prints what it removed. Exits with 1 if it could not remove one.",
        options: &[],
        operand: Operand::None,
    },
    Verb {
        name: "audit",
        about: "Verify an audit log",
        more: "Verifies the hash chain of the log that `run --audit FILE` appends to. If it is intact, prints a summary and \
               exits with 0. If not, prints the number of the first line that breaks it and exits with 1.",
        options: &[(
            "Options",
            &[value("head", "SHA256", "A head that was printed earlier; it must still be in the chain")],
        )],
        operand: Operand::Act(&["verify"], "FILE", "The log"),
    },
    Verb {
        name: "completions",
        about: "Print the completions for a shell",
        more: "",
        options: &[],
        operand: Operand::Choice("SHELL", "The shell", &["bash", "zsh", "fish"]),
    },
    Verb {
        name: "man",
        about: "Print the manual page, or write all pages to a directory",
        more: "",
        options: &[],
        operand: Operand::Word("DIR", "Directory to write the pages to"),
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

/// `run` has all groups of `plan` but the last: one table, so that the two cannot differ.
const RUN: &[(&str, &[Flag])] = PLAN.split_at(PLAN.len() - 1).0;

/// The options of `plan`.
const PLAN: &[(&str, &[Flag])] = &[
    (
        "Policy",
        &[
            list(
                "profile",
                "NAME|FILE",
                "Add a policy: default, strict, build, or a file (with a slash or .toml in its name)",
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
                "Mount with these keys: type=bind|tmpfs, source, destination, readonly, noexec, optional, size, nr_inodes, mode",
            ),
            list("tmpfs", "DST[:OPTIONS]", "Mount a new tmpfs at DST: size=, nr_inodes=, mode=, exec, ro"),
            list("ro", "PATH", "Mount PATH read-only at the same path"),
            list("rw", "PATH", "Mount PATH read-write at the same path"),
            value("workspace", "DIR", "Mount DIR read-write at /workspace, the working directory"),
            value("rootfs", "DIR", "Use DIR, read-only, as the root, instead of the view of the host"),
            switch("follow", "Follow symlinks in these host paths even if other users could have made them"),
            list("device", "PATH", "Provide this device node of the host"),
            switch("sysfs", "Mount the host's /sys read-only"),
            value("scratch-size", "SIZE", "Size limit of /tmp, the home and /dev/shm together"),
            value("scratch-inodes", "N", "Limit on the number of files there"),
        ],
    ),
    (
        "Environment",
        &[
            list("env", "NAME[=VALUE]", "Set a variable, or pass the caller's value").short('e'),
            list("env-file", "FILE", "Read variables from FILE, one a line"),
            switch("keep-env", "Pass the caller's environment, without variables that make programs load code"),
            value("workdir", "DIR", "Working directory in the sandbox").short('w'),
            value("umask", "MODE", "File mode creation mask, octal"),
        ],
    ),
    (
        "User and privileges",
        &[
            value("user", "UID[:GID]|root|sandbox", "User of the command in the sandbox").short('u'),
            value("host-user", "UID[:GID]", "User of the command on the host (needs root)"),
            switch("subuid", "Map the caller's subordinate ids with newuidmap"),
            list("cap-add", "CAP", "Keep a capability inside the user namespace"),
            list("cap-drop", "CAP", "Drop a capability that a policy keeps; ALL drops every one"),
        ],
    ),
    (
        "Isolation",
        &[
            value("network", "none|loopback|host", "Network access of the command"),
            value("hostname", "NAME", "Host name in the sandbox"),
            value("name", "NAME", "Name of the sandbox"),
            switch("time-namespace", "Start the monotonic and boot clocks at zero"),
            switch("no-init", "Run the command as pid 1, without an init"),
        ],
    ),
    (
        "System calls",
        &[
            value(
                "seccomp",
                "FILE|default|strict|docker|unconfined",
                "Filter system calls with this profile; a FILE is OCI or seccompiler JSON",
            ),
            value("seccomp-bpf", "FILE", "Filter system calls with this compiled program"),
            list(
                "seccomp-allow",
                "GROUP",
                "Allow these calls too: debug, sysv, aio, splice, nested, setuid-bits or nettools",
            ),
            switch("seccomp-strict", "Refuse a profile that has warnings"),
            list("security-opt", "seccomp=FILE|no-new-privileges", "The same, in docker's syntax"),
        ],
    ),
    (
        "Paths and ports",
        &[
            list("allow-read", "PATH[:optional]", "Allow reading only below these paths (and /proc and /dev)"),
            list("allow-write", "PATH[:optional]", "Allow writing only below these paths"),
            list(
                "allow-exec",
                "PATH[:optional]",
                "Allow execution only below these paths, and never on writable mounts",
            ),
            list("allow-connect", "PORT", "Allow TCP connections only to these ports"),
            list("allow-bind", "PORT", "Allow binding only these TCP ports"),
            value(
                "landlock",
                "require|auto|off",
                "Landlock enforces these rules: refuse to run without it, use it if possible, or do not use it",
            ),
            value("landlock-abi", "N", "Refuse to run with an older Landlock ABI than N"),
        ],
    ),
    (
        "Limits",
        &[
            value("memory", "SIZE", "Memory limit of the whole process tree, or unlimited").short('m'),
            value("memory-high", "SIZE|PERCENT%", "Memory usage above which the tree is slowed down"),
            value("swap", "SIZE", "Swap limit of the tree; with a memory limit the default is no swap"),
            value("cpus", "N", "CPU limit of the tree, such as 0.5, or unlimited"),
            value("cpu-weight", "N", "Share of the CPUs, 1 to 10000; the default of a cgroup is 100"),
            value("cpuset-cpus", "LIST", "CPUs that the tree may use, such as 0-3,7"),
            value("cpuset-mems", "LIST", "NUMA nodes that the tree may use"),
            value("pids-limit", "N", "Limit on processes and threads of the tree, or unlimited"),
            list("io-max", "DEV:KEY=N,…", "Limit on disk traffic: rbps, wbps (bytes/s), riops, wiops (per second)"),
            value("io-weight", "N", "Share of the disks, 1 to 10000; the default of a cgroup is 100"),
            list("hugetlb", "SIZE=LIMIT", "Limit on huge pages of this size, such as 2M=64M"),
            list("cgroup-set", "FILE=VALUE", "Any other file of a cgroup v2 controller, such as memory.low=64M"),
            list("ulimit", "NAME=SOFT[:HARD]", "Resource limit of each process"),
            value("timeout", "TIME", "End the run after this wall-clock time, such as 30s"),
            value("cpu-time", "TIME", "End the run after this CPU time of the tree"),
            value("idle-timeout", "TIME", "End the run after this time without output"),
            value("kill-after", "TIME", "Time between the first signal and SIGKILL"),
            value(
                "oom-score-adj",
                "N",
                "Preference of the OOM killer for the tree, -1000 to 1000: high values are killed first",
            ),
        ],
    ),
    (
        "Input, output and report",
        &[
            switch("interactive", "Pass standard input to the command").short('i'),
            switch("tty", "Give the command a terminal of its own").short('t'),
            value(
                "output-limit",
                "SIZE[,head|tail|kill]",
                "Limit on the output of each stream: keep the start or the end, or end the run",
            ),
            value(
                "report",
                "FILE|fd:N",
                "Write the report of the run to FILE or descriptor N, which the command cannot reach",
            ),
            value(
                "audit",
                "FILE",
                "Append a line about the run to this log, also if the run is refused; no bind mount may contain FILE",
            ),
            switch("audit-sync", "Sync that line to the disk before exiting"),
            switch("explain-denials", "List what the command was denied, by which rule, and what would allow it"),
            value(
                "stats",
                "TIME",
                "Write the resource usage as a line of JSON to the report's descriptor, at this interval",
            ),
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

/// The whole command line, for clap.
pub fn command() -> Command {
    let tree = Command::new("stockade")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Run untrusted programs in a sandbox, with limits and a report of what they used")
        .subcommand_required(true)
        .disable_help_subcommand(true);
    let tree = VERBS.iter().fold(tree, |tree, verb| tree.subcommand(verb.command()));
    tree.subcommand(super::seccomp::command()) // its words are parsed by clap too, see there
}

impl Verb {
    /// The verb, for clap.
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
        let help = "Print help (-h is shorter)";
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
                        .help("The action")
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
    /// The text of `-h` and `--help`.
    pub fn help(&self, help: Help) -> String {
        let mut command = self.command();
        match help {
            Help::Short => command.render_help().to_string(),
            Help::Long => command.render_long_help().to_string(),
        }
    }

    /// The synopsis, in one line.
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
