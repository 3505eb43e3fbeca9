//! See `crates/promises/src/conditional.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::conditional::check(data));
