//! What the driver does about events: requests become answers or tasks, tasks become answers.

use std::sync::Arc;

use sekisho_http::Status;
use sekisho_http1::{BodyLength, Event, Response, Sends};
use sekisho_lifecycle::session::Fact;
use sekisho_lifecycle::{CloseReason, Engine, Manner};

use super::Play;
use super::ask::{How, Said, Script, Token};
use super::house::{House, ModelShutdown};
use super::plan::Guest;
use super::program::Made;
use super::server_session::{File, ServerSession};
use super::work::Task;
use crate::Fault;

impl ServerSession {
    /// Handles an event that is not about the body of a request.
    pub(super) fn see(
        &mut self,
        event: Option<&Event>,
        guest: &Guest,
        house: &mut House,
        play: &mut Play,
    ) {
        let Some(event) = event else { return };
        play.say(|| format!("server {}: {event:?}", self.client));
        if self.busy.is_none() {
            house.buffers += 1;
            self.busy = Some(Box::default());
        }
        match event {
            Event::Request => self.admit(guest, house, play),
            Event::Refused(refusal) => {
                self.drop_task(false, house, play);
                self.refuse(refusal.status, house, play);
            }
            Event::ClientLost => {
                self.record.is_client_lost = true;
                if play.has(Fault::TaskForgotten) {
                    let _ = self.busy.as_mut().and_then(|busy| busy.task.take());
                }
                self.drop_task(false, house, play);
                self.engine.abort(CloseReason::PeerClosedEarly);
            }
            Event::Body(_) | Event::BodyEnd => {}
        }
    }

