//! What the supervisor of a session asks of its file server, and the answers. Requests come from the supervisor, which has
//! checked them. Answers come from a process that the workload may have killed or replaced by nothing better: whatever is not
//! exactly an answer is none.

#[cfg(test)]
mod tests;

use std::ffi::{CStr, CString};

use nix::errno::Errno;

use crate::sys::pack::{Packer, Unpacker};

/// The longest message.
pub const LARGEST: usize = 64 << 10;

/// The most bytes of entries in an answer. One more entry, with a name and a target of the greatest length, still fits.
pub const MOST_LISTED: usize = LARGEST - (8 << 10);

/// The most entries in an answer.
pub const MOST_ENTRIES: usize = 1000;

/// What to do with a file. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Open a regular file, and hand out its descriptor.
    Open(Open),
    /// Describe a file.
    Stat(CString, Follow),
    /// Describe the entries of a directory from a position on, at most so many.
    List(CString, i64, usize),
    /// Make a directory with this mode, or also those above it.
    MakeDir(CString, u32, Parents),
    /// Rename a file, over another one or only to a new name.
    Rename(CString, CString, Replace),
    /// Remove a file or an empty directory, or also what is below it.
    Remove(CString, Below),
    /// Make a symlink with this name and target.
    Symlink(CString, CString),
    /// Give a file, which is not followed, another name.
    HardLink(CString, CString),
    /// Change the mode and the times of a file, but not of one that a link names.
    Set(CString, Attributes),
}

/// How to open a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The path.
    pub path: CString,
    /// `O_RDONLY`, `O_WRONLY` or `O_RDWR`, and any of `O_CREAT`, `O_EXCL`, `O_TRUNC`, `O_APPEND`, `O_NOFOLLOW`.
    pub flags: i32,
    /// The mode of a new file.
    pub mode: u32,
    /// Whether missing directories above it are made.
    pub parents: Parents,
}

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident: $yes:literal;)+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(#[doc = $yes] pub bool);)+
    };
}

choices! {
    /// Whether the last name of a path is followed if it is a link.
    Follow: "It is.";
    /// Whether missing directories on the way are made.
    Parents: "They are.";
    /// Whether a file that has the name already is replaced.
    Replace: "It is.";
    /// Whether what is below a directory is removed too.
    Below: "It is.";
}

/// Attributes to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Time of the last change of its content, since 1970.
    pub modified_ns: Option<i64>,
    /// Time of the last access, since 1970.
    pub accessed_ns: Option<i64>,
}

/// A file, as `stat(2)` describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStat {
    /// Type and permission bits.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes that it takes on its file system.
    pub allocated: u64,
    /// Time of the last change of its content, since 1970.
    pub modified_ns: i64,
    /// Owner in the sandbox.
    pub uid: u32,
    /// Group in the sandbox.
    pub gid: u32,
    /// Its names.
    pub links: u64,
    /// What it points to, if it is a symlink.
    pub target: Option<CString>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It could not be done.
    Failed(Errno),
    /// It could not be done because the file has this type, not the required one.
    WrongType(u32),
    /// It is done.
    Done,
    /// It is done as far as time allowed. It can be asked for again.
    Partly,
    /// The file that the descriptor in the packet is, or that was asked about.
    File(FileStat),
    /// Entries of a directory, and the position of the next one if there may be more.
    Entries(Vec<(CString, FileStat)>, Option<i64>),
}

