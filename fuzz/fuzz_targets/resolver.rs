//! See `crates/properties/src/resolver.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::resolver::check(data));
