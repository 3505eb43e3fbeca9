//! The loop of one session: feed the engine, poll the services at work, write, wait for bytes or a deadline.
//!
//! One future, written by hand: a request is read, answered and written in one turn, with one write for all
//! that a turn made, and no task or channel between the socket and the service.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io::ErrorKind;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_lifecycle::{CloseReason, Deadline, Engine, Manner, Moment, RequestId, Share, Stage};
use sekisho_native::{Code, Event, Greeting};
use sekisho_service::{
    BodyStream, Caller, Held, OverBudget, Request, RequestPermit, Response, SMALL_BODY_BYTES,
};
use tokio::time::{Instant, Sleep};

use crate::admission::{Admission, Applicant, Decision};
use crate::endpoint::Endpoint;
use crate::greetings::{GreetingPlace, Greetings};
use crate::inbound::{AdmittedCall, Inbound};
use crate::session::{Session, State};
use crate::stream::Stream;
use crate::working::{Rest, Working, Works, beside};

/// So many steps of the engine are taken before other sessions get their turn, whether anything comes of them or
/// not: a peer may send without end what means nothing. A turn also ends when its time is over, see
/// [`crate::working::TURN_TIME`].
const TURN_STEPS: u32 = 256;
/// What a read costs of them: there is a bound on the bytes of a turn as well.
const READ_STEPS: u32 = 8;
/// So many sent bytes may remain before the unsent ones in the buffer; more are removed, if they are most of
/// it.
const LEFT_BYTES: usize = 64 * 1024;
/// Output that has grown beyond this is not kept.
const KEEP_BYTES: usize = 512 * 1024;
/// The same for a session in which nothing happens.
const KEEP_IDLE_BYTES: usize = 16 * 1024;

/// A peer that is being decided on.
struct Deciding {
    greeting: Greeting,
    decision: Pin<Box<dyn Future<Output = Admission>>>,
}

/// A peer's connection, as a future that ends when the session has.
#[must_use = "a connection does nothing unless it is polled"]
pub struct Connection<S> {
    pub(crate) endpoint: Rc<Endpoint>,
    pub(crate) session: Rc<Session>,
    /// Gone when the transport is.
    stream: Option<S>,
    /// Where peers wait that have not sent their greeting, and the place of this one there.
    greetings: Rc<Greetings>,
    greeting: Option<GreetingPlace>,
    /// Its greeting has come, and it takes time to find out who it is.
    deciding: Option<Box<Deciding>>,
    /// None while the session is idle.
    input: Vec<u8>,
    input_share: Option<Share>,
    taken: usize,
    filled: usize,
    /// How much of the output has left.
    sent: usize,
    /// What waits to leave is taken from the budget as far as that has it: it was written already.
    out_share: Option<Share>,
    /// What has come of a request so far, and what is held for it.
    pub(crate) body: Vec<u8>,
    pub(crate) body_held: Option<Held>,
    /// There was no memory for it: the rest is thrown away.
    pub(crate) is_body_over: bool,
    works: Works,
    /// The bodies of requests that are on their way.
    pub(crate) inbound: BTreeMap<RequestId, Inbound>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The timer has a waker and a time.
    is_armed: bool,
    is_shut: bool,
    /// Its turn was over before its work was: the others come first.
    rest: Option<Arc<Rest>>,
}

impl<S: Stream> Connection<S> {
    pub(crate) fn new(
        endpoint: Rc<Endpoint>,
        session: Rc<Session>,
        stream: S,
        greetings: Rc<Greetings>,
        closing: Option<Manner>,
    ) -> Self {
        endpoint.connections.set(endpoint.connections.get() + 1);
        if closing.is_some() {
            let engine = &mut session.state.borrow_mut().engine;
            engine.refuse(Code::SessionClosed, "the endpoint is being shut down");
        }
        Self {
            endpoint,
            session,
            stream: Some(stream),
            greetings,
            greeting: None,
            deciding: None,
            input: Vec::new(),
            input_share: None,
            taken: 0,
            filled: 0,
            sent: 0,
            out_share: None,
            body: Vec::new(),
            body_held: None,
            is_body_over: false,
            works: Works::default(),
            inbound: BTreeMap::new(),
            sleep: None,
            is_armed: false,
            is_shut: false,
            rest: None,
        }
    }

