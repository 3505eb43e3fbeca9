//! Content codings (RFC 9110 §8.4.1, §12.5.3): which one a client takes, and which of those this server
//! likes best. A pure decision on the values of `Accept-Encoding`; what is malformed asks for nothing.

use crate::head::{Head, Known};

/// A coding that bodies can have here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Coding {
    /// RFC 8878
    Zstd,
    /// RFC 7932
    Brotli,
    /// RFC 1952
    Gzip,
}

impl Coding {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All of them, the best liked first: zstd gives about the size of brotli for a part of the work, and
    /// both give less than gzip.
    pub const ALL: [Self; Self::COUNT] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// Its name in `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// What the name of a file ends with that has it.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Zstd => ".zst",
            Self::Brotli => ".br",
            Self::Gzip => ".gz",
        }
    }

    fn from_name(name: &[u8]) -> Option<Self> {
        // RFC 9110 §8.4.1.3: "x-gzip" is another name for gzip.
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        Self::ALL
            .into_iter()
            .find(|coding| is(coding.name()))
            .or_else(|| is("x-gzip").then_some(Self::Gzip))
    }
}

/// Codings in the order in which they are to be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accepted {
    codings: [Option<Coding>; Coding::COUNT],
}

impl Accepted {
    /// The codings that the client accepts, the preferred one first; among equals the server's order holds.
    /// Codings with a lower weight than identity are left out.
    pub fn of(head: &Head) -> Self {
        let mut weights = Weights::default();
        for value in head.all_known(Known::AcceptEncoding) {
            for member in value.split(|byte| *byte == b',') {
                weights.take(member.trim_ascii());
            }
        }
        weights.accepted()
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Coding> {
        self.codings.into_iter().flatten()
    }

    /// Whether this one is among them.
    pub fn contains(&self, coding: Coding) -> bool {
        self.codings.contains(&Some(coding))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.codings[0].is_none()
    }
}

/// Weights in thousandths, as far as they were given. The first weight of a coding holds.
#[derive(Default)]
struct Weights {
    named: [Option<u16>; Coding::COUNT],
    identity: Option<u16>,
    any: Option<u16>,
}

impl Weights {
    fn take(&mut self, member: &[u8]) {
        let (name, parameters) = match member.iter().position(|byte| *byte == b';') {
            Some(mark) => (member[..mark].trim_ascii_end(), Some(&member[mark + 1..])),
            None => (member, None),
        };
        // A weight that cannot be read is none: it is not for us to guess that something is wanted.
        let weight = parameters.map_or(Some(1000), weight).unwrap_or(0);
        let slot = match Coding::from_name(name) {
            Some(coding) => &mut self.named[coding as usize],
            None if name == b"*" => &mut self.any,
            None if name.eq_ignore_ascii_case(b"identity") => &mut self.identity,
            None => return,
        };
        slot.get_or_insert(weight);
    }

