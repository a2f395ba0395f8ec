//! `--explain-denials` also explains what a read-only mount, the view and Landlock refuse. It looks at calls with paths before they
//! are made, and changes none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Caller, Outcome, PYTHON, Run, TempDir, attack, for_each_caller, python_outside, set_mode, text};

fn explained(caller: Caller, options: &[&str], script: &str) -> Outcome {
    Run::new(caller).opts(["--explain-denials"]).opts(options.iter().copied()).sh(script).go()
}

/// The denials of these layers: layer, target, error, hint.
fn denials(outcome: &Outcome) -> Vec<(String, String, i64, String)> {
    let text = |denial: &Value, name: &str| denial[name].as_str().unwrap_or_default().to_owned();
    let listed = outcome.report()["denials"].as_array().unwrap_or_else(|| panic!("{outcome}"));
    let ours = listed.iter().filter(|denial| denial["layer"] != "seccomp");
    ours.inspect(|denial| assert_eq!(denial["confidence"], "inferred", "{denial}"))
        .map(|denial| {
            (text(denial, "layer"), text(denial, "target"), denial["errno"].as_i64().unwrap(), text(denial, "hint"))
        })
        .collect()
}

#[test]
fn a_read_only_mount_and_what_the_view_lacks_are_explained_with_a_working_remedy() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let secret = dir.file("secret", "content\n");
        let (dir, secret) = (text(dir.path()), text(&secret));
        let script = format!("echo x > /etc/foo; cat {secret}");
        let outcome = explained(caller, &[], &script);
        let all = denials(&outcome);
        let [mount, view] = &all[..] else { panic!("{all:?} {outcome}") };
        assert_eq!(
            (mount.0.as_str(), mount.1.as_str(), mount.2),
            ("mount", "/etc/foo", libc::EROFS.into()),
            "{outcome}"
        );
        assert!(mount.3.starts_with("-v FILE:/etc/foo"), "{outcome}");
        assert_eq!((view.0.as_str(), view.1.as_str(), view.2), ("view", secret, libc::ENOENT.into()), "{outcome}");
        assert_eq!(view.3, format!("--ro {secret} would show it"));
        for line in ["mount openat(/etc/foo)", "EROFS", "view openat(", "ENOENT"] {
            assert!(outcome.stderr.contains(line), "{line}: {outcome}");
        }
        let shown = explained(caller, &["--ro", secret], &format!("cat {secret}")).expect(0);
        assert_eq!((shown.text().as_str(), denials(&shown)), ("content\n", Vec::new()));

        let write = format!("echo x > {dir}/made; mkdir {dir}/new; rm {secret}; mv {secret} {dir}/other");
        let outcome = explained(caller, &["--ro", dir], &write);
        let all = denials(&outcome);
        let targets: Vec<&str> = all.iter().map(|denial| denial.1.rsplit('/').next().unwrap()).collect();
        assert_eq!(targets[..3], ["made", "new", "secret"], "{outcome}");
        assert!(all.iter().all(|denial| denial.0 == "mount"), "{outcome}");
        assert!(all[0].3.starts_with(&format!("--rw {dir} would make it writable")), "{outcome}");
        std::fs::write(format!("{dir}/stockade.toml"), "version = 1\n").unwrap();
        let outcome = explained(caller, &["--workspace", dir], "echo x >> stockade.toml");
        let kept = denials(&outcome).into_iter().find(|denial| denial.1 == "/workspace/stockade.toml").unwrap();
        assert!(kept.0 != "mount" || kept.3.starts_with("it is kept from the command"), "{outcome}");
        let allowed = explained(caller, &["--rw", dir], &format!("echo x > {dir}/made; mkdir {dir}/new")).expect(0);
        assert_eq!(denials(&allowed), Vec::new());
    });
}

/// What fails for another reason, or does not fail, is not listed.
#[test]
fn what_nothing_refuses_is_not_listed() {
    let script = "mkdir -p /usr /tmp/a; echo x >/dev/null; echo x >/tmp/f; cat /tmp/f /usr/lib/os-release >/dev/null; \
                  cat /no/such/file; mkdir /usr; cd /tmp/a && mv ../f . && ln -s f g && rm f g; \
                  cat </dev/null; true";
    for_each_caller(|caller| {
        let outcome = explained(caller, &[], script).expect(0);
        assert_eq!(denials(&outcome), Vec::new(), "{outcome}");
        let through_a_link = "ln -s /etc/foo /tmp/link; cd /etc; ln -s .. /tmp/up; echo x >/tmp/link; echo x >../etc/./foo; \
                              echo x >foo; echo x >/tmp/up/etc/foo; true";
        let outcome = explained(caller, &[], through_a_link).expect(0);
        let targets: Vec<String> = denials(&outcome).into_iter().map(|denial| denial.1).collect();
        assert_eq!(targets, ["/etc/foo"], "{outcome}");
    });
}

