//! See `crates/promises/src/percent.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::percent::check(data));
