//! One stream, the open ones of a connection, and the last ones that are over.

use std::ops::{Deref, DerefMut};

use sekisho_http::Slots;
use sekisho_http::stream::RequestState;
pub(crate) use sekisho_http::stream::{Fate, Output};

use crate::event::StreamId;
use crate::policy::Policy;

/// How many streams that are over are remembered, so that what still comes for them is understood.
const CLOSED_COUNT: usize = 16;

/// An open stream: one whose request was given to the shell and was not ended by it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) request: RequestState<Policy>,
    /// The event `BodyEnd` is still due.
    pub(crate) announces_end: bool,
    /// The stream is in the list of those with events about their body.
    pub(crate) is_listed: bool,
    /// How much we may send.
    pub(crate) send_window: i64,
    /// How much the client may send.
    pub(crate) receive_window: u32,
    /// How much was consumed and not acknowledged yet.
    pub(crate) owed: u32,
    /// How large the receive window is meant to be.
    pub(crate) window: u32,
    /// Body bytes that came before they were wanted.
    pub(crate) stored: Vec<u8>,
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
    pub(crate) fn new(number: u32) -> Self {
        Self {
            request: RequestState::new(u64::from(number)),
            announces_end: false,
            is_listed: false,
            send_window: 0,
            receive_window: 0,
            owed: 0,
            window: 0,
            stored: Vec::new(),
        }
    }

    /// The stream is over on the wire: nothing of it is awaited or sent any more.
    pub(crate) fn leave(&mut self) {
        self.request.leave();
        self.stored = Vec::new();
        self.announces_end = false;
    }

    /// What the client still sends is thrown away and not acknowledged.
    pub(crate) fn discard(&mut self) {
        self.request.discard();
        self.stored = Vec::new();
    }
}

/// How a stream that is over came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// We reset it: what the client had sent before it knew is ignored.
    ByUs,
    /// Otherwise.
    Otherwise,
}

/// All open streams of a connection, and the last ones that are over.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    slots: Slots<u32, Stream>,
    /// How many of them the shell has ended.
    finished: usize,
    /// Numbers of streams that are over, twice each, plus one where we reset them.
    closed: [u32; CLOSED_COUNT],
    closed_at: u8,
}

impl Deref for Streams {
    type Target = Slots<u32, Stream>;

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
    /// How many the shell has not ended.
    pub(crate) const fn running(&self) -> usize {
        self.slots.len() - self.finished
    }

    /// The shell has ended the stream; what the client still sends on it is thrown away.
    pub(crate) fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.slots.get_mut(id)
            && stream.output != Output::Finished
        {
            stream.leave();
            stream.output = Output::Finished;
            self.finished += 1;
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        let stored: usize = self.iter().map(|(_, stream)| stream.stored.capacity()).sum();
        self.slots.capacity() + stored
    }

    pub(crate) fn remove(&mut self, id: StreamId, closed: Closed) {
        let Some(stream) = self.slots.remove(id) else { return };
        self.finished -= usize::from(stream.output == Output::Finished);
        self.note_closed(id.number, closed);
    }

    /// Removes those that the shell has ended: their requests are complete.
    pub(crate) fn remove_finished(&mut self) {
        while self.finished > 0 {
            let finished = self.iter().find(|(_, stream)| stream.output == Output::Finished);
            let Some((id, _)) = finished else { return };
            self.remove(id, Closed::Otherwise);
        }
    }

    /// Remembers how a stream came to its end.
    pub(crate) fn note_closed(&mut self, number: u32, closed: Closed) {
        let note = number << 1 | u32::from(closed == Closed::ByUs);
        // A stream that we reset stays marked so when the shell ends it.
        if self.closed.iter().any(|other| other >> 1 == number) {
            return;
        }
        self.closed[usize::from(self.closed_at) % CLOSED_COUNT] = note;
        self.closed_at = self.closed_at.wrapping_add(1);
    }

    /// How the stream of this number came to its end, if it is one of the last ones.
    pub(crate) fn closed(&self, number: u32) -> Option<Closed> {
        let note = self.closed.iter().find(|note| *note >> 1 == number)?;
        Some(if note & 1 == 1 { Closed::ByUs } else { Closed::Otherwise })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_streams_that_are_over_are_remembered() {
        let mut streams = Streams::default();
        let ids: Vec<_> =
            (0..100).map(|at| streams.insert(2 * at + 1, Stream::new(2 * at + 1))).collect();
        assert_eq!(streams.closed(1), None, "it is open");
        for id in ids {
            streams.remove(id, Closed::ByUs);
        }
        assert_eq!(streams.closed(199), Some(Closed::ByUs));
        assert_eq!(streams.closed(1), None, "only the last ones are remembered");
    }
}