    /// One turn: as far as bytes and answers go without waiting.
    fn turn(&mut self, cx: &mut Context<'_>, now: Moment) {
        let mut steps_left = TURN_STEPS;
        self.session.turn.begin(now);
        loop {
            let mut has_moved = self.feed(now, &mut steps_left);
            has_moved |= self.decide(cx, now);
            has_moved |= self.work(cx);
            self.note_bodies(now);
            has_moved |= self.flush(cx, now);
            self.follow_stage(cx);
            if steps_left == 0 || self.session.turn.is_spent() {
                // What was made so far has been offered to the transport; now the others have their turn.
                self.rest = Some(Rest::begin(cx));
                return;
            }
            if !has_moved {
                if !self.read(cx, now) {
                    return;
                }
                steps_left = steps_left.saturating_sub(READ_STEPS).max(1);
            }
        }
    }

    /// Offers the engine what has been read, and handles what comes of it. Whether anything happened.
    fn feed(&mut self, now: Moment, steps_left: &mut u32) -> bool {
        let mut has_moved = false;
        while *steps_left > 0 && !self.session.turn.is_spent() {
            let step = {
                let State { engine, scratch, .. } = &mut *self.session.state.borrow_mut();
                engine.receive(&self.input[self.taken..self.filled], scratch, now)
            };
            if step.is_rest() {
                break;
            }
            has_moved = true;
            *steps_left -= 1;
            let offered = self.taken;
            self.taken += step.taken;
            if let Some(event) = step.event {
                self.on_event(event, offered, now);
            }
        }
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        }
        has_moved
    }

    fn on_event(&mut self, event: Event, offered: usize, now: Moment) {
        let absolute = |range: Range<usize>| range.start + offered..range.end + offered;
        match event {
            Event::Hello(greeting) => {
                let certificate = self.stream.as_ref().map_or(Ok(None), Stream::certificate);
                let decision = match &certificate {
                    Err(why) => Decision::Now(Err((Code::AuthenticationError, why.clone()))),
                    Ok(certificate) => self.endpoint.decide(&Applicant {
                        greeting: &greeting,
                        peer: &self.session.peer,
                        certificate: certificate.as_ref(),
                    }),
                };
                match decision {
                    Decision::Now(decision) => self.decided(greeting, decision, now),
                    Decision::Later(decision) => {
                        self.deciding = Some(Box::new(Deciding { greeting, decision }));
                    }
                }
            }
            Event::Piece(range) => self.gather(absolute(range)),
            Event::Request { id, service, with, body } => {
                self.gather(absolute(body));
                let (whole, held) = (std::mem::take(&mut self.body), self.body_held.take());
                if std::mem::take(&mut self.is_body_over) {
                    self.refuse(id);
                } else if let Some(with) = with {
                    self.start_with(id, service, &with, whole, held);
                } else if let Some(call) = self.admit_call(id, service, held) {
                    self.start(call, None, whole, None);
                }
            }
            Event::Data { id, body } => {
                self.gather(absolute(body));
                self.take_part(id);
            }
            Event::DataEnded(id) => self.end_body(id),
            Event::Discarded => {
                self.drop_body();
                self.is_body_over = false;
            }
            Event::Refused(_) => {
                self.drop_body();
                self.is_body_over = false;
                self.endpoint.count(|counters| counters.refused += 1);
            }
            Event::Cancelled(id, cause) => {
                self.cut_body(id, now);
                self.session.tell(id, Some(cause));
            }
            Event::ChannelMoved(id) => self.session.tell(id, None),
            Event::Bug(id, bug) => self.endpoint.bug(self.session.id, id, bug),
        }
    }

    /// Goes on finding out who the peer is; whether that is known now. If the peer has gone meanwhile, or it took too
    /// long, nobody wants to know any more.
    fn decide(&mut self, cx: &mut Context<'_>, now: Moment) -> bool {
        let Some(deciding) = &mut self.deciding else { return false };
        if !self.session.state.borrow().engine.is_deciding() {
            self.deciding = None;
            return false;
        }
        let Poll::Ready(decision) = deciding.decision.as_mut().poll(cx) else { return false };
        if let Some(deciding) = self.deciding.take() {
            self.decided(deciding.greeting, decision, now);
        }
        true
    }

    fn decided(&mut self, greeting: Greeting, decision: Admission, now: Moment) {
        let result = self.endpoint.admit(&self.session, greeting, decision);
        self.greeting = None;
        let State { engine, scratch, .. } = &mut *self.session.state.borrow_mut();
        match result {
            Ok(()) => engine.admit(self.session.id, scratch, now),
            Err((code, text)) => {
                self.endpoint.note_refusal(&self.session, code, &text);
                engine.refuse(code, &text);
            }
        }
    }

    /// Takes in a part of a request's body, if it may be held.
    fn gather(&mut self, range: Range<usize>) {
        if self.is_body_over {
            return;
        }
        if self.hold_body(range.len()).is_ok() {
            self.body.extend_from_slice(&self.input[range]);
        } else {
            self.drop_body();
            self.is_body_over = true;
        }
    }

    fn hold_body(&mut self, more: usize) -> Result<(), OverBudget> {
        let bytes = self.body.len() + more;
        match &mut self.body_held {
            Some(held) => held.grow(more),
            None if bytes <= SMALL_BODY_BYTES => Ok(()),
            None => {
                self.body_held = Some(Held::take(&self.session.memory, bytes)?);
                Ok(())
            }
        }
    }

    fn drop_body(&mut self) {
        (self.body, self.body_held) = (Vec::new(), None);
    }

    pub(crate) fn response(
        &self,
        id: RequestId,
        held: Option<Held>,
        permit: RequestPermit,
    ) -> Response {
        Response::counted(Rc::<Session>::clone(&self.session), id, held, permit)
    }

    /// Answers a request for whose body there was no memory.
    pub(crate) fn refuse(&self, id: RequestId) {
        self.endpoint.count(|counters| counters.refused += 1);
        let response = self.response(id, None, RequestPermit::default());
        // A request that has just come in has no answer yet.
        let _ = response.error(Code::ResourceLimitReached, &OverBudget.to_string());
    }

    /// Answers a request that its caller may not make, or not now.
    pub(crate) fn deny(
        &self,
        id: RequestId,
        caller: &Caller,
        service: &str,
        code: Code,
        text: &str,
    ) {
        self.endpoint.count(|counters| counters.denied += 1);
        self.endpoint.config.observer.denied(caller, service, code, text);
        let response = self.response(id, None, RequestPermit::default());
        // A request that has just come in has no answer yet.
        let _ = response.error(code, text);
    }

    /// Calls a service.
    pub(crate) fn start(
        &mut self,
        call: AdmittedCall,
        deadline: Option<Moment>,
        body: Vec<u8>,
        stream: Option<BodyStream>,
    ) {
        let AdmittedCall { id, number: service, service: found, caller, response } = call;
        let mut request = Request::new(&caller, id, service, body).with_deadline(deadline);
        if let Some(stream) = stream {
            request = request.with_stream(stream);
        }
        self.endpoint.heartbeat.note_service(service);
        // A service that panics has dropped its handles, which is an answer (L32); the session goes on.
        match catch_unwind(AssertUnwindSafe(|| found.call(request, response))) {
            Ok(work) => {
                if let Some(work) = work.into_future(beside) {
                    self.works.push(Working::new(&self.session, work));
                }
            }
            Err(_) => self.endpoint.count(|counters| counters.panicked += 1),
        }
        self.session.look_at_clock();
    }

    /// Polls the services that have something to do. Returns whether one of them has ended.
    fn work(&mut self, cx: &mut Context<'_>) -> bool {
        if self.works.is_empty() {
            return false;
        }
        let mut has_moved = false;
        while let Poll::Ready(Some(ended)) = self.works.poll_next(cx) {
            has_moved = true;
            if ended.is_panic() {
                self.endpoint.count(|counters| counters.panicked += 1);
            }
        }
        has_moved
    }

    /// Writes what there is. Whether anything left.
    fn flush(&mut self, cx: &mut Context<'_>, now: Moment) -> bool {
        let mut has_moved = false;
        let mut lost = None;
        loop {
            let State { engine, scratch, .. } = &mut *self.session.state.borrow_mut();
            let Some(stream) = self.stream.as_mut().filter(|_| engine.stage() == Stage::Open)
            else {
                scratch.out.clear();
                self.sent = 0;
                break;
            };
            if self.sent == scratch.out.len() {
                break;
            }
            match stream.poll_write(cx, &scratch.out[self.sent..]) {
                Poll::Ready(Ok(moved)) if moved > 0 => {
                    has_moved = true;
                    self.sent += moved;
                    let is_pending = self.sent < scratch.out.len();
                    if !is_pending {
                        self.sent = 0;
                        scratch.out.clear();
                        if scratch.out.capacity() > KEEP_BYTES {
                            scratch.out = Vec::new();
                        }
                    } else if self.sent >= LEFT_BYTES && self.sent >= scratch.out.len() / 2 {
                        // With several channels there may always be something left.
                        scratch.out.drain(..self.sent);
                        self.sent = 0;
                    }
                    engine.transmitted(moved as u64, is_pending, now);
                }
                Poll::Ready(failed) => {
                    lost = Some(failed.err().map_or(ErrorKind::WriteZero, |error| error.kind()));
                    break;
                }
                Poll::Pending => {
                    engine.transmitted(0, true, now);
                    break;
                }
            }
        }
        if let Some(kind) = lost {
            self.lose(kind, now);
        }
        has_moved || lost.is_some()
    }

    /// Reads more. Whether anything happened.
    fn read(&mut self, cx: &mut Context<'_>, now: Moment) -> bool {
        let (wants, is_admitted) = {
            let state = self.session.state.borrow();
            (state.engine.wants_input(), state.member.is_some())
        };
        let Some(stream) = self.stream.as_mut().filter(|_| wants) else { return false };
        if self.input.is_empty() {
            (self.input, self.input_share) = self.endpoint.borrow_buffer(is_admitted);
        } else if self.taken > 0 {
            // The engine leaves a part of a head or of a control message at the most.
            self.input.copy_within(self.taken..self.filled, 0);
            (self.taken, self.filled) = (0, self.filled - self.taken);
        }
        if self.filled == self.input.len() {
            // A peer that is decided on has sent more than is taken before.
            return false;
        }
        match stream.poll_read(cx, &mut self.input[self.filled..]) {
            Poll::Pending => false,
            Poll::Ready(Ok(0)) => {
                let event = self.session.state.borrow_mut().engine.input_ended(now);
                if let Some(event) = event {
                    self.on_event(event, 0, now);
                }
                true
            }
            Poll::Ready(Ok(count)) => {
                self.filled += count;
                true
            }
            Poll::Ready(Err(error)) => {
                self.lose(error.kind(), now);
                true
            }
        }
    }

    fn lose(&mut self, kind: ErrorKind, now: Moment) {
        let reason = match kind {
            // Shared memory with impossible content (E7).
            ErrorKind::InvalidData => CloseReason::OutOfSync,
            ErrorKind::PermissionDenied => CloseReason::NotAdmitted,
            _ => CloseReason::TransportLost,
        };
        self.session.state.borrow_mut().engine.transport_lost(reason, now);
    }

    /// Does with the transport what the engine's stage says.
    fn follow_stage(&mut self, cx: &mut Context<'_>) {
        let stage = self.session.state.borrow().engine.stage();
        match stage {
            Stage::Open => {}
            Stage::Lingering if self.is_shut => {}
            Stage::Lingering => {
                self.is_shut = true;
                if let Some(stream) = &mut self.stream {
                    // It is a stream's last act; where it cannot be done, the close does it.
                    let _ = stream.poll_shut_down(cx);
                }
            }
            // The task and the socket go (L13); handlers that are still at work are waited for.
            Stage::Closed(reason) => {
                if let Some(mut stream) = self.stream.take()
                    && reason.wants_reset()
                {
                    stream.reset_on_close();
                }
            }
        }
    }

    /// A peer that was read from and has not sent its greeting takes a place, and so does one that takes time to
    /// decide on; one that is to go gives it back.
    fn count_greeting(&mut self) {
        let is_new = {
            let engine = &self.session.state.borrow().engine;
            engine.is_greeting() || engine.is_deciding()
        };
        if !is_new {
            self.greeting = None;
        } else if self.greeting.is_none() {
            let place = self.endpoint.wait_for_greeting(&self.session, &self.greetings);
            self.greeting = Some(place);
        }
    }

    /// Takes what waits to leave from the budget, so that others are refused before there is too much of it.
    fn account_output(&mut self) {
        let bytes = self.session.state.borrow().scratch.out.capacity();
        if bytes <= KEEP_IDLE_BYTES {
            self.out_share = None;
        } else if let Some(share) = &mut self.out_share {
            // What is there is there.
            let _ = share.resize(bytes);
        } else {
            self.out_share = self.endpoint.config.budget.take(bytes);
        }
    }

    /// Waits for the next deadline; whether it is there.
    fn wait(&mut self, cx: &mut Context<'_>, deadline: Option<Deadline>) -> bool {
        let Some(deadline) = deadline else {
            self.sleep = None;
            return false;
        };
        let at: Instant = self.session.clock.instant(deadline.at);
        match &mut self.sleep {
            // A timer that is early is put right when it falls: most deadlines only ever move later.
            Some(sleep) if sleep.deadline() <= at && !sleep.is_elapsed() => {
                if self.is_armed {
                    return false;
                }
            }
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
        let is_due = self.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
        self.is_armed = !is_due;
        is_due
    }
}

