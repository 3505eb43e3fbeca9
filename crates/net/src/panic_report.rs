//! Panics: mistakes of ours that must cost one connection and nothing else (V47). The message of a worker's
//! panic is kept until code that knows the connection writes it into the log.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use sekisho_config::Level;
use sekisho_lifecycle::CloseReason;

use crate::connection::Connection;
use crate::exchange::Exchanges;
use crate::transport::ClientTransport;
use crate::worker::Worker;

thread_local! {
    /// Whether this thread is a worker.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    /// Whether a connection has its turn: then its panic is written into the log.
    static IS_TURN: Cell<bool> = const { Cell::new(false) };
    /// What the last panic said.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on the message of a worker's panic is kept for the log. Unless the panic ends a connection, which
/// is always logged, it is written to stderr as well, as usual: no panic may pass unreported.
pub fn keep_panics_for_the_log() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // A thread that is about to end has no thread-local values any more.
        let is_kept = IS_WORKER.try_with(Cell::get) == Ok(true) && keep(info);
        if !is_kept || IS_TURN.try_with(Cell::get) != Ok(true) {
            others(info);
        }
    }));
}

fn keep(info: &PanicHookInfo<'_>) -> bool {
    let text = info.payload_as_str().unwrap_or("without a word");
    let said = match info.location() {
        Some(at) => format!("{text} ({}:{})", at.file(), at.line()),
        None => text.to_owned(),
    };
    SAID.try_with(|place| place.try_borrow_mut().map(|mut place| *place = Some(said)).is_ok())
        .unwrap_or(false)
}

/// The calling thread is a worker.
pub(crate) fn begin_worker() {
    IS_WORKER.set(true);
}

/// A connection has its turn, or has had it.
pub(crate) fn note_turn(is_turn: bool) {
    IS_TURN.set(is_turn);
}

/// What the last panic of this thread said.
pub fn take() -> Option<String> {
    SAID.try_with(|place| place.try_borrow_mut().ok()?.take()).ok().flatten()
}

/// Held by a task without which a worker is of no use: if it panics, the worker ends, and another takes its
/// place.
#[derive(Debug)]
pub(crate) struct Vital(pub(crate) Rc<Worker>);

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broken.notify_one();
        }
    }
}

impl<T: ClientTransport> Connection<T> {
    /// Its turn has panicked: that is logged and counted, and the connection's state is not used again.
    pub(crate) fn give_up_after_panic(&mut self) {
        // A panic within a panic would be the end of the process.
        let told = catch_unwind(AssertUnwindSafe(|| self.tell_panic()));
        drop(told);
        // Buffers that were left in the middle of something are not lent again.
        drop(catch_unwind(AssertUnwindSafe(|| drop(self.link.buffers.take()))));
        drop(catch_unwind(AssertUnwindSafe(|| self.exchanges = Exchanges::default())));
    }

    fn tell_panic(&mut self) {
        let worker = Rc::clone(&self.link.worker);
        let counters = &worker.shared.counters;
        counters.panics.fetch_add(1, Ordering::Relaxed);
        counters.close(CloseReason::Panicked);
        // What has left must not look complete.
        self.transport.reset_on_close();
        let said = take().unwrap_or_default();
        let now = worker.clock.now();
        let accepted = self.exchanges.iter().find_map(|exchange| exchange.accepted.as_ref());
        let id = accepted.map_or(worker.last_request_id(), |accepted| accepted.request_id.0);
        let site = &self.link.listener_context.bound_site().site;
        let message = format_args!("panic, the connection ends: {said}, request id: {id:032x}");
        site.log.write(Level::Alert, worker.clock.stamp(now), Some(self.link.id), message);
        self.end_exchanges(now);
    }
}
