//! The choice itself: one function for each method, each as nginx's.

use std::net::IpAddr;

use sekisho_lifecycle::Moment;

use super::state::PeerState;
use super::{Balancer, Method};

/// After so many servers that may not be asked, the choice falls back to round robin.
const TRIES_MAX: u32 = 20;
/// What `ip_hash` begins with, and what it takes for a client without an address.
const IP_HASH_START: u32 = 89;
const NO_ADDRESS: [u8; 3] = [0; 3];

/// No server may be asked: `no live upstreams`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoPeer;

/// What one request has tried.
#[derive(Clone, Debug)]
pub struct Selection {
    /// What is hashed: the key, or the address of the client.
    key: Vec<u8>,
    hash: u32,
    rehash: u32,
    tries: u32,
    /// The servers that were tried: most requests try one.
    first: Option<usize>,
    others: Vec<usize>,
    /// The server that the client was sent to before.
    bound: Option<usize>,
    uses_backup: bool,
}

impl Selection {
    /// The servers that were tried, in order.
    pub fn tried(&self) -> impl Iterator<Item = usize> {
        self.first.into_iter().chain(self.others.iter().copied())
    }

    fn note_tried(&mut self, peer: usize) {
        match self.first {
            None => self.first = Some(peer),
            Some(_) => self.others.push(peer),
        }
    }

    /// Binds the choice to a server, as long as it may be asked (sticky).
    pub const fn bind(&mut self, peer: Option<usize>) {
        self.bound = peer;
    }

    fn has_tried(&self, peer: usize) -> bool {
        self.first == Some(peer) || self.others.contains(&peer)
    }
}

impl Balancer {
    /// Begins the choice for a request with the key of `hash`; other methods need none.
    pub fn begin(&self, key: &[u8]) -> Selection {
        let hash = match self.method {
            Method::ConsistentHash => self.points.find(key),
            Method::IpHash => IP_HASH_START,
            _ => 0,
        };
        Selection {
            key: key.to_vec(),
            hash,
            rehash: 0,
            tries: 0,
            first: None,
            others: Vec::new(),
            bound: None,
            uses_backup: false,
        }
    }

    /// Begins the choice for a client of `ip_hash`: of an IPv4 address three bytes count.
    pub fn begin_for(&self, client: Option<IpAddr>) -> Selection {
        match client {
            Some(IpAddr::V4(address)) => self.begin(&address.octets()[..3]),
            Some(IpAddr::V6(address)) => self.begin(&address.octets()),
            None => self.begin(&NO_ADDRESS),
        }
    }

    /// Chooses the next server of a request. It counts as a connection until it is released.
    pub fn choose(
        &self,
        selection: &mut Selection,
        now: Moment,
        random: impl FnMut() -> u32,
    ) -> Result<usize, NoPeer> {
        let mut state = self.lock();
        let mut choice = Choice { group: self, state: &mut state, now };
        let chosen = choice.choose(selection, random).ok_or(NoPeer)?;
        state[chosen].choose(&self.peers[chosen], now);
        selection.note_tried(chosen);
        Ok(chosen)
    }
}

struct Choice<'a> {
    group: &'a Balancer,
    state: &'a mut Vec<PeerState>,
    now: Moment,
}

