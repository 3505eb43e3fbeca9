//! One request stream, and the open ones of a connection.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use sekisho_http::Slots;
use sekisho_http::stream::RequestState;
pub(crate) use sekisho_http::stream::{Fate, Output};
use sekisho_lifecycle::Moment;

use crate::event::StreamId;
use crate::frame::PartialHeader;
use crate::policy::Policy;

/// What the next bytes of a stream are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// A frame header.
    Header,
    /// A header block of which this many bytes are missing.
    Headers(u64),
    /// A DATA frame of which this many bytes are missing.
    Data(u64),
    /// A frame that is discarded, of which this many bytes are missing.
    Skip(u64),
    /// A complete header block waits for this insert count of the dynamic table.
    Blocked(u64),
}

/// How far a request has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Its head is awaited.
    Head,
    /// Its body, or trailers.
    Body,
    /// Trailers have come.
    End,
}

/// A request stream.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one request")]
pub(crate) struct Stream {
    pub(crate) request: RequestState<Policy>,
    /// The shell knows the stream.
    pub(crate) is_given: bool,
    pub(crate) reading: Reading,
    pub(crate) part: Part,
    pub(crate) header: PartialHeader,
    /// A header block that came in part, or waits for entries.
    pub(crate) block: Vec<u8>,
    /// Bytes that were read and not looked at.
    pub(crate) pending: Bytes,
    /// The stream is in the queue of those that are read.
    pub(crate) is_listed: bool,
    /// The connection may have bytes of it.
    pub(crate) is_readable: bool,
    /// The shell knows that the client is lost.
    pub(crate) is_lost: bool,
    /// Bytes that the connection did not take: heads and frame headers, never a body.
    pub(crate) out: Vec<u8>,
    /// The connection takes nothing at present.
    pub(crate) is_blocked: bool,
    /// While its send deadline runs: acknowledgements up to this count of bytes and this time may be for this stream.
    pub(crate) awaits_acknowledged: Option<(u64, Moment)>,
    /// FIN was written.
    pub(crate) has_finished: bool,
    /// The client has acknowledged everything.
    pub(crate) is_delivered: bool,
    /// How many bytes of the DATA frame that was begun are missing, where the length of the body is not known.
    pub(crate) frame_left: u64,
}

impl Deref for Stream {
    type Target = RequestState<Policy>;

    fn deref(&self) -> &Self::Target {
        &self.request
    }
}

impl DerefMut for Stream {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.request
    }
}

impl Stream {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            request: RequestState::new(number >> 2),
            is_given: false,
            reading: Reading::Header,
            part: Part::Head,
            header: PartialHeader::default(),
            block: Vec::new(),
            pending: Bytes::new(),
            is_listed: false,
            is_readable: false,
            is_lost: false,
            out: Vec::new(),
            is_blocked: false,
            awaits_acknowledged: None,
            has_finished: false,
            is_delivered: false,
            frame_left: 0,
        }
    }

    /// Whether bytes of the client would be taken.
    pub(crate) fn wants_input(&self) -> bool {
        if self.has_ended || matches!(self.reading, Reading::Blocked(_)) {
            return false;
        }
        match self.part {
            Part::Head => true,
            Part::Body | Part::End => {
                self.fate == Fate::Taken
                    && self.held.is_none()
                    && !matches!(self.output, Output::Finished | Output::Gone)
            }
        }
    }

    /// Whether body bytes can be written now.
    pub(crate) const fn is_able(&self) -> bool {
        !self.is_blocked && self.out.is_empty()
    }

    /// The stream is over on the wire: nothing of it is awaited or sent any more.
    pub(crate) fn leave(&mut self) {
        self.request.leave();
        self.pending = Bytes::new();
        self.out = Vec::new();
    }

    /// What the client still sends is not read.
    pub(crate) fn discard(&mut self) {
        self.request.discard();
        self.pending = Bytes::new();
    }
}

/// All open streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    slots: Slots<u64, Stream>,
    /// How many of them were given to the shell and not ended by it.
    running: usize,
}

impl Deref for Streams {
    type Target = Slots<u64, Stream>;

    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

impl DerefMut for Streams {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.slots
    }
}

impl Streams {
    /// How many the shell has to end.
    pub(crate) const fn running(&self) -> usize {
        self.running
    }

    /// The shell is given the stream.
    pub(crate) fn give(&mut self, id: StreamId) {
        if let Some(stream) = self.slots.get_mut(id)
            && !stream.is_given
        {
            stream.is_given = true;
            self.running += 1;
        }
    }

    /// The shell has ended the stream; all of it has still to be acknowledged.
    pub(crate) fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.slots.get_mut(id)
            && stream.output != Output::Finished
        {
            stream.output = Output::Finished;
            stream.discard();
            self.running -= 1;
        }
    }

    /// Bytes of header blocks that are incomplete or wait for entries.
    pub(crate) fn block_bytes(&self) -> usize {
        self.iter().map(|(_, stream)| stream.block.len()).sum()
    }

    pub(crate) fn capacity(&self) -> usize {
        let held = |stream: &Stream| {
            stream.block.capacity() + stream.out.capacity() + stream.pending.len()
        };
        self.slots.capacity() + self.iter().map(|(_, stream)| held(stream)).sum::<usize>()
    }

    pub(crate) fn remove(&mut self, id: StreamId) {
        if let Some(stream) = self.slots.remove(id)
            && stream.is_given
            && stream.output != Output::Finished
        {
            self.running -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_the_shell_knows_are_counted() {
        let mut streams = Streams::default();
        let [zero, four] = [0, 4].map(|number| streams.insert(number, Stream::new(number)));
        streams.give(zero);
        streams.give(zero);
        assert_eq!((streams.len(), streams.running()), (2, 1));
        streams.finish(zero);
        assert_eq!((streams.len(), streams.running()), (2, 0));
        streams.give(four);
        streams.remove(zero);
        streams.remove(four);
        streams.remove(four);
        assert_eq!((streams.len(), streams.running()), (0, 0));
    }
}
