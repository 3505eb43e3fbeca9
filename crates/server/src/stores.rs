//! What several servers share through stores (Redis, Valkey): one thread beside the workers counts limits together
//! (`limits`) and fetches the secrets of TLS tickets (`tickets`). Workers use what is there; no request waits for a store.

mod limits;
mod redis;
mod tickets;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho_config::{Level, Zone};
use sekisho_handler::limits::SharedZone;
use sekisho_net::{Clock, Site};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{Problem, privilege};

/// A store that does not answer for so long is away.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);

/// The thread that speaks to stores. It ends with the process.
#[derive(Debug)]
pub(crate) struct Stores {
    sites: watch::Sender<Arc<Site>>,
    started: Instant,
    is_running: bool,
}

impl Stores {
    /// Starts the thread, where the configuration names a store.
    pub(crate) fn start(site: &Arc<Site>, started: Instant) -> Result<Self, Problem> {
        let (sites, _) = watch::channel(Arc::clone(site));
        let mut all = Self { sites, started, is_running: false };
        all.run_if_needed()?;
        Ok(all)
    }

    /// Takes up another configuration.
    pub(crate) fn take_up(&mut self, site: &Arc<Site>) -> Result<(), Problem> {
        self.sites.send_replace(Arc::clone(site));
        self.run_if_needed()
    }

    fn run_if_needed(&mut self) -> Result<(), Problem> {
        let has_nothing_to_do = {
            let site = self.sites.borrow();
            shared_zones(&site).next().is_none() && site.config().http.ticket_store.is_none()
        };
        if self.is_running || has_nothing_to_do {
            return Ok(());
        }
        let (sites, started) = (self.sites.subscribe(), self.started);
        let body = move || {
            if privilege::give_up_rest_in_thread().is_err() {
                return;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(run(sites, started));
            }
        };
        let thread = std::thread::Builder::new().name("stores".to_owned()).spawn(body);
        thread.map_err(|error| Problem::new(format_args!("cannot start a thread: {error}")))?;
        self.is_running = true;
        Ok(())
    }
}

/// The zones that have a store, with how they are configured.
fn shared_zones(site: &Site) -> impl Iterator<Item = (&Zone, &Arc<SharedZone>)> {
    let configured = site.config().http.zones.iter();
    configured.zip(site.zones()).filter(|(zone, _)| zone.store.is_some())
}

/// Runs a task for everything that is shared; starts anew with every configuration.
async fn run(mut sites: watch::Receiver<Arc<Site>>, started: Instant) {
    // Of this process, whatever it is called: an old process that drains has places of its own.
    let node = format!("{:032x}", rand_id());
    loop {
        let site = Arc::clone(&sites.borrow_and_update());
        let mut tasks = JoinSet::new();
        let health = |url: &str, purpose: String| {
            let (site, clock) = (Arc::clone(&site), Clock::new(started));
            Health { url: without_password(url), purpose, site, clock, is_away: false }
        };
        for (zone, shared) in shared_zones(&site) {
            let Some(store) = &zone.store else { continue };
            let health = health(&store.url, format!("zone \"{}\"", zone.name));
            if let Some(exchange) = limits::Exchange::new(zone, shared, &node, health) {
                tasks.spawn(exchange.run());
            }
        }
        if let Some(url) = &site.config().http.ticket_store {
            tasks.spawn(tickets::run(url.clone(), health(url, "TLS tickets".to_owned())));
        }
        if sites.changed().await.is_err() {
            return;
        }
    }
}

/// Whether a store answers; every change is logged.
struct Health {
    url: String,
    purpose: String,
    site: Arc<Site>,
    clock: Clock,
    is_away: bool,
}

impl Health {
    /// Notes how an exchange went; whether the store is away.
    fn note<T>(&mut self, result: &Result<T, String>) -> bool {
        let is_away = result.is_err();
        if is_away != std::mem::replace(&mut self.is_away, is_away) {
            let Self { url, purpose, .. } = &self;
            match result {
                Err(error) => self.log(
                    Level::Error,
                    format_args!("the store {url} of {purpose} is away: {error}"),
                ),
                Ok(_) => self
                    .log(Level::Notice, format_args!("the store {url} of {purpose} answers again")),
            }
        }
        is_away
    }

    fn log(&self, level: Level, message: std::fmt::Arguments<'_>) {
        let stamp = self.clock.stamp(self.clock.now());
        self.site.log.write(level, stamp, None, message);
    }
}

/// Waits for an answer, within its bound.
async fn within<T>(answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let answer = tokio::time::timeout(ANSWER_LIMIT, answer).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_LIMIT:?}")))
}

fn rand_id() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    (half() << 64) | half()
}

/// As it may be logged.
fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_logged() {
        for (url, shown) in [
            ("redis://h:1/0", "redis://h:1/0"),
            ("redis://user:pass@h:1", "redis://h:1"),
            ("redis://:p@ss@h", "redis://h"),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
