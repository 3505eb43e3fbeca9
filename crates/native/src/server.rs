//! The server's side of one native session, as an [`Engine`]. Ties frames, handshake, slots and credit to
//! the session's [`Stay`], which alone knows which requests owe an answer and what a shutdown waits for.
//!
//! What the handlers say comes in as commands, what they must know goes out as events. Output gathers in
//! the scratch; an answer counts as sent when the transport has taken its last byte.

mod answer;
mod body;
mod deadlines;
mod due;
mod receive;
mod slots;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sekisho_lifecycle::session::Manner;
use sekisho_lifecycle::stay::{Fact, Illegal, Order, Refusal};
use sekisho_lifecycle::{
    CloseReason, Deadline, Engine, Moment, Request, RequestId, RequestTable, Session, Stage, Stay,
    Step,
};

pub use answer::{AcquireError, AnswerError, WriteError, Written};

use self::slots::BySlot;
use crate::channel::Purse;
use crate::code::Code;
use crate::event::{Event, Scratch};
use crate::frame::{self, Head, Kind};
use crate::handshake::{VERSION, Version};
use crate::message::{self, Bye, Failure, Welcome};
use crate::policy::{Agreed, Policy};
use crate::reader::Reader;
use crate::violation::Violation;

/// How far the session has come.
///
/// ```text
///            HELLO            admit
///  Greeting ───────▶ Deciding ──────▶ Open
///     │                 │ refuse       │ BYE
///     └──── BYE ────────┴──────────────┴──▶ Over
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The handshake is awaited.
    Greeting,
    /// The shell finds out which peer it is, and whether it is admitted. That takes time, and has a deadline.
    Deciding(Agreed),
    /// Requests are taken.
    Open,
    /// `BYE` is on its way, or there is no peer to send it to: input is thrown away.
    Over(CloseReason),
}

/// What is known here of a request; the rest is in the `Stay`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Its number.
    pub id: RequestId,
    /// The client's number for it.
    pub slot: u16,
    /// Which service it is for.
    pub service: u32,
    /// When it was complete.
    pub since: Moment,
    /// The credit of its channel, as long as the client reads it.
    purse: Option<Purse>,
    /// What the record costs that its producer waits to send, and in which channel.
    waits_for: Option<(u8, u32)>,
    /// Its service waits for more of its body.
    waits_for_body: bool,
    /// How many channels it has had.
    channels: u16,
    /// Until then its caller waits for the answer.
    pub deadline: Option<Moment>,
}

/// The server's side of a session.
#[derive(Debug)]
pub struct Server {
    policy: Arc<Policy>,
    agreed: Agreed,
    phase: Phase,
    stage: Stage,
    reader: Reader,
    stay: Stay,
    lanes: RequestTable<Lane>,
    /// The slots in use.
    slots: BySlot<RequestId>,
    /// What the client said about its next request.
    options: Option<Box<(u16, message::RequestOptions)>>,
    /// The bodies that are not complete, by slot: also of requests that are over, until their client knows.
    bodies: BySlot<body::Inbound>,
    /// The channels that requests have besides their first, as long as the client reads them.
    side_channels: BTreeMap<(RequestId, u8), Purse>,
    /// Until when callers wait, the first first; and the requests whose callers waited long enough.
    request_deadlines: BTreeSet<(Moment, RequestId)>,
    overdue: Vec<RequestId>,
    /// How many channels are read, and how many producers wait for the client.
    channels: u32,
    waiting: usize,
    /// Events that did not come from input.
    events: VecDeque<Event>,
    orders: Vec<Order>,
    /// A record was not taken because so much waits to leave: its producer is woken when there is room.
    has_writers_waiting: bool,
    /// Answers on their way, and where in the output each one ends.
    leaving: VecDeque<(u64, RequestId)>,
    /// All that was ever put out, and what of it the transport took.
    written: u64,
    sent: u64,
    /// The part of it that is more than a sign of life.
    traffic_written: u64,
    /// All that was taken in, and when the last of it came.
    received: u64,
    heard_at: Moment,
    ping: due::Ping,
    /// Why the session will end, as far as is known.
    ending: Option<Box<Ending>>,
    /// The `BYE` frame, until it has been written.
    bye: Option<Box<Bye>>,
    has_input_ended: bool,
    handshake_at: Option<Moment>,
    send_at: Option<Moment>,
    life_at: Option<Moment>,
    drain_at: Option<Moment>,
    drain_time: DrainTime,
    linger_at: Option<Moment>,
}

