//! The client's side of HTTP/2 (V7–V10, V12): the same events for every cut of an answer, one ending, a head that could be
//! written as one HTTP/1 answer, a body as long as was declared or visibly cut. And by a script of a server, a task, a
//! transport and time in any order: what leaves is well framed; no window is exceeded; each stream ends once, by
//! `END_STREAM` or a reset, and is followed by nothing; a request has at most one ending, and none after it was cancelled;
//! a deadline that fell does not stay; what is held is bounded.
//!
//! The first byte says which of the two it is. Of an answer, the last four bytes say where it is cut; each step of a
//! script is two bytes: what, and how much.

use std::collections::BTreeMap;
use std::time::Duration;

use sekisho_http::Fields;
use sekisho_http::upstream::{
    Event, RequestBody, Scratch, Timeouts, UpstreamProtocol, is_hop_by_hop,
};
use sekisho_http2::client::{Client, Limits};
use sekisho_http2::frame::{self, HEADER_BYTES, Header, Kind, PREFACE, flag, setting};
use sekisho_http2::hpack::Decoder;
use sekisho_lifecycle::{Engine, Moment, Stage};

use crate::cuts;
use crate::upstream_events::{Seen, play, request};

/// What a server may have in flight by the windows that we have given it.
const WINDOW: i64 = 65_535;

/// Holds the engine to it.
pub fn check(data: &[u8]) {
    match data.split_first() {
        Some((0..=127, answer)) => answers(answer),
        Some((_, script)) => World::new().run(script),
        None => {}
    }
}

fn answers(data: &[u8]) {
    let (answer, seed) = cuts::split_seed(data);
    let limits = match seed >> 8 & 3 {
        0 => Limits { head_bytes_max: 64, fields_max: 3 },
        _ => Limits::default(),
    };
    let is_head = seed >> 10 & 3 == 0;
    let pairs: Fields = [("Host", "a")].into_iter().collect();
    let [whole, rest @ ..] = cuts::ways(answer, seed).map(|pieces| {
        let client = Client::new(limits, Timeouts::default(), seed >> 12 & 1 == 0);
        play(client, &request(&pairs, is_head), &pieces)
    });
    for cut in rest {
        assert_eq!(cut.seen, whole.seen, "the cut makes a difference");
        assert_eq!(cut.reuse, whole.reuse, "the cut makes a difference");
    }
    let mut declared = None;
    let mut length = 0;
    for seen in &whole.seen {
        match seen {
            Seen::Informational(head) | Seen::Head(head) => {
                let code = head.status.code();
                assert_eq!(matches!(seen, Seen::Informational(_)), code < 200);
                assert!(code != 101 && !(is_head && head.has_body));
                for (name, value) in head.fields.iter() {
                    assert!(!is_hop_by_hop(name) && !name.iter().any(u8::is_ascii_uppercase));
                    assert!(sekisho_http::fields::is_field_value(value) && !name.contains(&b':'));
                }
                declared = head.body_length();
            }
            Seen::Body(bytes) => length = bytes.len() as u64,
            Seen::End(trailers) => {
                assert!(declared.is_none_or(|declared| declared == length), "as declared");
                assert!(trailers.iter().all(|(name, _)| !is_hop_by_hop(name)));
            }
            Seen::Failed(_) => assert!(whole.reuse.is_err()),
            Seen::Upgraded(_) | Seen::Stderr(_) => panic!("there is no such thing"),
        }
    }
}

/// What the server has seen of one stream.
#[derive(Default, Debug)]
struct Stream {
    has_ended: bool,
    was_reset: bool,
    window: i64,
}

#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
struct World {
    client: Client,
    scratch: Scratch,
    now: Moment,
    inbox: Vec<u8>,
    wire: Vec<u8>,
    decoder: Decoder,
    has_preface: bool,
    streams: BTreeMap<u32, Stream>,
    last: u32,
    connection_window: i64,
    initial_window: i64,
    /// A request is under way, and has had no ending.
    is_awaited: bool,
    is_held: bool,
    /// The task has closed the connection.
    is_dropped: bool,
    pairs: Fields,
}

