//! The namespaces of a process, read from outside.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::fstatat;

use crate::error::{Error, Result, Step};
use crate::sys::file::open;

/// All namespaces except time, which a process enters later.
const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// The namespaces of a process, as device and inode of each.
#[derive(Clone, Copy, Debug)]
pub struct Inhabited([(u64, u64); NAMESPACES.len()]);

impl Inhabited {
    /// Reads them from a process's `/proc` directory, while the process may still be inspected. Its change of ids forbids that
    /// until it is dumpable again, which on a busy machine takes a while.
    pub fn by(proc_pid: &OwnedFd) -> Result<Self> {
        let deadline = Instant::now() + Duration::from_millis(500);
        let mut identities = [(0, 0); NAMESPACES.len()];
        for (name, identity) in NAMESPACES.into_iter().zip(&mut identities) {
            let failed = |errno| Error::errno(Step::Verify, format!("{name} namespace"), errno);
            let stat = loop {
                match fstatat(proc_pid, format!("ns/{name}").as_str(), AtFlags::empty()) {
                    Err(Errno::EACCES) if Instant::now() < deadline => std::thread::sleep(Duration::from_micros(100)),
                    found => break found.map_err(failed)?,
                }
            };
            *identity = (stat.st_dev, stat.st_ino);
        }
        Ok(Self(identities))
    }

    /// Whether a process has left this user namespace for a nested one, if it can still be inspected.
    pub fn has_left(self, pid: i32) -> bool {
        let user = nix::sys::stat::stat(format!("/proc/{pid}/ns/user").as_str());
        user.is_ok_and(|stat| (stat.st_dev, stat.st_ino) != self.0[0])
    }

    /// The namespaces that differ from ours, by the names of `/proc/PID/ns`. Fails if an expected one does not differ.
    pub fn differing(self, expected: impl Fn(&str) -> bool) -> Result<Vec<&'static str>> {
        let own = open("/proc/self", OFlag::O_PATH | OFlag::O_DIRECTORY)
            .map_err(|errno| Error::errno(Step::Verify, "/proc/self", errno))?;
        let mut differing = Vec::new();
        for (name, (ours, theirs)) in NAMESPACES.into_iter().zip(Self::by(&own)?.0.into_iter().zip(self.0)) {
            if ours != theirs {
                differing.push(name);
            } else if expected(name) {
                return Err(Error::new(Step::Verify, format!("{name} namespace"), "is still the caller's"));
            }
        }
        Ok(differing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_still_ours_is_named() {
        let own = Inhabited::by(&crate::confine::user::open_proc_pid(nix::unistd::getpid()).unwrap()).unwrap();
        assert_eq!(own.differing(|_| false).unwrap(), [""; 0]);
        assert_eq!(own.differing(|name| name == "ipc").unwrap_err().object, "ipc namespace");
        let mut other = own;
        other.0[4].1 += 1;
        assert_eq!(other.differing(|name| name == "ipc").unwrap(), ["ipc"]);
        assert!(!own.has_left(nix::unistd::getpid().as_raw()));
    }
}
