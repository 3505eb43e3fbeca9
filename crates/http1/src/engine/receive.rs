//! The receiving half: input into events, one at a time.

use sekisho_http::{Head, Method};
use sekisho_lifecycle::{CloseReason, Moment, Stage, Step};

use super::{Fate, Http1, Input, Output, Request};
use crate::body::{Decoder, Progress};
use crate::event::Event;
use crate::frame::Framer;
use crate::parse::{self, Expectation, Message};
use sekisho_http::Scratch;
use sekisho_http::refusal::Cause;

impl Http1 {
    pub(super) fn receive_head(
        &mut self,
        mut framer: Framer,
        input: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Step<Event> {
        if input.is_empty() {
            return Step::NOTHING;
        }
        let skipped = if self.begun { Ok(0) } else { framer.skip_blank(input) };
        let bytes = skipped.map_or(input, |skipped| &input[skipped..]);
        if !bytes.is_empty() && !self.begun {
            self.begin(scratch, now);
        }
        let parsed =
            skipped.and_then(|_| parse::head(&mut framer, bytes, &self.base, &mut scratch.head));
        match parsed {
            Ok(None) => {
                self.input = Input::Head(framer);
                Step { taken: input.len() - bytes.len(), event: None }
            }
            Ok(Some((len, message))) => {
                let event = self.accept(message, &scratch.head, len < bytes.len());
                Step { taken: input.len() - bytes.len() + len, event: Some(event) }
            }
            Err(cause) => {
                // As much as is known: whether it was HEAD, and which version wants the answer.
                if let Some(line) = framer.line() {
                    if scratch.head.method_name().is_empty() {
                        scratch.head.begin(line.method(bytes), line.target(bytes), line.version());
                    }
                    self.request.version = line.version();
                    self.request.is_head = scratch.head.method() == Method::Head;
                } else {
                    scratch.head.keep_unreadable(first_line(bytes, self.base.line_bytes_max));
                }
                let event = self.refuse(cause, CloseReason::OutOfSync);
                Step { taken: input.len(), event: Some(event) }
            }
        }
    }

    /// A request has been received whole as far as its head goes.
    fn accept(&mut self, message: Message, head: &Head, body_arrived: bool) -> Event {
        self.requests += 1;
        self.read = None;
        self.request = Request {
            framing: message.framing,
            version: head.version(),
            is_head: head.method() == Method::Head,
            persists: message.persists,
            expects: message.expectation == Expectation::Continue,
            body_arrived,
        };
        let decoder = Decoder::new(message.framing);
        self.input = decoder.map_or(Input::Complete { report_end: false }, |decoder| Input::Body {
            decoder,
            fate: Fate::Open,
            allowance: 0,
        });
        match (message.expectation, decoder) {
            (Expectation::Unknown, None) => Event::Refused(Cause::ExpectationUnknown.into()),
            (Expectation::Unknown, Some(_)) => {
                self.refuse(Cause::ExpectationUnknown, CloseReason::OutOfSync)
            }
            _ => Event::Request,
        }
    }

    pub(super) fn receive_body(&mut self, input: &[u8], now: Moment) -> Step<Event> {
        let discard_max = self.policy().body_discard_max;
        let mut at = 0;
        while let Input::Body { decoder, fate, allowance } = &mut self.input {
            let fate_now = *fate;
            let decoded = match decoder.advance(&input[at..], *allowance) {
                Ok(decoded) => decoded,
                Err(cause) => return self.body_fault(cause, fate_now, input.len(), now),
            };
            let data = at + decoded.data.start..at + decoded.data.end;
            *allowance -= data.len() as u64;
            at += decoded.taken;
            match (decoded.state, fate_now) {
                (Progress::Over, Fate::Taken) if self.output == Output::Awaited => {
                    (*fate, *allowance) = (Fate::Refused, discard_max);
                    continue;
                }
                (Progress::Over, _) => {
                    return self.body_fault(Cause::BodyTooLarge, fate_now, input.len(), now);
                }
                (Progress::End, _) => {
                    self.input = Input::Complete { report_end: fate_now == Fate::Taken };
                    self.read = None;
                }
                (Progress::More, _) => {}
            }
            if decoded.state == Progress::More && decoded.taken > 0 {
                self.body_came(decoded.taken, now);
            }
            match fate_now {
                Fate::Taken if !data.is_empty() => {
                    return Step { taken: at, event: Some(Event::Body(data)) };
                }
                Fate::Refused if decoded.state == Progress::End => {
                    let event = Event::Refused(Cause::BodyTooLarge.into());
                    return Step { taken: at, event: Some(event) };
                }
                _ if decoded.taken == 0 => break,
                _ => {}
            }
        }
        if let Input::Complete { report_end: report_end @ true } = &mut self.input {
            *report_end = false;
            return Step { taken: at, event: Some(Event::BodyEnd) };
        }
        if self.ended && matches!(self.input, Input::Body { .. }) {
            return Step { taken: at, event: self.end_in_request(now) };
        }
        self.settle(now);
        Step { taken: at, event: None }
    }

    /// How many bytes of the body the shell may take from the transport itself, past the engine: none
    /// unless it was taken, has a length and nothing of it waits to be offered.
    pub fn direct_body(&self) -> u64 {
        match self.input {
            Input::Body { decoder: Decoder::Length(left), fate: Fate::Taken, allowance }
                if self.stage == Stage::Open && self.held.is_none() && !self.ended =>
            {
                left.min(allowance)
            }
            _ => 0,
        }
    }

    /// The shell has taken so many bytes of the body itself, no more than
    /// [`direct_body`](Http1::direct_body) said.
    pub fn body_taken(&mut self, bytes: u64, now: Moment) {
        let Input::Body { decoder: Decoder::Length(left), allowance, .. } = &mut self.input else {
            return;
        };
        *left = left.saturating_sub(bytes);
        *allowance = allowance.saturating_sub(bytes);
        if *left == 0 {
            self.input = Input::Complete { report_end: true };
            self.read = None;
        } else {
            self.body_came(bytes as usize, now);
        }
    }

    /// The end of the body cannot be found, or is too far away.
    fn body_fault(&mut self, cause: Cause, fate: Fate, taken: usize, now: Moment) -> Step<Event> {
        let event = match (self.output, fate) {
            (Output::Awaited, _) => Some(self.refuse(cause, CloseReason::OutOfSync)),
            (_, Fate::Taken) => self.lose(CloseReason::OutOfSync),
            // The response is not to blame: it goes on, and the connection ends with it.
            _ => {
                self.closing = self.closing.or(Some(CloseReason::OutOfSync));
                self.ignore_input();
                self.settle(now);
                None
            }
        };
        Step { taken, event }
    }

    /// The first byte of a request: the header deadline starts anew, under the listener's own policy.
    fn begin(&mut self, scratch: &mut Scratch, now: Moment) {
        self.begun = true;
        self.chosen = None;
        scratch.head.clear();
        if self.requests > 0 {
            self.arm(now);
        }
    }
}

/// The first line of what came, as far as it may be long.
fn first_line(bytes: &[u8], max: usize) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(max)];
    let line = memchr::memchr(b'\n', bytes).map_or(bytes, |end| &bytes[..end]);
    line.strip_suffix(b"\r").unwrap_or(line)
}
