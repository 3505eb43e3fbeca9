//! A handler of the plan as the driver's task, and what the driver asks for an answer: the seam between the two.

use std::rc::Rc;
use std::task::{Context, Poll};

use sekisho_handler::{BodyIn, Describe, Outbox, Piece, Progress, Reply, Work, without};
use sekisho_http::{Fields, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment, RequestId};
use sekisho_net::simulation::{Asked, EngineView, Fact, Script, Start};

use super::handler::Handler;
use super::planned_request::{How, Said, Script as Planned, Token};
use super::process::Process;
use super::program::Made;
use super::watch::AtWork;
use super::{Actor, Shared, Sim};
use crate::Fault;

/// A task of the driver.
#[derive(Debug)]
struct SimulatedTask {
    shared: Rc<Shared>,
    token: Token,
    /// Taken out when it goes.
    handler: Option<Handler>,
    has_leftover: bool,
    is_held: bool,
    is_done: bool,
}

impl SimulatedTask {
    /// Lets the handler do something, and sees to it that it is woken for what it waits for.
    fn with<T>(
        &mut self,
        act: impl FnOnce(&mut Handler, &mut Process, &mut Sim) -> T,
    ) -> Option<T> {
        let handler = self.handler.as_mut()?;
        let (mut server, mut sim) = (self.shared.server.borrow_mut(), self.shared.sim.borrow_mut());
        let done = act(handler, &mut server, &mut sim);
        // A task whose answer is not taken goes on at its deadline only, which the driver knows.
        if let Some(at) = handler.next_wake(self.has_leftover).filter(|_| !self.is_held) {
            sim.wake(Actor::Task(handler.id), at);
        }
        let deadline = handler.next_deadline();
        if let Some(watch) = &mut self.shared.watches.borrow_mut()[self.token.client] {
            watch.task = Some(AtWork { deadline });
        }
        Some(done)
    }

    fn remember(&self, cx: &Context<'_>) {
        if let Some(handler) = &self.handler {
            self.shared.wakers.borrow_mut().insert(handler.id, cx.waker().clone());
        }
    }

    fn hold_body(&mut self, is_held: bool, now: Moment) {
        self.has_leftover = is_held;
        if let Some(watch) = &mut self.shared.watches.borrow_mut()[self.token.client] {
            watch.timeline.holds(is_held, now);
        }
    }
}

impl Work for SimulatedTask {
    without!(absorb, narrow, stops_with_client, is_service, conclude);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, _: Moment) -> Poll<Progress> {
        self.remember(cx);
        let Some(Some(made)) = self.with(Handler::poll) else {
            return Poll::Pending;
        };
        let is_spoilt = {
            let mut sim = self.shared.sim.borrow_mut();
            sim.say(|| format!("{:?}: {made:?}", self.token).chars().take(100).collect());
            sim.has(Fault::BreakLooksWhole)
        };
        let progress = match made {
            Made::Head(status, said) => {
                push_token(self.token, &mut out.fields);
                let length = match said {
                    Said::Length(bytes) => Some(bytes as u64),
                    Said::Unknown => None,
                };
                Progress::Head(status_of(status), length)
            }
            Made::Body(bytes) => {
                out.body.extend_from_slice(&bytes);
                Progress::Body
            }
            Made::Break if is_spoilt => Progress::Done,
            Made::Done => Progress::Done,
            Made::Fail(status) => Progress::Fail(status_of(status)),
            Made::Break => Progress::Break,
        };
        self.is_done = !matches!(progress, Progress::Head(..) | Progress::Body);
        Poll::Ready(progress)
    }

    fn hold(&mut self, is_held: bool, _: Moment) {
        self.is_held = is_held;
        self.with(|handler, server, sim| handler.hold(is_held, server, sim));
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let at = self.handler.as_ref()?.next_deadline()?;
        Some(Deadline { at, kind: DeadlineKind::Program })
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        self.with(Handler::cancel);
    }
}

