//! A request head: method, target, version and fields, kept as one block of bytes with positions in
//! it, so that a head can be used again for the next request without an allocation.

use std::ops::Range;

/// The HTTP version of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
    /// HTTP/3
    Http3,
}

impl Version {
    /// `HTTP/1.1` and the like.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            // As `$server_protocol` has it in nginx.
            Self::Http2 => "HTTP/2.0",
            Self::Http3 => "HTTP/3.0",
        }
    }
}

/// The methods this server tells apart; others keep their name in the head.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Connect,
    Patch,
    Mkcol,
    Copy,
    Move,
    Propfind,
    Proppatch,
    Lock,
    Unlock,
    /// A method we have no word for.
    Other,
}

impl Method {
    /// Whether a request with it asks for nothing to be changed (RFC 9110 §9.2.1, RFC 4918 §9.1).
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace | Self::Propfind)
    }

    const NAMES: [(&'static str, Self); 16] = [
        ("GET", Self::Get),
        ("HEAD", Self::Head),
        ("POST", Self::Post),
        ("PUT", Self::Put),
        ("DELETE", Self::Delete),
        ("OPTIONS", Self::Options),
        ("TRACE", Self::Trace),
        ("CONNECT", Self::Connect),
        ("PATCH", Self::Patch),
        ("MKCOL", Self::Mkcol),
        ("COPY", Self::Copy),
        ("MOVE", Self::Move),
        ("PROPFIND", Self::Propfind),
        ("PROPPATCH", Self::Proppatch),
        ("LOCK", Self::Lock),
        ("UNLOCK", Self::Unlock),
    ];

    /// The method of this name; `Other` when it is not known. Names are case-sensitive.
    pub fn from_bytes(name: &[u8]) -> Self {
        Self::NAMES
            .iter()
            .find(|(known, _)| known.as_bytes() == name)
            .map_or(Self::Other, |(_, method)| *method)
    }

    /// The name of a known method; `None` for `Other`.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES.iter().find(|(_, method)| *method == self).map(|(name, _)| *name)
    }
}

/// A stretch of bytes within a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    const fn of(range: Range<usize>) -> Self {
        Self { start: range.start as u32, end: range.end as u32 }
    }

    const fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

macro_rules! known {
    ($($variant:ident $name:literal,)*) => {
        /// Fields that are looked up often: found by index, not by search.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs)]
        #[repr(u8)]
        pub enum Known { $($variant,)* }

        impl Known {
            /// How many there are.
            pub const COUNT: usize = [$(Self::$variant,)*].len();

            /// The known field of this name, in any case.
            pub fn from_bytes(name: &[u8]) -> Option<Self> {
                $(if name.len() == $name.len() && name.eq_ignore_ascii_case($name.as_bytes()) {
                    return Some(Self::$variant);
                })*
                None
            }

            /// The name, in lower case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

known! {
    Host "host",
    Connection "connection",
    ContentLength "content-length",
    TransferEncoding "transfer-encoding",
    Expect "expect",
    Range "range",
    IfRange "if-range",
    IfMatch "if-match",
    IfNoneMatch "if-none-match",
    IfModifiedSince "if-modified-since",
    IfUnmodifiedSince "if-unmodified-since",
    ContentRange "content-range",
    ContentType "content-type",
    UserAgent "user-agent",
    Referer "referer",
    Accept "accept",
    AcceptEncoding "accept-encoding",
    Authorization "authorization",
    Cookie "cookie",
    Upgrade "upgrade",
    KeepAlive "keep-alive",
    Via "via",
}

/// What nginx takes for a valid byte of a field's name.
const fn is_plain_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: Span,
    value: Span,
    known: Option<Known>,
}

/// A request head. Cleared and filled again for each request, so its storage is allocated once.
#[derive(Clone, Debug)]
pub struct Head {
    bytes: Vec<u8>,
    method: Method,
    method_name: Span,
    target: Span,
    /// A request line that could not be read.
    unreadable: Span,
    version: Version,
    fields: Vec<Field>,
    /// The names of fields that were dropped.
    dropped: Vec<Span>,
    /// Whether a field's name has anything but letters, digits and hyphens.
    has_odd_names: bool,
    /// For each known field, one more than the index of its first occurrence; 0 when it is absent.
    first: [u16; Known::COUNT],
}

impl Default for Head {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            method: Method::Other,
            method_name: Span::default(),
            target: Span::default(),
            unreadable: Span::default(),
            version: Version::Http11,
            fields: Vec::new(),
            dropped: Vec::new(),
            has_odd_names: false,
            first: [0; Known::COUNT],
        }
    }
}

