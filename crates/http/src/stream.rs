//! What HTTP/2 and HTTP/3 know alike of a request stream: how far its two halves have come, and by when the client
//! must act. Windows, frames and buffers are the protocols' own.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use sekisho_lifecycle::{Deadline, DeadlineKind, Moment};

use crate::policy::Policy;
use crate::priority::Priority;
use crate::request::Message;
use crate::response::{BodyLength, Sends};
use crate::schedule::Place;
use crate::status::Status;

/// How long a body may take before `client_body_min_rate` is asked for, where there is no `client_body_timeout` to
/// take for it.
pub const RATE_GRACE: Duration = Duration::from_secs(10);
/// How much a client must let us send before its send deadline is set anew. A window that is opened byte by byte counts
/// as closed.
pub const PROGRESS_BYTES: u32 = 1024;

/// What becomes of a request body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Not yet decided: what comes waits, up to the stream's window.
    Open,
    /// Handed to the shell.
    Taken,
    /// Unwanted: what still comes is not used, and not acknowledged.
    Discarded,
}

/// The sending half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// No response yet.
    Awaited,
    /// A body of known length of which this many bytes are missing, never none.
    Exactly(u64),
    /// The length is not known.
    Stream,
    /// The response is complete.
    Ended,
    /// The same, and the shell has ended the stream; the client has not done its part yet.
    Finished,
    /// The stream was broken off: nothing can be sent, but the shell has not ended the stream yet.
    Gone,
}

/// Whether the client asks for a tunnel (RFC 8441, RFC 9220).
///
/// ```text
///           take_body            upgrade
///  Asked ──────────────▶ Waits ───────────▶ Open
///    └─────────────────── upgrade ───────────▲
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tunnel {
    /// It does not.
    No,
    /// It does; what it sends waits, and is no body of the request.
    Asked,
    /// The same, and the handler knows that the request has no body.
    Waits,
    /// The tunnel is open: bytes pass in both directions.
    Open,
}

/// How the head of a response is written, and what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Its status.
    pub status: Status,
    /// How the body is sent.
    pub sends: Sends,
    /// `Content-Length`.
    pub declared: Option<u64>,
}

/// A request and its response; `P` is the protocol's policy.
#[derive(Debug)]
pub struct RequestState<P> {
    /// What becomes of the body.
    pub fate: Fate,
    /// The sending half.
    pub output: Output,
    /// The client has ended its side.
    pub has_ended: bool,
    /// The method is HEAD.
    pub is_head: bool,
    /// The client waits for 100, which has not been sent.
    pub expects: bool,
    /// Whether the client asks for a tunnel.
    pub tunnel: Tunnel,
    /// Its place among the streams that send.
    pub place: Place,
    /// How much was sent since the send deadline was set.
    pub progress: u32,
    /// How many bytes `Content-Length` says are still to come.
    pub missing: Option<u64>,
    /// How many bytes the shell will take.
    pub allowance: u64,
    /// Since when the handler cannot take more of the body.
    pub held: Option<Moment>,
    /// By when bytes of the request must come.
    pub read_at: Option<Moment>,
    /// By when the body must be quicker, whatever comes.
    pub latest: Option<Moment>,
    /// By when the client must have taken bytes.
    pub send_at: Option<Moment>,
    /// The policy of the server or location that was chosen, where it is not the connection's.
    pub policy: Option<Arc<P>>,
}

impl<P: Deref<Target = Policy>> RequestState<P> {
    /// A request of which nothing is known; `number` orders it among others.
    pub fn new(number: u64) -> Self {
        Self {
            fate: Fate::Open,
            output: Output::Awaited,
            has_ended: false,
            is_head: false,
            expects: false,
            tunnel: Tunnel::No,
            place: Place::new(number, Priority::default()),
            progress: 0,
            missing: None,
            allowance: 0,
            held: None,
            read_at: None,
            latest: None,
            send_at: None,
            policy: None,
        }
    }

    /// The policy in effect; `base` is the connection's.
    pub fn policy<'p>(&'p self, base: &'p Arc<P>) -> &'p Arc<P> {
        self.policy.as_ref().unwrap_or(base)
    }

    /// Sets the policy of the server or location that was chosen.
    pub fn set_policy(&mut self, base: &Arc<P>, policy: &Arc<P>) {
        self.policy = (!Arc::ptr_eq(base, policy)).then(|| Arc::clone(policy));
    }

    /// What the head of the request says.
    pub const fn begin_request(&mut self, message: &Message) {
        self.is_head = message.is_head;
        self.expects = message.expects && !self.has_ended && !message.asks_tunnel;
        self.missing = message.length;
        if message.asks_tunnel {
            self.tunnel = Tunnel::Asked;
        }
    }

    /// Whether body bytes of the request may still come.
    pub const fn has_body(&self) -> bool {
        !self.has_ended && matches!(self.tunnel, Tunnel::No)
    }

    /// Opens the tunnel that the client asks for; whether that can be.
    pub const fn open_tunnel(&mut self) -> bool {
        let is_asked = matches!(self.tunnel, Tunnel::Asked | Tunnel::Waits);
        if !is_asked || !matches!(self.output, Output::Awaited) {
            return false;
        }
        self.tunnel = Tunnel::Open;
        (self.fate, self.allowance) = (Fate::Taken, u64::MAX);
        true
    }

