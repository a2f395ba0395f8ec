//! Every run and every refused run is one line of the log, also with concurrent writers. Changed, removed and torn lines are
//! detected, and a run that cannot be recorded does not start.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common;
use crate::common::clock::PATIENCE;
use crate::common::{Caller, Run, TempDir, for_each_caller, has_program, is_root, output, schema, text};
use nix::sys::signal::Signal;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

const BINARY: &str = env!("CARGO_BIN_EXE_stockade");

fn lines(log: &Path) -> Vec<Value> {
    let read = fs::read_to_string(log).unwrap();
    assert!(read.is_empty() || read.ends_with('\n'));
    read.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn verify(log: &Path, options: &[&str]) -> Output {
    output(Command::new(BINARY).args(["audit", "verify"]).args(options).arg(log))
}

/// Fails unless the log is intact. Returns the output.
#[track_caller]
fn intact(log: &Path) -> String {
    let output = verify(log, &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.starts_with("intact: "), "{said}");
    said
}

/// Fails unless the log is broken at this line for this reason.
#[track_caller]
fn broken(log: &Path, line: usize, why: &str) {
    let output = verify(log, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty());
    assert!(said.contains(&format!(": line {line}: ")) && said.contains(why), "line {line}, {why}: {said}");
}

/// A run that appends to the log.
fn audited(caller: Caller, log: &Path) -> Run {
    Run::new(caller).opts(["--audit", text(log)])
}

/// A log of this many refused runs, which are the fastest.
fn log_of(dir: &TempDir, runs: usize) -> PathBuf {
    let log = dir.join("log");
    for number in 0..runs {
        let name = format!("run-{number}");
        let refused = output(Command::new(BINARY).args(["run", "--audit", text(&log), "--name", &name]));
        assert_eq!(refused.status.code(), Some(125));
    }
    log
}

#[test]
fn every_run_and_every_refused_run_is_a_line_that_agrees_with_its_report() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/audit.schema.json");
    let line_schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let ends: [(&[&str], &[&str], &str); 9] = [
        (&[], &["true"], "ok"),
        (&["--output-limit", "1M"], &["sh", "-c", "echo abc; exit 3"], "nonzero"),
        (&[], &["sh", "-c", "kill -9 $$"], "signaled"),
        (&["--timeout", "200ms"], &["sleep", "100"], "timeout_wall"),
        (&["--explain-denials"], &["unshare", "-U", "true"], "nonzero"),
        (&[], &["no-such-command"], "setup_error"),
        (&["-v", "/no/such/dir:/x:ro"], &["true"], "setup_error"),
        (&["--bogus"], &["true", "\u{1b}x"], "setup_error"),
        (&["-p", "no-such-policy"], &["true"], "setup_error"),
    ];
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let log = dir.join("log");
        for (number, (options, command, status)) in ends.into_iter().enumerate() {
            let outcome = audited(caller, &log).opts(options.iter().copied()).cmd(command.iter().copied()).go();
            let (report, lines) = (outcome.report(), lines(&log));
            assert_eq!(lines.len(), number + 1, "{outcome}");
            let line = &lines[number];
            let violations = schema::violations(&line_schema, line);
            assert!(violations.is_empty(), "{violations:?}\n{line}");
            assert_eq!(line["status"], status, "{outcome}");
            for name in ["id", "started_at", "finished_at", "status", "exit_code", "signal", "policy_sha256"] {
                assert_eq!(line[name], report[name], "{name}");
            }
            assert_eq!(line["uid"], caller.ids().0);
            assert_eq!(line["timed_out"], status == "timeout_wall");
            assert_eq!(line["usage"]["wall_us"], report["usage"]["wall_us"]);
            assert_eq!(line["usage"]["cpu_us"], report["usage"]["cpu"]["total_us"]);
            assert_eq!(line["usage"]["memory_peak_bytes"], report["usage"]["memory"]["peak_bytes"]);
            assert_eq!(line["output"]["stdout_bytes"], report["output"]["stdout"]["bytes"]);
            assert_eq!(line["error"]["step"], report["error"]["step"]);
            assert_eq!(line["denials"].is_null(), report["denials"].is_null());
            let words: Vec<u8> = command.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
            assert_eq!(line["argv_sha256"], sha256(&words).as_str());
        }
        assert_eq!(lines(&log)[1]["output"]["stdout_bytes"], 4);
        assert!(lines(&log)[4]["denials"].as_u64().unwrap() >= 1);
        let meta = fs::metadata(&log).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o600, caller.ids().0));
        let said = intact(&log);
        assert!(said.contains("intact: 9 runs"), "{said}");
        let raw = fs::read(&log).unwrap();
        let last = raw[..raw.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        assert!(said.contains(&format!("head: {}\n", sha256(&raw[last..]))), "the head is `tail -n 1 | sha256sum`");
    });
}

