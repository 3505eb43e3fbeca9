//! Failures, recoveries, slow starts and health.

use std::time::Duration;

use proptest::prelude::*;
use sekisho_upstream::balance::{Admin, Change, Outcome, Unavailable};
use sekisho_upstream::health::Verdict;
use sekisho_upstream::{Balancer, Method};

use crate::{asks, choose, seconds, weighted};

fn fail(group: &Balancer, peer: usize, now: u64) -> Option<Change> {
    loop {
        let chosen = choose(group, &mut group.begin(b""), seconds(now)).expect("one");
        if chosen == peer {
            return group.release(chosen, Outcome::Failed, seconds(now));
        }
        group.release(chosen, Outcome::Answered, seconds(now));
    }
}

/// `max_fails` within `fail_timeout`, then it is left alone for `fail_timeout`.
#[test]
fn a_server_that_fails_is_left_alone_for_a_while() {
    let mut peers = weighted(&[1, 1]);
    peers[0].max_fails = 2;
    let group = Balancer::new(Method::RoundRobin, peers);
    assert_eq!(fail(&group, 0, 100), None);
    assert_eq!(fail(&group, 0, 101), Some(Change::Disabled));
    assert_eq!(group.snapshot(seconds(101))[0].unavailable, Some(Unavailable::Failed));
    assert_eq!(asks(&group, 4, seconds(111)), "bbbb", "at the end of fail_timeout still");
    assert!(asks(&group, 4, seconds(112)).contains('a'));
    assert_eq!(group.snapshot(seconds(112))[0].fails, 0, "it answered");
}

/// One probe at a time after the timeout: if it fails as well, the wait begins anew.
#[test]
fn a_server_that_fails_again_waits_again() {
    let group = Balancer::new(Method::RoundRobin, weighted(&[1, 1]));
    fail(&group, 0, 100);
    let mut selection = group.begin(b"");
    let mut probe = choose(&group, &mut selection, seconds(120)).expect("one");
    if probe != 0 {
        probe = choose(&group, &mut selection, seconds(120)).expect("one");
    }
    assert_eq!(probe, 0);
    assert_eq!(asks(&group, 4, seconds(125)), "bbbb", "while one request asks it, no other does");
    group.release(0, Outcome::Failed, seconds(126));
    assert_eq!(asks(&group, 4, seconds(136)), "bbbb");
    assert!(asks(&group, 4, seconds(137)).contains('a'));
}

#[test]
fn max_fails_zero_counts_nothing() {
    let mut peers = weighted(&[1, 1]);
    peers[0].max_fails = 0;
    let group = Balancer::new(Method::RoundRobin, peers);
    for _ in 0..5 {
        assert_eq!(fail(&group, 0, 1), None);
    }
    assert!(asks(&group, 4, seconds(1)).contains('a'));
}

#[test]
fn a_single_server_is_never_left_alone() {
    let group = Balancer::new(Method::LeastConnections, weighted(&[1]));
    for _ in 0..5 {
        assert_eq!(fail(&group, 0, 1), None);
    }
    assert_eq!((group.is_single(), group.tries_max()), (true, 1));
}

#[test]
fn a_recovered_server_is_told_of_and_starts_slowly() {
    let mut peers = weighted(&[1, 1]);
    peers[0].slow_start = Some(Duration::from_secs(10));
    let group = Balancer::new(Method::RoundRobin, peers);
    assert_eq!(fail(&group, 0, 100), Some(Change::Disabled));
    let mut change = None;
    for _ in 0..300 {
        let peer = choose(&group, &mut group.begin(b""), seconds(120)).expect("one");
        change = change.or(group.release(peer, Outcome::Answered, seconds(120)));
    }
    assert_eq!(change, Some(Change::Recovered));
    let share = |now| asks(&group, 300, seconds(now)).matches('a').count();
    let (early, half, late) = (share(121), share(125), share(131));
    assert!((15..45).contains(&early), "{early}");
    assert!((80..120).contains(&half), "{half}");
    assert!((140..160).contains(&late), "{late}");
}