impl<S: Stream> Future for Connection<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.rest.as_ref().is_some_and(|rest| rest.goes_on(cx)) {
            return Poll::Pending;
        }
        this.rest = None;
        {
            let state = &mut *this.session.state.borrow_mut();
            state.is_polling = true;
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
                this.is_armed = false;
            }
        }
        loop {
            let now = this.session.clock.now();
            this.session.state.borrow_mut().now = now;
            this.endpoint.heartbeat.begin_turn(this.session.id);
            this.turn(cx, now);
            this.endpoint.heartbeat.end_turn();
            this.endpoint.config.observer.worked();
            // Data that came in the same turn has won (T3).
            let deadline = this.session.state.borrow().engine.next_deadline();
            if deadline.is_some_and(|deadline| deadline.at.is_due(now)) {
                this.endpoint.count(|counters| counters.expired += 1);
                let event = this.session.state.borrow_mut().engine.expire(now);
                if let Some(event) = event {
                    this.on_event(event, 0, now);
                }
                continue;
            }
            if this.stream.is_none() && this.works.is_empty() {
                this.session.state.borrow_mut().is_polling = false;
                return Poll::Ready(());
            }
            if this.filled == 0 && !this.input.is_empty() {
                this.endpoint.give_back_buffer(std::mem::take(&mut this.input));
                this.input_share = None;
            }
            if this.works.is_empty() {
                let out = &mut this.session.state.borrow_mut().scratch.out;
                if out.is_empty() && out.capacity() > KEEP_IDLE_BYTES {
                    *out = Vec::new();
                }
            }
            this.account_output();
            this.count_greeting();
            if !this.wait(cx, deadline) {
                this.session.state.borrow_mut().is_polling = false;
                return Poll::Pending;
            }
        }
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        let now = self.session.clock.now();
        {
            let state = &mut *self.session.state.borrow_mut();
            state.engine.transport_lost(CloseReason::TransportLost, now);
            (state.is_polling, state.now) = (true, now);
            state.waker = None;
        }
        // Handlers that are dropped drop their handles.
        self.works.clear();
        self.inbound.clear();
        loop {
            let event = self.session.state.borrow_mut().engine.next_event();
            match event {
                None => break,
                Some(Event::Cancelled(id, cause)) => self.session.tell(id, Some(cause)),
                Some(Event::ChannelMoved(id)) => self.session.tell(id, None),
                // Dropping a connection drops its handlers: that is not a bug of theirs.
                Some(_) => {}
            }
        }
        self.session.state.borrow_mut().end();
        self.greetings.forget(self.session.id);
        let Stage::Closed(reason) = self.session.state.borrow().engine.stage() else { return };
        self.endpoint.ended(&self.session, reason);
    }
}

