//! One request as its client means it: the bytes, what they say, what the handler does with them, and so
//! what the answer may be. Request bodies look like requests: a server that loses count of bytes answers
//! them.

use std::time::Duration;

use sekisho_gateway::cgi::Exit;

use super::site::BODY_LIMITS;
use crate::rng::Rng;

/// What every request body is made of.
pub(super) const BAIT: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Which client, and which of its requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Token {
    /// The client's number.
    pub(super) client: usize,
    /// The request's number on its connection.
    pub(super) ask: usize,
}

/// One request.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what one head says, each independent")]
pub(super) struct PlannedRequest {
    /// The head as it is sent, an empty line before it included.
    pub(super) head: Vec<u8>,
    /// How many bytes of it are that empty line.
    pub(super) blank: usize,
    /// The body as it is sent, framing included.
    pub(super) body: Vec<u8>,
    /// The body without its framing, if the head announces one.
    pub(super) plain: Option<usize>,
    /// What is wrong with it: the status it deserves.
    pub(super) bad: Option<Bad>,
    /// Where in the body as it is sent the first byte is that its handler does not want; none: it wants all.
    pub(super) over_at: Option<usize>,
    /// Whether it is a HEAD.
    pub(super) is_head: bool,
    /// Whether it is of HTTP/1.0.
    pub(super) is_old: bool,
    /// Whether the client wants the connection kept.
    pub(super) persists: bool,
    /// Whether the client waits for 100 before it sends the body.
    pub(super) expects: bool,
    /// Which server it is for: the second one has a policy of its own.
    pub(super) host: usize,
    /// What the handler does.
    pub(super) script: Script,
}

/// What is wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bad {
    /// The head, which is refused with this status; the connection ends.
    Head(u16),
    /// The head asks for what we do not do; where there is no body the connection goes on.
    Expectation,
    /// The framing of the body.
    Body,
}

/// The announced length of a response body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// So long.
    Length(usize),
    /// Not known.
    Unknown,
}

/// What a handler does.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// The status of its answer.
    pub(super) status: u16,
    /// What it says about its body.
    pub(super) said: Said,
    /// How much of the body there is.
    pub(super) body_bytes: usize,
    /// How it goes about it.
    pub(super) how: How,
    /// How it ends.
    pub(super) end: End,
    /// Body bytes that it would take; more is 413.
    pub(super) body_max: u64,
}

/// How a handler goes about it.
#[derive(Clone, Debug)]
pub(super) enum How {
    /// The answer is there at once.
    Ready,
    /// As a file, which the shell sends itself.
    File,
    /// It takes time.
    Task(Pace),
    /// A program.
    Program(Run),
}

/// The pace of a handler that takes time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Until its head.
    pub(super) first: Duration,
    /// Between the pieces of its body.
    pub(super) gap: Duration,
    /// How long these are.
    pub(super) piece: usize,
    /// Whether it waits for the whole request body first.
    pub(super) needs_body: bool,
    /// It takes so many bytes of the request body in each of these times; none: all there is.
    pub(super) appetite: Option<(usize, Duration)>,
    /// Its own deadline, from the start.
    pub(super) timeout: Option<Duration>,
    /// When it is cancelled: it answers 503 after this, or not before its end.
    pub(super) cancel: Option<Duration>,
}

/// What a program does, each at its time after the start.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// What it prints.
    pub(super) output: Vec<(Duration, Vec<u8>)>,
    /// When it ends, and how.
    pub(super) exit: Option<(Duration, Exit)>,
    /// How long after TERM it ends; never where it does not listen.
    pub(super) term: Option<Duration>,
    /// Whether a child of it holds its output open after it has ended.
    pub(super) has_child: bool,
    /// `cgi_read_timeout`
    pub(super) read_timeout: Option<Duration>,
    /// `cgi_timeout`
    pub(super) total_timeout: Option<Duration>,
    /// Whether the head it prints is none.
    pub(super) is_head_bad: bool,
}

/// How a handler ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// With all of its answer.
    Done,
    /// With this status, before its head.
    Fail(u16),
    /// In the middle of its body.
    Break,
    /// Not at all.
    Hang,
}

