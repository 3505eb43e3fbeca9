//! Access checks without a machine: users that are a list, zones on virtual time, and a log that is a list of lines.

use std::collections::HashMap;
use std::fmt;

use sekisho_config::{ConnectionLimit, Level, LocationId, RateLimit, ZoneId};
use sekisho_lifecycle::Moment;
use sekisho_route::zone::{ConnectionZone, RateZone};
use sekisho_route::{AccessChecks, Password, Rated, Taken};

use crate::support::FakeFiles;

/// A file `/missing` is not there, `/broken` cannot be read; in all others `ann` has the password `secret`,
/// and `slow` the same, which takes its time.
#[derive(Default)]
pub(crate) struct FakeAccessChecks {
    pub(crate) now: Moment,
    pub(crate) zone_bytes: Option<u64>,
    rates: HashMap<ZoneId, RateZone>,
    pub(crate) connections: HashMap<ZoneId, ConnectionZone>,
    /// The places of the present request.
    pub(crate) taken: Vec<(ZoneId, Vec<u8>)>,
    /// Whether what takes its time has had it.
    pub(crate) has_waited: bool,
    /// Which files were asked.
    pub(crate) asked: Vec<String>,
    pub(crate) lines: Vec<String>,
}

impl FakeAccessChecks {
    fn bytes(&self) -> u64 {
        self.zone_bytes.unwrap_or(1 << 20)
    }

    /// The request is over.
    pub(crate) fn leave(&mut self) {
        for (zone, key) in self.taken.drain(..) {
            self.connections.get_mut(&zone).expect("it was taken here").leave(&key);
        }
    }
}

impl AccessChecks for FakeFiles {
    fn look_at_rate(&mut self, limit: &RateLimit, key: &[u8], counts: bool) -> Rated {
        let access_checks = &mut self.access_checks;
        let (bytes, now) = (access_checks.bytes(), access_checks.now);
        let zone = access_checks.rates.entry(limit.zone).or_insert_with(|| RateZone::new(bytes));
        zone.look(limit, key, counts, now)
    }

    fn count_request(&mut self, limit: &RateLimit, key: &[u8]) -> u64 {
        let access_checks = &mut self.access_checks;
        let (bytes, now) = (access_checks.bytes(), access_checks.now);
        let zone = access_checks.rates.entry(limit.zone).or_insert_with(|| RateZone::new(bytes));
        zone.count(limit, key, now)
    }

    fn acquire_permit(&mut self, limit: &ConnectionLimit, key: &[u8]) -> Taken {
        let bytes = self.access_checks.bytes();
        let zone = self
            .access_checks
            .connections
            .entry(limit.zone)
            .or_insert_with(|| ConnectionZone::new(bytes));
        let taken = zone.take(key, limit.max);
        if taken == Taken::Yes {
            self.access_checks.taken.push((limit.zone, key.to_vec()));
        }
        taken
    }

    fn release_permits(&mut self) {
        self.access_checks.leave();
    }

    fn password(&mut self, _: LocationId, file: &[u8], user: &[u8], password: &[u8]) -> Password {
        self.access_checks.asked.push(String::from_utf8_lossy(file).into_owned());
        match (file, user, password) {
            (b"/missing", _, _) => Password::NoFile,
            (b"/broken", _, _) => Password::Failed,
            (_, b"slow", _) if !self.access_checks.has_waited => Password::Later,
            (_, b"ann" | b"slow", b"secret") => Password::Right,
            (_, b"ann" | b"slow", _) => Password::Wrong,
            _ => Password::Unknown,
        }
    }

    fn report(&mut self, _: LocationId, level: Level, message: fmt::Arguments<'_>) {
        self.access_checks.lines.push(format!("{} {message}", level.name()));
    }
}
