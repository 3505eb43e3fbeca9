//! A service at work on a request, and the time that the services of a session may take in one turn: whatever
//! they compute, other sessions have their turn when it is over.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sekisho_lifecycle::Moment;
use sekisho_service::Answer;

use crate::session::Session;

/// So long may a turn take before other sessions have theirs. What runs when it is over is not interrupted.
pub(crate) const TURN_TIME: Duration = Duration::from_micros(500);

/// What is left of a turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    until: Cell<Moment>,
    is_spent: Cell<bool>,
}

impl Turn {
    /// A turn begins.
    pub(crate) fn begin(&self, now: Moment) {
        self.until.set(now + TURN_TIME);
        self.is_spent.set(false);
    }

    /// It is so late now.
    pub(crate) fn note(&self, now: Moment) {
        if self.until.get().is_due(now) {
            self.is_spent.set(true);
        }
    }

    /// Whether nothing more is begun in this turn.
    pub(crate) const fn is_spent(&self) -> bool {
        self.is_spent.get()
    }
}

/// The services of a session that are at work. Many sessions never have one, and hold nothing for it.
#[derive(Default)]
pub(crate) struct Works(Option<Box<FuturesUnordered<Working>>>);

impl Works {
    pub(crate) fn push(&mut self, working: Working) {
        self.0.get_or_insert_default().push(working);
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<<Working as Future>::Output>> {
        self.0.as_mut().map_or(Poll::Ready(None), |works| works.poll_next_unpin(cx))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|works| works.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |works| works.len())
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

/// All others have their turn, and the sockets are looked at, before a session has its next one. Its own services may
/// wake it many times before that.
#[derive(Debug)]
pub(crate) struct Rest {
    is_over: AtomicBool,
    session: Mutex<Waker>,
}

impl Rest {
    /// It begins; when it is over, the task is woken.
    pub(crate) fn begin(cx: &Context<'_>) -> Arc<Self> {
        let session = Mutex::new(cx.waker().clone());
        let rest = Arc::new(Self { is_over: AtomicBool::new(false), session });
        let waker = Waker::from(Arc::clone(&rest));
        // The runtime calls this waker after it has looked at the sockets.
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
        rest
    }

    /// Whether it is not over; then this task is woken when it is.
    pub(crate) fn goes_on(&self, cx: &Context<'_>) -> bool {
        if self.is_over.load(Ordering::Acquire) {
            return false;
        }
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.clone_from(cx.waker());
        drop(session);
        !self.is_over.load(Ordering::Acquire)
    }
}

impl Wake for Rest {
    fn wake(self: Arc<Self>) {
        self.is_over.store(true, Ordering::Release);
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        session.wake();
    }
}

/// A service at work.
pub(crate) struct Working {
    session: Rc<Session>,
    work: Pin<Box<dyn Future<Output = ()>>>,
}

/// How the work of a service ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    InOrder,
    ByPanic,
}

impl Ended {
    pub(crate) fn is_panic(self) -> bool {
        self == Self::ByPanic
    }
}

impl Working {
    pub(crate) fn new(session: &Rc<Session>, work: Pin<Box<dyn Future<Output = ()>>>) -> Self {
        Self { session: Rc::clone(session), work }
    }
}

/// Runs work that blocks on a thread of the runtime's pool.
pub(crate) async fn beside(work: Box<dyn FnOnce() -> Answer + Send>) -> Option<Answer> {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => Some(answer),
        Err(error) => match error.try_into_panic() {
            // It is counted as a panic of the service; the handle that is dropped is an answer (L32).
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends.
            Err(_) => None,
        },
    }
}

impl Future for Working {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let Self { session, work } = self.get_mut();
        if session.turn.is_spent() {
            // It goes on in the next turn.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // A service that panics has dropped its handles, which is an answer (L32); the session goes on.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        session.look_at_clock();
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ended::InOrder),
            Err(_) => Poll::Ready(Ended::ByPanic),
        }
    }
}
