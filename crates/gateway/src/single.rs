//! The client's side of a protocol with one request for each connection, SCGI or uwsgi: a head, the body as
//! it is, and an answer that ends with its length or with the connection (U1–U3).

use sekisho_http::upstream::{
    Event, Failure, HeadFault, NotReusable, Phase, Request, RequestBody, RequestFault, Scratch,
    Timeouts, Timers, UpstreamProtocol,
};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Engine, Moment, Stage, Step};

use crate::answer::{Answer, Part};
use crate::uwsgi::Modifiers;
use crate::{scgi, uwsgi};

#[derive(Clone, Copy, Debug)]
enum Encoding {
    Scgi,
    Uwsgi(Modifiers),
}

/// One connection to an SCGI or uwsgi application.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one exchange, each independent")]
pub struct SingleRequest {
    encoding: Encoding,
    head_bytes_max: usize,
    timers: Timers,
    /// `None` before the request and after its end.
    answer: Option<Answer>,
    /// So many bytes of the request body are missing.
    body_left: u64,
    /// Some of the request has left.
    is_sent: bool,
    is_used: bool,
    /// A byte of the answer has come.
    is_answered: bool,
    /// The answer is complete, and the event for the task is still due.
    is_complete: bool,
    stage: Stage,
    is_failed: bool,
}

impl SingleRequest {
    /// A connection to an SCGI application.
    pub const fn scgi(head_bytes_max: usize, timeouts: Timeouts) -> Self {
        Self::new(Encoding::Scgi, head_bytes_max, timeouts)
    }

    /// A connection to a uwsgi application.
    pub const fn uwsgi(modifiers: Modifiers, head_bytes_max: usize, timeouts: Timeouts) -> Self {
        Self::new(Encoding::Uwsgi(modifiers), head_bytes_max, timeouts)
    }

    const fn new(encoding: Encoding, head_bytes_max: usize, timeouts: Timeouts) -> Self {
        Self {
            encoding,
            head_bytes_max,
            timers: Timers::new(timeouts),
            answer: None,
            body_left: 0,
            is_sent: false,
            is_used: false,
            is_answered: false,
            is_complete: false,
            stage: Stage::Open,
            is_failed: false,
        }
    }

    const fn is_request_sent(&self) -> bool {
        self.body_left == 0 && !self.timers.is_unsent()
    }

    fn rearm(&mut self, is_active: bool, now: Moment) {
        let is_awaited = self.answer.is_some() && (self.is_answered || self.is_request_sent());
        self.timers.await_answer(is_awaited && !self.is_complete, is_active, now);
    }

    fn close(&mut self, reason: CloseReason) {
        self.answer = None;
        self.is_complete = false;
        self.stage = Stage::Closed(reason);
        self.timers.stop();
    }

    fn fail(&mut self, failure: Failure, reason: CloseReason) -> Event {
        self.is_failed = true;
        self.close(reason);
        Event::Failed(failure)
    }

    fn bad_head(&mut self, fault: HeadFault, taken: usize) -> Step<Event> {
        let event = self.fail(Failure::BadHead(fault), CloseReason::OutOfSync);
        Step { taken, event: Some(event) }
    }
}

impl Engine for SingleRequest {
    type Event = Event;
    type Scratch = Scratch;

    fn receive(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
        if matches!(self.stage, Stage::Closed(_)) {
            return Step { taken: input.len(), event: None };
        }
        if self.timers.is_held() {
            return Step::NOTHING;
        }
        if self.is_complete {
            self.close(CloseReason::CloseDelimited);
            return Step { taken: input.len(), event: Some(Event::End) };
        }
        if input.is_empty() {
            return Step::NOTHING;
        }
        let Some(answer) = &mut self.answer else {
            self.close(CloseReason::OutOfSync);
            return Step { taken: input.len(), event: None };
        };
        if !self.is_sent {
            return self.bad_head(HeadFault::Unsolicited, input.len());
        }
        self.is_answered = true;
        let mut at = 0;
        let event = loop {
            match answer.feed(&input[at..], &mut scratch.head) {
                Err(fault) => return self.bad_head(fault, input.len()),
                Ok((taken, part)) => {
                    let span = |range: std::ops::Range<usize>| at + range.start..at + range.end;
                    let event = match part {
                        Part::Nothing => None,
                        Part::Head => {
                            scratch.trailers.clear();
                            Some(Event::Head)
                        }
                        Part::Body(range) if range.is_empty() => None,
                        Part::Body(range) => Some(Event::Body(span(range).into())),
                    };
                    at += taken;
                    if event.is_some() || taken == 0 {
                        break event;
                    }
                }
            }
        };
        self.is_complete = answer.is_whole();
        self.rearm(at > 0, now);
        Step { taken: at, event }
    }

