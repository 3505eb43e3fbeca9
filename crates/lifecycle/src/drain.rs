//! Shutdown of many sessions: how many are left, when grace turns into force, and when force gives
//! up. Keeps no clock: the time comes in, the next deadline goes out. The sessions themselves are
//! not here; each has its own `Stay`. A holder of many sessions may count as one: a worker counts until its
//! last session has ended.

use std::time::Duration;

use crate::session::Manner;
use crate::time::Moment;

/// How long a forceful shutdown may take before the rest is left behind: "within seconds".
pub const FORCE_TIMEOUT: Duration = Duration::from_secs(5);

/// The shutdown of a server, seen as a whole.
///
/// ```text
///         asked (graceful)              asked again, deadline
///  Open ───────────────────▶ Graceful ─────────────────────────▶ Forceful ──▶ Abandoned
///    │                           │                                ▲   │  asked again, deadline
///    │                           └── none left ──▶ Drained        │   └── none left ──▶ Forced,
///    │                                                            │        or Drained if none was cut
///    └──────────────────────────── asked (forceful) ──────────────┘
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Drain {
    phase: Phase,
    left: u64,
    /// Whether force has ended a session in the middle of something.
    has_cut: bool,
    grace: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Open,
    Graceful { force_at: Option<Moment> },
    Forceful { give_up_at: Moment },
    Over(Outcome),
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fact {
    /// A session, or a worker with all of its sessions, began and must end before the process may.
    Began,
    /// One of them ended.
    Ended,
    /// Force ended a session in the middle of something. Its end is reported as well.
    CutShort,
    /// An operator asked for the server to end. Asking again escalates.
    Asked(Manner),
    /// Time has passed.
    TimePassed,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// Nothing.
    Nothing,
    /// Stop accepting, and shut every session down in this manner.
    ShutDownAll(Manner),
    /// End the process.
    Exit(Outcome),
}

/// How a shutdown ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Every session came to its own end, or was idle when force came.
    Drained,
    /// Every session ended, but some were cut short.
    Forced,
    /// Some sessions did not end in time and are left behind.
    Abandoned,
}

impl Outcome {
    /// The status that the process exits with: 0 when drained, another when forced.
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Drained => 0,
            Self::Forced => 1,
            Self::Abandoned => 2,
        }
    }
}

impl Drain {
    /// A server that runs; `grace` is `worker_shutdown_timeout`, `None` where grace has no end.
    pub const fn new(grace: Option<Duration>) -> Self {
        Self { phase: Phase::Open, left: 0, has_cut: false, grace }
    }

    /// The length of grace for a shutdown that has not begun yet: a reload may change it.
    pub const fn set_grace(&mut self, grace: Option<Duration>) {
        self.grace = grace;
    }

    /// The one entry point.
    pub fn after(&mut self, fact: Fact, now: Moment) -> Order {
        match fact {
            // One that was accepted just before the shutdown may still come in: it is counted, and the caller
            // shuts it down in the current manner.
            Fact::Began => {
                self.left += 1;
                Order::Nothing
            }
            Fact::Ended => {
                self.left = self.left.saturating_sub(1);
                self.exit_if_none_left()
            }
            Fact::CutShort => {
                self.has_cut |= self.manner() == Some(Manner::Forceful);
                Order::Nothing
            }
            Fact::Asked(manner) => self.asked(manner, now),
            Fact::TimePassed => self.expire(now),
        }
    }

    /// When `TimePassed` must come at the latest, if ever.
    pub const fn next_deadline(&self) -> Option<Moment> {
        match self.phase {
            Phase::Open | Phase::Over(_) => None,
            Phase::Graceful { force_at } => force_at,
            Phase::Forceful { give_up_at } => Some(give_up_at),
        }
    }

