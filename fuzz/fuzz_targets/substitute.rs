//! See `crates/properties/src/substitute.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::substitute::check(data));
