//! Virtual time: which actor is to be woken, and when. Time moves to the next entry and never stands at any
//! other moment. Actors that are due at the same instant come in a random order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use sekisho_lifecycle::Moment;

use crate::rng::Rng;

/// How often one of them may be woken at one instant before that is called a busy loop.
const WAKES_AT_ONCE_MAX: u32 = 8000;

/// Which actor is woken when.
#[derive(Debug)]
pub struct Schedule<Actor> {
    entries: BinaryHeap<Reverse<(Moment, u16, u64, Actor)>>,
    /// The first entry of each; later ones are not kept, since an actor that is woken says again what it
    /// waits for.
    first: BTreeMap<Actor, Moment>,
    number: u64,
    last: (Moment, BTreeMap<Actor, u32>),
}

impl<Actor: Copy + Ord> Schedule<Actor> {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            entries: BinaryHeap::new(),
            first: BTreeMap::new(),
            number: 0,
            last: (Moment::ZERO, BTreeMap::new()),
        }
    }

    /// Wakes an actor at this moment, or earlier if that is asked for already.
    pub fn wake(&mut self, who: Actor, at: Moment, rng: &mut Rng) {
        if self.first.get(&who).is_some_and(|first| *first <= at) {
            return;
        }
        self.first.insert(who, at);
        self.number += 1;
        self.entries.push(Reverse((at, rng.draw() as u16, self.number, who)));
    }

    /// The next one. `Err` names the actor that is woken again and again.
    pub fn next_due(&mut self) -> Option<Result<(Moment, Actor), Actor>> {
        while let Some(Reverse((at, _, _, who))) = self.entries.pop() {
            // One that was overtaken by an earlier one is void.
            if self.first.get(&who) != Some(&at) {
                continue;
            }
            self.first.remove(&who);
            if self.last.0 != at {
                self.last = (at, BTreeMap::new());
            }
            let wakes = self.last.1.entry(who).or_default();
            *wakes += 1;
            return Some(if *wakes > WAKES_AT_ONCE_MAX { Err(who) } else { Ok((at, who)) });
        }
        None
    }
}

impl<Actor: Copy + Ord> Default for Schedule<Actor> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_to_the_next_entry_and_an_earlier_one_takes_the_place_of_a_later_one() {
        let (mut schedule, mut rng) = (Schedule::new(), Rng::new(1));
        let at = Moment::from_millis;
        schedule.wake('a', at(9), &mut rng);
        schedule.wake('b', at(5), &mut rng);
        schedule.wake('a', at(3), &mut rng);
        schedule.wake('a', at(4), &mut rng);
        let order: Vec<_> = std::iter::from_fn(|| schedule.next_due()).collect();
        assert_eq!(order, [Ok((at(3), 'a')), Ok((at(5), 'b'))]);
    }

    #[test]
    fn whoever_is_woken_for_ever_at_one_instant_is_named() {
        let (mut schedule, mut rng) = (Schedule::new(), Rng::new(1));
        for _ in 0..=WAKES_AT_ONCE_MAX {
            schedule.wake('a', Moment::ZERO, &mut rng);
            if schedule.next_due() == Some(Err('a')) {
                return;
            }
        }
        panic!("no actor was named");
    }
}
