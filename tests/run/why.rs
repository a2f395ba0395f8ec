//! `stockade why` says what a run with the same options finds.

use std::collections::BTreeMap;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::run::binary_for;
use crate::common::{Caller, PATH, Run, TempDir, for_each_caller, schema, set_mode, text};

/// A caller with a program to ask.
struct Asker {
    caller: Caller,
    binary: PathBuf,
    schema: Value,
    _home: TempDir,
}

impl Asker {
    fn new(caller: Caller) -> Self {
        let home = TempDir::new(caller);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/why.schema.json");
        let schema = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        Self { caller, binary: binary_for(caller, &home), schema, _home: home }
    }

    /// The answers to a question, and the exit code.
    fn why(&self, words: &[&str]) -> (Value, i32) {
        let mut command = self.caller.command(&self.binary);
        let done = command.args(["why", "--json"]).args(words).env_clear().env("PATH", PATH).output().unwrap();
        let said =
            || format!("{words:?}: {}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        let json = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", said()));
        assert_eq!(schema::violations(&self.schema, &json), [""; 0], "{}", said());
        (json, done.status.code().unwrap())
    }
}

/// What the answer of this name says: `yes`, `depends`, or the error.
fn answer(json: &Value, what: &str) -> String {
    let answers = json["answers"].as_array().unwrap();
    let answer = answers.iter().find(|answer| answer["what"] == what).unwrap_or_else(|| panic!("{json:#}"));
    assert!(answer["because"].as_str().is_some_and(|because| !because.is_empty()), "{json:#}");
    match answer["allowed"].as_str().unwrap() {
        "no" => answer["error"].as_str().unwrap_or("no").to_owned(),
        allowed => allowed.to_owned(),
    }
}

/// Tries each path, and prints a line of JSON: what reading, writing and executing it gives.
const PROBE: &str = r#"
import errno, json, os, stat, sys
def tried(act, path):
    try:
        act(path)
        return "yes"
    except OSError as error:
        return errno.errorcode[error.errno]
def read(path):
    os.listdir(path) if os.path.isdir(path) else os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
def write(path):
    if os.path.isdir(path): path += "/probe"
    there = os.path.exists(path)
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | (0 if there else os.O_CREAT), 0o644))
    if not there: os.unlink(path)
def execute(path):
    quiet = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]
    os.waitpid(os.posix_spawn(path, [path], {}, file_actions=quiet), 0)
print(json.dumps({path: {act.__name__: tried(act, path) for act in (read, write, execute)} for path in sys.argv[1:]}))
"#;

/// Returns where the answers differ from what a run finds.
fn compare(asker: &Asker, options: &[&str], paths: &[&str]) -> Vec<String> {
    let command = ["/usr/bin/python3", "-I", "-S", "-c", PROBE].iter().chain(paths).copied();
    let run = Run::new(asker.caller).opts(options.iter().copied()).cmd(command).go().expect(0);
    let found: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(&run.text()).unwrap();
    let mut wrong = Vec::new();
    for path in paths {
        let (json, code) = asker.why(&[options, &[*path]].concat());
        for (what, real) in &found[*path] {
            let said = answer(&json, what);
            // Both refuse: the file's mode is asked before the mount is.
            let as_said = said == *real || (said.as_str(), real.as_str()) == ("EROFS", "EACCES");
            if !as_said && said != "depends" {
                wrong.push(format!("{:?} {options:?} {path}: {what} is {real}: {json}", asker.caller));
            }
        }
        let depends = answer(&json, "read") == "depends";
        assert_eq!(code, if depends { 2 } else { i32::from(answer(&json, "read") != "yes") }, "{json:#}");
    }
    wrong
}

