//! Compares a program with its profile, over every call that could distinguish them.
//!
//! The tests compare every built-in profile, those of Docker and Podman, and random ones. A fuzz target does too.

use crate::action::Action;
use crate::bpf::Instruction;
use crate::interpret::run;
use crate::model::{Call, Operator, Profile, X32_BIT};

/// `AUDIT_ARCH_I386`: the architecture of `int 0x80` and of 32-bit programs on x86_64.
pub const AUDIT_ARCH_I386: u32 = 0x4000_0003;

/// A call for which a program and its profile differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The call.
    pub call: Call,
    /// The profile's action.
    pub wanted: Action,
    /// The program's action.
    pub got: Action,
}

/// The first difference between a program and its profile, over [`calls`].
pub fn difference(profile: &Profile, program: &[Instruction]) -> Option<Difference> {
    let mut about = about(profile, 0);
    let mut number = 0;
    calls(profile).find_map(|call| {
        if call.number != number {
            number = call.number;
            about = self::about(profile, number);
        }
        let (wanted, got) = (about.decide(&call), run(program, &call).0);
        (wanted != got).then_some(Difference { call, wanted, got })
    })
}

/// The rules for one number. They decide it as the whole profile does, and are evaluated a hundred thousand times.
fn about(profile: &Profile, number: u32) -> Profile {
    let fallback = if number > profile.highest() { profile.beyond } else { profile.default };
    let mut part = Profile { default: fallback, beyond: fallback, ..profile.clone() };
    for stage in &mut part.stages {
        stage.rules.retain(|rule| rule.numbers.contains(&number));
        stage.rules.iter_mut().for_each(|rule| rule.numbers = vec![number]);
    }
    part
}

/// Every number up to 600 with all boundary values of the arguments that its rules test; the same numbers with the x32 bit and
/// from other architectures; and numbers outside every table.
pub fn calls(profile: &Profile) -> impl Iterator<Item = Call> {
    let native = profile.arch.audit();
    let plain = move |arch, number| Call { arch, number, args: [0; 6] };
    let numbers =
        (0..=600).chain([X32_BIT - 1, X32_BIT, 0x7fff_ffff, 0x8000_0000, 0xbfff_ffff, 0xc000_0000, !0 - 1, !0]);
    let foreign = [AUDIT_ARCH_I386, 0xc000_00b7 ^ 0xc000_003e ^ native, native ^ 1, 0, !0];
    // A program that confuses two calls decides one by the other's rules.
    let decisive = decisive(profile);
    numbers.flat_map(move |number| {
        let others = decisive.clone().into_iter().map(move |args| Call { arch: native, number, args });
        let elsewhere = foreign.into_iter().map(move |arch| plain(arch, number));
        arguments(profile, number)
            .map(move |args| Call { arch: native, number, args })
            .chain(others)
            .chain([plain(native, number | X32_BIT), plain(native, number | X32_BIT | X32_BIT << 1)])
            .chain(elsewhere)
    })
}

/// Arguments that satisfy each rule's conditions, and arguments with each compared value everywhere.
fn decisive(profile: &Profile) -> Vec<[u64; 6]> {
    let mut list = Vec::new();
    for rule in profile.rules().filter(|rule| !rule.conditions.is_empty()) {
        let mut args = [0; 6];
        for condition in &rule.conditions {
            args[usize::from(condition.argument)] = match condition.operator {
                Operator::NotEqual => !condition.value,
                Operator::Less => condition.value.wrapping_sub(1),
                Operator::Greater => condition.value.wrapping_add(1),
                _ => condition.value,
            };
            if let Operator::MaskedEqual(mask) = condition.operator {
                list.push([mask; 6]);
            }
        }
        list.push(args);
    }
    list.push([!0; 6]);
    list.sort_unstable();
    list.dedup();
    list
}

/// Most combinations of arguments per number. Of a larger set, evenly distributed combinations are tried.
const MOST: u64 = 50_000;

/// Combinations of boundary values of the arguments that the rules for a number test.
fn arguments(profile: &Profile, number: u32) -> impl Iterator<Item = [u64; 6]> + use<> {
    let mut values: [Vec<u64>; 6] = Default::default();
    for rule in profile.rules().filter(|rule| rule.numbers.contains(&number)) {
        for condition in &rule.conditions {
            let value = condition.value;
            let list = &mut values[usize::from(condition.argument)];
            list.extend([value, value.wrapping_sub(1), value.wrapping_add(1), value | 1 << 32, value | !0 << 32]);
            list.extend([value & 0xffff_ffff, value ^ 1 << 31, value | 1 << 16]);
            if let Operator::MaskedEqual(mask) = condition.operator {
                list.extend([value | !mask, mask, !mask, mask & mask.wrapping_neg(), mask << 1]);
            }
        }
    }
    for list in &mut values {
        list.extend([0, !0]);
        list.sort_unstable();
        list.dedup();
        if *list == [0, !0] {
            list.truncate(1);
        }
    }
    let all = values.iter().fold(1u64, |product, list| product.saturating_mul(list.len() as u64));
    let (count, stride) = if all <= MOST { (all, 1) } else { (MOST, (all / MOST) | 1) };
    (0..count).map(move |index| {
        let mut rest = index.wrapping_mul(stride);
        std::array::from_fn(|at| {
            let list = &values[at];
            let value = list[(rest % list.len() as u64) as usize];
            rest /= list.len() as u64;
            value
        })
    })
}
