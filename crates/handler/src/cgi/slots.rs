//! Which request may run a program now, and which waits: `cgi_max_processes`,
//! `cgi_max_processes_per_address`, `cgi_reserved_processes` and `cgi_queue`. It owns no lock and no clock.
//!
//! First come, first served, with two exceptions: a request whose address has its share, or whose location would take
//! what is reserved for others, waits without delaying the requests behind it. When the queue is full, a new
//! request replaces one of the address that has most requests in it, so that no address can fill it alone.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use crate::address::Address;

/// What a request asks for, and within which limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    /// `cgi_max_processes`
    pub(super) max: usize,
    /// `cgi_max_processes_per_address`
    pub(super) max_per_address: usize,
    /// `cgi_reserved_processes`
    pub(super) reserved: usize,
    /// `cgi_queue`
    pub(super) queue_max: usize,
    /// The client's address; `None` for a client without one, which is not limited by address.
    pub(super) address: Option<Address>,
    /// For which location.
    pub(super) location: u32,
}

/// The number of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ClaimId(u64);

/// What has become of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Its program may run.
    Granted,
    /// It is in the queue.
    Waiting,
    /// It was in the queue, and had to make room.
    Refused,
}

/// The programs that run, and the claims that wait.
#[derive(Debug, Default)]
pub(super) struct Slots {
    running: usize,
    by_address: HashMap<Address, usize>,
    by_location: HashMap<u32, usize>,
    waiting: VecDeque<Waiting>,
    /// Claims that were granted or refused after they had waited, until they are given back.
    decided: HashMap<ClaimId, Standing>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    id: ClaimId,
    claim: Claim,
    waker: Option<Waker>,
}

impl Slots {
    /// How many programs run.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Whether a claim would neither be granted nor wait.
    pub(super) fn is_full(&self, claim: &Claim) -> bool {
        !self.may_run_now(claim) && !self.has_room(claim)
    }

    /// Takes a claim: it is granted, or waits; `None` where there is no room to wait.
    pub(super) fn claim(&mut self, claim: Claim) -> Option<(ClaimId, Standing)> {
        self.next += 1;
        let id = ClaimId(self.next);
        if self.may_run_now(&claim) {
            self.count_in(&claim);
            return Some((id, Standing::Granted));
        }
        if !self.has_room(&claim) {
            return None;
        }
        if self.waiting.len() >= claim.queue_max {
            self.make_room(&claim);
        }
        self.waiting.push_back(Waiting { id, claim, waker: None });
        Some((id, Standing::Waiting))
    }

    /// What has become of a claim that waited.
    pub(super) fn standing(&self, id: ClaimId) -> Standing {
        self.decided.get(&id).copied().unwrap_or(Standing::Waiting)
    }

