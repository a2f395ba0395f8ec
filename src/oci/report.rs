//! The annotation `org.stockade.report`: the report of a container is written to this file when it is deleted.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::config::annotations::{HOOKS_STDERR, HOOKS_STDOUT, REPORT};
use super::record::{End, Record};
use super::store::Held;
use crate::error::{Error, Result, Step, errno_of};
use crate::plan::ContainerPlan;
use crate::report::{Report, Status, Subject};
use crate::rootfs::reach::{self, Reach};
use crate::sys::file;
use crate::sys::walk::{self, Place, Trail};

/// The location of a container's report, if one is configured. Fails before anything is created if the report cannot be
/// written there, or if the container of this plan could write there.
pub fn place(record: &Record, plan: Option<&ContainerPlan>) -> Result<Option<Place>> {
    record.annotations.get(REPORT).map(|text| checked(REPORT, text, plan)).transpose()
}

/// The same check for the files to which annotations send the output of hooks.
pub fn check_hook_files(plan: &ContainerPlan) -> Result<()> {
    let files = &plan.hooks.files;
    for (annotation, path) in [(HOOKS_STDOUT, &files.stdout), (HOOKS_STDERR, &files.stderr)] {
        let text = path.as_ref().map(ToString::to_string).filter(|path| !path.starts_with("/dev/std"));
        text.map(|text| checked(annotation, &text, Some(plan))).transpose()?;
    }
    Ok(())
}

/// The place of a file that an annotation names. Fails if it cannot be written there, or if the container could write there.
fn checked(annotation: &str, text: &str, plan: Option<&ContainerPlan>) -> Result<Place> {
    let wrong = |reason: &str| Error::new(Step::Config, format!("annotation {annotation}: {text:?}"), reason);
    let path = Path::new(text);
    if !path.is_absolute() || text.contains('\0') || text.ends_with('/') || path.file_name().is_none() {
        return Err(wrong("is not an absolute path of a file"));
    }
    let place = walk::to_place(path).map_err(|errno| match errno {
        Errno::EPERM => wrong("another user could have made a symlink in its path"),
        _ => wrong("its directory does not exist"),
    })?;
    let there = fstatat(&place.directory, place.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
    if there.is_ok_and(|there| there.st_mode & libc::S_IFMT == libc::S_IFDIR) {
        return Err(wrong("is a directory"));
    }
    let reach = plan.map(|plan| Reach::of(reach::of_container(plan), true)).transpose();
    let reach = reach.map_err(|errno| Error::errno(Step::Host, "the mount table", errno))?;
    let trail = Trail::of_place(&place);
    match reach.as_ref().and_then(|reach| reach.find(&trail, true, |_| false)) {
        None => Ok(place),
        Some(tree) => Err(wrong(&format!("is in {}, which the container can write", tree.source))
            .hint("name a file outside of the bundle's root and of writable mounts")),
    }
}

/// Writes the report, if one is configured. The container's cgroups still exist, with the counters of its usage.
pub fn write(held: &Held) -> Result<()> {
    if !held.record.annotations.contains_key(REPORT) {
        return Ok(());
    }
    let usage = held.record.groups().map(|groups| groups.usage()).unwrap_or_default();
    let started = humantime::parse_rfc3339(&held.record.created).unwrap_or_else(|_| SystemTime::now());
    let plan = held.plan().ok();
    let Some(place) = place(&held.record, plan.as_ref())? else { return Ok(()) };
    let subject = plan.as_ref().map(Subject::from);
    let mut report = match &held.end {
        End::Failed(error) => Report::not_started(&held.record.id, subject, started, error),
        End::Code(code) => Report { exit_code: *code, ..Report::blank(&held.record.id, subject, started) },
        End::Unknown => {
            let code = held.record.exit_code();
            Report { exit_code: code.unwrap_or(255), ..Report::blank(&held.record.id, subject, started) }
        }
    };
    let known = !matches!(held.end, End::Unknown) || held.record.exit_code().is_some();
    let oom = usage.memory.oom_kills.is_some_and(|kills| kills > 0);
    if report.status != Status::SetupError {
        (report.status, report.signal) = match report.exit_code {
            _ if !known => (if oom { Status::Oom } else { Status::Unknown }, None),
            0 => (Status::Ok, None),
            137 if oom => (Status::Oom, Some(9)),
            code @ 129..=192 => (Status::Signaled, Some(i32::from(code) - 128)),
            _ => (Status::Nonzero, None),
        };
        report.enforced = held.record.enforced.clone();
    }
    report.usage = usage;
    let text = serde_json::to_vec_pretty(&report).unwrap_or_default();
    put(&place, &text).map_err(|errno| Error::errno(Step::Report, place.name.display().to_string(), errno))
}

/// Writes the file atomically and syncs it, in the directory that was opened.
fn put(Place { directory, name, .. }: &Place, text: &[u8]) -> std::result::Result<(), Errno> {
    let new = format!(".stockade-report.{:016x}", RandomState::new().build_hasher().finish());
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(directory, new.as_str(), flags, Mode::from_bits_truncate(0o600))?);
    let written = file.write_all(text).and_then(|()| file.sync_all()).map_err(|error| errno_of(&error));
    let put = written.and_then(|()| renameat(directory, new.as_str(), directory, name.as_os_str()));
    if put.is_err() {
        let _ = unlinkat(directory, new.as_str(), UnlinkatFlags::NoRemoveDir);
        return put;
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    nix::unistd::fsync(openat(directory, ".", flags, Mode::empty())?)
}

impl Record {
    /// The exit code of its first process, or 128 plus the signal. Known only as long as the process is a zombie.
    fn exit_code(&self) -> Option<u8> {
        if self.pid <= 0 || self.is_of_earlier_boot {
            return None;
        }
        let text = file::read_text(format!("/proc/{}/stat", self.pid).as_str()).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // These begin with the third field of proc(5); the start time is the 22nd, the exit status the 52nd.
        if fields.first() != Some(&"Z") || fields.get(19)?.parse() != Ok(self.started) {
            return None;
        }
        let status: i32 = fields.get(49)?.parse().ok()?;
        let code = if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
        u8::try_from(code).ok()
    }
}
