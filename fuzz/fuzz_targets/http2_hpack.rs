//! See `crates/properties/src/http2_hpack.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::http2_hpack::check(data));
