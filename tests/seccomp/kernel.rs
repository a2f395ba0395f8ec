//! Built-in profiles in the real kernel. Each probe is first made without a filter, which shows the filter's effect.

use std::process::{Command, Stdio};

use crate::common;
use crate::probe::{Door, Outcome, confine, probe};
use stockade::plan::Network;
use stockade::seccomp::compiled;
use stockade_seccomp::builtin::{Builtin, Group};
use stockade_seccomp::{Arch, Context, Instruction};

const NOSYS: Outcome = Outcome::Error(libc::ENOSYS);
const PERM: Outcome = Outcome::Error(libc::EPERM);
const INVAL: Outcome = Outcome::Error(libc::EINVAL);
const NOTTY: Outcome = Outcome::Error(libc::ENOTTY);
const BADF: Outcome = Outcome::Error(libc::EBADF);
const NOENT: Outcome = Outcome::Error(libc::ENOENT);
const FAMILY: Outcome = Outcome::Error(libc::EAFNOSUPPORT);
const PROTOCOL: Outcome = Outcome::Error(libc::EPROTONOSUPPORT);
const OPTION: Outcome = Outcome::Error(libc::ENOPROTOOPT);
const KILLED: Outcome = Outcome::Died(libc::SIGSYS);
/// A path that does not exist.
const NOTHING: &[u8] = b"/nonexistent/file\0";
/// A bit that the kernel ignores: registers are wider than the arguments.
const HIGH: u64 = 1 << 32;
const BAD: u64 = u32::MAX as u64;

fn program(builtin: Builtin, network: Network, groups: &[Group]) -> Vec<Instruction> {
    let context = Context { arch: Arch::NATIVE, kernel: (6, 1), capabilities: &[], strict: true };
    let program = compiled::program(builtin, network, groups, &[], &context).unwrap_or_else(|error| panic!("{error}"));
    program.instructions.into_owned()
}

/// The result of a call without the filter, which must differ from that with the filter.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    /// Exactly this result.
    Is(Outcome),
    /// Success.
    Works,
    /// Any result except the filter's answer.
    Differs,
    /// Any result, because it depends on the host: the probe proves little, but must still have the expected answer.
    Any,
}
use Before::{Any, Differs, Is, Works};

