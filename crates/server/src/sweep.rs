//! Leftovers of uploads: what a dead server could not finish, and what its client never did. Looked for
//! when a configuration comes into use, and as often as unfinished uploads expire; on a thread of its own, so
//! that no request waits for it. Caches are looked through at the same time: what an earlier process has kept
//! is found, and entries that are not asked for are deleted.

use std::sync::Arc;
use std::time::Duration;

use sekisho_config::Level;

use crate::privilege;
use crate::run::Server;

/// How often, at the most and at the least, unfinished uploads are looked through.
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_hours(1);
/// How often caches are looked through at the least.
const CACHE_PERIOD_MAX: Duration = Duration::from_secs(10);

impl Server {
    /// Begins to look for leftovers where this configuration stores files.
    pub(crate) fn sweep_leftovers(&mut self) {
        let locations = &self.site.config().http.locations;
        let file_ops =
            || locations.iter().filter_map(|location| location.settings.file_ops.as_deref());
        let life = file_ops().filter_map(|file_ops| file_ops.resumable).min();
        let caches = self.site.config().http.caches.iter();
        let inactive = caches.map(|cache| (cache.settings.inactive / 4).min(CACHE_PERIOD_MAX));
        let period = life.into_iter().chain(inactive).min();
        let period = period.map(|period| period.clamp(PERIOD_MIN, PERIOD_MAX));
        self.next_sweep = period.map(|period| self.clock.now() + period);
        let stores_files = file_ops().next().is_some();
        if !stores_files && self.site.caches().is_empty() {
            return;
        }
        let now = self.clock.now();
        let (site, stamp) = (Arc::clone(&self.site), self.clock.stamp(now));
        let sweep = move || {
            for (cache, config) in site.caches().iter().zip(&site.config().http.caches) {
                if let Err(error) = cache.maintain(now) {
                    let path = config.path.display();
                    let message = format_args!("cannot scan the cache \"{path}\": {error}");
                    site.log.write(Level::Crit, stamp, None, message);
                }
            }
            if !stores_files {
                return;
            }
            let (removed, is_cut) = sekisho_net::leftovers(site.config(), stamp.unix_secs);
            if removed > 0 {
                let message = format_args!("removed {removed} leftovers of unfinished uploads");
                site.log.write(Level::Notice, stamp, None, message);
            }
            if is_cut {
                let message = "too many files to search all of them for leftovers of uploads";
                site.log.write(Level::Notice, stamp, None, format_args!("{message}"));
            }
        };
        let thread = std::thread::Builder::new().name("sweep".into());
        let started = privilege::without_rest(|| thread.spawn(sweep).map(drop));
        if let Err(error) = started {
            self.log(
                Level::Warn,
                &format!("leftovers of uploads and caches are not searched for: {error}"),
            );
        }
    }
}
