//! `tests/fuzz seccomp_profile`; what holds is in `src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stockade::fuzzing::property("seccomp_profile")(bytes));
