//! See `crates/promises/src/engine/mod.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::engine::check(data));
