//! Two engines, a client's and a server's, joined by a network that a script of bytes moves, cuts, delays
//! and breaks, with handlers and an application that do what the script says. After each step the world is
//! checked; at its end all sides cooperate, or the network is gone, and everything must have been released.
//!
//! The fuzz target `native_engine` runs the same file.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sekisho_lifecycle::{
    Cause, CloseReason, DeadlineKind, Engine, Manner, Moment, RequestId, Session, Stage,
};
use sekisho_native::message::{Hello, RequestOptions};
use sekisho_native::server::Written;
use sekisho_native::{Client, ClientEvent, Code, Event, Policy, Scratch, Server, Violation};

const WINDOW: u32 = 200;

/// Runs a script to its end and checks the world all the way.
pub fn check(script: &[u8]) {
    // Most worlds speak 1.1, some of them with signs of life, half of them without a word about a channel's end.
    let minor = u32::from(!script.len().is_multiple_of(4));
    let mut world = World::new(minor, script.len() % 16 == 1, script.len() % 8 < 4);
    let mut bytes = script.iter().copied();
    while let (Some(op), Some(arg)) = (bytes.next(), bytes.next()) {
        world.act(op, arg);
        world.check();
    }
    world.end();
}

type Answer = Result<Vec<u8>, Code>;

/// A request as the application made it.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one request, each independent")]
struct Asked {
    slot: u16,
    answer: Option<Answer>,
    records: Vec<Vec<u8>>,
    /// Records that came and were not taken.
    untaken: VecDeque<usize>,
    is_acquired: bool,
    is_released: bool,
    is_drained: bool,
    /// The further channels: what came, what of it was not taken, whether it is drained.
    side: Vec<(Vec<Vec<u8>>, VecDeque<usize>, bool)>,
    /// The parts of its body that were sent after it.
    parts: Vec<Vec<u8>>,
    is_body_open: bool,
    is_cancelled: bool,
    has_deadline: bool,
}

/// A request as its handler has it.
struct Work {
    id: RequestId,
    /// The body, which names the application's request.
    name: u64,
    answer: Option<Answer>,
    records: Vec<Vec<u8>>,
    is_cancelled: bool,
    side: Vec<Vec<Vec<u8>>>,
    parts: Vec<Vec<u8>>,
    /// Parts that it has not taken.
    untaken: VecDeque<usize>,
    is_body_complete: bool,
    has_deadline: bool,
}

#[expect(clippy::struct_excessive_bools, reason = "facts about one world, each independent")]
struct World {
    now: Moment,
    server: Server,
    server_out: Scratch,
    server_in: Vec<u8>,
    server_pieces: Vec<u8>,
    client: Client,
    client_out: Scratch,
    client_in: Vec<u8>,
    client_pieces: Vec<u8>,
    works: Vec<Work>,
    /// What handlers did whose handles are gone, by name.
    done: BTreeMap<u64, (Option<Answer>, Vec<Vec<u8>>)>,
    asked: BTreeMap<u64, Asked>,
    next_name: u64,
    /// The server has the handshake and has not decided.
    is_undecided: bool,
    is_welcome: bool,
    is_ended: bool,
    is_told: bool,
    /// A deadline fell.
    is_late: bool,
    is_lost: bool,
    is_forced: bool,
}

impl World {
    fn new(minor: u32, has_pings: bool, drains_at_end: bool) -> Self {
        let policy = Arc::new(Policy {
            frame_bytes_max: 150,
            requests_max: 5,
            channels_max: 3,
            channel_bytes_max: WINDOW,
            output_bytes_max: 400,
            ..Policy::default()
        });
        let now = Moment::ZERO;
        let mut client_out = Scratch::default();
        let hello = Hello {
            major: 1,
            minor,
            label: "world".into(),
            keepalive_millis: if has_pings { 5000 } else { 0 },
            drains_at_end,
            ..Hello::default()
        };
        let client = Client::new(Arc::clone(&policy), &hello, &mut client_out, now);
        Self {
            now,
            server: Server::new(policy, now),
            server_out: Scratch::default(),
            server_in: Vec::new(),
            server_pieces: Vec::new(),
            client,
            client_out,
            client_in: Vec::new(),
            client_pieces: Vec::new(),
            works: Vec::new(),
            done: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_name: 0,
            is_undecided: false,
            is_welcome: false,
            is_ended: false,
            is_told: false,
            is_late: false,
            is_lost: false,
            is_forced: false,
        }
    }

