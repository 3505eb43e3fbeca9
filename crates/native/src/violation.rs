//! What a peer did that the protocol does not have. Each one ends the session: after it, the peer's bytes
//! have no certain meaning. The code and the text go to the peer in its `BYE`.

use std::fmt;

use crate::code::Code;
use crate::frame::Kind;

/// A peer's breach of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// No frame has this kind.
    UnknownKind(u8),
    /// Bits are set that have no meaning in this version.
    ReservedBits,
    /// The other side sends such frames.
    WrongDirection(Kind),
    /// Something else came before the handshake.
    NotGreeted(Kind),
    /// The handshake came twice.
    GreetedTwice,
    /// The frame says that it is longer than it may be.
    TooLong {
        /// What it says.
        length: u32,
        /// What it may be.
        max: u32,
    },
    /// The frame has bytes where it may have none.
    NotEmpty(Kind),
    /// The message in the frame cannot be read.
    Malformed(Kind),
    /// The frame belongs to a later version than the one that was agreed upon.
    NotNegotiated(Kind),
    /// Options of a request, and something else than that request after them.
    OptionsAlone(u16),
    /// The request has no such channel.
    NoSuchChannel(u16, u8),
    /// More bodies are on their way than there may be requests.
    TooManyBodies,
    /// A slot in use was used again.
    SlotInUse(u16),
    /// Nothing runs in this slot that the frame could be about.
    NoSuchRequest(u16),
    /// The frame does not fit the state of its request.
    OutOfOrder(Kind, u16),
    /// More credit was given than the channel's window has.
    TooMuchCredit(u16),
    /// More was sent than there was credit for.
    CreditExceeded(u16),
    /// A frame that began did not end in time.
    FrameLate,
}

impl Violation {
    /// The code that is sent to the peer.
    pub const fn code(self) -> Code {
        match self {
            Self::TooLong { .. } => Code::ResourceLimitReached,
            _ => Code::InvalidRequest,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind(kind) => write!(out, "unknown kind of frame {kind}"),
            Self::ReservedBits => out.write_str("reserved bits are set"),
            Self::WrongDirection(kind) => write!(out, "{kind} comes from the other side"),
            Self::NotGreeted(kind) => write!(out, "{kind} before the handshake"),
            Self::GreetedTwice => out.write_str("a second handshake"),
            Self::TooLong { length, max } => {
                write!(out, "a frame of {length} bytes, at most {max} are allowed")
            }
            Self::NotEmpty(kind) => write!(out, "{kind} with a payload"),
            Self::Malformed(kind) => write!(out, "{kind} that cannot be read"),
            Self::NotNegotiated(kind) => write!(out, "{kind} was not agreed upon"),
            Self::OptionsAlone(slot) => write!(out, "options without a request in slot {slot}"),
            Self::NoSuchChannel(slot, channel) => {
                write!(out, "the request in slot {slot} has no channel {channel}")
            }
            Self::TooManyBodies => out.write_str("too many bodies of requests are unfinished"),
            Self::SlotInUse(slot) => write!(out, "slot {slot} is in use"),
            Self::NoSuchRequest(slot) => write!(out, "nothing runs in slot {slot}"),
            Self::OutOfOrder(kind, slot) => write!(out, "{kind} out of order in slot {slot}"),
            Self::TooMuchCredit(slot) => write!(out, "credit beyond the window in slot {slot}"),
            Self::CreditExceeded(slot) => write!(out, "a record without credit in slot {slot}"),
            Self::FrameLate => out.write_str("a frame did not end in time"),
        }
    }
}

impl std::error::Error for Violation {}
