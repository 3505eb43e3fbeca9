//! A whole HTTP/3 connection by a script: a client that opens, ends and cancels streams in any order, a shell that
//! responds, cuts and holds, streams that are blocked, and time that passes. In any order of these: nothing is done to
//! a stream that cannot be done; each response is well framed, ends once and is reset if it was cut; each stream that
//! was given to the shell is over when the shell has ended it, and counts until then; a deadline that fell does not
//! stay; what is held is bounded.
//!
//! Each step of the script is two bytes: what, and with which stream or how much.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Status;
use sekisho_http3::frame::{self, kind, read_varint};
use sekisho_http3::{Acknowledged, BodyLength, Code, Event, Http3, Policy, Scratch, StreamId};
use sekisho_lifecycle::{Moment, Stage};

use crate::http3_streams::Streams;

/// Header blocks without a dynamic table: GET and POST of `/` from `a`.
const GET: &[u8] = &[0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'a'];
const POST: &[u8] = &[0, 0, 0xd4, 0xd7, 0xc1, 0x50, 1, b'a'];
/// `:path` from the dynamic table.
const DYNAMIC: &[u8] = &[2, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0x80];
/// What an encoder has to say for that.
const INSTRUCTIONS: &[u8] = &[2, 0x3f, 0xe1, 0x1f, 0xc1, 2, b'/', b'd'];

/// What the shell knows of a stream.
#[derive(Default, Debug)]
struct Open {
    is_lost: bool,
    has_responded: bool,
    /// Body bytes that were offered and not taken, where the length is not known.
    frame: usize,
}

struct World {
    engine: Http3,
    quic: Streams,
    scratch: Scratch,
    now: Moment,
    acknowledged: u64,
    open: BTreeMap<StreamId, Open>,
    next: u64,
    held_max: usize,
}

/// Holds the engine to it.
pub fn check(data: &[u8]) {
    let mut policy = Policy { streams_max: 5, blocked_streams_max: 2, ..Policy::default() };
    policy.keepalive_requests = 40;
    policy.body_min_rate = data.len().is_multiple_of(2).then_some(50);
    let window = if data.len().is_multiple_of(3) { 20 } else { usize::MAX };
    let mut world = World {
        engine: Http3::new(Arc::new(policy), Moment::ZERO),
        quic: Streams::new(usize::MAX, usize::MAX),
        scratch: Scratch::default(),
        now: Moment::ZERO,
        acknowledged: 0,
        open: BTreeMap::new(),
        next: 0,
        held_max: 0,
    };
    world.engine.start(&mut world.quic);
    world.quic.window = window;
    world.send(2, &[0, 4, 3, 1, 0x50, 0], false);
    for step in data.chunks(2) {
        world.step(step[0], step.get(1).copied().unwrap_or(0));
        world.holds();
    }
    world.end();
}

impl World {
    fn step(&mut self, what: u8, which: u8) {
        let stream = 4 * u64::from(which % 24);
        match what % 32 {
            0..=2 => self.opens(GET, true),
            3..=5 => self.opens(POST, false),
            6 => self.opens(DYNAMIC, which & 1 == 1),
            7 => self.opens(&GET[..usize::from(which) % GET.len()], which & 1 == 1),
            8 => self.sends(stream, kind::DATA, &vec![b'd'; usize::from(which)]),
            9 => self.send(stream, &[], true),
            10 => self.sends(stream, kind::HEADERS, &[0, 0, 0x21, b't', 1, b'r']),
            11 => self.cancels(stream),
            12 => self.stops(stream),
            13 => self.takes_more(stream, usize::from(which)),
            14 => self.send(6, if self.is_new(6) { INSTRUCTIONS } else { &[0] }, false),
            15 => {
                let header: &[u8] = if self.is_new(10) { &[3] } else { &[] };
                self.send(10, &[header, &[which]].concat(), false);
            }
            16 => self.sends(
                2,
                kind::PRIORITY_UPDATE,
                &[(which % 64) & !3, b'u', b'=', b'0' + which % 8],
            ),
            17 => self.sends(stream, 0x21, &[which; 3]),
            18 => self.sends(2, 0x21, &[which; 3]),
            19..=22 => self.responds(what % 32 - 19, which),
            23 => self.bodies(usize::from(which)),
            24 => self.takes(which),
            25 => self.delivers(),
            26 => self.ends_one(which),
            27 => self.holds_body(which),
            28 => self.passes(Duration::from_millis(u64::from(which) * 100)),
            29 => {
                self.acknowledged += u64::from(which);
                let (bytes, waiting_max) = (self.acknowledged, 5000);
                let acknowledged = Acknowledged { bytes, waiting_max, is_all: which % 2 == 0 };
                self.engine.acknowledged(acknowledged, self.now);
            }
            30 => match which % 8 {
                0 => self.engine.shut_down_gracefully(&mut self.quic, self.now),
                1 => self.engine.shut_down_forcefully(&mut self.quic, self.now),
                2 => self.engine.connection_lost(),
                _ => self.passes(Duration::from_secs(u64::from(which))),
            },
            _ if self.engine.is_idle() => self.engine.shrink(),
            _ => {}
        }
        self.poll();
    }

