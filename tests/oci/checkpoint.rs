//! Saving and restoring containers with criu: a restored container continues, and is confined as before.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common;
use crate::common::bundle::{Bundle, Called, Runtime, for_each_runtime, ours};
use crate::common::clock::eventually;
use crate::common::{inject, leaks, skip, text};
use nix::fcntl::{Flock, FlockArg};
use serde_json::json;

/// A counter, which tells a restored container from a new one. Its streams are pipes, as an engine's are.
const COUNT: &str = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done";

/// criu, locked for this test, if it works on this kernel. Two concurrent restores would use a socket of the same name (3.17).
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

/// A bundle that criu can save here. A network namespace of its own needs kernel features that may be missing.
fn bundle(runtime: Runtime, script: &str) -> Option<Bundle> {
    let mut bundle = Bundle::new(runtime, script)?;
    bundle.config["linux"]["namespaces"].as_array_mut().unwrap().retain(|one| one["type"] != "network");
    Some(bundle)
}

/// A command whose output goes through a pipe into a file. The reader ends with the last process of the container.
fn piped(bundle: &Bundle, words: &[&str], file: &str) -> Called {
    piped_of(bundle, bundle.command(words), file)
}

#[allow(clippy::zombie_processes)] // the reader ends with the container's last process, or with the test
fn piped_of(bundle: &Bundle, mut command: Command, file: &str) -> Called {
    let out = std::fs::File::create(bundle.dir.join(file)).unwrap();
    let mut cat = leaks::spawn(Command::new("cat").stdin(Stdio::piped()).stdout(out));
    let pipe = std::os::fd::OwnedFd::from(cat.stdin.take().unwrap());
    let status = command.stdout(pipe.try_clone().unwrap()).stderr(pipe).status().unwrap();
    let stderr = std::fs::read(bundle.dir.join(file)).unwrap();
    Called(std::process::Output { status, stdout: Vec::new(), stderr })
}

fn last_number(bundle: &Bundle, file: &str) -> u32 {
    let text = std::fs::read_to_string(bundle.dir.join(file)).unwrap();
    text.lines().rev().find_map(|line| line.trim_end().parse().ok()).unwrap_or(0)
}

fn wait_past(bundle: &Bundle, file: &str, number: u32) {
    assert!(eventually(|| last_number(bundle, file) > number), "does not count past {number}");
}

#[test]
fn a_saved_container_goes_on_where_it_was() {
    let Some(_alone) = criu() else { return };
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // Debian's is built without it
        }
        leaks::adopt_orphans();
        let Some(bundle) = bundle(runtime, COUNT) else { return };
        let path = text(bundle.dir.path()).to_owned();
        piped(&bundle, &["run", "--detach", "--bundle", &path, &bundle.id], "first").expect(0);
        wait_past(&bundle, "first", 3);
        let (images, work) = (format!("{path}/images"), format!("{path}/work"));
        let save = ["checkpoint", "--image-path", &images, "--work-path", &work];
        // With `--leave-running` the container continues.
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
        // The first line may be a warning.
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
    // The control restores a read-only root writable, and enters the cgroup that the images name.
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
        // Some versions of criu lose no_new_privs. Then nothing that could grant privileges is left.
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

/// An engine at its console socket: receives the one descriptor, types a line periodically, and prints what it reads.
const ENGINE: &str = r#"
import os, socket, sys, threading, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
master = socket.recv_fds(listener.accept()[0], 64, 1)[1][0]
def types():
    while True:
        os.write(master, sys.argv[2].encode() + b"\n")
        time.sleep(0.5)
threading.Thread(target=types, daemon=True).start()
try:
    while chunk := os.read(master, 512):
        os.write(1, chunk)
except OSError:
    pass
"#;

