//! HPACK, the compression of header fields (RFC 7541). A decoder and an encoder, each with its own dynamic
//! table, which takes memory only for what was put into it and never more than a bound.

pub mod decode;
pub mod encode;
pub mod table;

use std::fmt;

use sekisho_http::compression::prefixed::Unreadable;
use sekisho_http::huffman::BadHuffman;

pub use decode::Decoder;
pub use encode::Encoder;
pub use sekisho_http::request::Field;

/// Why a header block cannot be decoded. The connection is over then: the tables of both sides no longer agree.
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
    /// A change of the table's size that is too large, or comes after a field.
    TableSize,
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

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::CutShort => "header block ends within a field",
            Self::Number => "number in a header block is too large",
            Self::Index => "header block refers to an entry that does not exist",
            Self::Huffman => return BadHuffman.fmt(out),
            Self::TableSize => "header block has an invalid change of the table size",
        })
    }
}

impl std::error::Error for Fault {}
