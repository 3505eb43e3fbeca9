//! A scripted peer and shell around one engine.

use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Status;
use sekisho_http2::frame::{self, HEADER_BYTES, Header, Kind, PREFACE, flag};
use sekisho_http2::hpack::Decoder;
use sekisho_http2::{BodyLength, Event, Http2, Policy, Scratch, Sends, StreamId};
use sekisho_lifecycle::{Engine, Moment, Stage};

/// A request for `/`.
pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
/// A request with a body.
pub(crate) const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":path", "/up"), (":authority", "a")];

/// A frame that the engine sent, as far as tests ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    Settings,
    SettingsAck,
    Headers { stream: u32, fields: Vec<String>, ends: bool },
    Data { stream: u32, len: usize, ends: bool },
    Reset(u32, u32),
    Window(u32, u32),
    Ping,
    Pong,
    GoAway(u32, u32),
}

pub(crate) struct Peer {
    pub(crate) engine: Http2,
    pub(crate) scratch: Scratch,
    pub(crate) now: Moment,
    /// What was offered and not taken.
    pub(crate) inbox: Vec<u8>,
    decoder: Decoder,
    wire: Vec<u8>,
}

pub(crate) fn seconds(seconds: u64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

pub(crate) fn policy(change: impl FnOnce(&mut Policy)) -> Arc<Policy> {
    let mut policy = Policy::default();
    change(&mut policy);
    Arc::new(policy)
}

/// A frame in its wire form.
pub(crate) fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::header(&mut out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
    out
}

pub(crate) fn data(stream: u32, payload: &[u8], ends: bool) -> Vec<u8> {
    frame(Kind::Data, if ends { flag::END_STREAM } else { 0 }, stream, payload)
}

pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::settings(&mut out, values);
    out
}

pub(crate) fn settings_ack() -> Vec<u8> {
    frame(Kind::Settings, flag::ACK, 0, &[])
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(Kind::RstStream, 0, stream, &8_u32.to_be_bytes())
}

pub(crate) fn window(stream: u32, increment: u32) -> Vec<u8> {
    frame(Kind::WindowUpdate, 0, stream, &increment.to_be_bytes())
}

/// A header block that needs no table.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            let len = text.len();
            if len < 127 {
                out.push(len as u8);
            } else {
                let rest = len - 127;
                assert!(rest < 1 << 14);
                out.extend_from_slice(&[127, 0x80 | (rest & 0x7f) as u8, (rest >> 7) as u8]);
            }
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

pub(crate) fn headers(stream: u32, fields: &[(&str, &str)], ends: bool) -> Vec<u8> {
    let flags = flag::END_HEADERS | if ends { flag::END_STREAM } else { 0 };
    frame(Kind::Headers, flags, stream, &block(fields))
}

impl Peer {
    /// A connection whose preface has not come.
    pub(crate) fn fresh(policy: Arc<Policy>) -> Self {
        Self {
            engine: Http2::new(policy, Moment::ZERO),
            scratch: Scratch::default(),
            now: Moment::ZERO,
            inbox: Vec::new(),
            decoder: Decoder::default(),
            wire: Vec::new(),
        }
    }

