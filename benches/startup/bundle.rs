//! The input of all contestants: a work directory with a static busybox, a root, a bundle, the C floor and its filter.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use stockade::plan::Network;
use stockade::seccomp::compiled;
use stockade_seccomp::builtin::Builtin;
use stockade_seccomp::{Arch, Context};

/// A temporary work directory with all input.
pub struct Work {
    /// The directory.
    pub dir: PathBuf,
    /// A directory for runtimes' state that is not in memory.
    pub disk: PathBuf,
    /// The static program that every contestant runs. `None` if it is not installed.
    pub busybox: Option<PathBuf>,
    /// The C floor. `None` if there is no C compiler.
    pub floor: Option<PathBuf>,
}

impl Work {
    /// Creates the directory. As root it is a tmpfs in a new mount namespace. On a host with both cgroup versions the v2 mount
    /// is detached, because crun refuses such hosts.
    pub fn new() -> Result<Self, String> {
        let dir = std::env::temp_dir().join(format!("stockade-startup-{}", std::process::id()));
        let failed = |what: &'static str| move |error: nix::Error| format!("{what}: {error}");
        std::fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).map_err(|error| error.to_string())?;
        if is_root() {
            unshare(CloneFlags::CLONE_NEWNS).map_err(failed("unshare"))?;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(failed("private mounts"))?;
            // The runtimes' state directories are on a tmpfs on every host with systemd, but maybe not here.
            mount(Some("startup"), &dir, Some("tmpfs"), MsFlags::empty(), Some("mode=755")).map_err(failed("tmpfs"))?;
            if Path::new("/sys/fs/cgroup/memory/tasks").exists() {
                let _ = umount2("/sys/fs/cgroup/unified", MntFlags::MNT_DETACH);
            }
        }
        let busybox = ["/usr/bin/busybox", "/bin/busybox"].into_iter().map(PathBuf::from).find(|path| is_static(path));
        let disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("state-{}", std::process::id()));
        std::fs::create_dir(&disk).map_err(|error| format!("{}: {error}", disk.display()))?;
        let work = Self { floor: floor(&dir), busybox, dir, disk };
        work.bundle()?;
        Ok(work)
    }

    /// Writes a file into the directory and returns its path.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.join(name);
        let _ = path.parent().map(std::fs::create_dir_all);
        if let Err(error) = std::fs::write(&path, content) {
            eprintln!("startup: {}: {error}", path.display());
        }
        path
    }

    /// A bundle whose container runs this command.
    pub fn bundle_of(&self, name: &str, words: &[&str]) -> PathBuf {
        let mut config = self.config();
        config["process"]["args"] = json!(words);
        self.file(&format!("{name}/config.json"), &config.to_string());
        self.dir.join(name)
    }

    /// A file for `exec --process` with this command, and the privileges of the bundles.
    pub fn process_of(&self, name: &str, words: &[&str]) -> PathBuf {
        let mut process = self.config()["process"].take();
        process["args"] = json!(words);
        self.file(&format!("{name}.json"), &process.to_string())
    }

    fn bundle(&self) -> Result<(), String> {
        let Some(busybox) = &self.busybox else { return Ok(()) };
        let failed = |error: std::io::Error| error.to_string();
        let root = self.dir.join("rootfs");
        for name in ["bin", "etc", "proc", "sys", "dev", "tmp", "root"] {
            std::fs::create_dir_all(root.join(name)).map_err(failed)?;
        }
        std::fs::copy(busybox, root.join("bin/busybox")).map_err(failed)?;
        for applet in ["sh", "cat", "sleep", "true", "readlink"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).map_err(failed)?;
        }
        std::fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").map_err(failed)?;
        self.bundle_of("bundle", &["/bin/busybox", "true"]);
        Ok(())
    }

    /// The output of `stockade-oci spec` with Docker's capabilities and `no_new_privs`, the same for all runtimes.
    fn config(&self) -> Value {
        let spec = self.dir.join("spec");
        if !spec.join("config.json").exists() {
            let _ = std::fs::create_dir_all(&spec);
            let _ = Command::new(super::programs::STOCKADE_OCI.as_str()).args(["spec", "--bundle"]).arg(&spec).status();
        }
        let text = std::fs::read(spec.join("config.json")).unwrap_or_default();
        let mut config: Value = serde_json::from_slice(&text).unwrap_or_default();
        config["ociVersion"] = json!("1.0.2"); // the version that all runtimes know
        config["process"]["terminal"] = json!(false);
        config["process"]["noNewPrivileges"] = json!(true);
        config["process"]["rlimits"] = json!([]);
        config["root"] = json!({ "path": self.dir.join("rootfs"), "readonly": true });
        config
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = umount2(&self.dir, MntFlags::MNT_DETACH);
        let _ = std::fs::remove_dir_all(&self.dir);
        let _ = std::fs::remove_dir_all(&self.disk);
    }
}

/// Whether the benchmark runs as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether a program is static. A dynamic one would load other libraries in every root.
fn is_static(path: &Path) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    !bytes.windows(9).take(1 << 14).any(|window| window == b"/lib64/ld")
}

fn floor(dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/floor.c");
    let context = Context { arch: Arch::X86_64, kernel: (6, 1), capabilities: &[], strict: false };
    let filter = compiled::program(Builtin::Default, Network::None, &[], &[], &context).ok()?;
    let bytes: Vec<u8> = filter.instructions.iter().flat_map(|one| one.to_bytes()).collect();
    std::fs::write(dir.join("filter"), bytes).ok()?;
    let program = dir.join("floor");
    let compiled = Command::new("cc").args(["-O2", "-static", "-o"]).arg(&program).arg(source).status();
    compiled
        .is_ok_and(|status| status.success())
        .then(|| super::programs::installed(&program.display().to_string()).into())
}
