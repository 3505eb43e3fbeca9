//! What the driver does about events: requests become answers or tasks, tasks become answers.

use std::sync::Arc;

use sekisho_http::Status;
use sekisho_http1::{BodyLength, Event, Response, Sends};
use sekisho_lifecycle::session::Fact;
use sekisho_lifecycle::{CloseReason, Engine, Manner};

use super::Sim;
use super::model_server::{ModelServer, ModelShutdown};
use super::plan::PlannedClient;
use super::planned_request::{How, Said, Script, Token};
use super::program::Made;
use super::server_session::{File, ServerSession};
use super::work::Task;
use crate::Fault;

impl ServerSession {
    /// Handles an event that is not about the body of a request.
    pub(super) fn see(
        &mut self,
        event: Option<&Event>,
        planned: &PlannedClient,
        server: &mut ModelServer,
        sim: &mut Sim,
    ) {
        let Some(event) = event else { return };
        sim.say(|| format!("server {}: {event:?}", self.client));
        if self.busy.is_none() {
            server.buffers += 1;
            self.busy = Some(Box::default());
        }
        match event {
            Event::Request => self.admit(planned, server, sim),
            Event::Refused(refusal) => {
                self.drop_task(false, server, sim);
                self.refuse(refusal.status, server, sim);
            }
            Event::ClientLost => {
                self.record.is_client_lost = true;
                if sim.has(Fault::TaskForgotten) {
                    let _ = self.busy.as_mut().and_then(|busy| busy.task.take());
                }
                self.drop_task(false, server, sim);
                self.engine.abort(CloseReason::PeerClosedEarly);
            }
            Event::Body(_) | Event::BodyEnd => {}
        }
    }

    /// A request has come: it must be the next one that its client sent.
    fn admit(&mut self, planned: &PlannedClient, server: &mut ModelServer, sim: &mut Sim) {
        let now = sim.now;
        let Some(busy) = &self.busy else { return };
        let target = busy.scratch.head.target();
        let asked = self.record.asked;
        let is_right = target == format!("/c{}/r{asked}", self.client).as_bytes();
        let is_whole = planned.asks.len() > asked && self.taken >= planned.head_end(asked);
        sim.demand(is_right && is_whole, || {
            format!(
                "a request that nobody sent, instead of request {asked}: {}",
                target.escape_ascii()
            )
        });
        if !is_right || !is_whole {
            return;
        }
        self.record.asked += 1;
        self.record.heads += 1;
        server.stats.requests += 1;
        self.current = Some(asked);
        (self.is_answered, self.is_finished, self.is_body_taken) = (false, false, false);
        self.timeline.head_is_over();
        self.tell(Fact::RequestReceived, sim);
        if server.shutdown > ModelShutdown::Continue {
            let manner = if server.shutdown == ModelShutdown::Drain {
                Manner::Graceful
            } else {
                Manner::Forceful
            };
            self.tell(Fact::ShutdownAsked(manner), sim);
            self.engine.shut_down_gracefully(now);
        }
        let ask = &planned.asks[asked];
        self.has_more_body = !ask.body.is_empty() && self.taken < planned.end(asked);
        sim.say(|| {
            format!(
                "server {}: request {asked}: {:?}, {:?} of body, {:?}",
                self.client, ask.script, ask.plain, ask.bad
            )
        });
        let policy = Arc::clone(server.policy(ask.host));
        self.engine.set_policy(&policy);
        self.timeline.chooses(&policy);
        self.record.half_close = policy.half_close;
        let token = Token { client: self.client, ask: asked };
        let Some(task) = Task::start(token, ask, server, sim) else {
            return self.answer_at_once(&ask.script, token, sim);
        };
        let Some(busy) = &mut self.busy else { return };
        let before = busy.scratch.out.len();
        match self.engine.take_body(Some(ask.script.body_max), &mut busy.scratch, now) {
            Ok(()) => {
                busy.task = Some(task);
                let over = ask.over_at.map(|over| planned.head_end(asked) + over);
                self.over_at = over;
                // What is too long by its head is thrown away from the start (H6).
                self.is_body_taken = ask.over_at != Some(0);
                if busy.scratch.out.len() > before {
                    self.record.continues += 1;
                    self.timeline.puts(now);
                }
                if self.has_more_body {
                    self.timeline.awaits_body(now);
                }
            }
            Err(refusal) => {
                task.go(false, server, sim);
                self.refuse(refusal.status, server, sim);
            }
        }
    }

