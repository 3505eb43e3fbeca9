//! HTTP/3 behind the methods that the driver calls: the engine and the QUIC connection whose streams it reads and writes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use quinn_proto::{
    Dir, Event as QuicEvent, ReadError, ReadableError, StreamEvent, StreamId, VarInt, WriteError,
};
use sekisho_config::Server;
use sekisho_http::{Fields, Policy, Refusal, Response, Scratch, Sends};
use sekisho_http3::{Acknowledged, Code, Event as Http3Event, Http3, Quic, Read, Stopped};
use sekisho_lifecycle::stay::RequestId;
use sekisho_lifecycle::{CloseReason, Moment, Step};

use super::Event;
use crate::quic::QuicConnection;

/// An HTTP/3 connection.
#[derive(Debug)]
pub(crate) struct Http3Connection {
    pub(super) engine: Http3,
    quic: Rc<RefCell<QuicConnection>>,
    /// The engine has been told of something since the driver last asked.
    is_told: bool,
}

impl Http3Connection {
    pub(super) fn new(
        policy: &Arc<sekisho_http3::Policy>,
        quic: Rc<RefCell<QuicConnection>>,
        accepted: Moment,
    ) -> Self {
        Self { engine: Http3::new(Arc::clone(policy), accepted), quic, is_told: false }
    }

    /// Lets the engine work with the streams of the connection.
    pub(super) fn with<R>(&mut self, call: impl FnOnce(&mut Http3, &mut QuicConnection) -> R) -> R {
        call(&mut self.engine, &mut self.quic.borrow_mut())
    }

    pub(super) fn receive(&mut self, scratch: &mut Scratch, now: Moment) -> Step<Event> {
        self.is_told |= self.quic.borrow().has_events();
        let event = self.with(|engine, quic| {
            quic.tell(engine, now);
            engine.poll(quic, scratch, now)
        });
        Step { taken: 0, event: event.map(into_driver_event) }
    }

    /// Whether the engine has been told of something since the last call: a window may be open again.
    pub(super) fn take_told(&mut self) -> bool {
        std::mem::take(&mut self.is_told)
    }

    pub(super) fn expire(&mut self, now: Moment) -> Option<Event> {
        self.with(|engine, quic| engine.expire(quic, now)).map(into_driver_event)
    }

    pub(super) fn has_work(&self) -> bool {
        let quic = self.quic.borrow();
        quic.has_events() || quic.has_acknowledged() || self.engine.has_work()
    }

    pub(super) fn take_body(
        &mut self,
        id: RequestId,
        max: Option<u64>,
        now: Moment,
    ) -> Result<(), Refusal> {
        self.with(|engine, quic| engine.take_body(id.into(), max, quic, now))
    }

    pub(super) fn respond(&mut self, id: RequestId, response: &Response<'_>, now: Moment) -> Sends {
        let Response { status, fields, length } = *response;
        self.with(|engine, quic| {
            engine.respond(id.into(), status, length, fields.iter(), quic, now)
        })
    }

    pub(super) fn body(&mut self, id: RequestId, bytes: &[u8], now: Moment) -> usize {
        self.with(|engine, quic| engine.body(id.into(), bytes, quic, now))
    }

    pub(super) fn finish(&mut self, id: RequestId, trailers: Option<&Fields>, now: Moment) {
        self.with(|engine, quic| {
            if let Some(trailers) = trailers {
                engine.trailers(id.into(), trailers.iter(), quic, now);
            }
            engine.finish(id.into(), quic, now);
        });
    }

    pub(super) fn break_off(&mut self, id: RequestId, reason: CloseReason, now: Moment) {
        let code = match reason {
            CloseReason::BrokenOff => Code::Internal,
            _ => Code::RequestCancelled,
        };
        self.with(|engine, quic| engine.reset(id.into(), code, quic, now));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.engine.capacity()
    }
}

impl QuicConnection {
    /// Tells the engine what has happened since the last call.
    fn tell(&mut self, engine: &mut Http3, now: Moment) {
        if let Some((bytes, waiting_max, is_all)) = self.take_acknowledged() {
            engine.acknowledged(Acknowledged { bytes, waiting_max, is_all }, now);
        }
        while let Some(event) = self.next_event() {
            match event {
                QuicEvent::Connected | QuicEvent::HandshakeDataReady => {
                    if self.facts().is_some() {
                        engine.start(self);
                    }
                }
                QuicEvent::ConnectionLost { .. } => engine.connection_lost(),
                QuicEvent::Stream(event) => self.tell_stream(&event, engine),
                QuicEvent::DatagramReceived | QuicEvent::DatagramsUnblocked => {}
            }
        }
    }