#[test]
fn the_executed_file_is_hashed_as_it_was_executed() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let log = dir.join("log");
        let work = dir.dir("work");
        let exe = |number: usize| lines(&log)[number]["exe_sha256"].clone();
        let outcome = audited(caller, &log).cmd(["true"]).go().expect(0);
        let of_true = sha256(&fs::read("/usr/bin/true").unwrap());
        assert_eq!(exe(0), of_true.as_str());
        assert_eq!(outcome.report()["command"]["exe_sha256"], of_true.as_str());
        audited(caller, &log).opts(["--no-init", "--network", "host"]).cmd(["/usr/bin/true"]).go().expect(0);
        audited(caller, &log).opts(["--time-namespace"]).cmd(["true"]).go().expect(0);
        assert_eq!((exe(1), exe(2)), (Value::from(of_true.as_str()), Value::from(of_true.as_str())));
        let script = "#!/bin/sh\nexit 0\n";
        common::set_mode(&dir.file("work/job", script), 0o755);
        audited(caller, &log).opts(["--workspace", text(&work)]).cmd(["./job"]).go().expect(0);
        assert_eq!(exe(3), sha256(script.as_bytes()).as_str(), "the script, not its interpreter");
        // A process that replaced its file has no hash, rather than a wrong one.
        common::set_mode(&dir.file("work/job", "#!/bin/sh\nsleep 0.1; echo innocent > job\n"), 0o755);
        audited(caller, &log).opts(["--workspace", text(&work)]).cmd(["./job"]).go().expect(0);
        assert_eq!(exe(4), Value::Null);
        assert_eq!(fs::read_to_string(work.join("job")).unwrap(), "innocent\n", "the attack works");
        audited(caller, &log).cmd(["no-such-command"]).go().expect(127);
        assert_eq!(exe(5), Value::Null);
        intact(&log);
    });
}

#[test]
fn sixteen_writers_at_once_keep_the_chain() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let log = dir.join("log");
        std::thread::scope(|scope| {
            for number in 0..16 {
                let log = &log;
                scope.spawn(move || {
                    let sync = if number % 4 == 0 { &["--audit-sync"][..] } else { &[] };
                    for _ in 0..4 {
                        audited(caller, log).opts(sync.iter().copied()).without_report().cmd(["true"]).go();
                        audited(caller, log).without_report().opts(["--bogus"]).go().expect(125);
                    }
                });
            }
        });
        assert!(intact(&log).contains("intact: 128 runs"));
        let ids: std::collections::BTreeSet<_> = lines(&log).iter().map(|line| line["id"].to_string()).collect();
        assert_eq!(ids.len(), 128);
    });
}