    /// The manner in which sessions are being shut down, if they are.
    pub const fn manner(&self) -> Option<Manner> {
        match self.phase {
            Phase::Open => None,
            Phase::Graceful { .. } | Phase::Over(Outcome::Drained) => Some(Manner::Graceful),
            Phase::Forceful { .. } | Phase::Over(_) => Some(Manner::Forceful),
        }
    }

    /// How many are left.
    pub const fn left(&self) -> u64 {
        self.left
    }

    fn asked(&mut self, manner: Manner, now: Moment) -> Order {
        match (self.phase, manner) {
            (Phase::Open, Manner::Graceful) => {
                self.phase = Phase::Graceful { force_at: self.grace.map(|grace| now + grace) };
                match self.exit_if_none_left() {
                    Order::Nothing => Order::ShutDownAll(Manner::Graceful),
                    exit => exit,
                }
            }
            // The second word escalates, whichever it is.
            (Phase::Open, Manner::Forceful) | (Phase::Graceful { .. }, _) => self.force(now),
            (Phase::Forceful { .. }, _) => self.end(Outcome::Abandoned),
            (Phase::Over(_), _) => Order::Nothing,
        }
    }

    fn expire(&mut self, now: Moment) -> Order {
        match self.phase {
            Phase::Graceful { force_at: Some(at) } if at.is_due(now) => self.force(now),
            Phase::Forceful { give_up_at } if give_up_at.is_due(now) => {
                self.end(Outcome::Abandoned)
            }
            _ => Order::Nothing,
        }
    }

    fn force(&mut self, now: Moment) -> Order {
        if self.left == 0 {
            // No session is left to be forced: a good end.
            return self.end(Outcome::Drained);
        }
        self.phase = Phase::Forceful { give_up_at: now + FORCE_TIMEOUT };
        Order::ShutDownAll(Manner::Forceful)
    }

    fn exit_if_none_left(&mut self) -> Order {
        match self.phase {
            Phase::Forceful { .. } if self.left == 0 && self.has_cut => self.end(Outcome::Forced),
            // Also by force it was a good end if no session was cut short.
            Phase::Graceful { .. } | Phase::Forceful { .. } if self.left == 0 => {
                self.end(Outcome::Drained)
            }
            _ => Order::Nothing,
        }
    }