/// Calls with paths and what they return, as `name path errno`.
const RETURNS: &str = r#"
def call(name, number, path, *args):
    padded = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    answer = libc.syscall(ctypes.c_long(number), *padded)
    error = ctypes.get_errno() if answer < 0 else 0
    if answer > 2 and name in ("openat", "open", "creat"): os.close(answer)
    print(name, path.decode(), error)
names = ["file", "closed", "none", "dir", "shut", "shut/in", "dir/in", "dir/none", "sticky", "sticky/in", "script", "dir/no/ne"]
for base in BASES:
    for name in names:
        path = (base + "/" + name).encode()
        for flags in (0, 1, 2, 0o100, 0o102, 0o1001, 0o1101, 0o2001, 0o301):
            call("openat", 257, path, -100, path, flags, 0o600)
            call("open", 2, path, path, flags, 0o600)
        call("stat", 4, path, path, ctypes.create_string_buffer(256))
        call("truncate", 76, path, path, 1)
        call("chdir", 80, path, path)
        os.chdir("/tmp")
        call("chmod", 90, path, path, 0o644)
        call("mkdir", 83, path, path, 0o755)
        call("symlink", 88, path, b"/target", path)
        call("rename", 82, path, path, path)
        call("rename", 82, path, path, path + b".new")
        libc.rename(path + b".new", path)
        call("execve", 59, path, path, 1, 0)
        call("rmdir", 84, path, path)
        call("unlink", 87, path, path)
"#;

/// What is listed is what the calls return, and what they return is listed.
#[test]
fn every_listed_denial_is_the_error_that_the_call_returned() {
    for_each_caller(|caller| {
        let dirs = [TempDir::new(caller), TempDir::new(caller), TempDir::new(Caller::Root)];
        for dir in &dirs {
            for name in ["file", "closed"] {
                dir.file(name, "content\n");
            }
            for (name, mode) in [("dir", 0o755), ("shut", 0o700), ("sticky", 0o1777)] {
                dir.dir(name);
                dir.file(&format!("{name}/in"), "content\n");
                set_mode(&dir.join(name), mode);
            }
            set_mode(&dir.join("closed"), 0);
            set_mode(&dir.file("script", "#!/bin/true\n"), 0o744);
        }
        let [fixed, own, foreign] = [0, 1, 2].map(|at: usize| text(dirs[at].path()));
        let options = ["--explain-denials", "--ro", fixed, "--rw", own, "--rw", foreign, "--landlock", "off"];
        let mut all = 0;
        for base in [fixed, own, foreign, "/etc"] {
            let program = attack(&format!("BASES = [{base:?}]\n{RETURNS}"));
            let outcome = Run::new(caller).opts(options).python(&program).go().expect(0);
            let mut returned: BTreeMap<(String, String), BTreeSet<i64>> = BTreeMap::new();
            for line in outcome.text().lines() {
                let [name, path, error] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
                returned.entry((name.into(), path.into())).or_default().insert(error.parse().unwrap());
            }
            let listed = outcome.report()["denials"].as_array().unwrap().clone();
            let mut told: BTreeMap<(String, String), BTreeSet<i64>> = BTreeMap::new();
            for denial in listed.iter().filter(|denial| denial["layer"] != "seccomp") {
                let key = (denial["op"].as_str().unwrap().into(), denial["target"].as_str().unwrap().into());
                if let Some(errors) = returned.get(&key) {
                    assert!(errors.contains(&denial["errno"].as_i64().unwrap()), "{denial}: {errors:?}");
                    told.entry(key).or_default().insert(denial["errno"].as_i64().unwrap());
                }
            }
            let refusals = [libc::EROFS, libc::EACCES, libc::EPERM].map(i64::from);
            for (key, errors) in &returned {
                let untold: Vec<&i64> = errors.iter().filter(|error| refusals.contains(error)).collect();
                let known = told.get(key).cloned().unwrap_or_default();
                // That a directory is not a program is no denial.
                let is_directory = ["/dir", "/shut", "/sticky"].iter().any(|name| key.1.ends_with(name));
                if key.0 == "execve" && is_directory {
                    continue;
                }
                assert!(untold.iter().all(|error| known.contains(error)), "{key:?}: {errors:?} {known:?}");
            }
            all += told.len();
        }
        assert!(all > 50, "{all}");
    });
}

