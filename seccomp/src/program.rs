//! A filter that is ready to be installed.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::Error;
use crate::bpf::{DATA_SIZE, Instruction, MAX_INSTRUCTIONS};
use crate::model::{Flags, Listener, Profile};

/// A filter and its flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The instructions, in the layout of `struct sock_filter`.
    pub instructions: Cow<'static, [Instruction]>,
    /// Flags for installing it.
    pub flags: Flags,
    /// Whether it sends calls to a listener, so that it must be installed with `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
    pub notifies: bool,
    /// The destination of that listener in an OCI runtime.
    pub listener: Option<Listener>,
    /// SHA-256 of the instructions as bytes, hexadecimal.
    pub sha256: Cow<'static, str>,
}

impl Program {
    /// Compiles a profile. Fails if the program is longer than the kernel's limit.
    pub fn compile(profile: &Profile) -> Result<Self, Error> {
        let instructions = crate::compile::compile(profile)?;
        Ok(Self {
            sha256: Cow::Owned(sha256(instructions.iter().map(|one| one.to_bytes()))),
            instructions: Cow::Owned(instructions),
            flags: profile.flags,
            notifies: profile.notifies(),
            listener: profile.listener.clone(),
        })
    }

    /// Loads a compiled program in the format of `seccomp compile` and libseccomp's export: the bytes of an array of `struct
    /// sock_filter`. Fails if the kernel would reject it.
    pub fn load_binary(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_INSTRUCTIONS * 8 {
            let most = MAX_INSTRUCTIONS * 8;
            return Err(Error::Size(format!("has {} bytes; the longest program has {most}", bytes.len())));
        }
        let (chunks, []) = bytes.as_chunks::<8>() else {
            let reason = "which is not a multiple of 8, the size of an instruction";
            return Err(Error::Size(format!("has {} bytes, {reason}", bytes.len())));
        };
        let instructions: Vec<Instruction> = chunks.iter().map(|chunk| Instruction::from_bytes(*chunk)).collect();
        validate(&instructions).map_err(|(index, reason)| Error::Instruction { index, reason })?;
        Ok(Self {
            sha256: Cow::Owned(sha256(chunks)),
            notifies: instructions.iter().any(|one| one.code == 0x06 && one.k >> 16 == 0x7fc0),
            instructions: Cow::Owned(instructions),
            flags: Flags::default(),
            listener: None,
        })
    }

    /// As [`Self::load_binary`], from base64 with padding. White space is ignored.
    pub fn load_base64(text: &str) -> Result<Self, Error> {
        let invalid = || Error::Size("is not base64".to_owned());
        if text.len() > MAX_INSTRUCTIONS * 8 * 2 {
            return Err(Error::Size(format!("has {} characters, more than a program can have", text.len())));
        }
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let (groups, []) = digits.as_chunks::<4>() else { return Err(invalid()) };
        let mut bytes = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let is_last = index + 1 == groups.len();
            let kept = match group {
                [_, _, b'=', b'='] if is_last => 1,
                [_, _, _, b'='] if is_last => 2,
                _ => 3,
            };
            let value = group[..=kept].iter().try_fold(0u32, |value, digit| Some(value << 6 | digit_of(*digit)?));
            let value = value.ok_or_else(invalid)? << (6 * (3 - kept));
            bytes.extend_from_slice(&value.to_be_bytes()[1..=kept]);
        }
        Self::load_binary(&bytes)
    }

    /// The bytes of an array of `struct sock_filter`.
    pub fn to_binary(&self) -> Vec<u8> {
        self.instructions.iter().flat_map(|instruction| instruction.to_bytes()).collect()
    }
}

