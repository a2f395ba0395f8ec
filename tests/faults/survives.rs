//! Commands about a container survive another version of the program, a crash of the host, removed cgroups, a process that does
//! not die, and many earlier containers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common;
use crate::common::bundle::{Bundle, Runtime, ours};
use crate::common::clock::{PATIENCE, eventually};
use crate::common::{leaks, skip, text};
use serde_json::json;

fn container(script: &str) -> Option<Bundle> {
    leaks::adopt_orphans();
    let mut bundle = Bundle::new(Runtime::Ours, script)?;
    let marker = json!(format!("MARKER={}", bundle.id));
    bundle.config["process"]["env"].as_array_mut().unwrap().push(marker);
    Some(bundle)
}

fn quietly(bundle: &Bundle, words: &[&str]) -> bool {
    let mut command = bundle.command(words);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

fn state_file(bundle: &Bundle, name: &str) -> PathBuf {
    bundle.dir.join("state").join(&bundle.id).join(name)
}

/// Created by a program file that no longer exists, as after an upgrade.
#[test]
fn a_container_is_managed_by_another_copy_of_the_program() {
    ours(|runtime| {
        let Some(bundle) = container("echo on; sleep 60") else { return };
        for gone in [false, true] {
            let own = bundle.dir.file("stockade-oci", std::fs::read(runtime.program()).unwrap());
            common::set_mode(&own, 0o755);
            let mut words = vec!["--root".to_owned(), text(&bundle.dir.join("state")).to_owned(), "create".to_owned()];
            words.extend(["--bundle".to_owned(), text(bundle.dir.path()).to_owned(), bundle.id.clone()]);
            bundle.command(["x"]); // writes the configuration
            let mut create = Command::new(&own);
            create.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            assert!(create.status().unwrap().success());
            if gone {
                std::fs::remove_file(&own).unwrap();
            } else {
                std::fs::rename(bundle.dir.file("other", "another version"), &own).unwrap();
            }
            assert_eq!(bundle.state()["status"], "created");
            bundle.about("start").expect(0);
            assert_eq!(bundle.exec("echo inside").expect(0).out(), "inside\n");
            bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
            bundle.wait_for("stopped");
            bundle.about("delete").expect(0);
            bundle.expect_nothing_left("another copy");
        }
    });
}

/// If the boot id cannot be read, a later command would take existing containers for gone.
#[test]
fn without_the_boots_id_nothing_is_made_and_nothing_is_forgotten() {
    ours(|_| {
        let Some(bundle) = container("echo on; sleep 60") else { return };
        let blindly = |words: &[&str]| {
            // Reading another process's memory fails, even after that process has ended.
            let cover = "mount --bind /proc/self/mem /proc/sys/kernel/random/boot_id && exec \"$@\"";
            let whole = bundle.command(words);
            let mut command = Command::new("unshare");
            command.args(["-m", "--propagation", "private", "sh", "-c", cover, "sh"]);
            command.arg(whole.get_program()).args(whole.get_args());
            let complaint = bundle.dir.join("complaint");
            let file = std::fs::File::create(&complaint).unwrap();
            let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).status().unwrap();
            (status.code(), std::fs::read_to_string(complaint).unwrap())
        };
        let (code, complaint) = blindly(&["create", "--bundle", text(bundle.dir.path()), &bundle.id]);
        assert!(code == Some(1) && complaint.contains("boot_id"), "{code:?} {complaint}");
        bundle.expect_nothing_left("a container that was refused");
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let (code, complaint) = blindly(&["delete", "--force", &bundle.id]);
        assert_eq!(code, Some(0), "{complaint}");
        bundle.expect_nothing_left("a container that was deleted");
    });
}

