//! The security label that the workload gets at execve: an AppArmor profile or an SELinux context.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::ContainerPlan;
use crate::sys::file;

/// The labels in the form in which they are written.
#[derive(Debug, Default)]
pub struct PreparedLabel {
    apparmor: Option<Vec<u8>>,
    selinux: Option<Vec<u8>>,
}

/// Parent half. Fails if a label's security module is not enabled on this host.
pub fn prepare(plan: &ContainerPlan) -> Result<PreparedLabel> {
    let apparmor = plan.process.apparmor_profile.as_ref().filter(|profile| !profile.is_empty());
    let enabled = file::read("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with(b"Y"));
    if let Some(profile) = apparmor.filter(|profile| !enabled && *profile != "unconfined") {
        return Err(Error::new(Step::Label, profile.clone(), "AppArmor is not enabled on this host")
            .hint("leave process.apparmorProfile out"));
    }
    let selinux = plan.process.selinux_label.as_ref().filter(|label| !label.is_empty());
    for (field, label) in [("process.selinuxLabel", selinux), ("linux.mountLabel", plan.mount_label.as_ref())] {
        let Some(label) = label else { continue };
        if std::path::Path::new("/sys/fs/selinux/enforce").exists() {
            continue;
        }
        return Err(Error::new(Step::Label, label.clone(), "SELinux is not enabled on this host")
            .hint(format!("leave {field} out")));
    }
    Ok(PreparedLabel {
        apparmor: apparmor.filter(|_| enabled).map(|profile| format!("exec {profile}").into_bytes()),
        selinux: selinux.map(|label| label.clone().into_bytes()),
    })
}

impl PreparedLabel {
    /// Whether there is no label to write.
    pub fn is_empty(&self) -> bool {
        self.apparmor.is_none() && self.selinux.is_none()
    }

    /// Child half: sets the labels for the next execve, through a procfs that no other process can reach.
    pub fn apply(&self, proc: BorrowedFd<'_>) -> Applied {
        if let Some(text) = &self.apparmor {
            let own = write(proc, c"self/attr/apparmor/exec", text);
            match own {
                Err(Errno::ENOENT) => write(proc, c"self/attr/exec", text), // before Linux 5.8
                written => written,
            }
            .during(Step::Label, 0)?;
        }
        if let Some(text) = &self.selinux {
            write(proc, c"self/attr/exec", text).during(Step::Label, 1)?;
        }
        Ok(())
    }
}

fn write(proc: BorrowedFd<'_>, name: &CStr, text: &[u8]) -> std::result::Result<(), Errno> {
    let file = openat(proc, name, OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW, Mode::empty())?;
    nix::unistd::write(file, text).map(drop)
}