/// A probe: the call, its result without a filter, and its result with one.
type Probe = (&'static str, Door, i64, [u64; 6], Before, Outcome);

#[track_caller]
fn hold(program: &[Instruction], probes: &[Probe]) {
    let mut wrong = Vec::new();
    for (what, door, number, args, before, wanted) in probes {
        let free = probe(None, *door, *number, *args);
        let vacuous = match before {
            Is(outcome) => free != *outcome,
            Works => !matches!(free, Outcome::Value(_)),
            Differs => free == *wanted,
            Any => false,
        };
        let got = probe(Some(program), *door, *number, *args);
        if vacuous {
            wrong.push(format!("{what}: without the filter: {free:?}, so this proves nothing"));
        }
        if got != *wanted {
            wrong.push(format!("{what}: {got:?}, not {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn path() -> u64 {
    NOTHING.as_ptr() as u64
}

#[cfg(target_arch = "x86_64")]
#[test]
fn other_tables_of_calls_kill() {
    for builtin in Builtin::ALL {
        let program = program(*builtin, Network::Host, &[]);
        if matches!(probe(None, Door::Int80, 20, [0; 6]), Outcome::Value(_)) {
            hold(
                &program,
                &[
                    ("int 0x80 getpid", Door::Int80, 20, [0; 6], Works, KILLED),
                    ("int 0x80 socketcall", Door::Int80, 102, [1, 0, 0, 0, 0, 0], Differs, KILLED),
                    ("int 0x80 mount", Door::Int80, 21, [0; 6], Differs, KILLED),
                ],
            );
        } else {
            common::skip_part("32-bit calls", "this kernel has none");
        }
        hold(
            &program,
            &[
                ("x32 getpid", Door::Native, 0x4000_0000 | libc::SYS_getpid, [0; 6], Differs, KILLED),
                ("x32 ioctl", Door::Native, 0x4000_0000 | 514, [0; 6], Differs, KILLED),
                ("x32 number of an allowed call", Door::Native, 0x4000_0000, [BAD, 0, 0, 0, 0, 0], Differs, KILLED),
                ("a number that no kernel has", Door::Native, 1000, [0; 6], Any, NOSYS),
                ("no number at all", Door::Native, -1, [0; 6], Any, NOSYS),
            ],
        );
    }
}

#[test]
fn the_default_refuses_what_it_should_with_the_right_error() {
    let program = program(Builtin::Default, Network::None, &[]);
    let n = Door::Native;
    let new_user = libc::CLONE_NEWUSER as u64;
    // With CLONE_FS the kernel itself refuses a new user namespace, with another error.
    let clone = new_user | libc::CLONE_FS as u64;
    let word = 0u32;
    let word = (&raw const word) as u64;
    #[rustfmt::skip]
    let probes: &[Probe] = &[
        ("getpgid", n, libc::SYS_getpgid, [0; 6], Works, probe(None, n, libc::SYS_getpgid, [0; 6])),
        ("clone3", n, libc::SYS_clone3, [0; 6], Differs, NOSYS),
        ("io_uring_setup", n, libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0], Any, NOSYS),
        ("io_uring_enter", n, libc::SYS_io_uring_enter, [BAD, 0, 0, 0, 0, 0], Any, NOSYS),
        ("unshare user", n, libc::SYS_unshare, [new_user, 0, 0, 0, 0, 0], Works, PERM),
        ("clone user", n, libc::SYS_clone, [clone, 0, 0, 0, 0, 0], Is(INVAL), PERM),
        ("clone user, high bits", n, libc::SYS_clone, [clone | HIGH, 0, 0, 0, 0, 0], Is(INVAL), PERM),
        ("setns", n, libc::SYS_setns, [BAD, 0, 0, 0, 0, 0], Is(BADF), PERM),
        ("kcmp", n, libc::SYS_kcmp, [BAD, BAD, 0, 0, 0, 0], Any, PERM),
        ("pidfd_getfd", n, libc::SYS_pidfd_getfd, [BAD, 0, 0, 0, 0, 0], Is(BADF), PERM),
        ("bpf", n, libc::SYS_bpf, [99, 0, 0, 0, 0, 0], Any, PERM),
        ("keyctl", n, libc::SYS_keyctl, [9999, 0, 0, 0, 0, 0], Any, PERM),
        ("mount", n, libc::SYS_mount, [0; 6], Any, PERM),
        ("open_tree", n, 428, [BAD, path(), 0, 0, 0, 0], Is(NOENT), NOSYS),
        ("fsopen", n, 430, [0; 6], Any, NOSYS),
        ("open_by_handle_at", n, libc::SYS_open_by_handle_at, [BAD, 0, 0, 0, 0, 0], Any, PERM),
        ("userfaultfd", n, libc::SYS_userfaultfd, [0; 6], Any, NOSYS),
        ("memfd_secret", n, 447, [0; 6], Any, NOSYS),
        ("seccomp", n, libc::SYS_seccomp, [99, 0, 0, 0, 0, 0], Is(INVAL), NOSYS),
        ("splice", n, libc::SYS_splice, [BAD, 0, BAD, 0, 1, 0], Is(BADF), INVAL),
        ("vmsplice", n, libc::SYS_vmsplice, [BAD, 0, 0, 0, 0, 0], Is(BADF), INVAL),
        ("sendfile", n, libc::SYS_sendfile, [BAD, BAD, 0, 1, 0, 0], Is(BADF), BADF),
        ("mq_unlink", n, libc::SYS_mq_unlink, [0; 6], Any, NOSYS),
        ("F_SETSIG", n, libc::SYS_fcntl, [BAD, 10, 0, 0, 0, 0], Is(BADF), INVAL),
        ("F_SETOWN", n, libc::SYS_fcntl, [BAD, 8, 0, 0, 0, 0], Is(BADF), BADF),
        ("TIOCSTI", n, libc::SYS_ioctl, [BAD, 0x5412, 0, 0, 0, 0], Is(BADF), NOTTY),
        ("TIOCSTI, high bits", n, libc::SYS_ioctl, [BAD, 0x5412 | HIGH, 0, 0, 0, 0], Is(BADF), NOTTY),
        ("TIOCSTI, all high bits", n, libc::SYS_ioctl, [BAD, 0x5412 | !0 << 32, 0, 0, 0, 0], Is(BADF), NOTTY),
        ("TIOCLINUX", n, libc::SYS_ioctl, [BAD, 0x541c, 0, 0, 0, 0], Is(BADF), NOTTY),
        ("TIOCSETD", n, libc::SYS_ioctl, [BAD, 0x5423, 0, 0, 0, 0], Is(BADF), NOTTY),
        ("TCGETS", n, libc::SYS_ioctl, [BAD, 0x5401, 0, 0, 0, 0], Is(BADF), BADF),
        ("TCGETS, high bits", n, libc::SYS_ioctl, [BAD, 0x5401 | HIGH, 0, 0, 0, 0], Is(BADF), BADF),
        ("socket inet", n, libc::SYS_socket, [2, 1, 0, 0, 0, 0], Works, FAMILY),
        ("socket inet, high bits", n, libc::SYS_socket, [2 | HIGH, 1, 0, 0, 0, 0], Works, FAMILY),
        ("socket netlink audit", n, libc::SYS_socket, [16, 3, 9, 0, 0, 0], Any, PROTOCOL),
        ("socketpair inet", n, libc::SYS_socketpair, [2, 1, 0, 0, 0, 0], Differs, FAMILY),
        ("TCP_ULP", n, libc::SYS_setsockopt, [BAD, 6, 31, 0, 0, 0], Is(BADF), OPTION),
        ("SO_ATTACH_FILTER", n, libc::SYS_setsockopt, [BAD, 1, 26, 0, 0, 0], Is(BADF), OPTION),
        ("SO_ATTACH_FILTER, high bits", n, libc::SYS_setsockopt, [BAD, 1 | HIGH, 26 | HIGH, 0, 0, 0], Is(BADF), OPTION),
        ("UDP_ENCAP", n, libc::SYS_setsockopt, [BAD, 17, 100, 0, 0, 0], Is(BADF), OPTION),
        ("TCP_NODELAY", n, libc::SYS_setsockopt, [BAD, 6, 1, 0, 0, 0], Is(BADF), BADF),
        ("personality no randomize", n, libc::SYS_personality, [0x40000, 0, 0, 0, 0, 0], Works, PERM),
        ("futex lock_pi", n, libc::SYS_futex, [0, 6, 0, 0, 0, 0], Differs, NOSYS),
        ("futex lock_pi, private", n, libc::SYS_futex, [0, 6 | 128, 0, 0, 0, 0], Differs, NOSYS),
        ("futex wake", n, libc::SYS_futex, [word, 1 | 128, 1, 0, 0, 0], Is(Outcome::Value(0)), Outcome::Value(0)),
        ("PR_SET_SECCOMP", n, libc::SYS_prctl, [22, 99, 0, 0, 0, 0], Any, INVAL),
        ("PR_SET_MM", n, libc::SYS_prctl, [35, 0, 0, 0, 0, 0], Any, INVAL),
        ("PR_GET_NO_NEW_PRIVS", n, libc::SYS_prctl, [39, 0, 0, 0, 0, 0], Works, Outcome::Value(1)),
        ("fchmodat setuid", n, libc::SYS_fchmodat, [0, path(), 0o4755, 0, 0, 0], Is(NOENT), PERM),
        ("fchmodat setgid", n, libc::SYS_fchmodat, [0, path(), 0o2755, 0, 0, 0], Is(NOENT), PERM),
        ("fchmodat setuid, high bits", n, libc::SYS_fchmodat, [0, path(), 0o4755 | HIGH | 1 << 16, 0, 0, 0], Is(NOENT), PERM),
        ("fchmodat", n, libc::SYS_fchmodat, [0, path(), 0o755, 0, 0, 0], Is(NOENT), NOENT),
        ("openat create setuid", n, libc::SYS_openat, [0, path(), 0o101, 0o4755, 0, 0], Is(NOENT), PERM),
        ("openat, mode not used", n, libc::SYS_openat, [0, path(), 0, 0o4755, 0, 0], Is(NOENT), NOENT),
        ("mknodat device", n, libc::SYS_mknodat, [0, path(), 0o020666, 0x103, 0, 0], Is(NOENT), PERM),
        ("mknodat setuid file", n, libc::SYS_mknodat, [0, path(), 0o104755, 0, 0, 0], Is(NOENT), PERM),
        ("mknodat fifo", n, libc::SYS_mknodat, [0, path(), 0o010600, 0, 0, 0], Is(NOENT), NOENT),
        ("F_NOTIFY", n, libc::SYS_fcntl, [BAD, 1026, 0, 0, 0, 0], Is(BADF), INVAL),
        ("F_GETFD", n, libc::SYS_fcntl, [BAD, 1, 0, 0, 0, 0], Is(BADF), BADF),
        ("mmap huge", n, libc::SYS_mmap, [0, 4096, 1, 0x40022, BAD, 0], Any, Outcome::Error(libc::ENOMEM)),
        ("mprotect growsdown", n, libc::SYS_mprotect, [0, 0, 0x0100_0000, 0, 0, 0], Any, INVAL),
        ("clock_settime", n, libc::SYS_clock_settime, [99, 0, 0, 0, 0, 0], Any, PERM),
    ];
    hold(&program, probes);
}

#[test]
fn a_network_and_groups_open_what_they_say() {
    let n = Door::Native;
    let inet: Probe = ("socket inet", n, libc::SYS_socket, [2, 1, 0, 0, 0, 0], Works, FAMILY);
    let mptcp: Probe = ("socket mptcp", n, libc::SYS_socket, [2, 1, 262, 0, 0, 0], Any, PROTOCOL);
    hold(&program(Builtin::Default, Network::None, &[]), &[inet]);
    let open = program(Builtin::Default, Network::Loopback, &[]);
    assert!(matches!(probe(Some(&open), inet.1, inet.2, inet.3), Outcome::Value(_)));
    hold(&open, &[mptcp]);
    for (group, number, args) in [
        (Group::Debug, libc::SYS_kcmp, [BAD, BAD, 0, 0, 0, 0]),
        (Group::Sysv, libc::SYS_mq_unlink, [0; 6]),
        (Group::Splice, libc::SYS_splice, [BAD, 0, BAD, 0, 1, 0]),
        (Group::Aio, libc::SYS_io_destroy, [0; 6]),
        (Group::SetuidBits, libc::SYS_fchmodat, [0, path(), 0o4755, 0, 0, 0]),
        (Group::Nettools, libc::SYS_socket, [2, 3, 1, 0, 0, 0]),
        (Group::Nested, libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0]),
    ] {
        let free = probe(None, n, number, args);
        let (without, with) =
            (program(Builtin::Default, Network::None, &[]), program(Builtin::Default, Network::None, &[group]));
        assert_ne!(probe(Some(&without), n, number, args), free, "{group:?} opens nothing");
        let got = probe(Some(&with), n, number, args);
        let same = got == free || matches!((got, free), (Outcome::Value(_), Outcome::Value(_)));
        assert!(same, "{group:?}: {got:?}, not {free:?}");
    }
}

#[test]
fn the_docker_profile_decides_as_under_docker() {
    let program = program(Builtin::Docker, Network::None, &[]);
    let n = Door::Native;
    let new_user = libc::CLONE_NEWUSER as u64;
    hold(
        &program,
        &[
            ("unshare user", n, libc::SYS_unshare, [new_user, 0, 0, 0, 0, 0], Works, PERM),
            ("clone user", n, libc::SYS_clone, [new_user | libc::CLONE_FS as u64, 0, 0, 0, 0, 0], Is(INVAL), PERM),
            ("clone3", n, libc::SYS_clone3, [0; 6], Differs, NOSYS),
            ("io_uring_setup", n, libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0], Any, PERM),
            ("personality", n, libc::SYS_personality, [0x40000, 0, 0, 0, 0, 0], Works, PERM),
            ("socket vsock", n, libc::SYS_socket, [40, 1, 0, 0, 0, 0], Any, PERM),
            ("socket alg, high bits", n, libc::SYS_socket, [38 | HIGH, 5, 0, 0, 0, 0], Any, PERM),
            ("ptrace", n, libc::SYS_ptrace, [0; 6], Works, Outcome::Value(0)),
            ("splice", n, libc::SYS_splice, [BAD, 0, BAD, 0, 1, 0], Is(BADF), BADF),
            ("mount", n, libc::SYS_mount, [0; 6], Any, PERM),
            ("TIOCSTI", n, libc::SYS_ioctl, [BAD, 0x5412, 0, 0, 0, 0], Is(BADF), BADF),
        ],
    );
}

/// The installed node, if any.
fn installed_node() -> Option<&'static str> {
    let found = ["/usr/bin/node", "/usr/local/bin/node"].into_iter().find(|path| std::path::Path::new(path).exists());
    found.or_else(|| {
        common::skip_part("node", "not installed");
        None
    })
}

/// Runs programs under a filter, without any other layer.
#[track_caller]
fn runs(builtin: Builtin, script: &[&str]) {
    if !std::path::Path::new(script[0]).exists() {
        return common::skip(&format!("{} is not on this machine", script[0]));
    }
    let directory = common::TempDir::new(common::callers()[0]);
    let mut command = Command::new(script[0]);
    command.args(&script[1..]).current_dir(directory.path()).stdin(Stdio::null()).env("HOME", directory.path());
    let output = confine(&mut command, program(builtin, Network::Loopback, &[])).output();
    let output = output.unwrap_or_else(|error| panic!("{script:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{builtin:?} {script:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn ordinary_programs_run_under_the_default() {
    let python = "import multiprocessing, threading, sqlite3, ssl, subprocess, tempfile, shutil, socket, asyncio\n\
        with multiprocessing.get_context('fork').Pool(2) as pool: assert pool.map(abs, [-1]) == [1]\n\
        threads = [threading.Thread(target=int) for _ in range(8)]\n\
        [thread.start() for thread in threads]; [thread.join() for thread in threads]\n\
        base = sqlite3.connect('base'); base.execute('create table t (a)'); base.execute('insert into t values (1)'); base.commit()\n\
        assert subprocess.run(['/bin/echo', 'hello'], capture_output=True).stdout == b'hello\\n'\n\
        shutil.copyfile('base', 'copy'); shutil.copystat('base', 'copy')\n\
        async def main(): return await asyncio.sleep(0.001, 5)\n\
        assert asyncio.run(main()) == 5\n\
        s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); c.sendall(b'x')\n\
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n\
        assert s.accept()[0].recv(1) == b'x'";
    runs(Builtin::Default, &["/usr/bin/python3", "-c", python]);
    let node = "const w = require('worker_threads'), fs = require('fs'), os = require('os'), net = require('net');\
        fs.writeFileSync('a', 'b'); fs.copyFileSync('a', 'c'); os.networkInterfaces();\
        require('child_process').execSync('true');\
        new w.Worker('0', { eval: true }).on('exit', () => process.exit(0))";
    if let Some(path) = installed_node() {
        runs(Builtin::Default, &[path, "-e", node]);
    }
    let shell = "set -e; seq 1000 | sort -R | sort -n | tail -1 | grep -q 1000; mkdir -p a/b; cp -a /etc/hostname a/b/; \
        ls -laR . | cat >list; tar cf t.tar a; mv a c; rm -r c; touch -d yesterday x; ln -s x y; find . -name y | xargs ls; \
        date; sleep 0.01; for i in $(seq 50); do true | true; done; timeout 5 true; nice -n 5 true; df . >/dev/null; stat x";
    runs(Builtin::Default, &["/bin/bash", "-c", shell]);
    let git = "set -e; git init -q r; cd r; git config user.name n; git config user.email e; echo a >a; git add a; \
        git commit -qm a; git clone -q . ../s; git gc -q";
    runs(Builtin::Default, &["/bin/sh", "-c", git]);
    let gcc = "set -e; printf '#include <stdio.h>\\nint main(void){puts(\"x\");}' >a.c; gcc -O2 -o a a.c; ./a; \
        printf 'a: a.c\\n\\tgcc -o a a.c\\n' >Makefile; touch a.c; make -j2";
    runs(Builtin::Default, &["/bin/sh", "-c", gcc]);
    let java = "set -e; printf 'class A { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> {}); t.start(); \
        t.join(); System.gc(); System.out.println(java.nio.file.Files.list(java.nio.file.Path.of(\"/\")).count()); } }' >A.java; java A.java";
    if std::path::Path::new("/usr/bin/javac").exists() {
        runs(Builtin::Default, &["/bin/sh", "-c", java]);
    } else {
        runs(Builtin::Default, &["/usr/bin/java", "-version"]);
    }
    if std::path::Path::new("/usr/bin/npm").exists() {
        runs(Builtin::Default, &["/bin/sh", "-c", "npm init -y && npm ls --offline && npm pack --offline"]);
    }
    runs(
        Builtin::Default,
        &["/bin/busybox", "sh", "-c", "busybox ls -l / | busybox wc -l; busybox cp /etc/hostname h; busybox id"],
    );
}

#[test]
fn computation_runs_under_strict() {
    let python = "import threading, subprocess, json, tempfile\n\
        thread = threading.Thread(target=int); thread.start(); thread.join()\n\
        assert subprocess.run(['/bin/echo', 'hello'], capture_output=True).stdout == b'hello\\n'\n\
        open('a', 'w').write(json.dumps({}))\n\
        import socket\n\
        try: socket.socket(); raise SystemExit('a socket')\n\
        except OSError as error: assert error.errno == 97, error";
    runs(Builtin::Strict, &["/usr/bin/python3", "-c", python]);
    runs(Builtin::Strict, &["/bin/bash", "-c", "set -e; seq 10 | sort | cat >a; mkdir b; mv a b; ls -l b; rm -r b"]);
    if let Some(path) = installed_node() {
        runs(Builtin::Strict, &[path, "-e", "require('fs').writeFileSync('a', 'b')"]);
    }
}
