//! A scripted peer and shell around one engine, on a clock that is a number.

use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Status;
use sekisho_http1::{BodyLength, Cause, Event, Http1, Policy, Refusal, Response, Scratch, Sends};
use sekisho_lifecycle::{DeadlineKind, Engine, Moment, Stage};

/// An event with its bytes, independent of where the input was cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Request(String),
    Body(Vec<u8>),
    BodyEnd,
    Refused(u16, Cause),
    ClientLost,
}

pub(crate) struct Peer {
    pub(crate) engine: Http1,
    pub(crate) scratch: Scratch,
    pub(crate) now: Moment,
    /// What was offered and not taken.
    pub(crate) inbox: Vec<u8>,
    pub(crate) seen: Vec<Seen>,
}

pub(crate) fn seconds(seconds: u64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

pub(crate) fn policy(change: impl FnOnce(&mut Policy)) -> Arc<Policy> {
    let mut policy = Policy::default();
    change(&mut policy);
    Arc::new(policy)
}

impl Default for Peer {
    fn default() -> Self {
        Self::new(policy(|_| {}))
    }
}

impl Peer {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self {
            engine: Http1::new(policy, Moment::ZERO),
            scratch: Scratch::default(),
            now: Moment::ZERO,
            inbox: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Offers more input, and whatever was left, up to one event.
    pub(crate) fn sends(&mut self, bytes: impl AsRef<[u8]>) -> Option<Event> {
        self.inbox.extend_from_slice(bytes.as_ref());
        loop {
            let step = self.engine.receive(&self.inbox, &mut self.scratch, self.now);
            let is_rest = step.is_rest();
            let seen = step.event.as_ref().map(|event| self.see(event));
            self.inbox.drain(..step.taken);
            self.seen.extend(seen);
            if is_rest || step.event.is_some() {
                return step.event;
            }
        }
    }

    /// What comes next without new input.
    pub(crate) fn next(&mut self) -> Option<Event> {
        self.sends(b"")
    }

    fn see(&self, event: &Event) -> Seen {
        match event {
            Event::Request => {
                let head = &self.scratch.head;
                let fields: Vec<_> = head
                    .fields()
                    .map(|(name, value)| {
                        format!("{}={}", name.escape_ascii(), value.escape_ascii())
                    })
                    .collect();
                Seen::Request(format!(
                    "{} {} {:?} {fields:?}",
                    head.method_name().escape_ascii(),
                    head.target().escape_ascii(),
                    head.version()
                ))
            }
            Event::Body(range) => Seen::Body(self.inbox[range.clone()].to_vec()),
            Event::BodyEnd => Seen::BodyEnd,
            Event::Refused(refusal) => Seen::Refused(refusal.status.code(), refusal.cause),
            Event::ClientLost => Seen::ClientLost,
        }
    }

    pub(crate) fn is_request(&mut self, bytes: impl AsRef<[u8]>) {
        assert_eq!(self.sends(bytes), Some(Event::Request));
    }

    pub(crate) fn ends_input(&mut self) -> Option<Event> {
        self.engine.input_ended(self.now)
    }

    pub(crate) fn takes_body(&mut self, max: Option<u64>) -> Result<(), Refusal> {
        self.engine.take_body(max, &mut self.scratch, self.now)
    }

    pub(crate) fn heads(&mut self, status: Status, length: BodyLength) -> Sends {
        let fields = [("Server", "s")].into_iter().collect();
        let response = Response { status, fields: &fields, length };
        self.engine.respond(&response, &mut self.scratch, self.now)
    }

    pub(crate) fn finishes(&mut self) {
        self.engine.finish(&mut self.scratch, self.now);
    }

    /// A whole response with a body of two bytes.
    pub(crate) fn answers(&mut self, status: Status) {
        self.heads(status, BodyLength::Known(2));
        self.engine.body(b"ok", &mut self.scratch);
        self.finishes();
    }

    /// The transport takes everything; it is returned.
    pub(crate) fn flushes(&mut self) -> String {
        let out = std::mem::take(&mut self.scratch.out);
        self.engine.transmitted(out.len() as u64, false, self.now);
        String::from_utf8(out).expect("responses in these tests are text")
    }

    /// The transport takes nothing.
    pub(crate) fn stalls(&mut self) {
        self.engine.transmitted(0, true, self.now);
    }

    pub(crate) fn at(&mut self, now: Moment) -> &mut Self {
        self.now = now;
        self
    }

    pub(crate) fn after(&mut self, length: Duration) -> &mut Self {
        self.now = self.now + length;
        self
    }

    pub(crate) fn expires(&mut self) -> Option<Event> {
        self.engine.expire(self.now)
    }

    pub(crate) fn deadline(&self) -> Option<(DeadlineKind, Moment)> {
        self.engine.next_deadline().map(|deadline| (deadline.kind, deadline.at))
    }

    pub(crate) fn stage(&self) -> Stage {
        self.engine.stage()
    }
}

/// The status of a refusal.
pub(crate) fn refused(event: Option<&Event>) -> Option<(u16, Cause)> {
    match event {
        Some(Event::Refused(refusal)) => Some((refusal.status.code(), refusal.cause)),
        _ => None,
    }
}

pub(crate) const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
