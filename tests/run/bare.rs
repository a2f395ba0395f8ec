//! Runs without namespaces, `--allow-degraded namespaces`, in places that make none: Landlock, seccomp and limits alone confine
//! them, on the caller's root and among the caller's processes.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::host::landlock_abi;
use crate::common::{Caller, TempDir, callers, is_root, skip, skip_part, text};
use crate::places::{Seen, in_place, with_report};

/// The first ABI of Landlock that keeps signals inside.
const SCOPES: u32 = 6;
const HERE: &str = "no-namespaces";

/// The places, who calls there, what is missing there with `-p nested`, and with a workspace of the caller also.
const PLACES: [(&str, Caller, &[&str], &[&str]); 4] = [
    (HERE, Caller::Root, &["host-id", "namespaces"], &[]),
    (HERE, Caller::Unprivileged, &["host-id", "namespaces"], &[]),
    ("docker", Caller::Root, &["keyring", "namespaces"], &["idmap"]),
    ("kubernetes-default", Caller::Root, &["keyring", "namespaces"], &[]),
];

/// Whether this kernel can do it. If not, a run is refused, which is checked.
fn can() -> bool {
    if landlock_abi().0 >= SCOPES {
        return true;
    }
    let seen = in_place(HERE, callers()[0], "$S run -p nested -- echo ran").expect("a place that needs nothing");
    assert!(seen.code == 125 && seen.stdout.is_empty(), "{}{}", seen.stdout, seen.stderr);
    assert!(seen.stderr.contains("needs ABI 6"), "{}", seen.stderr);
    skip("this kernel's Landlock does not keep signals inside");
    false
}

fn for_each_place(body: impl Fn(&str, Caller, &[&str], &[&str])) {
    if !can() {
        return;
    }
    for (place, caller, missing, with_workspace) in PLACES {
        if caller == Caller::Root && !is_root() {
            skip_part(place, "takes root");
            continue;
        }
        eprintln!("--- {place} as {caller:?}");
        body(place, caller, missing, with_workspace);
    }
}

/// In the place that needs no container.
fn here(body: impl Fn(Caller)) {
    if can() {
        callers().into_iter().for_each(body);
    }
}

#[track_caller]
fn seen_here(caller: Caller, script: &str) -> Seen {
    in_place(HERE, caller, script).expect("a place that needs nothing")
}

#[test]
fn the_report_and_one_line_say_what_is_missing() {
    for_each_place(|place, caller, missing, _| {
        let Some(seen) = in_place(place, caller, &with_report("-p nested", "echo ran")) else { return };
        assert!(seen.code == 0 && seen.stdout.starts_with("ran\n"), "{}{}", seen.stdout, seen.stderr);
        assert_eq!(seen.missing(), missing, "{}", seen.stderr);
        let lines: Vec<_> = seen.stderr.lines().filter(|line| line.contains("namespaces")).collect();
        assert!(lines.len() == 1 && lines[0].contains("Landlock, seccomp and limits alone"), "{}", seen.stderr);
        let report = seen.report();
        let enforced = &report["enforced"];
        assert_eq!(enforced["namespaces"], Value::Array(Vec::new()));
        assert!(enforced["landlock_abi"].is_u64() && enforced["seccomp"].is_object(), "{enforced}");
        assert_eq!(enforced["no_new_privs"], true);
        assert_eq!(report["network"]["mode"], "none");
        let entries = enforced["degraded"].as_array().unwrap();
        let wanted: Vec<_> =
            entries.iter().filter(|one| one["what"] == "namespaces").map(|one| &one["wanted"]).collect();
        for namespace in ["user", "mnt", "pid", "ipc", "uts", "cgroup", "net"] {
            assert!(wanted.iter().any(|one| **one == format!("{namespace} namespace")), "{namespace}: {wanted:?}");
        }
    });
}

#[test]
fn a_refusal_names_the_flags_one_by_one_and_they_work() {
    for_each_place(|place, caller, missing, _| {
        let mut flags: Vec<String> = Vec::new();
        for _ in 0..=missing.len() {
            let options: String = flags.iter().map(|name| format!(" --allow-degraded {name}")).collect();
            let Some(seen) = in_place(place, caller, &with_report(&options, "echo ran")) else { return };
            if seen.code == 0 {
                flags.sort();
                assert_eq!(flags, missing);
                return;
            }
            assert!(seen.code == 125 && !seen.stdout.contains("ran\n"), "{}{}", seen.stdout, seen.stderr);
            flags.push(seen.hinted_flag());
        }
        panic!("still refused with {flags:?}");
    });
}