    fn act(&mut self, op: u8, arg: u8) {
        let pick = usize::from(arg >> 3);
        if arg & 1 == 0 {
            self.decide();
        }
        match op % 20 {
            0..=2 => self.move_up(usize::from(arg) + 1),
            3..=5 => self.move_down(usize::from(arg) + 1),
            6 | 7 => self.ask(usize::from(arg) % 150),
            8 => self.answer(pick, arg % 4),
            9 => self.open(pick),
            10 => self.write(pick, usize::from(arg) % 90),
            11 => self.release(pick, arg & 1 == 0),
            12 => self.take(pick, arg & 1 == 0),
            13 => self.cancel(pick, arg & 1 == 0),
            14 => self.pass(u64::from(arg)),
            15 => self.ask_with(arg),
            16 => self.send_part(pick, arg),
            17 => self.take_part(pick, arg.is_multiple_of(4)),
            18 => self.use_side_channel(pick, arg),
            _ => self.control(arg),
        }
    }

    /// The peer is admitted, some time after its handshake.
    fn decide(&mut self) {
        if std::mem::take(&mut self.is_undecided) {
            self.server.admit(7, &mut self.server_out, self.now);
            self.settle();
        }
    }

    fn control(&mut self, arg: u8) {
        match arg % 32 {
            0 => self.lose(),
            1 => self.client.shut_down(Manner::Forceful, &mut self.client_out, self.now),
            2 | 3 => self.client.shut_down(Manner::Graceful, &mut self.client_out, self.now),
            4 => self.server.shut_down(Manner::Forceful, self.now),
            5 | 6 => self.server.shut_down(Manner::Graceful, self.now),
            7..=9 => {
                self.client.extend(Duration::from_secs(400), &mut self.client_out, self.now);
            }
            _ => {}
        }
        self.settle();
    }

    /// Moves bytes from the client to the server.
    fn move_up(&mut self, most: usize) {
        if self.is_lost || matches!(self.client.stage(), Stage::Closed(_)) {
            return;
        }
        let count = most.min(self.client_out.out.len());
        self.server_in.extend(self.client_out.out.drain(..count));
        self.client.transmitted(count as u64, !self.client_out.out.is_empty(), self.now);
        self.settle();
    }

    /// Moves bytes from the server to the client.
    fn move_down(&mut self, most: usize) {
        if self.is_lost || self.server.stage() != Stage::Open {
            return;
        }
        let count = most.min(self.server_out.out.len());
        self.client_in.extend(self.server_out.out.drain(..count));
        self.server.transmitted(count as u64, !self.server_out.out.is_empty(), self.now);
        self.settle();
    }

    fn pass(&mut self, arg: u64) {
        self.now = self.now + Duration::from_millis(arg * 40);
        for _ in 0..8 {
            if self.server.next_deadline().is_none_or(|deadline| !deadline.at.is_due(self.now)) {
                break;
            }
            let kind = self.server.next_deadline().map(|deadline| deadline.kind);
            self.is_late |= kind != Some(DeadlineKind::Request);
            let event = self.server.expire(self.now);
            self.on_server(event);
            self.settle();
        }
        if let Some(event) = self.client.expire(self.now) {
            self.is_late = true;
            self.on_client(event);
        }
        self.settle();
    }

    fn lose(&mut self) {
        self.is_lost = true;
        self.server.transport_lost(CloseReason::TransportLost, self.now);
        self.client.transport_lost();
        self.server_out.out.clear();
        self.client_out.out.clear();
    }

    /// Offers both engines what they have until they rest.
    fn settle(&mut self) {
        let mut steps = 100 + 3 * (self.server_in.len() + self.client_in.len());
        loop {
            steps = steps.checked_sub(1).expect("the engines come to rest");
            let step = self.server.receive(&self.server_in, &mut self.server_out, self.now);
            let is_rest = step.is_rest();
            assert!(step.taken <= self.server_in.len());
            if let Some(
                Event::Piece(range)
                | Event::Request { body: range, .. }
                | Event::Data { body: range, .. },
            ) = &step.event
            {
                assert!(range.end <= step.taken);
                self.server_pieces.extend_from_slice(&self.server_in[range.clone()]);
            }
            self.server_in.drain(..step.taken);
            self.on_server(step.event);
            if is_rest {
                break;
            }
        }
        loop {
            steps = steps.checked_sub(1).expect("the engines come to rest");
            let step = self.client.receive(&self.client_in, &mut self.client_out, self.now);
            let is_rest = step.is_rest();
            assert!(step.taken <= self.client_in.len());
            if let Some(
                ClientEvent::Piece(range)
                | ClientEvent::Result { body: range, .. }
                | ClientEvent::Record { body: range, .. },
            ) = &step.event
            {
                self.client_pieces.extend_from_slice(&self.client_in[range.clone()]);
            }
            self.client_in.drain(..step.taken);
            if let Some(event) = step.event {
                self.on_client(event);
            }
            if is_rest {
                break;
            }
        }
        if matches!(self.server.stage(), Stage::Closed(_))
            && let Some(event) = self.client.input_ended(self.now)
        {
            self.on_client(event);
        }
    }

