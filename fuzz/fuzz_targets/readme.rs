//! See `crates/properties/src/readme.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::readme::check(data));
