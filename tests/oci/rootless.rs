//! Containers of callers without privilege: with ids from subordinate ranges, and with or without delegated cgroups.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common;
use crate::common::bundle::{Called, Runtime};
use crate::common::clock::eventually;
use crate::common::{Caller, TempDir, host, leaks, skip, text, unique};
use serde_json::{Value, json};

/// A bundle that belongs to the unprivileged caller.
struct Own {
    dir: TempDir,
    program: PathBuf,
    config: Value,
    /// The words in front of the program that change to the caller.
    before: Vec<String>,
}

impl Own {
    fn new(script: &str) -> Option<Self> {
        if !common::is_root() {
            skip("not root, so cannot become another user");
            return None;
        }
        let dir = TempDir::new(Caller::Unprivileged);
        host::busybox_rootfs(&dir)?;
        // A path where the caller can execute it.
        let program = dir.join("runtime");
        std::fs::copy(Runtime::Ours.program(), &program).unwrap();
        let mut own = Self { dir, program, config: Value::Null, before: Caller::Unprivileged.become_words() };
        own.call(&["spec", "--rootless"]).expect(0);
        own.config = serde_json::from_slice(&std::fs::read(own.dir.join("config.json")).unwrap()).unwrap();
        own.config["process"]["terminal"] = json!(false);
        own.config["process"]["args"] = json!(["sh", "-c", script]);
        Some(own)
    }

    fn command(&self, words: &[&str]) -> Command {
        if !self.config.is_null() {
            self.dir.file("config.json", self.config.to_string());
        }
        let mut command = Command::new(&self.before[0]);
        command.args(&self.before[1..]).arg(&self.program).args(words).current_dir(self.dir.path());
        command.env("XDG_RUNTIME_DIR", self.dir.path()).stdin(Stdio::null());
        command
    }

    fn call(&self, words: &[&str]) -> Called {
        Called(self.command(words).output().unwrap())
    }

    /// As [`Self::call`], for a command that leaves a container with its streams behind.
    fn detach(&self, words: &[&str]) -> bool {
        let out = std::fs::File::create(self.dir.join("out")).unwrap();
        let status = self.command(words).stdout(out.try_clone().unwrap()).stderr(out).status();
        let fine = status.unwrap().success();
        if !fine {
            eprintln!("{}", std::fs::read_to_string(self.dir.join("out")).unwrap());
        }
        fine
    }

    /// Enters a cgroup first.
    fn within(&mut self, cgroup: &Path) {
        let words = ["sh", "-c", "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"", "sh", text(cgroup)];
        self.before = words.into_iter().map(str::to_owned).chain(Caller::Unprivileged.become_words()).collect();
    }
}

#[test]
fn subordinate_ranges_are_mapped_and_used() {
    if !Path::new("/usr/bin/newuidmap").exists() {
        return skip("there is no newuidmap");
    }
    let script = "cat /proc/self/uid_map; echo x >/own; busybox chown 5:6 /own; busybox stat -c '%u %g' /own";
    let Some(mut own) = Own::new(script) else { return };
    let (uid, gid) = Caller::Unprivileged.ids();
    let ranges = own.dir.file("ranges", format!("{}:700000:65536\n", common::UNPRIVILEGED.2));
    // Replaces the files in a private mount namespace.
    let enter = "mount --bind \"$1\" /etc/subuid && mount --bind \"$1\" /etc/subgid && shift && exec \"$@\"";
    let words = ["unshare", "-m", "--propagation", "private", "sh", "-c", enter, "sh", text(&ranges)];
    own.before = words.into_iter().map(str::to_owned).chain(Caller::Unprivileged.become_words()).collect();
    for file in ["/etc/subuid", "/etc/subgid"] {
        if !Path::new(file).exists() {
            return skip(&format!("there is no {file}"));
        }
    }
    let map = |id: u32| json!([{ "containerID": 0, "hostID": id, "size": 1 }, { "containerID": 1, "hostID": 700_000, "size": 65_536 }]);
    own.config["linux"]["uidMappings"] = map(uid);
    own.config["linux"]["gidMappings"] = map(gid);
    own.config["root"]["readonly"] = json!(false);
    for set in ["bounding", "effective", "permitted"] {
        own.config["process"]["capabilities"][set] = json!(["CAP_CHOWN"]);
    }
    let said = own.call(&["run", "one"]).expect(0).out();
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words, ["0", &uid.to_string(), "1", "1", "700000", "65536", "5", "6"]);
    let made = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(own.dir.join("rootfs/own")).unwrap());
    assert_eq!(made, 700_004, "on the host the id is in the caller's range");
    // A range that does not belong to the caller.
    own.config["linux"]["uidMappings"][1]["hostID"] = json!(900_000);
    own.call(&["run", "two"]).expect(1).expect_error("newuidmap");
    assert_eq!(own.call(&["list", "-q"]).expect(0).out(), "", "nothing is left");
}

