//! Options of docker, bubblewrap and systemd-run, and what they are here.
//!
//! An option works only if ours means exactly the same. Otherwise the error says what to write instead.

use crate::args::Meaning::{Always, Option, Other};
use crate::args::{Foreign, Meaning};

const fn row(name: &'static str, values: usize, meaning: Meaning) -> Foreign {
    Foreign { name, letter: None, values, meaning }
}

/// What a session has for all its commands.
const fn of_session(name: &'static str, letter: std::option::Option<char>, values: usize) -> Foreign {
    const SAID: &str = "it holds for the whole session: give it to stockade run -d";
    Foreign { name, letter, values, meaning: Other(SAID) }
}

const ALWAYS_OWN: Meaning =
    Other("a sandbox always has namespaces of its own; --network host shares the host's network");
const LIMIT_OF_DISKS: Meaning = Other("--io-max DEVICE:rbps=N,wbps=N,riops=N,wiops=N limits the traffic with a disk");
const CPU_TIME: Meaning =
    Other("--cpus N is the limit, as a number of CPUs: a quota of 50000 in a period of 100000 is --cpus 0.5");

const PUBLISH: Meaning = Other("--publish HOSTPORT:PORT forwards connections from a port of the host");
const NOT_PASSED: Meaning = Other("the caller's variables are not passed, unless -e NAME or --keep-env asks for them");
const IDS: Meaning = Other("--user UID:GID is the user in the sandbox, --host-user UID:GID the one on the host");
const NO_DESCRIPTOR: Meaning = Other("the command gets the standard streams, and no other descriptor");

/// What `run` and `plan` answer to options of other programs.
pub const RUN: &[Foreign] = &[
    // docker and podman
    row("net", 1, Option("network")),
    row("read-only", 0, Always),
    row("init", 0, Always),
    row(
        "privileged",
        0,
        Other("no mode gives everything: name what the command needs, with --cap-add, --device, -v or --seccomp"),
    ),
    row(
        "memory-swap",
        1,
        Other("--swap SIZE is the limit on swap alone; --memory-swap is that of memory and swap together"),
    ),
    row("memory-swappiness", 1, Other("--swap 0 forbids swap, and is the default with a memory limit")),
    row(
        "memory-reservation",
        1,
        Other("--cgroup-set memory.low=SIZE protects memory, --memory-high SIZE slows down above it"),
    ),
    row("cpu-quota", 1, CPU_TIME),
    row("cpu-period", 1, CPU_TIME),
    row("cpu-shares", 1, Other("--cpu-weight N is the share of the CPUs, where 100 is the default and not 1024")),
    row("shm-size", 1, Other("/dev/shm shares its limit with /tmp and the home: --scratch-size SIZE")),
    row("entrypoint", 1, Other("the words after the options are the whole command: write the program there")),
    row("expose", 1, PUBLISH),
    row("publish-all", 0, PUBLISH),
    row("stop-timeout", 1, Other("--kill-after TIME is the time between the first signal and SIGKILL")),
    row("blkio-weight", 1, Other("--io-weight N is the share of the disks, 1 to 10000")),
    row("device-read-bps", 1, LIMIT_OF_DISKS),
    row("device-write-bps", 1, LIMIT_OF_DISKS),
    row("device-read-iops", 1, LIMIT_OF_DISKS),
    row("device-write-iops", 1, LIMIT_OF_DISKS),
    row("gpus", 1, Other("--device PATH provides a device node, such as /dev/dri/renderD128")),
    row("group-add", 1, Other("the command has no supplementary groups; --user UID:GID sets its group")),
    row("restart", 1, Other("a sandbox is not restarted: that is for the caller, or for a unit of systemd")),
    row("sysctl", 1, Other("kernel parameters cannot be set")),
    row("pid", 1, ALWAYS_OWN),
    row("ipc", 1, ALWAYS_OWN),
    row("uts", 1, ALWAYS_OWN),
    row("cgroupns", 1, ALWAYS_OWN),
    row(
        "userns",
        1,
        Other("a sandbox always has a user namespace; --host-user or --subuid choose what its ids are outside"),
    ),
    // bubblewrap
    row("chdir", 1, Option("workdir")),
    row("bind", 2, Other("-v SRC:DST mounts SRC at DST, and --rw PATH at the same path")),
    row("bind-try", 2, Other("-v SRC:DST:optional mounts SRC at DST, if it is there")),
    row("ro-bind", 2, Other("-v SRC:DST:ro mounts SRC at DST, and --ro PATH at the same path")),
    row("ro-bind-try", 2, Other("-v SRC:DST:ro,optional mounts SRC at DST, if it is there")),
    row("dev-bind", 2, Other("--device PATH provides a device node")),
    row("dev", 1, Other("/dev is always there, with the harmless devices; --device PATH adds one")),
    row("proc", 1, Other("/proc is always there")),
    row("setenv", 2, Other("-e NAME=VALUE sets a variable")),
    row("unsetenv", 1, NOT_PASSED),
    row("clearenv", 0, NOT_PASSED),
    row("unshare-user", 0, Always),
    row("unshare-pid", 0, Always),
    row("unshare-ipc", 0, Always),
    row("unshare-uts", 0, Always),
    row("unshare-cgroup", 0, Always),
    row("new-session", 0, Always),
    row("unshare-net", 0, Other("that is the default, --network loopback")),
    row("unshare-all", 0, Other("that is the default: every namespace is the sandbox's own")),
    row("share-net", 0, Other("--network host shares the host's network")),
    row("uid", 1, IDS),
    row("gid", 1, IDS),
    row(
        "die-with-parent",
        0,
        Other("the sandbox dies with stockade; --lease fd:N also ends it with whoever holds a pipe"),
    ),
    // systemd-run
    row("working-directory", 1, Option("workdir")),
    row("property", 1, Other("limits are options of their own: -m SIZE, --cpus N, --pids-limit N, --timeout TIME")),
    row("unit", 1, Other("--name NAME names the sandbox")),
    row("scope", 0, Other("a run is always in the foreground, and -d makes a session")),
    row("wait", 0, Always),
    row("pipe", 0, Other("-i passes standard input; output is always passed")),
    row("pty", 0, Other("-t gives the command a terminal of its own, and -it also passes standard input")),
    row("collect", 0, Other("a run leaves nothing behind; with -d, --rm keeps nothing of the session")),
    row("nice", 1, Other("--cpu-weight N is the share of the CPUs")),
];

