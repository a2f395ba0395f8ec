//! Faults of commands, disks and records: the next command still works, and `delete --force` leaves nothing.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::bundle::{Bundle, Called, Runtime, for_each_runtime, ours};
use crate::common::clock::{PATIENCE, eventually};
use crate::common::host::may_trace;
use crate::common::{leaks, skip, text};
use serde_json::{Value, json};

fn state(bundle: &Bundle, file: &str) -> PathBuf {
    bundle.dir.join("state").join(&bundle.id).join(file)
}

fn sleeper(runtime: Runtime) -> Option<Bundle> {
    let mut bundle = Bundle::new(runtime, "echo on; sleep 60")?;
    let marker = json!(format!("MARKER={}", bundle.id));
    bundle.config["process"]["env"].as_array_mut().unwrap().push(marker);
    Some(bundle)
}

#[test]
fn a_container_on_a_full_disk_can_be_deleted() {
    for_each_runtime(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = sleeper(runtime) else { return };
        let place = bundle.dir.dir("state");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs"]).arg(&place).status();
        assert!(mounted.unwrap().success());
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let mut filler = std::fs::File::create(place.join("filler")).unwrap();
        while std::io::Write::write_all(&mut filler, &[0; 4096]).is_ok() {}
        while std::io::Write::write_all(&mut filler, &[0; 1]).is_ok() {}
        let another = ["create", "--bundle", text(bundle.dir.path()), "another"];
        assert!(!bundle.call(another).0.status.success(), "no record can be written, so no container is created");
        let deleted = bundle.call(["delete", "--force", &bundle.id]);
        let left = place.join("another").exists();
        Command::new("umount").arg("-l").arg(&place).status().unwrap();
        deleted.expect(0);
        assert!(!left || runtime != Runtime::Ours, "a failed create leaves nothing");
        bundle.expect_nothing_left("after delete");
    });
}

#[test]
fn a_damaged_record_is_reported_and_force_removes_everything() {
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = sleeper(runtime) else { return };
        bundle.create().expect(0);
        let path = state(&bundle, "state.json");
        let whole = std::fs::read(&path).unwrap();
        let lengths = (0..whole.len()).step_by(if whole.len() > 2000 { 29 } else { 13 }).chain([whole.len() - 1]);
        for length in lengths {
            std::fs::write(&path, &whole[..length]).unwrap();
            for verb in ["state", "start", "kill", "pause", "delete"] {
                let called = bundle.about(verb).expect(1);
                assert!(called.err().contains("is damaged"), "{verb} at {length}: {}", called.err());
                assert!(!called.err().contains("panick"), "{}", called.err());
            }
        }
        assert!(!bundle.cgroups().is_empty() && !bundle.processes().is_empty());
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        bundle.expect_nothing_left("a truncated record");
    });
}

#[test]
fn records_of_others_are_not_believed() {
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = sleeper(runtime) else { return };
        bundle.create().expect(0);
        let path = state(&bundle, "state.json");
        let record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let with = |key: &str, value: Value| {
            let mut changed = record.clone();
            changed[key] = value;
            std::fs::write(&path, changed.to_string()).unwrap();
        };
        // From a newer version: it may contain features that this version does not know.
        with("version", json!(99));
        bundle.call(["delete", "--force", &bundle.id]).expect(1).expect_error("version 99");
        with("id", json!("another"));
        bundle.call(["delete", "--force", &bundle.id]).expect(1).expect_error("another container");
        // From an earlier boot: its process id and its cgroup may belong to another process by now.
        with("boot_id", json!("00000000-0000-0000-0000-000000000000"));
        assert_eq!(bundle.state()["status"], "stopped");
        bundle.call(["kill", &bundle.id, "KILL"]).expect_error("not running");
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        assert!(!bundle.processes().is_empty() && !bundle.cgroups().is_empty(), "such a record signals no process");
        // The same record in a directory of another user.
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, record.to_string()).unwrap();
        let directory = path.parent().unwrap().to_owned();
        for mode in [0o777, 0o770] {
            std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).unwrap();
            bundle.about("state").expect(1).expect_error("another user created it");
        }
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&directory, Some(1), Some(1)).unwrap();
        bundle.about("state").expect(1).expect_error("another user created it");
        std::os::unix::fs::chown(&directory, Some(0), Some(0)).unwrap();
        let aside = bundle.dir.join("aside");
        std::fs::rename(&directory, &aside).unwrap();
        symlink(&aside, &directory).unwrap();
        assert!(!bundle.about("state").0.status.success(), "a symlink is not accepted as a container");
        std::fs::remove_file(&directory).unwrap();
        std::fs::rename(&aside, &directory).unwrap();
        // A record that would block the reader, and one that is a symlink.
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let called = bundle.about("state").expect(1);
        assert!(called.err().contains("state.json"), "{}", called.err());
        std::fs::remove_file(&path).unwrap();
        let elsewhere = bundle.dir.file("elsewhere", record.to_string());
        symlink(&elsewhere, &path).unwrap();
        assert!(!bundle.about("state").0.status.success());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, record.to_string()).unwrap();
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        bundle.expect_nothing_left("the true record");
    });
}