impl Request {
    /// The packet with this number.
    pub fn pack(&self, number: u64) -> Vec<u8> {
        let mut packer = Packer::default();
        packer.number(number);
        let mut kind = |kind| packer.number(kind);
        match self {
            Self::Open(open) => {
                kind(1);
                packer.string(&open.path);
                packer.number(open.flags as u64);
                packer.number(open.mode.into());
                packer.number(open.parents.0.into());
            }
            Self::Stat(path, follow) => {
                kind(2);
                packer.string(path);
                packer.number(follow.0.into());
            }
            Self::List(path, from, most) => {
                kind(3);
                packer.string(path);
                packer.number(*from as u64);
                packer.number(*most as u64);
            }
            Self::MakeDir(path, mode, parents) => {
                kind(4);
                packer.string(path);
                packer.number((*mode).into());
                packer.number(parents.0.into());
            }
            Self::Rename(path, to, replace) => {
                kind(5);
                packer.string(path);
                packer.string(to);
                packer.number(replace.0.into());
            }
            Self::Remove(path, below) => {
                kind(6);
                packer.string(path);
                packer.number(below.0.into());
            }
            Self::Symlink(path, target) => {
                kind(7);
                packer.string(path);
                packer.string(target);
            }
            Self::HardLink(path, to) => {
                kind(9);
                packer.string(path);
                packer.string(to);
            }
            Self::Set(path, attributes) => {
                kind(8);
                packer.string(path);
                optional(&mut packer, attributes.mode.map(u64::from));
                optional(&mut packer, attributes.modified_ns.map(|time| time as u64));
                optional(&mut packer, attributes.accessed_ns.map(|time| time as u64));
            }
        }
        packer.into_bytes()
    }

    /// The file server's half: number and request.
    pub fn unpack(bytes: &[u8]) -> Result<(u64, Self), Errno> {
        let mut from = Unpacker::new(bytes);
        let number = from.number()?;
        let request = match from.number()? {
            1 => Self::Open(Open {
                path: from.string()?,
                flags: from.number()? as i32,
                mode: from.number()? as u32,
                parents: Parents(from.number()? != 0),
            }),
            2 => Self::Stat(from.string()?, Follow(from.number()? != 0)),
            3 => Self::List(from.string()?, from.number()? as i64, from.number()? as usize),
            4 => Self::MakeDir(from.string()?, from.number()? as u32, Parents(from.number()? != 0)),
            5 => Self::Rename(from.string()?, from.string()?, Replace(from.number()? != 0)),
            6 => Self::Remove(from.string()?, Below(from.number()? != 0)),
            7 => Self::Symlink(from.string()?, from.string()?),
            8 => Self::Set(
                from.string()?,
                Attributes {
                    mode: option(&mut from)?.map(|mode| mode as u32),
                    modified_ns: option(&mut from)?.map(|time| time as i64),
                    accessed_ns: option(&mut from)?.map(|time| time as i64),
                },
            ),
            9 => Self::HardLink(from.string()?, from.string()?),
            _ => return Err(Errno::EBADMSG),
        };
        Ok((number, request))
    }

    /// The path, for messages.
    pub fn path(&self) -> &CStr {
        match self {
            Self::Open(Open { path, .. })
            | Self::Stat(path, _)
            | Self::List(path, ..)
            | Self::MakeDir(path, ..)
            | Self::Rename(path, ..)
            | Self::Remove(path, _)
            | Self::Symlink(path, _)
            | Self::HardLink(path, _)
            | Self::Set(path, _) => path,
        }
    }

    /// Whether this can be an answer to it.
    pub fn accepts(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (_, Answer::Failed(_))
            | (Self::Open(_) | Self::List(..) | Self::Set(..), Answer::WrongType(_))
            | (Self::Open(_) | Self::Stat(..), Answer::File(_))
            | (Self::Remove(_, Below(true)), Answer::Partly) => true,
            (Self::List(_, _, most), Answer::Entries(entries, _)) => entries.len() <= *most,
            (Self::Open(_) | Self::Stat(..) | Self::List(..), _) => false,
            (_, answer) => *answer == Answer::Done,
        }
    }
}

