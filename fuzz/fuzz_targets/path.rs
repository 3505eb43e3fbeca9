//! See `crates/promises/src/path.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::path::check(data));
