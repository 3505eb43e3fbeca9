//! Databases of addresses in the format of `MaxMind` (`geoip2`): an address leads through a tree of bits to a value, which is a map
//! of maps. Nothing in a file is believed: whatever it says, reading ends and stays within it.

use std::net::IpAddr;

/// Before the metadata, near the end of a file.
const MARK: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// Between the tree and the values.
const GAP_BYTES: usize = 16;
/// How deep values may be within each other.
const DEPTH_MAX: usize = 32;
/// How many pointers may lead to one another.
const POINTERS_MAX: usize = 8;

/// A database that was read into memory.
#[derive(Debug)]
pub struct AddressDatabase {
    bytes: Box<[u8]>,
    node_count: usize,
    /// Of one of the two records of a node.
    record_bits: usize,
    is_v6: bool,
    /// Where IPv4 begins in a tree of IPv6.
    v4_start: usize,
    /// The beginning of the values.
    values: usize,
    build_epoch: u64,
}

/// A value, as far as it has been looked at.
#[derive(Clone, Copy, Debug)]
struct Value {
    kind: u8,
    size: usize,
    /// Where it begins, behind its head.
    at: usize,
}

impl AddressDatabase {
    /// Reads what a file holds; an error says why it is none.
    pub fn new(bytes: Vec<u8>) -> Result<Self, &'static str> {
        const NONE: &str = "is no database of addresses";
        let mark = memchr::memmem::rfind(&bytes, MARK).ok_or(NONE)?;
        let data = Data { bytes: &bytes, start: mark + MARK.len() };
        let root = data.value(0).ok_or(NONE)?;
        let number = |name: &str| data.member(root, name).and_then(|value| data.number(value));
        let node_count = number("node_count").ok_or(NONE)? as usize;
        let record_bits = number("record_size").ok_or(NONE)? as usize;
        if !matches!(record_bits, 24 | 28 | 32) {
            return Err("has records of an unknown size");
        }
        let is_v6 = number("ip_version") == Some(6);
        let build_epoch = number("build_epoch").unwrap_or_default();
        let tree = node_count.checked_mul(record_bits / 4).filter(|tree| *tree <= mark);
        let values = tree.ok_or("is cut short")? + GAP_BYTES;
        let bytes = bytes.into_boxed_slice();
        let mut database =
            Self { bytes, node_count, record_bits, is_v6, v4_start: 0, values, build_epoch };
        if is_v6 {
            for _ in 0..96 {
                let next = database.record(database.v4_start, false);
                database.v4_start = next.ok_or("is cut short")?;
                if database.v4_start >= node_count {
                    break;
                }
            }
        }
        Ok(database)
    }

    /// When it was made, in seconds since 1970.
    pub fn build_epoch(&self) -> u64 {
        self.build_epoch
    }

    /// Appends what stands under these names for an address; whether there is something.
    pub fn push(&self, address: IpAddr, path: &[String], out: &mut Vec<u8>) -> bool {
        let mut found = || {
            let data = Data { bytes: &self.bytes, start: self.values };
            let mut value = data.value(self.find(address)?)?;
            for name in path {
                value = data.member(value, name)?;
            }
            data.push(value, out)
        };
        found().is_some()
    }

    /// Where the value of an address begins.
    fn find(&self, address: IpAddr) -> Option<usize> {
        let (bits, count, mut node) = match (address.to_canonical(), self.is_v6) {
            (IpAddr::V4(address), false) => (u128::from(address.to_bits()), 32, 0),
            (IpAddr::V4(address), true) => (u128::from(address.to_bits()), 32, self.v4_start),
            (IpAddr::V6(address), true) => (address.to_bits(), 128, 0),
            (IpAddr::V6(_), false) => return None,
        };
        for at in (0..count).rev() {
            if node >= self.node_count {
                break;
            }
            node = self.record(node, bits >> at & 1 == 1)?;
        }
        // Exactly the number of nodes means that there is nothing.
        node.checked_sub(self.node_count + GAP_BYTES)
    }

    /// Where a bit leads to from a node.
    fn record(&self, node: usize, bit: bool) -> Option<usize> {
        let node_bytes = self.record_bits / 4;
        let start = node.checked_mul(node_bytes)?;
        let node = self.bytes.get(start..start.checked_add(node_bytes)?)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
        Some(match (self.record_bits, bit) {
            (28, false) => usize::from(node[3] >> 4) << 24 | number(&node[..3]),
            (28, true) => usize::from(node[3] & 15) << 24 | number(&node[4..]),
            (_, false) => number(&node[..node_bytes / 2]),
            (_, true) => number(&node[node_bytes / 2..]),
        })
    }
}

