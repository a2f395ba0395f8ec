//! Hearing of refused calls: a listener that takes note of them and lets them fail as the profile says.
//!
//! The program that is installed answers "ask the listener" wherever the profile's own says "fail with this error" or "kill
//! the process"; every other answer, and the way to it, is unchanged. The listener runs the profile's own program over the
//! call, so what a caller gets is the same, only later (a signal whose handler does not restart calls can interrupt it while
//! it waits, as any call that waits). It has no way to let a call go on: a filter of the workload's own can
//! be stricter than that, never laxer, and the kernel allows no second listener. When the listener is gone, so is the run.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use stockade_seccomp::builtin::{self, Builtin, Group};
use stockade_seccomp::{Action, Arch, Call, Context, Profile, Program, X32_BIT, explain, interpret};

use super::{Request, Source, arguments, rules};
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, Network};
use crate::sys::status::Status;
use crate::sys::{process, seccomp};

/// Longest text that is read from a caller's memory.
const MOST_TEXT: usize = 256;

/// How long a process may take to die of SIGSYS. One that shares its handlers, or a tracer that came late, keeps it alive.
const PATIENCE: Duration = Duration::from_millis(100);

/// What decides about the calls that a listener hears of.
#[derive(Debug)]
pub struct Judge {
    program: Program,
    /// What the program means; `None` for one that came compiled.
    profile: Option<Profile>,
    network: Network,
    groups: Vec<Group>,
    builtin: bool,
    /// Whether text is read from the caller's memory. Not where it could make us wait for a page that never comes.
    reads: bool,
}

/// A call that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The call itself.
    pub call: Call,
    /// What became of it.
    pub action: Action,
    /// The thread that made it, on the host.
    pub pid: u32,
    /// Its name, `comm` in `proc(5)`; `None` when it was gone too soon.
    pub comm: Option<Bytes>,
    /// What of its arguments tells.
    pub target: Option<String>,
    /// The process that was killed for it.
    pub killed: Option<i32>,
    /// Whether its process was to be killed for it and could not be.
    pub escaped: bool,
}

impl Judge {
    /// Decides by the program of a request; its meaning is worked out once more, for people.
    pub fn new(program: Program, request: &Request<'_>, context: &Context<'_>) -> Result<Self> {
        let profile = match request.source {
            Source::Binary(_) => None,
            Source::Builtin(_) | Source::File(_) | Source::Text(_) => Some(rules(request, context)?.0),
        };
        let always = |name, lets: fn(Action) -> bool| {
            let number = Arch::NATIVE.number(name).unwrap_or_default();
            let call = |args| Call { arch: Arch::NATIVE.audit(), number, args };
            [[0; 6], [1; 6], [!0; 6]]
                .map(|args| interpret::run(&program.instructions, &call(args)).0)
                .into_iter()
                .all(lets)
        };
        // Nobody can hear of these two before the workload runs.
        if let Some(name) = ["execve", "exit_group"].into_iter().find(|name| !always(name, Action::lets_through)) {
            let reason = "is refused by the profile: nothing can run under it";
            return Err(Error::new(Step::SeccompProfile, name, reason));
        }
        Ok(Self {
            reads: always("userfaultfd", |action| !action.lets_through()),
            program,
            profile,
            network: request.network,
            groups: request.groups.to_vec(),
            builtin: matches!(request.source, Source::Builtin(_)),
        })
    }

