//! The body of a request on its way to a server: in memory, in a file, or as the client sends it.

use std::io;
use std::sync::Arc;

use sekisho_http::upstream::RequestBody as Length;
use sekisho_lifecycle::Share;
use sekisho_route::body_facts::BodyFacts;

use crate::memory::{self, Class};
use crate::request_body::{BodyFile, Gathered};
use crate::task::ReturnedBody;

/// Where the body comes from.
#[derive(Debug, Default)]
pub(super) enum Body {
    /// There is none.
    #[default]
    None,
    /// Here, with its share of the budget.
    Memory(Arc<Vec<u8>>, Option<Share>),
    /// A temporary file.
    File(BodyFile, u64),
    /// The client, which sends it while the server takes it; it cannot be sent twice.
    Stream(Length),
}

/// What of a streamed body is remembered, for `$request_body` and for another server: all of it or nothing.
#[derive(Debug, Default)]
pub(super) struct Streamed {
    bytes: Vec<u8>,
    is_too_long: bool,
    /// Its memory.
    share: Option<Share>,
}

impl Streamed {
    /// More of it; beyond `max` bytes, or what the budget has for it, it is forgotten. Whether all of it is remembered.
    pub(super) fn push(&mut self, bytes: &[u8], max: usize) -> bool {
        self.is_too_long |= self.bytes.len() + bytes.len() > max;
        if !self.is_too_long {
            self.bytes.extend_from_slice(bytes);
            let held = self.bytes.capacity();
            self.is_too_long = !memory::hold(&mut self.share, Class::RequestBodies, held);
        }
        if self.is_too_long {
            (self.bytes, self.share) = (Vec::new(), None);
        }
        !self.is_too_long
    }

    /// What is remembered.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All that was taken of it; `None` where something is forgotten.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        (!self.is_too_long).then(|| std::mem::take(&mut self.bytes))
    }

    /// What there is of it.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        Some(&*self.bytes).filter(|bytes| !bytes.is_empty())
    }
}

impl From<Gathered> for Body {
    fn from(gathered: Gathered) -> Self {
        let bytes = gathered.len();
        match gathered {
            Gathered::Memory(bytes, share) => Self::Memory(Arc::new(bytes), share),
            Gathered::File(file) => Self::File(file, bytes),
        }
    }
}

impl Body {
    /// One of no bytes, which is told.
    pub(super) fn empty() -> Self {
        Self::Memory(Arc::default(), None)
    }

    /// What another handler gets of it.
    pub(super) fn give_back(self, streamed: &mut Streamed) -> ReturnedBody {
        match self {
            Self::None => ReturnedBody::Lost,
            Self::Memory(bytes, share) => {
                ReturnedBody::Whole(Gathered::Memory(Arc::unwrap_or_clone(bytes), share))
            }
            Self::File(file, _) => ReturnedBody::Whole(Gathered::File(file)),
            Self::Stream(_) => streamed.take().map_or(ReturnedBody::Lost, ReturnedBody::Begun),
        }
    }

    /// What variables say of it.
    pub(super) fn facts(&self) -> BodyFacts {
        match self {
            Self::None | Self::Stream(_) => BodyFacts::default(),
            Self::Memory(bytes, _) => BodyFacts { bytes: Some(Arc::clone(bytes)), file: None },
            Self::File(file, _) => BodyFacts { bytes: None, file: file.name().cloned() },
        }
    }

    /// How long it is.
    pub(super) fn length(&self) -> Length {
        match self {
            Self::None => Length::None,
            Self::Memory(bytes, _) => Length::Known(bytes.len() as u64),
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
            Self::Memory(bytes, _) => {
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
