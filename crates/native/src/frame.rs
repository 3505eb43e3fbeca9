//! The wire form of a frame: a head of twelve bytes, then the payload it announces. All numbers are
//! little-endian. This file knows what a frame looks like, not what it means.

use std::fmt;

use crate::violation::Violation;

/// The bytes of a head.
pub const HEAD_BYTES: usize = 12;
/// No control message is longer; it is looked at when it is complete.
pub const CONTROL_BYTES_MAX: u32 = 4096;

/// The kinds of frame. The numbers are on the wire and never change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The handshake.
    Hello = 1,
    /// Its answer.
    Welcome = 2,
    /// The last frame of a session, with the reason.
    Bye = 3,
    /// Asks for the end of the session.
    Shutdown = 4,
    /// Asks for a longer life.
    Extend = 5,
    /// The life that was given.
    Extended = 6,
    /// Asks whether the peer is there (1.1).
    Ping = 7,
    /// It is (1.1).
    Pong = 8,
    /// A request; its word is the service.
    Request = 16,
    /// The answer: a result.
    Result = 17,
    /// The answer: an error.
    Error = 18,
    /// Asks for the request to be cancelled.
    Cancel = 19,
    /// What the request that follows in this slot has besides its body (1.1).
    Options = 20,
    /// The producer has opened the channel.
    Acquired = 32,
    /// One record of the channel.
    Record = 33,
    /// The producer has sent all.
    Released = 34,
    /// More records may come; its argument word says how many bytes.
    Credit = 35,
    /// The client has taken all, or wants no more.
    Drained = 36,
    /// A part of the body of a request (1.1).
    Data = 48,
    /// That body is complete (1.1).
    DataEnd = 49,
    /// More of it may come; its argument word says how many bytes (1.1).
    DataCredit = 50,
    /// No more of it is wanted (1.1).
    DataStop = 51,
}

/// The side that sends a kind of frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
    /// Both.
    Either,
}

