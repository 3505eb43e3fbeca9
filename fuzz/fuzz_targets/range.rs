//! See `crates/properties/src/range.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::range::check(data));
