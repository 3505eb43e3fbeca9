//! Leftovers of uploads: what a dead server could not finish, and what its client never did. Looked for
//! when a configuration comes into use, and as often as unfinished uploads expire; beside the work, so
//! that nobody waits for it.

use std::sync::Arc;
use std::time::Duration;

use sekisho_config::Level;

use crate::privilege;
use crate::run::Server;

/// How often, at the most and at the least, unfinished uploads are looked through.
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_hours(1);

impl Server {
    /// Begins to look for leftovers where this configuration stores files.
    pub(crate) fn sweep_leftovers(&mut self) {
        let locations = &self.site.config().http.locations;
        let file_ops =
            || locations.iter().filter_map(|location| location.settings.file_ops.as_deref());
        let life = file_ops().filter_map(|file_ops| file_ops.resumable).min();
        let period = life.map(|life| life.clamp(PERIOD_MIN, PERIOD_MAX));
        self.next_sweep = period.map(|period| self.clock.now() + period);
        if file_ops().next().is_none() {
            return;
        }
        let (site, stamp) = (Arc::clone(&self.site), self.clock.stamp(self.clock.now()));
        let sweep = move || {
            let (removed, is_cut) = sekisho_net::leftovers(site.config(), stamp.unix_secs);
            if removed > 0 {
                let message = format_args!("removed {removed} leftovers of unfinished uploads");
                site.log.write(Level::Notice, stamp, None, message);
            }
            if is_cut {
                let message = "too many files to look for leftovers of uploads among all of them";
                site.log.write(Level::Notice, stamp, None, format_args!("{message}"));
            }
        };
        let thread = std::thread::Builder::new().name("sweep".into());
        let started = privilege::without_rest(|| thread.spawn(sweep).map(drop));
        if let Err(error) = started {
            self.log(Level::Warn, &format!("leftovers of uploads are not looked for: {error}"));
        }
    }
}
