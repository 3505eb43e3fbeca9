//! A whole HTTP/2 connection by a script: a client that sends frames in any order, a shell that answers, cuts and
//! holds, a transport that stalls, and time that passes. In any order of these: what leaves is well framed, each
//! response begins once, ends once and is followed by nothing; no window is exceeded; each stream that was given to
//! the shell is over when the shell has ended it, and counts until then; no stream is announced twice; a deadline
//! that fell does not stay; what is held is bounded.
//!
//! Each step of the script is two bytes: what, and with which stream or how much.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Status;
use sekisho_http2::frame::{self, HEADER_BYTES, Header, Kind, PREFACE, flag};
use sekisho_http2::{BodyLength, Code, Event, Http2, Policy, Scratch, StreamId};
use sekisho_lifecycle::{CloseReason, Engine, Moment, Stage};

const GET: &[u8] = b"\x82\x86\x84\x01\x01a";
const POST: &[u8] = b"\x83\x86\x84\x01\x01a";

/// What the client has seen of one stream.
#[derive(Default, Debug)]
struct Seen {
    has_head: bool,
    has_ended: bool,
    was_reset: bool,
    window: i64,
}

struct World {
    engine: Http2,
    scratch: Scratch,
    now: Moment,
    inbox: Vec<u8>,
    wire: Vec<u8>,
    /// Streams that the shell has not ended; whether it was told that the client is lost.
    open: BTreeMap<StreamId, bool>,
    next_number: u32,
    seen: BTreeMap<u32, Seen>,
    connection_window: i64,
    initial_window: i64,
    /// The transport has stopped taking anything.
    is_stalled: bool,
}

fn number(which: u8) -> u32 {
    u32::from(which % 24) * 2 + 1
}

/// Holds the engine to it.
pub fn check(data: &[u8]) {
    let mut policy = Policy {
        streams_max: 5,
        stream_window_bytes: 300,
        upload_window_bytes: 500,
        ..Policy::default()
    };
    policy.keepalive_requests = 40;
    policy.body_min_rate = data.len().is_multiple_of(2).then_some(50);
    policy.half_close = data.len().is_multiple_of(3);
    let mut world = World {
        engine: Http2::new(Arc::new(policy), Moment::ZERO),
        scratch: Scratch::default(),
        now: Moment::ZERO,
        inbox: PREFACE.to_vec(),
        wire: Vec::new(),
        open: BTreeMap::new(),
        next_number: 1,
        seen: BTreeMap::new(),
        connection_window: 65_535,
        initial_window: 65_535,
        is_stalled: false,
    };
    frame::settings(&mut world.inbox, &[]);
    frame::header(&mut world.inbox, 0, Kind::Settings, flag::ACK, 0);
    world.receive();
    for step in data.chunks(2) {
        world.step(step[0], step.get(1).copied().unwrap_or(0));
        world.holds();
    }
    world.end();
}

impl World {
    fn step(&mut self, what: u8, which: u8) {
        match what % 32 {
            0..=3 => self.opens(GET, true, 2),
            4..=6 => self.opens(POST, false, 2),
            7 => self.opens(b"\x82", true, 2),
            8 => self.opens(GET, true, u32::from(which)),
            9 => self.sends(Kind::Data, which, 0, &vec![b'd'; usize::from(which)]),
            10 => self.sends(Kind::Data, which, flag::END_STREAM, b"end"),
            11 => self.sends(Kind::RstStream, which, 0, &[0, 0, 0, 8]),
            12 => self.opens_window(which),
            13 => {
                let size = i64::from(which) * 40;
                self.grows(size);
                let mut bytes = Vec::new();
                frame::settings(&mut bytes, &[(4, size as u32), (1, u32::from(which))]);
                self.inbox.extend_from_slice(&bytes);
                self.receive();
            }
            14 => self.sends(Kind::Ping, 0, which & 1, b"goaway 1"),
            15 => self.sends(Kind::Headers, which, 5, b"\0\x01t\x01r"),
            16 => {
                self.inbox.push(which);
                self.receive();
            }
            17..=23 => self.answers(what % 32 - 17, which),
            24 => self.takes(which),
            25 => self.pulls(),
            26 => self.transmits(usize::from(which) * 3),
            27 => self.transmits(usize::MAX),
            28 => self.passes(Duration::from_millis(u64::from(which) * 100)),
            29 => self.is_stalled = which & 1 == 1,
            30 => match which % 4 {
                0 => self.engine.shut_down_gracefully(&mut self.scratch, self.now),
                1 => self.engine.shut_down_forcefully(&mut self.scratch, self.now),
                2 => {
                    let event = self.engine.input_ended(self.now);
                    if let Some(event) = event {
                        self.act(&event);
                    }
                }
                _ => self.passes(Duration::from_secs(u64::from(which))),
            },
            _ => self.ends_one(which),
        }
        self.receive();
    }

