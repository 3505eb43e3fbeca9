//! See `crates/properties/src/proxy_header.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::proxy_header::check(data));
