//! See `crates/properties/src/webdav.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::webdav::check(data));