/// A cgroup that belongs to the caller, removed on drop.
struct Delegated(PathBuf);

impl Delegated {
    fn new(parent: &Path, name: &str) -> Self {
        let path = parent.join(name);
        std::fs::create_dir(&path).unwrap();
        for controller in ["+memory", "+pids", "+cpu"] {
            std::fs::write(parent.join("cgroup.subtree_control"), controller).unwrap();
        }
        let (uid, gid) = Caller::Unprivileged.ids();
        for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            std::os::unix::fs::chown(path.join(file), Some(uid), Some(gid)).unwrap();
        }
        Self(path)
    }

    /// A cgroup below it, for the caller itself.
    fn leaf(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir(&path).unwrap();
        let (uid, gid) = Caller::Unprivileged.ids();
        for file in ["", "cgroup.procs"] {
            std::os::unix::fs::chown(path.join(file), Some(uid), Some(gid)).unwrap();
        }
        path
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        fn remove(path: &Path) {
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
                remove(&entry.path());
            }
            let _ = std::fs::remove_dir(path);
        }
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        let _ = eventually(|| {
            remove(&self.0);
            !self.0.exists()
        });
    }
}

fn is_v2() -> bool {
    let there = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    if !there {
        skip("cgroup v2 has no controllers here");
    }
    there && common::is_root()
}

#[test]
fn a_delegated_cgroup_enforces_limits() {
    if !is_v2() {
        return;
    }
    leaks::adopt_orphans();
    let Some(mut own) = Own::new("sleep 60") else { return };
    let delegated = Delegated::new(Path::new("/sys/fs/cgroup"), &unique());
    own.within(&delegated.leaf("caller"));
    own.config["linux"]["resources"] = json!({ "pids": { "limit": 17 }, "memory": { "limit": 64 << 20 } });
    assert!(own.detach(&["run", "--detach", "limited"]));
    let cgroup = delegated.0.join("limited");
    let read = |file: &str| std::fs::read_to_string(cgroup.join(file)).unwrap().trim().to_owned();
    assert_eq!((read("pids.max"), read("memory.max")), ("17".into(), (64 << 20).to_string()));
    own.call(&["update", "--pids-limit", "18", "limited"]).expect(0);
    assert_eq!(read("pids.max"), "18");
    own.call(&["pause", "limited"]).expect(0);
    assert!(own.call(&["state", "limited"]).out().contains("\"paused\""));
    own.call(&["resume", "limited"]).expect(0);
    let pids: Vec<i32> = serde_json::from_slice(&own.call(&["ps", "-f", "json", "limited"]).0.stdout).unwrap();
    assert_eq!(pids.len(), 1);
    own.call(&["exec", "limited", "true"]).expect(0);
    own.call(&["delete", "--force", "limited"]).expect(0);
    assert!(!cgroup.exists());
}

/// `systemd --user`, as it runs for a session, in a delegated cgroup of its own.
struct Manager {
    process: std::process::Child,
    runtime: TempDir,
    cgroup: Delegated,
    _outer: Delegated,
}

impl Manager {
    fn start() -> Option<Self> {
        const SYSTEMD: &str = "/usr/lib/systemd/systemd";
        if !is_v2() {
            return None;
        }
        if !Path::new(SYSTEMD).exists() {
            skip("systemd is not installed");
            return None;
        }
        let outer = Delegated::new(Path::new("/sys/fs/cgroup"), &unique());
        let cgroup = Delegated::new(&outer.0, &format!("user@{}.service", Caller::Unprivileged.ids().0));
        let runtime = TempDir::new(Caller::Unprivileged);
        let home = runtime.dir("home");
        common::set_mode(runtime.path(), 0o700);
        // It runs only if it believes that systemd booted the system.
        let enter = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"";
        let mut manager = Command::new("unshare");
        manager.args(["-m", "--propagation", "private", "sh", "-c", enter, "sh"]).arg(&cgroup.0);
        manager.args(Caller::Unprivileged.become_words()).args([SYSTEMD, "--user"]);
        manager.env_clear().env("PATH", common::PATH).env("HOME", &home).env("XDG_RUNTIME_DIR", runtime.path());
        manager.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = leaks::spawn(&mut manager);
        let has_socket = eventually(|| runtime.join("systemd/private").exists());
        assert!(has_socket, "systemd has no socket: {:?}", process.try_wait());
        Some(Self { process, runtime, cgroup, _outer: outer })
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        leaks::forget(&self.process);
    }
}

