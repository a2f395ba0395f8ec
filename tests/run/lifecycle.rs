//! A run ends with the right code, on time, and with all of its processes dead, whatever the workload does and whatever the
//! environment is.

use std::fs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::clock::Clock;
use crate::common::{Caller, Live, Outcome, Run, TempDir, attack, for_each_caller, is_root, leaks, text};
use nix::sys::signal::Signal;

#[track_caller]
fn assert_took(outcome: &Outcome, from: f64, to: f64) {
    let (took, allowance) = (outcome.wall.as_secs_f64(), outcome.allowance.as_secs_f64());
    assert!((from..to + allowance).contains(&took), "{took:.2} s is not in {from}..{to} + {allowance:.2}: {outcome}");
}

#[test]
fn the_exit_code_is_the_workloads() {
    for_each_caller(|caller| {
        for options in [&[][..], &["--no-init"]] {
            for code in [0, 1, 42, 125, 255] {
                let outcome =
                    Run::new(caller).opts(options.iter().copied()).sh(&format!("exit {code}")).go().expect(code);
                let outcome = outcome.expect_status(if code == 0 { "ok" } else { "nonzero" });
                assert_eq!(outcome.report()["exit_code"], code);
                assert_eq!(outcome.stderr, "", "the supervisor printed something");
            }
        }
    });
}

#[test]
fn a_death_by_signal_is_128_and_its_number() {
    for_each_caller(|caller| {
        for (name, number) in [("KILL", 9), ("TERM", 15), ("SEGV", 11), ("ABRT", 6), ("USR1", 10), ("HUP", 1)] {
            let outcome = Run::new(caller).sh(&format!("kill -{name} $$; sleep 5")).go().expect(128 + number);
            assert_eq!(outcome.report()["signal"], number);
            assert_eq!(outcome.report()["status"], "signaled");
        }
    });
}

#[test]
fn a_command_that_is_not_there_is_127() {
    for_each_caller(|caller| {
        for command in ["no-such-command", "/usr/bin/no-such-command", "/etc/passwd/x"] {
            let outcome = Run::new(caller).cmd([command]).go().expect(127).expect_status("setup_error");
            assert!(outcome.stderr.contains(command), "{outcome}");
            assert_eq!(outcome.report()["error"]["step"], "exec");
        }
    });
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let executable = |name: &str, content: &[u8]| {
            let path = dir.file(name, content);
            common::set_mode(&path, 0o755);
            text(&path).to_owned()
        };
        let plain = text(&dir.file("plain", "#!/bin/sh\n")).to_owned();
        let missing = executable("missing", b"#!/no/such/interpreter\n");
        let noise = executable("noise", b"\x7fELF\x02\x01\x01 and nothing more");
        for command in [plain.as_str(), &missing, &noise, "/usr", "/etc/passwd"] {
            let outcome = Run::new(caller).opts(["--ro", text(dir.path())]).cmd([command]).go().expect(126);
            assert!(outcome.stderr.contains(command), "{outcome}");
        }
        let outcome = Run::new(caller).opts(["--ro", text(dir.path())]).cmd([missing.as_str()]).go();
        assert!(outcome.stderr.contains("interpreter"), "the message names the interpreter: {outcome}");
    });
}

#[test]
fn a_failure_before_the_workload_runs_is_125() {
    for_each_caller(|caller| {
        for options in [
            &["--no-such-flag"][..],
            &["-v", "/no/such/dir:/data:ro"],
            &["--rootfs", "/no/such/dir"],
            &["--timeout", "x"],
            &["-w", "/nowhere"],
        ] {
            let outcome = Run::new(caller).opts(options.iter().copied()).cmd(["true"]).go().expect(125);
            assert!(!outcome.stderr.is_empty() && outcome.stdout.is_empty(), "{outcome}");
        }
        Run::new(caller).go().expect(125); // no command
    });
}

#[test]
fn processes_that_left_their_session_are_dead_on_return() {
    for_each_caller(|caller| {
        let daemonize = "import os, signal, time\n\
             for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)\n\
             for i in range(5):\n    \
             if os.fork() == 0:\n        \
             os.setsid()\n        \
             if os.fork() == 0:\n            \
             os.environ.clear(); time.sleep(1000)\n        \
             os._exit(0)\n\
             time.sleep(0.2); print(len([p for p in os.listdir('/proc') if p.isdigit()]))";
        for options in [&[][..], &["--no-init"]] {
            let outcome = Run::new(caller).opts(options.iter().copied()).python(daemonize).go().expect(0);
            let alive: u32 = outcome.text().trim().parse().unwrap();
            assert!(alive >= 6, "the daemons did not run: {outcome}");
            assert_took(&outcome, 0.0, 5.0);
        }
        let shell = Run::new(caller).sh("(setsid sleep 1000 & ) ; nohup sleep 1000 >/dev/null 2>&1 & exit 3").go();
        shell.expect(3);
    });
}

