//! Thousands of worlds, each from its seed. `SEKISHO_SEED=7` plays that one alone, `SEKISHO_SEEDS=50000` more
//! of them than usual.

use sekisho_simulation::{RunStats, World, check};

/// How many of each kind are played by default.
const SEEDS: u64 = 3000;

fn plays(world: World) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("SEKISHO_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEKISHO_SEEDS").unwrap_or(SEEDS),
    };
    let mut stats = RunStats::default();
    for seed in seeds {
        match check(world, seed, None) {
            Ok(more) => stats.add(more),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{stats}");
}

/// H2, H6, H8, H11, T1, T3, T4, T6, T7, T8, T9, C3, C4, C5, C6, L5, L9, L12, O4, V3: one answer for each request, in
/// order, whole or visibly not; every deadline at its instant; everything released.
#[test]
fn http_simulations_hold_every_property() {
    plays(World::Http);
}

/// M2, C5, L5, L6, L7, L12, T2, O4: the same for the streams of HTTP/2 connections, within their windows.
#[test]
fn http2_simulations_hold_every_property() {
    plays(World::Http2);
}

/// L6, L7, L8, L10, L11, L12, L14, L28, L30, L31, L32, L33, E2, E4, E6: the same for native sessions, their channels and
/// their ends.
#[test]
fn native_simulations_hold_every_property() {
    plays(World::Native);
}
