//! The zones of `limit_req` and `limit_conn`, shared by all workers. They outlive a reload where name, key and
//! size stay as they are. A zone is locked for as long as it takes to look one key up.

use std::mem::discriminant;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sekisho_config::{ConnectionLimit, RateLimit, Zone, ZoneKind};
use sekisho_lifecycle::Moment;
use sekisho_route::zone::{ConnectionZone, RateZone};
use sekisho_route::{Rated, Taken};

/// Every zone of the server that is in use.
#[derive(Debug, Default)]
pub struct Zones(Mutex<Vec<(Zone, Weak<SharedZone>)>>);

/// A zone that workers share.
#[derive(Debug)]
pub enum SharedZone {
    /// Of `limit_req`
    Rates(Mutex<RateZone>),
    /// Of `limit_conn`
    Connections(Mutex<ConnectionZone>),
}

impl Zones {
    /// The zones of a configuration, in its order: those that are in use already, and new ones.
    pub fn of(&self, wanted: &[Zone]) -> Vec<Arc<SharedZone>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, zone)| zone.strong_count() > 0);
        let mut all = Vec::with_capacity(wanted.len());
        for zone in wanted {
            let is_same = |other: &Zone| {
                (&zone.name, &zone.key, zone.bytes) == (&other.name, &other.key, other.bytes)
                    && discriminant(&zone.kind) == discriminant(&other.kind)
            };
            let kept = known.iter().rfind(|(other, _)| is_same(other));
            let shared = kept.and_then(|(_, shared)| shared.upgrade()).unwrap_or_else(|| {
                let shared = Arc::new(SharedZone::new(zone));
                known.push((zone.clone(), Arc::downgrade(&shared)));
                shared
            });
            all.push(shared);
        }
        all
    }
}

impl SharedZone {
    fn new(zone: &Zone) -> Self {
        match zone.kind {
            ZoneKind::Rate(_) => Self::Rates(Mutex::new(RateZone::new(zone.bytes))),
            ZoneKind::Connections => Self::Connections(Mutex::new(ConnectionZone::new(zone.bytes))),
        }
    }

    /// How far above its rate a key is with one request more; see [`RateZone::look`].
    pub fn look_at_rate(&self, limit: &RateLimit, key: &[u8], counts: bool, now: Moment) -> Rated {
        match self {
            Self::Rates(zone) => lock(zone).look(limit, key, counts, now),
            Self::Connections(_) => Rated::Within(0),
        }
    }

    /// Counts a request; see [`RateZone::count`].
    pub fn count_request(&self, limit: &RateLimit, key: &[u8], now: Moment) -> u64 {
        match self {
            Self::Rates(zone) => lock(zone).count(limit, key, now),
            Self::Connections(_) => 0,
        }
    }

    /// Takes a place, which is left when it is dropped.
    pub fn acquire_permit(
        self: &Arc<Self>,
        limit: &ConnectionLimit,
        key: &[u8],
    ) -> Result<ConnectionPermit, Taken> {
        let taken = match &**self {
            Self::Connections(zone) => lock(zone).take(key, limit.max),
            Self::Rates(_) => Taken::NoRoom,
        };
        match taken {
            Taken::Yes => Ok(ConnectionPermit { zone: Arc::clone(self), key: key.into() }),
            other => Err(other),
        }
    }

    /// How many keys it holds.
    pub fn keys(&self) -> usize {
        match self {
            Self::Rates(zone) => lock(zone).len(),
            Self::Connections(zone) => lock(zone).len(),
        }
    }
}

/// A place of `limit_conn`. Dropping it leaves it, once, however the request ends.
#[derive(Debug)]
pub struct ConnectionPermit {
    zone: Arc<SharedZone>,
    key: Box<[u8]>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let SharedZone::Connections(zone) = &*self.zone {
            lock(zone).leave(&self.key);
        }
    }
}

fn lock<T>(zone: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A zone counts; one that was left in the middle of counting still does.
    zone.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::{Rate, Template, ZoneId};

    fn zone(name: &str, key: &str, bytes: u64, kind: ZoneKind) -> Zone {
        Zone { name: name.into(), key: Template::literal(key), bytes, kind }
    }

    #[test]
    fn a_zone_is_kept_while_its_name_key_and_size_are() {
        let slow = ZoneKind::Rate(Rate { requests: 1, secs: 60 });
        let quick = ZoneKind::Rate(Rate { requests: 9, secs: 1 });
        let zones = Zones::default();
        let before = zones.of(&[zone("a", "k", 1 << 20, slow), zone("b", "k", 1 << 20, slow)]);
        let after = zones.of(&[
            zone("b", "k", 1 << 20, quick),
            zone("a", "other", 1 << 20, slow),
            zone("c", "k", 1 << 20, slow),
        ]);
        assert!(Arc::ptr_eq(&before[1], &after[0]), "its rate may change");
        assert!(!Arc::ptr_eq(&before[0], &after[1]), "its key may not");
        let other_kind = zones.of(&[zone("b", "k", 1 << 20, ZoneKind::Connections)]);
        assert!(!Arc::ptr_eq(&before[1], &other_kind[0]));
        drop((before, after, other_kind));
        zones.of(&[]);
        assert!(zones.0.lock().expect("not poisoned").is_empty(), "unused zones are dropped");
    }

    #[test]
    fn a_permit_is_released_when_it_is_dropped() {
        let zones = Zones::default().of(&[zone("c", "k", 1 << 20, ZoneKind::Connections)]);
        let limit = ConnectionLimit { zone: ZoneId(0), max: 2 };
        let first = zones[0].acquire_permit(&limit, b"ann").expect("a place");
        let second = zones[0].acquire_permit(&limit, b"ann").expect("a place");
        assert_eq!(zones[0].acquire_permit(&limit, b"ann").err(), Some(Taken::No));
        assert!(zones[0].acquire_permit(&limit, b"bob").is_ok());
        drop(first);
        let third = zones[0].acquire_permit(&limit, b"ann");
        assert!(third.is_ok());
        drop((second, third));
        assert_eq!(zones[0].keys(), 0);
    }
}
