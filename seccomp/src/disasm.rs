//! Prints a program as text.

use std::fmt::Write as _;

use crate::action::Action;
use crate::bpf::{ARCH, Instruction, JEQ, LOAD, NUMBER};
use crate::names::Arch;

/// One line per instruction: index, the four fields as numbers, and its meaning. Comparisons with a number show the call's
/// name.
pub fn disassemble(program: &[Instruction], arch: Arch) -> String {
    let mut text = String::new();
    // The accumulator's content as far as reading from the top shows it. After a jump target it may differ.
    let mut held = Held::Other;
    let mut targets = vec![false; program.len() + 1];
    for (at, Instruction { code, jt, jf, k }) in program.iter().copied().enumerate() {
        if code & 0x07 == 0x05 {
            let skips = if code == 0x05 { [k as usize, k as usize] } else { [usize::from(jt), usize::from(jf)] };
            for target in skips.map(|skip| (at + 1).saturating_add(skip)) {
                targets[target.min(program.len())] = true;
            }
        }
    }
    for (at, one) in program.iter().copied().enumerate() {
        let Instruction { code, jt, jf, k } = one;
        let mark = if targets[at] { '>' } else { ' ' };
        let _ = write!(text, "{at:4}{mark} {code:02x} {jt:3} {jf:3} {k:08x}  ");
        let _ = writeln!(text, "{}", meaning(at, one, held, arch));
        held = match (code, k) {
            (LOAD, NUMBER) => Held::Number,
            (LOAD, ARCH) => Held::Arch,
            (0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d | 0x05 | 0x06 | 0x16, _) => held,
            _ => Held::Other,
        };
    }
    text
}

#[derive(Clone, Copy, PartialEq)]
enum Held {
    Number,
    Arch,
    Other,
}

fn meaning(at: usize, one: Instruction, held: Held, arch: Arch) -> String {
    let Instruction { code, jt, jf, k } = one;
    let operand = if code & 0x08 == 0 { format!("{k:#x}") } else { "x".to_owned() };
    let target = |skip: u32| (at + 1).saturating_add(skip as usize);
    let jump = |sign: &str| {
        let who = match (held, code) {
            (Held::Number, _) => arch.name(k).map(|name| format!("  ; {name}")),
            (Held::Arch, JEQ) => [Arch::X86_64, Arch::Aarch64]
                .into_iter()
                .find(|arch| arch.audit() == k)
                .map(|arch| format!("  ; {}", arch.oci_name())),
            _ => None,
        };
        format!(
            "if a {sign} {operand} goto {} else {}{}",
            target(jt.into()),
            target(jf.into()),
            who.unwrap_or_default()
        )
    };
    match code {
        0x20 => format!("a = {}", place(k)),
        0x80 | 0x81 => format!("{} = 64", if code == 0x80 { 'a' } else { 'x' }),
        0x00 => format!("a = {k:#x}"),
        0x01 => format!("x = {k:#x}"),
        0x60 => format!("a = m[{k}]"),
        0x61 => format!("x = m[{k}]"),
        0x02 => format!("m[{k}] = a"),
        0x03 => format!("m[{k}] = x"),
        0x07 => "x = a".to_owned(),
        0x87 => "a = x".to_owned(),
        0x84 => "a = -a".to_owned(),
        0x04 | 0x0c => format!("a += {operand}"),
        0x14 | 0x1c => format!("a -= {operand}"),
        0x24 | 0x2c => format!("a *= {operand}"),
        0x34 | 0x3c => format!("a /= {operand}"),
        0x44 | 0x4c => format!("a |= {operand}"),
        0x54 | 0x5c => format!("a &= {operand}"),
        0xa4 | 0xac => format!("a ^= {operand}"),
        0x64 | 0x6c => format!("a <<= {operand}"),
        0x74 | 0x7c => format!("a >>= {operand}"),
        0x05 => format!("goto {}", target(k)),
        0x15 | 0x1d => jump("=="),
        0x25 | 0x2d => jump(">"),
        0x35 | 0x3d => jump(">="),
        0x45 | 0x4d => jump("&"),
        0x06 => format!("return {}", Action::decode(k)),
        0x16 => "return a".to_owned(),
        _ => "?".to_owned(),
    }
}

/// A word of `struct seccomp_data` by name.
fn place(offset: u32) -> String {
    match offset {
        0 => "nr".to_owned(),
        4 => "arch".to_owned(),
        8 => "ip".to_owned(),
        12 => "ip >> 32".to_owned(),
        16..64 if offset.is_multiple_of(8) => format!("arg{}", (offset - 16) / 8),
        16..64 => format!("arg{} >> 32", (offset - 16) / 8),
        _ => format!("[{offset}]"),
    }
}
