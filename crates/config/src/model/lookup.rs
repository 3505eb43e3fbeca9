//! Variables that are looked up: by a value, an address or a hash.

use std::net::IpAddr;

use super::Template;
use crate::pattern_list::PatternList;

/// A `map` block.
#[derive(Default, Debug)]
pub struct Map {
    /// The variable it makes, without `$`.
    pub name: String,
    /// What is looked up.
    pub source: Template,
    /// `hostnames`: keys may be wildcards.
    pub hostnames: bool,
    /// `volatile`: looked up anew each time. Otherwise what was found first holds for the whole request.
    pub is_volatile: bool,
    /// Exact keys (lower case: nginx ignores case here).
    pub exact: std::collections::HashMap<Vec<u8>, Template>,
    /// With `hostnames`: `*.example.org` as `.example.org`, longest first.
    pub leading: Vec<(Vec<u8>, Template)>,
    /// With `hostnames`: `www.example.*` as `www.example.`, longest first.
    pub trailing: Vec<(Vec<u8>, Template)>,
    /// `~` and `~*` keys in the order of the file.
    pub patterns: PatternList<Template>,
    /// `default`; empty when not given.
    pub default: Template,
}

/// A `geo` block: a value for every network.
#[derive(Debug, Default)]
pub struct Geo {
    /// The variable it makes, without `$`.
    pub name: String,
    /// The address that is looked up; `None` for the client's.
    pub address: Option<Template>,
    /// The networks of IPv4.
    pub v4: Networks,
    /// The networks of IPv6.
    pub v6: Networks,
    /// `proxy`: whose `X-Forwarded-For` is believed.
    pub proxies: Networks,
    /// `proxy_recursive`: the last address that is no proxy's counts, not the last one.
    pub recursive: bool,
}

impl Geo {
    /// Whether there are proxies that are believed.
    pub fn has_proxies(&self) -> bool {
        !self.proxies.values.is_empty()
    }

    /// The address that counts, of a client at `address` that comes with these addresses in `X-Forwarded-For`, the last
    /// one first.
    pub fn forwarded(&self, address: IpAddr, forwarded: impl Iterator<Item = IpAddr>) -> IpAddr {
        let is_proxy = |address: IpAddr| {
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            !self.proxies.value(address.into()).is_empty()
        };
        let mut found = address;
        for next in forwarded {
            if !is_proxy(found) {
                break;
            }
            found = next;
            if !self.recursive {
                break;
            }
        }
        found
    }

    /// The value for an address. An IPv4 address within IPv6 counts as what it is.
    pub fn value(&self, address: IpAddr) -> &[u8] {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.value(u32::from(address).into()),
            IpAddr::V6(address) => self.v6.value(address.into()),
        }
    }
}

/// Networks of one kind, laid out flat: of those that hold an address, the smallest counts.
#[derive(Debug, Default)]
pub struct Networks {
    /// Where a value begins to hold (until the next one does), in order; an index into `values`.
    borders: Vec<(u128, Option<usize>)>,
    values: Vec<Box<[u8]>>,
}

impl Networks {
    /// Lays networks out: first and last address of each, and its value. They are nested or disjoint.
    pub fn new(networks: Vec<(u128, u128, Box<[u8]>)>) -> Self {
        let mut spans = Vec::with_capacity(networks.len());
        let mut values = Vec::with_capacity(networks.len());
        for (at, (first, last, value)) in networks.into_iter().enumerate() {
            spans.push((first, last, at));
            values.push(value);
        }
        // The larger one first, so that nested ones come later.
        spans.sort_by_key(|(first, last, at)| (*first, std::cmp::Reverse(*last), *at));
        let mut borders: Vec<(u128, Option<usize>)> = Vec::new();
        let mut put = |at, value| match borders.last_mut() {
            Some(last) if last.0 == at => last.1 = value,
            _ => borders.push((at, value)),
        };
        let mut open: Vec<(u128, usize)> = Vec::new();
        for (first, last, value) in spans {
            while let Some((end, _)) = open.pop_if(|(end, _)| *end < first) {
                put(end + 1, open.last().map(|(_, value)| *value));
            }
            put(first, Some(value));
            open.push((last, value));
        }
        while let Some((end, _)) = open.pop() {
            if let Some(next) = end.checked_add(1) {
                put(next, open.last().map(|(_, value)| *value));
            }
        }
        Self { borders, values }
    }

