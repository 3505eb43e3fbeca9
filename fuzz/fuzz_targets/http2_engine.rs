//! See `crates/properties/src/http2_engine.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::http2_engine::check(data));
