//! Reports refused calls: a listener records them and lets them fail as the profile requires.
//!
//! The installed program returns "notify the listener" where the profile's own program returns "fail with this error" or "kill
//! the process". Every other result, and the path to it, is unchanged. The listener runs the profile's own program over the
//! call. So the caller gets the same result, only later. (A signal whose handler does not restart calls can interrupt it while
//! it waits, as any waiting call.) A further filter of the workload can only be stricter, and the kernel allows no second
//! listener. When the listener is gone, the run has ended.
//!
//! Calls with paths or addresses that the program allows are shown before they continue (`observe`). Only what the program allows continues.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use stockade_seccomp::builtin::{Builtin, Group};
use stockade_seccomp::{Action, Arch, Call, Context, Instruction, Profile, Program, X32_BIT, explain, interpret};

use super::observe::{self, Kind, PathOf};
use super::remedy::{self, Refusing};
use super::{Request, Source, arguments, memory, rules};
use crate::error::{Error, Step};
use crate::plan::{Bytes, Network};
use crate::sys::status::Status;
use crate::sys::{process, seccomp};

/// The first kernel in which a call can continue, `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUES: (u32, u32) = (5, 5);

/// How long a process may take to die of SIGSYS. Shared signal handlers or a late tracer can keep it alive.
const DEATH_TIMEOUT: Duration = Duration::from_millis(100);

/// Decides about the calls that a listener receives.
#[derive(Debug)]
pub struct Judge {
    program: Program,
    /// The profile, to explain decisions. `None` for a program that came compiled.
    profile: Option<Profile>,
    network: Network,
    groups: Vec<Group>,
    builtin: Option<Builtin>,
    /// Whether text is read from the caller's memory. Not where a page fault could block us for ever.
    reads: bool,
    /// The program that also shows calls with paths, or why there is none.
    observing: Result<Vec<Instruction>, &'static str>,
}

/// A path of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aim {
    /// What the call does with it.
    pub kind: Kind,
    /// The flags for that.
    pub flags: u64,
    /// The path from the root on.
    pub path: Vec<u8>,
}

/// What a socket is to be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whether the socket is one of UDP.
    pub is_udp: bool,
}

/// A call that is about to be made.
pub struct Look<'a> {
    /// The calling thread's id on the host.
    pub thread: u32,
    /// The call's name.
    pub call: &'static str,
    /// What it does with which paths.
    pub aims: Vec<Aim>,
    /// What it connects to.
    pub peer: Option<Peer>,
    /// Its arguments.
    pub args: [u64; 6],
    /// Whether the thread still waits. Then what was read from it belongs to this call.
    pub is_waiting: &'a dyn Fn() -> bool,
}

impl Look<'_> {
    /// The thread's name, `comm` in `proc(5)`.
    pub fn comm(&self) -> Option<Bytes> {
        memory::comm(Pid::from_raw(self.thread as i32))
    }
}

/// A refused call.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The call itself.
    pub call: Call,
    /// The action.
    pub action: Action,
    /// The calling thread's id on the host.
    pub pid: u32,
    /// Its name, `comm` in `proc(5)`. `None` if it ended too early.
    pub comm: Option<Bytes>,
    /// The explaining arguments.
    pub target: Option<String>,
    /// The process that was killed for the call.
    pub killed: Option<i32>,
    /// Whether the process should have been killed for the call but could not be.
    pub escaped: bool,
}

