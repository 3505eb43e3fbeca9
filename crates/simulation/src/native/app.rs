//! The client's side of one session: the real engine, and an application that knows what it asked for and
//! what it must get.

use std::collections::VecDeque;

use sekisho_lifecycle::{Engine, Moment, Stage};
use sekisho_native::client::RequestError;
use sekisho_native::message::{Hello, RequestOptions};
use sekisho_native::server::Written;
use sekisho_native::{Client, ClientEvent, Code, Policy, Scratch, Violation};

use std::sync::Arc;

use super::plan::{Act, Given, PlannedClient};
use super::server_session::ServerSession;
use super::work::record;
use super::{Actor, Link, Sim};
use crate::RunStats;
use crate::network::Read;

/// What precedes each record.
const HEAD_BYTES: usize = 12;

/// A request as the application made it.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one channel, each independent")]
struct Asked {
    slot: Option<u16>,
    answer: Option<Result<Vec<u8>, Code>>,
    records: usize,
    untaken: VecDeque<usize>,
    is_acquired: bool,
    is_released: bool,
    is_drained: bool,
    is_cancelled: bool,
    /// The parts of its body that were sent, when the next one is, and whether it is not ended.
    parts: usize,
    next_part_at: Moment,
    is_body_open: bool,
}

/// A client.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one session, each independent")]
pub(super) struct App {
    index: usize,
    planned: PlannedClient,
    policy: Arc<Policy>,
    client: Option<Client>,
    out: Scratch,
    input: Vec<u8>,
    pieces: Vec<u8>,
    asked: Vec<Asked>,
    next_ask: usize,
    next_read_at: Moment,
    next_take_at: Moment,
    sent: usize,
    is_welcome: bool,
    /// The server's last word.
    bye: Option<u32>,
    is_lost: bool,
    has_reset: bool,
    has_ended: bool,
}

impl App {
    /// One that has not come yet.
    pub(super) fn new(index: usize, planned: PlannedClient, policy: Arc<Policy>) -> Self {
        let asked = vec![Asked::default(); planned.asks.len()];
        Self {
            index,
            planned,
            policy,
            client: None,
            out: Scratch::default(),
            input: Vec::new(),
            pieces: Vec::new(),
            asked,
            next_ask: 0,
            next_read_at: Moment::ZERO,
            next_take_at: Moment::ZERO,
            sent: 0,
            is_welcome: false,
            bye: None,
            is_lost: false,
            has_reset: false,
            has_ended: false,
        }
    }

    /// Its plan.
    pub(super) const fn planned(&self) -> &PlannedClient {
        &self.planned
    }

    /// Says hello.
    pub(super) fn connect(&mut self, sim: &Sim) {
        let hello = Hello {
            major: 1,
            minor: self.planned.minor,
            label: "world".into(),
            drains_at_end: self.planned.drains_at_end,
            ..Hello::default()
        };
        // Clients have no deadlines of their own: what they are owed is looked at in the end.
        let policy = Policy {
            handshake_timeout: None,
            frame_timeout: None,
            send_timeout: None,
            ..(*self.policy).clone()
        };
        self.client = Some(Client::new(Arc::new(policy), &hello, &mut self.out, sim.now));
    }

    /// Does what it can.
    pub(super) fn poll(
        &mut self,
        link: &mut Link,
        server_session: &mut ServerSession,
        stats: &mut RunStats,
        sim: &mut Sim,
    ) {
        if self.has_reset {
            return;
        }
        if self.planned.resets.is_some_and(|at| at.is_due(sim.now)) && !self.has_ended {
            sim.say(|| format!("client {} resets", self.index));
            self.has_reset = true;
            if let Some(client) = &mut self.client {
                client.transport_lost();
            }
            link.down.close_reader();
            link.up.reset(sim.now, &mut sim.rng);
            return sim
                .wake(Actor::ServerSession(self.index), link.up.next_arrival().unwrap_or(sim.now));
        }
        self.read(link, stats, sim);
        self.ask(sim);
        self.upload(sim);
        self.act(server_session, sim);
        self.take(sim);
        self.send(link, sim);
        let who = Actor::Client(self.index);
        let is_open = self.client.as_ref().is_some_and(|client| client.stage() == Stage::Open);
        if !is_open && !self.has_ended {
            self.has_ended = true;
            link.up.end(sim.now, &mut sim.rng);
            sim.wake(Actor::ServerSession(self.index), link.up.next_arrival().unwrap_or(sim.now));
        }
        let acts = self.planned.acts.first().map(|(at, _)| *at).filter(|_| is_open);
        let asks = self.planned.asks.get(self.next_ask).map(|ask| ask.at);
        let asks = asks.filter(|at| is_open && self.is_welcome && *at > sim.now);
        let resets = self.planned.resets.filter(|_| !self.has_ended);
        for at in [acts, asks, resets, link.down.next_arrival()].into_iter().flatten() {
            sim.wake(who, at);
        }
    }

