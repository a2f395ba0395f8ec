//! The report is correct, agrees with independent measurements, and exists whenever it was requested.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::common;
use crate::common::clock::eventually;
use crate::common::run::Live;
use crate::common::{
    Caller, Outcome, Run, TempDir, for_each_caller, has_program, is_root, leaks, outside, schema, text,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn report_schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/report.schema.json");
    serde_json::from_slice(&fs::read(path).expect("the schema is checked in")).unwrap()
}

#[track_caller]
fn assert_valid(outcome: &Outcome) {
    let violations = schema::violations(&report_schema(), outcome.report());
    assert!(violations.is_empty(), "{violations:#?}\n{}", outcome.report());
}

#[test]
fn every_kind_of_end_gives_a_valid_report() {
    let ends: [(&[&str], &[&str], &str); 13] = [
        (&[], &["true"], "ok"),
        (&[], &["sh", "-c", "exit 3"], "nonzero"),
        (&[], &["sh", "-c", "kill -9 $$"], "signaled"),
        (&["--timeout", "200ms"], &["sleep", "100"], "timeout_wall"),
        (&["--cpu-time", "200ms"], &["sh", "-c", "while :; do :; done"], "timeout_cpu"),
        (&["--idle-timeout", "200ms"], &["sleep", "100"], "timeout_idle"),
        (&["--output-limit", "10,kill"], &["yes"], "output_limit"),
        (&["--output-limit", "10,tail"], &["seq", "100"], "ok"),
        (&[], &["no-such-command"], "setup_error"),
        (&[], &["/etc/passwd"], "setup_error"),
        (&["-v", "/no/such/dir:/x:ro"], &["true"], "setup_error"),
        (&["-w", "/nowhere"], &["true"], "setup_error"),
        (&["--no-init", "--network", "host", "--cap-add", "KILL"], &["true"], "ok"),
    ];
    for_each_caller(|caller| {
        for (options, command, status) in ends {
            let outcome = Run::new(caller).opts(options.iter().copied()).cmd(command.iter().copied()).go();
            assert_eq!(outcome.report()["status"], status, "{outcome}");
            assert_valid(&outcome);
            assert_eq!(outcome.report()["exit_code"], outcome.code());
            assert_eq!(outcome.report()["schema"], "stockade/report/v1");
            assert_eq!(outcome.report()["error"].is_null(), status != "setup_error");
        }
    });
}

#[test]
fn the_schema_check_finds_what_is_wrong() {
    let outcome = Run::new(common::callers()[0]).cmd(["true"]).go().expect(0);
    for (pointer, wrong) in [
        ("/status", Value::from("fine")),
        ("/exit_code", Value::from(256)),
        ("/exit_code", Value::from("0")),
        ("/usage/wall_us", Value::from(-1)),
        ("/enforced/namespaces", Value::from("user")),
        ("/runtime", Value::Null),
    ] {
        let mut report = outcome.report().clone();
        *report.pointer_mut(pointer).unwrap() = wrong.clone();
        assert!(!schema::violations(&report_schema(), &report).is_empty(), "{pointer} = {wrong}");
    }
    let mut report = outcome.report().clone();
    report.as_object_mut().unwrap().remove("status");
    assert!(!schema::violations(&report_schema(), &report).is_empty());
}

#[test]
fn the_command_is_told_exactly() {
    for_each_caller(|caller| {
        let words: [&[u8]; 4] = [b"/bin/echo", b"two words", "\u{e4}\u{1f600}\n\t\"\\".as_bytes(), b"\xff\xfe raw"];
        use std::os::unix::ffi::OsStrExt as _;
        let outcome = Run::new(caller).cmd(words.map(std::ffi::OsStr::from_bytes)).go().expect(0);
        let command = &outcome.report()["command"];
        assert_eq!(command["argv"][2], "\u{e4}\u{1f600}\n\t\"\\");
        assert_eq!(command["argv"][3]["hex"], "fffe20726177");
        let digest = Sha256::digest([words.join(&0), vec![0]].concat());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(command["argv_sha256"], hex.as_str());
        assert_eq!(command["cwd"], "/home/sandbox");
        assert_valid(&outcome);
    });
}

