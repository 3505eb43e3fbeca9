//! See `crates/properties/src/config.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::config::check(data));
