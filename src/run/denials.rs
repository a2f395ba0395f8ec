//! Denied operations of the workload: received while it runs, counted, and reported with the rule and a flag that would allow
//! them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use stockade_seccomp::Action;

use super::observer::absent::Absence;
use super::observer::touched::Touched;
use super::observer::{Observer, Refusal};
use crate::confine::landlock;
use crate::confine::seccomp::listen::{Attempt, Judge, Look};
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, Landlock, Network, RunPlan};
use crate::report::{Denial, Unheard};
use crate::run::kernel_audit::{Access, Stream};

/// Most distinct denials that are listed with their targets. A workload could produce an unlimited number.
const MOST_LISTED: usize = 256;
/// The operation under which further denials are counted.
const OTHERS: &str = "others";
/// Most calls that are answered in one turn of the supervisor.
const MOST_AT_ONCE: usize = 64;
/// How long to wait for the audit stream after the workload has ended: a kernel thread delivers the records.
const STREAM_DELAY: Duration = Duration::from_millis(20);
const END_OF_STREAM_DELAY: Duration = Duration::from_millis(500);

/// Layer, operation and target. Denials with equal keys are counted together.
type Key = (&'static str, String, Option<String>);

/// The sources of denials, and the denials so far.
#[derive(Debug)]
pub struct Denials {
    judge: Option<Rc<Judge>>,
    listener: Option<OwnedFd>,
    stream: Option<Stream>,
    /// Why the audit stream is not available, if Landlock is in use.
    stream_error: Option<Errno>,
    /// Looks at calls with paths.
    observer: Option<Observer>,
    /// Why there is no observer.
    unobserved: Option<&'static str>,
    landlock: Option<Landlock>,
    network: Network,
    listed: Vec<Denial>,
    known: HashMap<Key, usize>,
    /// The processes that were killed for a system call, with its name.
    killed: Vec<(i32, String)>,
    /// Whether a process could not be killed for a system call.
    pub escaped: bool,
}

impl Denials {
    /// Parent half. Opens the audit stream if possible.
    pub fn prepare(plan: &RunPlan, judge: Option<Rc<Judge>>) -> Self {
        let stream = match (&plan.confinement.landlock, landlock::is_logged()) {
            (None, _) => Ok(None),
            (Some(_), false) => Err(Errno::EOPNOTSUPP),
            (Some(_), true) => Stream::open().map(Some),
        };
        let unobserved = unobserved(plan, judge.as_deref());
        Self {
            observer: unobserved.is_none().then(|| Observer::new(plan, stream.is_err())),
            unobserved,
            judge,
            listener: None,
            stream_error: stream.as_ref().err().copied(),
            stream: stream.ok().flatten(),
            landlock: plan.confinement.landlock.clone(),
            network: plan.namespaces.network,
            listed: Vec::new(),
            known: HashMap::new(),
            killed: Vec::new(),
            escaped: false,
        }
    }

    /// Notes what calls use, too. An error if they are not looked at.
    pub fn note_uses(&mut self, touched: &Rc<RefCell<Touched>>) -> Result<()> {
        match &mut self.observer {
            Some(observer) => observer.touched = Some(Rc::clone(touched)),
            None => {
                let reason = format!("cannot be observed: {}", self.unobserved.unwrap_or_default());
                return Err(Error::new(Step::Plan, "the calls of the command", reason));
            }
        }
        Ok(())
    }

    /// Receives refused calls from now on.
    pub fn listen(&mut self, listener: OwnedFd) {
        self.listener = Some(listener);
    }

    /// The descriptors that become readable when [`Self::take`] has something to do.
    pub fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let stream = self.stream.as_ref().map(Stream::fd);
        let listener = self.listener.as_ref().map(AsFd::as_fd);
        listener.into_iter().chain(stream).map(|fd| PollFd::new(fd, PollFlags::POLLIN))
    }

    /// Handles pending notifications without blocking. `since` is when the workload began, `process` its id on the host.
    pub fn take(&mut self, since: Instant, process: Option<i32>) {
        for _ in 0..MOST_AT_ONCE {
            let Some((listener, judge)) = self.listener.as_ref().zip(self.judge.as_deref()) else { break };
            let (observer, mut seen) = (&mut self.observer, None);
            let mut look = |look: &Look<'_>| {
                let refusal = observer.as_mut().and_then(|observer| observer.look(look, elapsed_us(since)));
                seen = refusal.map(|refusal| (refusal, look.thread, look.comm()));
            };
            let events = readiness(listener.as_fd());
            if events.contains(PollFlags::POLLIN) {
                let attempt = judge.take(listener.as_fd(), &mut look);
                if let Some((refusal, thread, comm)) = seen {
                    self.note_refusal(refusal, thread, comm, since);
                }
                if let Some(attempt) = attempt {
                    self.note_call(&attempt, since);
                    if attempt.killed.is_some() {
                        break; // answering may have taken a while, and deadlines are pending
                    }
                }
            } else {
                if !events.is_empty() {
                    self.listener = None; // every process under the filter has ended
                }
                break;
            }
        }
        if let (Some(stream), Some(process)) = (&mut self.stream, process) {
            for access in stream.take(process) {
                self.note_access(access, since);
            }
        }
    }

    /// Waits a short time for the last records of the audit stream, after the workload has ended.
    pub fn take_last(&mut self, since: Instant, process: Option<i32>) {
        let ended = Instant::now();
        self.listener = None;
        if let Some(observer) = &mut self.observer {
            observer.close();
        }
        while let Some(stream) = self.stream.as_ref() {
            let delay = if stream.is_open() { END_OF_STREAM_DELAY } else { STREAM_DELAY };
            let Some(left) = delay.checked_sub(ended.elapsed()) else { return };
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let came = poll(&mut [PollFd::new(stream.fd(), PollFlags::POLLIN)], timeout);
            let was_open = stream.is_open();
            if came != Ok(0) {
                self.take(since, process);
            }
            if was_open && self.stream.as_ref().is_some_and(|stream| !stream.is_open()) {
                return;
            }
        }
    }

    /// The system call for which this process was killed.
    pub fn killed_for(&self, process: Option<i32>) -> Option<&str> {
        self.killed.iter().find(|(killed, _)| Some(*killed) == process).map(|(_, call)| call.as_str())
    }

    /// The layers whose denials could not be received, with the reason.
    pub fn unheard(&self) -> Vec<Unheard> {
        let landlock = self.stream_error.map(|errno| match errno {
            Errno::ENODATA => "the kernel's auditing is off; auditctl -e 1 enables it",
            Errno::EPERM | Errno::EACCES | Errno::ECONNREFUSED => {
                "only the host's root can read the audit stream (CAP_AUDIT_READ and CAP_AUDIT_CONTROL)"
            }
            Errno::EPROTONOSUPPORT => "this kernel does not support auditing",
            Errno::EOPNOTSUPP => "Landlock reports denials since ABI 7 (Linux 6.15)",
            other => other.desc(),
        });
        let overflowed = self.observer.as_ref().is_some_and(|observer| observer.absences.overflowed);
        let layers = [
            ("landlock", landlock),
            ("mount, mode, network and view", self.unobserved),
            ("view", overflowed.then_some("more paths were not found than are compared with the host's")),
        ];
        let unheard =
            |(layer, why): (&str, Option<&str>)| Some(Unheard { layer: layer.to_owned(), why: why?.to_owned() });
        layers.into_iter().filter_map(unheard).collect()
    }

    /// The denials, in the order of their first occurrence.
    pub fn into_listed(mut self) -> Vec<Denial> {
        let mut absences = self.observer.take().map(|observer| observer.absences).unwrap_or_default();
        for absence in absences.on_host() {
            self.note_absence(absence);
        }
        self.listed.sort_by_key(|denial| denial.first_us);
        self.listed
    }

    fn note_call(&mut self, attempt: &Attempt, since: Instant) {
        let Some(judge) = &self.judge else { return };
        let op = judge.name(&attempt.call);
        if let Some(process) = attempt.killed.filter(|_| self.killed.len() < MOST_LISTED) {
            self.killed.push((process, op.clone()));
        }
        self.escaped |= attempt.escaped;
        if judge.is_tried(&attempt.call) && matches!(attempt.action, Action::Errno(_)) {
            return;
        }
        let key = self.key("seccomp", op, attempt.target.clone());
        if self.counted(&key) {
            return;
        }
        let Some(judge) = &self.judge else { return };
        let errno = match attempt.action {
            Action::Errno(errno) => Some(i32::from(errno)),
            _ => None,
        };
        let mut denial = Denial { errno, ..blank(&key, since) };
        if key.1 != OTHERS {
            denial.rule = judge.rule(&attempt.call);
            denial.hint = judge.hint(&attempt.call);
            denial.pid = Some(attempt.pid);
            denial.comm = attempt.comm.clone();
        }
        self.add(key, denial);
    }

    fn note_refusal(&mut self, refusal: Refusal, thread: u32, comm: Option<Bytes>, since: Instant) {
        let target = shown(&refusal.target);
        let key = self.key(refusal.layer, refusal.op.to_owned(), Some(target));
        if self.counted(&key) {
            return;
        }
        let mut denial = Denial { errno: Some(refusal.errno), ..inferred(&key, since) };
        if key.1 != OTHERS {
            denial.rule = Some(refusal.rule);
            denial.hint = refusal.hint.or_else(|| self.landlock_hint(&key.1, key.2.as_deref()));
            (denial.pid, denial.comm) = (Some(thread), comm);
        }
        self.add(key, denial);
    }

    /// What the host has and the sandbox does not.
    fn note_absence(&mut self, absence: Absence) {
        let key = self.key("view", absence.op.to_owned(), Some(shown(&absence.target)));
        if let Some(at) = self.known.get(&key) {
            self.listed[*at].count += absence.count;
            return;
        }
        let wanted = shown(absence.wanted());
        let option = match () {
            () if wanted.starts_with("/dev/") => "--device",
            () if absence.writes => "--rw",
            () => "--ro",
        };
        let errno = Some(libc::ENOENT);
        let mut denial = Denial { errno, count: absence.count, ..inferred(&key, Instant::now()) };
        denial.first_us = absence.first_us;
        if key.1 != OTHERS {
            denial.rule = Some("the host has it, and the sandbox does not".to_owned());
            denial.hint = Some(format!("{option} {wanted} would show it"));
            (denial.pid, denial.comm) = (Some(absence.thread), absence.comm);
        }
        self.add(key, denial);
    }

    fn note_access(&mut self, Access { blockers, target }: Access, since: Instant) {
        let key = self.key("landlock", blockers, target);
        if self.counted(&key) {
            return;
        }
        let scoped = key.1.starts_with("scope.") || key.1 == "ptrace";
        let mut denial = Denial { errno: Some(if scoped { libc::EPERM } else { libc::EACCES }), ..blank(&key, since) };
        if key.1 != OTHERS {
            let rule = if scoped { "access outside the sandbox is denied" } else { "no rule allows it there" };
            denial.rule = Some(rule.to_owned());
            denial.hint = self.landlock_hint(&key.1, key.2.as_deref());
        }
        self.add(key, denial);
    }

    /// The key under which a denial is counted. When many are listed, the target is dropped; at twice as many, all further
    /// denials of a layer share one key.
    fn key(&self, layer: &'static str, op: String, target: Option<String>) -> Key {
        let has_room = |key: &Key, most| self.listed.len() < most || self.known.contains_key(key);
        let exact = (layer, op, target);
        if has_room(&exact, MOST_LISTED) {
            return exact;
        }
        let any = (layer, exact.1, None);
        if has_room(&any, 2 * MOST_LISTED) { any } else { (layer, OTHERS.to_owned(), None) }
    }

    fn counted(&mut self, key: &Key) -> bool {
        let at = self.known.get(key);
        at.is_some_and(|at| {
            self.listed[*at].count += 1;
            true
        })
    }

    fn add(&mut self, key: Key, denial: Denial) {
        self.known.insert(key, self.listed.len());
        self.listed.push(denial);
    }

    fn landlock_hint(&self, blockers: &str, target: Option<&str>) -> Option<String> {
        let rules = self.landlock.as_ref()?;
        let target = target?;
        let has = |right: &str| blockers.split(',').any(|blocker| blocker == right);
        let hint = match blockers {
            _ if has("net.connect_tcp") || has("net.bind_tcp") => match self.network {
                Network::None => "--network loopback or host would allow it".to_owned(),
                _ if has("net.bind_tcp") => format!("--allow-bind {target} would allow it"),
                _ => format!("--allow-connect {target} would allow it"),
            },
            _ if has("fs.execute") => format!("--allow-exec {target} would allow it"),
            _ if has("fs.read_file") || has("fs.read_dir") => format!("--allow-read {target} would allow it"),
            _ if blockers.starts_with("fs.") && rules.write.is_some() => {
                format!("--allow-write {target} would allow it")
            }
            _ if blockers.starts_with("fs.") => format!("--rw {target} would make it writable"),
            _ => return None,
        };
        Some(hint)
    }
}