#[test]
fn times_agree_with_the_clock_outside() {
    for_each_caller(|caller| {
        let before = humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string();
        let outcome = Run::new(caller).sh("sleep 0.7").go().expect(0);
        let after = humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string();
        let report = outcome.report();
        let (started, finished) = (report["started_at"].as_str().unwrap(), report["finished_at"].as_str().unwrap());
        let time = |text: &str| humantime::parse_rfc3339(text).unwrap();
        let slack = Duration::from_secs(1); // for the granularity of the clocks
        assert!(
            time(started) + slack >= time(&before) && time(finished) <= time(&after) + slack,
            "{before} {started} {finished} {after}"
        );
        let wall = report["usage"]["wall_us"].as_u64().unwrap();
        let seen = outcome.wall.as_micros() as u64;
        // The supervisor may have noticed the start late.
        let least = 600_000_u64.saturating_sub(outcome.allowance.as_micros() as u64);
        assert!((least..=seen).contains(&wall), "{wall} us in {seen} us");
        let timings = report["timings_us"].as_object().unwrap();
        let sum: u64 = timings.values().map(|value| value.as_u64().unwrap_or_else(|| panic!("{timings:?}"))).sum();
        assert!((700_000..=seen).contains(&sum), "the phases {timings:?} make up {sum} us of {seen} us");
        assert!(timings["run"].as_u64().unwrap() >= least);
    });
}

#[test]
fn processor_time_is_counted_for_the_whole_tree() {
    for_each_caller(|caller| {
        let burn = "import os, time\n\
             def burn():\n    while time.process_time() < 0.4: pass\n\
             pids = [os.fork() for _ in range(1)]\n\
             if 0 in pids:\n    burn(); os._exit(0)\n\
             burn(); os.wait()";
        let outcome = Run::new(caller).python(burn).go().expect(0);
        let cpu = &outcome.report()["usage"]["cpu"];
        let total = cpu["total_us"].as_u64().unwrap();
        assert!((700_000..2_000_000).contains(&total), "{cpu}");
        let parts = cpu["user_us"].as_u64().unwrap() + cpu["system_us"].as_u64().unwrap();
        assert!(parts.abs_diff(total) < 50_000, "{cpu}");
        assert!(cpu["source"].is_string());
        let faults = outcome.report()["usage"]["rusage"]["minor_faults"].as_u64().unwrap();
        assert!(faults > 100, "{faults}");
    });
}

/// The kernel forgets the time of processes that die with their pid namespace.
#[test]
fn processor_time_of_processes_that_the_workload_leaves_is_counted() {
    let leave = "import os, time\nr, w = os.pipe()\nif os.fork() == 0:\n  while time.process_time() < 0.3: pass\n  \
                 os.write(w, b'x'); time.sleep(100)\nos.read(r, 1)";
    for_each_caller(|caller| {
        let outcome = Run::new(caller).python(leave).go().expect(0);
        let total = outcome.report()["usage"]["cpu"]["total_us"].as_u64().unwrap();
        assert!(total >= 300_000, "{outcome}");
    });
}

/// On a busy host, init continues long after the workload has begun.
#[test]
fn one_thread_has_no_more_processor_time_than_wall_time() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    // Of processor time: what init takes to end. A User-Mode kernel counts in ticks of 10 ms.
    let more = if common::host::is_uml() { 10_500 } else { 500 };
    let spinners: Vec<_> = (0..4 * cpus)
        .map(|_| Run::new(Caller::Unprivileged).opts(["--timeout", "100s"]).sh("while :; do :; done").spawn())
        .collect();
    for_each_caller(|caller| {
        for _ in 0..10 {
            let outcome = Run::new(caller).cmd(["true"]).go().expect(0);
            let of = |pointer| outcome.report().pointer(pointer).and_then(Value::as_u64).unwrap();
            let (wall, cpu) = (of("/usage/wall_us"), of("/usage/cpu/total_us"));
            assert!(cpu <= wall + more, "{cpu} us of processor time in {wall} us: {outcome}");
        }
    });
    for spinner in spinners {
        spinner.signal(Signal::SIGTERM);
        spinner.finish();
    }
}

