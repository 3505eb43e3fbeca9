//! One request to a group of servers, from the choice of the first to its one ending (U1): which server is
//! asked, until when it must be connected, whether another one is asked, and what is logged about each try.
//! The shell connects, moves bytes between engine and socket, and reports what happens.

use std::time::Duration;

use sekisho_http::upstream::{Failure, HeadFault};
use sekisho_http::{Method, Status};
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment};

use crate::balance::{Balancer, Change, Outcome, Selection};
use crate::cache::{Lifetime, StaleCause, UseStale, may_serve_stale};
use crate::retry::{Attempt, Condition, Decision, NextUpstream, next_upstream};

/// What the configuration says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// `proxy_next_upstream` and its companions.
    pub next: NextUpstream,
    /// `proxy_connect_timeout`
    pub connect_timeout: Option<Duration>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { next: NextUpstream::default(), connect_timeout: Some(Duration::from_mins(1)) }
    }
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Ask this server; over a kept connection only where that may be.
    Connect {
        /// Its index in the group.
        peer: usize,
        /// Whether a kept connection may be used.
        may_be_kept: bool,
    },
    /// Give the answer to the client.
    Forward,
    /// Give the client the stored response: it is stale, but the server's is worse, or none has come because of this
    /// failure. The request is over.
    ServeStale(Option<Failure>),
    /// The stored response is still valid: give it to the client when the server's response has ended.
    ServeRevalidated,
    /// Give the client the status of this failure. The request is over.
    Fail(Failure),
    /// The client has a part of the answer: cut it visibly (C5). The request is over.
    Cut(Failure),
    /// Nothing.
    Nothing,
}

/// A stored response that may be given instead of a server's.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// How long it may be used.
    pub lifetime: Lifetime,
    /// `proxy_cache_use_stale`
    pub use_stale: UseStale,
    /// The request asks whether it is still valid.
    pub is_revalidating: bool,
    /// A moment, and the wall clock then, in seconds since 1970.
    pub wall: (Moment, i64),
}

impl Stored {
    fn may_replace(&self, cause: StaleCause, now: Moment) -> bool {
        let (at, secs) = self.wall;
        let wall_secs = secs.saturating_add_unsigned(now.since(at).as_secs());
        may_serve_stale(&self.lifetime, self.use_stale, cause, wall_secs).is_some()
    }
}

/// ```text
///            ┌────────── next server, or the same by a new connection ──────────┐
///            ▼                                                                  │
/// Idle ─► Connecting ──connected──► Exchanging ──head──► Answering ──end──► Over │
///            └──────────────────────────┴── failure ──► decision ───────────────┤
///                                                                               └─► Over
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    Connecting {
        peer: usize,
        by: Option<Moment>,
    },
    Exchanging {
        peer: usize,
    },
    Answering {
        peer: usize,
    },
    /// The server has confirmed the stored response, and its own has not ended.
    Confirmed {
        peer: usize,
    },
    Over,
}

/// What is known of one try, for `$upstream_addr`, `$upstream_status` and the times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Try {
    /// The server; `None` when none could be asked.
    pub peer: Option<usize>,
    /// When it began.
    pub started: Moment,
    /// How long it took to be connected.
    pub connect_time: Option<Duration>,
    /// How long it took until the head was there.
    pub header_time: Option<Duration>,
    /// How long it took in all.
    pub response_time: Option<Duration>,
    /// The status of the answer, or the one for the failure.
    pub status: Option<Status>,
    /// Whether the connection was a kept one.
    pub is_kept: bool,
}

/// One request.
#[derive(Debug)]
pub struct UpstreamRequest {
    rules: Rules,
    method: Method,
    /// The body goes with the first try that takes some of it.
    is_body_streamed: bool,
    selection: Selection,
    state: State,
    started: Moment,
    /// Servers that were asked, without those asked again over a new connection.
    count: u32,
    is_sent: bool,
    is_body_gone: bool,
    tries: Vec<Try>,
    change: Option<(usize, Change)>,
    stored: Option<Box<Stored>>,
}

impl UpstreamRequest {
    /// A request that has asked no server yet. `is_body_streamed`: its body cannot be sent twice.
    pub const fn new(
        rules: Rules,
        method: Method,
        is_body_streamed: bool,
        selection: Selection,
        now: Moment,
    ) -> Self {
        Self {
            rules,
            method,
            is_body_streamed,
            selection,
            state: State::Idle,
            started: now,
            count: 0,
            is_sent: false,
            is_body_gone: false,
            tries: Vec::new(),
            change: None,
            stored: None,
        }
    }

    /// Before it begins: memory of a request that is over, for its tries.
    pub fn reuse(&mut self, mut memory: Vec<Try>) {
        memory.clear();
        self.tries = memory;
    }

    /// It is over and logged: its memory is for another one.
    pub fn take_memory(&mut self) -> Vec<Try> {
        std::mem::take(&mut self.tries)
    }

