//! `proxy_ignore_client_abort`: a request that goes on when its client has gone, until the server has answered.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment};
use sekisho_route::body_facts::BodyFacts;
use sekisho_route::upstream_facts::UpstreamFacts;

use super::task::UpstreamTask;
use crate::task::{Outbox, Progress, ReturnedBody, Task, UpstreamView};

/// A task that is not dropped with its connection.
#[derive(Debug)]
pub(super) struct Steadfast {
    /// `None` only while it is dropped.
    task: Option<UpstreamTask>,
    is_over: bool,
}

impl Steadfast {
    pub(super) const fn new(task: UpstreamTask) -> Self {
        Self { task: Some(task), is_over: false }
    }
}

impl Task for Steadfast {
    fn name(&self) -> &'static str {
        self.task.as_ref().map_or("proxy", Task::name)
    }

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        self.task.as_mut().map_or(bytes.len(), |task| task.take(cx, bytes, now))
    }

    fn end_body(&mut self, cx: &mut Context<'_>, now: Moment) {
        if let Some(task) = &mut self.task {
            task.end_body(cx, now);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        let Some(task) = &mut self.task else { return Poll::Pending };
        let progress = task.poll(cx, out, now);
        self.is_over |= matches!(&progress, Poll::Ready(progress) if is_last(progress));
        progress
    }

    fn absorb(&mut self, cx: &mut Context<'_>, now: Moment) {
        if let Some(task) = &mut self.task {
            task.absorb(cx, now);
        }
    }

    fn hold(&mut self, is_held: bool, now: Moment) {
        if let Some(task) = &mut self.task {
            task.hold(is_held, now);
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.task.as_ref().and_then(Task::next_deadline)
    }

    fn upstream_view(&self, now: Moment) -> Option<UpstreamView> {
        self.task.as_ref().and_then(|task| task.upstream_view(now))
    }

    fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        if let Some(task) = &self.task {
            task.describe_upstream(facts);
        }
    }

    fn describe_body(&self, facts: &mut BodyFacts) {
        if let Some(task) = &self.task {
            task.describe_body(facts);
        }
    }

    fn return_body(&mut self) -> ReturnedBody {
        self.task.as_mut().map_or(ReturnedBody::Lost, Task::return_body)
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        if cause == Cause::ClientLost {
            return;
        }
        self.is_over = true;
        if let Some(task) = &mut self.task {
            task.cancel(cause, now);
        }
    }
}

impl Drop for Steadfast {
    fn drop(&mut self) {
        if let Some(task) = self.task.take()
            && !self.is_over
            && task.has_request()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            tokio::task::spawn_local(async move { drop(go_on(task).await) });
        }
    }
}

pub(super) const fn is_last(progress: &Progress) -> bool {
    !matches!(
        progress,
        Progress::Head(..) | Progress::Informational(_) | Progress::Body | Progress::Upgrade(_)
    )
}

/// Reads the answer to its end without a client.
pub(super) async fn go_on(mut task: UpstreamTask) -> UpstreamTask {
    let mut out = Outbox::default();
    task.hold(false, task.now());
    loop {
        let wait = task.next_deadline().map(|deadline| deadline.at.since(task.now()));
        let mut timer = pin!(async {
            match wait {
                Some(length) => tokio::time::sleep(length).await,
                None => std::future::pending().await,
            }
        });
        let progress = poll_fn(|cx| {
            let now = task.now();
            match task.poll(cx, &mut out, now) {
                Poll::Ready(progress) => Poll::Ready(Some(progress)),
                Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
            }
        });
        let progress = progress.await;
        out.body.clear();
        out.fields.clear();
        if progress.is_some_and(|progress| is_last(&progress)) {
            return task;
        }
    }
}
