//! A scripted upstream and a task around one client engine, on a clock that is a number. Generic over the
//! protocol: the tests of the other upstream protocols use it as well.

use sekisho_http::upstream::{
    Event, Failure, NotReusable, Request, RequestBody, RequestFault, Scratch, UpstreamProtocol,
};
use sekisho_http::{Fields, Version};
use sekisho_lifecycle::{DeadlineKind, Moment, Stage};

/// An event with its bytes, independent of where the input was cut: neighbouring stretches are one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Informational(u16),
    Head(u16),
    Body(Vec<u8>),
    Stderr(Vec<u8>),
    End,
    Upgraded,
    Failed(Failure),
}

pub(crate) struct Task<P> {
    pub(crate) engine: P,
    pub(crate) scratch: Scratch,
    pub(crate) now: Moment,
    inbox: Vec<u8>,
    pub(crate) seen: Vec<Seen>,
    /// What has left, all of it.
    pub(crate) wire: Vec<u8>,
}

pub(crate) fn pairs(list: &[(&str, &str)]) -> Fields {
    list.iter().copied().collect()
}

pub(crate) fn seconds(seconds: u64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

impl<P: UpstreamProtocol> Task<P> {
    pub(crate) fn new(engine: P) -> Self {
        Self {
            engine,
            scratch: Scratch::default(),
            now: Moment::ZERO,
            inbox: Vec::new(),
            seen: Vec::new(),
            wire: Vec::new(),
        }
    }

    /// Starts a request, whose head leaves at once.
    pub(crate) fn starts(&mut self, method: &str, list: &Fields, body: RequestBody) {
        self.tries(method, list, body).expect("a sound request");
        self.flush();
    }

    pub(crate) fn tries(
        &mut self,
        method: &str,
        list: &Fields,
        body: RequestBody,
    ) -> Result<(), RequestFault> {
        let request = Request {
            method: method.as_bytes(),
            target: b"/",
            version: Version::Http11,
            pairs: list,
            body,
            keeps_alive: true,
        };
        self.engine.start(&request, &mut self.scratch, self.now)
    }

    pub(crate) fn body(&mut self, bytes: &[u8]) {
        self.engine.body(bytes, &mut self.scratch, self.now);
        self.flush();
    }

    pub(crate) fn end_body(&mut self) {
        self.engine.end_body(&mut self.scratch, self.now).expect("a whole body");
        self.flush();
    }

    /// All output leaves.
    pub(crate) fn flush(&mut self) {
        let moved = self.scratch.out.len() as u64;
        self.wire.append(&mut self.scratch.out);
        self.engine.transmitted(moved, false, self.now);
    }

    /// The upstream sends bytes.
    pub(crate) fn gets(&mut self, bytes: impl AsRef<[u8]>) {
        self.inbox.extend_from_slice(bytes.as_ref());
        loop {
            let step = self.engine.receive(&self.inbox, &mut self.scratch, self.now);
            assert!(step.taken <= self.inbox.len(), "more was taken than offered");
            let is_rest = step.is_rest();
            if let Some(event) = step.event {
                self.see(event);
            }
            self.inbox.drain(..step.taken);
            if is_rest {
                break;
            }
        }
    }

    /// The upstream closes its side.
    pub(crate) fn closes(&mut self) {
        if let Some(event) = self.engine.input_ended(self.now) {
            self.see(event);
        }
    }

    pub(crate) fn expires(&mut self, now: Moment) {
        self.now = now;
        if let Some(event) = self.engine.expire(now) {
            self.see(event);
        }
    }

    pub(crate) fn deadline(&self) -> Option<(Moment, DeadlineKind)> {
        self.engine.next_deadline().map(|deadline| (deadline.at, deadline.kind))
    }

    pub(crate) fn reuse(&self) -> Result<(), NotReusable> {
        let reuse = self.engine.reuse();
        assert_eq!(reuse.is_ok(), self.engine.is_reusable());
        assert!(reuse.is_err() || self.engine.stage() == Stage::Open);
        reuse
    }

    fn see(&mut self, event: Event) {
        let seen = match event {
            Event::Informational => Seen::Informational(self.scratch.head.status.code()),
            Event::Head => Seen::Head(self.scratch.head.status.code()),
            Event::Upgraded => Seen::Upgraded,
            Event::End => Seen::End,
            Event::Failed(failure) => Seen::Failed(failure),
            Event::Body(span) => {
                let bytes = &self.inbox[span.range()];
                assert!(!bytes.is_empty());
                if let Some(Seen::Body(before)) = self.seen.last_mut() {
                    before.extend_from_slice(bytes);
                    return;
                }
                Seen::Body(bytes.to_vec())
            }
            Event::Stderr(span) => {
                let bytes = &self.inbox[span.range()];
                if let Some(Seen::Stderr(before)) = self.seen.last_mut() {
                    before.extend_from_slice(bytes);
                    return;
                }
                Seen::Stderr(bytes.to_vec())
            }
        };
        self.seen.push(seen);
    }
}
