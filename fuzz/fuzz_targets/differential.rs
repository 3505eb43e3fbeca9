//! See `crates/properties/src/differential.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::differential::check(data));