#[test]
fn the_answer_about_a_path_is_what_a_run_finds() {
    for_each_caller(|caller| {
        let (asker, data) = (Asker::new(caller), TempDir::new(caller));
        let mode = |name: &str, content: &str, mode: u32| set_mode(&data.file(name, content), mode);
        mode("file", "content", 0o644);
        mode("private", "content", 0o600);
        mode("shared", "content", 0o666);
        mode("program", "#!/bin/sh\nexit 0\n", 0o755);
        mode("lost", "#!/nowhere/sh\n", 0o755);
        data.dir("closed");
        std::fs::write(data.join("closed/inner"), "x").unwrap();
        set_mode(&data.join("closed"), 0o700);
        symlink("file", data.join("link")).unwrap();
        symlink("/etc/shadow", data.join("away")).unwrap();
        symlink("loop", data.join("loop")).unwrap();
        if caller == Caller::Root {
            chown(data.join("shared"), Some(12_345), Some(12_345)).unwrap();
        }
        let dir = text(data.path());
        let below = |base: &str| {
            [
                "",
                "/file",
                "/private",
                "/shared",
                "/program",
                "/lost",
                "/closed",
                "/closed/inner",
                "/link",
                "/away",
                "/loop",
                "/new",
                "/none/new",
                "/file/x",
            ]
            .map(|name| format!("{base}{name}"))
        };
        fn refs(paths: &[String]) -> Vec<&str> {
            paths.iter().map(String::as_str).collect()
        }
        let (own, moved) = (below(dir), below("/data/here"));
        let (own, moved) = (refs(&own), refs(&moved));
        let host = [
            "/",
            "/new",
            "/usr",
            "/usr/bin/true",
            "/usr/bin/new",
            "/bin/sh",
            "/etc",
            "/etc/passwd",
            "/etc/foo",
            "/etc/shadow",
            "/etc/../etc/./hostname",
            "/etc/mtab",
            "/tmp",
            "/tmp/new",
            "/tmp/a/b",
            "/var/tmp/new",
            "/var",
            "/home/sandbox/x",
            "/home/new",
            "/root",
            "/root/.bashrc",
            "/nowhere/x",
            "/dev",
            "/dev/null",
            "/dev/full",
            "/dev/new",
            "/dev/fd",
            "/dev/shm/x",
            "/dev/ptmx",
            "/proc",
            "/proc/cpuinfo",
            "/proc/kcore",
            "/proc/sys/kernel/hostname",
            "/proc/sysrq-trigger",
            "/proc/new",
            "/proc/self/status",
            "/sys/kernel",
            "/run",
            dir,
            own[1],
        ];
        let mount = format!("{dir}:/data/here:ro,noexec");
        let cases: [(&[&str], &[&str]); 10] = [
            (&[], &host),
            (&["--ro", dir], &own),
            (&["--rw", dir], &own),
            (&["-v", &mount], &moved),
            (&["--rw", dir, "--allow-write", "/tmp"], &own[..9]),
            (&["--ro", dir, "--allow-read", "/usr", "--allow-read", "/etc", "--allow-read", own[1]], &own[..9]),
            (&["--ro", dir, "--allow-exec", "/usr/bin"], &[own[4], "/usr/bin/true", "/bin/sh", "/tmp", "/etc/passwd"]),
            (
                &["--rootfs", "/", "-v", &mount.replace("/data/here", "/mnt")],
                &["/mnt/file", "/etc/shadow", "/root/x", "/etc/new", "/tmp/new", own[1]],
            ),
            (
                &["--sysfs", "--tmpfs", "/opt:mode=555", "--tmpfs", "/srv"],
                &["/opt", "/opt/new", "/srv/new", "/sys/kernel", "/sys/kernel/new"],
            ),
            (&["--landlock", "off", "--rw", dir, "--user", "root"], &own),
        ];
        // Not every file system can be the root of an ordinary user's run with mounts.
        let here =
            cases.into_iter().filter(|(options, _)| caller == Caller::Root || options.first() != Some(&"--rootfs"));
        let wrong: Vec<String> = here.flat_map(|(options, paths)| compare(&asker, options, paths)).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let hint =
            |words: &[&str], at: usize| asker.why(words).0["answers"][at]["hint"].as_str().unwrap_or("").to_owned();
        assert_eq!(hint(&[own[1]], 0), format!("--ro {} would show it", own[1]));
        assert_eq!(hint(&["--ro", dir, own[1]], 1), format!("--rw {dir} would make it writable, on the host too"));
        std::fs::write(format!("{dir}/stockade.toml"), "version = 1\n").unwrap();
        let kept = hint(&["--workspace", dir, "/workspace/stockade.toml"], 1);
        assert!(caller == Caller::Root || kept.starts_with("it is kept from the command"), "{kept}");
        assert_eq!(asker.why(&["--to", "write", "--ro", dir, own[1]]).1, 1);
        assert_eq!(asker.why(&["--to", "write", "--rw", dir, own[1]]).1, 0);
    });
}

