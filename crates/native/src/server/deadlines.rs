//! Which deadlines a session has, and what happens when one falls. A deadline is a moment in its own field;
//! nothing is armed anywhere else than in the functions below and where a phase begins or ends.

use std::time::Duration;

use sekisho_lifecycle::stay::Fact;
use sekisho_lifecycle::{Cause, CloseReason, Deadline, DeadlineKind, Manner, Moment, Stage};

use super::due::Ping;
use super::{DrainTime, Ending, Server};
use crate::code::Code;
use crate::policy::PROGRESS_BYTES;
use crate::violation::Violation;

/// How long the last output may take, where `send_timeout` is longer or off.
const LAST_SEND_MAX: Duration = Duration::from_secs(5);

impl Server {
    /// Every deadline in effect.
    pub(super) fn deadlines(&self) -> [Option<Deadline>; 8] {
        let of = |at: Option<Moment>, kind| at.map(|at| Deadline { at, kind });
        [
            of(self.handshake_at, DeadlineKind::Handshake),
            of(self.reader.late_at(), DeadlineKind::Frame),
            of(self.send_at, DeadlineKind::Send),
            of(self.life_at, DeadlineKind::Session),
            of(self.drain_at, DeadlineKind::Drain),
            of(self.linger_at, DeadlineKind::Linger),
            of(self.request_deadlines.first().map(|(at, _)| *at), DeadlineKind::Request),
            of(self.ping_at(), DeadlineKind::Ping),
        ]
    }

    /// Lets the first deadline that is due act, once.
    pub(super) fn expire_due(&mut self, now: Moment) {
        let due = self.deadlines().into_iter().flatten().min_by_key(|deadline| deadline.at);
        let Some(Deadline { kind, .. }) = due.filter(|deadline| deadline.at.is_due(now)) else {
            return;
        };
        let reason = CloseReason::Expired(kind);
        match kind {
            // It is not the client's fault if the decision takes too long.
            DeadlineKind::Handshake if self.is_deciding() => {
                let code = Code::ServiceUnavailable.number();
                self.say_bye(reason, code, "it took too long to find out who you are");
            }
            DeadlineKind::Handshake => {
                let code = Code::SessionExpired.number();
                self.say_bye(reason, code, "the handshake took too long");
            }
            DeadlineKind::Frame => self.fail(Violation::FrameLate, reason, now),
            DeadlineKind::Session => self.life_ended(now),
            DeadlineKind::Request => self.requests_are_due(now),
            DeadlineKind::Ping if self.ping == Ping::Quiet => self.ping = Ping::Wanted,
            DeadlineKind::Drain => {
                self.drain_at = None;
                let code = Code::SessionClosed.number();
                let text = "the session was shut down and its channels were not drained";
                self.end_by(Manner::Forceful, Ending { reason, code, text }, now);
            }
            DeadlineKind::Linger => {
                let reason = match self.phase {
                    super::Phase::Over(reason) => reason,
                    _ => reason,
                };
                self.close(reason);
            }
            _ => self.transport_lost(reason, now),
        }
    }

    /// By when the peer must have taken bytes. A peer that is to go cannot stay by not reading.
    pub(super) fn send_by(&self, now: Moment) -> Option<Moment> {
        let timeout = self.policy.send_timeout;
        let timeout = if self.is_last() {
            Some(timeout.map_or(LAST_SEND_MAX, |timeout| timeout.min(LAST_SEND_MAX)))
        } else {
            timeout
        };
        timeout.map(|timeout| now + timeout)
    }

    /// Whether what is put out now is the last: `BYE`, or what force has left.
    pub(super) fn is_last(&self) -> bool {
        matches!(self.phase, super::Phase::Over(_)) || self.stay.asked() == Some(Manner::Forceful)
    }

    /// Something moved: the session lives on. Never earlier than what an extension gave.
    pub(super) fn live(&mut self, now: Moment) {
        if let Some(timeout) = self.policy.session_timeout {
            self.life_at = self.life_at.max(Some(now + timeout));
        }
    }

    /// The client asks for a longer life: it is only ever lengthened, up to a maximum. What it has.
    pub(super) fn extend(&mut self, length: Duration, now: Moment) -> Duration {
        let Some(life_at) = self.life_at else { return Duration::MAX };
        let asked = now + length.min(self.policy.session_extension_max);
        let life_at = life_at.max(asked);
        self.life_at = Some(life_at);
        life_at.since(now)
    }

    /// Nothing moved for too long: running requests are cancelled with that cause, and the session ends by
    /// force.
    fn life_ended(&mut self, now: Moment) {
        self.life_at = None;
        let running: Vec<_> = self.stay.requests().iter().map(|entry| entry.id).collect();
        for id in running {
            self.tell_quietly(Fact::CancelAsked(id, Cause::Deadline), now);
        }
        let reason = CloseReason::Expired(DeadlineKind::Session);
        let code = Code::SessionExpired.number();
        let ending = Ending { reason, code, text: "the session has expired" };
        self.end_by(Manner::Forceful, ending, now);
    }

    /// While a graceful end waits for its client alone, the client has this long: while nothing but
    /// channels that are not drained is left, and while every running request waits to send a record. The
    /// services' own time does not count.
    pub(super) fn arm_drain(&mut self, now: Moment) {
        if self.stay.asked() != Some(Manner::Graceful) || self.stage != Stage::Open {
            self.drain_at = None;
            return;
        }
        let running = self.stay.running();
        let waits = self.stay.is_waiting_for_channels() || (running > 0 && self.waiting >= running);
        match self.drain_at {
            Some(at) if !waits => {
                self.drain_time.left = Some(at.since(now));
                self.drain_at = None;
            }
            None if waits => {
                let left = self.drain_time.left.or(self.policy.drain_timeout);
                self.drain_at = left.map(|left| now + left);
            }
            _ => {}
        }
    }

    /// A record was put out. Each [`PROGRESS_BYTES`] that a client takes buy it the same time again, so that
    /// a client that takes a little now and then does not delay the end for ever, and a large download goes
    /// on.
    pub(super) fn note_progress(&mut self, cost: u32, now: Moment) {
        if self.stay.asked() != Some(Manner::Graceful) {
            return;
        }
        self.drain_time.taken = self.drain_time.taken.saturating_add(cost);
        self.arm_drain(now);
        if self.drain_time.taken >= PROGRESS_BYTES {
            self.drain_time = DrainTime::default();
            if self.drain_at.take().is_some() {
                self.arm_drain(now);
            }
        }
    }
}
