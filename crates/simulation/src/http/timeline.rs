//! Which deadline must be armed, and for when: reckoned from what the driver of a connection sees and from
//! the specification (T4–T9, H6), beside the engine and not from it. The two must agree at every rest, so
//! that no deadline is early, none is late and none is missing.

use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Policy;
use sekisho_lifecycle::{DeadlineKind, Moment};

/// T6: a refusal for lateness leaves within this, whatever `send_timeout` says.
const LATE_SEND_MAX: Duration = Duration::from_secs(5);
/// How long a body may take before its rate counts, where `client_body_timeout` is no longer.
const RATE_GRACE: Duration = Duration::from_secs(10);

/// What a connection's driver has seen that deadlines hang on.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one session, each independent")]
pub(super) struct Timeline {
    base: Arc<Policy>,
    chosen: Option<Arc<Policy>>,
    has_asked: bool,
    /// Bytes of the next request have been seen.
    is_begun: bool,
    is_between: bool,
    /// By when the head must be complete.
    head_at: Option<Moment>,
    /// By when the next request must begin.
    idle_at: Option<Moment>,
    /// By when more of the body must come, and by when at its rate.
    body_at: Option<Moment>,
    rate_at: Option<Moment>,
    is_body_awaited: bool,
    held_at: Option<Moment>,
    send_at: Option<Moment>,
    is_unsent: bool,
    /// By when the client must have ended: for quiet, and in all.
    linger_at: Option<Moment>,
    linger_last: Option<Moment>,
    is_lingering: bool,
    is_late: bool,
}

impl Timeline {
    /// A connection that was just accepted.
    pub(super) fn new(base: Arc<Policy>, now: Moment) -> Self {
        let head_at = base.header_timeout.map(|timeout| now + timeout);
        Self {
            base,
            chosen: None,
            has_asked: false,
            is_begun: false,
            is_between: true,
            head_at,
            idle_at: None,
            body_at: None,
            rate_at: None,
            is_body_awaited: false,
            held_at: None,
            send_at: None,
            is_unsent: false,
            linger_at: None,
            linger_last: None,
            is_lingering: false,
            is_late: false,
        }
    }

    fn policy(&self) -> &Policy {
        self.chosen.as_deref().unwrap_or(&self.base)
    }

    /// The first byte of a request was offered.
    pub(super) fn begins(&mut self, now: Moment) {
        if self.is_between && !self.is_begun {
            self.is_begun = true;
            self.chosen = None;
            self.idle_at = None;
            if self.has_asked {
                self.head_at = self.base.header_timeout.map(|timeout| now + timeout);
            }
        }
    }

    /// A head is complete, or will never be.
    pub(super) fn head_is_over(&mut self) {
        self.has_asked = true;
        (self.is_between, self.is_begun) = (false, false);
        self.head_at = None;
        self.idle_at = None;
    }

    /// A server was chosen.
    pub(super) fn chooses(&mut self, policy: &Arc<Policy>) {
        self.chosen = Some(Arc::clone(policy));
    }

    /// Body bytes are awaited from now on.
    pub(super) fn awaits_body(&mut self, now: Moment) {
        let policy = self.policy();
        let grace = policy.body_timeout.map_or(RATE_GRACE, |timeout| timeout.max(RATE_GRACE));
        self.rate_at = policy.body_min_rate.map(|_| now + grace);
        self.is_body_awaited = true;
        self.body_moves(now);
    }

    /// So many bytes of it came.
    pub(super) fn body_came(&mut self, bytes: usize, now: Moment) {
        if let (Some(at), Some(rate)) = (self.rate_at, self.policy().body_min_rate) {
            self.rate_at = Some(at + Duration::from_nanos(bytes as u64 * 1_000_000_000 / rate));
        }
        self.body_moves(now);
    }

    fn body_moves(&mut self, now: Moment) {
        self.body_at = self.policy().body_timeout.map(|timeout| now + timeout);
    }

    /// No more of the body is awaited.
    pub(super) fn body_is_over(&mut self) {
        self.is_body_awaited = false;
    }

