//! See `crates/properties/src/engine/mod.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::engine::check(data));
