//! See `crates/promises/src/readme.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::readme::check(data));