#[test]
fn the_confinement_in_the_report_is_read_back() {
    for_each_caller(|caller| {
        let script = "for n in user mnt pid net ipc uts cgroup time; do echo $n=$(readlink /proc/self/ns/$n); done; \
                      grep -E '^(CapEff|NoNewPrivs|Uid)' /proc/self/status | tr ':' '=' | tr -d '\\t'";
        for options in
            [&[][..], &["--network", "host"], &["--time-namespace"], &["--cap-add", "CAP_NET_RAW", "--cap-add", "kill"]]
        {
            let run = Run::new(caller).opts(["--memory", "unlimited", "--pids-limit", "-1"]);
            let outcome = run.opts(options.iter().copied()).sh(script).go().expect(0);
            let enforced = &outcome.report()["enforced"];
            let said: BTreeSet<_> = enforced["namespaces"]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| name.as_str().unwrap().to_owned())
                .collect();
            let seen: BTreeSet<_> = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"]
                .into_iter()
                .filter(|name| {
                    outcome.value(name) != fs::read_link(format!("/proc/self/ns/{name}")).unwrap().to_string_lossy()
                })
                .map(str::to_owned)
                .collect();
            assert_eq!(said, seen, "{options:?}");
            assert_eq!(enforced["no_new_privs"], outcome.value("NoNewPrivs") == "1");
            let mask = u64::from_str_radix(&outcome.value("CapEff"), 16).unwrap();
            assert_eq!(enforced["caps"].as_array().unwrap().len() as u32, mask.count_ones(), "{enforced}");
            if mask != 0 {
                assert_eq!(enforced["caps"], serde_json::json!(["CAP_KILL", "CAP_NET_RAW"]));
            }
            assert!(enforced["cgroup"].is_null(), "no budget, no cgroup");
            assert_eq!(enforced["degraded"], serde_json::json!([]));
        }
    });
}

#[test]
fn the_host_user_is_the_one_that_owns_the_process() {
    for_each_caller(|caller| {
        let run = Run::new(caller).sh("echo ready; sleep 1.5").spawn();
        run.wait_for("ready");
        let workload = run
            .processes()
            .into_iter()
            .find(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "sh"));
        let status = fs::read_to_string(format!("/proc/{}/status", workload.unwrap())).unwrap();
        let uid: u64 = status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:"))
            .unwrap()
            .split_ascii_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let outcome = run.finish().expect(0);
        assert_eq!(outcome.report()["enforced"]["host_uid"], uid);
        if caller == Caller::Root {
            assert_ne!(uid, 0);
        }
    });
}

