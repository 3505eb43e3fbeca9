//! See `crates/properties/src/request_head.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::request_head::check(data));