#[test]
fn a_workspace_is_written_to_at_its_own_path() {
    for_each_place(|place, caller, missing, with_workspace| {
        let write = with_report("-p nested --workspace $w", "echo hello >made && cat made && pwd && ls $PWD");
        let script =
            format!("w=$(mktemp -d); echo $w; ({write}); code=$?; stat -c %u $w $w/made; rm -r $w; exit $code");
        let Some(seen) = in_place(place, caller, &script) else { return };
        let lines: Vec<_> = seen.stdout.lines().collect();
        assert!(seen.code == 0 && lines[1..4] == ["hello", lines[0], "made"], "{}{}", seen.stdout, seen.stderr);
        let end = seen.stdout.rfind("}\n").expect("a report") + 2;
        let owners: Vec<_> = seen.stdout[end..].lines().collect();
        assert!(owners.len() == 2 && owners[0] == owners[1], "{owners:?}");
        let seen = Seen { stdout: seen.stdout[..end].to_owned(), ..seen };
        let mut expected: Vec<_> = [missing, with_workspace].concat();
        expected.sort_unstable();
        assert_eq!(seen.missing(), expected);
    });
}

/// What a namespace would keep a workload from. Takes the number of a process outside and the path of a file outside, of the
/// same user; prints each attack that succeeds.
const ATTACKS: &str = r#"
import ctypes, os, resource, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
victim, secret = int(sys.argv[1]), sys.argv[2]
def call(*words):
    if libc.syscall(*words) < 0: raise OSError(ctypes.get_errno(), 'refused')
def attempt(name, attack):
    try: attack()
    except OSError: return
    print(name, flush=True)
def execute():
    if os.fork() == 0:
        try: os.execv(secret + '.sh', ['x'])
        except OSError: os._exit(1)
    if os.wait()[1]: raise OSError