    fn is_new(&self, stream: u64) -> bool {
        !self.quic.incoming.contains_key(&stream)
    }

    fn opens(&mut self, block: &[u8], ends: bool) {
        let stream = self.next;
        self.next += 4;
        self.send(stream, &[&[1, block.len() as u8], block].concat(), ends);
    }

    fn sends(&mut self, stream: u64, kind: u64, payload: &[u8]) {
        let mut bytes = Vec::new();
        frame::write_header(&mut bytes, kind, payload.len() as u64);
        bytes.extend_from_slice(payload);
        self.send(stream, &bytes, false);
    }

    fn send(&mut self, stream: u64, bytes: &[u8], ends: bool) {
        // Streams are opened in their order.
        if stream & 3 == 0 && stream >= self.next {
            return;
        }
        let is_new = self.is_new(stream);
        let incoming = self.quic.incoming.entry(stream).or_default();
        if incoming.has_ended || incoming.reset.is_some() {
            return;
        }
        incoming.bytes.extend(bytes);
        incoming.has_ended = ends;
        if is_new {
            self.engine.opened(stream);
        } else {
            self.engine.readable(stream);
        }
        self.poll();
    }

    fn cancels(&mut self, stream: u64) {
        if let Some(incoming) = self.quic.incoming.get_mut(&stream)
            && !incoming.has_ended
        {
            incoming.reset = Some(Code::RequestCancelled.number());
            self.engine.readable(stream);
        }
    }

    fn stops(&mut self, stream: u64) {
        if stream < self.next {
            let out = self.quic.out(stream);
            if out.stopped.is_none() && out.reset.is_none() {
                out.stopped = Some(Code::RequestCancelled.number());
                self.engine.stopped(stream, Code::RequestCancelled.number());
            }
        }
    }

    fn takes_more(&mut self, stream: u64, bytes: usize) {
        if stream < self.next {
            let out = self.quic.out(stream);
            out.window = out.window.saturating_add(bytes);
            if std::mem::take(&mut out.is_blocked) && out.window > 0 {
                self.engine.writable(stream);
            }
        }
    }

    fn poll(&mut self) {
        let mut looks = 0;
        while let Some(event) = self.engine.poll(&mut self.quic, &mut self.scratch, self.now) {
            self.act(&event);
            looks += 1;
            assert!(looks < 4000, "the work has no end");
        }
        assert!(!self.engine.has_work());
        while self.engine.next_sent().is_some() {}
    }

    fn act(&mut self, event: &Event) {
        match event {
            Event::Request(id) | Event::Refused(id, _) => {
                let before = self.open.insert(*id, Open::default());
                if matches!(event, Event::Request(_)) {
                    assert!(before.is_none(), "announced twice");
                } else if let Some(before) = before {
                    assert!(!before.has_responded, "refused behind its response");
                }
            }
            Event::ClientLost(id, _) => {
                let open = self.open.get_mut(id).expect("a stream of the shell");
                assert!(!std::mem::replace(&mut open.is_lost, true), "lost twice");
            }
            Event::Body(id, bytes) => {
                assert!(!bytes.is_empty());
                assert!(self.open.contains_key(id), "the body of a stream that is over");
            }
            Event::BodyEnd(_)
            | Event::Malformed(..)
            | Event::BoundExceeded(_)
            | Event::Violation(..) => {}
        }
    }

    fn one(&self, which: u8) -> Option<StreamId> {
        self.open.keys().nth(usize::from(which) % self.open.len().max(1)).copied()
    }

    fn takes(&mut self, which: u8) {
        if let Some(id) = self.one(which) {
            let max = (which & 1 == 0).then_some(100);
            let _ = self.engine.take_body(id, max, &mut self.quic, self.now);
        }
    }

