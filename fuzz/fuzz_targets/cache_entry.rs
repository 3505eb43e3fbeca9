//! See `crates/properties/src/cache_entry.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::cache_entry::check(data));
