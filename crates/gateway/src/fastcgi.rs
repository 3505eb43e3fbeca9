//! FastCGI 1.0: the client's side of one connection, one request at a time (U1–U4). The answer comes in
//! records; what they hold is a CGI answer. Output on the application's standard error is an event.

mod record;

use sekisho_http::upstream::{
    BodyFault, Event, Failure, HeadFault, NotReusable, Phase, Request, RequestBody, RequestFault,
    Scratch, Timeouts, Timers, UpstreamProtocol,
};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Engine, Moment, Stage, Step};

use crate::answer::{Answer, Part};
use record::{END_BYTES, HEADER_BYTES, Header, Kind};

/// The sending half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    Done,
    /// So many bytes of the body are missing.
    Exactly(u64),
    /// Not known how many.
    Stream,
}

/// The position of the receiving half within a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// Between records.
    Header,
    /// So much of its content is left, and so much padding behind it.
    Record { kind: Kind, content: u16, padding: u8 },
}

/// One connection to a FastCGI application.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one exchange, each independent")]
pub struct FastCgi {
    head_bytes_max: usize,
    timers: Timers,
    /// The id of the last request. Each request on a connection has another one, so that a record that comes late, of
    /// the request before, is not taken for a part of the response.
    id: u16,
    /// `None` between requests.
    answer: Option<Answer>,
    input: Input,
    output: Output,
    keeps: bool,
    /// Some of the request has left.
    is_sent: bool,
    /// A byte of the answer has come.
    is_answered: bool,
    /// The application ended its standard output.
    has_stdout_ended: bool,
    /// The request ended, as the application sees it.
    has_ended: bool,
    not_reusable: Option<NotReusable>,
    stage: Stage,
}

impl FastCgi {
    /// A connection that is there and has carried nothing.
    pub const fn new(head_bytes_max: usize, timeouts: Timeouts) -> Self {
        Self {
            head_bytes_max,
            timers: Timers::new(timeouts),
            id: 0,
            answer: None,
            input: Input::Header,
            output: Output::Done,
            keeps: false,
            is_sent: false,
            is_answered: false,
            has_stdout_ended: false,
            has_ended: false,
            not_reusable: None,
            stage: Stage::Open,
        }
    }

    /// Other limits and timeouts, for the next request.
    pub const fn set_policy(&mut self, head_bytes_max: usize, timeouts: Timeouts) {
        self.head_bytes_max = head_bytes_max;
        self.timers.set_timeouts(timeouts);
    }

    fn is_request_sent(&self) -> bool {
        self.output == Output::Done && !self.timers.is_unsent()
    }

    fn rearm(&mut self, is_active: bool, now: Moment) {
        let is_awaited = self.answer.is_some() && (self.is_answered || self.is_request_sent());
        self.timers.await_answer(is_awaited, is_active, now);
    }

    fn close(&mut self, why: NotReusable, reason: CloseReason) {
        self.answer = None;
        self.output = Output::Done;
        self.not_reusable = self.not_reusable.or(Some(why));
        self.stage = Stage::Closed(reason);
        self.timers.stop();
    }

    fn fail(&mut self, failure: Failure, reason: CloseReason) -> Event {
        self.close(NotReusable::Failed, reason);
        Event::Failed(failure)
    }

    /// The answer is complete: the connection is free for the next request, or over (U4).
    fn complete(&mut self, now: Moment) -> Event {
        let reason = if !self.has_ended {
            Some((NotReusable::CloseDelimited, CloseReason::CloseDelimited))
        } else if !self.is_request_sent() {
            Some((NotReusable::RequestUnsent, CloseReason::OutOfSync))
        } else if !self.keeps {
            Some((NotReusable::WeAsked, CloseReason::KeepAliveOff))
        } else {
            None
        };
        if let Some((why, reason)) = reason {
            self.close(why, reason);
        } else {
            self.answer = None;
            self.input = Input::Header;
            self.rearm(false, now);
        }
        Event::End
    }

