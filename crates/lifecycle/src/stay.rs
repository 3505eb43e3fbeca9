//! A session together with its requests: which of them owe an answer, which have a handle, which have a
//! channel that is not drained, which were cancelled. It ties the tables of `session.rs` and `request.rs`
//! together and feeds them; facts go in, orders come out, in the order in which they are to be carried out.
//!
//! It never sends, wakes or frees anything itself, and keeps no time: the drain deadline comes
//! from `drain.rs` and arrives here as a forceful shutdown.

use std::fmt;
use std::num::NonZeroU32;

use crate::cancel::Cause;
use crate::request::{self, Request};
use crate::session::{self, Manner, Session};
use crate::table::RequestTable;

/// A request's number inside its session. Numbers rise and are never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fact {
    /// The client has connected.
    Connected,
    /// A request message came in.
    RequestReceived,
    /// The handler has given its whole answer, a result or an error. It has not left yet.
    Answered(RequestId),
    /// The answer has left.
    ResponseSent(RequestId),
    /// The handler opened its channel.
    ChannelAcquired(RequestId),
    /// The producer has sent all.
    ChannelReleased(RequestId),
    /// The client has taken all, or wants no more.
    ChannelDrained(RequestId),
    /// One request is to be cancelled.
    CancelAsked(RequestId, Cause),
    /// The last handle of a request is gone.
    HandleDropped(RequestId),
    /// The session is to end; also the drain deadline, as force.
    ShutdownAsked(Manner),
    /// The transport is gone, unasked.
    TransportLost,
    /// The listener's side collects what a finished session left.
    Reclaimed,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// Make the task, the session object and the transport.
    Allocate,
    /// Let the request run under this number.
    Admit(RequestId),
    /// Answer the request that came in with an error; it is not counted.
    Refuse(Refusal),
    /// Let the handler's answer leave, and report `ResponseSent`.
    SendAnswer(RequestId),
    /// Send an `UNKNOWN` error for a handler that gave no answer, and report `ResponseSent`.
    AnswerUnknown(RequestId),
    /// Throw the answer away: the client is gone. It counts as sent already.
    DiscardAnswer(RequestId),
    /// Close the channel in the producer's place.
    CloseChannel(RequestId),
    /// The session owns the channel from here until it is drained.
    AdoptChannel(RequestId),
    /// The channel is no longer read: free what is in it, and let a producer that still writes
    /// neither block nor fail.
    DropChannel(RequestId),
    /// Raise the request's flag and wake its handler.
    Cancel(RequestId, Cause),
    /// A handler's bug: log and count it.
    Report(RequestId, Bug),
    /// Free the request: it is finished and has no handle.
    ReleaseRequest(RequestId),
    /// Release the task and a TCP socket.
    ReleaseWorker,
    /// Let the session object go, and shared memory where there is some.
    ReleaseSlot,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The session is being shut down.
    SessionClosed,
    /// The session has as many requests as it may have.
    TooMany,
}

/// What a handler did wrong. The client gets its one answer all the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bug {
    /// It answered while its channel was open.
    AnsweredWithOpenChannel,
    /// It dropped its last handle without an answer.
    DroppedUnanswered,
}

/// A fact that cannot be; it changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Illegal {
    /// The session's table does not have it.
    Session(session::Illegal),
    /// The request's table does not have it.
    Request(RequestId, request::Illegal),
    /// There is no such request.
    NoSuchRequest(RequestId),
    /// The request has its one answer, and nothing may follow it.
    AnsweredAlready(RequestId),
    /// Nothing was given that could have been sent.
    NotAnswered(RequestId),
    /// The request's last handle was dropped before.
    NotHeld(RequestId),
    /// A handle still exists, so the session cannot be reclaimed.
    StillHeld,
}

/// One request as the session knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Its number.
    pub id: RequestId,
    /// Where it stands.
    pub state: Request,
    /// Whether its one answer was given, by the handler or in its place.
    pub is_answered: bool,
    /// Whether a handler still holds it.
    pub is_held: bool,
    /// Why it is cancelled, if it is.
    pub cancelled: Option<Cause>,
}

/// One client's stay.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stay {
    session: Session,
    /// The strongest shutdown asked for. The session's table gets it at once when requests run, and when the
    /// last channel is drained otherwise.
    asked: Option<Manner>,
    is_lost: bool,
    requests_max: u32,
    next: u64,
    /// At most `requests_max`.
    requests: RequestTable<Entry>,
    /// How many of them owe an answer, and how many have a channel that is not drained.
    running: usize,
    undrained: usize,
}

