//! One HTTP/1 connection: ties framer, parser, body, keep-alive and encoder into one [`Engine`]. Holds
//! no buffer; one request is in work at a time, and what is pipelined behind it waits with the caller.
//!
//! The receiving half and the sending half of an exchange go their own ways and meet in `settle`,
//! the only place where a request is over: from there the next one begins, or the connection ends.

mod deadlines;
mod facts;
mod kept;
mod receive;
mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use sekisho_http::{Fields, Status, Version};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Engine, Moment, Stage, Step};

use crate::body::Decoder;
use crate::encode::{self, Persistence};
use crate::event::Event;
use crate::frame::Framer;
use crate::keep_alive::{Framing, PersistenceFacts, RequestEnd, close_reason};
use crate::parse;
use sekisho_http::Policy;
use sekisho_http::refusal::{Cause, Refusal};
use sekisho_http::{Response, Scratch, Sends};

/// The receiving half.
#[derive(Clone, Copy, Debug)]
enum Input {
    /// Between requests, or within a head.
    Head(Framer),
    /// The head is complete, the body is not.
    Body {
        decoder: Decoder,
        fate: Fate,
        /// How many bytes the fate allows for.
        allowance: u64,
    },
    /// The request is complete. `report_end`: the event for the shell is still due.
    Complete { report_end: bool },
    /// Another protocol is spoken: the bytes are not ours to read.
    Tunnel,
    /// Where the next request begins is not known or does not matter: input is thrown away.
    Ignored,
}

/// What becomes of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Not yet decided: nothing is taken.
    Open,
    /// Handed to the shell.
    Taken,
    /// Too large: thrown away to its end, then answered with 413 (H6).
    Refused,
    /// Unwanted: thrown away while the response leaves.
    Discarded,
}

/// The sending half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    /// No response yet.
    Awaited,
    /// So many bytes of the body are missing; none for a response without a body.
    Exactly(u64),
    Chunked,
    UntilClose,
    /// The response is complete, though perhaps it has not left.
    Finished,
}

/// What is remembered of the head of the request in work.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts about one request")]
struct Request {
    framing: parse::Framing,
    version: Version,
    is_head: bool,
    persists: bool,
    /// The client waits for 100, which has not been sent.
    expects: bool,
    /// Bytes behind the head have been seen.
    body_arrived: bool,
}

impl Request {
    const UNKNOWN: Self = Self {
        framing: parse::Framing::None,
        version: Version::Http11,
        is_head: false,
        persists: true,
        expects: false,
        body_arrived: false,
    };
}

/// An HTTP/1 connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about the transport, each independent")]
pub struct Http1 {
    /// Before `Host` is known (T8).
    base: Arc<Policy>,
    /// After it; `None` when it is the same.
    chosen: Option<Arc<Policy>>,
    input: Input,
    output: Output,
    request: Request,
    requests: u64,
    /// When the connection began.
    born: Moment,
    /// What the client must do next, and by when.
    read: Option<Deadline>,
    /// By when the client must have taken bytes.
    send: Option<Moment>,
    /// By when the body must be quicker, or lingering be over, whatever comes.
    latest: Option<Moment>,
    stage: Stage,
    /// Why the connection will end after this exchange.
    closing: Option<CloseReason>,
    /// A byte of the request in work has been seen.
    begun: bool,
    /// Output is waiting to leave.
    unsent: bool,
    /// The client has sent FIN.
    ended: bool,
    /// Since when the handler cannot take more of the body.
    held: Option<Moment>,
    /// Only the end of the connection says where the response ends.
    until_close: bool,
}

impl Http1 {
    /// A connection that was just accepted: its head is awaited.
    pub fn new(policy: Arc<Policy>, now: Moment) -> Self {
        let mut engine = Self {
            base: policy,
            chosen: None,
            input: Input::Head(Framer::default()),
            output: Output::Awaited,
            request: Request::UNKNOWN,
            requests: 0,
            born: now,
            read: None,
            send: None,
            latest: None,
            stage: Stage::Open,
            closing: None,
            begun: false,
            unsent: false,
            ended: false,
            held: None,
            until_close: false,
        };
        engine.arm(now);
        engine
    }

    /// The policy of the server or location that was chosen for this request (T8). It holds until the
    /// next request begins.
    pub fn set_policy(&mut self, policy: &Arc<Policy>) {
        if Arc::ptr_eq(&self.base, policy) {
            self.chosen = None;
        } else if !self.chosen.as_ref().is_some_and(|chosen| Arc::ptr_eq(chosen, policy)) {
            self.chosen = Some(Arc::clone(policy));
        }
    }

