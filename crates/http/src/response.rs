//! A response as a handler knows it, before any protocol frames it; and what a busy connection borrows for the
//! request in work. The same for every HTTP version.

use crate::fields::Fields;
use crate::head::Head;
use crate::status::Status;

/// What a busy connection borrows from its worker's pool.
#[derive(Default, Debug)]
pub struct Scratch {
    /// The head of the request that was received last.
    pub head: Head,
    /// Bytes that are to leave.
    pub out: Vec<u8>,
}

/// What the handler says about the length of its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// There is none.
    Empty,
    /// So many bytes.
    Known(u64),
    /// Not known before the end.
    Unknown,
}

impl BodyLength {
    /// The length that a handler gave, if it did.
    pub const fn of(length: Option<u64>) -> Self {
        match length {
            Some(0) => Self::Empty,
            Some(length) => Self::Known(length),
            None => Self::Unknown,
        }
    }
}

/// How a response body leaves, as the protocol engine says when it has framed the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sends {
    /// Not at all: HEAD, 204, 304, an empty one.
    Nothing,
    /// So many bytes, through the engine, or by the shell itself where the transport can send files.
    Exactly(u64),
    /// Through the engine until the response is finished.
    Stream,
}

/// A response as the handler knows it.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The final status.
    pub status: Status,
    /// Its fields; never `Content-Length`, `Transfer-Encoding`, `Connection`: framing is the protocol's.
    pub fields: &'a Fields,
    /// How long the body is.
    pub length: BodyLength,
}
