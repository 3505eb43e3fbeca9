//! Variables that are looked up: by a value, an address or a hash.

use std::net::IpAddr;

use super::Template;
use crate::pattern_list::PatternList;
use crate::texts::Texts;

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
    pub exact: MapTable,
    /// With `hostnames`: `*.example.org` as `.example.org`, longest first.
    pub leading: Vec<(Vec<u8>, Template)>,
    /// With `hostnames`: `www.example.*` as `www.example.`, longest first.
    pub trailing: Vec<(Vec<u8>, Template)>,
    /// `~` and `~*` keys in the order of the file.
    pub patterns: PatternList<Template>,
    /// `default`; empty when not given.
    pub default: Template,
}

/// The exact keys of a `map`, each with its value.
#[derive(Default, Debug)]
pub struct MapTable {
    keys: Texts,
    /// The value of each key: a number in `literals`, or [`TEMPLATE`] and an index into `templates`.
    values: Vec<u32>,
    literals: Texts,
    templates: Vec<Template>,
}

/// A value of a `map` that has variables in it.
const TEMPLATE: u32 = 1 << 31;

/// A value of a `map`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapValue<T, L> {
    /// Without variables.
    Literal(L),
    /// With variables.
    Template(T),
}

impl MapTable {
    /// Adds a key; whether it is new. One that is not keeps its value.
    pub fn add(&mut self, key: &[u8], value: MapValue<Template, &[u8]>) -> bool {
        let (_, is_new) = self.keys.add(key);
        if is_new {
            self.values.push(match value {
                MapValue::Literal(text) => self.literals.add(text).0,
                MapValue::Template(template) => {
                    self.templates.push(template);
                    TEMPLATE | (self.templates.len() as u32 - 1)
                }
            });
        }
        is_new
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<MapValue<&Template, &[u8]>> {
        let value = *self.values.get(self.keys.find(key)? as usize)?;
        Some(if value & TEMPLATE == 0 {
            MapValue::Literal(self.literals.get(value)?)
        } else {
            MapValue::Template(self.templates.get((value & !TEMPLATE) as usize)?)
        })
    }

    /// The keys, in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter()
    }

    /// The values that have variables in them.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// No more keys are added.
    pub(crate) fn seal(&mut self) {
        self.keys.shrink();
        self.literals.seal();
        self.values.shrink_to_fit();
    }
}

/// A `geo` block: a value for every network.
#[derive(Debug, Default)]
pub struct Geo {
    /// The variable it makes, without `$`.
    pub name: String,
    /// The address that is looked up; `None` for the client's.
    pub address: Option<Template>,
    /// The networks of IPv4.
    pub v4: Networks<u32>,
    /// The networks of IPv6.
    pub v6: Networks<u128>,
    /// The values that they have.
    pub values: Texts,
    /// `proxy`: whose `X-Forwarded-For` is believed.
    pub proxies: Networks<u128>,
    /// `proxy_recursive`: the last address that is no proxy's counts, not the last one.
    pub recursive: bool,
}

impl Geo {
    /// Whether there are proxies that are believed.
    pub fn has_proxies(&self) -> bool {
        !self.proxies.is_empty()
    }

    /// The address that counts, of a client at `address` that comes with these addresses in `X-Forwarded-For`, the last
    /// one first.
    pub fn forwarded(&self, address: IpAddr, forwarded: impl Iterator<Item = IpAddr>) -> IpAddr {
        let is_proxy = |address: IpAddr| {
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            self.proxies.value(address.into()).is_some()
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
        let value = match address.to_canonical() {
            IpAddr::V4(address) => self.v4.value(address.into()),
            IpAddr::V6(address) => self.v6.value(address.into()),
        };
        value.and_then(|value| self.values.get(value)).unwrap_or_default()
    }
}

/// An address as a number.
pub trait Address: Copy + Ord {
    /// The one behind it, unless it is the last.
    fn next(self) -> Option<Self>;
}

impl Address for u32 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Address for u128 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

/// Networks of one kind, laid out flat: of those that hold an address, the smallest counts.
#[derive(Debug)]
pub struct Networks<A> {
    /// Where a value begins to hold (until the next one does), in order.
    from: Vec<A>,
    /// The number of each of these values; [`NO_VALUE`] where none holds.
    values: Vec<u32>,
}

const NO_VALUE: u32 = u32::MAX;

impl<A> Default for Networks<A> {
    fn default() -> Self {
        Self { from: Vec::new(), values: Vec::new() }
    }
}

impl<A: Address> Networks<A> {
    /// Lays networks out: first and last address of each, and the number of its value. They are nested or disjoint.
    pub fn new(mut networks: Vec<(A, A, u32)>) -> Self {
        // The larger one first, so that nested ones come later.
        networks.sort_by_key(|(first, last, _)| (*first, std::cmp::Reverse(*last)));
        let mut laid = Self::default();
        let mut open: Vec<(A, u32)> = Vec::new();
        let outer = |open: &[(A, u32)]| open.last().map_or(NO_VALUE, |(_, value)| *value);
        for (first, last, value) in networks {
            while let Some((end, _)) = open.pop_if(|(end, _)| *end < first) {
                laid.put(end.next(), outer(&open));
            }
            laid.put(Some(first), value);
            open.push((last, value));
        }
        while let Some((end, _)) = open.pop() {
            laid.put(end.next(), outer(&open));
        }
        laid.from.shrink_to_fit();
        laid.values.shrink_to_fit();
        laid
    }

    /// From an address on, a value holds.
    fn put(&mut self, from: Option<A>, value: u32) {
        let Some(from) = from else { return };
        match self.values.last_mut() {
            Some(last) if self.from.last() == Some(&from) => *last = value,
            _ => {
                self.from.push(from);
                self.values.push(value);
            }
        }
    }

    /// Whether there are none.
    const fn is_empty(&self) -> bool {
        self.from.is_empty()
    }

    /// The number of the value that holds for an address.
    fn value(&self, address: A) -> Option<u32> {
        let behind = self.from.partition_point(|from| *from <= address);
        let value = self.values.get(behind.checked_sub(1)?)?;
        (*value != NO_VALUE).then_some(*value)
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
        let networks = Networks::new(vec![
            (10, 19, 10),
            (0, 99, 1),
            (12, 15, 12),
            (14, 15, 14),
            (20, 29, 20),
            (200, u128::MAX, 200),
        ]);
        for (address, expected) in [
            (0, Some(1)),
            (9, Some(1)),
            (10, Some(10)),
            (12, Some(12)),
            (14, Some(14)),
            (15, Some(14)),
            (16, Some(10)),
            (20, Some(20)),
            (29, Some(20)),
            (30, Some(1)),
            (99, Some(1)),
            (100, None),
            (199, None),
            (200, Some(200)),
            (u128::MAX, Some(200)),
        ] {
            assert_eq!(networks.value(address), expected, "{address}");
        }
        assert_eq!(Networks::default().value(1_u32), None);
    }

    #[test]
    fn proxies_are_believed_one_by_one() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let proxy = |from: &str| {
            let IpAddr::V4(from) = ip(from) else { panic!("of IPv4") };
            let at = u128::from(from.to_ipv6_mapped());
            (at, at, 0)
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
