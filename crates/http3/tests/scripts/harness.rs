//! A QUIC connection made of byte queues, and a client at its other end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Status;
use sekisho_http::compression::prefixed::{write_integer, write_string};
use sekisho_http3::frame::{self, kind, read_varint, write_header, write_varint};
use sekisho_http3::qpack::{Decoder, Section};
use sekisho_http3::{
    Acknowledged, BodyLength, Code, Event, Http3, Policy, Quic, Read, Scratch, Sends, Stopped,
    StreamId,
};
use sekisho_lifecycle::{Moment, Stage};

/// What the client has sent on a stream.
#[derive(Debug, Default)]
struct Incoming {
    bytes: VecDeque<u8>,
    has_ended: bool,
    reset: Option<u64>,
}

/// What the server has sent on a stream.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) has_ended: bool,
    pub(crate) reset: Option<u64>,
    pub(crate) priority: i32,
    /// How many bytes may still be sent.
    pub(crate) window: usize,
    stopped: Option<u64>,
    is_blocked: bool,
}

/// A connection whose streams are byte queues.
#[derive(Debug)]
pub(crate) struct Streams {
    incoming: BTreeMap<u64, Incoming>,
    pub(crate) outgoing: BTreeMap<u64, Outgoing>,
    pub(crate) stops: BTreeMap<u64, u64>,
    pub(crate) closed: Option<(u64, &'static str)>,
    pub(crate) read_max: usize,
    pub(crate) write_max: usize,
    pub(crate) window: usize,
    pub(crate) unis: u64,
}

impl Streams {
    pub(crate) fn out(&mut self, stream: u64) -> &mut Outgoing {
        let window = self.window;
        self.outgoing.entry(stream).or_insert_with(|| Outgoing {
            bytes: Vec::new(),
            has_ended: false,
            reset: None,
            priority: 0,
            window,
            stopped: None,
            is_blocked: false,
        })
    }
}

impl Streams {
    /// How many bytes of the client the engine has not read.
    pub(crate) fn unread(&self, stream: u64) -> usize {
        self.incoming.get(&stream).map_or(0, |incoming| incoming.bytes.len())
    }

    /// The client reads a stream no further, and only a write finds out.
    pub(crate) fn stop_quietly(&mut self, stream: u64, code: Code) {
        self.out(stream).stopped = Some(code.number());
    }
}

impl Quic for Streams {
    fn read(&mut self, stream: u64, max: usize) -> Read {
        let max = max.min(self.read_max);
        let Some(incoming) = self.incoming.get_mut(&stream) else { return Read::Blocked };
        if let Some(code) = incoming.reset {
            return Read::Reset(code);
        }
        let len = incoming.bytes.len().min(max);
        if len > 0 {
            return Read::Bytes(incoming.bytes.drain(..len).collect::<Vec<_>>().into());
        }
        if incoming.has_ended { Read::End } else { Read::Blocked }
    }

    fn write(&mut self, stream: u64, bytes: &[u8]) -> Result<usize, Stopped> {
        let write_max = self.write_max;
        let out = self.out(stream);
        assert!(!out.has_ended && out.reset.is_none(), "{stream}: written behind its end");
        if let Some(code) = out.stopped {
            return Err(Stopped(code));
        }
        let len = bytes.len().min(out.window).min(write_max);
        out.bytes.extend_from_slice(&bytes[..len]);
        out.window -= len;
        out.is_blocked = len == 0;
        Ok(len)
    }

    fn finish(&mut self, stream: u64) {
        let out = self.out(stream);
        assert!(!out.has_ended && out.reset.is_none(), "{stream}: ended twice");
        out.has_ended = true;
    }

    fn reset(&mut self, stream: u64, code: u64) {
        self.out(stream).reset.get_or_insert(code);
    }

    fn stop_sending(&mut self, stream: u64, code: u64) {
        assert!(self.stops.insert(stream, code).is_none(), "{stream}: stopped twice");
    }

    fn open_uni(&mut self) -> Option<u64> {
        if self.unis == 0 {
            return None;
        }
        self.unis -= 1;
        let taken = self.outgoing.keys().filter(|stream| *stream & 3 == 3).count() as u64;
        let stream = 4 * taken + 3;
        self.out(stream);
        Some(stream)
    }

    fn set_priority(&mut self, stream: u64, priority: i32) {
        self.out(stream).priority = priority;
    }