/// A run with a time limit, and that limit in seconds: long enough for the workload to start and to print this.
fn limited(begun: &str, run: impl Fn() -> Run) -> (Outcome, f64) {
    let mut millis = 300;
    loop {
        let outcome = run().opts(["--timeout", &format!("{millis}ms")]).go();
        if outcome.text().starts_with(begun) || millis > 60_000 {
            return (outcome.expect(124).expect_status("timeout_wall"), f64::from(millis) / 1000.0);
        }
        millis *= 4;
    }
}

#[test]
fn a_deadline_ends_the_run_on_time() {
    for_each_caller(|caller| {
        let (outcome, limit) = limited("before\n", || Run::new(caller).sh("echo before; sleep 1000"));
        assert_took(&outcome, limit, limit + 1.7);
        assert_eq!(outcome.text(), "before\n");
        let asks = "trap 'echo asked; exit 5' TERM; echo on; while :; do sleep 0.05; done";
        let (polite, _) = limited("on\n", || Run::new(caller).sh(asks).opts(["--kill-after", "100s"]));
        assert_eq!(polite.text(), "on\nasked\n", "SIGTERM comes first: {polite}");
    });
}

#[test]
fn a_workload_that_ignores_term_is_killed_on_time() {
    for_each_caller(|caller| {
        let stubborn = "import os, signal, sys, time\n\
             for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:\n    \
             try: signal.signal(number, signal.SIG_IGN)\n    \
             except (OSError, ValueError): pass\n\
             print('deaf', flush=True)\n\
             while True: time.sleep(1)";
        for init in [&[][..], &["--no-init"]] {
            let run = || Run::new(caller).opts(["--kill-after", "400ms"]).opts(init.iter().copied()).python(stubborn);
            let (outcome, limit) = limited("deaf\n", run);
            assert_took(&outcome, limit + 0.4, limit + 2.5);
            assert_eq!(outcome.text(), "deaf\n");
        }
    });
}

#[test]
fn a_stopped_workload_is_ended_on_time() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller)
            .opts(["--timeout", "500ms", "--kill-after", "300ms"])
            .sh("kill -STOP $$; echo resumed")
            .go();
        assert_took(&outcome, 0.5, 3.0);
        outcome.expect(124).expect_status("timeout_wall");
        let all = Run::new(caller)
            .opts(["--timeout", "500ms", "--kill-after", "300ms"])
            .sh("sleep 100 & kill -STOP $!; sleep 100 & kill -STOP $!; kill -STOP $$")
            .go();
        assert_took(&all, 0.5, 3.0);
        all.expect(124);
    });
}

