//! Zones on virtual time: what is admitted, whatever is asked when, and what is held.

use proptest::prelude::*;
use sekisho_config::{Rate, RateLimit, ZoneId};
use sekisho_lifecycle::Moment;
use sekisho_route::zone::{ConnectionZone, KEY_BYTES, RateZone};
use sekisho_route::{Rated, Taken};

fn limit(requests: u32, secs: u32, burst: u64) -> RateLimit {
    let rate = Rate { requests, secs };
    RateLimit { zone: ZoneId(0), rate, burst: burst * 1000, delay_from: None }
}

fn is_admitted(zone: &mut RateZone, limit: &RateLimit, key: &[u8], millis: u64) -> bool {
    matches!(zone.look(limit, key, true, Moment::from_millis(millis)), Rated::Within(_))
}

proptest! {
    /// Never more than rate * time + burst + 1, in any stretch of time.
    #[test]
    fn no_stretch_of_time_admits_more_than_rate_and_burst(
        requests in 1_u32..50,
        secs in prop_oneof![Just(1_u32), Just(60_u32)],
        burst in 0_u64..20,
        gaps in prop::collection::vec(0_u64..3000, 1..200),
    ) {
        let limit = limit(requests, secs, burst);
        let mut zone = RateZone::new(1 << 20);
        let mut millis = 0;
        let mut admitted = Vec::new();
        for gap in gaps {
            millis += gap;
            if is_admitted(&mut zone, &limit, b"k", millis) {
                admitted.push(millis);
            }
        }
        for (at, first) in admitted.iter().enumerate() {
            for (count, last) in admitted[at..].iter().enumerate() {
                // In thousandths of a request, so that nothing is rounded away.
                let allowed = (last - first) * u64::from(requests) / u64::from(secs);
                prop_assert!(count as u64 * 1000 <= allowed + burst * 1000);
            }
        }
    }

    /// Three servers that tell a store what they count every ten milliseconds admit no more together than one alone would,
    /// but for what each of them did not know of the others.
    #[test]
    fn servers_that_share_a_zone_keep_to_its_rate_together(
        requests in 10_u32..1000,
        burst in 0_u64..20,
        asked in prop::collection::vec(0_usize..3, 100..2000),
    ) {
        const TELL: u64 = 10;
        let limit = limit(requests, 1, burst);
        let mut zones: Vec<_> = (0..3).map(|_| RateZone::shared(1 << 20)).collect();
        // The store: excess and its moment, as the script counts.
        let (mut excess, mut last, mut is_known, mut admitted) = (0_u64, 0, false, 0_u64);
        for (millis, at) in asked.iter().enumerate() {
            let millis = millis as u64;
            admitted += u64::from(is_admitted(&mut zones[*at], &limit, b"k", millis));
            if millis.is_multiple_of(TELL) {
                for zone in &mut zones {
                    for counted in zone.take_counted(9, None) {
                        let passed = (millis - last) * u64::from(requests);
                        let free = if is_known { 0 } else { 1000 };
                        excess = (excess + u64::from(counted.count) * 1000).saturating_sub(passed + free);
                        (last, is_known) = (millis, true);
                        zone.reconcile(&counted.key, excess, Moment::from_millis(millis));
                    }
                }
            }
        }
        let millis = asked.len() as u64;
        let alone = millis * u64::from(requests) / 1000 + burst + 1;
        let unknown = 2 * (burst + 1 + TELL * u64::from(requests) / 1000 + 1);
        prop_assert!(admitted <= alone + unknown, "{admitted} of {alone} + {unknown}");
    }

    #[test]
    fn whoever_keeps_to_the_rate_is_never_refused(
        requests in 1_u32..2000,
        secs in prop_oneof![Just(1_u32), Just(60_u32)],
        late in prop::collection::vec(0_u64..500, 1..100),
    ) {
        let limit = limit(requests, secs, 0);
        let gap = (1000 * u64::from(secs)).div_ceil(u64::from(requests));
        let mut zone = RateZone::new(1 << 20);
        let mut millis = 0;
        for late in late {
            prop_assert!(is_admitted(&mut zone, &limit, b"k", millis));
            millis += gap + late;
        }
    }

    /// However keys come, a zone holds no more than its size, and knows the one that came last.
    #[test]
    fn a_zone_is_never_larger_than_it_may_be(
        keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..300),
        bytes in 200_u64..4000,
    ) {
        let limit = limit(1, 1, 0);
        let mut zone = RateZone::new(bytes);
        for (at, key) in keys.iter().enumerate() {
            let millis = at as u64;
            let is_new = is_admitted(&mut zone, &limit, key, millis);
            prop_assert!(!is_admitted(&mut zone, &limit, key, millis), "{is_new}");
            prop_assert!(zone.len() as u64 * (KEY_BYTES as u64 + 1) <= bytes);
        }
    }

    /// However places are taken and left, they come out even.
    #[test]
    fn permits_are_released_as_often_as_taken(steps in prop::collection::vec((any::<bool>(), 0_u8..6), 1..300)) {
        let mut zone = ConnectionZone::new(1 << 20);
        let mut taken = [0_u32; 6];
        for (takes, key) in steps {
            let at = usize::from(key);
            if takes {
                let is_free = taken[at] < 3;
                let expected = if is_free { Taken::Yes } else { Taken::No };
                prop_assert_eq!(zone.take(&[key], 3), expected);
                taken[at] += u32::from(is_free);
            } else if taken[at] > 0 {
                zone.leave(&[key]);
                taken[at] -= 1;
            }
            prop_assert_eq!(zone.len(), taken.iter().filter(|count| **count > 0).count());
        }
    }
}

