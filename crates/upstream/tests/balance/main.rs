//! The choice among servers: tables and virtual time, and the same questions put to a real nginx.

mod accounts;
mod choices;
mod nginx;

use sekisho_lifecycle::Moment;
use sekisho_upstream::balance::{NoPeer, Outcome};
use sekisho_upstream::{Balancer, PeerSettings, Selection};

fn seconds(seconds: u64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

/// Servers `a`, `b`, … with these weights.
fn weighted(weights: &[u32]) -> Vec<PeerSettings> {
    let name = |at: usize| char::from(b'a' + at as u8).to_string();
    let peer = |(at, weight): (usize, &u32)| PeerSettings {
        weight: *weight,
        ..PeerSettings::new(&name(at))
    };
    weights.iter().enumerate().map(peer).collect()
}

fn choose(group: &Balancer, selection: &mut Selection, now: Moment) -> Result<usize, NoPeer> {
    group.choose(selection, now, || 0)
}

/// One request that is answered at once; the server's letter, or `-`.
fn ask(group: &Balancer, key: &[u8], now: Moment) -> char {
    match choose(group, &mut group.begin(key), now) {
        Err(NoPeer) => '-',
        Ok(peer) => {
            group.release(peer, Outcome::Answered, now);
            char::from(b'a' + peer as u8)
        }
    }
}

fn asks(group: &Balancer, count: usize, now: Moment) -> String {
    (0..count).map(|_| ask(group, b"", now)).collect()
}
