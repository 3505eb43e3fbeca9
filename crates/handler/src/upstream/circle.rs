//! Requests that this process passes to itself. A proxy whose own address is its upstream makes a request of each request,
//! until descriptors or memory are used up; here such circles end. How deep a connection is in one is known by its client's
//! address: it is that of a connection of ours.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sekisho_route::ConnectionFacts;

/// Maximum number of rounds of a request that is passed to this machine itself.
const DEPTH_MAX: u8 = 10;

/// The connections of this process to this machine, by their own addresses.
static DEPTHS: Mutex<Option<HashMap<SocketAddr, u8>>> = Mutex::new(None);

/// Who causes a connection: the addresses of the client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cause {
    remote: Option<SocketAddr>,
    local: Option<SocketAddr>,
}

/// A request was passed to this process too often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooDeep;

impl fmt::Display for TooDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server was asked by itself {DEPTH_MAX} times")
    }
}

/// A connection that may come back, until it is dropped.
#[derive(Debug)]
pub(super) struct Hop(SocketAddr);

impl Cause {
    /// The request of this connection.
    pub(super) const fn of(connection: &ConnectionFacts) -> Self {
        Self { remote: connection.remote, local: connection.local }
    }

    /// Whether a connection to this address stays on this machine: a circle needs that.
    fn may_come_back(self, to: SocketAddr) -> bool {
        to.ip().is_loopback() || self.local.is_some_and(|local| local.ip() == to.ip())
    }

    /// How deep a connection to this address is; an error where that is too deep, `None` where it cannot come back.
    pub(super) fn depth(self, to: SocketAddr) -> Result<Option<u8>, TooDeep> {
        if !self.may_come_back(to) {
            return Ok(None);
        }
        let of_client = |remote| lock().as_ref().and_then(|depths| depths.get(&remote).copied());
        let depth = self.remote.and_then(of_client).unwrap_or(0);
        if depth >= DEPTH_MAX {
            return Err(TooDeep);
        }
        Ok(Some(depth + 1))
    }
}

impl Hop {
    /// Notes a connection that was made.
    pub(super) fn new(socket: impl AsFd, depth: u8) -> Option<Self> {
        let own = SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
        lock().get_or_insert_default().insert(own, depth);
        Some(Self(own))
    }
}

impl Drop for Hop {
    fn drop(&mut self) {
        if let Some(depths) = lock().as_mut() {
            depths.remove(&self.0);
        }
    }
}

fn lock() -> MutexGuard<'static, Option<HashMap<SocketAddr, u8>>> {
    // Nothing that holds the lock can panic half-way.
    DEPTHS.lock().unwrap_or_else(PoisonError::into_inner)
}
