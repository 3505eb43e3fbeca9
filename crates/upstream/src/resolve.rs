//! Names of upstreams into addresses (`resolver`): the DNS messages for it (RFC 1035), and how long what they
//! say is believed. Sockets, the choice of the server and an unguessable number are the shell's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sekisho_lifecycle::Moment;

/// Bytes of a name on the wire, and of one label.
const NAME_BYTES_MAX: usize = 255;
const LABEL_BYTES_MAX: usize = 63;
/// How often a name may lead to another within one answer.
const ALIASES_MAX: usize = 16;
/// How many addresses one answer may bring.
const ADDRESSES_MAX: usize = 64;
/// How many records are looked at.
const RECORDS_MAX: usize = 256;
const HEADER_BYTES: usize = 12;

const CLASS_INTERNET: u16 = 1;
const TYPE_ALIAS: u16 = 5;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// IPv4
    A,
    /// IPv6
    Aaaa,
}

impl Kind {
    const fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
        }
    }
}

/// What a name came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The addresses, in the order of the answer; none where the name has none of this kind.
    pub addresses: Vec<IpAddr>,
    /// For how long, by the shortest time that the records on the way say.
    pub ttl: Duration,
    /// Where there are none: another name that this one stands for, if the answer says so. It is to be asked for next.
    pub alias: Option<String>,
}

/// Why there is no answer in a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResolveFault {
    /// The name is none: too long, an empty label.
    BadName,
    /// It is the answer to something else, or none at all: the right one may still come.
    NotOurs,
    /// It cannot be read.
    Malformed,
    /// It was too long for a datagram: ask by TCP.
    Truncated,
    /// The name does not exist.
    NoSuchName,
    /// The server answered with this error code.
    Refused(u8),
}

/// Writes a query. `id` and the source port must be unguessable.
pub fn query(id: u16, name: &str, kind: Kind, out: &mut Vec<u8>) -> Result<(), ResolveFault> {
    let wire = wire_name(name)?;
    out.extend_from_slice(&id.to_be_bytes());
    // Recursion is desired; one question.
    out.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&wire);
    out.extend_from_slice(&kind.number().to_be_bytes());
    out.extend_from_slice(&CLASS_INTERNET.to_be_bytes());
    Ok(())
}

/// Reads the answer to a query. Only one with the same number and the same question counts.
pub fn answer(message: &[u8], id: u16, name: &str, kind: Kind) -> Result<Addresses, ResolveFault> {
    let wire = wire_name(name)?;
    let header = message.first_chunk::<HEADER_BYTES>().ok_or(ResolveFault::NotOurs)?;
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let is_answer = header[2] & 0x80 != 0;
    if number(0) != id || !is_answer || number(4) != 1 {
        return Err(ResolveFault::NotOurs);
    }
    let mut reader = Reader { message, at: HEADER_BYTES };
    let asked = reader.name().ok_or(ResolveFault::NotOurs)?;
    let question = (reader.number(), reader.number());
    if !asked.eq_ignore_ascii_case(&wire) || question != (Some(kind.number()), Some(CLASS_INTERNET))
    {
        return Err(ResolveFault::NotOurs);
    }
    match header[3] & 0x0f {
        _ if header[2] & 2 != 0 => return Err(ResolveFault::Truncated),
        0 => {}
        3 => return Err(ResolveFault::NoSuchName),
        code => return Err(ResolveFault::Refused(code)),
    }
    let records = reader.records(usize::from(number(6))).ok_or(ResolveFault::Malformed)?;
    Ok(follow(wire, &records, kind))
}