attempt('read', lambda: open(secret).read())
attempt('write', lambda: open(secret, 'a').close())
attempt('truncate', lambda: os.truncate(secret, 1))
attempt('list', lambda: os.listdir(os.path.dirname(secret)))
attempt('create', lambda: open(secret + '.new', 'w').close())
attempt('link', lambda: os.link(secret, secret + '.link'))
attempt('rename', lambda: os.rename(secret, secret) or os.rename(secret, secret + 'x') or os.rename(secret + 'x', secret))
attempt('execute', execute)
attempt('chmod', lambda: os.chmod(secret, 0o666))
attempt('utime', lambda: os.utime(secret, (0, 0)))
attempt('chown', lambda: os.chown(secret, os.getuid(), os.getgid()))
attempt('setxattr', lambda: os.setxattr(secret, 'user.x', b'1'))
attempt('environ', lambda: open(f'/proc/{victim}/environ').read())
attempt('fd', lambda: os.readlink(f'/proc/{victim}/fd/0'))
attempt('root', lambda: os.listdir(f'/proc/{victim}/root'))
attempt('memory', lambda: open(f'/proc/{victim}/mem', 'rb').close())
attempt('prlimit', lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE, (99, 99)))
attempt('priority', lambda: os.setpriority(os.PRIO_PROCESS, victim, 5))
attempt('affinity', lambda: os.sched_setaffinity(victim, os.sched_getaffinity(victim)))
attempt('ioprio', lambda: call(251, 1, victim, 2 << 13 | 6))
attempt('connect', lambda: socket.socket(socket.AF_UNIX).connect(secret + '.socket'))
attempt('datagram', lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', secret + '.dgram'))
attempt('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\0' + secret))
attempt('internet', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt('netlink', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
attempt('shared memory', lambda: call(29, 0x57ade, 4096, 0))
attempt('message queue', lambda: call(240, secret.rsplit('/', 1)[1].encode(), 0))
attempt('key', lambda: call(250, 11, call(250, 0, -4, 0) or -4, 0, 0))
attempt('signal', lambda: os.kill(victim, 0))
attempt('parent', lambda: os.kill(os.getppid(), 0))
attempt('ptrace', lambda: call(101, 0x4206, victim, 0, 0))
print('end')
"#;

/// Makes what the attacks are after, runs them, and removes it.
const RIG: &str = r#"
import ctypes, os, socket, subprocess, sys, tempfile
libc = ctypes.CDLL(None)
work = tempfile.mkdtemp()
os.chmod(work, 0o700)
secret, script = work + '/secret', sys.argv[1]
open(secret, 'w').write('secret')
open(secret + '.sh', 'w').write('#!/bin/sh\n')
os.chmod(secret + '.sh', 0o755)
kept = []
for kind, path in ((1, secret + '.socket'), (2, secret + '.dgram'), (1, '\0' + secret)):
    kept.append(socket.socket(socket.AF_UNIX, kind)); kept[-1].bind(path)
    if kind == 1: kept[-1].listen()
shm = libc.shmget(0x57ade, 4096, 0o1600)
libc.syscall(240, b'secret', 0o102, 0o600, 0)
victim = subprocess.Popen(['sleep', '100'])
subprocess.run([*sys.argv[2:], 'python3', script, str(victim.pid), secret])
print('victim', 'lives' if victim.poll() is None else 'died', open(secret).read())
victim.kill()
libc.shmctl(shm, 0, 0); libc.syscall(241, b'secret')
subprocess.run(['rm', '-rf', work])
"#;

#[test]
fn no_attack_on_files_processes_and_sockets_outside_succeeds() {
    for_each_place(|place, caller, _, _| {
        // Below /usr nothing is private. The scripts are on the host, where every user reads them.
        let dir = TempDir::new(caller);
        let (rig, attacks) = (dir.file("rig.py", RIG), dir.file("attacks.py", ATTACKS));
        crate::common::set_mode(dir.path(), 0o755);
        let (rig, attacks) = (text(&rig), text(&attacks));
        // First without a sandbox: the attacks work.
        let Some(seen) = in_place(place, caller, &format!("exec python3 {rig} {attacks} env")) else { return };
        let succeeded: Vec<_> = seen.stdout.lines().take_while(|line| *line != "end").collect();
        let known = ATTACKS.matches("\nattempt('").count();
        // Docker refuses a tracer of other processes, keys and message queues of that kind itself.
        assert!(succeeded.len() + 5 >= known, "{known}: {succeeded:?} {}", seen.stderr);
        let run = format!("$S run -p nested --seccomp unconfined --ro {attacks} --");
        for run in [run.as_str(), &run.replace(" --seccomp unconfined", "")] {
            let Some(seen) = in_place(place, caller, &format!("exec python3 {rig} {attacks} {run}")) else { return };
            assert_eq!(seen.stdout, "end\nvictim lives secret\n", "{place} {run}: {}", seen.stderr);
        }
    });
}

/// Every way to outlive a workload, eight times: a daemon in a session of its own, and a chain of processes each of which forks
/// and ends at once, faster than anything that looks for processes finds them. All hold the lock. They end by themselves after
/// the seconds that the third argument says.
const LINGER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}
int main(int argc, char **argv) {
    int lock = open(argv[1], O_RDONLY);
    double end = now() + atof(argv[3]);
    if (lock < 0 || flock(lock, LOCK_SH) != 0) return 1;
    for (int number = 1; number < 32; number++) signal(number, SIG_IGN);
    for (int way = 0; way < 8; way++) {
        if (fork() != 0) continue;
        setsid();
        if (fork() > 0) _exit(0);
        while (now() < end) {
            pid_t child = way % 2 ? fork() : -1;
            if (child > 0) _exit(0);
            if (child == 0) setsid();
            if (child < 0) usleep(10000);
        }
        _exit(0);
    }
    printf("begun\n");
    fflush(stdout);
    usleep(atof(argv[2]) * 1e6);
    return 0;
}
"#;

/// How long they would live. Shorter than this, a run has ended them.
const LIFETIME: Duration = Duration::from_secs(20);

/// The program above, where every user can execute it. `None` without a compiler.
fn linger(dir: &TempDir) -> Option<String> {
    if !crate::common::has_program("gcc") {
        skip("gcc is not installed");
        return None;
    }
    let program = dir.join("linger");
    std::fs::copy(crate::common::compiled("gcc", &["-static", "-O1"], LINGER).unwrap(), &program).unwrap();
    for path in [dir.path(), &program] {
        crate::common::set_mode(path, 0o755);
    }
    Some(text(&program).to_owned())
}

/// Whether a process has this file open and locked.
fn is_locked(file: &std::path::Path) -> bool {
    let file = std::fs::File::open(file).unwrap();
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).is_err()
}

