//! See `crates/properties/src/ring.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::ring::check(data));
