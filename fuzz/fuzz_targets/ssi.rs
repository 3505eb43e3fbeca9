//! See `crates/properties/src/ssi.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::ssi::check(data));
