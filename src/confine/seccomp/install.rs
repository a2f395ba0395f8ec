//! Prepares the workload's filter from the plan, and installs it.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use stockade_seccomp::builtin::{self, Builtin, Group, Guard};
use stockade_seccomp::{Action, Arch, Call, Context, Instruction, Listener, Program, interpret};

use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::{Capability, ContainerPlan, Network, RunPlan, Seccomp, SeccompProfile};
use crate::report;
use crate::sys;

use super::listen::Judge;
use super::{Request, Source};

/// A filter in the kernel's types, ready to be installed.
#[derive(Clone, Debug)]
pub struct PreparedSeccomp {
    /// A filter with the guards, if the profile does not contain them.
    guard: Option<Vec<libc::sock_filter>>,
    filter: Option<Vec<libc::sock_filter>>,
    flags: u32,
    listens: bool,
    listener: Option<Listener>,
    record: report::Seccomp,
    /// Warnings about the profile.
    pub warnings: Vec<String>,
}

/// A system call and those of its arguments that are known: index and value.
#[derive(Clone, Copy, Debug)]
pub struct KnownCall(pub libc::c_long, pub &'static [(usize, u64)]);

impl KnownCall {
    /// Whether a program allows it without notifying a listener or a tracer. `None` if that depends on an unknown argument.
    fn is_allowed_by(&self, program: &[Instruction]) -> Option<bool> {
        self.answer(program).map(|action| matches!(action, Action::Allow | Action::Log))
    }

    fn answer(&self, program: &[Instruction]) -> Option<Action> {
        let Self(number, arguments) = *self;
        let mut call = Call { arch: Arch::NATIVE.audit(), number: number as u32, args: [0; 6] };
        let mut known = [usize::MAX; 6];
        for (place, (index, value)) in known.iter_mut().zip(arguments) {
            (*place, call.args[*index]) = (*index, *value);
        }
        interpret::run_partly(program, &call, &known)
    }
}

/// Since Linux 5.19 a waiting caller can be made killable only, so that a signal cannot make it repeat the call.
const WAIT_KILLABLE_RECV: u32 = 1 << 5;

/// Facts from the rest of the plan.
#[derive(Clone, Copy, Debug)]
pub struct Implied<'a> {
    /// Capabilities inside the sandbox, on which rules of a profile may depend.
    pub capabilities: &'a [Capability],
    /// The network mode, which determines the socket families of the built-in default.
    pub network: Network,
    /// Names of guards: calls that are refused under every profile.
    pub guards: &'a [String],
    /// Whether refused calls are reported to a listener.
    pub explain_denials: bool,
    /// Whether the listener may be shown calls with paths too: every process has the view of the plan.
    pub observes_paths: bool,
    /// Whether a profile may send calls to an agent that it names.
    pub has_agent: bool,
}

impl<'a> From<&'a RunPlan> for Implied<'a> {
    fn from(plan: &'a RunPlan) -> Self {
        Self {
            capabilities: &plan.capabilities,
            network: plan.namespaces.network,
            guards: &plan.confinement.guards,
            explain_denials: plan.explain_denials,
            observes_paths: plan.namespaces.own && plan.namespaces.nested == 0,
            has_agent: false,
        }
    }
}

impl<'a> From<&'a ContainerPlan> for Implied<'a> {
    fn from(plan: &'a ContainerPlan) -> Self {
        Self {
            capabilities: &plan.process.capabilities.bounding,
            network: Network::Host, // only matters to built-in profiles
            guards: &plan.confinement.guards,
            explain_denials: false,
            observes_paths: false,
            has_agent: true,
        }
    }
}