    fn on_server(&mut self, event: Option<Event>) {
        let mut next = event;
        while let Some(event) = next {
            match event {
                Event::Hello(greeting) => {
                    assert_eq!(greeting.label, "world");
                    self.is_undecided = true;
                }
                Event::Request { id, with, .. } => {
                    let body = std::mem::take(&mut self.server_pieces);
                    let name = body.first_chunk().map(|name| u64::from_le_bytes(*name));
                    let name = name.expect("the body came whole");
                    assert!(body[8..].iter().all(|byte| *byte == name as u8));
                    assert!(self.works.iter().all(|work| work.name != name), "once only");
                    self.works.push(Work {
                        id,
                        name,
                        answer: None,
                        records: Vec::new(),
                        is_cancelled: false,
                        side: Vec::new(),
                        parts: Vec::new(),
                        untaken: VecDeque::new(),
                        is_body_complete: false,
                        has_deadline: with.is_some_and(|with| with.deadline.is_some()),
                    });
                }
                Event::Data { id, .. } => {
                    let part = std::mem::take(&mut self.server_pieces);
                    let work = self.works.iter_mut().find(|work| work.id == id).expect("held");
                    assert!(!work.is_body_complete);
                    work.untaken.push_back(part.len());
                    work.parts.push(part);
                    let held: usize = work.untaken.iter().map(|bytes| bytes + 12).sum();
                    assert!(held <= WINDOW as usize, "{held} bytes of a body are held");
                }
                Event::DataEnded(id) => {
                    let work = self.works.iter_mut().find(|work| work.id == id).expect("held");
                    assert!(!std::mem::replace(&mut work.is_body_complete, true));
                }
                Event::Discarded | Event::Refused(_) => self.server_pieces.clear(),
                Event::Cancelled(id, _) => {
                    let mut works = self.works.iter_mut();
                    let work = works.find(|work| work.id == id).expect("it is held");
                    assert!(!work.is_cancelled, "told once");
                    work.is_cancelled = true;
                }
                Event::Piece(_) | Event::ChannelMoved(_) | Event::Bug(..) => {}
            }
            next = self.server.next_event();
        }
    }

    fn on_client(&mut self, event: ClientEvent) {
        let now = self.now;
        match event {
            ClientEvent::Welcome(welcome) => {
                assert_eq!((welcome.session, welcome.channel_bytes), (7, WINDOW));
                self.is_welcome = true;
            }
            ClientEvent::Discarded => self.client_pieces.clear(),
            ClientEvent::Result { slot, .. } => {
                let body = std::mem::take(&mut self.client_pieces);
                self.answered(slot, Ok(body));
            }
            ClientEvent::Error { slot, code, .. } => self.answered(slot, Err(code)),
            ClientEvent::DataStopped { slot } => self.in_slot(slot).is_body_open = false,
            ClientEvent::Acquired { slot, channel: 0 } => self.in_slot(slot).is_acquired = true,
            ClientEvent::Acquired { slot, channel } => {
                let asked = self.in_slot(slot);
                asked.side.push(Default::default());
                assert_eq!(asked.side.len(), usize::from(channel));
            }
            ClientEvent::Released { slot, channel: 0 } => self.in_slot(slot).is_released = true,
            ClientEvent::Piece(_)
            | ClientEvent::Extended { .. }
            | ClientEvent::DataMoved { .. }
            | ClientEvent::Pong(_)
            | ClientEvent::Released { .. } => {}
            ClientEvent::Record { slot, channel, .. } if channel > 0 => {
                let body = std::mem::take(&mut self.client_pieces);
                let asked = self.in_slot(slot);
                assert!(asked.is_acquired && !asked.is_released && !asked.is_drained);
                let (records, untaken, is_drained) = &mut asked.side[usize::from(channel) - 1];
                assert!(!*is_drained);
                untaken.push_back(body.len());
                records.push(body);
            }
            ClientEvent::Record { slot, .. } => {
                let body = std::mem::take(&mut self.client_pieces);
                let asked = self.in_slot(slot);
                assert!(asked.is_acquired && !asked.is_released && !asked.is_drained);
                asked.untaken.push_back(body.len());
                asked.records.push(body);
            }
            ClientEvent::Bye(_) | ClientEvent::Lost => {
                self.is_ended = true;
                if let ClientEvent::Bye(bye) = event {
                    // No side breaks the protocol here; only time may make a side late.
                    let is_late = bye.text == Violation::FrameLate.to_string();
                    assert!(bye.code != Code::InvalidRequest.number() || is_late, "{}", bye.text);
                    self.is_told = true;
                }
                self.server.input_ended(now);
                self.on_server(None);
                while let Some(event) = self.server.next_event() {
                    self.on_server(Some(event));
                }
            }
            ClientEvent::Broken(violation) => panic!("the server broke the protocol: {violation}"),
        }
    }