#[test]
fn a_tracee_of_the_init_does_not_hang_the_run() {
    for_each_caller(|caller| {
        // The orphan asks its new parent, pid 1, to trace it, and stops.
        let orphan = attack(
            r#"
import signal, time
if os.fork() == 0:
    parent = os.getppid()
    if os.fork() == 0:
        while os.getppid() != 1: time.sleep(0.01)
        syscall("traceme", 101, 0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        print("continued", flush=True)
        os._exit(0)
    os._exit(0)
os.wait()
time.sleep(1)
"#,
        );
        let traced = Run::new(caller).opts(["--seccomp-allow", "debug"]).python(&orphan);
        let outcome = traced.go().expect(0);
        assert_eq!(outcome.text(), "traceme=OK\ncontinued\n", "{outcome}");
        let own = attack(
            "import signal\nsyscall('traceme', 101, 0, 0, 0, 0)\nos.kill(os.getpid(), signal.SIGSTOP)\nos._exit(7)",
        );
        for options in [&["--timeout", "1s"][..], &["--timeout", "1s", "--no-init"]] {
            let outcome = Run::new(caller).opts(options.iter().copied()).python(&own).go();
            assert!([7, 124].contains(&outcome.code()), "{outcome}");
        }
    });
}

fn wait_until_dead(run: &Live, pids: &[i32], within: Duration) {
    let mut clock = Clock::start();
    loop {
        let alive: Vec<_> =
            pids.iter().copied().filter(|&pid| leaks::stat(pid).is_some_and(|(state, _)| state != 'Z')).collect();
        if alive.is_empty() {
            return;
        }
        assert!(!clock.is_past(within), "{} outlived its supervisor: {}", run.marker(), leaks::describe(&alive));
        clock.sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_death_of_the_supervisor_kills_the_tree_on_time() {
    for_each_caller(|caller| {
        let script = "trap '' TERM HUP INT; (setsid sleep 1000 &); sleep 1000 & kill -STOP $!; echo ready; while :; do sleep 1; done";
        for options in [&[][..], &["--no-init"], &["--output-limit", "1M"], &["-i"]] {
            let mut run = Run::new(caller).opts(options.iter().copied()).sh(script).spawn();
            run.wait_for("ready");
            let pids = run.processes();
            assert!(pids.len() >= 4, "{}", leaks::describe(&pids));
            run.kill_supervisor();
            wait_until_dead(&run, &pids, Duration::from_secs(1));
            run.finish();
        }
    });
}

/// At 30 moments of a start; at 5,000 with `STOCKADE_SWEEP=all`.
#[test]
fn a_supervisor_killed_at_any_moment_leaves_nothing() {
    let all = std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all");
    let (moments, apart) = if all { (5_000, Duration::from_nanos(4_200)) } else { (30, Duration::from_micros(700)) };
    for_each_caller(|caller| {
        for moment in 0..moments {
            let mut run = Run::new(caller).sh("sleep 1000").spawn();
            sleep(apart * moment);
            run.kill_supervisor();
            run.finish();
        }
    });
}

#[test]
fn signals_are_passed_on() {
    for_each_caller(|caller| {
        for options in [&[][..], &["--no-init"]] {
            for (signal, name) in [
                (Signal::SIGTERM, "TERM"),
                (Signal::SIGINT, "INT"),
                (Signal::SIGHUP, "HUP"),
                (Signal::SIGUSR1, "USR1"),
                (Signal::SIGUSR2, "USR2"),
                (Signal::SIGQUIT, "QUIT"),
                (Signal::SIGWINCH, "WINCH"),
                (Signal::SIGTSTP, "TSTP"),
            ] {
                let script = format!("trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.05; done");
                let run =
                    Run::new(caller).opts(options.iter().copied()).opts(["--kill-after", "10s"]).sh(&script).spawn();
                run.wait_for("ready");
                run.signal(signal);
                let outcome = run.finish();
                assert!(outcome.text().contains(&format!("got {name}")), "{name} {options:?}: {outcome}");
                outcome.expect(9);
            }
        }
    });
}

#[test]
fn a_forwarded_signal_that_ends_the_workload_counts_as_the_users() {
    for_each_caller(|caller| {
        let run = Run::new(caller).sh("echo ready; exec sleep 1000").spawn();
        run.wait_for("ready");
        run.signal(Signal::SIGTERM);
        run.finish().expect(128 + 15).expect_status("killed_by_user");
    });
}

#[test]
fn a_deadline_holds_after_control_z_on_time() {
    for_each_caller(|caller| {
        let run = Run::new(caller).opts(["--timeout", "2s"]).sh("echo ready; exec sleep 1000").spawn();
        run.wait_for("ready");
        run.signal(Signal::SIGTSTP);
        run.finish().expect(124).expect_status("timeout_wall");
    });
}

#[test]
fn the_second_interrupt_kills_on_time() {
    for_each_caller(|caller| {
        let run = Run::new(caller)
            .opts(["--kill-after", "60s"])
            .sh("trap 'echo first' INT; echo ready; while :; do sleep 0.05; done")
            .spawn();
        run.wait_for("ready");
        run.signal(Signal::SIGINT);
        run.wait_for("first");
        let before = Instant::now();
        run.signal(Signal::SIGINT);
        let outcome = run.finish();
        assert!(before.elapsed() < Duration::from_secs(2) + outcome.allowance, "{outcome}");
        outcome.expect(128 + 9).expect_status("killed_by_user");
    });
}

#[test]
fn orphans_are_reaped() {
    for_each_caller(|caller| {
        let script = "i=0; while [ $i -lt 100 ]; do (true & ) ; i=$((i+1)); done; sleep 0.5; \
                      grep -l '^State:.*zombie' /proc/[0-9]*/status 2>/dev/null | wc -l";
        let outcome = Run::new(caller).sh(script).go().expect(0);
        assert_eq!(outcome.text().trim(), "0");
    });
}

#[test]
fn cpu_time_is_bounded() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller)
            .opts(["--cpu-time", "500ms", "--timeout", "20s"])
            .sh("while :; do :; done")
            .go()
            .expect(124);
        outcome.expect_status("timeout_cpu");
        // In many processes, each of which uses little.
        let many = "i=0; while :; do i=$((i+1)); sh -c 'j=0; while [ $j -lt 20000 ]; do j=$((j+1)); done'; done";
        let outcome = Run::new(caller).opts(["--cpu-time", "500ms", "--timeout", "20s"]).sh(many).go().expect(124);
        let outcome = outcome.expect_status("timeout_cpu");
        let used = outcome.report()["usage"]["cpu"]["total_us"].as_u64().unwrap();
        assert!((300_000..3_000_000).contains(&used), "{used}");
        let asleep = Run::new(caller).opts(["--cpu-time", "200ms"]).sh("sleep 0.8").go();
        asleep.expect(0);
    });
}

