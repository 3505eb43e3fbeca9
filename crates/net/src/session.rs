//! The sessions of one worker: who is here, which deadline each has armed, and what has been ordered.
//!
//! A deadline that moves later costs a store, not a timer: the queue holds for each session an entry no
//! later than its deadline, and an entry that comes up early is put back. So a kept-alive connection
//! re-arms its deadlines without a system call and without touching the queue (T1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::task::Waker;

use sekisho_lifecycle::session::{Fact, Order};
use sekisho_lifecycle::{Deadline, Manner, Moment, Session};
use slab::Slab;

use crate::inquiry::Running;

/// What the worker wants of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Wish {
    /// To go on.
    #[default]
    GoOn,
    /// To end when its running request has ended.
    Drain,
    /// To end now.
    Force,
}

impl Wish {
    /// The wish as the session table knows it.
    pub const fn manner(self) -> Option<Manner> {
        match self {
            Self::GoOn => None,
            Self::Drain => Some(Manner::Graceful),
            Self::Force => Some(Manner::Forceful),
        }
    }
}

/// What is asked of one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Errand {
    /// To say what it does.
    pub is_asked: bool,
    /// To cancel the request with this number.
    pub cancel: Option<u64>,
    /// The request that it has been asked to cancel.
    pub was_cancelled: Option<u64>,
}

/// A session's seat in the worker: what can be seen of it from outside (L34).
#[derive(Debug)]
pub struct Seat {
    /// Its number.
    pub id: u64,
    /// Which door it came in by.
    pub door: u64,
    /// When it came.
    pub since: Moment,
    /// Who it is; `None` for a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The native session that it was made for, if it was.
    pub within: Option<u64>,
    /// Bytes that came and that left, up to its last turn.
    pub moved: (u64, u64),
    /// Requests so far, up to its last turn.
    pub requests: u64,
    /// What is asked of it alone.
    pub errand: Errand,
    /// What it said when it was asked.
    running: Option<Box<Running>>,
    session: Session,
    deadline: Option<Deadline>,
    waker: Option<Waker>,
    /// The moment of its entry in the queue, if it has one.
    queued: Option<Moment>,
    wish: Wish,
}

impl Seat {
    /// A seat for a session that has just connected.
    pub fn new(id: u64, door: u64, since: Moment, remote: Option<SocketAddr>, wish: Wish) -> Self {
        Self {
            id,
            door,
            since,
            remote,
            within: None,
            moved: (0, 0),
            requests: 0,
            errand: Errand::default(),
            running: None,
            session: Session::Vacant,
            deadline: None,
            waker: None,
            queued: None,
            wish,
        }
    }

    /// Its state.
    pub fn session(&self) -> Session {
        self.session
    }

    /// The deadline it has armed.
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// What is wished of it.
    pub fn wish(&self) -> Wish {
        self.wish
    }