impl BodyIn for SimulatedTask {
    without!(body_sink, direct_bytes_done, return_body);

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], _: Moment) -> usize {
        self.remember(cx);
        let taken = self.with(|handler, server, sim| handler.take(bytes, server, sim)).unwrap_or(0);
        let now = self.shared.sim.borrow().now;
        self.hold_body(taken < bytes.len(), now);
        if taken < bytes.len() {
            self.with(|_, _, _| ());
        }
        taken
    }

    fn end_body(&mut self, cx: &mut Context<'_>, _: Moment) {
        self.remember(cx);
        self.with(Handler::end_body);
    }
}

impl Describe for SimulatedTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "simulated"
    }
}

impl Drop for SimulatedTask {
    fn drop(&mut self) {
        let Some(handler) = self.handler.take() else { return };
        self.shared.wakers.borrow_mut().remove(&handler.id);
        let (mut server, mut sim) = (self.shared.server.borrow_mut(), self.shared.sim.borrow_mut());
        if let Some(watch) = &mut self.shared.watches.borrow_mut()[self.token.client] {
            watch.task = None;
            watch.worked_at = Some(sim.now);
            if watch.record.is_client_lost && sim.has(Fault::TaskForgotten) {
                return;
            }
        }
        handler.go(self.is_done, &mut server, &mut sim);
    }
}

/// The handlers as the driver sees them.
#[derive(Debug)]
pub(super) struct Handlers(pub(super) Rc<Shared>);

impl Script for Handlers {
    fn start(&self, session: u64, asked: Asked, _: &[u8], fields: &mut Fields) -> Start {
        let Some(client) = self.0.client_of(session) else { return refusal(404) };
        let ask = self.0.watches.borrow()[client].as_ref().and_then(|watch| watch.current);
        let token = Token { client, ask: ask.unwrap_or(0) };
        let planned = self.0.planned[client].asks.get(token.ask);
        let Some(ask) = planned else { return refusal(404) };
        match asked {
            Asked::Refused(status) => refusal(status.code()),
            Asked::Failed(status) => {
                push_token(token, fields);
                Start::Reply(Reply::of(status, Piece::Static(b"err")))
            }
            Asked::Request | Asked::Instead => {
                let handler = {
                    let (mut server, mut sim) =
                        (self.0.server.borrow_mut(), self.0.sim.borrow_mut());
                    Handler::start(token, ask, &mut server, &mut sim)
                };
                let Some(handler) = handler else {
                    push_token(token, fields);
                    return self.at_once(&ask.script, token);
                };
                let mut task = SimulatedTask {
                    shared: Rc::clone(&self.0),
                    token,
                    handler: Some(handler),
                    has_leftover: false,
                    is_held: false,
                    is_done: false,
                };
                task.with(|_, _, _| ());
                Start::Task(Box::new(task))
            }
        }
    }

    fn tell(&self, session: u64, id: RequestId, fact: Fact<'_>, engine: EngineView, _: Moment) {
        let Some(client) = self.0.client_of(session) else { return };
        let mut watches = self.0.watches.borrow_mut();
        let Some(watch) = &mut watches[client] else { return };
        let (mut server, mut sim) = (self.0.server.borrow_mut(), self.0.sim.borrow_mut());
        let (planned, links) = (&self.0.planned[client], self.0.links.borrow());
        let _ = id;
        watch.tell(fact, engine, &links[client], planned, &mut server, &mut sim);
    }
}

impl Handlers {
    fn at_once(&self, script: &Planned, token: Token) -> Start {
        let status = status_of(script.status);
        if script.body_bytes == 0 {
            return Start::Reply(Reply::empty(status));
        }
        let piece = if matches!(script.how, How::File) {
            let from = ((token.client * 7 + token.ask * 3) % 26) as u64;
            Piece::File(Rc::clone(&self.0.file), from..from + script.body_bytes as u64)
        } else {
            Piece::Bytes((0..script.body_bytes).map(|at| Planned::byte(token, at)).collect())
        };
        Start::Reply(Reply::of(status, piece))
    }
}

fn refusal(status: u16) -> Start {
    Start::Reply(Reply::of(status_of(status), Piece::Static(b"no!")))
}

fn status_of(status: u16) -> Status {
    Status::new(status).unwrap_or(Status::INTERNAL_SERVER_ERROR)
}

fn push_token(token: Token, fields: &mut Fields) {
    fields.push("T", format!("{}.{}", token.client, token.ask).as_str());
}