    /// A request has come: it must be the next one that its client sent.
    fn admit(&mut self, guest: &Guest, house: &mut House, play: &mut Play) {
        let now = play.now;
        let Some(busy) = &self.busy else { return };
        let target = busy.scratch.head.target();
        let asked = self.record.asked;
        let is_right = target == format!("/c{}/r{asked}", self.client).as_bytes();
        let is_whole = guest.asks.len() > asked && self.taken >= guest.head_end(asked);
        play.demand(is_right && is_whole, || {
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
        house.tally.requests += 1;
        self.current = Some(asked);
        (self.is_answered, self.is_finished, self.is_body_taken) = (false, false, false);
        self.timeline.head_is_over();
        self.tell(Fact::RequestReceived, play);
        if house.shutdown > ModelShutdown::Continue {
            let manner =
                if house.shutdown == ModelShutdown::Drain { Manner::Graceful } else { Manner::Forceful };
            self.tell(Fact::ShutdownAsked(manner), play);
            self.engine.shut_down_gracefully(now);
        }
        let ask = &guest.asks[asked];
        self.has_more_body = !ask.body.is_empty() && self.taken < guest.end(asked);
        play.say(|| {
            format!(
                "server {}: request {asked}: {:?}, {:?} of body, {:?}",
                self.client, ask.script, ask.plain, ask.bad
            )
        });
        let policy = Arc::clone(house.policy(ask.host));
        self.engine.set_policy(&policy);
        self.timeline.chooses(&policy);
        self.record.half_close = policy.half_close;
        let token = Token { client: self.client, ask: asked };
        let Some(task) = Task::start(token, ask, house, play) else {
            return self.answer_at_once(&ask.script, token, play);
        };
        let Some(busy) = &mut self.busy else { return };
        let before = busy.scratch.out.len();
        match self.engine.take_body(Some(ask.script.body_max), &mut busy.scratch, now) {
            Ok(()) => {
                busy.task = Some(task);
                let over = ask.over_at.map(|over| guest.head_end(asked) + over);
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
                task.go(false, house, play);
                self.refuse(refusal.status, house, play);
            }
        }
    }

    fn answer_at_once(&mut self, script: &Script, token: Token, play: &mut Play) {
        let Some(busy) = &self.busy else { return };
        let start = busy.scratch.out.len();
        let sends = self.respond(script.status, script.said, Some(token), play);
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
        self.finish(play);
        self.spoil(start, play);
    }

    /// What a faulty server does to an answer that is whole in its output.
    fn spoil(&mut self, start: usize, play: &Play) {
        let Some(busy) = &mut self.busy else { return };
        let out = &mut busy.scratch.out;
        if start >= out.len() {
            return;
        }
        if play.has(Fault::AnswerTwice) {
            out.extend_from_within(start..);
        }
        if play.has(Fault::AnswerLost) {
            out.truncate(start);
        }
        if play.has(Fault::AnswersSwapped)
            && let Some(last) = busy.last_answer
        {
            let older = start - last;
            out[last..].rotate_left(older);
        }
        busy.last_answer = Some(start);
    }

    /// Refuses the request in work, or the one that would have come.
    fn refuse(&mut self, status: Status, house: &mut House, play: &mut Play) {
        let ask = match self.current {
            Some(ask) if !self.is_answered => ask,
            _ => {
                let ask = self.record.asked;
                self.record.asked += 1;
                house.tally.requests += 1;
                self.current = Some(ask);
                (self.is_answered, self.is_finished) = (false, false);
                self.has_more_body = false;
                self.timeline.head_is_over();
                ask
            }
        };
        self.timeline.body_is_over();
        self.record.refused.insert(ask, status.code());
        self.respond(status.code(), Said::Length(3), None, play);
        self.put_body(b"no!");
        self.finish(play);
    }

    fn respond(&mut self, status: u16, said: Said, token: Option<Token>, play: &mut Play) -> Sends {
        let now = play.now;
        let Some(busy) = &mut self.busy else { return Sends::Nothing };
        let fields =
            token.map_or(String::new(), |token| format!("T: {}.{}\r\n", token.client, token.ask));
        let length = match said {
            Said::Length(0) => BodyLength::Empty,
            Said::Length(length) => BodyLength::Known(length as u64),
            Said::Unknown => BodyLength::Unknown,
        };
        let status = Status::new(status).unwrap_or(Status::INTERNAL_SERVER_ERROR);
        let before = busy.scratch.out.len();
        let response = Response { status, fields: fields.as_bytes(), length };
        let sends = self.engine.respond(&response, &mut busy.scratch, now);
        let has_written = busy.scratch.out.len() > before;
        play.demand(has_written && !self.is_answered, || "an answer that nobody waits for".into());
        self.is_answered = true;
        self.timeline.puts(now);
        if !self.is_body_taken {
            self.give_up_body(play);
        }
        sends
    }

    /// A body that nobody wants is thrown away while the answer leaves, unless this is the end.
    fn give_up_body(&mut self, play: &Play) {
        if self.engine.will_close() || !self.has_more_body {
            self.timeline.body_is_over();
        } else {
            self.timeline.discards(play.now);
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
    pub(super) fn finish(&mut self, play: &mut Play) {
        let now = play.now;
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
        self.release(play);
        self.observe(now);
    }

    /// Hands body bytes to the task; what it does not take waits, and holds the client back.
    pub(super) fn offer_body(&mut self, bytes: &[u8], house: &mut House, play: &mut Play) {
        let Some(busy) = &mut self.busy else { return };
        let Some(task) = &mut busy.task else { return };
        let taken = if busy.body.is_empty() { task.take(bytes, house, play) } else { 0 };
        if taken < bytes.len() {
            busy.body.extend_from_slice(&bytes[taken..]);
            self.engine.hold_body(true, play.now);
            self.timeline.holds(true, play.now);
        }
    }

    /// The request body is complete; the task is told when it has taken all of it.
    pub(super) fn end_body(&mut self, house: &mut House, play: &mut Play) {
        let Some(busy) = &mut self.busy else { return };
        busy.has_body_ended = true;
        if let Some(task) = busy.task.as_mut().filter(|_| busy.body.is_empty()) {
            task.end_body(house, play);
        }
    }

    /// Tells the task whether the client takes what it makes.
    pub(super) fn hold_task(&mut self, is_held: bool, house: &mut House, play: &mut Play) {
        if let Some(busy) = &mut self.busy
            && busy.is_task_held != is_held
            && let Some(task) = &mut busy.task
        {
            busy.is_task_held = is_held;
            task.hold(is_held, house, play);
        }
    }

    /// Lets the task go on as far as it can; whether anything happened.
    pub(super) fn work(&mut self, house: &mut House, play: &mut Play) -> bool {
        let mut happened = false;
        self.hold_task(false, house, play);
        loop {
            let Some(busy) = &mut self.busy else { return happened };
            if busy.scratch.out.len() > 4096 {
                return happened;
            }
            let Some(task) = &mut busy.task else { return happened };
            if !busy.body.is_empty() {
                let taken = task.take(&busy.body, house, play);
                busy.body.drain(..taken);
                happened |= taken > 0;
                if busy.body.is_empty() {
                    self.engine.hold_body(false, play.now);
                    self.timeline.holds(false, play.now);
                    if busy.has_body_ended {
                        task.end_body(house, play);
                    }
                }
            }
            let Some(made) = task.poll(house, play) else { return happened };
            self.progress(made, house, play);
            happened = true;
        }
    }

    /// The task's own deadline is due: it acts, whether or not there is room for what it makes.
    pub(super) fn expire_task(&mut self, house: &mut House, play: &mut Play) -> bool {
        let task = self.busy.as_mut().and_then(|busy| busy.task.as_mut());
        let Some(made) = task.and_then(|task| task.poll(house, play)) else { return false };
        self.progress(made, house, play);
        true
    }

    fn progress(&mut self, made: Made, house: &mut House, play: &mut Play) {
        let Some(current) = self.current else { return };
        play.say(|| {
            format!("server {}: task of request {current}: {made:?}", self.client)
                .chars()
                .take(100)
                .collect()
        });
        let token = Token { client: self.client, ask: current };
        match made {
            Made::Head(status, said) => {
                self.respond(status, said, Some(token), play);
            }
            Made::Body(bytes) => {
                self.put_body(&bytes);
            }
            Made::Done => {
                self.drop_task(true, house, play);
                self.finish(play);
            }
            Made::Fail(status) => {
                self.drop_task(true, house, play);
                self.respond(status, Said::Length(3), Some(token), play);
                self.put_body(b"err");
                self.finish(play);
            }
            Made::Break => {
                self.drop_task(true, house, play);
                if play.has(Fault::BreakLooksWhole) {
                    return self.finish(play);
                }
                self.record.has_broken_off = true;
                self.engine.break_off(play.now);
                self.timeline.is_deaf();
                let is_pending =
                    self.busy.as_ref().is_some_and(|busy| !busy.scratch.out.is_empty());
                self.engine.transmitted(0, is_pending, play.now);
                self.timeline.sent(0, is_pending, play.now);
                self.release(play);
            }
        }
    }

    /// Lets the task go; if it is not done, that cancels it.
    pub(super) fn drop_task(&mut self, is_done: bool, house: &mut House, play: &mut Play) {
        let Some(busy) = &mut self.busy else { return };
        if let Some(task) = busy.task.take() {
            task.go(is_done, house, play);
            self.worked_at = Some(play.now);
        }
        busy.body.clear();
        busy.has_body_ended = false;
        busy.is_task_held = false;
    }
}
