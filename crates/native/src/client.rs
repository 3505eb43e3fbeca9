//! The client's side of one native session, as an [`Engine`]. It keeps the same state table for each request
//! as the server does, from the frames it sees; a server that violates the table is not trusted any further.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use sekisho_lifecycle::request::Fact;
use sekisho_lifecycle::{
    CloseReason, Deadline, DeadlineKind, Engine, Manner, Moment, Request, Stage, Step,
};

use crate::channel::{Ledger, cost};
use crate::code::Code;
use crate::event::{ClientEvent as Event, Scratch};
use crate::frame::{self, Form, Head, Kind, Side};
use crate::message::{self, Bye, Extension, Failure, Hello, Shutdown, Welcome};
use crate::policy::{Agreed, CHANNEL_BYTES_MIN, Policy};
use crate::reader::{Part, Reader};
use crate::violation::Violation;

/// How far the session has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// `WELCOME` is awaited.
    Greeting,
    /// Requests can be made.
    Open,
    /// We have asked for the end: requests are not made any more.
    Closing,
    /// It is over.
    Over,
}

/// One exchange, seen from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PendingRequest {
    state: Request,
    ledger: Option<Ledger>,
}

/// The client's side of a session.
#[derive(Debug)]
pub struct Client {
    policy: Arc<Policy>,
    agreed: Agreed,
    requests_max: u32,
    phase: Phase,
    stage: Stage,
    reader: Reader,
    /// By slot.
    exchanges: Vec<Option<PendingRequest>>,
    /// Slots below the length of `exchanges` that are free.
    free: Vec<u16>,
    unsent: bool,
    handshake_at: Option<Moment>,
    send_at: Option<Moment>,
}

/// Why a request cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestError {
    /// The session is not open, or about to end.
    NotOpen,
    /// As many run as may run.
    TooMany,
    /// It is longer than a frame may be.
    TooLarge,
}

impl Client {
    /// A session that begins: the handshake is put out.
    pub fn new(policy: Arc<Policy>, hello: &Hello, scratch: &mut Scratch, now: Moment) -> Self {
        let mut client = Self {
            agreed: Agreed::new(&policy, hello.frame_bytes_max, hello.channel_bytes),
            requests_max: policy.requests_max,
            phase: Phase::Greeting,
            stage: Stage::Open,
            reader: Reader::default(),
            exchanges: Vec::new(),
            free: Vec::new(),
            unsent: false,
            handshake_at: policy.handshake_timeout.map(|timeout| now + timeout),
            send_at: None,
            policy,
        };
        client.put(scratch, now, |out| message::write(out, Kind::Hello, 0, hello));
        client
    }

