//! A client that speaks HTTP/2 as RFC 9113 says, or not quite, and judges what it is sent: each stream has one answer,
//! whole or visibly not, within the windows that it was given.

use sekisho_http2::frame::{self, HEADER_BYTES, Header, Kind, PREFACE, flag, setting};
use sekisho_http2::hpack::Decoder;
use sekisho_lifecycle::Moment;

use super::plan::{Ending, PlannedClient, PlannedStream, Script, Vanish};
use super::{Actor, Link, Sim};
use crate::RunStats;
use crate::network::Read;

/// No frame of an upload is longer.
const FRAME_BYTES: usize = 1000;
/// The window of a connection, and of streams where nobody says otherwise.
const WINDOW_BYTES: i64 = 65_535;
const NO_ERROR: u32 = 0;
const CANCEL: u32 = 8;

/// How far a stream has come.
#[derive(Debug)]
struct Stream {
    /// `None` until it is opened.
    number: Option<u32>,
    /// How much of the upload has not been sent.
    unsent: usize,
    has_sent_end: bool,
    /// How much we may send, and how much we may be sent.
    send_window: i64,
    receive_window: i64,
    status: Option<u16>,
    body_bytes: usize,
    ending: Option<Seen>,
}

/// How a stream has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Whole,
    /// By the server, with this code.
    Reset(u32),
    /// By ourselves.
    Given,
}

/// What became of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    Open,
    /// It does nothing any more.
    Silent,
    /// The server has ended it.
    Ended {
        by_reset: bool,
    },
    /// We have.
    Left,
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    at: usize,
    pub(super) planned: PlannedClient,
    state: State,
    decoder: Decoder,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    streams: Vec<Stream>,
    next_number: u32,
    send_window: i64,
    /// What the server said of new streams.
    initial_window: i64,
    receive_window: i64,
    /// The last stream of each GOAWAY.
    go_aways: Vec<u32>,
}

impl Client {
    pub(super) fn new(at: usize, planned: PlannedClient) -> Self {
        let window = i64::from(planned.window);
        let streams = planned.streams.iter().map(|stream| Stream {
            number: None,
            unsent: stream.upload.unwrap_or(0),
            has_sent_end: false,
            send_window: 0,
            receive_window: window,
            status: None,
            body_bytes: 0,
            ending: None,
        });
        Self {
            at,
            state: State::Waiting,
            decoder: Decoder::default(),
            inbox: Vec::new(),
            outbox: Vec::new(),
            streams: streams.collect(),
            next_number: 1,
            send_window: WINDOW_BYTES,
            initial_window: WINDOW_BYTES,
            receive_window: WINDOW_BYTES,
            go_aways: Vec::new(),
            planned,
        }
    }

    /// The connection is there.
    pub(super) fn connected(&mut self) {
        self.state = State::Open;
        self.outbox.extend_from_slice(PREFACE);
        let window = (setting::INITIAL_WINDOW_SIZE, self.planned.window);
        frame::settings(&mut self.outbox, &[window]);
    }

    /// Looks at what has come, does what is due and says when it wants to go on.
    pub(super) fn poll(&mut self, link: &mut Link, sim: &mut Sim) {
        if self.state != State::Open {
            return;
        }
        let now = sim.now;
        if let Some((_, how)) = self.planned.vanishes.filter(|(at, _)| at.is_due(now)) {
            return self.vanish(how, link, sim);
        }
        self.read(link, sim);
        if self.state != State::Open {
            return;
        }
        self.open_streams(sim);
        self.reset_streams(sim);
        self.upload();
        while !self.outbox.is_empty() {
            let Some(sent) = link.up.send(&self.outbox, now, &mut sim.rng) else { break };
            self.outbox.drain(..sent);
        }
        if self.has_all() && self.planned.closes && self.outbox.is_empty() {
            sim.say(|| format!("client {} leaves", self.at));
            self.state = State::Left;
            link.up.end(now, &mut sim.rng);
            return;
        }
        if let Some(next) = self.next_wake(now) {
            sim.wake(Actor::Client(self.at), next);
        }
    }

