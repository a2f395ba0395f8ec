//! `--lease fd:N`: a pipe or socket whose other end the caller holds. The kernel closes that end however the caller dies.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::sys::stat::{SFlag, fstat};

use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::policy::units::whole;
use crate::sys::inherited;

/// The lease, if there is one. Must be called before other descriptors are opened.
pub fn open(args: &Args) -> Result<Option<OwnedFd>> {
    let Some(target) = args.value("lease") else { return Ok(None) };
    let wrong = |reason: &str| Error::new(Step::Usage, "--lease", reason);
    let number = target.as_bytes().strip_prefix(b"fd:").and_then(|number| std::str::from_utf8(number).ok());
    let number = number.and_then(|number| i32::try_from(whole(number).ok()?).ok()).filter(|number| *number > 2);
    let number = number.ok_or_else(|| wrong("takes fd:N, a descriptor above the standard streams"))?;
    let failed = |errno| Error::errno(Step::Usage, "--lease", errno);
    let lease = inherited::duplicate(number).map_err(failed)?;
    let kind = SFlag::from_bits_truncate(fstat(lease.as_fd()).map_err(failed)?.st_mode & SFlag::S_IFMT.bits());
    match kind {
        SFlag::S_IFIFO | SFlag::S_IFSOCK => Ok(Some(lease)),
        _ => Err(wrong("is neither a pipe nor a socket, so it has no other end")),
    }
}
