//! One HTTP/3 connection: ties streams, frames and QPACK together.
//!
//! Requests come as events and carry the id of their stream; what handlers say comes as calls with that id. Bytes are
//! read when they are wanted and written at once: bodies are never stored here, in either direction. What must happen
//! to a stream and was found out without a [`Quic`] at hand, such as by a fact, waits in `orders`.

mod body;
mod control;
mod deadlines;
mod headers;
mod receive;
mod send;
mod shutdown;

use std::collections::VecDeque;
use std::sync::Arc;

use sekisho_http::priority::URGENCY_DEFAULT;
use sekisho_http::request::Parts;
use sekisho_http::{Schedule, Scratch};
use sekisho_lifecycle::{CloseReason, Moment, Stage};

pub use deadlines::Owner;

use crate::budget::{Bound, Budget};
use crate::code::Code;
use crate::event::{Event, Loss, StreamId};
use crate::frame::{self, setting, stream_kind};
use crate::policy::Policy;
use crate::qpack::{Decoder, Encoder};
use crate::quic::{Acknowledged, Quic};
use crate::stream::{Output, Streams};
use control::{Sender, Uni};

/// How many bytes of acknowledgements may wait for a client that does not let us send them.
const ACKNOWLEDGEMENT_BYTES_MAX: usize = 4096;
/// The priority of the control and QPACK streams: above every response.
const CONTROL_PRIORITY: i32 = 16;

/// How far a graceful end has come (M2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drain {
    /// Not requested.
    No,
    /// The first GOAWAY was sent; requests that the client sent before it knew are still taken.
    Announced(CloseReason),
    /// The second GOAWAY has named the first stream that is not taken.
    Final(CloseReason, u64),
}

/// What must be done to a stream or the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// RESET_STREAM.
    Reset(u64, Code),
    /// STOP_SENDING.
    Stop(u64, Code),
    /// The urgency of a response.
    Urgency(u64, u8),
    /// CONNECTION_CLOSE; nothing follows.
    Close(Code, &'static str),
}

/// An HTTP/3 connection.
#[derive(Debug)]
pub struct Http3 {
    policy: Arc<Policy>,
    stage: Stage,
    drain: Drain,
    /// Our own streams are open.
    has_started: bool,
    streams: Streams,
    /// The client's unidirectional streams.
    unis: Vec<Uni>,
    /// Facts about the client's control stream.
    settings: control::Settings,
    decoder: Decoder,
    encoder: Encoder,
    budget: Budget,
    events: VecDeque<Event>,
    orders: Vec<Order>,
    /// Streams that the client reads no further, with their codes.
    stopped: Vec<(u64, u64)>,
    /// How many streams were opened that may not be.
    refused: u32,
    /// Streams with bytes to read.
    readable: VecDeque<StreamId>,
    /// Streams whose header blocks wait for entries of the dynamic table.
    blocked: Vec<StreamId>,
    /// Streams whose header blocks have all entries.
    unblocked: Vec<StreamId>,
    /// Instructions of the client's encoder wait until these were decoded.
    is_encoder_paused: bool,
    /// Streams with bytes of heads that can be written again.
    flushes: Vec<StreamId>,
    /// Streams whose shell has body bytes to send.
    schedule: Schedule<StreamId>,
    /// Responses whose FIN was written since the shell last asked.
    sent: VecDeque<StreamId>,
    acknowledged: Acknowledged,
    /// Responses whose FIN was written and not acknowledged.
    undelivered: u32,
    control: Sender,
    encoder_stream: Sender,
    decoder_stream: Sender,
    /// Room for a head that is being written or received.
    encoded: Vec<u8>,
    text: Vec<u8>,
    parts: Parts,
    /// The first stream that the client has not opened.
    next_stream: u64,
    requests: u64,
    /// Whether something has ended: the connection may be idle, or drained.
    settles: bool,
    header_at: Option<Moment>,
    idle_at: Option<Moment>,
    send_at: Option<Moment>,
    drain_at: Option<Moment>,
}

