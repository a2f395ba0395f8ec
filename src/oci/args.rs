//! The command line of `stockade-oci`, as a table: runc's, with the options that engines use.

use crate::args::{self, Args, Flag, Operand, Verb, verb};
use crate::error::{Error, Result, Step};

/// The program, with its commands.
pub static STOCKADE_OCI: Verb = verb("stockade-oci", "Create and run containers, as container engines ask for them")
    .options(&[("Options", GLOBAL)])
    .verbs(VERBS);

const fn value(name: &'static str) -> Flag {
    args::value(name, "VALUE", "")
}

const fn switch(name: &'static str) -> Flag {
    args::switch(name, "")
}

const CONTAINER: Operand = Operand::Word("ID", "The container");
const ID: &[Operand] = &[CONTAINER];

/// Options that are also allowed before the command.
const GLOBAL: &[Flag] = &[
    value("root"),
    value("log"),
    value("log-format"),
    value("log-level"),
    switch("debug"),
    switch("systemd-cgroup"),
    value("rootless"),
    value("cgroup-manager"),
    value("criu"),
    switch("version").short('v'),
    switch("version").short('V'), // crun's letter
];

const CREATE: &[Flag] = &[
    value("bundle").short('b'),
    value("config").short('f'),
    value("console-socket"),
    value("pidfd-socket"),
    value("pid-file"),
    switch("no-pivot"),
    switch("no-new-keyring"),
    value("preserve-fds"),
    switch("no-subreaper"),
];
const RUN: &[Flag] = &[
    value("bundle").short('b'),
    value("config").short('f'),
    value("console-socket"),
    value("pidfd-socket"),
    value("pid-file"),
    switch("no-pivot"),
    switch("no-new-keyring"),
    value("preserve-fds"),
    switch("detach").short('d'),
    switch("keep"),
    switch("no-subreaper"),
];
const EXEC: &[Flag] = &[
    value("console-socket"),
    value("pidfd-socket"),
    value("cwd"),
    value("env").short('e'),
    switch("tty").short('t'),
    value("user").short('u'),
    value("additional-gids").short('g'),
    value("process").short('p'),
    switch("detach").short('d'),
    value("pid-file"),
    value("process-label"),
    value("apparmor"),
    switch("no-new-privs"),
    value("cap").short('c'),
    value("preserve-fds"),
    value("cgroup"),
    switch("ignore-paused"),
    switch("no-subreaper"),
];
const UPDATE: &[Flag] = &[
    value("resources").short('r'),
    value("blkio-weight"),
    value("cpu-period"),
    value("cpu-quota"),
    value("cpu-burst"),
    value("cpu-share"),
    value("cpu-rt-period"),
    value("cpu-rt-runtime"),
    value("cpuset-cpus"),
    value("cpuset-mems"),
    value("cpu-idle"),
    value("kernel-memory"),
    value("kernel-memory-tcp"),
    value("memory"),
    value("memory-reservation"),
    value("memory-swap"),
    value("pids-limit"),
    value("l3-cache-schema"),
    value("mem-bw-schema"),
];
const CHECKPOINT: &[Flag] = &[
    value("image-path"),
    value("work-path"),
    value("parent-path"),
    switch("leave-running"),
    switch("tcp-established"),
    switch("tcp-skip-in-flight"),
    switch("tcp-close"),
    switch("link-remap"),
    switch("ext-unix-sk"),
    switch("shell-job"),
    switch("lazy-pages"),
    value("status-fd"),
    value("page-server"),
    switch("file-locks"),
    switch("pre-dump"),
    value("manage-cgroups-mode"),
    value("empty-ns"),
    switch("auto-dedup"),
    value("bundle").short('b'),
    value("console-socket"),
    value("pid-file"),
    switch("no-pivot"),
    switch("no-subreaper"),
    switch("detach").short('d'),
    value("lsm-profile"),
    value("lsm-mount-context"),
];