    fn close(&mut self, code: u64, reason: &'static str) {
        assert!(self.closed.is_none(), "closed twice");
        self.closed = Some((code, reason));
    }
}

/// An engine, its connection, and what was observed.
pub(crate) struct World {
    pub(crate) engine: Http3,
    pub(crate) quic: Streams,
    pub(crate) scratch: Scratch,
    pub(crate) now: Moment,
    acknowledged: u64,
}

pub(crate) const CONTROL: u64 = 2;
pub(crate) const ENCODER: u64 = 6;
pub(crate) const DECODER: u64 = 10;

impl World {
    pub(crate) fn new(policy: Policy) -> Self {
        let mut world = Self::fresh(policy, 3);
        world.engine.start(&mut world.quic);
        world
    }

    fn fresh(policy: Policy, unis: u64) -> Self {
        Self {
            engine: Http3::new(Arc::new(policy), Moment::ZERO),
            quic: Streams {
                incoming: BTreeMap::new(),
                outgoing: BTreeMap::new(),
                stops: BTreeMap::new(),
                closed: None,
                read_max: usize::MAX,
                write_max: usize::MAX,
                window: usize::MAX,
                unis,
            },
            scratch: Scratch::default(),
            now: Moment::ZERO,
            acknowledged: 0,
        }
    }

    /// A connection whose client has sent its SETTINGS, without a dynamic table.
    pub(crate) fn open(policy: Policy) -> Self {
        let mut world = Self::new(policy);
        world.send(CONTROL, &control(&[]), false);
        assert_eq!(world.poll(), []);
        world
    }

    pub(crate) fn default() -> Self {
        Self::open(Policy::default())
    }

    /// The same with another policy.
    pub(crate) fn with(change: impl FnOnce(&mut Policy)) -> Self {
        let mut policy = Policy::default();
        change(&mut policy);
        Self::open(policy)
    }

    /// The client sends bytes on a stream, and perhaps FIN.
    pub(crate) fn send(&mut self, stream: u64, bytes: &[u8], ends: bool) {
        let is_new = !self.quic.incoming.contains_key(&stream);
        let incoming = self.quic.incoming.entry(stream).or_default();
        incoming.bytes.extend(bytes);
        incoming.has_ended |= ends;
        if is_new {
            self.engine.opened(stream);
        } else {
            self.engine.readable(stream);
        }
    }

    /// The client resets its side of a stream.
    pub(crate) fn client_resets(&mut self, stream: u64, code: Code) {
        self.quic.incoming.entry(stream).or_default().reset = Some(code.number());
        self.engine.readable(stream);
    }

    /// The client reads a stream no further.
    pub(crate) fn client_stops(&mut self, stream: u64, code: Code) {
        self.quic.out(stream).stopped = Some(code.number());
        self.engine.stopped(stream, code.number());
    }

    /// The client takes more bytes of a stream.
    pub(crate) fn open_window(&mut self, stream: u64, bytes: usize) {
        let out = self.quic.out(stream);
        out.window = out.window.saturating_add(bytes);
        if std::mem::take(&mut out.is_blocked) {
            self.engine.writable(stream);
        }
    }

    /// Everything until the engine has nothing more to say.
    pub(crate) fn poll(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.engine.poll(&mut self.quic, &mut self.scratch, self.now) {
            events.push(event);
        }
        assert!(!self.engine.has_work(), "poll has done everything: {:?}", self.engine);
        events
    }

    /// The one request that comes.
    pub(crate) fn request(&mut self) -> StreamId {
        match &self.poll()[..] {
            [Event::Request(id)] => *id,
            other => panic!("{other:?}"),
        }
    }

    /// A GET on a stream, whose request has come.
    pub(crate) fn get(&mut self, stream: u64) -> StreamId {
        self.send(stream, &get(), true);
        self.request()
    }

    /// The client acknowledges more bytes, of whatever stream.
    pub(crate) fn acknowledge(&mut self, more: u64, is_all: bool) {
        self.acknowledged += more;
        let bytes = self.acknowledged;
        self.engine.acknowledged(Acknowledged { bytes, waiting_max: 5000, is_all }, self.now);
    }

    pub(crate) fn pass(&mut self, length: Duration) {
        self.now = self.now + length;
    }

