//! See `crates/properties/src/upstream_cgi.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::upstream_cgi::check(data));
