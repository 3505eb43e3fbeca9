//! See `crates/properties/src/percent.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::percent::check(data));
