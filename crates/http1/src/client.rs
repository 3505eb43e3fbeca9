//! The client's side of one HTTP/1 connection: a request out, an answer back, as strict as the server's
//! side (U1–U4, U6). Holds no buffer but that of a trailer section; one exchange at a time.

mod request;
mod response;
mod reuse;

use sekisho_http::upstream::{
    BodyFault, Event, Failure, HeadFault, NotReusable, Phase, Request, RequestBody, RequestFault,
    Scratch, Timeouts, Timers, UpstreamProtocol,
};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Engine, Moment, Stage, Step};

use crate::body::{Decoder, Progress};
use crate::encode;
use request::Asked;
use response::{Framer, Framing, Message};
use sekisho_http::refusal::Cause;

pub use response::Limits;
pub use reuse::{Ended, not_reusable};

/// How many informational answers may come before the final one.
const INFORMATIONAL_MAX: u8 = 16;

/// The receiving half.
///
/// ```text
/// Idle ──start──► Head ─┬─► Body, UntilClose ─► Complete ──end──► Idle
///           1xx ⟲       ├──────────────────────────▲              (or Over)
///                       └─► Tunnel ─► Over
/// ```
#[derive(Clone, Copy, Debug)]
enum Input {
    /// No request was sent.
    Idle,
    /// Within the head of an answer.
    Head(Framer),
    /// Within a body whose end shows in the stream.
    Body(Decoder),
    /// Within a body that ends with the connection.
    UntilClose,
    /// The answer is complete, and the event for the task is still due.
    Complete,
    /// 101: the bytes are not ours to read.
    Tunnel,
    /// Nothing more is expected.
    Over,
}

/// The sending half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    /// Nothing to send, or all of it was written.
    Done,
    /// So many bytes of the body are missing.
    Exactly(u64),
    Chunked,
    Tunnel,
}

/// One connection to an HTTP/1 upstream.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    timers: Timers,
    input: Input,
    output: Output,
    asked: Asked,
    message: Option<Message>,
    informational: u8,
    /// Some of the request has left.
    is_sent: bool,
    /// Some of the answer has come.
    is_answered: bool,
    is_peer_closed: bool,
    not_reusable: Option<NotReusable>,
    stage: Stage,
    trailers: Vec<u8>,
}

impl Client {
    /// A connection that is there and has carried nothing.
    pub const fn new(limits: Limits, timeouts: Timeouts) -> Self {
        Self {
            limits,
            timers: Timers::new(timeouts),
            input: Input::Idle,
            output: Output::Done,
            asked: Asked { is_head: false, asks_upgrade: false, keeps: true },
            message: None,
            informational: 0,
            is_sent: false,
            is_answered: false,
            is_peer_closed: false,
            not_reusable: None,
            stage: Stage::Open,
            trailers: Vec::new(),
        }
    }

    /// Other limits and timeouts, for the next request: a kept connection serves more than one location.
    pub const fn set_policy(&mut self, limits: Limits, timeouts: Timeouts) {
        self.limits = limits;
        self.timers.set_timeouts(timeouts);
    }

    /// Whether all of the request has been written and has left.
    const fn is_request_sent(&self) -> bool {
        matches!(self.output, Output::Done) && !self.timers.is_unsent()
    }

    /// Whether the upstream is waited for: its answer has begun, or it has all of the request. In a tunnel
    /// either side is.
    const fn is_awaited(&self) -> bool {
        match self.input {
            Input::Head(_) => self.is_answered || self.is_request_sent(),
            Input::Body(_) | Input::UntilClose | Input::Tunnel => true,
            Input::Idle | Input::Complete | Input::Over => false,
        }
    }

    fn rearm(&mut self, is_active: bool, now: Moment) {
        self.timers.await_answer(self.is_awaited(), is_active, now);
    }

    fn fail(&mut self, failure: Failure, reason: CloseReason) -> Event {
        self.close(NotReusable::Failed, reason);
        Event::Failed(failure)
    }