impl PlannedRequest {
    /// A request, from the dice.
    pub(super) fn draw(token: Token, is_calm: bool, rng: &mut Rng) -> Self {
        // So many of a hundred requests of a calm client are odd.
        let odd = |cases: u64| if is_calm { 1 } else { cases };
        let is_old = rng.is_one_of(odd(12));
        let has_body = rng.is_one_of(45);
        let is_chunked = has_body && !is_old && rng.is_one_of(50);
        let is_head = !has_body && rng.is_one_of(12);
        let expects = has_body && !is_old && rng.is_one_of(odd(20));
        let asks_to_close = rng.is_one_of(odd(4));
        let asks_to_keep = is_old && rng.is_one_of(60);
        let host = rng.size(0..=1);
        let blank = if rng.is_one_of(10) { "\r\n" } else { "" };
        let plain = has_body.then(|| rng.pick(&[0, 1, 30, 200, 900, 4000]));
        let script = Script::draw(token, is_calm, rng);
        let (name, version) = match (has_body, is_head) {
            (true, _) => ("POST", is_old),
            (false, true) => ("HEAD", is_old),
            (false, false) => ("GET", is_old),
        };
        let version = if version { "1.0" } else { "1.1" };
        let mut head = format!(
            "{blank}{name} /m{}/c{}/r{} HTTP/{version}\r\nHost: {}\r\n",
            script.body_max,
            token.client,
            token.ask,
            ["a", "b"][host],
        );
        if asks_to_close {
            head += "Connection: close\r\n";
        } else if asks_to_keep {
            head += "Connection: keep-alive\r\n";
        }
        if expects {
            head += "Expect: 100-continue\r\n";
        }
        let (mut body, mut over_at) = (Vec::new(), None);
        let body_max = script.body_max as usize;
        if let Some(plain) = plain {
            let bytes: Vec<u8> = BAIT.iter().copied().cycle().take(plain).collect();
            if is_chunked {
                head += "Transfer-Encoding: chunked\r\n";
                over_at = write_chunks(&bytes, body_max, &mut body, rng);
            } else {
                head.push_str(&["Content-Length: ", &plain.to_string(), "\r\n"].concat());
                body = bytes;
                over_at = (plain > body_max).then_some(0);
            }
        }
        for at in 0..rng.pick(&[0, 0, 1, 5]) {
            let value = "x".repeat(rng.size(0..=60));
            head.push_str(&["X-", &at.to_string(), ": ", &value, "\r\n"].concat());
        }
        head += "\r\n";
        let mut ask = Self {
            head: head.into_bytes(),
            blank: blank.len(),
            body,
            plain,
            bad: None,
            over_at,
            is_head,
            is_old,
            persists: if is_old { asks_to_keep && !asks_to_close } else { !asks_to_close },
            expects,
            host,
            script,
        };
        if rng.is_one_of(odd(6)) {
            ask.spoil(is_chunked, rng);
        }
        ask
    }

