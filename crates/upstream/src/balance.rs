//! A group of servers and the choice among them, by nginx's algorithms: the same weights, keys and failures
//! give the same server as nginx's.

mod ketama;
pub mod learn;
mod select;
mod state;
pub mod sticky;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sekisho_lifecycle::Moment;

use crate::health::Verdict;
use ketama::Points;
pub use select::{NoPeer, Selection};
use state::PeerState;
pub use state::{Admin, Snapshot, Unavailable};

/// One address of one `server` line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerSettings {
    /// What the configuration says: `backend1:8080`, `unix:/run/app`. Consistent hashing places by it.
    pub server: Box<str>,
    /// The address, as nginx prints it: `192.0.2.1:8080`. The route of a sticky session follows from it.
    pub name: Box<str>,
    /// `weight`
    pub weight: u32,
    /// `max_conns`; 0 is no limit.
    pub max_conns: u32,
    /// `max_fails`; 0 counts no failures.
    pub max_fails: u32,
    /// `fail_timeout`
    pub fail_timeout: Duration,
    /// `slow_start`
    pub slow_start: Option<Duration>,
    /// `backup`
    pub is_backup: bool,
    /// `down`
    pub is_down: bool,
    /// `drain`: only clients that are bound to it.
    pub is_drained: bool,
    /// `route`
    pub route: Option<Box<str>>,
}

impl PeerSettings {
    /// A server with nginx's defaults.
    pub fn new(server: &str) -> Self {
        Self {
            server: server.into(),
            name: server.into(),
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: Duration::from_secs(10),
            slow_start: None,
            is_backup: false,
            is_down: false,
            is_drained: false,
            route: None,
        }
    }
}

/// How a server is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Method {
    /// Smooth weighted round robin.
    #[default]
    RoundRobin,
    /// `least_conn`
    LeastConnections,
    /// `ip_hash`
    IpHash,
    /// `hash KEY`
    Hash,
    /// `hash KEY consistent`
    ConsistentHash,
    /// `random`
    Random,
    /// `random two least_conn`
    RandomTwo,
}

/// How a try ended, for the accounts of its server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It answered; also with an answer that sends the request on, such as 404.
    Answered,
    /// It failed, as `proxy_next_upstream` sees it.
    Failed,
}

/// What became of a server, for the error log and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// It failed too often and is left alone for `fail_timeout`.
    Disabled,
    /// It had failed too often, and has answered.
    Recovered,
}

/// A group of servers, shared by all workers.
#[derive(Debug)]
pub struct Balancer {
    method: Method,
    peers: Vec<PeerSettings>,
    /// Indices of the primary and the backup servers.
    primary: Vec<usize>,
    backup: Vec<usize>,
    total_weight: u32,
    points: Points,
    /// Weights are counted in parts of this size, so that a slow start has steps.
    scale: i64,
    state: Mutex<Vec<PeerState>>,
}

/// Steps of a slow start for one unit of weight.
const SLOW_START_STEPS: i64 = 100;

impl Balancer {
    /// A group in which nothing has happened.
    pub fn new(method: Method, peers: Vec<PeerSettings>) -> Self {
        let (backup, primary): (Vec<usize>, Vec<usize>) =
            (0..peers.len()).partition(|index| peers[*index].is_backup);
        let total_weight = primary.iter().map(|index| peers[*index].weight).sum();
        let scale =
            if peers.iter().any(|peer| peer.slow_start.is_some()) { SLOW_START_STEPS } else { 1 };
        let points = if method == Method::ConsistentHash {
            Points::new(primary.iter().map(|index| &peers[*index]))
        } else {
            Points::default()
        };
        let state = peers.iter().map(|peer| PeerState::new(peer, scale)).collect();
        Self {
            method,
            peers,
            primary,
            backup,
            total_weight,
            points,
            scale,
            state: Mutex::new(state),
        }
    }

    /// The servers, in the order of the configuration; choices are indices into it.
    pub fn peers(&self) -> &[PeerSettings] {
        &self.peers
    }

    /// Whether there is but one server: its failures are not counted, as there is no other.
    pub fn is_single(&self) -> bool {
        self.peers.len() == 1
    }

    /// How many servers a request may try at most.
    pub fn tries_max(&self) -> u32 {
        let state = self.lock();
        state.iter().filter(|peer| peer.admin == Admin::Up).count() as u32
    }

    /// A try on a server that was chosen has ended.
    pub fn release(&self, peer: usize, outcome: Outcome, now: Moment) -> Option<Change> {
        let is_single = self.is_single();
        let (settings, state) = (self.peers.get(peer)?, &mut *self.lock());
        state.get_mut(peer)?.release(settings, outcome, is_single, self.scale, now)
    }

    /// A server is there, though a try on it has not ended: a connection that may last has come up.
    pub fn confirm(&self, peer: usize, now: Moment) -> Option<Change> {
        let (settings, state) = (self.peers.get(peer)?, &mut *self.lock());
        state.get_mut(peer)?.confirm(settings, now)
    }

    /// Takes a server out of service, puts it back, or lets only its sticky sessions end.
    pub fn set_admin(&self, peer: usize, admin: Admin, now: Moment) {
        if let Some(state) = self.lock().get_mut(peer) {
            state.set_admin(admin, now);
        }
    }

    /// What active checks say of a server.
    pub fn health(&self, peer: usize) -> Verdict {
        self.lock().get(peer).map_or(Verdict::Healthy, PeerState::health)
    }

    /// What an active check found.
    pub fn set_health(&self, peer: usize, verdict: Verdict, now: Moment) {
        if let Some(state) = self.lock().get_mut(peer) {
            state.set_health(verdict, now);
        }
    }

    /// What the accounts of each server say.
    pub fn snapshot(&self, now: Moment) -> Vec<Snapshot> {
        let state = self.lock();
        self.peers.iter().zip(&*state).map(|(peer, state)| state.snapshot(peer, now)).collect()
    }

    /// Takes over the accounts of a group that this one replaces (a reload), for servers that are in both.
    pub fn inherit(&self, old: &Self) {
        if std::ptr::eq(self, old) {
            return;
        }
        let old_state: Vec<PeerState> = old.lock().clone();
        let mut state = self.lock();
        for (index, peer) in self.peers.iter().enumerate() {
            let before = old.peers.iter().position(|other| other.name == peer.name);
            let before = before.and_then(|at| old.peers.get(at).zip(old_state.get(at)));
            if let Some((settings, known)) = before {
                state[index].inherit(known, settings, peer);
            }
        }
    }

    /// The accounts. A panic while they were held leaves numbers that are still numbers.
    fn lock(&self) -> MutexGuard<'_, Vec<PeerState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
