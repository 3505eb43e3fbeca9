//! See `crates/promises/src/log.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::log::check(data));