impl World {
    fn new() -> Self {
        let timeout = |seconds| Some(Duration::from_secs(seconds));
        let timeouts = Timeouts { send: timeout(3), read: timeout(5) };
        let limits = Limits { head_bytes_max: 256, fields_max: 8 };
        Self {
            client: Client::new(limits, timeouts, false),
            scratch: Scratch::default(),
            now: Moment::ZERO,
            inbox: Vec::new(),
            wire: Vec::new(),
            decoder: Decoder::default(),
            has_preface: false,
            streams: BTreeMap::new(),
            last: 0,
            connection_window: WINDOW,
            initial_window: WINDOW,
            is_awaited: false,
            is_held: false,
            is_dropped: false,
            pairs: [("Host", "a"), ("te", "trailers"), ("x", "y")].into_iter().collect(),
        }
    }

    fn run(&mut self, script: &[u8]) {
        for step in script.chunks_exact(2).take(400) {
            self.step(step[0], step[1]);
            self.look();
            if self.is_dropped {
                return;
            }
        }
        if let Some(event) = self.client.input_ended(self.now) {
            self.see(event);
        }
        assert!(!self.is_awaited || !matches!(self.client.stage(), Stage::Closed(_)));
        assert!(self.client.capacity() < 64 * 1024, "what is held is bounded");
    }

    fn step(&mut self, what: u8, much: u8) {
        let amount = u32::from(much) * 97;
        match what % 16 {
            0 => self.start(much),
            1 => {
                let bytes = vec![7; usize::from(much) * 300];
                let taken = self.client.body(&bytes, &mut self.scratch, self.now);
                assert!(taken <= bytes.len());
            }
            2 => {
                if self.client.end_body(&mut self.scratch, self.now).is_err() {
                    self.is_dropped = true;
                }
            }
            3 => self.transmit(usize::from(much) * 37),
            4 => self.transmit(usize::MAX),
            5 => self.hear(Kind::Settings, 0, 0, &settings(much)),
            6 => {
                let stream = if much.is_multiple_of(2) { 0 } else { self.last };
                if amount > 0 {
                    self.hear(Kind::WindowUpdate, 0, stream, &amount.to_be_bytes());
                }
            }
            7 => {
                let ends = if much.is_multiple_of(4) { flag::END_STREAM } else { 0 };
                let block: &[u8] = match much % 3 {
                    0 => b"\x88",
                    1 => b"\x88\x00\x01a\x01b",
                    _ => b"\x00\x01t\x01v",
                };
                self.hear(Kind::Headers, flag::END_HEADERS | ends, self.last, block);
            }
            8 | 9 => {
                let ends = if much.is_multiple_of(5) { flag::END_STREAM } else { 0 };
                self.hear(Kind::Data, ends, self.last, &vec![9; usize::from(much) * 40]);
            }
            10 => self.hear(Kind::RstStream, 0, self.last, &u32::from(much % 16).to_be_bytes()),
            11 if much > 200 => {
                let payload = [self.last.to_be_bytes(), [0; 4]].concat();
                self.hear(Kind::GoAway, 0, 0, &payload);
            }
            11 => self.hear(Kind::Ping, much & 1, 0, &[much; 8]),
            12 => {
                self.is_held = much.is_multiple_of(2);
                self.client.hold(self.is_held, self.now);
            }
            13 => {
                self.now = self.now + Duration::from_millis(u64::from(much) * 30);
                if let Some(event) = self.client.expire(self.now) {
                    self.see(event);
                }
                let next = self.client.next_deadline();
                assert!(next.is_none_or(|next| !next.at.is_due(self.now)), "it does not stay");
            }
            14 if much > 128 => {
                self.is_dropped = !self.client.cancel(&mut self.scratch, self.now);
                (self.is_awaited, self.is_held) = (false, false);
            }
            14 => self.hear(Kind::Unknown, much, u32::from(much), b"abc"),
            _ => {
                self.inbox.extend_from_slice(&[much]);
                self.offer();
            }
        }
    }

    fn start(&mut self, much: u8) {
        let body = match much % 3 {
            0 => RequestBody::None,
            1 => RequestBody::Known(u64::from(much) * 100),
            _ => RequestBody::Unknown,
        };
        let request = sekisho_http::upstream::Request {
            method: b"POST",
            body,
            ..request(&self.pairs, false)
        };
        let before = self.scratch.out.len();
        match self.client.start(&request, &mut self.scratch, self.now) {
            Ok(()) => {
                assert!(!self.is_awaited, "one at a time");
                self.is_awaited = true;
                self.last = if self.last == 0 { 1 } else { self.last + 2 };
            }
            Err(_) => assert_eq!(before, self.scratch.out.len(), "nothing is sent"),
        }
    }

