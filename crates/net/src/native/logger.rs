//! Writes into the error log what happens to native sessions: every end has its reason there (O6).

use std::cell::RefCell;
use std::fmt;
use std::rc::Weak;

use sekisho_config::Level;
use sekisho_endpoint::{Bug, Caller, CloseReason, Code, Observer, Peer, RequestId};
use sekisho_lifecycle::Moment;

use super::log_pace::LogPace;
use crate::panic_report;
use crate::worker::Worker;

/// Where lines go, and what else an end means.
pub trait NativeLog {
    /// Writes a line.
    fn log(&self, level: Level, session: Option<u64>, message: fmt::Arguments<'_>);
    /// The time.
    fn now(&self) -> Moment;
    /// Memory was used, or is free again.
    fn note_activity(&self);
}

/// The observer of an endpoint.
#[derive(Debug)]
pub struct SessionLogger<L> {
    log: L,
    /// How often a refusal is logged, of a session and of a request.
    refusals: RefCell<LogPace>,
    denials: RefCell<LogPace>,
}

impl<L: NativeLog> SessionLogger<L> {
    /// Writes there.
    pub fn new(log: L) -> Self {
        Self { log, refusals: RefCell::default(), denials: RefCell::default() }
    }
}

impl<L: NativeLog> Observer for SessionLogger<L> {
    fn opened(&self, label: &str, caller: &Caller) {
        self.log.note_activity();
        let Caller { session, peer, identity, .. } = caller;
        let peer = shown_peer(peer);
        let message =
            format_args!("native session of {peer}, identity {identity}, label \"{label}\"");
        self.log.log(Level::Debug, Some(*session), message);
    }

    fn denied(&self, caller: &Caller, service: &str, code: Code, text: &str) {
        let Some(unlogged) = self.denials.borrow_mut().may_log(self.log.now()) else {
            return;
        };
        let more = more(unlogged);
        let peer = shown_peer(&caller.peer);
        let message = format_args!("service \"{service}\" denied, {peer}: {code}, {text}{more}");
        self.log.log(Level::Warn, Some(caller.session), message);
    }

    fn refused(&self, session: u64, peer: &Peer, code: Code, text: &str) {
        let Some(unlogged) = self.refusals.borrow_mut().may_log(self.log.now()) else {
            return;
        };
        let peer = shown_peer(peer);
        let more = more(unlogged);
        let message = format_args!("native session of {peer} refused: {code}, {text}{more}");
        self.log.log(Level::Warn, Some(session), message);
    }

    fn withdrawn(&self, caller: &Caller, why: &str) {
        let Caller { session, peer, identity, .. } = caller;
        let peer = shown_peer(peer);
        let message = format_args!("native session of {peer}, identity {identity}, ends: {why}");
        self.log.log(Level::Notice, Some(*session), message);
    }

    fn closed(&self, session: u64, peer: &Peer, reason: CloseReason) {
        self.log.note_activity();
        // A peer that breaks the protocol is worth a line, as it is with HTTP.
        let is_breach = reason == CloseReason::OutOfSync;
        let level = if is_breach { Level::Info } else { Level::Debug };
        let message = format_args!("closed: {}, native, {}", reason.tag(), shown_peer(peer));
        self.log.log(level, Some(session), message);
    }

    fn worked(&self) {
        self.log.note_activity();
    }

    fn bug(&self, session: u64, request: RequestId, bug: Bug) {
        let what = match bug {
            Bug::AnsweredWithOpenChannel => "answered while its channel was open",
            Bug::DroppedUnanswered => "went without an answer",
        };
        let said = panic_report::take().map(|said| format!(", it panicked: {said}"));
        let said = said.unwrap_or_default();
        let message = format_args!("a service {what}: request {request}{said}");
        self.log.log(Level::Error, Some(session), message);
    }
}

pub use sekisho_endpoint::control::shown_peer;

fn more(unlogged: u64) -> String {
    if unlogged == 0 {
        return String::new();
    }
    format!(", and {unlogged} more since the last such line")
}

/// The log of the worker's configuration.
#[derive(Debug)]
pub(super) struct WorkerLog(pub(super) Weak<Worker>);

impl NativeLog for WorkerLog {
    fn log(&self, level: Level, session: Option<u64>, message: fmt::Arguments<'_>) {
        let Some(worker) = self.0.upgrade() else { return };
        if let Some(site) = worker.native.site().filter(|site| site.log.wants(level)) {
            site.log.write(level, worker.clock.stamp(worker.clock.now()), session, message);
        }
    }

    fn now(&self) -> Moment {
        self.0.upgrade().map_or(Moment::ZERO, |worker| worker.clock.now())
    }

    fn note_activity(&self) {
        if let Some(worker) = self.0.upgrade() {
            worker.heap.note_activity();
        }
    }
}
