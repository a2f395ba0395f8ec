//! The error type: the failed step, its object, the cause, and a hint.
//!
//! The command line turns an error into a sentence, once. The parent and the child share the steps: the child can send only
//! numbers, and the parent adds the object.

use serde::{Deserialize, Serialize};

/// The failed step, its object, the cause on this host, and how to fix it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct Error {
    /// The step of the start-up sequence, or of the parsing before it.
    pub step: Step,
    /// The file, field, flag, path or limit that it failed on; may be empty.
    pub object: String,
    /// The cause.
    pub cause: Cause,
    /// The option that it comes from, with its value, if the object does not say so.
    pub option: Option<String>,
    /// How to fix it, if that is known.
    pub hint: Option<String>,
}

/// The cause of an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// A system call failed.
    Errno(nix::errno::Errno),
    /// The input or the host does not meet a requirement: the reason as text.
    Reason(String),
}

/// The result of a function that can fail with an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! steps {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $text:literal;)+) => {
        /// The steps of a run, in order. The child sends one as a number; reports and errors show its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[repr(u16)]
        pub enum Step { $(#[doc = $text] #[serde(rename = $name)] $variant,)+ }
        impl Step {
            /// Every step, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// Its name in reports.
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name,)+ } }
            /// A description of the step, for messages.
            pub const fn doing(self) -> &'static str { match self { $(Self::$variant => $text,)+ } }
            /// The step with this number, if there is one.
            pub fn from_number(number: u16) -> Option<Self> { Self::ALL.get(usize::from(number)).copied() }
        }
    };
}

steps! {
    Usage = "usage", "reading the command line";
    Policy = "policy", "reading the policy";
    Config = "config", "reading the configuration";
    State = "state", "reading the container's state";
    Status = "status", "checking the container's status";
    Plan = "plan", "planning the run";
    SeccompProfile = "seccomp_profile", "reading the seccomp profile";
    Host = "host", "examining this host";
    Source = "source", "opening a mount source";
    Identity = "identity", "choosing the user ids";
    Cgroup = "cgroup", "setting up the cgroup";
    Streams = "streams", "preparing the standard streams";
    Clone = "clone", "creating the namespaces";
    Join = "join", "entering a namespace";
    IdMap = "id_map", "writing the user id maps";
    Wait = "wait", "waiting for the supervisor";
    SetIds = "set_ids", "taking the sandbox's user id";
    Lifeline = "lifeline", "tying the sandbox to its supervisor";
    MountRoot = "mount_root", "mounting the root";
    Scratch = "scratch", "making scratch space";
    MountPoint = "mount_point", "creating a mount point";
    MountClone = "mount_clone", "cloning a mount";
    MountAttributes = "mount_attributes", "changing a mount's attributes";
    Mount = "mount", "mounting";
    Device = "device", "providing a device node";
    Mask = "mask", "masking a path";
    ReadOnly = "read_only", "making a path read-only";
    NamespaceLimits = "namespace_limits", "forbidding nested namespaces";
    Sysctl = "sysctl", "setting a kernel parameter";
    TimeNamespace = "time_namespace", "setting up the time namespace";
    OomScore = "oom_score", "setting the OOM score";
    Loopback = "loopback", "bringing up the loopback interface";
    Egress = "egress", "setting up network access by name";
    NetDevice = "net_device", "moving a network device";
    Rdt = "rdt", "setting up the resctrl group";
    Hostname = "hostname", "setting the host name";
    Terminal = "terminal", "opening the terminal";
    Pivot = "pivot", "changing the root";
    Cwd = "cwd", "entering the working directory";
    Rlimit = "rlimit", "setting a resource limit";
    Keyring = "keyring", "joining a new session keyring";
    Groups = "groups", "dropping the supplementary groups";
    Scheduling = "scheduling", "setting the workload's scheduling policy";
    Label = "label", "setting the security label";
    Hook = "hook", "running a hook";
    Notify = "notify", "notifying the service manager";
    Checkpoint = "checkpoint", "saving the container";
    Restore = "restore", "restoring the container";
    Capabilities = "capabilities", "dropping capabilities";
    NoNewPrivs = "no_new_privs", "forbidding new privileges";
    Landlock = "landlock", "restricting paths and ports";
    Verify = "verify", "verifying the confinement";
    Fork = "fork", "starting the workload's process";
    Session = "session", "starting a new session";
    Descriptors = "descriptors", "closing file descriptors";
    Signals = "signals", "resetting signals";
    Seccomp = "seccomp", "installing the seccomp filter";
    Exec = "exec", "executing the command";
    Interpreter = "interpreter", "executing the command's interpreter";
    Supervise = "supervise", "supervising the run";
    Output = "output", "copying output";
    Report = "report", "writing the report";
    Audit = "audit", "writing the audit log";
    AuditRead = "audit_read", "reading the audit log";
    AuditChain = "audit_chain", "verifying the audit log";
    SessionPlace = "session_place", "finding the session's directory";
    SessionConnect = "session_connect", "reaching the session";
    SessionRequest = "session_request", "reading the request";
    Copy = "copy", "copying files";
    SessionFile = "session_file", "using a file of the session";
    Learn = "learn", "writing the learned policy";
}