/// Values, and where they begin.
#[derive(Clone, Copy)]
struct Data<'a> {
    bytes: &'a [u8],
    start: usize,
}

mod kind {
    pub(super) const POINTER: u8 = 1;
    pub(super) const TEXT: u8 = 2;
    pub(super) const DOUBLE: u8 = 3;
    pub(super) const BYTES: u8 = 4;
    pub(super) const MAP: u8 = 7;
    pub(super) const SIGNED: u8 = 8;
    pub(super) const ARRAY: u8 = 11;
    pub(super) const BOOLEAN: u8 = 14;
    pub(super) const FLOAT: u8 = 15;
}

impl<'a> Data<'a> {
    fn get(&self, at: usize, count: usize) -> Option<&'a [u8]> {
        let from = self.start.checked_add(at)?;
        self.bytes.get(from..from.checked_add(count)?)
    }

    fn number_at(&self, at: usize, count: usize) -> Option<usize> {
        Some(self.get(at, count)?.iter().fold(0, |all, byte| all << 8 | usize::from(*byte)))
    }

    /// The head of the value at an offset; that of another place where it is a pointer.
    fn value(&self, at: usize) -> Option<Value> {
        let mut found = self.head(at)?;
        for _ in 0..POINTERS_MAX {
            if found.kind != kind::POINTER {
                return Some(found);
            }
            found = self.head(found.size)?;
        }
        None
    }

    /// The same as it stands there: a pointer's size is where it leads to.
    fn head(&self, at: usize) -> Option<Value> {
        let first = self.get(at, 1)?[0];
        let mut at = at + 1;
        let mut kind = first >> 5;
        let low = usize::from(first & 0x1f);
        if kind == kind::POINTER {
            let more = low >> 3;
            let high = if more == 3 { 0 } else { (low & 7) << (8 * (more + 1)) };
            let base = [0, 2048, 526_336, 0][more];
            let to = (high | self.number_at(at, more + 1)?) + base;
            return Some(Value { kind, size: to, at: at + more + 1 });
        }
        if kind == 0 {
            kind = self.get(at, 1)?[0].checked_add(7)?;
            at += 1;
        }
        let (size, more) = match low {
            29 => (29 + self.number_at(at, 1)?, 1),
            30 => (285 + self.number_at(at, 2)?, 2),
            31 => (65_821 + self.number_at(at, 3)?, 3),
            size => (size, 0),
        };
        Some(Value { kind, size, at: at + more })
    }

    /// Where the value behind this one begins.
    fn skip(&self, at: usize, depth: usize) -> Option<usize> {
        let value = self.head(at)?;
        let items = match value.kind {
            kind::POINTER | kind::BOOLEAN => return Some(value.at),
            kind::MAP => value.size.checked_mul(2)?,
            kind::ARRAY => value.size,
            _ => return value.at.checked_add(value.size),
        };
        if depth >= DEPTH_MAX {
            return None;
        }
        let mut at = value.at;
        for _ in 0..items {
            at = self.skip(at, depth + 1)?;
        }
        Some(at)
    }

    /// What stands under a name in a map, or under a number in a list.
    fn member(&self, value: Value, name: &str) -> Option<Value> {
        let mut at = value.at;
        if value.kind == kind::ARRAY {
            let wanted = name.parse::<usize>().ok().filter(|wanted| *wanted < value.size)?;
            for _ in 0..wanted {
                at = self.skip(at, 0)?;
            }
            return self.value(at);
        }
        if value.kind != kind::MAP {
            return None;
        }
        for _ in 0..value.size {
            let key = self.value(at)?;
            let behind = self.skip(at, 0)?;
            if key.kind == kind::TEXT && self.get(key.at, key.size)? == name.as_bytes() {
                return self.value(behind);
            }
            at = self.skip(behind, 0)?;
        }
        None
    }

    fn number(&self, value: Value) -> Option<u64> {
        let is_unsigned = matches!(value.kind, 5 | 6 | 9);
        let bytes = self.get(value.at, value.size).filter(|it| is_unsigned && it.len() <= 8)?;
        Some(bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    /// As nginx's module writes it.
    fn push(&self, value: Value, out: &mut Vec<u8>) -> Option<()> {
        let bytes = || self.get(value.at, value.size);
        match value.kind {
            kind::TEXT | kind::BYTES => out.extend_from_slice(bytes()?),
            kind::DOUBLE => {
                let number = f64::from_be_bytes(*bytes()?.first_chunk::<8>()?);
                out.extend_from_slice(format!("{number:.5}").as_bytes());
            }
            kind::FLOAT => {
                let number = f32::from_be_bytes(*bytes()?.first_chunk::<4>()?);
                out.extend_from_slice(format!("{number:.5}").as_bytes());
            }
            kind::BOOLEAN => out.push(if value.size > 0 { b'1' } else { b'0' }),
            kind::SIGNED => {
                let bytes = bytes().filter(|it| it.len() <= 4)?;
                let number = bytes.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
                out.extend_from_slice(number.cast_signed().to_string().as_bytes());
            }
            _ => out.extend_from_slice(self.number(value)?.to_string().as_bytes()),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<u8> {
        [&[2 << 5 | text.len() as u8], text.as_bytes()].concat()
    }

    fn map(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut out = vec![7 << 5 | pairs.len() as u8];
        for (name, value) in pairs {
            out.extend(text(name));
            out.extend_from_slice(value);
        }
        out
    }

    fn number(number: u16) -> Vec<u8> {
        [&[5 << 5 | 2][..], &number.to_be_bytes()].concat()
    }

    /// A tree of IPv6 in which `::8000:0/97`, that is 128.0.0.0/1, has a value, and no other address.
    fn file(record_bits: u16) -> Vec<u8> {
        let count = 97_u32;
        let record = |to: u32| match record_bits {
            24 => to.to_be_bytes()[1..].to_vec(),
            _ => to.to_be_bytes().to_vec(),
        };
        let mut out = Vec::new();
        for node in 0..96 {
            out.extend(record(node + 1));
            out.extend(record(count));
        }
        out.extend(record(count));
        // Behind a text that is pointed at.
        out.extend(record(count + 16 + 3));
        out.extend([0; GAP_BYTES]);
        out.extend(text("DE"));
        let list = [&[1, 4][..], &text("first")].concat();
        let inner = map(&[("iso_code", vec![1 << 5, 0]), ("is_eu", vec![1, 7]), ("list", list)]);
        let double = [&[3 << 5 | 8][..], &52.5_f64.to_be_bytes()].concat();
        out.extend(map(&[
            ("other", number(7)),
            ("country", inner),
            ("lat", double),
            ("id", number(300)),
        ]));
        out.extend(MARK);
        out.extend(map(&[
            ("node_count", number(count as u16)),
            ("record_size", number(record_bits)),
            ("ip_version", number(6)),
            ("build_epoch", number(1000)),
        ]));
        out
    }

    #[test]
    fn an_address_leads_to_its_value() {
        for record_bits in [24, 32] {
            let database = AddressDatabase::new(file(record_bits)).expect("a database");
            assert_eq!(database.build_epoch(), 1000);
            let find = |address: &str, path: &str| {
                let path: Vec<String> = path.split(' ').map(str::to_owned).collect();
                let mut out = Vec::new();
                let is_there = database.push(address.parse().expect("an address"), &path, &mut out);
                is_there.then(|| String::from_utf8(out).expect("text"))
            };
            for (address, path, expected) in [
                ("192.0.2.1", "country iso_code", Some("DE")),
                ("::ffff:192.0.2.1", "country iso_code", Some("DE")),
                ("192.0.2.1", "country is_eu", Some("1")),
                ("192.0.2.1", "country list 0", Some("first")),
                ("192.0.2.1", "country list 1", None),
                ("192.0.2.1", "lat", Some("52.50000")),
                ("192.0.2.1", "id", Some("300")),
                ("192.0.2.1", "none", None),
                ("192.0.2.1", "country", None),
                ("192.0.2.1", "id x", None),
                ("10.0.0.1", "country iso_code", None),
                ("2001:db8::1", "country iso_code", None),
            ] {
                assert_eq!(find(address, path).as_deref(), expected, "{address} {path}");
            }
        }
    }

    #[test]
    fn a_broken_file_harms_nothing() {
        let good = file(24);
        let path = ["country".to_owned(), "list".to_owned(), "0".to_owned()];
        let ask = |bytes: Vec<u8>| {
            if let Ok(database) = AddressDatabase::new(bytes) {
                for address in ["192.0.2.1", "::1", "ffff::"] {
                    let address = address.parse().expect("an address");
                    database.push(address, &path, &mut Vec::new());
                }
            }
        };
        for at in 0..good.len() {
            ask(good[..at].to_vec());
            for value in [0, 0x20, 0x3f, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                ask(bad);
            }
        }
        assert!(AddressDatabase::new(b"text".to_vec()).is_err());
    }
}
