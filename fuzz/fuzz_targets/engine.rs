//! The whole HTTP/1 engine: any cut gives the same events and answers; and in any order of bytes, time,
//! answers and ends there is exactly one answer for each request, a deadline for whoever is waited for, and
//! one end, after which nothing is written.
//!
//! The input is the stream of the peer, a byte 0xff, and the script of everybody else.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sekisho_fuzz::engine::{cut, split, world};

fuzz_target!(|data: &[u8]| {
    let (stream, script) = split(data);
    let seed = script.iter().take(4).fold(0, |seed, byte| seed << 8 | u32::from(*byte));
    cut::check(stream, seed);
    world::check(stream, script);
});