/// All system calls of a command after the first that names its state: name, and count among calls of that name.
fn steps(bundle: &Bundle, words: &[&str]) -> Vec<(String, usize)> {
    let trace = bundle.dir.join("trace");
    let null = Stdio::null;
    let mut command = Command::new("strace");
    command.arg("-o").arg(&trace).arg(Runtime::Ours.program()).arg("--root").arg(bundle.dir.join("state")).args(words);
    bundle.command(["x"]);
    assert!(command.stdin(null()).stdout(null()).stderr(null()).status().unwrap().success(), "{words:?}");
    let text = std::fs::read_to_string(&trace).unwrap();
    let mut seen = std::collections::HashMap::<&str, usize>::new();
    let (mut steps, mut begun) = (Vec::new(), false);
    for line in text.lines() {
        let Some((name, _)) = line.split_once('(').filter(|_| !line.starts_with(['-', '+'])) else { continue };
        let nth = seen.entry(name).or_default();
        *nth += 1;
        begun |= line.contains(&format!("/state/{}\"", bundle.id)) || line.contains(&format!("/state/{}/", bundle.id));
        let nothing = ["mmap", "munmap", "brk", "madvise", "mprotect", "mremap", "close", "rt_sigaction", "fcntl"];
        if begun && !nothing.contains(&name) {
            steps.push((name.to_owned(), *nth));
        }
    }
    steps
}

fn killed_at(bundle: &Bundle, words: &[&str], step: &(String, usize)) {
    let null = Stdio::null;
    let mut command = Command::new("strace");
    let fault = format!("inject={}:signal=KILL:when={}", step.0, step.1);
    command.args(["-o", "/dev/null", "-e", &fault]).arg(Runtime::Ours.program());
    command.arg("--root").arg(bundle.dir.join("state")).args(words);
    command.stdin(null()).stdout(null()).stderr(null()).status().unwrap();
}

/// A new process moves itself into its cgroups of v1. The runtime checks that it did.
#[test]
fn a_process_that_did_not_enter_a_cgroup_of_v1_never_runs_its_program() {
    let tasks = |bundle: &Bundle| format!("/sys/fs/cgroup/pids/{}/tasks", bundle.id);
    if !std::path::Path::new("/sys/fs/cgroup/pids/tasks").exists() {
        return skip("no cgroup v1");
    }
    if !may_trace() {
        return;
    }
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = sleeper(runtime) else { return };
        let with_fault = |fault: &str, words: &[&str]| {
            // A container that was made all the same would keep strace and the pipes.
            let mut command = Command::new("timeout");
            command.args([
                "-s",
                "KILL",
                "30",
                "strace",
                "-f",
                "-o",
                "/dev/null",
                "-P",
                &tasks(&bundle),
                "-e",
                &format!("inject=write:{fault}"),
            ]);
            command.arg(runtime.program()).arg("--root").arg(bundle.dir.join("state")).args(words);
            bundle.command(["x"]); // writes config.json
            command.stdin(Stdio::null()).output().unwrap()
        };
        let expect = |words: &[&str]| {
            for (fault, expected) in [
                ("error=ENOSPC", "/tasks: No space left on device"),
                ("retval=1", "was moved there or began there, and is elsewhere"),
            ] {
                let output = with_fault(fault, words);
                let (said, complaint) =
                    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).into();
                assert!(!output.status.success() && complaint.contains(expected), "{fault}: {complaint}");
                assert_eq!(said, "", "{fault}");
            }
        };
        let create = ["create", "--bundle", text(bundle.dir.path()), &bundle.id];
        expect(&create);
        bundle.expect_nothing_left("a failed create");
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        expect(&["exec", &bundle.id, "/bin/busybox", "echo", "ran"]);
        bundle.call(["exec", &bundle.id, "/bin/busybox", "echo", "ran"]).expect(0);
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
    });
}

