//! Which deadline each phase has, and what happens when it falls (T1–T9).

use std::time::Duration;

use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Moment, Stage};

use super::{Fate, Http1, Input, Output};
use crate::event::Event;
use sekisho_http::refusal::Cause;

/// How long a refusal for lateness may take to leave (T6), where `send_timeout` is longer or off.
const LATE_SEND_MAX: Duration = Duration::from_secs(5);
/// How long a body may take before `client_body_min_rate` is asked for, where `client_body_timeout` is no longer.
const RATE_GRACE: Duration = Duration::from_secs(10);

impl Http1 {
    pub(super) fn send_by(&self, now: Moment) -> Option<Moment> {
        let timeout = self.policy().send_timeout;
        let timeout = match self.closing {
            Some(CloseReason::Expired(_)) => {
                Some(timeout.map_or(LATE_SEND_MAX, |timeout| timeout.min(LATE_SEND_MAX)))
            }
            _ => timeout,
        };
        timeout.map(|timeout| now + timeout)
    }

    /// The client has acknowledged bytes since the send deadline was set: it is not silent (T4).
    pub fn acknowledged(&mut self, now: Moment) {
        if self.send.is_some() {
            self.send = self.send_by(now);
        }
    }

    /// Whether output waits for the transport, and its deadline runs.
    pub const fn has_unsent(&self) -> bool {
        self.send.is_some()
    }

    /// Output waits because it is held back on our side (`limit_rate`): the client is not late (T9).
    pub const fn pause_output(&mut self) {
        self.send = None;
    }

    /// Arms what the present phase asks of the client. Called when the phase changes, and when bytes
    /// came in a phase that counts quiet time: nowhere else does a read deadline start.
    pub(super) fn arm(&mut self, now: Moment) {
        let policy = self.policy();
        let phase = match (self.stage, &self.input) {
            (Stage::Lingering, _) => Some((DeadlineKind::Linger, policy.lingering_timeout)),
            (Stage::Open, Input::Head(_)) if self.begun || self.requests == 0 => {
                Some((DeadlineKind::Header, policy.header_timeout))
            }
            (Stage::Open, Input::Head(_)) if !self.unsent => {
                Some((DeadlineKind::KeepAlive, policy.keepalive_timeout))
            }
            (Stage::Open, Input::Body { fate: Fate::Taken, .. }) if self.held.is_some() => None,
            (
                Stage::Open,
                Input::Body { fate: Fate::Taken | Fate::Refused | Fate::Discarded, .. },
            ) => Some((DeadlineKind::Body, policy.body_timeout)),
            (Stage::Open | Stage::Closed(_), _) => None,
        };
        self.read = phase.and_then(|(kind, timeout)| {
            let has_latest = matches!(kind, DeadlineKind::Body | DeadlineKind::Linger);
            let quiet = timeout.map(|timeout| now + timeout);
            let latest = self.latest.filter(|_| has_latest);
            let at = quiet.into_iter().chain(latest).min()?;
            Some(Deadline { at, kind })
        });
    }

    /// Body bytes are awaited from now on.
    pub(super) fn await_body(&mut self, now: Moment) {
        let policy = self.policy();
        let grace = policy.body_timeout.map_or(RATE_GRACE, |timeout| timeout.max(RATE_GRACE));
        self.latest = policy.body_min_rate.map(|_| now + grace);
        self.arm(now);
    }

    /// Body bytes came: each one buys as much time as the slowest allowed client needs for it.
    pub(super) fn body_came(&mut self, bytes: usize, now: Moment) {
        if let (Some(latest), Some(rate)) = (self.latest, self.policy().body_min_rate) {
            let nanos = bytes as u128 * 1_000_000_000 / u128::from(rate.max(1));
            let bought = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.latest = Some(latest + bought);
        }
        self.arm(now);
    }

    /// The deadline for what the client must do next has fallen.
    pub(super) fn read_expired(&mut self, kind: DeadlineKind, now: Moment) -> Option<Event> {
        let expired = CloseReason::Expired(kind);
        match kind {
            DeadlineKind::Header => Some(self.refuse(Cause::HeaderTimedOut, expired)),
            DeadlineKind::Body if self.output == Output::Awaited => {
                // A body that is only read to be refused is refused now (H6).
                let is_too_large = matches!(self.input, Input::Body { fate: Fate::Refused, .. });
                let cause = if is_too_large { Cause::BodyTooLarge } else { Cause::BodyTimedOut };
                Some(self.refuse(cause, expired))
            }
            DeadlineKind::Body
                if matches!(self.input, Input::Body { fate: Fate::Discarded, .. }) =>
            {
                if self.output == Output::Finished && !self.unsent {
                    self.abort(expired);
                } else {
                    // A response that is on its way is not cut for a body that is not wanted (T6).
                    self.closing = self.closing.or(Some(expired));
                    self.ignore_input();
                }
                self.settle(now);
                None
            }
            DeadlineKind::Body
            | DeadlineKind::KeepAlive
            | DeadlineKind::Linger
            | DeadlineKind::Send
            // Armed by handlers or by another protocol, never here.
            | DeadlineKind::Program
            | DeadlineKind::Silence
            | DeadlineKind::Wait
            | DeadlineKind::Handshake
            | DeadlineKind::Frame
            | DeadlineKind::Session
            | DeadlineKind::Drain
            | DeadlineKind::Request
            | DeadlineKind::Ping
            | DeadlineKind::Rate
            | DeadlineKind::Shutdown
            | DeadlineKind::UpstreamConnect
            | DeadlineKind::UpstreamSend
            | DeadlineKind::UpstreamRead => self.lose(expired),
        }
    }
}
