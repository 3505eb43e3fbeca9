//! A small blocking server around the engine, one thread for each connection: for `h2spec`, `nghttp`, `curl` and
//! `h2load`. It answers every request with 200 and a body, and echoes request bodies sent to `/echo`.
//!
//! `cargo run -p sekisho-http2 --example serve -- 127.0.0.1:8002 [BODY_BYTES]`
#![allow(missing_docs, reason = "a tool for tests")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho_http::Status;
use sekisho_http2::{BodyLength, Event, Http2, Policy, Scratch, Sends, StreamId};
use sekisho_lifecycle::{Engine, Moment, Stage};

const OUT_MAX: usize = 256 * 1024;

struct Connection {
    engine: Http2,
    scratch: Scratch,
    stream: TcpStream,
    inbox: Vec<u8>,
    /// What is left to send of each response.
    bodies: HashMap<StreamId, Body>,
    content: Arc<Vec<u8>>,
    start: Instant,
}

enum Body {
    Content(usize),
    Echo { waiting: Vec<u8>, has_ended: bool },
}

fn main() {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8002".into());
    let bytes = args.next().and_then(|bytes| bytes.parse().ok()).unwrap_or(1024);
    let listener = TcpListener::bind(&address).expect("the address can be bound");
    println!("listening on {}", listener.local_addr().expect("it has an address"));
    serve(&listener, bytes);
}

/// Serves every connection, with bodies of so many bytes.
pub fn serve(listener: &TcpListener, bytes: usize) {
    let content = Arc::new(vec![b'x'; bytes]);
    let mut policy = Policy::default();
    policy.common.keepalive_requests = u64::MAX;
    let policy = Arc::new(policy);
    for stream in listener.incoming().flatten() {
        let (policy, content) = (Arc::clone(&policy), Arc::clone(&content));
        std::thread::spawn(move || {
            stream.set_nodelay(true).ok();
            let mut connection = Connection {
                engine: Http2::new(policy, Moment::ZERO),
                scratch: Scratch::default(),
                stream,
                inbox: Vec::new(),
                bodies: HashMap::new(),
                content,
                #[expect(clippy::disallowed_methods, reason = "this is the shell")]
                start: Instant::now(),
            };
            connection.serve();
        });
    }
}