impl Choice<'_> {
    fn choose(&mut self, selection: &mut Selection, random: impl FnMut() -> u32) -> Option<usize> {
        if self.group.is_single() {
            let may = self.state[0].check_single(&self.group.peers[0]).is_ok();
            return may.then_some(0);
        }
        if !selection.uses_backup
            && let Some(chosen) = self.choose_primary(selection, random)
        {
            return Some(chosen);
        }
        // Backup servers have round robin or least connections of their own.
        selection.uses_backup = true;
        let backup = &self.group.backup;
        match self.group.method {
            Method::LeastConnections => self.least_connections(selection, backup),
            _ => self.round_robin(selection, backup),
        }
    }

    fn choose_primary(
        &mut self,
        selection: &mut Selection,
        random: impl FnMut() -> u32,
    ) -> Option<usize> {
        let group = self.group;
        let has_several = group.primary.len() >= 2 && group.total_weight > 0;
        let chosen = match group.method {
            Method::RoundRobin => return self.round_robin(selection, &group.primary),
            _ if self.bound(selection).is_some() => return self.bound(selection),
            Method::LeastConnections => {
                return self.least_connections(selection, &group.primary);
            }
            Method::IpHash if has_several => self.ip_hash(selection),
            Method::Hash if has_several && !selection.key.is_empty() => self.hash(selection),
            Method::ConsistentHash if has_several && !selection.key.is_empty() => {
                self.consistent(selection)
            }
            Method::Random if has_several => self.random(selection, random),
            Method::RandomTwo if has_several => self.random_two(selection, random),
            _ => None,
        };
        chosen.or_else(|| self.round_robin(selection, &group.primary))
    }

    /// The server that the client is bound to, if it may be asked.
    fn bound(&self, selection: &Selection) -> Option<usize> {
        let peer = selection.bound.filter(|peer| !selection.has_tried(*peer))?;
        let settings = self.group.peers.get(peer)?;
        self.state.get(peer)?.check(settings, true, self.now).is_ok().then_some(peer)
    }

    fn may(&self, selection: &Selection, peer: usize) -> bool {
        !selection.has_tried(peer)
            && self.state[peer].check(&self.group.peers[peer], false, self.now).is_ok()
    }

    /// Adds a server's weight to its current value, and returns the weight.
    fn weigh(&mut self, peer: usize) -> i64 {
        let settings = &self.group.peers[peer];
        let weight = self.state[peer].weight(settings, self.now);
        self.state[peer].current += weight;
        self.state[peer].regain(settings, self.group.scale);
        weight
    }

    /// Smooth weighted round robin: the current value of every server grows by its weight; the server with
    /// the highest value is chosen, and the sum of the weights is subtracted from its value.
    fn round_robin(&mut self, selection: &Selection, tier: &[usize]) -> Option<usize> {
        let bound = self.bound(selection).filter(|peer| tier.contains(peer));
        if let Some(peer) = bound {
            let own = i64::from(self.group.peers[peer].weight);
            let others = (i64::from(self.group.total_weight) - own) * self.group.scale;
            // One that is bound to again and again must not be in debt for ever.
            if self.state[peer].current <= -others {
                return Some(peer);
            }
        }
        let mut total = 0;
        let mut best: Option<usize> = None;
        for peer in tier.iter().copied() {
            if !self.may(selection, peer) {
                continue;
            }
            total += self.weigh(peer);
            if best.is_none_or(|best| self.state[peer].current > self.state[best].current) {
                best = Some(peer);
            }
        }
        let best = bound.or(best)?;
        self.state[best].current -= total;
        Some(best)
    }

    /// Fewest connections for its weight; among equals, round robin.
    fn least_connections(&mut self, selection: &Selection, tier: &[usize]) -> Option<usize> {
        let compared = |this: &Self, one: usize, other: usize| {
            let load = |a: usize, b: usize| {
                u64::from(this.state[a].connections) * u64::from(this.group.peers[b].weight)
            };
            load(one, other).cmp(&load(other, one))
        };
        let mut best: Option<(usize, usize)> = None;
        let mut has_equals = false;
        for (place, peer) in tier.iter().copied().enumerate() {
            if !self.may(selection, peer) {
                continue;
            }
            match best.map(|(_, best)| compared(self, peer, best)) {
                None | Some(std::cmp::Ordering::Less) => {
                    best = Some((place, peer));
                    has_equals = false;
                }
                Some(std::cmp::Ordering::Equal) => has_equals = true,
                Some(std::cmp::Ordering::Greater) => {}
            }
        }
        let (place, first) = best?;
        let mut best = first;
        let mut total = 0;
        if has_equals {
            for peer in tier[place..].iter().copied() {
                let is_equal = compared(self, peer, first) == std::cmp::Ordering::Equal;
                if !is_equal || !self.may(selection, peer) {
                    continue;
                }
                total += self.weigh(peer);
                if self.state[peer].current > self.state[best].current {
                    best = peer;
                }
            }
        }
        self.state[best].current -= total;
        Some(best)
    }

    /// The server whose share of the weights this number falls into.
    fn by_weight(&self, number: u32) -> usize {
        let mut left = number % self.group.total_weight.max(1);
        for peer in self.group.primary.iter().copied() {
            let weight = self.group.peers[peer].weight;
            if left < weight {
                return peer;
            }
            left -= weight;
        }
        self.group.primary[0]
    }

    fn ip_hash(&mut self, selection: &mut Selection) -> Option<usize> {
        if selection.tries > TRIES_MAX {
            return None;
        }
        let mut hash = selection.hash;
        loop {
            for byte in &selection.key {
                hash = (hash * 113 + u32::from(*byte)) % 6271;
            }
            let peer = self.by_weight(hash);
            if self.may(selection, peer) {
                selection.hash = hash;
                return Some(peer);
            }
            selection.tries += 1;
            if selection.tries > TRIES_MAX {
                return None;
            }
        }
    }

    /// Compatible with `Cache::Memcached`: `((crc32([REHASH] KEY) >> 16) & 0x7fff) + PREVIOUS`.
    fn hash(&mut self, selection: &mut Selection) -> Option<usize> {
        if selection.tries > TRIES_MAX {
            return None;
        }
        loop {
            let mut hasher = crc32fast::Hasher::new();
            if selection.rehash > 0 {
                hasher.update(itoa::Buffer::new().format(selection.rehash).as_bytes());
            }
            hasher.update(&selection.key);
            selection.hash = selection.hash.wrapping_add(hasher.finalize() >> 16 & 0x7fff);
            selection.rehash += 1;
            let peer = self.by_weight(selection.hash);
            if self.may(selection, peer) {
                return Some(peer);
            }
            selection.tries += 1;
            if selection.tries > TRIES_MAX {
                return None;
            }
        }
    }

    /// The next point on the circle whose server may be asked; among addresses of one server, round robin.
    fn consistent(&mut self, selection: &mut Selection) -> Option<usize> {
        let group = self.group;
        while selection.tries <= TRIES_MAX {
            let server = group.points.server(selection.hash)?;
            let mut total = 0;
            let mut best: Option<usize> = None;
            for peer in group.primary.iter().copied() {
                if &*group.peers[peer].server != server || !self.may(selection, peer) {
                    continue;
                }
                total += self.weigh(peer);
                if best.is_none_or(|best| self.state[peer].current > self.state[best].current) {
                    best = Some(peer);
                }
            }
            if let Some(best) = best {
                self.state[best].current -= total;
                return Some(best);
            }
            selection.hash = selection.hash.wrapping_add(1);
            selection.tries += 1;
        }
        None
    }

    fn random(
        &mut self,
        selection: &mut Selection,
        mut random: impl FnMut() -> u32,
    ) -> Option<usize> {
        while selection.tries <= TRIES_MAX {
            let peer = self.by_weight(random());
            if self.may(selection, peer) {
                return Some(peer);
            }
            selection.tries += 1;
        }
        None
    }

    /// Two at random, and of them the one with fewer connections for its weight.
    fn random_two(
        &mut self,
        selection: &mut Selection,
        mut random: impl FnMut() -> u32,
    ) -> Option<usize> {
        let mut first: Option<usize> = None;
        while selection.tries <= TRIES_MAX {
            let peer = self.by_weight(random());
            if first != Some(peer) && self.may(selection, peer) {
                let Some(first) = first else {
                    first = Some(peer);
                    selection.tries += 1;
                    continue;
                };
                let load = |one: usize, other: usize| {
                    u64::from(self.state[one].connections)
                        * u64::from(self.group.peers[other].weight)
                };
                let is_busier = load(peer, first) > load(first, peer);
                return Some(if is_busier { first } else { peer });
            }
            selection.tries += 1;
        }
        None
    }
}
