//! Which password is computed next. Addresses take turns, however many guesses each has waiting, and users
//! that have sent a right password from their address before come first: a client that guesses delays others
//! by one hash and not by all of its guesses.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use sekisho_lifecycle::Moment;

use crate::address::Address;

/// After so many turns of the first line, the second line has one.
const FIRST_IN_A_ROW: u32 = 3;
/// How many users with their addresses are remembered, and how long.
const REMEMBERED_MAX: usize = 4096;
const REMEMBERED_AGE: Duration = Duration::from_hours(12);

/// The requests that wait.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    /// The preferred ones, and the others.
    lines: [Line<T>; 2],
    first_in_a_row: u32,
    next: u64,
}

/// The requests that wait in one line; addresses take turns.
#[derive(Debug)]
struct Line<T> {
    by_address: HashMap<Option<Address>, VecDeque<(u64, T)>>,
    order: VecDeque<Option<Address>>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        let line = || Line { by_address: HashMap::new(), order: VecDeque::new() };
        Self { lines: [line(), line()], first_in_a_row: 0, next: 0 }
    }
}

impl<T> Turns<T> {
    /// How many of this address wait.
    pub(crate) fn of_address(&self, address: Option<Address>) -> usize {
        let of = |line: &Line<T>| line.by_address.get(&address).map_or(0, VecDeque::len);
        self.lines.iter().map(of).sum()
    }

    /// A request waits; the number is for [`Self::remove`].
    pub(crate) fn push(&mut self, address: Option<Address>, is_first: bool, item: T) -> u64 {
        let number = self.next;
        self.next += 1;
        let line = &mut self.lines[usize::from(!is_first)];
        let queue = line.by_address.entry(address).or_default();
        if queue.is_empty() {
            line.order.push_back(address);
        }
        queue.push_back((number, item));
        number
    }

    /// Whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let [first, others] = &mut self.lines;
        let is_first = !first.order.is_empty()
            && (others.order.is_empty() || self.first_in_a_row < FIRST_IN_A_ROW);
        self.first_in_a_row = if is_first { self.first_in_a_row + 1 } else { 0 };
        if is_first { first } else { others }.pop()
    }

    /// A request no longer waits.
    pub(crate) fn remove(&mut self, address: Option<Address>, number: u64) {
        for line in &mut self.lines {
            let Some(queue) = line.by_address.get_mut(&address) else { continue };
            queue.retain(|(other, _)| *other != number);
            if queue.is_empty() {
                line.by_address.remove(&address);
                line.order.retain(|other| *other != address);
            }
        }
    }
}

impl<T> Line<T> {
    fn pop(&mut self) -> Option<T> {
        let address = self.order.pop_front()?;
        let queue = self.by_address.get_mut(&address)?;
        let (_, item) = queue.pop_front()?;
        if queue.is_empty() {
            self.by_address.remove(&address);
        } else {
            self.order.push_back(address);
        }
        Some(item)
    }
}

/// Users that have sent a right password, with the address from which they did. Only a hash is kept of them.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    hasher: RandomState,
    since: HashMap<u64, Moment>,
    order: VecDeque<u64>,
}

impl Remembered {
    fn key(&self, address: Option<Address>, user: &[u8]) -> u64 {
        self.hasher.hash_one((address, user))
    }

    /// Whether the user was here, from this address.
    pub(crate) fn has(&self, address: Option<Address>, user: &[u8], now: Moment) -> bool {
        let since = self.since.get(&self.key(address, user));
        since.is_some_and(|since| !(*since + REMEMBERED_AGE).is_due(now))
    }

    /// The password was right.
    pub(crate) fn keep(&mut self, address: Option<Address>, user: &[u8], now: Moment) {
        let key = self.key(address, user);
        if self.since.insert(key, now).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.since.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "as everything here takes it")]
    fn address(last: u8) -> Option<Address> {
        Some(std::net::IpAddr::from([192, 0, 2, last]).into())
    }

    fn all(turns: &mut Turns<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| turns.pop()).collect()
    }

    #[test]
    fn addresses_take_turns_however_many_guesses_each_has() {
        let mut turns = Turns::default();
        for _ in 0..300 {
            turns.push(address(1), false, "guess");
        }
        turns.push(address(2), false, "right");
        assert_eq!((turns.of_address(address(1)), turns.of_address(address(2))), (300, 1));
        assert_eq!(
            (turns.pop(), turns.pop(), turns.pop()),
            (Some("guess"), Some("right"), Some("guess"))
        );
        assert_eq!(all(&mut turns).len(), 298);
        assert_eq!(turns.of_address(address(1)), 0);
    }

    #[test]
    fn those_who_were_here_come_first_and_do_not_starve_the_others() {
        let mut turns = Turns::default();
        for last in 10..20 {
            turns.push(address(last), false, "guess");
        }
        for last in 1..6 {
            turns.push(address(last), true, "known");
        }
        let order = all(&mut turns);
        assert_eq!(order[..5], ["known", "known", "known", "guess", "known"]);
        assert_eq!(order.len(), 15);
    }

    #[test]
    fn who_has_gone_has_no_turn() {
        // L12: nothing is left of a request that has gone.
        let mut turns = Turns::default();
        let first = turns.push(address(1), false, "a");
        turns.push(address(1), false, "b");
        let other = turns.push(address(2), true, "c");
        turns.remove(address(1), first);
        turns.remove(address(2), other);
        turns.remove(address(3), 99);
        assert_eq!(all(&mut turns), ["b"]);
        assert!(turns.lines.iter().all(|line| line.by_address.is_empty() && line.order.is_empty()));
    }

    #[test]
    fn a_user_is_remembered_with_the_address_and_not_for_ever() {
        // A client elsewhere that knows the name is not taken for the user.
        let mut remembered = Remembered::default();
        let at = |hours: u64| Moment::ZERO + Duration::from_hours(hours);
        remembered.keep(address(1), b"ann", at(0));
        assert!(remembered.has(address(1), b"ann", at(11)));
        assert!(!remembered.has(address(1), b"ann", at(12)));
        assert!(!remembered.has(address(2), b"ann", at(0)));
        assert!(!remembered.has(address(1), b"bob", at(0)));
        for number in 0..2 * REMEMBERED_MAX as u64 {
            remembered.keep(address(3), &number.to_le_bytes(), at(1));
        }
        assert_eq!(
            (remembered.since.len(), remembered.order.len()),
            (REMEMBERED_MAX, REMEMBERED_MAX)
        );
    }
}