    /// The program with its refusals handed to a listener.
    pub fn listening(&self) -> Vec<libc::sock_filter> {
        let answers = self.program.instructions.iter().map(|one| match (one.code, Action::decode(one.k)) {
            (0x06, Action::Errno(_) | Action::KillProcess) => (one, Action::Notify.encode()),
            _ => (one, one.k),
        });
        answers.map(|(one, k)| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k }).collect()
    }

    /// Takes the call that waits, takes note of it, and lets it fail. `None` when its caller is gone.
    ///
    /// The listener must be readable, or this waits.
    pub fn take(&self, listener: BorrowedFd<'_>) -> Option<Attempt> {
        let waiting = seccomp::receive(listener).ok()?;
        let call = Call { arch: waiting.arch, number: waiting.number, args: waiting.args };
        let action = interpret::run(&self.program.instructions, &call).0;
        let mut attempt =
            Attempt { call, action, pid: waiting.pid, comm: None, target: None, killed: None, escaped: false };
        let thread = Pid::from_raw(waiting.pid as i32);
        attempt.comm = comm(thread);
        if call.arch == Arch::NATIVE.audit()
            && let Some(name) = Arch::NATIVE.name(call.number)
        {
            attempt.target =
                arguments::describe(name, &call.args, |address| self.reads.then(|| text(thread, address)).flatten());
        }
        // What was read is the caller's own only if it waited all the time.
        if !seccomp::is_waiting(listener, waiting.id) {
            return None;
        }
        let mut dying = None;
        let errno = match action {
            Action::Errno(errno) => i32::from(errno),
            Action::KillProcess => {
                dying = kill(thread, || seccomp::is_waiting(listener, waiting.id));
                attempt.killed = dying.as_ref().map(|(process, _)| *process);
                attempt.escaped = dying.is_none() && seccomp::is_waiting(listener, waiting.id);
                libc::EPERM // it never sees it, or not for long
            }
            _ => libc::EPERM, // the two programs differ only in what was handed over
        };
        let refused = seccomp::refuse(listener, waiting.id, errno);
        // It can die only once it has its answer: until then it waits for that.
        if let Some((_, pidfd)) = dying {
            attempt.escaped = !dies(&pidfd);
        }
        match refused {
            Ok(()) | Err(Errno::ENOENT) => Some(attempt),
            Err(_) => None,
        }
    }

    /// The name of a call.
    pub fn name(&self, call: &Call) -> String {
        if call.arch != Arch::NATIVE.audit() {
            return format!("call {} of another architecture", call.number);
        }
        if Arch::NATIVE == Arch::X86_64 && call.number & X32_BIT != 0 {
            return format!("call {} of the x32 table", call.number & !X32_BIT);
        }
        Arch::NATIVE.name(call.number).map_or_else(|| format!("call {}", call.number), str::to_owned)
    }

    /// The rule that refused it.
    pub fn rule(&self, call: &Call) -> Option<String> {
        Some(match explain::decide(self.profile.as_ref()?, call) {
            (_, explain::Reason::Rule(stage, rule)) => explain::describe(stage, rule),
            (action, explain::Reason::Default) => format!("{action}, the default"),
            (action, explain::Reason::Beyond) => format!("{action}, as the number is above all that the profile names"),
            (action, explain::Reason::Foreign) => format!("{action}: only calls of this machine's own table are made"),
        })
    }

    /// What would allow it, as flags.
    pub fn hint(&self, call: &Call) -> Option<String> {
        let profile = self.profile.as_ref()?;
        if profile.is_foreign(call) {
            return Some("no profile allows calls of another table: build the program for this machine".to_owned());
        }
        let context = Context { arch: Arch::NATIVE, kernel: super::running_kernel(), capabilities: &[], strict: false };
        let allows = |group: &Group| {
            let mut wider = profile.clone();
            builtin::allow(&mut wider, &[*group], &context).is_ok() && wider.decide(call).lets_through()
        };
        if let Some(group) = Group::ALL.iter().filter(|group| !self.groups.contains(group)).find(|group| allows(group))
        {
            return Some(format!("--seccomp-allow {} would allow it", group.name()));
        }
        if self.builtin && self.network == Network::None && Arch::NATIVE.name(call.number) == Some("socket") {
            let with = Builtin::Default.profile(true, &self.groups, &context);
            if with.is_ok_and(|profile| profile.decide(call).lets_through()) {
                return Some("--network loopback or host would allow it".to_owned());
            }
        }
        Some("no group of --seccomp-allow has it: a profile of your own could, with --seccomp FILE".to_owned())
    }
}

/// Sends SIGSYS to a process, of which one dies that a filter kills; SIGKILL to one that would not die of that, or that another
/// thread or a tracer could keep from it. That the thread still waits once its process is held by a pidfd says that it is that
/// process.
fn kill(thread: Pid, waits: impl FnOnce() -> bool) -> Option<(i32, OwnedFd)> {
    let status = Status::of(thread.as_raw()).ok()?;
    let process = status.number("Tgid")?;
    let mask = |name| status.mask(name).unwrap_or(!0);
    let deaf = (mask("SigBlk") | mask("SigIgn") | mask("SigCgt")) & 1 << (libc::SIGSYS - 1) != 0;
    let helped = (status.field("Threads"), status.field("TracerPid")) != (Some("1"), Some("0"));
    let pidfd = process::pidfd_open(Pid::from_raw(process)).ok()?;
    if !waits() {
        return None;
    }
    process::pidfd_send_signal(pidfd.as_fd(), if deaf || helped { libc::SIGKILL } else { libc::SIGSYS }).ok()?;
    Some((process, pidfd))
}

/// Whether a process that was sent a deadly signal is dead or dying: one that lives on gets SIGKILL, which nothing holds up.
fn dies(pidfd: &OwnedFd) -> bool {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now())).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], left) {
            Err(Errno::EINTR) => {}
            Ok(1..) => return true,
            Ok(_) | Err(_) => break,
        }
    }
    matches!(process::pidfd_send_signal(pidfd.as_fd(), libc::SIGKILL), Ok(()) | Err(Errno::ESRCH))
}

fn comm(thread: Pid) -> Option<Bytes> {
    let mut comm = std::fs::read(format!("/proc/{thread}/comm")).ok()?;
    comm.truncate(comm.len().saturating_sub(1)); // a newline
    comm.retain(|byte| *byte != 0);
    Some(Bytes::from(comm))
}

/// A C string in the memory of a thread, cut to [`MOST_TEXT`]; what follows an unreadable page is left out.
fn text(thread: Pid, address: u64) -> Option<Vec<u8>> {
    let mut buffer = [0; MOST_TEXT];
    let start = usize::try_from(address).ok()?;
    let whole = 4096 - start % 4096; // up to the end of its page, which is readable as a whole or not at all
    let mut length = 0;
    for (from, to) in [(0, whole.min(MOST_TEXT)), (whole.min(MOST_TEXT), MOST_TEXT)] {
        let remote = RemoteIoVec { base: start.checked_add(from)?, len: to - from };
        match process_vm_readv(thread, &mut [IoSliceMut::new(&mut buffer[from..to])], &[remote]) {
            Ok(read @ 1..) => length = from + read,
            _ => break,
        }
        if buffer[..length].contains(&0) {
            break;
        }
    }
    let end = buffer[..length].iter().position(|byte| *byte == 0).unwrap_or(length);
    (end > 0).then(|| buffer[..end].to_vec())
}