#[test]
fn landlocks_rules_are_explained_without_its_audit_records() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        dir.file("file", "content\n");
        let allowed = dir.dir("allowed");
        let dir = text(dir.path());
        let options = ["--rw", dir, "--allow-write", text(&allowed), "--allow-write", "/dev"];
        let outcome = explained(caller, &options, &format!("echo x >{dir}/allowed/new; echo x >{dir}/file; true"));
        if outcome.report()["denials_unheard"][0]["layer"] != "landlock" {
            return; // the kernel tells
        }
        let expected = (
            "landlock".to_owned(),
            format!("{dir}/file"),
            i64::from(libc::EACCES),
            format!("--allow-write {dir}/file would allow it"),
        );
        assert_eq!(denials(&outcome), [expected], "{outcome}");
    });
}

/// Calls with paths of all kinds, with their results.
const CALLS: &str = r#"
import itertools, stat
os.makedirs("/tmp/w/d"); os.chdir("/tmp/w")
fd = os.open("/usr", os.O_RDONLY | os.O_DIRECTORY)
here = -100
paths = [b"/etc/new", b"/usr/bin", b"/usr/bin/env", b"f", b"d", b"../w/d/x", b"", b"/tmp/w/l", b"bin/none", b"/nowhere/x",
         b"/" + b"a/" * 2100, b"x" * 300, 0, 1, -1, b"/proc/self/exe", b"/dev/null"]
os.symlink("/usr/bin/env", "/tmp/w/l")
def call(number, *args):
    answer = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    error = ctypes.get_errno() if answer < 0 else 0
    if answer > 2 and number in (2, 85, 257, 437): os.close(answer)
    print(number, args[1:] if number > 256 else args, answer < 0, error)
for path in paths:
    for flags in (0, 1, 2, 0o100, 0o101, 0o301, 0o1001, 0o200000, 0o400000, 0o10000000, 0o20200002):
        for at in (here, fd, 999):
            call(257, at, path, flags, 0o600)
        call(2, path, flags, 0o600)
    call(85, path, 0o600)
    for at in (here, fd):
        call(258, at, path, 0o700); call(263, at, path, 0); call(263, at, path, 0x200); call(259, at, path, 0o100600, 0)
        call(266, b"target", at, path); call(265, here, b"d", at, path, 0); call(316, here, path, at, b"renamed", 0)
    for number in (76, 80, 83, 84, 87): call(number, path, 0)
    os.chdir("/tmp/w")
    call(59, path, 0, 0) if path not in (b"/usr/bin/env", b"/tmp/w/l", b"/proc/self/exe") else None
    for name in (b"f", b"renamed"):
        try: os.unlink(name)
        except OSError: pass
"#;

#[test]
fn every_call_with_a_path_gets_the_result_that_it_gets_without() {
    for_each_caller(|caller| {
        for profile in ["default", "strict"] {
            let run = || Run::new(caller).opts(["--seccomp", profile]).python(&attack(CALLS));
            let (plain, observed) = (run().go().expect(0), run().opts(["--explain-denials"]).go().expect(0));
            assert!(plain.lines().len() > 1000, "{plain}");
            let differing = plain.lines().into_iter().zip(observed.lines()).find(|(one, other)| one != other);
            assert_eq!((differing, plain.text().len()), (None, observed.text().len()));
            assert!(denials(&observed).iter().any(|denial| denial.0 == "mount"), "{observed}");
        }
    });
}

/// A profile refuses some calls with paths. The workload changes what its memory says while the listener looks, and says in the last
/// register that it need not be seen.
const RACE: &str = r#"
import threading
path = ctypes.create_string_buffer(b"/tmp/allowed\0\0\0\0", 64)
end = False
def flip():
    while not end:
        path.value = b"/tmp/refused"; path.value = b"/tmp/allowed"