#[test]
fn a_restored_terminal_goes_to_the_console_socket() {
    let Some(_alone) = criu() else { return };
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // Debian's is built without it
        }
        leaks::adopt_orphans();
        let script = "i=0; while read word; do i=$((i+1)); echo \"$word $(tty) $(stty size)\"; echo $i; done";
        let Some(mut bundle) = bundle(runtime, script) else { return };
        bundle.config["process"]["terminal"] = json!(true);
        bundle.config["process"]["consoleSize"] = json!({ "height": 33, "width": 77 });
        bundle.dir.file("engine.py", ENGINE);
        let path = text(bundle.dir.path()).to_owned();
        let engine = |word: &str| {
            let socket = bundle.dir.join(&format!("{word}.sock"));
            let out = File::create(bundle.dir.join(word)).unwrap();
            let mut engine = Command::new(common::PYTHON);
            engine.arg(bundle.dir.join("engine.py")).arg(&socket).arg(word).stdin(Stdio::null()).stdout(out);
            let engine = leaks::spawn(&mut engine);
            while !socket.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            (engine, text(&socket).to_owned())
        };
        let quiet = |words: &[&str]| {
            let said = File::create(bundle.dir.join("said")).unwrap();
            let status = bundle.command(words).stdout(said.try_clone().unwrap()).stderr(said).status().unwrap();
            assert!(status.success(), "{}", std::fs::read_to_string(bundle.dir.join("said")).unwrap());
        };
        let (mut first, socket) = engine("first");
        quiet(&["run", "--detach", "--console-socket", &socket, "--bundle", &path, &bundle.id]);
        wait_past(&bundle, "first", 2);
        let images = format!("{path}/images");
        quiet(&["checkpoint", "--image-path", &images, &bundle.id]);
        first.wait().unwrap();
        let reached = last_number(&bundle, "first");
        let (mut second, socket) = engine("second");
        let words = ["restore", "--detach", "--image-path", &images, "--bundle", &path, "--console-socket", &socket];
        quiet(&words.into_iter().chain([bundle.id.as_str()]).collect::<Vec<_>>());
        // The last lines that the first engine typed may be read first.
        wait_past(&bundle, "second", reached);
        let told = || std::fs::read_to_string(bundle.dir.join("second")).unwrap();
        assert!(eventually(|| told().contains("second /dev/pts/0 33 77")), "{}", told());
        bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
        bundle.wait_for("stopped");
        bundle.about("delete").expect(0);
        second.wait().unwrap();
    });
}

#[test]
fn a_network_namespace_by_path_is_entered_again() {
    let Some(_alone) = criu() else { return };
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // Debian's is built without it
        }
        leaks::adopt_orphans();
        let Some(mut bundle) = Bundle::new(runtime, COUNT) else { return };
        let mut holder = Command::new("unshare");
        let script = "ip address add 192.0.2.77/32 dev lo && ip link set lo up && echo up && exec sleep 600";
        let mut holder = leaks::spawn(holder.args(["--net", "sh", "-c", script]).stdout(Stdio::piped()));
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
        let namespace = format!("/proc/{}/ns/net", holder.id());
        for one in bundle.config["linux"]["namespaces"].as_array_mut().unwrap() {
            if one["type"] == "network" {
                one["path"] = json!(namespace);
            }
        }
        let path = text(bundle.dir.path()).to_owned();
        piped(&bundle, &["run", "--detach", "--bundle", &path, &bundle.id], "first").expect(0);
        wait_past(&bundle, "first", 2);
        let images = format!("{path}/images");
        bundle.call(["checkpoint", "--image-path", &images, &bundle.id]).expect(0);
        let reached = last_number(&bundle, "first");
        let restore = ["restore", "--detach", "--image-path", &images, "--bundle", &path, &bundle.id];
        piped(&bundle, &restore, "second").expect(0);
        wait_past(&bundle, "second", reached + 2);
        let found = std::fs::read_link(format!("/proc/{}/ns/net", bundle.state()["pid"])).unwrap();
        assert_eq!(found, std::fs::read_link(&namespace).unwrap());
        assert!(bundle.exec("busybox ip address show dev lo").expect(0).out().contains("192.0.2.77"));
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        holder.kill().unwrap();
        holder.wait().unwrap();
    });
}