impl Http3 {
    /// A connection that was just accepted.
    pub fn new(policy: Arc<Policy>, accepted: Moment) -> Self {
        let settings = [
            (setting::QPACK_MAX_TABLE_CAPACITY, policy.table_bytes as u64),
            (setting::MAX_FIELD_SECTION_SIZE, policy.head_bytes_max as u64),
            (setting::QPACK_BLOCKED_STREAMS, policy.blocked_streams_max as u64),
            (setting::ENABLE_CONNECT_PROTOCOL, 1),
        ];
        let mut control = Sender::new(stream_kind::CONTROL);
        frame::write_settings(&mut control.pending, &settings);
        Self {
            stage: Stage::Open,
            drain: Drain::No,
            has_started: false,
            streams: Streams::default(),
            unis: Vec::new(),
            settings: control::Settings::default(),
            decoder: Decoder::new(policy.table_bytes),
            encoder: Encoder::default(),
            budget: Budget::default(),
            events: VecDeque::new(),
            orders: Vec::new(),
            stopped: Vec::new(),
            refused: 0,
            readable: VecDeque::new(),
            blocked: Vec::new(),
            unblocked: Vec::new(),
            is_encoder_paused: false,
            flushes: Vec::new(),
            schedule: Schedule::default(),
            sent: VecDeque::new(),
            acknowledged: Acknowledged::default(),
            undelivered: 0,
            control,
            encoder_stream: Sender::new(stream_kind::ENCODER),
            decoder_stream: Sender::new(stream_kind::DECODER),
            encoded: Vec::new(),
            text: Vec::new(),
            parts: Parts::default(),
            next_stream: 0,
            requests: 0,
            settles: false,
            header_at: policy.header_timeout.map(|timeout| accepted + timeout),
            idle_at: None,
            send_at: None,
            drain_at: None,
            policy,
        }
    }

    /// Opens our control and QPACK streams and sends SETTINGS. Called once, when the handshake allows us to send.
    pub fn start(&mut self, quic: &mut impl Quic) {
        if !std::mem::replace(&mut self.has_started, true) {
            self.put_out(quic);
        }
    }

    /// Whether it has been started: the handshake is over, or early data came.
    pub const fn has_started(&self) -> bool {
        self.has_started
    }

    /// Does what can be done without a new fact: reads streams that are wanted and writes what waits. Returns at most
    /// one event; the head of a request is in `scratch.head`. Called until it returns nothing.
    pub fn poll(
        &mut self,
        quic: &mut impl Quic,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<Event> {
        self.take_facts(now);
        self.flush_heads(quic, now);
        let event = self.next_event(quic, scratch, now);
        if event.is_none() {
            self.acknowledge_inserts();
            self.settle(now);
        }
        self.put_out(quic);
        event.or_else(|| self.events.pop_front())
    }

    fn next_event(
        &mut self,
        quic: &mut impl Quic,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.stage != Stage::Open {
                return None;
            }
            if let Some(id) = self.unblocked.pop() {
                if let Some(event) = self.receive(id, quic, scratch, now) {
                    return Some(event);
                }
                continue;
            }
            if std::mem::take(&mut self.is_encoder_paused) {
                if let Err((code, message)) = self.feed_encoder(&[], now) {
                    self.violation(code, message);
                }
                continue;
            }
            // Entries of the dynamic table come before the header blocks that need them.
            if self.receive_uni(quic, now) {
                continue;
            }
            let id = self.readable.pop_front()?;
            if let Some(event) = self.receive(id, quic, scratch, now) {
                return Some(event);
            }
        }
    }

    /// Whether [`poll`](Self::poll) would do something without a new fact.
    pub fn has_work(&self) -> bool {
        !self.events.is_empty()
            || !self.orders.is_empty()
            || !self.stopped.is_empty()
            || !self.readable.is_empty()
            || !self.unblocked.is_empty()
            || self.is_encoder_paused
            || !self.flushes.is_empty()
            || self.refused > 0
            || self.settles
            || self.unis.iter().any(|uni| uni.is_readable)
            || self.senders().iter().any(|sender| sender.can_write())
    }

    /// The policy after a reload: it holds for requests that come from now on. What was announced in SETTINGS stays.
    pub fn set_base_policy(&mut self, policy: &Arc<Policy>) {
        self.policy = Arc::clone(policy);
    }