    /// Stores the waker to call when a claim that waits is granted or refused.
    pub(super) fn wake(&mut self, id: ClaimId, waker: &Waker) {
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.id == id) {
            waiting.waker = Some(waker.clone());
        }
    }

    /// A claim is given back: its program has ended, or its request no longer waits. `was_granted`: it was
    /// when it was made.
    pub(super) fn give_back(&mut self, id: ClaimId, claim: &Claim, was_granted: bool) {
        match self.decided.remove(&id) {
            Some(Standing::Refused) => return,
            Some(Standing::Granted) => self.count_out(claim),
            _ if was_granted => self.count_out(claim),
            _ => self.waiting.retain(|waiting| waiting.id != id),
        }
        self.grant();
    }

    /// Grants what can be granted, in the order of arrival.
    fn grant(&mut self) {
        while let Some(at) = self.waiting.iter().position(|it| self.may_run_now(&it.claim))
            && let Some(Waiting { id, claim, waker }) = self.waiting.remove(at)
        {
            self.count_in(&claim);
            self.decide(id, Standing::Granted, waker);
        }
    }

    /// Takes the room of the newest request of the address that has most of them in the queue.
    fn make_room(&mut self, newcomer: &Claim) {
        let Some(most) = self.most_waiting(newcomer) else { return };
        let newest = self.waiting.iter().rposition(|it| it.claim.address == Some(most));
        if let Some(Waiting { id, waker, .. }) = newest.and_then(|at| self.waiting.remove(at)) {
            self.decide(id, Standing::Refused, waker);
        }
    }

    /// The address that has most requests in the queue, if it has more than the new request's address would
    /// have.
    fn most_waiting(&self, newcomer: &Claim) -> Option<Address> {
        let mut counts: HashMap<Address, usize> = HashMap::new();
        for address in self.waiting.iter().filter_map(|it| it.claim.address) {
            *counts.entry(address).or_default() += 1;
        }
        let own = newcomer.address.and_then(|address| counts.get(&address)).map_or(0, |n| *n);
        let most = counts.into_iter().max_by_key(|(_, count)| *count)?;
        (most.1 > own + 1).then_some(most.0)
    }

    fn decide(&mut self, id: ClaimId, standing: Standing, waker: Option<Waker>) {
        self.decided.insert(id, standing);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn may_run_now(&self, claim: &Claim) -> bool {
        // No claim is overtaken: every waiting claim that could run has been granted already.
        self.running < claim.max && self.fits(claim)
    }

    fn has_room(&self, claim: &Claim) -> bool {
        self.waiting.len() < claim.queue_max
            || (claim.queue_max > 0 && self.most_waiting(claim).is_some())
    }

    /// Whether a claim keeps within the share of its address, and leaves others what is reserved for them.
    fn fits(&self, claim: &Claim) -> bool {
        let of_address = claim.address.and_then(|it| self.by_address.get(&it)).map_or(0, |n| *n);
        let of_location = self.by_location.get(&claim.location).map_or(0, |n| *n);
        of_address < claim.max_per_address
            && (of_location < claim.reserved
                || claim.reserved == 0
                || self.running < claim.max.saturating_sub(claim.reserved))
    }

    fn count_in(&mut self, claim: &Claim) {
        self.running += 1;
        *self.by_location.entry(claim.location).or_default() += 1;
        if let Some(address) = claim.address {
            *self.by_address.entry(address).or_default() += 1;
        }
    }

    fn count_out(&mut self, claim: &Claim) {
        self.running -= 1;
        count_out_of(&mut self.by_location, claim.location);
        if let Some(address) = claim.address {
            count_out_of(&mut self.by_address, address);
        }
    }
}