#[test]
fn every_process_ends_with_the_run_and_no_other() {
    for_each_place(|place, caller, _, _| {
        let dir = TempDir::new(caller);
        let Some(program) = linger(&dir) else { return };
        let ended = "flock -n $l true && echo ended; rm -f $l; kill $p && echo lives";
        let make = "l=$(mktemp) && chmod 644 $l; sleep 100 & p=$!;";
        // First without a sandbox: they outlive the program.
        let script = format!("{make} {program} $l 0 2; {ended}");
        let Some(seen) = in_place(place, caller, &script) else { return };
        assert_eq!(seen.stdout, "begun\nlives\n", "{}", seen.stderr);
        for (options, seconds, code) in [
            ("", "0.3", 0),
            ("--timeout 1s --kill-after 200ms", "100", 124),
            ("--cpu-time 500ms --kill-after 1ms", "100", 124),
        ] {
            let run = format!("$S run -p nested --ro $l --ro {program} {options} -- {program} $l {seconds} 20");
            let begun = Instant::now();
            let Some(seen) = in_place(place, caller, &format!("{make} {run}; code=$?; {ended}; exit $code")) else {
                return;
            };
            assert_eq!(
                (seen.code, seen.stdout.as_str()),
                (code, "begun\nended\nlives\n"),
                "{options}: {}",
                seen.stderr
            );
            assert!(begun.elapsed() < LIFETIME, "{options}: they ended by themselves");
        }
    });
}

