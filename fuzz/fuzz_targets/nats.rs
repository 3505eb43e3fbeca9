//! See `crates/properties/src/nats.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::nats::check(data));
