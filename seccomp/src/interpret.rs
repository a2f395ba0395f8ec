//! Runs a program over a call as the kernel would, `kernel/seccomp.c` and `net/core/filter.c`.
//!
//! Used by `explain`, by the comparison of programs with their profiles, and for programs compiled elsewhere.

use crate::action::Action;
use crate::bpf::Instruction;
use crate::model::Call;

/// A program's result, and how many instructions it ran. The program must be [valid](crate::validate)d.
pub fn run(program: &[Instruction], call: &Call) -> (Action, usize) {
    run_over(program, |offset| Some(word(call, offset))).unwrap_or((Action::KillProcess, 0))
}

/// A program's result for a call of which only some arguments are known. `None` if the result depends on another one.
pub fn run_partly(program: &[Instruction], call: &Call, known: &[usize]) -> Option<Action> {
    let load = |offset: u32| match offset {
        0 | 4 => Some(word(call, offset)),
        16..64 if known.contains(&((offset as usize - 16) / 8)) => Some(word(call, offset)),
        _ => None,
    };
    run_over(program, load).map(|(action, _)| action)
}

/// `load` returns a word of `struct seccomp_data`; `None` ends the run without a result.
fn run_over(program: &[Instruction], load: impl Fn(u32) -> Option<u32>) -> Option<(Action, usize)> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; 16]);
    let (mut at, mut steps) = (0, 0);
    loop {
        let Some(Instruction { code, jt, jf, k }) = program.get(at).copied() else {
            return Some((Action::KillProcess, steps));
        };
        at += 1;
        steps += 1;
        let operand = if code & 0x08 == 0 { k } else { x };
        let mut jump = |holds: bool| at += usize::from(if holds { jt } else { jf });
        match code {
            0x20 => a = load(k)?,
            0x80 => a = 64,
            0x81 => x = 64,
            0x00 => a = k,
            0x01 => x = k,
            0x60 => a = memory[k as usize % 16],
            0x61 => x = memory[k as usize % 16],
            0x02 => memory[k as usize % 16] = a,
            0x03 => memory[k as usize % 16] = x,
            0x07 => x = a,
            0x87 => a = x,
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x14 | 0x1c => a = a.wrapping_sub(operand),
            0x24 | 0x2c => a = a.wrapping_mul(operand),
            0x34 | 0x3c => match a.checked_div(operand) {
                Some(quotient) => a = quotient,
                None => return Some((Action::decode(0), steps)),
            },
            0x44 | 0x4c => a |= operand,
            0x54 | 0x5c => a &= operand,
            0xa4 | 0xac => a ^= operand,
            0x64 | 0x6c => a = a.wrapping_shl(operand),
            0x74 | 0x7c => a = a.wrapping_shr(operand),
            0x84 => a = a.wrapping_neg(),
            0x05 => at += k as usize,
            0x15 | 0x1d => jump(a == operand),
            0x25 | 0x2d => jump(a > operand),
            0x35 | 0x3d => jump(a >= operand),
            0x45 | 0x4d => jump(a & operand != 0),
            0x06 => return Some((Action::decode(k), steps)),
            0x16 => return Some((Action::decode(a), steps)),
            _ => return Some((Action::KillProcess, steps)),
        }
    }
}

/// The word at an offset of `struct seccomp_data`, little-endian.
fn word(call: &Call, offset: u32) -> u32 {
    match offset {
        0 => call.number,
        4 => call.arch,
        16..64 => (call.args[(offset as usize - 16) / 8] >> (offset % 8 * 8)) as u32,
        _ => 0,
    }
}
