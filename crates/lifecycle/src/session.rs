//! The states of a session, as one table. Knows only how many requests run; which ones, and the
//! state of their channels, is known in `stay.rs`. Nothing else may assign a session's state.

use std::fmt;
use std::num::NonZeroU32;

const ONE: NonZeroU32 = NonZeroU32::MIN;

/// One client's stay, whatever its protocol.
///
/// ```text
///           connected          request received
///  Vacant ────────────▶ Idle ────────────────────▶ Processing(n) ⟲ n ± 1
///    ▲                   │ ◀──────────────────────      │
///    │                   │      last response sent      │ shutdown asked
///    │ reclaimed         │ shutdown asked               ▼
///    └─────────────── Shutdown ◀──────────────── Closing(n, manner) ⟲ n − 1, force after grace
///                                last response sent
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Session {
    /// No client is connected.
    #[default]
    Vacant,
    /// Connected, no request runs.
    Idle,
    /// `p_n`: that many requests run.
    Processing(NonZeroU32),
    /// `c_n`: shutdown is accepted, that many requests still run.
    Closing(NonZeroU32, Manner),
    /// Over; what is left of it waits to be reclaimed.
    Shutdown,
}

/// The manner of a shutdown. Force is the greater of the two and is never weakened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Manner {
    /// What runs may finish; nothing is cancelled.
    Graceful,
    /// Running requests are cancelled. A transport lost unasked counts as this.
    Forceful,
}

/// What happened to a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fact {
    /// The client has connected.
    Connected,
    /// A request message came in.
    RequestReceived,
    /// The answer of a running request has been sent.
    ResponseSent,
    /// The session is to end.
    ShutdownAsked(Manner),
    /// The listener's side has come round to collect what a finished session left.
    Reclaimed,
}

/// What is to be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// Nothing.
    Nothing,
    /// Make the task, the session object and the transport.
    Allocate,
    /// Let the request run.
    Admit,
    /// Answer the request with an error; it was never counted in.
    Refuse,
    /// Tell every running request to cancel.
    CancelAll,
    /// Let the task and a TCP socket go.
    ReleaseWorker,
    /// Let the session object go, and shared memory where there is some.
    ReleaseSlot,
}

/// A pair that the table does not have: a bug of ours, which changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Illegal {
    /// Where the session stood.
    pub state: Session,
    /// What it was told.
    pub fact: Fact,
}

impl Session {
    /// The whole diagram. Any other pair is a bug of ours and changes nothing.
    pub fn after(self, fact: Fact) -> Result<(Self, Order), Illegal> {
        use {Fact as F, Manner as M, Order as O, Session as S};
        Ok(match (self, fact) {
            (S::Vacant, F::Connected) => (S::Idle, O::Allocate),
            (S::Idle, F::RequestReceived) => (S::Processing(ONE), O::Admit),
            (S::Idle, F::ShutdownAsked(_)) => (S::Shutdown, O::ReleaseWorker),
            (S::Processing(n), F::RequestReceived) => match n.checked_add(1) {
                Some(more) => (S::Processing(more), O::Admit),
                None => (self, O::Refuse),
            },
            (S::Processing(n), F::ResponseSent) => match one_fewer(n) {
                Some(fewer) => (S::Processing(fewer), O::Nothing),
                None => (S::Idle, O::Nothing),
            },
            (S::Processing(n), F::ShutdownAsked(M::Graceful)) => {
                (S::Closing(n, M::Graceful), O::Nothing)
            }
            // A refusal is not a `ResponseSent`: the request was never counted in.
            (S::Closing(..), F::RequestReceived) => (self, O::Refuse),
            (S::Closing(n, manner), F::ResponseSent) => match one_fewer(n) {
                Some(fewer) => (S::Closing(fewer, manner), O::Nothing),
                None => (S::Shutdown, O::ReleaseWorker),
            },
            // Force may follow grace, never the reverse, and a repeat changes nothing (L10).
            (S::Processing(n) | S::Closing(n, M::Graceful), F::ShutdownAsked(M::Forceful)) => {
                (S::Closing(n, M::Forceful), O::CancelAll)
            }
            (S::Closing(..) | S::Shutdown, F::ShutdownAsked(_)) => (self, O::Nothing),
            (S::Shutdown, F::Reclaimed) => (S::Vacant, O::ReleaseSlot),
            (state, fact) => return Err(Illegal { state, fact }),
        })
    }

    /// How many requests the state counts as running.
    pub const fn running(self) -> u32 {
        match self {
            Self::Processing(n) | Self::Closing(n, _) => n.get(),
            Self::Vacant | Self::Idle | Self::Shutdown => 0,
        }
    }
}

impl fmt::Display for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vacant => out.write_str("vacant"),
            Self::Idle => out.write_str("idle"),
            Self::Processing(n) => write!(out, "p_{n}"),
            Self::Closing(n, _) => write!(out, "c_{n}"),
            Self::Shutdown => out.write_str("shutdown"),
        }
    }
}

impl fmt::Display for Illegal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a session in {} cannot take {:?}", self.state, self.fact)
    }
}

impl std::error::Error for Illegal {}

fn one_fewer(n: NonZeroU32) -> Option<NonZeroU32> {
    NonZeroU32::new(n.get() - 1)
}

