//! `tests/fuzz proxy_answer`; the property is in `src/fuzzing/egress.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stockade::fuzzing::property("proxy_answer")(bytes));