#[test]
fn the_key_that_was_not_used_for_the_longest_time_goes_first() {
    let limit = limit(1, 1, 0);
    let mut zone = RateZone::new(2 * (KEY_BYTES as u64 + 1));
    assert!(is_admitted(&mut zone, &limit, b"a", 0));
    assert!(is_admitted(&mut zone, &limit, b"b", 1));
    assert!(!is_admitted(&mut zone, &limit, b"a", 2), "used, though refused");
    assert!(is_admitted(&mut zone, &limit, b"c", 3));
    assert!(!is_admitted(&mut zone, &limit, b"a", 4), "it is still known");
    assert!(is_admitted(&mut zone, &limit, b"b", 5), "it has been forgotten");
}

#[test]
fn idle_keys_go_by_and_by() {
    let limit = limit(1, 1, 0);
    let mut zone = RateZone::new(1 << 20);
    for key in 0..100_u8 {
        assert!(is_admitted(&mut zone, &limit, &[key], 0));
    }
    for key in 100..150_u8 {
        assert!(is_admitted(&mut zone, &limit, &[key], 61_000));
    }
    assert_eq!(zone.len(), 50);
}

#[test]
fn a_key_that_does_not_fit_at_all_has_no_room() {
    let mut zone = RateZone::new(200);
    let now = Moment::from_millis(0);
    assert_eq!(zone.look(&limit(1, 1, 0), &[b'x'; 100], true, now), Rated::NoRoom);
    assert_eq!(ConnectionZone::new(200).take(&[b'x'; 100], 1), Taken::NoRoom);
}

#[test]
fn what_is_only_looked_at_is_not_counted() {
    let limit = limit(1, 1, 1);
    let mut zone = RateZone::new(1 << 20);
    let now = Moment::from_millis(0);
    for _ in 0..9 {
        assert_eq!(zone.look(&limit, b"k", false, now), Rated::Within(0));
    }
    assert_eq!(zone.count(&limit, b"k", now), 0);
    for _ in 0..9 {
        assert_eq!(zone.look(&limit, b"k", false, now), Rated::Within(1000));
    }
    assert_eq!(zone.count(&limit, b"k", now), 1000);
    assert_eq!(zone.look(&limit, b"k", false, now), Rated::Over(2000));
}

#[test]
fn a_store_that_was_away_is_not_told_what_has_drained_meanwhile() {
    let limit = limit(50, 1, 10);
    for (gap, most) in [(25, 1), (1, 11)] {
        let mut zone = RateZone::shared(1 << 20);
        let mut admitted = 0_u32;
        let mut millis = 0;
        while millis < 6000 {
            admitted += u32::from(is_admitted(&mut zone, &limit, b"k", millis));
            millis += gap;
        }
        let now = Moment::from_millis(millis);
        let counted = zone.take_counted(9, Some((limit.rate, now)));
        assert_eq!(counted.len(), 1);
        assert!(admitted > 200 && counted[0].count <= most, "{} of {admitted}", counted[0].count);
        // The store had nothing left of this key.
        zone.reconcile(b"k", u64::from(counted[0].count) * 1000, now);
        // A client within the rate goes on; one above it is held back for a moment, and not for as long as it was away.
        let wait = if gap == 25 { 0 } else { 250 };
        for number in 0..40 {
            assert!(is_admitted(&mut zone, &limit, b"k", millis + wait + number * 25), "{number}");
        }
    }
}

#[test]
fn places_on_other_servers_count_and_are_told_anew() {
    let mut zone = ConnectionZone::shared(1 << 20);
    assert_eq!(zone.take(b"k", 2), Taken::Yes);
    let told = |zone: &mut ConnectionZone| {
        let counted = zone.take_counted(9);
        counted.into_iter().map(|it| (it.key.to_vec(), it.count)).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut zone), [(b"k".to_vec(), 1)]);
    assert_eq!(told(&mut zone), [], "once");
    zone.reconcile(b"k", 1);
    assert_eq!(zone.take(b"k", 2), Taken::No);
    assert_eq!(told(&mut zone), [(b"k".to_vec(), 1)], "a refusal asks anew");
    zone.leave(b"k");
    assert_eq!(zone.take(b"k", 1), Taken::No, "the others still have theirs");
    assert_eq!(told(&mut zone), [(b"k".to_vec(), 0)]);
    zone.refresh();
    let counted = zone.take_counted(9);
    zone.give_back(&counted);
    assert_eq!(told(&mut zone), [(b"k".to_vec(), 0)], "what was not heard is told again");
    zone.reconcile(b"k", 0);
    assert!(zone.is_empty());
}