    /// The handler holds the body back, or does no longer.
    pub(super) fn holds(&mut self, is_held: bool, now: Moment) {
        match self.held_at {
            None if is_held => self.held_at = Some(now),
            Some(at) if !is_held => {
                self.held_at = None;
                // Quiet is counted anew, the rate goes on from where it stood.
                self.rate_at = self.rate_at.map(|rate| rate + now.since(at));
                self.body_moves(now);
            }
            _ => {}
        }
    }

    /// The rest of the body is thrown away from now on, even if it was held back.
    pub(super) fn discards(&mut self, now: Moment) {
        self.held_at = None;
        self.awaits_body(now);
    }

    /// Output was made; its deadline begins when the transport has been asked.
    pub(super) fn has_output(&mut self) {
        self.is_unsent = true;
    }

    /// Whether more of a body is awaited.
    pub(super) const fn is_body_awaited(&self) -> bool {
        self.is_body_awaited
    }

    /// A deadline of the client's has made this the last answer.
    pub(super) fn is_late(&mut self) {
        self.is_late = true;
    }

    /// Output was put that the client must take from now on.
    pub(super) fn puts(&mut self, now: Moment) {
        self.is_unsent = true;
        if self.send_at.is_none() {
            self.send_at = self.send_by(now);
        }
    }

    /// The transport took so much.
    pub(super) fn sent(&mut self, moved: u64, is_pending: bool, now: Moment) {
        self.is_unsent = is_pending;
        if !is_pending {
            self.send_at = None;
            self.quiet_from(now);
        } else if moved > 0 || self.send_at.is_none() {
            self.send_at = self.send_by(now);
        }
    }

    /// Bytes were acknowledged since the send deadline was set: it is set anew (T4).
    pub(super) fn acknowledged(&mut self, now: Moment) {
        if self.send_at.is_some() {
            self.send_at = self.send_by(now);
        }
    }

    fn send_by(&self, now: Moment) -> Option<Moment> {
        let timeout = self.policy().send_timeout;
        let timeout = if self.is_late {
            Some(timeout.map_or(LATE_SEND_MAX, |timeout| timeout.min(LATE_SEND_MAX)))
        } else {
            timeout
        };
        timeout.map(|timeout| now + timeout)
    }

    /// The exchange is over and another may follow.
    pub(super) fn exchange_is_over(&mut self, now: Moment) {
        self.is_between = true;
        self.held_at = None;
        self.quiet_from(now);
    }

    fn quiet_from(&mut self, now: Moment) {
        if self.is_between
            && !self.is_begun
            && self.has_asked
            && !self.is_unsent
            && self.idle_at.is_none()
        {
            self.idle_at = self.policy().keepalive_timeout.map(|timeout| now + timeout);
        }
    }

    /// Nothing is expected of the client but to take what is there.
    pub(super) fn is_deaf(&mut self) {
        self.is_between = false;
        (self.head_at, self.idle_at, self.is_body_awaited) = (None, None, false);
    }

    /// The answer was broken off: what is left of it has the ordinary time.
    pub(super) fn is_broken_off(&mut self) {
        self.is_deaf();
        self.is_late = false;
    }

    /// All has left and the client is listened to for a while; also when it sent something then.
    pub(super) fn lingers(&mut self, has_come: bool, now: Moment) {
        if !std::mem::replace(&mut self.is_lingering, true) {
            self.is_deaf();
            self.send_at = None;
            self.linger_last = self.policy().lingering_time.map(|time| now + time);
        } else if !has_come {
            return;
        }
        self.linger_at = self.policy().lingering_timeout.map(|timeout| now + timeout);
    }

    /// What is armed.
    pub(super) fn next(&self) -> Option<(Moment, DeadlineKind)> {
        let body = self.is_body_awaited && self.held_at.is_none();
        let linger = [self.linger_at, self.linger_last].into_iter().flatten().min();
        let rows = [
            (self.head_at, DeadlineKind::Header),
            (self.idle_at.filter(|_| self.is_between && !self.is_begun), DeadlineKind::KeepAlive),
            (self.body_at.filter(|_| body), DeadlineKind::Body),
            (self.rate_at.filter(|_| body), DeadlineKind::Body),
            (self.send_at, DeadlineKind::Send),
            (linger.filter(|_| self.is_lingering), DeadlineKind::Linger),
        ];
        rows.into_iter().filter_map(|(at, kind)| Some((at?, kind))).min_by_key(|(at, _)| *at)
    }
}