#[test]
fn silence_is_bounded() {
    // A workload that prints at a quarter of the limit is not idle. A virtual machine may be starved for seconds.
    let (bound, pause, least) = if common::host::is_uml() { ("6s", "1.5", 12.0) } else { ("1s", "0.25", 2.0) };
    let speak = |to: &str| format!("for i in 1 2 3 4 5; do echo $i{to}; sleep {pause}; done");
    for_each_caller(|caller| {
        let options = ["--idle-timeout", bound];
        let silent = Run::new(caller).opts(options).sh(&format!("{}; sleep 100", speak(""))).go().expect(124);
        assert_took(&silent, least, 4.0 * least);
        assert_eq!(silent.text(), "1\n2\n3\n4\n5\n");
        silent.expect_status("timeout_idle");
        Run::new(caller).opts(options).sh(&speak(" >&2")).go().expect(0);
    });
}

#[test]
fn standard_input_is_empty_unless_asked_for() {
    for_each_caller(|caller| {
        let closed = Run::new(caller).stdin("secret").cmd(["/bin/cat"]).go().expect(0);
        assert_eq!(closed.text(), "");
        for options in [&["-i"][..], &["-i", "--no-init"], &["-i", "--output-limit", "10M"]] {
            let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
            let open =
                Run::new(caller).opts(options.iter().copied()).stdin(bytes.clone()).cmd(["/bin/cat"]).go().expect(0);
            assert!(open.stdout == bytes, "{options:?}: bytes are missing");
        }
    });
}

#[test]
fn output_comes_through_unchanged() {
    for_each_caller(|caller| {
        for options in [&[][..], &["--output-limit", "100M"], &["--no-init"]] {
            let outcome = Run::new(caller)
                .opts(options.iter().copied())
                .sh("head -c 5000000 /dev/zero; printf 'a\\0b\\377' >&2; exit 3")
                .go()
                .expect(3);
            assert_eq!(outcome.stdout.len(), 5_000_000);
            assert_eq!(outcome.stderr, String::from_utf8_lossy(b"a\0b\xff"));
        }
    });
}

#[test]
fn output_is_bounded_to_the_byte() {
    const LETTERS: &str = "import sys; sys.stdout.write(''.join(chr(97 + i % 26) for i in range(100000)))";
    let letters: String = (0..100_000).map(|index| char::from(b'a' + (index % 26) as u8)).collect();
    for_each_caller(|caller| {
        for size in [0, 1, 1000, 65_536, 99_999, 100_000, 100_001] {
            let run = |keep: &str| {
                Run::new(caller)
                    .opts(["--output-limit", &format!("{size}{keep}")])
                    .cmd([common::PYTHON, "-I", "-S", "-c", LETTERS])
                    .go()
            };
            let kept = size.min(letters.len());
            for keep in ["", ",head"] {
                let outcome = run(keep).expect(0);
                assert!(outcome.text() == letters[..kept], "{size}{keep}: {}", outcome.stdout.len());
                let stdout = &outcome.report()["output"]["stdout"];
                assert_eq!(stdout["bytes"], 100_000);
                assert_eq!(stdout["kept"], kept);
                assert_eq!(stdout["truncated"], kept < 100_000);
            }
            let outcome = run(",tail").expect(0);
            assert!(outcome.text() == letters[letters.len() - kept..], "{size},tail: {}", outcome.stdout.len());
        }
    });
}

#[test]
fn too_much_output_can_end_the_run() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller).opts(["--output-limit", "1000,kill"]).sh("yes; sleep 100").go();
        assert_eq!(outcome.stdout.len(), 1000);
        assert_ne!(outcome.code(), 0);
        assert_took(&outcome, 0.0, 5.0);
        outcome.expect_status("output_limit");
        let exact = Run::new(caller).opts(["--output-limit", "1000,kill"]).sh("head -c 1000 /dev/zero").go().expect(0);
        assert_eq!(exact.stdout.len(), 1000);
        let errors = Run::new(caller).opts(["--output-limit", "1000,kill"]).sh("yes >&2; sleep 100").go();
        assert!(errors.stderr.len() >= 1000 && errors.stderr.len() < 2000, "{}", errors.stderr.len());
    });
}