/// The value of a base64 digit.
fn digit_of(digit: u8) -> Option<u32> {
    Some(match digit {
        b'A'..=b'Z' => u32::from(digit - b'A'),
        b'a'..=b'z' => u32::from(digit - b'a') + 26,
        b'0'..=b'9' => u32::from(digit - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// SHA-256 of the concatenated pieces, in hexadecimal.
pub(crate) fn sha256(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update(piece);
    }
    hash.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Whether the kernel would accept a program: `bpf_check_classic` in `net/core/filter.c`, `seccomp_check_filter` in
/// `kernel/seccomp.c`. The error is an instruction's index and the reason.
pub fn validate(program: &[Instruction]) -> Result<(), (usize, &'static str)> {
    if program.is_empty() || program.len() > MAX_INSTRUCTIONS {
        return Err((0, "a program has 1 to 4096 instructions"));
    }
    // The cells of scratch memory that are written on every path to each instruction.
    let mut written = vec![u16::MAX; program.len()];
    let mut here = 0u16;
    for (at, Instruction { code, jt, jf, k }) in program.iter().copied().enumerate() {
        here &= written[at];
        let rest = program.len() - at - 1;
        match code {
            0x20 if k >= DATA_SIZE || k % 4 != 0 => return Err((at, "loads from outside seccomp_data, or unaligned")),
            0x34 if k == 0 => return Err((at, "divides by zero")),
            0x64 | 0x74 if k >= 32 => return Err((at, "shifts by more than 31 bits")),
            0x02 | 0x03 | 0x60 | 0x61 if k >= 16 => return Err((at, "uses scratch memory that does not exist")),
            0x02 | 0x03 => here |= 1 << k,
            0x60 | 0x61 if here & 1 << k == 0 => return Err((at, "reads scratch memory before it is written")),
            0x05 if k as usize >= rest => return Err((at, "jumps out of the program")),
            0x05 => {
                written[at + 1 + k as usize] &= here;
                here = u16::MAX;
            }
            0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
                if usize::from(jt) >= rest || usize::from(jf) >= rest {
                    return Err((at, "jumps out of the program"));
                }
                written[at + 1 + usize::from(jt)] &= here;
                written[at + 1 + usize::from(jf)] &= here;
                here = u16::MAX;
            }
            0x00 | 0x01 | 0x04 | 0x0c | 0x14 | 0x1c | 0x20 | 0x24 | 0x2c | 0x34 | 0x3c | 0x44 | 0x4c | 0x54 | 0x5c
            | 0x60 | 0x61 | 0x64 | 0x6c | 0x74 | 0x7c | 0x80 | 0x81 | 0x84 | 0x87 | 0x07 | 0xa4 | 0xac | 0x06
            | 0x16 => {}
            _ => return Err((at, "is not an operation of seccomp")),
        }
    }
    match program.last().map(|last| last.code) {
        Some(0x06 | 0x16) => Ok(()),
        _ => Err((program.len() - 1, "the last instruction must return")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_whole_or_not_at_all() {
        let allow = Instruction { code: 6, jt: 0, jf: 0, k: 0x7fff_0000 };
        let program = |text: &str| Program::load_base64(text).map(|program| program.instructions.into_owned());
        assert_eq!(program("BgAAAAAA/38="), Ok(vec![allow]));
        assert_eq!(program(" BgAA\nAAAA/38=\n"), Ok(vec![allow]));
        let two = "BgAAAAAA/38GAAAAAAD/fw==";
        assert_eq!(program(two), Ok(vec![allow, allow]));
        assert_eq!(program(&two.repeat(1366)).unwrap_err(), Error::Size("is not base64".to_owned()), "padding inside");
        for wrong in ["BgAAAAAA/38", "BgAAAAAA/3=8", "====", "BgAAAAAA_38=", "=", "B===", "BgAAAAAA/38=BgAA"] {
            assert_eq!(program(wrong).unwrap_err(), Error::Size("is not base64".to_owned()), "{wrong}");
        }
        assert!(program("").is_err() && program("BgAA").is_err());
        assert!(program(&"A".repeat(1 << 20)).is_err());
    }
}