    fn answered(&mut self, slot: u16, answer: Result<Vec<u8>, Code>) {
        let asked = self.in_slot(slot);
        assert!(asked.answer.is_none(), "a second answer");
        assert!(answer != Err(Code::DeadlineExceeded) || asked.has_deadline);
        asked.answer = Some(answer);
        asked.is_body_open = false;
    }

    /// The request that the client has in this slot: the one that is not over.
    fn in_slot(&mut self, slot: u16) -> &mut Asked {
        self.asked
            .values_mut()
            .rev()
            .find(|asked| asked.slot == slot)
            .expect("an answer has a request")
    }

    fn ask(&mut self, len: usize) {
        let name = self.next_name;
        let mut body = name.to_le_bytes().to_vec();
        body.resize(len.max(8), name as u8);
        let made = self.client.request(3, &body, &mut self.client_out, self.now);
        if let Ok(slot) = made {
            self.next_name += 1;
            self.asked.insert(name, Asked { slot, ..Asked::default() });
        }
    }

    fn work(&mut self, pick: usize) -> Option<usize> {
        if self.works.is_empty() { None } else { Some(pick % self.works.len()) }
    }

    fn answer(&mut self, pick: usize, how: u8) {
        let Some(at) = self.work(pick) else { return };
        let (id, name) = (self.works[at].id, self.works[at].name);
        if how == 3 {
            // The handle goes, with or without an answer.
            let work = self.works.remove(at);
            self.server.handle_dropped(id, &mut self.server_out, self.now);
            let answer = work.answer.or(Some(Err(Code::Unknown)));
            self.done.insert(name, (answer, work.records));
            return self.settle();
        }
        let answer = if how == 0 {
            let body = format!("answer to {name}").into_bytes();
            let told = self.server.result(id, &body, &mut self.server_out, self.now);
            told.map(|()| Ok(body))
        } else {
            let code = Code::OperationCancelled;
            let told = self.server.error(id, code, "no", &mut self.server_out, self.now);
            told.map(|()| Err(code))
        };
        match answer {
            Ok(answer) => {
                assert!(self.works[at].answer.is_none());
                self.works[at].answer = Some(answer);
            }
            Err(_) => assert!(self.works[at].answer.is_some() || self.works[at].has_deadline),
        }
        self.settle();
    }

    fn open(&mut self, pick: usize) {
        let Some(at) = self.work(pick) else { return };
        let id = self.works[at].id;
        let _ = self.server.acquire_channel(id, &mut self.server_out, self.now);
        self.settle();
    }

    fn write(&mut self, pick: usize, len: usize) {
        let Some(at) = self.work(pick) else { return };
        let (id, count) = (self.works[at].id, self.works[at].records.len());
        let mut record = vec![count as u8; len];
        record.push(self.works[at].name as u8);
        let written = self.server.write(id, 0, &record, &mut self.server_out, self.now);
        if written == Ok(Written::Sent) {
            self.works[at].records.push(record);
        }
        self.settle();
    }

    fn release(&mut self, pick: usize, is_open: bool) {
        let Some(at) = self.work(pick) else { return };
        if is_open {
            self.server.release_channel(self.works[at].id, &mut self.server_out, self.now);
        }
        self.settle();
    }

