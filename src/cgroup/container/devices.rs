//! Which device nodes a container may use: files in cgroup v1, a BPF program in cgroup v2.
//!
//! Everything is denied that no rule allows. The last matching rule decides. The rules for the default nodes come after the
//! configured rules.

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

/// Creating nodes is harmless if they cannot be opened. The other rules allow the default nodes, terminals, ptmx and, as under
/// runc, `/dev/net/tun`, which needs a capability to do anything.
const DEFAULT_NODES: [(Option<u32>, Option<u32>, &str); 10] = [
    (None, None, "m"),
    (Some(1), Some(3), "rwm"),
    (Some(1), Some(5), "rwm"),
    (Some(1), Some(7), "rwm"),
    (Some(1), Some(8), "rwm"),
    (Some(1), Some(9), "rwm"),
    (Some(5), Some(0), "rwm"),
    (Some(5), Some(2), "rwm"),
    (Some(136), None, "rwm"),
    (Some(10), Some(200), "rwm"),
];

fn rules(resources: &Resources) -> Vec<DeviceRule> {
    let rule =
        |allow, kind, major, minor, access: &str| DeviceRule { allow, kind, major, minor, access: access.into() };
    let mut rules = vec![rule(false, 'a', None, None, "rwm")];
    rules.extend(resources.devices.iter().flatten().cloned());
    rules.push(rule(true, 'b', None, None, "m"));
    rules.extend(DEFAULT_NODES.iter().map(|(major, minor, access)| rule(true, 'c', *major, *minor, access)));
    rules
}

/// Applies the device rules.
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
    // Without the controller the configured nodes are still created, and the container cannot create others.
    let Some(dir) = groups.with("devices") else { return Ok(()) };
    rules.iter().try_for_each(|rule| v1::apply_device_rule(dir, rule))
}

/// The rules in reverse order. Each returns if it matches.
fn program(rules: &[DeviceRule]) -> Vec<Instruction> {
    // Registers: r2 type, r3 access, r4 major, r5 minor.
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
            // A rule that allows must cover the whole access. A rule that denies need only match a part.
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
            return program; // it matches everything, and the kernel rejects unreachable instructions
        }
    }
    program.extend([bpf::move_number(0, 0), bpf::exit()]);
    program
}
