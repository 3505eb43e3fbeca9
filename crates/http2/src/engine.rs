//! One HTTP/2 connection: ties frames, HPACK, streams and windows into one [`Engine`].
//!
//! Requests come as events and carry the id of their stream; what handlers say comes as calls with that id.
//! Output is pulled: [`Http2::next_sendable`] says which stream may send how much, and the shell frames that much
//! of its body. Output gathers in the scratch; frames that are made without a scratch, such as at a deadline,
//! wait in `control` for the next call that has one.

mod body;
mod deadlines;
mod headers;
mod receive;
mod send;
mod shutdown;

use std::collections::VecDeque;
use std::sync::Arc;

use sekisho_http::Schedule;
use sekisho_lifecycle::{CloseReason, Deadline, Engine, Moment, Stage, Step};

pub use deadlines::Owner;
pub use send::Sendable;

use crate::budget::{Bound, Budget};
use crate::code::Code;
use crate::event::{Event, Loss, Scratch, StreamId};
use crate::frame::{self, MAX_31, PAYLOAD_BYTES_MAX, WINDOW_BYTES};
use crate::hpack::{Decoder, Encoder};
use crate::policy::Policy;
use crate::stream::{Closed, Output, Streams};

/// How many bytes of answers to the peer's control frames may wait before no more input is taken: a peer
/// that floods us and does not read fills its own socket buffer (V10).
pub const CONTROL_BYTES_MAX: usize = 16 * 1024;

/// How far the connection has come.
///
/// ```text
///         first call            preface, SETTINGS          violation, bound, drained, FIN
///  Fresh ───────────▶ Greeting ───────────────────▶ Open ─────────────────────────────────▶ Over
///                         └──────────────── violation, deadline ─────────────────────────────▲
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Our SETTINGS have not been written.
    Fresh,
    /// The client's preface and SETTINGS are awaited.
    Greeting,
    /// Streams are taken.
    Open,
    /// The final GOAWAY has been queued, or cannot be delivered: input is discarded.
    Over(CloseReason),
}

/// What the next bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// The client's preface, from this byte on.
    Preface(u8),
    /// A frame, from its first byte on.
    Frame,
    /// What is left of a DATA frame.
    Data { id: StreamId, left: u32, padding: u8, ends: bool },
    /// So many bytes to discard.
    Skip(u32),
}

/// A header block whose end has not come.
#[derive(Clone, Copy, Debug)]
struct Block {
    stream: u32,
    ends: bool,
    depends_on_itself: bool,
    frames: u32,
}

/// How far a graceful end has come (M2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drain {
    /// Not requested.
    No,
    /// The first GOAWAY was sent; requests that the client sent before it knew are still taken.
    Announced(CloseReason),
    /// The second GOAWAY has named the last stream.
    Final(CloseReason, u32),
}

/// An HTTP/2 connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one connection")]
pub struct Http2 {
    policy: Arc<Policy>,
    phase: Phase,
    stage: Stage,
    drain: Drain,
    reading: Reading,
    block: Option<Block>,
    streams: Streams,
    decoder: Decoder,
    encoder: Encoder,
    budget: Budget,
    /// Events that did not come from input, or came with others.
    events: VecDeque<Event>,
    /// Streams that may have something to tell about their body.
    listed: Vec<StreamId>,
    /// Streams whose shell has body bytes to send.
    schedule: Schedule<StreamId>,
    /// Frames to be sent that were made without a scratch.
    control: Vec<u8>,
    /// Responses on their way, and where in the output each one ends.
    leaving: VecDeque<(u64, StreamId)>,
    /// All that was ever put out, and what of it the transport took.
    written: u64,
    sent: u64,
    /// Bytes of control frames that may not have left yet; those of them behind `control_mark`, an offset in the
    /// output that was its end when the transport last passed it.
    control_bytes: u32,
    control_since: u32,
    control_mark: u64,
    /// The highest stream number that was used.
    last: u32,
    requests: u64,
    /// How much we may send on the connection.
    send_window: i64,
    /// How much the client may send on the connection.
    receive_window: u32,
    /// How much of that came and was not acknowledged yet.
    owed: u32,
    /// How much was sent since the connection's window deadline was set.
    progress: u32,
    peer_window: u32,
    peer_frame_bytes_max: u32,
    /// The window of a new stream, as it was announced.
    stream_window: u32,
    /// The client has acknowledged our SETTINGS.
    is_acknowledged: bool,
    /// Output is waiting to leave.
    unsent: bool,
    /// The client has sent FIN.
    ended: bool,
    header_at: Option<Moment>,
    settings_at: Option<Moment>,
    idle_at: Option<Moment>,
    send_at: Option<Moment>,
    window_at: Option<Moment>,
    drain_at: Option<Moment>,
    /// The end is announced as soon as the client's SETTINGS have come.
    drains_when_open: bool,
    linger_at: Option<Moment>,
    linger_latest: Option<Moment>,
}

