//! From a plan to a filter on the workload.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use stockade_seccomp::builtin::{self, Builtin, Group, Guard};
use stockade_seccomp::{Action, Arch, Call, Context, Instruction, Listener, Program, interpret};

use crate::error::{Error, Result, Step};
use crate::layers::{Applied, During};
use crate::plan::{Capability, ContainerPlan, Network, RunPlan, Seccomp, SeccompProfile};
use crate::report;
use crate::sys;

use super::listen::Judge;
use super::{Request, Source};

/// A filter in the kernel's own types, ready to be installed.
#[derive(Debug)]
pub struct PreparedSeccomp {
    /// What is refused beside the profile, or where there is none.
    guard: Option<Vec<libc::sock_filter>>,
    filter: Option<Vec<libc::sock_filter>>,
    flags: u32,
    listens: bool,
    listener: Option<Listener>,
    record: report::Seccomp,
    /// What there is to warn about in the profile.
    pub warnings: Vec<String>,
}

/// Who asks the listener can only be killed while it waits, since Linux 5.19: a signal cannot make it ask twice.
const WAIT_KILLABLE_RECV: u32 = 1 << 5;

/// What follows from the rest of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Implied<'a> {
    /// Capabilities that may be had inside, on which calls of a profile may depend.
    pub capabilities: &'a [Capability],
    /// Decides which socket families the built-in default has.
    pub network: Network,
    /// Names of what is refused whatever the profile says.
    pub guards: &'a [String],
    /// Whether refused calls are listened to.
    pub explain_denials: bool,
    /// Whether a profile may hand calls to an agent that it names.
    pub has_agent: bool,
}

impl<'a> From<&'a RunPlan> for Implied<'a> {
    fn from(plan: &'a RunPlan) -> Self {
        Self {
            capabilities: &plan.capabilities,
            network: plan.namespaces.network,
            guards: &plan.confinement.guards,
            explain_denials: plan.explain_denials,
            has_agent: false,
        }
    }
}

impl<'a> From<&'a ContainerPlan> for Implied<'a> {
    fn from(plan: &'a ContainerPlan) -> Self {
        Self {
            capabilities: &plan.process.capabilities.bounding,
            network: Network::Host, // matters to built-in profiles alone
            guards: &plan.confinement.guards,
            explain_denials: false,
            has_agent: true,
        }
    }
}

/// Parent half: reads and compiles the profile, if there is one; with the judge who is asked about refused calls.
pub fn prepare(wanted: Option<&Seccomp>, implied: &Implied<'_>) -> Result<(Option<PreparedSeccomp>, Option<Judge>)> {
    let unknown = |name: &str, what: &str| Error::new(Step::SeccompProfile, name, format!("there is no such {what}"));
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
    };
    let groups = wanted.allow.iter().map(|name| name.parse::<Group>().map_err(|()| unknown(name, "group")));
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let capabilities: Vec<_> = implied.capabilities.iter().map(ToString::to_string).collect();
    let capabilities: Vec<_> = capabilities.iter().map(String::as_str).collect();
    let (arch, kernel) = (Arch::NATIVE, super::running_kernel());
    let context = Context { arch, kernel, capabilities: &capabilities, strict: wanted.strict };
    // Only what is in the listener's own program is heard of.
    let hears_all = implied.explain_denials && !matches!(source, Source::Binary(_));
    // The standing guards are compiled into the built-in programs. Another filter would cost each start its installation.
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
        return Err(Error::new(Step::SeccompProfile, name, "hands calls to a listener, and there is none")
            .hint("SCMP_ACT_NOTIFY needs a supervisor that answers; choose another action"));
    }
    let (flags, sha256) = (program.flags.bits(), program.sha256.clone().into_owned());
    let beside = guard(&beside)?;
    let judge = match implied.explain_denials {
        true => Some(Judge::new(program.clone(), &request, &context)?),
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
    Ok((Some(prepared), judge))
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
    if guards.is_empty() {
        return Ok(None);
    }
    let context = Context { arch: Arch::NATIVE, kernel: (5, 0), capabilities: &[], strict: true };
    let wrong = |error| Error::new(Step::SeccompProfile, "guards", format!("{error}"));
    builtin::guarding(guards, &context).map(Some).map_err(wrong)
}

fn own(filter: &[Instruction]) -> Vec<libc::sock_filter> {
    filter.iter().map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect()
}

impl PreparedSeccomp {
    /// Child half, the last thing before execve: what follows must be allowed by the profile. Returns the listener, if there
    /// is to be one.
    pub fn apply(&self) -> Applied<Option<OwnedFd>> {
        if let Some(guard) = &self.guard {
            sys::seccomp::set_filter(guard, 0).during(Step::Seccomp, 0)?;
        }
        let Some(filter) = &self.filter else { return Ok(None) };
        if !self.listens {
            sys::seccomp::set_filter(filter, self.flags).during(Step::Seccomp, 0)?;
            return Ok(None);
        }
        // A profile that names its own listener says itself how calls wait for it.
        let wait = if self.listener.is_some() { 0 } else { WAIT_KILLABLE_RECV };
        let listener = match sys::seccomp::set_filter_with_listener(filter, self.flags | wait) {
            Err(Errno::EINVAL) => sys::seccomp::set_filter_with_listener(filter, self.flags),
            result => result,
        };
        listener.during(Step::Seccomp, 0).map(Some)
    }

    /// Whether it lets a call through without asking anybody.
    pub fn lets_through(&self, number: libc::c_long, first: u64) -> bool {
        let call = Call { arch: Arch::NATIVE.audit(), number: number as u32, args: [first, 0, 0, 0, 0, 0] };
        [&self.guard, &self.filter].into_iter().flatten().all(|filter| {
            let program: Vec<_> =
                filter.iter().map(|one| Instruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect();
            matches!(interpret::run(&program, &call).0, Action::Allow | Action::Log)
        })
    }

    /// Where what listens to calls is to be sent: a socket's path, and data for whoever is there.
    pub fn listener(&self) -> Option<(&str, &str)> {
        self.listener.as_ref().map(|listener| (listener.path.as_str(), listener.metadata.as_str()))
    }

    /// What is in force, once the workload's status has shown that a filter is.
    pub fn record(&self) -> report::Seccomp {
        self.record.clone()
    }
}