/// What the payload is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// There is none.
    Bare,
    /// A small protobuf message.
    Control,
    /// Opaque bytes, handed on as they come.
    Bulk,
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Head {
    /// The bytes of the payload.
    pub length: u32,
    /// What it is.
    pub kind: Kind,
    /// Which request it is about; zero where it is about the session.
    pub slot: u16,
    /// Which of the request's channels it is about, where it is about one (1.1); zero elsewhere.
    pub channel: u8,
    /// The service of a request, the bytes of a credit, the number of a ping, and zero elsewhere.
    pub word: u32,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 22] = [
        Self::Hello,
        Self::Welcome,
        Self::Bye,
        Self::Shutdown,
        Self::Extend,
        Self::Extended,
        Self::Ping,
        Self::Pong,
        Self::Request,
        Self::Result,
        Self::Error,
        Self::Cancel,
        Self::Options,
        Self::Acquired,
        Self::Record,
        Self::Released,
        Self::Credit,
        Self::Drained,
        Self::Data,
        Self::DataEnd,
        Self::DataCredit,
        Self::DataStop,
    ];

    /// The whole table: which side sends it, what its payload is, whether it has a slot, whether it has a
    /// word.
    const fn row(self) -> (Side, Form, bool, bool) {
        use {Form as F, Kind as K, Side as S};
        match self {
            K::Hello | K::Shutdown | K::Extend => (S::Client, F::Control, false, false),
            K::Welcome | K::Bye | K::Extended => (S::Server, F::Control, false, false),
            K::Request => (S::Client, F::Bulk, true, true),
            K::Result | K::Record => (S::Server, F::Bulk, true, false),
            K::Error => (S::Server, F::Control, true, false),
            K::Cancel | K::Drained | K::DataEnd => (S::Client, F::Bare, true, false),
            K::Credit => (S::Client, F::Bare, true, true),
            K::Acquired | K::Released | K::DataStop => (S::Server, F::Bare, true, false),
            K::Ping | K::Pong => (S::Either, F::Bare, false, true),
            K::Options => (S::Client, F::Control, true, false),
            K::Data => (S::Client, F::Bulk, true, false),
            K::DataCredit => (S::Server, F::Bare, true, true),
        }
    }

    /// The minor version that has it.
    pub const fn minor(self) -> u32 {
        use Kind as K;
        match self {
            K::Ping | K::Pong | K::Options | K::Data | K::DataEnd | K::DataCredit | K::DataStop => {
                1
            }
            _ => 0,
        }
    }

    /// Whether it is about one channel of a request.
    pub const fn has_channel(self) -> bool {
        use Kind as K;
        matches!(self, K::Acquired | K::Record | K::Released | K::Credit | K::Drained)
    }

    /// The side that sends it.
    pub const fn sender(self) -> Side {
        self.row().0
    }

    /// Whether this side sends it.
    pub fn is_sent_by(self, side: Side) -> bool {
        self.sender() == side || self.sender() == Side::Either
    }

    /// What its payload is.
    pub const fn form(self) -> Form {
        self.row().1
    }

    /// The name in `docs/protocol.md`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hello => "HELLO",
            Self::Welcome => "WELCOME",
            Self::Bye => "BYE",
            Self::Shutdown => "SHUTDOWN",
            Self::Extend => "EXTEND",
            Self::Extended => "EXTENDED",
            Self::Ping => "PING",
            Self::Pong => "PONG",
            Self::Request => "REQUEST",
            Self::Result => "RESULT",
            Self::Error => "ERROR",
            Self::Cancel => "CANCEL",
            Self::Options => "OPTIONS",
            Self::Acquired => "ACQUIRED",
            Self::Record => "RECORD",
            Self::Released => "RELEASED",
            Self::Credit => "CREDIT",
            Self::Drained => "DRAINED",
            Self::Data => "DATA",
            Self::DataEnd => "DATA_END",
            Self::DataCredit => "DATA_CREDIT",
            Self::DataStop => "DATA_STOP",
        }
    }

    fn of_number(number: u8) -> Option<Self> {
        // A match and not a search: every frame passes here.
        Some(match number {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Bye,
            4 => Self::Shutdown,
            5 => Self::Extend,
            6 => Self::Extended,
            7 => Self::Ping,
            8 => Self::Pong,
            16 => Self::Request,
            17 => Self::Result,
            18 => Self::Error,
            19 => Self::Cancel,
            20 => Self::Options,
            32 => Self::Acquired,
            33 => Self::Record,
            34 => Self::Released,
            35 => Self::Credit,
            36 => Self::Drained,
            48 => Self::Data,
            49 => Self::DataEnd,
            50 => Self::DataCredit,
            51 => Self::DataStop,
            _ => return None,
        })
    }
}

impl Head {
    /// A frame about one request.
    pub const fn of_slot(kind: Kind, slot: u16) -> Self {
        Self { length: 0, kind, slot, channel: 0, word: 0 }
    }

    /// The same about this channel of it.
    #[must_use]
    pub const fn of_channel(kind: Kind, slot: u16, channel: u8) -> Self {
        Self { length: 0, kind, slot, channel, word: 0 }
    }

