//! What passes between the engine and the shell: events out, responses in, and the scratch that a busy
//! connection borrows.

use std::ops::Range;

use sekisho_http::{Head, Status};

use crate::encode::BodyLength;
use crate::refusal::Refusal;

/// What a busy connection borrows from its worker's pool.
#[derive(Default, Debug)]
pub struct Scratch {
    /// The head of the request in work.
    pub head: Head,
    /// Bytes that are to leave.
    pub out: Vec<u8>,
}

/// What the shell must act on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The head is complete and lies in `scratch.head`. The shell routes it and then calls
    /// [`set_policy`](crate::Http1::set_policy), perhaps [`take_body`](crate::Http1::take_body), and at some time [`respond`](crate::Http1::respond).
    Request,
    /// Body bytes: this range of the input that was just offered.
    Body(Range<usize>),
    /// The body that was taken is complete; also told of one that is empty or absent.
    BodyEnd,
    /// The request is refused: the shell answers with this status by [`respond`](crate::Http1::respond) at once.
    /// `scratch.head` holds as much as could be parsed, perhaps nothing.
    Refused(Refusal),
    /// The client is lost, or its request will never be complete: the shell cancels the handler. The
    /// connection is over as soon as what was answered before has left.
    ClientLost,
}

/// How a response body leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sends {
    /// Not at all: HEAD, 204, 304, an empty one.
    Nothing,
    /// So many bytes, through [`body`](crate::Http1::body), or by the shell itself, told by [`file_sent`](crate::Http1::file_sent).
    Exactly(u64),
    /// Through [`body`](crate::Http1::body) until [`finish`](crate::Http1::finish).
    Stream,
}

/// A response as the handler knows it.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The final status.
    pub status: Status,
    /// Ready-made lines, each ended by CRLF. Never `Content-Length`, `Transfer-Encoding`, `Connection`.
    pub fields: &'a [u8],
    /// How long the body is.
    pub length: BodyLength,
}
