//! Two native engines joined by a network that the input moves, cuts, delays and breaks: one answer for each
//! request, nothing lost or doubled, no window exceeded, and everything released at the end.
//!
//! The input is the script: pairs of an operation and its argument (see `world.rs`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use sekisho_fuzz::native::world;

fuzz_target!(|data: &[u8]| world::check(data));
