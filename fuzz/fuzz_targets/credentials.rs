//! See `crates/promises/src/credentials.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::credentials::check(data));
