//! See `crates/properties/src/path.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::path::check(data));
