//! How fast and how much at once: `limit_req`, then `limit_conn`, each once for a request, as in nginx. With
//! several limits the strictest decides, and a request that one of them refuses is counted by none.

use std::mem;
use std::time::Duration;

use sekisho_config::{Level, Limits, RateLimit};

use super::{Decision, Next};
use crate::access_checks::{LimitStatus, Rated, Taken, Wait};
use crate::action::{Action, Files};

/// Longer keys are not limited (nginx's bounds).
const RATE_KEY_MAX: usize = 65535;
const CONNECTION_KEY_MAX: usize = 255;

/// The result of the rates; excesses are in thousandths of a request.
enum Pace {
    /// There was nothing to limit.
    Free,
    Passed,
    /// This limit, an index, wants the request to wait: by its excess, for so many milliseconds.
    Delayed(usize, u64, u64),
    /// This one refuses it, by its excess; without one, its zone has no room.
    Refused(usize, Option<u64>),
}

impl<'a, F: Files> Decision<'a, F> {
    /// `None` lets the request pass.
    pub(super) fn limits(&mut self, limits: &Limits) -> Option<Next<F::File>> {
        if self.route_state.access_progress.rate.is_none() && !limits.rates.is_empty() {
            let next = self.rates(limits);
            if next.is_some() {
                return next;
            }
        }
        if self.route_state.access_progress.connections.is_none() && !limits.connections.is_empty()
        {
            return self.connections(limits);
        }
        None
    }

    fn rates(&mut self, limits: &Limits) -> Option<Next<F::File>> {
        let bound = limits.rate_bound;
        let dry_run = if bound.is_dry_run { ", dry run" } else { "" };
        let (status, next) = match self.pace(&limits.rates) {
            Pace::Free => return None,
            Pace::Passed => (LimitStatus::Passed, None),
            Pace::Delayed(at, excess, millis) => {
                let (whole, part) = (excess / 1000, excess % 1000);
                let zone = self.zone_name(&limits.rates[at]);
                let message = format_args!(
                    "delaying request{dry_run}, excess: {whole}.{part:03}, by zone \"{zone}\""
                );
                self.files.report(self.route_state.location, one_lower(bound.level), message);
                if bound.is_dry_run {
                    (LimitStatus::DelayedDryRun, None)
                } else {
                    let wait = Wait::For(Duration::from_millis(millis));
                    (LimitStatus::Delayed, Some(Next::Done(Action::Wait(wait))))
                }
            }
            Pace::Refused(at, excess) => {
                let zone = self.zone_name(&limits.rates[at]);
                let location = self.route_state.location;
                if let Some(excess) = excess {
                    let (whole, part) = (excess / 1000, excess % 1000);
                    let message = format_args!(
                        "limiting requests{dry_run}, excess: {whole}.{part:03} by zone \"{zone}\""
                    );
                    self.files.report(location, bound.level, message);
                } else {
                    let message = format_args!("no room for a key in zone \"{zone}\"");
                    self.files.report(location, Level::Alert, message);
                }
                if bound.is_dry_run {
                    (LimitStatus::RejectedDryRun, None)
                } else {
                    (LimitStatus::Rejected, Some(Next::Fail(bound.status)))
                }
            }
        };
        self.route_state.access_progress.rate = Some(status);
        next
    }

    /// nginx's arithmetic: every limit is looked at, the last one is counted at once, and when none has
    /// refused the others are counted too. The longest delay is the one that holds.
    fn pace(&mut self, rates: &[RateLimit]) -> Pace {
        let mut looked: Option<(usize, u64)> = None;
        for (at, limit) in rates.iter().enumerate() {
            let is_last = at + 1 == rates.len();
            let seen = self.with_key(limit, |access_checks, key| {
                access_checks.look_at_rate(limit, key, is_last)
            });
            match seen {
                None => {}
                Some(Rated::Over(excess)) => return Pace::Refused(at, Some(excess)),
                Some(Rated::NoRoom) => return Pace::Refused(at, None),
                // What was only looked at has not been counted, and is below.
                Some(Rated::Within(excess)) => {
                    looked = Some((at, if is_last { excess } else { 0 }));
                }
            }
        }
        let Some((last, excess)) = looked else { return Pace::Free };
        let mut longest = (last, excess, delay(&rates[last], excess));
        for (at, limit) in rates.iter().enumerate().take(rates.len() - 1) {
            let counted =
                self.with_key(limit, |access_checks, key| access_checks.count_request(limit, key));
            let Some(excess) = counted else { continue };
            let millis = delay(limit, excess);
            if millis > longest.2 {
                longest = (at, excess, millis);
            }
        }
        match longest {
            (_, _, 0) => Pace::Passed,
            (at, excess, millis) => Pace::Delayed(at, excess, millis),
        }
    }

