//! `tests/fuzz session_packet`; the property is in `src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stockade::fuzzing::property("session_packet")(bytes));
