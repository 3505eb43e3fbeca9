//! What passes between an engine and its shell. Bytes are ranges of the input that was just offered.

use std::ops::Range;

use sekisho_lifecycle::stay::Bug;
use sekisho_lifecycle::{Cause, Moment, RequestId};

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
        /// What else its client said about it.
        with: Option<Box<With>>,
        /// The last part of its body, or all of it; where [`With::body_follows`], its first part.
        body: Range<usize>,
    },
    /// A part of a request's body came after it: what the pieces before gave, and this.
    Data {
        /// The request.
        id: RequestId,
        /// The last part of this frame, or all of it.
        body: Range<usize>,
    },
    /// The body of this request is complete.
    DataEnded(RequestId),
    /// A part of a body is complete that is not wanted: its earlier pieces are thrown away.
    Discarded,
    /// A request was refused and has its answer: what the pieces before gave is thrown away.
    Refused(Code),
    /// The request is cancelled: its handler is woken.
    Cancelled(RequestId, Cause),
    /// There is more credit, or the client reads no more: a producer that waits looks again.
    ChannelMoved(RequestId),
    /// A handler's bug: it is logged and counted.
    Bug(RequestId, Bug),
}

/// What a client says about its request besides its body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct With {
    /// The name of the service; empty where its number says it.
    pub service: String,
    /// Until then the client waits for the answer.
    pub deadline: Option<Moment>,
    /// The body goes on: [`Event::Data`], then [`Event::DataEnded`].
    pub body_follows: bool,
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
    /// The request has a channel, or one more.
    Acquired {
        /// The request's slot.
        slot: u16,
        /// Which of its channels; the first is zero.
        channel: u8,
    },
    /// A record of the channel. The shell calls [`taken`](crate::Client::taken) when the application has
    /// taken it.
    Record {
        /// The request's slot.
        slot: u16,
        /// Which of its channels.
        channel: u8,
        /// The last part of it, or all.
        body: Range<usize>,
    },
    /// An unwanted record is complete: its earlier pieces are thrown away.
    Discarded,
    /// No record follows in this channel; for channel zero, in none of them.
    Released {
        /// The request's slot.
        slot: u16,
        /// Which of its channels.
        channel: u8,
    },
    /// More of the request's body may be sent.
    DataMoved {
        /// The request's slot.
        slot: u16,
    },
    /// No more of the request's body is wanted.
    DataStopped {
        /// The request's slot.
        slot: u16,
    },
    /// The server has answered a `PING`.
    Pong(u32),
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
