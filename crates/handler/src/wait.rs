//! What a decision waits for: a moment, or a password. Both are tasks of their connection, so that a client
//! that goes is noticed at once, and nothing is left behind (L12).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_config::Level;
use sekisho_http::Status;
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

use crate::password::{PasswordQuery, Worked};
use crate::task::{Outbox, Progress, Task};

/// How many passwords may wait to be computed; more are answered with 503.
const QUEUE_MAX: usize = 1000;
/// How long one may take, waiting included.
const PASSWORD_LIMIT: Duration = Duration::from_mins(1);
/// How many are computed at once, however many cores there are.
const AT_ONCE_MAX: usize = 4;

/// A task that waits until a moment.
#[derive(Debug)]
pub struct Delay {
    until: Moment,
    is_cancelled: bool,
}

impl Delay {
    /// Waits until then.
    pub fn until(until: Moment) -> Box<dyn Task> {
        Box::new(Self { until, is_cancelled: false })
    }
}

impl Task for Delay {
    fn name(&self) -> &'static str {
        "delay"
    }

    fn take(&mut self, _: &mut Context<'_>, _: &[u8], _: Moment) -> usize {
        0
    }

    fn poll(&mut self, _: &mut Context<'_>, _: &mut Outbox, now: Moment) -> Poll<Progress> {
        if self.is_cancelled {
            Poll::Ready(Progress::Fail(Status::SERVICE_UNAVAILABLE))
        } else if self.until.is_due(now) {
            Poll::Ready(Progress::Again)
        } else {
            // The session's own timer comes back at the deadline.
            Poll::Pending
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        Some(Deadline { at: self.until, kind: DeadlineKind::Wait })
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        self.is_cancelled = true;
    }
}

/// Who computes passwords: few at once in the whole server, so that its cores are left to those who have
/// passed. Others wait in their order.
#[derive(Debug)]
pub struct Hashers {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Default for Hashers {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let permits = cores.div_ceil(2).min(AT_ONCE_MAX);
        Self { permits: Arc::new(Semaphore::new(permits)), waiting: AtomicUsize::new(0) }
    }
}

impl Hashers {
    /// How many wait or are computed.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// What answering a question needs of the worker around it.
pub trait PasswordContext: fmt::Debug {
    /// Remembers what came of it.
    fn keep(&self, worked: Worked);
    /// Writes a line about the request into its error log.
    fn report(&self, level: Level, message: fmt::Arguments<'_>);
}

/// A task that answers a question about a password.
pub struct PasswordTask {
    context: Rc<dyn PasswordContext>,
    work: Pin<Box<dyn Future<Output = Result<Worked, JoinError>>>>,
    until: Moment,
    is_cancelled: bool,
    /// Counts it among those who wait, until it is dropped.
    _waiting: Waiting,
}

struct Waiting(Arc<Hashers>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for PasswordTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordTask").field("until", &self.until).finish_non_exhaustive()
    }
}

impl PasswordTask {
    /// Begins to answer; an error (503) when too many wait already.
    pub fn start(
        hashers: &Arc<Hashers>,
        question: PasswordQuery,
        context: Rc<dyn PasswordContext>,
        now: Moment,
    ) -> Result<Box<dyn Task>, Status> {
        let before = hashers.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(Arc::clone(hashers));
        if before >= QUEUE_MAX {
            context.report(Level::Error, format_args!("too many passwords wait to be checked"));
            return Err(Status::SERVICE_UNAVAILABLE);
        }
        let permits = Arc::clone(&hashers.permits);
        let work = Box::pin(async move {
            // The semaphore is never closed; whoever gets none computes all the same.
            let permit = permits.acquire_owned().await;
            spawn_blocking(move || {
                let worked = question.work();
                drop(permit);
                worked
            })
            .await
        });
        let until = now + PASSWORD_LIMIT;
        Ok(Box::new(Self { context, work, until, is_cancelled: false, _waiting: waiting }))
    }
}

impl Task for PasswordTask {
    fn name(&self) -> &'static str {
        "password"
    }

    fn take(&mut self, _: &mut Context<'_>, _: &[u8], _: Moment) -> usize {
        0
    }

    fn poll(&mut self, cx: &mut Context<'_>, _: &mut Outbox, now: Moment) -> Poll<Progress> {
        if self.is_cancelled {
            return Poll::Ready(Progress::Fail(Status::SERVICE_UNAVAILABLE));
        }
        match self.work.as_mut().poll(cx) {
            Poll::Ready(Ok(worked)) => {
                self.context.keep(worked);
                Poll::Ready(Progress::Again)
            }
            Poll::Ready(Err(error)) => {
                self.context
                    .report(Level::Crit, format_args!("checking a password failed: {error}"));
                Poll::Ready(Progress::Fail(Status::INTERNAL_SERVER_ERROR))
            }
            Poll::Pending if self.until.is_due(now) => {
                self.context
                    .report(Level::Error, format_args!("checking a password took too long"));
                Poll::Ready(Progress::Fail(Status::SERVICE_UNAVAILABLE))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        Some(Deadline { at: self.until, kind: DeadlineKind::Wait })
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        self.is_cancelled = true;
    }
}
