//! The client's side of one HTTP/2 connection: a request out, an answer back, one at a time (RFC 9113; U1–U4). The same
//! frames, HPACK and bounds as on the server's side, and the same promise: however the input is cut, the events are the
//! same, and each request has one ending. A cut answer never looks complete: only END_STREAM ends it.

mod receive;
mod request;
mod response;

use sekisho_http::upstream::{
    BodyFault, Event, Failure, HeadFault, NotReusable, Phase, Request, RequestBody, RequestFault,
    Scratch, Timeouts, Timers, UpstreamProtocol,
};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Engine, Moment, Stage, Step};

use crate::budget::{Bound, Budget};
use crate::code::Code;
use crate::frame::{self, HEADER_BYTES, Kind, MAX_31, PAYLOAD_BYTES_MAX, WINDOW_BYTES, flag};
use crate::hpack::{Decoder, Encoder};
use crate::policy::Policy;

/// How much of an answer may be on its way: the window of a stream, and that of the connection.
pub const RECEIVE_WINDOW_BYTES: u32 = 1024 * 1024;
/// How many informational answers may come before the final one.
const INFORMATIONAL_MAX: u8 = 16;

/// What a head may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of all names and values of one head: `grpc_buffer_size`, `proxy_buffer_size`.
    pub head_bytes_max: usize,
    /// How many fields.
    pub fields_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes_max: 8 * 1024, fields_max: 200 }
    }
}

/// The receiving half.
///
/// ```text
/// Idle ──start──► Head ──► Body ──END_STREAM──► Complete ──end──► Idle
///           1xx ⟲  └────────── END_STREAM ───────▲                (or Over)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// No request was sent.
    Idle,
    /// The head of an answer is awaited.
    Head,
    /// Within its body; so many bytes of it are missing, where its length was declared.
    Body(Option<u64>),
    /// The answer is complete, and the event for the task is still due.
    Complete,
    /// Nothing more is expected.
    Over,
}

/// The sending half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    /// END_STREAM was written, or there is nothing to send.
    Done,
    /// So many bytes of the body are missing, never none.
    Exactly(u64),
    /// The length is not known.
    Stream,
}

/// What the next bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// A frame, from its first byte on.
    Frame,
    /// What is left of a DATA frame of the present stream.
    Data { left: u32, padding: u32, ends: bool },
    /// So many bytes to discard.
    Skip(u32),
}

/// A header block whose end has not come.
#[derive(Clone, Copy, Debug)]
struct Block {
    stream: u32,
    ends: bool,
    frames: u32,
}

/// One connection to an HTTP/2 upstream.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one connection")]
pub struct Client {
    limits: Limits,
    timers: Timers,
    /// `https` in `:scheme`.
    is_secure: bool,
    /// The preface was written.
    is_greeted: bool,
    reading: Reading,
    block: Option<Block>,
    /// A header block that comes in several frames, and strings of one field.
    block_bytes: Vec<u8>,
    text: Vec<u8>,
    decoder: Decoder,
    encoder: Encoder,
    budget: Budget,
    /// What the upstream may do that brings it nothing.
    bounds: Policy,
    /// The present stream; the last one while idle, 0 before the first.
    stream: u32,
    input: Input,
    output: Output,
    is_head: bool,
    keeps: bool,
    informational: u8,
    /// How much we may send on the connection, and on the stream.
    send_window: i64,
    stream_send_window: i64,
    /// Body bytes wait for a window.
    is_blocked: bool,
    /// Where in the output the last DATA frame begins, while none of the output has left since.
    last_frame: Option<usize>,
    /// How much the upstream may send on the connection and on the stream, and how much of that is to be given back.
    receive_window: u32,
    stream_receive_window: u32,
    owed: u32,
    stream_owed: u32,
    /// What the upstream's SETTINGS say.
    peer_window: u32,
    peer_frame_bytes_max: u32,
    peer_streams_max: u32,
    /// Some of the request has left.
    is_sent: bool,
    /// Some of the answer has come.
    is_answered: bool,
    is_peer_closed: bool,
    not_reusable: Option<NotReusable>,
    stage: Stage,
}

