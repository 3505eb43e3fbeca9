//! The zones of `limit_req` and `limit_conn`, shared by all workers. They outlive a reload where name, key and
//! size stay as they are. A zone is locked for as long as it takes to look one key up.

use std::mem::discriminant;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sekisho_config::{ConnectionLimit, Rate, RateLimit, StoreFailure, Zone, ZoneKind};
use sekisho_lifecycle::Moment;
pub use sekisho_route::zone::Counted;
use sekisho_route::zone::{ConnectionZone, RateZone};
use sekisho_route::{Rated, Taken};
use tokio::sync::Notify;

/// Every zone of the server that is in use.
#[derive(Debug, Default)]
pub struct Zones(Mutex<Vec<(Zone, Weak<SharedZone>)>>);

/// A zone that workers share, and other servers where it has a store.
#[derive(Debug)]
pub struct SharedZone {
    counts: Counts,
    link: Option<Arc<StoreLink>>,
}

#[derive(Debug)]
enum Counts {
    /// Of `limit_req`
    Rates(Mutex<RateZone>),
    /// Of `limit_conn`
    Connections(Mutex<ConnectionZone>),
}

/// What workers and the thread that speaks to a store share.
#[derive(Debug)]
pub struct StoreLink {
    failure: StoreFailure,
    /// The store does not answer.
    is_away: AtomicBool,
    /// Something was counted since the thread looked last.
    is_changed: AtomicBool,
    changed: Notify,
}

impl StoreLink {
    fn new(failure: StoreFailure) -> Self {
        let (is_away, is_changed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { failure, is_away, is_changed, changed: Notify::new() }
    }

    /// Waits until something was counted.
    pub async fn changed(&self) {
        while !self.is_changed.swap(false, Ordering::Acquire) {
            self.changed.notified().await;
        }
    }

    /// Says whether the store is away.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Something was counted.
    pub fn touch(&self) {
        if !self.is_changed.swap(true, Ordering::Release) {
            self.changed.notify_one();
        }
    }

    /// What counts instead of this server's own count, while the store is away.
    fn instead(&self) -> Option<StoreFailure> {
        let is_away = self.is_away.load(Ordering::Relaxed);
        Some(self.failure).filter(|it| is_away && *it != StoreFailure::Local)
    }
}

impl Zones {
    /// The zones of a configuration, in its order: those that are in use already, and new ones.
    pub fn of(&self, wanted: &[Zone]) -> Vec<Arc<SharedZone>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, zone)| zone.strong_count() > 0);
        let mut all = Vec::with_capacity(wanted.len());
        for zone in wanted {
            let is_same = |other: &Zone| {
                (&zone.name, &zone.key, zone.bytes, &zone.store)
                    == (&other.name, &other.key, other.bytes, &other.store)
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
        let (bytes, is_shared) = (zone.bytes, zone.store.is_some());
        let counts = match zone.kind {
            ZoneKind::Rate(_) if is_shared => Counts::Rates(Mutex::new(RateZone::shared(bytes))),
            ZoneKind::Rate(_) => Counts::Rates(Mutex::new(RateZone::new(bytes))),
            ZoneKind::Connections if is_shared => {
                Counts::Connections(Mutex::new(ConnectionZone::shared(bytes)))
            }
            ZoneKind::Connections => Counts::Connections(Mutex::new(ConnectionZone::new(bytes))),
        };
        let link = zone.store.as_ref().map(|store| Arc::new(StoreLink::new(store.failure)));
        Self { counts, link }
    }

    /// How far above its rate a key is with one request more; see [`RateZone::look`].
    pub fn look_at_rate(&self, limit: &RateLimit, key: &[u8], counts: bool, now: Moment) -> Rated {
        let Counts::Rates(zone) = &self.counts else { return Rated::Within(0) };
        match self.instead() {
            Some(StoreFailure::Deny) => return Rated::Over(limit.burst.saturating_add(1)),
            Some(_) => return Rated::Within(0),
            None => {}
        }
        let rated = lock(zone).look(limit, key, counts, now);
        if counts {
            self.touch();
        }
        rated
    }

    /// Counts a request; see [`RateZone::count`].
    pub fn count_request(&self, limit: &RateLimit, key: &[u8], now: Moment) -> u64 {
        let Counts::Rates(zone) = &self.counts else { return 0 };
        let excess = lock(zone).count(limit, key, now);
        self.touch();
        excess
    }

    /// Takes a place, which is left when it is dropped.
    pub fn acquire_permit(
        self: &Arc<Self>,
        limit: &ConnectionLimit,
        key: &[u8],
    ) -> Result<ConnectionPermit, Taken> {
        let Counts::Connections(zone) = &self.counts else { return Err(Taken::NoRoom) };
        let max = match self.instead() {
            Some(StoreFailure::Deny) => return Err(Taken::No),
            Some(_) => u32::MAX,
            None => limit.max,
        };
        let taken = lock(zone).take(key, max);
        self.touch();
        match taken {
            Taken::Yes => Ok(ConnectionPermit { zone: Arc::clone(self), key: key.into() }),
            other => Err(other),
        }
    }

    /// How many keys it holds.
    pub fn keys(&self) -> usize {
        match &self.counts {
            Counts::Rates(zone) => lock(zone).len(),
            Counts::Connections(zone) => lock(zone).len(),
        }
    }

    /// What the thread that speaks to its store has in common with it.
    pub fn link(&self) -> Option<&Arc<StoreLink>> {
        self.link.as_ref()
    }

    /// What its store is to be told, of so many keys; see [`RateZone::take_counted`].
    pub fn take_counted(
        &self,
        keys_max: usize,
        since_away: Option<(Rate, Moment)>,
    ) -> Vec<Counted> {
        match &self.counts {
            Counts::Rates(zone) => lock(zone).take_counted(keys_max, since_away),
            Counts::Connections(zone) => lock(zone).take_counted(keys_max),
        }
    }

    /// What its store has counted of a key: the excess of all servers, or the places that are taken on others.
    pub fn reconcile(&self, key: &[u8], count: u64, now: Moment) {
        match &self.counts {
            Counts::Rates(zone) => lock(zone).reconcile(key, count, now),
            Counts::Connections(zone) => {
                lock(zone).reconcile(key, u32::try_from(count).unwrap_or(u32::MAX));
            }
        }
    }

    /// Its store could not be told.
    pub fn give_back(&self, counted: &[Counted]) {
        match &self.counts {
            Counts::Rates(zone) => lock(zone).give_back(counted),
            Counts::Connections(zone) => lock(zone).give_back(counted),
        }
        self.touch();
    }

    /// Its store is to be told again what is held; see [`ConnectionZone::refresh`].
    pub fn refresh(&self) {
        if let Counts::Connections(zone) = &self.counts {
            lock(zone).refresh();
            self.touch();
        }
    }

    fn instead(&self) -> Option<StoreFailure> {
        self.link.as_ref().and_then(|link| link.instead())
    }

    fn touch(&self) {
        if let Some(link) = &self.link {
            link.touch();
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
        if let Counts::Connections(zone) = &self.zone.counts {
            lock(zone).leave(&self.key);
            self.zone.touch();
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
    use sekisho_config::{Template, ZoneId};

    fn zone(name: &str, key: &str, bytes: u64, kind: ZoneKind) -> Zone {
        Zone { name: name.into(), key: Template::literal(key), bytes, kind, store: None }
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
