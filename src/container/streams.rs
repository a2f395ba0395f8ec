//! The standard streams of a container's process: its terminal, its null device, or the runtime's streams.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::fstatfs;

use super::prepare::Prepared;
use crate::error::Step;
use crate::failure::{Applied, During};
use crate::launch::channels::ChildEnds;
use crate::sys::mount::{NO_MAGICLINKS, open_beneath};
use crate::sys::terminal;

/// Takes the standard streams: the terminal, or the runtime's streams.
pub fn take_streams(prepared: &Prepared<'_>, terminal: Option<&OwnedFd>) -> Applied {
    let null = own_null();
    let streams = prepared.streams.map(|stream| match (terminal, &null) {
        (Some(terminal), _) => terminal.as_fd(),
        (None, Some(null)) if is_null(stream) => null.as_fd(),
        _ => stream,
    });
    prepared.process.take_streams(streams)
}

/// The container's own null device. It replaces the host's, so that no descriptor of a host file system stays open and criu can
/// save every open file.
fn own_null() -> Option<OwnedFd> {
    let open = |flags| open_beneath(AT_FDCWD, c"/dev/null", flags | libc::O_NOFOLLOW, NO_MAGICLINKS).ok();
    // Checked before it is opened for real: opening a different device may have side effects.
    open(libc::O_PATH).filter(|null| is_null(null.as_fd()))?;
    open(libc::O_RDWR | libc::O_NOCTTY).filter(|null| is_null(null.as_fd()))
}

fn is_null(fd: BorrowedFd<'_>) -> bool {
    let device = nix::sys::stat::makedev(1, 3);
    nix::sys::stat::fstat(fd).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == device)
}

/// Opens a terminal on the container's own devpts and sends its master side to the runtime.
pub fn open_terminal(prepared: &Prepared<'_>, devpts: Option<&OwnedFd>, ends: &ChildEnds) -> Applied<Option<OwnedFd>> {
    let Some(size) = prepared.terminal else { return Ok(None) };
    let devpts = devpts.ok_or(Errno::ENODEV).during(Step::Terminal, 0)?;
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = openat(devpts, c"ptmx", flags, Mode::empty()).during(Step::Terminal, 0)?;
    let slave = terminal::open_peer(&master).during(Step::Terminal, 0)?;
    terminal::set_size(&slave, size).during(Step::Terminal, 0)?;
    // The program's user must be able to open its terminal again.
    let owner = nix::unistd::Uid::from_raw(prepared.users.inside().0);
    let _ = nix::unistd::fchown(&slave, Some(owner), None); // a devpts of another user namespace refuses this
    ends.send_terminal(master.as_fd()).during(Step::Terminal, 0)?;
    Ok(Some(slave))
}

/// Opens `/dev/pts` of the current root and checks that it is a devpts.
pub fn devpts() -> std::result::Result<OwnedFd, Errno> {
    const DEVPTS_SUPER_MAGIC: i64 = 0x1cd1;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let devpts = open_beneath(AT_FDCWD, c"/dev/pts", flags, NO_MAGICLINKS)?;
    if fstatfs(&devpts)?.filesystem_type().0 as i64 == DEVPTS_SUPER_MAGIC { Ok(devpts) } else { Err(Errno::ENODEV) }
}
