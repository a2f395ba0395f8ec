//! What `/proc` holds where the kernel lets no new procfs be mounted: below a `/proc` that is partly covered, as container
//! engines leave it, a new one would show what the covers hide.
//!
//! The caller's own procfs shows the caller's processes by their numbers in the caller's pid namespace. It is bound only if
//! Landlock is in force, because nothing else keeps the workload from following `/proc/PID/root` and `/proc/PID/fd` of the
//! caller's processes out of the sandbox, and only in a container, never on a host. Otherwise `/proc` shows no process at all.

use std::ffi::CString;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::stat;

use super::host::Resolver;
use super::mount_point::{MountOwner, MountPoints, Shape};
use super::operation::{self, Instead, MountPoint, Operation, What};
use super::powers::Powers;
use super::source::{Source, bind_attributes};
use crate::error::{Error, Result, Step};
use crate::failure::Missing;
use crate::plan::Facility;
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY};

/// What the kernel says about the machine, which a new procfs would show too.
pub const FILES: [&str; 9] =
    ["cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys", "uptime", "version", "vmstat"];

const ATTRIBUTES: u64 = RDONLY | NOSUID | NODEV | NOEXEC;

/// Parent half. `None` if the run accepts nothing else than a new procfs.
pub fn prepare(
    index: usize,
    at: &Path,
    pid_only: bool,
    powers: &Powers<'_>,
    sources: &mut Resolver,
) -> Result<Option<Instead>> {
    let may_lack = |facility| powers.may_lack.contains(&facility);
    let mut make = Make { index, privileged: powers.privileged, places: MountPoints::new(None), sources };
    if may_lack(Facility::OuterProc) && !pid_only && powers.landlock && is_in_container() {
        let entries = vec![make.bind(Path::new("/proc"), at)?];
        return Ok(Some(Instead { entries, missing: Missing::OuterProc }));
    }
    if !may_lack(Facility::Proc) {
        return Ok(None);
    }
    let mut entries = vec![make.empty(at)?];
    for name in FILES.iter().filter(|_| !pid_only) {
        let path = Path::new("/proc").join(name);
        // Engines cover with /dev/null what they hide.
        if path.symlink_metadata().is_ok_and(|found| found.is_file() || found.is_dir()) {
            entries.push(make.bind(&path, &at.join(name))?);
        }
    }
    Ok(Some(Instead { entries, missing: Missing::Proc }))
}

struct Make<'a> {
    index: usize,
    privileged: bool,
    places: MountPoints<'a>,
    sources: &'a mut Resolver,
}

impl Make<'_> {
    /// A part of the caller's `/proc`, with what covers parts of it, read-only.
    fn bind(&mut self, path: &Path, at: &Path) -> Result<Operation> {
        let failed = |errno| Error::errno(Step::Source, path.display().to_string(), errno);
        let found =
            self.sources.resolve_known(path).map_err(|fault| fault.error(Step::Source, path.display().to_string()))?;
        let source = Source::of(path, found, self.privileged).map_err(failed)?;
        if !source.is_proc() {
            return Err(failed(Errno::ENODEV));
        }
        source.set_attributes(bind_attributes(ATTRIBUTES)).map_err(failed)?;
        let shape = if source.is_dir() { Shape::Directory } else { Shape::File };
        self.mount(at, shape, MountOwner::Host, What::Tree { source, changes: vec![bind_attributes(ATTRIBUTES)] })
    }

    /// A tmpfs, which becomes read-only when the root is complete.
    fn empty(&mut self, at: &Path) -> Result<Operation> {
        let text = |text: &[u8]| CString::new(text).expect("no NUL");
        let options = [("size", "64k"), ("nr_inodes", "64"), ("mode", "555")];
        let options = options.map(|(name, value)| (text(name.as_bytes()), Some(text(value.as_bytes()))));
        let what =
            What::FileSystem { kind: c"tmpfs".to_owned(), options: options.into(), strict: false, copy_up: false };
        self.mount(at, Shape::Directory, MountOwner::Sandbox, what)
    }

    fn mount(&mut self, at: &Path, shape: Shape, owner: MountOwner, what: What) -> Result<Operation> {
        let point = MountPoint::Planned(self.places.add(at, shape, owner)?);
        let (index, propagation) = (self.index, Vec::new());
        Ok(Operation::Mount(operation::Mount { index, point, what, set: ATTRIBUTES, set_below: 0, propagation }))
    }
}

/// Whether the caller's pid namespace is another than the first, which has a fixed number.
pub fn is_in_container() -> bool {
    const FIRST: u64 = 0xefff_fffc;
    stat("/proc/self/ns/pid").is_ok_and(|namespace| namespace.st_ino != FIRST)
}