    /// Before it begins: what a cache has for it.
    pub fn set_stored(&mut self, stored: Stored) {
        self.stored = Some(Box::new(stored));
    }

    /// Before it begins: the group has other servers than it had.
    pub fn choose_from(&mut self, selection: Selection) {
        self.selection = selection;
    }

    /// Begins: the first server.
    pub fn start(&mut self, group: &Balancer, now: Moment, random: impl FnMut() -> u32) -> Order {
        match self.state {
            State::Idle => self.choose(group, now, random),
            _ => Order::Nothing,
        }
    }

    /// The connection is there, with TLS where that is spoken.
    pub fn connected(&mut self, is_kept: bool, now: Moment) {
        if let State::Connecting { peer, .. } = self.state {
            self.state = State::Exchanging { peer };
            if let Some(current) = self.tries.last_mut() {
                current.is_kept = is_kept;
                current.connect_time = Some(now.since(current.started));
            }
        }
    }

    /// Bytes of the request have left: it may be processed from now on.
    pub const fn sent(&mut self) {
        self.is_sent = true;
        self.is_body_gone |= self.is_body_streamed;
    }

    /// The body, of which a part has left, cannot be sent again.
    pub const fn lose_body(&mut self) {
        self.is_body_gone = true;
    }

    /// The head of an answer is there: it is given to the client, or another server is asked.
    pub fn answered(
        &mut self,
        status: Status,
        group: &Balancer,
        now: Moment,
        random: impl FnMut() -> u32,
    ) -> Order {
        let State::Exchanging { peer } = self.state else { return Order::Nothing };
        if let Some(current) = self.tries.last_mut() {
            current.header_time = Some(now.since(current.started));
            current.status = Some(status);
        }
        if let Some(condition) = Condition::of_status(status)
            && self.decide(condition, false, true, group, now) == Decision::Next
        {
            self.end_try(group, peer, condition.outcome(), now);
            return self.choose(group, now, random);
        }
        if status == Status::NOT_MODIFIED
            && self.stored.as_ref().is_some_and(|it| it.is_revalidating)
        {
            self.state = State::Confirmed { peer };
            return Order::ServeRevalidated;
        }
        if StaleCause::of_status(status).is_some_and(|cause| self.may_be_stale(cause, now)) {
            self.end_try(group, peer, Outcome::Answered, now);
            self.state = State::Over;
            return Order::ServeStale(None);
        }
        self.state = State::Answering { peer };
        Order::Forward
    }

