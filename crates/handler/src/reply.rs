//! What a handler hands to the driver: a status, a body in pieces, and (in a buffer of the driver's)
//! field lines. Framing fields are the protocol engine's business.

use std::ops::Range;
use std::rc::Rc;

use sekisho_http::Status;

use crate::open_file::OpenFile;

/// An answer, ready to be framed.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: Status,
    /// The body, in the order in which it leaves; empty for none.
    pub body: Vec<Piece>,
    /// The only piece of most bodies: kept beside `body` so that the common answer allocates nothing.
    pub piece: Option<Piece>,
}

/// A piece of a body.
#[derive(Debug)]
pub enum Piece {
    /// Bytes that were made for this answer.
    Bytes(Vec<u8>),
    /// Bytes that are kept for other answers too.
    Shared(Rc<[u8]>),
    /// Bytes that never change.
    Static(&'static [u8]),
    /// A stretch of a file.
    File(Rc<OpenFile>, Range<u64>),
}

impl Piece {
    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Shared(bytes) => bytes.len() as u64,
            Self::Static(bytes) => bytes.len() as u64,
            Self::File(_, range) => range.end - range.start,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, where they are in memory already.
    pub fn in_memory(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Shared(bytes) => Some(bytes),
            Self::Static(bytes) => Some(bytes),
            Self::File(file, range) => {
                file.content().and_then(|all| all.get(range.start as usize..range.end as usize))
            }
        }
    }
}

impl Reply {
    /// An answer without a body.
    pub const fn empty(status: Status) -> Self {
        Self { status, body: Vec::new(), piece: None }
    }

    /// An answer with a body of one piece.
    pub const fn of(status: Status, piece: Piece) -> Self {
        Self { status, body: Vec::new(), piece: Some(piece) }
    }

    /// When the file was last modified that it is made of.
    pub fn modified(&self) -> Option<i64> {
        match &self.piece {
            Some(Piece::File(file, _)) => Some(file.modified()),
            _ => None,
        }
    }

    /// How long the body is.
    pub fn len(&self) -> u64 {
        self.piece.iter().chain(&self.body).map(Piece::len).sum()
    }

    /// Whether there is no body.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