impl Judge {
    /// Uses the program of a request. Its profile is parsed again, to explain decisions.
    pub fn new(
        program: Program,
        request: &Request<'_>,
        context: &Context<'_>,
        observes_paths: bool,
    ) -> Result<Self, Error> {
        let profile = match request.source {
            Source::Binary(_) | Source::Encoded(_) => None,
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
        // These two calls are needed before a listener can be read.
        if let Some(name) = ["execve", "exit_group"].into_iter().find(|name| !always(name, Action::lets_through)) {
            let reason = "is refused by the profile: nothing can run under it";
            return Err(Error::new(Step::SeccompProfile, name, reason));
        }
        let reads = always("userfaultfd", |action| !action.lets_through());
        let observing = match () {
            () if !observes_paths => Err("the processes of the run do not all have its mounts"),
            () if !reads => {
                Err("the filter allows userfaultfd, with which a process can hold up whoever reads its memory")
            }
            // Where a filter of the workload says "tell the tracer", a listener would be asked instead.
            () if allows_filters(&program.instructions) => Err("the filter allows filters of the command's own"),
            () if context.kernel < CONTINUES => Err("a listener can let calls continue since Linux 5.5"),
            () => observe::observing(&listening(&program.instructions)).ok_or("the filter is too long to be doubled"),
        };
        Ok(Self {
            reads,
            observing,
            program,
            profile,
            network: request.network,
            groups: request.groups.to_vec(),
            builtin: match request.source {
                Source::Builtin(builtin) => Some(builtin),
                _ => None,
            },
        })
    }

    /// The program to install.
    pub fn listening(&self) -> Vec<libc::sock_filter> {
        let program = self.observing.clone().unwrap_or_else(|_| listening(&self.program.instructions));
        program.into_iter().map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect()
    }

    /// Why calls with paths are not shown. `None` if they are.
    pub fn unobserved(&self) -> Option<&'static str> {
        self.observing.as_ref().err().copied()
    }

