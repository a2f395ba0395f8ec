//! `tests/fuzz file_messages`; the property is in `src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stockade::fuzzing::property("file_messages")(bytes));