const VERBS: &[Verb] = &[
    verb("create", "Create a container without executing its program").options(&[("Options", CREATE)]).operands(ID),
    verb("start", "Execute the program of a created container").operands(ID),
    verb("run", "Create and start a container").options(&[("Options", RUN)]).operands(ID),
    verb("state", "Print the state of a container as JSON").operands(ID),
    verb("kill", "Send a signal to a container")
        .options(&[("Options", &[switch("all").short('a'), switch("regex").short('r')])])
        .operands(&[CONTAINER, Operand::Optional("SIGNAL", "Its name or number; SIGTERM by default")]),
    verb("delete", "Delete a container")
        .options(&[("Options", &[switch("force").short('f'), switch("regex").short('r')])])
        .operands(ID),
    verb("exec", "Run another program in a container")
        .options(&[("Options", EXEC)])
        .operands(&[CONTAINER, Operand::Command("PROGRAM")]),
    verb("ps", "List the processes of a container")
        .options(&[("Options", &[value("format").short('f')])])
        .operands(&[CONTAINER, Operand::Command("PS-OPTIONS")]),
    verb("list", "List containers").options(&[("Options", &[value("format").short('f'), switch("quiet").short('q')])]),
    verb("pause", "Suspend all processes of a container").operands(ID),
    verb("resume", "Resume all processes of a container").operands(ID),
    verb("update", "Change the limits of a container").options(&[("Options", UPDATE)]).operands(ID),
    verb("events", "Print resource usage and OOM events of a container")
        .options(&[("Options", &[value("interval"), switch("stats")])])
        .operands(ID),
    verb("features", "Print the features of this runtime as JSON"),
    verb("spec", "Write a new config.json")
        .options(&[("Options", &[value("bundle").short('b'), value("file").short('f'), switch("rootless")])]),
    verb("check", "Print what a bundle configures, and what prevents it on this host")
        .options(&[("Options", &[value("format").short('f'), value("bundle").short('b')])])
        .operands(&[Operand::Optional("BUNDLE", "Its directory")]),
    verb("checkpoint", "Save a container to files with criu").options(&[("Options", CHECKPOINT)]).operands(ID),
    verb("restore", "Restore a saved container").options(&[("Options", CHECKPOINT)]).operands(ID),
];

impl Args {
    /// The container id.
    pub fn id(&self) -> Result<&str> {
        let wrong = |reason: String| Error::new(Step::Usage, "", reason).hint("see stockade-oci --help");
        let id = self.words.first().ok_or_else(|| wrong(format!("{} requires a container id", self.name())))?;
        id.to_str().ok_or_else(|| wrong("the container id is not UTF-8".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::args::Dialect;

    fn read(line: &str) -> (Args, Result<()>) {
        Args::read(&STOCKADE_OCI, Dialect::Oci, &line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_manual_page_has_every_command_and_option() {
        let page = include_str!("../../docs/man/stockade-oci.1").replace("\\fR", " ").replace('\\', "");
        for verb in [&STOCKADE_OCI].into_iter().chain(VERBS) {
            let begins = format!("fB{}", verb.name);
            assert!(page.lines().any(|line| line.starts_with(&begins)) || verb.name == "stockade-oci", "{}", verb.name);
            for flag in verb.flags() {
                let name = format!("--{}", flag.long);
                let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '-');
                assert!(page.split(&name).skip(1).any(ends), "{}: {name}", verb.name);
            }
        }
    }

    #[test]
    fn options_are_accepted_anywhere_and_in_every_form() {
        for line in [
            "--root /r --log=/l create --bundle /b --pid-file=/p id",
            "-root /r -log /l create id -bundle=/b -pid-file /p",
            "create id --root=/r --log /l -b /b --pid-file /p",
        ] {
            let (args, result) = read(line);
            result.unwrap();
            assert_eq!(args.id().unwrap(), "id");
            let paths = ["root", "log", "bundle", "pid-file"].map(|name| args.path(name).unwrap());
            assert_eq!(paths.map(|path| path.into_os_string()), ["/r", "/l", "/b", "/p"]);
        }
    }

    #[test]
    fn a_program_keeps_its_own_options() {
        let (args, result) = read("exec -t --env A=1 -e B=2 id ls -l --root=/x");
        result.unwrap();
        assert_eq!(args.words, ["id", "ls", "-l", "--root=/x"]);
        assert_eq!(args.all("env").collect::<Vec<_>>(), ["A=1", "B=2"]);
        assert!(args.is_on("tty") && args.value("root").is_none());
    }

    #[test]
    fn errors_have_the_words_that_engines_look_for() {
        let error = read("restore --lsm-mount-context").1.unwrap_err();
        assert!(error.to_string().contains("flag needs an argument"), "{error}");
        assert!(read("create --nonsense x").1.unwrap_err().to_string().contains("not defined"));
        assert!(read("--rootless=true --systemd-cgroup=false state x").1.is_ok());
        assert!(!read("--systemd-cgroup=false state x").0.is_on("systemd-cgroup"));
        assert!(read("frobnicate").1.is_err());
    }
}