    /// The policy in effect.
    pub fn policy(&self) -> &Arc<Policy> {
        self.chosen.as_ref().unwrap_or(&self.base)
    }

    /// Whether the head says that body bytes follow.
    pub const fn request_has_body(&self) -> bool {
        !matches!(self.request.framing, parse::Framing::None | parse::Framing::Length(0))
    }

    /// The declared `Content-Length` of the request in work.
    pub const fn body_length(&self) -> Option<u64> {
        match self.request.framing {
            parse::Framing::Length(length) => Some(length),
            parse::Framing::None | parse::Framing::Chunked => None,
        }
    }

    /// The body is wanted, up to `max` bytes: it comes as events, after a 100 where the client waits
    /// for one (H7). An error must be answered at once; a body that is too large but near enough to its
    /// end is thrown away first and refused by an event then (H6).
    pub fn take_body(
        &mut self,
        max: Option<u64>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), Refusal> {
        if self.stage != Stage::Open || self.output != Output::Awaited {
            return Ok(());
        }
        let discard_max = self.policy().body_discard_max;
        let max = max.unwrap_or(u64::MAX);
        match &mut self.input {
            Input::Complete { report_end } => *report_end = true,
            Input::Body { decoder, fate: fate @ Fate::Open, allowance } => {
                match decoder.left() {
                    Some(left) if left > max => {
                        if self.request.expects || left > discard_max {
                            return Err(Cause::BodyTooLarge.into());
                        }
                        (*fate, *allowance) = (Fate::Refused, discard_max);
                    }
                    _ => {
                        (*fate, *allowance) = (Fate::Taken, max);
                        if self.request.expects && !self.request.body_arrived {
                            self.put(scratch, now, |out| out.extend_from_slice(encode::CONTINUE));
                        }
                        self.request.expects = false;
                    }
                }
                self.await_body(now);
            }
            _ => {}
        }
        Ok(())
    }

    /// Holds the body back while the handler cannot take more of it, and lets it come again. Meanwhile the
    /// client is not late, so no deadline of the client's runs (T9).
    pub fn hold_body(&mut self, held: bool, now: Moment) {
        if self.held.is_some() == held {
            return;
        }
        let since = std::mem::replace(&mut self.held, held.then_some(now));
        if let Input::Body { fate: Fate::Taken, .. } = self.input {
            // The clock of `client_body_min_rate` has stood still meanwhile, and is not set back.
            let length = since.map_or(Duration::ZERO, |since| now.since(since));
            self.latest = self.latest.map(|latest| latest + length);
            self.arm(now);
        }
    }

    /// Writes the head of the response to `scratch.out` and returns how its body is sent. An answer without a
    /// waiting request is not written.
    pub fn respond(
        &mut self,
        response: &Response<'_>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Sends {
        if !self.awaits_response() {
            return Sends::Nothing;
        }
        // 1xx is not a final answer: a handler that gave it as one has a bug.
        let status = if response.status.code() < 200 {
            Status::INTERNAL_SERVER_ERROR
        } else {
            response.status
        };
        let request = self.request;
        let (framing, has_body) = encode::framing(
            request.is_head,
            request.version,
            status,
            response.length,
            self.policy().sends_chunks,
        );
        let request_end = self.request_end();
        self.closing = match self.closing {
            None | Some(CloseReason::Draining) => close_reason(&PersistenceFacts {
                request_end,
                response_framing: framing,
                client_persists: request.persists,
                input_ended: self.ended,
                draining: self.closing.is_some(),
                used_up: self.requests >= self.policy().keepalive_requests,
                is_old: self.is_old(self.policy(), now),
                keeps_alive: self.policy().keepalive_timeout.is_some(),
            }),
            decided => decided,
        };
        let persistence = match (self.closing, self.policy().keepalive_header_secs) {
            (Some(_), _) => Persistence::Closed,
            (None, Some(secs)) => Persistence::KeptFor(secs),
            (None, None) => Persistence::Kept,
        };
        self.put(scratch, now, |out| {
            encode::head(out, status, response.fields, framing, persistence);
        });
        // A body that was taken goes on coming until the response is finished.
        if !matches!(self.input, Input::Body { fate: Fate::Taken, .. }) {
            self.give_up_body(now);
        }
        let (output, sends) = match (has_body, framing) {
            (true, Framing::Length(length)) => (Output::Exactly(length), Sends::Exactly(length)),
            (true, Framing::Chunked) => (Output::Chunked, Sends::Stream),
            (true, _) => {
                self.until_close = true;
                (Output::UntilClose, Sends::Stream)
            }
            (false, _) => (Output::Exactly(0), Sends::Nothing),
        };
        self.output = output;
        sends
    }

