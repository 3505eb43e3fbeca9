//! What the async and the blocking client have in common: the engine, what has come for each call, and what
//! is to be sent. It does no input or output of its own.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sekisho_lifecycle::{Engine, Manner, Moment, Request};
use sekisho_native::client::{DataError, RequestError};
use sekisho_native::message::{Bye, Hello, RequestOptions, Welcome};
use sekisho_native::server::Written;
use sekisho_native::{Client, ClientEvent, Code, Policy, Scratch, VERSION};
use slab::Slab;

use crate::new_request::NewRequest;

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
    /// After so long without a byte from the server it is asked whether it is there, and the server asks as well. The
    /// client must be at work all the time then: a task waits in [`Client::watch`](crate::Client::watch).
    pub keepalive: Option<Duration>,
    /// The server is told when the last record of a channel was taken: a graceful end waits for that. Otherwise it
    /// knows from what the client gave room for, and a call costs a message less; what has come is there even when the
    /// session is over.
    pub confirms_drained: bool,
    /// Shared memory, by an address `ipc:`: so long the client looks for an answer before it sleeps. It costs the caller's
    /// thread that time at the most, and saves a wakeup where the answer comes sooner.
    pub spin: Duration,
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
    /// The server speaks 1.0, which knows a service by its number, one body and no deadline.
    Unsupported,
    /// The service wants no more of the request's body; its answer still comes.
    BodyUnwanted,
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
            Self::Unsupported => Some(Code::UnsupportedOperation),
            Self::Broken(_) | Self::Transport(_) | Self::BodyUnwanted => None,
        }
    }
}

impl CallError {
    /// Whether the session is over: the request may have been done or not, and the next one needs a new session.
    pub const fn is_session_over(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Broken(_) | Self::Transport(_))
    }

    /// Whether connecting again may help: a server that refuses the caller will do so again.
    pub fn may_pass(&self) -> bool {
        use Code as C;
        use io::ErrorKind as K;
        match self {
            // An address that is none, files that cannot be read, a certificate that does not verify.
            Self::Transport(error) => {
                !matches!(error.kind(), K::InvalidInput | K::InvalidData | K::Unsupported)
            }
            Self::Ended { code, .. } => !matches!(
                code,
                Some(
                    C::AuthenticationError
                        | C::PermissionError
                        | C::UnsupportedOperation
                        | C::InvalidRequest
                        | C::OperationDenied
                )
            ),
            _ => false,
        }
    }
}

/// A record with the number of its channel.
pub(crate) type NumberedRecord = (u8, Vec<u8>);

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
    /// Tells it from others that had the same key.
    pub(crate) serial: u64,
    pub(crate) answer: Option<Result<Vec<u8>, (Code, String)>>,
    records: VecDeque<Vec<u8>>,
    /// Records of the further channels.
    side_records: VecDeque<(u8, Vec<u8>)>,
    is_acquired: bool,
    is_released: bool,
    is_drained: bool,
    /// No records are wanted, whether there is a channel yet or not.
    is_unwanted: bool,
    /// The caller no longer waits for it.
    is_abandoned: bool,
    pub(crate) waker: Option<Waker>,
}

impl Mail {
    fn has_no_records(&self) -> bool {
        self.records.is_empty() && self.side_records.is_empty()
    }
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
    /// Bytes that came.
    pub(crate) heard: u64,
    next_serial: u64,
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
            keepalive_millis: options
                .keepalive
                .map_or(0, |every| u32::try_from(every.as_millis()).unwrap_or(u32::MAX).max(1)),
            drains_at_end: !options.confirms_drained,
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
            heard: 0,
            next_serial: 0,
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
        self.heard += count as u64;
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

