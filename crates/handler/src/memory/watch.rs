//! When a thread gives memory back: while it has something to do, and once after that. A thread that is idle is not
//! woken for it (T1).

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// How long after something happened a thread looks whether the heap keeps memory that could go back.
const DELAY: Duration = Duration::from_secs(5);

/// A thread's watch over the heap; clones are the same.
#[derive(Clone, Default)]
pub struct HeapWatch(Rc<Watch>);

#[derive(Default)]
struct Watch {
    is_on: Cell<bool>,
    was_active: Cell<bool>,
    before: OnceCell<Box<dyn Fn()>>,
}

impl fmt::Debug for HeapWatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Watch { is_on, was_active, .. } = &*self.0;
        out.debug_struct("HeapWatch")
            .field("is_on", is_on)
            .field("was_active", was_active)
            .finish_non_exhaustive()
    }
}

impl HeapWatch {
    /// One that watches nothing, for a thread without a runtime.
    pub fn never() -> Self {
        let watch = Self::default();
        watch.0.is_on.set(true);
        watch
    }

    /// Has this done each time before memory goes back: it may free some. Only the first is kept.
    pub fn do_before(&self, free: impl Fn() + 'static) {
        let _ = self.0.before.set(Box::new(free));
    }

    /// Something happened that may have taken and freed memory. To be called within the thread's runtime.
    pub fn note_activity(&self) {
        self.0.was_active.set(true);
        if self.0.is_on.replace(true) {
            return;
        }
        let watch = Rc::clone(&self.0);
        tokio::task::spawn_local(async move {
            while watch.was_active.replace(false) {
                tokio::time::sleep(DELAY).await;
                if let Some(free) = watch.before.get() {
                    free();
                }
                // On another thread: it may take milliseconds. A failure needs no report.
                let _ = tokio::task::spawn_blocking(super::trim).await;
            }
            watch.is_on.set(false);
        });
    }
}