    fn next_wake(&self, now: Moment) -> Option<Moment> {
        let planned = self.planned.streams.iter().flat_map(|it| [Some(it.opens), it.resets]);
        let vanishes = self.planned.vanishes.map(|(at, _)| at);
        planned.flatten().chain(vanishes).filter(|at| !at.is_due(now)).min()
    }

    fn vanish(&mut self, how: Vanish, link: &mut Link, sim: &mut Sim) {
        sim.say(|| format!("client {} vanishes: {how:?}", self.at));
        let now = sim.now;
        self.state = if how == Vanish::Silence { State::Silent } else { State::Left };
        match how {
            Vanish::Reset => link.up.reset(now, &mut sim.rng),
            Vanish::Fin => link.up.end(now, &mut sim.rng),
            Vanish::Silence => {}
        }
    }

    /// Whether it has asked for all that it will, and has every ending.
    fn has_all(&self) -> bool {
        let is_over = |stream: &Stream| match stream.number {
            Some(_) => stream.ending.is_some(),
            None => !self.go_aways.is_empty(),
        };
        self.streams.iter().all(is_over)
    }

    fn open_streams(&mut self, sim: &mut Sim) {
        if !self.go_aways.is_empty() {
            return;
        }
        for (at, stream) in self.streams.iter_mut().enumerate() {
            let planned = &self.planned.streams[at];
            if stream.number.is_some() || !planned.opens.is_due(sim.now) {
                continue;
            }
            let number = self.next_number;
            self.next_number += 2;
            stream.number = Some(number);
            stream.send_window = self.initial_window;
            stream.has_sent_end = planned.upload.is_none();
            let path = format!("/{}.{at}", self.at);
            sim.say(|| format!("client {} opens {number}: {path} {planned:?}", self.at));
            let method = if planned.upload.is_some() { "POST" } else { "GET" };
            let head =
                [(":method", method), (":scheme", "http"), (":path", &path), (":authority", "a")];
            let ends = if planned.upload.is_none() { flag::END_STREAM } else { 0 };
            put_frame(
                &mut self.outbox,
                Kind::Headers,
                flag::END_HEADERS | ends,
                number,
                &block(&head),
            );
        }
    }

    fn reset_streams(&mut self, sim: &mut Sim) {
        for (at, stream) in self.streams.iter_mut().enumerate() {
            let is_due = self.planned.streams[at].resets.is_some_and(|it| it.is_due(sim.now));
            if let (Some(number), None, true) = (stream.number, stream.ending, is_due) {
                sim.say(|| format!("client {} resets {number}", self.at));
                stream.ending = Some(Seen::Given);
                frame::rst_stream(&mut self.outbox, number, CANCEL);
            }
        }
    }

    /// Sends of the uploads what the windows allow.
    fn upload(&mut self) {
        for (at, stream) in self.streams.iter_mut().enumerate() {
            let Some(number) = stream.number else { continue };
            while !stream.has_sent_end
                && !matches!(stream.ending, Some(Seen::Given | Seen::Reset(_)))
            {
                let window = stream.send_window.min(self.send_window).max(0) as usize;
                let count = stream.unsent.min(window).min(FRAME_BYTES);
                if count == 0 && stream.unsent > 0 {
                    break;
                }
                let all = self.planned.streams[at].upload.unwrap_or(0);
                let from = all - stream.unsent;
                let bytes: Vec<u8> =
                    (from..from + count).map(|byte| Script::byte(self.at, at, byte)).collect();
                stream.unsent -= count;
                stream.send_window -= count as i64;
                self.send_window -= count as i64;
                stream.has_sent_end = stream.unsent == 0;
                let ends = if stream.has_sent_end { flag::END_STREAM } else { 0 };
                put_frame(&mut self.outbox, Kind::Data, ends, number, &bytes);
            }
        }
    }

