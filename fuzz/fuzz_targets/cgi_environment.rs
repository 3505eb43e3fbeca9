//! See `crates/properties/src/cgi_environment.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::cgi_environment::check(data));
