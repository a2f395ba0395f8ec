//! Reads a file that the caller trusts. Makes sure that no other user could have written it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

use crate::error::{Error, Result, Step};
use crate::plan::Bytes;
use crate::sys::walk::{self, Trail};

/// The use of a file, and its size limit.
#[derive(Clone, Copy, Debug)]
pub struct Purpose {
    /// The step that reads it.
    pub step: Step,
    /// Its size limit in KiB.
    pub max_kib: u64,
}

/// A policy. The worst file of this size takes the parser 50 ms and 16 MiB.
pub const POLICY: Purpose = Purpose { step: Step::Policy, max_kib: 128 };

/// An environment file.
pub const ENVIRONMENT: Purpose = Purpose { step: Step::Usage, max_kib: 1024 };

/// A file of rules for the network.
pub const NET_RULES: Purpose = Purpose { step: Step::Policy, max_kib: 128 };

/// A seccomp profile, which the layer reads itself.
pub const SECCOMP: Purpose = Purpose { step: Step::SeccompProfile, max_kib: 1024 };

/// A file that was read.
#[derive(Debug)]
pub struct TrustedFile {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Its real path, without symlinks.
    pub path: PathBuf,
    /// Its location, and every directory and symlink on the way there.
    pub trail: Trail,
}

/// Reads a regular file within the size limit that only root or the caller can write. Never blocks: a FIFO or a device is
/// refused. A relative path starts in `base`.
pub fn read(purpose: Purpose, path: &Path, base: Option<&Path>) -> Result<TrustedFile> {
    let (file, real, trail) = open(purpose, path, base)?;
    let max = purpose.max_kib * 1024;
    let object = || Bytes::from(path).to_string();
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(|error| Error::io(purpose.step, object(), &error))?;
    // Checked again: the file may have grown, and some files of /proc have a size of 0.
    if bytes.len() as u64 > max {
        return Err(Error::new(purpose.step, object(), purpose.too_large()));
    }
    Ok(TrustedFile { bytes, path: real, trail })
}

/// The location of a file that another module reads. Fails under the same conditions as [`read`].
pub fn inspect(purpose: Purpose, path: &Path) -> Result<Trail> {
    open(purpose, path, None).map(|(_, _, trail)| trail)
}

impl Purpose {
    fn too_large(self) -> String {
        format!("is larger than {} KiB", self.max_kib)
    }
}

/// Opens the file. Returns it with its real path and location.
fn open(purpose: Purpose, path: &Path, base: Option<&Path>) -> Result<(File, PathBuf, Trail)> {
    let step = purpose.step;
    let object = Bytes::from(path).to_string();
    let errno = |errno: Errno| Error::errno(step, object.clone(), errno);
    let refused = |reason: &str| Error::new(step, object.clone(), reason);

    let named = match base {
        Some(base) => base.join(path),
        None if path.is_absolute() => path.to_path_buf(),
        None => return Err(refused("is a relative path, but the current directory was deleted")),
    };
    // Symlinks are resolved once, here. The resolved name is opened without following symlinks.
    let place = walk::to_file(&named).map_err(|failed| match failed {
        Errno::EPERM => {
            refused("another user could have made a symlink in its path").hint("name the file without symlinks")
        }
        Errno::EINVAL => refused("is a directory, not a file"),
        failed => errno(failed),
    })?;
    let directory = &place.directory;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(directory, place.name.as_os_str(), flags, Mode::empty()).map_err(errno)?;

    let stat = fstat(&file).map_err(errno)?;
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => {}
        SFlag::S_IFDIR => return Err(refused("is a directory, not a file")),
        _ => return Err(refused("is not a regular file")),
    }
    others_cannot_write(&stat, &fstat(directory).map_err(errno)?)
        .map_err(|(reason, hint)| refused(&reason).hint(hint))?;
    if stat.st_size as u64 > purpose.max_kib * 1024 {
        return Err(refused(&purpose.too_large()));
    }
    let real = walk::name_of(directory).unwrap_or_default().join(&place.name);
    Ok((File::from(file), real, Trail::of_place(&place)))
}

/// Fails if a user other than root and the caller could have written or replaced the file, with a hint. A group with write
/// permission is accepted if its number is the caller's uid: many systems give each user a private group.
fn others_cannot_write(file: &FileStat, directory: &FileStat) -> std::result::Result<(), (String, &'static str)> {
    const GROUP: u32 = 0o020;
    const WORLD: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    const OWN: &str = "if you trust what it says, make it yours: `chown` it, or copy it";
    const FILE: &str = "`chmod go-w` it, after a look at what it says";
    const MOVE: &str = "move it to a directory of your own, or `chmod go-w` its directory";
    let caller = nix::unistd::geteuid().as_raw();
    let foreign = |stat: &FileStat| stat.st_uid != 0 && stat.st_uid != caller;
    let by_group = |stat: &FileStat| stat.st_mode & GROUP != 0 && stat.st_gid != 0 && stat.st_gid != caller;
    let sticky = directory.st_mode & STICKY != 0;
    let (reason, hint) = if file.st_mode & WORLD != 0 {
        ("anyone can write it".into(), FILE)
    } else if foreign(file) {
        (format!("it belongs to user {}, neither to you nor to root", file.st_uid), OWN)
    } else if by_group(file) {
        (format!("group {} can write it", file.st_gid), FILE)
    } else if directory.st_mode & WORLD != 0 && !sticky {
        ("anyone can replace it: its directory is writable by everyone".into(), MOVE)
    } else if by_group(directory) && !sticky {
        (format!("group {} can replace it: its directory is writable by that group", directory.st_gid), MOVE)
    } else if foreign(directory) {
        (format!("user {} can replace it: its directory is that user's", directory.st_uid), MOVE)
    } else {
        return Ok(());
    };
    Err((reason, hint))
}
