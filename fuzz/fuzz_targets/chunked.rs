//! See `crates/promises/src/chunked.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::chunked::check(data));