#[test]
fn unmeasured_values_are_null() {
    for_each_caller(|caller| {
        let unlimited = ["--memory", "unlimited", "--pids-limit", "-1"];
        let outcome = Run::new(caller).opts(unlimited).cmd(["true"]).go().expect(0);
        let report = outcome.report();
        for pointer in [
            "/signal",
            "/error",
            "/output",
            "/denials",
            "/command/exe_sha256",
            "/usage/memory/limit_bytes",
            "/usage/pids/limit",
            "/enforced/cgroup",
        ] {
            assert_eq!(report.pointer(pointer), Some(&Value::Null), "{pointer}");
        }
        let failed = Run::new(caller).opts(unlimited).cmd(["no-such-command"]).go().expect(127);
        let report = failed.report();
        for pointer in ["/signal", "/usage/cpu/throttled_us"] {
            assert_eq!(report.pointer(pointer), Some(&Value::Null), "{pointer}");
        }
        let counted = Run::new(caller).opts(["--output-limit", "1M"]).sh("printf abc; printf de >&2").go().expect(0);
        let stream = |name: &str| counted.report()["output"][name].clone();
        assert_eq!(stream("stdout")["bytes"], 3);
        assert_eq!(stream("stderr")["bytes"], 2);
        assert_eq!(stream("stdout")["sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    });
}

#[test]
fn a_report_is_written_when_the_command_line_is_wrong() {
    for_each_caller(|caller| {
        let outcome =
            Run::new(caller).opts(["--timeout", "never"]).cmd(["true"]).go().expect(125).expect_status("setup_error");
        assert!(outcome.report()["error"]["object"].as_str().unwrap().contains("timeout"), "{outcome}");
        assert!(outcome.report()["enforced"].is_null());
        assert_valid(&outcome);
    });
}

#[test]
fn a_report_to_a_descriptor_is_complete_and_out_of_the_workloads_reach() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller)
            .without_report()
            .after_sh("exec 9>../fd.json")
            .opts(["--report", "fd:9"])
            .sh("echo forged >&9; ls /proc/self/fd; echo x > /proc/self/fd/9; true")
            .go();
        let report: Value = serde_json::from_slice(&fs::read(outcome.home.join("fd.json")).unwrap()).unwrap();
        assert_eq!(report["status"], "ok");
        assert!(!outcome.lines().contains(&"9".to_owned()), "{outcome}");
        let stdout = Run::new(caller).without_report().opts(["--report", "fd:1"]).sh("echo ran").go().expect(125);
        assert_eq!(stdout.text(), "", "standard output is the workload's");
        let closed = Run::new(caller).without_report().opts(["--report", "fd:77"]).cmd(["true"]).go();
        assert_ne!(closed.code(), 0, "a report that cannot be written fails the run");
    });
}

/// A supervisor that blocks while it writes its report into a full pipe.
fn stuck_in_its_report(caller: Caller, blocking: &str) -> Live {
    let full = "import os\nos.mkfifo('../fifo')\nos.dup2(os.open('../fifo', os.O_RDWR), 9)\nos.set_blocking(9, False)\n\
        try:\n while True: os.write(9, b'\\0' * 4096)\nexcept BlockingIOError: pass\n";
    let run = Run::new(caller)
        .without_report()
        .after_python(&format!("{full}os.set_blocking(9, {blocking})"))
        .opts(["--report", "fd:9"])
        .sh("echo on")
        .spawn();
    run.wait_for("on");
    let sleeps = || leaks::stat(run.pid()).is_some_and(|(state, _)| state == 'S');
    let waits = eventually(|| leaks::descendants(run.pid()) == [run.pid()] && sleeps());
    assert!(waits, "it waits for the reader of its report");
    run
}

#[test]
fn a_report_without_a_reader_does_not_block() {
    for_each_caller(|caller| {
        for blocking in ["True", "False"] {
            let run = stuck_in_its_report(caller, blocking);
            run.signal(Signal::SIGTERM);
            let outcome = run.finish();
            assert_eq!(outcome.status.signal(), Some(Signal::SIGTERM as i32), "{outcome}");
        }
    });
}

#[test]
fn a_report_that_is_read_late_is_complete() {
    for_each_caller(|caller| {
        for blocking in ["True", "False"] {
            let run = stuck_in_its_report(caller, blocking);
            let fifo = run.home().join("fifo");
            sleep(Duration::from_millis(2500)); // it is interrupted twice in that time
            let reader = std::thread::spawn(move || fs::read(fifo).unwrap());
            run.finish().expect(0);
            let read = reader.join().unwrap();
            let start = read.iter().position(|byte| *byte != 0).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&read[start..]).unwrap()["status"], "ok");
        }
    });
}

