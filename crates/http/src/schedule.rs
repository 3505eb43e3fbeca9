//! The order in which streams send (RFC 9218 §10): the next one is found without a scan of the others.
//!
//! A stream is queued while it has body bytes to send and can send them. Its rank is its place in the queue:
//!
//! | bits | meaning |
//! |---|---|
//! | 61 to 63 | urgency |
//! | 60 | the stream is sequential: it is sent as a whole before the next one of its urgency |
//! | 0 to 59 | the number of a sequential stream; the last turn of an incremental one |

use std::collections::BTreeSet;

use crate::priority::Priority;

const URGENCY_SHIFT: u32 = 61;
const SEQUENTIAL: u64 = 1 << 60;

/// What the schedule knows of a stream; kept with the stream.
#[derive(Debug)]
pub struct Place {
    /// Where a sequential stream stands among others: the order in which streams were opened.
    number: u64,
    priority: Priority,
    /// The shell has body bytes to send.
    is_ready: bool,
    /// They can be sent: the window is open.
    is_able: bool,
    /// When it last had its turn to send.
    turn: u64,
    /// Its place in the queue.
    rank: Option<u64>,
}

impl Place {
    /// The place of a stream that has nothing to send yet.
    pub const fn new(number: u64, priority: Priority) -> Self {
        Self { number, priority, is_ready: false, is_able: false, turn: 0, rank: None }
    }

    /// Whether the shell has body bytes to send.
    pub const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// What the client said about the response.
    pub const fn priority(&self) -> Priority {
        self.priority
    }
}

/// The streams with body bytes to send. The default of an id is the lowest one.
#[derive(Debug)]
pub struct Schedule<Id> {
    /// Streams that can send.
    queue: BTreeSet<(u64, Id)>,
    /// How many there are, whether they can or not.
    ready: usize,
    /// Twice the number of times that a stream sent: streams that have sent nothing yet have odd turns between the
    /// others.
    turns: u64,
}

impl<Id> Default for Schedule<Id> {
    fn default() -> Self {
        Self { queue: BTreeSet::new(), ready: 0, turns: 0 }
    }
}

impl<Id: Copy + Ord + Default> Schedule<Id> {
    /// Whether no stream has body bytes to send.
    pub const fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// The stream that sends next. Where streams of one urgency are sequential and incremental, the first sequential
    /// one takes turns with all incremental ones.
    pub fn next<'p>(&self, place: impl Fn(Id) -> Option<&'p Place>) -> Option<Id> {
        let &(rank, first) = self.queue.first()?;
        if rank & SEQUENTIAL != 0 {
            return Some(first);
        }
        let urgency = rank >> URGENCY_SHIFT;
        let lowest = urgency << URGENCY_SHIFT | SEQUENTIAL;
        let sequential = self.queue.range(entry(lowest)..).next();
        let sequential = sequential.filter(|entry| entry.0 >> URGENCY_SHIFT == urgency);
        match sequential.map(|entry| entry.1) {
            Some(id) if place(id)?.turn <= place(first)?.turn => Some(id),
            _ => Some(first),
        }
    }

    /// Notes whether a stream has body bytes to send, and can send them. One that has sent none yet comes behind the
    /// first of the queue, or behind the next one where the first has sent none, either: a short response does not
    /// wait for a round of long ones, and a long one does not wait for all short ones that come.
    pub fn set_ready(&mut self, id: Id, place: &mut Place, is_ready: bool, is_able: bool) {
        place.is_able = is_able;
        if place.is_ready != is_ready {
            if is_ready && place.turn == 0 {
                let lowest = u64::from(place.priority.urgency) << URGENCY_SHIFT;
                let incremental = entry(lowest)..entry(lowest | SEQUENTIAL);
                let first = self.queue.range(incremental).next();
                place.turn = first.map_or(self.turns, |(rank, _)| (rank - lowest + 1) | 1);
            }
            place.is_ready = is_ready;
            self.ready = if is_ready { self.ready + 1 } else { self.ready - 1 };
        }
        self.update(id, place);
    }

    /// A stream has sent body bytes, and can send more or not: the others have their turns first.
    pub fn has_sent(&mut self, id: Id, place: &mut Place, is_able: bool) {
        self.turns += 2;
        place.turn = self.turns;
        self.set_able(id, place, is_able);
    }

    /// The window of a stream has been opened, or is used up.
    pub fn set_able(&mut self, id: Id, place: &mut Place, is_able: bool) {
        place.is_able = is_able;
        self.update(id, place);
    }

    /// The client has changed the priority of a response.
    pub fn set_priority(&mut self, id: Id, place: &mut Place, priority: Priority) {
        place.priority = priority;
        self.update(id, place);
    }

    fn update(&mut self, id: Id, place: &mut Place) {
        let rank = (place.is_ready && place.is_able).then(|| {
            let urgency = u64::from(place.priority.urgency) << URGENCY_SHIFT;
            let is_sequential = place.priority.is_sequential();
            urgency | if is_sequential { SEQUENTIAL | place.number } else { place.turn }
        });
        if place.rank != rank {
            if let Some(rank) = std::mem::replace(&mut place.rank, rank) {
                self.queue.remove(&(rank, id));
            }
            self.queue.extend(rank.map(|rank| (rank, id)));
        }
    }

    /// Gives back memory; no stream is queued.
    pub fn shrink(&mut self) {
        debug_assert!(self.queue.is_empty() && self.ready == 0);
        self.queue = BTreeSet::new();
    }

    /// How much memory it holds beside itself.
    pub fn capacity(&self) -> usize {
        self.queue.len() * size_of::<(u64, Id)>()
    }
}

