//! See `crates/properties/src/http3_engine.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::http3_engine::check(data));
