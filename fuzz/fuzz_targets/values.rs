//! See `crates/properties/src/values.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::values::check(data));
