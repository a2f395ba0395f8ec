//! `checkpoint`: saves a container's processes to files with criu.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::criu::{Criu, Message, Request, fd_number};
use super::record::Status;

use super::{Runtime, delete};
use crate::container::gate;
use crate::error::{Error, Result, Step};
use crate::plan::ContainerPlan;
use crate::plan::container::{MountSource, NamespaceKind};
use crate::sys::process;

/// The file with the targets of the standard streams. Other runtimes use the same name.
pub const DESCRIPTORS: &str = "descriptors.json";

/// The names for namespaces that criu does not save.
const OUTSIDE: [(NamespaceKind, &str, &str); 2] =
    [(NamespaceKind::Network, "net", "extRootNetNS"), (NamespaceKind::Pid, "pid", "extRootPidNS")];

/// Flags that are passed to criu unchanged: their name, and their field in its protocol.
const SWITCHES: [(&str, u32); 8] = [
    ("ext-unix-sk", 4),
    ("tcp-established", 5),
    ("shell-job", 7),
    ("file-locks", 8),
    ("auto-dedup", 16),
    ("link-remap", 18),
    ("tcp-skip-in-flight", 46),
    ("tcp-close", 52),
];

/// Saves a container. Deletes it afterwards, unless it is left running.
pub fn checkpoint(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(1)?;
    refuse(runtime)?;
    super::criu::find()?;
    let held = runtime.store.hold(runtime.args.id()?)?;
    let id = held.record.id.clone();
    let pre = runtime.args.is_on("pre-dump");
    match held.status() {
        Status::Running | Status::Paused if gate::is_underway(&held.directory) => {
            return Err(Error::new(Step::Checkpoint, id, "cannot be saved while it is being started"));
        }
        Status::Running | Status::Paused => {}
        status => {
            let reason = format!("a container that is {} cannot be saved: its program must be running", status.name());
            return Err(Error::new(Step::Checkpoint, id, reason));
        }
    }
    let plan = held.plan()?;
    savable(&plan)?;
    let images = Images::make(runtime)?;
    let mut options = images.options(runtime, if pre { "pre-dump.log" } else { "dump.log" })?;
    let pid = held.record.pid;
    options.number(2, pid as u64).bytes(13, held.record.rootfs.as_os_str().as_encoded_bytes()).flag(15, pre);
    options.flag(3, runtime.args.is_on("leave-running"));
    if let Some(parent) = runtime.args.path("parent-path") {
        check_parent(&images.path, &parent)?;
        options.bytes(14, parent.as_os_str().as_encoded_bytes());
    }
    for destination in outside(&plan) {
        options.bytes(37, format!("mnt[{destination}]:{destination}").as_bytes());
    }
    for (_, short, cookie) in joined(&plan) {
        let path = format!("/proc/{pid}/ns/{short}");
        let inode = std::fs::metadata(&path).map(|found| std::os::unix::fs::MetadataExt::ino(&found));
        let inode = inode.map_err(|error| Error::new(Step::State, path, error.to_string()))?;
        options.bytes(37, format!("{short}[{inode}]:{cookie}").as_bytes());
    }
    // criu freezes its cgroup, so that it cannot create processes meanwhile.
    let freezer = held.record.groups().and_then(|groups| groups.freezer());
    if let Some(freezer) = freezer {
        options.bytes(44, freezer.as_os_str().as_encoded_bytes());
    }
    if !pre {
        images.write_descriptors(pid)?;
    }
    let request = if pre { Request::PreDump } else { Request::Dump };
    let criu = Criu::start(0, None, &[images.dir.as_fd(), images.work.as_fd()], || Ok(()))?;
    criu.ask(request, &options, &images.log(if pre { "pre-dump.log" } else { "dump.log" }), &mut |_| Ok(()))?;
    drop(criu);
    if !pre && !runtime.args.is_on("leave-running") {
        delete::destroy(runtime, held)?;
    }
    Ok(0)
}

/// Refuses the options that need a server of criu.
pub fn refuse(runtime: &Runtime) -> Result<()> {
    for name in ["lazy-pages", "page-server", "status-fd"] {
        if runtime.args.is_on(name) {
            return Err(Error::new(
                Step::Usage,
                format!("--{name}"),
                "is not supported: memory is saved and restored whole",
            )
            .hint("leave it out"));
        }
    }
    Ok(())
}

/// Refuses a container that criu cannot save completely.
pub fn savable(plan: &ContainerPlan) -> Result<()> {
    let wrong = |object: &str, reason: &str| Error::new(Step::Checkpoint, object, reason);
    if plan.confinement.landlock.is_some() {
        return Err(wrong("Landlock", "criu cannot save its rules, so the restored container would not have them"));
    }
    for join in &plan.joined {
        if !OUTSIDE.iter().any(|(kind, ..)| *kind == join.kind) {
            let object = format!("{} namespace {}", join.kind.name(), join.path);
            return Err(wrong(&object, "criu cannot save a container that shares it with other processes"));
        }
    }
    for mount in &plan.mounts {
        if mount.idmap {
            return Err(wrong(&mount.destination.to_string(), "criu cannot save an idmapped mount"));
        }
    }
    Ok(())
}

/// The namespaces by path: kind, the kernel's name, and criu's name for it.
pub fn joined(plan: &ContainerPlan) -> impl Iterator<Item = (NamespaceKind, &'static str, &'static str)> + '_ {
    OUTSIDE.into_iter().filter(|(kind, ..)| plan.joined.iter().any(|join| join.kind == *kind))
}

