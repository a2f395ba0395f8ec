//! Saving and restoring containers by way of criu: what was running goes on, confined as it was.

mod common;

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::bundle::{Bundle, Called, Runtime, for_each_runtime, ours};
use common::{leaks, skip, text};
use nix::fcntl::{Flock, FlockArg};
use serde_json::json;

/// Counts, so that a restored container can be told from a new one; its streams are pipes, as an engine's are.
const COUNT: &str = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done";

/// criu for this test alone, where it works: it does not on every kernel that it is installed on, and two restores at once
/// want a socket of the same name (3.17).
fn criu() -> Option<Flock<File>> {
    match Command::new("criu").arg("check").stdin(Stdio::null()).output() {
        Err(_) => skip("criu is not installed"),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
            skip(&format!("criu does not work on this kernel: {said}"));
        }
        Ok(_) => {
            let file = File::create(std::env::temp_dir().join("stockade-tests-criu")).unwrap();
            return Some(Flock::lock(file, FlockArg::LockExclusive).unwrap());
        }
    }
    None
}

/// A bundle that criu can save here: its own network takes parts of the kernel that not every one has.
fn bundle(runtime: Runtime, script: &str) -> Option<Bundle> {
    let mut bundle = Bundle::new(runtime, script)?;
    bundle.config["linux"]["namespaces"].as_array_mut().unwrap().retain(|one| one["type"] != "network");
    Some(bundle)
}

/// A command whose output goes through a pipe into a file: whoever reads it ends with the last of the container.
#[allow(clippy::zombie_processes)] // it ends with the last of the container, or with the test
fn piped(bundle: &Bundle, words: &[&str], file: &str) -> Called {
    let out = std::fs::File::create(bundle.dir.join(file)).unwrap();
    let mut cat = leaks::spawn(Command::new("cat").stdin(Stdio::piped()).stdout(out));
    let pipe = std::os::fd::OwnedFd::from(cat.stdin.take().unwrap());
    let mut command = bundle.command(words);
    let status = command.stdout(pipe.try_clone().unwrap()).stderr(pipe).status().unwrap();
    let stderr = std::fs::read(bundle.dir.join(file)).unwrap();
    Called(std::process::Output { status, stdout: Vec::new(), stderr })
}

