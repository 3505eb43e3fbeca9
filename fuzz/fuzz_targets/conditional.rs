//! See `crates/properties/src/conditional.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::conditional::check(data));
