//! Handlers of the plan: they read an upload, wait, answer in pieces, break off or fail, and hold what they are given
//! against what the client meant to send.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_handler::{BodyIn, Describe, Outbox, Piece, Progress, Reply, Work, without};
use sekisho_http::{Fields, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment, RequestId};
use sekisho_net::simulation::{Asked, EngineView, Fact, Script as Seam, Start};

use super::plan::{Ending, PlannedStream, Script};
use super::{Actor, Shared};
use crate::Fault;

/// How long after its start a task looks at its work.
const LOOK: Duration = Duration::from_millis(10);

/// Whom the driver asks, and tells.
#[derive(Debug)]
pub(super) struct Handlers(pub(super) Rc<Shared>);

impl Seam for Handlers {
    fn start(&self, _: u64, asked: Asked, target: &[u8], fields: &mut Fields) -> Start {
        let refusal = |status| Start::Reply(Reply::of(status, Piece::Static(b"no!")));
        let (client, stream) = match (asked, place(target)) {
            (Asked::Request | Asked::Instead, Some(place)) => place,
            (Asked::Refused(status) | Asked::Failed(status), _) => return refusal(status),
            (_, None) => return refusal(Status::NOT_FOUND),
        };
        let planned = self.0.planned.get(client).and_then(|it| it.streams.get(stream));
        let Some(planned) = planned.cloned() else { return refusal(Status::NOT_FOUND) };
        let script = &planned.script;
        if script.is_at_once {
            push_token(client, stream, fields);
            let body = (0..script.body_bytes).map(|at| Script::byte(client, stream, at));
            let body: Vec<u8> = body.collect();
            return Start::Reply(Reply::of(Status::OK, Piece::Bytes(body)));
        }
        let id = {
            let mut tasks = self.0.tasks.borrow_mut();
            let id = self.0.next_task.get();
            self.0.next_task.set(id + 1);
            tasks.insert(id, None);
            id
        };
        let is_ready = planned.upload.is_none();
        let shared = Rc::clone(&self.0);
        let now = shared.sim.borrow().now;
        let mut task = StreamTask {
            shared,
            id,
            client,
            stream,
            planned,
            received: 0,
            made: 0,
            next_at: None,
            takes_at: None,
            looks_at: Some(now + LOOK),
            has_head: false,
            is_cancelled: false,
            is_over: false,
        };
        if is_ready {
            task.pause(now);
        }
        Start::Task(Box::new(task))
    }

    fn tell(&self, session: u64, _: RequestId, fact: Fact<'_>, _: EngineView, _: Moment) {
        if let Fact::Closed(reason) = fact {
            self.0.sim.borrow_mut().say(|| format!("session {session} is closed: {reason:?}"));
        }
    }
}

/// Client and stream of a target: `/1.4`.
fn place(target: &[u8]) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(target).ok()?.strip_prefix('/')?;
    let (client, stream) = text.split_once('.')?;
    Some((client.parse().ok()?, stream.parse().ok()?))
}

fn push_token(client: usize, stream: usize, fields: &mut Fields) {
    fields.push("T", format!("{client}.{stream}").as_str());
}

/// A task of the driver.
#[derive(Debug)]
struct StreamTask {
    shared: Rc<Shared>,
    id: u64,
    client: usize,
    stream: usize,
    planned: PlannedStream,
    /// How much of the upload has come.
    received: usize,
    /// How much of the answer has been made.
    made: usize,
    /// When it goes on with its answer; `None` before the upload is there.
    next_at: Option<Moment>,
    /// When it takes more of the upload.
    takes_at: Option<Moment>,
    /// Its own deadline, after which it goes on as before: as a program is watched more closely after a while.
    looks_at: Option<Moment>,
    has_head: bool,
    is_cancelled: bool,
    is_over: bool,
}

impl StreamTask {
    /// Goes on after its pause.
    fn pause(&mut self, now: Moment) {
        let at = now + Duration::from_millis(self.planned.script.pause);
        self.next_at = Some(at);
        self.shared.sim.borrow_mut().wake(Actor::Task(self.id), at);
    }

