//! The simulator looks: a server that is wrong in one small way is found out within a few hundred worlds.

use sekisho_simulation::{Fault, World, check};

/// So many worlds are enough.
const SEEDS: u64 = 400;

fn is_found_out(world: World, fault: Fault) -> Option<String> {
    (0..SEEDS).find_map(|seed| check(world, seed, Some(fault)).err()).map(|failure| {
        let again = check(world, failure.seed, Some(fault)).err();
        assert_eq!(again.as_ref(), Some(&failure), "a failing seed plays again exactly");
        format!("seed {}: {}", failure.seed, failure.violation)
    })
}

fn all_are_found_out(world: World, faults: &[Fault]) {
    let mut missed = Vec::new();
    for fault in faults {
        match is_found_out(world, *fault) {
            Some(how) => println!("{fault:?}: {how:.160}"),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found out within {SEEDS} worlds: {missed:?}");
}

#[test]
fn a_faulty_http_server_is_found_out() {
    all_are_found_out(World::Http, &Fault::HTTP);
}

#[test]
fn a_faulty_http2_server_is_found_out() {
    all_are_found_out(World::Http2, &Fault::HTTP2);
}

#[test]
fn a_faulty_native_server_is_found_out() {
    all_are_found_out(World::Native, &Fault::NATIVE);
}