    fn hear(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        if self.inbox.is_empty() {
            // A server that is well-behaved knows what it allows; one in disorder may say anything.
            match kind {
                Kind::Settings if flags == 0 => {
                    if let Some(window) = frame::number(payload, 2) {
                        let change = i64::from(window) - self.initial_window;
                        self.initial_window = i64::from(window);
                        self.streams.values_mut().for_each(|stream| stream.window += change);
                    }
                }
                Kind::WindowUpdate => {
                    let more = i64::from(frame::number(payload, 0).unwrap_or_default());
                    match self.streams.get_mut(&stream) {
                        Some(stream) => stream.window += more,
                        None if stream == 0 => self.connection_window += more,
                        None => {}
                    }
                }
                _ => {}
            }
        }
        frame::header(&mut self.inbox, payload.len(), kind, flags, stream);
        self.inbox.extend_from_slice(payload);
        self.offer();
    }

    fn offer(&mut self) {
        let looks_max = 2 * self.inbox.len() + 8;
        for look in 0.. {
            assert!(look <= looks_max, "it does not come to rest");
            let step = self.client.receive(&self.inbox, &mut self.scratch, self.now);
            let is_rest = step.is_rest();
            self.inbox.drain(..step.taken);
            if let Some(event) = step.event {
                assert!(!self.is_held, "nothing is handed on that is held back");
                self.see(event);
            }
            if is_rest {
                return;
            }
        }
    }

    fn see(&mut self, event: Event) {
        assert!(self.is_awaited, "{event:?} without a request");
        if matches!(event, Event::End | Event::Failed(_)) {
            (self.is_awaited, self.is_held) = (false, false);
        }
    }

    fn transmit(&mut self, bytes: usize) {
        let count = bytes.min(self.scratch.out.len());
        self.wire.extend(self.scratch.out.drain(..count));
        self.client.transmitted(count as u64, !self.scratch.out.is_empty(), self.now);
    }

    /// What has left, as the server reads it.
    fn look(&mut self) {
        if !self.has_preface {
            if self.wire.len() < PREFACE.len() {
                assert!(PREFACE.starts_with(&self.wire));
                return;
            }
            assert!(self.wire.starts_with(PREFACE));
            self.wire.drain(..PREFACE.len());
            self.has_preface = true;
        }
        while let Some(header) = Header::read(&self.wire) {
            let end = HEADER_BYTES + header.len as usize;
            if self.wire.len() < end {
                return;
            }
            let payload: Vec<u8> = self.wire.drain(..end).skip(HEADER_BYTES).collect();
            self.judge(header, &payload);
        }
    }

    fn judge(&mut self, header: Header, payload: &[u8]) {
        let number = header.stream;
        match header.kind {
            Kind::Headers => {
                assert!(header.has(flag::END_HEADERS) && number % 2 == 1);
                assert!(self.streams.keys().all(|before| *before < number), "numbers rise");
                let decoded = self.decoder.decode(payload, &mut Vec::new(), |_| {});
                decoded.expect("a header block");
                let has_ended = header.has(flag::END_STREAM);
                let window = self.initial_window;
                self.streams.insert(number, Stream { has_ended, was_reset: false, window });
            }
            Kind::Data => {
                let stream = self.streams.get_mut(&number).expect("a stream that was opened");
                assert!(!stream.has_ended && !stream.was_reset, "nothing behind the end");
                stream.has_ended = header.has(flag::END_STREAM);
                stream.window -= i64::from(header.len);
                self.connection_window -= i64::from(header.len);
                // What was on its way when a window became smaller may exceed it.
                assert!(self.connection_window >= 0, "the connection's window is kept");
            }
            Kind::RstStream => {
                let stream = self.streams.get_mut(&number).expect("a stream that was opened");
                assert!(!std::mem::replace(&mut stream.was_reset, true), "once");
            }
            Kind::Settings | Kind::Ping => assert_eq!(number, 0),
            Kind::WindowUpdate => assert!(frame::number(payload, 0).is_some_and(|more| more > 0)),
            kind => panic!("{kind:?} is not sent"),
        }
    }
}

fn settings(much: u8) -> Vec<u8> {
    if much.is_multiple_of(7) {
        return Vec::new();
    }
    let (id, value) = (setting::INITIAL_WINDOW_SIZE, u32::from(much) * 211);
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}