impl Client {
    /// A connection that is there and has carried nothing; `is_secure`: over TLS.
    pub fn new(limits: Limits, timeouts: Timeouts, is_secure: bool) -> Self {
        Self {
            limits,
            timers: Timers::new(timeouts),
            is_secure,
            is_greeted: false,
            reading: Reading::Frame,
            block: None,
            block_bytes: Vec::new(),
            text: Vec::new(),
            decoder: Decoder::lenient(),
            encoder: Encoder::default(),
            budget: Budget::default(),
            bounds: Policy::default(),
            stream: 0,
            input: Input::Idle,
            output: Output::Done,
            is_head: false,
            keeps: true,
            informational: 0,
            send_window: i64::from(WINDOW_BYTES),
            stream_send_window: 0,
            is_blocked: false,
            last_frame: None,
            receive_window: RECEIVE_WINDOW_BYTES,
            stream_receive_window: 0,
            owed: 0,
            stream_owed: 0,
            peer_window: WINDOW_BYTES,
            peer_frame_bytes_max: PAYLOAD_BYTES_MAX,
            peer_streams_max: u32::MAX,
            is_sent: false,
            is_answered: false,
            is_peer_closed: false,
            not_reusable: None,
            stage: Stage::Open,
        }
    }

    /// Other limits and timeouts, for the next request: a kept connection serves more than one location.
    pub const fn set_policy(&mut self, limits: Limits, timeouts: Timeouts) {
        self.limits = limits;
        self.timers.set_timeouts(timeouts);
    }

    /// The memory that it holds beside itself.
    pub fn capacity(&self) -> usize {
        self.decoder.capacity()
            + self.encoder.capacity()
            + self.block_bytes.capacity()
            + self.text.capacity()
    }

    const fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed(_))
    }

    /// Whether all of the request has been written and has left.
    const fn is_request_sent(&self) -> bool {
        matches!(self.output, Output::Done) && !self.timers.is_unsent()
    }

    /// Whether the upstream is waited for: its answer has begun, or it has all of the request.
    const fn is_awaited(&self) -> bool {
        match self.input {
            Input::Head => self.is_answered || self.is_request_sent(),
            Input::Body(_) => true,
            Input::Idle | Input::Complete | Input::Over => false,
        }
    }

    fn rearm(&mut self, is_active: bool, now: Moment) {
        self.timers.await_answer(self.is_awaited(), is_active, now);
    }

    /// The exchange fails, and the connection with it. Between requests nobody has to know.
    fn fail(&mut self, failure: Failure, reason: CloseReason) -> Option<Event> {
        let is_idle = matches!(self.input, Input::Idle | Input::Over);
        self.close(NotReusable::Failed, reason);
        (!is_idle).then_some(Event::Failed(failure))
    }

    fn close(&mut self, why: NotReusable, reason: CloseReason) {
        self.input = Input::Over;
        self.output = Output::Done;
        self.not_reusable = self.not_reusable.or(Some(why));
        self.stage = Stage::Closed(reason);
        self.timers.stop();
    }

    /// Counts something that brings the upstream nothing.
    fn spend(&mut self, bound: Bound, now: Moment) -> Result<(), Failure> {
        let rate = self.bounds.rate(bound);
        if self.budget.spend(bound as usize, rate, now) {
            Ok(())
        } else {
            Err(Failure::BadBody(BodyFault::Flood))
        }
    }

    /// The preface, our SETTINGS and the connection's window (RFC 9113 §3.4).
    fn greet(&mut self, out: &mut Vec<u8>) {
        use frame::setting;
        self.is_greeted = true;
        out.extend_from_slice(frame::PREFACE);
        let list_max = u32::try_from(self.limits.head_bytes_max).unwrap_or(u32::MAX);
        let values = [
            (setting::ENABLE_PUSH, 0),
            (setting::INITIAL_WINDOW_SIZE, RECEIVE_WINDOW_BYTES),
            (setting::MAX_HEADER_LIST_SIZE, list_max),
        ];
        frame::settings(out, &values);
        frame::window_update(out, 0, RECEIVE_WINDOW_BYTES - WINDOW_BYTES);
    }

    /// The answer is complete: the connection is free for the next request, or over (U4).
    fn complete(&mut self, scratch: &mut Scratch, now: Moment) -> Event {
        if self.output != Output::Done && !self.is_peer_closed {
            // RFC 9113 §8.1: the rest of the request is of no use.
            frame::rst_stream(&mut scratch.out, self.stream, Code::NoError.number());
            self.timers.wrote(now);
        }
        self.leave_stream();
        let reason = match self.not_reusable {
            None if self.is_peer_closed => Some(NotReusable::PeerClosed),
            None if !self.keeps => Some(NotReusable::WeAsked),
            // The numbers of streams are used up, or none may be open.
            None if self.stream >= MAX_31 || self.peer_streams_max == 0 => {
                Some(NotReusable::PeerAsked)
            }
            reason => reason,
        };
        match reason {
            Some(reason) => self.close(
                reason,
                match reason {
                    NotReusable::WeAsked => CloseReason::KeepAliveOff,
                    _ => CloseReason::PeerClosed,
                },
            ),
            None => self.rearm(false, now),
        }
        Event::End
    }

    /// Nothing more is sent or awaited on the present stream; what still comes for it is discarded.
    fn leave_stream(&mut self) {
        self.input = Input::Idle;
        self.output = Output::Done;
        self.is_blocked = false;
        self.last_frame = None;
        if let Reading::Data { left, padding, .. } = self.reading {
            self.reading = Reading::Skip(left + padding);
        }
        // Between requests a connection holds no more than its tables.
        self.text = Vec::new();
        if self.block.is_none() {
            self.block_bytes = Vec::new();
        }
    }
}

