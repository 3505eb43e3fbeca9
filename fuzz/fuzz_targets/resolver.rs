//! See `crates/promises/src/resolver.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::resolver::check(data));
