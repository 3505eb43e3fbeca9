//! Places for programs, counted over the whole server (`cgi_max_processes`), and the queue of those who
//! wait for one (`cgi_queue`). First come, first served: a place that becomes free is handed to the one
//! who waited longest, so nobody can be overtaken.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::strays::Strays;

/// The places of the whole server, and what programs leave behind.
#[derive(Debug, Default)]
pub struct Seats {
    state: Mutex<State>,
    pub(super) strays: Strays,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    next: u64,
    waiting: VecDeque<Waiting>,
    /// Places that have been handed over and not been noticed yet.
    granted: Vec<u64>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    waker: Option<Waker>,
}

/// A place, or a number in the queue for one. Dropping it gives either back.
#[derive(Debug)]
pub(super) struct Ticket {
    seats: Arc<Seats>,
    /// `None` for a place that was free at once.
    number: Option<u64>,
}

impl Seats {
    /// How many programs run.
    pub fn taken(&self) -> usize {
        self.lock().taken
    }

    /// A place, or a number in the queue; `None` when the queue is full.
    pub(super) fn take(self: &Arc<Self>, max: usize, queue_max: usize) -> Option<Ticket> {
        let mut state = self.lock();
        if state.taken < max && state.waiting.is_empty() {
            state.taken += 1;
            return Some(Ticket { seats: Arc::clone(self), number: None });
        }
        if state.waiting.len() >= queue_max {
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.waiting.push_back(Waiting { number, waker: None });
        Some(Ticket { seats: Arc::clone(self), number: Some(number) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Hands a place to whoever has waited longest, or frees it.
    fn pass_on(&mut self) {
        let Some(first) = self.waiting.pop_front() else {
            self.taken -= 1;
            return;
        };
        self.granted.push(first.number);
        if let Some(waker) = first.waker {
            waker.wake();
        }
    }
}

impl Ticket {
    /// Whose place it is.
    pub(super) const fn seats(&self) -> &Arc<Seats> {
        &self.seats
    }

    /// Whether this is a place by now.
    pub(super) fn is_granted(&self) -> bool {
        self.number.is_none_or(|number| self.seats.lock().granted.contains(&number))
    }

    /// Whom to wake when it becomes one.
    pub(super) fn wake(&self, waker: &Waker) {
        let mut state = self.seats.lock();
        let own = state.waiting.iter_mut().find(|waiting| Some(waiting.number) == self.number);
        if let Some(waiting) = own {
            waiting.waker = Some(waker.clone());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.seats.lock();
        let Some(number) = self.number else { return state.pass_on() };
        if let Some(index) = state.granted.iter().position(|granted| *granted == number) {
            state.granted.swap_remove(index);
            state.pass_on();
        } else {
            state.waiting.retain(|waiting| waiting.number != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_handed_on_in_order_and_the_queue_is_bounded() {
        // C12
        let seats = Arc::new(Seats::default());
        let first = seats.take(1, 2).expect("a place");
        assert!(first.is_granted());
        let second = seats.take(1, 2).expect("a number");
        let third = seats.take(1, 2).expect("a number");
        assert!(!second.is_granted() && !third.is_granted());
        assert!(seats.take(1, 2).is_none(), "the queue is full");
        drop(first);
        assert!(second.is_granted() && !third.is_granted());
        drop(second);
        assert!(third.is_granted());
        drop(third);
        assert_eq!(seats.taken(), 0);
    }

    #[test]
    fn one_who_gives_up_waiting_takes_no_place() {
        let seats = Arc::new(Seats::default());
        let first = seats.take(1, 9).expect("a place");
        let second = seats.take(1, 9).expect("a number");
        let third = seats.take(1, 9).expect("a number");
        drop(second);
        drop(first);
        assert!(third.is_granted());
        drop(third);
        assert_eq!(seats.taken(), 0);
    }
}