    /// Takes bytes of a record; `None` when there are not enough.
    fn record(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<(usize, Option<Event>)>, Failure> {
        let Input::Record { kind, content, padding } = self.input else {
            let Some(bytes) = input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
            let Header { kind, content, padding } =
                Header::read(*bytes, self.id).map_err(Failure::BadBody)?;
            if kind == Kind::Stdout && self.has_stdout_ended && content > 0 {
                return Err(Failure::BadBody(BodyFault::RecordType));
            }
            self.has_stdout_ended |= kind == Kind::Stdout && content == 0;
            self.input = Input::Record { kind, content, padding };
            return Ok(Some((HEADER_BYTES, None)));
        };
        if content == 0 {
            return Ok(self.padding(kind, padding, input, now));
        }
        let available = &input[..input.len().min(usize::from(content))];
        if available.is_empty() {
            return Ok(None);
        }
        let (taken, event) = match kind {
            Kind::Management => (available.len(), None),
            Kind::Stderr => (available.len(), Some(Event::Stderr((0..available.len()).into()))),
            Kind::End => {
                let Some(bytes) = available.first_chunk::<END_BYTES>() else { return Ok(None) };
                self.end_request(bytes[4])?;
                (END_BYTES, None)
            }
            Kind::Stdout => {
                let Some(answer) = &mut self.answer else { return Ok(None) };
                let fed = answer.feed(available, &mut scratch.head);
                let (taken, part) = fed.map_err(Failure::BadHead)?;
                let event = match part {
                    Part::Nothing => None,
                    Part::Head => Some(Event::Head),
                    Part::Body(range) if range.is_empty() => None,
                    Part::Body(range) => Some(Event::Body(range.into())),
                };
                (taken, event)
            }
        };
        if taken == 0 && event.is_none() {
            return Ok(None);
        }
        self.input = Input::Record { kind, content: content - taken as u16, padding };
        Ok(Some((taken, event)))
    }

    /// Takes padding, and ends the record with it.
    fn padding(
        &mut self,
        kind: Kind,
        padding: u8,
        input: &[u8],
        now: Moment,
    ) -> Option<(usize, Option<Event>)> {
        let taken = input.len().min(usize::from(padding));
        let left = padding - taken as u8;
        if left > 0 {
            self.input = Input::Record { kind, content: 0, padding: left };
            return (taken > 0).then_some((taken, None));
        }
        self.input = Input::Header;
        let event = (kind == Kind::End).then(|| self.complete(now));
        Some((taken, event))
    }

    fn end_request(&mut self, protocol_status: u8) -> Result<(), Failure> {
        const REQUEST_COMPLETE: u8 = 0;
        let Some(answer) = &self.answer else { return Ok(()) };
        // Not served: too many at once, or not its role.
        if protocol_status != REQUEST_COMPLETE && !answer.has_head() {
            return Err(Failure::NotTaken);
        }
        answer.end()?;
        self.has_ended = true;
        Ok(())
    }
}

impl Engine for FastCgi {
    type Event = Event;
    type Scratch = Scratch;

    fn receive(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
        if matches!(self.stage, Stage::Closed(_)) {
            return Step { taken: input.len(), event: None };
        }
        if self.timers.is_held() {
            return Step::NOTHING;
        }
        if self.answer.is_none() {
            if !input.is_empty() {
                self.close(NotReusable::Surplus, CloseReason::OutOfSync);
            }
            return Step { taken: input.len(), event: None };
        }
        if !self.is_sent && !input.is_empty() {
            let failure = Failure::BadHead(HeadFault::Unsolicited);
            let event = self.fail(failure, CloseReason::OutOfSync);
            return Step { taken: input.len(), event: Some(event) };
        }
        let mut at = 0;
        while let Some(answer) = &self.answer {
            // All that was declared is there, and the connection is not kept.
            if answer.is_whole() && !self.keeps {
                return Step { taken: input.len(), event: Some(self.complete(now)) };
            }
            let (taken, event) = match self.record(&input[at..], scratch, now) {
                Ok(None) => break,
                Ok(Some(found)) => found,
                Err(failure) => {
                    let event = self.fail(failure, CloseReason::OutOfSync);
                    return Step { taken: input.len(), event: Some(event) };
                }
            };
            self.is_answered |= taken > 0;
            let start = at;
            at += taken;
            if let Some(event) = event {
                self.rearm(true, now);
                return Step { taken: at, event: Some(shifted(event, start)) };
            }
        }
        if at > 0 {
            self.rearm(true, now);
        }
        Step { taken: at, event: None }
    }

