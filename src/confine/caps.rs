//! Capabilities: none, or a few over the sandbox's own user namespace; and no way to get more, `capabilities(7)`.
//!
//! Names, and what the calling process has, come from crate caps. The child half makes its system calls itself: the crate
//! knows no capability that is newer than it, makes hash sets, which allocate, and sets one of the three sets at a time.

use caps::CapSet;
use nix::errno::Errno;

use crate::error::Step;
use crate::failure::{Applied, During};
use crate::plan::Capability;
use crate::plan::container::CapabilitySets;
use crate::sys::credentials::{self, CapSets};

/// `NOROOT`, `NO_SETUID_FIXUP` and `NO_CAP_AMBIENT_RAISE`, each with its lock bit, and the lock bit of `KEEP_CAPS`.
const SECUREBITS: u32 = 0b1110_1111;

/// `CAP_SYS_ADMIN`, as a mask. Without `no_new_privs`, installing a filter requires it.
pub const ADMIN: u64 = 1 << 21;
const PTRACE: u64 = 1 << 19;

/// `CAP_KILL`, `CAP_SETGID` and `CAP_SETUID`, as a mask: what init needs to start commands as other users and to signal them.
pub const OF_OTHER_USERS: u64 = 1 << 5 | 1 << 6 | 1 << 7;

/// An upper bound of capability numbers. Loops end at the first number that the kernel does not know.
const MANY: u32 = 64;

/// The set as a mask.
pub fn mask(kept: &[Capability]) -> u64 {
    kept.iter().fold(0, |mask, capability| mask | 1 << capability.number())
}

/// The names of those in a mask; the number of one that is not known here.
pub fn names(mask: u64) -> Vec<String> {
    let known = if mask == 0 { Vec::new() } else { Capability::all() };
    let name = |number| known.iter().find(|one| one.number() == number).map(ToString::to_string);
    let within = (0..MANY).filter(|number| mask >> number & 1 == 1);
    within.map(|number| name(number).unwrap_or_else(|| format!("CAP_{number}"))).collect()
}

/// Whether a process inside may have `CAP_SYS_PTRACE` without `CAP_SYS_ADMIN`: it could take the latter from a process that has
/// it.
pub fn can_trace(sets: Sets) -> bool {
    let all = sets.bounding | sets.effective | sets.inheritable | sets.permitted | sets.ambient;
    all & (PTRACE | ADMIN) == PTRACE
}

/// The warning about those that a container does not get. The words are runc's, because other programs search for them.
pub fn left_out(names: &[String]) -> String {
    format!("ignoring unknown or unavailable capabilities: [{}]", names.join(" "))
}

/// Child half: drops every capability but those in the mask, from all five sets, and locks the securebits. Those that are `held`
/// stay effective until [`drop_held`]; no execve can pass them on.
///
/// The bounding set is dropped by number, so capabilities that are newer than this program are dropped too.
pub fn drop_all_but(kept: u64, held: u64) -> Applied {
    for number in 0..MANY {
        if kept >> number & 1 == 1 {
            continue;
        }
        match credentials::drop_bounding(number) {
            Err(Errno::EINVAL) => break,
            result => result.during(Step::Capabilities, number as usize)?,
        }
    }
    let sets = CapSets { effective: kept | held, permitted: kept | held, inheritable: kept };
    // Before the securebits are set, because they forbid raising ambient capabilities.
    if kept == 0 {
        credentials::set_securebits(SECUREBITS).during(Step::Capabilities, 0)?;
        return credentials::set_capabilities(sets).during(Step::Capabilities, 0);
    }
    let with_setpcap = kept | held | caps::Capability::CAP_SETPCAP.bitmask();
    let can_raise = CapSets { effective: with_setpcap, permitted: with_setpcap, inheritable: kept };
    credentials::set_capabilities(can_raise).during(Step::Capabilities, 0)?;
    for number in (0..MANY).filter(|number| kept >> number & 1 == 1) {
        credentials::raise_ambient(number).during(Step::Capabilities, number as usize)?;
    }
    credentials::set_securebits(SECUREBITS).during(Step::Capabilities, 0)?;
    credentials::set_capabilities(sets).during(Step::Capabilities, 0)
}

/// Child half: drops what [`drop_all_but`] held.
pub fn drop_held(kept: u64) -> Applied {
    let sets = CapSets { effective: kept, permitted: kept, inheritable: kept };
    credentials::set_capabilities(sets).during(Step::Capabilities, 0)
}

/// Parent half: what cannot be dropped from the bounding set without a user namespace. Under no_new_privs it grants nothing.
pub fn undroppable() -> u64 {
    let drops = caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETPCAP).unwrap_or(false);
    if drops { 0 } else { bounding().unwrap_or(u64::MAX) }
}

/// Child half, without a user namespace: drops every capability. A caller without `CAP_SETPCAP` can neither drop the bounding set
/// nor lock the securebits.
pub fn drop_all() -> Applied {
    let unless_forbidden = |result| match result {
        Err(Errno::EPERM) => Ok(()),
        result => result,
    };
    for number in 0..MANY {
        match credentials::drop_bounding(number) {
            Err(Errno::EINVAL) => break,
            result => unless_forbidden(result).during(Step::Capabilities, number as usize)?,
        }
    }
    unless_forbidden(credentials::set_securebits(SECUREBITS)).during(Step::Capabilities, 0)?;
    credentials::clear_ambient().during(Step::Capabilities, 0)?;
    credentials::set_capabilities(CapSets::default()).during(Step::Capabilities, 0)
}

