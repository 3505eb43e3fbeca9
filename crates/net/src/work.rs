//! A task at work on a request: its input is the request's body, its output the response.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::{Level, LocationId};
use sekisho_handler::Progress;
use sekisho_handler::cgi::{HandlerContext, ProcessSlots, Runs};
use sekisho_handler::task::BodySink;
use sekisho_http::{Head, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{DeadlineKind, Moment};
use sekisho_route::{Handover, RequestIdSeed};

use crate::dispatch::RouteInput;
use crate::error_context::{Client, ErrorContext, RequestText};
use crate::exchange::Exchange;
use crate::link::Link;
use crate::worker::{BoundSite, Worker};

/// What a handler needs of the worker, and the request that it works for.
#[derive(Debug)]
pub(crate) struct WorkerContext {
    pub(crate) worker: Rc<Worker>,
    pub(crate) bound_site: Rc<BoundSite>,
    pub(crate) location: LocationId,
    pub(crate) connection: u64,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) request_id: RequestIdSeed,
    /// The head of the request; `None` where bytes are passed on as they are.
    pub(crate) head: Option<Rc<Head>>,
}

impl WorkerContext {
    fn write(
        &self,
        level: Level,
        message: fmt::Arguments<'_>,
        upstream: Option<fmt::Arguments<'_>>,
    ) {
        let stamp = self.worker.clock.stamp(self.now());
        let logger = self.bound_site.site.error_logger(self.location);
        let Some(head) = &self.head else {
            let (client, RequestIdSeed(id)) = (Client(self.remote), self.request_id);
            let message = match upstream {
                Some(upstream) => format!("{message}, {client}, upstream: \"{upstream}\""),
                None => format!("{message}, {client}"),
            };
            let message = format_args!("{message}, request id: {id:032x}");
            return logger.write(level, stamp, Some(self.connection), message);
        };
        let table = self.bound_site.site.table();
        let about = ErrorContext {
            client: self.remote,
            server: table.server(table.location(self.location).server),
            request: RequestText::of(head),
            upstream,
            id: Some(self.request_id),
        };
        logger.write(level, stamp, Some(self.connection), format_args!("{message}, {about}"));
    }
}

impl HandlerContext for WorkerContext {
    fn now(&self) -> Moment {
        self.worker.clock.now()
    }

    fn wall_secs(&self) -> i64 {
        self.worker.clock.stamp(self.now()).unix_secs
    }

    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        self.write(level, message, None);
    }

    fn report_upstream(
        &self,
        level: Level,
        message: fmt::Arguments<'_>,
        upstream: fmt::Arguments<'_>,
    ) {
        self.write(level, message, Some(upstream));
    }

    fn denial_hint(&self, errno: rustix::io::Errno) -> String {
        self.worker.denial_hint(errno)
    }

    fn runs(&self) -> &Runs {
        &self.worker.runs
    }

    fn process_slots(&self) -> &Arc<ProcessSlots> {
        &self.worker.shared.process_slots
    }

    fn table(&self) -> Arc<sekisho_route::Table> {
        self.bound_site.site.shared_table()
    }

    fn ended_alone(&self) {
        self.worker.vacated.notify_waiters();
    }

    fn expired(&self, kind: DeadlineKind) {
        self.worker.shared.counters.expire(kind);
    }
}

impl Exchange {
    /// Hands body bytes to the task and says how many it took; the rest waits, and is to hold the client back.
    pub(crate) fn offer_body(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        let Some(task) = &mut self.task else { return bytes.len() };
        let taken = if self.body.is_empty() { task.take(cx, bytes, now) } else { 0 };
        self.body.extend_from_slice(&bytes[taken..]);
        taken
    }

    /// The request body is complete; the task is told when it has taken all of it.
    pub(crate) fn end_body(&mut self, cx: &mut Context<'_>, now: Moment) {
        self.has_body_ended = true;
        if let Some(task) = self.task.as_mut().filter(|_| self.body.is_empty()) {
            task.end_body(cx, now);
        }
    }

    /// Its own deadline is due: the task acts, whether or not there is room for what it makes. Whether anything
    /// happened.
    pub(crate) fn expire(&mut self, cx: &mut Context<'_>, link: &mut Link, now: Moment) -> bool {
        let Some(task) = &mut self.task else { return false };
        match task.poll(cx, &mut self.outbox, now) {
            Poll::Ready(progress) => {
                self.progress(link, progress, now);
                true
            }
            Poll::Pending if task.next_deadline().is_some_and(|it| it.at.is_due(now)) => {
                // A task that lets its deadline stand would be called for ever: a mistake of ours.
                debug_assert!(false, "{} does not act on its deadline", task.name());
                self.drop_task();
                self.fail_task(link, Status::GATEWAY_TIMEOUT, now);
                true
            }
            Poll::Pending => false,
        }
    }

