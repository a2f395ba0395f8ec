//! No context of the caller passes to the workload, and the workload cannot reach pid 1.

use std::fs;

use crate::common::{Caller, Run, TempDir, attack, for_each_caller, has_program, is_root, skip, skip_part, text};

const EVERYTHING: &str = r#"{ "defaultAction": "SCMP_ACT_ALLOW" }"#;

/// Every attribute that the kernel lets a process change of another process of its user: name, call, arguments.
const GRASPS: &str = r#"
import struct
limit = ctypes.create_string_buffer(struct.pack("QQ", 1, 1))
files = ctypes.create_string_buffer(struct.pack("QQ", 0, 0))
zero = ctypes.create_string_buffer(bytes(128))
idle = ctypes.create_string_buffer(struct.pack("IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0))
cpus = ctypes.create_string_buffer(struct.pack("Q", 1))
syscall("cpu", 302, 1, 0, limit, None)
syscall("nofile", 302, 1, 7, files, None)
syscall("high", 302, (1 << 32) + 1, 0, limit, None)
syscall("scheduler", 144, 1, 5, zero)
syscall("param", 142, 1, zero)
syscall("attr", 314, 1, idle, 0)
syscall("affinity", 203, 1, 8, cpus)
syscall("priority", 141, 0, 1, 19)
syscall("priority_user", 141, 2, 0, 19)
syscall("ioprio", 251, 1, 1, 3 << 13)
syscall("ioprio_user", 251, 3, 0, 3 << 13)
"#;

#[test]
fn limits_and_scheduling_of_init_are_out_of_reach() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let everything = text(&dir.file("everything.json", EVERYTHING)).to_owned();
        for profile in ["default", "docker", "unconfined", &everything] {
            let outcome = Run::new(caller).opts(["--seccomp", profile]).python(&attack(GRASPS)).go().expect(0);
            assert_eq!(outcome.lines().len(), 11, "{outcome}");
            let through: Vec<_> = outcome.lines().into_iter().filter(|line| line.ends_with("=OK")).collect();
            assert!(through.is_empty(), "{profile}: {through:?}");
        }
        // The workload may change its own, also as pid 1.
        for options in [&[][..], &["--no-init"]] {
            let own = attack(&GRASPS.replace(", 1, ", ", os.getpid(), "));
            let outcome = Run::new(caller).opts(options.iter().copied()).python(&own).go().expect(0);
            for name in ["nofile", "scheduler", "affinity"] {
                assert_eq!(outcome.value(name), "OK", "{options:?}: {outcome}");
            }
        }
    });
}

/// The workload lowered init's limit to a second of processor time, which init used up for the orphans.
#[test]
fn a_limit_on_init_and_many_orphans_end_no_run() {
    let program = attack(
        "import struct, time\n\
         limit = ctypes.create_string_buffer(struct.pack('QQ', 0, 0))\n\
         syscall('cpu', 302, 1, 0, limit, None)\n\
         until = time.monotonic() + 4\n\
         while time.monotonic() < until:\n\
         \x20   if os.fork() == 0:\n\
         \x20       for _ in range(30):\n\
         \x20           if os.fork() == 0: os._exit(0)\n\
         \x20       os._exit(0)\n\
         \x20   os.wait()\n\
         sys.exit(7)",
    );
    for_each_caller(|caller| {
        let outcome = Run::new(caller).python(&program).go().expect(7);
        outcome.expect_status("nonzero");
    });
}

#[test]
fn the_callers_command_line_and_environment_are_not_in_the_init() {
    for_each_caller(|caller| {
        let run = Run::new(caller).env("SECRET_OF_THE_CALLER", "in-the-environment");
        let run = run
            .opts(["--timeout", "60s", "-e", "OF_THE_OPTIONS=in-the-arguments"])
            .sh("cat /proc/1/cmdline; sleep 1000")
            .spawn();
        run.wait_for("init");
        let pids = super::common::leaks::descendants(run.pid());
        let read = |pid: &i32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let title = format!("stockade: init {}", run.marker());
        let init = pids.iter().find(|pid| read(pid, "cmdline").starts_with(title.as_bytes()));
        let init = init.unwrap_or_else(|| panic!("no process is called {title}"));
        assert!(read(init, "cmdline").strip_prefix(title.as_bytes()).unwrap().iter().all(|byte| *byte == 0));
        assert_eq!(read(init, "comm"), b"stockade-init\n");
        if is_root() {
            assert!(read(init, "environ").iter().all(|byte| *byte == 0), "the environment of {init}");
        }
        run.signal(nix::sys::signal::Signal::SIGTERM);
        let outcome = run.finish();
        assert!(outcome.text().starts_with(&title) && !outcome.text().contains("in-the-arguments"), "{outcome}");
    });
}

/// Prints this process's scheduling and other attributes that execve(2) keeps.
const SCHEDULED: &str = "import ctypes, os\n\
    libc = ctypes.CDLL(None)\n\
    print(os.sched_getscheduler(0), os.getpriority(0, 0), libc.syscall(252, 1, 0) >> 13, libc.personality(0xffffffff), \
    open('/proc/self/oom_score_adj').read().strip())\n";

#[test]
fn the_callers_precedence_does_not_pass_to_the_workload() {
    if !is_root() {
        return skip("raising a priority needs root");
    }
    if !["chrt", "nice", "ionice", "setarch"].into_iter().all(has_program) {
        return skip("no chrt, nice, ionice or setarch");
    }
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse::<i32>().unwrap().max(0);
    for (before, inside) in [
        (&["chrt", "-r", "10"][..], "0 0 0 0"),
        (&["chrt", "-f", "99"], "0 0 0 0"),
        (&["chrt", "-b", "0", "nice", "-n", "-5"], "3 0 0 0"),
        (&["nice", "-n", "-20"], "0 0 0 0"),
        (&["nice", "-n", "7"], "0 7 0 0"),
        (&["ionice", "-c", "1", "-n", "0"], "0 0 0 0"),
        (&["ionice", "-c", "3"], "0 0 3 0"),
        (&["setarch", "-R"], "0 0 0 0"),
    ] {
        let outcome = Run::new(Caller::Root).via(before.iter().copied()).python(SCHEDULED).go().expect(0);
        assert_eq!(outcome.text(), format!("{inside} {own}\n"), "{before:?}");
    }
    let spared = "open('/proc/self/oom_score_adj', 'w').write('-500')";
    if super::python_outside(Caller::Root, spared).0 != 0 {
        return skip_part("a negative OOM score", "takes CAP_SYS_RESOURCE");
    }
    let outcome = Run::new(Caller::Root).after_python(spared).python(SCHEDULED).go().expect(0);
    assert_eq!(outcome.text(), "0 0 0 0 0\n");
}
