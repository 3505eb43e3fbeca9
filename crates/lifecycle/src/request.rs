//! The states of a request and its channel, as one table. Knows no handler and no
//! transport. Answers, handles and cancellation are in `stay.rs`.

use std::fmt;

/// One exchange inside a session.
///
/// ```text
///        received             result sent
///  Nil ───────────▶ Processing ─────────────────────────────────────────▶ Finished
///                       │ acquired                                           ▲  ▲
///                       ▼         released                    drained        │  │
///                  ChannelOpen ─────────────▶ ChannelReleased ──────┐        │  │
///                   sco │                      sce │                ▼        │  │
///                       │ drained                  │ result   ChannelSettled─┘  │
///                       ▼         released         │ sent       scf  result sent│
///                  ChannelDrained ─────────────────┼────────────────▲           │
///                   scc                            ▼      drained               │
///                                              Lingering ───────────────────────┘
///                                               sce_f
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Request {
    /// Not there yet.
    #[default]
    Nil,
    /// The handler works on it; there is no channel.
    Processing,
    /// `sco`: the handler has a channel open.
    ChannelOpen,
    /// `sce`: the producer has sent all, the client has not taken all.
    ChannelReleased,
    /// `scc`: the client has taken all or wants no more, the producer is not done.
    ChannelDrained,
    /// `scf`: released and drained.
    ChannelSettled,
    /// `sce_f`: answered, and the client has not taken all from the channel.
    Lingering,
    /// Completely over.
    Finished,
}

/// What happened to a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fact {
    /// Its message came in and was admitted.
    Received,
    /// Its one answer, a result or an error, has been sent.
    ResultSent,
    /// The handler opened a channel.
    ChannelAcquired,
    /// The producer has sent all.
    ChannelReleased,
    /// The client has taken all, or wants no more.
    ChannelDrained,
}

/// What is to be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// Nothing.
    Nothing,
    /// The session counts one response sent.
    CountAnswer,
    /// The same, and the session owns the channel from here until it is drained.
    CountAnswerAndAdoptChannel,
    /// The session releases a channel that it had adopted.
    ReleaseChannel,
}

/// A pair that the table does not have; it changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Illegal {
    /// Where the request stood.
    pub state: Request,
    /// What it was told.
    pub fact: Fact,
}

impl Request {
    /// Every state, in the order of the specification's table.
    pub const ALL: [Self; 8] = [
        Self::Nil,
        Self::Processing,
        Self::ChannelOpen,
        Self::ChannelReleased,
        Self::ChannelDrained,
        Self::ChannelSettled,
        Self::Lingering,
        Self::Finished,
    ];

    /// The whole diagram: exactly these transitions and no others.
    pub fn after(self, fact: Fact) -> Result<(Self, Order), Illegal> {
        use {Fact as F, Order as O, Request as R};
        Ok(match (self, fact) {
            (R::Nil, F::Received) => (R::Processing, O::Nothing),
            (R::Processing | R::ChannelSettled, F::ResultSent) => (R::Finished, O::CountAnswer),
            (R::Processing, F::ChannelAcquired) => (R::ChannelOpen, O::Nothing),
            (R::ChannelOpen, F::ChannelReleased) => (R::ChannelReleased, O::Nothing),
            (R::ChannelOpen, F::ChannelDrained) => (R::ChannelDrained, O::Nothing),
            (R::ChannelReleased, F::ResultSent) => (R::Lingering, O::CountAnswerAndAdoptChannel),
            (R::ChannelReleased, F::ChannelDrained) | (R::ChannelDrained, F::ChannelReleased) => {
                (R::ChannelSettled, O::Nothing)
            }
            (R::Lingering, F::ChannelDrained) => (R::Finished, O::ReleaseChannel),
            (state, fact) => return Err(Illegal { state, fact }),
        })
    }

    /// Whether its answer is still owed: only such a request counts as running.
    pub const fn is_running(self) -> bool {
        !matches!(self, Self::Nil | Self::Lingering | Self::Finished)
    }

    /// Whether the producer still has the channel: no result may be sent then.
    pub const fn has_open_channel(self) -> bool {
        matches!(self, Self::ChannelOpen | Self::ChannelDrained)
    }

    /// Whether there is a channel that the client has not drained.
    pub const fn has_undrained_channel(self) -> bool {
        matches!(self, Self::ChannelOpen | Self::ChannelReleased | Self::Lingering)
    }

    /// The specification's name of this state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Processing => "processing",
            Self::ChannelOpen => "sco",
            Self::ChannelReleased => "sce",
            Self::ChannelDrained => "scc",
            Self::ChannelSettled => "scf",
            Self::Lingering => "sce_f",
            Self::Finished => "finished",
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl fmt::Display for Illegal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a request in {} cannot take {:?}", self.state, self.fact)
    }
}

impl std::error::Error for Illegal {}

#[cfg(test)]
mod tests {
    use super::{Fact as F, Order as O, Request as R, *};

    const FACTS: [Fact; 5] =
        [F::Received, F::ResultSent, F::ChannelAcquired, F::ChannelReleased, F::ChannelDrained];

    #[rustfmt::skip]
    const LEGAL: [(Request, Fact, Request, Order); 10] = [
        (R::Nil, F::Received, R::Processing, O::Nothing),                                   // L20
        (R::Processing, F::ResultSent, R::Finished, O::CountAnswer),                        // L21
        (R::Processing, F::ChannelAcquired, R::ChannelOpen, O::Nothing),                    // L21
        (R::ChannelOpen, F::ChannelReleased, R::ChannelReleased, O::Nothing),               // L22
        (R::ChannelOpen, F::ChannelDrained, R::ChannelDrained, O::Nothing),                 // L22
        (R::ChannelReleased, F::ResultSent, R::Lingering, O::CountAnswerAndAdoptChannel),   // L23
        (R::ChannelReleased, F::ChannelDrained, R::ChannelSettled, O::Nothing),             // L23
        (R::ChannelDrained, F::ChannelReleased, R::ChannelSettled, O::Nothing),             // L24
        (R::ChannelSettled, F::ResultSent, R::Finished, O::CountAnswer),                    // L25
        (R::Lingering, F::ChannelDrained, R::Finished, O::ReleaseChannel),                  // L26
    ];

    #[test]
    fn every_pair_matches_the_specification() {
        // L27: no row begins at finished, so every fact is illegal there.
        for state in R::ALL {
            for fact in FACTS {
                let expected = LEGAL
                    .iter()
                    .find(|row| (row.0, row.1) == (state, fact))
                    .map_or(Err(Illegal { state, fact }), |row| Ok((row.2, row.3)));
                assert_eq!(state.after(fact), expected, "{state:?} after {fact:?}");
            }
        }
    }

    #[test]
    fn an_answer_is_legal_exactly_where_the_producer_has_no_channel() {
        // L29
        for state in R::ALL.into_iter().filter(|state| state.is_running()) {
            assert_eq!(state.after(F::ResultSent).is_err(), state.has_open_channel(), "{state}");
        }
    }
}
