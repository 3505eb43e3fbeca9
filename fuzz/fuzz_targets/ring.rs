//! See `crates/promises/src/ring.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::ring::check(data));