#[test]
fn dropped_output_takes_no_memory() {
    for_each_caller(|caller| {
        // More than its memory limit. Ten gigabytes take too long in a guest.
        let much: u64 = if common::host::is_uml() { 64_000_000 } else { 10_000_000_000 };
        for (keep, bytes) in [("head", much), ("tail", much.min(300_000_000))] {
            let run = Run::new(caller)
                .opts(["--output-limit", &format!("64K,{keep}")])
                .sh(&format!("head -c {bytes} /dev/zero; echo done >&2; sleep 0.3"))
                .spawn();
            let pid = run.pid();
            let mut peak = 0;
            while let Some(kib) = fs::read_to_string(format!("/proc/{pid}/status")).ok().and_then(|status| {
                let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
                line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
            }) {
                peak = peak.max(kib);
                sleep(Duration::from_millis(20));
            }
            let outcome = run.finish().expect(0);
            assert_eq!(outcome.report()["output"]["stdout"]["bytes"], bytes);
            assert!(peak > 0 && peak < 32 << 10, "{peak} KiB");
        }
    });
}

#[test]
fn a_reader_that_went_away_ends_the_workload() {
    for_each_caller(|caller| {
        for options in [&[][..], &["--no-init"], &["--output-limit", "100M"]] {
            let run = Run::new(caller).opts(options.iter().copied());
            // `head` ends after a line; without that `yes` would run for ever.
            let outcome =
                run.via(["/bin/bash", "-c", "\"$@\" | head -n 1; exit ${PIPESTATUS[0]}", "bash"]).sh("exec yes").go();
            assert_eq!(outcome.text(), "y\n", "{options:?}");
            assert_took(&outcome, 0.0, 10.0);
            // The same as without a sandbox; but pid 1 is not killed by a signal of its own, and gets EPIPE instead.
            let code = if options == ["--no-init"] { 1 } else { 128 + 13 };
            assert_eq!(outcome.code(), code, "{options:?}: {outcome}");
        }
    });
}

#[test]
fn a_slow_reader_does_not_stop_the_clock() {
    for_each_caller(|caller| {
        for options in [&[][..], &["--output-limit", "100M"]] {
            let (mut reader, writer) = std::io::pipe().unwrap();
            let run = Run::new(caller)
                .opts(options.iter().copied())
                .opts(["--timeout", "500ms", "--kill-after", "200ms"])
                .streams(Stdio::null(), writer, Stdio::null())
                .sh("yes");
            // The output is read only after the run.
            let outcome = run.go();
            assert_took(&outcome, 0.5, 4.0);
            outcome.expect(124).expect_status("timeout_wall");
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            assert!(!read.is_empty());
        }
    });
}

#[test]
fn a_supervisor_that_waits_uses_no_processor() {
    for_each_caller(|caller| {
        for options in [
            &[][..],
            &["--output-limit", "1M", "-i"],
            &["--timeout", "30s", "--idle-timeout", "30s", "--cpu-time", "30s"],
        ] {
            let run = Run::new(caller).opts(options.iter().copied()).sh("echo ready; sleep 1.5").spawn();
            run.wait_for("ready");
            let ticks = |pid: i32| -> u64 {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
                fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
            };
            let before = ticks(run.pid());
            sleep(Duration::from_secs(1));
            let used = ticks(run.pid()) - before;
            run.finish().expect(0);
            assert!(used <= 3, "{used} ticks of a hundred in a second of waiting: {options:?}");
        }
    });
}

/// Odd states of the process that becomes the supervisor, each of which some program causes by accident.
const ODD: &[(&str, &str)] = &[
    ("ignored SIGCHLD", "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"),
    (
        "everything ignored",
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass",
    ),
    ("everything blocked", "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))"),
    ("umask 0777", "import os; os.umask(0o777)"),
    // One for each mount of the view, of which /etc of a host with many packages has twenty.
    ("few descriptors", "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))"),
    ("no core", "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"),
    ("small files", "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))"),
    ("small stack", "import resource; resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))"),
    ("nice", "import os; os.nice(10)"),
    ("leaked descriptors", "import os\nfor n in range(100): os.dup2(0, 100 + n, inheritable=True)"),
    ("a deleted directory", "import os, tempfile\nd = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)"),
    ("a dead parent", "import os\nos.setsid()"),
    ("an alarm", "import signal; signal.alarm(600)"),
    ("dead-parent signal", "import ctypes; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)"),
];