    fn end(&mut self, outcome: Outcome) -> Order {
        self.phase = Phase::Over(outcome);
        Order::Exit(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fact as F, Manner as M, Order as O, *};

    const GRACE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    fn with_sessions(count: u64, grace: Option<Duration>) -> Drain {
        let mut drain = Drain::new(grace);
        for _ in 0..count {
            assert_eq!(drain.after(F::Began, at(0)), O::Nothing);
        }
        drain
    }

    #[test]
    fn grace_ends_when_the_last_session_does_and_the_exit_status_is_zero() {
        // O4
        let mut drain = with_sessions(2, Some(GRACE));
        assert_eq!(drain.after(F::Asked(M::Graceful), at(1)), O::ShutDownAll(M::Graceful));
        assert_eq!(drain.after(F::Ended, at(2)), O::Nothing);
        assert_eq!(drain.left(), 1);
        assert_eq!(drain.after(F::Ended, at(3)), O::Exit(Outcome::Drained));
        assert_eq!(Outcome::Drained.exit_status(), 0);
        assert_eq!(drain.next_deadline(), None);
    }

    #[test]
    fn grace_turns_into_force_at_its_deadline_and_not_before() {
        // L14, T2, X12: one comparison, used to wait and to expire.
        let mut drain = with_sessions(1, Some(GRACE));
        drain.after(F::Asked(M::Graceful), at(1));
        assert_eq!(drain.next_deadline(), Some(at(11)));
        assert_eq!(drain.after(F::TimePassed, at(10)), O::Nothing);
        assert_eq!(drain.after(F::TimePassed, at(11)), O::ShutDownAll(M::Forceful));
        assert_eq!(drain.after(F::TimePassed, at(11)), O::Nothing);
        assert_eq!(drain.after(F::CutShort, at(12)), O::Nothing);
        assert_eq!(drain.after(F::Ended, at(12)), O::Exit(Outcome::Forced));
        assert_ne!(Outcome::Forced.exit_status(), 0);
    }

    #[test]
    fn a_reload_changes_the_length_of_grace_for_a_shutdown_that_comes_after_it() {
        // O3, L14
        let mut drain = with_sessions(1, Some(GRACE));
        drain.set_grace(Some(GRACE * 2));
        drain.after(F::Asked(M::Graceful), at(1));
        assert_eq!(drain.next_deadline(), Some(at(21)));
    }

    #[test]
    fn without_a_timeout_grace_has_no_deadline() {
        // T2: none is `None`, not zero.
        let mut drain = with_sessions(1, None);
        drain.after(F::Asked(M::Graceful), at(1));
        assert_eq!(drain.next_deadline(), None);
        assert_eq!(drain.after(F::TimePassed, at(1_000_000)), O::Nothing);
    }

    #[test]
    fn asking_again_escalates_and_never_weakens() {
        // O4, L10
        for (first, second) in [
            (M::Graceful, M::Graceful),
            (M::Graceful, M::Forceful),
            (M::Forceful, M::Graceful),
            (M::Forceful, M::Forceful),
        ] {
            let mut drain = with_sessions(1, Some(GRACE));
            assert_eq!(drain.after(F::Asked(first), at(1)), O::ShutDownAll(first));
            let order = drain.after(F::Asked(second), at(2));
            match first {
                M::Graceful => assert_eq!(order, O::ShutDownAll(M::Forceful)),
                M::Forceful => assert_eq!(order, O::Exit(Outcome::Abandoned)),
            }
            assert_eq!(drain.manner(), Some(M::Forceful));
        }
    }

    #[test]
    fn force_gives_up_after_its_own_timeout() {
        // O4: TERM ends within seconds, whatever the handlers do.
        let mut drain = with_sessions(3, None);
        drain.after(F::Asked(M::Forceful), at(1));
        let end = at(1) + FORCE_TIMEOUT;
        assert_eq!(drain.next_deadline(), Some(end));
        assert_eq!(drain.after(F::TimePassed, end), O::Exit(Outcome::Abandoned));
        assert_eq!(drain.after(F::Ended, end), O::Nothing);
    }

    #[test]
    fn a_server_without_sessions_exits_at_once() {
        // O4
        let mut quit = with_sessions(0, Some(GRACE));
        assert_eq!(quit.after(F::Asked(M::Graceful), at(1)), O::Exit(Outcome::Drained));
        // No session was cut short, so TERM is a good end here as well.
        let mut term = with_sessions(0, Some(GRACE));
        assert_eq!(term.after(F::Asked(M::Forceful), at(1)), O::Exit(Outcome::Drained));
    }

    #[test]
    fn force_that_finds_only_idle_sessions_is_a_good_end() {
        // O4: the status tells whether a client lost something.
        let mut drain = with_sessions(2, None);
        // Sessions cut short before the shutdown do not count.
        drain.after(F::CutShort, at(0));
        assert_eq!(drain.after(F::Asked(M::Forceful), at(1)), O::ShutDownAll(M::Forceful));
        assert_eq!(drain.after(F::Ended, at(2)), O::Nothing);
        assert_eq!(drain.after(F::Ended, at(2)), O::Exit(Outcome::Drained));
    }

    #[test]
    fn a_session_that_comes_in_late_is_waited_for_as_well() {
        // O4
        let mut drain = with_sessions(1, Some(GRACE));
        drain.after(F::Asked(M::Graceful), at(1));
        drain.after(F::Began, at(1));
        assert_eq!(drain.after(F::Ended, at(2)), O::Nothing);
        assert_eq!(drain.after(F::Ended, at(2)), O::Exit(Outcome::Drained));
    }
}