    /// Reads a head from the front of `input`; `None` when it is not complete.
    pub fn read(input: &[u8]) -> Result<Option<Self>, Violation> {
        let Some(bytes) = input.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, kind, channel, s0, s1, w0, w1, w2, w3] = *bytes;
        let kind = Kind::of_number(kind).ok_or(Violation::UnknownKind(kind))?;
        let head = Self {
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            kind,
            slot: u16::from_le_bytes([s0, s1]),
            channel,
            word: u32::from_le_bytes([w0, w1, w2, w3]),
        };
        let (_, form, has_slot, has_word) = kind.row();
        if (!kind.has_channel() && channel != 0)
            || (!has_slot && head.slot != 0)
            || (!has_word && head.word != 0)
        {
            return Err(Violation::ReservedBits);
        }
        match form {
            Form::Bare if head.length > 0 => Err(Violation::NotEmpty(kind)),
            Form::Control if head.length > CONTROL_BYTES_MAX => {
                Err(Violation::TooLong { length: head.length, max: CONTROL_BYTES_MAX })
            }
            _ => Ok(Some(head)),
        }
    }

    /// Appends the head to `out`.
    pub fn write(self, out: &mut Vec<u8>) {
        let [l0, l1, l2, l3] = self.length.to_le_bytes();
        let [s0, s1] = self.slot.to_le_bytes();
        let [w0, w1, w2, w3] = self.word.to_le_bytes();
        out.extend_from_slice(&[
            l0,
            l1,
            l2,
            l3,
            self.kind as u8,
            self.channel,
            s0,
            s1,
            w0,
            w1,
            w2,
            w3,
        ]);
    }
}

/// Appends a whole frame. The caller has checked the payload's length against the limits.
pub fn write(out: &mut Vec<u8>, head: Head, payload: &[u8]) {
    let length = payload.len() as u32;
    out.reserve(HEAD_BYTES + payload.len());
    Head { length, ..head }.write(out);
    out.extend_from_slice(payload);
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        // E3
        for kind in Kind::ALL {
            let (_, form, has_slot, has_word) = kind.row();
            let head = Head {
                length: if form == Form::Bare { 0 } else { CONTROL_BYTES_MAX },
                kind,
                slot: if has_slot { 0xfedc } else { 0 },
                channel: if kind.has_channel() { 0xba } else { 0 },
                word: if has_word { 0x8765_4321 } else { 0 },
            };
            let mut wire = Vec::new();
            head.write(&mut wire);
            assert_eq!(wire.len(), HEAD_BYTES);
            assert_eq!(Head::read(&wire), Ok(Some(head)));
            for cut in 0..HEAD_BYTES {
                assert_eq!(Head::read(&wire[..cut]), Ok(None));
            }
        }
    }

    #[test]
    fn every_byte_stands_where_the_document_says() {
        let mut wire = Vec::new();
        let head = Head {
            length: 0x0403_0201,
            kind: Kind::Record,
            slot: 0x0605,
            channel: 0x0b,
            word: 0x0a09_0807,
        };
        head.write(&mut wire);
        assert_eq!(wire, [1, 2, 3, 4, 33, 11, 5, 6, 7, 8, 9, 10]);
        let document = include_str!("../../../docs/protocol.md");
        for kind in Kind::ALL {
            let row = format!("| {} | `{kind}` |", kind as u8);
            assert!(document.contains(&row), "docs/protocol.md has no row {row}");
        }
    }

    #[test]
    fn a_head_that_means_nothing_is_refused() {
        // E3
        let bad = |bytes: [u8; HEAD_BYTES]| Head::read(&bytes).expect_err("refused");
        assert_eq!(bad([0; HEAD_BYTES]), Violation::UnknownKind(0));
        assert_eq!(bad(*b"GET / HTTP/1"), Violation::UnknownKind(b'/'));
        assert_eq!(bad([0, 0, 0, 0, 19, 1, 0, 0, 0, 0, 0, 0]), Violation::ReservedBits);
        assert_eq!(bad([0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0]), Violation::ReservedBits);
        assert_eq!(bad([0, 0, 0, 0, 19, 0, 0, 0, 1, 0, 0, 0]), Violation::ReservedBits);
        assert_eq!(bad([1, 0, 0, 0, 19, 0, 0, 0, 0, 0, 0, 0]), Violation::NotEmpty(Kind::Cancel));
        let max = CONTROL_BYTES_MAX;
        let long = bad([255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(long, Violation::TooLong { length: u32::MAX, max });
    }
}