/// As many of the steps as time allows, always the same ones; all of them with `STOCKADE_SWEEP=all`.
fn some(steps: Vec<(String, usize)>, most: usize) -> Vec<(String, usize)> {
    let all = std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all");
    let every = if all { 1 } else { steps.len().div_ceil(most) };
    eprintln!("{} steps, of which every {every}. is tried, and the last", steps.len());
    let last = steps.len().saturating_sub(9); // around the record of the outcome, and after it
    let chosen = steps.into_iter().enumerate().filter(|(at, _)| at % every == 0 || *at >= last);
    chosen.map(|(_, step)| step).collect()
}

/// `state` asks whether the process exists, and then whether it waits at the gate. One that died in between waits nowhere, as one
/// that was started does.
#[test]
fn a_created_container_that_dies_while_it_is_looked_at_is_stopped() {
    if !may_trace() {
        return;
    }
    ours(|runtime| {
        let Some(bundle) = sleeper(runtime) else { return };
        bundle.create().expect(0);
        let state = bundle.dir.join("state");
        let pid = bundle.state()["pid"].as_i64().unwrap() as i32;
        let mut command = Command::new("strace");
        command.args(["-o", "/dev/null", "-P"]).arg(state.join(&bundle.id).join("exec.fifo"));
        command.args(["-e", "inject=openat:delay_enter=3000000"]).arg(Runtime::Ours.program());
        command.arg("--root").arg(&state).args(["state", &bundle.id]).stdin(Stdio::null()).stdout(Stdio::piped());
        let looking = command.spawn().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        let seen: Value = serde_json::from_slice(&looking.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(seen["status"], "stopped", "{seen}");
    });
}

#[test]
fn no_command_that_is_killed_leaves_anything_that_force_does_not_remove() {
    if !may_trace() {
        return;
    }
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(mut bundle) = sleeper(runtime) else { return };
        bundle.config["linux"]["resources"]["pids"] = json!({ "limit": 20 });
        let path = text(bundle.dir.path()).to_owned();
        let id = bundle.id.clone();
        let create = ["create", "--bundle", path.as_str(), id.as_str()];
        let (start, delete, force) =
            (["start", id.as_str()], ["delete", id.as_str()], ["delete", "--force", id.as_str()]);
        let quiet = |words: &[&str]| {
            let whole = bundle.command(words);
            let mut command = Command::new("timeout"); // it may wait for the killed command for ever
            command.args(["-s", "KILL", "60"]).arg(whole.get_program()).args(whole.get_args());
            Called(command.stdout(Stdio::null()).stderr(Stdio::null()).output().unwrap()).0.status.success()
        };
        let all = (steps(&bundle, &create), steps(&bundle, &start), {
            bundle.call(["kill", &id, "KILL"]).expect(0);
            bundle.wait_for("stopped");
            steps(&bundle, &delete)
        });
        assert!(all.0.len() > 50 && all.1.len() > 5 && all.2.len() > 5, "{all:?}");
        for step in some(all.0, 30) {
            killed_at(&bundle, &create, &step);
            // Whatever the killed command left has a valid state and can be deleted.
            let state = bundle.about("state");
            assert!(state.0.status.success() || state.err().contains("does not exist"), "{step:?}: {}", state.err());
            // A process that the record does not name ends by itself, also if nobody deletes the container.
            if serde_json::from_slice::<Value>(&state.0.stdout).is_ok_and(|state| state["status"] != "created") {
                assert!(eventually(|| bundle.members().is_empty()), "create, {step:?}: {:?}", bundle.members());
            }
            assert!(quiet(&force), "create, {step:?}");
            bundle.expect_nothing_left(&format!("create, {step:?}"));
        }
        for step in some(all.1, 12) {
            assert!(quiet(&create));
            killed_at(&bundle, &start, &step);
            assert!(["created", "running"].contains(&bundle.state()["status"].as_str().unwrap()), "start, {step:?}");
            assert!(quiet(&force), "start, {step:?}");
            bundle.expect_nothing_left(&format!("start, {step:?}"));
        }
        for step in some(all.2, 12) {
            assert!(quiet(&create));
            assert!(quiet(&["kill", &id, "KILL"]));
            bundle.wait_for("stopped");
            killed_at(&bundle, &delete, &step);
            assert!(quiet(&force), "delete, {step:?}");
            bundle.expect_nothing_left(&format!("delete, {step:?}"));
        }
    });
}