    fn read(&mut self, link: &mut Link, sim: &mut Sim) {
        loop {
            match link.down.read(usize::MAX, &mut self.inbox) {
                Read::Bytes(_) => {
                    while let Some(header) = Header::read(&self.inbox) {
                        let end = HEADER_BYTES + header.len as usize;
                        if self.inbox.len() < end {
                            break;
                        }
                        let frame: Vec<u8> = self.inbox.drain(..end).collect();
                        self.take(header, &frame[HEADER_BYTES..], sim);
                    }
                }
                Read::Nothing => return,
                end @ (Read::End | Read::Reset) => {
                    let by_reset = end == Read::Reset;
                    sim.say(|| format!("client {} sees the end, by reset: {by_reset}", self.at));
                    self.state = State::Ended { by_reset };
                    if !by_reset {
                        link.up.end(sim.now, &mut sim.rng);
                    }
                    return;
                }
            }
        }
    }

    fn take(&mut self, header: Header, payload: &[u8], sim: &mut Sim) {
        sim.say(|| format!("client {} gets {header:?}", self.at));
        let number = |at| frame::number(payload, at).unwrap_or(0);
        match header.kind {
            Kind::Settings if !header.has(flag::ACK) => {
                for one in payload.chunks_exact(6) {
                    let value = i64::from(frame::number(one, 2).unwrap_or(0));
                    if u16::from_be_bytes([one[0], one[1]]) == setting::INITIAL_WINDOW_SIZE {
                        let more = value - self.initial_window;
                        self.initial_window = value;
                        self.streams.iter_mut().for_each(|stream| stream.send_window += more);
                    }
                }
                put_frame(&mut self.outbox, Kind::Settings, flag::ACK, 0, &[]);
            }
            Kind::Ping if !header.has(flag::ACK) => {
                put_frame(&mut self.outbox, Kind::Ping, flag::ACK, 0, payload);
            }
            Kind::GoAway => self.take_go_away(number(0), sim),
            Kind::WindowUpdate if header.stream == 0 => self.send_window += i64::from(number(0)),
            Kind::Settings | Kind::Ping => {}
            _ => self.take_of_stream(header, payload, sim),
        }
    }

    fn take_go_away(&mut self, last: u32, sim: &mut Sim) {
        let at = self.at;
        let is_lower = self.go_aways.last().is_none_or(|before| last <= *before);
        sim.demand(is_lower, || format!("client {at}: a GOAWAY that takes an earlier one back"));
        self.go_aways.push(last);
    }

    fn take_of_stream(&mut self, header: Header, payload: &[u8], sim: &mut Sim) {
        let (at, number) = (self.at, header.stream);
        let Some(place) = self.streams.iter().position(|it| it.number == Some(number)) else {
            return sim.violate(|| format!("client {at}: {:?} on stream {number}", header.kind));
        };
        let (stream, planned) = (&mut self.streams[place], &self.planned.streams[place]);
        if header.kind == Kind::WindowUpdate {
            stream.send_window += i64::from(frame::number(payload, 0).unwrap_or(0));
            return;
        }
        if header.kind == Kind::Data {
            let count = payload.len() as i64;
            stream.receive_window -= count;
            self.receive_window -= count;
            let is_within = stream.receive_window >= 0 && self.receive_window >= 0;
            sim.demand(is_within, || {
                format!("client {at}: more than the windows of {number} allow")
            });
            if !self.planned.is_stingy && count > 0 {
                frame::window_update(&mut self.outbox, 0, count as u32);
                self.receive_window += count;
                if stream.ending.is_none() && !header.has(flag::END_STREAM) {
                    frame::window_update(&mut self.outbox, number, count as u32);
                    stream.receive_window += count;
                }
            }
        }
        let fields = (header.kind == Kind::Headers).then(|| head(&mut self.decoder, payload));
        match (stream.ending, header.kind) {
            // What was on its way when we gave up.
            (Some(Seen::Given), _) => return,
            (Some(Seen::Whole), Kind::RstStream) => {
                let code = frame::number(payload, 0).unwrap_or(0);
                sim.demand(code == NO_ERROR, || {
                    format!("client {at}: {number} was whole and is reset with {code}")
                });
                // The rest of the upload is not wanted.
                stream.has_sent_end = true;
                return;
            }
            (Some(_), kind) => {
                return sim.violate(|| format!("client {at}: {kind:?} after the end of {number}"));
            }
            (None, Kind::RstStream) => {
                stream.ending = Some(Seen::Reset(frame::number(payload, 0).unwrap_or(0)));
                return;
            }
            (None, _) => {}
        }
        if let Some(found) = fields {
            let Some((status, token)) = found else {
                return sim.violate(|| format!("client {at}: a head that cannot be read"));
            };
            sim.demand(stream.status.is_none(), || format!("client {at}: two heads on {number}"));
            stream.status = Some(status);
            let is_right = status != 200 || token == format!("{at}.{place}");
            sim.demand(is_right, || format!("client {at}: {number} has the answer of {token:?}"));
        } else if header.kind == Kind::Data && stream.status == Some(200) {
            let from = stream.body_bytes;
            stream.body_bytes += payload.len();
            let is_right = payload
                .iter()
                .enumerate()
                .all(|(byte, found)| *found == Script::byte(at, place, from + byte));
            sim.demand(is_right, || format!("client {at}: {number} has bytes of another body"));
        }
        if header.has(flag::END_STREAM) {
            stream.ending = Some(Seen::Whole);
            judge_whole(at, stream, planned, sim);
        }
    }