    fn read(&mut self, link: &mut Link, stats: &mut RunStats, sim: &mut Sim) {
        while self.planned.stops_reading.is_none_or(|at| !at.is_due(sim.now)) {
            let (most, gap) = self.planned.reads;
            if !self.next_read_at.is_due(sim.now) {
                return sim.wake(Actor::Client(self.index), self.next_read_at);
            }
            match link.down.read(most, &mut self.input) {
                Read::Nothing => return,
                Read::End | Read::Reset => {
                    let event = self.client.as_mut().and_then(|client| client.input_ended(sim.now));
                    return self.see(event, stats, sim);
                }
                Read::Bytes(_) => {
                    self.next_read_at = sim.now + gap;
                    if link.down.has_room_for_sender() {
                        sim.wake(Actor::ServerSession(self.index), sim.now + link.up.latency_min());
                    }
                    self.feed(stats, sim);
                }
            }
        }
        // A client that does not read learns of the end when it cannot send.
        if link.down.is_reset() {
            let event = self.client.as_mut().and_then(|client| client.input_ended(sim.now));
            self.see(event, stats, sim);
        }
    }

    fn feed(&mut self, stats: &mut RunStats, sim: &mut Sim) {
        loop {
            sim.steps += 1;
            let Some(client) = &mut self.client else { return };
            let step = client.receive(&self.input, &mut self.out, sim.now);
            let is_rest = step.is_rest();
            if let Some(
                ClientEvent::Piece(range)
                | ClientEvent::Result { body: range, .. }
                | ClientEvent::Record { body: range, .. },
            ) = &step.event
            {
                self.pieces.extend_from_slice(&self.input[range.clone()]);
            }
            self.input.drain(..step.taken);
            self.see(step.event, stats, sim);
            if is_rest {
                return;
            }
        }
    }

    fn see(&mut self, event: Option<ClientEvent>, stats: &mut RunStats, sim: &mut Sim) {
        let Some(event) = event else { return };
        let index = self.index;
        sim.say(|| format!("client {index}: {event:?}"));
        match event {
            ClientEvent::Welcome(_) => self.is_welcome = true,
            ClientEvent::Piece(_)
            | ClientEvent::Extended { .. }
            // Those that wait for credit look again in this turn.
            | ClientEvent::DataMoved { .. }
            | ClientEvent::DataStopped { .. }
            | ClientEvent::Pong(_) => {}
            ClientEvent::Discarded => self.pieces.clear(),
            ClientEvent::Result { slot, .. } => {
                let body = std::mem::take(&mut self.pieces);
                stats.answers += 1;
                self.answered(slot, Ok(body), sim);
            }
            ClientEvent::Error { slot, code, .. } => {
                stats.answers += 1;
                self.answered(slot, Err(code), sim);
            }
            ClientEvent::Acquired { slot, .. } => {
                if let Some(at) = self.in_slot(slot, sim) {
                    self.asked[at].is_acquired = true;
                }
            }
            ClientEvent::Released { slot, .. } => {
                if let Some(at) = self.in_slot(slot, sim) {
                    self.asked[at].is_released = true;
                    self.drain_if_taken(at, sim);
                }
            }
            ClientEvent::Record { slot, .. } => {
                let body = std::mem::take(&mut self.pieces);
                let Some(at) = self.in_slot(slot, sim) else { return };
                let count = self.asked[at].records;
                let is_right = body == record(at, count, body.len());
                sim.demand(is_right, || {
                    format!("client {index}: record {count} of request {at} is another")
                });
                self.asked[at].records += 1;
                self.asked[at].untaken.push_back(body.len());
                let held: usize =
                    self.asked[at].untaken.iter().map(|bytes| bytes + HEAD_BYTES).sum();
                let window = self.policy.channel_bytes_max as usize;
                sim.demand(held <= window, || {
                    format!("client {index} holds {held} bytes of {window}")
                });
            }
            ClientEvent::Bye(bye) => {
                let is_late = bye.text == Violation::FrameLate.to_string();
                let is_blamed = bye.code == Code::InvalidRequest.number() && !is_late;
                sim.demand(!is_blamed, || format!("client {index} is blamed: {}", bye.text));
                self.bye = Some(bye.code);
            }
            ClientEvent::Lost => self.is_lost = true,
            ClientEvent::Broken(violation) => {
                sim.violate(|| {
                    format!("client {index}: the server broke the protocol: {violation}")
                });
            }
        }
    }