/// Parent half: reads and compiles the profile, if there is one. Also returns the judge of refused calls.
pub fn prepare(wanted: Option<&Seccomp>, implied: &Implied<'_>) -> Result<(Option<PreparedSeccomp>, Option<Judge>)> {
    let unknown = |name: &str, what: &str| Error::new(Step::SeccompProfile, name, format!("is not a known {what}"));
    let guards = implied.guards.iter().map(|name| name.parse::<Guard>().map_err(|()| unknown(name, "guard")));
    let guards = guards.collect::<Result<Vec<_>>>()?;
    let Some(wanted) = wanted else { return Ok((guards_alone(implied.guards, &guards)?, None)) };
    let (source, name) = match &wanted.profile {
        SeccompProfile::Builtin(name) => {
            (Source::Builtin(name.parse::<Builtin>().map_err(|()| unknown(name, "built-in profile"))?), name.clone())
        }
        SeccompProfile::File(path) => (Source::File(path.as_path()), path.to_string()),
        SeccompProfile::Binary(path) => (Source::Binary(path.as_path()), path.to_string()),
        SeccompProfile::Inline(text) => (Source::Text(text), "linux.seccomp".to_owned()),
        SeccompProfile::Encoded(text) => (Source::Encoded(text), Source::Encoded(text).name().into_owned()),
    };
    let groups = wanted.allow.iter().map(|name| name.parse::<Group>().map_err(|()| unknown(name, "group")));
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let capabilities: Vec<_> = implied.capabilities.iter().map(ToString::to_string).collect();
    let capabilities: Vec<_> = capabilities.iter().map(String::as_str).collect();
    let (arch, kernel) = (Arch::NATIVE, super::running_kernel());
    let context = Context { arch, kernel, capabilities: &capabilities, strict: wanted.strict };
    // The listener is notified only by the program that was prepared for it, so it must contain all refusals.
    let hears_all = implied.explain_denials && !matches!(source, Source::Binary(_) | Source::Encoded(_));
    // The built-in programs contain the standing guards, because a second filter would cost every start its installation.
    let is_within =
        |guard: &Guard| hears_all || matches!(source, Source::Builtin(_)) && Guard::STANDING.contains(guard);
    let (within, beside): (Vec<_>, Vec<_>) = guards.into_iter().partition(is_within);
    let request = Request {
        source,
        sha256: &wanted.sha256,
        network: implied.network,
        groups: &groups,
        guards: &within,
        strict: wanted.strict,
    };
    let (program, warnings) = super::prepare(&request, &context)?;
    if program.notifies && (!implied.has_agent || program.listener.is_none()) {
        return Err(Error::new(Step::SeccompProfile, name, "sends calls to a listener, but there is none")
            .hint("SCMP_ACT_NOTIFY requires a listener that answers; choose another action"));
    }
    let (flags, sha256) = (program.flags.bits(), program.sha256.clone().into_owned());
    // Other filters of a container kill calls of other architectures themselves.
    let beside = if matches!(source, Source::Encoded(_)) { Some(guarding(&beside)?) } else { guard(&beside)? };
    let judge = match implied.explain_denials {
        true => Some(Judge::new(program.clone(), &request, &context, implied.observes_paths)?),
        false => None,
    };
    let prepared = PreparedSeccomp {
        guard: beside.map(|guard| own(&guard.instructions)),
        filter: Some(judge.as_ref().map_or_else(|| own(&program.instructions), Judge::listening)),
        flags,
        listens: judge.is_some() || program.notifies,
        listener: program.listener.clone(),
        warnings: warnings.iter().map(|warning| format!("seccomp profile {name}: {warning}")).collect(),
        record: report::Seccomp { profile: name, sha256, guards: implied.guards.to_vec() },
    };
    if !implied.has_agent && matches!(source, Source::File(_) | Source::Binary(_)) && prepared.fails_execve() {
        return Err(Error::new(
            Step::SeccompProfile,
            prepared.record.profile,
            "does not allow execve, so no command can start",
        )
        .hint("add execve to it; `stockade seccomp explain FILE execve` shows the rule that decides"));
    }
    Ok((Some(prepared), judge))
}

/// Whether the filter of a container refuses the execve of its program, as far as that depends on no argument.
pub fn refuses_execve(plan: &ContainerPlan) -> bool {
    let prepared = prepare(plan.confinement.seccomp.as_ref(), &plan.into());
    prepared.is_ok_and(|(filter, _)| filter.is_some_and(|filter| filter.refuses_execve()))
}

/// The filter of a run without a profile.
fn guards_alone(names: &[String], guards: &[Guard]) -> Result<Option<PreparedSeccomp>> {
    Ok(guard(guards)?.map(|program| PreparedSeccomp {
        guard: Some(own(&program.instructions)),
        filter: None,
        flags: 0,
        listens: false,
        listener: None,
        warnings: Vec::new(),
        record: report::Seccomp {
            profile: "unconfined".to_owned(),
            sha256: program.sha256.into_owned(),
            guards: names.to_vec(),
        },
    }))
}