/// The lowest entry of a rank.
fn entry<Id: Default>(rank: u64) -> (u64, Id) {
    (rank, Id::default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The next stream to send, found by a scan of all streams.
    fn scanned(places: &[Place]) -> Option<usize> {
        let able = || places.iter().enumerate().filter(|(_, it)| it.is_ready && it.is_able);
        let urgency = able().map(|(_, it)| it.priority.urgency).min()?;
        let among = |is_sequential| {
            able().filter(move |(_, it)| {
                it.priority.urgency == urgency && it.priority.is_sequential() == is_sequential
            })
        };
        let incremental = among(false).min_by_key(|(_, it)| (it.turn, it.number));
        let sequential = among(true).min_by_key(|(_, it)| it.number);
        match (incremental, sequential) {
            (Some(one), Some(other)) if one.1.turn < other.1.turn => Some(one.0),
            (one, other) => other.or(one).map(|(id, _)| id),
        }
    }

    proptest! {
        #[test]
        fn the_next_stream_is_that_of_a_scan(steps in prop::collection::vec((0_u8..6, any::<u8>()), 1..200)) {
            let (mut places, mut schedule) = (Vec::<Place>::new(), Schedule::<usize>::default());
            for (step, which) in steps {
                let id = usize::from(which) % places.len().max(1);
                match (step, places.get_mut(id)) {
                    (0, _) | (_, None) => {
                        let priority = Priority {
                            urgency: which & 3,
                            is_incremental: which & 4 != 0,
                            is_given: which & 8 != 0,
                        };
                        places.push(Place::new(places.len() as u64, priority));
                    }
                    (1, Some(place)) => {
                        schedule.set_ready(id, place, which & 16 == 0, which & 32 == 0);
                    }
                    (2, Some(place)) => schedule.set_able(id, place, which & 3 != 0),
                    (3, Some(place)) => {
                        let priority = Priority { urgency: which >> 6, ..place.priority };
                        schedule.set_priority(id, place, priority);
                    }
                    (_, Some(_)) => {
                        if let Some(id) = scanned(&places) {
                            schedule.has_sent(id, &mut places[id], which & 64 == 0);
                        }
                    }
                }
                prop_assert_eq!(schedule.next(|id| places.get(id)), scanned(&places));
                let ready = places.iter().filter(|it| it.is_ready).count();
                prop_assert_eq!(schedule.is_empty(), ready == 0);
            }
        }
    }
}
