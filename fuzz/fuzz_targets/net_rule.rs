//! `tests/fuzz net_rule`; the property is in `src/fuzzing/egress.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stockade::fuzzing::property("net_rule")(bytes));
