//! Bundles of other tools: unpacked from an image by `umoci unpack`, and written by `spec`. Only the command and the terminal are
//! changed, and each goes through its whole life on every runtime.

use std::path::Path;
use std::process::Command;

use crate::common::bundle::{Bundle, Runtime, for_each_runtime};
use crate::common::{Caller, TempDir, has_program, host, leaks, text};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::json;

const SCRIPT: &str = "trap 'exit 3' TERM; echo started; while :; do echo beat; sleep 0.05; done";

/// Runs one step of umoci.
fn umoci(words: &[&str]) {
    let output = Command::new("umoci").args(words).output().unwrap();
    assert!(output.status.success(), "umoci {words:?}: {output:?}");
}

/// An image layout of three layers, of which the last removes what the second added. `None` if it cannot be created.
fn image() -> Option<TempDir> {
    let dir = TempDir::new(Caller::Root);
    host::busybox_rootfs(&dir)?;
    let layout = text(&dir.join("layout")).to_owned();
    let image = format!("{layout}:small");
    let rootfs = |name: &str| text(&dir.join("rootfs").join(name)).to_owned();
    std::fs::write(rootfs("etc/gone"), "of an earlier layer\n").unwrap();
    umoci(&["init", "--layout", &layout]);
    umoci(&["new", "--image", &image]);
    umoci(&["insert", "--image", &image, &rootfs("bin"), "/bin"]);
    umoci(&["insert", "--image", &image, &rootfs("etc"), "/etc"]);
    umoci(&["insert", "--image", &image, "--whiteout", "/etc/gone"]);
    let config = ["config", "--image", &image, "--config.user", "user", "--config.workingdir", "/bin"];
    let more = ["--config.env", "PATH=/bin", "--config.env", "OF=image", "--config.volume", "/data"];
    let command = ["--config.entrypoint", "sh", "--config.entrypoint", "-c", "--config.cmd", SCRIPT];
    umoci(&config.into_iter().chain(more).chain(command).collect::<Vec<_>>());
    Some(dir)
}

/// The pids limit of a process's cgroup.
fn pids_max(pid: i32) -> String {
    let lines = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let (marker, tree) = if v2 { ("0::", "/sys/fs/cgroup") } else { (":pids:", "/sys/fs/cgroup/pids") };
    let place = lines.lines().find_map(|line| line.split_once(marker)).expect("it is in a cgroup").1;
    std::fs::read_to_string(format!("{tree}{place}/pids.max")).unwrap().trim().to_owned()
}

/// From `create` to `delete`. `look` is a script, and `seen` its expected output in a process of `exec`.
fn expect_a_whole_life(runtime: Runtime, bundle: &mut Bundle, look: &str, seen: &str) {
    leaks::adopt_orphans();
    bundle.config["process"]["terminal"] = json!(false);
    bundle.create().expect(0);
    let state = bundle.state();
    assert_eq!((&state["status"], &state["bundle"]), (&json!("created"), &json!(bundle.dir.path())));
    let pid = state["pid"].as_i64().unwrap() as i32;
    assert_eq!(bundle.printed(), "", "the program does not run yet");
    bundle.about("start").expect(0);
    bundle.wait_for_output("started\nbeat");
    assert_eq!(bundle.state()["status"], "running");

    assert_eq!(bundle.exec(look).expect(0).out(), seen);
    bundle.exec("exit 5").expect(5);

    bundle.about("pause").expect(0);
    assert_eq!(bundle.state()["status"], "paused");
    let before = bundle.printed();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(bundle.printed(), before, "it is paused");
    bundle.about("resume").expect(0);
    assert_eq!(bundle.state()["status"], "running");

    bundle.call(["update", "--pids-limit", "55", &bundle.id]).expect(0);
    assert_eq!(pids_max(pid), "55");
    bundle.exec("true").expect(0);

    bundle.about("delete").expect_error(runtime.says("not stopped", "is not in `created` or `stopped` state"));
    bundle.about("kill").expect(0);
    bundle.wait_for("stopped");
    let pid = Pid::from_raw(pid);
    assert_eq!(waitpid(pid, None).unwrap(), WaitStatus::Exited(pid, 3), "the parent gets the program's status");
    bundle.about("delete").expect(0);
    assert!(bundle.state().is_null(), "it is gone");
}

#[test]
fn a_bundle_from_umoci_runs_its_whole_life() {
    if !has_program("umoci") {
        return;
    }
    let Some(image) = image() else { return };
    for_each_runtime(|runtime| {
        let dir = TempDir::new(Caller::Root);
        umoci(&["unpack", "--image", &format!("{}:small", text(&image.join("layout"))), text(dir.path())]);
        let mut bundle = Bundle::found(runtime, dir);
        assert_eq!(bundle.config["process"]["args"], json!(["sh", "-c", SCRIPT]), "the image says what to run");
        let look = "id -u; echo $OF; busybox pwd; ls /etc; grep -c ' /data ' /proc/mounts; \
            grep NoNewPrivs /proc/1/status";
        let seen = "1000\nimage\n/bin\npasswd\n1\nNoNewPrivs:\t1\n";
        // crun's commands run as root, in `/`.
        let seen =
            if runtime == Runtime::Crun { seen.replace("1000\nimage\n/bin", "0\nimage\n/") } else { seen.into() };
        expect_a_whole_life(runtime, &mut bundle, look, &seen);
    });
}

#[test]
fn a_bundle_from_spec_runs_its_whole_life() {
    for_each_runtime(|runtime| {
        let dir = TempDir::new(Caller::Root);
        if host::busybox_rootfs(&dir).is_none() {
            return;
        }
        let spec = Command::new(Runtime::Ours.program()).args(["spec", "--bundle"]).arg(dir.path()).output().unwrap();
        assert!(spec.status.success(), "{spec:?}");
        let mut bundle = Bundle::found(runtime, dir);
        bundle.config["process"]["args"] = json!(["sh", "-c", SCRIPT]);
        if runtime == Runtime::Crun {
            bundle.config["ociVersion"] = json!("1.0.2"); // runc refuses versions that it does not know
        }
        let look = "id -u; busybox pwd; busybox hostname; (: >/made) 2>/dev/null || echo read-only; \
            grep -E 'NoNewPrivs|CapEff' /proc/1/status";
        let seen = "0\n/\nHOSTNAME\nread-only\nCapEff:\t0000000020000420\nNoNewPrivs:\t1\n";
        let seen = seen.replace("HOSTNAME", bundle.config["hostname"].as_str().unwrap());
        expect_a_whole_life(runtime, &mut bundle, look, &seen);
    });
}
