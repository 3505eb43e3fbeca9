//! Limits that several servers share (`store=` of a zone): one thread beside the workers tells each store what this
//! server has counted, and gives the zones what all have counted together. Workers decide by what their zone knows; no
//! request waits for a store.

mod store;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho_config::{Level, Rate, Zone, ZoneKind};
use sekisho_handler::limits::{Counted, SharedZone, StoreLink};
use sekisho_net::{Clock, Site};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use self::store::{Store, Told};
use crate::{Problem, privilege};

/// What is counted is told so much later: many requests in one message.
const GATHER: Duration = Duration::from_millis(10);
/// So many keys in one message.
const KEYS_MAX: usize = 512;
/// A store that does not answer for so long is away.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);
/// Between two attempts to reach a store that is away.
const RETRY: Duration = Duration::from_millis(250);
/// The places of a server that is gone are free after this time.
const LEASE: Duration = Duration::from_secs(15);

/// The thread that speaks to stores. It ends with the process.
#[derive(Debug)]
pub(crate) struct SharedLimits {
    sites: watch::Sender<Arc<Site>>,
    started: Instant,
    is_running: bool,
}

impl SharedLimits {
    /// Starts the thread, where a zone has a store.
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
        if self.is_running || shared_zones(&self.sites.borrow()).next().is_none() {
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
        let thread = std::thread::Builder::new().name("limits".to_owned()).spawn(body);
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

/// Runs a task for each zone; starts anew with every configuration.
async fn run(mut sites: watch::Receiver<Arc<Site>>, started: Instant) {
    // Of this process, whatever it is called: an old process that drains has places of its own.
    let node = format!("{:032x}", rand_id());
    loop {
        let site = Arc::clone(&sites.borrow_and_update());
        let mut tasks = JoinSet::new();
        for (zone, shared) in shared_zones(&site) {
            let (Some(store), Some(link)) = (&zone.store, shared.link()) else { continue };
            let exchange = Exchange {
                store: Store::new(&store.url),
                url: without_password(&store.url),
                name: zone.name.clone(),
                node: node.clone(),
                rate: match zone.kind {
                    ZoneKind::Rate(rate) => Some(rate),
                    ZoneKind::Connections => None,
                },
                zone: Arc::clone(shared),
                link: Arc::clone(link),
                site: Arc::clone(&site),
                clock: Clock::new(started),
                is_away: false,
            };
            tasks.spawn(exchange.run());
        }
        if sites.changed().await.is_err() {
            return;
        }
    }
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

/// One zone and its store.
struct Exchange {
    store: Store,
    url: String,
    name: String,
    node: String,
    /// `None` counts places.
    rate: Option<Rate>,
    zone: Arc<SharedZone>,
    link: Arc<StoreLink>,
    site: Arc<Site>,
    clock: Clock,
    is_away: bool,
}

impl Exchange {
    async fn run(mut self) {
        let mut refresh = interval(LEASE / 3);
        // A store that cannot be reached is known before the first request.
        self.tell(&[]).await;
        loop {
            tokio::select! {
                () = self.link.changed() => {}
                _ = refresh.tick() => self.zone.refresh(),
            }
            sleep(GATHER).await;
            loop {
                let counted = self.zone.take_counted(KEYS_MAX);
                let is_all = counted.len() < KEYS_MAX;
                if (!counted.is_empty() || self.is_away) && !self.tell(&counted).await {
                    self.zone.give_back(&counted);
                    sleep(RETRY).await;
                    break;
                }
                if is_all {
                    break;
                }
            }
        }
    }

    /// Tells the store, and the zone what it says. Whether the store has answered.
    async fn tell(&mut self, counted: &[Counted]) -> bool {
        let told = Told { zone: &self.name, node: &self.node, rate: self.rate, counted };
        let answer = timeout(ANSWER_LIMIT, self.store.tell(&told)).await;
        let result = match answer {
            Ok(Ok(counts)) => {
                let now = self.clock.now();
                for (one, count) in counted.iter().zip(counts) {
                    self.zone.reconcile(&one.key, count, now);
                }
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(format!("no answer within {ANSWER_LIMIT:?}")),
        };
        let is_away = result.is_err();
        if is_away {
            self.store.hang_up();
        }
        self.link.set_away(is_away);
        if is_away != std::mem::replace(&mut self.is_away, is_away) {
            let Self { name, url, .. } = &self;
            match result {
                Err(error) => self.log(
                    Level::Error,
                    format_args!("the store {url} of zone \"{name}\" is away: {error}"),
                ),
                Ok(()) => self.log(
                    Level::Notice,
                    format_args!("the store {url} of zone \"{name}\" answers again"),
                ),
            }
        }
        !is_away
    }

    fn log(&self, level: Level, message: std::fmt::Arguments<'_>) {
        let stamp = self.clock.stamp(self.clock.now());
        self.site.log.write(level, stamp, None, message);
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