#[cfg(test)]
mod tests {
    use super::{Fact as F, Manner as M, Order as O, Session as S, *};

    fn p(n: u32) -> Session {
        S::Processing(NonZeroU32::new(n).expect("not zero"))
    }

    fn c(n: u32, manner: Manner) -> Session {
        S::Closing(NonZeroU32::new(n).expect("not zero"), manner)
    }

    const FACTS: [Fact; 6] = [
        F::Connected,
        F::RequestReceived,
        F::ResponseSent,
        F::ShutdownAsked(M::Graceful),
        F::ShutdownAsked(M::Forceful),
        F::Reclaimed,
    ];

    /// The specification's rows, with n standing for 1 and 2; every pair that is not here is illegal.
    #[rustfmt::skip]
    fn rows() -> Vec<(Session, Fact, Session, Order)> {
        let (grace, force) = (F::ShutdownAsked(M::Graceful), F::ShutdownAsked(M::Forceful));
        vec![
            (S::Vacant, F::Connected, S::Idle, O::Allocate),                          // L1
            (S::Idle, F::RequestReceived, p(1), O::Admit),                            // L2
            (S::Idle, grace, S::Shutdown, O::ReleaseWorker),                          // L3
            (S::Idle, force, S::Shutdown, O::ReleaseWorker),                          // L3
            (p(1), F::RequestReceived, p(2), O::Admit),                               // L4
            (p(2), F::RequestReceived, p(3), O::Admit),                               // L4
            (p(2), F::ResponseSent, p(1), O::Nothing),                                // L5
            (p(1), F::ResponseSent, S::Idle, O::Nothing),                             // L5
            (p(1), grace, c(1, M::Graceful), O::Nothing),                             // L6
            (p(2), grace, c(2, M::Graceful), O::Nothing),                             // L6
            (p(1), force, c(1, M::Forceful), O::CancelAll),                           // L7
            (p(2), force, c(2, M::Forceful), O::CancelAll),                           // L7
            (c(1, M::Graceful), F::RequestReceived, c(1, M::Graceful), O::Refuse),    // L8
            (c(2, M::Graceful), F::RequestReceived, c(2, M::Graceful), O::Refuse),    // L8
            (c(1, M::Forceful), F::RequestReceived, c(1, M::Forceful), O::Refuse),    // L8
            (c(2, M::Forceful), F::RequestReceived, c(2, M::Forceful), O::Refuse),    // L8
            (c(2, M::Graceful), F::ResponseSent, c(1, M::Graceful), O::Nothing),      // L9
            (c(2, M::Forceful), F::ResponseSent, c(1, M::Forceful), O::Nothing),      // L9
            (c(1, M::Graceful), F::ResponseSent, S::Shutdown, O::ReleaseWorker),      // L9
            (c(1, M::Forceful), F::ResponseSent, S::Shutdown, O::ReleaseWorker),      // L9
            (c(1, M::Graceful), force, c(1, M::Forceful), O::CancelAll),              // L10
            (c(2, M::Graceful), force, c(2, M::Forceful), O::CancelAll),              // L10
            (c(1, M::Graceful), grace, c(1, M::Graceful), O::Nothing),                // L10
            (c(2, M::Graceful), grace, c(2, M::Graceful), O::Nothing),                // L10
            (c(1, M::Forceful), grace, c(1, M::Forceful), O::Nothing),                // L10
            (c(2, M::Forceful), grace, c(2, M::Forceful), O::Nothing),                // L10
            (c(1, M::Forceful), force, c(1, M::Forceful), O::Nothing),                // L10
            (c(2, M::Forceful), force, c(2, M::Forceful), O::Nothing),                // L10
            (S::Shutdown, grace, S::Shutdown, O::Nothing),                            // L10
            (S::Shutdown, force, S::Shutdown, O::Nothing),                            // L10
            (S::Shutdown, F::Reclaimed, S::Vacant, O::ReleaseSlot),                   // L11
        ]
    }

    #[test]
    fn every_pair_matches_the_specification() {
        let rows = rows();
        let states = [
            S::Vacant,
            S::Idle,
            p(1),
            p(2),
            c(1, M::Graceful),
            c(2, M::Graceful),
            c(1, M::Forceful),
            c(2, M::Forceful),
            S::Shutdown,
        ];
        for state in states {
            for fact in FACTS {
                let expected = rows
                    .iter()
                    .find(|row| (row.0, row.1) == (state, fact))
                    .map_or(Err(Illegal { state, fact }), |row| Ok((row.2, row.3)));
                assert_eq!(state.after(fact), expected, "{state:?} after {fact:?}");
            }
        }
    }

    #[test]
    fn a_session_that_cannot_count_higher_refuses_and_stays_as_it_is() {
        // L4, at the one number that has no successor.
        let full = S::Processing(NonZeroU32::MAX);
        assert_eq!(full.after(F::RequestReceived), Ok((full, O::Refuse)));
    }

    #[test]
    fn states_are_shown_by_the_names_of_the_specification() {
        // L34
        let shown =
            [S::Vacant, S::Idle, p(3), c(2, M::Graceful), S::Shutdown].map(|s| s.to_string());
        assert_eq!(shown, ["vacant", "idle", "p_3", "c_2", "shutdown"]);
    }
}