    /// What it said about its running request.
    pub fn take_running(&mut self) -> Option<Running> {
        self.running.take().map(|running| *running)
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// All sessions of a worker and the queue of their deadlines.
#[derive(Debug, Default)]
pub struct Sessions {
    seats: Slab<Seat>,
    queue: BinaryHeap<Reverse<(Moment, usize, u64)>>,
}

/// A session's place in [`Sessions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(usize);

impl Sessions {
    /// Gives a session its seat (L1).
    pub fn enter(&mut self, seat: Seat) -> Key {
        let key = Key(self.seats.insert(seat));
        self.after(key, Fact::Connected);
        key
    }

    /// Tells a session's table what happened. A pair that the table does not have is a bug of ours and
    /// changes nothing.
    pub fn after(&mut self, key: Key, fact: Fact) -> Order {
        let seat = &mut self.seats[key.0];
        match seat.session.after(fact) {
            Ok((next, order)) => {
                seat.session = next;
                order
            }
            Err(illegal) => {
                debug_assert!(false, "{illegal:?}");
                Order::Nothing
            }
        }
    }

    /// A session's seat.
    pub fn seat(&self, key: Key) -> &Seat {
        &self.seats[key.0]
    }

    /// Everyone who is here.
    pub fn iter(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().map(|(_, seat)| seat)
    }

    /// Takes a session's seat back. Its entry in the queue is passed over when it comes up.
    pub fn leave(&mut self, key: Key) {
        self.seats.remove(key.0);
        if self.seats.is_empty() {
            self.queue.clear();
            self.seats.shrink_to_fit();
        }
    }

    /// What the seats and the queue of their deadlines hold in memory.
    pub fn held_bytes(&self) -> usize {
        // A place of the slab is a seat, or the number of the next free one.
        let seats = self.seats.capacity() * (size_of::<Seat>() + size_of::<usize>());
        seats + self.queue.capacity() * size_of::<Reverse<(Moment, usize, u64)>>()
    }

    /// How many are here.
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Whether nobody is here.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Notes whom to wake and when; `true` when the queue has a new first entry, so that the timer must
    /// be set anew.
    pub fn arm(&mut self, key: Key, waker: &Waker, deadline: Option<Deadline>) -> bool {
        let seat = &mut self.seats[key.0];
        match &mut seat.waker {
            Some(known) if known.will_wake(waker) => {}
            other => *other = Some(waker.clone()),
        }
        seat.deadline = deadline;
        let Some(Deadline { at, .. }) = deadline else { return false };
        if seat.queued.is_some_and(|queued| queued <= at) {
            return false;
        }
        seat.queued = Some(at);
        let is_first = self.queue.peek().is_none_or(|Reverse((first, _, _))| at < *first);
        self.queue.push(Reverse((at, key.0, seat.id)));
        is_first
    }

    /// The same, to write into.
    pub fn seat_mut(&mut self, key: Key) -> &mut Seat {
        &mut self.seats[key.0]
    }

    /// Everyone who is here, to write into.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Seat> {
        self.seats.iter_mut().map(|(_, seat)| seat)
    }

    /// What is wished of a session.
    pub fn wish(&self, key: Key) -> Wish {
        self.seats[key.0].wish
    }

    /// What is wished of a session, and what is asked of it alone, which is told once.
    pub fn orders(&mut self, key: Key) -> (Wish, Option<Errand>) {
        let seat = &mut self.seats[key.0];
        let errand = seat.errand;
        if !errand.is_asked && errand.cancel.is_none() {
            return (seat.wish, None);
        }
        seat.errand.cancel = None;
        seat.errand.was_cancelled = errand.cancel.or(errand.was_cancelled);
        (seat.wish, Some(Errand { was_cancelled: seat.errand.was_cancelled, ..errand }))
    }

    /// Asks some sessions what they do.
    pub fn ask_where(&mut self, is_meant: impl Fn(&Seat) -> bool) {
        for seat in self.iter_mut().filter(|seat| is_meant(seat)) {
            seat.errand.is_asked = true;
            seat.wake();
        }
    }

    /// What a session that was asked does.
    pub fn answer_errand(&mut self, key: Key, running: Option<Running>) {
        let seat = &mut self.seats[key.0];
        seat.errand.is_asked = false;
        seat.running = running.map(Box::new);
    }

    /// Gives the session with this number an errand. `tell` says what is answered, and whether to wake it.
    pub fn send_on_errand<T>(
        &mut self,
        id: u64,
        tell: impl FnOnce(&mut Seat) -> (T, bool),
    ) -> Option<T> {
        let seat = self.iter_mut().find(|seat| seat.id == id)?;
        let (answer, is_new) = tell(seat);
        if is_new {
            seat.wake();
        }
        Some(answer)
    }

    /// Wishes something of every session and wakes it. A wish is never weakened (L10).
    pub fn wish_all(&mut self, wish: Wish) {
        self.wish_where(wish, |_| true);
    }

    /// Wishes something of some sessions and wakes them.
    pub fn wish_where(&mut self, wish: Wish, is_meant: impl Fn(&Seat) -> bool) {
        for (_, seat) in &mut self.seats {
            if wish > seat.wish && is_meant(seat) {
                seat.wish = wish;
                seat.wake();
            }
        }
    }

    /// Wakes every session whose deadline is due, and says when the next entry comes up.
    pub fn wake_due(&mut self, now: Moment) -> Option<Moment> {
        while let Some(&Reverse((at, index, id))) = self.queue.peek() {
            if !at.is_due(now) {
                return Some(at);
            }
            self.queue.pop();
            let Some(seat) = self.seats.get_mut(index).filter(|seat| seat.id == id) else {
                continue;
            };
            // A session may have two entries, when its deadline moved earlier: only the one that it
            // knows of counts.
            if seat.queued != Some(at) {
                continue;
            }
            seat.queued = None;
            match seat.deadline {
                Some(deadline) if deadline.at.is_due(now) => {
                    if let Some(waker) = &seat.waker {
                        waker.wake_by_ref();
                    }
                }
                Some(Deadline { at, .. }) => {
                    seat.queued = Some(at);
                    self.queue.push(Reverse((at, index, id)));
                }
                None => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_lifecycle::DeadlineKind;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Bell(AtomicU32);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    fn by(millis: u64) -> Deadline {
        Deadline { at: at(millis), kind: DeadlineKind::Header }
    }

    fn seat(id: u64) -> Seat {
        Seat::new(id, 0, Moment::ZERO, None, Wish::GoOn)
    }

    #[test]
    fn a_deadline_never_wakes_early_and_is_not_lost_when_it_moves() {
        // T1, T2
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut sessions = Sessions::default();
        let key = sessions.enter(seat(1));
        assert!(sessions.arm(key, &waker, Some(by(10))));
        assert!(!sessions.arm(key, &waker, Some(by(30))), "later: nothing to set");
        assert_eq!(sessions.wake_due(at(10)), Some(at(30)), "put back, not woken");
        assert_eq!(bell.0.load(Ordering::Relaxed), 0);
        assert!(sessions.arm(key, &waker, Some(by(20))), "earlier: a new first entry");
        assert_eq!(sessions.wake_due(at(20)), Some(at(30)));
        assert_eq!(bell.0.load(Ordering::Relaxed), 1);
        assert_eq!(sessions.wake_due(at(30)), None, "the stale entry is passed over");
        assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_session_without_a_deadline_contributes_nothing_to_the_wait() {
        // T2
        let waker = Waker::from(Arc::new(Bell::default()));
        let mut sessions = Sessions::default();
        let key = sessions.enter(seat(1));
        sessions.arm(key, &waker, Some(by(10)));
        sessions.arm(key, &waker, None);
        assert_eq!(sessions.wake_due(at(10)), None);
        sessions.leave(key);
        assert!(sessions.is_empty());
    }

    #[test]
    fn the_seat_of_one_who_left_is_not_mistaken_for_the_next() {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut sessions = Sessions::default();
        let _other = sessions.enter(seat(0));
        let key = sessions.enter(seat(1));
        sessions.arm(key, &waker, Some(by(10)));
        sessions.leave(key);
        let key = sessions.enter(seat(2));
        sessions.arm(key, &waker, Some(by(50)));
        assert_eq!(sessions.wake_due(at(20)), Some(at(50)));
        assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn force_may_follow_drain_and_never_the_reverse() {
        // L10
        let mut sessions = Sessions::default();
        let key = sessions.enter(seat(1));
        sessions.wish_all(Wish::Force);
        sessions.wish_all(Wish::Drain);
        assert_eq!(sessions.wish(key), Wish::Force);
    }

    #[test]
    fn what_happens_to_a_session_can_be_seen() {
        // L1, L2, L5, L6, L9, L34
        let mut sessions = Sessions::default();
        let key = sessions.enter(seat(7));
        let seen =
            |sessions: &Sessions| sessions.iter().next().map(|seat| seat.session().to_string());
        assert_eq!(seen(&sessions).as_deref(), Some("idle"));
        assert_eq!(sessions.after(key, Fact::RequestReceived), Order::Admit);
        assert_eq!(seen(&sessions).as_deref(), Some("p_1"));
        assert_eq!(sessions.after(key, Fact::ShutdownAsked(Manner::Graceful)), Order::Nothing);
        assert_eq!(seen(&sessions).as_deref(), Some("c_1"));
        assert_eq!(sessions.after(key, Fact::ResponseSent), Order::ReleaseWorker);
        assert_eq!(seen(&sessions).as_deref(), Some("shutdown"));
    }

    #[test]
    fn only_those_who_are_meant_are_asked_to_go() {
        let mut sessions = Sessions::default();
        let stays = sessions.enter(Seat::new(1, 1, Moment::ZERO, None, Wish::GoOn));
        let goes = sessions.enter(Seat::new(2, 2, Moment::ZERO, None, Wish::GoOn));
        sessions.wish_where(Wish::Drain, |seat| seat.door == 2);
        assert_eq!((sessions.wish(stays), sessions.wish(goes)), (Wish::GoOn, Wish::Drain));
    }
}