impl Head {
    /// Empties the head; the storage stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
        self.dropped.clear();
        self.has_odd_names = false;
        self.method = Method::Other;
        self.method_name = Span::default();
        self.target = Span::default();
        self.unreadable = Span::default();
        self.version = Version::Http11;
        self.first = [0; Known::COUNT];
    }

    /// Begins a head with its request line.
    pub fn begin(&mut self, method: &[u8], target: &[u8], version: Version) {
        self.clear();
        self.method = Method::from_bytes(method);
        self.method_name = self.store(method);
        self.target = self.store(target);
        self.version = version;
    }

    /// Keeps what came in place of a request line, for the log.
    pub fn keep_unreadable(&mut self, line: &[u8]) {
        self.clear();
        self.unreadable = self.store(line);
    }

    /// What came in place of a request line; empty where one came, or nothing.
    pub fn unreadable(&self) -> &[u8] {
        self.at(self.unreadable)
    }

    /// Adds a field; the value comes without surrounding white space.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_known(Known::from_bytes(name), name, value);
    }

    /// The same for a name that was looked up before.
    pub fn push_known(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) {
        let field = Field { name: self.store(name), value: self.store(value), known };
        match known {
            Some(known) => self.note_known(known, self.fields.len()),
            None => self.has_odd_names |= !name.iter().all(|byte| is_plain_name_byte(*byte)),
        }
        self.fields.push(field);
    }

    /// Begins a head that is parsed in place: positions come first, and with [`Head::end_block`] the bytes
    /// that they refer to.
    pub fn begin_block(&mut self, method: &[u8], target: Range<usize>, version: Version) {
        self.clear();
        self.method = Method::from_bytes(method);
        self.method_name = Span::of(0..method.len());
        self.target = Span::of(target);
        self.version = version;
    }

    /// Adds a field of such a head. `is_odd`: its name has anything but letters, digits and hyphens.
    #[inline]
    pub fn push_position(
        &mut self,
        known: Option<Known>,
        name: Range<usize>,
        value: Range<usize>,
        is_odd: bool,
    ) {
        if let Some(known) = known {
            self.note_known(known, self.fields.len());
        }
        self.has_odd_names |= is_odd;
        self.fields.push(Field { name: Span::of(name), value: Span::of(value), known });
    }

    /// The bytes that all positions lie in.
    pub fn end_block(&mut self, block: &[u8]) {
        self.bytes.extend_from_slice(block);
    }

    fn note_known(&mut self, known: Known, at: usize) {
        let first = &mut self.first[known as usize];
        if *first == 0 {
            *first = u16::try_from(at + 1).unwrap_or(u16::MAX);
        }
    }

    /// Whether there is a field whose name has anything but letters, digits and hyphens.
    pub const fn has_odd_names(&self) -> bool {
        self.has_odd_names
    }

    /// Drops these fields, or those of them without underscores. The names of fields that frame a message or
    /// choose a server are never odd.
    pub fn drop_odd_names(&mut self, keeps_underscores: bool) {
        self.has_odd_names = false;
        let fields = std::mem::take(&mut self.fields);
        self.first = [0; Known::COUNT];
        for field in fields {
            let is_kept =
                |byte: &u8| is_plain_name_byte(*byte) || (keeps_underscores && *byte == b'_');
            if !self.at(field.name).iter().all(is_kept) {
                self.dropped.push(field.name);
                continue;
            }
            if let Some(known) = field.known {
                self.note_known(known, self.fields.len());
            }
            self.fields.push(field);
        }
    }

    /// The names of fields that were dropped.
    pub fn dropped_names(&self) -> impl Iterator<Item = &[u8]> {
        self.dropped.iter().map(|name| self.at(*name))
    }

    /// The method.
    pub const fn method(&self) -> Method {
        self.method
    }

    /// The method as the client wrote it.
    pub fn method_name(&self) -> &[u8] {
        self.at(self.method_name)
    }

    /// The request target as the client wrote it: origin form, absolute form, `*`, …
    pub fn target(&self) -> &[u8] {
        self.at(self.target)
    }

    /// The version.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The first value of a known field.
    pub fn known(&self, known: Known) -> Option<&[u8]> {
        let index = usize::from(self.first[known as usize]).checked_sub(1)?;
        Some(self.at(self.fields.get(index)?.value))
    }

    /// Whether the client asks for a tunnel in HTTP/2 or HTTP/3 (RFC 8441, RFC 9220): a 2xx response would open it.
    pub fn asks_tunnel(&self) -> bool {
        matches!(self.version, Version::Http2 | Version::Http3)
            && self.known(Known::Upgrade).is_some()
    }

    /// Every value of a known field, in order.
    pub fn all_known(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(move |field| field.known == Some(known)).map(|f| self.at(f.value))
    }

    /// Whether a field with one value (RFC 9110 §5.3) is there twice: another parser may read the other value.
    pub fn repeats_single_field(&self) -> bool {
        const SINGLE: [Known; 5] = [
            Known::Authorization,
            Known::IfModifiedSince,
            Known::IfUnmodifiedSince,
            Known::IfRange,
            Known::ContentRange,
        ];
        let is_repeated =
            |known: &Known| self.known(*known).is_some() && self.all_known(*known).nth(1).is_some();
        SINGLE.iter().any(is_repeated)
    }

    /// The first value of a field by name, in any case.
    pub fn named(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All fields in the order in which they came, names as the client wrote them.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (self.at(field.name), self.at(field.value)))
    }

    /// Every value of the fields that `$http_name` names, in order. `_` in a name equals `-`: that is how
    /// a variable spells it, and some clients do, too. Where the name is that of a known field and the caller says
    /// so, hardly any names are compared.
    pub fn values_like<'a>(
        &'a self,
        known: Option<Known>,
        name: &'a [u8],
    ) -> impl Iterator<Item = &'a [u8]> {
        let fold = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
        let is_like = move |other: &[u8]| {
            other.iter().zip(name).all(|(one, other)| fold(*one) == fold(*other))
        };
        let is_wanted = move |field: &&Field| match known {
            Some(_) if field.known.is_some() => field.known == known,
            _ if field.name.len() != name.len() => false,
            // Not known, and yet the same as a known one: it would be spelled with `_`.
            Some(_) if !self.at(field.name).contains(&b'_') => false,
            _ => is_like(self.at(field.name)),
        };
        self.fields.iter().filter(is_wanted).map(|field| self.at(field.value))
    }

    /// How much memory the head holds, for a pool that does not keep giants.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    fn store(&mut self, bytes: &[u8]) -> Span {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        Span { start, end: self.bytes.len() as u32 }
    }

    fn at(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_stands_for_every_spelling_of_a_field() {
        let mut head = Head::default();
        head.begin(b"GET", b"/", Version::Http11);
        for (name, value) in [
            ("User-Agent", "a"),
            ("X-Own_Field", "x"),
            ("user_agent", "b"),
            ("Connection", "c"),
            ("USER-AGENT", "d"),
            ("User+Agent", "e"),
            ("x_own-field", "y"),
            ("x_own-fields", "z"),
        ] {
            head.push(name.as_bytes(), value.as_bytes());
        }
        let values = |known: Option<Known>, name: &str| {
            let values: Vec<&[u8]> = head.values_like(known, name.as_bytes()).collect();
            String::from_utf8(values.join(&b","[..])).expect("text")
        };
        for known in [None, Some(Known::UserAgent)] {
            assert_eq!(values(known, "user-agent"), "a,b,d");
            assert_eq!(values(known, "user_agent"), "a,b,d");
        }
        assert_eq!(values(None, "x_own_field"), "x,y");
        assert_eq!(values(Some(Known::Referer), "referer"), "");
    }

    #[test]
    fn odd_names_are_dropped_and_the_rest_is_found_as_before() {
        for (keeps_underscores, kept) in [(false, "X-A:1 Host:h"), (true, "X_B:2 X-A:1 Host:h")] {
            let mut head = Head::default();
            head.begin(b"GET", b"/", Version::Http11);
            for (name, value) in [("X_B", "2"), ("X.C", "3"), ("X-A", "1"), ("Host", "h")] {
                head.push(name.as_bytes(), value.as_bytes());
            }
            assert!(head.has_odd_names());
            head.drop_odd_names(keeps_underscores);
            assert!(!head.has_odd_names());
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let seen: Vec<String> =
                head.fields().map(|(name, value)| text(name) + ":" + &text(value)).collect();
            assert_eq!(seen.join(" "), kept);
            assert_eq!(head.known(Known::Host), Some(&b"h"[..]));
            assert!(head.dropped_names().any(|name| name == b"X.C"));
        }
        let mut plain = Head::default();
        plain.push(b"X-Plain-1", b"");
        assert!(!plain.has_odd_names());
    }
}