/// runc is not a control here: version 1.1 loses these races. Two creates succeed, or a start hangs.
#[test]
fn of_concurrent_creates_of_one_id_one_succeeds() {
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = sleeper(runtime) else { return };
        bundle.command(["x"]);
        for round in 0..6 {
            let call = |words: &[&str]| {
                let mut command = Command::new(runtime.program());
                command.arg("--root").arg(bundle.dir.join("state")).args(words);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                command.status().unwrap().success()
            };
            let (made, started) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let path = text(bundle.dir.path());
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        made.fetch_add(call(&["create", "--bundle", path, &bundle.id]).into(), Ordering::Relaxed)
                    });
                }
            });
            assert_eq!(made.load(Ordering::Relaxed), 1, "round {round}");
            assert_eq!(bundle.state()["status"], "created");
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| started.fetch_add(call(&["start", &bundle.id]).into(), Ordering::Relaxed));
                }
            });
            assert_eq!(started.load(Ordering::Relaxed), 1, "round {round}");
            assert_eq!(bundle.state()["status"], "running");
            std::thread::scope(|scope| {
                for thread in 0..16 {
                    let verb: &[&str] = match thread % 4 {
                        0 => &["delete", "--force"],
                        1 => &["kill"],
                        2 => &["state"],
                        _ => &["exec"],
                    };
                    let id = bundle.id.as_str();
                    let rest: &[&str] = match thread % 4 {
                        1 => &["KILL"],
                        3 => &["true"],
                        _ => &[],
                    };
                    let words: Vec<&str> = verb.iter().copied().chain([id]).chain(rest.iter().copied()).collect();
                    let call = &call;
                    scope.spawn(move || call(&words));
                }
            });
            call(&["delete", "--force", &bundle.id]);
            bundle.expect_nothing_left(&format!("round {round}"));
        }
    });
}

