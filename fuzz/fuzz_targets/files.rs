//! See `crates/promises/src/files.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sekisho_promises::files::check(data));