impl Engine for Client {
    type Event = Event;
    type Scratch = Scratch;

    fn receive(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
        if self.is_closed() {
            return Step { taken: input.len(), event: None };
        }
        if self.timers.is_held() {
            return Step::NOTHING;
        }
        self.step(input, scratch, now)
    }

    fn input_ended(&mut self, now: Moment) -> Option<Event> {
        if self.is_peer_closed || self.is_closed() {
            return None;
        }
        self.is_peer_closed = true;
        match self.input {
            Input::Idle | Input::Over => {
                self.close(NotReusable::PeerClosed, CloseReason::PeerClosed);
                None
            }
            Input::Head => self.fail(Failure::ClosedEarly, CloseReason::PeerClosedEarly),
            Input::Body(_) => self.fail(Failure::BodyCut, CloseReason::PeerClosedEarly),
            Input::Complete => Some(self.complete(&mut Scratch::default(), now)),
        }
    }

    fn transmitted(&mut self, moved: u64, pending: bool, now: Moment) {
        if self.is_closed() {
            return;
        }
        if moved > 0 {
            self.last_frame = None;
            self.is_sent |= !matches!(self.input, Input::Idle);
        }
        self.timers.transmitted(moved, pending || self.is_blocked, now);
        self.rearm(false, now);
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.timers.next()
    }

    fn expire(&mut self, now: Moment) -> Option<Event> {
        let kind = self.timers.expire(now)?;
        let failure = match kind {
            DeadlineKind::UpstreamSend => Failure::SendTimeout,
            _ => Failure::ReadTimeout,
        };
        self.fail(failure, CloseReason::Expired(kind))
    }

    fn stage(&self) -> Stage {
        self.stage
    }
}

impl UpstreamProtocol for Client {
    fn start(
        &mut self,
        request: &Request<'_>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), RequestFault> {
        let next = if self.stream == 0 { 1 } else { self.stream + 2 };
        if self.stage != Stage::Open || self.input != Input::Idle || next > MAX_31 {
            return Err(RequestFault::Busy);
        }
        if self.not_reusable.is_some() || self.peer_streams_max == 0 {
            return Err(RequestFault::Busy);
        }
        let authority = request::check(request)?;
        if !self.is_greeted {
            self.greet(&mut scratch.out);
        }
        self.stream = next;
        self.output = match request.body {
            RequestBody::None | RequestBody::Known(0) => Output::Done,
            RequestBody::Known(length) => Output::Exactly(length),
            RequestBody::Unknown => Output::Stream,
        };
        self.write_head(request, authority, &mut scratch.out);
        self.input = Input::Head;
        self.is_head = request.method == b"HEAD";
        self.keeps = request.keeps_alive;
        self.informational = 0;
        self.stream_send_window = i64::from(self.peer_window);
        (self.stream_receive_window, self.stream_owed) = (RECEIVE_WINDOW_BYTES, 0);
        (self.is_sent, self.is_answered, self.is_blocked) = (false, false, false);
        self.last_frame = None;
        self.timers.wrote(now);
        self.rearm(false, now);
        Ok(())
    }

