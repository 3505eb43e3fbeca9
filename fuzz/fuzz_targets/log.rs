//! See `crates/properties/src/log.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::log::check(data));
