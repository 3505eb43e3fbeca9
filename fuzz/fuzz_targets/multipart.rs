//! See `crates/promises/src/multipart.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::multipart::check(data));
