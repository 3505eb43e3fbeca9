//! See `crates/promises/src/cgi_head.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::cgi_head::check(data));