/// After a crash, a complete record must exist before anything else does.
#[test]
fn the_record_is_on_the_disk_before_anything_is_made() {
    if !common::has_program("strace") {
        return skip("there is no strace");
    }
    if common::host::is_uml() {
        return skip("a User-Mode kernel traces its processes itself, and takes minutes for this");
    }
    ours(|runtime| {
        let Some(bundle) = container("true") else { return };
        let trace = bundle.dir.join("trace");
        bundle.command(["x"]); // writes the configuration
        let mut command = Command::new("strace");
        let wanted = "trace=openat,fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat,clone3,mknodat,mknod";
        command.args(["-y", "-o"]).arg(&trace).args(["-e", wanted]).arg(runtime.program()).arg("--root");
        command.arg(bundle.dir.join("state")).args(["create", "--bundle", text(bundle.dir.path()), &bundle.id]);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(status.unwrap().success());
        let trace = std::fs::read_to_string(&trace).unwrap();
        let lines: Vec<&str> = trace.lines().collect();
        let first = |what: &dyn Fn(&str) -> bool| lines.iter().position(|line| what(line)).unwrap_or(usize::MAX);
        let directory = format!("/state/{}", bundle.id);
        let is = |line: &str, call: &str, object: &str| line.starts_with(call) && line.contains(object);
        let contents = first(&|line| is(line, "fsync", "/.state.json.new>"));
        let renamed = first(&|line| is(line, "rename", "/state.json\""));
        let name = first(&|line| is(line, "fsync", &format!("{directory}>")));
        let cgroup = first(&|line| is(line, "mkdir", &bundle.id) && line.contains("/sys/fs/cgroup"));
        let process = first(&|line| line.starts_with("clone3"));
        let order = [contents, renamed, name, cgroup, process];
        assert!(order.is_sorted() && order.iter().all(|at| *at != usize::MAX), "{order:?}\n{trace}");
        // The record with the process id replaces it, and is complete before it gets its name.
        let last = |what: &dyn Fn(&str) -> bool| lines.iter().rposition(|line| what(line)).unwrap_or(0);
        let again = last(&|line| is(line, "fsync", "/.state.json.new>"));
        assert!(process < again && again < last(&|line| is(line, "rename", "/state.json\"")), "{trace}");
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
    });
}

/// Possible contents of a file after a power failure: old, missing, empty, full of zeros, truncated.
#[test]
fn any_state_after_a_crash_can_be_deleted() {
    ours(|_| {
        let Some(mut bundle) = container("sleep 60") else { return };
        bundle.config["linux"]["resources"]["pids"] = json!({ "limit": 20 });
        bundle.create().expect(0);
        let read = |name: &str| std::fs::read(state_file(&bundle, name)).unwrap();
        let before = "00000000-0000-0000-0000-000000000000"; // the boot that the power ended
        let mut record: serde_json::Value = serde_json::from_slice(&read("state.json")).unwrap();
        record["boot_id"] = json!(before);
        let (record, plan) = (record.to_string().into_bytes(), read("plan.json"));
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        let states = |whole: &[u8]| {
            let part = whole[..whole.len() / 2].to_vec();
            [Some(whole.to_vec()), None, Some(Vec::new()), Some(vec![0; whole.len()]), Some(part)]
        };
        let put = |name: &str, contents: &Option<Vec<u8>>| {
            if let Some(contents) = contents {
                std::fs::write(state_file(&bundle, name), contents).unwrap();
            }
        };
        let mut tried = 0;
        for (at, state) in states(&record).iter().enumerate() {
            for plan in &states(&plan) {
                for aside in [None, Some(Vec::new()), Some(record.clone())] {
                    let directory = bundle.dir.join("state").join(&bundle.id);
                    std::fs::DirBuilder::new().create(&directory).unwrap();
                    common::set_mode(&directory, 0o700);
                    put("state.json", state);
                    put("plan.json", plan);
                    put(".state.json.new", &aside);
                    let what = format!("{state:?} {plan:?} {aside:?}").chars().take(300).collect::<String>();
                    let damaged = at > 1;
                    for verb in ["state", "start", "kill", "pause", "exec"] {
                        let words = [verb, &bundle.id, "true"];
                        let called = bundle.call(&words[..if verb == "exec" { 3 } else { 2 }]);
                        let said = called.err();
                        assert!(!said.contains("panicked"), "{verb}: {said}: {what}");
                        match called.0.status.code() {
                            Some(0) => assert!(verb == "state" && !damaged, "{verb}: {what}"),
                            Some(_) => assert!(!damaged || said.contains("is damaged"), "{verb}: {said}: {what}"),
                            None => panic!("{verb}: {what}"),
                        }
                    }
                    assert!(quietly(&bundle, &["list"]), "{what}");
                    bundle.call(["delete", "--force", &bundle.id]).expect(0);
                    bundle.expect_nothing_left(&what);
                    tried += 1;
                }
            }
        }
        assert_eq!(tried, 75);
        bundle.create().expect(0); // the name is free again
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
    });
}

