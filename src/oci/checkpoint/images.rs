//! The directories with the images and with criu's log, and the options that saving and restoring share.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::criu::fd_number;
use super::messages::{CgMode, CriuOpts};
use crate::error::{Error, Result, Step};
use crate::oci::Runtime;
use crate::plan::container::NamespaceKind;
use crate::sys::process;

/// The file with the targets of the standard streams. Other runtimes use the same name.
const DESCRIPTORS: &str = "descriptors.json";

/// criu's log level: everything.
const LOG_LEVEL: u64 = 4;

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
    pub fn options(&self, runtime: &Runtime, log: &str) -> Result<CriuOpts> {
        let args = &runtime.args;
        let mode = match args.text("manage-cgroups-mode")? {
            None | Some("" | "soft") => CgMode::Soft,
            Some("full") => CgMode::Full,
            Some("strict") => CgMode::Strict,
            Some("ignore") => CgMode::Ignore,
            Some(other) => {
                let object = format!("--manage-cgroups-mode {other}");
                return Err(Error::new(Step::Usage, object, "must be soft, full, strict or ignore"));
            }
        };
        let mut empty_ns = 0;
        for kind in args.all("empty-ns") {
            if kind != "network" {
                let object = format!("--empty-ns {}", kind.to_string_lossy());
                return Err(Error::new(Step::Usage, object, "must be network"));
            }
            empty_ns |= u64::from(NamespaceKind::Network.number());
        }
        Ok(CriuOpts {
            images_dir_fd: fd_number(&self.dir),
            work_dir_fd: fd_number(&self.work),
            log_level: LOG_LEVEL,
            log_file: log.into(),
            notify_scripts: true,
            ext_unix_sk: args.is_on("ext-unix-sk"),
            tcp_established: args.is_on("tcp-established"),
            tcp_skip_in_flight: args.is_on("tcp-skip-in-flight"),
            tcp_close: args.is_on("tcp-close"),
            shell_job: args.is_on("shell-job"),
            file_locks: args.is_on("file-locks"),
            auto_dedup: args.is_on("auto-dedup"),
            link_remap: args.is_on("link-remap"),
            manage_cgroups: true,
            manage_cgroups_mode: Some(mode),
            ext_masters: true, // mounts that are propagated from the host
            orphan_pts_master: true,
            empty_ns,
            ..CriuOpts::default()
        })
    }

    /// Writes the targets of the standard streams of this process.
    pub fn write_descriptors(&self, pid: i32) -> Result<()> {
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