thread = threading.Thread(target=flip); thread.start()
answers = set()
for last in (0, 0x53544b44):
    for i in range(300):
        for number, args in ((83, (path, 0o700)), (258, (-100, path, 0o700)), (257, (-100, path, 0o1102, 0o600)), (59, (path, 7, 0))):
            padded = (list(args) + [0] * 5)[:5] + [last]
            answer = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in padded])
            answers.add((number, answer, ctypes.get_errno()))
end = True; thread.join()
print(sorted(answers), sorted(os.listdir("/tmp")))
"#;

#[test]
fn a_refused_call_with_a_path_does_not_go_on() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let profile = |action: &str| {
            format!(
                r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                {{"names": ["mkdir", "mkdirat"], "action": "{action}", "errnoRet": 77}},
                {{"names": ["execve"], "action": "{action}", "errnoRet": 77, "args": [{{"index": 1, "value": 7, "op": "SCMP_CMP_EQ"}}]}},
                {{"names": ["userfaultfd", "seccomp"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}},
                {{"names": ["prctl"], "action": "SCMP_ACT_ERRNO", "args": [{{"index": 0, "value": 22, "op": "SCMP_CMP_EQ"}}]}},
                {{"names": ["openat"], "action": "{action}", "errnoRet": 77,
                  "args": [{{"index": 2, "value": 576, "valueTwo": 576, "op": "SCMP_CMP_MASKED_EQ"}}]}}]}}"#
            )
        };
        let run =
            |options: &[&str]| Run::new(caller).opts(options.iter().copied()).python(&attack(RACE)).go().expect(0);
        let open = dir.file("open.json", profile("SCMP_ACT_ALLOW").replace(r#", "errnoRet": 77"#, ""));
        let made = run(&["--seccomp", text(&open)]).text();
        assert!(made.contains("'allowed'") || made.contains("'refused'"), "the calls work without the profile: {made}");
        let closed = dir.file("closed.json", profile("SCMP_ACT_ERRNO"));
        let expected = "[(59, -1, 77), (83, -1, 77), (257, -1, 77), (258, -1, 77)] []\n";
        for options in [&[][..], &["--explain-denials"]] {
            let outcome = run(&[&["--seccomp", text(&closed)], options].concat());
            assert_eq!(outcome.text(), expected, "{options:?}: {outcome}");
        }
    });
}

#[test]
fn a_flood_of_paths_is_counted_in_bounded_space_and_ends_on_time() {
    for_each_caller(|caller| {
        let program = "for i in range(3000):\n    try: os.mkdir('/etc/%d' % i)\n    except OSError: pass";
        let outcome = Run::new(caller).opts(["--explain-denials"]).python(&attack(program)).go().expect(0);
        let listed = outcome.report()["denials"].as_array().unwrap();
        assert!((100..=300).contains(&listed.len()), "{} are listed", listed.len());
        let count: u64 = listed.iter().filter_map(|denial| denial["count"].as_u64()).sum();
        assert!(count >= 3000, "{count}");
        let endless = "while True: os.access('/etc/x', 0) or libc.syscall(ctypes.c_long(83), b'/etc/x', 0)";
        let options = ["--explain-denials", "--timeout", "500ms", "--kill-after", "100ms"];
        let outcome = Run::new(caller).opts(options).python(&attack(endless)).go();
        assert_eq!(outcome.report()["status"], "timeout_wall", "{outcome}");
        assert!(outcome.wall < Duration::from_secs(10) + outcome.allowance, "{outcome}");
    });
}

#[test]
fn what_cannot_be_looked_at_is_said() {
    for_each_caller(|caller| {
        for options in [
            &["--seccomp-allow", "nested", "--landlock", "off"][..],
            &["--seccomp", "unconfined"],
            &["--seccomp", "docker"],
        ] {
            let outcome = explained(caller, options, "echo x >/etc/foo");
            assert_eq!(denials(&outcome), Vec::new(), "{outcome}");
            let unheard = outcome.report()["denials_unheard"].as_array().unwrap();
            assert!(unheard.iter().any(|one| one["layer"] == "mount, mode, network and view"), "{outcome}");
            assert!(outcome.stderr.contains("--ro PATH adds it"), "{outcome}");
        }
    });
}

