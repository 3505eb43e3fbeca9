//! One request from its head to its last byte, whatever the protocol: head, routing result, body in, response
//! out, the task that works on it, its pace and what the log wants to know. A connection has one for each request
//! in work and none while it is idle; the worker keeps used ones for later.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use sekisho_handler::limits::ConnectionPermit;
use sekisho_handler::{Outbox, Piece, Task};
use sekisho_http::slots::slot;
use sekisho_http::{Fields, Head, Status};
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment, RequestId, Share};
use sekisho_route::{RequestIdSeed, RouteState, SentFraming};

use crate::buffers::KEEP_BYTES;
use crate::client_body::ClientBody;
use crate::pace::Pace;
use crate::subrequest::RequestTree;
use crate::worker::BoundSite;

/// A request in work.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub(crate) struct Exchange {
    /// Which request of the connection.
    pub(crate) id: RequestId,
    /// Shared with what reports errors of its handler, which may outlive it.
    pub(crate) head: Rc<Head>,
    /// What the router has made of it.
    pub(crate) route: RouteState,
    /// Under which configuration, and with which id in the logs; set by its first answer.
    pub(crate) accepted: Option<Accepted>,
    /// The response's field lines.
    pub(crate) fields: Fields,
    /// The first path that was not found.
    pub(crate) failed_path: Vec<u8>,
    pub(crate) arrival: Arrival,
    /// How many bytes of this request have been taken.
    pub(crate) received: u64,
    /// The permits of `limit_conn` that it holds, until it is over.
    pub(crate) permits: Vec<ConnectionPermit>,
    /// What was asked before the decision had to wait.
    pub(crate) waited: Waited,
    /// The status of its answer; nginx's 499 until there is one.
    pub(crate) status: Status,
    pub(crate) head_bytes: u64,
    /// How its answer was framed; `None` before it has begun.
    pub(crate) framing: Option<SentFraming>,
    pub(crate) body_bytes: u64,
    /// How long the body was before it was compressed.
    pub(crate) plain_bytes: Option<u64>,
    /// The fields that follow its body; `None` where it has none.
    pub(crate) trailers: Option<Box<Fields>>,
    /// How fast the answer may leave, where that is limited.
    pub(crate) pace: Option<Pace>,
    /// What leaves after the output: files, and what comes between and after them.
    pub(crate) pieces: VecDeque<Piece>,
    /// How much of the first piece has left, where it is in memory.
    pub(crate) piece_sent: u64,
    /// The memory of pieces that a task has made (O9).
    pub(crate) share: Option<Share>,
    /// Whether files may leave unread (`sendfile`).
    pub(crate) sends_files: bool,
    /// Whether files are read beside the event loop in any case (`aio threads`).
    pub(crate) reads_beside: bool,
    /// The handler at work on it, where that takes time.
    pub(crate) task: Option<Box<dyn Task>>,
    /// Where the task puts what it makes.
    pub(crate) outbox: Outbox,
    /// Where the request's body is.
    pub(crate) client_body: ClientBody,
    /// What the task has not taken of the request's body.
    pub(crate) body: Vec<u8>,
    pub(crate) has_body_ended: bool,
    /// The task has no room for more of the body.
    pub(crate) awaits_room: bool,
    pub(crate) is_task_held: bool,
    /// An operator wants it to end.
    pub(crate) is_cancelled: bool,
    /// What it shares with requests within it, where there are any.
    pub(crate) tree: Option<Rc<RequestTree>>,
    /// It has its one ending: logged, and nothing more is done for it.
    pub(crate) is_over: bool,
}

/// How a request came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrival {
    /// When its first byte was seen.
    pub(crate) since: Moment,
    /// Whether it was behind another request in what was read.
    pub(crate) is_pipelined: bool,
}

/// What a request is served under.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) bound_site: Rc<BoundSite>,
    pub(crate) request_id: RequestIdSeed,
}