/// A key whose count falls to zero is removed.
fn count_out_of<K: std::hash::Hash + Eq + Copy>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::Standing::{Granted, Refused, Waiting};
    use super::*;

    const ALICE: [u8; 4] = [192, 0, 2, 1];
    const BOB: [u8; 4] = [192, 0, 2, 2];

    fn claim(max: usize, queue_max: usize) -> Claim {
        Claim {
            max,
            max_per_address: usize::MAX,
            reserved: 0,
            queue_max,
            address: None,
            location: 0,
        }
    }

    fn by(address: [u8; 4], claim: Claim) -> Claim {
        Claim { address: Some(IpAddr::from(address).into()), ..claim }
    }

    #[test]
    fn places_are_handed_on_in_order_and_the_queue_is_bounded() {
        // C12
        let mut slots = Slots::default();
        let claim = claim(1, 2);
        let (first, standing) = slots.claim(claim).expect("a place");
        assert_eq!(standing, Granted);
        let (second, _) = slots.claim(claim).expect("a number");
        let (third, _) = slots.claim(claim).expect("a number");
        assert_eq!((slots.standing(second), slots.standing(third)), (Waiting, Waiting));
        assert!(slots.claim(claim).is_none() && slots.is_full(&claim), "the queue is full");
        slots.give_back(first, &claim, true);
        assert_eq!((slots.standing(second), slots.standing(third)), (Granted, Waiting));
        slots.give_back(second, &claim, false);
        assert_eq!(slots.standing(third), Granted);
        slots.give_back(third, &claim, false);
        assert_eq!((slots.running(), slots.decided.len()), (0, 0));
        assert!(slots.by_location.is_empty() && slots.by_address.is_empty());
    }

    #[test]
    fn one_who_gives_up_waiting_takes_no_place() {
        let mut slots = Slots::default();
        let claim = claim(1, 9);
        let (first, _) = slots.claim(claim).expect("a place");
        let (second, _) = slots.claim(claim).expect("a number");
        let (third, _) = slots.claim(claim).expect("a number");
        slots.give_back(second, &claim, false);
        slots.give_back(first, &claim, true);
        assert_eq!(slots.standing(third), Granted);
        slots.give_back(third, &claim, false);
        assert_eq!(slots.running(), 0);
    }

    /// C7, V40: one address has its share; others do not wait behind it.
    #[test]
    fn one_address_takes_its_share_and_no_more() {
        let mut slots = Slots::default();
        let claim = Claim { max_per_address: 2, ..claim(8, 9) };
        let alice = by(ALICE, claim);
        let mine: Vec<_> = (0..4).map(|_| slots.claim(alice).expect("a claim")).collect();
        assert_eq!(
            mine.iter().map(|it| it.1).collect::<Vec<_>>(),
            [Granted, Granted, Waiting, Waiting]
        );
        let bob = by(BOB, claim);
        assert_eq!(slots.claim(bob).map(|it| it.1), Some(Granted));
        assert_eq!(slots.claim(claim).map(|it| it.1), Some(Granted), "without an address");
        slots.give_back(mine[0].0, &alice, true);
        assert_eq!((slots.standing(mine[2].0), slots.standing(mine[3].0)), (Granted, Waiting));
    }

    /// V40: a queue that one address has filled takes in others.
    #[test]
    fn a_full_queue_makes_room_for_others() {
        let mut slots = Slots::default();
        let claim = Claim { max_per_address: 1, ..claim(1, 3) };
        let (alice, bob) = (by(ALICE, claim), by(BOB, claim));
        let mine: Vec<_> = (0..4).map(|_| slots.claim(alice).expect("a claim").0).collect();
        assert!(slots.is_full(&alice) && slots.claim(alice).is_none());
        let (theirs, standing) = slots.claim(bob).expect("there is room for another");
        assert_eq!((standing, slots.standing(mine[3])), (Waiting, Refused));
        assert!(slots.claim(bob).is_none(), "each has a fair part of it");
        slots.give_back(mine[3], &alice, false);
        slots.give_back(mine[0], &alice, true);
        assert_eq!((slots.standing(mine[1]), slots.standing(theirs)), (Granted, Waiting));
        let without = Claim { queue_max: 0, ..bob };
        assert!(slots.claim(without).is_none(), "there is no queue at all");
    }

    /// V40: one location cannot take all: the last slots are for locations that have few.
    #[test]
    fn one_location_leaves_what_is_reserved() {
        let mut slots = Slots::default();
        let busy = Claim { reserved: 2, ..claim(8, 99) };
        let granted = (0..20).filter(|_| slots.claim(busy).is_some_and(|it| it.1 == Granted));
        assert_eq!(granted.count(), 6);
        let quiet = Claim { location: 1, ..busy };
        let (first, standing) = slots.claim(quiet).expect("a claim");
        assert_eq!(standing, Granted);
        assert_eq!(slots.claim(quiet).map(|it| it.1), Some(Granted));
        assert_eq!(slots.claim(quiet).map(|it| it.1), Some(Waiting), "all places are taken");
        slots.give_back(first, &quiet, true);
        assert_eq!(slots.running(), 8, "it goes to the location that has fewer");
    }

    /// V40: addresses of one network are one client.
    #[test]
    fn an_address_of_ipv6_counts_by_its_network() {
        let address = |text: &str| Address::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(address("2001:db8::1"), address("2001:db8::2:3"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_ne!(address("192.0.2.1"), address("192.0.2.2"));
    }

    /// Whatever comes in whatever order: no limit is exceeded, and all is given back.
    #[test]
    fn limits_hold_in_any_order() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut roll = |sides: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % sides
        };
        let mut slots = Slots::default();
        let mut held: Vec<(ClaimId, Claim, bool)> = Vec::new();
        for _ in 0..20_000 {
            if roll(2) == 0 || held.is_empty() {
                let base = Claim {
                    max_per_address: 3,
                    reserved: 2,
                    location: roll(3) as u32,
                    ..claim(8, 10)
                };
                let claim = by([10, 0, 0, roll(4) as u8], base);
                if let Some((id, standing)) = slots.claim(claim) {
                    held.push((id, claim, standing == Granted));
                }
            } else {
                let at = roll(held.len() as u64) as usize;
                let (id, claim, was_granted) = held.swap_remove(at);
                slots.give_back(id, &claim, was_granted);
            }
            assert!(slots.running() <= 8 && slots.waiting.len() <= 10);
            assert!(slots.by_address.values().all(|count| *count <= 3));
            assert_eq!(slots.by_address.values().sum::<usize>(), slots.running());
            // No waiting claim could run.
            assert!(!slots.waiting.iter().any(|it| slots.may_run_now(&it.claim)));
        }
        for (id, claim, was_granted) in held {
            slots.give_back(id, &claim, was_granted);
        }
        assert_eq!((slots.running(), slots.waiting.len(), slots.decided.len()), (0, 0, 0));
    }
}