/// The kernel refuses a connection that nothing is there for, and tells nobody.
#[test]
fn connections_to_other_hosts_are_explained() {
    let program = "
import os, socket
def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.setblocking(False)
        print(one.connect_ex(address))
listener = socket.create_server(('127.0.0.1', 0))
connect(socket.AF_INET, listener.getsockname())
connect(socket.AF_INET, ('203.0.113.9', 443))
if os.path.exists('/proc/net/if_inet6'): connect(socket.AF_INET6, ('2001:db8::9', 443))
connect(socket.AF_INET, ('203.0.113.9', 123), socket.SOCK_DGRAM)
connect(socket.AF_UNIX, '/no/such')";
    let hosts = ["203.0.113.9:443", "[2001:db8::9]:443"];
    let hosts = if Path::new("/proc/net/if_inet6").exists() { &hosts[..] } else { &hosts[..1] };
    for_each_caller(|caller| {
        let outcome = Run::new(caller).opts(["--explain-denials"]).python(&attack(program)).go().expect(0);
        let unreachable =
            |target: &str, hint| ("network".to_owned(), target.to_owned(), libc::ENETUNREACH.into(), hint);
        let tcp = hosts.iter().map(|host| unreachable(host, format!("--allow-net {host} would allow it")));
        let expected: Vec<_> = tcp.chain([unreachable("203.0.113.9:123", String::new())]).collect(); // no rule allows UDP
        let found: Vec<_> = denials(&outcome).into_iter().filter(|denial| denial.0 == "network").collect();
        assert_eq!(found, expected, "{outcome}");
        let unreachable = format!("{}\n", libc::ENETUNREACH);
        assert_eq!(outcome.text().matches(&unreachable).count(), expected.len(), "{outcome}");
    });
}

/// A socket with a path and both names of a link are explained, with the errors that the calls return.
#[test]
fn sockets_with_paths_and_links_are_explained() {
    let program = r#"
import os, socket, sys
def tried(act, *args):
    try: act(*args); print(0)
    except OSError as error: print(error.errno)
def bind(path):
    with socket.socket(socket.AF_UNIX) as one: one.bind(path)
def connect(path):
    with socket.socket(socket.AF_UNIX) as one: one.connect(path)
hidden, shut = sys.argv[1:]
open("/tmp/file", "w").close()
tried(bind, "/etc/socket")
tried(bind, "/tmp/socket"); tried(bind, "/tmp/socket"); tried(bind, "\0abstract")
tried(connect, hidden)
tried(connect, "/no/such/socket")
tried(os.link, "/etc/passwd", "/etc/link")
tried(os.link, "/tmp/none", "/etc/link")
tried(os.link, "/usr/bin/env", "/tmp/link")
tried(os.link, "/tmp/file", "/tmp/link")
tried(os.link, shut + "/in", "/tmp/other")
os.chdir("/etc"); tried(bind, "relative")
"#;
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let foreign = TempDir::new(Caller::Root);
        foreign.dir("shut");
        set_mode(&foreign.join("shut"), 0o700);
        let _listener = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
        let (hidden, shut) = (text(&dir.join("socket")).to_owned(), text(&foreign.join("shut")).to_owned());
        let options = ["--explain-denials", "--rw", text(foreign.path()), "--landlock", "off"];
        let words = [PYTHON, "-I", "-S", "-c", program, &hidden, &shut];
        let outcome = Run::new(caller).opts(options).cmd(words).go().expect(0);
        let is_closed = caller == Caller::Unprivileged && crate::common::is_root();
        let closed = if is_closed { libc::EACCES } else { libc::ENOENT };
        let (used, none, other) = (libc::EADDRINUSE, libc::ENOENT, libc::EXDEV);
        let returned = [libc::EROFS, 0, used, 0, none, none, libc::EROFS, none, other, 0, closed, libc::EROFS];
        let returned = returned.map(|errno| format!("{errno}\n")).concat();
        assert_eq!(outcome.text(), returned, "{outcome}");
        let list = outcome.report()["denials"].as_array().unwrap().clone();
        let ours = list.iter().filter(|one| ["bind", "connect", "link"].iter().any(|op| one["op"] == *op));
        let told: BTreeSet<_> =
            ours.map(|one| ["layer", "op", "target"].map(|key| one[key].as_str().unwrap().to_owned())).collect();
        let mut expected = BTreeSet::from(
            [
                ["mount", "bind", "/etc/socket"],
                ["mount", "bind", "/etc/relative"],
                ["view", "connect", &hidden],
                ["mount", "link", "/etc/link"],
            ]
            .map(|one| one.map(str::to_owned)),
        );
        if is_closed {
            expected.insert(["mode", "link", &format!("{shut}/in")].map(str::to_owned));
        }
        assert_eq!(told, expected, "{outcome}");
    });
}

