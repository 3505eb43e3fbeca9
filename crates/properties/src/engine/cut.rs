//! However a stream is cut, and whenever the output leaves, the events, the answers and the end are the same.

use std::sync::Arc;

use sekisho_http::Status;
use sekisho_http1::{BodyLength, Cause, Event, Http1, Policy, Response, Scratch};
use sekisho_lifecycle::{Engine, Moment, Stage};

use super::policies;
use crate::cuts;

/// An event with its bytes, wherever the input was cut.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Request(Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>),
    Body(Vec<u8>),
    BodyEnd,
    Refused(Cause),
    ClientLost,
}

/// Offers the stream in every way and compares.
pub fn check(stream: &[u8], seed: u32) {
    let policies = policies(seed as u8);
    let mut first = None;
    for (way, pieces) in cuts::ways(stream, seed).into_iter().enumerate() {
        for flushes in [false, true] {
            let mut shell = Shell::new(&policies, flushes);
            for piece in pieces.iter().copied() {
                shell.offer(piece);
            }
            let found = shell.end();
            match &first {
                None => first = Some(found),
                Some(first) => assert_eq!(*first, found, "way {way}, flushes {flushes}"),
            }
        }
    }
}

/// A shell that does as the second letter of the target says.
struct Shell {
    engine: Http1,
    scratch: Scratch,
    other: Arc<Policy>,
    inbox: Vec<u8>,
    seen: Vec<Seen>,
    wire: Vec<u8>,
    flushes: bool,
    manner: u8,
}

impl Shell {
    fn new(policies: &[Arc<Policy>; 2], flushes: bool) -> Self {
        Self {
            engine: Http1::new(Arc::clone(&policies[0]), Moment::ZERO),
            scratch: Scratch::default(),
            other: Arc::clone(&policies[1]),
            inbox: Vec::new(),
            seen: Vec::new(),
            wire: Vec::new(),
            flushes,
            manner: 0,
        }
    }

    fn offer(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        let mut steps = 4 + 3 * self.inbox.len();
        loop {
            steps = steps.checked_sub(1).expect("the engine comes to rest");
            let step = self.engine.receive(&self.inbox, &mut self.scratch, Moment::ZERO);
            assert!(step.taken <= self.inbox.len());
            let is_rest = step.is_rest();
            if let Some(event) = &step.event {
                self.see(event);
            }
            self.inbox.drain(..step.taken);
            if let Some(event) = step.event {
                self.act(&event);
            }
            if is_rest {
                break;
            }
        }
        if self.flushes {
            self.flush();
        }
    }

    fn see(&mut self, event: &Event) {
        let head = &self.scratch.head;
        let fields = || head.fields().map(|(name, value)| (name.to_vec(), value.to_vec()));
        let seen = match event {
            Event::Request => {
                Seen::Request([head.method_name(), head.target()].concat(), fields().collect())
            }
            Event::Body(range) => {
                let bytes = &self.inbox[range.clone()];
                if let Some(Seen::Body(before)) = self.seen.last_mut() {
                    before.extend_from_slice(bytes);
                    return;
                }
                Seen::Body(bytes.to_vec())
            }
            Event::BodyEnd => Seen::BodyEnd,
            Event::Refused(refusal) => Seen::Refused(refusal.cause),
            Event::ClientLost => Seen::ClientLost,
        };
        self.seen.push(seen);
    }

    fn act(&mut self, event: &Event) {
        match event {
            Event::Request => {
                self.manner = self.scratch.head.target().get(1).copied().unwrap_or(0);
                self.request();
            }
            Event::BodyEnd if self.manner == b'e' => self.finish(),
            Event::BodyEnd => self.answer(Status::OK, BodyLength::Unknown, b"done"),
            Event::Refused(refusal) => {
                // An answer that has begun goes on: the engine does not refuse after it.
                self.answer(refusal.status, BodyLength::Known(2), b"no");
            }
            Event::Body(_) | Event::ClientLost => {}
        }
    }

    fn request(&mut self) {
        match self.manner {
            b't' | b'e' => self.take(None),
            b'l' => self.take(Some(10)),
            b'c' => {
                self.engine.set_policy(&self.other);
                self.take(Some(100));
            }
            b'u' => self.answer(Status::OK, BodyLength::Unknown, b"stream"),
            b'n' => self.answer(Status::NO_CONTENT, BodyLength::Empty, b""),
            b'3' => self.answer(Status::NOT_MODIFIED, BodyLength::Known(5), b"never"),
            b'w' => self.answer(Status::OK, BodyLength::Known(3), b"too much"),
            b'b' => self.answer(Status::OK, BodyLength::Known(9), b"too few"),
            b'd' => self.engine.shut_down_gracefully(Moment::ZERO),
            _ => self.answer(Status::NOT_FOUND, BodyLength::Known(2), b"no"),
        }
        if self.manner == b'e' {
            self.head(Status::OK, BodyLength::Unknown);
            self.engine.body(b"early", &mut self.scratch);
        }
        if self.manner == b'd' {
            self.answer(Status::OK, BodyLength::Empty, b"");
        }
    }

    fn take(&mut self, max: Option<u64>) {
        if let Err(refusal) = self.engine.take_body(max, &mut self.scratch, Moment::ZERO) {
            self.answer(refusal.status, BodyLength::Known(2), b"no");
        }
    }

    fn head(&mut self, status: Status, length: BodyLength) {
        let fields = [("S", "s")].into_iter().collect();
        let response = Response { status, fields: &fields, length };
        self.engine.respond(&response, &mut self.scratch, Moment::ZERO);
    }

    fn finish(&mut self) {
        self.engine.finish(&mut self.scratch, Moment::ZERO);
    }

    fn answer(&mut self, status: Status, length: BodyLength, body: &[u8]) {
        self.head(status, length);
        self.engine.body(body, &mut self.scratch);
        self.finish();
    }

    fn flush(&mut self) {
        let moved = self.scratch.out.len();
        self.wire.append(&mut self.scratch.out);
        self.engine.transmitted(moved as u64, false, Moment::ZERO);
    }

    /// What was seen, what was answered (without 100, which may depend on what had arrived), and the end.
    fn end(mut self) -> (Vec<Seen>, String, Stage) {
        if self.engine.input_ended(Moment::ZERO).is_some() {
            self.seen.push(Seen::ClientLost);
        }
        self.flush();
        let wire = self.wire.escape_ascii().to_string();
        (self.seen, wire.replace("HTTP/1.1 100 Continue\\r\\n\\r\\n", ""), self.engine.stage())
    }
}
