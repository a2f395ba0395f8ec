//! A container that prints how it is confined, and the states in which tests give commands about it.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::bundle::{Bundle, Called, Runtime};
use super::clock::eventually;
use super::{host, inject};

/// A long-running container that prints how it is confined, with every feature that a configuration has.
pub fn confined() -> Option<Bundle> {
    let script = inject::confined("busybox", "/scratch", "/mounted");
    let mut bundle = Bundle::new(Runtime::Ours, &format!("{script}; exec busybox sleep 60"))?;
    for place in ["proc", "dev", "sys", "scratch", "mounted", "usr"] {
        bundle.dir.dir(&format!("rootfs/{place}"));
    }
    bundle.mount("/scratch", "tmpfs", "tmpfs", &["nosuid", "nodev", "size=1m", "mode=1777"]);
    bundle.mount("/mounted", "tmpfs", "tmpfs", &["nosuid", "nodev", "size=1m", "mode=1777"]);
    let (config, id) = (&mut bundle.config, bundle.id.clone());
    let process = &mut config["process"];
    process["user"] = json!({ "uid": 1000, "gid": 1000, "additionalGids": [7] });
    process["env"].as_array_mut().unwrap().push(json!(format!("MARKER={id}")));
    for set in process["capabilities"].as_object_mut().unwrap().values_mut() {
        *set = json!([]);
    }
    process["oomScoreAdj"] = json!(100);
    let linux = &mut config["linux"];
    linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
    for kind in ["uidMappings", "gidMappings"] {
        linux[kind] = json!([{ "containerID": 0, "hostID": 100_000, "size": 65536 }]);
    }
    linux["resources"]["pids"] = json!({ "limit": 50 });
    linux["seccomp"] = json!({
        "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["mkdir"], "action": "SCMP_ACT_ERRNO" }],
    });
    if host::landlock_abi().0 >= 3 {
        let rules = json!({ "mode": "require", "write": ["/scratch", "/dev/null"] });
        config["annotations"] = json!({ "org.stockade.landlock": rules.to_string() });
    }
    Some(bundle)
}

/// The state of the container before the command in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Before {
    Nothing,
    Created,
    Running,
    Paused,
    Stopped,
}

/// Runs a command without output. Returns whether it succeeded.
pub fn quietly(bundle: &Bundle, words: &[&str]) -> bool {
    let mut command = bundle.command(words);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

/// Runs a command under a tool. The output is also in the bundle's `said`.
pub fn by(bundle: &Bundle, tool: &[String], words: &[&str]) -> Called {
    let mut command = Command::new(&tool[0]);
    let (out, err) = (bundle.dir.join("said"), bundle.dir.join("complaint"));
    let file = |path| std::fs::File::create(path).unwrap();
    bundle.command(["x"]); // writes the configuration
    command.args(&tool[1..]).arg(Runtime::Ours.program()).arg("--root").arg(bundle.dir.join("state")).args(words);
    // Files, not pipes, because a container keeps its streams open.
    let status = command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err)).status().unwrap();
    let read = |path| std::fs::read(path).unwrap();
    Called(Output { status, stdout: read(&out), stderr: read(&err) })
}

/// Brings a container into a state.
pub fn prepare(bundle: &Bundle, before: Before) {
    assert!(quietly(bundle, &["delete", "--force", &bundle.id]));
    if before != Before::Nothing {
        bundle.create().expect(0);
    }
    if matches!(before, Before::Running | Before::Paused | Before::Stopped) {
        bundle.about("start").expect(0);
    }
    match before {
        Before::Paused => drop(bundle.about("pause").expect(0)),
        Before::Stopped => {
            bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
            bundle.wait_for("stopped");
        }
        _ => {}
    }
}

/// Waits until a file holds the container's whole output, and returns it.
pub fn said_in(bundle: &Bundle, name: &str) -> String {
    let said = || std::fs::read_to_string(bundle.dir.join(name)).unwrap_or_default();
    let _ = eventually(|| said().ends_with("whole\n"));
    said()
}

/// The output of the container of [`confined`] without a fault.
pub fn plainly(bundle: &Bundle) -> Vec<String> {
    prepare(bundle, Before::Running);
    let plain = inject::normal(&said_in(bundle, "out"));
    assert!(plain.iter().any(|line| line == "touched /scratch"), "{plain:#?}");
    if !bundle.config["annotations"].is_null() {
        assert!(!plain.iter().any(|line| line == "touched /mounted"), "Landlock: {plain:#?}");
    }
    plain
}
