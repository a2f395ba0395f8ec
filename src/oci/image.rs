//! The program of this process, out of reach of any container.
//!
//! A container's process that is still ours has our program as `/proc/PID/exe`, and could, as the host's root, open that for
//! writing once nobody executes it any more. So we run from a read-only mount of our own that is attached nowhere; where
//! none can be made, from a sealed copy in memory.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::error::{Error, Result, Step, errno_of};
use crate::sys::ablate::{Layer, without};
use crate::sys::entry;
use crate::sys::image;
use crate::sys::mount::{self, Attributes, RDONLY};
use crate::sys::process;

/// Says that we have done it: if the program can be written to all the same, it never will be otherwise.
const MARK: &str = "_STOCKADE_OCI_PROTECTED";

/// Makes sure that this process runs from a program that nobody can change, and has nothing open but the standard streams and
/// so many descriptors more: executes it once more if that is not known.
///
/// With `environment`, only variables of these names are taken along: a process that joins a container is a copy of this one,
/// and a tracer inside could read the rest of the caller's from it.
pub fn protect(preserved: u32, environment: Option<&[&str]>) -> Result<()> {
    let failed = |errno| Error::errno(Step::Host, "/proc/self/exe", errno);
    let own = File::open("/proc/self/exe").map_err(|error| failed(errno_of(&error)))?;
    let (protected, marked) = (is_protected(&own), std::env::var_os(MARK).is_some());
    if protected && marked {
        // Whoever had it in mind to lie to us gains nothing: this was looked at, not believed.
        return Ok(());
    }
    if marked {
        return Err(Error::new(Step::Host, "/proc/self/exe", "could be changed from inside a container"));
    }
    let safe = if protected { own.into() } else { detached(&own).or_else(|_| sealed(&own)).map_err(failed)? };
    // What our caller left open by mistake, a container that may trace us could take from us.
    process::cloexec_from(3 + i32::try_from(preserved).unwrap_or(i32::MAX - 3)).map_err(failed)?;
    let c_string = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| failed(Errno::EINVAL));
    let argv = entry::words().iter().map(|word| c_string(word.as_bytes().to_vec())).collect::<Result<Vec<_>>>()?;
    let is_kept = |name: &OsString| environment.is_none_or(|kept| kept.iter().any(|known| name == known));
    let mut env = std::env::vars_os()
        .filter(|(name, _)| is_kept(name))
        .map(|(name, value)| c_string([name.into_vec(), value.into_vec()].join(&b'=')))
        .collect::<Result<Vec<_>>>()?;
    env.push(c_string(format!("{MARK}=1").into_bytes())?);
    Err(failed(image::execute(safe.as_fd(), &argv.into(), &env.into())))
}

fn is_protected(own: &File) -> bool {
    let read_only = fstatvfs(own).is_ok_and(|found| found.flags().contains(FsFlags::ST_RDONLY));
    const SEALS: i32 = libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    let seals = nix::fcntl::fcntl(own, nix::fcntl::FcntlArg::F_GET_SEALS).unwrap_or(0);
    read_only || seals & SEALS == SEALS || without(Layer::ReadOnly)
}

/// A mount of the program's own file alone, read-only, that is attached nowhere.
fn detached(own: &File) -> std::result::Result<OwnedFd, Errno> {
    let path = CString::new(format!("/proc/self/fd/{}", own.as_raw_fd())).map_err(|_| Errno::EINVAL)?;
    let file = nix::fcntl::open(
        path.as_c_str(),
        nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )?;
    let tree = mount::clone_tree(file.as_fd(), c"", false)?;
    mount::set_attributes(&tree, Attributes { set: RDONLY, ..Attributes::default() })?;
    Ok(tree)
}

fn sealed(own: &File) -> std::result::Result<OwnedFd, Errno> {
    let copy = File::from(image::memory_file(c"stockade-oci")?);
    let mut from = own;
    io::copy(&mut from, &mut &copy).map_err(|error| errno_of(&error))?;
    image::seal(copy.as_fd())?;
    Ok(copy.into())
}
