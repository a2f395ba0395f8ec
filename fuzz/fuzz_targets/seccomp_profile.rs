//! Whatever stands in a profile: it is refused, or its program does what the profile means, for every call that could tell.
//!
//! `cargo +nightly fuzz run seccomp_profile fuzz/corpus-long profiles/seccomp -- -dict=fuzz/seccomp_profile.dict -max_len=4096`
#![no_main]

use libfuzzer_sys::fuzz_target;
use stockade::seccomp::compare::difference;
use stockade::seccomp::compiler::names::Arch;
use stockade::seccomp::compiler::oci::Context;
use stockade::seccomp::load;
use stockade::seccomp::program::{Program, validate};

fuzz_target!(|bytes: &[u8]| {
    let context = Context { arch: Arch::X86_64, kernel: (6, 1), capabilities: &["CAP_SYS_PTRACE"], strict: false };
    let Ok((profile, _)) = load(bytes, None, &context) else { return };
    let Ok(program) = Program::compile(&profile) else { return };
    assert_eq!(validate(&program.instructions), Ok(()));
    assert_eq!(difference(&profile, &program.instructions), None);
    let again = Program::load_binary(&program.to_binary()).map(|program| program.sha256);
    assert_eq!(again, Ok(program.sha256));
});