fn last_number(bundle: &Bundle, file: &str) -> u32 {
    let text = std::fs::read_to_string(bundle.dir.join(file)).unwrap();
    text.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn wait_past(bundle: &Bundle, file: &str, number: u32) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while last_number(bundle, file) <= number {
        assert!(Instant::now() < deadline, "does not count past {number}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_saved_container_goes_on_where_it_was() {
    let Some(_alone) = criu() else { return };
    for_each_runtime(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = bundle(runtime, COUNT) else { return };
        let path = text(bundle.dir.path()).to_owned();
        piped(&bundle, &["run", "--detach", "--bundle", &path, &bundle.id], "first").expect(0);
        wait_past(&bundle, "first", 3);
        let (images, work) = (format!("{path}/images"), format!("{path}/work"));
        let save = ["checkpoint", "--image-path", &images, "--work-path", &work];
        // Left running, it runs.
        bundle.call(save.into_iter().chain(["--leave-running", &bundle.id])).expect(0);
        let reached = last_number(&bundle, "first");
        wait_past(&bundle, "first", reached);
        assert_eq!(bundle.state()["status"], "running");
        std::fs::remove_dir_all(&images).unwrap();
        bundle.call(save.into_iter().chain([bundle.id.as_str()])).expect(0);
        assert!(bundle.state().is_null(), "it is gone");
        let reached = last_number(&bundle, "first");
        let restore = ["restore", "--detach", "--image-path", &images, "--work-path", &work, "--bundle", &path];
        let pid_file = format!("{path}/pid");
        let words = restore.into_iter().chain(["--pid-file", &pid_file, &bundle.id]).collect::<Vec<_>>();
        piped(&bundle, &words, "second").expect(0);
        wait_past(&bundle, "second", reached + 2);
        let first = std::fs::read_to_string(bundle.dir.join("second")).unwrap();
        // After a warning, where there is something to warn about.
        let first: u32 = first.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
        assert!(first > 1 && first <= reached + 2, "{first} after {reached}");
        let state = bundle.state();
        assert_eq!(state["status"], "running");
        assert_eq!(std::fs::read_to_string(&pid_file).unwrap(), state["pid"].to_string());
        assert_eq!(bundle.exec("echo inside").expect(0).out(), "inside\n");
        bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
        bundle.wait_for("stopped");
        bundle.about("delete").expect(0);
    });
}

#[test]
fn a_restored_container_is_confined_as_it_was() {
    let Some(_alone) = criu() else { return };
    // The control restores a read-only root writable, and into the cgroup that the images name.
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(mut bundle) = bundle(runtime, COUNT) else { return };
        let outside = bundle.dir.dir("outside");
        std::fs::create_dir(bundle.rootfs().join("data")).unwrap();
        bundle.mount("/data", "bind", text(&outside), &["rbind", "ro"]);
        bundle.config["linux"]["resources"]["pids"] = json!({ "limit": 77 });
        bundle.config["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["mknod", "mknodat"], "action": "SCMP_ACT_ERRNO" }],
        });
        let path = text(bundle.dir.path()).to_owned();
        piped(&bundle, &["run", "--detach", "--bundle", &path, &bundle.id], "first").expect(0);
        wait_past(&bundle, "first", 1);
        let look = "grep -E '^(Cap|NoNew|Seccomp)' /proc/1/status; touch /x; touch /data/x; cat /proc/kcore | head -c 1; \
            echo 1 >/proc/sys/kernel/hostname; cat /proc/1/cgroup; cut -d' ' -f5,6 /proc/1/mountinfo | sort";
        let look = look.replace("head", "busybox head").replace("cut", "busybox cut").replace("sort", "busybox sort");
        let before = bundle.exec(&look);
        let images = format!("{path}/images");
        bundle.call(["checkpoint", "--image-path", &images, &bundle.id]).expect(0);
        let id = format!("{}-again", bundle.id);
        bundle.config["linux"]["cgroupsPath"] = json!(format!("/{id}"));
        piped(&bundle, &["restore", "--detach", "--image-path", &images, "--bundle", &path, &id], "second").expect(0);
        let after = bundle.call(["exec", &id, "sh", "-c", &look]);
        let attributes = |called: &Called| {
            let words = ["ro", "rw", "nosuid", "nodev", "noexec"];
            let kept = |line: &str| {
                let (place, flags) = line.split_once(' ').unwrap_or((line, ""));
                let kept: Vec<_> = flags.split(',').filter(|flag| words.contains(flag)).collect();
                if line.starts_with('/') { format!("{place} {}", kept.join(",")) } else { line.to_owned() }
            };
            called.out().lines().map(kept).collect::<Vec<_>>()
        };
        // Some versions of criu lose no_new_privs: then nothing that could grant privileges is left.
        let kept = after.out().contains("NoNewPrivs:\t1");
        let (mut before_lines, mut after_lines) = (attributes(&before), attributes(&after));
        if !kept {
            let mounts = after.out();
            let mut mounts = mounts.lines().filter(|line| line.starts_with('/'));
            assert!(mounts.all(|line| line.contains("nosuid")), "{after:?}");
            for lines in [&mut before_lines, &mut after_lines] {
                lines.retain(|line| !line.starts_with("NoNewPrivs"));
                lines.iter_mut().for_each(|line| *line = line.replace(",nosuid", ""));
            }
        }
        assert_eq!(before_lines, after_lines);
        assert_eq!(before.err().lines().count(), after.err().lines().count(), "{}", after.err());
        let state: serde_json::Value = serde_json::from_slice(&bundle.call(["state", &id]).0.stdout).unwrap();
        let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", state["pid"])).unwrap();
        assert!(cgroup.contains(&id), "{cgroup}");
        bundle.call(["delete", "--force", &id]).expect(0);
    });
}