    fn accepted(&self) -> Accepted {
        let weight = |coding: Coding| match (self.named[coding as usize], coding) {
            (Some(weight), _) => weight,
            // `*` alone selects gzip, which every client can read.
            (None, Coding::Gzip) => self.any.unwrap_or(0),
            (None, _) => 0,
        };
        let least = self.identity.unwrap_or(0).max(1);
        let mut codings = Coding::ALL.map(|coding| (weight(coding), coding));
        codings.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        let mut accepted = Accepted::default();
        let taken = codings.into_iter().filter(|(weight, _)| *weight >= least);
        for (slot, (_, coding)) in accepted.codings.iter_mut().zip(taken) {
            *slot = Some(coding);
        }
        accepted
    }
}

/// `q=0.5`, in thousandths (RFC 9110 §12.4.2).
fn weight(parameters: &[u8]) -> Option<u16> {
    let parameters = parameters.trim_ascii();
    let value = parameters.strip_prefix(b"q=").or_else(|| parameters.strip_prefix(b"Q="))?;
    let (whole, fraction) = match value {
        [whole] | [whole, b'.'] => (*whole, &[][..]),
        [whole, b'.', fraction @ ..] => (*whole, fraction),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut thousandths = 0;
    for place in 0..3 {
        let digit = fraction.get(place).map_or(0, |digit| digit - b'0');
        thousandths = thousandths * 10 + u16::from(digit);
    }
    match (whole, thousandths) {
        (b'0', thousandths) => Some(thousandths),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Version;
    use proptest::prelude::*;

    fn head(values: &[&str]) -> Head {
        let mut head = Head::default();
        head.begin(b"GET", b"/", Version::Http11);
        for value in values {
            head.push(b"Accept-Encoding", value.as_bytes());
        }
        head
    }

    fn accepted(values: &[&str]) -> String {
        let names: Vec<_> = Accepted::of(&head(values)).iter().map(Coding::name).collect();
        names.join(" ")
    }

    /// F1: RFC 9110 §12.5.3.
    #[test]
    fn a_client_gets_what_it_accepts_in_the_order_of_its_weights() {
        let table: &[(&[&str], &str)] = &[
            (&[], ""),
            (&[""], ""),
            (&["gzip"], "gzip"),
            (&["GZip"], "gzip"),
            (&["x-gzip"], "gzip"),
            (&["gzip, deflate, br, zstd"], "zstd br gzip"),
            (&["gzip", "br"], "br gzip"),
            (&["deflate"], ""),
            (&["compress, gzip"], "gzip"),
            (&["gzip;q=1.0, br;q=0.5"], "gzip br"),
            (&["br;q=0.9,zstd;q=0.1,gzip;q=0.5"], "br gzip zstd"),
            (&["gzip;q=0"], ""),
            (&["gzip;q=0.000, br"], "br"),
            (&["gzip;q=0.001"], "gzip"),
            (&["gzip ; q=0.5"], "gzip"),
            (&["gzip;Q=1."], "gzip"),
            (&["*"], "gzip"),
            (&["*;q=0"], ""),
            (&["br, *"], "br gzip"),
            (&["gzip;q=0, *"], ""),
            (&["identity"], ""),
            (&["identity;q=0"], ""),
            (&["identity;q=0, gzip"], "gzip"),
            (&["identity;q=0, *"], "gzip"),
            (&["identity;q=1, *;q=0"], ""),
            // The bare content is liked better.
            (&["identity, gzip;q=0.5"], ""),
            (&["identity;q=0.5, gzip;q=0.5, br;q=0.4"], "gzip"),
            // What was said first holds.
            (&["gzip;q=0, gzip"], ""),
            (&["gzip, gzip;q=0"], "gzip"),
        ];
        for (values, expected) in table {
            assert_eq!(accepted(values), *expected, "{values:?}");
        }
    }

    #[test]
    fn what_is_malformed_asks_for_nothing() {
        for value in [
            "gzip;q=",
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.5000",
            "gzip;q=-1",
            "gzip;q=a",
            "gzip;x=1",
            "gzip;",
            "gzip;q",
            "gzip;q=0.5;q=1",
            "gzip br",
            "\"gzip\"",
            "gzip=1",
            "gzi",
            "gzipp",
            "q=1",
            ";q=1",
            ",,;,",
            "gzip\u{0}",
            "gzip;q=00.5",
            "gzip;q=.5",
        ] {
            assert_eq!(accepted(&[value]), "", "{value:?}");
        }
        // What stands beside it is not spoiled.
        assert_eq!(accepted(&["gzip;q=9, br"]), "br");
    }

    /// V31
    #[test]
    fn a_long_field_is_read_once() {
        // Linear: a field as long as a head may be takes no time worth speaking of.
        let long = "gzip;q=0.5,".repeat(3000) + "br";
        assert_eq!(accepted(&[&long]), "br gzip");
        let commas = ",".repeat(32_000);
        assert_eq!(accepted(&[&commas]), "");
    }

    proptest! {
        #[test]
        fn whatever_comes_only_what_was_named_is_taken(value in "[gzipbrstd*x;q=01.5, -]{0,48}") {
            let accepted = Accepted::of(&head(&[&value]));
            let lower = value.to_ascii_lowercase();
            for coding in accepted.iter() {
                let is_any = coding == Coding::Gzip && lower.contains('*');
                prop_assert!(lower.contains(coding.name()) || is_any, "{value:?} {coding:?}");
            }
        }

        #[test]
        fn a_coding_with_weight_zero_is_never_taken(other in "(br|zstd|gzip|\\*|identity)(;q=0\\.[0-9]{1,3})?") {
            for coding in Coding::ALL {
                let value = format!("{};q=0, {other}", coding.name());
                prop_assert!(!Accepted::of(&head(&[&value])).contains(coding), "{value}");
            }
        }

        #[test]
        fn no_bytes_make_it_panic(value in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut head = head(&[]);
            head.push(b"accept-encoding", &value);
            let _ = Accepted::of(&head);
        }
    }
}
