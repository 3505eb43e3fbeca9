//! How a session is woken by what works for it: a task's pipe or timer, another thread. Only a session with a
//! request in work has a waker; an idle one is woken by its socket, its deadline or an order, which all know
//! its slot.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};

use crate::session::Token;

/// The sessions of a worker that were woken and have not run since. The event loop takes the lock only where there are some.
#[derive(Debug, Default)]
pub(crate) struct WakeQueue {
    woken: Mutex<Vec<Token>>,
    /// Whether a session was woken since the last collection.
    is_any: AtomicBool,
    /// The event loop collects before it waits: it need not be woken.
    will_collect: AtomicBool,
    /// Wakes the event loop, which is one task with one waker.
    loop_waker: OnceLock<Waker>,
}

impl WakeQueue {
    /// Moves the woken sessions to `to`. From here on the event loop is woken for the next.
    pub(crate) fn collect(&self, loop_waker: &Waker, to: &mut Vec<Token>) {
        self.loop_waker.get_or_init(|| loop_waker.clone());
        // In one order with `enqueue`: a session is found here, or wakes the loop.
        self.will_collect.store(false, Ordering::SeqCst);
        if self.is_any.load(Ordering::SeqCst) {
            let mut woken = self.lock();
            self.is_any.store(false, Ordering::SeqCst);
            to.append(&mut woken);
        }
    }

    /// The event loop is about to look: until it has collected, it need not be woken.
    pub(crate) fn begin_look(&self) {
        self.will_collect.store(true, Ordering::Relaxed);
    }

    fn enqueue(&self, token: Token) {
        let mut woken = self.lock();
        woken.push(token);
        let is_first = !self.is_any.swap(true, Ordering::SeqCst);
        drop(woken);
        if is_first
            && !self.will_collect.load(Ordering::SeqCst)
            && let Some(loop_waker) = self.loop_waker.get()
        {
            loop_waker.wake_by_ref();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Token>> {
        // Nothing that holds the lock can panic half-way.
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct WakeState {
    wake_queue: Arc<WakeQueue>,
    token: AtomicU64,
    is_woken: AtomicBool,
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.wake_queue.enqueue(Token::from_bits(self.token.load(Ordering::Acquire)));
        }
    }
}

/// The waker of a session.
#[derive(Debug)]
pub(crate) struct SessionWaker {
    state: Arc<WakeState>,
    waker: Waker,
}

impl SessionWaker {
    /// A new waker that enters sessions into this queue.
    pub(crate) fn new(wake_queue: &Arc<WakeQueue>) -> Self {
        let state = Arc::new(WakeState {
            wake_queue: Arc::clone(wake_queue),
            token: AtomicU64::new(0),
            is_woken: AtomicBool::new(false),
        });
        Self { waker: Waker::from(Arc::clone(&state)), state }
    }

    /// From now on it wakes this session. A late wake for the session that had it before wakes this one for
    /// nothing, which does no harm.
    pub(crate) fn hold(&self, token: Token) {
        self.state.token.store(token.bits(), Ordering::Release);
        self.state.is_woken.store(false, Ordering::Release);
    }

    /// The waker for tasks and threads that work for the session.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Key;

    #[test]
    fn a_session_is_woken_once_for_many_wakes_and_again_after_its_turn() {
        let wake_queue = Arc::new(WakeQueue::default());
        let session_waker = SessionWaker::new(&wake_queue);
        let (first, second) = (Token::new(Key::new(3), 7), Token::new(Key::new(4), 8));
        session_waker.hold(first);
        session_waker.waker().wake_by_ref();
        session_waker.waker().wake_by_ref();
        let mut woken = Vec::new();
        wake_queue.collect(Waker::noop(), &mut woken);
        assert_eq!(woken, [first]);
        session_waker.waker().wake_by_ref();
        session_waker.hold(second);
        session_waker.waker().wake_by_ref();
        woken.clear();
        wake_queue.collect(Waker::noop(), &mut woken);
        assert_eq!(woken, [second], "the first session had its last wake already");
    }

    #[test]
    fn the_event_loop_is_woken_by_another_thread() {
        #[derive(Default)]
        struct Consumer(AtomicBool);
        impl Wake for Consumer {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Release);
            }
        }
        let (wake_queue, loop_waker) =
            (Arc::new(WakeQueue::default()), Arc::new(Consumer::default()));
        wake_queue.collect(&Waker::from(Arc::clone(&loop_waker)), &mut Vec::new());
        let session_waker = SessionWaker::new(&wake_queue);
        session_waker.hold(Token::new(Key::new(0), 1));
        let waker = session_waker.waker().clone();
        std::thread::spawn(move || waker.wake()).join().expect("it wakes");
        assert!(loop_waker.0.swap(false, Ordering::AcqRel));
        let (other, waker) = (SessionWaker::new(&wake_queue), Waker::noop());
        other.hold(Token::new(Key::new(1), 2));
        let mut woken = Vec::new();
        wake_queue.collect(waker, &mut woken);
        wake_queue.begin_look();
        other.waker().wake_by_ref();
        assert!(!loop_waker.0.load(Ordering::Acquire), "it collects anyway");
        wake_queue.collect(waker, &mut woken);
        assert_eq!(woken.len(), 2);
    }
}
