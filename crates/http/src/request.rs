//! Fields of a header block into a request head, or why not (RFC 9113 §8.1–§8.3, RFC 9114 §4.1–§4.3). Everything that reaches a
//! [`Head`] here could be written as one HTTP/1 request with the same meaning: whatever could be read in two
//! ways is refused.

use std::ops::Range;

use crate::compression::table::ENTRY_COST;
use crate::head::{Head, Known, Method, Version};
use crate::malformed::Malformed;
use crate::policy::Policy;
use crate::priority::Priority;
use crate::refusal::Cause;
use crate::target::is_host;
use crate::token::{is_token_byte, is_value_byte};

/// A field of a header block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether the name is in the static table and so is well formed.
    pub is_static_name: bool,
}

/// Buffers of a head that is being put together, used again for the next one.
#[derive(Default, Debug)]
pub struct Parts {
    /// Pseudo-header fields, which may come in any order.
    pseudo: Vec<u8>,
    /// Cookies, which may come in crumbs.
    cookie: Vec<u8>,
}

impl Parts {
    /// How much memory they hold.
    pub fn capacity(&self) -> usize {
        self.pseudo.capacity() + self.cookie.capacity()
    }
}

/// What a head says about its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// The method is HEAD.
    pub is_head: bool,
    /// `Content-Length`.
    pub length: Option<u64>,
    /// The client waits for 100.
    pub expects: bool,
    /// `Priority` (RFC 9218).
    pub priority: Priority,
    /// The client asks for a tunnel (RFC 8441, RFC 9220); the head has the HTTP/1.1 upgrade that means the same.
    pub asks_tunnel: bool,
}

/// Why there is no request, or none that a handler sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// The stream is reset.
    Malformed(Malformed),
    /// The client gets an error response.
    Refused(Cause),
}

impl From<Malformed> for Wrong {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// The pseudo-header fields of a request, in the order of their places.
const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const PROTOCOL: usize = 4;

/// The one protocol that a tunnel may have.
const WEBSOCKET: &[u8] = b"websocket";

/// A head that is being put together.
#[derive(Debug)]
pub struct Assembly<'a> {
    head: &'a mut Head,
    version: Version,
    pseudo: &'a mut Vec<u8>,
    cookie: &'a mut Vec<u8>,
    policy: &'a Policy,
    parts: [Option<Range<usize>>; 5],
    /// A field that is no pseudo-header field has come.
    has_begun: bool,
    bytes: usize,
    fields: usize,
    malformed: Option<Malformed>,
    refused: Option<Cause>,
    has_host: bool,
    message: Message,
}

impl<'a> Assembly<'a> {
    /// Begins a head.
    pub fn new(
        head: &'a mut Head,
        parts: &'a mut Parts,
        policy: &'a Policy,
        version: Version,
    ) -> Self {
        head.clear();
        parts.pseudo.clear();
        parts.cookie.clear();
        Self {
            head,
            version,
            pseudo: &mut parts.pseudo,
            cookie: &mut parts.cookie,
            policy,
            parts: [const { None }; 5],
            has_begun: false,
            bytes: 0,
            fields: 0,
            malformed: None,
            refused: None,
            has_host: false,
            message: Message::default(),
        }
    }

    /// Takes the next field. After a mistake, or beyond a limit, the rest is only counted: the decoder goes on for
    /// its table's sake, and nothing more is kept.
    pub fn take(&mut self, field: Field<'_>) {
        self.bytes += field.name.len() + field.value.len() + ENTRY_COST;
        if self.bytes > self.policy.head_bytes_max {
            self.refused = self.refused.or(Some(Cause::HeadTooLarge));
        }
        if self.malformed.is_some() || self.refused == Some(Cause::HeadTooLarge) {
            return;
        }
        let taken = if field.name.first() == Some(&b':') {
            self.take_pseudo(field)
        } else {
            self.take_field(field)
        };
        self.malformed = taken.err();
    }