#[test]
fn a_run_that_cannot_be_recorded_does_not_start() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let work = dir.dir("work");
        let good = dir.file("good", "");
        common::set_mode(&good, 0o600);
        symlink(&good, dir.join("link")).unwrap();
        symlink(dir.join("nowhere"), dir.join("dangling")).unwrap();
        dir.dir("directory");
        nix::unistd::mkfifo(&dir.join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        common::set_mode(&dir.file("open-to-all", ""), 0o666);
        dir.file("something", "root:x:0:0\n");
        dir.file("other-json", "{\"schema\":\"other\"}\n");
        dir.file("long", vec![b'x'; 200_000]);
        let mut table = vec![
            ("link", "symlink"),
            ("dangling", "symlink"),
            ("directory", "directory"),
            ("directory/", "does not name a file"),
            ("fifo", "not a regular file"),
            ("/dev/null", "not a regular file"),
            ("open-to-all", "users other than its owner can write it"),
            ("something", "does not end like an audit log"),
            ("other-json", "does not end like an audit log"),
            ("long", "does not end like an audit log"),
            ("missing/log", "ENOENT"),
            ("good/log", "ENOTDIR"),
            ("", "does not name a file"),
        ];
        if caller == Caller::Root {
            dir.file("foreign", "");
            std::os::unix::fs::chown(dir.join("foreign"), Some(7), Some(7)).unwrap();
            table.push(("foreign", "it belongs to user 7"));
        } else {
            common::set_mode(&dir.file("read-only", ""), 0o400);
            table.push(("read-only", "EACCES"));
        }
        for (name, why) in table {
            let place = if name.is_empty() { PathBuf::new() } else { dir.path().join(name) };
            let place = if name.ends_with('/') { format!("{}/", place.display()) } else { place.display().to_string() };
            let place = place.replace("//", "/");
            let run = Run::new(caller).opts(["--audit", &place, "--rw", text(&work)]);
            let outcome = run.cmd(["touch", text(&work.join("ran"))]).go().expect(125);
            assert!(
                outcome.stderr.contains("writing the audit log") && outcome.stderr.contains(why),
                "{name}: {outcome}"
            );
            assert_eq!(outcome.report()["error"]["step"], "audit", "and the report says so");
            assert!(!work.join("ran").exists(), "{name}");
        }
        assert_eq!(fs::read_to_string(&good).unwrap(), "");
        assert_eq!(fs::read_to_string(dir.join("something")).unwrap(), "root:x:0:0\n");
        let ran = Run::new(caller).opts(["--audit", text(&good), "--rw", text(&work)]);
        ran.cmd(["touch", text(&work.join("ran"))]).go().expect(0);
        assert!(work.join("ran").exists(), "the refused commands run without the log");
        // Conversely, a run without a report is in the log.
        audited(caller, &good).without_report().opts(["--report", "/no/such/dir/r"]).cmd(["true"]).go().expect(125);
        assert_eq!(lines(&good)[1]["error"]["step"], "report");
    });
}

/// Runs a script around the run, with the log on a file system of 64 KiB, in a private mount namespace.
fn on_a_small_disk(script: &str) -> (i32, String) {
    let dir = TempDir::new(Caller::Root);
    let prelude = "set -u; mount -t tmpfs -o size=64k none disk; log=disk/log; fill() { dd if=/dev/zero of=disk/$1 bs=4k 2>/dev/null; };
        run() { \"$S\" run --audit $log \"$@\"; }; verify() { \"$S\" audit verify $log; };\n";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "bash", "-c", &format!("{prelude}{script}")]);
    dir.dir("disk");
    let output = output(command.current_dir(dir.path()).env("S", BINARY));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), said)
}

#[test]
fn a_full_disk_is_found_before_the_run() {
    if !is_root() {
        return common::skip("not root");
    }
    let (code, said) = on_a_small_disk("run true; fill rest; fill more; run echo ran; echo code=$?; verify");
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("ran\n") && said.contains("code=125\n") && said.contains("ENOSPC"), "{said}");
    assert!(said.contains("intact: 1 run,"), "{said}");
}

#[test]
fn the_room_of_a_line_is_set_aside_before_the_run() {
    if !is_root() {
        return common::skip("not root");
    }
    let (code, said) = on_a_small_disk("run sleep 0.7 & sleep 0.3; fill rest; wait $!; echo code=$?; verify");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("code=0\n") && said.contains("intact: 1 run,"), "{said}");
}

