//! Which device nodes a container may use: the files of cgroup v1, a program in cgroup v2.
//!
//! Nothing is allowed but what a rule says. The last rule that matches decides, and after those of the configuration come
//! the nodes that every container has.

use super::{Dirs, Groups};
use crate::cgroup::v1;
use crate::error::{Error, Result, Step};
use crate::plan::container::{DeviceRule, Resources};
use crate::sys::ablate::{Layer, without};
use crate::sys::bpf::{self, Instruction};

/// `BPF_DEVCG_ACC_*` and `BPF_DEVCG_DEV_*`, `linux/bpf.h`.
const ACCESS: [(char, i32); 3] = [('m', 1), ('r', 2), ('w', 4)];
const BLOCK: i32 = 1;
const CHAR: i32 = 2;

/// Making nodes is harmless where they cannot be opened; then the usual ones, terminals, and the multiplexer of those.
const ALWAYS: [(Option<u32>, Option<u32>, &str); 9] = [
    (None, None, "m"),
    (Some(1), Some(3), "rwm"),
    (Some(1), Some(5), "rwm"),
    (Some(1), Some(7), "rwm"),
    (Some(1), Some(8), "rwm"),
    (Some(1), Some(9), "rwm"),
    (Some(5), Some(0), "rwm"),
    (Some(5), Some(2), "rwm"),
    (Some(136), None, "rwm"),
];

fn rules(resources: &Resources) -> Vec<DeviceRule> {
    let rule =
        |allow, kind, major, minor, access: &str| DeviceRule { allow, kind, major, minor, access: access.into() };
    let mut rules = vec![rule(false, 'a', None, None, "rwm")];
    rules.extend(resources.devices.iter().flatten().cloned());
    rules.push(rule(true, 'b', None, None, "m"));
    rules.extend(ALWAYS.iter().map(|(major, minor, access)| rule(true, 'c', *major, *minor, access)));
    rules
}

/// Puts them in force.
pub fn apply(groups: &Groups, resources: &Resources) -> Result<()> {
    if without(Layer::DeviceRules) {
        return Ok(());
    }
    let rules = rules(resources);
    if let Dirs::V2(dir) = &groups.dirs {
        return bpf::attach_device_program(&program(&rules), dir.fd()).map_err(|errno| {
            Error::errno(Step::Cgroup, "device rules", errno)
                .hint("they are a BPF program on cgroup v2, which takes CAP_BPF or CAP_SYS_ADMIN and CONFIG_CGROUP_BPF")
        });
    }
    let Some(dir) = groups.with("devices") else { return Ok(()) }; // nodes are still made, and no others can be
    rules.iter().try_for_each(|rule| v1::apply_device_rule(dir, rule))
}

/// The rules from the last to the first, each an exit where it matches.
fn program(rules: &[DeviceRule]) -> Vec<Instruction> {
    // r2 kind, r3 access, r4 major, r5 minor
    let mut program = vec![
        bpf::load_word(2, 1, 0),
        bpf::move_register(3, 2),
        bpf::shift_right(3, 16),
        bpf::and(2, 0xffff),
        bpf::load_word(4, 1, 4),
        bpf::load_word(5, 1, 8),
    ];
    for rule in rules.iter().rev() {
        let mut tests = Vec::new();
        match rule.kind {
            'b' => tests.push((2, BLOCK)),
            'c' => tests.push((2, CHAR)),
            _ => {}
        }
        tests.extend(rule.major.map(|major| (4, major as i32)));
        tests.extend(rule.minor.map(|minor| (5, minor as i32)));
        let access =
            ACCESS.iter().filter(|(letter, _)| rule.access.contains(*letter)).fold(0, |all, (_, bit)| all | bit);
        let masked: Vec<Instruction> = match (access, rule.allow) {
            (7, _) => Vec::new(),
            // An allowance covers all that is asked for; a refusal hits any part of it.
            (access, true) => vec![bpf::move_register(1, 3), bpf::and(1, access), bpf::jump_unless_same(1, 3, 2)],
            (access, false) => vec![bpf::move_register(1, 3), bpf::and(1, access), bpf::jump_if_equal(1, 0, 2)],
        };
        let length = tests.len() + masked.len() + 2;
        for (at, (register, value)) in tests.iter().enumerate() {
            program.push(bpf::jump_unless_equal(*register, *value, (length - at - 1) as i16));
        }
        program.extend(masked);
        let last = length == 2;
        program.extend([bpf::move_number(0, i32::from(rule.allow)), bpf::exit()]);
        if last {
            return program; // it matches everything, and the kernel takes no program with a part that is never reached
        }
    }
    program.extend([bpf::move_number(0, 0), bpf::exit()]);
    program
}
