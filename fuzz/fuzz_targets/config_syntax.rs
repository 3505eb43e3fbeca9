//! See `crates/properties/src/config_syntax.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::config_syntax::check(data));