impl Answer {
    /// The packet for the request with this number.
    pub fn pack(&self, number: u64) -> Vec<u8> {
        let mut packer = Packer::default();
        packer.number(number);
        match self {
            Self::Failed(errno) => [1, *errno as u64].into_iter().for_each(|number| packer.number(number)),
            Self::WrongType(mode) => [2, u64::from(*mode)].into_iter().for_each(|number| packer.number(number)),
            Self::Done => packer.number(3),
            Self::Partly => packer.number(4),
            Self::File(stat) => {
                packer.number(5);
                stat.pack(&mut packer);
            }
            Self::Entries(entries, next) => {
                packer.number(6);
                optional(&mut packer, next.map(|next| next as u64));
                packer.number(entries.len() as u64);
                for (name, stat) in entries {
                    packer.string(name);
                    stat.pack(&mut packer);
                }
            }
        }
        packer.into_bytes()
    }

    /// The supervisor's half: number and answer.
    pub fn unpack(bytes: &[u8]) -> Result<(u64, Self), Errno> {
        let mut from = Unpacker::new(bytes);
        let number = from.number()?;
        let answer = match from.number()? {
            1 => Self::Failed(errno(from.number()?)),
            2 => Self::WrongType(narrow(from.number()?)?),
            3 => Self::Done,
            4 => Self::Partly,
            5 => Self::File(FileStat::unpack(&mut from)?),
            6 => {
                let next = option(&mut from)?.map(|next| next as i64);
                let count = from.number()?;
                if count > MOST_ENTRIES as u64 {
                    return Err(Errno::EBADMSG);
                }
                let entries = (0..count).map(|_| {
                    let name = from.string()?;
                    // A name is used below a directory of the host.
                    let is_name = !matches!(name.to_bytes(), b"" | b"." | b"..") && !name.to_bytes().contains(&b'/');
                    if is_name { Ok((name, FileStat::unpack(&mut from)?)) } else { Err(Errno::EBADMSG) }
                });
                Self::Entries(entries.collect::<Result<_, Errno>>()?, next)
            }
            _ => return Err(Errno::EBADMSG),
        };
        if from.is_empty() { Ok((number, answer)) } else { Err(Errno::EBADMSG) }
    }
}

impl FileStat {
    /// Bytes that an entry takes in an answer.
    pub fn packed(&self, name: &CStr) -> usize {
        80 + name.to_bytes().len() + self.target.as_ref().map_or(0, |target| target.as_bytes().len())
    }

    fn pack(&self, packer: &mut Packer) {
        let numbers = [self.mode.into(), self.size, self.allocated, self.modified_ns as u64];
        let owner = [self.uid.into(), self.gid.into(), self.links, u64::from(self.target.is_some())];
        numbers.into_iter().chain(owner).for_each(|number| packer.number(number));
        if let Some(target) = &self.target {
            packer.string(target);
        }
    }

    fn unpack(from: &mut Unpacker<'_>) -> Result<Self, Errno> {
        Ok(Self {
            mode: narrow(from.number()?)?,
            size: from.number()?,
            allocated: from.number()?,
            modified_ns: from.number()? as i64,
            uid: narrow(from.number()?)?,
            gid: narrow(from.number()?)?,
            links: from.number()?,
            target: match from.number()? {
                0 => None,
                _ => Some(from.string()?),
            },
        })
    }
}

fn narrow(number: u64) -> Result<u32, Errno> {
    u32::try_from(number).map_err(|_| Errno::EBADMSG)
}

/// A number that is not an error number is `EIO`.
fn errno(number: u64) -> Errno {
    match i32::try_from(number).map_or(Errno::UnknownErrno, Errno::from_raw) {
        Errno::UnknownErrno => Errno::EIO,
        errno => errno,
    }
}

fn optional(packer: &mut Packer, number: Option<u64>) {
    packer.number(number.is_some().into());
    packer.number(number.unwrap_or_default());
}

fn option(from: &mut Unpacker<'_>) -> Result<Option<u64>, Errno> {
    let (is_some, number) = (from.number()? != 0, from.number()?);
    Ok(is_some.then_some(number))
}
