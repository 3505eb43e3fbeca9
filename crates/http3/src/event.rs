//! What passes from the engine to the shell.

use bytes::Bytes;
use sekisho_http::{Malformed, Refusal};
use sekisho_lifecycle::DeadlineKind;

use crate::budget::Bound;
use crate::code::Code;

/// A stream that was given to the shell.
pub type StreamId = sekisho_http::StreamId<u64>;

/// What the shell must act on. Each stream that was reported by `Request` or `Refused` is ended by the shell
/// exactly once, by [`finish`](crate::Http3::finish) or [`reset`](crate::Http3::reset); until then it counts
/// as open (V8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A head is complete and is in `scratch.head`.
    Request(StreamId),
    /// Body bytes.
    Body(StreamId, Bytes),
    /// The body that was taken is complete; also reported for one that is empty or absent.
    BodyEnd(StreamId),
    /// The request is refused: the shell responds with this status at once. For a head that was refused,
    /// `scratch.head` holds as much as could be kept, perhaps nothing.
    Refused(StreamId, Refusal),
    /// The client is lost for this stream: the shell cancels the handler, and ends the stream when the handler
    /// is over.
    ClientLost(StreamId, Loss),
    /// A request that is malformed was reset; no response is sent. For the log and a counter.
    Malformed(u64, Malformed),
    /// The peer went beyond a bound and the connection ends. For the log and a counter (M4).
    BoundExceeded(Bound),
    /// The peer broke the protocol and the connection ends with this code. For the log and a counter.
    Violation(Code, &'static str),
}

/// Why a stream has no client any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The client reset it or reads it no further, with this code.
    Reset(u64),
    /// What the client sent made us reset it.
    Violation,
    /// A deadline of this stream fell.
    Expired(DeadlineKind),
    /// The connection is over.
    Connection,
}
