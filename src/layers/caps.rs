//! Capabilities: none, or a few over the sandbox's own user namespace; and no way to get more, `capabilities(7)`.

use nix::errno::Errno;

use super::{Applied, During};
use crate::error::Step;
use crate::plan::Capability;
use crate::sys::process::{self, CapSets};

/// `NOROOT`, `NO_SETUID_FIXUP` and `NO_CAP_AMBIENT_RAISE`, each with its lock, and the lock of `KEEP_CAPS`.
const SECUREBITS: u32 = 0b1110_1111;

/// Above any capability number a kernel will have for long; the loop ends at the first one it does not know.
const MANY: u32 = 64;

/// The set as a mask by capability number.
pub fn mask(kept: &[Capability]) -> u64 {
    kept.iter().fold(0, |mask, capability| mask | 1 << capability.number())
}

/// Child half: drops every capability but those in the mask, from all five sets, and locks the securebits.
///
/// The bounding set is emptied by number, so that a capability newer than this program goes too.
pub fn drop_all_but(kept: u64) -> Applied {
    for number in 0..MANY {
        if kept >> number & 1 == 1 {
            continue;
        }
        match process::drop_bounding(number) {
            Err(Errno::EINVAL) => break,
            result => result.during(Step::Capabilities, number as usize)?,
        }
    }
    let sets = CapSets { effective: kept, permitted: kept, inheritable: kept };
    // While securebits can still be changed: raising ambient capabilities is what they will forbid.
    if kept == 0 {
        process::set_securebits(SECUREBITS).during(Step::Capabilities, 0)?;
        return process::set_capabilities(sets).during(Step::Capabilities, 0);
    }
    let with_setpcap = CapSets { effective: kept | 1 << 8, permitted: kept | 1 << 8, inheritable: kept };
    process::set_capabilities(with_setpcap).during(Step::Capabilities, 0)?;
    for number in (0..MANY).filter(|number| kept >> number & 1 == 1) {
        process::raise_ambient(number).during(Step::Capabilities, number as usize)?;
    }
    process::set_securebits(SECUREBITS).during(Step::Capabilities, 0)?;
    process::set_capabilities(sets).during(Step::Capabilities, 0)
}

/// Child half: gives up what [`drop_all_but`] kept. The ambient set goes with the others; the bounding set, which can no
/// longer be changed without `CAP_SETPCAP`, grants nothing under the locked securebits and no_new_privs.
pub fn renounce() -> Applied {
    process::set_capabilities(CapSets::default()).during(Step::Capabilities, 0)
}

/// Child half: reads the sets back and fails unless they are as dropped.
pub fn verify(kept: u64) -> Applied {
    let expected = CapSets { effective: kept, permitted: kept, inheritable: kept };
    let as_dropped = process::capabilities().during(Step::Verify, 1)? == expected
        && process::securebits().during(Step::Verify, 1)? == SECUREBITS
        && bounding().during(Step::Verify, 1)? == kept;
    if as_dropped { Ok(()) } else { Err(Errno::EPERM).during(Step::Verify, 1) }
}

fn bounding() -> Result<u64, Errno> {
    let mut mask = 0;
    for number in 0..MANY {
        match process::in_bounding(number) {
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
            Ok(set) => mask |= u64::from(set) << number,
        }
    }
    Ok(mask)
}