    /// Makes a request; its slot is its name until it is over.
    pub fn request(
        &mut self,
        service: u32,
        body: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<u16, RequestError> {
        if self.phase != Phase::Open {
            return Err(RequestError::NotOpen);
        }
        if body.len() > self.agreed.frame_bytes_max as usize {
            return Err(RequestError::TooLarge);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.exchanges.len() < self.requests_max.min(1 << 16) as usize => {
                self.exchanges.push(None);
                (self.exchanges.len() - 1) as u16
            }
            None => return Err(RequestError::TooMany),
        };
        let pending = PendingRequest { state: Request::Processing, ledger: None };
        self.exchanges[usize::from(slot)] = Some(pending);
        let head = Head { word: service, ..Head::of_slot(Kind::Request, slot) };
        self.put(scratch, now, |out| frame::write(out, head, body));
        Ok(slot)
    }

    /// Asks for a request to be cancelled. It still gives its one answer (L31).
    pub fn cancel(&mut self, slot: u16, scratch: &mut Scratch, now: Moment) {
        if self.pending(slot).is_some_and(|pending| pending.state.is_running()) {
            self.put_bare(Head::of_slot(Kind::Cancel, slot), scratch, now);
        }
    }

    /// The application took a record of so many bytes: the producer may send more.
    pub fn taken(&mut self, slot: u16, record_bytes: usize, scratch: &mut Scratch, now: Moment) {
        let Some(pending) = self.exchanges.get_mut(usize::from(slot)).and_then(Option::as_mut)
        else {
            return;
        };
        // After the last record there is nothing to give credit for.
        let is_open = pending.state == Request::ChannelOpen;
        let Some(ledger) = pending.ledger.as_mut() else { return };
        if let Some(word) = ledger.taken(cost(record_bytes))
            && is_open
        {
            self.put_bare(Head { word, ..Head::of_slot(Kind::Credit, slot) }, scratch, now);
        }
    }

    /// The client has taken all, or wants no more (L28).
    pub fn drained(&mut self, slot: u16, scratch: &mut Scratch, now: Moment) {
        if self.step(slot, Fact::ChannelDrained).is_some() {
            self.put_bare(Head::of_slot(Kind::Drained, slot), scratch, now);
            self.free_if_over(slot);
        }
    }

    /// Asks for the end of the session. Force may follow grace.
    pub fn shut_down(&mut self, manner: Manner, scratch: &mut Scratch, now: Moment) {
        if matches!(self.phase, Phase::Open | Phase::Closing) {
            self.phase = Phase::Closing;
            let shutdown = Shutdown { forceful: manner == Manner::Forceful };
            self.put(scratch, now, |out| message::write(out, Kind::Shutdown, 0, &shutdown));
        }
    }

    /// Asks for a longer life (E6).
    pub fn extend(&mut self, length: Duration, scratch: &mut Scratch, now: Moment) {
        if matches!(self.phase, Phase::Open | Phase::Closing) {
            let asked = Extension { millis: u64::try_from(length.as_millis()).unwrap_or(u64::MAX) };
            self.put(scratch, now, |out| message::write(out, Kind::Extend, 0, &asked));
        }
    }

    /// The transport failed.
    pub fn transport_lost(&mut self) {
        self.close(CloseReason::TransportLost);
    }

    /// What both sides agreed upon.
    pub const fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// How many slots are in use.
    pub fn in_use(&self) -> usize {
        self.exchanges.len() - self.free.len()
    }

    /// The state of the request in a slot, as the client sees it.
    pub fn state(&self, slot: u16) -> Request {
        self.pending(slot).map_or(Request::Finished, |pending| pending.state)
    }

    /// Bytes of the channel that have come and have not been taken.
    pub fn held(&self, slot: u16) -> u32 {
        let ledger = self.pending(slot).and_then(|pending| pending.ledger.as_ref());
        ledger.map_or(0, Ledger::held)
    }

    fn pending(&self, slot: u16) -> Option<&PendingRequest> {
        self.exchanges.get(usize::from(slot))?.as_ref()
    }

    /// Moves a request as the table says; `None` where the table does not have it.
    fn step(&mut self, slot: u16, fact: Fact) -> Option<Request> {
        let pending = self.exchanges.get_mut(usize::from(slot))?.as_mut()?;
        let (next, _) = pending.state.after(fact).ok()?;
        pending.state = next;
        Some(next)
    }

    fn free_if_over(&mut self, slot: u16) {
        if self.pending(slot).is_some_and(|pending| pending.state == Request::Finished) {
            self.exchanges[usize::from(slot)] = None;
            self.free.push(slot);
        }
    }

    fn put(&mut self, scratch: &mut Scratch, now: Moment, write: impl FnOnce(&mut Vec<u8>)) {
        if self.stage != Stage::Open {
            return;
        }
        write(&mut scratch.out);
        self.unsent = true;
        if self.send_at.is_none() {
            self.send_at = self.policy.send_timeout.map(|timeout| now + timeout);
        }
    }

    fn put_bare(&mut self, head: Head, scratch: &mut Scratch, now: Moment) {
        self.put(scratch, now, |out| frame::write(out, head, &[]));
    }

    fn close(&mut self, reason: CloseReason) {
        if !matches!(self.stage, Stage::Closed(_)) {
            self.stage = Stage::Closed(reason);
        }
        self.phase = Phase::Over;
        (self.handshake_at, self.send_at) = (None, None);
        self.reader = Reader::default();
    }

    fn check(&self, head: Head) -> Result<(), Violation> {
        let Head { kind, slot, length, .. } = head;
        if kind.sender() != Side::Server {
            return Err(Violation::WrongDirection(kind));
        }
        match (self.phase, kind) {
            (Phase::Greeting, Kind::Welcome) | (_, Kind::Bye) => {}
            (Phase::Greeting, kind) => return Err(Violation::NotGreeted(kind)),
            (_, Kind::Welcome) => return Err(Violation::GreetedTwice),
            _ => {}
        }
        let max = self.agreed.frame_bytes_max;
        if kind.form() == Form::Bulk && length > max {
            return Err(Violation::TooLong { length, max });
        }
        // What cannot be is refused before its payload is taken.
        let fact = match kind {
            Kind::Result | Kind::Error => Fact::ResultSent,
            Kind::Acquired => Fact::ChannelAcquired,
            Kind::Released => Fact::ChannelReleased,
            Kind::Record => return self.check_record(head),
            _ => return Ok(()),
        };
        let pending = self.pending(slot).ok_or(Violation::NoSuchRequest(slot))?;
        pending.state.after(fact).map(|_| ()).map_err(|_| Violation::OutOfOrder(kind, slot))
    }

    fn check_record(&self, head: Head) -> Result<(), Violation> {
        let slot = head.slot;
        let pending = self.pending(slot).ok_or(Violation::NoSuchRequest(slot))?;
        match (pending.state.has_open_channel(), pending.ledger) {
            (true, Some(mut ledger)) => {
                let is_paid = ledger.arrived(cost(head.length as usize));
                if is_paid { Ok(()) } else { Err(Violation::CreditExceeded(slot)) }
            }
            _ => Err(Violation::OutOfOrder(Kind::Record, slot)),
        }
    }

    fn frame(
        &mut self,
        head: Head,
        input: &[u8],
        range: Range<usize>,
    ) -> Result<Option<Event>, Violation> {
        let payload = &input[range.clone()];
        let slot = head.slot;
        let malformed = Violation::Malformed(head.kind);
        Ok(match head.kind {
            Kind::Welcome => {
                let welcome = Welcome::decode(payload).map_err(|_| malformed)?;
                self.phase = Phase::Open;
                self.handshake_at = None;
                self.requests_max = welcome.requests_max.max(1);
                self.agreed = Agreed {
                    frame_bytes_max: self.agreed.frame_bytes_max.min(welcome.frame_bytes_max),
                    channel_bytes: welcome.channel_bytes.max(CHANNEL_BYTES_MIN),
                };
                Some(Event::Welcome(welcome))
            }
            Kind::Bye => {
                let bye = Bye::decode(payload).map_err(|_| malformed)?;
                let reason = match self.phase {
                    Phase::Greeting => CloseReason::NotAdmitted,
                    Phase::Closing => CloseReason::ClientAsked,
                    Phase::Open | Phase::Over => CloseReason::Draining,
                };
                self.close(reason);
                Some(Event::Bye(bye))
            }
            Kind::Extended => {
                let given = Extension::decode(payload).map_err(|_| malformed)?;
                Some(Event::Extended { millis: given.millis })
            }
            Kind::Result => {
                self.step(slot, Fact::ResultSent);
                self.free_if_over(slot);
                Some(Event::Result { slot, body: range })
            }
            Kind::Error => {
                let Failure { code, text } = Failure::decode(payload).map_err(|_| malformed)?;
                self.step(slot, Fact::ResultSent);
                self.free_if_over(slot);
                Some(Event::Error { slot, code: Code::of_number(code), text })
            }
            Kind::Acquired => {
                self.step(slot, Fact::ChannelAcquired);
                let ledger = Ledger::new(self.agreed.channel_bytes);
                if let Some(Some(pending)) = self.exchanges.get_mut(usize::from(slot)) {
                    pending.ledger = Some(ledger);
                }
                Some(Event::Acquired { slot })
            }
            Kind::Released => {
                self.step(slot, Fact::ChannelReleased);
                Some(Event::Released { slot })
            }
            Kind::Record => {
                let Some(Some(pending)) = self.exchanges.get_mut(usize::from(slot)) else {
                    return Err(Violation::NoSuchRequest(slot));
                };
                if let Some(ledger) = &mut pending.ledger {
                    // Looked at when the head came.
                    ledger.arrived(cost(head.length as usize));
                }
                // Records that were on their way when the channel was drained are thrown away.
                Some(match pending.state {
                    Request::ChannelOpen => Event::Record { slot, body: range },
                    _ => Event::Discarded,
                })
            }
            kind => return Err(Violation::WrongDirection(kind)),
        })
    }

    /// Whether the pieces of this frame are wanted.
    fn is_wanted(&self, head: Head) -> bool {
        head.kind != Kind::Record || self.state(head.slot) == Request::ChannelOpen
    }

    fn broken(&mut self, violation: Violation) -> Event {
        self.close(CloseReason::OutOfSync);
        Event::Broken(violation)
    }
}

impl Engine for Client {
    type Event = Event;
    type Scratch = Scratch;