impl<S> fmt::Debug for Connection<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connection").field("works", &self.works.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use sekisho_native::Policy;

    use crate::{Client, Config, Endpoint, Services, loopback, service_fn};

    async fn endless(_: crate::Request, response: crate::Response) {
        let Ok(channel) = response.acquire_channel() else { return };
        while channel.is_wanted() && channel.write(&[7; 8000]).await.is_ok() {}
        response.release_channel(channel);
        let _ = response.body(b"enough");
    }

    #[test]
    fn what_has_left_is_not_kept_though_there_is_always_more() {
        // E4
        const CHANNELS: usize = 4;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime.expect("a runtime"), async {
            let mut services = Services::default();
            services.add(1, "endless", service_fn(endless)).expect("free");
            let endpoint = Endpoint::new(Config::default(), services);
            let (near, far) = loopback::pair();
            tokio::task::spawn_local(endpoint.serve(far));
            let client = Client::connect(near, "greedy").await.expect("admitted");
            let make = || client.request(1, b"").expect("made");
            let mut calls: Vec<_> = std::iter::repeat_with(make).take(CHANNELS).collect();
            let session = endpoint.session(client.session()).expect("it is there");
            let mut most = 0;
            for _ in 0..1000 {
                for call in &mut calls {
                    assert!(call.next_record().await.expect("alive").is_some());
                    most = most.max(session.state.borrow().scratch.out.len());
                }
            }
            let windows = CHANNELS * Policy::default().channel_bytes_max as usize;
            assert!(most > 0 && most < 3 * windows, "{most} bytes stood there");
        });
    }
}
