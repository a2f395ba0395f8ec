//! A workload cannot use up the resources that the kernel counts for each user, so the caller's other processes have some left.

use std::fs;

use crate::common::{Run, attack, for_each_caller, python_outside};

/// Takes all available inotify instances, prints their number, and keeps them.
const INSTANCES: &str = "import time\n\
    taken = 0\n\
    while libc.inotify_init1(0) >= 0: taken += 1\n\
    print(f'taken={taken}', flush=True)\n\
    time.sleep(1000)";

#[test]
fn inotify_instances_are_left_for_the_callers_other_processes() {
    for_each_caller(|caller| {
        let run = Run::new(caller).opts(["--timeout", "60s", "--seccomp", "unconfined"]);
        let run = run.python(&attack(INSTANCES)).spawn();
        run.wait_for("taken=");
        let one = attack("print('left=' + str(libc.inotify_init1(0) >= 0))");
        let outside = python_outside(caller, &one);
        run.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!((outside, run.finish().value("taken").as_str()), ((0, "left=True\n".into()), "32"));
    });
}

#[test]
fn watches_of_files_are_bounded_by_half_of_the_hosts() {
    let limits = "for name in max_inotify_instances max_inotify_watches max_fanotify_groups max_fanotify_marks; do \
                  test -e /proc/sys/user/$name && echo $name=$(cat /proc/sys/user/$name) || echo $name=; done";
    let host: u64 = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap().trim().parse().unwrap();
    for_each_caller(|caller| {
        let inside = Run::new(caller).sh(limits).go().expect(0);
        for (name, most) in [("instances", 32), ("watches", host / 2)] {
            assert_eq!(inside.value(&format!("max_inotify_{name}")), most.to_string(), "{inside}");
        }
        for (name, most) in [("groups", 32), ("marks", host / 2)] {
            let found = inside.value(&format!("max_fanotify_{name}"));
            assert!(found.is_empty() || found == most.to_string(), "{inside}");
        }
    });
}

/// Queues signals to itself up to the limit, prints their number, and keeps them.
const SIGNALS: &str = "import signal, time\n\
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])\n\
    value = ctypes.c_void_p(1)\n\
    taken = 0\n\
    while taken < 200000 and libc.sigqueue(os.getpid(), signal.SIGRTMIN + 1, value) == 0: taken += 1\n\
    print(f'taken={taken}', flush=True)\n\
    time.sleep(KEPT)";

#[test]
fn pending_signals_are_left_for_the_callers_other_processes() {
    for_each_caller(|caller| {
        let run = Run::new(caller).opts(["--timeout", "60s"]);
        let run = run.python(&attack(&SIGNALS.replace("KEPT", "1000"))).spawn();
        run.wait_for("taken=");
        let (code, outside) = python_outside(caller, &attack(&SIGNALS.replace("KEPT", "0")));
        run.signal(nix::sys::signal::Signal::SIGTERM);
        let inside: u64 = run.finish().value("taken").parse().unwrap();
        let taken: u64 = outside.trim().strip_prefix("taken=").unwrap().parse().unwrap();
        assert!(code == 0 && taken > 1024, "outside: {outside}");
        assert!((1..=1024).contains(&inside), "{inside}");
    });
}

/// Sends descriptors without a receiver up to the limit. A descriptor in flight counts for its sender's user.
const IN_FLIGHT: &str = "import array, resource, socket, time\n\
    pairs, fd, taken = [], os.open('/dev/null', os.O_RDONLY), 0\n\
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n\
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FILES), hard))\n\
    many = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd] * MANY))]\n\
    try:\n\
    \x20   while taken < 100000:\n\
    \x20       one, two = socket.socketpair(); pairs.append((one, two)); one.setblocking(False)\n\
    \x20       try:\n\
    \x20           for _ in range(8): one.sendmsg([b'x'], many); taken += MANY\n\
    \x20       except BlockingIOError: pass\n\
    \x20       if ONCE: break\n\
    except OSError as error: print('ended=' + word(error.errno))\n\
    print(f'taken={taken}', flush=True)\n\
    time.sleep(KEPT)";

/// The kernel compares one count, of all processes of the user, with the sender's soft limit on open files.
#[test]
fn descriptors_in_flight_are_bounded_by_the_limit_on_files() {
    for_each_caller(|caller| {
        let program = |limit: &str, many: &str, once: &str, kept: &str| {
            let words = [("FILES", limit), ("MANY", many), ("ONCE", once), ("KEPT", kept)];
            attack(&words.iter().fold(IN_FLIGHT.to_owned(), |text, (word, with)| text.replace(word, with)))
        };
        let inside = program("4096", "100", "False", "1000");
        let run = Run::new(caller).opts(["--timeout", "60s", "--ulimit", "nofile=512"]).python(&inside).spawn();
        run.wait_for("taken=");
        let (code, outside) = python_outside(caller, &program("1024", "1", "True", "0"));
        run.signal(nix::sys::signal::Signal::SIGTERM);
        let inside = run.finish();
        assert!(code == 0 && outside == "taken=8\n", "{outside}");
        assert_eq!(inside.value("ended"), "ETOOMANYREFS", "{inside}");
        let taken: u64 = inside.value("taken").parse().unwrap();
        assert!(taken <= 512 + 253, "{inside}");
    });
}

#[test]
fn there_are_no_posix_queues_whatever_the_filter_says() {
    for_each_caller(|caller| {
        let program = attack("syscall('queue', 240, b'queue', os.O_CREAT | os.O_RDWR, 0o600, None)");
        let inside = Run::new(caller).opts(["--seccomp", "unconfined"]).python(&program).go().expect(0);
        assert_eq!(inside.value("queue"), "EMFILE", "{inside}");
    });
}