/// Why calls with paths are not looked at.
fn unobserved(plan: &RunPlan, judge: Option<&Judge>) -> Option<&'static str> {
    match judge {
        _ if !plan.namespaces.own => Some("without namespaces there are no mounts of its own"),
        _ if plan.namespaces.nested > 0 => Some("nested namespaces can have mounts of their own"),
        None => Some("no seccomp profile filters system calls"),
        Some(judge) => judge.unobserved(),
    }
}

fn shown(path: &Path) -> String {
    Bytes::from(path.as_os_str()).to_string()
}

/// A denial that was not told but known before the call.
fn inferred(key: &Key, since: Instant) -> Denial {
    Denial { confidence: "inferred".to_owned(), ..blank(key, since) }
}

fn blank(key: &Key, since: Instant) -> Denial {
    Denial {
        layer: key.0.to_owned(),
        op: key.1.clone(),
        target: key.2.clone(),
        rule: None,
        errno: None,
        pid: None,
        comm: None,
        count: 1,
        first_us: elapsed_us(since),
        hint: None,
        confidence: "exact".to_owned(),
    }
}

fn elapsed_us(since: Instant) -> Option<u64> {
    u64::try_from(since.elapsed().as_micros()).ok()
}

fn readiness(fd: BorrowedFd<'_>) -> PollFlags {
    let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
    match poll(&mut polled, PollTimeout::ZERO) {
        Ok(_) => polled[0].revents().unwrap_or(PollFlags::empty()),
        Err(_) => PollFlags::empty(),
    }
}
