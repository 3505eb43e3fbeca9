//! See `crates/properties/src/upstream_http2.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::upstream_http2::check(data));