    fn opens(&mut self, block: &[u8], ends: bool, by: u32) {
        let flags = flag::END_HEADERS | u8::from(ends);
        frame::header(&mut self.inbox, block.len(), Kind::Headers, flags, self.next_number);
        self.inbox.extend_from_slice(block);
        // The window that this stream has for us, if the engine takes it.
        self.seen
            .entry(self.next_number)
            .or_insert(Seen { window: self.initial_window, ..Seen::default() });
        self.next_number += by;
        self.receive();
    }

    fn sends(&mut self, kind: Kind, which: u8, flags: u8, payload: &[u8]) {
        let number = if matches!(kind, Kind::Ping) { 0 } else { number(which) };
        frame::header(&mut self.inbox, payload.len(), kind, flags, number);
        self.inbox.extend_from_slice(payload);
        self.receive();
    }

    fn opens_window(&mut self, which: u8) {
        let by = u32::from(which) * 7;
        let number = if which & 1 == 0 { 0 } else { number(which >> 1) };
        frame::window_update(&mut self.inbox, number, by);
        // What the engine does not take as a window does no harm here: it is a bound.
        if number == 0 {
            self.connection_window += i64::from(by);
        } else if let Some(seen) = self.seen.get_mut(&number) {
            seen.window += i64::from(by);
        }
        self.receive();
    }

    fn grows(&mut self, size: i64) {
        // Frames that left before the engine saw the change went by the old size: the larger one bounds both.
        let more = (size - self.initial_window).max(0);
        for seen in self.seen.values_mut() {
            seen.window += more;
        }
        self.initial_window = self.initial_window.max(size);
    }

    fn receive(&mut self) {
        let mut looks = 0;
        loop {
            let step = self.engine.receive(&self.inbox, &mut self.scratch, self.now);
            assert!(step.taken <= self.inbox.len());
            let is_rest = step.is_rest();
            self.inbox.drain(..step.taken);
            if let Some(event) = step.event {
                self.act(&event);
            }
            looks += 1;
            assert!(looks < 4000, "it goes on without end");
            if is_rest {
                return;
            }
        }
    }

    fn act(&mut self, event: &Event) {
        match event {
            Event::Request(id) | Event::Refused(id, _) if !self.open.contains_key(id) => {
                assert!(self.open.len() < 5, "more streams than may be open");
                self.open.insert(*id, false);
            }
            Event::Request(id) => panic!("{id:?} a second time"),
            Event::Refused(id, _) => assert!(!self.open[id], "a refusal for a lost client"),
            Event::Body(id, range) => {
                assert!(!self.open[id] && !range.is_empty(), "bytes of a stream that is over");
                self.engine.consumed(*id, range.len() as u32 / 2, &mut self.scratch, self.now);
            }
            Event::Stored(id) | Event::BodyEnd(id) => {
                assert!(!self.open[id], "a body of a stream that is over");
            }
            Event::ClientLost(id, _) => {
                let told = self.open.insert(*id, true);
                assert_eq!(told, Some(false), "{id:?} is lost once, while it is open");
            }
            Event::Malformed(..) | Event::BoundExceeded(_) => {}
        }
    }

    fn one(&self, which: u8) -> Option<StreamId> {
        self.open.keys().nth(usize::from(which) % self.open.len().max(1)).copied()
    }

    fn answers(&mut self, what: u8, which: u8) {
        let Some(id) = self.one(which) else { return };
        let (scratch, now) = (&mut self.scratch, self.now);
        let fields: [(&[u8], &[u8]); 2] = [(b"Server", b"s"), (b"x-which", &[b'a' + which % 26])];
        let length = match which % 3 {
            0 => BodyLength::Empty,
            1 => BodyLength::Known(u64::from(which) * 100),
            _ => BodyLength::Unknown,
        };
        match what {
            0 | 1 => {
                self.engine.respond(id, Status::OK, length, fields, scratch, now);
            }
            2 => {
                let bytes = vec![b'b'; usize::from(which) * 9];
                let taken = self.engine.body(id, &bytes, scratch, now);
                assert!(taken <= bytes.len());
            }
            3 => self.engine.set_ready(id, which & 1 == 0, now),
            4 => self.engine.inform(id, Status::CONTINUE, fields, scratch, now),
            5 => self.engine.trailers(id, fields, scratch, now),
            _ => self.engine.hold_body(id, which & 1 == 0, now),
        }
    }