    fn take_pseudo(&mut self, field: Field<'_>) -> Result<(), Malformed> {
        if self.has_begun {
            return Err(Malformed::PseudoLate);
        }
        let part = match field.name {
            b":method" => METHOD,
            b":scheme" => SCHEME,
            b":authority" => AUTHORITY,
            b":path" => PATH,
            b":protocol" => PROTOCOL,
            _ => return Err(Malformed::PseudoUnknown),
        };
        if self.parts[part].is_some() {
            return Err(Malformed::PseudoRepeated);
        }
        let start = self.pseudo.len();
        if field.value.len() > self.policy.line_bytes_max {
            let cause = if part == PATH { Cause::LineTooLong } else { Cause::FieldTooLong };
            self.refused = self.refused.or(Some(cause));
        }
        if self.refused.is_none() {
            self.pseudo.extend_from_slice(field.value);
        }
        self.parts[part] = Some(start..self.pseudo.len());
        Ok(())
    }

    fn take_field(&mut self, field: Field<'_>) -> Result<(), Malformed> {
        check_field(field)?;
        self.begin()?;
        self.fields += 1;
        if self.fields > self.policy.fields_max {
            self.refused = self.refused.or(Some(Cause::TooManyFields));
        }
        if field.name.len() + field.value.len() > self.policy.field_bytes_max {
            self.refused = self.refused.or(Some(Cause::FieldTooLong));
        }
        let known = Known::from_bytes(field.name);
        match known {
            Some(
                Known::Connection | Known::TransferEncoding | Known::Upgrade | Known::KeepAlive,
            ) => {
                return Err(Malformed::ConnectionField);
            }
            Some(Known::ContentLength) => {
                // Even equal ones: two lengths are a sign that two parsers have not agreed before.
                let length = number(field.value).filter(|_| self.message.length.is_none());
                self.message.length = Some(length.ok_or(Malformed::LengthInvalid)?);
            }
            Some(Known::Host) => {
                if std::mem::replace(&mut self.has_host, true) {
                    return Err(Malformed::HostRepeated);
                }
                if let (Some(authority), None) = (&self.parts[AUTHORITY], self.refused) {
                    // RFC 9113 §8.3.1: both values must be the same, or the request is malformed.
                    let is_same = self.pseudo[authority.clone()].eq_ignore_ascii_case(field.value);
                    return if is_same { Ok(()) } else { Err(Malformed::HostDiffers) };
                }
            }
            Some(Known::Expect) => {
                if field.value.eq_ignore_ascii_case(b"100-continue") {
                    self.message.expects = true;
                } else {
                    self.refused = self.refused.or(Some(Cause::ExpectationUnknown));
                }
            }
            Some(Known::Cookie) if self.refused.is_none() => {
                // RFC 9113 §8.2.3: crumbs become one field again.
                if !self.cookie.is_empty() {
                    self.cookie.extend_from_slice(b"; ");
                }
                self.cookie.extend_from_slice(field.value);
                return Ok(());
            }
            Some(_) => {}
            None => match field.name {
                b"proxy-connection" => return Err(Malformed::ConnectionField),
                b"te" if !field.value.eq_ignore_ascii_case(b"trailers") => {
                    return Err(Malformed::TeInvalid);
                }
                b"priority" => self.message.priority = Priority::parse(field.value),
                _ => {}
            },
        }
        if self.refused.is_none() {
            self.head.push_known(known, field.name, field.value);
        }
        Ok(())
    }

