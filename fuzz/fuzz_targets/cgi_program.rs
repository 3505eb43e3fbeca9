//! See `crates/properties/src/cgi_program.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::cgi_program::check(data));
