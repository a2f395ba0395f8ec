//! Requests about files in the words of the protocol and in those of the file server.

use std::ffi::CString;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::error::{Error, Result, Step};
use crate::plan::Bytes;
use crate::report::ErrorRecord;
use crate::run::files::message::{self, Answer, FileStat, Request};
use crate::session::protocol::files::{Access, FileOperation, FileStatus, FileType, Open};
use crate::session::protocol::{Event, Reply};

/// An error about the file of a request.
pub(super) fn failed(request: &Request, reason: &str) -> Error {
    Error::new(Step::SessionFile, object(request), reason)
}

fn object(request: &Request) -> String {
    Bytes::from(request.path().to_bytes().to_vec()).to_string()
}

/// The request as the file server gets it. A file is made with the session's umask, as by its commands.
pub(super) fn request(operation: FileOperation, umask: u32) -> Result<Request> {
    let text = |bytes: Bytes| {
        CString::new(bytes.as_bytes()).map_err(|_| Error::new(Step::SessionRequest, "path", "contains a NUL byte"))
    };
    Ok(match operation {
        FileOperation::Open(open) => Request::Open(message::Open {
            flags: flags(&open),
            mode: open.mode.unwrap_or(0o666 & !umask),
            parents: message::Parents(open.parents),
            path: text(open.path)?,
        }),
        FileOperation::Stat { path, no_follow } => Request::Stat(text(path)?, message::Follow(!no_follow)),
        FileOperation::List { path, from, limit } => {
            let from = from.and_then(|from| from.parse().ok()).unwrap_or_default();
            Request::List(text(path)?, from, limit.map_or(message::MOST_ENTRIES, |limit| limit as usize))
        }
        FileOperation::MakeDir { path, mode, parents } => {
            Request::MakeDir(text(path)?, mode.unwrap_or(0o777 & !umask), message::Parents(parents))
        }
        FileOperation::Rename { path, to, no_replace } => {
            Request::Rename(text(path)?, text(to)?, message::Replace(!no_replace))
        }
        FileOperation::Remove { path, recursive } => Request::Remove(text(path)?, message::Below(recursive)),
        FileOperation::Symlink { path, target } => Request::Symlink(text(path)?, text(target)?),
        FileOperation::HardLink { path, to } => Request::HardLink(text(path)?, text(to)?),
        FileOperation::SetAttributes { path, mode, modified_ns, accessed_ns } => {
            Request::Set(text(path)?, message::Attributes { mode, modified_ns, accessed_ns })
        }
    })
}

fn flags(open: &Open) -> i32 {
    let access = match open.access {
        Access::Read => OFlag::O_RDONLY,
        Access::Write => OFlag::O_WRONLY,
        Access::ReadWrite => OFlag::O_RDWR,
    };
    let asked = [
        (open.create, OFlag::O_CREAT),
        (open.exclusive, OFlag::O_EXCL),
        (open.truncate, OFlag::O_TRUNC),
        (open.append, OFlag::O_APPEND),
        (open.no_follow, OFlag::O_NOFOLLOW),
    ];
    asked.into_iter().filter(|(asked, _)| *asked).fold(access, |flags, (_, flag)| flags | flag).bits()
}

/// The reply for an answer.
pub(super) fn reply(request: &Request, answer: Answer) -> Reply {
    let mut reply = Reply::default();
    match answer {
        Answer::Failed(errno) => return refusal(&Error::errno(Step::SessionFile, object(request), errno)),
        Answer::WrongType(mode) => {
            let found = FileType::of(mode);
            let error = match found {
                FileType::Directory => Error::errno(Step::SessionFile, object(request), Errno::EISDIR),
                _ => failed(request, &format!("is {}", found.words())),
            };
            return refusal(&error);
        }
        Answer::Done => {}
        Answer::Partly => reply.more = true,
        Answer::File(stat) => reply.file = Some(status(None, stat)),
        Answer::Entries(entries, next) => {
            let entry = |(name, stat): (CString, FileStat)| status(Some(name.into_bytes().into()), stat);
            reply.entries = Some(entries.into_iter().map(entry).collect());
            reply.next = next.map(|next| next.to_string());
        }
    }
    reply
}

/// The reply that refuses a request.
pub(super) fn refusal(error: &Error) -> Reply {
    let (record, exit_code) = (ErrorRecord::from(error), error.exit_code());
    Reply { event: Event::Error, error: Some(record), exit_code: Some(exit_code), ..Reply::default() }
}

fn status(name: Option<Bytes>, stat: FileStat) -> FileStatus {
    FileStatus {
        name,
        r#type: FileType::of(stat.mode),
        mode: stat.mode & 0o7777,
        size_bytes: stat.size,
        allocated_bytes: stat.allocated,
        modified_ns: stat.modified_ns,
        uid: stat.uid,
        gid: stat.gid,
        links: stat.links,
        target: stat.target.map(|target| target.into_bytes().into()),
    }
}
