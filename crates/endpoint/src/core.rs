//! What the async and the blocking client have in common: the engine, what has come for each call, and what
//! is to be sent. It does no input or output of its own.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sekisho_lifecycle::{Engine, Manner, Moment, Request};
use sekisho_native::client::RequestError;
use sekisho_native::message::{Bye, Hello, Welcome};
use sekisho_native::{Client, ClientEvent, Code, Policy, Scratch, VERSION};
use slab::Slab;

/// What one read takes at the most.
const INPUT_BYTES: usize = 64 * 1024;
/// So many sent bytes may remain before the unsent ones in the buffer; more are removed, if they are most of
/// it.
const LEFT_BYTES: usize = 64 * 1024;
/// How long connecting may take by default.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How a client introduces itself.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// What the session is called in lists.
    pub label: String,
    /// Which program it is.
    pub application: String,
    /// Whose password the credential is; empty where it is a token.
    pub user: String,
    /// What the server wants to be shown: a token, or the password of `user`.
    pub credential: Vec<u8>,
    /// Whether to ask for the admin slot.
    pub admin: bool,
    /// How many bytes of each channel may wait here; zero leaves it to the server.
    pub channel_bytes: u32,
    /// How long connecting may take; ten seconds if not given.
    pub timeout: Option<Duration>,
}

/// The credential is not shown.
impl fmt::Debug for Options {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Options")
            .field("label", &self.label)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl From<&str> for Options {
    fn from(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }
}

/// Why there is no result.
#[derive(Debug)]
pub enum CallError {
    /// The service answered with an error, or the server did in its place.
    Failed {
        /// What went wrong.
        code: Code,
        /// The same for people.
        text: String,
    },
    /// The session is over, as the server said.
    Ended {
        /// Why; `None` when we asked for it.
        code: Option<Code>,
        /// The same for people.
        text: String,
    },
    /// As many requests run as may run.
    TooMany,
    /// The request is longer than a frame may be.
    TooLarge,
    /// The server does not keep to the protocol.
    Broken(sekisho_native::Violation),
    /// The transport failed, or ended without `BYE`.
    Transport(io::Error),
}

impl CallError {
    /// The code, where there is one.
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Failed { code, .. } => Some(*code),
            Self::Ended { code, .. } => *code,
            Self::TooMany | Self::TooLarge => Some(Code::ResourceLimitReached),
            Self::Broken(_) | Self::Transport(_) => None,
        }
    }
}

/// Why the session is over.
#[derive(Debug)]
pub(crate) enum End {
    Bye(Bye),
    Broken(sekisho_native::Violation),
    Lost(io::ErrorKind),
}

/// What came for one call.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one channel, each independent")]
pub(crate) struct Mail {
    slot: u16,
    pub(crate) answer: Option<Result<Vec<u8>, (Code, String)>>,
    records: VecDeque<Vec<u8>>,
    is_acquired: bool,
    is_released: bool,
    is_drained: bool,
    /// No records are wanted, whether there is a channel yet or not.
    is_unwanted: bool,
    /// The caller no longer waits for it.
    is_abandoned: bool,
    pub(crate) waker: Option<Waker>,
}

/// A client without its transport.
#[derive(Debug)]
pub(crate) struct Core {
    engine: Client,
    scratch: Scratch,
    sent: usize,
    input: Vec<u8>,
    taken: usize,
    filled: usize,
    pieces: Vec<u8>,
    pub(crate) mail: Slab<Mail>,
    /// Whose slot it is.
    by_slot: Vec<Option<usize>>,
    pub(crate) welcome: Option<Welcome>,
    pub(crate) extended: Option<u64>,
    pub(crate) end: Option<End>,
}

/// The client has no deadlines of its own but the one for connecting.
const NOW: Moment = Moment::ZERO;