    /// The request that is in this slot now.
    fn in_slot(&self, slot: u16, sim: &mut Sim) -> Option<usize> {
        let found = self.asked.iter().rposition(|asked| asked.slot == Some(slot));
        sim.demand(found.is_some(), || format!("client {}: slot {slot} is free", self.index));
        found
    }

    fn answered(&mut self, slot: u16, answer: Result<Vec<u8>, Code>, sim: &mut Sim) {
        let Some(at) = self.in_slot(slot, sim) else { return };
        let is_first = self.asked[at].answer.is_none();
        let index = self.index;
        sim.demand(is_first, || format!("client {index}: a second answer to request {at}"));
        self.asked[at].answer = Some(answer);
        self.asked[at].is_body_open = false;
        self.free(at);
    }

    /// A free slot belongs to no request.
    fn free(&mut self, at: usize) {
        let asked = &mut self.asked[at];
        let has_channel = asked.is_acquired && !(asked.is_released && asked.is_drained);
        if asked.answer.is_some() && !has_channel {
            asked.slot = None;
        }
    }

    fn ask(&mut self, sim: &mut Sim) {
        let Some(client) = self.client.as_mut().filter(|_| self.is_welcome) else { return };
        // Made in their order, each when it is time and there is a slot.
        while let Some(ask) =
            self.planned.asks.get(self.next_ask).filter(|ask| ask.at.is_due(sim.now))
        {
            let at = self.next_ask;
            let mut body = (at as u64).to_le_bytes().to_vec();
            body.resize(ask.bytes, at as u8);
            let body_follows = ask.upload.is_some() && self.planned.minor > 0;
            let options = RequestOptions { body_follows, ..RequestOptions::default() };
            match client.request_with(7, &body, &options, &mut self.out, sim.now) {
                Ok(slot) => {
                    sim.say(|| {
                        format!(
                            "client {} makes request {at} in slot {slot}: {:?}",
                            self.index, ask.script
                        )
                    });
                    let is_used = self.asked.iter().any(|asked| asked.slot == Some(slot));
                    sim.demand(!is_used, || format!("slot {slot} is given twice"));
                    self.asked[at].slot = Some(slot);
                    self.asked[at].is_body_open = body_follows;
                    self.next_ask += 1;
                }
                Err(RequestError::TooMany | RequestError::NotOpen) => return,
                Err(error) => {
                    return sim.violate(|| format!("request {at} cannot be made: {error:?}"));
                }
            }
        }
    }

    /// Sends what may be sent of bodies that go on.
    fn upload(&mut self, sim: &mut Sim) {
        let Some(client) = self.client.as_mut().filter(|client| client.stage() == Stage::Open)
        else {
            return;
        };
        for (at, asked) in self.asked.iter_mut().enumerate() {
            let Some((count, bytes, gap)) = self.planned.asks[at].upload else { continue };
            while asked.is_body_open
                && let Some(slot) = asked.slot
            {
                if asked.parts == count {
                    asked.is_body_open = false;
                    client.end_data(slot, &mut self.out, sim.now);
                    break;
                }
                if !asked.next_part_at.is_due(sim.now) {
                    sim.wake(Actor::Client(self.index), asked.next_part_at);
                    break;
                }
                let part = record(at, asked.parts, bytes);
                match client.data(slot, &part, &mut self.out, sim.now) {
                    Ok(Written::Sent) => {
                        asked.parts += 1;
                        asked.next_part_at = sim.now + gap;
                    }
                    // Credit will come.
                    Ok(Written::Full) => break,
                    Err(error) => {
                        return sim.violate(|| format!("a part cannot be sent: {error:?}"));
                    }
                }
            }
        }
    }

    fn act(&mut self, server_session: &mut ServerSession, sim: &mut Sim) {
        while let Some((_, act)) =
            self.planned.acts.first().copied().filter(|(at, _)| at.is_due(sim.now))
        {
            self.planned.acts.remove(0);
            let Some(client) = &mut self.client else { return };
            sim.say(|| format!("client {}: {act:?}", self.index));
            match act {
                Act::Cancel(at) => {
                    if let Some(asked) =
                        self.asked.get_mut(at).filter(|asked| asked.answer.is_none())
                        && let Some(slot) = asked.slot
                    {
                        (asked.is_cancelled, asked.is_body_open) = (true, false);
                        client.cancel(slot, &mut self.out, sim.now);
                    }
                }
                Act::Drain(at) => {
                    if self.asked.get(at).is_some_and(|asked| asked.is_acquired) {
                        self.drain(at, sim);
                    }
                }
                Act::Extend(length) => {
                    let before = self.out.out.len();
                    client.extend(length, &mut self.out, sim.now);
                    if self.out.out.len() > before {
                        server_session.expect_extension(length);
                    }
                }
                Act::ShutDown(manner) => client.shut_down(manner, &mut self.out, sim.now),
                Act::CancelFromOutside(_) | Act::ShutDownFromOutside(_) => {
                    server_session.act(act, sim);
                    sim.wake(Actor::ServerSession(self.index), sim.now);
                }
            }
        }
    }

