//! The command line: one function a verb, which help, completions and man pages come from too.
//!
//! Only the verb that was typed is built; the whole tree costs more than all the rest of the intake.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command, value_parser};

/// The verbs and what they do, in the order of the help.
pub const VERBS: &[(&str, fn() -> Command)] =
    &[("run", run), ("plan", plan), ("doctor", super::doctor::command), ("completions", completions), ("man", man)];

/// Everything, for completions and man pages.
pub fn grammar() -> Command {
    let tree = Command::new("stockade")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Run a program that is not trusted: contained, bounded and accounted for")
        .subcommand_required(true)
        .disable_help_subcommand(true);
    VERBS.iter().fold(tree, |tree, (_, verb)| tree.subcommand(verb()))
}

/// The grammar of one verb, named as it is typed.
pub fn verb(name: &str) -> Option<Command> {
    let (name, build) = VERBS.iter().find(|(known, _)| *known == name)?;
    Some(build().bin_name(format!("stockade {name}")))
}

fn run() -> Command {
    run_options(Command::new("run"))
        .about("Run a command in a sandbox")
        .long_about(
            "Run a command in a sandbox: its own namespaces, a read-only view of the host's /usr, no network, no \
             capabilities, nothing of the caller's home. The exit code is the command's own; 128+N when signal N ended \
             it; 124 when its time was up; 125 when it could not be started for a reason of ours; 126 when it was found \
             but could not be executed; 127 when it was not found.",
        )
}

fn plan() -> Command {
    run_options(Command::new("plan"))
        .about("Show what a run would do, and run nothing")
        .arg(switch("json", "Print the plan as JSON").help_heading("Output"))
}

fn completions() -> Command {
    Command::new("completions").about("Print the completions of a shell").arg(
        Arg::new("shell").value_name("SHELL").value_parser(["bash", "zsh", "fish"]).help("The shell").required(true),
    )
}

fn man() -> Command {
    Command::new("man").about("Print the manual page, or write all of them").arg(
        Arg::new("dir")
            .value_name("DIR")
            .value_parser(value_parser!(OsString))
            .help("Directory to write every page to"),
    )
}

/// Options that describe a run; options end at the first word of the command.
fn run_options(command: Command) -> Command {
    let command = command.args_override_self(true).arg(
        Arg::new("command")
            .value_name("COMMAND")
            .help("The command and its arguments")
            .num_args(0..)
            .trailing_var_arg(true)
            .value_parser(value_parser!(OsString)),
    );
    let groups: [(&str, Vec<Arg>); 7] = [
        ("Policy", policy()),
        ("Files", files()),
        ("Environment", environment()),
        ("User and privileges", privileges()),
        ("Isolation", isolation()),
        ("Limits", limits()),
        ("Input, output and report", streams()),
    ];
    groups
        .into_iter()
        .fold(command, |command, (heading, args)| command.args(args.into_iter().map(|arg| arg.help_heading(heading))))
}

fn policy() -> Vec<Arg> {
    vec![
        list("profile", "NAME|FILE", "Policy to add: default, strict, build, or a file (with a slash in it or .toml)")
            .short('p'),
        list("allow-degraded", "NAME", "Run even if this host cannot enforce NAME"),
    ]
}

fn files() -> Vec<Arg> {
    vec![
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
        list("device", "PATH", "Provide this host device node"),
        switch("sysfs", "Mount the host's /sys read-only"),
        value("scratch-size", "SIZE", "Most that /tmp, the home and /dev/shm can hold together"),
        value("scratch-inodes", "N", "Most files there"),
    ]
}

fn environment() -> Vec<Arg> {
    vec![
        list("env", "NAME[=VALUE]", "Set a variable, or pass the caller's on").short('e'),
        list("env-file", "FILE", "Read such lines from FILE"),
        switch("keep-env", "Pass the caller's whole environment on, but what makes programs load code"),
        value("workdir", "DIR", "Working directory inside").short('w'),
        value("umask", "MODE", "File mode creation mask, octal"),
    ]
}

fn privileges() -> Vec<Arg> {
    vec![
        value("user", "UID[:GID]|root|sandbox", "Who the command is, inside").short('u'),
        value("host-user", "UID[:GID]", "Host user that it is, outside (as root)"),
        switch("subuid", "Map the caller's subordinate ids, with newuidmap"),
        list("cap-add", "CAP", "Keep a capability inside the user namespace"),
        list("cap-drop", "CAP", "Drop a capability that a policy keeps, or ALL"),
    ]
}

fn isolation() -> Vec<Arg> {
    vec![
        value("network", "none|loopback|host", "What can be reached"),
        value("hostname", "NAME", "Host name inside"),
        value("name", "NAME", "Name of the sandbox"),
        switch("time-namespace", "Start the monotonic and boot clocks at zero"),
        switch("no-init", "Make the command pid 1, without an init before it"),
    ]
}

fn limits() -> Vec<Arg> {
    vec![
        value("memory", "SIZE", "Memory of the whole tree, or unlimited").short('m'),
        value("cpus", "N", "CPUs of the whole tree, such as 0.5, or unlimited"),
        value("pids-limit", "N", "Processes and threads of the whole tree, or unlimited").allow_hyphen_values(true),
        list("ulimit", "NAME=SOFT[:HARD]", "Resource limit of each process"),
        value("timeout", "TIME", "End the run after this wall-clock time, such as 30s"),
        value("cpu-time", "TIME", "End the run after this CPU time of the whole tree"),
        value("idle-timeout", "TIME", "End the run after this time without output"),
        value("kill-after", "TIME", "Time from the polite signal to SIGKILL"),
        value("oom-score-adj", "N", "-1000 to 1000: when memory is short, kill it later or sooner")
            .allow_hyphen_values(true),
    ]
}

fn streams() -> Vec<Arg> {
    vec![
        switch("interactive", "Let the command read standard input").short('i'),
        switch("tty", "Give the command a terminal of its own").short('t'),
        value("output-limit", "SIZE[,head|tail|kill]", "Most that is passed on of each output stream"),
        value("report", "FILE|fd:N", "Write the report of the run there"),
    ]
}

fn value(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help).value_parser(value_parser!(OsString))
}

fn list(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    value(name, value_name, help).action(ArgAction::Append)
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
}