#[test]
fn odd_surroundings_change_nothing() {
    for_each_caller(|caller| {
        for (name, prepare) in ODD {
            eprintln!("with {name}");
            let outcome = Run::new(caller)
                .after_python(prepare)
                .sh("echo out; echo err >&2; cd /tmp && echo x > f && cat f; (sleep 0 & wait); kill -0 $$; exit 3")
                .go();
            assert_eq!(outcome.text(), "out\nx\n", "{name}: {outcome}");
            assert_eq!(outcome.stderr, "err\n", "{name}");
            outcome.expect(3).expect_status("nonzero");
        }
    });
}

#[test]
fn children_that_came_with_the_process_are_left_alone() {
    for_each_caller(|caller| {
        let ended = "import os\nif os.fork() == 0: os._exit(0)";
        let running = "import os, time\nif os.fork() == 0:\n    os.closerange(0, 3); time.sleep(1); os._exit(0)";
        for prepare in [ended, running] {
            // The test process finally adopts it.
            let outcome = Run::new(caller).after_python(prepare).sh("sleep 0.1; exit 3").with_orphans().go();
            outcome.expect(3);
        }
    });
}

#[test]
fn a_deadline_holds_with_signals_ignored_and_blocked_on_time() {
    for_each_caller(|caller| {
        for (name, prepare) in &ODD[..3] {
            let outcome = Run::new(caller).after_python(prepare).opts(["--timeout", "300ms"]).sh("sleep 100").go();
            assert_took(&outcome, 0.3, 3.0);
            assert_eq!(outcome.code(), 124, "{name}: {outcome}");
        }
    });
}

#[test]
fn an_empty_environment_and_closed_streams_are_survived() {
    for_each_caller(|caller| {
        let run = || Run::new(caller).sh("echo out; ls /proc/self/fd | wc -l; exit 3");
        run().via(["/usr/bin/env", "-i"]).go().expect(3);
        for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
            let outcome = run()
                .via(["/bin/bash".to_owned(), "-c".to_owned(), format!("exec \"$@\" {closed}"), "bash".to_owned()])
                .go();
            assert_eq!(outcome.code(), 3, "{closed}: {outcome}");
            if !closed.contains(">&- ") && !closed.starts_with(">&-") {
                assert_eq!(outcome.text(), "out\n4\n", "{closed}");
            }
        }
    });
}

#[test]
fn standard_streams_may_be_anything_but_directories() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let file = dir.file("out", "");
        let opened = fs::OpenOptions::new().append(true).open(&file).unwrap();
        Run::new(caller).streams(Stdio::null(), opened, Stdio::null()).sh("echo file").go().expect(0);
        assert_eq!(fs::read_to_string(&file).unwrap(), "file\n");
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        Run::new(caller)
            .streams(Stdio::null(), std::os::fd::OwnedFd::from(theirs), Stdio::null())
            .sh("echo socket")
            .go()
            .expect(0);
        let mut read = String::new();
        { ours }.read_to_string(&mut read).unwrap();
        assert_eq!(read, "socket\n");
        // Lost output is reported, also if the supervisor relayed it and the workload did not notice.
        for options in [&["--output-limit", "1M"][..], &["--idle-timeout", "30s"]] {
            let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            let run = Run::new(caller).opts(options).streams(Stdio::null(), full, Stdio::piped());
            let outcome = run.sh("echo lost").go().expect(125);
            let said = &outcome.report()["error"];
            assert_eq!(
                (&said["object"], &said["errno"]),
                (&"standard output".into(), &libc::ENOSPC.into()),
                "{outcome}"
            );
        }
        // A directory would be an escape by openat(2).
        let outcome = Run::new(caller)
            .opts(["-i"])
            .after_sh("exec </")
            .python("import os\nprint(os.listdir(0) if os.path.isdir('/proc/self/fd/0') else 'none')")
            .go();
        assert!(outcome.code() == 125 || outcome.text() == "none\n", "{outcome}");
    });
}

#[test]
fn a_burst_of_runs_leaves_nothing() {
    for_each_caller(|caller| {
        let runs: Vec<_> = (0..20).map(|index| Run::new(caller).sh(&format!("exit {index}")).spawn()).collect();
        for (index, run) in runs.into_iter().enumerate() {
            run.finish().expect(index as i32);
        }
    });
}

#[test]
fn a_fork_storm_is_ended_on_time() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller)
            .opts(["--timeout", "1s", "--kill-after", "200ms", "--ulimit", "nproc=200"])
            .python("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass")
            .go();
        assert_took(&outcome, 1.0, 8.0);
        outcome.expect(124);
    });
}