impl Step {
    /// Whether it is one of the steps in which the child makes a mount of the plan.
    pub fn is_of_mount(self) -> bool {
        matches!(self, Self::Source | Self::MountPoint | Self::MountClone | Self::MountAttributes | Self::Mount)
    }
}

/// The error number in an error of the standard library; `EIO` if it has none.
pub fn errno_of(error: &std::io::Error) -> nix::errno::Errno {
    nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

impl Error {
    /// An error with a reason as text.
    pub fn new(step: Step, object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { step, object: object.into(), cause: Cause::Reason(reason.into()), option: None, hint: None }
    }

    /// An error of a system call.
    pub fn errno(step: Step, object: impl Into<String>, errno: nix::errno::Errno) -> Self {
        Self { step, object: object.into(), cause: Cause::Errno(errno), option: None, hint: None }
    }

    /// As [`Self::errno`], from an error of the standard library.
    pub fn io(step: Step, object: impl Into<String>, error: &std::io::Error) -> Self {
        Self::errno(step, object, errno_of(error))
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The exit code of a run that ended with this error: 127 not found, 126 found but not executable, 125 everything else.
    pub fn exit_code(&self) -> u8 {
        use nix::errno::Errno::{ENOENT, ENOTDIR};
        match (self.step, &self.cause) {
            (Step::Exec, Cause::Errno(ENOENT | ENOTDIR)) => 127,
            (Step::Exec | Step::Interpreter, _) => 126,
            _ => 125,
        }
    }
}

/// `doing: object: reason (from option)`, without the hint. Control characters are escaped. A wrong status is `reason: object`, because
/// engines expect such a message to begin with the reason.
impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let (Step::Status, Cause::Reason(reason)) = (self.step, &self.cause) {
            f.write_str(&printable(reason))?;
            return match self.object.as_str() {
                "" => Ok(()),
                object => write!(f, ": {}", printable(object)),
            };
        }
        f.write_str(self.step.doing())?;
        if !self.object.is_empty() {
            write!(f, ": {}", printable(&self.object))?;
        }
        match &self.cause {
            Cause::Errno(errno) => write!(f, ": {} ({errno:?})", errno.desc())?,
            Cause::Reason(reason) => write!(f, ": {}", printable(reason))?,
        }
        match &self.option {
            Some(option) => write!(f, " (from {})", printable(option)),
            None => Ok(()),
        }
    }
}

/// Whether a character changes how a line is displayed instead of being visible: control characters, line separators,
/// characters that reverse the text direction, and invisible ones.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Escapes deceptive characters, so that the text cannot control the terminal or look like a different text.
pub fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if is_deceptive(c) && c != '\n' {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

/// Replaces deceptive characters in JSON by `\\u` escapes, because a report may be read on a terminal.
pub fn printable_json(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len() + 1), |mut out, c| {
        if is_deceptive(c) && c != '\n' {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
        out
    })
}

/// The known name that is closest to `wrong`, if one is close enough to be a likely typo.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // The comparison is quadratic in the lengths, and no known name is this long.
    if wrong.len() > 64 {
        return None;
    }
    let lower = wrong.to_lowercase();
    known
        .map(|name| (strsim::damerau_levenshtein(&lower, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= (lower.len() / 4).clamp(1, 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