/// How much of the drain timeout a client has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct DrainTime {
    /// What is left of it while no request waits for the client; `None` is all of it.
    left: Option<Duration>,
    /// What the client has taken since it got the whole of it.
    taken: u32,
}

/// Why a session ends, for us and for the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ending {
    reason: CloseReason,
    code: u32,
    text: &'static str,
}

impl Lane {
    /// Whether it waits for its client.
    const fn waits(&self) -> bool {
        self.waits_for.is_some() || self.waits_for_body
    }
}

impl Server {
    /// A peer that has just connected: its handshake is awaited.
    pub fn new(policy: Arc<Policy>, now: Moment) -> Self {
        Self {
            agreed: Agreed::new(&policy, 0, 0),
            phase: Phase::Greeting,
            stage: Stage::Open,
            reader: Reader::default(),
            stay: Stay::new(policy.requests_max),
            lanes: RequestTable::new(),
            slots: BySlot::default(),
            options: None,
            bodies: BySlot::default(),
            side_channels: BTreeMap::new(),
            request_deadlines: BTreeSet::new(),
            overdue: Vec::new(),
            channels: 0,
            waiting: 0,
            events: VecDeque::new(),
            orders: Vec::new(),
            has_writers_waiting: false,
            leaving: VecDeque::new(),
            written: 0,
            sent: 0,
            traffic_written: 0,
            received: 0,
            heard_at: now,
            ping: due::Ping::Quiet,
            ending: None,
            bye: None,
            has_input_ended: false,
            handshake_at: policy.handshake_timeout.map(|timeout| now + timeout),
            send_at: None,
            life_at: None,
            drain_at: None,
            drain_time: DrainTime::default(),
            linger_at: None,
            policy,
        }
    }

    /// The peer may come in, as this session.
    pub fn admit(&mut self, session: u64, scratch: &mut Scratch, now: Moment) {
        let Phase::Deciding(agreed) = self.phase else { return };
        self.agreed = agreed;
        self.phase = Phase::Open;
        self.handshake_at = None;
        self.live(now);
        let welcome = Welcome {
            major: VERSION.major,
            minor: agreed.minor,
            session,
            frame_bytes_max: agreed.frame_bytes_max,
            requests_max: self.policy.requests_max,
            channel_bytes: agreed.channel_bytes,
            session_timeout_millis: self
                .policy
                .session_timeout
                .map_or(0, |timeout| timeout.as_millis() as u64),
            keepalive_millis: agreed
                .keepalive
                .map_or(0, |every| u32::try_from(every.as_millis()).unwrap_or(u32::MAX)),
            drains_at_end: agreed.drains_at_end,
        };
        self.put(scratch, now, |out| message::write(out, Kind::Welcome, 0, &welcome));
        // A vacant session may be connected: this pair is in the table.
        self.tell_quietly(Fact::Connected, now);
    }

    /// The peer may not come in.
    pub fn refuse(&mut self, code: Code, text: &str) {
        let reason = match code {
            Code::ResourceLimitReached => CloseReason::TooMany,
            _ => CloseReason::NotAdmitted,
        };
        if matches!(self.phase, Phase::Greeting | Phase::Deciding(..)) {
            self.say_bye(reason, code.number(), text);
        }
    }