#[test]
fn memory_can_be_saved_in_parts() {
    let Some(_alone) = criu() else { return };
    for_each_runtime(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = bundle(runtime, COUNT) else { return };
        let path = text(bundle.dir.path()).to_owned();
        piped(&bundle, &["run", "--detach", "--bundle", &path, &bundle.id], "first").expect(0);
        wait_past(&bundle, "first", 1);
        let (part, rest) = (format!("{path}/images/part"), format!("{path}/images/rest"));
        std::fs::create_dir(bundle.dir.join("images")).unwrap();
        let called = bundle.call(["checkpoint", "--pre-dump", "--image-path", &part, &bundle.id]);
        if called.err().contains("dirty") || called.err().contains("feature") {
            return common::skip_part("pre-dump", "this kernel does not track which memory was written to");
        }
        called.expect(0);
        assert_eq!(bundle.state()["status"], "running");
        let words = ["checkpoint", "--parent-path", "../part", "--image-path", &rest, &bundle.id];
        bundle.call(words).expect(0);
        assert!(bundle.dir.join("images/rest/parent").exists());
        let words = ["restore", "--detach", "--image-path", &rest, "--bundle", &path, &bundle.id];
        piped(&bundle, &words, "second").expect(0);
        wait_past(&bundle, "second", 2);
    });
}

#[test]
fn what_cannot_be_saved_is_said_before_anything_happens() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "sleep 60") else { return };
        bundle.create().expect(0);
        let images = bundle.dir.join("images");
        let save = |bundle: &Bundle, more: &[&str]| {
            let words = ["checkpoint", "--image-path", text(&images)];
            bundle.call(words.into_iter().chain(more.iter().copied()).chain([bundle.id.as_str()])).expect(1)
        };
        if std::path::Path::new("/usr/sbin/criu").exists() {
            save(&bundle, &[]).expect_error("cannot be saved");
            bundle.about("start").expect(0);
            save(&bundle, &["--empty-ns", "pid"]).expect_error("--empty-ns pid");
            save(&bundle, &["--parent-path", "/absolute"]).expect_error("relative");
            save(&bundle, &["--manage-cgroups-mode", "odd"]).expect_error("--manage-cgroups-mode odd");
            bundle.call(["restore", "--image-path", "/nonexistent", "other"]).expect(1).expect_error("/nonexistent");
            assert_eq!(bundle.state()["status"], "running", "nothing happened to it");
        }
        for flag in ["--lazy-pages", "--page-server=x:1", "--status-fd=3"] {
            save(&bundle, &[flag]).expect_error("is not supported");
        }
        let words = ["checkpoint", "--image-path", text(&images), &bundle.id];
        let called = Called(bundle.command(words).env("PATH", "/nonexistent").output().unwrap());
        called.expect(1).expect_error("criu: is not installed");
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        // A root whose mount points lead elsewhere, which criu would follow.
        bundle.config["linux"]["namespaces"].as_array_mut().unwrap().retain(|one| one["type"] != "network");
        let target = bundle.dir.dir("target");
        std::fs::create_dir_all(&images).unwrap();
        let _ = std::fs::remove_dir(bundle.rootfs().join("dev"));
        let _ = std::fs::remove_dir_all(bundle.rootfs().join("proc"));
        std::os::unix::fs::symlink(&target, bundle.rootfs().join("proc")).unwrap();
        if std::path::Path::new("/usr/sbin/criu").exists() {
            let words =
                ["restore", "--detach", "--image-path", text(&images), "--bundle", text(bundle.dir.path()), "x"];
            bundle.call(words).expect(1).expect_error("/proc");
            bundle.call(["state", "x"]).expect_error("does not exist");
        }
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
    });
}
