//! Names with values in order: header fields of a request or a response, trailers, parameters of a CGI-like
//! protocol. Handlers know pairs; each protocol serialises them.

use std::fmt;

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
    // Most fields are of another length.
    const LENGTHS: u32 = lengths(&HOP_BY_HOP);
    name.len() < 32
        && LENGTHS >> name.len() & 1 == 1
        && HOP_BY_HOP.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// A set of the lengths of these names.
const fn lengths(names: &[&str]) -> u32 {
    let (mut set, mut at) = (0, 0);
    while at < names.len() {
        set |= 1 << names[at].len();
        at += 1;
    }
    set
}

/// Whether an option of `Connection` names a field that is not passed on (RFC 9110 §7.6.1). Most options name none. A
/// peer cannot have fields removed that say who asks and where from: a server in front of this one may have added them.
pub fn is_nomination(option: &[u8]) -> bool {
    const NAMES_NONE: [&[u8]; 5] = [b"", b"close", b"keep-alive", b"upgrade", b"te"];
    const KEPT: [&[u8]; 4] = [b"authorization", b"cookie", b"forwarded", b"host"];
    const KEPT_STARTS: [&[u8]; 3] = [b"content-", b"x-forwarded-", b"x-real-"];
    let is = |name: &&[u8]| option.eq_ignore_ascii_case(name);
    let starts = |start: &&[u8]| {
        option.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    !NAMES_NONE.iter().any(is) && !KEPT.iter().any(is) && !KEPT_STARTS.iter().any(starts)
}

/// What has no meaning behind a body, or must be known before it (RFC 9110 §6.5.1): how long it is, what it is, whom the
/// message is for.
const NOT_IN_TRAILERS: [&str; 12] = [
    "authorization",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "host",
    "max-forwards",
    "proxy-authenticate",
    "set-cookie",
    "vary",
    "www-authenticate",
];

/// Whether a field may be passed on behind a body.
pub fn is_trailer(name: &[u8]) -> bool {
    !is_hop_by_hop(name)
        && !NOT_IN_TRAILERS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Puts the fields of a request that are for the upstream as well into `out`: none that is about the
/// connection to the client, whether by its name or by a `Connection` field. Neither `Host` nor
/// `Content-Length`, which are written anew, and none that the configuration replaces.
pub fn push_end_to_end(head: &Head, out: &mut Fields, is_replaced: impl Fn(&[u8]) -> bool) {
    let options = || {
        let values = head.all_known(Known::Connection);
        values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    };
    let has_nominations = options().any(is_nomination);
    for (name, value) in head.fields() {
        let is_said_anew =
            name.eq_ignore_ascii_case(b"host") || name.eq_ignore_ascii_case(b"content-length");
        let is_nominated =
            || options().any(|it| it.eq_ignore_ascii_case(name) && is_nomination(it));
        let is_ours = is_hop_by_hop(name) || (has_nominations && is_nominated());
        if !is_said_anew && !is_ours && !is_replaced(name) {
            out.push(name, value);
        }
    }
}

/// Names with values, in order.
///
/// They are kept in one block, so that it can be used again without an allocation; and laid out as HTTP/1
/// writes them, so that its serialisation is one copy. Where a name or value ends is stored, never searched
/// for: a value may hold any byte.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields {
    lines: Vec<u8>,
    lengths: Vec<Lengths>,
}

/// How long a name and its value are.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Lengths {
    name: u32,
    value: u32,
}

impl Lengths {
    /// The whole line.
    const fn line(self) -> usize {
        self.name as usize + SEPARATOR.len() + self.value as usize + LINE_END.len()
    }
}

const SEPARATOR: &[u8] = b": ";
const LINE_END: &[u8] = b"\r\n";

impl Fields {
    /// Without any.
    pub const fn new() -> Self {
        Self { lines: Vec::new(), lengths: Vec::new() }
    }