/// Mounts whose content criu does not save: binds from the host, and the covers of masked paths.
fn outside(plan: &ContainerPlan) -> Vec<String> {
    let bound = plan.mounts.iter().filter(|mount| matches!(mount.source, MountSource::Bind { .. }));
    let bound = bound.map(|mount| mount.destination.to_string());
    let masked = plan.confinement.masked_paths.iter().map(ToString::to_string);
    // In a user namespace device nodes cannot be created, so they are binds of the host's nodes.
    let nodes = plan.devices.iter().filter(|_| !plan.uid_map.is_empty()).map(|device| device.path.to_string());
    bound.chain(masked).chain(nodes).collect()
}

/// Checks the path of an earlier image, which is relative to this one.
fn check_parent(images: &Path, parent: &Path) -> Result<()> {
    let wrong = |reason: &str| Err(Error::new(Step::Usage, format!("--parent-path {}", parent.display()), reason));
    if parent.is_absolute() {
        return wrong("must be relative to --image-path");
    }
    if images.join(parent).is_dir() { Ok(()) } else { wrong("is not a directory below --image-path") }
}

/// The directories for criu.
#[derive(Debug)]
pub struct Images {
    /// Where the images are.
    pub path: PathBuf,
    /// The same, open.
    pub dir: File,
    /// The work directory of criu, with its log.
    pub work_path: PathBuf,
    /// The same, open.
    pub work: File,
}

impl Images {
    /// Opens the directories, and creates missing ones. Only the caller can read them, because they hold a container's
    /// memory.
    pub fn make(runtime: &Runtime) -> Result<Self> {
        let path = runtime.args.path("image-path").unwrap_or_else(|| "checkpoint".into());
        let work_path = runtime.args.path("work-path").unwrap_or_else(|| path.clone());
        for path in [&path, &work_path] {
            let made =
                std::os::unix::fs::DirBuilderExt::mode(std::fs::DirBuilder::new().recursive(true), 0o700).create(path);
            made.map_err(|error| io(path, &error))?;
        }
        Self::open(path, work_path)
    }

    /// Opens an existing image directory; the work directory may be created.
    pub fn find(runtime: &Runtime) -> Result<Self> {
        let path = runtime.args.path("image-path").unwrap_or_else(|| "checkpoint".into());
        if !path.is_dir() {
            return Err(Error::errno(Step::Usage, format!("--image-path {}", path.display()), Errno::ENOENT));
        }
        Self::make(runtime)
    }

    fn open(path: PathBuf, work_path: PathBuf) -> Result<Self> {
        let open = |path: &Path| File::open(path).map_err(|error| io(path, &error));
        Ok(Self { dir: open(&path)?, work: open(&work_path)?, path, work_path })
    }

    /// Child half: reopens the directories in the current mount namespace, because criu mounts in them.
    pub fn enter(&self) -> std::result::Result<(), Errno> {
        for (path, old) in [(&self.path, &self.dir), (&self.work_path, &self.work)] {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            process::replace(open(path, flags, Mode::empty())?.as_fd(), old.as_fd())?;
        }
        Ok(())
    }

    /// The path of a log of criu.
    pub fn log(&self, name: &str) -> PathBuf {
        self.work_path.join(name)
    }

    /// The options that saving and restoring share.
    pub fn options(&self, runtime: &Runtime, log: &str) -> Result<Message> {
        let args = &runtime.args;
        let mut options = Message::default();
        options.number(1, fd_number(&self.dir)).number(17, fd_number(&self.work));
        options.number(9, 4).bytes(10, log.as_bytes()).flag(12, true);
        for (name, field) in SWITCHES {
            options.flag(field, args.is_on(name));
        }
        let mode = match args.text("manage-cgroups-mode")? {
            None | Some("" | "soft") => 3,
            Some("full") => 4,
            Some("strict") => 5,
            Some("ignore") => 0,
            Some(other) => {
                let object = format!("--manage-cgroups-mode {other}");
                return Err(Error::new(Step::Usage, object, "must be soft, full, strict or ignore"));
            }
        };
        options.flag(24, true).number(34, mode);
        // Mounts that the host passes on to the container: what comes later would be lost, which they are told apart by.
        options.flag(30, true).flag(50, true);
        let mut empty = 0;
        for kind in args.all("empty-ns") {
            if kind != "network" {
                let object = format!("--empty-ns {}", kind.to_string_lossy());
                return Err(Error::new(Step::Usage, object, "must be network"));
            }
            empty |= u64::from(NamespaceKind::Network.number());
        }
        if empty != 0 {
            options.number(38, empty);
        }
        Ok(options)
    }

    fn write_descriptors(&self, pid: i32) -> Result<()> {
        let name = |number: u32| {
            let target = std::fs::read_link(format!("/proc/{pid}/fd/{number}"));
            target.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let names: Vec<String> = (0..3).map(name).collect();
        let path = self.path.join(DESCRIPTORS);
        std::fs::write(&path, serde_json::to_vec(&names).unwrap_or_default()).map_err(|error| io(&path, &error))
    }

    /// The targets of the standard streams.
    pub fn descriptors(&self) -> Vec<String> {
        let text = std::fs::read(self.path.join(DESCRIPTORS)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    Error::io(Step::Checkpoint, path.display().to_string(), error)
}
