//! See `crates/properties/src/tls_hello.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::tls_hello::check(data));
