//! The command line in the forms that engines use: options before or after the id, as `--flag=value` or `--flag value`, and
//! long options with a single dash.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::error::{Error, Result, Step};

/// An option: its name, its letter, and whether it takes a value.
type Flag = (&'static str, &'static str, bool);

const fn value(name: &'static str) -> Flag {
    (name, "", true)
}

const fn switch(name: &'static str) -> Flag {
    (name, "", false)
}

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
    switch("version"),
    ("help", "h", false),
];

/// A command.
#[derive(Debug)]
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    flags: &'static [Flag],
    /// Whether it takes a container id.
    id: bool,
    /// Whether the words after the id are a program and its arguments.
    program: bool,
    /// Its description in one line.
    pub about: &'static str,
}

const CREATE: &[Flag] = &[
    ("bundle", "b", true),
    value("console-socket"),
    value("pidfd-socket"),
    value("pid-file"),
    switch("no-pivot"),
    switch("no-new-keyring"),
    value("preserve-fds"),
];
const RUN: &[Flag] = &[
    ("bundle", "b", true),
    value("console-socket"),
    value("pidfd-socket"),
    value("pid-file"),
    switch("no-pivot"),
    switch("no-new-keyring"),
    value("preserve-fds"),
    ("detach", "d", false),
    switch("keep"),
    switch("no-subreaper"),
];
const EXEC: &[Flag] = &[
    value("console-socket"),
    value("pidfd-socket"),
    value("cwd"),
    ("env", "e", true),
    ("tty", "t", false),
    ("user", "u", true),
    ("additional-gids", "g", true),
    ("process", "p", true),
    ("detach", "d", false),
    value("pid-file"),
    value("process-label"),
    value("apparmor"),
    switch("no-new-privs"),
    ("cap", "c", true),
    value("preserve-fds"),
    value("cgroup"),
    switch("ignore-paused"),
    switch("no-subreaper"),
];
const UPDATE: &[Flag] = &[
    ("resources", "r", true),
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
    ("bundle", "b", true),
    value("console-socket"),
    value("pid-file"),
    switch("no-pivot"),
    switch("no-subreaper"),
    ("detach", "d", false),
    value("lsm-profile"),
    value("lsm-mount-context"),
];

const fn verb(name: &'static str, flags: &'static [Flag], id: bool, about: &'static str) -> Verb {
    Verb { name, flags, id, program: false, about }
}

/// Every command.
pub const VERBS: &[Verb] = &[
    verb("create", CREATE, true, "create a container without executing its program"),
    verb("start", &[], true, "execute the program of a created container"),
    verb("run", RUN, true, "create and start a container"),
    verb("state", &[], true, "print the state of a container as JSON"),
    verb("kill", &[("all", "a", false)], true, "send a signal to a container"),
    verb("delete", &[("force", "f", false)], true, "delete a container"),
    Verb { name: "exec", flags: EXEC, id: true, program: true, about: "run another program in a container" },
    verb("ps", &[("format", "f", true)], true, "list the processes of a container"),
    verb("list", &[("format", "f", true), ("quiet", "q", false)], false, "list containers"),
    verb("pause", &[], true, "suspend all processes of a container"),
    verb("resume", &[], true, "resume all processes of a container"),
    verb("update", UPDATE, true, "change the limits of a container"),
    verb("events", &[value("interval"), switch("stats")], true, "print resource usage and OOM events of a container"),
    verb("features", &[], false, "print the features of this runtime as JSON"),
    verb("spec", &[("bundle", "b", true), switch("rootless")], false, "write a new config.json"),
    verb(
        "check",
        &[("format", "f", true), ("bundle", "b", true)],
        false,
        "print what a bundle configures, and what prevents it on this host",
    ),
    verb("checkpoint", CHECKPOINT, true, "save a container to files with criu"),
    verb("restore", CHECKPOINT, true, "restore a saved container"),
];

/// The parsed command line.
#[derive(Debug, Default)]
pub struct Args {
    flags: Vec<(&'static str, OsString)>,
    /// The command.
    pub verb: Option<&'static Verb>,
    /// Whether `--help` was given.
    pub help: bool,
    /// Whether `--version` was given.
    pub version: bool,
    /// The words that are not options: the id, then the command's arguments.
    pub words: Vec<OsString>,
}

impl Args {
    /// Parses the words after the program's name. On an error, the result has the options before it, such as `--log`.
    pub fn read(words: &[OsString]) -> (Self, Result<()>) {
        let mut args = Self::default();
        let result = args.take(words);
        (args, result)
    }