impl Connection {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn serve(&mut self) {
        let mut buffer = vec![0; 64 * 1024];
        let mut is_shut = false;
        loop {
            self.take_input();
            while self.send() {
                self.take_input();
            }
            match self.engine.stage() {
                Stage::Closed(_) => return,
                Stage::Lingering if !is_shut => {
                    is_shut = true;
                    self.stream.shutdown(std::net::Shutdown::Write).ok();
                }
                _ => {}
            }
            let wait = self.engine.next_deadline().map(|deadline| deadline.at.since(self.now()));
            let wait = wait.unwrap_or(Duration::from_secs(1)).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(wait)).ok();
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    let event = self.engine.input_ended(self.now());
                    if let Some(event) = event {
                        self.act(event, 0);
                    }
                    if matches!(self.engine.stage(), Stage::Closed(_)) {
                        return;
                    }
                }
                Ok(len) => self.inbox.extend_from_slice(&buffer[..len]),
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => {
                    while let Some(event) = self.engine.expire(self.now()) {
                        self.act(event, 0);
                    }
                }
                Err(_) => return,
            }
        }
    }

    fn take_input(&mut self) {
        let mut at = 0;
        loop {
            let now = self.now();
            let step = self.engine.receive(&self.inbox[at..], &mut self.scratch, now);
            let (taken, is_rest) = (step.taken, step.is_rest());
            if let Some(event) = step.event {
                self.act(event, at);
            }
            at += taken;
            if is_rest {
                break;
            }
        }
        self.inbox.drain(..at);
    }

    fn act(&mut self, event: Event, at: usize) {
        let now = self.now();
        match event {
            Event::Request(id) if self.scratch.head.target() == b"/echo" => {
                let body = Body::Echo { waiting: Vec::new(), has_ended: false };
                self.bodies.insert(id, body);
                self.engine.take_body(id, None, &mut self.scratch, now).expect("no limit");
                self.respond(id, Status::OK, BodyLength::Unknown);
            }
            Event::Request(id) => {
                let length = self.content.len();
                let length_known = BodyLength::Known(length as u64);
                if self.respond(id, Status::OK, length_known) == Sends::Nothing {
                    return self.engine.finish(id, &mut self.scratch, now);
                }
                let content = Arc::clone(&self.content);
                let sent = self.engine.body(id, &content, &mut self.scratch, now);
                if sent == length {
                    return self.engine.finish(id, &mut self.scratch, now);
                }
                self.bodies.insert(id, Body::Content(sent));
                self.engine.set_ready(id, true, now);
            }
            Event::Refused(id, refusal) => {
                self.respond(id, refusal.status, BodyLength::Empty);
                self.bodies.remove(&id);
                self.engine.finish(id, &mut self.scratch, now);
            }
            Event::Body(id, range) => {
                let bytes = self.inbox[at + range.start..at + range.end].to_vec();
                self.echo(id, &bytes);
            }
            Event::Stored(id) => {
                let bytes = std::mem::take(&mut self.scratch.body);
                self.echo(id, &bytes);
            }
            Event::BodyEnd(id) => {
                if let Some(Body::Echo { has_ended, .. }) = self.bodies.get_mut(&id) {
                    *has_ended = true;
                    self.engine.set_ready(id, true, now);
                }
            }
            Event::ClientLost(id, _) => {
                self.bodies.remove(&id);
                self.engine.finish(id, &mut self.scratch, now);
            }
            Event::Malformed(number, malformed) => {
                eprintln!("stream {number}: {}", malformed.message());
            }
            Event::BoundExceeded(bound) => eprintln!("beyond {}", bound.tag()),
        }
    }

    fn respond(&mut self, id: StreamId, status: Status, length: BodyLength) -> Sends {
        let now = self.now();
        let fields: [(&[u8], &[u8]); 3] = [
            (b"server", b"sekisho"),
            (b"date", b"Sun, 15 Nov 2026 04:42:56 GMT"),
            (b"content-type", b"text/plain"),
        ];
        self.engine.respond(id, status, length, fields, &mut self.scratch, now)
    }

    fn echo(&mut self, id: StreamId, bytes: &[u8]) {
        let now = self.now();
        if let Some(Body::Echo { waiting, .. }) = self.bodies.get_mut(&id) {
            waiting.extend_from_slice(bytes);
            self.engine.set_ready(id, true, now);
        }
    }

    /// Frames what may be sent, and sends it; says whether there was anything.
    fn send(&mut self) -> bool {
        let now = self.now();
        while self.scratch.out.len() < OUT_MAX
            && let Some(sendable) = self.engine.next_sendable()
        {
            let id = sendable.id;
            let Some(body) = self.bodies.get_mut(&id) else {
                self.engine.set_ready(id, false, now);
                continue;
            };
            let is_over = match body {
                Body::Content(sent) => {
                    let rest = &self.content[*sent..];
                    let rest = &rest[..rest.len().min(sendable.bytes_max)];
                    *sent += self.engine.body(id, rest, &mut self.scratch, now);
                    *sent == self.content.len()
                }
                Body::Echo { waiting, has_ended } => {
                    let len = self.engine.body(id, waiting, &mut self.scratch, now);
                    waiting.drain(..len);
                    self.engine.consumed(id, len as u32, &mut self.scratch, now);
                    if waiting.is_empty() {
                        self.engine.set_ready(id, false, now);
                    }
                    waiting.is_empty() && *has_ended
                }
            };
            if is_over {
                self.bodies.remove(&id);
                self.engine.finish(id, &mut self.scratch, now);
            }
        }
        if self.scratch.out.is_empty() {
            return false;
        }
        let len = self.scratch.out.len();
        if self.stream.write_all(&self.scratch.out).is_err() {
            self.engine.abort(sekisho_lifecycle::CloseReason::TransportLost);
        }
        self.scratch.out.clear();
        self.engine.transmitted(len as u64, false, now);
        while self.engine.next_sent().is_some() {}
        if self.engine.is_idle() {
            self.engine.shrink();
        }
        true
    }
}