    /// The pseudo-header fields are all there: the head begins.
    fn begin(&mut self) -> Result<(), Malformed> {
        if self.has_begun {
            return Ok(());
        }
        self.has_begun = true;
        let [method, scheme, authority, path, protocol] =
            self.parts.each_ref().map(|part| part.clone().map(|part| &self.pseudo[part]));
        if self.refused.is_some() {
            // What was too long was not kept, so that it cannot be looked at.
            self.message.is_head = method == Some(b"HEAD");
            return Ok(());
        }
        let method = method.ok_or(Malformed::MethodMissing)?;
        if method.is_empty() || !method.iter().copied().all(is_token_byte) {
            return Err(Malformed::MethodInvalid);
        }
        if protocol.is_some() && method != b"CONNECT" {
            return Err(Malformed::ProtocolUnexpected);
        }
        let target = match (method, protocol) {
            (b"CONNECT", None) => match (scheme, authority, path) {
                (None, Some(authority), None) => authority,
                _ => return Err(Malformed::ConnectInvalid),
            },
            // RFC 8441 §4: with :protocol all others are needed.
            (b"CONNECT", Some(_)) if authority.is_none() => return Err(Malformed::ConnectInvalid),
            _ => {
                check_scheme(scheme.ok_or(Malformed::SchemeMissing)?)?;
                let path = path.ok_or(Malformed::PathMissing)?;
                check_path(path, method)?;
                path
            }
        };
        self.message.asks_tunnel =
            protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET));
        if protocol.is_some() && !self.message.asks_tunnel {
            self.refused = Some(Cause::ProtocolUnknown);
        }
        let method = if self.message.asks_tunnel { b"GET" } else { method };
        self.head.begin(method, target, self.version);
        self.message.is_head = self.head.method() == Method::Head;
        if let Some(authority) = authority {
            self.head.push_known(Some(Known::Host), b"host", authority);
        }
        if self.message.asks_tunnel {
            // RFC 8441 §5: the equivalent HTTP/1.1 request.
            self.head.push_known(Some(Known::Connection), b"connection", b"upgrade");
            self.head.push_known(Some(Known::Upgrade), b"upgrade", WEBSOCKET);
        }
        Ok(())
    }

    /// The block is complete.
    pub fn finish(mut self) -> Result<Message, (Wrong, Message)> {
        if self.malformed.is_none() {
            self.malformed = self.begin().err();
        }
        if self.message.asks_tunnel && self.message.length.is_some() {
            // RFC 9110 §9.3.6: such a request has no body.
            self.malformed = self.malformed.or(Some(Malformed::LengthInvalid));
        }
        if let Some(malformed) = self.malformed {
            return Err((malformed.into(), self.message));
        }
        if !self.cookie.is_empty() {
            self.head.push_known(Some(Known::Cookie), b"cookie", self.cookie);
        }
        let host = match self.head.known(Known::Host) {
            None => Some(Cause::HostMissing),
            Some(host) if !is_host(host) => Some(Cause::HostInvalid),
            Some(_) => None,
        };
        let repeated = self.head.repeats_single_field().then_some(Cause::FieldRepeated);
        match self.refused.or(host).or(repeated) {
            Some(cause) => Err((Wrong::Refused(cause), self.message)),
            None => Ok(self.message),
        }
    }
}

/// Whether a field is allowed in trailers, which are read and thrown away.
pub fn check_trailer(field: Field<'_>) -> Result<(), Malformed> {
    if field.name.first() == Some(&b':') {
        return Err(Malformed::PseudoInTrailers);
    }
    check_field(field)?;
    match Known::from_bytes(field.name) {
        Some(Known::Connection | Known::TransferEncoding | Known::Upgrade | Known::KeepAlive) => {
            Err(Malformed::ConnectionField)
        }
        _ if field.name == b"proxy-connection" => Err(Malformed::ConnectionField),
        _ => Ok(()),
    }
}

fn check_field(field: Field<'_>) -> Result<(), Malformed> {
    if !field.is_static_name
        && (field.name.is_empty() || !field.name.iter().copied().all(is_name_byte))
    {
        return Err(Malformed::NameInvalid);
    }
    // RFC 9113 §8.2.1; HTTP/1 has the same bytes in a value (H9).
    let is_edge = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_edge(field.value.first())
        || is_edge(field.value.last())
        || !field.value.iter().copied().fold(true, |all, byte| all & is_value_byte(byte))
    {
        return Err(Malformed::ValueInvalid);
    }
    Ok(())
}

fn check_scheme(scheme: &[u8]) -> Result<(), Malformed> {
    let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    if is_scheme { Ok(()) } else { Err(Malformed::SchemeInvalid) }
}

fn check_path(path: &[u8], method: &[u8]) -> Result<(), Malformed> {
    let is_path = path.first() == Some(&b'/') || (path == b"*" && method == b"OPTIONS");
    if is_path && path.iter().all(|byte| *byte > b' ' && *byte != 0x7f) {
        Ok(())
    } else {
        Err(Malformed::PathInvalid)
    }
}

