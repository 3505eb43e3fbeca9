//! Frames of HTTP/2: the engine takes any stream; however it is cut, the events, the answers and the end are the
//! same, and the work is linear. A request that is taken could be written for HTTP/1, and is read there as the same
//! one request (V5).
//!
//! The last four bytes of the input say where the rest is cut; a bit of them leaves out preface and SETTINGS.

use std::sync::Arc;

use sekisho_http::{Head, Method, Status};
use sekisho_http1::{Event as Event1, Http1, Policy as Policy1, Scratch as Scratch1};
use sekisho_http2::frame::{self, PREFACE};
use sekisho_http2::{BodyLength, Event, Http2, Policy, Scratch, Sends};
use sekisho_lifecycle::{Engine, Moment, Stage};

use crate::cuts;

/// Holds the engine to it.
pub fn check(data: &[u8]) {
    let (payload, seed) = cuts::split_seed(data);
    let mut stream = Vec::new();
    if seed >> 31 == 0 {
        stream.extend_from_slice(PREFACE);
        frame::settings(&mut stream, &[]);
    }
    stream.extend_from_slice(payload);
    let [whole, single, drawn] = cuts::ways(&stream, seed).map(|pieces| run(&pieces));
    for other in [single, drawn] {
        assert_eq!(whole, other, "the cut makes a difference");
    }
}

fn policy() -> Policy {
    let mut policy = Policy {
        streams_max: 4,
        block_bytes_max: 800,
        block_frames_max: 6,
        stream_window_bytes: 100,
        upload_window_bytes: 300,
        connection_window_bytes: 66_000,
        ..Policy::default()
    };
    (policy.head_bytes_max, policy.fields_max, policy.keepalive_requests) = (600, 8, 12);
    for rate in &mut policy.rates {
        (rate.burst, rate.per_second) = (8, 1);
    }
    policy
}

/// What was seen, how much was answered, and how it ended.
fn run(pieces: &[&[u8]]) -> (Vec<String>, usize, Stage) {
    let mut shell = Shell {
        engine: Http2::new(Arc::new(policy()), Moment::ZERO),
        scratch: Scratch::default(),
        seen: Vec::new(),
        out: 0,
    };
    let mut inbox: Vec<u8> = Vec::new();
    shell.offer(&inbox);
    for piece in pieces {
        inbox.extend_from_slice(piece);
        let taken = shell.offer(&inbox);
        inbox.drain(..taken);
        shell.transmit();
    }
    let mut event = shell.engine.input_ended(Moment::ZERO);
    while let Some(current) = event {
        shell.act(&current, &[]);
        event = shell.engine.next_event(&mut shell.scratch);
    }
    shell.transmit();
    let held = shell.engine.capacity();
    assert!(held < 64 * 1024, "{held} bytes are held");
    (shell.seen, shell.out, shell.engine.stage())
}

struct Shell {
    engine: Http2,
    scratch: Scratch,
    seen: Vec<String>,
    out: usize,
}

impl Shell {
    fn offer(&mut self, inbox: &[u8]) -> usize {
        let (mut at, mut looks) = (0, 0);
        loop {
            let step = self.engine.receive(&inbox[at..], &mut self.scratch, Moment::ZERO);
            assert!(step.taken <= inbox.len() - at);
            if let Some(event) = &step.event {
                self.act(event, &inbox[at..]);
            }
            at += step.taken;
            looks += 1;
            assert!(looks <= 4 * inbox.len() + 32, "the work is not linear");
            if step.is_rest() {
                return at;
            }
        }
    }

    fn transmit(&mut self) {
        self.engine.flush(&mut self.scratch, Moment::ZERO);
        let len = self.scratch.out.len();
        self.out += len;
        self.scratch.out.clear();
        self.engine.transmitted(len as u64, false, Moment::ZERO);
        while self.engine.next_sent().is_some() {}
    }

    fn act(&mut self, event: &Event, input: &[u8]) {
        let now = Moment::ZERO;
        match event {
            Event::Request(id) => {
                let head = &self.scratch.head;
                self.seen.push(format!("request {} {}", id.number(), written(head).escape_ascii()));
                reads_the_same_in_http1(head);
                if head.method() == Method::Post {
                    let taken = self.engine.take_body(*id, Some(200), &mut self.scratch, now);
                    if taken.is_err() {
                        self.answer(*id, Status::CONTENT_TOO_LARGE);
                    }
                } else if head.target() != b"/slow" {
                    self.answer(*id, Status::OK);
                }
            }
            Event::Body(id, range) => {
                let bytes = &input[range.clone()];
                self.body(id.number(), bytes);
                self.engine.consumed(*id, bytes.len() as u32, &mut self.scratch, now);
            }
            Event::Stored(id) => {
                let bytes = std::mem::take(&mut self.scratch.body);
                self.body(id.number(), &bytes);
                self.engine.consumed(*id, bytes.len() as u32, &mut self.scratch, now);
            }
            Event::BodyEnd(id) => {
                self.seen.push(format!("end {}", id.number()));
                self.answer(*id, Status::CREATED);
            }
            Event::Refused(id, refusal) => {
                self.seen.push(format!("refused {} {:?}", id.number(), refusal.cause));
                self.answer(*id, refusal.status);
            }
            Event::ClientLost(id, loss) => {
                self.seen.push(format!("lost {} {loss:?}", id.number()));
                self.engine.finish(*id, &mut self.scratch, now);
            }
            other => self.seen.push(format!("{other:?}")),
        }
    }

    fn answer(&mut self, id: sekisho_http2::StreamId, status: Status) {
        let (scratch, now) = (&mut self.scratch, Moment::ZERO);
        let length = BodyLength::Known(2);
        if self.engine.respond(id, status, length, [], scratch, now) != Sends::Nothing {
            self.engine.body(id, b"ok", scratch, now);
        }
        self.engine.finish(id, scratch, now);
    }

    fn body(&mut self, stream: u32, bytes: &[u8]) {
        let front = format!("body {stream} ");
        let text = bytes.escape_ascii().to_string();
        match self.seen.last_mut() {
            Some(last) if last.starts_with(&front) => last.push_str(&text),
            _ => self.seen.push(front + &text),
        }
    }
}

/// The head as an HTTP/1 request.
pub(crate) fn written(head: &Head) -> Vec<u8> {
    let mut text = [head.method_name(), b" ", head.target(), b" HTTP/1.1\r\n"].concat();
    for (name, value) in head.fields() {
        text.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// The head is one request with the same meaning when it is written for HTTP/1.
pub(crate) fn reads_the_same_in_http1(head: &Head) {
    let text = written(head);
    let mut engine = Http1::new(Arc::new(Policy1::default()), Moment::ZERO);
    let mut scratch = Scratch1::default();
    let step = engine.receive(&text, &mut scratch, Moment::ZERO);
    assert_eq!(step.event, Some(Event1::Request), "{}", text.escape_ascii());
    assert_eq!(step.taken, text.len(), "all of it is one head: {}", text.escape_ascii());
    let other = &scratch.head;
    assert_eq!((head.method_name(), head.target()), (other.method_name(), other.target()));
    assert!(head.fields().eq(other.fields()), "other fields: {}", text.escape_ascii());
}