    /// Begins the response; `None` where there is one already, or the stream was broken off.
    pub const fn begin_response(&mut self, status: Status, length: BodyLength) -> Option<Begun> {
        if !matches!(self.output, Output::Awaited) {
            return None;
        }
        // 1xx is not a final response: a handler that gives one has a bug.
        let status = if status.code() < 200 { Status::INTERNAL_SERVER_ERROR } else { status };
        let has_body = !self.is_head && !status.is_bodyless();
        let sends = match length {
            BodyLength::Known(length) if has_body && length > 0 => Sends::Exactly(length),
            BodyLength::Unknown if has_body => Sends::Stream,
            _ => Sends::Nothing,
        };
        self.output = match sends {
            Sends::Exactly(length) => Output::Exactly(length),
            Sends::Stream => Output::Stream,
            Sends::Nothing => Output::Ended,
        };
        let declared = match length {
            BodyLength::Empty if !status.is_bodyless() => Some(0),
            BodyLength::Known(length) if status.code() != Status::NO_CONTENT.code() => Some(length),
            _ => None,
        };
        Some(Begun { status, sends, declared })
    }

    /// Whether a response was given that still has bytes to send.
    pub const fn is_sending(&self) -> bool {
        matches!(self.output, Output::Exactly(_) | Output::Stream)
    }

    /// How many more bytes the response has at the most.
    pub const fn unsent(&self) -> u64 {
        match self.output {
            Output::Exactly(left) => left,
            Output::Stream => u64::MAX,
            Output::Awaited | Output::Ended | Output::Finished | Output::Gone => 0,
        }
    }

    /// Counts sent bytes of a body; whether they were the last ones.
    pub const fn has_sent(&mut self, bytes: u64) -> bool {
        if let Output::Exactly(left) = self.output {
            self.output = match left.saturating_sub(bytes) {
                0 => Output::Ended,
                left => Output::Exactly(left),
            };
            return matches!(self.output, Output::Ended);
        }
        false
    }

    /// What the client still sends is not used.
    pub const fn discard(&mut self) {
        self.fate = Fate::Discarded;
        (self.read_at, self.latest) = (None, None);
    }

    /// The stream is over on the wire: nothing of it is awaited or sent any more.
    pub fn leave(&mut self) {
        debug_assert!(!self.place.is_ready(), "the schedule counts it");
        self.output = Output::Gone;
        self.discard();
        self.send_at = None;
    }

    /// Holds the body back, or lets it come again; whether that is a change.
    pub fn hold(&mut self, is_held: bool, now: Moment) -> bool {
        if self.held.is_some() == is_held {
            return false;
        }
        let since = std::mem::replace(&mut self.held, is_held.then_some(now));
        // The clock of `client_body_min_rate` has stood still meanwhile, and is not set back.
        let length = since.map(|since| now.since(since)).unwrap_or_default();
        self.latest = self.latest.map(|latest| latest + length);
        true
    }

    /// Body bytes are awaited from now on.
    pub fn await_body(&mut self, base: &Arc<P>, now: Moment) {
        let policy = self.policy(base);
        let grace = policy.body_timeout.unwrap_or(RATE_GRACE);
        self.latest = policy.body_min_rate.map(|_| now + grace);
    }

    /// Body bytes came: each one buys as much time as the slowest allowed client needs for it.
    pub fn body_came(&mut self, base: &Arc<P>, bytes: usize) {
        if let Some(rate) = self.policy(base).body_min_rate {
            let nanos = bytes as u128 * 1_000_000_000 / u128::from(rate.max(1));
            let bought = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.latest = self.latest.map(|latest| latest + bought);
        }
    }

    /// Arms what is asked of the client for its body. While the handler holds it back, the client is not late.
    pub fn arm_body(&mut self, base: &Arc<P>, now: Moment) {
        // The deadline of a tunnel is the handler's (U6).
        let is_awaited = self.fate == Fate::Taken
            && self.has_body()
            && self.held.is_none()
            && self.output != Output::Gone;
        let quiet = self.policy(base).body_timeout.map(|timeout| now + timeout);
        self.read_at = if is_awaited { quiet.into_iter().chain(self.latest).min() } else { None };
    }

    /// Arms the deadline for bytes that the client does not let us send.
    pub fn arm_send(&mut self, base: &Arc<P>, now: Moment) {
        if self.send_at.is_none() {
            self.progress = 0;
            self.send_at = self.policy(base).send_timeout.map(|timeout| now + timeout);
        }
    }

    /// What is armed; `awaited` is the deadline for what the client has to send.
    pub fn deadlines(&self, awaited: DeadlineKind) -> [Option<Deadline>; 2] {
        [(self.read_at, awaited), (self.send_at, DeadlineKind::Send)]
            .map(|(at, kind)| Some(Deadline { at: at?, kind }))
    }
}

/// Whose deadline it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner<Id> {
    /// The connection's.
    Connection,
    /// One stream's.
    Stream(Id),
}

/// The earliest deadline of a connection and its streams, and its owner.
pub fn earliest<Id: Copy>(
    of_connection: impl IntoIterator<Item = (Option<Moment>, DeadlineKind)>,
    of_streams: impl Iterator<Item = (Id, [Option<Deadline>; 2])>,
) -> Option<(Deadline, Owner<Id>)> {
    let of_connection = of_connection
        .into_iter()
        .filter_map(|(at, kind)| Some((Deadline { at: at?, kind }, Owner::Connection)));
    let of_streams = of_streams.flat_map(|(id, deadlines)| {
        deadlines.into_iter().flatten().map(move |deadline| (deadline, Owner::Stream(id)))
    });
    of_connection.chain(of_streams).min_by_key(|(deadline, _)| deadline.at)
}