    pub(crate) fn request(&mut self, request: &NewRequest<'_>) -> Result<usize, CallError> {
        if self.end.is_some() {
            return Err(self.end_error());
        }
        let NewRequest { number, name, body, timeout, has_upload } = *request;
        let micros = |timeout: Duration| u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        let options = RequestOptions {
            // Zero would be for ever.
            timeout_micros: timeout.map_or(0, |timeout| micros(timeout).max(1)),
            service: name.to_owned(),
            body_follows: has_upload,
        };
        let made = self.engine.request_with(number, body, &options, &mut self.scratch, NOW);
        let slot = match made {
            Ok(slot) => slot,
            Err(RequestError::TooMany) => return Err(CallError::TooMany),
            Err(RequestError::TooLarge) => return Err(CallError::TooLarge),
            Err(RequestError::Unsupported) => return Err(CallError::Unsupported),
            Err(RequestError::NotOpen) => return Err(self.end_error()),
        };
        self.next_serial += 1;
        let key = self.mail.insert(Mail {
            slot,
            serial: self.next_serial,
            answer: None,
            records: VecDeque::new(),
            side_records: VecDeque::new(),
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
            let is_last = mail.is_released && mail.has_no_records();
            self.engine.taken(slot, 0, record.len(), &mut self.scratch, NOW);
            if is_last {
                self.drain(key);
            }
            return Some(Ok(Some(record)));
        }
        if mail.is_released {
            if mail.side_records.is_empty() {
                self.drain(key);
            }
            return Some(Ok(None));
        }
        if mail.is_unwanted || (mail.answer.is_some() && !mail.is_acquired) {
            return Some(Ok(None));
        }
        if self.end.is_some() { Some(Err(self.end_error())) } else { None }
    }

    /// The next record of any of the call's channels, with the channel's number; `None` inside after the last.
    pub(crate) fn take_any_record(
        &mut self,
        key: usize,
    ) -> Option<Result<Option<NumberedRecord>, CallError>> {
        let mail = &mut self.mail[key];
        let Some((channel, record)) = mail.side_records.pop_front() else {
            return self
                .take_record(key)
                .map(|taken| taken.map(|taken| taken.map(|record| (0, record))));
        };
        let slot = mail.slot;
        let is_last = mail.is_released && mail.has_no_records();
        self.engine.taken(slot, channel, record.len(), &mut self.scratch, NOW);
        if is_last {
            self.drain(key);
        }
        Some(Ok(Some((channel, record))))
    }

    /// Sends a part of a call's body; nothing while there is no credit for it.
    pub(crate) fn send_part(
        &mut self,
        key: usize,
        serial: u64,
        part: &[u8],
    ) -> Option<Result<(), CallError>> {
        let mail = self.mail.get(key).filter(|mail| mail.serial == serial);
        let Some(mail) = mail.filter(|_| self.end.is_none()) else {
            return Some(Err(self.end_error()));
        };
        if mail.answer.is_some() {
            return Some(Err(CallError::BodyUnwanted));
        }
        match self.engine.data(mail.slot, part, &mut self.scratch, NOW) {
            Ok(Written::Sent) => Some(Ok(())),
            Ok(Written::Full) => None,
            Err(DataError::TooLarge) => Some(Err(CallError::TooLarge)),
            Err(DataError::NotOpen | DataError::Stopped) => Some(Err(CallError::BodyUnwanted)),
        }
    }

    /// A call's body is complete.
    pub(crate) fn end_body(&mut self, key: usize, serial: u64) {
        let mail = self.mail.get(key).filter(|mail| mail.serial == serial);
        if let Some(slot) = mail.filter(|mail| mail.answer.is_none()).map(|mail| mail.slot) {
            self.engine.end_data(slot, &mut self.scratch, NOW);
        }
    }

    /// The longest part of a body.
    pub(crate) fn part_bytes_max(&self) -> usize {
        self.engine.agreed().record_bytes_max() as usize
    }

    /// How often signs of life were agreed upon.
    pub(crate) fn keepalive(&self) -> Option<Duration> {
        self.engine.agreed().keepalive
    }

    pub(crate) fn ping(&mut self) {
        self.engine.ping(0, &mut self.scratch, NOW);
    }

    /// No more records are wanted; a channel that is opened later is not read.
    pub(crate) fn drain(&mut self, key: usize) {
        let mail = &mut self.mail[key];
        mail.is_unwanted = true;
        if !mail.is_acquired || std::mem::replace(&mut mail.is_drained, true) {
            return;
        }
        mail.records.clear();
        mail.side_records.clear();
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
            ClientEvent::Record { slot, channel, body } => {
                let mut whole = std::mem::take(&mut self.pieces);
                whole.extend_from_slice(&self.input[bytes(body)]);
                self.change(slot, |mail| match channel {
                    0 => mail.records.push_back(whole),
                    _ => mail.side_records.push_back((channel, whole)),
                });
            }
            ClientEvent::Discarded => self.pieces.clear(),
            ClientEvent::Acquired { slot, channel: 0 } => {
                let key = self.change(slot, |mail| mail.is_acquired = true);
                if let Some(key) = key
                    && self.mail[key].is_unwanted
                {
                    self.drain(key);
                }
            }
            ClientEvent::Released { slot, channel: 0 } => {
                self.change(slot, |mail| mail.is_released = true);
            }
            ClientEvent::DataMoved { slot } | ClientEvent::DataStopped { slot } => {
                self.change(slot, |_| {});
            }
            ClientEvent::Acquired { .. } | ClientEvent::Released { .. } | ClientEvent::Pong(_) => {}
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
            Self::Unsupported => out.write_str("the server speaks protocol version 1.0"),
            Self::BodyUnwanted => out.write_str("the service wants no more of the body"),
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
            core.request(&NewRequest::to(1).body(&[7; 10_000])).expect("made");
            let some = core.output().len() - 100;
            core.wrote(some);
        }
        assert!(core.scratch.out.len() < 4 * LEFT_BYTES, "{} bytes", core.scratch.out.len());
        assert_eq!(core.output().len(), 100);
    }
}
