//! The doctor: tries on this host, for real, everything that a run needs or may be asked for.
//!
//! Each probe does the thing itself, most of them in a short-lived child in namespaces of its own (`trial`), with the same
//! layers as a run. What files say (sysctls, `/proc/self/status`) is only used to explain a failure and to name the way out.

mod blockers;
mod cgroup;
mod confinement;
mod host;
mod kernel;
mod mounts;
mod namespaces;
mod trial;
mod users;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::blockers::Blockers;
use self::trial::Stumble;
use crate::layers::user::{self, Users};

/// Everything the doctor found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Examination {
    /// `stockade/doctor/v1`.
    pub schema: String,
    /// Version of stockade.
    pub version: String,
    /// Release of the running kernel.
    pub kernel: String,
    /// Its architecture.
    pub architecture: String,
    /// Effective user id of the caller, whom all of this is true for.
    pub uid: u32,
    /// Whether the caller is root with the capabilities of one, so that runs work in the privileged way.
    pub privileged: bool,
    /// Whether every facility that a default run needs was seen to work.
    pub default_run_enforceable: bool,
    /// One for each facility, always all of them and in the same order.
    pub findings: Vec<Finding>,
}

/// What was found out about one facility.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Stable name.
    pub name: String,
    /// What it belongs to.
    pub group: Group,
    /// What it is, for people.
    pub title: String,
    /// Whether it works.
    pub state: State,
    /// Whether a default run needs it.
    pub required: bool,
    /// What was seen.
    pub detail: String,
    /// What follows for runs, unless all is well.
    pub consequence: Option<String>,
    /// The command that would change it, where there is one.
    pub remedy: Option<String>,
}

/// Whether a facility works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was tried and works.
    Ok,
    /// It works, with less than it could give. Never a reason for a default run to be refused.
    Degraded,
    /// It was tried and does not work, or is not there.
    Missing,
    /// It could not be tried, or only others need it.
    Unknown,
}

/// What a facility belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// System calls.
    Kernel,
    /// User ids and who may map them.
    Users,
    /// Namespaces.
    Namespaces,
    /// Mounts and file systems.
    Mounts,
    /// Landlock, seccomp, keyrings, capabilities.
    Confinement,
    /// Cgroups.
    Budgets,
    /// Files of the host.
    Host,
}

/// A facility, before it is tried.
struct Subject {
    name: &'static str,
    group: Group,
    title: &'static str,
    required: bool,
    /// What follows for runs when it is missing.
    without: &'static str,
}

impl Subject {
    fn finding(&self, state: State, detail: impl Into<String>) -> Finding {
        Finding {
            name: self.name.into(),
            group: self.group,
            title: self.title.into(),
            state,
            required: self.required,
            detail: detail.into(),
            consequence: (state != State::Ok).then(|| self.without.into()),
            remedy: None,
        }
    }

    fn ok(&self, detail: impl Into<String>) -> Finding {
        self.finding(State::Ok, detail)
    }

    fn missing(&self, detail: impl Into<String>) -> Finding {
        self.finding(State::Missing, detail)
    }

    fn degraded(&self, detail: impl Into<String>, consequence: impl Into<String>) -> Finding {
        Finding { consequence: Some(consequence.into()), ..self.finding(State::Degraded, detail) }
    }

    fn unknown(&self, detail: impl Into<String>) -> Finding {
        self.finding(State::Unknown, detail)
    }
}

impl Finding {
    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Whether it keeps a default run from being fully enforced.
    pub fn prevents_default_run(&self) -> bool {
        self.required && matches!(self.state, State::Missing | State::Unknown)
    }
}

/// What the probes share.
struct Patient {
    privileged: bool,
    /// The users of a default run; `None` when no user namespace can be had.
    users: Option<Users>,
    blockers: Blockers,
}

impl Patient {
    /// Tries something in a new user namespace and the others of these flags, as the user a run would have.
    fn attempt(&self, namespaces: i32, body: impl FnOnce() -> trial::Tried) -> Option<Result<u32, Stumble>> {
        let users = self.users.as_ref()?;
        let namespaces = namespaces | libc::CLONE_NEWUSER;
        Some(trial::attempt(trial::Setup { namespaces, users: Some(users), cgroup: None }, body))
    }

    /// The finding of such a trial: `works` is what to say when it went well, `steps` what the body's steps are called.
    fn tried(
        &self,
        subject: &Subject,
        namespaces: i32,
        works: &str,
        steps: &[&str],
        body: impl FnOnce() -> trial::Tried,
    ) -> Finding {
        self.told(subject, self.attempt(namespaces, body), works, steps)
    }

    fn told(&self, subject: &Subject, tried: Option<Result<u32, Stumble>>, works: &str, steps: &[&str]) -> Finding {
        match tried {
            None => self.untried(subject),
            Some(Ok(_)) => subject.ok(works),
            Some(Err(stumble)) => self.stumbled(subject, &stumble, steps),
        }
    }

    fn untried(&self, subject: &Subject) -> Finding {
        subject.unknown("not tried: it takes a user namespace")
    }

    fn stumbled(&self, subject: &Subject, stumble: &Stumble, steps: &[&str]) -> Finding {
        let (why, remedy) = self.blockers.explain(stumble.errno(), self.privileged);
        let seen = stumble.describe(steps);
        let detail = if why.is_empty() { seen } else { format!("{seen}: {why}") };
        // Without any child there was no trial.
        let state = if stumble.is_no_child() { State::Unknown } else { State::Missing };
        Finding { remedy, ..subject.finding(state, detail) }
    }
}

/// Tries everything. Takes some tens of milliseconds, and at most a few seconds per facility where something hangs.
///
/// Makes child processes; nothing they do is left behind.
pub fn examine() -> Examination {
    let privileged = user::is_privileged().unwrap_or(false);
    let mut patient = Patient { privileged, users: None, blockers: Blockers::look() };
    let mut findings = kernel::examine(&patient);
    findings.extend(users::examine(&mut patient));
    findings.extend(namespaces::examine(&patient));
    findings.extend(mounts::examine(&patient));
    findings.extend(confinement::examine(&patient));
    findings.extend(cgroup::examine(&patient));
    findings.extend(host::examine(&patient));
    let (kernel, architecture) = kernel::release();
    Examination {
        schema: "stockade/doctor/v1".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        kernel,
        architecture,
        uid: nix::unistd::geteuid().as_raw(),
        privileged,
        default_run_enforceable: !findings.iter().any(Finding::prevents_default_run),
        findings,
    }
}

/// The text of a file of the kernel's, without the newline at its end. `None` if there is none, or it cannot be read.
fn kernel_text(path: impl AsRef<std::path::Path>) -> Option<String> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut text = String::new();
    // Bounded and without waiting: where something else is mounted over it, it may be anything.
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.take(1 << 20).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}
