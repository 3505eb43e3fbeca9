//! `proxy_ignore_client_abort`: a request that goes on when its client has gone, until the server has answered.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use sekisho_lifecycle::Moment;
use sekisho_lifecycle::cancel::Cause;

use super::cache::Instead;
use super::task::{Advanced, UpstreamTask};
use crate::task::{BodyIn, Describe, Outbox, Progress, Work, Wrapper};
use crate::{forward, without};

/// A task that is not dropped with its connection.
#[derive(Debug)]
pub(super) struct Steadfast {
    /// `None` only while it is dropped.
    task: Option<Box<UpstreamTask>>,
    is_over: bool,
}

impl Steadfast {
    pub(super) const fn new(task: Box<UpstreamTask>) -> Self {
        Self { task: Some(task), is_over: false }
    }
}

impl Wrapper for Steadfast {
    type Inner = UpstreamTask;

    fn inner(&self) -> Option<&Self::Inner> {
        self.task.as_deref()
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        self.task.as_deref_mut()
    }
}

impl Work for Steadfast {
    forward!(next_deadline, hold, absorb, narrow, is_service, conclude);
    without!(stops_with_client);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        let Some(task) = &mut self.task else { return Poll::Pending };
        let progress = task.poll(cx, out, now);
        self.is_over |= matches!(&progress, Poll::Ready(progress) if is_last(progress));
        progress
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

impl BodyIn for Steadfast {
    forward!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for Steadfast {
    forward!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        self.task.as_deref().map_or("proxy", Describe::name)
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

/// Reads the response to its end without a client. The stored one, if that would be given instead.
pub(super) async fn go_on(
    mut task: Box<UpstreamTask>,
) -> (Box<UpstreamTask>, Option<Box<Instead>>) {
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
        let advanced = poll_fn(|cx| {
            let now = task.now();
            match task.advance(cx, &mut out, now) {
                Poll::Ready(advanced) => Poll::Ready(Some(advanced)),
                Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
            }
        });
        let advanced = advanced.await;
        out.body.clear();
        out.fields.clear();
        match advanced {
            Some(Advanced::ServeStored(instead)) => return (task, Some(instead)),
            Some(Advanced::Progress(progress)) if is_last(&progress) => return (task, None),
            Some(Advanced::Progress(_)) | None => {}
        }
    }
}
