//! The methods that every protocol engine has on the transport's side, so that one driver and one test
//! harness serve them all. What handlers say to an engine (respond, body, finish, …) is each protocol's own.
//!
//! An engine holds no buffer. Input is offered, and what is not taken is offered again; output and the
//! storage of a request head are in a `Scratch` that a *busy* session borrows from its worker and an idle one
//! does not have: that is what keeps an idle connection at a few hundred bytes
//! (`docs/adr/0002-engine-methods.md`).

use crate::deadline::{Deadline, DeadlineKind};
use crate::time::Moment;

/// The result of one call of [`Engine::receive`].
#[derive(Debug)]
pub struct Step<E> {
    /// How many bytes were taken from the front of the input.
    pub taken: usize,
    /// At most one event.
    pub event: Option<E>,
}

impl<E> Step<E> {
    /// Nothing was taken and nothing happened: more input (or a command) is needed.
    pub const NOTHING: Self = Self { taken: 0, event: None };

    /// Whether the engine has come to rest.
    pub fn is_rest(&self) -> bool {
        self.taken == 0 && self.event.is_none()
    }
}

/// Where the session stands with its transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// In use.
    Open,
    /// All output has left: shut the write side down once, then go on reading (what comes is thrown
    /// away) until the peer closes or the linger deadline falls.
    Lingering,
    /// Over: close the transport.
    Closed(CloseReason),
}

/// Why a session ended. Every close has one, in the log and in a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CloseReason {
    /// The peer closed between requests: the ordinary end.
    PeerClosed,
    /// The peer closed in the middle of a request.
    PeerClosedEarly,
    /// The transport failed (reset, broken pipe).
    TransportLost,
    /// The client asked for it (`Connection: close`, or HTTP/1.0 without keep-alive).
    ClientAsked,
    /// The end of the body is the end of the connection.
    CloseDelimited,
    /// The start of the next request is not known (parse error, refused body).
    OutOfSync,
    /// As many requests as one connection may carry have been served.
    RequestsUsedUp,
    /// The connection is as old as one may become (`keepalive_time`).
    TimeUsedUp,
    /// Keep-alive is switched off.
    KeepAliveOff,
    /// There are as many connections as there may be.
    TooMany,
    /// The peer may not come in: its credential or its version will not do.
    NotAdmitted,
    /// What the peer was admitted for has been withdrawn: its password or its certificate.
    Withdrawn,
    /// The configuration said to close without an answer (`return 444`).
    ByConfiguration,
    /// The server drains: graceful shutdown.
    Draining,
    /// Forceful shutdown.
    Forced,
    /// The handler could not complete a response whose head had left: the peer sees a cut body.
    BrokenOff,
    /// A mistake of ours: the turn of this session panicked.
    Panicked,
    /// A deadline fell.
    Expired(DeadlineKind),
}

impl CloseReason {
    /// Its name in logs and metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::PeerClosed => "peer_closed",
            Self::PeerClosedEarly => "peer_closed_early",
            Self::TransportLost => "transport_lost",
            Self::ClientAsked => "client_asked",
            Self::CloseDelimited => "close_delimited",
            Self::OutOfSync => "out_of_sync",
            Self::RequestsUsedUp => "keepalive_requests",
            Self::TimeUsedUp => "keepalive_time",
            Self::KeepAliveOff => "keepalive_off",
            Self::TooMany => "too_many_connections",
            Self::NotAdmitted => "not_admitted",
            Self::Withdrawn => "withdrawn",
            Self::ByConfiguration => "by_configuration",
            Self::Draining => "draining",
            Self::Forced => "forced",
            Self::BrokenOff => "broken_off",
            Self::Panicked => "panicked",
            Self::Expired(kind) => kind.tag(),
        }
    }

    /// Whether the transport must be reset whatever was being sent. (An engine says for itself whether a plain end
    /// would make an incomplete response look complete.)
    pub const fn wants_reset(self) -> bool {
        matches!(self, Self::Panicked)
    }
}

/// A protocol engine, as its transport sees it.
pub trait Engine {
    /// What the shell must act on.
    type Event;
    /// What a busy session borrows: output bytes, and storage for what is being received.
    type Scratch;

    /// Takes what it can from the front of `input`, up to and including one event. The caller offers
    /// the rest again, until [`Step::is_rest`]. Bytes that were offered and not taken are offered
    /// again at the front next time, with more behind them.
    fn receive(
        &mut self,
        input: &[u8],
        scratch: &mut Self::Scratch,
        now: Moment,
    ) -> Step<Self::Event>;

    /// The peer has ended its side (FIN).
    fn input_ended(&mut self, now: Moment) -> Option<Self::Event>;

    /// The transport took `moved` bytes of output (from the scratch, or of a file that the shell sends
    /// itself); `pending` says whether any are still waiting to leave.
    fn transmitted(&mut self, moved: u64, pending: bool, now: Moment);

    /// The earliest deadline in effect, if any.
    fn next_deadline(&self) -> Option<Deadline>;

    /// Lets the deadlines that are due act. Data that came in the same turn has been received before
    /// this is called.
    fn expire(&mut self, now: Moment) -> Option<Self::Event>;

    /// Where the session stands.
    fn stage(&self) -> Stage;
}
