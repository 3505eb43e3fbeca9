//! One stream, and the slots in which the open ones are kept. A slot is used again by a later stream; when no
//! stream is open, the memory of all but a few of them goes.

use std::sync::Arc;

use sekisho_lifecycle::Moment;

use crate::event::StreamId;
use crate::policy::Policy;
use crate::priority::Priority;

/// How many slots an idle connection keeps.
const SLOTS_KEPT: usize = 2;
/// How many streams that are over are remembered, so that what still comes for them is understood.
const CLOSED_COUNT: usize = 16;

/// What becomes of a request body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Not yet decided: what comes is stored, up to the stream's window.
    Open,
    /// Handed to the shell.
    Taken,
    /// Unwanted: what still comes is thrown away and not acknowledged.
    Discarded,
}

/// The sending half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Output {
    /// No response yet.
    Awaited,
    /// So many bytes of the body are missing, never none.
    Exactly(u64),
    /// The length is not known.
    Stream,
    /// `END_STREAM` has been written.
    Ended,
    /// The same, and the shell has ended the stream; the client has not ended its side of it yet.
    Finished,
    /// RST_STREAM was sent or received: nothing can be sent, but the shell has not ended the stream yet.
    Gone,
}

/// An open stream: one whose request was given to the shell and was not ended by it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one request")]
pub(crate) struct Stream {
    /// 0 in a vacant slot.
    pub(crate) number: u32,
    /// The next vacant slot, in a vacant one.
    pub(crate) next_vacant: u16,
    pub(crate) fate: Fate,
    pub(crate) output: Output,
    /// The client has sent `END_STREAM`.
    pub(crate) has_ended: bool,
    /// The event `BodyEnd` is still due.
    pub(crate) announces_end: bool,
    /// The stream is in the list of those with events about their body.
    pub(crate) is_listed: bool,
    pub(crate) is_head: bool,
    /// The client waits for 100, which has not been sent.
    pub(crate) expects: bool,
    /// The shell has body bytes to send.
    pub(crate) is_ready: bool,
    pub(crate) priority: Priority,
    /// When it last had its turn to send, as the [`Schedule`](crate::schedule::Schedule) counts.
    pub(crate) turn: u64,
    /// Its place in the queue of the schedule.
    pub(crate) rank: Option<u64>,
    /// How much we may send.
    pub(crate) send_window: i64,
    /// How much the client may send.
    pub(crate) receive_window: u32,
    /// How much was consumed and not acknowledged yet.
    pub(crate) owed: u32,
    /// How large the receive window is meant to be.
    pub(crate) window: u32,
    /// How much was sent since the window deadline was set.
    pub(crate) progress: u32,
    /// How many bytes `Content-Length` says are still to come.
    pub(crate) missing: Option<u64>,
    /// How many bytes the shell will take.
    pub(crate) allowance: u64,
    /// Body bytes that came before they were wanted.
    pub(crate) stored: Vec<u8>,
    /// Since when the handler cannot take more of the body.
    pub(crate) held: Option<Moment>,
    /// By when body bytes must come.
    pub(crate) read_at: Option<Moment>,
    /// By when the body must be quicker, whatever comes.
    pub(crate) latest: Option<Moment>,
    /// By when the client must have opened the window.
    pub(crate) window_at: Option<Moment>,
    /// The policy of the server or location that was chosen, where it is not the connection's.
    pub(crate) policy: Option<Arc<Policy>>,
}

impl Stream {
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            next_vacant: 0,
            fate: Fate::Open,
            output: Output::Awaited,
            has_ended: false,
            announces_end: false,
            is_listed: false,
            is_head: false,
            expects: false,
            is_ready: false,
            priority: Priority::default(),
            turn: 0,
            rank: None,
            send_window: 0,
            receive_window: 0,
            owed: 0,
            window: 0,
            progress: 0,
            missing: None,
            allowance: 0,
            stored: Vec::new(),
            held: None,
            read_at: None,
            latest: None,
            window_at: None,
            policy: None,
        }
    }

    /// How many more bytes the response has at the most.
    pub(crate) const fn unsent(&self) -> u64 {
        match self.output {
            Output::Exactly(left) => left,
            Output::Stream => u64::MAX,
            Output::Awaited | Output::Ended | Output::Finished | Output::Gone => 0,
        }
    }

    /// The stream is over on the wire: nothing of it is awaited or sent any more.
    pub(crate) fn leave(&mut self) {
        self.output = Output::Gone;
        self.fate = Fate::Discarded;
        self.stored = Vec::new();
        self.announces_end = false;
        debug_assert!(!self.is_ready, "the schedule counts it");
        (self.read_at, self.latest, self.window_at) = (None, None, None);
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
#[derive(Debug)]
pub(crate) struct Streams {
    slots: Vec<Stream>,
    /// The numbers in the slots, for a quick search.
    numbers: Vec<u32>,
    vacant: u16,
    len: u16,
    /// How many of them the shell has ended.
    finished: u16,
    /// Numbers of streams that are over, twice each, plus one where we reset them.
    closed: [u32; CLOSED_COUNT],
    closed_at: u8,
}

const NO_SLOT: u16 = u16::MAX;

impl Default for Streams {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            numbers: Vec::new(),
            vacant: NO_SLOT,
            len: 0,
            finished: 0,
            closed: [0; CLOSED_COUNT],
            closed_at: 0,
        }
    }
}