/// Child half: reads the sets back after [`drop_all`].
pub fn verify_none(undroppable: u64) -> Applied {
    let none = credentials::capabilities().during(Step::Verify, 1)? == CapSets::default()
        && bounding().during(Step::Verify, 1)? & !undroppable == 0;
    if none { Ok(()) } else { Err(Errno::EPERM).during(Step::Verify, 1) }
}

/// The five capability sets, as masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Sets {
    pub bounding: u64,
    pub effective: u64,
    pub inheritable: u64,
    pub permitted: u64,
    pub ambient: u64,
}

impl Sets {
    /// From a container's plan. An ambient capability must also be permitted and inheritable. Engines (buildah) request others
    /// too, which no kernel grants; those are dropped silently.
    pub fn of(planned: &CapabilitySets) -> Self {
        Self {
            bounding: mask(&planned.bounding),
            effective: mask(&planned.effective),
            inheritable: mask(&planned.inheritable),
            permitted: mask(&planned.permitted),
            ambient: mask(&planned.ambient) & mask(&planned.permitted) & mask(&planned.inheritable),
        }
    }

    /// The names of the capabilities in any of the five sets.
    pub fn names(self) -> Vec<String> {
        let all = self.bounding | self.effective | self.inheritable | self.permitted | self.ambient;
        names(all)
    }

    /// `CAP_SYS_ADMIN`, if these sets lack it and this process has it.
    pub fn lacks_admin(self, has_all: bool) -> u64 {
        let has_it =
            has_all || caps::has_cap(None, CapSet::Permitted, caps::Capability::CAP_SYS_ADMIN).unwrap_or(false);
        if has_it { ADMIN & !(self.effective & self.permitted) } else { 0 }
    }

    /// Removes the capabilities that this process lacks and so cannot pass on. Returns the rest and the removed ones.
    pub fn possible(self) -> (Self, u64) {
        let read = |set| caps::read(None, set).unwrap_or_default().iter().fold(0, |mask, one| mask | one.bitmask());
        let (own, bounded) = (read(CapSet::Permitted), read(CapSet::Bounding));
        let kept = Self {
            bounding: self.bounding & bounded,
            effective: self.effective & own,
            inheritable: self.inheritable & own & bounded,
            permitted: self.permitted & own,
            ambient: self.ambient & own & bounded,
        };
        let union = |sets: Self| sets.bounding | sets.effective | sets.inheritable | sets.permitted | sets.ambient;
        (kept, union(self) & !union(kept))
    }

    /// Child half, with every capability: drops the others from the bounding set.
    pub fn bound(self) -> Applied {
        for number in (0..MANY).filter(|number| self.bounding >> number & 1 == 0) {
            let dropped = credentials::drop_bounding(number);
            if dropped == Err(Errno::EINVAL) {
                break;
            }
            dropped.during(Step::Capabilities, number as usize)?;
        }
        Ok(())
    }

    /// The sets until execve if `more` is kept that long. Execve computes the sets of the program from the others: from the
    /// inheritable, bounding and ambient set, and from the file.
    pub fn until_execve(self, more: u64) -> Self {
        Self { effective: self.effective | more, permitted: self.permitted | more, ..self }
    }

    /// Child half, as the final user, while the permitted set is kept: sets the other four.
    pub fn take(self) -> Applied {
        let Self { effective, inheritable, permitted, ambient, .. } = self;
        credentials::clear_ambient().during(Step::Capabilities, 0)?;
        credentials::set_capabilities(CapSets { effective, permitted, inheritable }).during(Step::Capabilities, 0)?;
        for number in (0..MANY).filter(|number| ambient >> number & 1 == 1) {
            credentials::raise_ambient(number).during(Step::Capabilities, number as usize)?;
        }
        Ok(())
    }

    /// Child half, in the process of a filter: leaves what [`Self::until_execve`] added.
    pub fn lower(self) -> Applied {
        let Self { effective, inheritable, permitted, .. } = self;
        credentials::set_capabilities(CapSets { effective, permitted, inheritable }).during(Step::Capabilities, 0)
    }

    /// Child half: reads the sets back. Fails unless they are as requested.
    pub fn verify(self) -> Applied {
        let Self { effective, inheritable, permitted, .. } = self;
        let expected = CapSets { effective, permitted, inheritable };
        let as_taken = credentials::capabilities().during(Step::Verify, 1)? == expected
            && bounding().during(Step::Verify, 1)? & !self.bounding == 0;
        if as_taken { Ok(()) } else { Err(Errno::EPERM).during(Step::Verify, 1) }
    }
}

/// Child half: drops what [`drop_all_but`] kept. This clears the ambient set too. The bounding set cannot be changed any more
/// without `CAP_SETPCAP`, but grants nothing under the locked securebits and no_new_privs.
pub fn renounce() -> Applied {
    credentials::set_capabilities(CapSets::default()).during(Step::Capabilities, 0)
}

/// Child half: reads the sets back. Fails unless they are as dropped.
pub fn verify(kept: u64) -> Applied {
    let expected = CapSets { effective: kept, permitted: kept, inheritable: kept };
    let as_dropped = credentials::capabilities().during(Step::Verify, 1)? == expected
        && credentials::securebits().during(Step::Verify, 1)? == SECUREBITS
        && bounding().during(Step::Verify, 1)? == kept;
    if as_dropped { Ok(()) } else { Err(Errno::EPERM).during(Step::Verify, 1) }
}

fn bounding() -> Result<u64, Errno> {
    let mut mask = 0;
    for number in 0..MANY {
        match credentials::in_bounding(number) {
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
            Ok(set) => mask |= u64::from(set) << number,
        }
    }
    Ok(mask)
}
