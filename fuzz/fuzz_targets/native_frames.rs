//! See `crates/properties/src/native_frames.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::native_frames::check(data));