#[test]
fn a_systemd_scope_has_the_requested_slice_limits_and_properties() {
    let Some(manager) = Manager::start() else { return };
    let Some(mut own) = Own::new("sleep 60") else { return };
    own.within(&manager.cgroup.leaf("terminal.scope"));
    let id = unique();
    own.config["linux"]["cgroupsPath"] = json!(format!("work-deep.slice:stkt:{id}"));
    own.config["linux"]["resources"] = json!({ "pids": { "limit": 17 }, "memory": { "limit": 64 << 20 }, "cpu": { "quota": 50_000, "period": 100_000 } });
    own.config["annotations"] = json!({
        "org.systemd.property.Description": "'a container of the tests'",
        "org.systemd.property.TimeoutStopUSec": "uint64 1234567",
    });
    let call = |own: &Own, words: &[&str]| {
        let mut command = own.command(&[&["--systemd-cgroup"], words].concat());
        command.env("XDG_RUNTIME_DIR", manager.runtime.path());
        command
    };
    let out = std::fs::File::create(own.dir.join("out")).unwrap();
    let mut create = call(&own, &["create", &id]);
    let status = create.stdout(out.try_clone().unwrap()).stderr(out).status().unwrap();
    assert!(status.success(), "{}", std::fs::read_to_string(own.dir.join("out")).unwrap());
    let unit = format!("stkt-{id}.scope");
    let cgroup = manager.cgroup.0.join("work.slice/work-deep.slice").join(&unit);
    let read = |file: &str| std::fs::read_to_string(cgroup.join(file)).unwrap_or_default().trim().to_owned();
    assert!(cgroup.is_dir(), "it is below its slice");
    assert_eq!((read("pids.max"), read("memory.max")), ("17".into(), (64 << 20).to_string()));
    let properties = |unit: &str| {
        let mut systemctl = Caller::Unprivileged.command("systemctl");
        systemctl.args(["--user", "show", unit]).env("XDG_RUNTIME_DIR", manager.runtime.path());
        systemctl.env_remove("DBUS_SESSION_BUS_ADDRESS");
        String::from_utf8(systemctl.output().unwrap().stdout).unwrap()
    };
    let seen = properties(&unit);
    for property in [
        "Description=a container of the tests",
        "TasksMax=17",
        "MemoryMax=67108864",
        "Delegate=yes",
        "TimeoutStopUSec=1.234567s",
    ] {
        assert!(seen.lines().any(|line| line == property), "{property} is not in\n{seen}");
    }
    // Changed in the kernel and in systemd, which would otherwise reset it.
    Called(call(&own, &["update", "--pids-limit", "19", &id]).output().unwrap()).expect(0);
    assert_eq!(read("pids.max"), "19");
    assert!(properties(&unit).contains("TasksMax=19"));
    Called(call(&own, &["start", &id]).output().unwrap()).expect(0);
    Called(call(&own, &["exec", &id, "true"]).output().unwrap()).expect(0);
    // A second container of the same name is refused, and does not affect the first.
    let mut config = own.config.clone();
    std::mem::swap(&mut own.config, &mut config);
    let again = Called(call(&own, &["create", &format!("{id}x")]).output().unwrap());
    assert!(!again.0.status.success());
    assert_eq!(read("pids.max"), "19");
    Called(call(&own, &["delete", "--force", &id]).output().unwrap()).expect(0);
    let is_gone = || !cgroup.exists() && !properties(&unit).contains("ActiveState=active");
    assert!(eventually(is_gone), "the scope is left");
    // Invalid unit names, and unknown properties.
    for (path, property) in [("a:b", "'x'"), ("nonsense:stkt:x", "'x'"), ("app.slice:stkt:x", "['x']")] {
        own.config["linux"]["cgroupsPath"] = json!(path);
        own.config["annotations"] = json!({ "org.systemd.property.Description": property });
        assert!(!call(&own, &["create", "wrong"]).output().unwrap().status.success(), "{path} {property}");
    }
    own.config["annotations"] = json!({});
    own.config["linux"]["cgroupsPath"] = json!(format!("app.slice:stkt:{id}y"));
    let mut nobody = own.command(&["--systemd-cgroup", "create", "nobody"]);
    let nobody = Called(nobody.env("XDG_RUNTIME_DIR", own.dir.path()).output().unwrap());
    nobody.expect(1).expect_error("no systemd answers");
}