    /// Events that did not come from input; [`receive`](Engine::receive) gives them as well, before it takes
    /// anything.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The server wants the session to end.
    pub fn shut_down(&mut self, manner: Manner, now: Moment) {
        let (reason, text) = match manner {
            Manner::Graceful => (CloseReason::Draining, "the session was shut down"),
            Manner::Forceful => (CloseReason::Forced, "the session was shut down by force"),
        };
        let ending = Ending { reason, code: Code::SessionClosed.number(), text };
        match self.phase {
            Phase::Open => self.end_by(manner, ending, now),
            Phase::Greeting | Phase::Deciding(..) => self.say_bye(reason, ending.code, text),
            Phase::Over(_) => {}
        }
    }

    /// What the peer was admitted for has been withdrawn: the session ends gracefully, and the peer is told this.
    pub fn withdraw(&mut self, text: &'static str, now: Moment) {
        if self.phase == Phase::Open {
            let code = Code::AuthenticationError.number();
            let ending = Ending { reason: CloseReason::Withdrawn, code, text };
            self.end_by(Manner::Graceful, ending, now);
        }
    }

    /// The transport failed, or was taken away.
    pub fn transport_lost(&mut self, reason: CloseReason, now: Moment) {
        if let Stage::Closed(_) = self.stage {
            return;
        }
        let reason = match self.phase {
            Phase::Over(reason) => reason,
            _ => reason,
        };
        let was_open = self.phase == Phase::Open;
        self.phase = Phase::Over(reason);
        self.close(reason);
        if was_open {
            self.tell_quietly(Fact::TransportLost, now);
        }
        // What the transport did not take is thrown away; those answers count as sent already.
        self.leaving.clear();
    }

    /// The listener's side collects what is left; says whether nothing was.
    pub fn reclaim(&mut self, now: Moment) -> bool {
        if self.stay.session() == Session::Vacant {
            return true;
        }
        self.stay.is_reclaimable() && self.tell_quietly(Fact::Reclaimed, now)
    }

    /// The session as the lifecycle knows it.
    pub const fn stay(&self) -> &Stay {
        &self.stay
    }

    /// What is known of each request beyond that, in the order of their numbers.
    pub const fn lanes(&self) -> &RequestTable<Lane> {
        &self.lanes
    }

    /// Whether the request is cancelled.
    pub fn is_cancelled(&self, id: RequestId) -> bool {
        self.stay.requests().get(id).is_none_or(|entry| entry.cancelled.is_some())
    }

    /// Whether this channel of the request is open and the client reads it.
    pub fn is_wanted(&self, id: RequestId, channel: u8) -> bool {
        let entry = self.stay.requests().get(id);
        entry.is_some_and(|entry| entry.state == Request::ChannelOpen && !entry.is_answered)
            && (channel == 0 || self.side_channels.contains_key(&(id, channel)))
    }

    /// The service that a request for a name was found to be for.
    pub fn set_service(&mut self, id: RequestId, service: u32) {
        if let Some(lane) = self.lanes.get_mut(id) {
            lane.service = service;
        }
    }

    /// How many bytes were taken from the peer, and how many it took from us.
    pub const fn moved(&self) -> (u64, u64) {
        (self.received, self.sent)
    }

    /// The longest record and the longest result.
    pub const fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// Whether the peer has not sent its greeting.
    pub fn is_greeting(&self) -> bool {
        self.phase == Phase::Greeting && self.stage == Stage::Open
    }

    /// Whether the peer has sent its greeting, and the shell has not decided on it.
    pub const fn is_deciding(&self) -> bool {
        matches!(self.phase, Phase::Deciding(..))
    }

    /// Whether there may be something to read; if not, it may wait in the transport. While the shell decides on a
    /// peer its bytes are not taken, but its end is noticed: the shell reads as far as it has room.
    pub fn wants_input(&self) -> bool {
        !self.has_input_ended && !matches!(self.stage, Stage::Closed(_)) && !self.is_full()
    }

    /// Whether so much waits to leave that nothing more is taken in.
    fn is_full(&self) -> bool {
        self.stage == Stage::Open && self.written - self.sent >= self.policy.output_bytes_max
    }

