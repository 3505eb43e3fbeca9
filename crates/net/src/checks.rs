//! Active checks of servers, as a worker makes them.

use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::Level;
use sekisho_handler::upstream::{CheckContext, Pools};
use sekisho_lifecycle::Moment;

use crate::site::Site;
use crate::worker::Worker;

/// The worker, and the site whose servers are checked.
#[derive(Debug)]
struct Checking {
    worker: Rc<Worker>,
    site: Arc<Site>,
}

impl CheckContext for Checking {
    fn now(&self) -> Moment {
        self.worker.clock.now()
    }

    fn report(&self, level: Level, message: std::fmt::Arguments<'_>) {
        let stamp = self.worker.clock.stamp(self.now());
        self.site.log.write(level, stamp, None, message);
    }

    fn pools(&self) -> &Rc<Pools> {
        &self.worker.upstreams
    }
}

impl Worker {
    /// Takes part in the checks of a site from now on, and no longer in those of another.
    pub(crate) fn check_servers(self: &Rc<Self>, site: &Arc<Site>) {
        self.stop_checks();
        if site.checks().is_empty() {
            return;
        }
        let context = Rc::new(Checking { worker: Rc::clone(self), site: Arc::clone(site) });
        let checks = Arc::clone(site.checks());
        let task = tokio::task::spawn_local(checks.run(context));
        *self.checking.borrow_mut() = Some(task);
    }

    /// Takes no part any more.
    pub(crate) fn stop_checks(&self) {
        if let Some(task) = self.checking.borrow_mut().take() {
            task.abort();
        }
    }
}
