//! What passes between the engine and the shell: events out, answers in, and the scratch that a busy
//! connection borrows.

use std::ops::Range;

use sekisho_http::{Head, Refusal};
use sekisho_lifecycle::{DeadlineKind, RequestId};

use crate::budget::Bound;
use crate::refusal::Malformed;

/// A stream that was given to the shell: its number on the wire, and where the engine keeps it. Numbers are
/// never used again, so that the id of a stream that is over finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId {
    pub(crate) number: u32,
    pub(crate) slot: u16,
}

impl StreamId {
    /// The number on the wire.
    pub const fn number(self) -> u32 {
        self.number
    }
}

impl From<StreamId> for RequestId {
    fn from(id: StreamId) -> Self {
        Self(u64::from(id.slot) << 32 | u64::from(id.number))
    }
}

impl From<RequestId> for StreamId {
    fn from(id: RequestId) -> Self {
        Self { number: id.0 as u32, slot: (id.0 >> 32) as u16 }
    }
}

/// What a busy connection borrows from its worker's pool. It keeps it as long as
/// [`is_idle`](crate::Http2::is_idle) is false.
#[derive(Default, Debug)]
pub struct Scratch {
    /// The head of the request that came last. To keep it, swap it for another one.
    pub head: Head,
    /// Bytes that are to leave.
    pub out: Vec<u8>,
    /// Bytes of a body that had come before they were wanted ([`Event::Stored`]).
    pub body: Vec<u8>,
    pub(crate) work: Work,
}

/// Room for a head while it is received.
#[derive(Default, Debug)]
pub(crate) struct Work {
    /// A header block that comes in several frames.
    pub(crate) block: Vec<u8>,
    /// Strings of one field.
    pub(crate) text: Vec<u8>,
    /// Pseudo-header fields, which may come in any order.
    pub(crate) pseudo: Vec<u8>,
    /// Cookies, which may come in crumbs.
    pub(crate) cookie: Vec<u8>,
}

/// What the shell must act on. Each stream that was reported by `Request` or `Refused` is ended by the shell
/// exactly once, by [`finish`](crate::Http2::finish) or [`reset`](crate::Http2::reset); until then it counts
/// as open (V8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A head is complete and is in `scratch.head`.
    Request(StreamId),
    /// Body bytes: this range of the input that was just offered. They are acknowledged to the client when
    /// the shell calls [`consumed`](crate::Http2::consumed) (M5).
    Body(StreamId, Range<usize>),
    /// Body bytes that had come before they were wanted lie in `scratch.body`; otherwise the same.
    Stored(StreamId),
    /// The body that was taken is complete; also reported for one that is empty or absent.
    BodyEnd(StreamId),
    /// The request is refused: the shell answers with this status at once. For a head that was refused,
    /// `scratch.head` holds as much as could be kept, perhaps nothing.
    Refused(StreamId, Refusal),
    /// The client is lost for this stream: the shell cancels the handler, and ends the stream when the handler
    /// is over.
    ClientLost(StreamId, Loss),
    /// A request that is malformed was reset; nothing is to be answered. For the log and a counter.
    Malformed(u32, Malformed),
    /// The peer went beyond a bound and the connection ends. For the log and a counter (M4).
    BoundExceeded(Bound),
}

/// Why a stream has no client any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The client reset it, with this code.
    Reset(u32),
    /// What the client sent made us reset it.
    Violation,
    /// A deadline of this stream fell.
    Expired(DeadlineKind),
    /// The connection is over.
    Connection,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_streams_are_ids_of_requests() {
        let id = StreamId { number: 0x7fff_ffff, slot: 0xfffe };
        assert_eq!(StreamId::from(RequestId::from(id)), id);
    }
}
