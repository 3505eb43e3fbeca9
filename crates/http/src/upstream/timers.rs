//! The deadlines of one upstream exchange: which of them is armed follows from what the exchange
//! waits for. The deadline for connecting is the shell's, which connects.

use std::time::Duration;

use sekisho_lifecycle::{Deadline, DeadlineKind, Moment};

/// How long an upstream may take. `None` means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// `proxy_send_timeout` and its companions: between two writes that moved bytes.
    pub send: Option<Duration>,
    /// `proxy_read_timeout` and its companions: between two reads that moved bytes.
    pub read: Option<Duration>,
}

impl Default for Timeouts {
    /// nginx's defaults.
    fn default() -> Self {
        const MINUTE: Option<Duration> = Some(Duration::from_mins(1));
        Self { send: MINUTE, read: MINUTE }
    }
}

/// The deadlines of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    timeouts: Timeouts,
    is_unsent: bool,
    is_held: bool,
    send: Option<Moment>,
    read: Option<Moment>,
}

impl Timers {
    /// None is armed.
    pub const fn new(timeouts: Timeouts) -> Self {
        Self { timeouts, is_unsent: false, is_held: false, send: None, read: None }
    }

    /// Other timeouts, for the next request.
    pub const fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
    }

    /// Whether output is waiting to leave.
    pub const fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// Whether the answer is held back by us.
    pub const fn is_held(&self) -> bool {
        self.is_held
    }

    /// Output was written: the upstream must take it.
    pub fn wrote(&mut self, now: Moment) {
        self.is_unsent = true;
        if self.send.is_none() {
            self.send = self.timeouts.send.map(|timeout| now + timeout);
        }
    }

    /// The transport took `moved` bytes; only bytes count as activity.
    pub fn transmitted(&mut self, moved: u64, pending: bool, now: Moment) {
        self.is_unsent = pending;
        if !pending {
            self.send = None;
        } else if moved > 0 || self.send.is_none() {
            self.send = self.timeouts.send.map(|timeout| now + timeout);
        }
    }

    /// Arms or disarms the deadline for the upstream's next bytes. `is_active`: bytes came, or the wait
    /// begins anew.
    pub fn await_answer(&mut self, is_awaited: bool, is_active: bool, now: Moment) {
        if !is_awaited || self.is_held {
            self.read = None;
        } else if is_active || self.read.is_none() {
            self.read = self.timeouts.read.map(|timeout| now + timeout);
        }
    }

    /// Whether we hold the answer back from now on.
    pub const fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// None is armed any more.
    pub const fn stop(&mut self) {
        self.send = None;
        self.read = None;
        self.is_held = false;
    }

    /// The earliest one.
    pub fn next(&self) -> Option<Deadline> {
        let send = self.send.map(|at| Deadline { at, kind: DeadlineKind::UpstreamSend });
        let read = self.read.map(|at| Deadline { at, kind: DeadlineKind::UpstreamRead });
        send.into_iter().chain(read).min_by_key(|deadline| deadline.at)
    }

    /// The one that is due; none is armed after it.
    pub fn expire(&mut self, now: Moment) -> Option<DeadlineKind> {
        let due = self.next().filter(|deadline| deadline.at.is_due(now))?;
        self.stop();
        Some(due.kind)
    }
}
