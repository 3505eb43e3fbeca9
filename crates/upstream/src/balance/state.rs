//! The accounts of one server: connections, failures, weights, and whether it may be asked.

use sekisho_lifecycle::Moment;

use super::{Change, Outcome, PeerSettings};
use crate::health::Verdict;

/// What the operator says about a server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Admin {
    /// In service.
    #[default]
    Up,
    /// Only requests that are bound to it (sticky).
    Draining,
    /// Out of service.
    Down,
}

/// Why a server may not be asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unavailable {
    /// By the configuration or an operator.
    Down,
    /// It is drained.
    Draining,
    /// Active checks failed.
    Unhealthy,
    /// It failed too often, and `fail_timeout` is not over.
    Failed,
    /// It has `max_conns` connections.
    Full,
}

/// What the accounts say, for the live view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Why it may not be asked.
    pub unavailable: Option<Unavailable>,
    /// Requests that run on it.
    pub connections: u32,
    /// Failures that count at present.
    pub fails: u32,
    /// Requests in all.
    pub requests: u64,
    /// Failures in all.
    pub failures: u64,
}

#[derive(Clone, Debug)]
pub(super) struct PeerState {
    pub(super) current: i64,
    pub(super) effective: i64,
    pub(super) connections: u32,
    pub(super) fails: u32,
    /// When failures were last looked at: by a choice after `fail_timeout`, or by a failure.
    checked: Option<Moment>,
    /// When it last failed.
    accessed: Option<Moment>,
    pub(super) admin: Admin,
    health: Verdict,
    /// Since when its weight grows.
    ramp_from: Option<Moment>,
    requests: u64,
    failures: u64,
}

impl PeerState {
    pub(super) fn new(peer: &PeerSettings, scale: i64) -> Self {
        Self {
            current: 0,
            effective: i64::from(peer.weight) * scale,
            connections: 0,
            fails: 0,
            checked: None,
            accessed: None,
            admin: if peer.is_down { Admin::Down } else { Admin::Up },
            health: Verdict::Healthy,
            ramp_from: None,
            requests: 0,
            failures: 0,
        }
    }

    /// Whether it may be asked. `is_bound`: by a request of its sticky session.
    pub(super) fn check(
        &self,
        peer: &PeerSettings,
        is_bound: bool,
        now: Moment,
    ) -> Result<(), Unavailable> {
        match self.admin {
            Admin::Down => return Err(Unavailable::Down),
            Admin::Draining if !is_bound => return Err(Unavailable::Draining),
            Admin::Draining | Admin::Up => {}
        }
        if self.health == Verdict::Unhealthy {
            return Err(Unavailable::Unhealthy);
        }
        if self.has_failed(peer) && !self.is_timeout_over(peer, now) {
            return Err(Unavailable::Failed);
        }
        if self.is_full(peer) {
            return Err(Unavailable::Full);
        }
        Ok(())
    }

    /// Whether a server without companions may be asked: its failures do not count.
    pub(super) fn check_single(&self, peer: &PeerSettings) -> Result<(), Unavailable> {
        match self.admin {
            Admin::Down => Err(Unavailable::Down),
            _ if self.is_full(peer) => Err(Unavailable::Full),
            _ => Ok(()),
        }
    }

    const fn is_full(&self, peer: &PeerSettings) -> bool {
        peer.max_conns > 0 && self.connections >= peer.max_conns
    }

    const fn has_failed(&self, peer: &PeerSettings) -> bool {
        peer.max_fails > 0 && self.fails >= peer.max_fails
    }

    fn is_timeout_over(&self, peer: &PeerSettings, now: Moment) -> bool {
        self.checked.is_none_or(|checked| now.since(checked) > peer.fail_timeout)
    }

    /// The weight it has now: less than its own after failures, and during a slow start.
    pub(super) fn weight(&self, peer: &PeerSettings, now: Moment) -> i64 {
        let Some((length, from)) = peer.slow_start.zip(self.ramp_from) else {
            return self.effective;
        };
        let (passed, length) = (now.since(from).as_millis(), length.as_millis().max(1));
        if passed >= length {
            return self.effective;
        }
        let grown = i128::from(self.effective) * passed as i128 / length as i128;
        i64::try_from(grown).unwrap_or(self.effective).max(1)
    }

    /// Lets the weight come back after failures, one step for each choice it takes part in.
    pub(super) fn regain(&mut self, peer: &PeerSettings, scale: i64) {
        if self.effective < i64::from(peer.weight) * scale {
            self.effective += scale;
        }
    }

    /// It was chosen.
    pub(super) fn choose(&mut self, peer: &PeerSettings, now: Moment) {
        self.connections += 1;
        self.requests += 1;
        if self.is_timeout_over(peer, now) {
            self.checked = Some(now);
        }
    }

    pub(super) fn release(
        &mut self,
        peer: &PeerSettings,
        outcome: Outcome,
        is_single: bool,
        scale: i64,
        now: Moment,
    ) -> Option<Change> {
        self.connections = self.connections.saturating_sub(1);
        if outcome == Outcome::Failed {
            self.failures += 1;
        }
        if is_single {
            self.fails = 0;
            return None;
        }
        match outcome {
            Outcome::Failed => {
                let had_failed = self.has_failed(peer);
                self.fails = self.fails.saturating_add(1);
                self.accessed = Some(now);
                self.checked = Some(now);
                if let Some(loss) =
                    (i64::from(peer.weight) * scale).checked_div(peer.max_fails.into())
                {
                    self.effective = (self.effective - loss).max(0);
                }
                (!had_failed && self.has_failed(peer)).then_some(Change::Disabled)
            }
            // It is live again only if it was asked after its time was over.
            Outcome::Answered if self.accessed < self.checked && self.fails > 0 => {
                let had_failed = self.has_failed(peer);
                self.fails = 0;
                if had_failed {
                    self.ramp_from = Some(now);
                }
                had_failed.then_some(Change::Recovered)
            }
            Outcome::Answered => None,
        }
    }

    pub(super) fn set_admin(&mut self, admin: Admin, now: Moment) {
        if self.admin == Admin::Down && admin == Admin::Up {
            self.ramp_from = Some(now);
        }
        self.admin = admin;
    }

    pub(super) fn set_health(&mut self, verdict: Verdict, now: Moment) {
        if self.health == Verdict::Unhealthy && verdict == Verdict::Healthy {
            self.fails = 0;
            self.ramp_from = Some(now);
        }
        self.health = verdict;
    }

    pub(super) fn snapshot(&self, peer: &PeerSettings, now: Moment) -> Snapshot {
        Snapshot {
            unavailable: self.check(peer, false, now).err(),
            connections: self.connections,
            fails: self.fails,
            requests: self.requests,
            failures: self.failures,
        }
    }

    /// What outlives a reload: failures, health and counters. Connections stay with the old group, which
    /// sees them end.
    pub(super) fn inherit(&mut self, old: &Self, peer: &PeerSettings) {
        self.fails = old.fails;
        self.checked = old.checked;
        self.accessed = old.accessed;
        self.health = old.health;
        self.ramp_from = old.ramp_from;
        self.requests = old.requests;
        self.failures = old.failures;
        if !peer.is_down && old.admin == Admin::Draining {
            self.admin = Admin::Draining;
        }
    }
}