    fn remember(&self, cx: &Context<'_>) {
        self.shared.tasks.borrow_mut().insert(self.id, Some(cx.waker().clone()));
    }
}

impl Work for StreamTask {
    without!(hold, absorb, narrow, stops_with_client, is_service, conclude);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        self.remember(cx);
        let script = self.planned.script.clone();
        self.looks_at = self.looks_at.filter(|at| !at.is_due(now));
        if self.is_cancelled && !self.is_over {
            self.is_over = true;
            return Poll::Ready(if self.has_head {
                Progress::Break
            } else {
                Progress::Fail(Status::SERVICE_UNAVAILABLE)
            });
        }
        let Some(next_at) = self.next_at.filter(|_| !self.is_over) else { return Poll::Pending };
        if !next_at.is_due(now) {
            // An earlier wake-up may have been for something else.
            self.shared.sim.borrow_mut().wake(Actor::Task(self.id), next_at);
            return Poll::Pending;
        }
        if script.ending == Ending::Hang {
            return Poll::Pending;
        }
        if !self.has_head {
            self.has_head = true;
            if script.ending == Ending::Fail {
                self.is_over = true;
                return Poll::Ready(Progress::Fail(Status::BAD_GATEWAY));
            }
            self.pause(now);
            push_token(self.client, self.stream, &mut out.fields);
            let length = script.says_length.then_some(script.body_bytes as u64);
            return Poll::Ready(Progress::Head(Status::OK, length));
        }
        let breaks = script.ending == Ending::Break;
        let all = if breaks { script.body_bytes / 2 } else { script.body_bytes };
        if self.made < all {
            let count = script.piece_bytes.min(all - self.made);
            let (client, stream, from) = (self.client, self.stream, self.made);
            out.body.extend((from..from + count).map(|at| Script::byte(client, stream, at)));
            self.made += count;
            self.pause(now);
            return Poll::Ready(Progress::Body);
        }
        self.is_over = true;
        let looks_whole = self.shared.sim.borrow().has(Fault::StreamBreakLooksWhole);
        Poll::Ready(if breaks && !looks_whole { Progress::Break } else { Progress::Done })
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.looks_at.map(|at| Deadline { at, kind: DeadlineKind::Program })
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        self.is_cancelled = true;
    }
}

impl BodyIn for StreamTask {
    without!(body_sink, direct_bytes_done, return_body);

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        self.remember(cx);
        if let Some(at) = self.takes_at.filter(|at| !at.is_due(now)) {
            self.shared.sim.borrow_mut().wake(Actor::Task(self.id), at);
            return 0;
        }
        let count = bytes.len().min(self.planned.script.takes_max);
        let (client, stream, from) = (self.client, self.stream, self.received);
        let mut sim = self.shared.sim.borrow_mut();
        let is_right = bytes[..count]
            .iter()
            .enumerate()
            .all(|(at, found)| *found == Script::byte(client, stream, from + at));
        sim.demand(is_right, || format!("an upload of client {client} came as another"));
        self.received += count;
        if count < bytes.len() {
            let at = now + Duration::from_millis(5);
            self.takes_at = Some(at);
            sim.wake(Actor::Task(self.id), at);
        }
        count
    }

    fn end_body(&mut self, cx: &mut Context<'_>, now: Moment) {
        self.remember(cx);
        let (all, received) = (self.planned.upload.unwrap_or(0), self.received);
        self.shared.sim.borrow_mut().demand(received == all, || {
            format!("an upload of client {} ends after {received} of {all}", self.client)
        });
        self.pause(now);
    }
}

impl Describe for StreamTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "simulated"
    }
}

impl Drop for StreamTask {
    fn drop(&mut self) {
        let is_forgotten = self.shared.sim.borrow().has(Fault::StreamTaskForgotten);
        if self.is_over || !is_forgotten {
            self.shared.tasks.borrow_mut().remove(&self.id);
        }
    }
}