#[test]
fn an_unhealthy_server_is_not_asked() {
    let group = Balancer::new(Method::RoundRobin, weighted(&[1, 1]));
    group.set_health(0, Verdict::Unhealthy, seconds(1));
    assert_eq!(asks(&group, 4, seconds(1)), "bbbb");
    assert_eq!(group.snapshot(seconds(1))[0].unavailable, Some(Unavailable::Unhealthy));
    group.set_health(1, Verdict::Unhealthy, seconds(1));
    assert_eq!(asks(&group, 1, seconds(1)), "-");
    group.set_health(0, Verdict::Healthy, seconds(2));
    assert_eq!(asks(&group, 2, seconds(2)), "aa");
}

#[test]
fn accounts_outlive_a_reload() {
    let old = Balancer::new(Method::RoundRobin, weighted(&[1, 1]));
    fail(&old, 1, 100);
    old.set_admin(0, Admin::Draining, seconds(100));
    let new = Balancer::new(Method::RoundRobin, weighted(&[1, 2, 1]));
    new.inherit(&old);
    assert_eq!(asks(&new, 2, seconds(101)), "cc");
    let snapshot = new.snapshot(seconds(101));
    assert_eq!(snapshot[1].unavailable, Some(Unavailable::Failed));
    assert_eq!((snapshot[1].failures, snapshot[0].unavailable), (1, Some(Unavailable::Draining)));
    new.inherit(&new);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// In any order of choices, endings and time: what is counted is what runs, no server is asked that may
    /// not be, and after all ends every server comes back.
    #[test]
    fn accounts_are_right(
        method in proptest::sample::select(vec![
            Method::RoundRobin, Method::LeastConnections, Method::IpHash, Method::Hash,
            Method::ConsistentHash, Method::Random, Method::RandomTwo,
        ]),
        steps in proptest::collection::vec((0_u8..4, any::<u32>()), 1..120),
        limits in proptest::collection::vec((1_u32..4, 0_u32..3, 0_u32..3), 1..5),
    ) {
        let mut peers = weighted(&limits.iter().map(|limit| limit.0).collect::<Vec<_>>());
        for (peer, limit) in peers.iter_mut().zip(&limits) {
            (peer.max_fails, peer.max_conns) = (limit.1, limit.2);
        }
        let group = Balancer::new(method, peers);
        let mut running: Vec<usize> = Vec::new();
        let mut now = 100;
        for (step, number) in steps {
            match step {
                0 | 1 => {
                    let before = group.snapshot(seconds(now));
                    let mut selection = group.begin(&number.to_le_bytes());
                    let mut random = number;
                    let chosen = group.choose(&mut selection, seconds(now), || {
                        random = random.wrapping_mul(747_796_405).wrapping_add(1);
                        random >> 8
                    });
                    match chosen {
                        Ok(peer) => {
                            prop_assert!(group.is_single() || before[peer].unavailable.is_none());
                            running.push(peer);
                        }
                        Err(_) => prop_assert!(before.iter().all(|peer| peer.unavailable.is_some())),
                    }
                }
                2 if !running.is_empty() => {
                    let peer = running.swap_remove(number as usize % running.len());
                    let outcome = if number & 1 == 0 { Outcome::Failed } else { Outcome::Answered };
                    group.release(peer, outcome, seconds(now));
                }
                _ => now += u64::from(number % 30),
            }
            for (index, peer) in group.snapshot(seconds(now)).iter().enumerate() {
                let expected = running.iter().filter(|other| **other == index).count();
                prop_assert_eq!(peer.connections as usize, expected);
            }
        }
        for peer in running {
            group.release(peer, Outcome::Answered, seconds(now));
        }
        let late = group.snapshot(seconds(now + 1000));
        prop_assert!(late.iter().all(|peer| peer.unavailable.is_none() && peer.connections == 0));
    }
}
