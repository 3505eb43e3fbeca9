//! Groups of servers as all workers share them: which server is asked next, and which have failed. A group outlives a
//! reload as far as its servers stay the same.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::cache::Caches;
use sekisho_config::{Template, UpstreamGroup, UpstreamPlace};
use sekisho_lifecycle::Moment;
use sekisho_upstream::balance::Snapshot;
use sekisho_upstream::{Balancer, Method, PeerSettings, keepalive};

use super::resolve::Names;
use super::sticky::Sticky;

static SERIALS: AtomicU64 = AtomicU64::new(1);

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// As nginx prints it.
    fn name(&self) -> String {
        match self {
            Self::Tcp(address) => address.to_string(),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

/// A group of servers.
#[derive(Debug)]
pub struct Group {
    /// No other group of this process has the same.
    pub(super) serial: u64,
    pub(super) name: Arc<str>,
    is_declared: bool,
    pub(super) method: Method,
    pub(super) key: Option<Template>,
    pub(super) keepalive: keepalive::Settings,
    pub(super) balancer: Balancer,
    pub(super) sticky: Option<Sticky>,
    /// Whether it goes on with what another one knew (a reload).
    is_inherited: AtomicBool,
    /// Where servers are names that are looked up: this group is asked with the addresses that are known then.
    pub(super) names: Option<Arc<Names>>,
    /// Addresses and their names; indices are the balancer's.
    pub(super) addresses: Vec<(Address, Arc<str>)>,
}

impl Group {
    pub(super) fn new(config: &UpstreamGroup) -> Self {
        let (mut peers, mut addresses) = (Vec::new(), Vec::new());
        for server in &config.servers {
            let all: Vec<Address> = match &server.place {
                UpstreamPlace::Unix(path) => vec![Address::Unix(path.clone())],
                UpstreamPlace::Tcp(..) => {
                    server.addresses.iter().copied().map(Address::Tcp).collect()
                }
            };
            for address in all {
                let name = address.name();
                peers.push(PeerSettings { name: name.as_str().into(), ..server.peer.clone() });
                addresses.push((address, Arc::from(name)));
            }
        }
        Self {
            serial: SERIALS.fetch_add(1, Ordering::Relaxed),
            name: Arc::from(config.name.as_str()),
            is_declared: config.is_declared,
            method: config.method,
            key: config.key.clone(),
            keepalive: config.keepalive,
            balancer: Balancer::new(config.method, peers),
            sticky: config.sticky.as_ref().map(Sticky::new),
            is_inherited: AtomicBool::new(false),
            names: None,
            addresses,
        }
    }

    /// The same; servers with `resolve` are looked up when it is asked.
    fn with_names(config: &UpstreamGroup) -> Self {
        let has_names = config.servers.iter().any(|server| server.is_resolved);
        let names = has_names.then(|| Arc::new(Names::new(config, &config.resolver)));
        Self { names, ..Self::new(config) }
    }

    /// Goes on with the sessions that another group has learned.
    pub(super) fn keep_sessions_of(&mut self, old: &Self) {
        if let (Some(own), Some(old)) = (&mut self.sticky, &old.sticky)
            && own.is_like(old)
        {
            own.clone_from(old);
        }
    }

    /// Whether it goes on with what another one knew.
    pub(super) fn is_inherited(&self) -> bool {
        self.is_inherited.load(Ordering::Relaxed)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is known of its servers.
    pub fn servers(&self, now: Moment) -> Vec<(Arc<str>, Snapshot)> {
        let names = self.addresses.iter().map(|(_, name)| Arc::clone(name));
        names.zip(self.balancer.snapshot(now)).collect()
    }

    /// A host that a request names, and that is looked up.
    pub(super) fn of_names(name: &str, names: Arc<Names>) -> Self {
        let none = UpstreamGroup { servers: Vec::new(), ..names.config().clone() };
        Self { name: Arc::from(name), names: Some(names), ..Self::new(&none) }
    }

    /// A group of one place that a request names; `None` for a host that would have to be looked up.
    pub(super) fn of_place(name: &str, place: &UpstreamPlace) -> Option<Self> {
        let address = match place {
            UpstreamPlace::Unix(path) => Address::Unix(path.clone()),
            UpstreamPlace::Tcp(host, port) => {
                Address::Tcp(SocketAddr::new(host.parse().ok()?, *port))
            }
        };
        let text: Arc<str> = Arc::from(address.name());
        let peer = PeerSettings { name: (*text).into(), ..PeerSettings::new(name) };
        Some(Self {
            serial: SERIALS.fetch_add(1, Ordering::Relaxed),
            name: Arc::from(name),
            is_declared: false,
            method: Method::RoundRobin,
            key: None,
            keepalive: keepalive::Settings::default(),
            balancer: Balancer::new(Method::RoundRobin, vec![peer]),
            sticky: None,
            is_inherited: AtomicBool::new(false),
            names: None,
            addresses: vec![(address, text)],
        })
    }
}

/// Every group of the server that is in use.
#[derive(Debug, Default)]
pub struct Groups {
    known: Mutex<Vec<Weak<Group>>>,
    /// Those of `stream`.
    known_in_stream: Mutex<Vec<Weak<Group>>>,
    /// The caches of their answers.
    pub caches: Caches,
}

impl Groups {
    /// The groups of a configuration, in its order. What is known of servers that were there before stays known.
    pub fn of(&self, wanted: &[UpstreamGroup]) -> Vec<Arc<Group>> {
        among(&self.known, wanted)
    }

    /// The same for those of `stream`.
    pub fn of_stream(&self, wanted: &[UpstreamGroup]) -> Vec<Arc<Group>> {
        among(&self.known_in_stream, wanted)
    }
}

fn among(known: &Mutex<Vec<Weak<Group>>>, wanted: &[UpstreamGroup]) -> Vec<Arc<Group>> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|group| group.strong_count() > 0);
    let mut all = Vec::with_capacity(wanted.len());
    for config in wanted {
        let mut group = Group::with_names(config);
        let mut before = known.iter().rev().filter_map(Weak::upgrade);
        if let Some(old) = before.find(|old| old.name == group.name) {
            group.balancer.inherit(&old.balancer);
            group.is_inherited.store(true, Ordering::Relaxed);
            group.keep_sessions_of(&old);
            if let (Some(names), Some(old)) = (&group.names, &old.names) {
                names.inherit(old);
            }
        }
        all.push(Arc::new(group));
    }
    known.extend(all.iter().map(Arc::downgrade));
    all
}

/// The `upstream` of this name.
pub(super) fn declared<'g>(groups: &'g [Arc<Group>], name: &str) -> Option<&'g Arc<Group>> {
    groups.iter().find(|group| group.is_declared && group.name.eq_ignore_ascii_case(name))
}