#[test]
fn the_death_of_the_supervisor_or_of_init_ends_every_process() {
    here(|caller| {
        let dir = TempDir::new(caller);
        let Some(program) = linger(&dir) else { return };
        let scratch = dir.dir("scratch");
        for victim in ["supervisor", "init", "guard"] {
            let lock = dir.file("lock", "");
            crate::common::set_mode(&lock, 0o644);
            let (held, scratch, now) = (text(&lock), text(&scratch), Instant::now());
            let script = format!(
                "export TMPDIR={scratch}; exec {} run -p nested --ro {held} --ro {program} -- {program} {held} 100 20",
                env!("CARGO_BIN_EXE_stockade")
            );
            let mut words = caller.become_words();
            words.extend([crate::places::SCRIPT, HERE, "--", "sh", "-c", &script].map(str::to_owned));
            let mut child =
                Command::new(&words[0]).args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut begun = [0; 6];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut begun).unwrap();
            assert!(is_locked(&lock), "they hold the lock");
            // Every word of the command line before was an exec, so the child is the supervisor.
            let supervisor = child.id();
            let children = |of: u32| {
                let list = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
                list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
            };
            let [init] = children(supervisor)[..] else { panic!("one child: {:?}", children(supervisor)) };
            let target = match victim {
                "supervisor" => supervisor,
                "init" => init,
                _ => children(init)[0], // it is the first
            };
            let kill =
                |pid: u32| assert!(caller.command("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
            kill(target);
            match victim {
                "init" => {
                    assert_eq!(child.wait().unwrap().code(), Some(125));
                    assert!(!is_locked(&lock), "the run is over, and processes are left");
                }
                // Nothing waits for their end.
                _ => {
                    if victim == "guard" {
                        assert!(child.try_wait().unwrap().is_none() && is_locked(&lock), "the rest goes on");
                        kill(supervisor);
                    }
                    child.wait().unwrap();
                    while is_locked(&lock) {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            }
            assert!(now.elapsed() < LIFETIME, "{victim}: they ended by themselves");
            // Only a killed supervisor leaves its scratch directory, until gc removes it. That of a living run stays.
            let script = "$S run -p nested -- sh -c 'echo $TMPDIR; sleep 100' >$o & p=$!; sleep 0.5; $S gc; ls -d $(cat $o); kill $p; wait";
            let seen = seen_here(caller, &format!("export TMPDIR={scratch}; o=$(mktemp); {script}; rm $o"));
            let lines: Vec<_> = seen.stdout.lines().collect();
            assert!(lines.last().is_some_and(|last| last.ends_with("/tmp")), "{lines:?}{}", seen.stderr);
            let removed =
                lines.iter().filter(|line| line.starts_with(&format!("removed {scratch}/stockade-scratch-"))).count();
            assert!(removed == usize::from(victim != "init"), "{victim}: {lines:?}{}", seen.stderr);
        }
    });
}

#[test]
fn a_session_takes_namespaces() {
    here(|caller| {
        let name = crate::common::unique();
        let seen = seen_here(
            caller,
            &format!(
                "export XDG_RUNTIME_DIR=$(mktemp -d); $S run -p nested -d --name {name}; code=$?; $S rm -f {name}; exit $code"
            ),
        );
        assert!(seen.code == 125 && seen.stdout.is_empty(), "{}{}", seen.stdout, seen.stderr);
        assert!(
            seen.stderr.contains("session: needs namespaces") && seen.stderr.contains("without -d"),
            "{}",
            seen.stderr
        );
    });
}

#[test]
fn what_takes_a_namespace_is_refused_by_name() {
    here(|caller| {
        let dir = TempDir::new(caller);
        let inner = dir.dir("inner");
        let (dir, inner) = (text(dir.path()), text(&inner));
        for (options, name) in [
            ("--rootfs /", "--rootfs /"),
            ("--cap-add NET_ADMIN", "--cap-add"),
            ("--no-init", "--no-init"),
            ("--time-namespace", "--time-namespace"),
            ("--seccomp-allow nested", "--seccomp-allow nested"),
            ("--user 7:7", "--user 7:7"),
            ("--tmpfs /scratch", "--tmpfs /scratch"),
            ("--landlock off", "--landlock off"),
            (&format!("-v {dir}:/elsewhere"), &format!("-v {dir}:/elsewhere")),
            (&format!("-v {dir} --ro {inner}"), inner),
            (&format!("-v {dir} -v {inner}:noexec"), inner),
        ] {
            let seen = seen_here(caller, &format!("$S run -p nested {options} -- echo ran"));
            assert!(seen.code == 125 && seen.stdout.is_empty(), "{options}: {}{}", seen.stdout, seen.stderr);
            assert!(seen.stderr.contains(name) && seen.stderr.contains("makes no"), "{options}: {}", seen.stderr);
            assert!(seen.stderr.contains("hint: "), "{options}: {}", seen.stderr);
        }
        // What has a name of its own is refused without it, with a hint that works.
        for (name, options) in [("hostname", "--hostname other"), ("proc", "-p strict")] {
            let degraded = "--allow-degraded namespaces --allow-degraded host-id";
            let seen = seen_here(caller, &format!("$S run {options} {degraded} -- echo ran"));
            assert!(seen.code == 125 && seen.stdout.is_empty(), "{options}: {}{}", seen.stdout, seen.stderr);
            assert!(seen.stderr.contains(&format!("--allow-degraded {name}")), "{options}: {}", seen.stderr);
            let seen = seen_here(caller, &format!("$S run {options} {degraded} --allow-degraded {name} -- echo ran"));
            assert_eq!(seen.stdout, "ran\n", "{options}: {}", seen.stderr);
        }
        let seen = seen_here(caller, "$S run -p nested -p strict -- ls /proc");
        assert!(seen.code != 0 && seen.stdout.is_empty(), "{}{}", seen.stdout, seen.stderr);
    });
}

#[test]
fn exactly_what_is_shown_can_be_used() {
    here(|caller| {
        let dir = TempDir::new(caller);
        for name in ["ro", "rw", "noexec", "hidden", "listed"] {
            dir.dir(name);
            let script = dir.file(&format!("{name}/x"), "#!/bin/sh\necho x\n");
            crate::common::set_mode(&script, 0o755);
        }
        let at = text(dir.path());
        let binds = format!("-p nested --ro {at}/ro -v {at}/rw -v {at}/noexec:noexec -v {at}/listed");
        let look = format!(
            "for d in ro rw noexec hidden listed; do for way in \"cat $d/x\" \"./$d/x\" \"touch $d/new\" \"ls $d\"; do \
             (cd {at}; $way >/dev/null 2>&1 && echo $d ${{way%% *}}); done; done; true"
        );
        let run = |options: &str| seen_here(caller, &format!("$S run {options} -- sh -c '{look}'"));
        let used = |seen: &Seen| seen.stdout.lines().map(str::to_owned).collect::<Vec<_>>();
        let all = |name: &str, ways: &[&str]| ways.iter().map(|way| format!("{name} {way}")).collect::<Vec<_>>();
        let seen = run(&binds);
        let expected = [
            all("ro", &["cat", "./ro/x", "ls"]),
            all("rw", &["cat", "./rw/x", "touch", "ls"]),
            all("noexec", &["cat", "touch", "ls"]),
            all("listed", &["cat", "./listed/x", "touch", "ls"]),
        ];
        assert_eq!(used(&seen), expected.concat(), "{}", seen.stderr);
        let seen = seen_here(caller, &format!("$S run {binds} -w {at}/rw -- sh -c 'pwd; cat x'"));
        assert_eq!(seen.stdout, format!("{at}/rw\n#!/bin/sh\necho x\n"), "{}", seen.stderr);
        // Lists restrict what is shown further.
        let lists = format!("--allow-read /usr --allow-read /etc --allow-read {at}/ro --allow-write {at}/listed");
        let seen = run(&format!("{binds} {lists}"));
        let expected = [all("ro", &["cat", "./ro/x", "ls"]), all("listed", &["touch"])];
        assert_eq!(used(&seen), expected.concat(), "{}", seen.stderr);
        let seen = seen_here(caller, &format!("$S run {binds} --allow-read {at}/hidden -- true"));
        assert!(seen.code == 125 && seen.stderr.contains("hidden"), "a list cannot show more: {}", seen.stderr);
    });
}

/// As root in docker the workload has a host user of its own, which a mount would have led past a closed directory.
#[test]
fn what_the_workloads_user_cannot_reach_is_named() {
    if !can() || !is_root() {
        return;
    }
    let make = "d=$(mktemp -d) && mkdir $d/in && echo hello >$d/in/file && chmod -R go+rX $d/in && ";
    let script = format!(
        "{make} $S run -p nested --ro $d/in -- cat $d/in/file; chmod o+x $d; $S run -p nested --ro $d/in -- cat $d/in/file"
    );
    let Some(seen) = in_place("docker", Caller::Root, &script) else { return };
    assert_eq!(seen.stdout, "hello\n", "{}", seen.stderr);
    assert!(seen.stderr.contains("cannot be passed") && seen.stderr.contains("chmod o+x"), "{}", seen.stderr);
}

#[test]
fn scratch_space_is_private_and_removed() {
    for_each_place(|place, caller, _, _| {
        let use_it = "echo a >$HOME/a && echo b >$TMPDIR/b && test $PWD = $HOME && cat a $TMPDIR/b; echo c >/tmp/escaped; \
                      ls /tmp; d=$TMPDIR; mkdir -p $d/x/y/z; chmod 0 $d/x/y 2>/dev/null; echo $HOME; echo $TMPDIR";
        let left = "ls -d $h/.. 2>/dev/null; ls /tmp/escaped 2>/dev/null";
        let script =
            format!("o=$($S run -p nested -- sh -c '{use_it}'); echo \"$o\"; h=$(echo \"$o\" | tail -1); {left}; true");
        let Some(seen) = in_place(place, caller, &script) else { return };
        let lines: Vec<_> = seen.stdout.lines().collect();
        assert_eq!(lines.len(), 4, "nothing is left: {lines:?} {}", seen.stderr);
        assert!(lines[..2] == ["a", "b"] && lines[2].ends_with("/home") && lines[3].ends_with("/tmp"), "{lines:?}");
    });
}

#[test]
fn limits_and_deadlines_hold() {
    here(|caller| {
        let seen =
            seen_here(caller, "$S run -p nested --ulimit nofile=64 --timeout 1s -- sh -c 'ulimit -n; sleep 100'");
        assert_eq!((seen.code, seen.stdout.as_str()), (124, "64\n"), "{}", seen.stderr);
        let seen = seen_here(caller, "$S run -p nested --output-limit 10,kill -- yes");
        assert_eq!(seen.code, 137, "{}", seen.stderr);
        let seen =
            seen_here(caller, "$S run -p nested -t -- sh -c 'tty && test -t 0 && echo yes >/dev/tty' </dev/null");
        assert!(seen.code == 0 && seen.stdout.contains("yes"), "{}{}", seen.stdout, seen.stderr);
        let seen = seen_here(
            caller,
            "$S run -p nested --network host --seccomp-allow sysv -- python3 -c 'import socket as s; s.socket(); s.socketpair()'",
        );
        assert_eq!(seen.code, 0, "{}", seen.stderr);
    });
}
