//! The calls that look up a path, bind or connect, and those that make a socket or a file in memory, shown to the listener of
//! `--explain-denials` before they are made.
//!
//! The installed program has two copies of the profile's own. The calls of [`CALLS`] go to the second one, in which "allow" is also
//! "notify the listener". The listener runs the profile's own program over the registers of the call, as for refusals, and lets
//! it continue only if that allows it. The kernel then makes the call with the same registers: what the caller's memory says
//! then decides nothing here, it is only described.

use stockade_seccomp::{Action, Arch, Instruction, MAX_INSTRUCTIONS};

use crate::sys::seccomp::UNOBSERVED;

/// Whether a symlink at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// It is.
    Follow,
    /// It is not.
    Stay,
    /// Unless this argument has `AT_SYMLINK_NOFOLLOW`.
    Unless(usize),
    /// Only if this argument has `AT_SYMLINK_FOLLOW`.
    Only(usize),
}

/// What a call does with its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opens it, with the flags of this argument.
    Open(usize),
    /// Opens it, with the flags in the structure that this argument points to, `openat2(2)`.
    OpenHow(usize),
    /// Opens it for writing, and creates it, `creat(2)`.
    Creat,
    /// Changes its content, `truncate(2)`.
    Truncate,
    /// Changes its mode, owner or times.
    Attributes(Links),
    /// Makes an entry in its directory. There may be one already only if it is replaced.
    Make {
        /// Whether it is.
        replaces: bool,
    },
    /// Removes the entry from its directory.
    Remove,
    /// Executes it.
    Execute,
    /// Enters it.
    Enter,
    /// Looks whether and what it is.
    Look(Links),
    /// Gives it another name.
    Link(Links),
    /// Connects to it, a socket.
    Connect,
}

use Kind::{Attributes, Connect, Creat, Enter, Execute, Link, Look, Make, Open, OpenHow, Remove, Truncate};
use Links::{Follow, Only, Stay, Unless};

impl Kind {
    /// The argument with its flags.
    pub fn flags(self) -> Option<usize> {
        match self {
            Open(at) | OpenHow(at) | Attributes(Unless(at)) | Look(Unless(at)) | Link(Only(at)) => Some(at),
            _ => None,
        }
    }
}

const MAKE: Kind = Make { replaces: false };
const REPLACE: Kind = Make { replaces: true };

/// One path of a call: the arguments with its directory, if there is one, and with the path; and what is done with it.
#[derive(Clone, Copy, Debug)]
pub struct PathOf(pub Option<usize>, pub usize, pub Kind);

/// The calls, sorted by name. Some exist on one architecture alone. `bind` and `connect` have an address, which may have a path, and of
/// `socket` and `memfd_create` only the registers are looked at.
pub const CALLS: [(&str, &[PathOf]); 45] = [
    ("access", &[PathOf(None, 0, Look(Follow))]),
    ("bind", &[PathOf(None, 1, MAKE)]),
    ("chdir", &[PathOf(None, 0, Enter)]),
    ("chmod", &[PathOf(None, 0, Attributes(Follow))]),
    ("chown", &[PathOf(None, 0, Attributes(Follow))]),
    ("connect", &[PathOf(None, 1, Connect)]),
    ("creat", &[PathOf(None, 0, Creat)]),
    ("execve", &[PathOf(None, 0, Execute)]),
    ("execveat", &[PathOf(Some(0), 1, Execute)]),
    ("faccessat", &[PathOf(Some(0), 1, Look(Follow))]),
    ("faccessat2", &[PathOf(Some(0), 1, Look(Unless(3)))]),
    ("fchmodat", &[PathOf(Some(0), 1, Attributes(Follow))]),
    ("fchmodat2", &[PathOf(Some(0), 1, Attributes(Unless(3)))]),
    ("fchownat", &[PathOf(Some(0), 1, Attributes(Unless(4)))]),
    ("lchown", &[PathOf(None, 0, Attributes(Stay))]),
    ("link", &[PathOf(None, 0, Link(Stay)), PathOf(None, 1, MAKE)]),
    ("linkat", &[PathOf(Some(0), 1, Link(Only(4))), PathOf(Some(2), 3, MAKE)]),
    ("lstat", &[PathOf(None, 0, Look(Stay))]),
    ("memfd_create", &[]),
    ("mkdir", &[PathOf(None, 0, MAKE)]),
    ("mkdirat", &[PathOf(Some(0), 1, MAKE)]),
    ("mknod", &[PathOf(None, 0, MAKE)]),
    ("mknodat", &[PathOf(Some(0), 1, MAKE)]),
    ("newfstatat", &[PathOf(Some(0), 1, Look(Unless(3)))]),
    ("open", &[PathOf(None, 0, Open(1))]),
    ("openat", &[PathOf(Some(0), 1, Open(2))]),
    ("openat2", &[PathOf(Some(0), 1, OpenHow(2))]),
    ("readlink", &[PathOf(None, 0, Look(Stay))]),
    ("readlinkat", &[PathOf(Some(0), 1, Look(Stay))]),
    ("rename", &[PathOf(None, 0, Remove), PathOf(None, 1, REPLACE)]),
    ("renameat", &[PathOf(Some(0), 1, Remove), PathOf(Some(2), 3, REPLACE)]),
    ("renameat2", &[PathOf(Some(0), 1, Remove), PathOf(Some(2), 3, REPLACE)]),
    ("rmdir", &[PathOf(None, 0, Remove)]),
    ("socket", &[]),
    ("stat", &[PathOf(None, 0, Look(Follow))]),
    ("statfs", &[PathOf(None, 0, Look(Follow))]),
    ("statx", &[PathOf(Some(0), 1, Look(Unless(2)))]),
    ("symlink", &[PathOf(None, 1, MAKE)]),
    ("symlinkat", &[PathOf(Some(1), 2, MAKE)]),
    ("truncate", &[PathOf(None, 0, Truncate)]),
    ("unlink", &[PathOf(None, 0, Remove)]),
    ("unlinkat", &[PathOf(Some(0), 1, Remove)]),
    ("utime", &[PathOf(None, 0, Attributes(Follow))]),
    ("utimensat", &[PathOf(Some(0), 1, Attributes(Unless(3)))]),
    ("utimes", &[PathOf(None, 0, Attributes(Follow))]),
];