impl Stay {
    /// Gives back the memory of its table, if there is no request.
    pub fn trim(&mut self) {
        if self.requests.is_empty() {
            self.requests = RequestTable::new();
        }
    }

    /// A vacant place for a session of at most `requests_max` requests at once.
    pub const fn new(requests_max: u32) -> Self {
        Self {
            session: Session::Vacant,
            asked: None,
            is_lost: false,
            requests_max,
            next: 0,
            requests: RequestTable::new(),
            running: 0,
            undrained: 0,
        }
    }

    /// The one entry point: takes a fact and appends what is to be done about it to `orders`.
    pub fn after(&mut self, fact: Fact, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        match fact {
            Fact::Connected => self.tell_session(session::Fact::Connected, orders),
            Fact::RequestReceived => self.request_received(orders),
            Fact::Answered(id) => self.answered(id, orders),
            Fact::ResponseSent(id) => self.response_sent(id, orders),
            Fact::ChannelAcquired(id) => self.channel_acquired(id, orders),
            Fact::ChannelReleased(id) => self.channel_released(id),
            Fact::ChannelDrained(id) => self.channel_drained(id, orders),
            Fact::CancelAsked(id, cause) => {
                self.cancel(id, cause, orders);
                Ok(())
            }
            Fact::HandleDropped(id) => self.handle_dropped(id, orders),
            Fact::ShutdownAsked(manner) => self.shutdown_asked(manner, Cause::Shutdown, orders),
            Fact::TransportLost => self.transport_lost(orders),
            Fact::Reclaimed => self.reclaimed(orders),
        }
    }

    /// The session's state. While a graceful shutdown waits for channels, that is still the state before the
    /// end: idle, or `c_1`.
    pub const fn session(&self) -> Session {
        self.session
    }

    /// The strongest shutdown asked for so far.
    pub const fn asked(&self) -> Option<Manner> {
        self.asked
    }

    /// Whether the transport is gone unasked: answers are thrown away from here on.
    pub const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The requests that are not yet freed: running, with an undrained channel, or still held.
    pub const fn requests(&self) -> &RequestTable<Entry> {
        &self.requests
    }

    /// How many requests owe an answer.
    pub const fn running(&self) -> usize {
        self.running
    }

    /// Whether only undrained channels keep a graceful shutdown from completing.
    pub fn is_waiting_for_channels(&self) -> bool {
        self.asked.is_some() && self.session != Session::Shutdown && self.running == 0
    }

    /// Whether `Reclaimed` may come: over, and no handle left.
    pub fn is_reclaimable(&self) -> bool {
        self.session == Session::Shutdown && self.requests.is_empty()
    }

    fn request_received(&mut self, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        // A shutdown that waits in idle for channels is accepted all the same (L14, L8).
        if self.session == Session::Idle && self.asked.is_some() {
            orders.push(Order::Refuse(Refusal::SessionClosed));
            return Ok(());
        }
        let takes_requests = matches!(self.session, Session::Idle | Session::Processing(_));
        if takes_requests && self.requests.len() >= self.requests_max as usize {
            orders.push(Order::Refuse(Refusal::TooMany));
            return Ok(());
        }
        let received = Request::Nil.after(request::Fact::Received);
        let (state, _) =
            received.map_err(|illegal| Illegal::Request(RequestId(self.next), illegal))?;
        let (session, order) =
            self.session.after(session::Fact::RequestReceived).map_err(Illegal::Session)?;
        self.session = session;
        if order != session::Order::Admit {
            orders.push(Order::Refuse(Refusal::SessionClosed));
            return Ok(());
        }
        let id = RequestId(self.next);
        self.next += 1;
        let entry = Entry { id, state, is_answered: false, is_held: true, cancelled: None };
        self.requests.push(id, entry);
        self.running += 1;
        orders.push(Order::Admit(id));
        Ok(())
    }

    fn answered(&mut self, id: RequestId, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        self.unanswered(id)?;
        if self.close_channel(id, orders)? {
            orders.push(Order::Report(id, Bug::AnsweredWithOpenChannel));
        }
        self.give_answer(id, Order::SendAnswer(id), orders)
    }

    fn response_sent(&mut self, id: RequestId, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        if !self.entry(id)?.is_answered {
            return Err(Illegal::NotAnswered(id));
        }
        self.count_answer(id, orders)
    }