    fn answer_at_once(&mut self, script: &Script, token: Token, sim: &mut Sim) {
        let Some(busy) = &self.busy else { return };
        let start = busy.scratch.out.len();
        let sends = self.respond(script.status, script.said, Some(token), sim);
        let Some(busy) = &mut self.busy else { return };
        if matches!(script.how, How::File)
            && let Sends::Exactly(len) = sends
        {
            busy.file = Some(File { at: 0, len: len as usize });
            return;
        }
        if sends != Sends::Nothing {
            let body: Vec<u8> = (0..script.body_bytes).map(|at| Script::byte(token, at)).collect();
            self.put_body(&body);
        }
        self.finish(sim);
        self.spoil(start, sim);
    }

    /// What a faulty server does to an answer that is whole in its output.
    fn spoil(&mut self, start: usize, sim: &Sim) {
        let Some(busy) = &mut self.busy else { return };
        let out = &mut busy.scratch.out;
        if start >= out.len() {
            return;
        }
        if sim.has(Fault::AnswerTwice) {
            out.extend_from_within(start..);
        }
        if sim.has(Fault::AnswerLost) {
            out.truncate(start);
        }
        if sim.has(Fault::AnswersSwapped)
            && let Some(last) = busy.last_answer
        {
            let older = start - last;
            out[last..].rotate_left(older);
        }
        busy.last_answer = Some(start);
    }

    /// Refuses the request in work, or the one that would have come.
    fn refuse(&mut self, status: Status, server: &mut ModelServer, sim: &mut Sim) {
        let ask = match self.current {
            Some(ask) if !self.is_answered => ask,
            _ => {
                let ask = self.record.asked;
                self.record.asked += 1;
                server.stats.requests += 1;
                self.current = Some(ask);
                (self.is_answered, self.is_finished) = (false, false);
                self.has_more_body = false;
                self.timeline.head_is_over();
                ask
            }
        };
        self.timeline.body_is_over();
        self.record.refused.insert(ask, status.code());
        self.respond(status.code(), Said::Length(3), None, sim);
        self.put_body(b"no!");
        self.finish(sim);
    }

    fn respond(&mut self, status: u16, said: Said, token: Option<Token>, sim: &mut Sim) -> Sends {
        let now = sim.now;
        let Some(busy) = &mut self.busy else { return Sends::Nothing };
        let fields = token
            .map(|token| ("T", format!("{}.{}", token.client, token.ask)))
            .into_iter()
            .collect();
        let length = match said {
            Said::Length(0) => BodyLength::Empty,
            Said::Length(length) => BodyLength::Known(length as u64),
            Said::Unknown => BodyLength::Unknown,
        };
        let status = Status::new(status).unwrap_or(Status::INTERNAL_SERVER_ERROR);
        let before = busy.scratch.out.len();
        let response = Response { status, fields: &fields, length };
        let sends = self.engine.respond(&response, &mut busy.scratch, now);
        let has_written = busy.scratch.out.len() > before;
        sim.demand(has_written && !self.is_answered, || "an answer that nobody waits for".into());
        self.is_answered = true;
        self.timeline.puts(now);
        if !self.is_body_taken {
            self.give_up_body(sim);
        }
        sends
    }

    /// A body that nobody wants is thrown away while the answer leaves, unless this is the end.
    fn give_up_body(&mut self, sim: &Sim) {
        if self.engine.will_close() || !self.has_more_body {
            self.timeline.body_is_over();
        } else {
            self.timeline.discards(sim.now);
        }
    }

    /// Body bytes, as far as the response has a body.
    fn put_body(&mut self, bytes: &[u8]) {
        let Some(busy) = &mut self.busy else { return };
        let before = busy.scratch.out.len();
        self.engine.body(bytes, &mut busy.scratch);
        if busy.scratch.out.len() > before {
            self.timeline.has_output();
        }
    }

    /// The response is complete.
    pub(super) fn finish(&mut self, sim: &mut Sim) {
        let now = sim.now;
        if let Some(busy) = &mut self.busy {
            let before = busy.scratch.out.len();
            self.engine.finish(&mut busy.scratch, now);
            if busy.scratch.out.len() > before {
                self.timeline.puts(now);
            }
        }
        self.is_finished = true;
        self.record.finished += 1;
        if self.is_body_taken && self.timeline.is_body_awaited() {
            if self.engine.will_close() {
                self.timeline.body_is_over();
            } else {
                self.timeline.discards(now);
            }
        }
        self.release(sim);
        self.observe(now);
    }