/// Tries to connect, and prints a line of JSON. A host that answers with a reset was reached.
const CONNECT: &str = r#"
import errno, json, socket, sys
def tried(word):
    host, port = word.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), 2).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True
print(json.dumps({word: tried(word) for word in sys.argv[1:]}))
"#;

#[test]
fn the_answer_about_a_host_is_what_a_run_finds() {
    for_each_caller(|caller| {
        let asker = Asker::new(caller);
        let words = ["127.0.0.1:9", "localhost:9", "sandbox:9", "0.0.0.0:9", "203.0.113.10:80", "api.example.com:443"];
        let listed = crate::common::host::landlock_abi().0 >= 4;
        for options in
            [&[][..], &["--network", "none"], &["-p", "strict"], &["--allow-connect", "80"], &["--seccomp", "docker"]]
        {
            if options.contains(&"--allow-connect") && !listed {
                continue;
            }
            let command = ["/usr/bin/python3", "-I", "-S", "-c", CONNECT].into_iter().chain(words);
            let run = Run::new(caller).opts(options.iter().copied()).cmd(command).go().expect(0);
            let found: BTreeMap<String, bool> = serde_json::from_str(&run.text()).unwrap();
            for word in words {
                let (json, code) = asker.why(&[options, &[word]].concat());
                assert_eq!(code == 0, found[word], "{options:?} {word}: {json:#}");
            }
        }
    });
}

#[test]
fn a_rule_for_hosts_is_named() {
    let caller = crate::common::callers()[0];
    let asker = Asker::new(caller);
    let rules = ["--allow-net", "*.example.com:443", "--deny-net", "bad.example.com", "--allow-net", "10.1.2.0/24:22"];
    let hosts = ["--add-host", "in.example.com=10.0.0.5", "--add-host", "out.example.com=203.0.113.10"];
    for (question, code, because, hint) in [
        ("api.example.com:443", 0, "--allow-net *.example.com:443", "--deny-net api.example.com:443"),
        ("api.example.com:80", 1, "no rule", "--allow-net api.example.com:80 would allow it"),
        ("bad.example.com:443", 1, "--deny-net bad.example.com", "wins"),
        ("in.example.com:443", 1, "10.0.0.5 is private", "--allow-net 10.0.0.5:443 as well"),
        ("out.example.com:443", 0, "--allow-net *.example.com:443", "--deny-net"),
        ("10.1.2.3:22", 0, "--allow-net 10.1.2.0/24:22", "--deny-net"),
        ("10.1.2.3:80", 1, "private", "--allow-net 10.1.2.3:80"),
        ("127.0.0.1:80", 0, "itself", ""),
        ("[2001:db8::1]:443", 1, "no rule", "--allow-net [2001:db8::1]:443"),
    ] {
        let (json, exit) = asker.why(&[&rules[..], &hosts, &[question]].concat());
        let says = |key: &str, text: &str| json["answers"][0][key].as_str().unwrap_or("").contains(text);
        assert!(exit == code && says("because", because) && says("hint", hint), "{question}: {json:#}");
    }
    let host = ["--network", "host", "api.example.com:443"];
    assert_eq!(asker.why(&host).1, 0);
    for wrong in ["getpidd", "example.com:none", "relative/path", "example.com", "a_b!:80"] {
        let refused = Run::new(caller).plain().opts(["why", wrong]).go().expect(125);
        assert!(refused.stderr.contains(wrong), "{refused}");
    }
    let near = Run::new(caller).plain().opts(["why", "getpidd"]).go().expect(125);
    assert!(near.stderr.contains("did you mean getpid?"), "{near}");
    let shown = Run::new(caller).plain().opts(["why", "/etc/foo"]).go().expect(1);
    assert!(shown.text().starts_with("/etc/foo\n  read, execute  no "), "{shown}");
}

