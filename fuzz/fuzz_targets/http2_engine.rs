//! See `crates/promises/src/http2_engine.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::http2_engine::check(data));