/// A directory that is not locked yet looks like one that a dead command left. If `delete` removes it, the create must not affect
/// a later container of the same name.
#[test]
fn a_create_whose_directory_was_removed_does_not_affect_a_later_container() {
    if !may_trace() {
        return;
    }
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = sleeper(runtime) else { return };
        for others in [false, true] {
            let slow = ["-o", "/dev/null", "-e", "inject=flock:delay_enter=700000:when=1", runtime.program(), "--root"];
            bundle.command(["x"]); // writes the configuration
            let complaint = bundle.dir.join("complaint");
            let mut command = Command::new("strace");
            command.args(slow).arg(bundle.dir.join("state"));
            command.args(["create", "--bundle", text(bundle.dir.path()), &bundle.id]).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(std::fs::File::create(&complaint).unwrap());
            let mut first = command.spawn().unwrap();
            wait_until("there is a directory", || state(&bundle, ".").exists());
            std::thread::sleep(Duration::from_millis(100));
            bundle.about("delete").expect(0);
            if others {
                bundle.create().expect(0);
                bundle.about("start").expect(0);
            }
            let code = first.wait().unwrap().code();
            let complaint = std::fs::read_to_string(&complaint).unwrap();
            if others {
                assert!(code == Some(1) && complaint.contains("already exists"), "{code:?}: {complaint}");
                assert_eq!(bundle.exec("echo inside").expect(0).out(), "inside\n");
            } else {
                assert_eq!(code, Some(0), "{complaint}");
                assert_eq!(bundle.state()["status"], "created");
            }
            bundle.call(["delete", "--force", &bundle.id]).expect(0);
            bundle.expect_nothing_left("after both");
        }
    });
}

/// It could not be started, and could not be resumed either.
#[test]
fn a_paused_created_container_is_reported_and_can_be_resumed() {
    ours(|runtime| {
        let Some(bundle) = sleeper(runtime) else { return };
        bundle.create().expect(0);
        bundle.about("pause").expect(0);
        assert_eq!(bundle.state()["status"], "paused");
        bundle.about("start").expect(1).expect_error("in the paused state");
        bundle.about("pause").expect(1);
        bundle.about("delete").expect(1).expect_error("not stopped: paused");
        bundle.about("resume").expect(0);
        assert_eq!(bundle.state()["status"], "created");
        bundle.about("start").expect(0);
        assert_eq!(bundle.state()["status"], "running");
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        bundle.expect_nothing_left("after all");
    });
}

fn hook(script: &str) -> Value {
    json!([{ "path": "/bin/sh", "args": ["sh", "-c", script] }])
}

#[test]
fn the_last_output_of_a_hook_is_in_the_error() {
    ours(|runtime| {
        let flood =
            "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i of many >&2; done; echo the reason >&2; exit 7";
        for stage in ["prestart", "createRuntime", "createContainer", "startContainer", "poststart"] {
            let Some(mut bundle) = sleeper(runtime) else { return };
            bundle.config["hooks"] = json!({ stage: hook(flood) });
            let created = bundle.create();
            let failed = if ["startContainer", "poststart"].contains(&stage) {
                created.expect(0);
                bundle.about("start")
            } else {
                created
            };
            let failed = failed.expect(1);
            let said = failed.err();
            assert!(
                said.contains(stage) && said.contains("exit status 7") && said.contains("the reason"),
                "{stage}: {said}"
            );
            assert!(said.len() < 3000, "{stage}: {} bytes", said.len());
            bundle.call(["delete", "--force", &bundle.id]).expect(0);
            bundle.expect_nothing_left(stage);
        }
        let Some(mut bundle) = sleeper(runtime) else { return };
        bundle.config["hooks"] = json!({ "poststop": hook("echo gone wrong >&2; exit 3") });
        bundle.create().expect(0);
        let deleted = bundle.call(["delete", "--force", &bundle.id]).expect(0);
        assert!(deleted.err().contains("gone wrong"), "a warning: {}", deleted.err());
    });
}

#[test]
fn a_slow_hook_is_killed_with_its_descendants() {
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(mut bundle) = sleeper(runtime) else { return };
        // A daemon leaves the process group and the session, and outlives its parent.
        let script = format!(
            "setsid sh -c 'sh -c \"sleep 1001; true {id}\" & sleep 1001; true {id}' & sleep 1002; true {id}",
            id = bundle.id
        );
        let mut slow = hook(&script);
        slow[0]["timeout"] = json!(1);
        bundle.config["hooks"] = json!({ "createRuntime": slow });
        let began = Instant::now();
        bundle.create().expect(1).expect_error("longer than 1 s");
        assert!(began.elapsed() < PATIENCE);
        bundle.expect_nothing_left("the hook's processes");
    });
}

