//! What passes between an engine and its shell. Bytes are ranges of the input that was just offered.

use std::ops::Range;

use sekisho_lifecycle::stay::Bug;
use sekisho_lifecycle::{Cause, RequestId};

use crate::code::Code;
use crate::handshake::Greeting;
use crate::message::{Bye, Welcome};
use crate::violation::Violation;

/// What a busy session borrows: the bytes that are to leave.
#[derive(Default, Debug)]
pub struct Scratch {
    /// Bytes that are to leave.
    pub out: Vec<u8>,
}

/// What the shell of a server must act on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The handshake is in order. Nothing more is taken until the shell has decided, by
    /// [`admit`](crate::Server::admit) or [`refuse`](crate::Server::refuse), for which it has
    /// [`decide_timeout`](crate::Policy::decide_timeout). If the client goes meanwhile, the decision is void.
    Hello(Greeting),
    /// A part of the request that is coming in. Its last part comes with [`Event::Request`].
    Piece(Range<usize>),
    /// A request is complete and admitted: what the pieces before gave, and this.
    Request {
        /// Its number.
        id: RequestId,
        /// Which service it is for.
        service: u32,
        /// The last part of its body, or all of it.
        body: Range<usize>,
    },
    /// A request was refused and has its answer: what the pieces before gave is thrown away.
    Refused(Code),
    /// The request is cancelled: its handler is woken (L31).
    Cancelled(RequestId, Cause),
    /// There is more credit, or the client reads no more: a producer that waits looks again (L28).
    ChannelMoved(RequestId),
    /// A handler's bug: it is logged and counted.
    Bug(RequestId, Bug),
}

/// What the shell of a client must act on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// The session is open.
    Welcome(Welcome),
    /// A part of the result or record that is coming in. Its last part comes with the event below.
    Piece(Range<usize>),
    /// The one answer: a result.
    Result {
        /// Of the request in this slot.
        slot: u16,
        /// The last part of it, or all.
        body: Range<usize>,
    },
    /// The one answer: an error.
    Error {
        /// Of the request in this slot.
        slot: u16,
        /// What went wrong.
        code: Code,
        /// The same for people.
        text: String,
    },
    /// The request has a channel.
    Acquired {
        /// The request's slot.
        slot: u16,
    },
    /// A record of the channel. The shell calls [`taken`](crate::Client::taken) when the application has
    /// taken it.
    Record {
        /// The request's slot.
        slot: u16,
        /// The last part of it, or all.
        body: Range<usize>,
    },
    /// An unwanted record is complete: its earlier pieces are thrown away.
    Discarded,
    /// No record follows.
    Released {
        /// The request's slot.
        slot: u16,
    },
    /// The life that the session has now, at least.
    Extended {
        /// From now on.
        millis: u64,
    },
    /// The server has sent `BYE`. Requests without an answer will not get one.
    Bye(Bye),
    /// The server does not keep to the protocol; the session is over.
    Broken(Violation),
    /// The transport ended without `BYE`.
    Lost,
}