    fn body(&mut self, bytes: &[u8], scratch: &mut Scratch, now: Moment) -> usize {
        if self.is_closed() {
            return bytes.len();
        }
        let mut taken = 0;
        while taken < bytes.len() {
            let left = match self.output {
                Output::Done => return bytes.len(),
                Output::Exactly(left) => left,
                Output::Stream => u64::MAX,
            };
            let window = self.send_window.min(self.stream_send_window).max(0) as u64;
            let frame_max = u64::from(self.peer_frame_bytes_max.min(PAYLOAD_BYTES_MAX));
            let len = left.min(window).min(frame_max).min((bytes.len() - taken) as u64);
            if len == 0 {
                self.is_blocked = true;
                break;
            }
            let ends = len == left;
            self.output = match self.output {
                _ if ends => Output::Done,
                Output::Exactly(left) => Output::Exactly(left - len),
                other => other,
            };
            self.send_window -= len as i64;
            self.stream_send_window -= len as i64;
            // Each frame may be acknowledged on its stream and on the connection.
            self.budget.earn(Bound::WindowUpdates as usize, 2);
            let flags = if ends { flag::END_STREAM } else { 0 };
            self.last_frame = Some(scratch.out.len());
            frame::header(&mut scratch.out, len as usize, Kind::Data, flags, self.stream);
            scratch.out.extend_from_slice(&bytes[taken..taken + len as usize]);
            taken += len as usize;
        }
        self.timers.wrote(now);
        taken
    }

    fn end_body(&mut self, scratch: &mut Scratch, now: Moment) -> Result<(), RequestFault> {
        match self.output {
            Output::Done => return Ok(()),
            Output::Exactly(_) => {
                self.close(NotReusable::Failed, CloseReason::BrokenOff);
                return Err(RequestFault::BodyShort);
            }
            Output::Stream => {}
        }
        // A frame that has not left can say so itself.
        let last = self.last_frame.take();
        match last.and_then(|at| scratch.out.get_mut(at..at + HEADER_BYTES)) {
            Some(header) => header[4] |= flag::END_STREAM,
            None => frame::header(&mut scratch.out, 0, Kind::Data, flag::END_STREAM, self.stream),
        }
        self.output = Output::Done;
        self.is_blocked = false;
        self.timers.wrote(now);
        self.rearm(false, now);
        Ok(())
    }

    fn hold(&mut self, is_held: bool, now: Moment) {
        self.timers.hold(is_held);
        self.rearm(true, now);
    }

    fn lost(&mut self, errno: Option<i32>, _: Moment) -> Option<Event> {
        if self.is_closed() {
            return None;
        }
        if matches!(self.input, Input::Idle | Input::Over) {
            self.close(NotReusable::PeerClosed, CloseReason::TransportLost);
            return None;
        }
        self.fail(Failure::Lost(errno), CloseReason::TransportLost)
    }

    fn cancel(&mut self, scratch: &mut Scratch, now: Moment) -> bool {
        let is_under_way = matches!(self.input, Input::Head | Input::Body(_) | Input::Complete);
        if self.is_closed() || !is_under_way || !self.is_sent {
            return false;
        }
        if self.input != Input::Complete || self.output != Output::Done {
            frame::rst_stream(&mut scratch.out, self.stream, Code::Cancel.number());
        }
        self.timers.stop();
        self.leave_stream();
        self.timers.wrote(now);
        self.reuse().is_ok() && self.keeps
    }

    fn is_attended_when_idle(&self) -> bool {
        true
    }

    fn is_answered(&self) -> bool {
        self.is_answered
    }

    fn phase(&self) -> Phase {
        match self.input {
            Input::Idle | Input::Over => Phase::Idle,
            Input::Head if !self.is_answered && !self.is_request_sent() => Phase::Sending,
            Input::Head => Phase::ReadingHead,
            Input::Body(_) | Input::Complete => Phase::ReadingBody,
        }
    }

    fn reuse(&self) -> Result<(), NotReusable> {
        match (self.not_reusable, self.input) {
            (Some(reason), _) => Err(reason),
            (None, Input::Idle) => Ok(()),
            (None, _) => Err(NotReusable::Busy),
        }
    }
}

/// What is wrong with a head, as a failure.
const fn bad_head(fault: HeadFault) -> Failure {
    Failure::BadHead(fault)
}

/// What is wrong with a frame, as a failure.
const fn bad_frame() -> Failure {
    Failure::BadBody(BodyFault::Frame)
}