/// Follows aliases from the name to its addresses; records of another name are ignored.
fn follow(mut name: Vec<u8>, records: &[Record<'_>], kind: Kind) -> Addresses {
    let mut ttl = u32::MAX;
    let mut is_alias = false;
    for _ in 0..ALIASES_MAX {
        let of_name = || {
            records.iter().filter(|record| {
                record.class == CLASS_INTERNET && record.name.eq_ignore_ascii_case(&name)
            })
        };
        let alias = of_name().find(|record| record.kind == TYPE_ALIAS);
        let Some((record, next)) = alias.and_then(|record| Some((record, record.alias.clone()?)))
        else {
            break;
        };
        ttl = ttl.min(record.ttl);
        (name, is_alias) = (next, true);
    }
    let mut addresses = Vec::new();
    for record in records {
        let is_asked_for = record.kind == kind.number() && record.class == CLASS_INTERNET;
        if !is_asked_for || !record.name.eq_ignore_ascii_case(&name) {
            continue;
        }
        let address = match (kind, record.data.len()) {
            (Kind::A, 4) => record.data.first_chunk().map(|four| Ipv4Addr::from(*four).into()),
            (Kind::Aaaa, 16) => record.data.first_chunk().map(|all| Ipv6Addr::from(*all).into()),
            _ => None,
        };
        if let Some(address) = address.filter(|_| addresses.len() < ADDRESSES_MAX) {
            ttl = ttl.min(record.ttl);
            addresses.push(address);
        }
    }
    let alias = if addresses.is_empty() && is_alias { text_name(&name) } else { None };
    // An answer without an address has no time to live here.
    let ttl = if addresses.is_empty() && alias.is_none() { 0 } else { ttl };
    Addresses { addresses, ttl: Duration::from_secs(ttl.into()), alias }
}

/// A name of the wire as it is written; `None` where a label has what cannot be.
fn text_name(mut wire: &[u8]) -> Option<String> {
    let mut name = String::new();
    while let Some((length @ 1.., rest)) = wire.split_first() {
        let (label, rest) = rest.split_at_checked(usize::from(*length))?;
        if !label.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.') {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|byte| char::from(*byte)));
        wire = rest;
    }
    (!name.is_empty()).then_some(name)
}

/// A name as it goes over the wire, in lower case.
fn wire_name(name: &str) -> Result<Vec<u8>, ResolveFault> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut wire = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        if label.is_empty() || label.len() > LABEL_BYTES_MAX {
            return Err(ResolveFault::BadName);
        }
        wire.push(label.len() as u8);
        wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    wire.push(0);
    if wire.len() > NAME_BYTES_MAX { Err(ResolveFault::BadName) } else { Ok(wire) }
}

struct Record<'a> {
    name: Vec<u8>,
    kind: u16,
    class: u16,
    ttl: u32,
    data: &'a [u8],
    /// The name in it, for one that is an alias.
    alias: Option<Vec<u8>>,
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn records(&mut self, count: usize) -> Option<Vec<Record<'a>>> {
        (0..count.min(RECORDS_MAX)).map(|_| self.record()).collect()
    }

    fn record(&mut self) -> Option<Record<'a>> {
        let name = self.name()?;
        let (kind, class) = (self.number()?, self.number()?);
        let ttl = u32::from(self.number()?) << 16 | u32::from(self.number()?);
        let len = usize::from(self.number()?);
        let start = self.at;
        let data = self.message.get(start..start.checked_add(len)?)?;
        let alias = match kind {
            TYPE_ALIAS => Some(self.name()?),
            _ => None,
        };
        self.at = start + len;
        // RFC 2181 §8: a time with the highest bit set is none.
        let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
        Some(Record { name, kind, class, ttl, data, alias })
    }

    fn number(&mut self) -> Option<u16> {
        let two = self.message.get(self.at..)?.first_chunk::<2>()?;
        self.at += 2;
        Some(u16::from_be_bytes(*two))
    }

    /// A name, whose parts may be elsewhere in the message: each pointer must lead further to the front, so
    /// that reading ends.
    fn name(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        let (mut at, mut limit, mut end) = (self.at, self.at, None);
        loop {
            let len = *self.message.get(at)?;
            match len {
                0 => {
                    name.push(0);
                    self.at = end.unwrap_or(at + 1);
                    return (name.len() <= NAME_BYTES_MAX).then_some(name);
                }
                1..=0x3f => {
                    let label = self.message.get(at..at + 1 + usize::from(len))?;
                    name.extend_from_slice(label);
                    at += label.len();
                    if name.len() > NAME_BYTES_MAX {
                        return None;
                    }
                }
                0xc0.. => {
                    let low = *self.message.get(at + 1)?;
                    end = end.or(Some(at + 2));
                    let to = usize::from(len & 0x3f) << 8 | usize::from(low);
                    if to >= limit {
                        return None;
                    }
                    (at, limit) = (to, to);
                }
                _ => return None,
            }
        }
    }
}

