//! Streams of HTTP/3: the engine takes any bytes on any streams; however reads are cut, the same happens on each
//! stream, unless the connection ends, which it then does in any case; what is held is bounded. A request that is taken
//! could be written for HTTP/1, and is read there as the same one request (V5).
//!
//! The input is records: which stream and how it ends, how many bytes, the bytes. Its last four bytes say how reads are
//! cut.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sekisho_http::{Method, Status};
use sekisho_http3::{BodyLength, Event, Http3, Policy, Scratch, Sends, StreamId};
use sekisho_lifecycle::{Moment, Stage};

use crate::cuts;
use crate::http2_frames::{reads_the_same_in_http1, written};
use crate::http3_streams::Streams;

const STREAMS: [u64; 8] = [0, 4, 8, 12, 2, 6, 10, 14];

/// Holds the engine to it.
pub fn check(data: &[u8]) {
    let (payload, seed) = cuts::split_seed(data);
    let has_settings = seed >> 31 == 0;
    let whole = run(payload, usize::MAX, 1000, has_settings);
    for (read_max, piece_max) in [(1, 1000), (1000, 1), (seed as usize % 50 + 1, 7)] {
        let other = run(payload, read_max, piece_max, has_settings);
        assert_eq!(whole.is_closed, other.is_closed, "{whole:?} {other:?}");
        if !whole.is_closed {
            assert_eq!(whole, other, "the cut makes a difference");
        }
    }
}

fn policy() -> Policy {
    let mut policy = Policy {
        streams_max: 3,
        block_bytes_max: 300,
        table_bytes: 200,
        blocked_streams_max: 2,
        ..Policy::default()
    };
    (policy.head_bytes_max, policy.fields_max) = (400, 8);
    policy
}

/// What was seen on each stream, and whether the connection was closed.
#[derive(Debug, PartialEq, Eq, Default)]
struct Outcome {
    seen: BTreeMap<u64, String>,
    is_closed: bool,
}

struct Shell {
    engine: Http3,
    quic: Streams,
    scratch: Scratch,
    outcome: Outcome,
}

fn run(payload: &[u8], read_max: usize, piece_max: usize, has_settings: bool) -> Outcome {
    let mut shell = Shell {
        engine: Http3::new(Arc::new(policy()), Moment::ZERO),
        quic: Streams::new(read_max, usize::MAX),
        scratch: Scratch::default(),
        outcome: Outcome::default(),
    };
    shell.engine.start(&mut shell.quic);
    if has_settings {
        shell.send(2, &[0, 4, 2, 1, 0x3f], false);
    }
    let mut rest = payload;
    while let [kind, len, behind @ ..] = rest {
        let (bytes, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        let stream = STREAMS[usize::from(kind & 7)];
        let ends = kind & 8 != 0;
        let mut pieces = bytes.chunks(piece_max).peekable();
        if pieces.peek().is_none() {
            shell.send(stream, &[], ends);
        }
        while let Some(piece) = pieces.next() {
            shell.send(stream, piece, ends && pieces.peek().is_none());
        }
        if kind & 0x30 == 0x30 {
            shell.reset(stream);
        }
    }
    let held = shell.engine.capacity();
    assert!(held < 64 * 1024, "{held} bytes are held");
    shell.outcome.is_closed = shell.engine.stage() != Stage::Open;
    assert_eq!(shell.outcome.is_closed, shell.quic.closed.is_some());
    for (stream, out) in &shell.quic.outgoing {
        if stream & 3 == 0 {
            let seen = shell.outcome.seen.entry(*stream).or_default();
            let _ = write!(seen, " {} {} {:?}", out.bytes.len(), out.has_ended, out.reset);
        }
    }
    shell.outcome
}

impl Shell {
    fn send(&mut self, stream: u64, bytes: &[u8], ends: bool) {
        let is_new = !self.quic.incoming.contains_key(&stream);
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

    fn reset(&mut self, stream: u64) {
        if let Some(incoming) = self.quic.incoming.get_mut(&stream)
            && !incoming.has_ended
        {
            incoming.reset = Some(7);
            self.engine.readable(stream);
            self.poll();
        }
    }

    fn poll(&mut self) {
        let mut looks = 0;
        while let Some(event) = self.engine.poll(&mut self.quic, &mut self.scratch, Moment::ZERO) {
            self.act(event);
            looks += 1;
            assert!(looks < 4000, "the work has no end");
        }
        assert!(!self.engine.has_work());
        while let Some(id) = self.engine.next_sent() {
            self.engine.delivered(id.number());
        }
    }

    fn note(&mut self, stream: u64, text: &str) {
        self.outcome.seen.entry(stream).or_default().push_str(text);
    }

    fn act(&mut self, event: Event) {
        let now = Moment::ZERO;
        match event {
            Event::Request(id) => {
                let head = &self.scratch.head;
                let text = written(head).escape_ascii().to_string();
                reads_the_same_in_http1(head);
                let is_post = head.method() == Method::Post;
                let is_slow = head.target() == b"/slow";
                self.note(id.number(), &text);
                if is_post {
                    if self.engine.take_body(id, Some(200), &mut self.quic, now).is_err() {
                        self.respond(id, Status::CONTENT_TOO_LARGE);
                    }
                } else if !is_slow {
                    self.respond(id, Status::OK);
                }
            }
            Event::Body(id, bytes) => self.note(id.number(), &bytes.escape_ascii().to_string()),
            Event::BodyEnd(id) => {
                self.note(id.number(), " end");
                self.respond(id, Status::CREATED);
            }
            Event::Refused(id, refusal) => {
                self.note(id.number(), &format!(" refused {:?}", refusal.cause));
                self.respond(id, refusal.status);
            }
            Event::ClientLost(id, loss) => {
                self.note(id.number(), &format!(" lost {loss:?}"));
                self.engine.finish(id, &mut self.quic, now);
            }
            Event::Malformed(stream, malformed) => {
                self.note(stream, &format!(" {malformed:?}"));
            }
            Event::BoundExceeded(_) | Event::Violation(..) => {}
        }
    }

    fn respond(&mut self, id: StreamId, status: Status) {
        let now = Moment::ZERO;
        let (length, quic) = (BodyLength::Known(2), &mut self.quic);
        if self.engine.respond(id, status, length, [], quic, now) != Sends::Nothing {
            self.engine.body(id, b"ok", quic, now);
        }
        self.engine.finish(id, quic, now);
    }
}
