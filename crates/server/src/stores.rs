//! What several servers share through stores (Redis, Valkey): one thread beside the workers counts limits together
//! (`limits`) and fetches the secrets of TLS tickets (`tickets`). Workers use what is there; no request waits for a store.

mod limits;
pub(crate) mod redis;
mod tickets;

use std::sync::Arc;
use std::time::Duration;

use sekisho_config::{Level, Zone};
use sekisho_handler::limits::SharedZone;
use sekisho_net::Site;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::background::{Background, Context, Work};

/// A store that does not answer for so long is away.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);

/// The thread that speaks to stores.
pub(crate) type Stores = Background<Sharing>;

/// Limits and secrets that are shared.
#[derive(Debug)]
pub(crate) struct Sharing;

impl Work for Sharing {
    const NAME: &'static str = "stores";

    fn is_needed(site: &Site) -> bool {
        shared_zones(site).next().is_some() || site.config().http.ticket_store.is_some()
    }

    async fn run(context: Context) {
        run(context).await;
    }
}

/// The zones that have a store, with how they are configured.
fn shared_zones(site: &Site) -> impl Iterator<Item = (&Zone, &Arc<SharedZone>)> {
    let configured = site.config().http.zones.iter();
    configured.zip(site.zones()).filter(|(zone, _)| zone.store.is_some())
}

/// Runs a task for everything that is shared; starts anew with every configuration. A task that tells its store something
/// does so to the end: what it has taken from a zone is counted nowhere else.
async fn run(mut context: Context) {
    // Of this process, whatever it is called: an old process that drains has places of its own.
    let node = node_name();
    loop {
        let site = Arc::clone(&context.sites.borrow_and_update());
        let mut tasks = JoinSet::new();
        let (end, ended) = watch::channel(());
        let health = |url: &str, purpose: String| Health::new(url, purpose, context.clone());
        for (zone, shared) in shared_zones(&site) {
            let Some(store) = &zone.store else { continue };
            let health = health(&store.url, format!("zone \"{}\"", zone.name));
            if let Some(exchange) =
                limits::Exchange::new(zone, shared, &node, health, context.clock())
            {
                tasks.spawn(exchange.run(ended.clone()));
            }
        }
        if let Some(url) = &site.config().http.ticket_store {
            let mut ended = ended.clone();
            let share = tickets::run(url.clone(), health(url, "TLS tickets".to_owned()));
            tasks.spawn(async move {
                tokio::select! {
                    () = share => {}
                    _ = ended.changed() => {}
                }
            });
        }
        drop((site, ended));
        let is_over = context.sites.changed().await.is_err();
        drop(end);
        while tasks.join_next().await.is_some() {}
        if is_over {
            return;
        }
    }
}

/// A name that no other process has.
pub(crate) fn node_name() -> String {
    use std::hash::{BuildHasher, RandomState};
    let half = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", half(), half())
}

/// So many reasons are logged while a store is away: the first may be a timeout, and the next one says why.
const REASONS_MAX: usize = 4;
/// No reason in the log is longer.
const REASON_CHARS_MAX: usize = 300;

/// Whether a store answers; every change is logged, and while it is away each new reason.
pub(crate) struct Health {
    url: String,
    purpose: String,
    context: Context,
    pub(crate) is_away: bool,
    /// Why it is away, as far as that was logged.
    reasons: Vec<String>,
}

impl Health {
    /// Of the store at this address, by which something is shared.
    pub(crate) fn new(url: &str, purpose: String, context: Context) -> Self {
        let url = without_password(url);
        Self { url, purpose, context, is_away: false, reasons: Vec::new() }
    }

    /// Notes how an exchange went; whether the store is away.
    pub(crate) fn note<T>(&mut self, result: &Result<T, String>) -> bool {
        let was_away = std::mem::replace(&mut self.is_away, result.is_err());
        let Self { url, purpose, reasons, .. } = self;
        let (level, what) = if let Err(error) = result {
            // A store may say a lot.
            let error: String = error.chars().take(REASON_CHARS_MAX).collect();
            if reasons.len() >= REASONS_MAX || reasons.contains(&error) {
                return true;
            }
            reasons.push(error.clone());
            (Level::Error, format!("is away: {error}"))
        } else {
            reasons.clear();
            if !was_away {
                return false;
            }
            (Level::Notice, "answers again".to_owned())
        };
        self.context.log(level, &format!("the store {url} of {purpose} {what}"));
        self.is_away
    }
}

/// Waits for an answer, within its bound.
pub(crate) async fn within<T>(
    answer: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let answer = tokio::time::timeout(ANSWER_LIMIT, answer).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_LIMIT:?}")))
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