/// The paths of a call. None if it is not observed.
pub fn paths_of(number: u32) -> Option<(&'static str, &'static [PathOf])> {
    let name = Arch::NATIVE.name(number)?;
    let at = CALLS.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    Some(CALLS[at])
}

const LOAD: u16 = 0x20;
const LOAD_NUMBER: u16 = 0x00;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// The lower half of the last argument. All architectures here are little-endian.
const LAST_ARGUMENT: u32 = 16 + 5 * 8;

/// Adds the copy that observes to a program whose refusals notify the listener. `None` if the kernel would not take the result.
pub fn observing(listening: &[Instruction]) -> Option<Vec<Instruction>> {
    let step = |code, jt: usize, jf: usize, k| Instruction { code, jt: jt as u8, jf: jf as u8, k };
    let execve = Arch::NATIVE.number("execve")?;
    let numbers: Vec<u32> =
        CALLS.iter().filter(|(name, _)| *name != "execve").filter_map(|(name, _)| Arch::NATIVE.number(name)).collect();
    // The head ends with four steps: to the first copy; whose is this execve; and to the first or second copy.
    let count = numbers.len();
    let mut program = vec![
        step(LOAD, 0, 0, ARCHITECTURE),
        step(JUMP_IF_EQUAL, 0, count + 2, Arch::NATIVE.audit()),
        step(LOAD, 0, 0, NUMBER),
        step(JUMP_IF_EQUAL, count + 1, 0, execve),
    ];
    for (at, number) in numbers.into_iter().enumerate() {
        program.push(step(JUMP_IF_EQUAL, count - at + 3, 0, number));
    }
    let length = u32::try_from(listening.len()).ok()?;
    program.extend([
        step(JUMP, 0, 0, 4),
        step(LOAD, 0, 0, LAST_ARGUMENT),
        step(JUMP_IF_EQUAL, 0, 1, UNOBSERVED),
        step(JUMP, 0, 0, 1),
        step(JUMP, 0, 0, length + 1), // past the first copy and the step that begins it
        step(LOAD_NUMBER, 0, 0, 0),   // as at the start of a program
    ]);
    program.extend_from_slice(listening);
    program.push(step(LOAD_NUMBER, 0, 0, 0));
    program.extend(listening.iter().map(|one| match (one.code, Action::decode(one.k)) {
        (RETURN, Action::Allow) => Instruction { k: Action::Notify.encode(), ..*one },
        _ => *one,
    }));
    (program.len() <= MAX_INSTRUCTIONS).then_some(program)
}

#[cfg(test)]
mod tests {
    use stockade_seccomp::{Call, interpret};

    use super::*;

    /// A program that allows even numbers and refuses the others.
    fn profile() -> Vec<Instruction> {
        let step = |code, jt, jf, k| Instruction { code, jt, jf, k };
        vec![
            step(LOAD, 0, 0, NUMBER),
            step(0x54, 0, 0, 1), // and
            step(JUMP_IF_EQUAL, 0, 1, 0),
            step(RETURN, 0, 0, Action::Allow.encode()),
            step(RETURN, 0, 0, Action::Trap.encode()),
        ]
    }

    #[test]
    fn only_what_the_profile_allows_is_shown() {
        assert!(CALLS.is_sorted_by(|a, b| a.0 < b.0));
        let program = observing(&profile()).unwrap();
        for arch in [Arch::NATIVE.audit(), 0x4000_0003] {
            for number in 0..600 {
                let call = |last| Call { arch, number, args: [0, 0, 0, 0, 0, last] };
                let own = interpret::run(&profile(), &call(0)).0;
                let observed = arch == Arch::NATIVE.audit() && paths_of(number).is_some();
                let expected = if own == Action::Allow && observed { Action::Notify } else { own };
                assert_eq!(interpret::run(&program, &call(0)).0, expected, "{number}");
                let is_execve = Arch::NATIVE.number("execve") == Some(number);
                let ours = interpret::run(&program, &call(UNOBSERVED.into())).0;
                assert_eq!(ours, if is_execve { own } else { expected }, "{number}");
            }
        }
        assert!(observing(&vec![profile()[3]; 2100]).is_none());
    }
}