impl Http2 {
    /// A connection that was just accepted, or just turned out to be HTTP/2: its preface is awaited.
    pub fn new(policy: Arc<Policy>, now: Moment) -> Self {
        Self {
            phase: Phase::Fresh,
            stage: Stage::Open,
            drain: Drain::No,
            reading: Reading::Preface(0),
            block: None,
            streams: Streams::default(),
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            budget: Budget::default(),
            events: VecDeque::new(),
            listed: Vec::new(),
            schedule: Schedule::default(),
            control: Vec::new(),
            leaving: VecDeque::new(),
            written: 0,
            sent: 0,
            control_bytes: 0,
            control_since: 0,
            control_mark: 0,
            last: 0,
            requests: 0,
            send_window: i64::from(WINDOW_BYTES),
            receive_window: WINDOW_BYTES,
            owed: 0,
            progress: 0,
            peer_window: WINDOW_BYTES,
            peer_frame_bytes_max: PAYLOAD_BYTES_MAX,
            stream_window: policy.stream_window_bytes.min(MAX_31),
            is_acknowledged: false,
            unsent: false,
            ended: false,
            header_at: policy.header_timeout.map(|timeout| now + timeout),
            settings_at: None,
            idle_at: None,
            send_at: None,
            window_at: None,
            drain_at: None,
            drains_when_open: false,
            linger_at: None,
            linger_latest: None,
            policy,
        }
    }

    /// The policy after a reload: it holds for requests that come from now on. What was announced in SETTINGS stays.
    pub fn set_base_policy(&mut self, policy: &Arc<Policy>) {
        self.policy = Arc::clone(policy);
    }

    /// The client has acknowledged bytes since the send deadline was set: it is not silent (T4).
    pub fn acknowledged(&mut self, now: Moment) {
        if self.send_at.is_some() {
            self.send_at = self.send_by(now);
        }
    }

    /// Whether output waits for the transport, and its deadline runs.
    pub const fn has_unsent(&self) -> bool {
        self.send_at.is_some()
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

    /// Events that did not come from input; [`receive`](Engine::receive) gives them as well, before it takes
    /// anything.
    pub fn next_event(&mut self, scratch: &mut Scratch) -> Option<Event> {
        self.events.pop_front().or_else(|| self.next_body_event(scratch))
    }

    /// The next stream whose response has left completely since the last call: its last byte was taken by the
    /// transport (L5). Asked after [`transmitted`](Engine::transmitted).
    pub fn next_sent(&mut self) -> Option<StreamId> {
        match self.leaving.front() {
            Some((end, id)) if *end <= self.sent => {
                let id = *id;
                self.leaving.pop_front();
                Some(id)
            }
            _ => None,
        }
    }

    /// Whether events wait that did not come from input.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.listed.is_empty()
    }

