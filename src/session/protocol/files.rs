//! Requests about files of the sandbox, and what is said of a file.

use serde::{Deserialize, Serialize};

use crate::plan::Bytes;

/// A request about files. Paths are absolute, and resolved in the sandbox with its permissions and limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum FileOperation {
    /// Open a regular file. Reply: `done` with `file`, and the descriptor.
    Open(Open),
    /// Describe a file. Reply: `done` with `file`.
    Stat {
        /// The file.
        path: Bytes,
        /// Whether a symlink itself is described.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        no_follow: bool,
    },
    /// Describe the entries of a directory, as many as fit. Reply: `done` with `entries`, and `next` if there may be more.
    List {
        /// The directory.
        path: Bytes,
        /// `next` of the reply before; absent: from the beginning.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// At most so many entries; 1,000 if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    },
    /// Make a directory. Reply: `done`.
    MakeDir {
        /// The directory.
        path: Bytes,
        /// Its mode; 0777 without the session's umask if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        /// Whether missing directories above it are made too, and it may exist.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        parents: bool,
    },
    /// Rename a file. Reply: `done`.
    Rename {
        /// The file.
        path: Bytes,
        /// Its new path.
        to: Bytes,
        /// Whether it is an error that the new path exists.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        no_replace: bool,
    },
    /// Remove a file or a directory. Reply: `done`; with `more` only a part is removed, and the request must be repeated.
    Remove {
        /// The file.
        path: Bytes,
        /// Whether the content of a directory is removed too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        recursive: bool,
    },
    /// Make a symlink. Reply: `done`.
    Symlink {
        /// The link.
        path: Bytes,
        /// What it points to: any text.
        target: Bytes,
    },
    /// Give a file another name. Reply: `done`.
    HardLink {
        /// The file.
        path: Bytes,
        /// Its further path.
        to: Bytes,
    },
    /// Change attributes of a file, but not of one that a symlink points to. Reply: `done`.
    SetAttributes {
        /// The file.
        path: Bytes,
        /// Its permission bits; not of a symlink.
        #[serde(skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        /// Time of the last change, in nanoseconds since 1970.
        #[serde(skip_serializing_if = "Option::is_none")]
        modified_ns: Option<i64>,
        /// Time of the last access.
        #[serde(skip_serializing_if = "Option::is_none")]
        accessed_ns: Option<i64>,
    },
}

/// A file to open. What is absent is `false`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Open {
    /// The file.
    pub path: Bytes,
    /// What the descriptor is for.
    pub access: Access,
    /// Whether a missing file is made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create: bool,
    /// With `create`: whether it is an error that it exists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Whether its content is removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncate: bool,
    /// Whether every write goes to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// With `create`: whether missing directories above it are made too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parents: bool,
    /// Whether it is an error that it is a symlink.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_follow: bool,
    /// The mode of a new file; 0666 without the session's umask if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// What a descriptor is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reading.
    #[default]
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileStatus {
    /// In `entries`: its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Bytes>,
    /// Its type.
    pub r#type: FileType,
    /// Its permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Its size.
    pub size_bytes: u64,
    /// What it takes on its file system.
    pub allocated_bytes: u64,
    /// When its content was changed, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Its owner in the sandbox.
    pub uid: u32,
    /// Its group in the sandbox.
    pub gid: u32,
    /// How many names it has.
    pub links: u64,
    /// Of a symlink: what it points to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Bytes>,
}

/// The types of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum FileType {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
    /// What no file system should have.
    Unknown,
}

impl FileType {
    /// From the mode of `stat(2)`.
    pub fn of(mode: u32) -> Self {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Self::File,
            libc::S_IFDIR => Self::Directory,
            libc::S_IFLNK => Self::Symlink,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFCHR => Self::CharacterDevice,
            libc::S_IFBLK => Self::BlockDevice,
            _ => Self::Unknown,
        }
    }

    /// For messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::File => "a regular file",
            Self::Directory => "a directory",
            Self::Symlink => "a symlink",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Unknown => "of an unknown type",
        }
    }
}
