//! `tests/fuzz dns_packet`; the property is in `src/fuzzing/egress.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stockade::fuzzing::property("dns_packet")(bytes));