    /// Whether the response that has just begun is sent in chunks.
    pub const fn sends_chunks(&self) -> bool {
        matches!(self.output, Output::Chunked)
    }

    /// Whether the connection ends with the response that has begun.
    pub const fn is_last(&self) -> bool {
        self.closing.is_some()
    }

    /// Body bytes of the response, framed into `scratch.out`. What goes beyond the declared length is
    /// cut. The send deadline starts when the transport reports that they are waiting.
    pub fn body(&mut self, bytes: &[u8], scratch: &mut Scratch) {
        if self.stage != Stage::Open || bytes.is_empty() {
            return;
        }
        match &mut self.output {
            Output::Exactly(0) | Output::Awaited | Output::Finished => return,
            Output::Exactly(left) => {
                let len = (*left).min(bytes.len() as u64);
                *left -= len;
                scratch.out.extend_from_slice(&bytes[..len as usize]);
            }
            Output::Chunked => encode::chunk(&mut scratch.out, bytes),
            Output::UntilClose => scratch.out.extend_from_slice(bytes),
        }
        self.unsent = true;
    }

    /// The shell has sent so many body bytes itself.
    pub const fn file_sent(&mut self, bytes: u64) {
        if let Output::Exactly(left) = &mut self.output {
            *left = left.saturating_sub(bytes);
        }
    }

    /// The response is complete. One that is shorter than it said is broken off.
    pub fn finish(&mut self, scratch: &mut Scratch, now: Moment) {
        self.finish_with(None, scratch, now);
    }

    /// The same with trailers, which only a response in chunks can have.
    pub fn finish_with(&mut self, trailers: Option<&Fields>, scratch: &mut Scratch, now: Moment) {
        if self.stage != Stage::Open {
            return;
        }
        match self.output {
            Output::Awaited | Output::Finished => return,
            Output::Exactly(0) | Output::UntilClose => {}
            Output::Exactly(_) => return self.break_off(now),
            Output::Chunked => {
                self.put(scratch, now, |out| match trailers {
                    None => out.extend_from_slice(encode::LAST_CHUNK),
                    Some(trailers) => encode::trailers(out, trailers),
                });
            }
        }
        self.output = Output::Finished;
        self.give_up_body(now);
        self.settle(now);
    }

    /// Whether body bytes may leave as they are, behind the output: their number is known and their framing is
    /// in the head.
    pub const fn takes_files(&self) -> bool {
        matches!((self.stage, self.output), (Stage::Open, Output::Exactly(_)))
    }

    /// The response cannot be completed, and must not look as if it were (C5). Where its framing shows the cut,
    /// what was sent before still arrives: the connection ends behind it. Where only the end of the connection says
    /// where the response ends, it ends at once, and [`Self::is_cut`] says that it must be reset.
    pub fn break_off(&mut self, now: Moment) {
        match (self.stage, self.output) {
            (Stage::Open, Output::Exactly(_) | Output::Chunked) => {
                self.end_after_output(CloseReason::BrokenOff, now);
            }
            // Nothing of it has been sent yet, all of it has been framed, or the client could not see the
            // cut.
            (_, Output::Awaited | Output::UntilClose | Output::Finished)
            | (Stage::Lingering, _) => {
                self.abort(CloseReason::BrokenOff);
            }
            (Stage::Closed(_), _) => {}
        }
    }

    /// Ends the connection at once.
    pub const fn abort(&mut self, reason: CloseReason) {
        if !matches!(self.stage, Stage::Closed(_)) {
            self.stage = Stage::Closed(reason);
        }
        self.read = None;
        self.send = None;
    }

    /// Answers one more request at the most, and says so in the answer: a client that has just had an
    /// answer, or has just connected, may have sent its request before it can know of our end (O4).
    pub fn close_after_next(&mut self) {
        if self.stage == Stage::Open && self.closing.is_none() && self.output == Output::Awaited {
            self.closing = Some(CloseReason::Draining);
        }
    }

