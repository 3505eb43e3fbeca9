//! See `crates/properties/src/files.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::files::check(data));