    /// How many bytes it has on the wire.
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Makes it bad in one of many ways.
    fn spoil(&mut self, is_chunked: bool, rng: &mut Rng) {
        if is_chunked && rng.is_one_of(50) {
            // The first chunk's size is none.
            self.body[0] = b'x';
            self.bad = Some(Bad::Body);
            return;
        }
        let rows: [(&str, u16); 12] = [
            ("GET /bad\r\n\r\n", 400),
            ("GET /bad HTTP/2.0\r\n\r\n", 505),
            ("GET /bad HTTP/1.1\r\n\r\n", 400),
            ("GET /bad HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
            ("GET /bad HTTP/1.1\r\nHost: a\r\nA b: c\r\n\r\n", 400),
            ("GET /bad HTTP/1.1\r\nHost: a\r\nA : c\r\n\r\n", 400),
            ("GET /bad HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
            (
                "GET /bad HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                400,
            ),
            ("GET /bad HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
            ("GET /bad HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 400),
            ("\r\n\r\nGET /bad HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /bad HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n", 417),
        ];
        let (text, status) = rng.pick(&rows);
        self.head = text.into();
        self.blank = if text.starts_with('\r') { 2 } else { 0 };
        self.body = Vec::new();
        (self.plain, self.over_at) = (None, None);
        (self.is_head, self.is_old, self.persists, self.expects) = (false, false, true, false);
        self.bad = Some(if status == 417 { Bad::Expectation } else { Bad::Head(status) });
        let long = rng.pick(&[0, 0, 0, 9000]);
        if long > 0 {
            let line = rng.is_one_of(50);
            self.bad = Some(Bad::Head(if line { 414 } else { 431 }));
            let filler = "y".repeat(long);
            self.blank = 0;
            self.head = if line {
                format!("GET /{filler} HTTP/1.1\r\nHost: a\r\n\r\n")
            } else {
                format!("GET /bad HTTP/1.1\r\nHost: a\r\nY: {filler}\r\n\r\n")
            }
            .into_bytes();
        }
    }
}

impl Script {
    fn draw(token: Token, is_calm: bool, rng: &mut Rng) -> Self {
        let status = rng.pick(&[200, 200, 200, 404, 204, 304, 206]);
        let is_empty = matches!(status, 204 | 304);
        let body_bytes = if is_empty { 0 } else { rng.pick(&[0, 1, 40, 500, 3000, 12_000]) };
        let said = if rng.is_one_of(50) { Said::Unknown } else { Said::Length(body_bytes) };
        let how = match rng.within(0..=9) {
            0..=2 => How::Ready,
            3 | 4 => How::File,
            5..=7 => How::Task(Pace::draw(is_calm, rng)),
            _ => How::Program(Run::draw(token, is_calm, rng)),
        };
        let mut script = Self {
            status,
            said,
            body_bytes,
            how,
            end: End::Done,
            body_max: rng.pick(&BODY_LIMITS),
        };
        match &script.how {
            How::Ready | How::File => script.said = Said::Length(body_bytes),
            How::Task(_) => {
                script.end = match rng.within(0..=if is_calm { 60 } else { 11 }) {
                    0 => End::Fail(rng.pick(&[500, 502, 403])),
                    1 => End::Break,
                    2 => End::Hang,
                    _ => End::Done,
                };
            }
            How::Program(run) => {
                // What it prints says so itself.
                (script.status, script.said) = (200, Said::Unknown);
                script.body_bytes = run.body_bytes();
            }
        }
        script
    }

    /// What the body of the answer is.
    pub(super) fn byte(token: Token, at: usize) -> u8 {
        b"abcdefghijklmnopqrstuvwxyz"[(token.client * 7 + token.ask * 3 + at) % 26]
    }

    /// The statuses that this handler may give.
    pub(super) fn may_give(&self, status: u16) -> bool {
        match (&self.how, self.end) {
            // What it gave when it was cancelled.
            (How::Task(Pace { cancel: Some(_), .. }) | How::Program(_), _) if status == 503 => true,
            (How::Task(Pace { timeout: Some(_), .. }), _) if status == 504 => true,
            (How::Task(_), End::Fail(given)) => status == given,
            (How::Program(run), _) => run.may_give(status),
            _ => status == self.status,
        }
    }

    /// Whether its answer may be cut short.
    pub(super) fn may_break(&self) -> bool {
        match &self.how {
            How::Ready | How::File => false,
            How::Task(pace) => {
                self.end == End::Break || pace.timeout.is_some() || pace.cancel.is_some()
            }
            How::Program(_) => true,
        }
    }
}

impl Pace {
    fn draw(is_calm: bool, rng: &mut Rng) -> Self {
        Self {
            first: rng.millis(0..=600),
            gap: rng.millis(0..=200),
            piece: if is_calm { 5000 } else { rng.pick(&[1, 100, 1000, 5000]) },
            needs_body: rng.is_one_of(60),
            appetite: rng.is_one_of(30).then(|| (rng.pick(&[1, 100, 1000]), rng.millis(1..=50))),
            timeout: (!is_calm && rng.is_one_of(50)).then(|| rng.millis(1..=3000)),
            cancel: rng.is_one_of(80).then(|| rng.millis(0..=300)),
        }
    }
}

impl Run {
    fn draw(token: Token, is_calm: bool, rng: &mut Rng) -> Self {
        let is_head_bad = !is_calm && rng.is_one_of(8);
        let head: &[u8] =
            if is_head_bad { b"no head at all\n\n" } else { b"Content-Type: t/t\n\n" };
        let mut output = Vec::new();
        let mut at = rng.millis(0..=400);
        for piece in head.chunks(rng.size(1..=head.len())) {
            output.push((at, piece.to_vec()));
            at += rng.millis(0..=30);
        }
        let mut made = 0;
        for _ in 0..rng.size(0..=4) {
            let count = rng.pick(&[1, 100, 3000]);
            let piece = (made..made + count).map(|at| Script::byte(token, at)).collect();
            made += count;
            output.push((at, piece));
            at += rng.millis(0..=300);
        }
        if !is_calm && rng.is_one_of(15) {
            output.truncate(rng.size(0..=output.len()));
        }
        let least = if is_calm { 1000 } else { 50 };
        let exits = [Exit::Code(0), Exit::Code(0), Exit::Code(1), Exit::Signal(11)];
        let code = rng.pick(&exits[..if is_calm { 2 } else { 4 }]);
        Self {
            output,
            exit: (is_calm || rng.is_one_of(85)).then(|| (at + rng.millis(0..=200), code)),
            term: rng.is_one_of(80).then(|| rng.millis(0..=200)),
            has_child: rng.is_one_of(10),
            read_timeout: rng.is_one_of(90).then(|| rng.millis(least..=1500)),
            total_timeout: (!is_calm && rng.is_one_of(30)).then(|| rng.millis(50..=2500)),
            is_head_bad,
        }
    }

    fn body_bytes(&self) -> usize {
        let all: usize = self.output.iter().map(|(_, piece)| piece.len()).sum();
        all.saturating_sub(b"Content-Type: t/t\n\n".len())
    }

    fn may_give(&self, status: u16) -> bool {
        match status {
            200 => !self.is_head_bad,
            502 => true,
            504 => self.read_timeout.is_some() || self.total_timeout.is_some(),
            _ => false,
        }
    }
}

/// Writes a chunked body; where in it the byte behind the first `max` lies.
fn write_chunks(mut bytes: &[u8], max: usize, out: &mut Vec<u8>, rng: &mut Rng) -> Option<usize> {
    let (mut written, mut over_at) = (0, None);
    while !bytes.is_empty() {
        let (chunk, rest) = bytes.split_at(rng.size(1..=bytes.len()));
        let extension = if rng.is_one_of(20) { ";a=b" } else { "" };
        out.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        if written <= max && max < written + chunk.len() {
            over_at = Some(out.len() + max - written);
        }
        written += chunk.len();
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        bytes = rest;
    }
    let trailer = if rng.is_one_of(20) { "T: t\r\n" } else { "" };
    out.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
    over_at
}