    fn value(&self, address: u128) -> &[u8] {
        let behind = self.borders.partition_point(|(from, _)| *from <= address);
        let value = behind.checked_sub(1).and_then(|at| self.borders[at].1);
        value.and_then(|at| self.values.get(at)).map(AsRef::as_ref).unwrap_or_default()
    }
}

/// A variable of a `geoip2`: what a database says of an address.
#[derive(Debug)]
pub struct DatabaseEntry {
    /// Which of the databases.
    pub database: usize,
    /// The value where the database says nothing.
    pub default: Box<[u8]>,
    /// The address that is looked up; `None` for the client's.
    pub source: Option<Template>,
    /// What is wanted of it.
    pub field: DatabaseField,
}

/// What is wanted of a database.
#[derive(Debug)]
pub enum DatabaseField {
    /// The value under these names, each within the one before.
    Path(Vec<String>),
    /// `metadata build_epoch`: when the database was made.
    BuildEpoch,
}

/// A `split_clients` block: a value for each share of what there is.
#[derive(Debug)]
pub struct Split {
    /// The variable it makes, without `$`.
    pub name: String,
    /// What is hashed.
    pub source: Template,
    /// Up to which hash (exclusive; `None` for all) a value holds.
    pub shares: Vec<(Option<u32>, Box<[u8]>)>,
}

impl Split {
    /// The value for what was hashed: nginx's own hash, so that a client stays in the same share.
    pub fn value(&self, source: &[u8]) -> &[u8] {
        let hash = murmur2(source);
        let share = self.shares.iter().find(|(end, _)| end.is_none_or(|end| hash < end));
        share.map(|(_, value)| value.as_ref()).unwrap_or_default()
    }
}

/// Austin Appleby's `MurmurHash2` with a seed of 0.
fn murmur2(bytes: &[u8]) -> u32 {
    const FACTOR: u32 = 0x5bd1_e995;
    let mut hash = bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(FACTOR);
        word ^= word >> 24;
        hash = hash.wrapping_mul(FACTOR) ^ word.wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(FACTOR);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_network_counts() {
        let value = |text: &str| text.as_bytes().into();
        let networks = Networks::new(vec![
            (10, 19, value("ten")),
            (0, 99, value("all")),
            (12, 15, value("twelve")),
            (14, 15, value("end")),
            (20, 29, value("twenty")),
            (200, u128::MAX, value("far")),
        ]);
        for (address, expected) in [
            (0, "all"),
            (9, "all"),
            (10, "ten"),
            (12, "twelve"),
            (14, "end"),
            (15, "end"),
            (16, "ten"),
            (20, "twenty"),
            (29, "twenty"),
            (30, "all"),
            (99, "all"),
            (100, ""),
            (199, ""),
            (200, "far"),
            (u128::MAX, "far"),
        ] {
            assert_eq!(networks.value(address), expected.as_bytes(), "{address}");
        }
        assert_eq!(Networks::default().value(1), b"");
    }

    #[test]
    fn proxies_are_believed_one_by_one() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let proxy = |from: &str| {
            let IpAddr::V4(from) = ip(from) else { panic!("of IPv4") };
            let at = u128::from(from.to_ipv6_mapped());
            (at, at, b"1"[..].into())
        };
        let proxies = || Networks::new(vec![proxy("10.0.0.1"), proxy("10.0.0.2")]);
        let chain = || [ip("10.0.0.2"), ip("192.0.2.7"), ip("192.0.2.8")].into_iter();
        let plain = Geo { proxies: proxies(), ..Geo::default() };
        assert_eq!(plain.forwarded(ip("10.0.0.1"), chain()), ip("10.0.0.2"));
        assert_eq!(plain.forwarded(ip("10.0.0.3"), chain()), ip("10.0.0.3"));
        let recursive = Geo { recursive: true, ..plain };
        assert_eq!(recursive.forwarded(ip("10.0.0.1"), chain()), ip("192.0.2.7"));
    }

    #[test]
    fn the_hash_is_the_known_one() {
        for (text, hash) in
            [("", 0), ("a", 0x9268_5f5e), ("abcd", 0x2687_3021), ("abcdefg", 0xf9a1_cef3)]
        {
            assert_eq!(murmur2(text.as_bytes()), hash, "{text}: {:08x}", murmur2(text.as_bytes()));
        }
    }
}