fn remove_below(group: &Path) {
    let is_gone = eventually(|| std::fs::remove_dir(group).is_ok() || !group.exists());
    assert!(is_gone, "{} cannot be removed", group.display());
}

#[test]
fn cgroups_removed_from_outside_do_not_block_commands() {
    ours(|_| {
        let Some(bundle) = container("sleep 60") else { return };
        // Removed after the container's end.
        bundle.create().expect(0);
        bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
        bundle.wait_for("stopped");
        bundle.cgroups().iter().for_each(|group| remove_below(group));
        assert_eq!(bundle.state()["status"], "stopped");
        bundle.about("delete").expect(0);
        bundle.expect_nothing_left("removed after its end");
        // Removed while it lives, after its processes were moved elsewhere.
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let pid = bundle.state()["pid"].to_string();
        for group in bundle.cgroups() {
            std::fs::write(group.parent().unwrap().join("cgroup.procs"), &pid).unwrap();
            remove_below(&group);
        }
        assert_eq!(bundle.state()["status"], "running");
        // Nothing would limit the new process.
        bundle.call(["exec", &bundle.id, "true"]).expect_error("cgroup");
        bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
        bundle.wait_for("stopped");
        bundle.about("delete").expect(0);
        bundle.expect_nothing_left("removed while it ran");
    });
}

/// In cgroup v1 a process frozen by an ancestor cgroup cannot take even SIGKILL, like one in a device call that hangs.
#[test]
fn a_process_that_does_not_die_is_reported_and_can_be_deleted_later() {
    let freezer = Path::new("/sys/fs/cgroup/freezer");
    if !freezer.join("cgroup.procs").exists() {
        return skip("on cgroup v2 a frozen process can be killed");
    }
    ours(|_| {
        let Some(mut bundle) = container("sleep 60") else { return };
        bundle.config["linux"]["cgroupsPath"] = json!(format!("/{}/inner", bundle.id));
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let above = freezer.join(&bundle.id);
        std::fs::write(above.join("freezer.state"), "FROZEN").unwrap();
        let began = std::time::Instant::now();
        let deleted = bundle.call(["delete", "--force", &bundle.id]);
        let took = began.elapsed();
        let state = bundle.state();
        std::fs::write(above.join("freezer.state"), "THAWED").unwrap();
        deleted.expect_error("was killed but has not exited");
        assert!(took < PATIENCE, "{took:?}");
        assert_eq!(state["id"], json!(bundle.id), "its record stays");
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        for group in bundle.cgroups() {
            remove_below(&group); // the cgroups above belong to others
        }
        bundle.expect_nothing_left("later");
    });
}

/// The programs end before anything waits for them.
#[test]
fn many_containers_one_after_the_other_end_right_and_leave_nothing() {
    let many = if std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all") { 2000 } else { 60 };
    ours(|_| {
        for (index, script) in ["exit 0", "exit 7", "kill -KILL $$", "sleep 0.01; exit 3"].iter().enumerate() {
            let Some(bundle) = container(script) else { return };
            for _ in 0..many / 4 {
                // Pid 1 gets no signal that it sends itself and does not handle, not even this one.
                bundle.run().expect([0, 7, 0, 3][index]);
            }
            bundle.expect_nothing_left(script);
            let left: Vec<_> = std::fs::read_dir(bundle.dir.join("state")).unwrap().flatten().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    });
}