    fn take(&mut self, pick: usize, drains: bool) {
        let now = self.now;
        let live = self.asked.values_mut().filter(|asked| asked.is_acquired && !asked.is_drained);
        let live: Vec<&mut Asked> = live.collect();
        let count = live.len();
        let Some(asked) = live.into_iter().nth(pick % count.max(1)) else { return };
        if drains {
            asked.is_drained = true;
            asked.untaken.clear();
            asked.side.iter_mut().for_each(|(_, untaken, _)| untaken.clear());
            self.client.drained(asked.slot, &mut self.client_out, now);
        } else if let Some(bytes) = asked.untaken.pop_front() {
            self.client.taken(asked.slot, 0, bytes, &mut self.client_out, now);
        }
    }

    fn cancel(&mut self, pick: usize, is_client: bool) {
        if is_client {
            let count = self.asked.len().max(1);
            let Some(asked) = self.asked.values_mut().nth(pick % count) else { return };
            if asked.answer.is_none() {
                (asked.is_cancelled, asked.is_body_open) = (true, false);
                self.client.cancel(asked.slot, &mut self.client_out, self.now);
            }
        } else if let Some(at) = self.work(pick) {
            self.server.cancel(self.works[at].id, Cause::Operator, self.now);
            self.settle();
        }
    }

    /// A request with a body that goes on, or a deadline, or both.
    fn ask_with(&mut self, arg: u8) {
        let name = self.next_name;
        let timeout_micros = if arg & 1 == 0 { 0 } else { u64::from(arg) * 10_000 };
        let body_follows = arg & 2 == 0;
        let options = RequestOptions { timeout_micros, body_follows, ..RequestOptions::default() };
        let body = name.to_le_bytes();
        let (client, out) = (&mut self.client, &mut self.client_out);
        if let Ok(slot) = client.request_with(3, &body, &options, out, self.now) {
            self.next_name += 1;
            let has_deadline = timeout_micros > 0;
            let asked =
                Asked { slot, is_body_open: body_follows, has_deadline, ..Asked::default() };
            self.asked.insert(name, asked);
        }
    }

    /// The client sends a part of a body, or ends it.
    fn send_part(&mut self, pick: usize, arg: u8) {
        let open = self.asked.values_mut().filter(|asked| asked.is_body_open);
        let mut open: Vec<&mut Asked> = open.collect();
        let count = open.len().max(1);
        let Some(asked) = open.get_mut(pick % count) else { return };
        if arg.is_multiple_of(8) {
            asked.is_body_open = false;
            self.client.end_data(asked.slot, &mut self.client_out, self.now);
            return;
        }
        let part = vec![asked.parts.len() as u8; usize::from(arg) % 90];
        let sent = self.client.data(asked.slot, &part, &mut self.client_out, self.now);
        if sent.expect("it is open") == Written::Sent {
            asked.parts.push(part);
        }
    }

    /// A service takes a part of its body, or wants no more of it.
    fn take_part(&mut self, pick: usize, stops: bool) {
        let Some(at) = self.work(pick) else { return };
        let (id, now) = (self.works[at].id, self.now);
        self.server.await_body(id, self.works[at].untaken.is_empty(), now);
        if stops {
            self.server.stop_body(id, &mut self.server_out, now);
        } else if let Some(bytes) = self.works[at].untaken.pop_front() {
            self.server.body_taken(id, bytes, &mut self.server_out, now);
        }
        self.settle();
    }

    /// A service opens one more channel, writes into one or ends it; or the client takes from one or drains it.
    fn use_side_channel(&mut self, pick: usize, arg: u8) {
        let now = self.now;
        if arg & 1 == 0 {
            let Some(at) = self.work(pick) else { return };
            let (work, out) = (&mut self.works[at], &mut self.server_out);
            let last = work.side.len() as u8;
            match arg & 6 {
                0 => {
                    if let Ok(number) = self.server.add_channel(work.id, out, now) {
                        work.side.push(Vec::new());
                        assert_eq!(usize::from(number), work.side.len());
                    }
                }
                2 | 4 if last > 0 => {
                    let record = vec![last; usize::from(arg) % 90];
                    if self.server.write(work.id, last, &record, out, now) == Ok(Written::Sent) {
                        work.side[usize::from(last) - 1].push(record);
                    }
                }
                _ => self.server.release_side_channel(work.id, last, out, now),
            }
            return self.settle();
        }
        let live = self.asked.values_mut().filter(|asked| !asked.side.is_empty());
        let mut live: Vec<&mut Asked> = live.filter(|asked| !asked.is_drained).collect();
        let count = live.len().max(1);
        let Some(asked) = live.get_mut(pick % count) else { return };
        let number = asked.side.len() as u8;
        let (_, untaken, is_drained) = &mut asked.side[usize::from(number) - 1];
        if arg & 6 == 0 {
            *is_drained = true;
            untaken.clear();
            self.client.drained_side(asked.slot, number, &mut self.client_out, now);
        } else if let Some(bytes) = untaken.pop_front() {
            self.client.taken(asked.slot, number, bytes, &mut self.client_out, now);
        }
    }