    /// Takes no further request: an idle connection ends now, a busy one after its response (O4).
    pub fn shut_down_gracefully(&mut self, now: Moment) {
        if self.stage != Stage::Open {
            return;
        }
        if self.is_idle() {
            return self.abort(CloseReason::Draining);
        }
        self.closing = self.closing.or(Some(CloseReason::Draining));
        if matches!(self.input, Input::Head(_)) && !self.begun {
            self.end_after_output(CloseReason::Draining, now);
        }
    }

    /// The connection is one too many: it gets an error, whatever it wanted, and is closed (H10).
    pub fn refuse_connection(&mut self) -> Event {
        self.refuse(Cause::TooManyConnections, CloseReason::TooMany)
    }

    const fn awaits_response(&self) -> bool {
        matches!((self.stage, self.output), (Stage::Open, Output::Awaited))
            && !matches!(self.input, Input::Head(_))
    }

    fn request_end(&self) -> RequestEnd {
        match &self.input {
            Input::Complete { .. } => RequestEnd::Reached,
            // Whether a client that waits for 100 will send its body after another answer is not known.
            Input::Body { .. } if self.request.expects => RequestEnd::Broken,
            Input::Body { decoder, .. }
                if decoder.left().is_none_or(|left| left <= self.policy().body_discard_max) =>
            {
                RequestEnd::Discardable
            }
            _ => RequestEnd::Broken,
        }
    }

    /// The rest of the body is not wanted: it is thrown away up to its end, or all input is when the
    /// connection closes anyhow.
    fn give_up_body(&mut self, now: Moment) {
        let discard_max = self.policy().body_discard_max;
        if matches!(self.input, Input::Tunnel) {
            self.ignore_input();
        }
        if let Input::Body { fate, allowance, .. } = &mut self.input {
            if self.closing.is_some() {
                self.ignore_input();
            } else if *fate != Fate::Discarded {
                (*fate, *allowance) = (Fate::Discarded, discard_max);
                self.await_body(now);
            }
        }
    }

    fn ignore_input(&mut self) {
        self.input = Input::Ignored;
        self.read = None;
    }

    /// Writes output; the deadline for it runs from now on.
    fn put(&mut self, scratch: &mut Scratch, now: Moment, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut scratch.out);
        self.unsent = true;
        if self.send.is_none() {
            self.send = self.send_by(now);
        }
    }

    fn refuse(&mut self, cause: Cause, closing: CloseReason) -> Event {
        self.closing = Some(closing);
        self.ignore_input();
        Event::Refused(cause.into())
    }

    /// The request cannot be answered any more. The handler, if one works on it, must know.
    fn lose(&mut self, reason: CloseReason) -> Option<Event> {
        let is_at_work = self.output != Output::Finished
            && !matches!(self.input, Input::Head(_) | Input::Ignored);
        self.abort(reason);
        is_at_work.then_some(Event::ClientLost)
    }

    /// The client has ended its side, and with it the request: its rest will not come, or its answer has no
    /// receiver.
    fn end_in_request(&mut self, now: Moment) -> Option<Event> {
        if self.output != Output::Awaited {
            return self.lose(CloseReason::PeerClosedEarly);
        }
        self.end_after_output(CloseReason::PeerClosedEarly, now);
        Some(Event::ClientLost)
    }

    /// Nothing more is answered; what was answered before still leaves.
    fn end_after_output(&mut self, reason: CloseReason, now: Moment) {
        self.closing = Some(reason);
        self.ignore_input();
        self.output = Output::Finished;
        self.settle(now);
    }

    /// If both halves of the exchange are over, goes on to what follows: the next request, or the end.
    fn settle(&mut self, now: Moment) {
        if self.stage != Stage::Open || self.output != Output::Finished {
            return;
        }
        match (&self.input, self.closing) {
            (Input::Head(_) | Input::Body { .. } | Input::Tunnel, _) => {}
            (Input::Complete { .. }, None) => {
                self.input = Input::Head(Framer::default());
                self.output = Output::Awaited;
                self.request = Request::UNKNOWN;
                self.begun = false;
                self.held = None;
                self.arm(now);
            }
            (Input::Complete { .. } | Input::Ignored, _) if self.unsent => {}
            (input, closing) => {
                let reason = closing.unwrap_or(CloseReason::OutOfSync);
                // Closing with unread input makes the kernel reset the connection and the client lose
                // the answer, so the engine reads on for a while if the client may still be sending.
                let may_send = matches!(input, Input::Ignored) || self.request.persists;
                if self.ended || !may_send {
                    return self.abort(reason);
                }
                self.stage = Stage::Lingering;
                self.closing = Some(reason);
                self.send = None;
                self.latest = self.policy().lingering_time.map(|time| now + time);
                self.arm(now);
            }
        }
    }
}