#[test]
fn a_report_replaces_the_old_one_in_one_step() {
    if !has_program("strace") {
        return;
    }
    let caller = common::callers()[0];
    let outcome = Run::new(caller)
        .via([
            "strace",
            "-e",
            "trace=open,openat,openat2,creat,write,rename,renameat,renameat2,link,linkat",
            "-o",
            "../trace",
        ])
        .cmd(["true"])
        .go()
        .expect(0);
    let trace = fs::read_to_string(outcome.home.join("trace")).unwrap();
    let opened: Vec<_> =
        trace.lines().filter(|line| line.contains("report.json\"") && line.starts_with("open")).collect();
    assert!(
        opened.iter().all(|line| !line.contains("O_TRUNC") && !line.contains("O_CREAT")),
        "never half a report: {opened:?}"
    );
    assert!(
        trace
            .lines()
            .any(|line| (line.starts_with("rename") || line.starts_with("link")) && line.contains("report.json")),
        "{trace}"
    );
    let left: Vec<_> = fs::read_dir(outcome.home.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.iter().filter(|name| name.to_string_lossy().contains("report")).count(), 1, "{left:?}");
}

#[test]
fn a_report_that_cannot_be_written_fails_the_run() {
    for_each_caller(|caller| {
        for file in ["/no/such/dir/report.json", "/proc/report.json", ".", "-"] {
            let outcome = Run::new(caller).without_report().opts(["--report", file]).cmd(["true"]).go();
            assert_eq!(outcome.code(), 125, "{file}: {outcome}");
            assert!(outcome.stderr.contains("report"), "{outcome}");
        }
        // A planted link must not redirect the report, which root may write anywhere.
        let dir = TempDir::new(caller);
        let target = dir.file("target", "untouched");
        symlink(&target, dir.join("link")).unwrap();
        let link = dir.join("link");
        let outcome = Run::new(caller).without_report().opts(["--report", text(&link)]).sh("echo ran").go().expect(125);
        assert!(outcome.stderr.contains("symlink") && outcome.text().is_empty(), "{outcome}");
        assert!(fs::symlink_metadata(link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(target).unwrap(), "untouched");
    });
}

#[test]
fn a_report_that_the_workload_could_forge_is_refused() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let (work, deep) = (dir.dir("work"), dir.dir("work/deep"));
        dir.dir("work/deep/er");
        symlink("work/deep", dir.join("link")).unwrap();
        symlink("..", dir.join("work/out")).unwrap();
        dir.file("work/old.json", "old");
        for (bound, report) in [
            (&work, "work/r.json"),
            (&work, "work/old.json"),
            (&work, "work/deep/er/r.json"),
            (&work, "link/r.json"),
            (&work, "work/out/r.json"), // the workload could replace the link for the next run
            (&deep, "link/r.json"),
            (&dir.join("link"), "work/deep/r.json"),
            (&dir.join("work/old.json"), "work/old.json"),
        ] {
            let volume = format!("{}:/bound", text(bound));
            let run = Run::new(caller).without_report().cwd(dir.path()).opts(["-v", &volume, "--report", report]);
            let outcome = run.sh("echo ran").go().expect(125);
            assert!(
                outcome.text().is_empty() && outcome.stderr.contains("is writable in the sandbox"),
                "{report}: {outcome}"
            );
            assert!(outcome.stderr.contains("writing the report") && outcome.stderr.contains("hint: "), "{outcome}");
        }
        // A report by descriptor has a path too.
        for (open, bound) in [("9>work/r.json", &work), ("9<>work/fifo", &work), ("9>>beside", &work)] {
            let script = format!(
                "cd {}; [ -p work/fifo ] || mkfifo work/fifo; >>beside; ln -f beside work/hard; exec {open}",
                dir.path().display()
            );
            let run =
                Run::new(caller).without_report().after_sh(&script).opts(["--rw", text(bound), "--report", "fd:9"]);
            let outcome = run.sh("echo ran").go().expect(125);
            assert!(
                outcome.text().is_empty() && outcome.stderr.contains("is writable in the sandbox"),
                "{open}: {outcome}"
            );
        }
        // Allowed: beside the bound directory, in a read-only bind, and below the sandbox's own scratch space.
        for (option, bound) in [("--rw", &deep), ("--ro", &dir.path().to_owned())] {
            let run = Run::new(caller).without_report().cwd(&work).opts([option, text(bound), "--report", "r.json"]);
            run.sh("exit 3").go().expect(3);
            let report: Value = serde_json::from_slice(&fs::read(work.join("r.json")).unwrap()).unwrap();
            assert_eq!(report["exit_code"], 3);
        }
    });
}

