//! See `crates/promises/src/config.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::config::check(data));
