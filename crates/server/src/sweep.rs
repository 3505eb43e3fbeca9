//! Leftovers of uploads that a dead server could not finish: looked for when a configuration comes into
//! use, beside the work, so that nobody waits for it.

use std::sync::Arc;

use sekisho_config::Level;

use crate::run::Server;

impl Server {
    /// Begins to look for leftovers where this configuration stores files.
    pub(crate) fn sweep_leftovers(&self) {
        let http = &self.site.config().http;
        if http.locations.iter().all(|location| location.settings.deeds.is_none()) {
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
        let started = std::thread::Builder::new().name("sweep".into()).spawn(sweep);
        if let Err(error) = started {
            self.log(Level::Warn, &format!("leftovers of uploads are not looked for: {error}"));
        }
    }
}