/// Init cannot reap them all in time, and the workload ignores forwarded signals.
#[test]
fn a_flood_of_orphans_is_ended_on_time() {
    let flood = "import os, signal\n\
        for number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\n\
        for _ in range(15):\n\
        \x20   if os.fork() == 0: break\n\
        while True:\n\
        \x20   try:\n\
        \x20       if os.fork() == 0:\n\
        \x20           for _ in range(20): os.fork() or os._exit(0)\n\
        \x20           os._exit(0)\n\
        \x20       os.wait()\n\
        \x20   except OSError: pass";
    for_each_caller(|caller| {
        for init in [&[][..], &["--no-init"]] {
            let options = ["--timeout", "1s", "--kill-after", "300ms", "--ulimit", "nproc=300"];
            let run = Run::new(caller).opts(options).opts(init.iter().copied()).python(flood);
            let outcome = run.go().expect(124).expect_status("timeout_wall");
            assert_took(&outcome, 1.0, 5.0);
            assert!(outcome.report()["error"].is_null(), "{outcome}");
        }
    });
}

#[test]
fn without_privileges_nothing_needs_root() {
    if is_root() {
        // This suite also ran as an unprivileged user above; this part can be tested only by root.
        let outcome = Run::new(Caller::Unprivileged)
            .via(["setpriv", "--bounding-set=-all", "--no-new-privs", "--"])
            .sh("exit 3")
            .go();
        outcome.expect(3);
    }
}

/// A process chooses its name, which need not be text.
#[test]
fn cpu_time_is_counted_whatever_a_process_calls_itself() {
    for_each_caller(|caller| {
        let burn = "import ctypes, os, time\nctypes.CDLL(None).prctl(15, b'\\xff\\xfe')\n\
            for i in range(3):\n  if os.fork() == 0: break\nwhile True: pass";
        let options = ["--cpu-time", "700ms", "--timeout", "30s"];
        Run::new(caller).opts(options).python(burn).go().expect(124).expect_status("timeout_cpu");
    });
}

/// The kernel compares RLIMIT_CPU with ticks, which on a busy host run ahead of the time that was used.
#[test]
fn the_kernels_limit_on_cpu_time_is_above_the_deadline() {
    for_each_caller(|caller| {
        for (deadline, limits) in [("100ms", "2\n3\n"), ("1s", "3\n4\n"), ("100s", "126\n127\n")] {
            let outcome = Run::new(caller).opts(["--cpu-time", deadline]).sh("ulimit -St; ulimit -Ht").go().expect(0);
            assert_eq!(outcome.text(), limits, "{deadline}");
        }
        let own = Run::new(caller).opts(["--cpu-time", "9s", "--ulimit", "cpu=2:3"]).sh("ulimit -St").go().expect(0);
        assert_eq!(own.text(), "2\n");
    });
}

/// Twenty programs that use all the time they get. Some do not end at SIGXCPU or SIGTERM, some are several processes.
#[test]
fn cpu_time_ends_in_a_time_out_on_a_busy_host_too() {
    for_each_caller(|caller| {
        let runs: Vec<_> = (0..20)
            .map(|number| {
                let spin = "while :; do :; done";
                let script = match number % 3 {
                    0 => spin.to_owned(),
                    1 => format!("trap '' XCPU TERM; {spin}"),
                    _ => format!("for i in 1 2 3; do ({spin}) & done; wait"),
                };
                let options = ["--cpu-time", "300ms", "--timeout", "100s", "--kill-after", "100ms"];
                Run::new(caller).opts(options).sh(&script).spawn()
            })
            .collect();
        for run in runs {
            let outcome = run.finish().expect(124).expect_status("timeout_cpu");
            let used = outcome.report()["usage"]["cpu"]["total_us"].as_u64().unwrap();
            assert!(used >= 300_000, "ended early, after {used} µs: {outcome}");
        }
    });
}

#[test]
fn a_workload_cannot_claim_to_have_used_up_its_time() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller).opts(["--cpu-time", "1h"]).sh("kill -XCPU $$").go();
        outcome.expect(128 + libc::SIGXCPU).expect_status("signaled");
    });
}

#[test]
fn ignored_signals_stay_ignored() {
    for_each_caller(|caller| {
        for signal in ["HUP", "INT", "QUIT"] {
            let run = Run::new(caller).after_sh(&format!("trap '' {signal}")).sh("echo on; sleep 1; echo over").spawn();
            run.wait_for("on");
            run.signal(format!("SIG{signal}").parse().unwrap());
            assert_eq!(run.finish().expect(0).text(), "on\nover\n", "{signal}");
        }
    });
}

/// The mode of an open file, shared by all processes that have it open.
fn mode(fd: impl std::os::fd::AsFd) -> nix::fcntl::OFlag {
    let flags = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL).unwrap();
    nix::fcntl::OFlag::from_bits_retain(flags)
}

