//! Which server is chosen.

use std::collections::HashMap;

use sekisho_upstream::balance::{Admin, NoPeer, Outcome};
use sekisho_upstream::{Balancer, Method, PeerSettings};

use crate::{ask, asks, choose, seconds, weighted};

/// Smooth: the example of nginx's own commit.
#[test]
fn weights_are_spread_smoothly() {
    let group = Balancer::new(Method::RoundRobin, weighted(&[5, 1, 1]));
    assert_eq!(asks(&group, 14, seconds(0)), "aabacaaaabacaa");
    let group = Balancer::new(Method::RoundRobin, weighted(&[1, 1, 1]));
    assert_eq!(asks(&group, 6, seconds(0)), "abcabc");
}

#[test]
fn backup_servers_stand_in_and_no_more() {
    let mut peers = weighted(&[1, 1, 1, 1]);
    peers[2].is_backup = true;
    peers[3].is_backup = true;
    let group = Balancer::new(Method::RoundRobin, peers);
    assert_eq!(asks(&group, 4, seconds(0)), "abab");
    group.set_admin(0, Admin::Down, seconds(0));
    group.set_admin(1, Admin::Down, seconds(0));
    assert_eq!(asks(&group, 4, seconds(0)), "cdcd");
    group.set_admin(1, Admin::Up, seconds(0));
    assert_eq!(asks(&group, 2, seconds(0)), "bb");
    let selection = &mut group.begin(b"");
    let tried: Vec<_> = (0..4).map(|_| choose(&group, selection, seconds(0))).collect();
    assert_eq!(tried, [Ok(1), Ok(2), Ok(3), Err(NoPeer)], "each once");
}

#[test]
fn a_server_is_tried_once_for_each_request() {
    for method in [
        Method::RoundRobin,
        Method::LeastConnections,
        Method::IpHash,
        Method::Hash,
        Method::ConsistentHash,
        Method::Random,
        Method::RandomTwo,
    ] {
        let group = Balancer::new(method, weighted(&[3, 1, 2]));
        let mut selection = group.begin(b"key");
        let mut seed = 7_u32;
        let mut tried = Vec::new();
        for _ in 0..3 {
            let chosen = group.choose(&mut selection, seconds(0), || {
                seed = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
                seed >> 8
            });
            tried.push(chosen.expect("one is left"));
        }
        assert_eq!(selection.tried().collect::<Vec<_>>(), tried);
        assert_eq!(choose(&group, &mut selection, seconds(0)), Err(NoPeer), "{method:?}");
        tried.sort_unstable();
        assert_eq!(tried, [0, 1, 2], "{method:?}");
    }
}

#[test]
fn fewest_connections_for_the_weight() {
    let group = Balancer::new(Method::LeastConnections, weighted(&[1, 2]));
    let mut held = String::new();
    for _ in 0..6 {
        let peer = choose(&group, &mut group.begin(b""), seconds(0)).expect("one");
        held.push(char::from(b'a' + peer as u8));
    }
    let count = |letter| held.matches(letter).count();
    assert_eq!((count('a'), count('b')), (2, 4), "{held}");
    group.release(0, Outcome::Answered, seconds(0));
    assert_eq!(ask(&group, b"", seconds(0)), 'a');
}

#[test]
fn max_conns_is_never_exceeded() {
    let mut peers = weighted(&[1, 1]);
    peers[0].max_conns = 1;
    peers[1].max_conns = 2;
    for method in [Method::RoundRobin, Method::LeastConnections, Method::Hash, Method::Random] {
        let group = Balancer::new(method, peers.clone());
        let take = || choose(&group, &mut group.begin(b"k"), seconds(0));
        let taken: Vec<_> = (0..3).map(|_| take().expect("room")).collect();
        assert_eq!(taken.iter().filter(|peer| **peer == 0).count(), 1, "{method:?}");
        assert_eq!(take(), Err(NoPeer), "{method:?}");
        group.release(1, Outcome::Answered, seconds(0));
        assert_eq!(take(), Ok(1), "{method:?}");
    }
    let mut single = PeerSettings::new("a");
    single.max_conns = 1;
    let group = Balancer::new(Method::RoundRobin, vec![single]);
    assert_eq!(choose(&group, &mut group.begin(b""), seconds(0)), Ok(0));
    assert_eq!(choose(&group, &mut group.begin(b""), seconds(0)), Err(NoPeer));
}