impl Streams {
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many the shell has not ended.
    pub(crate) const fn running(&self) -> usize {
        (self.len - self.finished) as usize
    }

    /// The shell has ended the stream; what the client still sends on it is thrown away.
    pub(crate) fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.get_mut(id)
            && stream.output != Output::Finished
        {
            stream.leave();
            stream.output = Output::Finished;
            self.finished += 1;
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        let stored: usize = self.slots.iter().map(|stream| stream.stored.capacity()).sum();
        self.slots.capacity() * size_of::<Stream>() + self.numbers.capacity() * 4 + stored
    }

    /// Puts a stream into a vacant slot. There are never more than 16 bits can count: the limit of open streams
    /// is checked before.
    pub(crate) fn insert(&mut self, stream: Stream) -> StreamId {
        let number = stream.number;
        self.len += 1;
        let slot = self.vacant;
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            self.vacant = place.next_vacant;
            *place = stream;
            self.numbers[usize::from(slot)] = number;
            return StreamId { number, slot };
        }
        let slot = self.slots.len() as u16;
        self.slots.push(stream);
        self.numbers.push(number);
        StreamId { number, slot }
    }

    pub(crate) fn remove(&mut self, id: StreamId, closed: Closed) {
        let vacant = self.vacant;
        let Some(stream) = self.get_mut(id) else { return };
        let is_finished = stream.output == Output::Finished;
        *stream = Stream { next_vacant: vacant, ..Stream::new(0) };
        self.finished -= u16::from(is_finished);
        self.numbers[usize::from(id.slot)] = 0;
        self.vacant = id.slot;
        self.len -= 1;
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

    /// Gives back the memory of vacant slots where none is in use.
    pub(crate) fn shrink(&mut self) {
        if self.len == 0 && self.slots.len() > SLOTS_KEPT {
            self.slots.clear();
            self.slots.shrink_to(SLOTS_KEPT);
            self.numbers.clear();
            self.numbers.shrink_to(SLOTS_KEPT);
            self.vacant = NO_SLOT;
        }
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.slots.get(usize::from(id.slot)).filter(|stream| stream.number == id.number)
    }

    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.slots.get_mut(usize::from(id.slot)).filter(|stream| stream.number == id.number)
    }

    /// The open stream of this number, which is not 0.
    pub(crate) fn find(&self, number: u32) -> Option<StreamId> {
        let slot = self.numbers.iter().position(|other| *other == number)?;
        Some(StreamId { number, slot: slot as u16 })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.slots
            .iter()
            .zip(0..)
            .filter(|(stream, _)| stream.number != 0)
            .map(|(stream, slot)| (StreamId { number: stream.number, slot }, stream))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut Stream)> {
        self.slots
            .iter_mut()
            .zip(0..)
            .filter(|(stream, _)| stream.number != 0)
            .map(|(stream, slot)| (StreamId { number: stream.number, slot }, stream))
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
    fn slots_are_used_again_and_old_ids_find_nothing() {
        let mut streams = Streams::default();
        let one = streams.insert(Stream::new(1));
        let three = streams.insert(Stream::new(3));
        assert_eq!(streams.find(3), Some(three));
        streams.remove(one, Closed::Otherwise);
        assert!(streams.get(one).is_none());
        streams.remove(one, Closed::Otherwise);
        assert_eq!(streams.len(), 1);
        let five = streams.insert(Stream::new(5));
        assert_eq!(five.slot, one.slot);
        assert!(streams.get(one).is_none());
        assert_eq!(streams.closed(1), Some(Closed::Otherwise));
        assert_eq!(streams.closed(3), None);
        assert_eq!(streams.iter().count(), 2);
    }

    #[test]
    fn an_idle_connection_keeps_a_few_slots() {
        let mut streams = Streams::default();
        let ids: Vec<_> = (0..100).map(|at| streams.insert(Stream::new(2 * at + 1))).collect();
        for id in ids {
            streams.shrink();
            streams.remove(id, Closed::ByUs);
        }
        streams.shrink();
        assert!(streams.capacity() <= 4 * size_of::<Stream>(), "{}", streams.capacity());
        assert_eq!(streams.closed(199), Some(Closed::ByUs));
        assert_eq!(streams.closed(1), None, "only the last ones are remembered");
        let id = streams.insert(Stream::new(201));
        assert_eq!((id.slot, streams.len()), (0, 1));
    }
}
