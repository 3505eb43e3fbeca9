//! See `crates/promises/src/native_frames.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::native_frames::check(data));