    /// Lets due deadlines act.
    pub(crate) fn expire(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.engine.expire(&mut self.quic, self.now) {
            events.push(event);
        }
        events
    }

    pub(crate) fn respond(&mut self, id: StreamId, length: BodyLength) -> Sends {
        let fields = [(&b"Server"[..], &b"sekisho"[..])];
        self.engine.respond(id, Status::OK, length, fields, &mut self.quic, self.now)
    }

    pub(crate) fn body(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        self.engine.body(id, bytes, &mut self.quic, self.now)
    }

    pub(crate) fn finish(&mut self, id: StreamId) {
        self.engine.finish(id, &mut self.quic, self.now);
    }

    /// A complete response without a body, acknowledged.
    pub(crate) fn serve(&mut self, id: StreamId) {
        self.respond(id, BodyLength::Empty);
        self.finish(id);
        self.engine.delivered(id.number());
        assert_eq!(self.poll(), []);
    }

    /// What was sent on a stream, as frames in words.
    pub(crate) fn frames(&self, stream: u64) -> Vec<String> {
        frames(&self.quic.outgoing[&stream].bytes)
    }

    pub(crate) fn is_closed_with(&self, code: Code) -> bool {
        matches!(self.engine.stage(), Stage::Closed(_))
            && self.quic.closed.map(|(code, _)| code) == Some(code.number())
    }
}

/// Frames in words; header blocks without a dynamic table.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let kind = read_varint(&mut bytes).expect("a type");
        let len = read_varint(&mut bytes).expect("a length") as usize;
        let payload = &bytes[..len.min(bytes.len())];
        bytes = &bytes[payload.len()..];
        frames.push(match kind {
            kind::DATA => format!("DATA {len} {}", payload.escape_ascii()),
            kind::HEADERS => format!("HEADERS {}", fields(&Decoder::new(0), payload)),
            kind::GOAWAY => format!("GOAWAY {}", read_varint(&mut &payload[..]).expect("an id")),
            kind::SETTINGS => format!("SETTINGS {payload:?}"),
            other => format!("{other:#x} {len}"),
        });
    }
    frames
}

pub(crate) fn fields(decoder: &Decoder, block: &[u8]) -> String {
    let mut fields = Vec::new();
    let section = decoder.decode(block, &mut Vec::new(), |field| {
        fields.push(format!("{}: {}", field.name.escape_ascii(), field.value.escape_ascii()));
    });
    assert!(matches!(section, Ok(Section::Decoded(_))), "{section:?}");
    fields.join(", ")
}

/// A header block of literals.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        write_string(&mut out, 0x20, 3, name.as_bytes(), usize::MAX);
        write_string(&mut out, 0, 7, value.as_bytes(), usize::MAX);
    }
    out
}

pub(crate) fn frame_of(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_header(&mut out, kind, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame_of(kind::HEADERS, &block(fields))
}

pub(crate) fn data(bytes: &[u8]) -> Vec<u8> {
    frame_of(kind::DATA, bytes)
}

pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.b"), (":path", "/x")];
pub(crate) const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "a.b"), (":path", "/x")];

pub(crate) fn get() -> Vec<u8> {
    headers(&GET)
}

pub(crate) fn post(more: &[(&str, &str)]) -> Vec<u8> {
    headers(&POST.iter().chain(more).copied().collect::<Vec<_>>())
}

/// The beginning of the client's control stream.
pub(crate) fn control(settings: &[(u64, u64)]) -> Vec<u8> {
    let mut out = vec![0];
    frame::write_settings(&mut out, settings);
    out
}

pub(crate) fn number(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    write_varint(&mut out, number);
    out
}

pub(crate) fn integer(pattern: u8, prefix_bits: u32, number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    write_integer(&mut out, pattern, prefix_bits, number);
    out
}

/// The bytes of body events of a stream, and whether it ended.
pub(crate) fn body_of(events: &[Event], id: StreamId) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let mut has_ended = false;
    for event in events {
        match event {
            Event::Body(other, piece) if *other == id => bytes.extend_from_slice(piece),
            Event::BodyEnd(other) if *other == id => has_ended = true,
            _ => {}
        }
    }
    (bytes, has_ended)
}

/// A connection whose client allows no stream of ours yet.
pub(crate) fn closed_to_unis() -> World {
    let mut world = World::fresh(Policy::default(), 0);
    world.engine.start(&mut world.quic);
    world
}