#[test]
fn hooks_have_their_order_and_their_state() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        let log = bundle.dir.join("log");
        let line = |stage: &str, log: &str| {
            let one = |nth: u32| {
                let script = format!("read -r state; echo {stage}{nth} \"$state\" >>{log}");
                json!({ "path": "/bin/sh", "args": ["sh", "-c", script] })
            };
            json!([one(1), one(2)])
        };
        let mut hooks = serde_json::Map::new();
        for stage in ["prestart", "createRuntime", "createContainer", "poststart", "poststop"] {
            hooks.insert(stage.into(), line(stage, text(&log)));
        }
        hooks.insert("startContainer".into(), line("startContainer", "/log"));
        bundle.config["hooks"] = hooks.into();
        bundle.config["root"]["readonly"] = json!(false);
        std::fs::write(bundle.rootfs().join("log"), "").unwrap();
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for("stopped");
        bundle.about("delete").expect(0);
        let mut told = std::fs::read_to_string(&log).unwrap();
        let inside = std::fs::read_to_string(bundle.rootfs().join("log")).unwrap();
        let at = told.find("poststart1").unwrap();
        told.insert_str(at, &inside);
        let seen: Vec<(String, String)> = told
            .lines()
            .map(|line| {
                let (stage, state) = line.split_once(' ').unwrap();
                let state: Value = serde_json::from_str(state).unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_eq!(state["id"], json!(bundle.id), "{line}");
                // For crun's hooks inside the container, the bundle is the root.
                let inside = runtime == Runtime::Crun && stage.starts_with("startContainer");
                assert!(inside || state["bundle"] == json!(bundle.dir.path()), "{line}");
                let dead = stage.starts_with("poststop");
                // crun omits it for hooks that run in the container's namespaces.
                let untold = runtime == Runtime::Crun
                    && ["createContainer", "startContainer"].iter().any(|one| stage.starts_with(one));
                assert!(dead || untold || state["pid"].as_i64().is_some_and(|pid| pid > 0), "{line}");
                (stage.to_owned(), state["status"].as_str().unwrap().to_owned())
            })
            .collect();
        let stages: Vec<&str> = seen.iter().map(|(stage, _)| stage.as_str()).collect();
        let expected = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];
        let expected: Vec<String> =
            expected.iter().flat_map(|stage| [format!("{stage}1"), format!("{stage}2")]).collect();
        assert_eq!(stages, expected);
        let statuses: Vec<&str> = seen.iter().step_by(2).map(|(_, status)| status.as_str()).collect();
        let expected = match runtime {
            Runtime::Ours => ["creating", "creating", "creating", "created", "running", "stopped"],
            // runc reports a started container as created until its state is read again.
            Runtime::Runc => ["creating", "creating", "creating", "created", statuses[4], "stopped"],
            // crun has no record of a container that is still being created.
            Runtime::Crun => ["created", "created", "created", "starting", "running", "stopped"],
        };
        assert_eq!(statuses, expected);
    });
}

/// A filter that is installed last, because `noNewPrivileges` is set. It refuses every call that a shell does not need to start
/// and end.
fn late_filter(bundle: &mut Bundle) {
    assert_eq!(bundle.config["process"]["noNewPrivileges"], json!(true));
    bundle.config["root"]["readonly"] = json!(false);
    bundle.config["linux"]["seccomp"] = json!({
        // A profile that refuses munmap(2) too, which a start of ours makes, has its filter installed last.
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["mkdir", "mkdirat", "munmap"], "action": "SCMP_ACT_ERRNO" }],
    });
}

/// Whether a program of the container left a sign that it ran.
fn ran(bundle: &Bundle) -> bool {
    bundle.rootfs().join("ran").exists()
}

/// A program that reports at once that it runs, and starts a process that would outlive it.
const SHOWS: &str = "echo >/ran; sleep 60 & echo >>/ran; wait";

