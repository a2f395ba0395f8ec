//! Docker, containerd and Podman, each with its own daemons, data and sockets below the work directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::bundle::{Work, is_root};
use super::contest::{Claim, Contestant, find};
use super::programs::STOCKADE_OCI;

/// The running engines.
pub struct Engines {
    daemons: Vec<Child>,
    docker: Result<String, String>,
    containerd: Result<String, String>,
    podman: Result<String, String>,
    /// Parent cgroups of Docker's and Podman's containers that did not exist before.
    parents: Vec<PathBuf>,
}

/// The confinement of an engine's container: Docker's filter and capabilities.
const ENGINE: Claim = Claim {
    namespaces: &["mnt", "pid", "net", "ipc", "uts"],
    filter: true,
    no_new_privs: false,
    no_capabilities: false,
    read_only_root: false,
};

impl Engines {
    /// Starts the installed engines.
    pub fn start(work: &Work, wanted: bool) -> Self {
        let none = || Err(if is_root() { "left out" } else { "requires root" }.to_owned());
        let mut engines =
            Self { daemons: Vec::new(), docker: none(), containerd: none(), podman: none(), parents: Vec::new() };
        if !wanted || !is_root() || work.busybox.is_none() {
            return engines;
        }
        let archive = work.dir.join("root.tar");
        let root = work.dir.join("rootfs");
        if !succeeds(Command::new("tar").arg("-C").arg(root).arg("-cf").arg(&archive).arg(".")) {
            return engines;
        }
        engines.parents = parents().filter(|parent| !parent.exists()).collect();
        engines.docker = engines.docker(work, &archive);
        engines.containerd = engines.containerd(work);
        engines.podman = podman(work, &archive);
        engines
    }