    fn input_ended(&mut self, _: Moment) -> Option<Event> {
        if matches!(self.stage, Stage::Closed(_)) {
            return None;
        }
        match self.answer.as_ref().map(Answer::end) {
            None => {
                self.close(CloseReason::PeerClosed);
                None
            }
            Some(Ok(())) => {
                self.close(CloseReason::CloseDelimited);
                Some(Event::End)
            }
            Some(Err(failure)) => Some(self.fail(failure, CloseReason::PeerClosedEarly)),
        }
    }

    fn transmitted(&mut self, moved: u64, pending: bool, now: Moment) {
        if matches!(self.stage, Stage::Closed(_)) {
            return;
        }
        self.is_sent |= moved > 0;
        self.timers.transmitted(moved, pending, now);
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
        Some(self.fail(failure, CloseReason::Expired(kind)))
    }

    fn stage(&self) -> Stage {
        self.stage
    }
}

impl UpstreamProtocol for SingleRequest {
    fn start(
        &mut self,
        request: &Request<'_>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), RequestFault> {
        if self.is_used || self.stage != Stage::Open {
            return Err(RequestFault::Busy);
        }
        match self.encoding {
            Encoding::Scgi => scgi::encode(request, &mut scratch.out)?,
            Encoding::Uwsgi(modifiers) => uwsgi::encode(modifiers, request, &mut scratch.out)?,
        }
        self.is_used = true;
        self.body_left = match request.body {
            RequestBody::Known(length) => length,
            RequestBody::None | RequestBody::Unknown => 0,
        };
        self.answer = Some(Answer::new(self.head_bytes_max, request.method == b"HEAD"));
        self.timers.wrote(now);
        self.rearm(false, now);
        Ok(())
    }

    fn body(&mut self, bytes: &[u8], scratch: &mut Scratch, now: Moment) -> usize {
        let len = self.body_left.min(bytes.len() as u64);
        if len > 0 && !matches!(self.stage, Stage::Closed(_)) {
            self.body_left -= len;
            scratch.out.extend_from_slice(&bytes[..len as usize]);
            self.timers.wrote(now);
        }
        bytes.len()
    }

    fn end_body(&mut self, _: &mut Scratch, now: Moment) -> Result<(), RequestFault> {
        if matches!(self.stage, Stage::Closed(_)) {
            return Ok(());
        }
        if self.body_left > 0 {
            self.is_failed = true;
            self.close(CloseReason::BrokenOff);
            return Err(RequestFault::BodyShort);
        }
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
        if self.answer.is_none() {
            self.close(CloseReason::TransportLost);
            return None;
        }
        Some(self.fail(Failure::Lost(errno), CloseReason::TransportLost))
    }

    fn is_answered(&self) -> bool {
        self.is_answered
    }

    fn phase(&self) -> Phase {
        match &self.answer {
            None => Phase::Idle,
            Some(answer) if answer.has_head() => Phase::ReadingBody,
            Some(_) if self.is_answered || self.is_request_sent() => Phase::ReadingHead,
            Some(_) => Phase::Sending,
        }
    }

    fn reuse(&self) -> Result<(), NotReusable> {
        match self.stage {
            _ if self.is_failed => Err(NotReusable::Failed),
            _ if self.is_used => Err(NotReusable::Protocol),
            Stage::Open => Ok(()),
            _ => Err(NotReusable::PeerClosed),
        }
    }
}