/// Digits only, and no more than 64 bits.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Whether a byte is allowed in a name: a token without upper case (RFC 9113 §8.2.1).
pub const fn is_name_byte(byte: u8) -> bool {
    is_token_byte(byte) && !byte.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(fields: &[(&str, &str)]) -> Result<(Message, Vec<String>), Wrong> {
        let (mut head, mut parts) = (Head::default(), Parts::default());
        let policy = Policy {
            head_bytes_max: 1000,
            field_bytes_max: 200,
            line_bytes_max: 100,
            fields_max: 8,
            ..Policy::default()
        };
        let mut assembly = Assembly::new(&mut head, &mut parts, &policy, Version::Http2);
        for (name, value) in fields {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            assembly.take(Field { name, value, is_static_name: false });
        }
        let message = assembly.finish().map_err(|(wrong, _)| wrong)?;
        assert_eq!(head.version(), Version::Http2);
        let mut seen =
            vec![format!("{} {}", head.method_name().escape_ascii(), head.target().escape_ascii())];
        seen.extend(
            head.fields()
                .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii())),
        );
        Ok((message, seen))
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "http"), (":authority", "a.b"), (":path", "/x")];

    fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        GET.iter().chain(more).copied().collect()
    }

    fn without(name: &str) -> Vec<(&'static str, &'static str)> {
        GET.iter().copied().filter(|field| field.0 != name).collect()
    }

    #[test]
    fn a_request_becomes_a_head() {
        let more = [
            ("user-agent", "u"),
            ("cookie", "a=b"),
            ("host", "A.B"),
            ("cookie", "c=d"),
            ("te", "trailers"),
            ("content-length", "12"),
            ("expect", "100-continue"),
            ("priority", "u=1, i"),
        ];
        let (message, seen) = assembled(&with(&more)).expect("valid");
        let expected = [
            "GET /x",
            "host: a.b",
            "user-agent: u",
            "te: trailers",
            "content-length: 12",
            "expect: 100-continue",
            "priority: u=1, i",
            "cookie: a=b; c=d",
        ];
        assert_eq!(seen, expected);
        assert_eq!((message.length, message.expects, message.is_head), (Some(12), true, false));
        assert_eq!(message.priority.urgency, 1);
    }

    #[test]
    fn other_forms_of_requests_are_taken() {
        let host = [(":method", "HEAD"), (":scheme", "http"), (":path", "/"), ("host", "h:1")];
        let (message, seen) = assembled(&host).expect("valid");
        assert_eq!((message.is_head, seen), (true, vec!["HEAD /".into(), "host: h:1".into()]));
        let connect = assembled(&[(":method", "CONNECT"), (":authority", "a:443")]);
        assert_eq!(connect.expect("valid").1, ["CONNECT a:443", "host: a:443"]);
        let websocket = [
            (":method", "CONNECT"),
            (":protocol", "WebSocket"),
            (":scheme", "https"),
            (":path", "/chat"),
            (":authority", "a.b"),
            ("sec-websocket-version", "13"),
        ];
        let (message, seen) = assembled(&websocket).expect("valid");
        let expected = [
            "GET /chat",
            "host: a.b",
            "connection: upgrade",
            "upgrade: websocket",
            "sec-websocket-version: 13",
        ];
        assert_eq!((message.asks_tunnel, seen), (true, expected.map(String::from).to_vec()));
        let mut star = GET;
        (star[0].1, star[3].1) = ("OPTIONS", "*");
        assert_eq!(assembled(&star).expect("valid").1[0], "OPTIONS *");
    }

    /// V5, RFC 9113 §8.1–§8.3.
    #[test]
    fn what_could_be_read_in_two_ways_is_malformed() {
        use Malformed as M;
        let changed = |name: &str, value: &'static str| {
            GET.map(|field| if field.0 == name { (field.0, value) } else { field }).to_vec()
        };
        let rows = [
            (without(":method"), M::MethodMissing),
            (without(":scheme"), M::SchemeMissing),
            (without(":path"), M::PathMissing),
            (changed(":method", ""), M::MethodInvalid),
            (changed(":method", "GE T"), M::MethodInvalid),
            (changed(":method", "GET / HTTP/1.1\r\n"), M::MethodInvalid),
            (changed(":scheme", ""), M::SchemeInvalid),
            (changed(":scheme", "ht tp"), M::SchemeInvalid),
            (changed(":path", ""), M::PathInvalid),
            (changed(":path", "*"), M::PathInvalid),
            (changed(":path", "x"), M::PathInvalid),
            (changed(":path", "/a b"), M::PathInvalid),
            (changed(":path", "/a\r\nx: y"), M::PathInvalid),
            (changed(":path", "/a\0"), M::PathInvalid),
            (changed(":method", "CONNECT"), M::ConnectInvalid),
            (with(&[(":path", "/y")]), M::PseudoRepeated),
            (with(&[(":status", "200")]), M::PseudoUnknown),
            (with(&[("a", "b"), (":x", "y")]), M::PseudoLate),
            (with(&[("host", "b.c")]), M::HostDiffers),
            (with(&[("host", "a.b"), ("host", "a.b")]), M::HostRepeated),
            (with(&[("", "x")]), M::NameInvalid),
            (with(&[("Accept", "x")]), M::NameInvalid),
            (with(&[("a b", "x")]), M::NameInvalid),
            (with(&[("a:b", "x")]), M::NameInvalid),
            (with(&[("a\r\nb", "x")]), M::NameInvalid),
            (with(&[("a", "x\r\ny: z")]), M::ValueInvalid),
            (with(&[("a", "x\0")]), M::ValueInvalid),
            (with(&[("a", "\x7f")]), M::ValueInvalid),
            (with(&[("a", " x")]), M::ValueInvalid),
            (with(&[("a", "x\t")]), M::ValueInvalid),
            (with(&[("connection", "x")]), M::ConnectionField),
            (with(&[("keep-alive", "x")]), M::ConnectionField),
            (with(&[("proxy-connection", "x")]), M::ConnectionField),
            (with(&[("transfer-encoding", "chunked")]), M::ConnectionField),
            (with(&[("upgrade", "h2c")]), M::ConnectionField),
            (with(&[(":protocol", "websocket")]), M::ProtocolUnexpected),
            (vec![(":method", "CONNECT"), (":protocol", "websocket")], M::ConnectInvalid),
            (
                vec![(":method", "CONNECT"), (":authority", "a"), (":protocol", "x")],
                M::SchemeMissing,
            ),
            (with(&[("te", "gzip")]), M::TeInvalid),
            (with(&[("te", "trailers, deflate")]), M::TeInvalid),
            (with(&[("content-length", "")]), M::LengthInvalid),
            (with(&[("content-length", "+1")]), M::LengthInvalid),
            (with(&[("content-length", "1, 1")]), M::LengthInvalid),
            (with(&[("content-length", "99999999999999999999")]), M::LengthInvalid),
            (with(&[("content-length", "1"), ("content-length", "1")]), M::LengthInvalid),
        ];
        for (fields, malformed) in rows {
            assert_eq!(assembled(&fields).map(|_| ()), Err(malformed.into()), "{fields:?}");
        }
        assert_eq!(assembled(&[]).map(|_| ()), Err(Malformed::MethodMissing.into()));
    }

    /// H10, V12.
    #[test]
    fn what_is_too_much_is_refused_on_its_stream() {
        let long: &'static str = "x".repeat(201).leak();
        let path: &'static str = format!("/{long}").leak();
        let half: &'static str = "x".repeat(180).leak();
        let rows = [
            (without(":authority"), Cause::HostMissing),
            (
                with(&[])
                    .iter()
                    .map(|f| if f.0 == ":authority" { (f.0, "a b") } else { *f })
                    .collect(),
                Cause::HostInvalid,
            ),
            (
                with(&[])
                    .iter()
                    .map(|f| if f.0 == ":authority" { (f.0, "u@a") } else { *f })
                    .collect(),
                Cause::HostInvalid,
            ),
            (
                with(&[]).iter().map(|f| if f.0 == ":path" { (f.0, path) } else { *f }).collect(),
                Cause::LineTooLong,
            ),
            (with(&[("a", long)]), Cause::FieldTooLong),
            (with(&[("a", half); 5]), Cause::HeadTooLarge),
            (with(&[("a", ""); 9]), Cause::TooManyFields),
            (with(&[("cookie", half); 5]), Cause::HeadTooLarge),
            (with(&[("expect", "more")]), Cause::ExpectationUnknown),
            (with(&[("authorization", "a"), ("authorization", "a")]), Cause::FieldRepeated),
            (with(&[("if-range", ""), ("if-range", "")]), Cause::FieldRepeated),
        ];
        for (fields, cause) in rows {
            assert_eq!(assembled(&fields).map(|_| ()), Err(Wrong::Refused(cause)), "{fields:?}");
        }
    }

    #[test]
    fn trailers_have_no_pseudo_fields_and_no_connection_fields() {
        let check = |name: &str, value: &str| {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            check_trailer(Field { name, value, is_static_name: false })
        };
        assert_eq!(check("a", "b"), Ok(()));
        assert_eq!(check(":path", "/"), Err(Malformed::PseudoInTrailers));
        assert_eq!(check("connection", "x"), Err(Malformed::ConnectionField));
        assert_eq!(check("A", "x"), Err(Malformed::NameInvalid));
    }
}
