//! What a call wants to do with a path.

use crate::confine::seccomp::listen::Aim;
use crate::confine::seccomp::observe::{Kind, Links};

/// `O_PATH`: only the place is opened.
const PLACE: u64 = libc::O_PATH as u64;
/// The bits of `O_TMPFILE` that are its own.
const UNNAMED: u64 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;

/// What a call wants to do with a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    pub read: bool,
    pub write: bool,
    /// The content goes first. The kernel then asks the mount before it looks at the mode.
    pub truncate: bool,
    pub execute: bool,
    /// A directory becomes the current one.
    pub enter: bool,
    /// Mode, owner or times change.
    pub attributes: bool,
    /// It may make what is missing.
    pub create: bool,
    /// The entry in the directory changes, not the file.
    pub entry: bool,
    /// The entry goes.
    pub remove: bool,
    /// What exists is an error of its own.
    pub new: bool,
    /// A link at the end is followed.
    pub follow: bool,
}

impl Wish {
    /// Whether it changes anything.
    pub fn changes(self) -> bool {
        self.write || self.attributes || self.create || self.entry
    }
}

impl From<&Aim> for Wish {
    fn from(aim: &Aim) -> Self {
        let has = |flag: libc::c_int| aim.flags & flag as u64 != 0;
        let follows = |links| match links {
            Links::Follow => true,
            Links::Stay => false,
            Links::Unless(_) => !has(libc::AT_SYMLINK_NOFOLLOW),
            Links::Only(_) => has(libc::AT_SYMLINK_FOLLOW),
        };
        let nothing = Self::default();
        let (entry, through) = (Self { entry: true, ..nothing }, Self { follow: true, ..nothing });
        match aim.kind {
            Kind::Make { replaces } => Self { create: true, new: !replaces, ..entry },
            Kind::Remove => Self { remove: true, ..entry },
            Kind::Execute => Self { execute: true, ..through },
            Kind::Enter => Self { enter: true, ..through },
            Kind::Truncate => Self { write: true, ..through }, // since Linux 6.14 the mode is looked at first
            Kind::Creat => Self { write: true, truncate: true, create: true, ..through },
            Kind::Attributes(links) => Self { attributes: true, follow: follows(links), ..nothing },
            Kind::Connect => through,
            Kind::Look(links) | Kind::Link(links) => Self { follow: follows(links), ..nothing },
            Kind::Open(_) | Kind::OpenHow(_) if aim.flags & (PLACE | UNNAMED) != 0 => {
                Self { follow: !has(libc::O_NOFOLLOW), ..nothing }
            }
            Kind::Open(_) | Kind::OpenHow(_) => {
                let mode = aim.flags as libc::c_int & libc::O_ACCMODE;
                let new = has(libc::O_CREAT) && has(libc::O_EXCL);
                Self {
                    read: mode == libc::O_RDONLY || mode == libc::O_RDWR,
                    write: mode != libc::O_RDONLY || has(libc::O_TRUNC),
                    truncate: has(libc::O_TRUNC),
                    create: has(libc::O_CREAT),
                    new,
                    follow: !has(libc::O_NOFOLLOW) && !new,
                    ..nothing
                }
            }
        }
    }
}