/// What `exec` answers to options of docker's, and to those that only `run` has.
pub const EXEC: &[Foreign] = &[
    row("privileged", 0, Other("a command always has the confinement of its session")),
    row("detach-keys", 1, Other("a command cannot be detached from its terminal; -d runs one in the background")),
    row("preserve-fds", 1, NO_DESCRIPTOR),
    row("preserve-fd", 1, NO_DESCRIPTOR),
    row("latest", 0, Other("give the name of a session: `stockade ps` lists them")),
    row("cwd", 1, Option("workdir")),
    row("init", 0, Always),
    row("name", 1, Other("the session's name is the first word; commands are numbered: c1, c2")),
    row("rm", 0, Other("nothing is kept of a command but its report, with --report FILE")),
    of_session("subuid", None, 0),
    of_session("host-user", None, 1),
    of_session("cap-add", None, 1),
    of_session("cap-drop", None, 1),
    of_session("volume", Some('v'), 1),
    of_session("mount", None, 1),
    of_session("tmpfs", None, 1),
    of_session("ro", None, 1),
    of_session("rw", None, 1),
    of_session("workspace", None, 1),
    of_session("rootfs", None, 1),
    of_session("device", None, 1),
    of_session("profile", Some('p'), 1),
    of_session("network", None, 1),
    of_session("net", None, 1),
    of_session("allow-net", None, 1),
    of_session("deny-net", None, 1),
    of_session("publish", None, 1),
    of_session("add-host", None, 1),
    of_session("net-budget", None, 1),
    of_session("hostname", None, 1),
    of_session("label", None, 1),
    of_session("seccomp", None, 1),
    of_session("seccomp-allow", None, 1),
    of_session("security-opt", None, 1),
    of_session("landlock", None, 1),
    of_session("allow-read", None, 1),
    of_session("allow-write", None, 1),
    of_session("allow-exec", None, 1),
    of_session("ulimit", None, 1),
    of_session("scratch-size", None, 1),
    of_session("lifetime", None, 1),
    of_session("idle-stop", None, 1),
];

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::args::{Args, Dialect};
    use crate::cli::grammar::STOCKADE;

    #[test]
    fn every_row_is_answered_and_names_options_that_exist() {
        answered("run", &[], RUN);
        answered("exec", &["web"], EXEC);
    }

    fn answered(verb: &str, before: &[&str], rows: &[Foreign]) {
        let flags = |name: &str| STOCKADE.verbs.iter().find(|verb| verb.name == name).expect("there is one").flags();
        let is_ours = |name: &str| flags(verb).any(|flag| flag.long == name);
        let is_any = |name: &str| is_ours(name) || flags("run").any(|flag| flag.long == name);
        for row in rows {
            let name = row.name;
            assert!(!is_ours(name), "{name} is ours");
            assert_eq!(rows.iter().filter(|other| other.name == name).count(), 1, "{name} has two rows");
            for option in
                [Some(format!("--{name}")), row.letter.map(|letter| format!("-{letter}"))].into_iter().flatten()
            {
                let values = ["a", "b"].iter().take(row.values).map(|value| (*value).to_owned());
                let words =
                    [verb.to_owned(), option.clone()].into_iter().chain(values).chain(["--report=r".to_owned()]);
                let words: Vec<_> = words
                    .chain(before.iter().map(|word| (*word).to_owned()))
                    .chain(["true".into()])
                    .map(OsString::from)
                    .collect();
                let (args, read) = Args::read(&STOCKADE, Dialect::Stockade, &words);
                let report = args.value("report").and_then(|value| value.to_str());
                assert_eq!(report, Some("r"), "{name}: options after it count");
                assert_eq!(args.words.last().and_then(|word| word.to_str()), Some("true"), "{name}");
                assert_eq!(args.words.len(), before.len() + 1, "{name}: its values are not the command");
                match (&row.meaning, read) {
                    (Option(ours), Ok(())) => {
                        assert_eq!(args.value(ours).and_then(|value| value.to_str()), Some("a"), "{name}")
                    }
                    (Always, Ok(())) => assert_eq!(row.values, 0, "{name}"),
                    (Other(said), Err(error)) => {
                        assert_eq!((error.object, error.hint.as_deref()), (option, Some(*said)));
                        let named = said.split([' ', ',', ';', ':']).filter_map(|word| word.strip_prefix("--"));
                        let unknown: Vec<_> = named.filter(|word| !is_any(word) && *word != name).collect();
                        assert!(unknown.is_empty(), "{name}: there is no {unknown:?}");
                    }
                    (meaning, read) => panic!("{name}: {meaning:?}, but {read:?}"),
                }
            }
        }
    }
}
