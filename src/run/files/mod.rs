//! The file server of a session: a process in the sandbox, started and confined as a command is, that opens files for clients.
//!
//! # Theory of operation
//!
//! The supervisor resolves no path of the sandbox. It sends each request over a socket pair whose other end is this process's
//! standard input; the answer to a request to open a file has the file's descriptor. Init starts it as a command, in a cgroup of
//! its own or below a keeper. Instead of executing a program it gives up its capabilities, installs a filter of its own, which
//! has only what it needs, and serves.
//!
//! It has the workload's user id, so the workload can stop or kill it, but not trace it or reach its descriptors: it stays
//! non-dumpable from init on. The supervisor waits for no answer longer than a few seconds, starts another one for the next
//! request, and takes from an answer nothing that it has not checked.

pub mod message;
mod operations;
mod removal;

use std::convert::Infallible;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::stat::{Mode, umask};
use stockade_seccomp::{Arch, Context, Program};

use self::message::{Answer, LARGEST, Request};
use crate::confine::caps;
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::launch::channels::ChildEnds;
use crate::sys::{entry, packet, process, seccomp};

/// What it may call.
const FILTER: &str = include_str!("../../../profiles/seccomp/files.json");

/// Parent half: compiles its filter.
pub fn filter() -> Result<Vec<libc::sock_filter>> {
    let context = Context { arch: Arch::NATIVE, kernel: (5, 0), capabilities: &[], strict: true };
    let wrong = |error: stockade_seccomp::Error| Error::new(Step::SeccompProfile, "files", error.to_string());
    let (profile, _) = stockade_seccomp::load(FILTER.as_bytes(), None, &context).map_err(wrong)?;
    let program = Program::compile(&profile).map_err(wrong)?;
    let filter = program.instructions.iter();
    Ok(filter.map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect())
}

/// Child half: the last steps of the start, where a command executes its program. Never returns to code that owns a descriptor.
pub fn become_server(filter: &[libc::sock_filter], ends: &ChildEnds) -> Applied<Infallible> {
    entry::retitle(c"stockade: files");
    let _ = process::set_name(c"stockade-files");
    caps::renounce()?;
    umask(Mode::empty()); // the supervisor has the session's
    process::close_but(3, &mut [ends.failure.as_raw_fd()]).during(Step::Descriptors, 0)?;
    seccomp::set_filter(filter, 0).during(Step::Seccomp, 0)?;
    process::close_from(3).during(Step::Descriptors, 0)?; // the supervisor sees that it has begun
    serve(process::borrow_standard(0))
}

/// Answers requests until the supervisor is gone.
fn serve(socket: BorrowedFd<'_>) -> ! {
    let mut buffer = vec![0; LARGEST];
    loop {
        let request = match packet::receive(socket, &mut buffer, true) {
            Ok(received) if received.length > 0 && received.whole => Request::unpack(&buffer[..received.length]),
            _ => process::exit(0),
        };
        let Ok((number, request)) = request else { process::exit(125) };
        let (answer, file) = operations::perform(&request);
        let files: Vec<BorrowedFd<'_>> = file.iter().map(|file| file.as_fd()).collect();
        let sent = match packet::send(socket, &answer.pack(number), &files, true) {
            // Too many descriptors of this user are in flight.
            Err(errno @ (Errno::ETOOMANYREFS | Errno::ENOBUFS | Errno::ENOMEM)) => {
                packet::send(socket, &Answer::Failed(errno).pack(number), &[], true)
            }
            sent => sent,
        };
        if sent.is_err() {
            process::exit(0);
        }
    }
}