impl Core {
    pub(crate) fn new(options: &Options) -> Self {
        let policy = Policy {
            frame_bytes_max: u32::MAX,
            requests_max: 1 << 16,
            channel_bytes_max: u32::MAX,
            handshake_timeout: None,
            frame_timeout: None,
            send_timeout: None,
            ..Policy::default()
        };
        let hello = Hello {
            major: VERSION.major,
            minor: VERSION.minor,
            label: options.label.clone(),
            application: options.application.clone(),
            credential: options.credential.clone(),
            admin: options.admin,
            channel_bytes: options.channel_bytes,
            frame_bytes_max: 0,
            user: options.user.clone(),
        };
        let mut scratch = Scratch::default();
        Self {
            engine: Client::new(Arc::new(policy), &hello, &mut scratch, NOW),
            scratch,
            sent: 0,
            input: vec![0; INPUT_BYTES],
            taken: 0,
            filled: 0,
            pieces: Vec::new(),
            mail: Slab::new(),
            by_slot: Vec::new(),
            welcome: None,
            extended: None,
            end: None,
        }
    }

    /// What is to be written.
    pub(crate) fn output(&self) -> &[u8] {
        &self.scratch.out[self.sent..]
    }

    /// The transport took so many bytes.
    pub(crate) fn wrote(&mut self, count: usize) {
        self.sent += count;
        let is_pending = self.sent < self.scratch.out.len();
        if !is_pending {
            self.sent = 0;
            self.scratch.out.clear();
        } else if self.sent >= LEFT_BYTES && self.sent >= self.scratch.out.len() / 2 {
            self.scratch.out.drain(..self.sent);
            self.sent = 0;
        }
        self.engine.transmitted(count as u64, is_pending, NOW);
    }

