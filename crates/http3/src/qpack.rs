//! QPACK, the compression of header fields (RFC 9204). A decoder and an encoder, each with its own dynamic table,
//! which takes memory only for what was put into it and never more than a bound.
//!
//! Our encoder refers only to entries that the client has acknowledged: no response of ours ever waits for the encoder
//! stream.

pub mod decode;
pub mod encode;
pub mod table;

use std::fmt;

use sekisho_http::compression::prefixed::Unreadable;
use sekisho_http::huffman::BadHuffman;

pub use decode::{Decoder, Section};
pub use encode::Encoder;

/// How many bytes of a number may follow its first one: 56 bits, which no honest number needs.
const NUMBER_BYTES_MAX: u32 = 8;

/// Why a header block or an instruction cannot be decoded. The connection is over then: the tables of both sides no
/// longer agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It ends within a field.
    CutShort,
    /// A number that is too large.
    Number,
    /// An index that no table has.
    Index,
    /// A string that is not well encoded.
    Huffman,
    /// A required insert count or a base that cannot be.
    InsertCount,
    /// A capacity beyond what was announced, or an entry that does not fit.
    Capacity,
    /// An acknowledgement of something that was not sent.
    Acknowledgement,
}

impl From<BadHuffman> for Fault {
    fn from(_: BadHuffman) -> Self {
        Self::Huffman
    }
}

impl From<Unreadable> for Fault {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::CutShort => Self::CutShort,
            Unreadable::Number => Self::Number,
            Unreadable::Huffman => Self::Huffman,
        }
    }
}

impl Fault {
    /// In words, for the error log.
    pub const fn message(self) -> &'static str {
        match self {
            Self::CutShort => "header block ends within a field",
            Self::Number => "number in a header block is too large",
            Self::Index => "reference to an entry that does not exist",
            Self::Huffman => "string is not Huffman coded",
            Self::InsertCount => "header block has an invalid insert count or base",
            Self::Capacity => "dynamic table larger than announced",
            Self::Acknowledgement => "acknowledgement of something that was not sent",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.message())
    }
}

impl std::error::Error for Fault {}