    fn takes(&mut self, which: u8) {
        if let Some(id) = self.one(which) {
            let max = (which & 1 == 0).then_some(u64::from(which) * 4);
            let taken = self.engine.take_body(id, max, &mut self.scratch, self.now);
            if let Err(refusal) = taken {
                assert_eq!(refusal.status, Status::CONTENT_TOO_LARGE);
            }
        }
    }

    fn pulls(&mut self) {
        for _ in 0..20 {
            let Some(sendable) = self.engine.next_sendable() else { return };
            assert!(sendable.bytes_max > 0);
            let len = sendable.bytes_max.min(700);
            let at = self.engine.open_frame(&mut self.scratch);
            self.scratch.out.resize(at + HEADER_BYTES + len, b'p');
            self.engine.close_frame(sendable.id, at, &mut self.scratch, self.now);
        }
    }

    fn ends_one(&mut self, which: u8) {
        let Some(id) = self.one(which) else { return };
        self.open.remove(&id);
        if which & 1 == 0 {
            self.engine.finish(id, &mut self.scratch, self.now);
        } else {
            self.engine.reset(id, Code::Cancel, &mut self.scratch, self.now);
        }
    }

    fn transmits(&mut self, most: usize) {
        if self.is_stalled {
            return self.engine.transmitted(0, !self.scratch.out.is_empty(), self.now);
        }
        self.engine.flush(&mut self.scratch, self.now);
        let len = most.min(self.scratch.out.len());
        self.wire.extend(self.scratch.out.drain(..len));
        self.engine.transmitted(len as u64, !self.scratch.out.is_empty(), self.now);
        while self.engine.next_sent().is_some() {}
        self.reads();
    }

    fn passes(&mut self, time: Duration) {
        self.now = self.now + time;
        let event = self.engine.expire(self.now);
        if let Some(event) = event {
            self.act(&event);
        }
        self.receive();
        while let Some(event) = self.engine.expire(self.now) {
            self.act(&event);
        }
        let next = self.engine.next_deadline();
        assert!(next.is_none_or(|next| !next.at.is_due(self.now)), "{next:?} fell and stays");
    }

    /// Reads what has arrived at the client.
    fn reads(&mut self) {
        while let Some(header) = Header::read(&self.wire) {
            let end = HEADER_BYTES + header.len as usize;
            if self.wire.len() < end {
                return;
            }
            self.wire.drain(..end);
            let ends = header.has(flag::END_STREAM);
            let Some(seen) = self.seen.get_mut(&header.stream) else { continue };
            match header.kind {
                Kind::Headers => {
                    assert!(!seen.has_ended && !seen.was_reset, "{header:?} {seen:?}");
                    (seen.has_head, seen.has_ended) = (true, ends);
                }
                Kind::Data => {
                    assert!(
                        seen.has_head && !seen.has_ended && !seen.was_reset,
                        "{header:?} {seen:?}"
                    );
                    seen.has_ended = ends;
                    seen.window -= i64::from(header.len);
                    self.connection_window -= i64::from(header.len);
                    assert!(seen.window >= 0, "beyond the window of stream {}", header.stream);
                    assert!(self.connection_window >= 0, "beyond the window of the connection");
                }
                Kind::RstStream => seen.was_reset = true,
                _ => {}
            }
        }
    }

    fn holds(&mut self) {
        assert_eq!(self.engine.open_streams(), self.open.len(), "streams are counted wrongly");
        let held = self.engine.capacity();
        assert!(held < 64 * 1024, "{held} bytes are held");
        if let Stage::Closed(_) = self.engine.stage() {
            assert!(self.engine.next_deadline().is_none(), "a deadline after the end");
        }
    }

    /// The shell ends whatever is open, and then nothing is left.
    fn end(&mut self) {
        for id in self.open.keys().copied().collect::<Vec<_>>() {
            self.engine.finish(id, &mut self.scratch, self.now);
        }
        self.open.clear();
        self.holds();
        self.is_stalled = false;
        self.transmits(usize::MAX);
        self.engine.abort(CloseReason::TransportLost);
        self.receive();
        self.holds();
        self.engine.shrink();
        assert!(self.engine.capacity() < 16 * 1024, "{}", self.engine.capacity());
    }
}
