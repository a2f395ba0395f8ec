//! The kernel version and the system calls that every run makes.

use std::ffi::CStr;
use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::trial::{self, Setup, words};
use super::{Finding, Group, Probe, Subject};
use crate::sys::clone::{Cloned, clone3, has_clone3};
use crate::sys::mount;
use crate::sys::process;

const fn subject(name: &'static str, title: &'static str) -> Subject {
    Subject { name, group: Group::Kernel, title, required: true, without: "no run is possible" }
}

const VERSION: Subject = subject("kernel_version", "kernel version");
const CLONE3: Subject = subject("clone3", "clone3 with a pidfd");
const PIDFD: Subject = subject("pidfd", "signals through a pidfd");
const OPENAT2: Subject = subject("openat2", "openat2 within a root");
const CLOSE_RANGE: Subject = subject("close_range", "close_range, close-on-exec");

/// The oldest kernel with everything that a default run uses: Landlock since 5.13, `cgroup.kill` since 5.14.
const OLDEST: (u32, u32) = (5, 14);
const UPGRADE: &str = "install a newer kernel: Debian 12, Ubuntu 22.04, RHEL 9.2 and later have one";

pub(super) fn examine(probe: &Probe) -> Vec<Finding> {
    vec![
        version(),
        processes(probe),
        call(probe, &PIDFD, "5.3", pidfd().map_err(Some)),
        call(probe, &OPENAT2, "5.6", openat2().map_err(Some)),
        // The range contains no open descriptors.
        call(probe, &CLOSE_RANGE, "5.11", process::cloexec_from(i32::MAX).map_err(Some)),
    ]
}

/// A process by clone3, or by clone(2) where that is refused.
fn processes(probe: &Probe) -> Finding {
    let made = trial::attempt(Setup::default(), || Ok(0));
    let (why, _) = probe.blockers.explain(Some(Errno::ENOSYS), probe.privileged);
    match made {
        Ok(_) if !has_clone3() => {
            CLONE3.degraded(format!("{}: {why}", words(Errno::ENOSYS)), "clone(2) stands in for it")
        }
        made => call(probe, &CLONE3, "5.3", made.map(drop).map_err(|failure| failure.errno())),
    }
}

/// Release and architecture of the running kernel.
pub(super) fn release() -> (String, String) {
    let name = nix::sys::utsname::uname();
    let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
    name.map_or_else(|_| ("?".into(), "?".into()), |name| (text(name.release()), text(name.machine())))
}

fn version() -> Finding {
    let (release, architecture) = release();
    let (major, minor) = OLDEST;
    let detail = format!("{release} on {architecture}; {major}.{minor} or later is required");
    match parse(&release) {
        Some(version) if version >= OLDEST => VERSION.ok(detail),
        Some(_) => VERSION.missing(detail).remedy(UPGRADE),
        None => VERSION.unknown(detail),
    }
}

fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn call(probe: &Probe, subject: &Subject, since: &str, tried: Result<(), Option<Errno>>) -> Finding {
    let Err(errno) = tried else { return subject.ok("works") };
    let said = errno.map_or("no answer".into(), words);
    let (why, remedy) = probe.blockers.explain(errno, probe.privileged);
    let why = if why.is_empty() { format!("needs Linux {since}") } else { why };
    Finding { remedy: remedy.or(Some(UPGRADE.into())), ..subject.missing(format!("{said}: {why}")) }
}

/// Sends signal 0 to a child that has exited or is about to exit.
fn pidfd() -> Result<(), Errno> {
    match clone3(0, None)? {
        Cloned::Child => process::exit(0),
        Cloned::Parent { pid, pidfd } => {
            let sent = process::pidfd_send_signal(pidfd.as_fd(), 0);
            let _ = process::wait4(pid);
            // If the caller ignores SIGCHLD, the child is already reaped.
            if sent == Err(Errno::ESRCH) { Ok(()) } else { sent }
        }
    }
}

/// Checks that `..` does not leave the root of the lookup.
fn openat2() -> Result<(), Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = open("/", flags, Mode::empty())?;
    let inside: &CStr = c"../..";
    let found = mount::open_beneath(&root, inside, libc::O_PATH, mount::IN_ROOT | mount::NO_MAGICLINKS)?;
    let (found, root) = (nix::sys::stat::fstat(&found)?, nix::sys::stat::fstat(&root)?);
    if (found.st_dev, found.st_ino) == (root.st_dev, root.st_ino) { Ok(()) } else { Err(Errno::EXDEV) }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn releases_are_read_as_distributions_write_them() {
        assert_eq!(parse("6.18.3"), Some((6, 18)));
        assert_eq!(parse("5.4-rc2"), Some((5, 4)));
        assert_eq!(parse("6.8.0-31-generic"), Some((6, 8)));
        assert_eq!(parse("4.18.0-553.el8_10.x86_64"), Some((4, 18)));
        assert_eq!(parse("junk"), None);
        assert_eq!(parse(""), None);
    }
}