/// A server that goes takes only its own keys along.
#[test]
fn consistent_hashing_moves_few_keys() {
    let keys: Vec<String> = (0..2000).map(|key| format!("key {key}")).collect();
    let place = |group: &Balancer| -> HashMap<String, char> {
        keys.iter().map(|key| (key.clone(), ask(group, key.as_bytes(), seconds(0)))).collect()
    };
    let group = Balancer::new(Method::ConsistentHash, weighted(&[1, 1, 2]));
    let before = place(&group);
    let share = |letter| before.values().filter(|found| **found == letter).count();
    assert!((800..1200).contains(&share('c')), "{}", share('c'));
    group.set_admin(1, Admin::Down, seconds(0));
    let after = place(&group);
    for key in &keys {
        assert!(before[key] == after[key] || before[key] == 'b');
        assert_ne!(after[key], 'b');
    }
}

#[test]
fn two_at_random_and_the_less_busy_of_them() {
    let group = Balancer::new(Method::RandomTwo, weighted(&[1, 1, 1]));
    let draw = |numbers: &[u32]| {
        let mut numbers = numbers.iter().copied();
        let chosen =
            group.choose(&mut group.begin(b""), seconds(0), || numbers.next().unwrap_or_default());
        chosen.expect("one")
    };
    assert_eq!(draw(&[0, 1]), 1, "equal: the second");
    assert_eq!(draw(&[0, 1]), 0, "less busy");
    assert_eq!(draw(&[2, 2, 0]), 2);
}

/// Bound sessions go to their server, also while it drains, and do not upset the others' shares.
#[test]
fn a_sticky_session_stays_with_its_server() {
    for method in [Method::RoundRobin, Method::LeastConnections, Method::Hash] {
        let group = Balancer::new(method, weighted(&[1, 1, 1]));
        let bound = || {
            let mut selection = group.begin(b"key");
            selection.bind(Some(2));
            let peer = choose(&group, &mut selection, seconds(0)).expect("one");
            group.release(peer, Outcome::Answered, seconds(0));
            peer
        };
        assert_eq!((0..5).map(|_| bound()).collect::<Vec<_>>(), [2; 5], "{method:?}");
        group.set_admin(2, Admin::Draining, seconds(0));
        assert_eq!(bound(), 2, "{method:?}");
        assert!(!asks(&group, 9, seconds(0)).contains('c'), "{method:?}");
        group.set_admin(2, Admin::Down, seconds(0));
        assert_ne!(bound(), 2, "{method:?}");
        let mut selection = group.begin(b"key");
        selection.bind(Some(99));
        assert!(choose(&group, &mut selection, seconds(0)).is_ok());
    }
    let group = Balancer::new(Method::RoundRobin, weighted(&[1, 1]));
    for _ in 0..100 {
        let mut selection = group.begin(b"");
        selection.bind(Some(0));
        choose(&group, &mut selection, seconds(0)).expect("one");
    }
    let after = asks(&group, 8, seconds(0));
    assert!(after.matches('a').count() >= 3, "its debt is bounded: {after}");
}

#[test]
fn odd_groups_are_harmless() {
    let empty = Balancer::new(Method::Hash, vec![]);
    assert_eq!(choose(&empty, &mut empty.begin(b"k"), seconds(0)), Err(NoPeer));
    let weightless = Balancer::new(Method::ConsistentHash, weighted(&[0, 0]));
    assert!(choose(&weightless, &mut weightless.begin(b"k"), seconds(0)).is_ok());
    let mut peers = weighted(&[1]);
    peers[0].is_backup = true;
    peers.push(PeerSettings { is_backup: true, ..PeerSettings::new("b") });
    let backups = Balancer::new(Method::IpHash, peers);
    assert_eq!(asks(&backups, 2, seconds(0)), "ab");
    assert_eq!(backups.release(9, Outcome::Failed, seconds(0)), None);
}