    fn may_be_stale(&self, cause: StaleCause, now: Moment) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.may_replace(cause, now))
    }

    /// No server has a response for the client.
    fn give_up(&mut self, failure: Failure, now: Moment) -> Order {
        self.state = State::Over;
        if self.may_be_stale(StaleCause::of_failure(failure), now) {
            Order::ServeStale(Some(failure))
        } else {
            Order::Fail(failure)
        }
    }

    /// The try failed. `is_answered`: a byte of its answer had come.
    pub fn failed(
        &mut self,
        failure: Failure,
        is_answered: bool,
        group: &Balancer,
        now: Moment,
        random: impl FnMut() -> u32,
    ) -> Order {
        let peer = match self.state {
            State::Connecting { peer, .. } | State::Exchanging { peer } => peer,
            State::Answering { peer } => {
                // As in nginx: it has answered, and no other server is asked.
                self.end_try(group, peer, Outcome::Answered, now);
                self.state = State::Over;
                return Order::Cut(failure);
            }
            State::Confirmed { peer } => {
                self.end_try(group, peer, Outcome::Answered, now);
                self.state = State::Over;
                return Order::ServeRevalidated;
            }
            State::Idle | State::Over => return Order::Nothing,
        };
        if let Some(current) = self.tries.last_mut() {
            current.status = Some(failure.status());
        }
        // What comes before the request has left answers nothing, and nothing has been processed.
        let is_unsolicited = matches!(failure, Failure::BadHead(HeadFault::Unsolicited));
        let is_stale = !is_answered || is_unsolicited;
        let decision = Condition::of_failure(failure).map(|condition| {
            let is_processed = failure != Failure::NotTaken;
            (condition, self.decide(condition, is_stale, is_processed, group, now))
        });
        match decision {
            Some((_, Decision::Again)) => {
                self.close_try(now);
                self.connect(peer, false, now)
            }
            Some((condition, Decision::Next)) => {
                self.end_try(group, peer, condition.outcome(), now);
                // Where no server is left the client gets the last failure, not the error for a group without a live
                // server.
                self.try_next(group, now, random).unwrap_or_else(|| self.give_up(failure, now))
            }
            Some((condition, Decision::Stop(_))) => {
                self.end_try(group, peer, condition.outcome(), now);
                self.give_up(failure, now)
            }
            None => {
                self.end_try(group, peer, Outcome::Answered, now);
                self.give_up(failure, now)
            }
        }
    }

    /// The answer is complete.
    pub fn finished(&mut self, group: &Balancer, now: Moment) {
        self.abandoned(group, now);
    }

    /// The answer is no longer wanted: the client is gone, an operator cancelled, the server stops. The
    /// upstream is not to blame.
    pub fn abandoned(&mut self, group: &Balancer, now: Moment) {
        if let State::Connecting { peer, .. }
        | State::Exchanging { peer }
        | State::Answering { peer }
        | State::Confirmed { peer } = self.state
        {
            self.end_try(group, peer, Outcome::Answered, now);
        }
        self.state = State::Over;
    }

    /// It is over because of the server: a datagram without the answer that was expected.
    pub fn broken(&mut self, group: &Balancer, now: Moment) {
        if let Some(peer) = self.peer() {
            self.end_try(group, peer, Outcome::Failed, now);
        }
        self.state = State::Over;
    }

    /// By when the connection must be there; other deadlines are the engine's.
    pub const fn next_deadline(&self) -> Option<Deadline> {
        match self.state {
            State::Connecting { by: Some(at), .. } => {
                Some(Deadline { at, kind: DeadlineKind::UpstreamConnect })
            }
            _ => None,
        }
    }

    /// Lets the deadline act, if it is due.
    pub fn expire(&mut self, group: &Balancer, now: Moment, random: impl FnMut() -> u32) -> Order {
        match self.next_deadline() {
            Some(deadline) if deadline.at.is_due(now) => {
                self.failed(Failure::ConnectTimeout, false, group, now, random)
            }
            _ => Order::Nothing,
        }
    }

    /// Whether it has had its ending.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The server that is being asked.
    pub const fn peer(&self) -> Option<usize> {
        match self.state {
            State::Connecting { peer, .. }
            | State::Exchanging { peer }
            | State::Answering { peer }
            | State::Confirmed { peer } => Some(peer),
            State::Idle | State::Over => None,
        }
    }

    /// All tries, for the logs.
    pub fn tries(&self) -> &[Try] {
        &self.tries
    }

    /// A server that was disabled or came back by the last try, once, for the error log.
    pub const fn take_change(&mut self) -> Option<(usize, Change)> {
        self.change.take()
    }

    fn decide(
        &self,
        condition: Condition,
        is_stale: bool,
        may_be_processed: bool,
        group: &Balancer,
        now: Moment,
    ) -> Decision {
        let is_kept = self.tries.last().is_some_and(|current| current.is_kept);
        let attempt = Attempt {
            condition,
            method: self.method,
            is_request_sent: self.is_sent && may_be_processed,
            is_answer_begun: matches!(self.state, State::Answering { .. }),
            is_body_gone: self.is_body_gone,
            is_stale_connection: is_kept && is_stale,
            tries: self.count,
            servers: group.tries_max().max(1),
            started: self.started,
        };
        next_upstream(&self.rules.next, &attempt, now)
    }

    /// Asks the next server, where there is one.
    fn try_next(
        &mut self,
        group: &Balancer,
        now: Moment,
        random: impl FnMut() -> u32,
    ) -> Option<Order> {
        let peer = group.choose(&mut self.selection, now, random).ok()?;
        self.count += 1;
        Some(self.connect(peer, true, now))
    }

    fn choose(&mut self, group: &Balancer, now: Moment, random: impl FnMut() -> u32) -> Order {
        if let Some(order) = self.try_next(group, now, random) {
            return order;
        }
        // A request for which no server was asked is logged as well.
        if self.tries.is_empty() {
            self.open_try(None, now);
            if let Some(current) = self.tries.last_mut() {
                current.status = Some(Failure::NoLive.status());
            }
            self.close_try(now);
        }
        self.give_up(Failure::NoLive, now)
    }

    fn connect(&mut self, peer: usize, may_be_kept: bool, now: Moment) -> Order {
        // Each try sends the request anew.
        self.is_sent = false;
        self.open_try(Some(peer), now);
        let by = self.rules.connect_timeout.map(|timeout| now + timeout);
        self.state = State::Connecting { peer, by };
        Order::Connect { peer, may_be_kept }
    }

    fn open_try(&mut self, peer: Option<usize>, now: Moment) {
        self.tries.push(Try {
            peer,
            started: now,
            connect_time: None,
            header_time: None,
            response_time: None,
            status: None,
            is_kept: false,
        });
    }

    fn close_try(&mut self, now: Moment) {
        if let Some(current) = self.tries.last_mut() {
            current.response_time = Some(now.since(current.started));
        }
    }

    fn end_try(&mut self, group: &Balancer, peer: usize, outcome: Outcome, now: Moment) {
        self.close_try(now);
        if let Some(change) = group.release(peer, outcome, now) {
            self.change = Some((peer, change));
        }
    }
}
