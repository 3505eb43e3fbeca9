//! What a decision waits for: a moment, or a password. Both are tasks of their connection, so that a client
//! that goes is noticed at once, and nothing is left behind (L12).

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_config::Level;
use sekisho_http::Status;
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment};
use tokio::sync::oneshot;
use tokio::task::{JoinError, spawn_blocking};

use crate::address::Address;
use crate::password::turns::{Remembered, Turns};
use crate::password::{PasswordQuery, Worked};
use crate::task::{BodyIn, Describe, Outbox, Progress, Task, Work};
use crate::without;

/// How many passwords may wait to be computed, and how many of one address; more are answered with 503.
const QUEUE_MAX: usize = 1000;
const ADDRESS_QUEUE_MAX: usize = 400;
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

impl Work for Delay {
    without!(hold, absorb, narrow, stops_with_client, is_service, conclude);

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

impl BodyIn for Delay {
    without!(body_sink, direct_bytes_done, end_body, return_body);

    fn take(&mut self, _: &mut Context<'_>, _: &[u8], _: Moment) -> usize {
        0
    }
}

impl Describe for Delay {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "delay"
    }
}

/// The threads that compute password hashes: few at once in the whole server, so that its cores are left to
/// requests that have passed. Others wait for their turn ([`Turns`]).
#[derive(Debug)]
pub struct Hashers(Mutex<Queue>);

#[derive(Debug)]
struct Queue {
    /// How many more hashes may be computed at the same time.
    free: usize,
    turns: Turns<oneshot::Sender<Permit>>,
    waiting: usize,
    remembered: Remembered,
}

impl Default for Hashers {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let free = cores.div_ceil(2).min(AT_ONCE_MAX);
        let (turns, remembered) = (Turns::default(), Remembered::default());
        Self(Mutex::new(Queue { free, turns, waiting: 0, remembered }))
    }
}

impl Hashers {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the queue; `None` when too many wait, of all or of this address.
    fn enter(self: &Arc<Self>, address: Option<Address>, user: &[u8], now: Moment) -> Option<Turn> {
        let mut queue = self.queue();
        let hashers = Arc::clone(self);
        if queue.free > 0 {
            queue.free -= 1;
            return Some(Turn::Now(Permit(hashers)));
        }
        if queue.waiting >= QUEUE_MAX || queue.turns.of_address(address) >= ADDRESS_QUEUE_MAX {
            return None;
        }
        let is_first = queue.remembered.has(address, user, now);
        let (sender, receiver) = oneshot::channel();
        let number = queue.turns.push(address, is_first, sender);
        queue.waiting += 1;
        Some(Turn::Later(Waiting { hashers, address, number, receiver }))
    }
}

/// The right to compute one, which goes to the next when this is dropped.
#[derive(Debug)]
struct Permit(Arc<Hashers>);

impl Drop for Permit {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        let next = queue.turns.pop();
        if next.is_none() {
            queue.free += 1;
        }
        drop(queue);
        if let Some(next) = next {
            // A request that has just ended drops it, and it goes on to the next.
            let _ = next.send(Self(Arc::clone(&self.0)));
        }
    }
}

/// When a password is computed.
enum Turn {
    Now(Permit),
    Later(Waiting),
}

impl Turn {
    async fn come(self) -> Option<Permit> {
        match self {
            Self::Now(permit) => Some(permit),
            // A sender is only dropped with its waiter.
            Self::Later(mut waiting) => (&mut waiting.receiver).await.ok(),
        }
    }
}

/// An entry in the queue, until this is dropped.
struct Waiting {
    hashers: Arc<Hashers>,
    address: Option<Address>,
    number: u64,
    receiver: oneshot::Receiver<Permit>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut queue = self.hashers.queue();
        queue.waiting -= 1;
        queue.turns.remove(self.address, self.number);
    }
}

/// Checks a password when its turn has come; `None` when too many wait already.
pub fn check_password(
    hashers: &Arc<Hashers>,
    question: PasswordQuery,
    remote: Option<IpAddr>,
    now: Moment,
) -> Option<impl Future<Output = Result<Worked, JoinError>> + use<>> {
    let address = remote.map(Address::from);
    let user = question.user().to_vec();
    let turn = hashers.enter(address, &user, now)?;
    let hashers = Arc::clone(hashers);
    Some(async move {
        let permit = turn.come().await;
        let worked = spawn_blocking(move || {
            let worked = question.work();
            drop(permit);
            worked
        })
        .await?;
        if worked.is_right() {
            hashers.queue().remembered.keep(address, &user, now);
        }
        Ok(worked)
    })
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
        remote: Option<IpAddr>,
        context: Rc<dyn PasswordContext>,
        now: Moment,
    ) -> Result<Box<dyn Task>, Status> {
        let Some(work) = check_password(hashers, question, remote, now) else {
            context.report(Level::Error, format_args!("too many password checks are waiting"));
            return Err(Status::SERVICE_UNAVAILABLE);
        };
        let until = now + PASSWORD_LIMIT;
        Ok(Box::new(Self { context, work: Box::pin(work), until, is_cancelled: false }))
    }
}

impl Work for PasswordTask {
    without!(hold, absorb, narrow, stops_with_client, is_service, conclude);

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

impl BodyIn for PasswordTask {
    without!(body_sink, direct_bytes_done, end_body, return_body);

    fn take(&mut self, _: &mut Context<'_>, _: &[u8], _: Moment) -> usize {
        0
    }
}

impl Describe for PasswordTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "password"
    }
}
