//! Groups with names that are looked up while the server runs: `server name resolve;`, and the host of a `proxy_pass`
//! with variables. A name is looked up when it is needed and what is known of it is too old. One request asks
//! for all that wait; a group whose addresses are a little old is used with them meanwhile.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sekisho_config::{Resolver, UpstreamGroup, UpstreamPlace};
use sekisho_lifecycle::Moment;
use sekisho_upstream::resolve::believed_until;

use super::dns::{NoAddress, look_up};
use super::group::Group;

/// For so long after their time, addresses are used while they are looked up again.
const STALE: Duration = Duration::from_secs(10);
/// When a name that was not found is looked up again.
const RETRY: Duration = Duration::from_secs(5);
/// How many names of `proxy_pass` with variables are known.
const NAMES_MAX: usize = 4096;

/// A group, some of whose servers are names.
#[derive(Debug)]
pub(super) struct Names {
    config: UpstreamGroup,
    resolver: Arc<Resolver>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The group with the addresses of the last answers.
    latest: Option<Arc<Group>>,
    /// The addresses of each server that is a name, by its place among the servers.
    addresses: HashMap<usize, Vec<SocketAddr>>,
    until: Option<Moment>,
    /// Why there was no address the last time: a name, and the reason.
    failure: Option<(String, NoAddress)>,
    is_asking: bool,
    waiting: Vec<Waker>,
}

/// What is known now.
#[derive(Debug)]
pub(super) enum Known {
    Group(Arc<Group>),
    /// This name could not be resolved.
    Nothing(String, NoAddress),
}

impl Names {
    pub(super) fn new(config: &UpstreamGroup, resolver: &Arc<Resolver>) -> Self {
        Self { config: config.clone(), resolver: Arc::clone(resolver), state: Mutex::default() }
    }

    /// One host that a request names.
    fn of_host(name: &str, host: &str, port: u16, resolver: &Arc<Resolver>) -> Self {
        let place = UpstreamPlace::Tcp(host.to_owned(), port);
        Self::new(&UpstreamGroup::of_name(name, place), resolver)
    }

    pub(super) const fn config(&self) -> &UpstreamGroup {
        &self.config
    }

    /// How long a request waits at most.
    pub(super) fn timeout(&self) -> Duration {
        self.resolver.timeout
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group with the addresses of its names. Where they are not known or old, they are looked up, and the task of
    /// `cx` is woken afterwards.
    pub(super) fn poll(self: &Arc<Self>, cx: &mut Context<'_>, now: Moment) -> Poll<Known> {
        let mut state = self.lock();
        let is_fresh = state.until.is_some_and(|until| !until.is_due(now));
        if !is_fresh && !state.is_asking {
            state.is_asking = true;
            tokio::task::spawn_local(refresh(Asking(Arc::clone(self)), now));
        }
        let is_usable = state.until.is_some_and(|until| !(until + STALE).is_due(now));
        let known = match (&state.latest, &state.failure) {
            (Some(group), _) => Some(Known::Group(Arc::clone(group))),
            (None, Some((name, why))) if is_fresh => Some(Known::Nothing(name.clone(), *why)),
            (None, _) => None,
        };
        if let Some(known) = known.filter(|_| is_usable) {
            return Poll::Ready(known);
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Takes over what a group knew that this one replaces (a reload).
    pub(super) fn inherit(&self, old: &Self) {
        if self.resolver != old.resolver || self.servers() != old.servers() {
            return;
        }
        let (addresses, until) = {
            let old = old.lock();
            (old.addresses.clone(), old.until)
        };
        if !addresses.is_empty() {
            self.set(addresses, None, until);
        }
    }

    fn servers(&self) -> Vec<(&UpstreamPlace, bool)> {
        self.config.servers.iter().map(|server| (&server.place, server.is_resolved)).collect()
    }

    fn set(
        &self,
        addresses: HashMap<usize, Vec<SocketAddr>>,
        failure: Option<(String, NoAddress)>,
        until: Option<Moment>,
    ) {
        let mut state = self.lock();
        (state.until, state.failure) = (until, failure);
        if state.latest.is_some() && state.addresses == addresses {
            return;
        }
        let mut config = self.config.clone();
        for (at, found) in &addresses {
            if let Some(server) = config.servers.get_mut(*at) {
                server.addresses.clone_from(found);
            }
        }
        state.addresses = addresses;
        let mut group = Group::new(&config);
        if let Some(before) = &state.latest {
            group.balancer.inherit(&before.balancer);
            group.keep_sessions_of(before);
        }
        state.latest = Some(Arc::new(group)).filter(|group| !group.addresses.is_empty());
    }
}

/// The request that looks a group's names up; when it ends, in whatever way, the waiting requests are woken.
struct Asking(Arc<Names>);

impl Drop for Asking {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.lock();
            state.is_asking = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

async fn refresh(asking: Asking, start: Moment) {
    let begun = tokio::time::Instant::now();
    let names = &asking.0;
    let mut addresses = names.lock().addresses.clone();
    let mut failure = None;
    let mut until: Option<Moment> = None;
    for (at, server) in names.config.servers.iter().enumerate() {
        let UpstreamPlace::Tcp(host, port) = &server.place else { continue };
        if !server.is_resolved {
            continue;
        }
        let found = look_up(&names.resolver, host).await;
        let now = start + begun.elapsed();
        let next = match found {
            Ok(found) => {
                let all = found.addresses.iter().map(|ip| SocketAddr::new(*ip, *port));
                let mut all: Vec<SocketAddr> = all.collect();
                // Servers turn the order with each answer; that alone is no change.
                all.sort_unstable();
                all.dedup();
                addresses.insert(at, all);
                believed_until(&found, names.resolver.valid, now)
            }
            Err(why) => {
                if why.is_known() {
                    addresses.remove(&at);
                }
                failure = Some((host.clone(), why));
                now + names.resolver.valid.unwrap_or(RETRY).min(RETRY)
            }
        };
        until = Some(until.map_or(next, |earlier| earlier.min(next)));
    }
    names.set(addresses, failure, until);
}

/// The names that requests had in variables; all workers share them.
static HOSTS: LazyLock<Mutex<HostNames>> = LazyLock::new(Mutex::default);

/// What is known of a host that a request names; `name` is the host with its port.
pub(super) fn names_of(resolver: &Arc<Resolver>, name: &str, host: &str, port: u16) -> Arc<Names> {
    HOSTS.lock().unwrap_or_else(PoisonError::into_inner).of(resolver, name, host, port)
}

#[derive(Debug, Default)]
struct HostNames(HashMap<(Arc<Resolver>, Box<str>), Arc<Names>>);

impl HostNames {
    fn of(&mut self, resolver: &Arc<Resolver>, name: &str, host: &str, port: u16) -> Arc<Names> {
        let key = (Arc::clone(resolver), name.to_ascii_lowercase().into_boxed_str());
        if let Some(known) = self.0.get(&key) {
            return Arc::clone(known);
        }
        if self.0.len() >= NAMES_MAX {
            // Names in use stay alive: the requests that use them have an `Arc`.
            self.0.clear();
        }
        let names = Arc::new(Names::of_host(name, host, port, resolver));
        self.0.insert(key, Arc::clone(&names));
        names
    }
}
