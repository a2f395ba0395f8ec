//! Seccomp profiles: their meaning, and the BPF programs that implement it.
//!
//! ```text
//! profile (a name, or JSON)                    oci, seccompiler, builtin
//!    → Profile: rules by number                model, which is also what they mean
//!    → Program: classic BPF                    compile; or a program that came compiled: program
//! ```
//!
//! This crate makes no system calls. stockade installs the programs, and its build script compiles the built-in profiles with
//! this crate. [`interpret`] and [`compare`] check a program against its profile. [`check`], [`explain`] and [`disasm`] produce
//! text for users.
//!
//! Under every profile, calls of another architecture and of the x32 table kill the process. In particular, `int 0x80` and
//! 32-bit programs do not work under a profile that lists `SCMP_ARCH_X86`: its rules are numbers of another table, and
//! multiplexers such as `socketcall(2)` cannot be filtered there.
//!
//! ```
//! use stockade_seccomp::{Action, Arch, Call, Context, Program, interpret, load};
//!
//! let text = br#"{
//!     "defaultAction": "SCMP_ACT_ALLOW",
//!     "syscalls": [{ "names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "errnoRet": 30 }]
//! }"#;
//! let context = Context { arch: Arch::X86_64, kernel: (6, 1), capabilities: &[], strict: true };
//! let (profile, _) = load(text, None, &context)?;
//! let program = Program::compile(&profile)?;
//!
//! let mkdir = Call { arch: Arch::X86_64.audit(), number: 83, args: [0; 6] };
//! assert_eq!(interpret::run(&program.instructions, &mkdir).0, Action::Errno(30));
//! let by_int_0x80 = Call { arch: 0x4000_0003, ..mkdir };
//! assert_eq!(interpret::run(&program.instructions, &by_int_0x80).0, Action::KillProcess);
//! # Ok::<(), stockade_seccomp::Error>(())
//! ```

#![forbid(unsafe_code)]

mod action;
mod bpf;
pub mod builtin;
pub mod check;
pub mod compare;
mod compile;
pub mod disasm;
mod error;
pub mod explain;
pub mod interpret;
mod model;
mod names;
pub mod oci;
mod program;
mod ranges;
mod seccompiler;
mod table;

pub use action::Action;
pub use bpf::{Instruction, MAX_INSTRUCTIONS};
pub use error::Error;
pub use model::{Call, Condition, Flags, Format, Listener, Operator, Origin, Profile, Rule, Stage, X32_BIT};
pub use names::{Arch, Width};
pub use oci::{Context, Warning};
pub use program::{Program, validate};

use stockade_json::{At, parse};

/// The largest profile that is read, in bytes. Docker's has about 15 thousand.
pub const MAX_BYTES: usize = 1 << 20;

/// Reads a profile in either format. `filter` selects one of several in a file of seccompiler's format.
pub fn load(bytes: &[u8], filter: Option<&str>, context: &Context) -> Result<(Profile, Vec<Warning>), Error> {
    let json = parse(bytes, MAX_BYTES)?;
    if seccompiler::is_it(&json) {
        return Ok((seccompiler::read(&json, filter, context)?, Vec::new()));
    }
    match filter {
        Some(name) => Err(At::root(&json).lacks(format!("is an OCI profile, which has no filter {name:?}")).into()),
        None => Ok(oci::read_tree(&json, context)?),
    }
}