    /// Empties it; the storage stays.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.lengths.clear();
    }

    /// Adds a pair.
    #[inline]
    pub fn push(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        let lengths = Lengths { name: name.len() as u32, value: value.len() as u32 };
        self.lines.reserve(lengths.line());
        self.lines.extend_from_slice(name);
        self.lines.extend_from_slice(SEPARATOR);
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(LINE_END);
        self.lengths.push(lengths);
    }

    /// Adds a pair whose value `write` appends.
    pub fn push_with(&mut self, name: impl AsRef<[u8]>, write: impl FnOnce(&mut Vec<u8>)) {
        let name = name.as_ref();
        self.lines.extend_from_slice(name);
        self.lines.extend_from_slice(SEPARATOR);
        let before = self.lines.len();
        write(&mut self.lines);
        let value = self.lines.len().saturating_sub(before) as u32;
        self.lines.extend_from_slice(LINE_END);
        self.lengths.push(Lengths { name: name.len() as u32, value });
    }

    /// Adds a pair whose value `write` appends, unless it appends nothing.
    pub fn push_unless_empty(&mut self, name: impl AsRef<[u8]>, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.lines.len();
        self.push_with(name, write);
        if self.lengths.last().is_some_and(|added| added.value == 0) {
            self.lengths.pop();
            self.lines.truncate(before);
        }
    }

    /// Adds a pair whose value is a number.
    pub fn push_number(&mut self, name: impl AsRef<[u8]>, value: u64) {
        self.push(name, itoa::Buffer::new().format(value));
    }

    /// Adds a copy of all of another's.
    #[inline]
    pub fn extend_from(&mut self, others: &Self) {
        self.lines.extend_from_slice(&others.lines);
        self.lengths.extend_from_slice(&others.lengths);
    }

    /// Moves all of another's here.
    pub fn append(&mut self, others: &mut Self) {
        self.lines.append(&mut others.lines);
        self.lengths.append(&mut others.lengths);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.lines.as_slice();
        self.lengths.iter().map(move |lengths| {
            let (line, others) = rest.split_at(lengths.line());
            rest = others;
            let (name, value) = line.split_at(lengths.name as usize);
            (name, &value[SEPARATOR.len()..value.len() - LINE_END.len()])
        })
    }

    /// Every value of a name, in any case.
    #[inline]
    pub fn all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut end = 0;
        self.lengths.iter().filter_map(move |lengths| {
            let start = end;
            end += lengths.line();
            // Most names are of another length.
            if lengths.name as usize != name.len() {
                return None;
            }
            let (own, value) = self.lines[start..end - LINE_END.len()].split_at(name.len());
            own.eq_ignore_ascii_case(name).then(|| &value[SEPARATOR.len()..])
        })
    }

    /// The first value of a name, in any case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name.as_bytes()).next()
    }

    /// Appends the lines of those whose name is wanted, as HTTP/1 writes them.
    pub fn write_lines(&self, out: &mut Vec<u8>, is_wanted: impl Fn(&[u8]) -> bool) {
        let (mut start, mut end) = (0, 0);
        for lengths in &self.lengths {
            let at = end;
            end += lengths.line();
            if !is_wanted(&self.lines[at..at + lengths.name as usize]) {
                out.extend_from_slice(&self.lines[start..at]);
                start = end;
            }
        }
        out.extend_from_slice(&self.lines[start..end]);
    }

    /// Whether there is one of this name, in any case.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Keeps only the pairs for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut kept = Self::default();
        for (name, value) in self.iter().filter(|(name, value)| keep(name, value)) {
            kept.push(name, value);
        }
        *self = kept;
    }

    /// Removes every pair of this name, in any case.
    pub fn remove(&mut self, name: &str) {
        if self.has(name) {
            self.retain(|other, _| !other.eq_ignore_ascii_case(name.as_bytes()));
        }
    }

    /// Changes each value of a name to what `change` makes of it.
    pub fn change(&mut self, name: &str, mut change: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
        if !self.has(name) {
            return;
        }
        let mut changed = Self::default();
        for (other, value) in self.iter() {
            let new =
                if other.eq_ignore_ascii_case(name.as_bytes()) { change(value) } else { None };
            changed.push(other, new.as_deref().unwrap_or(value));
        }
        *self = changed;
    }

    /// All of them as HTTP/1 writes them: a line each, ended by CRLF.
    pub fn as_lines(&self) -> &[u8] {
        &self.lines
    }

    /// How much memory it holds, for a pool that does not keep giants.
    pub fn capacity(&self) -> usize {
        self.lines.capacity() + self.lengths.capacity() * size_of::<Lengths>()
    }
}