    /// What must hold at any time.
    fn check(&mut self) {
        assert_ne!(self.server.stage(), Stage::Closed(CloseReason::OutOfSync));
        self.is_forced |= self.server.stay().asked() == Some(Manner::Forceful);
        assert!(self.server.lanes().len() <= 5);
        // All that handlers could have put out, and the answers to requests and extensions.
        assert!(self.server_out.out.len() <= 400 + 5 * (150 + 1100) + 3 * WINDOW as usize + 8400);
        for (name, asked) in &self.asked {
            // E4: what is held of a channel has room in its window.
            let untaken = asked.side.iter().map(|(_, untaken, _)| untaken);
            for untaken in untaken.chain([&asked.untaken]) {
                let held: usize = untaken.iter().map(|bytes| bytes + 12).sum();
                assert!(held <= WINDOW as usize, "{held} bytes are held");
            }
            let work = self.works.iter().find(|work| work.name == *name);
            if let Some(work) = work {
                assert!(asked.parts.starts_with(&work.parts));
                if work.is_body_complete {
                    assert_eq!(asked.parts, work.parts, "complete, and not all came");
                }
                for ((came, ..), sent) in asked.side.iter().zip(&work.side) {
                    assert!(sent.starts_with(came));
                }
            }
            let work = work.map(|work| (&work.answer, &work.records));
            let done = || self.done.get(name).map(|(answer, records)| (answer, records));
            let Some((answer, records)) = work.or_else(done) else {
                // Refused, or still on its way.
                use Code::{ResourceLimitReached, SessionClosed, SessionExpired};
                let is_refusal = matches!(
                    asked.answer,
                    None | Some(Err(SessionClosed
                        | SessionExpired
                        | ResourceLimitReached
                        | Code::DeadlineExceeded))
                );
                assert!(is_refusal, "an answer from nowhere: {:?}", asked.answer);
                continue;
            };
            // Nothing lost, doubled, changed or out of order.
            assert!(records.starts_with(&asked.records));
            if asked.answer.is_some() && asked.answer != Some(Err(Code::DeadlineExceeded)) {
                assert_eq!(asked.answer, *answer);
            }
            if asked.is_released && !asked.is_drained && !self.is_forced {
                assert_eq!(*records, asked.records, "released, and not all came");
            }
        }
    }

    /// All sides do what is asked of them, until nothing is left.
    fn end(&mut self) {
        for round in 0..40 {
            self.decide();
            while !self.works.is_empty() {
                self.answer(0, 1);
                self.answer(0, 3);
            }
            for _ in 0..self.asked.len() {
                self.take(0, true);
            }
            if round == 20 {
                self.server.shut_down(Manner::Graceful, self.now);
            }
            self.move_up(10_000);
            while self.server.stage() == Stage::Open && !self.server_out.out.is_empty() {
                self.move_down(5);
            }
            self.check();
        }
        assert!(self.works.is_empty());
        let state = self.server.stay().session();
        assert!(matches!(state, Session::Shutdown | Session::Vacant), "{state:?}");
        assert!(self.server.lanes().is_empty());
        assert!(self.server.reclaim(self.now), "all is released");
        assert!(self.is_ended || self.is_lost || !self.is_welcome);
        let is_orderly = self.is_welcome && !self.is_lost && !self.is_forced;
        if is_orderly {
            assert!(self.is_told || self.is_late, "the last word has come");
            // A request that crossed our `BYE` was never received.
            let crossed = self.asked.iter().filter(|(name, asked)| {
                assert!(asked.answer.is_some() || !self.done.contains_key(name), "no answer");
                asked.answer.is_none()
            });
            assert_eq!(self.client.in_use(), crossed.count());
        }
        assert!(!matches!(self.server.stage(), Stage::Open), "{:?}", self.server.stage());
    }
}
