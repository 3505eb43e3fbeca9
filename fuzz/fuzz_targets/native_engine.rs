//! See `crates/properties/src/native.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_properties::native::world::check(data));
