//! The order in which streams send (RFC 9218 §10): the next one is found without a scan of the others.
//!
//! A stream is queued while it has body bytes to send and its window is open. Its rank is its place in the queue:
//!
//! | bits | meaning |
//! |---|---|
//! | 61 to 63 | urgency |
//! | 60 | the stream is sequential: it is sent as a whole before the next one of its urgency |
//! | 0 to 59 | the number of a sequential stream; the last turn of an incremental one |

use std::collections::BTreeSet;

use crate::event::StreamId;
use crate::stream::{Stream, Streams};

const URGENCY_SHIFT: u32 = 61;
const SEQUENTIAL: u64 = 1 << 60;

/// The streams with body bytes to send.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Those whose window is open.
    queue: BTreeSet<(u64, StreamId)>,
    /// How many there are, whatever their windows.
    ready: usize,
    /// Twice the number of DATA frames sent: streams that have sent none yet have odd turns between the others.
    turns: u64,
}

impl Schedule {
    /// Whether no stream has body bytes to send.
    pub(crate) const fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// The stream that sends next. Where streams of one urgency are sequential and incremental, the first sequential
    /// one takes turns with all incremental ones.
    pub(crate) fn next<'s>(&self, streams: &'s Streams) -> Option<(StreamId, &'s Stream)> {
        let found = |entry: &(u64, StreamId)| Some((entry.1, streams.get(entry.1)?));
        let first = self.queue.first()?;
        let urgency = first.0 >> URGENCY_SHIFT;
        let (first_id, first_stream) = found(first)?;
        if first.0 & SEQUENTIAL != 0 {
            return Some((first_id, first_stream));
        }
        let lowest = urgency << URGENCY_SHIFT | SEQUENTIAL;
        let sequential = self.queue.range(entry(lowest)..).next();
        let sequential = sequential.filter(|entry| entry.0 >> URGENCY_SHIFT == urgency);
        match sequential.and_then(found) {
            Some((id, stream)) if stream.turn <= first_stream.turn => Some((id, stream)),
            _ => Some((first_id, first_stream)),
        }
    }

    /// Notes whether a stream has body bytes to send. One that has sent none yet comes behind the first of the queue,
    /// or behind the next one where the first has sent none, either: a short response does not wait for a round of
    /// long ones, and a long one does not wait for all short ones that come.
    pub(crate) fn set_ready(&mut self, id: StreamId, stream: &mut Stream, is_ready: bool) {
        if stream.is_ready == is_ready {
            return;
        }
        if is_ready && stream.turn == 0 {
            let lowest = u64::from(stream.priority.urgency) << URGENCY_SHIFT;
            let incremental = entry(lowest)..entry(lowest | SEQUENTIAL);
            let first = self.queue.range(incremental).next();
            stream.turn = first.map_or(self.turns, |(rank, _)| (rank - lowest + 1) | 1);
        }
        stream.is_ready = is_ready;
        self.ready = if is_ready { self.ready + 1 } else { self.ready - 1 };
        self.update(id, stream);
    }

    /// A stream has sent a DATA frame: the others have their turns first.
    pub(crate) fn has_sent(&mut self, id: StreamId, stream: &mut Stream) {
        self.turns += 2;
        stream.turn = self.turns;
        self.update(id, stream);
    }

    /// Puts a stream where it belongs after a change of its window, its priority or its last turn.
    pub(crate) fn update(&mut self, id: StreamId, stream: &mut Stream) {
        let rank = (stream.is_ready && stream.send_window > 0).then(|| {
            let urgency = u64::from(stream.priority.urgency) << URGENCY_SHIFT;
            let is_sequential = stream.priority.is_sequential();
            urgency | if is_sequential { SEQUENTIAL | u64::from(id.number) } else { stream.turn }
        });
        if stream.rank != rank {
            if let Some(rank) = std::mem::replace(&mut stream.rank, rank) {
                self.queue.remove(&(rank, id));
            }
            self.queue.extend(rank.map(|rank| (rank, id)));
        }
    }

    /// Gives back memory; no stream is queued.
    pub(crate) fn shrink(&mut self) {
        debug_assert!(self.queue.is_empty() && self.ready == 0);
        self.queue = BTreeSet::new();
    }

    /// How much memory it holds beside itself.
    pub(crate) fn capacity(&self) -> usize {
        self.queue.len() * size_of::<(u64, StreamId)>()
    }
}

/// The lowest entry of a rank.
const fn entry(rank: u64) -> (u64, StreamId) {
    (rank, StreamId { number: 0, slot: 0 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::priority::Priority;

    /// The next stream to send, found by a scan of all streams.
    fn scanned(streams: &Streams) -> Option<StreamId> {
        let able = || streams.iter().filter(|(_, it)| it.is_ready && it.send_window > 0);
        let urgency = able().map(|(_, it)| it.priority.urgency).min()?;
        let among = |is_sequential| {
            able().filter(move |(_, it)| {
                it.priority.urgency == urgency && it.priority.is_sequential() == is_sequential
            })
        };
        let incremental = among(false).min_by_key(|(id, it)| (it.turn, id.number));
        let sequential = among(true).min_by_key(|(id, _)| id.number);
        match (incremental, sequential) {
            (Some(one), Some(other)) if one.1.turn < other.1.turn => Some(one.0),
            (one, other) => other.or(one).map(|(id, _)| id),
        }
    }

    proptest! {
        #[test]
        fn the_next_stream_is_that_of_a_scan(steps in prop::collection::vec((0_u8..6, any::<u8>()), 1..200)) {
            let (mut streams, mut schedule) = (Streams::default(), Schedule::default());
            let mut number = 1;
            for (step, which) in steps {
                let count = streams.iter().count();
                let id = streams.iter().nth(usize::from(which) % count.max(1)).map(|(id, _)| id);
                match (step, id) {
                    (0, _) | (_, None) => {
                        let priority = Priority {
                            urgency: which & 3,
                            is_incremental: which & 4 != 0,
                            is_given: which & 8 != 0,
                        };
                        streams.insert(Stream { priority, send_window: 1, ..Stream::new(number) });
                        number += 2;
                    }
                    (1, Some(id)) => {
                        if let Some(stream) = streams.get_mut(id) {
                            schedule.set_ready(id, stream, which & 16 == 0);
                        }
                    }
                    (2, Some(id)) => {
                        if let Some(stream) = streams.get_mut(id) {
                            stream.send_window = i64::from(which % 5) - 1;
                            schedule.update(id, stream);
                        }
                    }
                    (3, Some(id)) => {
                        if let Some(stream) = streams.get_mut(id) {
                            stream.priority.urgency = which >> 6;
                            schedule.update(id, stream);
                        }
                    }
                    (_, Some(_)) => {
                        if let Some(id) = scanned(&streams) && let Some(stream) = streams.get_mut(id) {
                            schedule.has_sent(id, stream);
                        }
                    }
                }
                let next = schedule.next(&streams).map(|(id, _)| id);
                prop_assert_eq!(next, scanned(&streams));
                let ready = streams.iter().filter(|(_, it)| it.is_ready).count();
                prop_assert_eq!(schedule.is_empty(), ready == 0);
            }
        }
    }
}