    fn close(&mut self, why: NotReusable, reason: CloseReason) {
        self.input = Input::Over;
        self.output = Output::Done;
        self.not_reusable = self.not_reusable.or(Some(why));
        self.stage = Stage::Closed(reason);
        self.timers.stop();
    }

    fn receive_head(
        &mut self,
        mut framer: Framer,
        input: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Step<Event> {
        if input.is_empty() {
            return Step::NOTHING;
        }
        // An unsolicited answer: it must not become the answer to a request that has not been sent yet.
        if !self.is_sent {
            let failure = Failure::BadHead(HeadFault::Unsolicited);
            let event = self.fail(failure, CloseReason::OutOfSync);
            return Step { taken: input.len(), event: Some(event) };
        }
        self.is_answered = true;
        // Only new bytes are a sign of life (T5): what was looked at before may be offered again.
        self.rearm(input.len() > framer.scanned(), now);
        let is_head = self.asked.is_head;
        let read = framer.advance(input, self.limits).and_then(|len| match len {
            None => Ok(None),
            Some(len) => {
                let bytes = &input[..len];
                let message = response::parse(framer, bytes, is_head, &mut scratch.head)?;
                Ok(Some((len, message)))
            }
        });
        match read {
            Ok(None) => {
                self.input = Input::Head(framer);
                Step::NOTHING
            }
            Ok(Some((len, message))) => match self.take_head(message, scratch, now) {
                Ok(event) => Step { taken: len, event: Some(event) },
                Err(fault) => self.bad_head(fault, input.len()),
            },
            Err(fault) => self.bad_head(fault, input.len()),
        }
    }

    fn bad_head(&mut self, fault: HeadFault, taken: usize) -> Step<Event> {
        let event = self.fail(Failure::BadHead(fault), CloseReason::OutOfSync);
        Step { taken, event: Some(event) }
    }

    fn take_head(
        &mut self,
        message: Message,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Event, HeadFault> {
        match scratch.head.status.code() {
            // The body of the request comes before the tunnel, whole.
            101 if self.asked.asks_upgrade && self.output == Output::Done => {
                self.input = Input::Tunnel;
                self.output = Output::Tunnel;
                self.not_reusable = Some(NotReusable::Tunnel);
                self.rearm(true, now);
                return Ok(Event::Upgraded);
            }
            101 => return Err(HeadFault::UpgradeUnasked),
            100..200 => {
                if self.informational == INFORMATIONAL_MAX {
                    return Err(HeadFault::TooManyInformational);
                }
                self.informational += 1;
                self.input = Input::Head(Framer::default());
                return Ok(Event::Informational);
            }
            _ => {}
        }
        self.message = Some(message);
        scratch.trailers.clear();
        self.input = match message.framing {
            Framing::None | Framing::Length(0) => Input::Complete,
            Framing::Length(length) => Input::Body(Decoder::Length(length)),
            Framing::Chunked => Input::Body(Decoder::chunked_with_trailers()),
            Framing::UntilClose => Input::UntilClose,
        };
        self.rearm(true, now);
        Ok(Event::Head)
    }

    fn receive_body(
        &mut self,
        mut decoder: Decoder,
        input: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Step<Event> {
        let mut at = 0;
        loop {
            let is_in_trailers = decoder.is_in_trailers();
            let found = match decoder.advance(&input[at..], u64::MAX) {
                Ok(found) => found,
                Err(cause) => {
                    let failure = Failure::BadBody(body_fault(cause));
                    let event = self.fail(failure, CloseReason::OutOfSync);
                    return Step { taken: input.len(), event: Some(event) };
                }
            };
            if is_in_trailers {
                self.trailers.extend_from_slice(&input[at..at + found.taken]);
            }
            let data = at + found.data.start..at + found.data.end;
            at += found.taken;
            self.input = Input::Body(decoder);
            if found.state == Progress::End {
                if !self.take_trailers(scratch) {
                    let failure = Failure::BadBody(BodyFault::Trailer);
                    let event = self.fail(failure, CloseReason::OutOfSync);
                    return Step { taken: input.len(), event: Some(event) };
                }
                self.input = Input::Complete;
            }
            if !data.is_empty() {
                self.rearm(true, now);
                return Step { taken: at, event: Some(Event::Body(data.into())) };
            }
            if found.state == Progress::End {
                return Step { taken: at, event: Some(self.complete(now)) };
            }
            if found.taken == 0 {
                break;
            }
        }
        if at > 0 {
            self.rearm(true, now);
        }
        Step { taken: at, event: None }
    }

    /// Parses what was kept of the trailer section; `false` when it is none.
    fn take_trailers(&mut self, scratch: &mut Scratch) -> bool {
        const EMPTY: &[u8] = b"\r\n";
        let block = std::mem::take(&mut self.trailers);
        scratch.trailers.clear();
        if block.is_empty() || block == EMPTY {
            return true;
        }
        response::trailers(&block, &mut scratch.trailers).is_ok()
    }

    /// The answer is complete: the connection is free for the next request, or over (U4).
    fn complete(&mut self, now: Moment) -> Event {
        let message = self.message.take();
        let reason = not_reusable(&Ended {
            is_close_delimited: message.is_none_or(|m| m.framing == Framing::UntilClose),
            declares_body: message.is_some_and(|message| message.declares_body),
            is_request_sent: self.is_request_sent(),
            peer_keeps: message.is_some_and(|message| message.persists),
            we_keep: self.asked.keeps,
            is_peer_closed: self.is_peer_closed,
        });
        if let Some(reason) = reason {
            self.close(reason, close_reason(reason));
        } else {
            self.input = Input::Idle;
            self.rearm(false, now);
        }
        Event::End
    }
}

const fn close_reason(reason: NotReusable) -> CloseReason {
    match reason {
        NotReusable::CloseDelimited => CloseReason::CloseDelimited,
        NotReusable::PeerAsked | NotReusable::PeerClosed => CloseReason::PeerClosed,
        NotReusable::WeAsked => CloseReason::KeepAliveOff,
        _ => CloseReason::OutOfSync,
    }
}

const fn body_fault(cause: Cause) -> BodyFault {
    match cause {
        Cause::TrailerInvalid | Cause::TrailersTooLong => BodyFault::Trailer,
        _ => BodyFault::Chunk,
    }
}

impl Engine for Client {
    type Event = Event;
    type Scratch = Scratch;

    fn receive(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
        if matches!(self.stage, Stage::Closed(_)) {
            return Step { taken: input.len(), event: None };
        }
        if self.timers.is_held() {
            return Step::NOTHING;
        }
        match self.input {
            Input::Idle | Input::Over | Input::UntilClose | Input::Tunnel if input.is_empty() => {
                Step::NOTHING
            }
            Input::Idle | Input::Over => {
                self.close(NotReusable::Surplus, CloseReason::OutOfSync);
                Step { taken: input.len(), event: None }
            }
            Input::Head(framer) => self.receive_head(framer, input, scratch, now),
            Input::Body(decoder) => self.receive_body(decoder, input, scratch, now),
            Input::Complete => Step { taken: 0, event: Some(self.complete(now)) },
            Input::UntilClose | Input::Tunnel => {
                self.rearm(true, now);
                Step { taken: input.len(), event: Some(Event::Body((0..input.len()).into())) }
            }
        }
    }

    /// What was offered before must have been taken: a body that is held back waits with the caller, which
    /// reports the end after it.
    fn input_ended(&mut self, now: Moment) -> Option<Event> {
        if self.is_peer_closed || matches!(self.stage, Stage::Closed(_)) {
            return None;
        }
        self.is_peer_closed = true;
        match self.input {
            Input::Idle | Input::Over => {
                self.close(NotReusable::PeerClosed, CloseReason::PeerClosed);
                None
            }
            Input::Head(_) => Some(self.fail(Failure::ClosedEarly, CloseReason::PeerClosedEarly)),
            Input::Body(_) => Some(self.fail(Failure::BodyCut, CloseReason::PeerClosedEarly)),
            Input::UntilClose | Input::Complete => Some(self.complete(now)),
            Input::Tunnel => {
                self.close(NotReusable::Tunnel, CloseReason::PeerClosed);
                Some(Event::End)
            }
        }
    }

    fn transmitted(&mut self, moved: u64, pending: bool, now: Moment) {
        if matches!(self.stage, Stage::Closed(_)) {
            return;
        }
        self.is_sent |= moved > 0;
        self.timers.transmitted(moved, pending, now);
        // What a tunnel carries keeps it alive, in either direction (U6).
        self.rearm(moved > 0 && matches!(self.input, Input::Tunnel), now);
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
        Some(self.fail(failure, CloseReason::Expired(kind)))
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
        if self.stage != Stage::Open || !matches!(self.input, Input::Idle) {
            return Err(RequestFault::Busy);
        }
        self.asked = request::encode(request, &mut scratch.out)?;
        self.input = Input::Head(Framer::default());
        self.output = match request.body {
            RequestBody::None | RequestBody::Known(0) => Output::Done,
            RequestBody::Known(length) => Output::Exactly(length),
            RequestBody::Unknown => Output::Chunked,
        };
        self.informational = 0;
        self.is_sent = false;
        self.is_answered = false;
        self.timers.wrote(now);
        self.rearm(false, now);
        Ok(())
    }

    fn body(&mut self, bytes: &[u8], scratch: &mut Scratch, now: Moment) -> usize {
        if bytes.is_empty() || matches!(self.stage, Stage::Closed(_)) {
            return bytes.len();
        }
        match &mut self.output {
            Output::Done => return bytes.len(),
            Output::Exactly(left) => {
                let len = (*left).min(bytes.len() as u64);
                *left -= len;
                scratch.out.extend_from_slice(&bytes[..len as usize]);
                // The upstream has all of it, whether or not the task has said so.
                if *left == 0 {
                    self.output = Output::Done;
                }
            }
            Output::Chunked => encode::chunk(&mut scratch.out, bytes),
            Output::Tunnel => scratch.out.extend_from_slice(bytes),
        }
        self.timers.wrote(now);
        bytes.len()
    }

    fn end_body(&mut self, scratch: &mut Scratch, now: Moment) -> Result<(), RequestFault> {
        match self.output {
            Output::Done | Output::Tunnel => return Ok(()),
            Output::Exactly(_) => {
                self.close(NotReusable::Failed, CloseReason::BrokenOff);
                return Err(RequestFault::BodyShort);
            }
            Output::Chunked => {
                scratch.out.extend_from_slice(encode::LAST_CHUNK);
                self.timers.wrote(now);
            }
        }
        self.output = Output::Done;
        self.rearm(false, now);
        Ok(())
    }

    fn hold(&mut self, is_held: bool, now: Moment) {
        self.timers.hold(is_held);
        self.rearm(true, now);
    }

    fn lost(&mut self, errno: Option<i32>, _: Moment) -> Option<Event> {
        if matches!(self.stage, Stage::Closed(_)) {
            return None;
        }
        if matches!(self.input, Input::Idle | Input::Over) {
            self.close(NotReusable::PeerClosed, CloseReason::TransportLost);
            return None;
        }
        Some(self.fail(Failure::Lost(errno), CloseReason::TransportLost))
    }

    fn direct_body(&self) -> u64 {
        match self.input {
            _ if self.timers.is_held() || self.stage != Stage::Open => 0,
            Input::Body(Decoder::Length(left)) => left,
            Input::UntilClose => u64::MAX,
            _ => 0,
        }
    }

    fn body_taken(&mut self, bytes: u64, now: Moment) {
        if let Input::Body(Decoder::Length(left)) = &mut self.input {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                self.input = Input::Complete;
            }
        }
        self.rearm(bytes > 0, now);
    }

    fn is_answered(&self) -> bool {
        self.is_answered
    }

    fn phase(&self) -> Phase {
        match self.input {
            Input::Idle | Input::Over => Phase::Idle,
            Input::Head(_) if !self.is_answered && !self.is_request_sent() => Phase::Sending,
            Input::Head(_) => Phase::ReadingHead,
            Input::Body(_) | Input::UntilClose | Input::Complete => Phase::ReadingBody,
            Input::Tunnel => Phase::Tunnelling,
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
