//! `stockade seccomp check|compile|dump|explain` as a command.

use std::path::PathBuf;
use std::process::Command;

/// Exit code, standard output, standard error.
fn seccomp(words: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stockade")).arg("seccomp").args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A file, removed on drop.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stockade-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap_or_else(|error| panic!("{error}"));
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn check_says_what_is_wrong_and_strictly_fails() {
    let (code, out, _) = seccomp(&["check", "default", "--strict"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("no warnings"), "{out}");
    let file = File::new(
        "check.json",
        r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"action": "SCMP_ACT_ALLOW",
            "names": ["execve", "exit_group", "raed", "io_uring_setup"]}]}"#,
    );
    let (code, out, err) = seccomp(&["check", file.path()]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("syscalls[0].names[2]: \"raed\" is not a system call"), "{out}");
    assert!(out.contains("io_uring_setup passes: refused operations"), "{out}");
    assert_eq!(seccomp(&["check", "--strict", file.path()]).0, 1);
}

#[test]
fn a_compiled_program_can_be_dumped_and_is_the_profiles() {
    let file = File::new("docker.bpf", "");
    let (code, out, err) = seccomp(&["compile", "docker", "-o", file.path()]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains(" instructions, sha256 "), "{out}");
    let (code, dumped, err) = seccomp(&["dump", file.path()]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(dumped, seccomp(&["dump", "docker"]).1);
    let (code, out, _) = seccomp(&["check", "--strict", file.path()]);
    assert_eq!(code, 0, "{out}");
    // One instruction that allows everything, including calls of other tables.
    let open = File::new("open.bpf", "");
    std::fs::write(open.path(), [6, 0, 0, 0, 0, 0, 0xff, 0x7f]).unwrap_or_else(|error| panic!("{error}"));
    let (code, out, _) = seccomp(&["check", "--strict", open.path()]);
    assert!(code == 1 && out.contains("int 0x80") && out.contains("x32"), "{out}");
    assert!(dumped.lines().next().is_some_and(|line| line.ends_with("a = arch")), "{dumped}");
    assert!(dumped.contains("return KILL_PROCESS") && dumped.contains("return ERRNO(ENOSYS)"), "{dumped}");
}

#[test]
fn explain_names_the_rule() {
    for (words, wanted) in [
        (&["explain", "default", "ioctl", "0", "0x5413"][..], "ALLOW\n  by syscalls["),
        (&["explain", "default", "ioctl", "0", "0x100005412"], "ERRNO(ENOTTY)\n  by otherwise["),
        (&["explain", "default", "socket", "2", "1", "6", "--no-network"], "ERRNO(EAFNOSUPPORT)"),
        (&["explain", "default", "socket", "2", "1", "6"], "ALLOW\n  by inet: syscalls["),
        (&["explain", "default", "kcmp", "0", "--allow", "debug"], "ALLOW\n  by debug: syscalls[0]"),
        (&["explain", "docker", "mount", "0"], "ERRNO(EPERM), the default"),
        (&["explain", "docker", "mount", "0", "--cap", "CAP_SYS_ADMIN"], "ALLOW\n  by syscalls["),
        (&["explain", "docker", "1000"], "above every number the profile names"),
        (&["explain", "default", "personality", "-1"], "ALLOW"),
        (&["explain", "default", "clone"], "ALLOW if (int) arg0 & 0x7e020000 == 0"),
    ] {
        let (code, out, err) = seccomp(words);
        assert_eq!(code, 0, "{words:?}: {err}");
        assert!(out.contains(wanted), "{words:?}: {out:?} lacks {wanted:?}");
    }
}

#[test]
fn wrong_words_and_files_are_named_with_a_way_out() {
    let file = File::new(
        "broken.json",
        r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"action": "ALLOW", "names": []}]}"#,
    );
    let program = File::new("short.bpf", "12345678");
    for (words, wanted) in [
        (&["check", "defalt"][..], "did you mean default?"),
        (&["check", "/nonexistent.json"], "/nonexistent.json: No such file"),
        (&["check", "/dev/null"], "/dev/null: is not a regular file"),
        (&["check", file.path()], "syscalls[0].action: \"ALLOW\": is not an action"),
        (&["dump", program.path()], "instruction 0: is not an operation of seccomp"),
        (&["explain", "default", "sokcet"], "did you mean socket?"),
        (&["explain", "default", "socket", "AF_INET"], "AF_INET: is not a number"),
        (&["check", "default", "--allow", "debg"], "did you mean debug?"),
        (&["check", "default", "--cap", "CAP_SYS_ADMN"], "did you mean CAP_SYS_ADMIN?"),
        (&["compile", "default"], "--output <FILE>"),
        (&["frobnicate"], "frobnicate"),
        (&[], "check|compile|dump|explain"),
    ] {
        let (code, out, err) = seccomp(words);
        assert_eq!((code, out.as_str()), (125, ""), "{words:?}: {err}");
        assert!(err.contains(wanted), "{words:?}: {err:?} lacks {wanted:?}");
    }
}
