//! What passes between the engine and the shell: events out, answers in, and the scratch that a busy
//! connection borrows.

use std::ops::Range;

use sekisho_http::request::Parts;
use sekisho_http::{Head, Malformed, Refusal};
use sekisho_lifecycle::DeadlineKind;

use crate::budget::Bound;

/// A stream that was given to the shell.
pub type StreamId = sekisho_http::StreamId<u32>;

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

impl Scratch {
    /// What it holds in memory.
    pub fn capacity(&self) -> usize {
        let Work { block, text, parts } = &self.work;
        let own = [&self.out, &self.body, block, text].map(Vec::capacity);
        self.head.capacity() + parts.capacity() + own.iter().sum::<usize>()
    }
}

/// Room for a head while it is received.
#[derive(Default, Debug)]
pub(crate) struct Work {
    /// A header block that comes in several frames.
    pub(crate) block: Vec<u8>,
    /// Strings of one field.
    pub(crate) text: Vec<u8>,
    /// Parts of the head that is being put together.
    pub(crate) parts: Parts,
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
