//! See `crates/promises/src/native.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::native::world::check(data));