    /// Receives a waiting call. A refused one is recorded and fails. One that the program allows is shown to `look` and
    /// continues; then, or if the caller is gone, `None`.
    ///
    /// Blocks unless the listener is readable.
    pub fn take(&self, listener: BorrowedFd<'_>, look: &mut dyn FnMut(&Look<'_>)) -> Option<Attempt> {
        let waiting = seccomp::receive(listener).ok()?;
        let call = Call { arch: waiting.arch, number: waiting.number, args: waiting.args };
        let action = interpret::run(&self.program.instructions, &call).0;
        if action == Action::Allow {
            self.show(&call, waiting.pid, &|| seccomp::is_waiting(listener, waiting.id), look);
            let _ = seccomp::let_continue(listener, waiting.id); // fails only if the caller is gone
            return None;
        }
        let mut attempt =
            Attempt { call, action, pid: waiting.pid, comm: None, target: None, killed: None, escaped: false };
        let thread = Pid::from_raw(waiting.pid as i32);
        attempt.comm = memory::comm(thread);
        if call.arch == Arch::NATIVE.audit()
            && let Some(name) = Arch::NATIVE.name(call.number)
        {
            attempt.target = arguments::describe(name, &call.args, |address| {
                self.reads.then(|| memory::text(thread, address)).flatten()
            });
        }
        // The text is the caller's only if the caller was waiting all the time.
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
                libc::EPERM // the caller dies before it sees the error, or soon after
            }
            _ => libc::EPERM, // the two programs differ only in the refusals
        };
        let refused = seccomp::refuse(listener, waiting.id, errno);
        // The process can die only after its call was answered, so it is waited for afterwards.
        if let Some((_, pidfd)) = dying {
            attempt.escaped = !dies(&pidfd);
        }
        match refused {
            Ok(()) | Err(Errno::ENOENT) => Some(attempt),
            Err(_) => None,
        }
    }

    /// The rules, unless they came compiled.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Shows a call, if its paths can be read.
    fn show(&self, call: &Call, pid: u32, is_waiting: &dyn Fn() -> bool, look: &mut dyn FnMut(&Look<'_>)) {
        let native = call.arch == Arch::NATIVE.audit() && self.reads;
        let Some((name, paths)) = native.then(|| observe::paths_of(call.number)).flatten() else { return };
        let thread = Pid::from_raw(pid as i32);
        let peer = || {
            let address = memory::peer(thread, call.args[1], call.args[2])?;
            Some(Peer { address, is_udp: memory::is_udp(thread, call.args[0]) })
        };
        let peer = (name == "connect").then(peer).flatten();
        let path_at = |at: usize| match name {
            "bind" | "connect" => memory::socket_path(thread, call.args[at], call.args[at + 1]),
            _ => memory::path(thread, call.args[at]),
        };
        let aim = |&PathOf(directory, at, kind): &PathOf| {
            let path = path_at(at)?;
            let path = memory::absolute(thread, directory.map(|at| call.args[at] as i32), path)?;
            let flags = kind.flags().map_or(0, |at| call.args[at]);
            let flags = if matches!(kind, Kind::OpenHow(_)) { memory::open_flags(thread, flags)? } else { flags };
            Some(Aim { kind, flags, path })
        };
        // An internet address has no path, and what a link is made of may be a descriptor.
        let is_known = |(aim, path): &(Option<Aim>, &PathOf)| aim.is_some() || !matches!(path.2, Kind::Link(_));
        let aims = paths.iter().filter(|_| peer.is_none()).map(|path| (aim(path), path)).filter(is_known);
        let Some(aims) = aims.map(|(aim, _)| aim).collect() else { return };
        let look_at = Look { thread: pid, call: name, aims, peer, args: call.args, is_waiting };
        if is_waiting() {
            look(&look_at);
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

    /// The rule that refused a call.
    pub fn rule(&self, call: &Call) -> Option<String> {
        Some(match explain::decide(self.profile.as_ref()?, call) {
            (_, explain::Reason::Rule(stage, rule)) => explain::describe(stage, rule),
            (action, explain::Reason::Default) => format!("{action}, the default"),
            (action, explain::Reason::Beyond) => format!("{action}, as the number is above all numbers in the profile"),
            (action, explain::Reason::Foreign) => format!("{action}: only the native system call table is allowed"),
        })
    }

    /// What would allow a call.
    pub fn hint(&self, call: &Call) -> Option<String> {
        let profile = self.profile.as_ref()?;
        let (groups, builtin, network) = (&self.groups[..], self.builtin, self.network);
        Some(remedy::hint(&Refusing { profile, groups, builtin, network }, call))
    }

    /// Whether the call is one that programs try and continue without.
    pub fn is_tried(&self, call: &Call) -> bool {
        remedy::is_tried(self.builtin, call)
    }
}

/// Kills a process: with SIGSYS, which a filter uses too, or with SIGKILL if it would survive SIGSYS or another thread or a
/// tracer could prevent its death. If the thread still waits after the pidfd was opened, the pidfd belongs to its process.
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

/// Whether a process is dying of the signal. If it survives, it gets SIGKILL, which cannot be blocked.
fn dies(pidfd: &OwnedFd) -> bool {
    let until = Instant::now() + DEATH_TIMEOUT;
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

/// Whether a program lets a process install another one.
fn allows_filters(program: &[Instruction]) -> bool {
    let lets_through = |name, args| {
        let call = Call { arch: Arch::NATIVE.audit(), number: Arch::NATIVE.number(name).unwrap_or_default(), args };
        interpret::run(program, &call).0.lets_through()
    };
    let (filter, mode) = (libc::SECCOMP_SET_MODE_FILTER.into(), libc::SECCOMP_MODE_FILTER.into());
    lets_through("seccomp", [filter, 0, 0, 0, 0, 0])
        || lets_through("prctl", [libc::PR_SET_SECCOMP as u64, mode, 0, 0, 0, 0])
}

/// The program with its refusals turned into notifications.
fn listening(program: &[Instruction]) -> Vec<Instruction> {
    let answer = |one: &Instruction| match (one.code, Action::decode(one.k)) {
        (0x06, Action::Errno(_) | Action::KillProcess) => Instruction { k: Action::Notify.encode(), ..*one },
        _ => *one,
    };
    program.iter().map(answer).collect()
}