    fn take(&mut self, sim: &mut Sim) {
        for at in 0..self.asked.len() {
            while !self.asked[at].untaken.is_empty() {
                if !self.next_take_at.is_due(sim.now) {
                    return sim.wake(Actor::Client(self.index), self.next_take_at);
                }
                self.next_take_at = sim.now + self.planned.takes;
                let Some(bytes) = self.asked[at].untaken.pop_front() else { break };
                if let (Some(client), Some(slot)) = (&mut self.client, self.asked[at].slot) {
                    client.taken(slot, 0, bytes, &mut self.out, sim.now);
                }
                self.drain_if_taken(at, sim);
            }
        }
    }

    fn drain_if_taken(&mut self, at: usize, sim: &Sim) {
        if self.asked[at].is_released && self.asked[at].untaken.is_empty() {
            self.drain(at, sim);
        }
    }

    fn drain(&mut self, at: usize, sim: &Sim) {
        if !std::mem::replace(&mut self.asked[at].is_drained, true)
            && let (Some(client), Some(slot)) = (&mut self.client, self.asked[at].slot)
        {
            self.asked[at].untaken.clear();
            client.drained(slot, &mut self.out, sim.now);
            self.free(at);
        }
    }

    fn send(&mut self, link: &mut Link, sim: &mut Sim) {
        let Some(client) = &mut self.client else { return };
        while client.stage() == Stage::Open && !self.out.out.is_empty() {
            let most = self.planned.stops_after.saturating_sub(self.sent).min(self.out.out.len());
            if most == 0 {
                return;
            }
            let sent = link.up.send(&self.out.out[..most], sim.now, &mut sim.rng);
            let Some(moved) = sent else { return client.transmitted(0, true, sim.now) };
            self.sent += moved;
            self.out.out.drain(..moved);
            client.transmitted(moved as u64, !self.out.out.is_empty(), sim.now);
            sim.wake(Actor::ServerSession(self.index), link.up.next_arrival().unwrap_or(sim.now));
        }
    }

    /// The world is over: has this client got what it was owed?
    pub(super) fn settle(&self, server_session: &ServerSession, sim: &mut Sim) {
        let index = self.index;
        let is_orderly = self.bye.is_some() && !self.has_reset;
        for (at, asked) in self.asked.iter().enumerate() {
            let wrong = |what: &str| {
                format!(
                    "client {index}, request {at}: {what}: {asked:?}, {:?}",
                    server_session.done.get(&at)
                )
            };
            let Some(done) = server_session.done.get(&at) else {
                use Code::{ResourceLimitReached, SessionClosed, SessionExpired};
                let is_refusal = matches!(
                    asked.answer,
                    None | Some(Err(SessionClosed | SessionExpired | ResourceLimitReached))
                );
                sim.demand(is_refusal && asked.records == 0, || wrong("an answer from nowhere"));
                continue;
            };
            sim.demand(asked.slot.is_some() || asked.answer.is_some(), || wrong("it was not made"));
            sim.demand(asked.records <= done.records, || wrong("more records than were written"));
            if asked.answer.is_some() {
                sim.demand(asked.answer == done.answer, || wrong("another answer than was given"));
                let script = self.planned.asks[at].script;
                let is_right = match (&asked.answer, script.answer) {
                    (Some(Ok(body)), Given::Result(bytes)) => {
                        *body == record(at, usize::from(u16::MAX), bytes)
                    }
                    (Some(Err(Code::IoError)), Given::Error)
                    | (Some(Err(Code::Unknown)), Given::Nothing) => true,
                    (Some(Err(Code::OperationCancelled)), _) => done.is_cancelled,
                    _ => false,
                };
                sim.demand(is_right, || wrong("not what the service gave"));
            }
            // `BYE` comes after all answers, unless the server was told that the client is lost.
            let is_owed = is_orderly && !server_session.was_lost();
            sim.demand(asked.answer.is_some() || !is_owed, || wrong("no answer"));
            let is_all = asked.is_released
                && !asked.is_drained_early(done.records)
                && !server_session.is_forced;
            sim.demand(!is_all || asked.records == done.records, || {
                wrong("released, and not all came")
            });
        }
    }
}

impl Asked {
    /// Whether the client wanted no more before all had come.
    fn is_drained_early(&self, records: usize) -> bool {
        self.is_drained && self.records < records
    }
}