    /// There is room for records again: waiting producers try again.
    fn wake_writers(&mut self) {
        if !self.has_writers_waiting || self.is_full() {
            return;
        }
        self.has_writers_waiting = false;
        let open = self.lanes.iter().filter(|lane| lane.purse.is_some());
        let open: Vec<RequestId> = open.map(|lane| lane.id).collect();
        for id in open {
            self.wait_may_be_over(id);
            self.events.push_back(Event::ChannelMoved(id));
        }
    }

    /// A producer waits for its client until it may spend so much in this channel.
    fn wait_for_client(&mut self, id: RequestId, channel: u8, cost: u32) {
        self.change_waiting(id, |lane| lane.waits_for = Some((channel, cost)));
    }

    /// A producer does not wait any more.
    fn wait_is_over(&mut self, id: RequestId) {
        self.change_waiting(id, |lane| lane.waits_for = None);
    }

    /// The same, if what it has covers what it waits to send.
    fn wait_may_be_over(&mut self, id: RequestId) {
        let Some(lane) = self.lanes.get(id) else { return };
        let Some((channel, cost)) = lane.waits_for else { return };
        if self.purse(id, channel).is_none_or(|purse| purse.credit() >= cost) {
            self.wait_is_over(id);
        }
    }

    /// Changes what a request waits for, and counts the requests that wait for their client.
    fn change_waiting(&mut self, id: RequestId, change: impl FnOnce(&mut Lane)) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        let before = lane.waits();
        change(lane);
        match (before, lane.waits()) {
            (false, true) => self.waiting += 1,
            (true, false) => self.waiting -= 1,
            _ => {}
        }
    }

    /// The credit of a channel, as long as the client reads it.
    fn purse(&self, id: RequestId, channel: u8) -> Option<&Purse> {
        match channel {
            0 => self.lanes.get(id)?.purse.as_ref(),
            _ => self.side_channels.get(&(id, channel)),
        }
    }

    /// The same, to change it.
    fn purse_mut(&mut self, id: RequestId, channel: u8) -> Option<&mut Purse> {
        match channel {
            0 => self.lanes.get_mut(id)?.purse.as_mut(),
            _ => self.side_channels.get_mut(&(id, channel)),
        }
    }

    /// Tells the session what happened and does what comes of it. The answer is there for
    /// `Order::SendAnswer`.
    fn tell(
        &mut self,
        fact: Fact,
        answer: Option<answer::Answer<'_>>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<AdmitResult>, Illegal> {
        let mut orders = std::mem::take(&mut self.orders);
        orders.clear();
        orders.reserve_exact(2);
        let told = self.stay.after(fact, &mut orders);
        let (mut admitted, mut closed) = (None, None);
        for order in orders.drain(..) {
            match order {
                Order::Allocate | Order::ReleaseSlot | Order::AdoptChannel(_) => {}
                Order::Admit(id) => admitted = Some(AdmitResult::Admitted(id)),
                Order::Refuse(refusal) => admitted = Some(AdmitResult::Refused(refusal)),
                Order::SendAnswer(id) => self.put_answer(id, answer, scratch, now),
                Order::AnswerUnknown(id) => {
                    let text = "the service gave no answer";
                    let failure = Failure::new(Code::Unknown, text);
                    self.put_answer(id, Some(answer::Answer::Error(&failure)), scratch, now);
                }
                Order::DiscardAnswer(id) => {
                    self.forget_deadline(id);
                    self.discard_body(id);
                    self.free_slot_if_over(id);
                }
                Order::CloseChannel(id) => {
                    self.put_released(id, scratch, now);
                    closed = Some(id);
                }
                Order::DropChannel(id) => {
                    self.drop_purse(id);
                    self.events.push_back(Event::ChannelMoved(id));
                    self.free_slot_if_over(id);
                }
                Order::Cancel(id, cause) => self.events.push_back(Event::Cancelled(id, cause)),
                Order::Report(id, bug) => self.events.push_back(Event::Bug(id, bug)),
                Order::ReleaseRequest(id) => self.remove_lane(id),
                Order::ReleaseWorker => self.leave(),
            }
        }
        self.orders = orders;
        if let Fact::ResponseSent(id) = fact {
            self.free_slot_if_over(id);
        }
        if let Some(id) = closed {
            self.drain_at_end(id, now);
        }
        self.arm_drain(now);
        told.map(|()| admitted)
    }

    /// The same for facts that put nothing out; says whether the session's tables have it.
    fn tell_quietly(&mut self, fact: Fact, now: Moment) -> bool {
        let mut nothing = Scratch::default();
        let told = self.tell(fact, None, &mut nothing, now);
        debug_assert!(nothing.out.is_empty(), "{fact:?} puts something out");
        told.is_ok()
    }

    /// Asks the stay for the end of the session, for this reason.
    fn end_by(&mut self, manner: Manner, ending: Ending, now: Moment) {
        // A cause that the client must know of, such as a withdrawn password, stays when force follows.
        let closed = Code::SessionClosed.number();
        let has_cause = self.ending.as_deref().is_some_and(|it| it.code != 0 && it.code != closed);
        // Force may follow grace; a repeat changes nothing (L10).
        if !has_cause && (self.stay.asked() < Some(manner) || self.ending.is_none()) {
            self.ending = Some(Box::new(ending));
        }
        // Whatever the session's state: a pair that is not there changes nothing.
        self.tell_quietly(Fact::ShutdownAsked(manner), now);
    }

    /// The session has come to its end in order.
    fn leave(&mut self) {
        if self.phase != Phase::Open {
            return;
        }
        let code = Code::SessionClosed.number();
        let ending = self.ending.as_deref().copied().unwrap_or(Ending {
            reason: CloseReason::Draining,
            code,
            text: "",
        });
        self.say_bye(ending.reason, ending.code, ending.text);
    }

    /// The peer broke the protocol: it gets `BYE` with the reason, and the session ends as if the peer had
    /// been lost.
    fn fail(&mut self, violation: Violation, reason: CloseReason, now: Moment) {
        let was_open = self.phase == Phase::Open;
        self.say_bye(reason, violation.code().number(), &violation.to_string());
        if was_open {
            self.tell_quietly(Fact::TransportLost, now);
            self.leaving.clear();
        }
    }

    /// The `BYE` frame, which is written when the engine is next offered input: some calls that end a
    /// session, such as a deadline, have no output at hand.
    fn say_bye(&mut self, reason: CloseReason, code: u32, text: &str) {
        self.phase = Phase::Over(reason);
        self.reader = Reader::default();
        (self.handshake_at, self.life_at, self.drain_at) = (None, None, None);
        let text = message::fitting(text).to_owned();
        let Version { major, minor } = VERSION;
        self.bye = Some(Box::new(Bye { code, text, major, minor }));
    }

    fn close(&mut self, reason: CloseReason) {
        self.stage = Stage::Closed(reason);
        (self.handshake_at, self.send_at, self.life_at) = (None, None, None);
        (self.drain_at, self.linger_at) = (None, None);
        self.reader = Reader::default();
    }

    /// Once all has left, `BYE` included: our side ends, and the peer is given a moment to end its own.
    fn settle(&mut self, now: Moment) {
        let Phase::Over(reason) = self.phase else { return };
        if self.stage != Stage::Open || self.bye.is_some() || self.sent < self.written {
            return;
        }
        if self.has_input_ended {
            return self.close(reason);
        }
        self.stage = Stage::Lingering;
        self.linger_at = Some(now + self.policy.linger_timeout);
    }

    /// Writes output, unless `BYE` was written: nothing follows that, whatever handlers still do.
    fn put(&mut self, scratch: &mut Scratch, now: Moment, write: impl FnOnce(&mut Vec<u8>)) {
        if self.phase == Phase::Open {
            self.put_any(scratch, now, write);
        }
    }

    /// Writes output; the deadline for it runs from now on.
    fn put_any(&mut self, scratch: &mut Scratch, now: Moment, write: impl FnOnce(&mut Vec<u8>)) {
        if self.stage != Stage::Open {
            return;
        }
        let before = scratch.out.len();
        write(&mut scratch.out);
        self.written += (scratch.out.len() - before) as u64;
        self.traffic_written = self.written;
        match self.send_at {
            None => self.send_at = self.send_by(now),
            Some(at) if self.is_last() => self.send_at = self.send_by(now).map(|by| by.min(at)),
            Some(_) => {}
        }
    }

    fn put_bare(&mut self, head: Head, scratch: &mut Scratch, now: Moment) {
        self.put(scratch, now, |out| frame::write(out, head, &[]));
    }
}