    /// Hands body bytes to the task; what it does not take waits, and holds the client back.
    pub(super) fn offer_body(&mut self, bytes: &[u8], server: &mut ModelServer, sim: &mut Sim) {
        let Some(busy) = &mut self.busy else { return };
        let Some(task) = &mut busy.task else { return };
        let taken = if busy.body.is_empty() { task.take(bytes, server, sim) } else { 0 };
        if taken < bytes.len() {
            busy.body.extend_from_slice(&bytes[taken..]);
            self.engine.hold_body(true, sim.now);
            self.timeline.holds(true, sim.now);
        }
    }

    /// The request body is complete; the task is told when it has taken all of it.
    pub(super) fn end_body(&mut self, server: &mut ModelServer, sim: &mut Sim) {
        let Some(busy) = &mut self.busy else { return };
        busy.has_body_ended = true;
        if let Some(task) = busy.task.as_mut().filter(|_| busy.body.is_empty()) {
            task.end_body(server, sim);
        }
    }

    /// Tells the task whether the client takes what it makes.
    pub(super) fn hold_task(&mut self, is_held: bool, server: &mut ModelServer, sim: &mut Sim) {
        if let Some(busy) = &mut self.busy
            && busy.is_task_held != is_held
            && let Some(task) = &mut busy.task
        {
            busy.is_task_held = is_held;
            task.hold(is_held, server, sim);
        }
    }

    /// Lets the task go on as far as it can; whether anything happened.
    pub(super) fn work(&mut self, server: &mut ModelServer, sim: &mut Sim) -> bool {
        let mut happened = false;
        self.hold_task(false, server, sim);
        loop {
            let Some(busy) = &mut self.busy else { return happened };
            if busy.scratch.out.len() > 4096 {
                return happened;
            }
            let Some(task) = &mut busy.task else { return happened };
            if !busy.body.is_empty() {
                let taken = task.take(&busy.body, server, sim);
                busy.body.drain(..taken);
                happened |= taken > 0;
                if busy.body.is_empty() {
                    self.engine.hold_body(false, sim.now);
                    self.timeline.holds(false, sim.now);
                    if busy.has_body_ended {
                        task.end_body(server, sim);
                    }
                }
            }
            let Some(made) = task.poll(server, sim) else { return happened };
            self.progress(made, server, sim);
            happened = true;
        }
    }

    /// The task's own deadline is due: it acts, whether or not there is room for what it makes.
    pub(super) fn expire_task(&mut self, server: &mut ModelServer, sim: &mut Sim) -> bool {
        let task = self.busy.as_mut().and_then(|busy| busy.task.as_mut());
        let Some(made) = task.and_then(|task| task.poll(server, sim)) else { return false };
        self.progress(made, server, sim);
        true
    }

    fn progress(&mut self, made: Made, server: &mut ModelServer, sim: &mut Sim) {
        let Some(current) = self.current else { return };
        sim.say(|| {
            format!("server {}: task of request {current}: {made:?}", self.client)
                .chars()
                .take(100)
                .collect()
        });
        let token = Token { client: self.client, ask: current };
        match made {
            Made::Head(status, said) => {
                self.respond(status, said, Some(token), sim);
            }
            Made::Body(bytes) => {
                self.put_body(&bytes);
            }
            Made::Done => {
                self.drop_task(true, server, sim);
                self.finish(sim);
            }
            Made::Fail(status) => {
                self.drop_task(true, server, sim);
                self.respond(status, Said::Length(3), Some(token), sim);
                self.put_body(b"err");
                self.finish(sim);
            }
            Made::Break => {
                self.drop_task(true, server, sim);
                if sim.has(Fault::BreakLooksWhole) {
                    return self.finish(sim);
                }
                self.record.has_broken_off = true;
                self.engine.break_off(sim.now);
                self.timeline.is_deaf();
                let is_pending =
                    self.busy.as_ref().is_some_and(|busy| !busy.scratch.out.is_empty());
                self.engine.transmitted(0, is_pending, sim.now);
                self.timeline.sent(0, is_pending, sim.now);
                self.release(sim);
            }
        }
    }

    /// Lets the task go; if it is not done, that cancels it.
    pub(super) fn drop_task(&mut self, is_done: bool, server: &mut ModelServer, sim: &mut Sim) {
        let Some(busy) = &mut self.busy else { return };
        if let Some(task) = busy.task.take() {
            task.go(is_done, server, sim);
            self.worked_at = Some(sim.now);
        }
        busy.body.clear();
        busy.has_body_ended = false;
        busy.is_task_held = false;
    }
}
