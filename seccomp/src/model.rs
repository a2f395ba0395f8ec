//! What a profile means: types, and the plain interpreter that everything else is measured against.
//!
//! A profile is a list of *stages*, each a list of rules. The first stage with a rule that matches a call decides it; among
//! the matching rules of one stage the strictest action wins (the kernel's own order between filters: KILL_PROCESS,
//! KILL_THREAD, TRAP, ERRNO, USER_NOTIF, TRACE, LOG, ALLOW), and among equally strict ones the first in the file. A call no
//! rule matches gets the default action, or, when its number is above every number the profile names, the action for calls
//! the author cannot have known. A plain OCI profile has one stage. What an opt-in group allows is a stage before it; what
//! a profile says under `otherwise` (which error a refused call returns) is a stage after it.
//!
//! Calls of another architecture, and on x86_64 of the x32 table, kill the process whatever the profile says: rules are
//! numbers, and the numbers mean something else there.

use crate::action::Action;
use crate::names::{Arch, Width};

/// The rules of a profile for one architecture, complete and resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// How it was written.
    pub format: Format,
    /// Whose numbers the rules speak of.
    pub arch: Arch,
    /// What a call gets that no rule matches.
    pub default: Action,
    /// What a call gets whose number is above every number that the rules name.
    pub beyond: Action,
    /// The rules; see the module's description.
    pub stages: Vec<Stage>,
    /// How the filter is to be installed.
    pub flags: Flags,
    /// Where the listener of `SCMP_ACT_NOTIFY` is to be sent.
    pub listener: Option<Listener>,
}

/// The format a profile was written in, which decides what compiles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OCI's JSON: this crate's own compiler.
    Oci,
    /// seccompiler's JSON: the crate of that name. The last stage is the file's; its rules have one action.
    Seccompiler,
}

/// Rules that are looked at together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// Which part of which profile they come from, for people; empty for the profile's own `syscalls`.
    pub name: String,
    /// The rules, in the order of the file.
    pub rules: Vec<Rule>,
}

/// An action for some calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The numbers it is about.
    pub numbers: Vec<u32>,
    /// All of these must hold.
    pub conditions: Vec<Condition>,
    /// What then happens.
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
    /// Which argument, 0 to 5.
    pub argument: u8,
    /// How much of the register the kernel looks at; the rest is not compared.
    pub width: Width,
    /// How they are compared, unsigned.
    pub operator: Operator,
    /// With what. For a narrow argument a sign-extended negative number stands for its low bits.
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

/// How a filter is installed: `SECCOMP_FILTER_FLAG_*`, `seccomp(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Every action but ALLOW is logged.
    pub log: bool,
    /// Speculative Store Bypass mitigation stays off.
    pub spec_allow: bool,
    /// All threads of the process get the filter.
    pub tsync: bool,
    /// A caller that waits for the listener can only be killed.
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

    /// What `seccomp(2)` takes, without `NEW_LISTENER`.
    pub const fn bits(self) -> u32 {
        self.tsync as u32
            | (self.log as u32) << 1
            | (self.spec_allow as u32) << 2
            | (self.wait_killable_recv as u32) << 5
    }

    /// Sets the flag of this name; `false` when there is none.
    pub fn set(&mut self, name: &str) -> bool {
        let Some(at) = Self::NAMES.iter().position(|known| *known == name) else { return false };
        *[&mut self.tsync, &mut self.log, &mut self.spec_allow, &mut self.wait_killable_recv][at] = true;
        true
    }
}

/// Where an OCI runtime sends the listener of a profile with `SCMP_ACT_NOTIFY`.
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
    /// `AUDIT_ARCH_*` of the entry that was used.
    pub arch: u32,
    /// The number in that architecture's table.
    pub number: u32,
    /// The argument registers.
    pub args: [u64; 6],
}

/// What x32 calls have set in their number on x86_64.
pub const X32_BIT: u32 = 0x4000_0000;
/// The number a tracer sets to skip a call; no entry of any table.
pub const SKIPPED: u32 = u32::MAX;

/// Name of the stage of a profile's own `otherwise`.
pub const OTHERWISE: &str = "otherwise";

/// What happens to calls of another architecture and of the x32 table.
pub const FOREIGN: Action = Action::KillProcess;

impl Profile {
    /// What happens to a call. This is the meaning of a profile; the compiler is held against it.
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

    /// Puts the rules of a group before all others: what it decides is decided.
    pub fn prefer(&mut self, group: [Stage; 2]) {
        let [rules, otherwise] = group;
        self.stages.insert(0, rules);
        if !otherwise.rules.is_empty() {
            // Behind the rules of every group and profile, before what the profile itself says of refused calls.
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

    /// Whether some rule hands calls to a listener.
    pub fn notifies(&self) -> bool {
        self.rules().any(|rule| rule.action == Action::Notify)
    }
}

impl Rule {
    /// Whether it is about this call.
    pub fn matches(&self, call: &Call) -> bool {
        self.numbers.contains(&call.number) && self.conditions.iter().all(|condition| condition.holds(&call.args))
    }
}

impl Condition {
    /// Whether these arguments pass.
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

    /// The value it compares with: a negative number that was written in 64 bits is cut to the width.
    pub fn datum(&self) -> u64 {
        let mask = self.width.mask();
        let negative = self.value & !mask == !mask && self.value & (mask ^ (mask >> 1)) != 0;
        if negative { self.value & mask } else { self.value }
    }
}