/// What was asked before a decision had to wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waited {
    /// The client's own request, to which the body belongs.
    pub(crate) is_request: bool,
    /// What a failed handler left, whose fields belong to the answer.
    pub(crate) has_failed: bool,
}

/// nginx's number for a client that left before it had an answer.
const CLIENT_CLOSED: Status = Status::CLIENT_CLOSED_REQUEST;

impl Default for Exchange {
    fn default() -> Self {
        Self {
            id: RequestId(0),
            head: Rc::default(),
            route: RouteState::default(),
            accepted: None,
            fields: Fields::new(),
            failed_path: Vec::new(),
            arrival: Arrival::default(),
            received: 0,
            permits: Vec::new(),
            waited: Waited::default(),
            status: CLIENT_CLOSED,
            head_bytes: 0,
            framing: None,
            body_bytes: 0,
            plain_bytes: None,
            trailers: None,
            pace: None,
            pieces: VecDeque::new(),
            piece_sent: 0,
            share: None,
            sends_files: true,
            reads_beside: false,
            task: None,
            outbox: Outbox::default(),
            client_body: ClientBody::default(),
            body: Vec::new(),
            has_body_ended: false,
            awaits_room: false,
            is_task_held: false,
            is_cancelled: false,
            tree: None,
            is_over: false,
        }
    }
}

impl Exchange {
    /// Makes it ready for another request; `false` when it is not worth keeping.
    pub(crate) fn tidy(&mut self) -> bool {
        // One client's head must never be taken for another's.
        match Rc::get_mut(&mut self.head) {
            Some(head) => head.clear(),
            None => self.head = Rc::default(),
        }
        self.accepted = None;
        self.permits.clear();
        self.status = CLIENT_CLOSED;
        (self.head_bytes, self.body_bytes, self.plain_bytes) = (0, 0, None);
        self.framing = None;
        self.trailers = None;
        self.tree = None;
        self.pace = None;
        self.pieces.clear();
        self.piece_sent = 0;
        self.share = None;
        self.drop_task();
        self.client_body = ClientBody::default();
        self.outbox.fields.clear();
        self.outbox.trailers = None;
        self.outbox.is_kept = false;
        self.is_cancelled = false;
        self.is_over = false;
        self.memory_bytes() <= size_of::<Self>() + KEEP_BYTES
    }

    /// What it holds in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.head.capacity()
            + self.body.capacity()
            + self.outbox.body.capacity()
            + self.outbox.fields.capacity()
            + self.fields.capacity()
            + self.pieces.capacity() * size_of::<Piece>()
    }

    /// The same at the end of a turn, without what is in the budget already. Room without bytes is given back where memory is
    /// used up (O9).
    pub(crate) fn hold(&mut self, is_full: bool) -> usize {
        if is_full && self.outbox.body.is_empty() {
            self.outbox.body = Vec::new();
        }
        self.memory_bytes() + if self.share.is_none() { self.piece_bytes() } else { 0 }
    }

    /// The memory of its pieces.
    pub(crate) fn piece_bytes(&self) -> usize {
        let made = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.capacity(),
            Piece::Shared(_) | Piece::Static(_) | Piece::File(..) => 0,
        };
        self.pieces.iter().map(made).sum()
    }

    /// What works on it, for the live view.
    pub(crate) fn handler(&self) -> &'static str {
        match (&self.task, self.pieces.is_empty()) {
            (Some(task), _) => task.name(),
            (None, false) => "file",
            (None, true) => "answer",
        }
    }

    /// Drops the task; if it is not done, that cancels it.
    pub(crate) fn drop_task(&mut self) {
        if let Some(task) = self.task.take() {
            task.describe_upstream(&mut self.route.upstream);
            task.describe_body(&mut self.route.body);
            self.route.upstream.settled = self.route.upstream.tries.len();
        }
        self.body.clear();
        self.outbox.body.clear();
        self.has_body_ended = false;
        self.awaits_room = false;
        self.is_task_held = false;
    }

    /// Whether a task works on it that has no use without the client: a program, an upstream (C6).
    pub(crate) fn stops_with_client(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.stops_with_client())
    }

    /// Its own earliest deadline. A pause that we make ourselves (`limit_rate`) has its own kind.
    pub(crate) fn next_deadline(&self) -> Option<Deadline> {
        let task = self.task.as_ref().and_then(|task| task.next_deadline());
        let pace = self.pace.as_ref().and_then(Pace::resumes);
        let pace = pace.map(|at| Deadline { at, kind: DeadlineKind::Rate });
        task.into_iter().chain(pace).min_by_key(|deadline| deadline.at)
    }
}

