//! When the writing thread works and when it sleeps.
//!
//! It is woken for the first lines after a quiet time, and writes them at once. When that has happened
//! [`AT_ONCE_MAX`] times, it looks again every [`PAUSE`] by itself, for as long as it finds lines: under load
//! no worker has to wake it, and many lines are one write. Under little load a line is in its file as soon as
//! the answer has left, which scripts that read a log after a request rely on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the thread waits after it has written, so that the next lines are written together. Also how late a line
/// may be.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// So often lines are written at once before the thread pauses to let more come together.
const AT_ONCE_MAX: u32 = 64;

/// Bounds how often the thread is woken for few lines.
#[derive(Debug)]
pub(crate) struct AtOnce {
    left: u32,
}

impl AtOnce {
    pub(crate) const fn new() -> Self {
        Self { left: AT_ONCE_MAX }
    }

    /// Something has been written: whether the next lines may be written at once, too.
    pub(crate) const fn admit(&mut self) -> bool {
        let is_admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_admitted
    }

    /// A pause has brought nothing: there is little load.
    pub(crate) const fn restore(&mut self) {
        if self.left == 0 {
            self.left = AT_ONCE_MAX;
        }
    }
}

/// Wakes the writing thread.
#[derive(Debug)]
pub(crate) struct Wakeup {
    /// The thread will look at every queue before it sleeps: it need not be woken. At the start it is about to.
    is_awake: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_called: bool,
    is_over: bool,
    /// The shortest flush time of a buffered sink: the thread then wakes up by itself.
    flush: Option<Duration>,
    /// For how long the thread has been awake since it last wrote everything, its pauses taken together.
    awake_for: Duration,
}

/// What the thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Write what is more than its sink wants to hold back.
    WriteDue,
    /// Write everything.
    WriteAll,
    /// Write everything and end.
    End,
}

impl Wakeup {
    pub(crate) const fn new() -> Self {
        let state =
            State { is_called: false, is_over: false, flush: None, awake_for: Duration::ZERO };
        Self { is_awake: AtomicBool::new(true), state: Mutex::new(state), changed: Condvar::new() }
    }

    /// There are new lines in a queue, put there before this call. Nothing more than a look where the thread is
    /// awake.
    pub(crate) fn note_lines(&self) {
        // The thread sets its flag and then looks at the queues under their locks. If it did not see these
        // lines, it had locked the queue before they were put there, and its flag is visible here.
        if !self.is_awake.load(Ordering::Acquire) {
            self.call();
        }
    }

    /// Makes the thread look now, without a pause.
    pub(crate) fn call(&self) {
        let mut state = self.lock();
        if !state.is_called {
            state.is_called = true;
            self.changed.notify_one();
        }
    }

    /// The thread shall write what is left, and end.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// A sink whose lines may wait so long has been opened.
    pub(crate) fn flush_every(&self, flush: Duration) {
        let mut state = self.lock();
        state.flush = Some(state.flush.map_or(flush, |other| other.min(flush)));
    }

    /// Lets more lines come together after some have been written.
    pub(crate) fn pause(&self) -> Next {
        let wait = self.changed.wait_timeout_while(self.lock(), PAUSE, State::is_calm);
        let (mut state, _) = wait.unwrap_or_else(PoisonError::into_inner);
        state.awake_for += PAUSE;
        self.next(state, false)
    }

    /// Sleeps until there are lines that are due: `has_due` says whether there are, once more.
    pub(crate) fn sleep(&self, has_due: impl FnOnce() -> bool) -> Next {
        self.is_awake.store(false, Ordering::Release);
        let has_due = has_due();
        let mut state = self.lock();
        if has_due || !state.is_calm() {
            return self.next(state, false);
        }
        let wait = match state.flush {
            Some(flush) => {
                let left = flush.saturating_sub(state.awake_for);
                self.changed
                    .wait_timeout_while(state, left, State::is_calm)
                    .map(|(state, _)| state)
                    .map_err(|error| error.into_inner().0)
            }
            None => self.changed.wait_while(state, State::is_calm).map_err(PoisonError::into_inner),
        };
        self.next(wait.unwrap_or_else(|state| state), true)
    }

    /// Awake from here on. After a sleep everything is written: how long lines have waited is not known then.
    fn next(&self, mut state: MutexGuard<'_, State>, has_slept: bool) -> Next {
        state.is_called = false;
        self.is_awake.store(true, Ordering::Release);
        let is_flush_due = state.flush.is_some_and(|flush| state.awake_for >= flush);
        if state.is_over {
            Next::End
        } else if has_slept || is_flush_due {
            state.awake_for = Duration::ZERO;
            Next::WriteAll
        } else {
            Next::WriteDue
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_calm(&mut self) -> bool {
        !self.is_called && !self.is_over
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// How long a test waits for what it knows to come.
    const LONG: Duration = Duration::from_secs(20);

    fn called(wakeup: &Wakeup) -> bool {
        wakeup.lock().is_called
    }

    /// O6: a line costs no more than a look at a flag while the thread is awake.
    #[test]
    fn a_thread_that_is_awake_is_not_woken() {
        let wakeup = Wakeup::new();
        wakeup.note_lines();
        assert!(!called(&wakeup), "the first thing that the thread does is to look");
        // Lines came while it was about to sleep: it does not.
        assert_eq!(wakeup.sleep(|| true), Next::WriteDue);
        wakeup.note_lines();
        assert!(!called(&wakeup));
        assert_eq!(wakeup.pause(), Next::WriteDue);
        wakeup.note_lines();
        assert!(!called(&wakeup));
    }

    /// O6: the first line after a quiet time is written at once, and wakes the thread once.
    #[test]
    fn a_thread_that_sleeps_is_woken_by_the_first_line_only() {
        let wakeup = Arc::new(Wakeup::new());
        let (tell, told) = std::sync::mpsc::channel();
        let thread = {
            let wakeup = Arc::clone(&wakeup);
            std::thread::spawn(move || {
                let next = wakeup.sleep(|| {
                    tell.send(()).expect("the test listens");
                    false
                });
                tell.send(()).expect("the test listens");
                next
            })
        };
        told.recv_timeout(LONG).expect("it goes to sleep");
        wakeup.note_lines();
        told.recv_timeout(LONG).expect("it wakes up");
        // The line may have come just before it slept; then it knows how long lines have waited.
        let next = thread.join().expect("no panic");
        assert!(matches!(next, Next::WriteAll | Next::WriteDue), "{next:?}");
        wakeup.note_lines();
        assert!(!called(&wakeup), "it is awake");
    }

    /// O6: a call between two looks is not missed.
    #[test]
    fn a_call_before_the_sleep_is_not_lost() {
        let wakeup = Wakeup::new();
        wakeup.call();
        assert_eq!(wakeup.sleep(|| false), Next::WriteDue);
        assert_eq!(
            wakeup.sleep(|| {
                wakeup.note_lines();
                false
            }),
            Next::WriteDue
        );
        wakeup.end();
        assert_eq!(wakeup.pause(), Next::End);
        assert_eq!(wakeup.sleep(|| false), Next::End);
    }

    /// O6: `flush=` holds while other logs keep the thread awake, and while it sleeps.
    #[test]
    fn everything_is_written_when_its_time_is_over() {
        let wakeup = Wakeup::new();
        wakeup.flush_every(3 * PAUSE);
        let next: Vec<Next> = (0..6).map(|_| wakeup.pause()).collect();
        let (due, all) = (Next::WriteDue, Next::WriteAll);
        assert_eq!(next, [due, due, all, due, due, all]);
        assert_eq!(wakeup.sleep(|| false), all);
    }
}