/// Makes calls of a command about a container fail. `prepare` runs before each, and `judge` checks each outcome.
fn sweep(bundle: &Bundle, words: &[&str], most: usize, prepare: impl Fn(), judge: impl Fn(&str, &Called)) {
    let list = bundle.dir.join("calls");
    let faulty = |what: &[&str]| {
        prepare();
        let tool = inject::words(what);
        let plain = bundle.command(words);
        let mut command = Command::new(&tool[0]);
        command.args(&tool[1..]).arg(plain.get_program()).args(plain.get_args());
        piped_of(bundle, command, "said")
    };
    judge("none, only traced", &faulty(&[text(&list)]).expect(0));
    let calls = inject::listed(&list);
    // The work of saving or restoring is done before the last openat(2).
    let last = calls.iter().rfind(|call| call[1] == "257").cloned().map(|call| (call, "EMFILE"));
    for ([process, number, nth], error) in inject::some(calls, most).into_iter().chain(last) {
        let fault = format!("{}, process {process}, call {number}, time {nth}: {error}", words[0]);
        eprintln!("{fault}");
        let called = faulty(&[&process, &number, &nth, error]);
        assert!(called.0.status.success() || !called.err().is_empty(), "{fault}: {called:?}");
        assert!(!called.err().contains("panicked"), "{fault}: {called:?}");
        judge(&fault, &called);
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        bundle.expect_nothing_left(&fault);
    }
}

#[test]
fn failing_calls_of_checkpoint_and_restore_lose_no_container() {
    let Some(_alone) = criu() else { return };
    if !inject::may_inject() {
        return;
    }
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = bundle(runtime, COUNT) else { return };
        let path = text(bundle.dir.path()).to_owned();
        let images = format!("{path}/images");
        let save = ["checkpoint", "--image-path", &images, &bundle.id];
        let restore = ["restore", "--detach", "--image-path", &images, "--bundle", &path, &bundle.id];
        let gone = || drop(bundle.call(["delete", "--force", &bundle.id]).expect(0));
        let runs = || {
            gone();
            piped(&bundle, &["run", "--detach", "--bundle", &path, &bundle.id], "first").expect(0);
            wait_past(&bundle, "first", 1);
        };
        let begun = || {
            runs();
            let _ = std::fs::remove_dir_all(&images);
        };
        sweep(&bundle, &save, 4, begun, |fault, called| {
            let state = bundle.state();
            assert!(!called.0.status.success() || state.is_null(), "{fault}: {state}");
            let reached = last_number(&bundle, "first");
            if state["status"] == "running" {
                return wait_past(&bundle, "first", reached);
            }
            // A container that no longer runs is in the images.
            gone();
            piped(&bundle, &restore, "second").expect(0);
            wait_past(&bundle, "second", reached);
        });
        begun();
        bundle.call(save).expect(0);
        let reached = last_number(&bundle, "first");
        sweep(&bundle, &restore, 5, gone, |fault, called| {
            let running = bundle.state()["status"] == "running";
            assert_eq!(running, called.0.status.success(), "{fault}: {called:?}");
            if running {
                wait_past(&bundle, "said", reached);
            }
        });
        gone();
        // The images are unchanged.
        piped(&bundle, &restore, "second").expect(0);
        wait_past(&bundle, "second", reached);
        gone();
    });
}

#[test]
fn memory_can_be_saved_in_parts() {
    let Some(_alone) = criu() else { return };
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // Debian's is built without it
        }
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
fn an_impossible_checkpoint_is_refused_before_it_starts() {
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
            assert_eq!(bundle.state()["status"], "running", "it was not changed");
        }
        for flag in ["--lazy-pages", "--page-server=x:1", "--status-fd=3"] {
            save(&bundle, &[flag]).expect_error("is not supported");
        }
        let words = ["checkpoint", "--image-path", text(&images), &bundle.id];
        let called = Called(bundle.command(words).env("PATH", "/nonexistent").output().unwrap());
        called.expect(1).expect_error("criu: is not installed");
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        // A root with symlinks as mount points, which criu would follow.
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
