//! See `crates/properties/src/multipart.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::multipart::check(data));