    /// Whether no stream is open, everything has been sent and told, and nothing is half received: the scratch can
    /// be given back.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Open
            && self.streams.running() == 0
            && !self.unsent
            && self.block.is_none()
            && self.control.is_empty()
            && self.events.is_empty()
    }

    /// Whether a head has come in part: the scratch holds its beginning and must be kept.
    pub const fn is_within_head(&self) -> bool {
        self.block.is_some()
    }

    /// Gives back memory that only a busy connection needs. Called when the scratch is given back.
    pub fn shrink(&mut self) {
        if self.streams.is_empty() {
            self.streams.shrink();
            self.listed = Vec::new();
            self.schedule.shrink();
            if self.leaving.is_empty() {
                self.leaving = VecDeque::new();
            }
        }
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        if self.control.is_empty() {
            self.control = Vec::new();
        }
    }

    /// Whether frames wait that were made without a scratch, as at a deadline or when output was sent: the
    /// connection is to be given one.
    pub fn wants_flush(&self) -> bool {
        !self.control.is_empty() && self.stage == Stage::Open
    }

    /// Puts them out; [`receive`](Engine::receive) does so as well.
    pub fn flush(&mut self, scratch: &mut Scratch, now: Moment) {
        self.put_out(scratch.out.len(), scratch, now);
    }

    /// How much memory the engine holds beside itself.
    pub fn capacity(&self) -> usize {
        self.streams.capacity()
            + self.decoder.capacity()
            + self.encoder.capacity()
            + self.events.capacity() * size_of::<Event>()
            + self.listed.capacity() * size_of::<StreamId>()
            + self.schedule.capacity()
            + self.leaving.capacity() * size_of::<(u64, StreamId)>()
            + self.control.capacity()
    }

    /// Whether bytes would be taken; if not, they may wait in the transport.
    pub const fn wants_input(&self) -> bool {
        !self.ended && !matches!(self.stage, Stage::Closed(_)) && !self.is_full()
    }

    /// How many streams are open: requests that the shell has not ended (p_n).
    pub const fn open_streams(&self) -> usize {
        self.streams.running()
    }

    /// How many requests this connection has seen: heads that were complete and well formed.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// How many bytes the output has had, and how many of them the transport took.
    pub const fn moved(&self) -> (u64, u64) {
        (self.written, self.sent)
    }

    /// Ends the connection at once.
    pub fn abort(&mut self, reason: CloseReason) {
        if matches!(self.stage, Stage::Closed(_)) {
            return;
        }
        self.lose_streams();
        self.phase = Phase::Over(reason);
        self.close(reason);
    }

    /// Whether so many answers wait to leave that nothing more is taken in.
    const fn is_full(&self) -> bool {
        self.control_bytes as usize + self.control.len() >= CONTROL_BYTES_MAX
    }

    /// The peer broke the protocol: it gets GOAWAY with the code, and every stream is lost.
    fn fail(&mut self, code: Code, reason: CloseReason) {
        if matches!(self.phase, Phase::Over(_)) {
            return;
        }
        self.lose_streams();
        if self.phase == Phase::Fresh {
            // Nothing has been sent to the peer, and nothing need be.
            return self.close(reason);
        }
        // RFC 9113 §6.8: the last stream of a GOAWAY is never increased.
        let last = match self.drain {
            Drain::Final(_, last) => last,
            Drain::No | Drain::Announced(_) => self.last,
        };
        frame::go_away(&mut self.control, last, code.number());
        self.end(reason);
    }

    /// A violation of the protocol by the connection as a whole.
    fn violation(&mut self, code: Code) {
        self.fail(code, CloseReason::OutOfSync);
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
        if !matches!(self.phase, Phase::Over(_)) {
            self.events.push_back(Event::BoundExceeded(bound));
            self.fail(Code::EnhanceYourCalm, CloseReason::OutOfSync);
        }
    }

    /// Resets a stream for what the client sent on it, whether or not the shell knows it (V8).
    fn stream_violation(&mut self, number: u32, code: Code, now: Moment) {
        if self.spend(Bound::OwnResets, now) {
            self.reset_number(number, code, Loss::Violation);
        }
    }

    /// Writes RST_STREAM; a stream that the shell knows is lost to it.
    fn reset_number(&mut self, number: u32, code: Code, loss: Loss) {
        frame::rst_stream(&mut self.control, number, code.number());
        self.streams.note_closed(number, Closed::ByUs);
        if let Some(id) = self.streams.find(number) {
            self.lose(id, loss);
        }
    }

    /// The stream is over on the wire. Its handler, if there is one, must know; until the shell ends the stream, it
    /// counts as open.
    fn lose(&mut self, id: StreamId, loss: Loss) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        match stream.output {
            Output::Gone => {}
            Output::Finished => self.streams.remove(id, Closed::Otherwise),
            _ => {
                self.schedule.set_ready(id, &mut stream.place, false, false);
                stream.leave();
                self.unready(id);
                self.events.push_back(Event::ClientLost(id, loss));
            }
        }
    }

    fn lose_streams(&mut self) {
        for (id, stream) in self.streams.iter_mut() {
            if !matches!(stream.output, Output::Gone | Output::Finished) {
                self.schedule.set_ready(id, &mut stream.place, false, false);
                stream.leave();
                self.events.push_back(Event::ClientLost(id, Loss::Connection));
            }
        }
    }

    /// Nothing more is written; earlier output is still sent.
    fn end(&mut self, reason: CloseReason) {
        self.phase = Phase::Over(reason);
        self.streams.remove_finished();
        self.block = None;
        self.reading = Reading::Frame;
        (self.header_at, self.settings_at, self.idle_at) = (None, None, None);
        (self.window_at, self.drain_at) = (None, None);
    }

    fn close(&mut self, reason: CloseReason) {
        self.end(reason);
        self.stage = Stage::Closed(reason);
        (self.send_at, self.linger_at, self.linger_latest) = (None, None, None);
        self.control = Vec::new();
        // What the transport did not take is thrown away: those responses are never sent.
        self.leaving.retain(|(end, _)| *end <= self.sent);
        self.unsent = false;
    }

    /// Moves what waited in `control` to the output, and notes how much was written since `before`.
    fn put_out(&mut self, before: usize, scratch: &mut Scratch, now: Moment) {
        if !self.control.is_empty() {
            if matches!(self.stage, Stage::Open) {
                let len = self.control.len() as u32;
                self.control_bytes = self.control_bytes.saturating_add(len);
                self.control_since = self.control_since.saturating_add(len);
                scratch.out.extend_from_slice(&self.control);
            }
            self.control.clear();
        }
        let more = scratch.out.len().saturating_sub(before);
        if more > 0 {
            self.written += more as u64;
            self.note_unsent(now);
        }
    }

    /// If all streams are over and an end is wanted, or the last GOAWAY has been sent, goes on to the next
    /// phase.
    fn settle(&mut self, now: Moment) {
        if self.stage != Stage::Open {
            return;
        }
        if self.phase == Phase::Open && self.streams.running() == 0 {
            match self.drain {
                Drain::Final(reason, _) => self.end(reason),
                _ if self.ended => self.end(CloseReason::PeerClosed),
                Drain::No | Drain::Announced(_) => {
                    if self.settings_at.is_none() {
                        self.arm_settings(now);
                    }
                    self.arm_idle(now);
                }
            }
        }
        let Phase::Over(reason) = self.phase else { return };
        if self.unsent || !self.control.is_empty() {
            return;
        }
        if self.ended {
            return self.close(reason);
        }
        self.stage = Stage::Lingering;
        self.send_at = None;
        self.linger_latest = self.policy.lingering_time.map(|time| now + time);
        self.arm_linger(now);
    }
}

