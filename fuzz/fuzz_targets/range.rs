//! See `crates/promises/src/range.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::range::check(data));