/// Callers are killed while they wait, interrupt themselves, and change their paths, many at a time.
const STORM: &str = r#"
import random, signal, threading
path = ctypes.create_string_buffer(b"/etc/refused\0\0", 64)
end = False
def flip():
    while not end:
        path.value = b"/etc/refused"; path.value = b"/tmp/allowed"; path.value = b"/usr/../etc/./refused"
def call():
    while not end:
        libc.syscall(ctypes.c_long(83), path, ctypes.c_long(0o700)); libc.syscall(ctypes.c_long(84), path)
        libc.syscall(ctypes.c_long(257), ctypes.c_long(-100), path, ctypes.c_long(0o102), ctypes.c_long(0o600))
signal.signal(signal.SIGALRM, lambda *_: None)
children = []
for _ in range(24):
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        for act in (flip, call, call): threading.Thread(target=act).start()
        while True: signal.pause()
    children.append(child)
    os.kill(random.choice(children), signal.SIGSTOP); os.kill(children[-1], signal.SIGCONT)
time.sleep(0.2)
for child in children: os.kill(child, signal.SIGKILL)
print(len([os.waitpid(child, 0) for child in children]), sorted(name for name in os.listdir("/etc") if name == "refused"))
"#;

#[test]
fn callers_that_die_are_interrupted_or_lie_gain_nothing_and_hold_nothing_up() {
    for_each_caller(|caller| {
        let program = attack(&format!("import time\n{STORM}"));
        let options = ["--explain-denials", "--timeout", "60s", "--pids-limit", "200", "--allow-degraded", "pids"];
        let outcome = Run::new(caller).opts(options).python(&program).go().expect(0);
        assert_eq!(outcome.text(), "24 []\n", "{outcome}");
        let is_known =
            |denial: &(String, String, i64, String)| ["/etc/refused", "/tmp/allowed"].contains(&denial.1.as_str());
        assert!(denials(&outcome).iter().filter(|denial| denial.0 == "mount").all(is_known), "{outcome}");
    });
}

/// Looks for a listener everywhere, takes calls from each descriptor, and makes a listener of its own.
const LISTENER: &str = r#"
import glob, struct
os.chdir("/proc")
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(allow)))
libc.prctl(38, 1, 0, 0, 0)
own = libc.syscall(ctypes.c_long(317), ctypes.c_long(1), ctypes.c_long(8), program)
links = [link for one in ("fd", "task/[0-9]*/fd") for link in glob.glob(f"/proc/[0-9]*/{one}/*")]
def leads_to(link):
    try: return os.readlink(link)
    except OSError: return ""
found = sorted({place for place in map(leads_to, links) if "seccomp" in place})
call = ctypes.create_string_buffer(80)
for fd in (fd for fd in range(256) if fd != own):
    if libc.ioctl(fd, ctypes.c_ulong(0xc0502100), call) == 0: found.append(f"call {fd}")
for pid in {1, os.getppid()} - {os.getpid()}:
    process = libc.syscall(ctypes.c_long(434), ctypes.c_long(pid), ctypes.c_long(0))
    for fd in range(64):
        taken = libc.syscall(ctypes.c_long(438), ctypes.c_long(process), ctypes.c_long(fd), ctypes.c_long(0))
        if taken >= 0: found.append(f"descriptor {fd} of {pid}"); os.close(taken)
    if INSIDE and libc.ptrace(16, pid, None, None) == 0: found.append(f"trace of {pid}"); libc.ptrace(17, pid, None, None)
print(own >= 0, found if INSIDE else [one for one in found if "notify" in one])
"#;

/// Whoever has the listener could let calls continue, or never answer them.
#[test]
fn the_listener_is_out_of_the_workloads_reach() {
    for_each_caller(|caller| {
        let program = |inside| attack(&format!("INSIDE = {inside}\n{LISTENER}"));
        let (_, outside) = python_outside(caller, &program("False"));
        assert_eq!(outside, "True ['anon_inode:seccomp notify']\n", "the search finds a listener");
        for groups in [&[][..], &["--seccomp-allow", "debug"]] {
            let outcome =
                Run::new(caller).opts(["--explain-denials"]).opts(groups.iter().copied()).python(&program("True")).go();
            assert_eq!(outcome.expect(0).text(), "False []\n", "{groups:?}");
        }
    });
}
