//! Peers that have connected and not sent their greeting. Each listener has places for so many of them, and
//! one address for a share of these, so that silent peers cannot keep others out. If there is no place, the
//! oldest goes: of the same address if that has too many, else of the address that has the most. A peer takes
//! a place only when it was read from and had not sent its greeting, so that a burst of quick peers needs
//! none.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use sekisho_service::AddressKey;

/// One address has at most so much of a listener's places.
const ADDRESS_SHARE: usize = 4;

/// The places of one listener.
#[derive(Debug)]
pub(crate) struct Greetings {
    max: usize,
    /// In the order in which they came.
    waiting: RefCell<VecDeque<(u64, Option<AddressKey>)>>,
    /// Sessions that were told to go and have not gone.
    leaving: RefCell<VecDeque<u64>>,
}

/// A place that is taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct GreetingPlace {
    greetings: Rc<Greetings>,
    session: u64,
}

impl Greetings {
    pub(crate) fn new(max: u32) -> Rc<Self> {
        let (waiting, leaving) = (RefCell::default(), RefCell::default());
        Rc::new(Self { max: max as usize, waiting, leaving })
    }

    /// Takes a place, and returns the session that has to go for it: perhaps the new one itself.
    pub(crate) fn take(
        self: &Rc<Self>,
        session: u64,
        address: Option<AddressKey>,
    ) -> (GreetingPlace, Option<u64>) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.push_back((session, address));
        let count = |of: Option<AddressKey>| waiting.iter().filter(|(_, it)| *it == of).count();
        let address_max = (self.max / ADDRESS_SHARE).max(1);
        let crowded = if address.is_some() && count(address) > address_max {
            Some(address)
        } else if waiting.len() > self.max {
            waiting.iter().map(|(_, address)| *address).max_by_key(|address| count(*address))
        } else {
            None
        };
        let oldest = |of| waiting.iter().position(|(_, address)| *address == of);
        let leaves = crowded.and_then(oldest).and_then(|at| waiting.remove(at));
        let place = GreetingPlace { greetings: Rc::clone(self), session };
        (place, leaves.map(|(session, _)| session))
    }

    /// A session that was told to go has a moment to take that message, as long as they are not too many.
    /// Returns the session that has to go at once, if any.
    pub(crate) fn leave(&self, session: u64) -> Option<u64> {
        let mut leaving = self.leaving.borrow_mut();
        leaving.push_back(session);
        if leaving.len() > self.max { leaving.pop_front() } else { None }
    }

    /// A connection has ended.
    pub(crate) fn forget(&self, session: u64) {
        self.leaving.borrow_mut().retain(|other| *other != session);
    }
}

impl Drop for GreetingPlace {
    fn drop(&mut self) {
        self.greetings.waiting.borrow_mut().retain(|(session, _)| *session != self.session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<AddressKey> {
        AddressKey::of(&crate::Peer::Tcp(([192, 0, 2, last], 1).into()))
    }

    #[test]
    fn an_address_that_is_crowded_loses_its_own_oldest() {
        // E4, V15
        let greetings = Greetings::new(16);
        let (_other, leaves) = greetings.take(1, address(1));
        assert_eq!(leaves, None);
        let mut places = Vec::new();
        for session in 10..14 {
            let (place, leaves) = greetings.take(session, address(2));
            assert_eq!(leaves, None);
            places.push(place);
        }
        let (fifth, leaves) = greetings.take(14, address(2));
        assert_eq!(leaves, Some(10));
        drop(fifth);
        drop(places.remove(0));
        assert_eq!(greetings.waiting.borrow().len(), 4);
    }

    #[test]
    fn a_full_listener_takes_from_whoever_has_the_most() {
        // E4, V15
        let greetings = Greetings::new(8);
        let mut places = Vec::new();
        for (session, last) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 4), (6, 5), (7, 6), (8, 7)] {
            let (place, leaves) = greetings.take(session, address(last));
            assert_eq!(leaves, None);
            places.push(place);
        }
        let (_ninth, leaves) = greetings.take(9, address(8));
        assert_eq!(leaves, Some(2), "the oldest of the address that has two");
    }

    #[test]
    fn those_who_are_told_to_go_are_bounded_as_well() {
        // E4
        let greetings = Greetings::new(2);
        assert_eq!((greetings.leave(1), greetings.leave(2)), (None, None));
        assert_eq!(greetings.leave(3), Some(1));
        greetings.forget(2);
        assert_eq!(greetings.leave(4), None);
    }
}