#[test]
fn a_disk_that_is_full_at_the_end_fails_the_run_and_leaves_no_half_line() {
    if !is_root() {
        return common::skip("not root");
    }
    // Truncating releases the reserved blocks.
    let script = "while [ $(($(stat -c %s $log || echo 0) % 4096)) -lt 3500 ]; do run true; done; stat -c size=%s $log
        run --report report sh -c 'sleep 0.7; exit 3' & sleep 0.3; truncate -s $(stat -c %s $log) $log; fill rest
        wait $!; echo code=$?; stat -c size=%s $log; verify; cat report; rm disk/rest; run true; verify";
    let (code, said) = on_a_small_disk(script);
    assert_eq!(code, 0, "{said}");
    // The page is nearly full, so that a part of the line is written before the disk is full.
    assert!(said.contains("code=125") && said.contains("ENOSPC"), "{said}");
    let sizes: Vec<&str> = said.lines().filter(|line| line.starts_with("size=")).collect();
    assert_eq!(sizes[0], sizes[1], "{said}");
    assert!(said.matches("intact: ").count() == 2 && !said.contains("torn"), "{said}");
    assert!(said.contains("\"step\": \"audit\"") && said.contains("\"exit_code\": 125"), "the report says so: {said}");
}

#[test]
fn a_log_on_a_read_only_file_system_is_refused() {
    if !is_root() {
        return common::skip("not root");
    }
    let (code, said) = on_a_small_disk("run true; mount -o remount,ro disk; run echo ran; echo code=$?; verify");
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("ran\n") && said.contains("code=125\n") && said.contains("EROFS"), "{said}");
}

#[test]
fn a_log_that_is_removed_during_the_run_fails_it() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let log = dir.join("log");
        let run = audited(caller, &log).sh("echo ready; sleep 0.5").spawn();
        run.wait_for("ready");
        fs::remove_file(&log).unwrap();
        let outcome = run.finish().expect(125);
        assert!(outcome.stderr.contains("removed during the run"), "{outcome}");
        assert_eq!(outcome.report()["error"]["step"], "audit");
        assert_eq!(outcome.report()["exit_code"], 125);
        assert!(!log.exists());
        // A renamed log, as after log rotation, still records the run.
        let run = audited(caller, &log).sh("echo ready; sleep 0.5").spawn();
        run.wait_for("ready");
        fs::rename(&log, dir.join("log.1")).unwrap();
        run.finish().expect(0);
        assert_eq!(lines(&dir.join("log.1")).len(), 1);
    });
}

#[test]
fn no_room_for_a_file_of_that_size_is_found_before_the_run() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let log = dir.join("log");
        let outcome = Run::new(caller)
            .without_report()
            .after_sh("ulimit -f 3")
            .opts(["--audit", text(&log)])
            .sh("echo ran")
            .go()
            .expect(125);
        assert!(outcome.stderr.contains("EFBIG") && outcome.text().is_empty(), "{outcome}");
    });
}

#[test]
fn a_lock_that_is_never_released_does_not_block_a_run_for_ever() {
    let caller = common::callers()[0];
    let dir = TempDir::new(caller);
    let log = log_of(&dir, 1);
    let file = fs::File::open(&log).unwrap();
    let lock = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockShared).unwrap();
    let outcome = audited(caller, &log).sh("echo ran").go().expect(125);
    assert!(outcome.stderr.contains("held its lock"), "{outcome}");
    assert_eq!(outcome.text(), "", "it is found before the run");
    assert!((9..PATIENCE.as_secs()).contains(&outcome.wall.as_secs()), "{outcome}");
    drop(lock);
    assert!(intact(&log).contains("1 run,"));
}