const UNBLOCK: &str = "import fcntl, os, sys, time\n\
    for fd in (0, 1, 2): fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)\n\
    print(all(not os.get_blocking(fd) for fd in (0, 1, 2)), flush=True)\n";

#[test]
fn the_mode_of_the_callers_streams_is_as_before() {
    for_each_caller(|caller| {
        // The mode of a pipe never changes, even if our process is killed.
        for (killed, owner) in [(false, caller), (true, caller), (false, Caller::Root)] {
            let [(input, feed), (reader, output), (_errors, error)] = [(); 3].map(|()| std::io::pipe().unwrap());
            if is_root() {
                let (uid, gid) = owner.ids();
                for pipe in [input.as_fd(), output.as_fd(), error.as_fd()] {
                    nix::unistd::fchown(pipe, Some(uid.into()), Some(gid.into())).unwrap();
                }
            }
            let kept = (input.try_clone().unwrap(), output.try_clone().unwrap(), error.try_clone().unwrap());
            let modes = || [mode(&kept.0), mode(&kept.1), mode(&kept.2)];
            let before = modes();
            let program = format!("{UNBLOCK}time.sleep(1)");
            let run = Run::new(caller).opts(["-i"]).streams(input, output, error).python(&program);
            let mut run = run.spawn();
            let mut said = [0; 5];
            (&reader).read_exact(&mut said).unwrap();
            assert_eq!(&said, b"True\n");
            assert_eq!(modes()[1..], before[1..], "while it runs");
            assert!(modes()[0] == before[0] || owner != caller, "input read ahead would be lost: it is not relayed");
            if killed {
                run.kill_supervisor();
            }
            run.finish();
            assert_eq!(modes(), before);
            drop(feed);
        }
        // A socket cannot be reopened: its mode is restored after the run.
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let stream = || std::os::fd::OwnedFd::from(theirs.try_clone().unwrap());
        let before = mode(&theirs);
        Run::new(caller).opts(["-i"]).streams(stream(), stream(), stream()).python(UNBLOCK).go().expect(0);
        assert_eq!(mode(&theirs), before);
        drop(ours);
    });
}

#[test]
fn later_data_in_a_shared_pipe_arrives_complete() {
    for_each_caller(|caller| {
        let (mut reader, output) = std::io::pipe().unwrap();
        let script = "\"$@\"; exec head -c 1000000 /dev/zero";
        let run = Run::new(caller).via(["/bin/sh", "-c", script, "sh"]).opts(["-i"]).python(UNBLOCK);
        let (input, _feed) = std::io::pipe().unwrap();
        let run = run.streams(input, output, Stdio::null()).spawn();
        sleep(Duration::from_millis(700));
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        run.finish().expect(0);
        assert_eq!(all.len(), "True\n".len() + 1_000_000);
    });
}

/// Tries to overwrite the earlier content of the file on its standard output and error.
const REWRITE: &str = "import fcntl, os\n\
    def attempt(act):\n\
    \x20   try: act()\n\
    \x20   except OSError: pass\n\
    for fd in (1, 2):\n\
    \x20   attempt(lambda: fcntl.fcntl(fd, fcntl.F_SETFL, 0))\n\
    \x20   attempt(lambda: os.pwrite(fd, b'FORGED', 0))\n\
    \x20   attempt(lambda: os.pwrite(os.open(f'/proc/self/fd/{fd}', os.O_RDWR), b'FORGED', 0))\n\
    \x20   attempt(lambda: os.lseek(fd, 0, 0))\n\
    for number in range(200): os.write(1 + number % 2, b'line %d\\n' % number)\n";

#[test]
fn a_file_that_is_appended_to_keeps_what_it_held() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let file = dir.file("log", "precious\n");
        let append = || fs::OpenOptions::new().append(true).open(&file).unwrap();
        let plain = std::process::Command::new(common::PYTHON)
            .args(["-I", "-S", "-c", REWRITE])
            .stdout(append())
            .stderr(append())
            .status();
        assert!(plain.unwrap().success());
        assert!(!fs::read_to_string(&file).unwrap().starts_with("precious"), "the attack works outside");
        fs::write(&file, "precious\n").unwrap();
        Run::new(caller).streams(Stdio::null(), append(), append()).python(REWRITE).go().expect(0);
        let held = fs::read_to_string(&file).unwrap();
        let lines: Vec<String> = (0..200).map(|number| format!("line {number}\n")).collect();
        assert_eq!(held.replace("FORGED", ""), format!("precious\n{}", lines.concat()), "both streams, in order");
        assert!(held.starts_with("precious"));
    });
}