    /// The policy of the server or location that was chosen for a stream (T8).
    pub fn set_policy(&mut self, id: StreamId, policy: &Arc<Policy>) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.set_policy(&self.policy, policy);
        }
    }

    /// The policy in effect for a stream.
    pub fn policy(&self, id: StreamId) -> &Arc<Policy> {
        self.streams.get(id).map_or(&self.policy, |stream| stream.policy(&self.policy))
    }

    /// The next stream whose response has left completely since the last call: QUIC has taken its FIN (L5).
    pub fn next_sent(&mut self) -> Option<StreamId> {
        self.sent.pop_front()
    }

    /// Where the session stands.
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether no stream is open and everything has been sent, acknowledged and told.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Open
            && self.streams.is_empty()
            && self.events.is_empty()
            && self.orders.is_empty()
            && self.senders().iter().all(|sender| sender.pending.is_empty())
    }

    /// Whether the client's bytes would be taken.
    pub const fn wants_input(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// How many streams are open: requests that the shell has not ended (p_n).
    pub const fn open_streams(&self) -> usize {
        self.streams.running()
    }

    /// How many requests this connection has seen: heads that were complete and well formed.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// Gives back memory that only a busy connection needs.
    pub fn shrink(&mut self) {
        if self.streams.is_empty() {
            self.streams.shrink();
            self.schedule.shrink();
            (self.readable, self.blocked) = (VecDeque::new(), Vec::new());
            (self.encoded, self.text) = (Vec::new(), Vec::new());
            self.parts = Parts::default();
        }
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        if self.sent.is_empty() {
            self.sent = VecDeque::new();
        }
        if self.orders.is_empty() {
            self.orders = Vec::new();
        }
        (self.flushes, self.stopped) = match (self.flushes.is_empty(), self.stopped.is_empty()) {
            (true, true) => (Vec::new(), Vec::new()),
            _ => (std::mem::take(&mut self.flushes), std::mem::take(&mut self.stopped)),
        };
        self.encoder.shrink();
        for sender in [&mut self.control, &mut self.encoder_stream, &mut self.decoder_stream] {
            sender.shrink();
        }
    }

    /// How much memory the engine holds beside itself.
    pub fn capacity(&self) -> usize {
        self.streams.capacity()
            + self.decoder.capacity()
            + self.encoder.capacity()
            + self.unis.iter().map(Uni::capacity).sum::<usize>()
            + self.unis.capacity() * size_of::<Uni>()
            + self.senders().iter().map(|sender| sender.pending.capacity()).sum::<usize>()
            + self.events.capacity() * size_of::<Event>()
            + self.orders.capacity() * size_of::<Order>()
            + self.readable.capacity() * size_of::<StreamId>()
            + (self.blocked.capacity() + self.flushes.capacity()) * size_of::<StreamId>()
            + self.sent.capacity() * size_of::<StreamId>()
            + self.schedule.capacity()
            + self.encoded.capacity()
            + self.text.capacity()
            + self.parts.capacity()
    }

    const fn senders(&self) -> [&Sender; 3] {
        [&self.control, &self.encoder_stream, &self.decoder_stream]
    }

    /// Carries out the orders and writes to our own streams.
    fn put_out(&mut self, quic: &mut impl Quic) {
        for order in self.orders.drain(..) {
            match order {
                Order::Reset(stream, code) => quic.reset(stream, code.number()),
                Order::Stop(stream, code) => quic.stop_sending(stream, code.number()),
                // 0 is the priority of a stream of which the client says nothing.
                Order::Urgency(stream, urgency) => {
                    quic.set_priority(stream, i32::from(URGENCY_DEFAULT) - i32::from(urgency));
                }
                Order::Close(code, reason) => quic.close(code.number(), reason),
            }
        }
        if self.stage != Stage::Open || !self.has_started {
            return;
        }
        if self.encoder_stream.pending.is_empty() {
            std::mem::swap(&mut self.encoder_stream.pending, &mut self.encoder.instructions);
        }
        let mut is_whole = true;
        for sender in [&mut self.control, &mut self.encoder_stream, &mut self.decoder_stream] {
            is_whole &= sender.write(quic);
        }
        if !is_whole {
            self.violation(Code::ClosedCriticalStream, "client stopped a stream of ours");
            self.put_close(quic);
        } else if self.decoder_stream.pending.len() > ACKNOWLEDGEMENT_BYTES_MAX {
            self.exceed(Bound::Acknowledgements);
            self.put_close(quic);
        }
    }

    /// The connection is over: only its close is left to be sent.
    fn put_close(&mut self, quic: &mut impl Quic) {
        for order in self.orders.drain(..) {
            if let Order::Close(code, reason) = order {
                quic.close(code.number(), reason);
            }
        }
    }

    /// The peer broke the protocol.
    fn violation(&mut self, code: Code, message: &'static str) {
        if self.stage == Stage::Open {
            self.events.push_back(Event::Violation(code, message));
            self.fail(code, message, CloseReason::OutOfSync);
        }
    }

    /// Counts something that brings the peer nothing; beyond the bound the connection ends (M4).
    fn spend(&mut self, bound: Bound, now: Moment) -> bool {
        let rate = self.policy.rate(bound);
        let is_within = self.budget.spend(bound as usize, rate, now);
        if !is_within {
            self.exceed(bound);
        }
        is_within
    }

    fn exceed(&mut self, bound: Bound) {
        if self.stage == Stage::Open {
            self.events.push_back(Event::BoundExceeded(bound));
            self.fail(Code::ExcessiveLoad, bound.tag(), CloseReason::OutOfSync);
        }
    }

    /// Closes the connection; every stream is lost.
    fn fail(&mut self, code: Code, message: &'static str, reason: CloseReason) {
        if self.stage == Stage::Open {
            self.end(reason);
            self.orders.push(Order::Close(code, message));
        }
    }

    /// The connection is over, whether or not the client is told.
    fn end(&mut self, reason: CloseReason) {
        self.stage = Stage::Closed(reason);
        let ids: Vec<StreamId> = self.streams.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.lose(id, Loss::Connection);
        }
        self.undelivered = 0;
        (self.readable, self.blocked) = (VecDeque::new(), Vec::new());
        (self.flushes, self.stopped, self.unis) = (Vec::new(), Vec::new(), Vec::new());
        (self.refused, self.settles) = (0, false);
        (self.header_at, self.idle_at, self.send_at, self.drain_at) = (None, None, None, None);
        self.unblocked.clear();
        self.is_encoder_paused = false;
        for sender in [&mut self.control, &mut self.encoder_stream, &mut self.decoder_stream] {
            *sender = Sender::default();
        }
    }

    /// The stream is over on the wire. Its handler, if there is one, must know; until the shell ends the stream, it
    /// counts as open.
    fn lose(&mut self, id: StreamId, loss: Loss) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        match stream.output {
            _ if stream.is_lost => {}
            Output::Finished => self.remove(id),
            _ if !stream.is_given => self.remove(id),
            _ => {
                self.schedule.set_ready(id, &mut stream.place, false, false);
                stream.is_lost = true;
                // A response that is complete still leaves, though the rest of the request is missing.
                if stream.has_finished && self.stage == Stage::Open {
                    stream.discard();
                } else {
                    stream.leave();
                }
                self.events.push_back(Event::ClientLost(id, loss));
            }
        }
    }

    /// The slot of a stream is vacant from now on.
    fn remove(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id) {
            self.schedule.set_ready(id, &mut stream.place, false, false);
            if stream.has_finished && !stream.is_delivered {
                self.undelivered = self.undelivered.saturating_sub(1);
            }
        }
        self.streams.remove(id);
        self.settles = true;
    }

    /// If all streams are over, the connection is idle, or drained.
    fn settle(&mut self, now: Moment) {
        self.settles = false;
        if self.undelivered == 0 {
            self.send_at = None;
        }
        if self.stage != Stage::Open || !self.streams.is_empty() {
            return;
        }
        match self.drain {
            Drain::Final(reason, _) => self.fail(Code::NoError, "", reason),
            Drain::Announced(_) => {}
            Drain::No => self.arm_idle(now),
        }
    }
}