    fn receive(&mut self, input: &[u8], _: &mut Scratch, now: Moment) -> Step<Event> {
        if self.stage != Stage::Open {
            return Step { taken: input.len(), event: None };
        }
        let mut reader = self.reader;
        let timeout = self.policy.frame_timeout;
        let next = reader.next(input, now, timeout, |head| self.check(head));
        self.reader = reader;
        let (taken, part) = match next {
            Ok(next) => next,
            Err(violation) => {
                return Step { taken: input.len(), event: Some(self.broken(violation)) };
            }
        };
        let event = match part {
            Part::Nothing => None,
            Part::Piece(head, range) => self.is_wanted(head).then_some(Event::Piece(range)),
            Part::Whole(head, range) => match self.frame(head, input, range) {
                Ok(event) => event,
                Err(violation) => Some(self.broken(violation)),
            },
        };
        Step { taken, event }
    }

    fn input_ended(&mut self, _: Moment) -> Option<Event> {
        if self.stage != Stage::Open {
            return None;
        }
        self.close(CloseReason::TransportLost);
        Some(Event::Lost)
    }

    fn transmitted(&mut self, moved: u64, pending: bool, now: Moment) {
        self.unsent = pending;
        self.send_at = match self.policy.send_timeout {
            Some(timeout) if pending && (moved > 0 || self.send_at.is_none()) => {
                Some(now + timeout)
            }
            _ if pending => self.send_at,
            _ => None,
        };
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let of = |at: Option<Moment>, kind| at.map(|at| Deadline { at, kind });
        [
            of(self.handshake_at, DeadlineKind::Handshake),
            of(self.reader.late_at(), DeadlineKind::Frame),
            of(self.send_at, DeadlineKind::Send),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|deadline| deadline.at)
    }

    fn expire(&mut self, now: Moment) -> Option<Event> {
        let due = self.next_deadline().filter(|deadline| deadline.at.is_due(now))?;
        self.close(CloseReason::Expired(due.kind));
        Some(Event::Lost)
    }

    fn stage(&self) -> Stage {
        self.stage
    }
}