/// The call that installs the filter returns success without installing it.
#[test]
fn a_program_without_its_last_filter_never_runs() {
    if !common::has_program("strace") {
        return skip("there is no strace");
    }
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(mut bundle) = Bundle::new(runtime, SHOWS) else { return };
        late_filter(&mut bundle);
        let marker = json!(format!("MARKER={}", bundle.id));
        bundle.config["process"]["env"].as_array_mut().unwrap().push(marker);
        let without_filter = |words: &[&str]| {
            let whole = bundle.command(words);
            let mut command = Command::new("strace");
            command.args(["-f", "-o", "/dev/null", "-e", "trace=seccomp", "-e", "inject=seccomp:retval=0"]);
            command.arg(whole.get_program()).args(whole.get_args()).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let (said, path) = ("verifying the confinement: seccomp filters", text(bundle.dir.path()));
        let end = |child: std::process::Child| Called(child.wait_with_output().unwrap());
        end(without_filter(&["run", "--bundle", path, &bundle.id])).expect(1).expect_error(said);
        assert!(!ran(&bundle), "run");
        bundle.expect_nothing_left("run");
        // The tracer lives as long as the container.
        let mut creator = without_filter(&["create", "--bundle", path, &bundle.id]);
        wait_until("a container is created", || {
            let ended = creator.try_wait().unwrap().is_some();
            assert!(!ended || creator.stderr.as_mut().is_some_and(shows), "create has ended");
            bundle.state()["status"] == "created"
        });
        bundle.about("start").expect(1).expect_error(said);
        end(creator).expect(0);
        assert!(!ran(&bundle), "create and start");
        assert_eq!(bundle.state()["status"], "stopped");
        bundle.about("delete").expect(0);
        bundle.expect_nothing_left("create and start");
        bundle.config["process"]["args"] = json!(["sleep", "60"]);
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let whole = bundle.exec("echo ran >/control; mkdir /directory").expect(1);
        assert!(whole.err().contains("mkdir") && bundle.rootfs().join("control").exists(), "{}", whole.err());
        let again = |words: &[&str]| {
            let whole = bundle.command(words);
            let mut command = Command::new("strace");
            command.args(["-f", "-o", "/dev/null", "-e", "trace=seccomp", "-e", "inject=seccomp:retval=0"]);
            Called(command.arg(whole.get_program()).args(whole.get_args()).stdin(Stdio::null()).output().unwrap())
        };
        again(&["exec", &bundle.id, "sh", "-c", SHOWS]).expect(255).expect_error(said);
        again(&["exec", "--detach", &bundle.id, "sh", "-c", SHOWS]).expect(255).expect_error(said);
        assert!(!ran(&bundle), "exec");
        assert_eq!(bundle.state()["status"], "running", "the container still runs");
        assert_eq!(bundle.call(["ps", "--format", "json", &bundle.id]).out().matches(',').count(), 0, "alone");
    });
}

/// Prints the output of a command to the test's log.
fn shows(said: &mut impl std::io::Read) -> bool {
    let mut text = String::new();
    let _ = said.read_to_string(&mut text);
    eprintln!("{text}");
    false
}

/// A container whose `startContainer` hook blocks in the middle of its start until the test continues it.
fn slow_start(runtime: Runtime) -> Option<(Bundle, PathBuf)> {
    let mut bundle = Bundle::new(runtime, SHOWS)?;
    late_filter(&mut bundle);
    let marker = json!(format!("MARKER={}", bundle.id));
    bundle.config["process"]["env"].as_array_mut().unwrap().push(marker);
    bundle.config["hooks"] = json!({
        "startContainer": hook("echo >/hooked; read -r word </hold; exit 0"),
        "poststart": hook(&format!("echo >{}", text(&bundle.dir.join("poststart")))),
    });
    let fifo = bundle.rootfs().join("hold");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    Some((bundle, fifo))
}

