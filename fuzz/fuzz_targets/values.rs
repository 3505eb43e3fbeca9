//! See `crates/promises/src/values.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::values::check(data));