#[test]
fn changed_removed_and_inserted_lines_are_detected() {
    let dir = TempDir::new(Caller::Root);
    let log = log_of(&dir, 5);
    let whole = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let put = |lines: &[&str]| fs::write(&log, lines.concat()).unwrap();
    let head = |said: &str| said.split("head: ").nth(1).unwrap()[..64].to_owned();
    let heads: Vec<String> = (1..=5)
        .map(|count| {
            put(&lines[..count]);
            head(&intact(&log))
        })
        .collect();
    // Changed: the next line reveals it.
    for at in 0..4 {
        let changed = lines[at].replace("\"exit_code\":125", "\"exit_code\":0");
        assert_ne!(changed, lines[at]);
        let mut all = lines.clone();
        all[at] = &changed;
        put(&all);
        broken(&log, at + 2, "does not match line");
    }
    for (all, line, why) in [
        (vec![0, 1, 3, 4], 3, "does not match line"),
        (vec![0, 2, 1, 3, 4], 2, "does not match line"),
        (vec![0, 1, 1, 2, 3, 4], 3, "does not match line"),
        (vec![1, 2, 3, 4], 1, "beginning of the log was removed"),
        (vec![1, 0, 2], 1, "beginning of the log was removed"),
        (vec![0, 1, 0, 1], 3, "begins a new chain"),
    ] {
        put(&all.iter().map(|at| lines[*at]).collect::<Vec<_>>());
        broken(&log, line, why);
    }
    for (text, why) in
        [("x\n", "not a line"), ("{}\n", "not a line"), ("\n", "does not record it"), (&lines[2][..40], "is torn")]
    {
        put(&[lines[0], lines[1], text, lines[2]]);
        broken(&log, 3, why);
    }
    let long = "x".repeat(100_000);
    put(&[lines[0], &long]);
    broken(&log, 2, "is too long");
    // A cut end, or a changed last line, is detected with a saved head.
    put(&lines[..4]);
    intact(&log);
    for (head, code) in [(&heads[3], 0), (&heads[0], 0), (&heads[4], 1)] {
        assert_eq!(verify(&log, &["--head", head]).status.code(), Some(code));
    }
    let changed = lines[4].replace("\"exit_code\":125", "\"exit_code\":0");
    put(&[&lines[..4], &[changed.as_str()]].concat());
    intact(&log);
    assert_eq!(verify(&log, &["--head", &heads[4]]).status.code(), Some(1));
    // An unreadable log is neither intact nor broken.
    assert_eq!(verify(&dir.join("missing"), &[]).status.code(), Some(125));
    assert_eq!(verify(dir.path(), &[]).status.code(), Some(125));
    assert_eq!(verify(&log, &["--head", "abc"]).status.code(), Some(125));
    fs::write(&log, "").unwrap();
    assert!(intact(&log).contains("no runs"));
}

#[test]
fn a_torn_line_is_found_and_the_next_writer_accounts_for_it() {
    let caller = common::callers()[0];
    let dir = TempDir::new(caller);
    let log = log_of(&dir, 3);
    let whole = fs::read(&log).unwrap();
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let third = second + whole[second..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let zeros = [&whole[..third + 30], &[0; 500]].concat();
    let newline_only = [&whole[..third + 30], b"\n"].concat();
    let cuts = [1, 2, 31, 32, 200, whole.len() - third - 2].map(|length| whole[..third + length].to_vec());
    for torn in cuts.into_iter().chain([zeros, newline_only, whole[..40].to_vec()]) {
        fs::write(&log, &torn).unwrap();
        let at = torn.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
        broken(&log, at, "is torn");
        audited(caller, &log).without_report().cmd(["true"]).go().expect(0);
        let said = intact(&log);
        assert!(said.contains(&format!("torn: line {at},")), "{said}");
        let after = fs::read(&log).unwrap();
        assert!(after.starts_with(&torn), "the torn part stays");
        // A line that was accounted for cannot be changed any more.
        let mut changed = after.clone();
        changed[torn.len() - 1] ^= 1;
        fs::write(&log, &changed).unwrap();
        assert_eq!(verify(&log, &[]).status.code(), Some(1));
        fs::write(&log, [&after[..], b"{\"sch"].concat()).unwrap();
        audited(caller, &log).without_report().opts(["--bogus"]).go().expect(125);
        assert_eq!(intact(&log).matches("torn: ").count(), 2);
    }
    // A line that lacks only its newline becomes complete with it.
    fs::write(&log, &whole[..whole.len() - 1]).unwrap();
    broken(&log, 3, "is torn");
    audited(caller, &log).without_report().cmd(["true"]).go().expect(0);
    assert!(!intact(&log).contains("torn"));
}

#[test]
fn writers_that_are_killed_leave_a_log_that_goes_on() {
    let caller = common::callers()[0];
    let dir = TempDir::new(caller);
    let log = log_of(&dir, 1);
    for delay in 0..20 {
        let mut run = audited(caller, &log).without_report().with_orphans().cmd(["true"]).spawn();
        std::thread::sleep(std::time::Duration::from_millis(delay));
        if nix::sys::signal::kill(nix::unistd::Pid::from_raw(run.pid()), None).is_ok() {
            run.kill_supervisor();
        }
        run.finish();
    }
    audited(caller, &log).cmd(["true"]).go().expect(0);
    intact(&log);
    let run = audited(caller, &log).sh("echo ready; sleep 30").spawn();
    run.wait_for("ready");
    run.signal(Signal::SIGTERM);
    run.finish();
    assert_eq!(lines(&log).last().unwrap()["status"], "killed_by_user", "an interrupted run is recorded");
}

#[test]
fn a_policy_can_name_the_log_and_its_refusals_are_in_it() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let policy = dir.file("p.toml", "version = 1\naudit = \"log\"\naudit_sync = true\n");
        let log = dir.join("log");
        let run = || Run::new(caller).opts(["-p", text(&policy)]);
        run().cmd(["true"]).go().expect(0);
        run().opts(["--name", "a/b"]).without_report().cmd(["true"]).go().expect(125);
        run().opts(["--workspace", text(dir.path())]).cmd(["true"]).go().expect(125);
        assert_eq!(lines(&log).len(), 3, "relative to the policy, and with refused runs");
        // A flag overrides the policy.
        run().opts(["--audit", text(&dir.join("other"))]).cmd(["true"]).go().expect(0);
        assert_eq!((lines(&log).len(), lines(&dir.join("other")).len()), (3, 1));
        intact(&log);
        let alone = Run::new(caller).opts(["--audit-sync"]).cmd(["true"]).go().expect(125);
        assert!(alone.stderr.contains("--audit FILE"), "{alone}");
    });
}