impl Engine for Http2 {
    type Event = Event;
    type Scratch = Scratch;

    fn receive(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
        let before = scratch.out.len();
        let step = self.step(input, scratch, now);
        self.put_out(before, scratch, now);
        if step.is_rest() {
            self.settle(now);
        }
        step
    }

    fn input_ended(&mut self, now: Moment) -> Option<Event> {
        if !self.ended {
            self.ended = true;
            self.end_input();
            match (self.stage, self.phase) {
                (Stage::Lingering, Phase::Over(reason)) => self.close(reason),
                (Stage::Open, Phase::Fresh | Phase::Greeting) => {
                    let reason = match self.reading {
                        Reading::Preface(0) => CloseReason::PeerClosed,
                        _ => CloseReason::PeerClosedEarly,
                    };
                    self.end(reason);
                }
                _ => {}
            }
            self.settle(now);
        }
        self.events.pop_front()
    }

    fn transmitted(&mut self, moved: u64, pending: bool, now: Moment) {
        if matches!(self.stage, Stage::Closed(_)) {
            return;
        }
        self.sent = if pending { self.written.min(self.sent + moved) } else { self.written };
        self.unsent = pending;
        if self.sent >= self.control_mark {
            // A connection that always has output must not count frames that were sent long ago.
            self.control_bytes = self.control_since;
            self.control_since = 0;
            self.control_mark = self.written;
        }
        if pending {
            if moved > 0 || self.send_at.is_none() {
                self.send_at = self.send_by(now);
            }
            return;
        }
        (self.control_bytes, self.control_since) = (0, 0);
        self.send_at = None;
        self.settle(now);
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.next_owned_deadline().map(|(deadline, _)| deadline)
    }

    /// Lets one deadline act; called again until none is due.
    fn expire(&mut self, now: Moment) -> Option<Event> {
        while self.events.is_empty() && self.expire_one(now) {}
        self.settle(now);
        self.events.pop_front()
    }

    fn stage(&self) -> Stage {
        self.stage
    }
}