    fn input_ended(&mut self, now: Moment) -> Option<Event> {
        if matches!(self.stage, Stage::Closed(_)) {
            return None;
        }
        let Some(answer) = &self.answer else {
            self.close(NotReusable::PeerClosed, CloseReason::PeerClosed);
            return None;
        };
        match answer.end() {
            // Without the end of the request only a length or the end of the output says that it is whole.
            Ok(()) if answer.is_whole() || self.has_stdout_ended => Some(self.complete(now)),
            Ok(()) => Some(self.fail(Failure::BodyCut, CloseReason::PeerClosedEarly)),
            Err(failure) => Some(self.fail(failure, CloseReason::PeerClosedEarly)),
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

fn shifted(event: Event, by: usize) -> Event {
    match event {
        Event::Body(span) => Event::Body((span.start + by..span.end + by).into()),
        Event::Stderr(span) => Event::Stderr((span.start + by..span.end + by).into()),
        other => other,
    }
}

impl UpstreamProtocol for FastCgi {
    fn start(
        &mut self,
        request: &Request<'_>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), RequestFault> {
        if self.stage != Stage::Open || self.answer.is_some() {
            return Err(RequestFault::Busy);
        }
        // 0 is no request's: it is for records about the connection.
        let id = self.id.checked_add(1).unwrap_or(1);
        record::begin(request, id, &mut scratch.out)?;
        self.id = id;
        self.output = match request.body {
            RequestBody::None | RequestBody::Known(0) => Output::Done,
            RequestBody::Known(length) => Output::Exactly(length),
            RequestBody::Unknown => Output::Stream,
        };
        if self.output == Output::Done {
            record::stdin_end(&mut scratch.out, self.id);
        }
        scratch.trailers.clear();
        self.answer = Some(Answer::new(self.head_bytes_max, request.method == b"HEAD"));
        self.input = Input::Header;
        self.keeps = request.keeps_alive;
        self.is_sent = false;
        self.is_answered = false;
        self.has_stdout_ended = false;
        self.has_ended = false;
        self.timers.wrote(now);
        self.rearm(false, now);
        Ok(())
    }

    fn body(&mut self, bytes: &[u8], scratch: &mut Scratch, now: Moment) -> usize {
        if matches!(self.stage, Stage::Closed(_)) {
            return bytes.len();
        }
        let len = match &mut self.output {
            Output::Done => return bytes.len(),
            Output::Stream => bytes.len(),
            Output::Exactly(left) => {
                let len = (*left).min(bytes.len() as u64);
                *left -= len;
                len as usize
            }
        };
        // An empty record would be the end.
        if len > 0 {
            record::stdin(&mut scratch.out, self.id, &bytes[..len]);
            self.timers.wrote(now);
        }
        bytes.len()
    }

    fn end_body(&mut self, scratch: &mut Scratch, now: Moment) -> Result<(), RequestFault> {
        match self.output {
            Output::Done => return Ok(()),
            Output::Exactly(1..) => {
                self.close(NotReusable::Failed, CloseReason::BrokenOff);
                return Err(RequestFault::BodyShort);
            }
            Output::Exactly(0) | Output::Stream => {}
        }
        record::stdin_end(&mut scratch.out, self.id);
        self.output = Output::Done;
        self.timers.wrote(now);
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
            self.close(NotReusable::PeerClosed, CloseReason::TransportLost);
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
        match (self.not_reusable, &self.answer) {
            (Some(reason), _) => Err(reason),
            (None, None) => Ok(()),
            (None, Some(_)) => Err(NotReusable::Busy),
        }
    }
}
