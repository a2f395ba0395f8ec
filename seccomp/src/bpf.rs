//! Classic BPF as seccomp uses it: instructions, and an assembler that writes a program from its end to its start.
//!
//! All jumps go forward, so when a branch is written, its targets exist already. A conditional jump reaches only 255
//! instructions. For a farther target a copy (of a `ret`) or a trampoline (an unconditional jump, whose reach is unlimited) is
//! placed just behind the branch. `linux/filter.h`, `Documentation/userspace-api/seccomp_filter.rst`.

use std::collections::HashMap;

/// One instruction: `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// How many instructions are skipped if the comparison is true.
    pub jt: u8,
    /// How many are skipped if it is false.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

impl Instruction {
    /// The kernel's representation.
    pub fn to_bytes(self) -> [u8; 8] {
        let ([c0, c1], [k0, k1, k2, k3]) = (self.code.to_ne_bytes(), self.k.to_ne_bytes());
        [c0, c1, self.jt, self.jf, k0, k1, k2, k3]
    }

    /// The inverse of [`Self::to_bytes`].
    pub fn from_bytes([c0, c1, jt, jf, k0, k1, k2, k3]: [u8; 8]) -> Self {
        Self { code: u16::from_ne_bytes([c0, c1]), jt, jf, k: u32::from_ne_bytes([k0, k1, k2, k3]) }
    }
}

/// The kernel's limit on instructions, `BPF_MAXINSNS`.
pub const MAX_INSTRUCTIONS: usize = 4096;

/// Load the word at an offset of `seccomp_data`: `BPF_LD | BPF_W | BPF_ABS`.
pub const LOAD: u16 = 0x20;
/// Bitwise and with the operand: `BPF_ALU | BPF_AND | BPF_K`.
pub const AND: u16 = 0x54;
/// Skip as many instructions as the operand: `BPF_JMP
///
/// BPF_JA`.
pub const JUMP: u16 = 0x05;
/// Whether the accumulator equals the operand: `BPF_JMP | BPF_JEQ | BPF_K`.
pub const JEQ: u16 = 0x15;
/// Whether it is greater or equal, unsigned: `BPF_JMP | BPF_JGE | BPF_K`.
pub const JGE: u16 = 0x35;
/// Whether it has any bit of the operand: `BPF_JMP | BPF_JSET | BPF_K`.
pub const JSET: u16 = 0x45;
/// Return the operand: `BPF_RET
///
/// BPF_K`.
pub const RETURN: u16 = 0x06;

/// Offset of the number in `struct seccomp_data`.
pub const NUMBER: u32 = 0;
/// Offset of the architecture.
pub const ARCH: u32 = 4;
/// Size of `struct seccomp_data`.
pub const DATA_SIZE: u32 = 64;

/// A written instruction: its distance from the program's end.
pub type Label = usize;

/// How far a label may be for a branch, if one copy is placed in between.
const REACH: usize = 255;

enum Op {
    /// An instruction of a finished program, whose jumps stay within that program.
    Finished(Instruction),
    Plain(u16, u32),
    Jump(Label),
    Branch {
        code: u16,
        k: u32,
        yes: Label,
        no: Label,
    },
}

/// A program that is being written, the last instruction first.
#[derive(Default)]
pub struct Assembler {
    code: Vec<Op>,
    /// The nearest equivalent of each label, initially itself.
    nearest: Vec<Label>,
    /// The first place where each result was written.
    answers: HashMap<u32, Label>,
}

impl Assembler {
    /// The number of instructions so far.
    pub fn written(&self) -> usize {
        self.code.len()
    }

    /// Adds a finished program and returns its first label. Must be called first.
    pub fn finished(&mut self, program: &[Instruction]) -> Label {
        debug_assert!(self.code.is_empty());
        for one in program.iter().rev() {
            self.push(Op::Finished(*one));
        }
        self.code.len() - 1
    }

    /// An instruction that returns a result.
    pub fn answer(&mut self, value: u32) -> Label {
        if let Some(label) = self.answers.get(&value) {
            return *label;
        }
        let label = self.push(Op::Plain(RETURN, value));
        self.answers.insert(value, label);
        label
    }

    /// An instruction that continues at `next`.
    pub fn then(&mut self, code: u16, k: u32, next: Label) -> Label {
        if next + 1 != self.code.len() {
            self.push(Op::Jump(next));
        }
        self.push(Op::Plain(code, k))
    }

    /// A comparison that continues at one of two labels.
    pub fn branch(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Label {
        if yes == no {
            return yes;
        }
        let yes = self.near(yes);
        let no = self.near(no);
        self.push(Op::Branch { code, k, yes, no })
    }

    /// The program from a label on, without unreachable instructions.
    pub fn finish(self, entry: Label) -> Vec<Instruction> {
        let mut needed = vec![false; self.code.len()];
        needed[entry] = true;
        for label in (0..=entry).rev().filter(|label| *label < self.code.len()) {
            if !needed[label] {
                continue;
            }
            match self.code[label] {
                Op::Plain(RETURN, _) => {}
                Op::Finished(_) => needed[label.saturating_sub(1)] = true,
                Op::Plain(..) => needed[label - 1] = true,
                Op::Jump(to) => needed[to] = true,
                Op::Branch { yes, no, .. } => (needed[yes], needed[no]) = (true, true),
            }
        }
        // For each instruction, the number of needed instructions nearer to the end.
        let mut rank = Vec::with_capacity(self.code.len());
        let mut count = 0usize;
        for needed in &needed {
            rank.push(count);
            count += usize::from(*needed);
        }
        let distance = |from: Label, to: Label| rank[from] - rank[to] - 1;
        let instruction = |label: Label| match self.code[label] {
            Op::Finished(one) => one,
            Op::Plain(code, k) => Instruction { code, jt: 0, jf: 0, k },
            Op::Jump(to) => Instruction { code: JUMP, jt: 0, jf: 0, k: distance(label, to) as u32 },
            Op::Branch { code, k, yes, no } => {
                Instruction { code, jt: distance(label, yes) as u8, jf: distance(label, no) as u8, k }
            }
        };
        (0..=entry).rev().filter(|label| needed[*label]).map(instruction).collect()
    }

    /// An equivalent of a label within reach of the next branch.
    fn near(&mut self, label: Label) -> Label {
        let nearest = self.nearest[label];
        if self.code.len() - nearest <= REACH {
            return nearest;
        }
        let copy = match self.code[label] {
            Op::Plain(RETURN, value) => Op::Plain(RETURN, value),
            _ => Op::Jump(label),
        };
        let copy = self.push(copy);
        self.nearest[label] = copy;
        copy
    }

    fn push(&mut self, op: Op) -> Label {
        self.code.push(op);
        self.nearest.push(self.nearest.len());
        self.code.len() - 1
    }
}