    fn take(&mut self, words: &[OsString]) -> Result<()> {
        let mut words = words.iter();
        let mut options = true;
        while let Some(word) = words.next() {
            let bytes = word.as_bytes();
            let program = self.verb.is_some_and(|verb| verb.program && !self.words.is_empty());
            if !options || program || bytes.len() < 2 || bytes[0] != b'-' {
                match self.verb {
                    None => self.verb = Some(find(word)?),
                    Some(_) => self.words.push(word.clone()),
                }
            } else if bytes == b"--" {
                options = false;
            } else {
                self.option(word, &mut words)?;
            }
        }
        Ok(())
    }

    fn option<'a>(&mut self, word: &OsString, rest: &mut impl Iterator<Item = &'a OsString>) -> Result<()> {
        let shown = word.to_string_lossy();
        let name = shown.trim_start_matches('-');
        let (name, inline) = match name.split_once('=') {
            Some((name, _)) => (name, word.as_bytes().splitn(2, |byte| *byte == b'=').nth(1)),
            None => (name, None),
        };
        let own = self.verb.map_or(&[][..], |verb| verb.flags);
        let known =
            own.iter().chain(GLOBAL).find(|(long, short, _)| name == *long || (!short.is_empty() && name == *short));
        let Some(&(long, _, takes_value)) = known else {
            return Err(usage(format!("flag provided but not defined: -{name}")));
        };
        let value = match (takes_value, inline) {
            (true, Some(value)) => OsStr::from_bytes(value).to_owned(),
            (true, None) => rest.next().ok_or_else(|| usage(format!("flag needs an argument: -{name}")))?.clone(),
            (false, Some(b"true" | b"1")) | (false, None) => "true".into(),
            (false, Some(b"false" | b"0")) => return Ok(()),
            (false, Some(_)) => return Err(usage(format!("invalid boolean value for -{name}"))),
        };
        match long {
            "help" => self.help = true,
            "version" => self.version = true,
            _ => self.flags.push((long, value)),
        }
        Ok(())
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.flags.iter().any(|(known, _)| *known == name)
    }

    /// The last value of an option.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        self.flags.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.as_os_str())
    }

    /// As a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.value(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// As text.
    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        let text = |value: &'_ OsStr| value.to_str().map(str::to_owned);
        match self.value(name) {
            Some(value) if text(value).is_none() => Err(usage(format!("-{name} is not UTF-8"))),
            value => Ok(value.and_then(OsStr::to_str)),
        }
    }

    /// As a number.
    pub fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| usage(format!("invalid value {text:?} for flag -{name}: not a number")))
    }

    /// Every value of a repeatable option.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &OsStr> {
        self.flags.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value.as_os_str())
    }

    /// The container id.
    pub fn id(&self) -> Result<&str> {
        let verb = self.verb.map_or("", |verb| verb.name);
        if !self.verb.is_some_and(|verb| verb.id) {
            return Err(usage(format!("{verb} takes no container id")));
        }
        let id = self.words.first().ok_or_else(|| usage(format!("{verb} requires a container id")))?;
        id.to_str().ok_or_else(|| usage("the container id is not UTF-8".to_owned()))
    }

    /// Fails if there are more words after the command.
    pub fn at_most(&self, words: usize) -> Result<()> {
        match self.words.get(words) {
            Some(word) => Err(usage(format!("unexpected argument {:?}", word.to_string_lossy()))),
            None => Ok(()),
        }
    }
}

fn find(word: &OsString) -> Result<&'static Verb> {
    let found = VERBS.iter().find(|verb| word == verb.name);
    found.ok_or_else(|| usage(format!("unknown command {:?}", word.to_string_lossy())))
}

fn usage(reason: String) -> Error {
    Error::new(Step::Usage, "", reason).hint("see stockade-oci --help")
}

/// The text of `--help`, for the program or for a command.
pub fn help(verb: Option<&Verb>) -> String {
    let options = |flags: &[Flag]| {
        let line = |(long, short, value): &Flag| {
            let short = if short.is_empty() { String::new() } else { format!("-{short}, ") };
            format!("   {short}--{long}{}\n", if *value { " VALUE" } else { "" })
        };
        flags.iter().map(line).collect::<String>()
    };
    match verb {
        Some(verb) => format!(
            "stockade-oci {} - {}\n\nUSAGE:\n   stockade-oci [global options] {} [options]{}{}\n\nOPTIONS:\n{}",
            verb.name,
            verb.about,
            verb.name,
            if verb.id { " ID" } else { "" },
            if verb.program { " PROGRAM [ARGUMENT…]" } else { "" },
            options(verb.flags)
        ),
        None => {
            let verbs = VERBS.iter().map(|verb| format!("   {:<12}{}\n", verb.name, verb.about)).collect::<String>();
            format!(
                "stockade-oci - an OCI runtime\n\nUSAGE:\n   stockade-oci [global options] COMMAND [options] [ID]\n\n\
                 COMMANDS:\n{verbs}\nGLOBAL OPTIONS:\n{}",
                options(GLOBAL)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (Args, Result<()>) {
        Args::read(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
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
