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

use crate::channel::{Ledger, Purse, cost};
use crate::code::Code;
use crate::event::{ClientEvent as Event, Scratch};
use crate::frame::{self, Form, Head, Kind, Side};
use crate::message::{
    self, Bye, Extension, Failure, Hello, RequestOptions, SERVICE_NAME_BYTES_MAX, Shutdown, Welcome,
};
use crate::policy::{Agreed, Policy};
use crate::reader::{Part, Reader};
use crate::server::Written;
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
#[derive(Clone, PartialEq, Eq, Debug)]
struct PendingRequest {
    state: Request,
    ledger: Option<Ledger>,
    /// The channels after the first.
    side: Vec<SideChannel>,
    /// What may be sent of its body, while that is not ended.
    body: Option<Purse>,
    is_body_stopped: bool,
}

/// A channel besides a request's first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SideChannel {
    ledger: Ledger,
    is_released: bool,
    is_drained: bool,
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
    /// The server speaks 1.0, which has no options of requests.
    Unsupported,
}

/// Why a part of a body was not taken, and never will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataError {
    /// The request is over, or its body was ended.
    NotOpen,
    /// It is longer than a part may be.
    TooLarge,
    /// The server wants no more of it. The request goes on.
    Stopped,
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
        self.request_with(service, body, &RequestOptions::default(), scratch, now)
    }

    /// The same with options, where the server knows them (1.1).
    pub fn request_with(
        &mut self,
        service: u32,
        body: &[u8],
        options: &RequestOptions,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<u16, RequestError> {
        if self.phase != Phase::Open {
            return Err(RequestError::NotOpen);
        }
        if self.agreed.minor == 0 && *options != RequestOptions::default() {
            return Err(RequestError::Unsupported);
        }
        if options.service.len() > SERVICE_NAME_BYTES_MAX {
            return Err(RequestError::TooLarge);
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
        let pending = PendingRequest {
            state: Request::Processing,
            ledger: None,
            side: Vec::new(),
            body: options.body_follows.then(|| Purse::new(self.agreed.channel_bytes)),
            is_body_stopped: false,
        };
        self.exchanges[usize::from(slot)] = Some(pending);
        if *options != RequestOptions::default() {
            self.put(scratch, now, |out| message::write(out, Kind::Options, slot, options));
        }
        let head = Head { word: service, ..Head::of_slot(Kind::Request, slot) };
        self.put(scratch, now, |out| frame::write(out, head, body));
        Ok(slot)
    }

    /// Asks for a request to be cancelled. It still gives its one answer.
    pub fn cancel(&mut self, slot: u16, scratch: &mut Scratch, now: Moment) {
        if self.pending(slot).is_some_and(|pending| pending.state.is_running()) {
            self.put_bare(Head::of_slot(Kind::Cancel, slot), scratch, now);
            // After that, the server does not take it for the whole body.
            self.end_data(slot, scratch, now);
        }
    }

    /// Sends one more part of a request's body, if there is credit for it.
    pub fn data(
        &mut self,
        slot: u16,
        part: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Written, DataError> {
        let max = self.agreed.record_bytes_max() as usize;
        let pending = self.pending_mut(slot).ok_or(DataError::NotOpen)?;
        if pending.is_body_stopped {
            return Err(DataError::Stopped);
        }
        let purse = pending.body.as_mut().ok_or(DataError::NotOpen)?;
        if part.len() > max {
            return Err(DataError::TooLarge);
        }
        if !purse.spend(cost(part.len())) {
            return Ok(Written::Full);
        }
        let head = Head::of_slot(Kind::Data, slot);
        self.put(scratch, now, |out| frame::write(out, head, part));
        Ok(Written::Sent)
    }

    /// The body is complete; says whether it was not before.
    pub fn end_data(&mut self, slot: u16, scratch: &mut Scratch, now: Moment) -> bool {
        let pending = self.pending_mut(slot);
        if pending.is_none_or(|pending| pending.body.take().is_none()) {
            return false;
        }
        self.put_bare(Head::of_slot(Kind::DataEnd, slot), scratch, now);
        self.free_if_over(slot);
        true
    }

    /// Asks whether the server is there; its answer has the same number.
    pub fn ping(&mut self, number: u32, scratch: &mut Scratch, now: Moment) -> bool {
        let may = self.agreed.minor > 0 && matches!(self.phase, Phase::Open | Phase::Closing);
        if may {
            let head = Head { word: number, ..Head::of_slot(Kind::Ping, 0) };
            self.put_bare(head, scratch, now);
        }
        may
    }

    /// The application took a record of so many bytes from a channel: the producer may send more.
    pub fn taken(
        &mut self,
        slot: u16,
        channel: u8,
        record_bytes: usize,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        let Some(pending) = self.pending_mut(slot) else { return };
        // After the last record there is nothing to give credit for.
        let is_open = pending.is_read(channel);
        let Some(ledger) = pending.ledger_mut(channel) else { return };
        if let Some(word) = ledger.taken(cost(record_bytes))
            && is_open
        {
            let head = Head { word, ..Head::of_channel(Kind::Credit, slot, channel) };
            self.put_bare(head, scratch, now);
        }
    }

    /// No more records of one of the further channels are wanted.
    pub fn drained_side(&mut self, slot: u16, channel: u8, scratch: &mut Scratch, now: Moment) {
        let Some(pending) = self.pending_mut(slot) else { return };
        let is_read = pending.is_read(channel);
        if let Some(side) = pending.side_mut(channel) {
            side.is_drained = true;
            if is_read {
                self.put_bare(Head::of_channel(Kind::Drained, slot, channel), scratch, now);
            }
        }
    }

    /// The client has taken all of all channels, or wants no more.
    pub fn drained(&mut self, slot: u16, scratch: &mut Scratch, now: Moment) {
        let is_released = self.pending(slot).is_some_and(|it| !it.state.has_open_channel());
        if self.step(slot, Fact::ChannelDrained).is_some() {
            // The server knows it from the channel's end, where that was agreed upon.
            if !(is_released && self.agreed.drains_at_end) {
                self.put_bare(Head::of_slot(Kind::Drained, slot), scratch, now);
            }
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

    /// Asks for a longer life.
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

    /// Bytes of the channels that have come and have not been taken.
    pub fn held(&self, slot: u16) -> u32 {
        let Some(pending) = self.pending(slot) else { return 0 };
        let first = pending.ledger.as_ref().map_or(0, Ledger::held);
        first + pending.side.iter().map(|side| side.ledger.held()).sum::<u32>()
    }

    fn pending_mut(&mut self, slot: u16) -> Option<&mut PendingRequest> {
        self.exchanges.get_mut(usize::from(slot))?.as_mut()
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
        let is_over =
            |pending: &PendingRequest| pending.state == Request::Finished && pending.body.is_none();
        if self.pending(slot).is_some_and(is_over) {
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
        if !kind.is_sent_by(Side::Server) {
            return Err(Violation::WrongDirection(kind));
        }
        match (self.phase, kind) {
            (Phase::Greeting, Kind::Welcome) | (_, Kind::Bye) => {}
            (Phase::Greeting, kind) => return Err(Violation::NotGreeted(kind)),
            (_, Kind::Welcome) => return Err(Violation::GreetedTwice),
            _ => {}
        }
        if kind.minor() > self.agreed.minor {
            return Err(Violation::NotNegotiated(kind));
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
        if head.channel > 0 {
            return pending.check_side(head, self.agreed.minor);
        }
        pending.state.after(fact).map(|_| ()).map_err(|_| Violation::OutOfOrder(kind, slot))
    }

    fn check_record(&self, head: Head) -> Result<(), Violation> {
        let slot = head.slot;
        let pending = self.pending(slot).ok_or(Violation::NoSuchRequest(slot))?;
        let ledger = pending.ledger(head.channel).filter(|_| pending.is_open(head.channel));
        match (pending.state.has_open_channel(), ledger) {
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
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Violation> {
        let payload = &input[range.clone()];
        let (slot, channel) = (head.slot, head.channel);
        let malformed = Violation::Malformed(head.kind);
        Ok(match head.kind {
            Kind::Welcome => {
                let welcome = Welcome::decode(payload).map_err(|_| malformed)?;
                self.phase = Phase::Open;
                self.handshake_at = None;
                self.requests_max = welcome.requests_max.max(1);
                self.agreed = self.agreed.welcomed(&welcome);
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
                self.answered(slot, scratch, now);
                Some(Event::Result { slot, body: range })
            }
            Kind::Error => {
                let Failure { code, text } = Failure::decode(payload).map_err(|_| malformed)?;
                self.answered(slot, scratch, now);
                Some(Event::Error { slot, code: Code::of_number(code), text })
            }
            Kind::Acquired => {
                let ledger = Ledger::new(self.agreed.channel_bytes);
                if channel == 0 {
                    self.step(slot, Fact::ChannelAcquired);
                }
                if let Some(pending) = self.pending_mut(slot) {
                    if channel == 0 {
                        pending.ledger = Some(ledger);
                    } else {
                        let side = SideChannel { ledger, is_released: false, is_drained: false };
                        pending.side.push(side);
                    }
                }
                Some(Event::Acquired { slot, channel })
            }
            Kind::Released => {
                if channel == 0 {
                    self.step(slot, Fact::ChannelReleased);
                } else if let Some(side) =
                    self.pending_mut(slot).and_then(|pending| pending.side_mut(channel))
                {
                    side.is_released = true;
                }
                Some(Event::Released { slot, channel })
            }
            Kind::Record => {
                let pending = self.pending_mut(slot).ok_or(Violation::NoSuchRequest(slot))?;
                if let Some(ledger) = pending.ledger_mut(channel) {
                    // Looked at when the head came.
                    ledger.arrived(cost(head.length as usize));
                }
                // Records that were on their way when the channel was drained are thrown away.
                Some(if pending.is_read(channel) {
                    Event::Record { slot, channel, body: range }
                } else {
                    Event::Discarded
                })
            }
            Kind::DataCredit => {
                // After the end of a body, credit is void: the server could not know.
                let purse = self.pending_mut(slot).and_then(|pending| pending.body.as_mut());
                let Some(purse) = purse else { return Ok(None) };
                if !purse.earn(head.word) {
                    return Err(Violation::TooMuchCredit(slot));
                }
                Some(Event::DataMoved { slot })
            }
            Kind::DataStop => {
                let pending = self.pending_mut(slot).filter(|pending| pending.body.is_some());
                let Some(pending) = pending else { return Ok(None) };
                pending.is_body_stopped = true;
                self.end_data(slot, scratch, now);
                Some(Event::DataStopped { slot })
            }
            Kind::Ping => {
                let pong = Head { word: head.word, ..Head::of_slot(Kind::Pong, 0) };
                self.put_bare(pong, scratch, now);
                None
            }
            Kind::Pong => Some(Event::Pong(head.word)),
            kind => return Err(Violation::WrongDirection(kind)),
        })
    }

    /// Whether the pieces of this frame are wanted.
    fn is_wanted(&self, head: Head) -> bool {
        head.kind != Kind::Record
            || self.pending(head.slot).is_some_and(|pending| pending.is_read(head.channel))
    }

    /// The one answer came. What is left of the body is not wanted any more.
    fn answered(&mut self, slot: u16, scratch: &mut Scratch, now: Moment) {
        self.step(slot, Fact::ResultSent);
        if !self.end_data(slot, scratch, now) {
            self.free_if_over(slot);
        }
    }

    fn broken(&mut self, violation: Violation) -> Event {
        self.close(CloseReason::OutOfSync);
        Event::Broken(violation)
    }
}

impl PendingRequest {
    fn side(&self, channel: u8) -> Option<&SideChannel> {
        self.side.get(usize::from(channel).checked_sub(1)?)
    }

    fn side_mut(&mut self, channel: u8) -> Option<&mut SideChannel> {
        self.side.get_mut(usize::from(channel).checked_sub(1)?)
    }

    fn ledger(&self, channel: u8) -> Option<Ledger> {
        if channel == 0 { self.ledger } else { self.side(channel).map(|side| side.ledger) }
    }

    fn ledger_mut(&mut self, channel: u8) -> Option<&mut Ledger> {
        if channel == 0 {
            return self.ledger.as_mut();
        }
        self.side_mut(channel).map(|side| &mut side.ledger)
    }

    /// Whether its producer has not ended this channel; the first is looked at in the table.
    fn is_open(&self, channel: u8) -> bool {
        channel == 0 || self.side(channel).is_some_and(|side| !side.is_released)
    }

    /// Whether its producer has not ended this channel, and the application reads it.
    fn is_read(&self, channel: u8) -> bool {
        let is_drained = self.side(channel).is_some_and(|side| side.is_drained);
        self.state == Request::ChannelOpen && self.is_open(channel) && !is_drained
    }

    /// Whether one of the further channels may begin or end here.
    fn check_side(&self, head: Head, minor: u32) -> Result<(), Violation> {
        let Head { kind, slot, channel, .. } = head;
        let is_next = usize::from(channel) == self.side.len() + 1;
        let fits = match kind {
            Kind::Acquired => is_next,
            _ => self.side(channel).is_some_and(|side| !side.is_released),
        };
        match self.state.has_open_channel() {
            _ if minor == 0 => Err(Violation::ReservedBits),
            true if fits => Ok(()),
            true => Err(Violation::NoSuchChannel(slot, channel)),
            false => Err(Violation::OutOfOrder(kind, slot)),
        }
    }
}

impl Engine for Client {
    type Event = Event;
    type Scratch = Scratch;

    fn receive(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
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
            Part::Whole(head, range) => match self.frame(head, input, range, scratch, now) {
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