/// Makes each call with arguments that no call accepts, in a child that a filter may kill.
const CALL: &str = r#"
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def tried(number):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        done = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
        os.write(writer, (errno.errorcode[ctypes.get_errno()] if done == -1 else "yes").encode())
        os._exit(0)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    said = os.read(reader, 99).decode() or "SIG%d" % os.WTERMSIG(status)
    os.close(reader)
    return said
print(json.dumps({number: tried(int(number)) for number in sys.argv[1:]}))
"#;

#[test]
fn the_answer_about_a_system_call_is_what_a_run_finds() {
    let calls: BTreeMap<&str, libc::c_long> = BTreeMap::from([
        ("getpid", libc::SYS_getpid),
        ("close", libc::SYS_close),
        ("dup", libc::SYS_dup),
        ("kcmp", libc::SYS_kcmp),
        ("keyctl", libc::SYS_keyctl),
        ("ptrace", libc::SYS_ptrace),
        ("mount", libc::SYS_mount),
        ("unshare", libc::SYS_unshare),
        ("setns", libc::SYS_setns),
        ("bpf", libc::SYS_bpf),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("clone3", libc::SYS_clone3),
        ("openat2", libc::SYS_openat2),
        ("swapon", libc::SYS_swapon),
        ("listen", libc::SYS_listen),
        ("splice", libc::SYS_splice),
        ("shmget", libc::SYS_shmget),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("socket", libc::SYS_socket),
        ("ioctl", libc::SYS_ioctl),
    ]);
    let numbers: Vec<String> = calls.values().map(ToString::to_string).collect();
    for_each_caller(|caller| {
        let asker = Asker::new(caller);
        for options in [&[][..], &["-p", "strict"], &["--seccomp", "unconfined"]] {
            let command =
                ["/usr/bin/python3", "-I", "-S", "-c", CALL].into_iter().map(str::to_owned).chain(numbers.clone());
            let run = Run::new(caller).opts(options.iter().copied()).cmd(command).go().expect(0);
            let found: BTreeMap<String, String> = serde_json::from_str(&run.text()).unwrap();
            for (name, number) in &calls {
                let (json, code) = asker.why(&[options, &[name]].concat());
                let (said, real) = (answer(&json, "call"), &found[&number.to_string()]);
                match said.as_str() {
                    // Allowed calls fail too, with these arguments.
                    "yes" => assert!(
                        options.contains(&"unconfined") || !["EPERM", "ENOSYS"].contains(&real.as_str()),
                        "{name}: {real}: {json:#}"
                    ),
                    "depends" => {
                        assert!(json["answers"][0]["because"].as_str().unwrap().contains("arguments"), "{json:#}")
                    }
                    error => assert_eq!(error, real.replace("SIG31", "SIGSYS"), "{options:?} {name}: {json:#}"),
                }
                assert_eq!(
                    code,
                    match said.as_str() {
                        "yes" => 0,
                        "depends" => 2,
                        _ => 1,
                    }
                );
            }
        }
        let hint = |name: &str| asker.why(&[name]).0["answers"][0]["hint"].to_string();
        assert!(hint("kcmp").contains("--seccomp-allow debug would allow it"), "{}", hint("kcmp"));
        assert!(hint("clone3").contains("without it"), "{}", hint("clone3"));
    });
}

/// A capability may override a mode, which is not known before the run.
#[test]
fn a_capability_that_may_override_a_mode_is_said() {
    for_each_caller(|caller| {
        let asker = Asker::new(caller);
        let dir = TempDir::new(caller);
        let closed = dir.file("closed", "content\n");
        set_mode(&closed, 0);
        let (dir, closed) = (text(dir.path()), text(&closed));
        let (json, code) = asker.why(&["--ro", dir, closed]);
        assert_eq!((answer(&json, "read").as_str(), code), ("EACCES", 1), "{json:#}");
        let (json, code) = asker.why(&["--ro", dir, "--cap-add", "DAC_OVERRIDE", closed]);
        assert_eq!((answer(&json, "read").as_str(), code), ("depends", 2), "{json:#}");
        assert!(json.to_string().contains("CAP_DAC_OVERRIDE may override"), "{json:#}");
        assert_eq!(answer(&asker.why(&["--cap-add", "CHOWN", "--ro", dir, closed]).0, "read"), "EACCES");
    });
}
