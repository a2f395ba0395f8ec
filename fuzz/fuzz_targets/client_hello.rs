//! `tests/fuzz client_hello`; the property is in `src/fuzzing/egress.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stockade::fuzzing::property("client_hello")(bytes));