impl Engine for Http1 {
    type Event = Event;
    type Scratch = Scratch;

    fn receive(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
        match (self.stage, &mut self.input) {
            (Stage::Closed(_), _) | (Stage::Open, Input::Ignored) => {
                Step { taken: input.len(), event: None }
            }
            (Stage::Lingering, _) => {
                if !input.is_empty() {
                    self.arm(now);
                }
                Step { taken: input.len(), event: None }
            }
            (Stage::Open, Input::Head(framer)) => {
                let framer = *framer;
                self.receive_head(framer, input, scratch, now)
            }
            (Stage::Open, Input::Body { fate: Fate::Open, .. }) => {
                self.request.body_arrived |= !input.is_empty();
                Step::NOTHING
            }
            (Stage::Open, Input::Body { fate: Fate::Taken, .. }) if self.held.is_some() => {
                Step::NOTHING
            }
            (Stage::Open, Input::Body { .. } | Input::Complete { report_end: true }) => {
                self.receive_body(input, now)
            }
            (Stage::Open, Input::Complete { report_end: false }) => Step::NOTHING,
            (Stage::Open, Input::Tunnel) => self.receive_tunnel(input),
        }
    }

    fn input_ended(&mut self, now: Moment) -> Option<Event> {
        if self.ended {
            return None;
        }
        self.ended = true;
        match (self.stage, &self.input, self.output) {
            (Stage::Closed(_), _, _) | (Stage::Open, Input::Ignored, _) => None,
            (Stage::Open, Input::Tunnel, _) => {
                self.end_tunnel();
                None
            }
            (Stage::Lingering, _, _) => {
                self.abort(self.closing.unwrap_or(CloseReason::PeerClosed));
                None
            }
            (Stage::Open, Input::Head(_), _) => {
                let reason =
                    if self.begun { CloseReason::PeerClosedEarly } else { CloseReason::PeerClosed };
                self.end_after_output(reason, now);
                None
            }
            (Stage::Open, Input::Complete { .. }, Output::Awaited) if self.policy().half_close => {
                None
            }
            // What came before it waits with the caller: whether that is all of the request shows when the
            // handler has taken it (H11).
            (Stage::Open, Input::Body { fate: Fate::Taken, .. }, _)
                if self.held.is_some() && self.policy().half_close =>
            {
                None
            }
            (Stage::Open, Input::Body { .. } | Input::Complete { .. }, Output::Awaited)
            | (Stage::Open, Input::Body { fate: Fate::Taken, .. }, _) => self.end_in_request(now),
            (Stage::Open, Input::Body { .. }, _) => {
                self.closing = self.closing.or(Some(CloseReason::PeerClosedEarly));
                self.ignore_input();
                self.settle(now);
                None
            }
            (Stage::Open, Input::Complete { .. }, _) => {
                self.closing = self.closing.or(Some(CloseReason::PeerClosed));
                None
            }
        }
    }

    /// Every attempt to write is reported, also one that moved nothing: the send deadline depends on it.
    fn transmitted(&mut self, moved: u64, pending: bool, now: Moment) {
        if matches!(self.stage, Stage::Closed(_)) {
            return;
        }
        self.unsent = pending;
        if pending {
            if moved > 0 || self.send.is_none() {
                self.send = self.send_by(now);
            }
            return;
        }
        self.send = None;
        self.settle(now);
        // The quiet time begins when the response has left, unless the next request has begun.
        if self.is_idle() && self.read.is_none() {
            self.arm(now);
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let send = self.send.map(|at| Deadline { at, kind: DeadlineKind::Send });
        self.read.into_iter().chain(send).min_by_key(|deadline| deadline.at)
    }

    fn expire(&mut self, now: Moment) -> Option<Event> {
        if self.send.is_some_and(|at| at.is_due(now)) {
            return self.lose(CloseReason::Expired(DeadlineKind::Send));
        }
        // Taken out first: an expiry is marked once (T6).
        let due = self.read.take_if(|deadline| deadline.at.is_due(now))?;
        self.read_expired(due.kind, now)
    }

    fn stage(&self) -> Stage {
        self.stage
    }
}