impl Default for &Fields {
    fn default() -> Self {
        static NONE: Fields = Fields::new();
        &NONE
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(name, value)| (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        f.debug_map().entries(self.iter().map(text)).finish()
    }
}

/// Whether bytes are allowed in a field's value: no control byte that could end the line.
pub fn is_field_value(bytes: &[u8]) -> bool {
    !bytes.iter().any(|byte| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f)
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut all = Self::default();
        for (name, value) in pairs {
            all.push(name, value);
        }
        all
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
            ("X-Replaced", "3"),
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
        let mut out = Fields::default();
        push_end_to_end(&head, &mut out, |name| name == b"X-Replaced");
        assert_eq!(out, [("X-End", "2"), ("Accept", "*/*")].into_iter().collect());
    }

    /// V6: nor can a client have fields removed that a server in front of this one has added.
    #[test]
    fn a_client_does_not_have_fields_of_others_removed() {
        let kept = [
            "Authorization",
            "cookie",
            "X-Forwarded-For",
            "X-Real-IP",
            "Forwarded",
            "Content-Type",
        ];
        let mut head = Head::default();
        head.begin(b"GET", b"/", Version::Http11);
        head.push(b"Connection", kept.join(", ").as_bytes());
        let fields = kept.map(|name| (name, "1"));
        for (name, value) in fields {
            head.push(name.as_bytes(), value.as_bytes());
        }
        let mut out = Fields::default();
        push_end_to_end(&head, &mut out, |_| false);
        assert_eq!(out, fields.into_iter().collect());
    }

    #[test]
    fn a_value_that_comes_to_nothing_adds_no_pair() {
        let mut pairs: Fields = [("A", "1")].into_iter().collect();
        pairs.push_unless_empty("b", |_| {});
        pairs.push_unless_empty("c", |out| out.extend_from_slice(b"2"));
        assert_eq!(pairs, [("A", "1"), ("c", "2")].into_iter().collect());
    }

    #[test]
    fn pairs_keep_their_order_and_empty_values() {
        let mut pairs: Fields = [("A", "1"), ("b", ""), ("a", "2")].into_iter().collect();
        assert_eq!(pairs.len(), 3);
        assert_eq!(pairs.get("B"), Some(b"".as_slice()));
        assert_eq!(pairs.all(b"A").collect::<Vec<_>>(), [b"1", b"2"]);
        pairs.retain(|name, _| name != b"b");
        assert_eq!(pairs, [("A", "1"), ("a", "2")].into_iter().collect());
    }

    #[test]
    fn what_a_value_holds_does_not_matter_for_where_it_ends() {
        let mut fields = Fields::new();
        fields.push("A", b"x\r\nB: y");
        fields.push_with("C", |out| out.extend_from_slice(b": \r\n"));
        fields.push_number("D", 12);
        let pairs: Vec<(&[u8], &[u8])> = fields.iter().collect();
        assert_eq!(pairs, [(&b"A"[..], &b"x\r\nB: y"[..]), (b"C", b": \r\n"), (b"D", b"12")]);
        let mut all = Fields::new();
        all.push("Z", "");
        all.append(&mut fields);
        assert!(fields.is_empty());
        assert_eq!(all.len(), 4);
        assert_eq!(all.get("d"), Some(&b"12"[..]));
        all.change("z", |value| Some([b"W/", value].concat()));
        all.remove("a");
        all.remove("c");
        assert_eq!(all.as_lines(), b"Z: W/\r\nD: 12\r\n");
    }
}
