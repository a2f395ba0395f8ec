//! Protects the runtime's own executable from containers.
//!
//! As long as a container's process runs this program, `/proc/PID/exe` leads to it. As the host's root the container could
//! open that file for writing once no process executes it (CVE-2019-5736). So the runtime executes itself from a detached
//! read-only mount, or, if that cannot be created, from a sealed copy in memory.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::error::{Error, Result, Step, errno_of};
use crate::launch::steps::step;
use crate::sys::ablate::{Layer, without};
use crate::sys::mount::{self, Attributes, RDONLY};
use crate::sys::{entry, file, image, inherited, process};

/// Makes sure that this process runs from an executable that cannot be changed, and has no open descriptors except the
/// standard streams and the `preserved` ones after them. Executes the program again if necessary.
///
/// With `environment`, only variables of these names are kept: a process that joins a container is a copy of this one, and a
/// tracer inside could read the caller's other variables from it. `kept` is a file that will be read by its number.
pub fn protect(preserved: u32, kept: Option<RawFd>, environment: Option<&[&str]>) -> Result<()> {
    let failed = |errno| Error::errno(Step::Host, "/proc/self/exe", errno);
    let own = File::open("/proc/self/exe").map_err(|error| failed(errno_of(&error)))?;
    // If the program is still writable in its second execution, executing it again would not help.
    let (protected, marked) = (is_protected(&own), std::env::var_os(image::PROTECTED).is_some());
    if protected && marked {
        // A forged mark gains nothing, because the protection itself was checked.
        return Ok(());
    }
    if marked {
        return Err(Error::new(Step::Host, "/proc/self/exe", "could be changed from inside a container"));
    }
    let safe = if protected { own.into() } else { detached(&own).or_else(|_| sealed(&own)).map_err(failed)? };
    step("protect", || "the runtime executes a copy of itself that no container can change");
    // A container that may trace this process could use descriptors that the caller left open by mistake.
    process::cloexec_from(3 + i32::try_from(preserved).unwrap_or(i32::MAX - 3)).map_err(failed)?;
    if let Some(number) = kept {
        let _ = inherited::keep(number); // if it is not open, reading the file fails
    }
    let c_string = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| failed(Errno::EINVAL));
    let argv = entry::words().iter().map(|word| c_string(word.as_bytes().to_vec())).collect::<Result<Vec<_>>>()?;
    let is_kept = |name: &OsString| environment.is_none_or(|kept| kept.iter().any(|known| name == known));
    let mut env = std::env::vars_os()
        .filter(|(name, _)| is_kept(name))
        .map(|(name, value)| c_string([name.into_vec(), value.into_vec()].join(&b'=')))
        .collect::<Result<Vec<_>>>()?;
    env.push(c_string(format!("{}=1", image::PROTECTED).into_bytes())?);
    Err(failed(image::execute(safe.as_fd(), &argv.into(), &env.into())))
}

fn is_protected(own: &File) -> bool {
    let read_only = fstatvfs(own).is_ok_and(|found| found.flags().contains(FsFlags::ST_RDONLY));
    const SEALS: i32 = libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    let seals = nix::fcntl::fcntl(own, nix::fcntl::FcntlArg::F_GET_SEALS).unwrap_or(0);
    read_only || seals & SEALS == SEALS || without(Layer::ReadOnly)
}

/// A detached, read-only mount of the program's file.
fn detached(own: &File) -> std::result::Result<OwnedFd, Errno> {
    let path = CString::new(format!("/proc/self/fd/{}", own.as_raw_fd())).map_err(|_| Errno::EINVAL)?;
    let file = file::open(path.as_c_str(), nix::fcntl::OFlag::O_PATH)?;
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
