//! See `crates/properties/src/credentials.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::credentials::check(data));