    /// Does something with the key of a limit, unless it has none.
    fn with_key<T>(
        &mut self,
        limit: &RateLimit,
        work: impl FnOnce(&mut F, &[u8]) -> T,
    ) -> Option<T> {
        let zone = self.table.config().http.zones.get(limit.zone.0 as usize)?;
        let mut key = mem::take(&mut self.route_state.value);
        self.expand(&zone.key, &mut key);
        let done = match key.len() {
            0 => None,
            1..=RATE_KEY_MAX => Some(work(self.files, &key)),
            bytes => {
                self.report_long_key(&zone.name, RATE_KEY_MAX, bytes);
                None
            }
        };
        self.route_state.value = key;
        done
    }

    fn connections(&mut self, limits: &Limits) -> Option<Next<F::File>> {
        let bound = limits.connection_bound;
        for limit in limits.connections.iter() {
            let Some(zone) = self.table.config().http.zones.get(limit.zone.0 as usize) else {
                continue;
            };
            let mut key = mem::take(&mut self.route_state.value);
            self.expand(&zone.key, &mut key);
            let taken = match key.len() {
                0 => None,
                1..=CONNECTION_KEY_MAX => Some(self.files.acquire_permit(limit, &key)),
                bytes => {
                    self.report_long_key(&zone.name, CONNECTION_KEY_MAX, bytes);
                    None
                }
            };
            self.route_state.value = key;
            let location = self.route_state.location;
            let name = &zone.name;
            match taken {
                None => continue,
                Some(Taken::Yes) => {
                    self.route_state.access_progress.connections = Some(LimitStatus::Passed);
                    continue;
                }
                Some(Taken::No) => {
                    let dry_run = if bound.is_dry_run { ", dry run," } else { "" };
                    let message = format_args!("limiting connections{dry_run} by zone \"{name}\"");
                    self.files.report(location, bound.level, message);
                }
                Some(Taken::NoRoom) => {
                    let message = format_args!("no room for a key in zone \"{name}\"");
                    self.files.report(location, Level::Alert, message);
                }
            }
            self.files.release_permits();
            if bound.is_dry_run {
                self.route_state.access_progress.connections = Some(LimitStatus::RejectedDryRun);
                return None;
            }
            self.route_state.access_progress.connections = Some(LimitStatus::Rejected);
            return Some(Next::Fail(bound.status));
        }
        None
    }

    fn report_long_key(&mut self, zone: &str, most: usize, bytes: usize) {
        let message =
            format_args!("the key of zone \"{zone}\" has more than {most} bytes: {bytes}");
        self.files.report(self.route_state.location, Level::Error, message);
    }

    fn zone_name(&self, limit: &RateLimit) -> &'a str {
        let zone = self.table.config().http.zones.get(limit.zone.0 as usize);
        zone.map_or("", |zone| &zone.name)
    }
}

/// How many milliseconds a request waits that is so far above its rate.
fn delay(limit: &RateLimit, excess: u64) -> u64 {
    match limit.delay_from {
        Some(from) if excess > from => {
            let (requests, secs) = (u64::from(limit.rate.requests), u64::from(limit.rate.secs));
            (excess - from).saturating_mul(secs) / requests.max(1)
        }
        _ => 0,
    }
}

/// Delays are less grave than refusals.
const fn one_lower(level: Level) -> Level {
    match level {
        Level::Error => Level::Warn,
        Level::Warn => Level::Notice,
        _ => Level::Info,
    }
}
