//! Names with values in order: header fields of a request or an answer, parameters of a CGI-like
//! protocol. Kept in one block of bytes, so that it can be used again without an allocation.

use crate::Head;
use crate::head::Known;

/// Fields that are about one connection and no further one (RFC 9110 §7.6.1), beside those that a
/// `Connection` field names.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    // Answered by this server itself (H7), as nginx does.
    "expect",
];

/// Whether a field is about one connection only.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    HOP_BY_HOP.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Puts the fields of a request that are for the upstream as well into `out`: none that is about the
/// connection to the client, whether by its name or by a `Connection` field (U3). Neither `Host` nor
/// `Content-Length`, which are said anew.
pub fn push_end_to_end(head: &Head, out: &mut Pairs) {
    let has_connection = head.known(Known::Connection).is_some();
    for (name, value) in head.fields() {
        let is_said_anew =
            name.eq_ignore_ascii_case(b"host") || name.eq_ignore_ascii_case(b"content-length");
        let is_nominated = || {
            head.all_known(Known::Connection)
                .flat_map(|value| value.split(|byte| *byte == b','))
                .any(|option| option.trim_ascii().eq_ignore_ascii_case(name))
        };
        let is_ours = is_hop_by_hop(name) || (has_connection && is_nominated());
        if !is_said_anew && !is_ours {
            out.push(name, value);
        }
    }
}

/// Names with values.
#[derive(Clone, Default, Debug)]
pub struct Pairs {
    bytes: Vec<u8>,
    /// Where each name ends, and each value.
    ends: Vec<(u32, u32)>,
}

impl Pairs {
    /// Empties it; the storage stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a pair.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_with(name, |out| out.extend_from_slice(value));
    }

    /// Adds a pair whose value `write` appends.
    pub fn push_with(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len() as u32;
        write(&mut self.bytes);
        self.ends.push((name_end, self.bytes.len() as u32));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |(name_end, end)| {
            let name = &self.bytes[start..*name_end as usize];
            let value = &self.bytes[*name_end as usize..*end as usize];
            start = *end as usize;
            (name, value)
        })
    }

    /// Every value of a name, in any case.
    pub fn all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The first value of a name, in any case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// Keeps only the pairs for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut kept = Self::default();
        for (name, value) in self.iter().filter(|(name, value)| keep(name, value)) {
            kept.push(name, value);
        }
        *self = kept;
    }

    /// How much memory it holds, for a pool that does not keep giants.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<(u32, u32)>()
    }
}

impl PartialEq for Pairs {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.ends == other.ends
    }
}

impl Eq for Pairs {}

impl<'a> FromIterator<(&'a [u8], &'a [u8])> for Pairs {
    fn from_iter<I: IntoIterator<Item = (&'a [u8], &'a [u8])>>(pairs: I) -> Self {
        let mut all = Self::default();
        for (name, value) in pairs {
            all.push(name, value);
        }
        all
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        pairs.into_iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    /// U3: what is about the client's connection goes no further, however it is named.
    #[test]
    fn fields_of_one_connection_are_not_for_the_upstream() {
        let mut head = Head::default();
        head.begin(b"GET", b"/", Version::Http11);
        for (name, value) in [
            ("Host", "a"),
            ("Connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("X-End", "2"),
            ("Keep-Alive", "5"),
            ("TE", "trailers"),
            ("Upgrade", "websocket"),
            ("Expect", "100-continue"),
            ("Content-Length", "3"),
            ("Transfer-Encoding", "chunked"),
            ("Accept", "*/*"),
        ] {
            head.push(name.as_bytes(), value.as_bytes());
        }
        let mut out = Pairs::default();
        push_end_to_end(&head, &mut out);
        assert_eq!(out, [("X-End", "2"), ("Accept", "*/*")].into_iter().collect());
    }

    #[test]
    fn pairs_keep_their_order_and_empty_values() {
        let mut pairs: Pairs = [("A", "1"), ("b", ""), ("a", "2")].into_iter().collect();
        assert_eq!(pairs.len(), 3);
        assert_eq!(pairs.get("B"), Some(b"".as_slice()));
        assert_eq!(pairs.all(b"A").collect::<Vec<_>>(), [b"1", b"2"]);
        pairs.retain(|name, _| name != b"b");
        assert_eq!(pairs, [("A", "1"), ("a", "2")].into_iter().collect());
    }
}
