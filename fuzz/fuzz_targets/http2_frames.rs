//! See `crates/properties/src/http2_frames.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::http2_frames::check(data));