/// What became of a request that came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AdmitResult {
    Admitted(RequestId),
    Refused(Refusal),
}

impl Engine for Server {
    type Event = Event;
    type Scratch = Scratch;

    fn receive(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
        if input.is_empty() && self.is_at_rest() {
            return Step::NOTHING;
        }
        self.put_due(scratch, now);
        if let Some(event) = self.events.pop_front() {
            return Step { taken: 0, event: Some(event) };
        }
        match (self.stage, self.phase) {
            (Stage::Closed(_) | Stage::Lingering, _) | (_, Phase::Over(_)) => {
                Step { taken: input.len(), event: None }
            }
            (Stage::Open, Phase::Deciding(..)) => Step::NOTHING,
            (Stage::Open, Phase::Greeting | Phase::Open) if self.is_full() => {
                self.reader.hold();
                Step::NOTHING
            }
            (Stage::Open, Phase::Greeting | Phase::Open) => {
                let step = self.take(input, scratch, now);
                if step.taken > 0 {
                    self.received += step.taken as u64;
                    self.heard(now);
                }
                step
            }
        }
    }

    fn input_ended(&mut self, now: Moment) -> Option<Event> {
        if std::mem::replace(&mut self.has_input_ended, true) {
            return None;
        }
        match (self.stage, self.phase) {
            (Stage::Closed(_), _) => {}
            (Stage::Lingering, Phase::Over(reason)) => self.close(reason),
            (_, Phase::Over(_)) => self.settle(now),
            (_, Phase::Greeting | Phase::Deciding(..)) => {
                let has_begun = self.phase != Phase::Greeting || self.reader.is_inside();
                let reason =
                    if has_begun { CloseReason::PeerClosedEarly } else { CloseReason::PeerClosed };
                self.phase = Phase::Over(reason);
                self.close(reason);
            }
            // A client keeps its side open until it has our `BYE` (L12).
            (_, Phase::Open) => {
                let reason = if self.stay.running() > 0 || self.reader.is_inside() {
                    CloseReason::PeerClosedEarly
                } else {
                    CloseReason::PeerClosed
                };
                self.transport_lost(reason, now);
            }
        }
        self.events.pop_front()
    }

    fn transmitted(&mut self, moved: u64, pending: bool, now: Moment) {
        if self.stage != Stage::Open {
            return;
        }
        let before = self.sent;
        self.sent =
            if pending { self.sent.saturating_add(moved).min(self.written) } else { self.written };
        // A `PING` that the peer's system takes is no traffic.
        if moved > 0 && self.phase == Phase::Open && before < self.traffic_written {
            self.live(now);
        }
        self.send_at = match self.send_at {
            _ if !pending => None,
            Some(at) if moved == 0 => Some(at),
            _ => self.send_by(now),
        };
        self.answers_left(now);
        self.wake_writers();
        self.arm_drain(now);
        self.settle(now);
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.deadlines().into_iter().flatten().min_by_key(|deadline| deadline.at)
    }

    fn expire(&mut self, now: Moment) -> Option<Event> {
        self.expire_due(now);
        self.events.pop_front()
    }

    fn stage(&self) -> Stage {
        self.stage
    }
}
