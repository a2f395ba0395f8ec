//! The meaning of a profile: its types, and an interpreter as the reference for everything else.
//!
//! A profile is a list of *stages*, each a list of rules. The first stage with a matching rule decides a call. Among the
//! matching rules of a stage the strictest action wins (the kernel's order between filters: KILL_PROCESS, KILL_THREAD, TRAP,
//! ERRNO, USER_NOTIF, TRACE, LOG, ALLOW), and among equally strict ones the first in the file. A call without a matching rule
//! gets the default action or, if its number is above all numbers in the profile, the action for calls that the author cannot
//! have known. A plain OCI profile has one stage. The calls of an opt-in group form a stage before it. The rules under
//! `otherwise` (the error of a refused call) form a stage after it.
//!
//! Calls of another architecture, and on x86_64 of the x32 table, kill the process under every profile: rules are numbers,
//! which have another meaning there.

use crate::action::Action;
use crate::names::{Arch, Width};

/// The rules of a profile for one architecture, complete and resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The format of its source.
    pub format: Format,
    /// The architecture of the numbers.
    pub arch: Arch,
    /// The action for a call without a matching rule.
    pub default: Action,
    /// The action for a call whose number is above all numbers in the rules.
    pub beyond: Action,
    /// The rules; see the module's description.
    pub stages: Vec<Stage>,
    /// Flags for installing the filter.
    pub flags: Flags,
    /// The destination of the listener of `SCMP_ACT_NOTIFY`.
    pub listener: Option<Listener>,
}

/// The format of a profile's source, which determines its compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OCI's JSON, compiled by this crate.
    Oci,
    /// seccompiler's JSON, compiled by that crate. The last stage is the file's; its rules have one action.
    Seccompiler,
}

/// Rules that are evaluated together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// The source of the rules, for messages; empty for the profile's own `syscalls`.
    pub name: String,
    /// The rules, in the order of the file.
    pub rules: Vec<Rule>,
}

/// An action for some calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The system call numbers.
    pub numbers: Vec<u32>,
    /// Conditions, all of which must be true.
    pub conditions: Vec<Condition>,
    /// The action.
    pub action: Action,
    /// Its place in the file: `syscalls[3]`.
    pub origin: Origin,
}

/// The place of a rule in its file: a list and an index into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(pub &'static str, pub usize);

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[{}]", self.0, self.1)
    }
}

/// A test of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The argument, 0 to 5.
    pub argument: u8,
    /// How many bits of the register the kernel reads. Only these are compared.
    pub width: Width,
    /// The comparison, unsigned.
    pub operator: Operator,
    /// The compared value. For a narrow argument, a sign-extended negative number means its low bits.
    pub value: u64,
}

/// How an argument is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// The argument's bits in this mask are exactly the value.
    MaskedEqual(u64),
}

/// Flags for installing a filter: `SECCOMP_FILTER_FLAG_*`, `seccomp(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Logs every action except ALLOW.
    pub log: bool,
    /// Leaves the Speculative Store Bypass mitigation off.
    pub spec_allow: bool,
    /// Installs the filter on all threads of the process.
    pub tsync: bool,
    /// Makes a caller that waits for the listener killable only.
    pub wait_killable_recv: bool,
}

impl Flags {
    /// The flags by their names in OCI profiles.
    pub const NAMES: [&'static str; 4] = [
        "SECCOMP_FILTER_FLAG_TSYNC",
        "SECCOMP_FILTER_FLAG_LOG",
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
        "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
    ];

    /// The flags of `seccomp(2)`, without `NEW_LISTENER`.
    pub const fn bits(self) -> u32 {
        self.tsync as u32
            | (self.log as u32) << 1
            | (self.spec_allow as u32) << 2
            | (self.wait_killable_recv as u32) << 5
    }

    /// Sets the flag of this name. Returns `false` if it is unknown.
    pub fn set(&mut self, name: &str) -> bool {
        let Some(at) = Self::NAMES.iter().position(|known| *known == name) else { return false };
        *[&mut self.tsync, &mut self.log, &mut self.spec_allow, &mut self.wait_killable_recv][at] = true;
        true
    }
}

