//! A request whose body is read before its handler is started, as what the handler is given depends on it
//! (`$request_body`, `$request_body_file`).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::{Level, Settings};
use sekisho_handler::disk;
use sekisho_handler::request_body::{Gathered, RequestBody};
use sekisho_handler::task::ReturnedBody;
use sekisho_handler::{BodyIn, Describe, Outbox, Progress, Task, Work, Wrapper, forward, without};
use sekisho_http::Status;
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::cancel::Cause;
use sekisho_route::RouteState;
use sekisho_route::body_facts::BodyFacts;

use super::RequestTree;
use crate::dispatch::Starting;
use crate::exchange::Waited;

/// Reads the body, then starts the handler and is what that is.
#[derive(Debug)]
pub(crate) struct BodyFirstTask {
    tree: Rc<RequestTree>,
    route: Box<RouteState>,
    asked: Waited,
    /// `cgi`; otherwise another server.
    is_program: bool,
    stage: Stage,
    /// The body, unless the handler has taken it: a file is there until the request is over.
    kept: RefCell<Option<Gathered>>,
}

#[derive(Debug)]
enum Stage {
    Reading(RequestBody),
    Started(Box<dyn Task>),
    Failed(Progress),
}

impl BodyFirstTask {
    /// Begins to read.
    pub(crate) fn start(
        starting: &Starting<'_>,
        is_program: bool,
        settings: &Settings,
    ) -> Box<dyn Task> {
        let Starting { worker, accepted, request, head, route, asked, .. } = *starting;
        Box::new(Self {
            tree: RequestTree::new(worker, accepted, request, head),
            route: Box::new(route.clone()),
            asked,
            is_program,
            stage: Stage::Reading(RequestBody::of(settings, starting.body.1)),
            kept: RefCell::default(),
        })
    }

    fn begin(&mut self, gathered: Gathered, out: &mut Outbox, now: Moment) -> Stage {
        self.route.body = match &gathered {
            Gathered::Memory(bytes, _) => {
                BodyFacts { bytes: Some(Arc::new(bytes.clone())), file: None }
            }
            Gathered::File(file) => BodyFacts { bytes: None, file: file.name().cloned() },
        };
        let length = gathered.len();
        *self.kept.borrow_mut() = Some(gathered);
        let request = self.tree.view(now);
        let starting = Starting {
            worker: &self.tree.worker,
            accepted: &self.tree.accepted,
            request: &request,
            head: &self.tree.head,
            route: &self.route,
            asked: self.asked,
            body: (true, Some(length)),
            gathered: Some(&self.kept),
            question: None,
            within: None,
            now,
        };
        let started = if self.is_program {
            starting.cgi(&mut out.fields)
        } else {
            starting.pass(&mut out.fields)
        };
        started.map_or_else(|status| Stage::Failed(Progress::Fail(status)), Stage::Started)
    }

    fn lose_body(&mut self, error: &std::io::Error) {
        let message = format_args!("cannot buffer a request body: {error}");
        self.tree.report(&self.route, Level::Crit, message);
        let is_busy = disk::is_busy(error);
        let busy = Status::SERVICE_UNAVAILABLE;
        let status = if is_busy { busy } else { Status::INTERNAL_SERVER_ERROR };
        self.stage = Stage::Failed(Progress::Fail(status));
    }
}

impl Wrapper for BodyFirstTask {
    type Inner = dyn Task;

    fn inner(&self) -> Option<&Self::Inner> {
        match &self.stage {
            Stage::Started(task) => Some(&**task),
            Stage::Reading(_) | Stage::Failed(_) => None,
        }
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        match &mut self.stage {
            Stage::Started(task) => Some(&mut **task),
            Stage::Reading(_) | Stage::Failed(_) => None,
        }
    }
}

impl Work for BodyFirstTask {
    forward!(next_deadline, hold, absorb, narrow, is_service, conclude);

    fn stops_with_client(&self) -> bool {
        self.inner().is_none_or(Work::stops_with_client)
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        if let Stage::Reading(body) = &mut self.stage {
            match body.poll_gathered(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(gathered)) => self.stage = self.begin(gathered, out, now),
                Poll::Ready(Err(error)) => self.lose_body(&error),
            }
        }
        match &mut self.stage {
            Stage::Started(task) => task.poll(cx, out, now),
            Stage::Failed(progress) => {
                if matches!(progress, Progress::Fail(Status::SERVICE_UNAVAILABLE)) {
                    out.fields.push("Retry-After", disk::RETRY_AFTER);
                }
                Poll::Ready(std::mem::replace(progress, Progress::Break))
            }
            Stage::Reading(_) => Poll::Pending,
        }
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        match &mut self.stage {
            Stage::Started(task) => task.cancel(cause, now),
            Stage::Reading(_) | Stage::Failed(_) => {
                let is_lost = cause == Cause::ClientLost;
                let status = Status::SERVICE_UNAVAILABLE;
                self.stage =
                    Stage::Failed(if is_lost { Progress::Break } else { Progress::Fail(status) });
            }
        }
    }
}

impl BodyIn for BodyFirstTask {
    without!(body_sink, direct_bytes_done);

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        match &mut self.stage {
            Stage::Reading(body) => body.take(cx, bytes).unwrap_or_else(|error| {
                self.lose_body(&error);
                cx.waker().wake_by_ref();
                bytes.len()
            }),
            Stage::Started(task) => task.take(cx, bytes, now),
            Stage::Failed(_) => bytes.len(),
        }
    }

    fn end_body(&mut self, cx: &mut Context<'_>, now: Moment) {
        match &mut self.stage {
            Stage::Reading(body) => {
                body.end();
                cx.waker().wake_by_ref();
            }
            Stage::Started(task) => task.end_body(cx, now),
            Stage::Failed(_) => {}
        }
    }

    fn return_body(&mut self) -> ReturnedBody {
        match (self.kept.take(), &mut self.stage) {
            (Some(body), _) => ReturnedBody::Whole(body),
            (None, Stage::Started(task)) => task.return_body(),
            (None, Stage::Reading(_) | Stage::Failed(_)) => ReturnedBody::Lost,
        }
    }
}

impl Describe for BodyFirstTask {
    forward!(plain_bytes, upstream_view, describe_upstream, describe_subrequests);

    fn name(&self) -> &'static str {
        self.inner().map_or("body", Describe::name)
    }

    fn describe_body(&self, facts: &mut BodyFacts) {
        if self.route.body != BodyFacts::default() {
            facts.clone_from(&self.route.body);
        }
    }
}