#[test]
fn a_bind_mount_elsewhere_does_not_hide_where_a_report_lies() {
    if !is_root() {
        return common::skip("not root");
    }
    let dir = TempDir::new(Caller::Root);
    let (work, deep, other) = (dir.dir("work"), dir.dir("work/deep"), dir.dir("other"));
    let go = |bound: &Path, report: &Path| {
        let run = Run::new(Caller::Root).without_report().showing(&deep, &other);
        run.opts(["--rw", text(bound), "--report", text(report)]).sh("echo ran").go()
    };
    // Below the bound directory, by another path; the same directory; and above it.
    for (bound, report) in [(&work, other.join("r")), (&deep, other.join("r")), (&other, deep.join("r"))] {
        let outcome = go(bound, &report).expect(125);
        assert!(outcome.text().is_empty() && outcome.stderr.contains("is writable in the sandbox"), "{outcome}");
    }
    let outcome = go(&other, &work.join("r")).expect(0);
    assert_eq!(outcome.text(), "ran\n", "{outcome}");
}

#[test]
fn a_report_is_the_last_in_the_file_that_the_workload_prints_to() {
    for_each_caller(|caller| {
        let forge = "import os\nfor at in (0, 1 << 16):\n try: os.lseek(2, at, 0)\n except OSError: pass\n os.write(2, b'{\"status\": \"forged\"}')\n\
            try: os.lseek(2, 0, 0)\nexcept OSError: pass\nos._exit(3)";
        let dir = TempDir::new(caller);
        for file in ["2>said", "2>>said"] {
            let script = format!("cd {}; exec {file}", dir.path().display());
            let run = Run::new(caller).without_report().after_sh(&script).opts(["--report", "fd:2"]);
            run.python(forge).go().expect(3);
            let said = fs::read(dir.join("said")).unwrap();
            assert!(said.len() < 1 << 16, "nothing was written past the report");
            let head = b"{\n  \"schema\"";
            let start = said.windows(head.len()).rposition(|window| window == head).unwrap();
            let report: Value = serde_json::from_slice(&said[start..]).unwrap();
            assert_eq!(report["exit_code"], 3);
        }
    });
}

#[test]
fn a_link_that_another_user_could_make_does_not_redirect_the_report() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let (open, target) = (dir.dir("open"), dir.dir("target"));
        symlink(&target, open.join("link")).unwrap();
        let go = || {
            let report = open.join("link/r.json");
            Run::new(caller).without_report().opts(["--report", text(&report)]).sh("echo ran").go()
        };
        go().expect(0);
        common::set_mode(&open, 0o777);
        let outcome = go().expect(125);
        assert!(outcome.text().is_empty() && outcome.stderr.contains("another user could have made"), "{outcome}");
    });
}