    /// What must hold when all is over: of a good client no answer is missing, unless the end was forced.
    pub(super) fn settle(&self, was_forced: bool, stats: &mut RunStats, sim: &mut Sim) {
        let at = self.at;
        if self.state == State::Waiting {
            return;
        }
        stats.sessions += 1;
        let is_owed = self.planned.is_good() && !was_forced;
        let is_told = !self.go_aways.is_empty();
        if let State::Ended { by_reset } = self.state {
            sim.demand(is_told || !is_owed, || format!("client {at}: an end without a GOAWAY"));
            sim.demand(!by_reset || !is_owed, || format!("client {at}: reset without a reason"));
        }
        let last = self.go_aways.last().copied().unwrap_or(u32::MAX);
        for (stream, planned) in self.streams.iter().zip(&self.planned.streams) {
            let Some(number) = stream.number else { continue };
            stats.requests += 1;
            match stream.ending {
                Some(Seen::Whole) => stats.answers += 1,
                Some(Seen::Reset(_)) | None => stats.cut += 1,
                Some(Seen::Given) => stats.cancels += 1,
            }
            let is_left_out = number > last;
            if is_left_out {
                sim.demand(stream.status.is_none(), || {
                    format!("client {at}: {number} was answered, though {last} was the last one")
                });
            }
            // What it closes itself before all has come is its own affair.
            let was_waiting = self.state != State::Left;
            let breaks = planned.script.ending == Ending::Break && !planned.script.is_at_once;
            let is_good = match stream.ending {
                Some(Seen::Whole | Seen::Given) => true,
                Some(Seen::Reset(_)) => breaks,
                None => is_left_out || !was_waiting,
            };
            sim.demand(is_good || !is_owed, || {
                format!("client {at}: {number} has no answer: {stream:?}, {planned:?}")
            });
        }
    }
}

/// A stream has ended as if it were whole: it must be.
fn judge_whole(at: usize, stream: &Stream, planned: &PlannedStream, sim: &mut Sim) {
    let script = &planned.script;
    if stream.status != Some(200) {
        return;
    }
    let is_whole = stream.body_bytes == script.body_bytes && script.ending == Ending::Done;
    sim.demand(is_whole, || {
        format!("client {at}: {:?} looks whole and is not: {script:?}", stream.number)
    });
}

fn put_frame(out: &mut Vec<u8>, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
    frame::header(out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
}

/// A header block that needs no table.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// Status and token of a response.
fn head(decoder: &mut Decoder, block: &[u8]) -> Option<(u16, String)> {
    let (mut status, mut token) = (None, String::new());
    let result = decoder.decode(block, &mut Vec::new(), |field| match field.name {
        b":status" => status = std::str::from_utf8(field.value).ok().and_then(|it| it.parse().ok()),
        b"t" => token = String::from_utf8_lossy(field.value).into_owned(),
        _ => {}
    });
    result.ok()?;
    Some((status?, token))
}