fn starting(bundle: &Bundle) -> std::process::Child {
    let _ = std::fs::remove_file(bundle.rootfs().join("hooked"));
    bundle.create().expect(0);
    let start = bundle.command(["start", &bundle.id]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the hook runs", || bundle.rootfs().join("hooked").exists() && bundle.state()["status"] == "running");
    start
}

fn wait_until(what: &str, is: impl FnMut() -> bool) {
    assert!(eventually(is), "{what}: timed out");
}

#[test]
fn a_start_waits_for_a_slow_hook_and_blocks_no_other_command() {
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some((bundle, fifo)) = slow_start(runtime) else { return };
        let mut start = starting(&bundle);
        assert_eq!(bundle.state()["status"], "running");
        bundle.about("pause").expect(0);
        bundle.about("resume").expect(0);
        bundle.about("start").expect(1).expect_error("already running");
        assert!(start.try_wait().unwrap().is_none() && !ran(&bundle));
        std::fs::write(&fifo, "go\n").unwrap();
        Called(start.wait_with_output().unwrap()).expect(0);
        wait_until("the program runs", || ran(&bundle));
        assert!(bundle.dir.join("poststart").exists());
        let status = std::fs::read_to_string(format!("/proc/{}/status", bundle.state()["pid"])).unwrap();
        assert!(status.contains("Seccomp:\t2"), "{status}");
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        bundle.expect_nothing_left("a slow start");
        std::fs::remove_file(bundle.rootfs().join("ran")).unwrap();
        let start = starting(&bundle);
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        Called(start.wait_with_output().unwrap()).expect(1).expect_error("died before its program");
        assert!(!ran(&bundle));
        bundle.expect_nothing_left("a start whose container was deleted");
    });
}

#[test]
fn a_killed_start_leaves_no_program_with_an_unverified_filter() {
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some((bundle, fifo)) = slow_start(runtime) else { return };
        let mut start = starting(&bundle);
        start.kill().unwrap();
        start.wait().unwrap();
        assert_eq!(bundle.state()["status"], "running");
        std::fs::write(&fifo, "go\n").unwrap();
        bundle.wait_for("stopped");
        assert!(!ran(&bundle));
        bundle.about("delete").expect(0);
        bundle.expect_nothing_left("a start that was killed");
    });
}

/// `start` is killed at each of its system calls, also while the container waits for it.
#[test]
fn a_start_that_is_killed_anywhere_leaves_no_program_without_its_filter() {
    if !may_trace() {
        return;
    }
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(mut bundle) = Bundle::new(runtime, SHOWS) else { return };
        late_filter(&mut bundle);
        let marker = json!(format!("MARKER={}", bundle.id));
        bundle.config["process"]["env"].as_array_mut().unwrap().push(marker);
        let id = bundle.id.clone();
        let (start, force) = (["start", id.as_str()], ["delete", "--force", id.as_str()]);
        bundle.create().expect(0);
        let all = steps(&bundle, &start);
        bundle.call(force).expect(0);
        assert!(all.iter().any(|(name, _)| name == "set_robust_list"), "{all:?}");
        let (mut before, mut held, mut after) = (0, 0, 0);
        for step in some(all, 40) {
            let _ = std::fs::remove_file(bundle.rootfs().join("ran"));
            bundle.create().expect(0);
            killed_at(&bundle, &start, &step);
            // Its process still waits, or runs with its filter, or is gone.
            let seccomp = || {
                let status = std::fs::read_to_string(format!("/proc/{}/status", bundle.state()["pid"]));
                status.ok().and_then(|status| Some(status.split("Seccomp:\t").nth(1)?.as_bytes()[0]))
            };
            let settled = || bundle.state()["status"] != "running" || ran(&bundle);
            wait_until(&format!("{step:?}: {:?}", bundle.state()), settled);
            match (bundle.state()["status"].as_str(), ran(&bundle)) {
                (Some("created"), false) => before += 1,
                (Some("stopped"), false) => held += 1,
                (_, true) => {
                    after += 1;
                    assert_ne!(seccomp(), Some(b'0'), "{step:?}");
                }
                other => panic!("{step:?}: {other:?}"),
            }
            bundle.call(force).expect(0);
            bundle.expect_nothing_left(&format!("start, {step:?}"));
        }
        eprintln!("{before} before, {held} during, {after} after");
        assert!(before > 0 && held > 0, "{before}, {held}, {after}");
    });
}
