//! See `crates/promises/src/cache_entry.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::cache_entry::check(data));
