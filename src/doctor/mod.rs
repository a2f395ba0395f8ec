//! The doctor: tests on this host every facility that a run needs or can use.
//!
//! Each probe uses the facility itself, usually in a short-lived child in new namespaces (`trial`), with the same layers as a
//! run. Sysctls and `/proc/self/status` are used only to explain a failure and to suggest a remedy.

mod blockers;
mod cgroup;
mod confinement;
mod host;
mod kernel;
mod mounts;
mod namespaces;
mod network;
mod trial;
mod users;

use serde::{Deserialize, Serialize};

use self::blockers::Blockers;
use self::trial::Failure;
use crate::confine::privilege;
use crate::confine::user::Users;

/// The result of the doctor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Examination {
    /// `stockade/doctor/v1`.
    pub schema: String,
    /// Version of stockade.
    pub version: String,
    /// Release of the running kernel.
    pub kernel: String,
    /// Its architecture.
    pub architecture: String,
    /// Effective user id of the caller, to whom the findings apply.
    pub uid: u32,
    /// Whether the caller is root with root's capabilities, so that runs are privileged.
    pub privileged: bool,
    /// Whether every facility that a default run needs works.
    pub default_run_enforceable: bool,
    /// The kind of run that was seen to work here; `null` if none was tried.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// One finding for each facility, always all of them and in the same order.
    pub findings: Vec<Finding>,
}

/// A kind of run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// `full`, `nested`, `no namespaces` or `none`.
    pub name: String,
    /// The options that pick it.
    pub options: String,
    /// What it lacks, by the names of `--allow-degraded`.
    pub lacks: Vec<String>,
    /// Why a run without options is refused, or with `none` every run.
    pub why: Option<String>,
}

/// The finding about one facility.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable name.
    pub name: String,
    /// Its group.
    pub group: Group,
    /// Its title, for display.
    pub title: String,
    /// Whether it works.
    pub state: State,
    /// Whether a default run needs it.
    pub required: bool,
    /// The result of the test.
    pub detail: String,
    /// The consequence for runs, unless the facility works fully.
    pub consequence: Option<String>,
    /// The command that would fix it, if there is one.
    pub remedy: Option<String>,
}

/// Whether a facility works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was tested and works.
    Ok,
    /// It works with restrictions. A default run is never refused for it.
    Degraded,
    /// It was tested and does not work, or does not exist.
    Missing,
    /// It could not be tested, or the caller does not need it.
    Unknown,
}

/// The groups of facilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// System calls.
    Kernel,
    /// User ids and id maps.
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
    /// Network access by name.
    Network,
}

/// A facility to test.
struct Subject {
    name: &'static str,
    group: Group,
    title: &'static str,
    required: bool,
    /// The consequence for runs if it is missing.
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

    /// Whether it prevents a default run from being fully enforced.
    pub fn prevents_default_run(&self) -> bool {
        self.required && matches!(self.state, State::Missing | State::Unknown)
    }
}

/// The state that all probes share.
struct Probe {
    privileged: bool,
    /// The users of a default run; `None` if no user namespace can be created.
    users: Option<Users>,
    blockers: Blockers,
}

impl Probe {
    /// Runs a test in a new user namespace and those of these flags, as the user of a run.
    fn attempt(&self, namespaces: i32, body: impl FnOnce() -> trial::Tried) -> Option<Result<u32, Failure>> {
        let users = self.users.as_ref()?;
        let namespaces = namespaces | libc::CLONE_NEWUSER;
        Some(trial::attempt(trial::Setup { namespaces, users: Some(users), cgroup: None }, body))
    }

    /// Runs such a test and returns its finding. `works` is the detail on success, `steps` are the names of the body's steps.
    fn tried(
        &self,
        subject: &Subject,
        namespaces: i32,
        works: &str,
        steps: &[&str],
        body: impl FnOnce() -> trial::Tried,
    ) -> Finding {
        self.finding_of(subject, self.attempt(namespaces, body), works, steps)
    }

    fn finding_of(
        &self,
        subject: &Subject,
        tried: Option<Result<u32, Failure>>,
        works: &str,
        steps: &[&str],
    ) -> Finding {
        match tried {
            None => self.untested(subject),
            Some(Ok(_)) => subject.ok(works),
            Some(Err(failure)) => self.failed_finding(subject, &failure, steps),
        }
    }

    fn untested(&self, subject: &Subject) -> Finding {
        subject.unknown("not tested: it needs a user namespace")
    }

    fn failed_finding(&self, subject: &Subject, failure: &Failure, steps: &[&str]) -> Finding {
        let (why, remedy) = self.blockers.explain(failure.errno(), self.privileged);
        let seen = failure.describe(steps);
        let detail = if why.is_empty() { seen } else { format!("{seen}: {why}") };
        // If no child could be created, the facility was not tested.
        let state = if failure.no_child_possible() { State::Unknown } else { State::Missing };
        Finding { remedy, ..subject.finding(state, detail) }
    }
}

/// Tests every facility. Takes tens of milliseconds, and at most a few seconds for a facility that hangs.
///
/// Creates child processes, which leave nothing behind.
pub fn examine() -> Examination {
    let privileged = privilege::is_privileged().unwrap_or(false);
    let mut probe = Probe { privileged, users: None, blockers: Blockers::read() };
    let mut findings = kernel::examine(&probe);
    findings.extend(users::examine(&mut probe));
    findings.extend(namespaces::examine(&probe));
    findings.extend(mounts::examine(&probe));
    findings.extend(confinement::examine(&probe));
    findings.extend(cgroup::examine(&probe));
    findings.extend(host::examine(&probe));
    findings.extend(network::examine(&probe));
    let (kernel, architecture) = kernel::release();
    Examination {
        schema: "stockade/doctor/v1".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        kernel,
        architecture,
        uid: nix::unistd::geteuid().as_raw(),
        privileged,
        default_run_enforceable: !findings.iter().any(Finding::prevents_default_run),
        mode: None,
        findings,
    }
}

/// The text of a kernel file, without the newline at its end. `None` if it does not exist or cannot be read.
fn kernel_text(path: impl AsRef<std::path::Path>) -> Option<String> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut text = String::new();
    // Bounded and non-blocking, because another file could be mounted over it.
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.take(1 << 20).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}