#[test]
fn a_report_that_is_lost_fails_the_run_whatever_the_workload_returned() {
    for_each_caller(|caller| {
        for end in ["exit 0", "exit 3", "kill -9 $$"] {
            let dir = TempDir::new(caller);
            let place = dir.dir("place");
            let report = place.join("r.json");
            let script = format!("echo on; read line; {end}");
            let (reader, writer) = std::io::pipe().unwrap();
            let run = Run::new(caller).without_report().opts(["-i", "--report", text(&report)]).sh(&script);
            let (mut out, output) = std::io::pipe().unwrap();
            let (mut err, error) = std::io::pipe().unwrap();
            let run = run.streams(reader, output, error).spawn();
            let mut on = [0; 3];
            out.read_exact(&mut on).unwrap();
            match caller {
                Caller::Root => fs::remove_dir(&place).unwrap(),
                _ => common::set_mode(&place, 0o555),
            }
            drop(writer);
            let outcome = run.finish().expect(125);
            let mut said = String::new();
            err.read_to_string(&mut said).unwrap();
            assert!(said.contains("writing the report"), "{end}: {said}: {outcome}");
            assert!(!report.exists());
        }
    });
}

#[test]
fn a_report_names_its_run_and_runtime() {
    for_each_caller(|caller| {
        let run = Run::new(caller).cmd(["true"]).spawn();
        let marker = run.marker().to_owned();
        let outcome = run.finish().expect(0);
        let report = outcome.report();
        assert_eq!(report["id"], marker.as_str());
        assert_eq!(report["runtime"]["name"], "stockade");
        assert_eq!(report["runtime"]["version"], env!("CARGO_PKG_VERSION"));
        let (_, kernel) = outside(caller, ["uname", "-r"]);
        assert_eq!(report["runtime"]["kernel"], kernel.trim());
        assert_eq!(report["policy_sha256"].as_str().unwrap().len(), 64);
        let other = Run::new(caller).opts(["--umask", "077"]).cmd(["true"]).go();
        assert_ne!(other.report()["policy_sha256"], report["policy_sha256"]);
    });
}

#[test]
fn a_workload_cannot_forge_terminal_output_through_errors() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller).cmd(["no\x1b]0;title\x07such"]).go().expect(127);
        assert!(!outcome.stderr.contains('\x1b') && !outcome.stderr.contains('\x07'), "{:?}", outcome.stderr);
    });
}

#[test]
fn the_report_file_is_the_callers_alone_to_read_or_as_the_umask_says() {
    if !is_root() {
        return common::skip("not root");
    }
    use std::os::unix::fs::MetadataExt as _;
    for_each_caller(|caller| {
        let outcome = Run::new(caller).cmd(["true"]).go().expect(0);
        let meta = fs::metadata(outcome.home.join("report.json")).unwrap();
        assert_eq!((meta.uid(), meta.gid()), caller.ids());
        assert_eq!(meta.mode() & 0o022, 0, "other users can write it");
    });
}

/// Waits until the workload runs, calls `act` outside, and lets the workload end.
fn meanwhile(caller: Caller, report: &Path, act: impl FnOnce()) -> Outcome {
    let run = Run::new(caller).without_report().opts(["--report", text(report)]).sh("echo on; sleep 1; exit 3").spawn();
    run.wait_for("on");
    act();
    run.finish()
}

/// A report is trusted by its name, so that name must lead to it.
#[test]
fn a_report_that_was_moved_away_is_an_error() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let place = dir.dir("d");
        let forge = || {
            fs::rename(&place, dir.join(".d")).unwrap();
            dir.dir("d");
            dir.file("d/r.json", "{\"status\":\"ok\"}");
        };
        let outcome = meanwhile(caller, &place.join("r.json"), forge).expect(125);
        assert!(outcome.stderr.contains("its directory was moved during the run"), "{outcome}");
    });
}

/// A planted link is neither followed nor taken for the report.
#[test]
fn a_report_whose_place_was_taken_is_an_error() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let target = dir.file("target", "untouched");
        let report = dir.join("r.json");
        let outcome = meanwhile(caller, &report, || symlink("target", &report).unwrap()).expect(125);
        assert!(outcome.stderr.contains("was replaced during the run"), "{outcome}");
        assert_eq!(fs::read_to_string(target).unwrap(), "untouched");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "a temporary file was left");
    });
}