/// How long an answer is believed: `valid=`, or what the records say, but never so short that every request asks.
pub fn believed_until(addresses: &Addresses, valid: Option<Duration>, now: Moment) -> Moment {
    const SHORTEST: Duration = Duration::from_secs(1);
    now + valid.unwrap_or(addresses.ttl).max(SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question for `a.b`, and what is given behind it.
    fn message(id: u16, flags: [u8; 2], answers: u16, kind: Kind, rest: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        query(id, "A.b", kind, &mut out).expect("a name");
        out[2..4].copy_from_slice(&flags);
        out[6..8].copy_from_slice(&answers.to_be_bytes());
        out.extend_from_slice(rest);
        out
    }

    const OK: [u8; 2] = [0x81, 0x80];

    fn record(name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
        let mut out = name.to_vec();
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 1]);
        out.extend_from_slice(&ttl.to_be_bytes());
        out.extend_from_slice(&(data.len() as u16).to_be_bytes());
        out.extend_from_slice(data);
        out
    }

    #[test]
    fn a_query_is_a_question() {
        let mut out = Vec::new();
        query(0x1234, "www.Example.org.", Kind::Aaaa, &mut out).expect("a name");
        let expected = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x1c\0\x01";
        assert_eq!(out, expected);
        for bad in ["", "a..b", &"a".repeat(64), &"abcdefg.".repeat(32)] {
            assert_eq!(query(1, bad, Kind::A, &mut out), Err(ResolveFault::BadName), "{bad}");
        }
    }

    #[test]
    fn aliases_lead_to_addresses_and_the_shortest_time_counts() {
        let answers = [
            record(b"\xc0\x0c", 5, 300, b"\x01x\xc0\x0e"), // x.b
            record(b"\x01X\x01B\0", 1, 60, &[192, 0, 2, 1]),
            record(b"\x01x\xc0\x0e", 1, 90, &[192, 0, 2, 2]),
            record(b"\x01y\x01b\0", 1, 5, &[192, 0, 2, 9]),
            record(b"\x01x\x01b\0", 1, 5, &[1, 2]),
        ];
        let message = message(7, OK, 5, Kind::A, &answers.concat());
        let found = answer(&message, 7, "a.b", Kind::A).expect("an answer");
        let expected: Vec<IpAddr> = vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let (ttl, alias) = (Duration::from_mins(1), None);
        assert_eq!(found, Addresses { addresses: expected, ttl, alias });
        let until = |valid| believed_until(&found, valid, Moment::ZERO);
        assert_eq!(until(None), Moment::from_millis(60_000));
        assert_eq!(until(Some(Duration::from_secs(5))), Moment::from_millis(5000));
        assert_eq!(until(Some(Duration::ZERO)), Moment::from_millis(1000));
    }

    #[test]
    fn an_answer_may_end_at_another_name() {
        let alias = record(b"\xc0\x0c", 5, 300, b"\x01x\x03org\0");
        let found = answer(&message(7, OK, 1, Kind::A, &alias), 7, "a.b", Kind::A).expect("one");
        assert_eq!(found.alias.as_deref(), Some("x.org"));
        assert_eq!((found.addresses.len(), found.ttl), (0, Duration::from_mins(5)));
        let odd = record(b"\xc0\x0c", 5, 300, b"\x03a.b\0");
        let found = answer(&message(7, OK, 1, Kind::A, &odd), 7, "a.b", Kind::A).expect("one");
        assert_eq!((found.alias, found.ttl), (None, Duration::ZERO));
    }

    #[test]
    fn only_the_answer_to_the_question_counts() {
        use ResolveFault as F;
        let address = record(b"\xc0\x0c", 28, 9, &[1; 16]);
        let good = message(7, OK, 1, Kind::Aaaa, &address);
        let read =
            |bytes: &[u8]| answer(bytes, 7, "a.b", Kind::Aaaa).map(|all| all.addresses.len());
        assert_eq!(read(&good), Ok(1));
        assert_eq!(answer(&good, 8, "a.b", Kind::Aaaa).map(|_| ()), Err(F::NotOurs));
        assert_eq!(answer(&good, 7, "a.c", Kind::Aaaa).map(|_| ()), Err(F::NotOurs));
        assert_eq!(answer(&good, 7, "a.b", Kind::A).map(|_| ()), Err(F::NotOurs));
        assert_eq!(
            read(&message(7, [1, 0], 1, Kind::Aaaa, &address)),
            Err(F::NotOurs),
            "a question"
        );
        assert_eq!(read(&message(7, [0x83, 0x80], 1, Kind::Aaaa, &address)), Err(F::Truncated));
        assert_eq!(read(&message(7, [0x81, 0x83], 0, Kind::Aaaa, b"")), Err(F::NoSuchName));
        assert_eq!(read(&message(7, [0x81, 0x82], 0, Kind::Aaaa, b"")), Err(F::Refused(2)));
        assert_eq!(read(&message(7, OK, 0, Kind::Aaaa, b"")), Ok(0), "no address of this kind");
        for len in 0..good.len() {
            let cut = read(&good[..len]);
            assert!(matches!(cut, Err(F::NotOurs | F::Malformed)), "{len} {cut:?}");
        }
    }

    #[test]
    fn names_end() {
        // A pointer to itself, forward, and two that point at each other.
        for bad in [&b"\xc0\x15"[..], b"\xc0\x40", b"\x01x\xc0\x15", b"\x80", b"\x3f"] {
            let rest = [bad, &[0; 30]].concat();
            let found = answer(&message(7, OK, 1, Kind::A, &rest), 7, "a.b", Kind::A);
            assert_eq!(found, Err(ResolveFault::Malformed), "{bad:?}");
        }
        // Aliases in a circle.
        let circle = [
            record(b"\xc0\x0c", 5, 9, b"\x01x\xc0\x0e"),
            record(b"\x01x\xc0\x0e", 5, 9, b"\xc0\x0c"),
        ];
        let found = answer(&message(7, OK, 2, Kind::A, &circle.concat()), 7, "a.b", Kind::A);
        assert_eq!(found.map(|all| all.addresses.len()), Ok(0));
    }
}