/// The destination of the listener of a profile with `SCMP_ACT_NOTIFY`, in an OCI runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// A listening unix socket.
    pub path: String,
    /// Opaque data that is sent along.
    pub metadata: String,
}

/// A system call as a filter sees it: `struct seccomp_data` without the instruction pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// `AUDIT_ARCH_*` of the entry point.
    pub arch: u32,
    /// The number in that architecture's table.
    pub number: u32,
    /// The argument registers.
    pub args: [u64; 6],
}

/// The bit in the numbers of x32 calls on x86_64.
pub const X32_BIT: u32 = 0x4000_0000;
/// The number with which a tracer skips a call. No table contains it.
pub const SKIPPED: u32 = u32::MAX;

/// Name of the stage of a profile's own `otherwise`.
pub const OTHERWISE: &str = "otherwise";

/// The action for calls of another architecture and of the x32 table.
pub const FOREIGN: Action = Action::KillProcess;

impl Profile {
    /// The action for a call. This defines the meaning of a profile; the compiler is tested against it.
    pub fn decide(&self, call: &Call) -> Action {
        if self.is_foreign(call) {
            FOREIGN
        } else if let Some((_, rule)) = self.deciding(call) {
            rule.action
        } else if call.number > self.highest() {
            self.beyond
        } else {
            self.default
        }
    }

    /// The rule that decides a call of the native table, and its stage.
    pub fn deciding(&self, call: &Call) -> Option<(&Stage, &Rule)> {
        self.stages.iter().find_map(|stage| {
            let matching = stage.rules.iter().filter(|rule| rule.matches(call));
            Some((stage, matching.min_by_key(|rule| rule.action.leniency())?))
        })
    }

    /// Whether a call is of another architecture, or of the x32 table.
    pub fn is_foreign(&self, call: &Call) -> bool {
        call.arch != self.arch.audit() || self.is_x32(call.number)
    }

    /// Puts the rules of a group before all others.
    pub fn prefer(&mut self, group: [Stage; 2]) {
        let [rules, otherwise] = group;
        self.stages.insert(0, rules);
        if !otherwise.rules.is_empty() {
            // After the rules of every group and profile, but before the profile's own `otherwise`.
            let at = self.stages.iter().position(|stage| stage.name == OTHERWISE).unwrap_or(self.stages.len());
            self.stages.insert(at, otherwise);
        }
    }

    /// Whether this is an x32 number of x86_64.
    pub fn is_x32(&self, number: u32) -> bool {
        self.arch == Arch::X86_64 && number & X32_BIT != 0 && number != SKIPPED
    }

    /// The highest number that a rule names.
    pub fn highest(&self) -> u32 {
        self.rules().flat_map(|rule| &rule.numbers).max().copied().unwrap_or(0)
    }

    /// All rules of all stages.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.stages.iter().flat_map(|stage| &stage.rules)
    }

    /// Whether some rule sends calls to a listener.
    pub fn notifies(&self) -> bool {
        self.rules().any(|rule| rule.action == Action::Notify)
    }
}

impl Rule {
    /// Whether it matches this call.
    pub fn matches(&self, call: &Call) -> bool {
        self.numbers.contains(&call.number) && self.conditions.iter().all(|condition| condition.holds(&call.args))
    }
}

impl Condition {
    /// Whether these arguments satisfy the condition.
    pub fn holds(&self, args: &[u64; 6]) -> bool {
        let argument = args[usize::from(self.argument)] & self.width.mask();
        let value = self.datum();
        match self.operator {
            Operator::Equal => argument == value,
            Operator::NotEqual => argument != value,
            Operator::Less => argument < value,
            Operator::LessOrEqual => argument <= value,
            Operator::Greater => argument > value,
            Operator::GreaterOrEqual => argument >= value,
            Operator::MaskedEqual(mask) => argument & mask == value,
        }
    }

    /// The compared value, truncated to the width. Negative numbers may be written in 64 bits.
    pub fn datum(&self) -> u64 {
        let mask = self.width.mask();
        let negative = self.value & !mask == !mask && self.value & (mask ^ (mask >> 1)) != 0;
        if negative { self.value & mask } else { self.value }
    }
}
