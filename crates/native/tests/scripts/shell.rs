//! A server's engine with services that are numbers, and a client's that asks three times: both take any
//! stream. The fuzz target `native_frames` runs the same file.

use std::sync::Arc;

use sekisho_lifecycle::{Engine, Moment, RequestId, Stage};
use sekisho_native::frame::Kind;
use sekisho_native::message::{self, Hello, Welcome};
use sekisho_native::{Client, ClientEvent, Code, Event, Policy, Scratch, Server};

/// An event with its bytes, wherever the input was cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    Hello(String),
    Request(RequestId, u32, Vec<u8>),
    Refused(Code),
    Data(RequestId, Vec<u8>),
    DataEnded(RequestId),
    Discarded,
    Other(Event),
}

/// A server whose services are numbers: what each does is in `serve`.
pub struct Shell {
    engine: Server,
    scratch: Scratch,
    pieces: Vec<u8>,
    seen: Vec<Seen>,
    wire: Vec<u8>,
    calls: usize,
}

impl Shell {
    fn new() -> Self {
        let policy = Policy {
            frame_bytes_max: 50,
            requests_max: 3,
            channel_bytes_max: 120,
            ..Policy::default()
        };
        Self {
            engine: Server::new(Arc::new(policy), Moment::ZERO),
            scratch: Scratch::default(),
            pieces: Vec::new(),
            seen: Vec::new(),
            wire: Vec::new(),
            calls: 0,
        }
    }

    fn offer(&mut self, inbox: &mut Vec<u8>) {
        loop {
            self.calls += 1;
            let step = self.engine.receive(inbox, &mut self.scratch, Moment::ZERO);
            let is_rest = step.is_rest();
            assert!(step.taken <= inbox.len());
            if let Some(
                Event::Piece(range)
                | Event::Request { body: range, .. }
                | Event::Data { body: range, .. },
            ) = &step.event
            {
                assert!(range.start <= range.end && range.end <= step.taken);
                self.pieces.extend_from_slice(&inbox[range.clone()]);
            }
            inbox.drain(..step.taken);
            if let Some(event) = step.event {
                self.on(event);
            }
            self.flush();
            if is_rest && self.engine.next_event().is_none() {
                break;
            }
        }
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Piece(_) => {}
            Event::Hello(greeting) => {
                self.seen.push(Seen::Hello(greeting.label));
                self.engine.admit(1, &mut self.scratch, Moment::ZERO);
            }
            Event::Request { id, service, .. } => {
                let body = std::mem::take(&mut self.pieces);
                self.serve(id, service, &body);
                self.seen.push(Seen::Request(id, service, body));
            }
            Event::Data { id, .. } => {
                let body = std::mem::take(&mut self.pieces);
                self.engine.body_taken(id, body.len(), &mut self.scratch, Moment::ZERO);
                self.seen.push(Seen::Data(id, body));
            }
            Event::DataEnded(id) => {
                self.seen.push(Seen::DataEnded(id));
                let _ = self.engine.result(id, b"all", &mut self.scratch, Moment::ZERO);
                self.engine.handle_dropped(id, &mut self.scratch, Moment::ZERO);
            }
            Event::Discarded => {
                self.pieces.clear();
                self.seen.push(Seen::Discarded);
            }
            Event::Refused(code) => {
                self.pieces.clear();
                self.seen.push(Seen::Refused(code));
            }
            event => self.seen.push(Seen::Other(event)),
        }
    }

    fn serve(&mut self, id: RequestId, service: u32, body: &[u8]) {
        let (engine, scratch, now) = (&mut self.engine, &mut self.scratch, Moment::ZERO);
        if matches!(service, 2 | 3) {
            let _ = engine.acquire_channel(id, scratch, now);
            if let Ok(more) = engine.add_channel(id, scratch, now) {
                let _ = engine.write(id, more, body, scratch, now);
            }
            for _ in 0..3 {
                let _ = engine.write(id, 0, body, scratch, now);
            }
        }
        match service {
            0 => _ = engine.result(id, body, scratch, now),
            1 => _ = engine.error(id, Code::IoError, "no", scratch, now),
            2 => {
                engine.release_channel(id, scratch, now);
                let _ = engine.result(id, b"through the channel", scratch, now);
            }
            3 => _ = engine.result(id, b"too early", scratch, now),
            4 => {}
            // This one gets no answer.
            _ => return,
        }
        engine.handle_dropped(id, scratch, now);
    }

    fn flush(&mut self) {
        let moved = self.scratch.out.len() as u64;
        self.wire.append(&mut self.scratch.out);
        self.engine.transmitted(moved, false, Moment::ZERO);
    }
}

/// Offers the stream, cut into pieces of these lengths over and over: events, answers, the end, looks.
pub fn run(stream: &[u8], cuts: &[usize]) -> (Vec<Seen>, Vec<u8>, Stage, usize) {
    let mut shell = Shell::new();
    let (mut inbox, mut rest, mut cuts) = (Vec::new(), stream, cuts.iter().cycle());
    while !rest.is_empty() {
        let len = cuts.next().map_or(rest.len(), |cut| (*cut).clamp(1, rest.len()));
        let (piece, after) = rest.split_at(len);
        inbox.extend_from_slice(piece);
        rest = after;
        shell.offer(&mut inbox);
    }
    (shell.seen, shell.wire, shell.engine.stage(), shell.calls)
}

/// Offers the stream to a client that is not greeted yet, and to one that is.
pub fn client_takes(stream: &[u8], cut: usize) {
    take(stream, cut);
    let mut greeted = Vec::new();
    let welcome = Welcome {
        major: 1,
        requests_max: 9,
        frame_bytes_max: 90,
        channel_bytes: 90,
        minor: 1,
        ..Welcome::default()
    };
    message::write(&mut greeted, Kind::Welcome, 0, &welcome);
    greeted.extend_from_slice(stream);
    take(&greeted, cut);
}

fn take(stream: &[u8], cut: usize) {
    let mut scratch = Scratch::default();
    let policy = Arc::new(Policy::default());
    let mut client = Client::new(policy, &Hello::default(), &mut scratch, Moment::ZERO);
    let mut inbox = Vec::new();
    for piece in stream.chunks(cut) {
        inbox.extend_from_slice(piece);
        loop {
            let step = client.receive(&inbox, &mut scratch, Moment::ZERO);
            assert!(step.taken <= inbox.len());
            let is_rest = step.is_rest();
            inbox.drain(..step.taken);
            if let Some(ClientEvent::Welcome(_)) = step.event {
                for _ in 0..3 {
                    let _ = client.request(1, b"x", &mut scratch, Moment::ZERO);
                }
            }
            if is_rest {
                break;
            }
        }
    }
}