#[test]
fn the_log_is_not_the_workloads_to_write() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let work = dir.dir("work");
        for log in ["work/log", "work/deeper/log"].map(|name| dir.join(name)) {
            fs::create_dir_all(log.parent().unwrap()).unwrap();
            std::os::unix::fs::chown(log.parent().unwrap(), Some(caller.ids().0), None).unwrap();
            let outcome = audited(caller, &log).opts(["--workspace", text(&work)]).cmd(["true"]).go().expect(125);
            assert!(outcome.stderr.contains("is writable in the sandbox"), "{outcome}");
        }
        // A process that can open the log can lock it, so that the run could not be recorded at its end.
        let log = dir.join("work/log");
        for option in ["--ro", "--rootfs"] {
            let run = audited(caller, &log).opts([option, text(&work)]);
            let outcome = run.sh("echo ran").go().expect(125);
            assert!(outcome.text().is_empty() && outcome.stderr.contains("is visible in the sandbox"), "{outcome}");
        }
        // The log's descriptor stays outside.
        let log = dir.join("log");
        let outcome = audited(caller, &log).sh("ls -l /proc/self/fd").go().expect(0);
        assert!(!outcome.text().contains("log"), "{outcome}");
    });
}

#[test]
fn a_bind_mount_elsewhere_does_not_hide_where_the_log_lies() {
    if !is_root() {
        return common::skip("not root");
    }
    let dir = TempDir::new(Caller::Root);
    let (work, deep, other) = (dir.dir("work"), dir.dir("work/deep"), dir.dir("other"));
    for (option, how) in [("--rw", "is writable in the sandbox"), ("--ro", "is visible in the sandbox")] {
        let run = audited(Caller::Root, &other.join("log")).showing(&deep, &other).opts([option, text(&work)]);
        let outcome = run.sh("echo ran").go().expect(125);
        assert!(outcome.text().is_empty() && outcome.stderr.contains(how), "{outcome}");
    }
}

#[test]
fn a_line_is_on_the_disk_when_that_was_asked_for() {
    if !has_program("strace") {
        return;
    }
    let caller = common::callers()[0];
    let dir = TempDir::new(caller);
    let log = dir.join("log");
    for (options, synced) in [(&["--audit-sync"][..], true), (&[], false)] {
        let trace = ["strace", "-y", "-e", "trace=fsync,fdatasync,execve,write", "-o", "../trace"];
        let outcome =
            audited(caller, &log).without_report().via(trace).opts(options.iter().copied()).cmd(["true"]).go();
        let trace = fs::read_to_string(outcome.expect(0).home.join("trace")).unwrap();
        let written = trace.find("stockade/audit/v1").expect("the line is written");
        assert_eq!(trace[written..].contains("fdatasync("), synced, "{trace}");
    }
}