    fn channel_acquired(&mut self, id: RequestId, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        self.unanswered(id)?;
        self.tell_request(id, request::Fact::ChannelAcquired)?;
        if self.is_forced() {
            self.drop_channel(id, orders)?;
        }
        Ok(())
    }

    fn channel_released(&mut self, id: RequestId) -> Result<(), Illegal> {
        self.unanswered(id)?;
        self.tell_request(id, request::Fact::ChannelReleased)?;
        Ok(())
    }

    fn channel_drained(&mut self, id: RequestId, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        // Force has dropped every channel; the client's word for it may still be on its way.
        if self.is_forced() {
            return Ok(());
        }
        self.drop_channel(id, orders)?;
        self.release_if_over(id, orders);
        self.leave_if_done(orders)
    }

    /// Raises a request's flag, once. A request that has its answer is past cancelling.
    fn cancel(&mut self, id: RequestId, cause: Cause, orders: &mut Vec<Order>) {
        let Ok(entry) = self.unanswered(id) else { return };
        if entry.cancelled.is_none() {
            entry.cancelled = Some(cause);
            orders.push(Order::Cancel(id, cause));
        }
    }

    fn handle_dropped(&mut self, id: RequestId, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        let entry = self.entry_mut(id)?;
        if !entry.is_held {
            return Err(Illegal::NotHeld(id));
        }
        entry.is_held = false;
        if !entry.is_answered {
            self.close_channel(id, orders)?;
            orders.push(Order::Report(id, Bug::DroppedUnanswered));
            return self.give_answer(id, Order::AnswerUnknown(id), orders);
        }
        self.release_if_over(id, orders);
        Ok(())
    }

    fn shutdown_asked(
        &mut self,
        manner: Manner,
        cause: Cause,
        orders: &mut Vec<Order>,
    ) -> Result<(), Illegal> {
        let fact = session::Fact::ShutdownAsked(manner);
        let (session, order) = self.session.after(fact).map_err(Illegal::Session)?;
        if self.session == Session::Shutdown || self.asked >= Some(manner) {
            return Ok(());
        }
        self.asked = Some(manner);
        // From idle the table leads out at once; whether a channel is in the way is asked below.
        if self.session != Session::Idle {
            self.session = session;
        }
        if order == session::Order::CancelAll {
            for id in self.ids(|_| true) {
                self.cancel(id, cause, orders);
            }
        }
        if manner == Manner::Forceful {
            self.drop_all_channels(orders)?;
        }
        self.leave_if_done(orders)
    }

    fn transport_lost(&mut self, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        let was_open = !matches!(self.session, Session::Vacant | Session::Shutdown);
        self.is_lost |= was_open;
        self.shutdown_asked(Manner::Forceful, Cause::ClientLost, orders)?;
        // An answer that was on its way is thrown away and counts as sent.
        if was_open {
            for id in self.ids(|entry| entry.is_answered && entry.state.is_running()) {
                orders.push(Order::DiscardAnswer(id));
                self.count_answer(id, orders)?;
            }
        }
        Ok(())
    }

    fn reclaimed(&mut self, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        let (session, _) =
            self.session.after(session::Fact::Reclaimed).map_err(Illegal::Session)?;
        if !self.requests.is_empty() {
            return Err(Illegal::StillHeld);
        }
        *self = Self { session, next: self.next, ..Self::new(self.requests_max) };
        orders.push(Order::ReleaseSlot);
        Ok(())
    }

    /// The answer is settled: it is sent, or thrown away if the client is gone.
    fn give_answer(
        &mut self,
        id: RequestId,
        order: Order,
        orders: &mut Vec<Order>,
    ) -> Result<(), Illegal> {
        self.entry_mut(id)?.is_answered = true;
        if !self.is_lost {
            orders.push(order);
            return Ok(());
        }
        orders.push(Order::DiscardAnswer(id));
        self.count_answer(id, orders)
    }

    /// "Response sent": the request moves, and the session's count with it.
    fn count_answer(&mut self, id: RequestId, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        if self.tell_request(id, request::Fact::ResultSent)?
            == request::Order::CountAnswerAndAdoptChannel
        {
            orders.push(Order::AdoptChannel(id));
        }
        self.release_if_over(id, orders);
        // The last answer under a shutdown may have to wait for channels.
        if matches!(self.session, Session::Closing(NonZeroU32::MIN, _)) {
            return self.leave_if_done(orders);
        }
        self.tell_session(session::Fact::ResponseSent, orders)
    }

