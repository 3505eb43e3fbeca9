//! See `crates/properties/src/slices.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::slices::check(data));