fn guard(guards: &[Guard]) -> Result<Option<Program>> {
    if guards.is_empty() { Ok(None) } else { guarding(guards).map(Some) }
}

fn guarding(guards: &[Guard]) -> Result<Program> {
    let context = Context { arch: Arch::NATIVE, kernel: (5, 0), capabilities: &[], strict: true };
    let wrong = |error| Error::new(Step::SeccompProfile, "guards", format!("{error}"));
    builtin::guarding(guards, &context).map_err(wrong)
}

fn own(filter: &[Instruction]) -> Vec<libc::sock_filter> {
    filter.iter().map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect()
}

impl PreparedSeccomp {
    /// Child half, the last step before execve: the profile must allow every later call. Returns the listener, if there is one.
    pub fn apply(&self) -> Applied<Option<OwnedFd>> {
        if let Some(guard) = &self.guard {
            sys::seccomp::set_filter(guard, 0).during(Step::Seccomp, 0)?;
        }
        let Some(filter) = &self.filter else { return Ok(None) };
        if !self.listens {
            sys::seccomp::set_filter(filter, self.flags).during(Step::Seccomp, 0)?;
            return Ok(None);
        }
        // A profile that names its own listener also sets the flags for waiting calls.
        let wait = if self.listener.is_some() { 0 } else { WAIT_KILLABLE_RECV };
        let listener = match sys::seccomp::set_filter_with_listener(filter, self.flags | wait) {
            Err(Errno::EINVAL) => sys::seccomp::set_filter_with_listener(filter, self.flags),
            result => result,
        };
        listener.during(Step::Seccomp, 0).map(Some)
    }

    /// Whether the filter allows every one of these calls, whatever their unknown arguments are.
    pub fn lets_through<'a>(&self, mut calls: impl Iterator<Item = &'a KnownCall>) -> bool {
        let programs = self.programs();
        calls.all(|call| programs.iter().all(|program| call.is_allowed_by(program) == Some(true)))
    }

    /// What the filter answers to a call of this number; `None` if that depends on its arguments.
    pub fn answer(&self, call: &KnownCall) -> Option<Action> {
        let answers: Vec<_> = self.programs().iter().map(|program| call.answer(program)).collect();
        let refusing = answers.iter().flatten().find(|action| !action.lets_through());
        match refusing {
            Some(action) => Some(*action),
            None => answers.into_iter().collect::<Option<Vec<_>>>().map(|_| Action::Allow),
        }
    }

    /// Whether execve fails. Where it kills instead, the run's status says so.
    fn fails_execve(&self) -> bool {
        let execve = KnownCall(libc::SYS_execve, &[]);
        self.programs().iter().any(|program| matches!(execve.answer(program), Some(Action::Errno(_))))
    }

    /// Whether it refuses execve, as far as that depends on no argument.
    fn refuses_execve(&self) -> bool {
        let execve = KnownCall(libc::SYS_execve, &[]);
        self.programs().iter().any(|program| execve.is_allowed_by(program) == Some(false))
    }

    fn programs(&self) -> Vec<Vec<Instruction>> {
        let program = |filter: &Vec<libc::sock_filter>| {
            filter.iter().map(|one| Instruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect()
        };
        [&self.guard, &self.filter].into_iter().flatten().map(program).collect()
    }

    /// Whether the filter sends calls to a listener.
    pub fn listens(&self) -> bool {
        self.listens
    }

    /// The destination of the listener: a socket's path, and data for its reader.
    pub fn listener(&self) -> Option<(&str, &str)> {
        self.listener.as_ref().map(|listener| (listener.path.as_str(), listener.metadata.as_str()))
    }

    /// The number of instructions that each system call passes at most.
    pub fn instructions(&self) -> usize {
        self.guard.iter().chain(&self.filter).map(Vec::len).sum()
    }

    /// The installed filter, after the workload's status has confirmed it.
    pub fn record(&self) -> report::Seccomp {
        self.record.clone()
    }
}
