//! The filter of a run: calls that the default refuses, and those of a custom profile. Each attack is made once under the filter
//! and once with `--seccomp unconfined`, where another layer stops it, or nothing.

use crate::common;
use crate::common::{Caller, Outcome, Run, TempDir, attack, for_each_caller, skip_part, text};
use serde_json::json;

fn run(caller: Caller, options: &[&str], program: &str) -> Outcome {
    Run::new(caller).opts(options.iter().copied()).python(&attack(program)).go()
}

/// A run under the default, and one without a filter.
fn with_and_without(caller: Caller, options: &[&str], program: &str) -> (Outcome, Outcome) {
    let unconfined = [options, &["--seccomp", "unconfined"]].concat();
    (run(caller, options, program).expect(0), run(caller, &unconfined, program).expect(0))
}

/// The call, its result under the default, and its possible results without a filter.
type Expected<'a> = (&'a str, &'a str, &'a [&'a str]);

#[track_caller]
fn compare(caller: Caller, options: &[&str], program: &str, expected: &[Expected<'_>]) {
    let (with, without) = with_and_without(caller, options, program);
    for (name, refused, free) in expected {
        assert_eq!(with.value(name), *refused, "{name} under the default");
        let value = without.value(name);
        assert!(free.contains(&value.as_str()), "{name} without a filter: {value}");
        assert!(!free.contains(refused), "{name}: the probe proves nothing");
    }
}

#[test]
fn calls_over_other_processes_are_refused() {
    for_each_caller(|caller| {
        let program = r#"
child = os.fork()
if child == 0:
    import time
    time.sleep(30)
    os._exit(0)
syscall("compare", 312, child, os.getpid(), 0, 0, 0)
pidfd = os.pidfd_open(child)
syscall("steal", 438, pidfd, 1, 0)
os.kill(child, 9)
os.waitpid(child, 0)
"#;
        let expected: Vec<Expected<'_>> = ["compare", "steal"].map(|name| (name, "EPERM", &["OK"][..])).into();
        compare(caller, &["--landlock", "off"], program, &expected);
    });
}

#[test]
fn new_namespaces_and_mounts_are_refused() {
    for_each_caller(|caller| {
        let program = r#"
syscall("unshare user", 272, 0x10000000)
syscall("unshare mount", 272, 0x00020000)
syscall("unshare nothing", 272, 0)
syscall("clone3", 435, None, 0)
syscall("setns", 308, -1, 0)
syscall("mount", 165, b"none\0", b"/tmp\0", b"tmpfs\0", 0, None)
syscall("open_tree", 428, -100, b"/none\0", 0)
syscall("fsopen", 430, b"none\0", 0)
syscall("chroot", 161, b"/none\0")
"#;
        let second = ["ENOSPC", "EPERM"]; // from the namespace limits, and for missing capabilities
        compare(
            caller,
            &[],
            program,
            &[
                ("unshare nothing", "EPERM", &["OK"]),
                ("clone3", "ENOSYS", &["EINVAL"]),
                ("setns", "EPERM", &["EBADF"]),
                ("open_tree", "ENOSYS", &["ENOENT"]),
                ("fsopen", "ENOSYS", &["EPERM", "ENODEV"]),
                ("chroot", "EPERM", &["ENOENT"]),
            ],
        );
        let (with, without) = with_and_without(caller, &[], program);
        for name in ["unshare user", "unshare mount", "mount"] {
            assert_eq!(with.value(name), "EPERM", "{with}");
            assert!(second.contains(&without.value(name).as_str()), "the second layer holds: {without}");
        }
    });
}

#[test]
fn other_doors_into_the_kernel_are_refused() {
    for_each_caller(|caller| {
        let program = r#"
parameters = ctypes.create_string_buffer(120)
syscall("io_uring", 425, 1, parameters)
syscall("io_uring bad", 425, 0, None)
syscall("aio", 206, 1, ctypes.create_string_buffer(8))
syscall("userfaultfd", 323, 1)
syscall("bpf", 321, 999, None, 0)
syscall("keyctl", 250, 0, -1, 0)
syscall("add_key", 248, b"user\0", b"x\0", b"x", 1, -1)
syscall("handle", 304, -100, parameters, 0)
syscall("name", 303, -100, b"/none\0", parameters, parameters, 0)
syscall("splice", 275, -1, None, -1, None, 1, 0)
syscall("seccomp", 317, 99, 0, None)
syscall("unknown", 900)
syscall("ldt", 154, 0, parameters, 16)
"#;
        compare(
            caller,
            &[],
            program,
            &[
                ("io_uring bad", "ENOSYS", &["EFAULT", "EINVAL", "EPERM"]),
                ("aio", "ENOSYS", &["OK", "EINVAL", "EAGAIN"]),
                ("bpf", "EPERM", &["EINVAL", "E2BIG"]),
                ("keyctl", "EPERM", &["OK", "ENOKEY"]),
                ("add_key", "EPERM", &["OK", "EOPNOTSUPP"]),
                ("name", "EPERM", &["ENOENT"]),
                ("splice", "EINVAL", &["EBADF"]),
                ("seccomp", "ENOSYS", &["EINVAL"]),
                ("ldt", "EPERM", &["OK", "ENOSYS"]), // a User-Mode kernel does not have it
            ],
        );
        let with = run(caller, &[], program).expect(0);
        assert_eq!((with.value("io_uring"), with.value("userfaultfd")), ("ENOSYS".into(), "ENOSYS".into()), "{with}");
        assert_eq!(with.value("unknown"), "ENOSYS", "an unknown call gives ENOSYS, not a refusal");
    });
}

/// `int 0x80` uses the 32-bit table, where the profile's numbers mean other calls: 20 is getpid there.
const INT80: &str = r#"
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
print("before", flush=True)
print("pid=%d" % (call() - os.getpid()), flush=True)
"#;

const X32: &str = r#"
print("before", flush=True)
syscall("x32", 0x40000000 | 39)
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_of_another_table_end_the_run() {
    for_each_caller(|caller| {
        for (program, free) in [(INT80, "before\npid=0\n"), (X32, "before\nx32=ENOSYS\n")] {
            if program == INT80 && common::host::is_uml() {
                skip_part("int 0x80", "a User-Mode kernel takes it for a call of its own table");
                continue;
            }
            let without = common::python_outside(caller, &attack(program));
            if without.0 == 139 {
                skip_part("int 0x80", "this kernel runs no 32-bit calls");
            } else {
                assert_eq!(without, (0, free.to_owned()));
            }
            for profile in ["default", "strict", "docker", "unconfined"] {
                let with = run(caller, &["--seccomp", profile], program).expect(128 + libc::SIGSYS);
                assert_eq!(with.text(), "before\n", "{profile}");
                let with = with.expect_status("seccomp_killed");
                assert_eq!(with.report()["enforced"]["seccomp"]["profile"], profile, "{with}");
            }
        }
    });
}

#[test]
fn no_input_is_put_into_a_terminal() {
    for_each_caller(|caller| {
        let program = r#"
import fcntl, termios
os.setsid() if os.getsid(0) != os.getpid() else None
master, slave = os.openpty()
attempt("own", lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0))
for name, command in (("plain", 0x5412), ("high", 0x5412 | 1 << 32), ("higher", 0x5412 | 0xffffffff << 32),
                      ("linux", 0x541c), ("discipline", 0x5423), ("console", 0x541d)):
    syscall(name, 16, slave, command, ctypes.create_string_buffer(b"\0x"))
import select
print("arrived=%d" % len(select.select([slave], [], [], 0)[0]))
"#;
        let (with, without) = with_and_without(caller, &[], program);
        assert_eq!((with.value("own"), without.value("own")), ("OK".into(), "OK".into()), "{with}");
        for name in ["plain", "high", "higher", "linux", "discipline", "console"] {
            assert_eq!(with.value(name), "ENOTTY", "{with}");
        }
        // The kernel itself can refuse it, dev.tty.legacy_tiocsti=0.
        for name in ["plain", "high", "higher"] {
            assert!(["OK", "EIO"].contains(&without.value(name).as_str()), "{without}");
        }
    });
}

#[test]
fn only_common_sockets_can_be_made() {
    for_each_caller(|caller| {
        let program = r#"
for name, numbers in (("unix", (1, 1, 0)), ("unix raw", (1, 3, 0)), ("inet", (2, 1, 0)), ("inet6", (10, 2, 0)),
                      ("inet raw", (2, 3, 1)), ("mptcp", (2, 1, 262)), ("icmp", (2, 2, 1)), ("sctp", (2, 1, 132)),
                      ("route", (16, 3, 0)), ("generic", (16, 3, 16)), ("netfilter", (16, 3, 12)), ("alg", (38, 5, 0)),
                      ("packet", (17, 3, 0)), ("vsock", (40, 1, 0)), ("can", (29, 3, 1)), ("high", (1 << 32 | 16, 3, 16))):
    syscall(name, 41, *numbers)
pair = (ctypes.c_int * 2)()
syscall("pair", 53, 1, 1, 0, pair)
"#;
        let expected: &[Expected<'_>] = &[
            ("generic", "EPROTONOSUPPORT", &["OK"]),
            ("high", "EPROTONOSUPPORT", &["OK"]),
            ("packet", "EAFNOSUPPORT", &["EPERM"]),
        ];
        let none: &[Expected<'_>] = &[("inet", "EAFNOSUPPORT", &["OK"]), ("inet6", "EAFNOSUPPORT", &["OK"])];
        compare(caller, &["--network", "none"], program, &[expected, none].concat());
        compare(caller, &[], program, expected);
        for network in ["none", "loopback"] {
            let with = run(caller, &["--network", network], program).expect(0);
            for name in ["unix", "pair", "route"] {
                assert_eq!(with.value(name), "OK", "{with}");
            }
            for name in ["unix raw", "inet raw", "mptcp", "icmp", "sctp", "netfilter", "alg", "vsock", "can"] {
                assert!(with.value(name).ends_with("NOSUPPORT"), "{name}: {with}");
            }
            assert_eq!(with.value("inet") == "OK", network == "loopback", "{with}");
        }
    });
}

#[test]
fn no_file_gets_a_set_user_id_bit() {
    for_each_caller(|caller| {
        let program = r#"
os.chdir("/tmp")
open("file", "w").close()
attempt("chmod user", lambda: os.chmod("file", 0o4755))
attempt("chmod group", lambda: os.chmod("file", 0o2755))
attempt("fchmod", lambda: os.fchmod(os.open("file", os.O_RDONLY), 0o6755))
attempt("create", lambda: os.open("new", os.O_WRONLY | os.O_CREAT, 0o4755))
attempt("mkdir", lambda: os.mkdir("dir") or os.chmod("dir", 0o2755))
attempt("mknod", lambda: os.mknod("node", 0o104755))
attempt("plain", lambda: os.chmod("file", 0o1755))
print("bits=%o" % max(os.stat(name).st_mode & 0o6000 for name in os.listdir(".")))
"#;
        let refused = ["chmod user", "chmod group", "fchmod", "create", "mkdir", "mknod"];
        let expected: Vec<Expected<'_>> = refused.map(|name| (name, "EPERM", &["OK"][..])).into();
        compare(caller, &[], program, &expected);
        let with = run(caller, &[], program).expect(0);
        assert_eq!((with.value("bits"), with.value("plain")), ("0".into(), "OK".into()), "{with}");
        let allowed = run(caller, &["--seccomp-allow", "setuid-bits"], program).expect(0);
        assert_eq!(allowed.value("chmod user"), "OK", "{allowed}");
    });
}

#[test]
fn a_group_adds_what_it_names_and_no_more() {
    for_each_caller(|caller| {
        let program = r#"
syscall("queue", 241, b"/none")
syscall("compare", 312, os.getpid(), os.getpid(), 0, 0, 0)
syscall("splice", 275, -1, None, -1, None, 1, 0)
"#;
        for (group, name, answer) in
            [("sysv", "queue", "EACCES"), ("debug", "compare", "OK"), ("splice", "splice", "EBADF")]
        {
            for profile in ["default", "strict"] {
                let outcome = run(caller, &["--seccomp", profile, "--seccomp-allow", group], program).expect(0);
                assert_eq!(outcome.value(name), answer, "{profile} and {group}: {outcome}");
                let others = outcome.lines().into_iter().filter(|line| !line.starts_with(name));
                assert!(others.clone().count() == 2 && others.clone().all(|line| !line.ends_with("=OK")), "{outcome}");
                assert_eq!(outcome.stderr.contains("warning: seccomp group splice"), group == "splice", "{outcome}");
            }
        }
    });
}

#[test]
fn without_a_profile_only_the_guards_are_in_force_and_reported() {
    for_each_caller(|caller| {
        let status = "grep ^Seccomp: /proc/self/status";
        let outcome = Run::new(caller).opts(["--seccomp", "unconfined"]).sh(status).go().expect(0);
        assert_eq!(outcome.text(), "Seccomp:\t2\n");
        assert!(outcome.stderr.contains("warning: no seccomp profile"), "{outcome}");
        let filter = &outcome.report()["enforced"]["seccomp"];
        assert_eq!((&filter["profile"], &filter["guards"]), (&json!("unconfined"), &json!(["core-limit", "init"])));
        let outcome = Run::new(caller).sh(status).go().expect(0);
        assert_eq!((outcome.text(), outcome.stderr.as_str()), ("Seccomp:\t2\n".into(), ""));
        let sha256 = outcome.report()["enforced"]["seccomp"]["sha256"].as_str().unwrap().len();
        assert_eq!(sha256, 64);
    });
}

#[test]
fn dockers_words_mean_the_same() {
    for_each_caller(|caller| {
        let seccomp = |options: &[&str]| {
            let outcome = Run::new(caller).opts(options.iter().copied()).cmd(["true"]).go().expect(0);
            outcome.report()["enforced"]["seccomp"]["profile"].clone()
        };
        assert_eq!(seccomp(&["--security-opt", "seccomp=unconfined"]), "unconfined");
        assert_eq!(seccomp(&["--security-opt=seccomp=docker", "--security-opt", "no-new-privileges"]), "docker");
        let dir = TempDir::new(caller);
        let file = dir.file("allow.json", r#"{ "defaultAction": "SCMP_ACT_ALLOW" }"#);
        assert_eq!(seccomp(&["--security-opt", &format!("seccomp={}", text(&file))]), text(&file));
    });
}

#[test]
fn programs_run_under_every_profile() {
    let python = "
import multiprocessing, sqlite3, subprocess, threading, concurrent.futures, hashlib, ssl, tempfile
with concurrent.futures.ThreadPoolExecutor(4) as pool: assert sum(pool.map(abs, range(10))) == 45
with multiprocessing.get_context('fork').Pool(2) as pool: assert sum(pool.map(abs, range(10))) == 45
base = sqlite3.connect(tempfile.mkdtemp() + '/base'); base.execute('pragma journal_mode=wal')
base.execute('create table t(x)'); base.commit()
print(subprocess.run(['sh', '-c', 'echo $((6*7))'], capture_output=True, text=True).stdout.strip())
";
    let bash = "seq 100 | sort -rn | head -n 1; cat <(echo sub) | tr a-z A-Z; mkdir -p /tmp/a && tar cf - /usr/share/doc/bash 2>/dev/null | gzip | wc -c | grep -c .";
    for_each_caller(|caller| {
        for options in [&["--seccomp", "default"][..], &["--seccomp", "docker"], &["-p", "strict"]] {
            let run =
                |command: &[&str]| Run::new(caller).opts(options.iter().copied()).cmd(command.iter().copied()).go();
            assert_eq!(run(&[common::PYTHON, "-c", python]).expect(0).text(), "42\n", "{options:?}");
            assert_eq!(run(&["/bin/bash", "-c", bash]).expect(0).text(), "100\nSUB\n1\n", "{options:?}");
        }
    });
}

/// Programs that copy within the kernel continue with read and write only after EINVAL.
#[test]
fn programs_do_without_copying_in_the_kernel() {
    for_each_caller(|caller| {
        for profile in ["default", "strict"] {
            let seccomp = ["--seccomp", profile];
            let found = Run::new(caller).opts(seccomp).sh("yes | head -100000 | grep y >/dev/null").go().expect(0);
            assert_eq!(found.text(), "", "{profile}");
            Run::new(caller).opts(seccomp).sh("yes | head -100000 | grep n >/dev/null").go().expect(1);
        }
        let java = "/usr/bin/java";
        if !std::path::Path::new(java).exists() {
            return skip_part("java", "not installed");
        }
        let dir = TempDir::new(caller);
        let source = r#"
import java.nio.channels.FileChannel;
import java.nio.file.*;
public class Copy {
    public static void main(String[] words) throws Exception {
        Path from = Files.write(Paths.get("/tmp/from"), new byte[100000]);
        try (FileChannel in = FileChannel.open(from);
             FileChannel to = FileChannel.open(Paths.get("/tmp/to"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            System.out.println(in.transferTo(0, 100000, to));
        }
    }
}"#;
        let place = format!("{}:/src/Copy.java:ro", text(&dir.file("Copy.java", source)));
        let options = ["-v", &place, "--timeout", "100s"];
        let copied = Run::new(caller).opts(options).cmd([java, "/src/Copy.java"]).go().expect(0);
        assert_eq!(copied.text(), "100000\n");
    });
}
