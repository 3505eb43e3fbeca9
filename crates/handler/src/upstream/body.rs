//! The body of a request on its way to a server: in memory, in a file, or as the client sends it.

use std::io;

use sekisho_http::upstream::RequestBody as Length;

use crate::request_body::{BodyFile, Gathered};

/// Where the body comes from.
#[derive(Debug)]
pub(super) enum Body {
    /// There is none.
    None,
    /// Here.
    Memory(Vec<u8>),
    /// A temporary file.
    File(BodyFile, u64),
    /// The client, who sends it while the server takes it; it cannot be sent twice.
    Stream(Length),
}

impl From<Gathered> for Body {
    fn from(gathered: Gathered) -> Self {
        let bytes = gathered.len();
        match gathered {
            Gathered::Memory(bytes) => Self::Memory(bytes),
            Gathered::File(file) => Self::File(file, bytes),
        }
    }
}

impl Body {
    /// How long it is.
    pub(super) fn length(&self) -> Length {
        match self {
            Self::None => Length::None,
            Self::Memory(bytes) => Length::Known(bytes.len() as u64),
            Self::File(_, bytes) => Length::Known(*bytes),
            Self::Stream(length) => *length,
        }
    }

    /// The bytes from `at` on, at most so many; `file` is memory for those of a file. Empty at the end, and for what
    /// only the client has.
    pub(super) fn bytes<'a>(
        &'a self,
        at: u64,
        max: usize,
        file: &'a mut Vec<u8>,
    ) -> io::Result<&'a [u8]> {
        match self {
            Self::None | Self::Stream(_) => Ok(&[]),
            Self::Memory(bytes) => {
                let rest = bytes.get(at as usize..).unwrap_or_default();
                Ok(&rest[..rest.len().min(max)])
            }
            Self::File(body, length) => {
                let wanted = (length.saturating_sub(at)).min(max as u64) as usize;
                file.resize(wanted, 0);
                // It was written a moment ago, and is read from memory as a rule.
                let read = rustix::io::pread(body.descriptor()?, file.as_mut_slice(), at)?;
                Ok(&file[..read])
            }
        }
    }
}