    fn holds_body(&mut self, which: u8) {
        if let Some(id) = self.one(which) {
            self.engine.hold_body(id, which & 64 == 0, self.now);
        }
    }

    fn responds(&mut self, how: u8, which: u8) {
        let Some(id) = self.one(which) else { return };
        let length = match how {
            0 => BodyLength::Empty,
            1 => BodyLength::Known(u64::from(which) * 3),
            _ => BodyLength::Unknown,
        };
        let fields = [(&b"server"[..], &b"sekisho"[..]), (b"x-long", &[b'l'; 90])];
        let (quic, now) = (&mut self.quic, self.now);
        if how == 3 {
            self.engine.inform(id, Status::CONTINUE, [], quic, now);
        }
        self.engine.respond(id, Status::OK, length, fields, quic, now);
        self.engine.set_ready(id, true, now);
        if let Some(open) = self.open.get_mut(&id) {
            open.has_responded = true;
        }
    }

    /// The stream that has its turn sends.
    fn bodies(&mut self, len: usize) {
        let Some(id) = self.engine.next_sendable() else { return };
        assert!(self.engine.allowance(id) > 0, "it has its turn and cannot send");
        let open = self.open.get_mut(&id).expect("a stream of the shell");
        let offered = if open.frame > 0 { open.frame } else { len };
        let taken = self.engine.body(id, &vec![b'b'; offered], &mut self.quic, self.now);
        assert!(taken <= offered);
        open.frame = offered - taken;
    }

    /// The client acknowledges everything.
    fn delivers(&mut self) {
        for (stream, out) in &self.quic.outgoing {
            if out.has_ended {
                self.engine.delivered(*stream);
            }
        }
    }

    fn ends_one(&mut self, which: u8) {
        let Some(id) = self.one(which) else { return };
        let (quic, now) = (&mut self.quic, self.now);
        match which % 3 {
            0 => self.engine.reset(id, Code::Internal, quic, now),
            1 => {
                self.engine.trailers(id, [(&b"digest"[..], &b"x"[..])], quic, now);
                self.engine.finish(id, quic, now);
            }
            _ => self.engine.finish(id, quic, now),
        }
        self.open.remove(&id);
    }

    fn passes(&mut self, length: Duration) {
        self.now = self.now + length;
        self.poll();
        while let Some(event) = self.engine.expire(&mut self.quic, self.now) {
            self.act(&event);
        }
        if let Some(deadline) = self.engine.next_deadline() {
            assert!(!deadline.at.is_due(self.now), "{deadline:?} stays");
        }
    }

    fn holds(&mut self) {
        assert_eq!(self.engine.open_streams(), self.open.len());
        let is_closed = self.engine.stage() != Stage::Open;
        assert!(self.quic.closed.is_none() || is_closed);
        if is_closed {
            assert_eq!(self.engine.next_deadline(), None);
            assert_eq!(self.engine.next_sendable(), None);
        }
        self.held_max = self.held_max.max(self.engine.capacity());
        assert!(self.held_max < 64 * 1024, "{} bytes are held", self.held_max);
    }

    fn end(&mut self) {
        self.poll();
        while let Some(id) = self.one(0) {
            self.engine.finish(id, &mut self.quic, self.now);
            self.open.remove(&id);
        }
        self.poll();
        self.delivers();
        self.poll();
        assert_eq!(self.engine.open_streams(), 0);
        for (stream, out) in &self.quic.outgoing {
            if stream & 3 == 0 {
                check_response(*stream, &out.bytes, out.has_ended && out.reset.is_none());
            }
        }
    }
}

/// Frames of a response: heads, bodies, trailers; complete where it ended.
fn check_response(stream: u64, mut bytes: &[u8], is_complete: bool) {
    let mut kinds = Vec::new();
    while !bytes.is_empty() {
        let (Some(kind), Some(len)) = (read_varint(&mut bytes), read_varint(&mut bytes)) else {
            assert!(!is_complete, "{stream}: cut within a header");
            return;
        };
        assert!(matches!(kind, kind::HEADERS | kind::DATA), "{stream}: {kind:x}");
        kinds.push(kind);
        let Some(rest) = bytes.get(len as usize..) else {
            assert!(!is_complete, "{stream}: cut within a frame");
            return;
        };
        bytes = rest;
    }
    assert_ne!(kinds.first(), Some(&kind::DATA), "{stream}");
    if is_complete {
        assert!(!kinds.is_empty(), "{stream}: ended without a head");
    }
}