    /// A connection on which both sides have sent their preface.
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        let mut peer = Self::fresh(policy);
        peer.sends([&PREFACE[..], &settings(&[]), &settings_ack()].concat());
        peer.flushes();
        peer
    }

    pub(crate) fn open() -> Self {
        Self::new(policy(|_| {}))
    }

    /// Offers more input, and returns all events that come of it.
    pub(crate) fn sends(&mut self, bytes: impl AsRef<[u8]>) -> Vec<Event> {
        self.inbox.extend_from_slice(bytes.as_ref());
        let mut events = Vec::new();
        while let Some(event) = self.next() {
            events.push(event);
        }
        events
    }

    /// What comes next of what was offered. Body bytes are consumed at once.
    pub(crate) fn next(&mut self) -> Option<Event> {
        loop {
            let step = self.engine.receive(&self.inbox, &mut self.scratch, self.now);
            assert!(step.taken <= self.inbox.len());
            let is_rest = step.is_rest();
            self.inbox.drain(..step.taken);
            if is_rest || step.event.is_some() {
                return step.event;
            }
        }
    }

    /// Sends a request that the engine must give to the shell.
    pub(crate) fn requests(
        &mut self,
        stream: u32,
        fields: &[(&str, &str)],
        ends: bool,
    ) -> StreamId {
        match self.sends(headers(stream, fields, ends)).as_slice() {
            [Event::Request(id)] => *id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn gets(&mut self, stream: u32) -> StreamId {
        self.requests(stream, &GET, true)
    }

    pub(crate) fn heads(&mut self, id: StreamId, status: Status, length: BodyLength) -> Sends {
        let fields: [(&[u8], &[u8]); 1] = [(b"Server", b"s")];
        self.engine.respond(id, status, length, fields, &mut self.scratch, self.now)
    }

    pub(crate) fn finishes(&mut self, id: StreamId) {
        self.engine.finish(id, &mut self.scratch, self.now);
    }

    pub(crate) fn bodies(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        self.engine.body(id, bytes, &mut self.scratch, self.now)
    }

    pub(crate) fn is_ready(&mut self, id: StreamId) {
        self.engine.set_ready(id, true, self.now);
    }

    /// A whole response with a body of two bytes.
    pub(crate) fn answers(&mut self, id: StreamId, status: Status) {
        if self.heads(id, status, BodyLength::Known(2)) != Sends::Nothing {
            self.bodies(id, b"ok");
        }
        self.finishes(id);
    }

    pub(crate) fn takes_body(&mut self, id: StreamId, max: Option<u64>) -> Result<(), u16> {
        let taken = self.engine.take_body(id, max, &mut self.scratch, self.now);
        taken.map_err(|refusal| refusal.status.code())
    }

    /// The transport takes everything; the frames are returned.
    pub(crate) fn flushes(&mut self) -> Vec<Sent> {
        self.engine.flush(&mut self.scratch, self.now);
        let out = std::mem::take(&mut self.scratch.out);
        self.engine.transmitted(out.len() as u64, false, self.now);
        self.wire.extend_from_slice(&out);
        let mut frames = Vec::new();
        while let Some(header) = Header::read(&self.wire) {
            let end = HEADER_BYTES + header.len as usize;
            assert!(end <= self.wire.len(), "a frame is not complete: {header:?}");
            let frame: Vec<u8> = self.wire.drain(..end).collect();
            frames.push(self.read(header, &frame[HEADER_BYTES..]));
        }
        assert!(self.wire.is_empty(), "the output ends within a frame");
        frames
    }

    fn read(&mut self, header: Header, payload: &[u8]) -> Sent {
        let (stream, ends) = (header.stream, header.has(flag::END_STREAM));
        let number = |at| frame::number(payload, at).expect("it is long enough");
        match header.kind {
            Kind::Settings if header.has(flag::ACK) => Sent::SettingsAck,
            Kind::Settings => Sent::Settings,
            Kind::Headers => {
                assert!(header.has(flag::END_HEADERS), "these tests have short heads");
                let mut fields = Vec::new();
                let decoded = self.decoder.decode(payload, &mut Vec::new(), |field| {
                    let (name, value) = (field.name.escape_ascii(), field.value.escape_ascii());
                    fields.push(format!("{name}: {value}"));
                });
                decoded.expect("our own blocks can be decoded");
                Sent::Headers { stream, fields, ends }
            }
            Kind::Data => Sent::Data { stream, len: payload.len(), ends },
            Kind::RstStream => Sent::Reset(stream, number(0)),
            Kind::WindowUpdate => Sent::Window(stream, number(0)),
            Kind::Ping if header.has(flag::ACK) => Sent::Pong,
            Kind::Ping => Sent::Ping,
            Kind::GoAway => Sent::GoAway(number(0), number(4)),
            other => panic!("we send no {other:?}"),
        }
    }

    /// The transport takes nothing.
    pub(crate) fn stalls(&mut self) {
        self.engine.transmitted(0, true, self.now);
    }

    pub(crate) fn at(&mut self, now: Moment) -> &mut Self {
        self.now = now;
        self
    }

    pub(crate) fn after(&mut self, length: Duration) -> &mut Self {
        self.now = self.now + length;
        self
    }

    /// All that falls due now.
    pub(crate) fn expires(&mut self) -> Vec<Event> {
        let first = self.engine.expire(self.now);
        let mut events: Vec<Event> = first.into_iter().collect();
        while let Some(event) = self.engine.next_event(&mut self.scratch) {
            events.push(event);
        }
        events
    }

    pub(crate) fn stage(&self) -> Stage {
        self.engine.stage()
    }

    /// Sends what must end the connection, and says with which code it did.
    pub(crate) fn fails(&mut self, bytes: impl AsRef<[u8]>) -> (Vec<Event>, u32) {
        let events = self.sends(bytes);
        let frames = self.flushes();
        let Some(Sent::GoAway(_, code)) = frames.last() else {
            panic!("no GOAWAY at the end of {frames:?}")
        };
        assert_eq!(self.stage(), Stage::Lingering);
        assert!(self.sends(b"whatever comes").is_empty() && self.inbox.is_empty());
        (events, *code)
    }
}
