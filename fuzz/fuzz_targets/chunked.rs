//! See `crates/properties/src/chunked.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::chunked::check(data));
