//! HTTP/2 behind the methods that the driver calls.

use sekisho_config::{Server, Settings};
use sekisho_http::{Policy, Response, Scratch, Sends};
use sekisho_http2::{Code, Event as Http2Event, Http2};
use sekisho_lifecycle::stay::RequestId;
use sekisho_lifecycle::{CloseReason, Engine, Moment, Step};
use std::sync::Arc;

use super::Event;

/// The client's connection preface (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct Http2Connection {
    pub(super) engine: Http2,
    /// Room for heads that are being received, while the connection is busy.
    scratch: Option<Box<sekisho_http2::Scratch>>,
}

impl Http2Connection {
    pub(super) fn new(policy: &Arc<sekisho_http2::Policy>, accepted: Moment) -> Self {
        Self { engine: Http2::new(Arc::clone(policy), accepted), scratch: None }
    }

    /// Lets the engine work with the output and the head of the connection.
    pub(super) fn with<R>(
        &mut self,
        scratch: &mut Scratch,
        call: impl FnOnce(&mut Http2, &mut sekisho_http2::Scratch) -> R,
    ) -> R {
        let own = self.scratch.get_or_insert_default();
        std::mem::swap(&mut own.out, &mut scratch.out);
        std::mem::swap(&mut own.head, &mut scratch.head);
        let made = call(&mut self.engine, own);
        std::mem::swap(&mut own.out, &mut scratch.out);
        std::mem::swap(&mut own.head, &mut scratch.head);
        made
    }

    pub(super) fn receive(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Step<Event> {
        let (step, kept) = self.with(scratch, |engine, own| {
            let step = engine.receive(input, own, now);
            let is_kept = matches!(step.event, Some(Http2Event::Stored(_)));
            (step, if is_kept { std::mem::take(&mut own.body) } else { Vec::new() })
        });
        Step { taken: step.taken, event: step.event.map(|event| told(event, kept)) }
    }

    pub(super) fn input_ended(&mut self, now: Moment) -> Option<Event> {
        self.engine.input_ended(now).map(|event| told(event, Vec::new()))
    }

    pub(super) fn expire(&mut self, now: Moment) -> Option<Event> {
        self.engine.expire(now).map(|event| told(event, Vec::new()))
    }

    pub(super) fn has_work(&self) -> bool {
        self.engine.has_events() || self.engine.wants_flush()
    }

    pub(super) fn respond(
        &mut self,
        id: RequestId,
        response: &Response<'_>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Sends {
        let Response { status, fields, length } = *response;
        self.with(scratch, |engine, own| {
            engine.respond(id.into(), status, length, fields.iter(), own, now)
        })
    }

    pub(super) fn break_off(
        &mut self,
        id: RequestId,
        reason: CloseReason,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        let code = match reason {
            CloseReason::BrokenOff => Code::Internal,
            // It has not been looked at, so that the client may ask again (RFC 9113 §8.7).
            CloseReason::TooMany => Code::RefusedStream,
            _ => Code::Cancel,
        };
        self.with(scratch, |engine, own| engine.reset(id.into(), code, own, now));
    }

    pub(super) fn shrink(&mut self) {
        // It may hold the beginning of an unfinished head.
        if !self.engine.is_within_head() {
            self.scratch = None;
        }
        self.engine.shrink();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let scratch = self.scratch.as_ref().map_or(0, |scratch| scratch.capacity());
        size_of::<Self>() + self.engine.capacity() + scratch
    }
}

/// The engine's event in the driver's words.
fn told(event: Http2Event, kept: Vec<u8>) -> Event {
    match event {
        Http2Event::Request(id) => Event::Request(id.into()),
        Http2Event::Body(id, range) => Event::Body(id.into(), range),
        Http2Event::Stored(id) => Event::Stored(id.into(), kept.into()),
        Http2Event::BodyEnd(id) => Event::BodyEnd(id.into()),
        Http2Event::Refused(id, cause) => Event::Refused(id.into(), cause),
        Http2Event::ClientLost(id, _) => Event::ClientLost(id.into()),
        Http2Event::Malformed(_, malformed) => Event::Violation(malformed.message()),
        Http2Event::BoundExceeded(bound) => Event::Violation(bound.tag()),
    }
}

/// What a location says about HTTP/2 connections.
pub(super) fn policy(
    common: &Policy,
    server: &Server,
    settings: &Settings,
) -> sekisho_http2::Policy {
    sekisho_http2::Policy {
        common: common.clone(),
        streams_max: server.http2.streams_max,
        stream_window_bytes: server.http2.preread_bytes,
        chunk_bytes: settings.http2_chunk_size,
        ..sekisho_http2::Policy::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers bytes until the engine rests, and returns what it said.
    fn receive(connection: &mut Http2Connection, mut input: &[u8]) -> Vec<Event> {
        let mut scratch = Scratch::default();
        let mut events = Vec::new();
        loop {
            let step = connection.receive(input, &mut scratch, Moment::ZERO);
            if step.is_rest() {
                return events;
            }
            input = &input[step.taken..];
            events.extend(step.event);
        }
    }

    #[test]
    fn a_head_in_two_frames_outlives_the_rest_between_them() {
        // M1: the connection may have given its buffers back meanwhile.
        let policy = Arc::new(sekisho_http2::Policy::default());
        let mut connection = Http2Connection::new(&policy, Moment::ZERO);
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        assert_eq!(receive(&mut connection, &[PREFACE, &settings].concat()), []);
        connection.shrink();
        // HEADERS with END_STREAM, `:method GET` and `:scheme http`; then `:path /`, `:authority a`.
        assert_eq!(receive(&mut connection, &[0, 0, 2, 1, 1, 0, 0, 0, 1, 0x82, 0x86]), []);
        connection.shrink();
        let rest = [0, 0, 4, 9, 4, 0, 0, 0, 1, 0x84, 0x41, 1, b'a'];
        let events = receive(&mut connection, &rest);
        assert!(matches!(events[..], [Event::Request(_), ..]), "{events:?}");
    }
}
