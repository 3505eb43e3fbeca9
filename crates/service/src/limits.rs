//! How many requests of one identity and of one address may run at once, over all sessions, protocols and threads.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::identity::{AddressKey, Identity};
use crate::request::Peer;

/// So many counters may be there before those that nobody uses are looked for.
const SWEEP_MIN: usize = 64;

/// The limits, and what counts against them. Without a limit nothing is counted.
#[derive(Debug, Default)]
pub struct RequestLimits {
    identity_max: Option<u32>,
    address_max: Option<u32>,
    counters: Mutex<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    by_key: HashMap<Key, Weak<AtomicU32>>,
    sweep_at: usize,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    Identity(Identity),
    Address(AddressKey),
}

/// What the requests of one caller count against. A session asks for it once.
#[derive(Clone, Debug, Default)]
pub struct RequestCounter {
    limits: [Option<(Arc<AtomicU32>, u32)>; 2],
}

/// A request that is counted, until this is dropped.
#[derive(Debug, Default)]
pub struct RequestPermit {
    counted: [Option<Arc<AtomicU32>>; 2],
}

/// As many requests run as may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooManyRequests {
    /// Of this identity.
    Identity,
    /// Of this address.
    Address,
}

impl RequestLimits {
    /// So many of an identity, and so many of an address.
    pub fn new(identity_max: Option<u32>, address_max: Option<u32>) -> Arc<Self> {
        Arc::new(Self { identity_max, address_max, counters: Mutex::default() })
    }

    /// What the requests of this caller count against. A caller that has proved nothing is counted by its address
    /// alone.
    pub fn counter(&self, peer: &Peer, identity: &Identity) -> RequestCounter {
        let is_named = *identity != Identity::Anonymous;
        let identity_max = self.identity_max.filter(|_| is_named);
        let address = self.address_max.zip(AddressKey::of(peer));
        if identity_max.is_none() && address.is_none() {
            return RequestCounter::default();
        }
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of = |key: Key, max: u32| (counters.of(key), max);
        RequestCounter {
            limits: [
                identity_max.map(|max| of(Key::Identity(identity.clone()), max)),
                address.map(|(max, address)| of(Key::Address(address), max)),
            ],
        }
    }
}

impl Counters {
    fn of(&mut self, key: Key) -> Arc<AtomicU32> {
        if self.by_key.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.by_key.retain(|_, counter| counter.strong_count() > 0);
            self.sweep_at = 2 * self.by_key.len();
        }
        let place = self.by_key.entry(key).or_default();
        place.upgrade().unwrap_or_else(|| {
            let counter = Arc::default();
            *place = Arc::downgrade(&counter);
            counter
        })
    }
}

impl RequestCounter {
    /// Counts one request more, if there may be one.
    pub fn take(&self) -> Result<RequestPermit, TooManyRequests> {
        let mut permit = RequestPermit::default();
        let whose = [TooManyRequests::Identity, TooManyRequests::Address];
        for (at, limit) in self.limits.iter().enumerate() {
            let Some((counter, max)) = limit else { continue };
            let more = |count: u32| (count < *max).then_some(count + 1);
            let update = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
            // What was counted so far is given back with the permit.
            update.map_err(|_| whose[at])?;
            permit.counted[at] = Some(Arc::clone(counter));
        }
        Ok(permit)
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        for counter in self.counted.iter().flatten() {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for TooManyRequests {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Identity => "the maximum number of running requests of your identity is reached",
            Self::Address => "the maximum number of running requests of your address is reached",
        })
    }
}

impl std::error::Error for TooManyRequests {}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(last: u8) -> Peer {
        Peer::Tcp(([192, 0, 2, last], 1).into())
    }

    #[test]
    fn an_identity_is_counted_over_all_its_sessions_and_an_address_over_all_identities() {
        // E4, E14
        let limits = RequestLimits::new(Some(2), Some(3));
        let ann = Identity::User("ann".into());
        let (first, second) = (limits.counter(&tcp(1), &ann), limits.counter(&tcp(2), &ann));
        let held = (first.take(), second.take());
        assert!(held.0.is_ok() && held.1.is_ok());
        assert_eq!(first.take().err(), Some(TooManyRequests::Identity));
        let other = limits.counter(&tcp(1), &Identity::User("bob".into()));
        let anonymous = limits.counter(&tcp(1), &Identity::Anonymous);
        let more = (other.take(), anonymous.take());
        assert!(more.0.is_ok() && more.1.is_ok());
        assert_eq!(other.take().err(), Some(TooManyRequests::Address));
        drop((held, more));
        // A refusal by the second limit gave back what the first had counted.
        let both = (other.take(), other.take());
        assert!(both.0.is_ok() && both.1.is_ok());
        assert_eq!(other.take().err(), Some(TooManyRequests::Identity));
    }

    #[test]
    fn counters_that_nobody_uses_go() {
        // E4, E14
        let limits = RequestLimits::new(None, Some(1));
        for last in 0..=255 {
            for third in 0..4 {
                let peer = Peer::Tcp(([192, 0, third, last], 1).into());
                assert!(limits.counter(&peer, &Identity::Anonymous).take().is_ok());
            }
        }
        let counters = limits.counters.lock().expect("no panic");
        assert!(counters.by_key.len() <= SWEEP_MIN, "{}", counters.by_key.len());
    }
}
