//! Limits that several servers share (`store=` of a zone): a store is told what this server has counted, and the zone
//! what all have counted together. Workers decide by what their zone knows.

use std::sync::Arc;
use std::time::Duration;

use sekisho_config::{Rate, Zone, ZoneKind};
use sekisho_handler::limits::{Counted, SharedZone, StoreLink};
use sekisho_net::Clock;
use tokio::sync::watch;
use tokio::time::{interval, sleep};

use super::redis::{LEASE, Store, Told};
use super::{Health, within};

/// What is counted is told so much later: many requests in one message.
const GATHER: Duration = Duration::from_millis(10);
/// So many keys in one message.
const KEYS_MAX: usize = 512;
/// Between two attempts to reach a store that is away.
const RETRY: Duration = Duration::from_millis(250);

/// One zone and its store.
pub(super) struct Exchange {
    store: Store,
    name: String,
    node: String,
    /// `None` counts places.
    rate: Option<Rate>,
    zone: Arc<SharedZone>,
    link: Arc<StoreLink>,
    health: Health,
    clock: Clock,
}

impl Exchange {
    /// `None` for a zone without a store.
    pub(super) fn new(
        zone: &Zone,
        shared: &Arc<SharedZone>,
        node: &str,
        health: Health,
        clock: Clock,
    ) -> Option<Self> {
        Some(Self {
            clock,
            store: Store::new(&zone.store.as_ref()?.url),
            name: zone.name.clone(),
            node: node.to_owned(),
            rate: match zone.kind {
                ZoneKind::Rate(rate) => Some(rate),
                ZoneKind::Connections => None,
            },
            zone: Arc::clone(shared),
            link: Arc::clone(shared.link()?),
            health,
        })
    }

    /// Until the other end of `ended` is dropped.
    pub(super) async fn run(mut self, mut ended: watch::Receiver<()>) {
        let mut refresh = interval(LEASE / 3);
        // A store that cannot be reached is known before the first request.
        self.tell(&[]).await;
        loop {
            tokio::select! {
                () = self.link.changed() => {}
                _ = refresh.tick() => self.zone.refresh(),
                _ = ended.changed() => return,
            }
            sleep(GATHER).await;
            loop {
                let since_away = self.rate.filter(|_| self.health.is_away);
                let since_away = since_away.map(|rate| (rate, self.clock.now()));
                let counted = self.zone.take_counted(KEYS_MAX, since_away);
                let is_all = counted.len() < KEYS_MAX;
                let has_news = !counted.is_empty() || self.health.is_away;
                if has_news && !self.tell(&counted).await {
                    self.zone.give_back(&counted);
                    if ended.has_changed().is_err() {
                        return;
                    }
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
        let result = within(self.store.tell(&told)).await;
        if let Ok(counts) = &result {
            let now = self.clock.now();
            for (one, count) in counted.iter().zip(counts) {
                self.zone.reconcile(&one.key, *count, now);
            }
        } else {
            self.store.hang_up();
        }
        let is_away = self.health.note(&result);
        self.link.set_away(is_away);
        !is_away
    }
}