/// A list of requests that is empty keeps an index of so many slots.
const SLOTS_KEPT: usize = 16;

/// The requests of a connection that are in work. HTTP/1 has at most one, which needs no list.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    first: Option<Box<Exchange>>,
    more: Option<Box<More>>,
}

/// All requests in work but one.
#[derive(Debug, Default)]
struct More {
    #[expect(clippy::vec_box, reason = "they come from a pool of boxes and go back there")]
    list: Vec<Box<Exchange>>,
    /// The index of each in the list, by the slot of its stream. Entries of requests that are over stay behind.
    by_slot: Vec<u16>,
}

impl More {
    fn find(&self, id: RequestId) -> Option<usize> {
        let at = usize::from(*self.by_slot.get(usize::from(slot(id)))?);
        self.list.get(at).is_some_and(|exchange| exchange.id == id).then_some(at)
    }

    /// Notes where the exchange at this index is, after it was put there.
    fn note(&mut self, at: usize) {
        let slot = usize::from(slot(self.list[at].id));
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, u16::MAX);
        }
        self.by_slot[slot] = at as u16;
    }

    fn note_all(&mut self) {
        (0..self.list.len()).for_each(|at| self.note(at));
    }
}

impl Exchanges {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.others().is_empty()
    }

    fn others(&self) -> &[Box<Exchange>] {
        self.more.as_ref().map_or(&[], |more| &more.list)
    }

    /// Adds one; returns its index, which is valid until another one is removed.
    pub(crate) fn add(&mut self, exchange: Box<Exchange>) -> usize {
        if self.first.is_none() {
            self.first = Some(exchange);
            return 0;
        }
        let more = self.more.get_or_insert_default();
        more.list.push(exchange);
        more.note(more.list.len() - 1);
        more.list.len()
    }

    /// The places that may be taken.
    pub(crate) fn places(&self) -> Range<usize> {
        usize::from(self.first.is_none())..self.others().len() + 1
    }

    /// Those before this place come first when the last one is begun with the next time; indices are void.
    pub(crate) fn turn_round(&mut self, at: usize) {
        let Some(more) = &mut self.more else { return };
        // The first one has a place of its own: it takes part by changing places.
        if let Some(first) = &mut self.first
            && let Some(other) = at.checked_sub(1).and_then(|at| more.list.get_mut(at))
        {
            std::mem::swap(first, other);
            more.list[..at].rotate_right(1);
        }
        let had_turn = if self.first.is_some() { at } else { at.saturating_sub(1) };
        let count = had_turn.min(more.list.len());
        more.list.rotate_left(count);
        more.note_all();
    }

    /// The index of the request with this id.
    pub(crate) fn find(&self, id: RequestId) -> Option<usize> {
        if self.first.as_ref().is_some_and(|exchange| exchange.id == id) {
            return Some(0);
        }
        self.more.as_ref()?.find(id).map(|at| at + 1)
    }

    /// The one at a place.
    pub(crate) fn get(&self, at: usize) -> Option<&Exchange> {
        match at.checked_sub(1) {
            None => self.first.as_deref(),
            Some(at) => self.others().get(at).map(|exchange| &**exchange),
        }
    }

    /// The same, to work on.
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Exchange> {
        match at.checked_sub(1) {
            None => self.first.as_deref_mut(),
            Some(at) => self.more.as_mut()?.list.get_mut(at).map(|exchange| &mut **exchange),
        }
    }

    /// Removes the one at this index; the indices of others may change.
    pub(crate) fn remove(&mut self, at: usize) -> Option<Box<Exchange>> {
        let Some(at) = at.checked_sub(1) else { return self.first.take() };
        let more = self.more.as_mut().filter(|more| at < more.list.len())?;
        let removed = more.list.swap_remove(at);
        let last = more.list.len();
        if let Some(moved) = more.list.get(at) {
            let place = &mut more.by_slot[usize::from(slot(moved.id))];
            // The slot may have a new stream before the exchange of the last one is gone.
            if usize::from(*place) == last {
                *place = at as u16;
            }
        } else if more.list.is_empty() && more.by_slot.len() > SLOTS_KEPT {
            self.more = None;
        }
        Some(removed)
    }

    /// Their number.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others().len()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Exchange> {
        self.first.iter().chain(self.others()).map(|exchange| &**exchange)
    }

    /// All of them, to work on.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Exchange> {
        let more = self.more.as_mut().map_or(&mut [][..], |more| &mut more.list);
        self.first.iter_mut().chain(more).map(|exchange| &mut **exchange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The id of a stream of HTTP/3, in a slot of its own; even numbers: of HTTP/2.
    fn id(number: u64) -> RequestId {
        let slot = number as u16;
        match number % 2 {
            0 => sekisho_http::StreamId { number: number as u32, slot }.into(),
            _ => sekisho_http::StreamId { number: 4 * number, slot }.into(),
        }
    }

    fn exchange(number: u64) -> Box<Exchange> {
        Box::new(Exchange { id: id(number), ..Exchange::default() })
    }

    #[test]
    fn requests_are_found_by_their_id_wherever_they_stand() {
        let mut exchanges = Exchanges::default();
        assert!(exchanges.is_empty() && exchanges.places().is_empty());
        for number in 1..=40 {
            exchanges.add(exchange(number));
        }
        for number in [1, 40, 20, 2] {
            let removed = exchanges.find(id(number)).and_then(|at| exchanges.remove(at));
            assert_eq!(removed.map(|exchange| exchange.id), Some(id(number)));
        }
        exchanges.add(exchange(0x1_0014));
        exchanges.turn_round(7);
        for number in (3..=39).filter(|number| *number != 20).chain([0x1_0014]) {
            let at = exchanges.find(id(number)).expect("it is there");
            assert_eq!(exchanges.get(at).map(|exchange| exchange.id), Some(id(number)));
        }
        for number in [1, 2, 20, 40, 41] {
            assert_eq!(exchanges.find(id(number)), None);
        }
        assert_eq!(exchanges.iter().count(), 37);
        while let Some(at) = exchanges.places().find(|at| exchanges.get(*at).is_some()) {
            exchanges.remove(at);
        }
        assert!(exchanges.is_empty());
    }

    #[test]
    fn every_exchange_has_its_turn_though_each_takes_all_of_it() {
        // E4
        for is_first_gone in [false, true] {
            let mut exchanges = Exchanges::default();
            for id in 1..=5 {
                exchanges.add(exchange(id));
            }
            if is_first_gone {
                exchanges.remove(0);
            }
            let count = exchanges.iter().count();
            let mut had_turn = Vec::new();
            for _ in 0..count {
                let last = exchanges.places().end - 1;
                had_turn.push(exchanges.get(last).expect("it is there").id);
                exchanges.turn_round(last);
            }
            had_turn.sort_unstable();
            had_turn.dedup();
            assert_eq!(had_turn.len(), count, "{had_turn:?}");
        }
    }
}