    fn tell_stream(&mut self, event: &StreamEvent, engine: &mut Http3) {
        match *event {
            StreamEvent::Opened { dir } => {
                while let Some(id) = self.connection.streams().accept(dir) {
                    engine.opened(id.into());
                }
            }
            StreamEvent::Readable { id } => engine.readable(id.into()),
            StreamEvent::Writable { id } => engine.writable(id.into()),
            StreamEvent::Finished { id } => engine.delivered(id.into()),
            StreamEvent::Stopped { id, error_code } => {
                engine.stopped(id.into(), error_code.into());
            }
            StreamEvent::Available { .. } => {}
        }
    }
}

/// A stream's id or a code as the wire has it; what is too large cannot have come from there.
fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

fn stream_id(stream: u64) -> StreamId {
    varint(stream).into()
}

impl Quic for QuicConnection {
    fn read(&mut self, stream: u64, max: usize) -> Read {
        let mut recv = self.connection.recv_stream(stream_id(stream));
        let mut chunks = match recv.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
                return Read::End;
            }
        };
        let read = match chunks.next(max) {
            Ok(Some(chunk)) => Read::Bytes(chunk.bytes),
            Ok(None) => Read::End,
            Err(ReadError::Blocked) => Read::Blocked,
            Err(ReadError::Reset(code)) => Read::Reset(code.into()),
        };
        // What credit is due leaves with the next datagram of this turn.
        let _ = chunks.finalize();
        read
    }

    fn write(&mut self, stream: u64, bytes: &[u8]) -> Result<usize, Stopped> {
        match self.connection.send_stream(stream_id(stream)).write(bytes) {
            Ok(count) => Ok(count),
            Err(WriteError::Blocked) => Ok(0),
            Err(WriteError::Stopped(code)) => Err(Stopped(code.into())),
            Err(WriteError::ClosedStream) => Err(Stopped(0)),
        }
    }

    fn finish(&mut self, stream: u64) {
        // One that was stopped or reset is over in any case.
        let _ = self.connection.send_stream(stream_id(stream)).finish();
    }

    fn reset(&mut self, stream: u64, code: u64) {
        let _ = self.connection.send_stream(stream_id(stream)).reset(varint(code));
    }

    fn stop_sending(&mut self, stream: u64, code: u64) {
        let _ = self.connection.recv_stream(stream_id(stream)).stop(varint(code));
    }

    fn open_uni(&mut self) -> Option<u64> {
        self.connection.streams().open(Dir::Uni).map(u64::from)
    }

    fn set_priority(&mut self, stream: u64, priority: i32) {
        let _ = self.connection.send_stream(stream_id(stream)).set_priority(priority);
    }

    fn close(&mut self, code: u64, reason: &'static str) {
        Self::close(self, varint(code), reason);
    }
}

/// The engine's event as the driver knows it.
fn into_driver_event(event: Http3Event) -> Event {
    match event {
        Http3Event::Request(id) => Event::Request(id.into()),
        Http3Event::Body(id, bytes) => Event::Stored(id.into(), bytes),
        Http3Event::BodyEnd(id) => Event::BodyEnd(id.into()),
        Http3Event::Refused(id, cause) => Event::Refused(id.into(), cause),
        Http3Event::ClientLost(id, _) => Event::ClientLost(id.into()),
        Http3Event::Malformed(_, malformed) => Event::Violation(malformed.message()),
        Http3Event::BoundExceeded(bound) => Event::Violation(bound.tag()),
        Http3Event::Violation(_, what) => Event::Violation(what),
    }
}

/// The settings of a server for HTTP/3 connections.
pub(super) fn policy(common: &Policy, server: &Server) -> sekisho_http3::Policy {
    sekisho_http3::Policy {
        common: common.clone(),
        streams_max: server.http3.streams_max,
        stream_buffer_bytes: server.http3.stream_buffer_bytes,
        ..sekisho_http3::Policy::default()
    }
}
