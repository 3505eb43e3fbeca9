//! See `crates/promises/src/differential.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::differential::check(data));