    /// Completes an accepted shutdown once nothing runs and nothing is undrained.
    fn leave_if_done(&mut self, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        let Some(manner) = self.asked else { return Ok(()) };
        let is_done = self.running == 0 && self.undrained == 0;
        match self.session {
            Session::Idle if is_done => {
                self.tell_session(session::Fact::ShutdownAsked(manner), orders)
            }
            Session::Closing(..) if is_done => {
                self.tell_session(session::Fact::ResponseSent, orders)
            }
            _ => Ok(()),
        }
    }

    fn drop_all_channels(&mut self, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        for id in self.ids(|entry| entry.state.has_undrained_channel()) {
            self.drop_channel(id, orders)?;
        }
        for id in self.ids(|entry| entry.state == Request::Finished) {
            self.release_if_over(id, orders);
        }
        Ok(())
    }

    fn drop_channel(&mut self, id: RequestId, orders: &mut Vec<Order>) -> Result<(), Illegal> {
        self.tell_request(id, request::Fact::ChannelDrained)?;
        orders.push(Order::DropChannel(id));
        Ok(())
    }

    /// Closes a channel that the producer left open; says whether there was one.
    fn close_channel(&mut self, id: RequestId, orders: &mut Vec<Order>) -> Result<bool, Illegal> {
        if !self.entry(id)?.state.has_open_channel() {
            return Ok(false);
        }
        self.tell_request(id, request::Fact::ChannelReleased)?;
        orders.push(Order::CloseChannel(id));
        Ok(true)
    }

    fn release_if_over(&mut self, id: RequestId, orders: &mut Vec<Order>) {
        let Ok(entry) = self.entry(id) else { return };
        if entry.state == Request::Finished && !entry.is_held {
            self.requests.remove(id);
            orders.push(Order::ReleaseRequest(id));
        }
    }

    fn tell_session(
        &mut self,
        fact: session::Fact,
        orders: &mut Vec<Order>,
    ) -> Result<(), Illegal> {
        let (session, order) = self.session.after(fact).map_err(Illegal::Session)?;
        self.session = session;
        match order {
            session::Order::Allocate => orders.push(Order::Allocate),
            session::Order::ReleaseWorker => orders.push(Order::ReleaseWorker),
            _ => {}
        }
        Ok(())
    }

    fn tell_request(
        &mut self,
        id: RequestId,
        fact: request::Fact,
    ) -> Result<request::Order, Illegal> {
        let entry = self.entry_mut(id)?;
        let before = entry.state;
        let (state, order) = before.after(fact).map_err(|illegal| Illegal::Request(id, illegal))?;
        entry.state = state;
        let count = |of: fn(Request) -> bool| (usize::from(of(before)), usize::from(of(state)));
        let (was_running, is_running) = count(Request::is_running);
        let (was_undrained, is_undrained) = count(Request::has_undrained_channel);
        self.running = self.running + is_running - was_running;
        self.undrained = self.undrained + is_undrained - was_undrained;
        Ok(order)
    }

    /// The requests for which this holds.
    fn ids(&self, is_meant: impl Fn(&Entry) -> bool) -> Vec<RequestId> {
        self.requests.iter().filter(|entry| is_meant(entry)).map(|entry| entry.id).collect()
    }

    fn unanswered(&mut self, id: RequestId) -> Result<&mut Entry, Illegal> {
        let entry = self.entry_mut(id)?;
        if entry.is_answered { Err(Illegal::AnsweredAlready(id)) } else { Ok(entry) }
    }

    fn entry(&self, id: RequestId) -> Result<&Entry, Illegal> {
        self.requests.get(id).ok_or(Illegal::NoSuchRequest(id))
    }

    fn entry_mut(&mut self, id: RequestId) -> Result<&mut Entry, Illegal> {
        self.requests.get_mut(id).ok_or(Illegal::NoSuchRequest(id))
    }

    fn is_forced(&self) -> bool {
        self.asked == Some(Manner::Forceful)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Display for Illegal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(illegal) => illegal.fmt(out),
            Self::Request(id, illegal) => write!(out, "request {id}: {illegal}"),
            Self::NoSuchRequest(id) => write!(out, "there is no request {id}"),
            Self::AnsweredAlready(id) => write!(out, "request {id} is answered already"),
            Self::NotAnswered(id) => write!(out, "request {id} has no answer yet"),
            Self::NotHeld(id) => write!(out, "nobody holds request {id}"),
            Self::StillHeld => out.write_str("a handle is still held"),
        }
    }
}

impl std::error::Error for Illegal {}