    fn fail_task(&mut self, link: &mut Link, status: Status, now: Moment) {
        if self.head_bytes > 0 {
            self.break_off(link, now);
        } else {
            self.answer(link, RouteInput::Failed(status), now);
        }
    }

    /// Tells the task whether the client takes what it makes.
    pub(crate) fn hold_task(&mut self, is_held: bool, now: Moment) {
        if self.is_task_held != is_held
            && let Some(task) = &mut self.task
        {
            self.is_task_held = is_held;
            task.hold(is_held, now);
        }
    }

    /// Lets the task go on as far as it can; whether anything happened. Where the transport takes nothing, a little
    /// more may wait.
    pub(crate) fn work(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Link,
        is_blocked: bool,
        now: Moment,
    ) -> bool {
        if self.task.is_none() {
            return false;
        }
        let mut happened = false;
        self.hold_task(!self.pieces.is_empty(), now);
        // What was made before has to leave first.
        while link.has_room(is_blocked) && self.pieces.is_empty() {
            happened |= self.drain_body(cx, link, now);
            let Some(task) = &mut self.task else { return happened };
            if task.is_service() {
                link.worker.native.has_service_worked.set(true);
            }
            match task.poll(cx, &mut self.outbox, now) {
                Poll::Pending => return happened,
                Poll::Ready(progress) => self.progress(link, progress, now),
            }
            happened = true;
        }
        if !self.pieces.is_empty() {
            self.absorb(cx, now);
        }
        happened
    }

    /// Lets the task go on with its source while the client takes nothing.
    pub(crate) fn absorb(&mut self, cx: &mut Context<'_>, now: Moment) {
        if let Some(task) = &mut self.task {
            task.absorb(cx, now);
        }
    }

    /// Offers the task what it could not take before, or lets it have more where there is room again.
    fn drain_body(&mut self, cx: &mut Context<'_>, link: &mut Link, now: Moment) -> bool {
        let Some(task) = &mut self.task else { return false };
        if self.awaits_room && !matches!(task.body_sink(cx), BodySink::Memory([])) {
            self.awaits_room = false;
            link.protocol.hold_body(self.id, false, now);
            return true;
        }
        if self.take_due_end() {
            if let Some(task) = &mut self.task {
                task.end_body(cx, now);
            }
            return true;
        }
        if self.body.is_empty() {
            return false;
        }
        let Some(task) = &mut self.task else { return false };
        let taken = task.take(cx, &self.body, now);
        self.body.drain(..taken);
        let credit = self.client_body.new_credit(taken);
        let (protocol, buffers) = link.parts();
        protocol.consumed(self.id, credit, &mut buffers.scratch, now);
        if self.body.is_empty() {
            link.protocol.hold_body(self.id, false, now);
            if self.has_body_ended {
                task.end_body(cx, now);
            }
        }
        taken > 0
    }

    fn progress(&mut self, link: &mut Link, progress: Progress, now: Moment) {
        let input = match progress {
            Progress::Head(status, length) => {
                return self.send_task_head(link, status, length, now);
            }
            Progress::Informational(status) => {
                let (protocol, buffers) = link.parts();
                protocol.inform(self.id, status, &self.outbox.fields, &mut buffers.scratch, now);
                self.outbox.fields.clear();
                return;
            }
            Progress::Upgrade(protocol) => {
                if self.send_upgrade(link, &protocol, now) {
                    return;
                }
                RouteInput::Failed(Status::BAD_GATEWAY)
            }
            Progress::Body => return self.send_made(link, now),
            Progress::Done => {
                self.plain_bytes = self.task.as_ref().and_then(|task| task.plain_bytes());
                self.drop_task();
                if self.pieces.is_empty() {
                    self.finish(link, now);
                }
                return;
            }
            Progress::Break => {
                self.drop_task();
                return self.break_off(link, now);
            }
            Progress::Fail(status) => RouteInput::Failed(status),
            Progress::Redirect(target) => RouteInput::Instead(Handover::Location, target),
            Progress::HandOver(target) => {
                // It comes before what the other location says.
                self.route.limit_rate = self.outbox.limit_rate.take().or(self.route.limit_rate);
                RouteInput::Instead(Handover::Accel, target)
            }
            Progress::Again => {
                if let Some(task) = &mut self.task {
                    task.conclude(&mut self.route);
                }
                RouteInput::Again
            }
        };
        self.recover_body(link, now);
        self.drop_task();
        self.answer(link, input, now);
    }

    /// The running request is to end: its task is told, and still gives one answer (L31). Returns whether
    /// there was a task.
    pub(crate) fn cancel_task(&mut self, cause: Cause, now: Moment) -> bool {
        let is_there = self.task.is_some();
        if let Some(task) = &mut self.task {
            task.cancel(cause, now);
        }
        is_there
    }
}