    /// Where to read to.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.taken > 0 {
            self.input.copy_within(self.taken..self.filled, 0);
            (self.taken, self.filled) = (0, self.filled - self.taken);
        }
        &mut self.input[self.filled..]
    }

    /// The transport gave so many bytes; zero is the end. The calls that it concerns are woken.
    pub(crate) fn read(&mut self, count: usize) {
        if count == 0 {
            return self.lost(io::ErrorKind::UnexpectedEof);
        }
        self.filled += count;
        loop {
            let input = &self.input[self.taken..self.filled];
            let step = self.engine.receive(input, &mut self.scratch, NOW);
            if step.is_rest() {
                return;
            }
            let offered = self.taken;
            self.taken += step.taken;
            if let Some(event) = step.event {
                self.on_event(event, offered);
            }
        }
    }

    /// The transport failed.
    pub(crate) fn lost(&mut self, kind: io::ErrorKind) {
        self.engine.transport_lost();
        self.ended(End::Lost(kind));
    }

    pub(crate) fn request(&mut self, service: u32, body: &[u8]) -> Result<usize, CallError> {
        if self.end.is_some() {
            return Err(self.end_error());
        }
        let slot = match self.engine.request(service, body, &mut self.scratch, NOW) {
            Ok(slot) => slot,
            Err(RequestError::TooMany) => return Err(CallError::TooMany),
            Err(RequestError::TooLarge) => return Err(CallError::TooLarge),
            Err(RequestError::NotOpen) => return Err(self.end_error()),
        };
        let key = self.mail.insert(Mail {
            slot,
            answer: None,
            records: VecDeque::new(),
            is_acquired: false,
            is_released: false,
            is_drained: false,
            is_unwanted: false,
            is_abandoned: false,
            waker: None,
        });
        let at = usize::from(slot);
        if self.by_slot.len() <= at {
            self.by_slot.resize(at + 1, None);
        }
        self.by_slot[at] = Some(key);
        Ok(key)
    }

    pub(crate) fn cancel(&mut self, key: usize) {
        let mail = &self.mail[key];
        if mail.answer.is_none() {
            self.engine.cancel(mail.slot, &mut self.scratch, NOW);
        }
    }

    /// The answer, once it is there.
    pub(crate) fn take_answer(&mut self, key: usize) -> Option<Result<Vec<u8>, CallError>> {
        match self.mail[key].answer.take() {
            Some(Ok(body)) => {
                // It is given once; a second call gets an error that says so.
                let text = "the answer was taken before".to_owned();
                self.mail[key].answer = Some(Err((Code::IllegalState, text)));
                Some(Ok(body))
            }
            Some(Err((code, text))) => {
                self.mail[key].answer = Some(Err((code, text.clone())));
                Some(Err(CallError::Failed { code, text }))
            }
            None if self.end.is_some() => Some(Err(self.end_error())),
            None => None,
        }
    }

    /// The next record, once it is there; `None` inside after the last.
    pub(crate) fn take_record(&mut self, key: usize) -> Option<Result<Option<Vec<u8>>, CallError>> {
        let mail = &mut self.mail[key];
        if let Some(record) = mail.records.pop_front() {
            let slot = mail.slot;
            let is_last = mail.is_released && mail.records.is_empty();
            self.engine.taken(slot, record.len(), &mut self.scratch, NOW);
            if is_last {
                self.drain(key);
            }
            return Some(Ok(Some(record)));
        }
        if mail.is_released {
            self.drain(key);
            return Some(Ok(None));
        }
        if mail.is_unwanted || (mail.answer.is_some() && !mail.is_acquired) {
            return Some(Ok(None));
        }
        if self.end.is_some() { Some(Err(self.end_error())) } else { None }
    }

    /// No more records are wanted; a channel that is opened later is not read.
    pub(crate) fn drain(&mut self, key: usize) {
        let mail = &mut self.mail[key];
        mail.is_unwanted = true;
        if !mail.is_acquired || std::mem::replace(&mut mail.is_drained, true) {
            return;
        }
        mail.records.clear();
        let slot = mail.slot;
        self.engine.drained(slot, &mut self.scratch, NOW);
        self.vacate(slot);
    }

    /// The caller no longer waits for this call: it is cancelled, and what comes for it is thrown away.
    pub(crate) fn abandon(&mut self, key: usize) {
        self.cancel(key);
        self.drain(key);
        let mail = &mut self.mail[key];
        mail.is_abandoned = true;
        mail.waker = None;
        if mail.answer.is_some() || self.end.is_some() {
            self.mail.remove(key);
        }
    }

    pub(crate) fn shut_down(&mut self, manner: Manner) {
        self.engine.shut_down(manner, &mut self.scratch, NOW);
    }

    pub(crate) fn extend(&mut self, length: Duration) {
        self.extended = None;
        self.engine.extend(length, &mut self.scratch, NOW);
    }

    pub(crate) fn end_error(&self) -> CallError {
        match &self.end {
            Some(End::Bye(bye)) => CallError::Ended {
                code: (bye.code != 0).then(|| Code::of_number(bye.code)),
                text: if bye.code == Code::UnsupportedOperation.number() {
                    format!("{}; version {}.{} is", bye.text, bye.major, bye.minor)
                } else {
                    bye.text.clone()
                },
            },
            Some(End::Broken(violation)) => CallError::Broken(*violation),
            Some(End::Lost(kind)) => CallError::Transport((*kind).into()),
            None => CallError::Ended {
                code: None,
                text: "the session is not open, or about to end".to_owned(),
            },
        }
    }

    fn on_event(&mut self, event: ClientEvent, offered: usize) {
        let bytes = |range: std::ops::Range<usize>| range.start + offered..range.end + offered;
        match event {
            ClientEvent::Welcome(welcome) => self.welcome = Some(welcome),
            ClientEvent::Piece(range) => {
                self.pieces.extend_from_slice(&self.input[bytes(range)]);
            }
            ClientEvent::Result { slot, body } => {
                let mut whole = std::mem::take(&mut self.pieces);
                whole.extend_from_slice(&self.input[bytes(body)]);
                self.answered(slot, Ok(whole));
            }
            ClientEvent::Error { slot, code, text } => self.answered(slot, Err((code, text))),
            ClientEvent::Record { slot, body } => {
                let mut whole = std::mem::take(&mut self.pieces);
                whole.extend_from_slice(&self.input[bytes(body)]);
                self.change(slot, |mail| mail.records.push_back(whole));
            }
            ClientEvent::Discarded => self.pieces.clear(),
            ClientEvent::Acquired { slot } => {
                let key = self.change(slot, |mail| mail.is_acquired = true);
                if let Some(key) = key
                    && self.mail[key].is_unwanted
                {
                    self.drain(key);
                }
            }
            ClientEvent::Released { slot } => {
                self.change(slot, |mail| mail.is_released = true);
            }
            ClientEvent::Extended { millis } => self.extended = Some(millis),
            ClientEvent::Bye(bye) => self.ended(End::Bye(bye)),
            ClientEvent::Broken(violation) => self.ended(End::Broken(violation)),
            ClientEvent::Lost => self.ended(End::Lost(io::ErrorKind::UnexpectedEof)),
        }
    }

    fn answered(&mut self, slot: u16, answer: Result<Vec<u8>, (Code, String)>) {
        let key = self.change(slot, |mail| mail.answer = Some(answer));
        self.vacate(slot);
        if let Some(key) = key
            && self.mail[key].is_abandoned
        {
            self.mail.remove(key);
        }
    }

    fn change(&mut self, slot: u16, change: impl FnOnce(&mut Mail)) -> Option<usize> {
        let key = self.by_slot.get(usize::from(slot)).copied().flatten()?;
        let mail = &mut self.mail[key];
        change(mail);
        if let Some(waker) = mail.waker.take() {
            waker.wake();
        }
        Some(key)
    }

    /// A slot whose request is over is free.
    fn vacate(&mut self, slot: u16) {
        if self.engine.state(slot) == Request::Finished {
            self.by_slot[usize::from(slot)] = None;
        }
    }

    fn ended(&mut self, end: End) {
        if self.end.is_none() {
            self.end = Some(end);
        }
        self.scratch.out.clear();
        self.sent = 0;
        self.mail.retain(|_, mail| {
            if let Some(waker) = mail.waker.take() {
                waker.wake();
            }
            !mail.is_abandoned
        });
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { code, text } => write!(out, "{code}: {text}"),
            Self::Ended { code: Some(code), text } => write!(out, "session ended, {code}: {text}"),
            Self::Ended { code: None, text } => write!(out, "session ended: {text}"),
            Self::TooMany => out.write_str("the maximum number of running requests is reached"),
            Self::TooLarge => out.write_str("the request is too long"),
            Self::Broken(_) => out.write_str("the server violates the protocol"),
            Self::Transport(_) => out.write_str("the connection failed"),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Broken(violation) => Some(violation),
            Self::Transport(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use sekisho_native::frame::Kind;
    use sekisho_native::message;

    use super::*;

    /// A client that has received this from the server.
    fn told(kind: Kind, what: &impl prost::Message) -> Core {
        let mut core = Core::new(&Options::default());
        let said = core.output().len();
        core.wrote(said);
        let mut wire = Vec::new();
        message::write(&mut wire, kind, 0, what);
        core.room()[..wire.len()].copy_from_slice(&wire);
        core.read(wire.len());
        core
    }

    #[test]
    fn another_version_is_named() {
        // E3
        let number = Code::UnsupportedOperation.number();
        let core =
            told(Kind::Bye, &Bye { code: number, text: "not this".to_owned(), major: 2, minor: 7 });
        let text = core.end_error().to_string();
        assert!(text.ends_with("not this; version 2.7 is"), "{text}");
    }

    #[test]
    fn what_has_left_is_not_kept_though_there_is_always_more() {
        // E4
        let welcome = Welcome {
            major: 1,
            frame_bytes_max: 1 << 20,
            requests_max: 1000,
            ..Welcome::default()
        };
        let mut core = told(Kind::Welcome, &welcome);
        for _ in 0..500 {
            core.request(1, &[7; 10_000]).expect("made");
            let some = core.output().len() - 100;
            core.wrote(some);
        }
        assert!(core.scratch.out.len() < 4 * LEFT_BYTES, "{} bytes", core.scratch.out.len());
        assert_eq!(core.output().len(), 100);
    }
}
