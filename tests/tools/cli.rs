//! The command line: each error is printed once, names the option, exits with 125, and leaves nothing behind. No sandbox is
//! needed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_stockade");

/// A private directory, removed on drop.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stockade-cli-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Self(path.canonicalize().unwrap())
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        path
    }

    pub fn names(&self) -> Vec<OsString> {
        let mut names: Vec<_> = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    pub fn stockade<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Output {
        Command::new(BINARY).args(words).current_dir(&self.0).stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("what is printed is UTF-8")
}

/// Fails unless the command exited with 125, with one message that contains all of `parts`, and nothing on standard output.
#[track_caller]
pub fn refused(output: &Output, parts: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert!(message.starts_with("stockade: "), "{message}");
    assert_eq!(message.matches("stockade: ").count(), 1, "one error is one message: {message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
    assert!(!message.chars().any(|c| c.is_control() && c != '\n'), "{message:?}");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn bad_flags_are_named_with_their_reason() {
    let scratch = Scratch::new("flags");
    scratch.file("file", "");
    let before = scratch.names();
    // The words, and parts of the message: the flag, the value if any, the reason.
    let table: &[(&[&str], &[&str])] = &[
        // Sizes.
        (&["-m", ""], &["--memory", "empty"]),
        (&["-m", "0"], &["--memory", "use at least 1"]),
        (&["-m", "-1"], &["--memory", "\"-1\"", "not a size"]),
        (&["-m", "1.5"], &["--memory", "\"1.5\"", "fractions, such as 1.5G"]),
        (&["-m", "1.5X"], &["--memory", "\"1.5X\"", "not a size"]),
        (&["-m", "1e9"], &["--memory", "\"1e9\"", "not a size"]),
        (&["-m", "∞"], &["--memory", "not a size"]),
        (&["-m", "18446744073709551616"], &["--memory", "larger"]),
        (&["-m", "99999999999g"], &["--memory", "larger"]),
        (&["-m", "01G"], &["--memory", "leading zero"]),
        (&["--scratch-size", "0"], &["--scratch-size", "use at least 1"]),
        (&["--scratch-inodes", "0"], &["--scratch-inodes", "at least 1"]),
        (&["--output-limit", "8M,middle"], &["--output-limit", "\"middle\"", "head, tail or kill"]),
        (&["--output-limit", ",head"], &["--output-limit", "empty"]),
        // Durations.
        (&["--timeout", "0"], &["--timeout", "unlimited"]),
        (&["--timeout", "1m1h"], &["--timeout", "\"1m1h\"", "not a duration"]),
        (&["--timeout=-1s"], &["--timeout", "\"-1s\"", "not a duration"]),
        (&["--timeout", "1y"], &["--timeout", "\"1y\"", "not a duration"]),
        (&["--timeout", "9223372036855"], &["--timeout", "292 years"]),
        (&["--cpu-time", "1.5"], &["--cpu-time", "not a duration"]),
        (&["--idle-timeout", "soon"], &["--idle-timeout", "not a duration"]),
        (&["--kill-after", "never"], &["--kill-after", "not a duration"]),
        // Numbers.
        (&["--cpus", "0"], &["--cpus", "too little"]),
        (&["--cpus", "0.001"], &["--cpus", "too little"]),
        (&["--cpus", "NaN"], &["--cpus", "\"NaN\""]),
        (&["--cpus", "1e9"], &["--cpus", "\"1e9\""]),
        (&["--cpus", "-1"], &["--cpus", "\"-1\""]),
        (&["--pids-limit", "0"], &["--pids-limit", "unlimited"]),
        (&["--pids-limit", "-2"], &["--pids-limit", "\"-2\""]),
        (&["--pids-limit", "9999999999"], &["--pids-limit", "4194304"]),
        (&["--oom-score-adj", "1001"], &["--oom-score-adj", "-1000 and 1000"]),
        (&["--oom-score-adj", "-1001"], &["--oom-score-adj", "-1000 and 1000"]),
        (&["--umask", "999"], &["--umask", "octal"]),
        (&["--umask", "01777"], &["--umask", "octal"]),
        (&["--ulimit", "nofile"], &["--ulimit", "NAME=SOFT[:HARD]"]),
        (&["--ulimit", "nofiles=1"], &["--ulimit", "nofiles", "did you mean nofile?"]),
        (&["--ulimit", "nofile=many"], &["--ulimit", "not a limit: a whole number, or a number of K"]),
        (&["--ulimit", "nofile=2:1"], &["--ulimit", "soft limit 2 is above the hard limit 1"]),
        (&["--ulimit", "nofile=-2"], &["--ulimit", "nofile=-2", "not a limit"]),
        (&["--ulimit", "nofile=18446744073709551615"], &["--ulimit", "larger"]),
        // Users.
        (&["-u", ""], &["--user", "empty"]),
        (&["-u", "-1"], &["--user", "\"-1\""]),
        (&["-u", "4294967295"], &["--user", "at most 4294967294"]),
        (&["-u", "4294967296"], &["--user", "4294967296"]),
        (&["-u", "1:"], &["--user", "UID[:GID]"]),
        (&["-u", "1:2:3"], &["--user", "\"2:3\""]),
        (&["-u", "daemon"], &["--user", "daemon", "root, sandbox or nobody"]),
        (&["--host-user", "0"], &["--host-user", "root"]),
        (&["--host-user", "1:0"], &["--host-user", "root"]),
        (&["--host-user", "1", "--subuid"], &["--host-user", "--subuid"]),
        (&["--cap-add", "CAP_99"], &["--cap-add", "CAP_99", "not a capability"]),
        (&["--cap-add", "sys_admn"], &["--cap-add", "did you mean SYS_ADMIN?"]),
        // Names.
        (&["--name", ""], &["--name", "1 to 64"]),
        (&["--name", "."], &["--name", "\".\""]),
        (&["--name", ".."], &["--name", "\"..\""]),
        (&["--name", "-rf"], &["--name", "\"-rf\""]),
        (&["--name", "a/b"], &["--name", "\"a/b\""]),
        (&["--name", "a\nb"], &["--name", "a\\nb"]),
        (&["--name", "ü"], &["--name", "ü"]),
        (&["--hostname", ""], &["--hostname", "host name"]),
        (&["--hostname", "a/b"], &["--hostname", "\"a/b\""]),
        (&["--hostname", "a b"], &["--hostname", "\"a b\""]),
        (&["--network", "hots"], &["--network", "\"hots\"", "none, loopback, egress or host"]),
        (&["--network", ""], &["--network"]),
        (&["--allow-degraded", "everything"], &["--allow-degraded", "everything", "known: cpu, memory"]),
        (&["--allow-degraded", "memroy"], &["--allow-degraded", "did you mean memory?"]),
        // Paths and mounts.
        (&["-w", "relative"], &["--workdir", "\"relative\"", "does not show", "--workspace ."]),
        (&["--workspace", ".", "--workspace", "/tmp"], &["--workspace", "twice"]),
        (&["--rootfs", "/a", "--rootfs", "/b"], &["--rootfs", "twice"]),
        (&["-w", "/a/../b"], &["--workdir", "\"..\""]),
        (&["-v", ""], &["--volume", "empty"]),
        (&["-v", "/a:/b:/c"], &["--volume", "/a:/b:/c", "colons"]),
        (&["-v", "/a:/b:rx"], &["--volume", "\"rx\"", "ro, rw, noexec or optional"]),
        (&["-v", "/a:b"], &["--volume", "\"b\"", "absolute path inside"]),
        (&["-v", "/a:/b:ro,rw"], &["--volume", "both ro and rw"]),
        (&["-v", "/a:/"], &["--volume", "mount's destination"]),
        (&["-v", "/a:/proc/self"], &["--volume", "/proc"]),
        (&["-v", "/a:/dev"], &["--volume", "/dev"]),
        (&["-v", "~/a:/b"], &["--volume", "not expanded"]),
        (&["-v", "$HOME:/b"], &["--volume", "not expanded"]),
        (&["-v", "/:/host"], &["bind of /", "cannot be bound writable"]),
        (&["-v", "/proc/self/root:/host"], &["bind of /proc/self/root", "cannot be bound writable"]),
        (&["--rw", "/"], &["--rw", "mount's destination"]),
        (&["--ro", "a/../b"], &["--ro", "a/../b", "\"..\""]),
        (&["--ro", "/proc"], &["--ro", "/proc"]),
        (&["--mount", "type=volume,dst=/a"], &["--mount", "\"volume\"", "bind or tmpfs"]),
        (&["--mount", "type=bind,scr=/a,dst=/b"], &["--mount", "\"scr\"", "option of a mount"]),
        (&["--mount", "type=tmpfs,dst=/a,size=0"], &["--mount", "size", "use at least 1"]),
        (&["--mount", "type=tmpfs,dst=/a,mode=999"], &["--mount", "mode", "octal"]),
        (&["--tmpfs", "/a:size=-1"], &["--tmpfs", "size", "\"-1\""]),
        (&["--tmpfs", "/a:foo"], &["--tmpfs", "\"foo\""]),
        (&["--tmpfs", "a"], &["--tmpfs", "not an absolute path"]),
        (&["--tmpfs", "/a", "--tmpfs", "/a"], &["\"/a\"", "mounted twice"]),
        (&["--tmpfs", "/a", "-v", "/usr:/a//"], &["\"/a\"", "mounted twice"]),
        (&["--workspace", ".", "--tmpfs", "/workspace"], &["workspace", "another setting"]),
        (&["--device", "/etc/passwd"], &["--device", "below /dev"]),
        (&["--device", "/dev/../etc/passwd"], &["--device", "\"..\""]),
        // Environment.
        (&["-e", ""], &["--env", "empty"]),
        (&["-e", "=x"], &["--env", "empty"]),
        (&["-e", "A B=x"], &["--env", "A B", "blank"]),
        (&["-e", "A\u{1b}=x"], &["--env", "control character"]),
        (&["-e", "LC_*"], &["--env", "name each variable"]),
        (&["--env-file", "missing"], &["missing", "ENOENT"]),
        (&["--env-file", "."], &[".", "directory"]),
        (&["--env-file", "/dev/zero"], &["/dev/zero", "not a regular file"]),
        // Policies by name.
        (&["-p", ""], &["not a built-in policy"]),
        (&["-p", "strcit"], &["strcit", "did you mean `strict`?"]),
        (&["-p", "file"], &["file", "./file"]),
        (&["-p", "./missing.toml"], &["./missing.toml", "ENOENT"]),
        (&["-p", "build"], &["workspace", "--workspace DIR"]),
        // The command line itself.
        (&["--memroy", "1G"], &["--memroy", "did you mean --memory?"]),
        (&["--bogus"], &["--bogus", "not an option"]),
        (&["-X"], &["-X", "not an option"]),
        (&["--tty=yes"], &["--tty", "takes no value"]),
        (&["--memory"], &["not a size"]),
    ];
    for (words, parts) in table {
        for verb in ["plan", "run"] {
            let output = scratch.stockade([&[verb], *words, &["true"]].concat());
            refused(&output, parts);
        }
    }
    assert_eq!(scratch.names(), before, "nothing was created");
}

#[test]
fn a_command_is_needed_and_verbs_are_known() {
    let scratch = Scratch::new("verbs");
    refused(&scratch.stockade(["rum"]), &["rum", "did you mean `stockade run`?"]);
    refused(&scratch.stockade(["make"]), &["unknown verb", "`stockade run make` runs a program; stockade run|exec"]);
    refused(&scratch.stockade(["--bogus"]), &["--bogus"]);
    refused(&scratch.stockade(["plan"]), &["COMMAND", "is missing"]);
    refused(&scratch.stockade(["plan", "--"]), &["COMMAND", "is missing"]);
    refused(&scratch.stockade(["plan", ""]), &["COMMAND", "empty string"]);
    refused(&scratch.stockade(["run", "-m"]), &["--memory", "needs a value"]);
    refused(&scratch.stockade(["help", "rum"]), &["rum"]);
    refused(&scratch.stockade(["completions"]), &["SHELL", "bash"]);
    refused(&scratch.stockade(["completions", "csh"]), &["csh"]);
    refused(&scratch.stockade(["man", ".", "."]), &["unexpected argument"]);
    refused(&scratch.stockade(["man", "runn"]), &["\"runn\"", "neither a page nor a directory"]);
    for (words, title) in [
        (&["man", "run"][..], "stockade-run 1"),
        (&["man", "net", "allow"], "stockade-net-allow 1"),
        (&["man", "stockade-run"], "stockade-run 1"),
        (&["man", "policy"], "stockade-policy 5"),
        (&["man", "stockade-oci"], "stockade-oci 1"),
        (&["man"], "stockade 1"),
    ] {
        let page = text(&scratch.stockade(words).stdout);
        assert!(page.contains(&format!(".TH {title}")), "{words:?}: {page}");
    }
    for (words, part) in [(&[][..], "stockade run -- COMMAND"), (&["run"], "--workspace . -- make test")] {
        let output = scratch.stockade(words);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(125), String::new()), "{words:?}");
        let usage = text(&output.stderr);
        assert!(usage.starts_with("Usage: stockade") && usage.contains(part) && usage.lines().count() < 12, "{usage}");
    }
    refused(&scratch.stockade(["man", "./missing"]), &["missing", "ENOENT"]);
    for words in
        [&["help"][..], &["--help"], &["help", "run"], &["run", "--help"], &["run", "-h"], &["plan", "-it", "-h"]]
    {
        let output = scratch.stockade(words);
        assert!(output.status.success() && text(&output.stdout).contains("Usage: stockade"), "{words:?}");
        assert_eq!(text(&output.stderr), "");
    }
    let version = scratch.stockade(["--version"]);
    assert_eq!(text(&version.stdout), format!("stockade {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn any_bytes_go_through_argv_environment_and_paths() {
    let scratch = Scratch::new("bytes");
    let odd = OsString::from_vec(b"\xff\x1b[31m \xc3".to_vec());
    let mut assignment = OsString::from("ODD=");
    assignment.push(&odd);
    let mut volume = OsString::from("/");
    volume.push(&odd);
    volume.push(":/x:optional");
    let words: Vec<&OsStr> = ["plan", "--json", "-e"]
        .map(OsStr::new)
        .into_iter()
        .chain([&*assignment, OsStr::new("-v"), &*volume, &*odd])
        .collect();
    let output = scratch.stockade(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plan: stockade::plan::RunPlan = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan.command.argv[0].as_bytes(), odd.as_bytes());
    assert!(plan.command.env.iter().any(|entry| entry.as_bytes() == assignment.as_bytes()));
    assert!(plan.mounts.iter().any(|mount| mount.destination == "/x".into()));

    let output = scratch.stockade(words.iter().filter(|word| **word != "--json"));
    let printed = text(&output.stdout);
    assert!(printed.contains("\\xff") && !printed.contains('\u{1b}'), "{printed}");
    let output = scratch.stockade([OsStr::new("plan"), OsStr::new("-m"), &odd, OsStr::new("true")]);
    refused(&output, &["--memory", "not UTF-8"]);
}

#[test]
fn a_plan_is_the_same_each_time_but_for_its_name() {
    let scratch = Scratch::new("hash");
    let plan = |words: &[&str]| -> stockade::plan::RunPlan {
        let output = scratch.stockade([&["plan", "--json"], words].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (one, two) = (plan(&["true"]), plan(&["false", "-x"]));
    assert_ne!(one.confinement.id, two.confinement.id);
    assert_eq!(one.policy_sha256, two.policy_sha256, "the command is not the policy");
    assert_eq!(one.policy_sha256.len(), 64);
    assert_ne!(one.policy_sha256, plan(&["--tmpfs", "/x", "true"]).policy_sha256);
    assert_eq!(plan(&["--name", "a.b", "true"]).confinement.id, "a.b");
}

#[test]
fn the_intake_survives_the_state_it_was_started_in() {
    let scratch = Scratch::new("state");
    let shell = |script: &str| {
        let output =
            Command::new("/bin/sh").arg("-c").arg(script).env("S", BINARY).current_dir(&scratch.0).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(shell("exec \"$S\" plan true <&- >&-").0, Some(0));
    assert_eq!(shell("\"$S\" plan true | true").1, "", "a closed pipe is no error");
    assert_eq!(shell("exec \"$S\" plan true >/dev/full").0, Some(125));
    assert_eq!(shell("umask 777; exec \"$S\" plan true >/dev/null").0, Some(0));
    assert_eq!(shell("mkdir gone; cd gone; rmdir ../gone; exec \"$S\" plan true >/dev/null").0, Some(0));
    let (code, message) = shell("mkdir gone; cd gone; rmdir ../gone; exec \"$S\" plan --workspace . true");
    assert_eq!(code, Some(125));
    assert!(message.contains("--workspace") && message.contains("relative"), "{message}");
    let output = Command::new(BINARY).args(["plan", "true"]).env_clear().output().unwrap();
    assert!(output.status.success());
}

mod report {
    use super::*;

    fn read(path: &Path) -> stockade::report::Report {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn it_is_written_also_when_the_words_or_the_policy_are_wrong() {
        let scratch = Scratch::new("report");
        let file = scratch.0.join("r.json");
        for (words, step) in [
            (vec!["run", "--bogus", "--report", "r.json", "true"], "usage"),
            (vec!["run", "-m", "1.5", "--report=r.json", "true"], "usage"),
            (vec!["run", "--report", "r.json"], "usage"),
            (vec!["run", "--report", "r.json", "-p", "nope", "true"], "policy"),
            (vec!["run", "--report", "r.json", "--name", "a/b", "true"], "usage"),
            (vec!["run", "--report", "r.json", "-p", "build", "--name", "named", "true"], "plan"),
        ] {
            std::fs::write(&file, "what was there before").unwrap();
            let output = scratch.stockade(&words);
            assert_eq!(output.status.code(), Some(125));
            let report = read(&file);
            assert_eq!((report.status, report.exit_code), (stockade::report::Status::SetupError, 125));
            let error = report.error.unwrap();
            assert_eq!(error.step.name(), step, "{words:?}");
            assert!(text(&output.stderr).contains(&error.reason), "the report contains the printed reason");
            assert_eq!(scratch.names(), ["r.json"], "a temporary file is left");
            if words.contains(&"named") {
                assert_eq!(report.id, "named");
            }
        }
        let output = scratch.stockade(["run", "--bogus", "true", "--report", "not-ours.json"]);
        assert_eq!(output.status.code(), Some(125));
        assert_eq!(scratch.names(), ["r.json"], "options after the command belong to the command");
    }

    #[test]
    fn a_place_that_is_not_a_file_is_refused_before_anything_runs() {
        let scratch = Scratch::new("report-place");
        scratch.file("target", "untouched");
        std::os::unix::fs::symlink("target", scratch.0.join("link")).unwrap();
        std::os::unix::fs::symlink("absent", scratch.0.join("dangling")).unwrap();
        std::fs::create_dir(scratch.0.join("directory")).unwrap();
        let made = Command::new("mkfifo").arg(scratch.0.join("fifo")).status().unwrap();
        assert!(made.success());
        let before = scratch.names();
        for (target, reason) in [
            ("link", "symlink"),
            ("dangling", "symlink"),
            ("directory", "directory"),
            ("fifo", "FIFO"),
            ("/dev/null", "not a regular file"),
            ("directory/", "does not name a file"),
            ("", "does not name a file"),
            ("..", "does not name a file"),
            ("missing/r.json", "ENOENT"),
            ("target/r.json", "ENOTDIR"),
            ("/proc/r.json", ""),
            ("fd:0", "standard input"),
            ("fd:1", "standard output"),
            ("fd:77", "EBADF"),
            ("fd:-1", "number"),
            ("fd:x", "number"),
            ("fd:", "number"),
            ("fd:99999999999", "number"),
        ] {
            // The command would leave a trace if it ran or if its words were parsed.
            let output = scratch.stockade(["run", "--report", target, "--rw", ".", "touch", "ran"]);
            refused(&output, &["writing the report", reason]);
        }
        assert_eq!(scratch.names(), before);
        assert_eq!(std::fs::read_to_string(scratch.0.join("target")).unwrap(), "untouched");
    }

    #[test]
    fn a_descriptor_takes_it() {
        let scratch = Scratch::new("report-fd");
        let shell = |script: &str| {
            let command =
                Command::new("/bin/sh").arg("-c").arg(script).env("S", BINARY).current_dir(&scratch.0).output();
            command.unwrap()
        };
        assert_eq!(shell("exec \"$S\" run --report fd:3 --bogus 3>r.json").status.code(), Some(125));
        assert_eq!(read(&scratch.0.join("r.json")).exit_code, 125);
        let output = shell("exec \"$S\" run --report fd:3 --bogus 3</dev/null");
        assert!(text(&output.stderr).contains("not open for writing"));
        let output = shell("exec \"$S\" run --report fd:3 --bogus 3>/dev/full");
        assert_eq!(output.status.code(), Some(125));
        assert!(text(&output.stderr).contains("ENOSPC"), "{}", text(&output.stderr));
        let output = shell("exec \"$S\" run --report fd:2 --bogus");
        assert!(text(&output.stderr).contains("stockade/report/v1"));
    }
}