    fn daemon(&mut self, command: &mut Command, log: PathBuf) -> Result<(), String> {
        let log = File::create(log).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        self.daemons.push(child.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn docker(&mut self, work: &Work, archive: &Path) -> Result<String, String> {
        let daemon = find("dockerd").ok_or("not installed")?;
        let client = ["/usr/bin/docker"].into_iter().find(|path| Path::new(path).exists()).ok_or("not installed")?;
        let d = work.dir.join("docker");
        let crun = find("crun").unwrap_or_default();
        let runtimes = serde_json::json!({ "runtimes": { "stockade": { "path": STOCKADE_OCI.as_str() }, "crun": { "path": crun } } });
        let config = work.file("docker/config.json", &runtimes.to_string());
        let socket = format!("unix://{}/sock", d.display());
        let mut command = Command::new(daemon);
        command.arg("--config-file").arg(config).arg("--data-root").arg(d.join("data")).arg("--exec-root");
        command.arg(d.join("exec")).arg("--pidfile").arg(d.join("pid")).args(["-H", &socket]);
        command.args([
            "--iptables=false",
            "--ip6tables=false",
            "--bridge=none",
            "--ip-forward=false",
            "--ip-masq=false",
        ]);
        self.daemon(&mut command, d.join("log"))?;
        if !wait_until(|| succeeds(Command::new(client).args(["-H", &socket, "version"]))) {
            return Err("its daemon does not start".into());
        }
        if !succeeds(Command::new(client).args(["-H", &socket, "import"]).arg(archive).arg("startup:1")) {
            return Err("does not import the image".into());
        }
        let image = work.dir.join("image.tar");
        succeeds(Command::new(client).args(["-H", &socket, "save", "-o"]).arg(&image).arg("startup:1"));
        Ok(socket)
    }

    fn containerd(&mut self, work: &Work) -> Result<String, String> {
        let daemon = find("containerd").ok_or("not installed")?;
        let client = find("ctr").ok_or("not installed")?;
        let image = work.dir.join("image.tar");
        if !image.exists() {
            return Err("has no image without Docker".into());
        }
        let c = work.dir.join("containerd");
        let at = c.display();
        let config = format!(
            "version = 2\nroot = \"{at}/root\"\nstate = \"{at}/state\"\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = \"{at}/sock\"\n[ttrpc]\naddress = \"{at}/ttrpc\"\n"
        );
        let config = work.file("containerd/config.toml", &config);
        self.daemon(Command::new(daemon).arg("-c").arg(config), c.join("log"))?;
        let socket = format!("{at}/sock");
        if !wait_until(|| succeeds(Command::new(&client).args(["-a", &socket, "version"]))) {
            return Err("its daemon does not start".into());
        }
        let imported = succeeds(Command::new(&client).args(["-a", &socket, "image", "import"]).arg(image));
        if imported { Ok(socket) } else { Err("does not import the image".into()) }
    }

    /// Each engine with each runtime.
    pub fn contestants(&self, work: &Work) -> Vec<Contestant> {
        let mut all = Vec::new();
        for (name, runtime) in
            [("docker run, runc", "runc"), ("docker run, crun", "crun"), ("docker run, stockade", "stockade")]
        {
            all.push(match &self.docker {
                Err(why) => Contestant::without(name, why),
                Ok(_) if runtime == "crun" && find("crun").is_none() => Contestant::without(name, "not installed"),
                Ok(socket) => {
                    let words =
                        ["/usr/bin/docker", "-H", socket, "run", "--rm", "--runtime", runtime, "--network", "none"];
                    Contestant::engine(name, &words, &["startup:1"], ENGINE)
                }
            });
        }
        for (name, runtime) in [
            ("podman run, runc", "runc"),
            ("podman run, crun", "crun"),
            ("podman run, stockade", STOCKADE_OCI.as_str()),
        ] {
            all.push(match (&self.podman, find(runtime)) {
                (Err(why), _) => Contestant::without(name, why),
                (_, None) => Contestant::without(name, "not installed"),
                (Ok(podman), Some(runtime)) => {
                    let options = podman_options(work, &runtime);
                    let mut words = vec![podman.as_str()];
                    words.extend(options.iter().map(String::as_str));
                    words.extend(["run", "--rm", "--network", "none"]);
                    words.extend(["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]);
                    Contestant::engine(name, &words, &["startup:1"], ENGINE)
                }
            });
        }
        for (name, runtime) in
            [("ctr run, runc", "runc"), ("ctr run, crun", "crun"), ("ctr run, stockade", STOCKADE_OCI.as_str())]
        {
            all.push(match (&self.containerd, find(runtime)) {
                (Err(why), _) => Contestant::without(name, why),
                (_, None) => Contestant::without(name, "not installed"),
                (Ok(socket), Some(runtime)) => {
                    let ctr = find("ctr").unwrap_or_default();
                    let words = [ctr.as_str(), "-a", socket, "run", "--rm", "--runc-binary", &runtime];
                    let claim = Claim { filter: false, ..ENGINE };
                    Contestant::engine(name, &words, &["docker.io/library/startup:1", "startup-{}"], claim)
                }
            });
        }
        all
    }
}

impl Drop for Engines {
    /// Ends only the daemons that were started here, and removes the cgroups that they leave.
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let pid = nix::unistd::Pid::from_raw(daemon.id() as i32);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            if !wait_until(|| daemon.try_wait().is_ok_and(|status| status.is_some())) {
                let _ = daemon.kill();
                let _ = daemon.wait();
            }
        }
        for parent in &self.parents {
            let _ = std::fs::remove_dir(parent); // fails if it does not exist or is not empty
        }
    }
}

/// The parent cgroups of engines, in cgroup v2 and in each hierarchy of v1.
fn parents() -> impl Iterator<Item = PathBuf> {
    let top = PathBuf::from("/sys/fs/cgroup");
    let below = std::fs::read_dir(&top).into_iter().flatten().flatten().map(|entry| entry.path());
    let tops: Vec<_> = std::iter::once(top).chain(below).collect();
    tops.into_iter().flat_map(|top| ["docker", "libpod_parent/conmon", "libpod_parent"].map(|name| top.join(name)))
}

fn podman(work: &Work, archive: &Path) -> Result<String, String> {
    let podman = find("podman").ok_or("not installed")?;
    let runtime = find("runc").or_else(|| find("crun")).ok_or("has no runtime")?;
    let imported = succeeds(
        Command::new(&podman).args(podman_options(work, &runtime)).arg("import").arg(archive).arg("startup:1"),
    );
    if imported { Ok(podman) } else { Err("does not import the image".into()) }
}

fn podman_options(work: &Work, runtime: &str) -> Vec<String> {
    let p = work.dir.join("podman");
    let at = |name: &str| p.join(name).display().to_string();
    [
        ["--root".to_owned(), at("root")],
        ["--runroot".to_owned(), at("run")],
        ["--tmpdir".to_owned(), at("tmp")],
        ["--storage-driver".to_owned(), "overlay".to_owned()],
        ["--cgroup-manager".to_owned(), "cgroupfs".to_owned()],
        ["--events-backend".to_owned(), "file".to_owned()],
        ["--runtime".to_owned(), runtime.to_owned()],
    ]
    .concat()
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn wait_until(mut ready: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if ready() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    false
}
