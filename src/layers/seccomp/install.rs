//! From a plan to a filter on the workload.

use crate::error::{Error, Result, Step};
use crate::layers::{Applied, During};
use crate::plan::{Plan, SeccompProfile};
use crate::report;
use crate::sys;

use super::builtin::{Builtin, Group};
use super::{Request, Source};

/// A filter in the kernel's own types, ready to be installed.
#[derive(Debug)]
pub struct PreparedSeccomp {
    filter: Vec<libc::sock_filter>,
    flags: u32,
    record: report::Seccomp,
    /// What there is to warn about in the profile.
    pub warnings: Vec<String>,
}

/// Parent half: reads and compiles the plan's profile, if it has one.
pub fn prepare(plan: &Plan) -> Result<Option<PreparedSeccomp>> {
    let Some(wanted) = &plan.seccomp else { return Ok(None) };
    let unknown = |name: &str, what: &str| Error::new(Step::SeccompProfile, name, format!("there is no such {what}"));
    let (source, name) = match &wanted.profile {
        SeccompProfile::Builtin(name) => {
            (Source::Builtin(name.parse::<Builtin>().map_err(|()| unknown(name, "built-in profile"))?), name.clone())
        }
        SeccompProfile::File(path) => (Source::File(path.as_path()), path.to_string()),
        SeccompProfile::Binary(path) => (Source::Binary(path.as_path()), path.to_string()),
    };
    let groups = wanted.allow.iter().map(|name| name.parse::<Group>().map_err(|()| unknown(name, "group")));
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let (program, warnings) = super::prepare(&Request {
        source,
        network: plan.namespaces.network,
        groups: &groups,
        capabilities: &plan.capabilities,
        listed_programs: plan.landlock.as_ref().is_some_and(|landlock| landlock.execute.is_some()),
        strict: wanted.strict,
    })?;
    if program.notifies {
        return Err(Error::new(Step::SeccompProfile, name, "hands calls to a listener, and there is none")
            .hint("SCMP_ACT_NOTIFY needs a supervisor that answers; choose another action"));
    }
    let filter = program.instructions.iter();
    Ok(Some(PreparedSeccomp {
        filter: filter.map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect(),
        flags: program.flags.bits(),
        warnings: warnings.iter().map(|warning| format!("seccomp profile {name}: {warning}")).collect(),
        record: report::Seccomp { profile: name, sha256: program.sha256.into_owned() },
    }))
}

impl PreparedSeccomp {
    /// Child half, the last thing before execve: what follows must be allowed by the profile.
    pub fn apply(&self) -> Applied {
        sys::seccomp::set_filter(&self.filter, self.flags).during(Step::Seccomp, 0)
    }

    /// What is in force, once the workload's status has shown that a filter is.
    pub fn record(&self) -> report::Seccomp {
        self.record.clone()
    }
}
