//! The request target: percent-decoding and dot segments. The only place `..` is resolved: what
//! leaves this module is an absolute path without dot segments, NUL or line ends. It must never open
//! a file or decode twice.

use std::net::Ipv6Addr;

use crate::hex;

/// Why a request target is refused. Each is a 400 found while routing: the connection is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetError {
    /// A `%` without two hexadecimal digits behind it.
    BadEscape,
    /// A NUL byte, plain or escaped.
    Nul,
    /// A fragment, which is the client's own and never sent (RFC 9112 §3.2).
    Fragment,
    /// More `..` than there are segments.
    AboveRoot,
    /// Neither `/…`, nor `http://…`, nor `*`.
    NotAPath,
    /// A control byte (0x01–0x1f, 0x7f), or the escape of a line end.
    ControlByte,
}

impl std::fmt::Display for TargetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BadEscape => "bad percent escape in target",
            Self::Nul => "NUL in target",
            Self::Fragment => "fragment in target",
            Self::AboveRoot => "target goes above the root",
            Self::NotAPath => "target is not a path",
            Self::ControlByte => "control byte in target",
        })
    }
}

impl std::error::Error for TargetError {}

/// A `Host` field or authority that is not `host [":" port]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadHost;

impl std::fmt::Display for BadHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("invalid host")
    }
}

impl std::error::Error for BadHost {}

/// A request target in its parts, nothing decoded yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target<'a> {
    /// Host and port of an absolute form.
    pub authority: Option<&'a [u8]>,
    /// The path; `/` where an absolute form has none; `*` for the asterisk form.
    pub path: &'a [u8],
    /// What follows the first `?`.
    pub query: Option<&'a [u8]>,
}

/// Splits a request target: origin form `/a?b`, absolute form `http://host/a?b`, or `*`. A fragment
/// has no place in it (RFC 9112 §3.2).
pub fn split(target: &[u8]) -> Result<Target<'_>, TargetError> {
    if target == b"*" {
        return Ok(Target { authority: None, path: target, query: None });
    }
    let (authority, rest) = match split_authority(target) {
        Some((authority, rest)) => (Some(authority), rest),
        None => (None, target),
    };
    if memchr::memchr(b'#', rest).is_some() {
        return Err(TargetError::Fragment);
    }
    let (path, query) = match memchr::memchr(b'?', rest) {
        Some(mark) => (&rest[..mark], Some(&rest[mark + 1..])),
        None => (rest, None),
    };
    match (path, authority) {
        ([b'/', ..], _) => Ok(Target { authority, path, query }),
        ([], Some(_)) => Ok(Target { authority, path: b"/", query }),
        _ => Err(TargetError::NotAPath),
    }
}

/// The authority of an absolute form and what follows it (path, query and fragment, possibly empty).
pub fn split_authority(target: &[u8]) -> Option<(&[u8], &[u8])> {
    if target.first() == Some(&b'/') {
        return None;
    }
    let rest = [&b"http://"[..], b"https://"].iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    Some(rest.split_at(end))
}

/// Percent-decodes once, merges slashes if asked, and resolves dot segments once, into `out`, which is
/// cleared first. A fragment ends the path. Escaped dots and slashes count as unescaped, as in nginx: what
/// is above the root stays out of reach because segments are resolved after decoding. A backslash is an
/// ordinary byte.
pub fn resolve(path: &[u8], merge_slashes: bool, out: &mut Vec<u8>) -> Result<(), TargetError> {
    out.clear();
    if path.first() != Some(&b'/') {
        return Err(TargetError::NotAPath);
    }
    if is_plain(path) {
        out.extend_from_slice(path);
        return Ok(());
    }
    let resolved = resolve_slowly(path, merge_slashes, out);
    if resolved.is_err() {
        out.clear();
    }
    resolved
}

/// Whether a decoded path may name a file: it is absolute and has no dot segment, NUL or control byte.
pub fn is_resolved(path: &[u8]) -> bool {
    path.first() == Some(&b'/') && !has_control(path) && is_dotless(path)
}

/// Whether it has a control byte: no file is looked for by such a name.
pub fn has_control(path: &[u8]) -> bool {
    // All of them, without a branch for each: that is many at once.
    path.iter().fold(false, |has, byte| has | byte.is_ascii_control())
}

/// What [`resolve`] promises, asked of a path that was put together from variables. It need not be absolute: nginx
/// looks for the location of `index.php`, too.
pub fn is_dotless(path: &[u8]) -> bool {
    !path.iter().any(|byte| matches!(byte, 0 | b'\n' | b'\r'))
        && !path.split(|byte| *byte == b'/').any(|segment| matches!(segment, b"." | b".."))
}

/// Percent-encodes a decoded path for use in a URI: everything but RFC 3986's `pchar` and `/`.
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    out.reserve(path.len());
    for &byte in path {
        if byte == b'/' || CLASS[usize::from(byte)] & PCHAR != 0 {
            out.push(byte);
        } else {
            push_escape(byte, out);
        }
    }
}

/// Writes `%XX`.
pub fn push_escape(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// Checks a `Host` field or an authority (RFC 3986 §3.2.2, without user information) and writes the
/// host into `out`, which is cleared first: in lower case, without port and without one closing dot.
/// An empty host and empty labels are invalid, as in nginx.
pub fn host(value: &[u8], out: &mut Vec<u8>) -> Result<(), BadHost> {
    let name = checked_host(value)?;
    out.clear();
    out.extend_from_slice(name);
    out.make_ascii_lowercase();
    Ok(())
}

/// Whether this is a host with an optional port.
pub fn is_host(value: &[u8]) -> bool {
    checked_host(value).is_ok()
}

/// Whether this is a host with a port: the authority form of CONNECT (RFC 9112 §3.2.3).
pub fn is_authority(value: &[u8]) -> bool {
    let has_port = value.last().is_some_and(u8::is_ascii_digit)
        && value
            .iter()
            .rposition(|byte| *byte == b':')
            .is_some_and(|colon| value[colon + 1..].iter().all(u8::is_ascii_digit));
    has_port && is_host(value)
}

/// `IPvFuture` of RFC 3986 §3.2.2: `v`, a hexadecimal version, a dot and an address of a future form.
fn is_ip_future(literal: &[u8]) -> bool {
    let [b'v' | b'V', rest @ ..] = literal else { return false };
    let mut parts = rest.splitn(2, |byte| *byte == b'.');
    let version = parts.next().unwrap_or_default();
    let address = parts.next().unwrap_or_default();
    let is_address =
        |byte: &u8| *byte == b':' || *byte == b',' || CLASS[usize::from(*byte)] & REG_NAME != 0;
    !version.is_empty()
        && version.iter().all(u8::is_ascii_hexdigit)
        && !address.is_empty()
        && address.iter().all(is_address)
}

/// The name in a host with an optional port, without a closing dot.
fn checked_host(value: &[u8]) -> Result<&[u8], BadHost> {
    let (name, port) = if value.starts_with(b"[") {
        let end = memchr::memchr(b']', value).ok_or(BadHost)?;
        let literal = std::str::from_utf8(&value[1..end]).map_err(|_| BadHost)?;
        if !is_ip_future(literal.as_bytes()) {
            literal.parse::<Ipv6Addr>().map_err(|_| BadHost)?;
        }
        value.split_at(end + 1)
    } else {
        let end = memchr::memchr(b':', value).unwrap_or(value.len());
        let (name, port) = value.split_at(end);
        let name = name.strip_suffix(b".").unwrap_or(name);
        check_name(name)?;
        (name, port)
    };
    check_port(port)?;
    Ok(name)
}

/// Whether the path can be taken as it is: no escape, fragment, control byte, empty or dotted segment.
/// Segments that begin with a dot take the slow way, which sorts out `.well-known` from `..`.
fn is_plain(path: &[u8]) -> bool {
    let mut previous = 0;
    for &byte in path {
        if CLASS[usize::from(byte)] & SPECIAL != 0
            && (previous == b'/' || !matches!(byte, b'/' | b'.'))
        {
            return false;
        }
        previous = byte;
    }
    true
}

fn resolve_slowly(path: &[u8], merge_slashes: bool, out: &mut Vec<u8>) -> Result<(), TargetError> {
    out.reserve(path.len());
    out.push(b'/');
    // Where the segment that is being read starts in `out`: just behind a slash.
    let mut segment = 1;
    let mut rest = &path[1..];
    loop {
        let (byte, tail) = match rest {
            [] | [b'#', ..] => {
                end_segment(out, segment)?;
                return Ok(());
            }
            [b'%', tail @ ..] => {
                let [high, low, tail @ ..] = tail else { return Err(TargetError::BadEscape) };
                let byte =
                    hex::value(*high).zip(hex::value(*low)).map(|(high, low)| high << 4 | low);
                let byte = byte.ok_or(TargetError::BadEscape)?;
                match byte {
                    0 => return Err(TargetError::Nul),
                    // Lines are what logs, fields and programs are made of.
                    b'\n' | b'\r' => return Err(TargetError::ControlByte),
                    _ => (byte, tail),
                }
            }
            [0, ..] => return Err(TargetError::Nul),
            [byte, ..] if byte.is_ascii_control() => return Err(TargetError::ControlByte),
            [byte, tail @ ..] => (*byte, tail),
        };
        if byte == b'/' {
            let is_dotted = end_segment(out, segment)?;
            let is_merged = merge_slashes && out.len() == segment;
            if !is_dotted && !is_merged {
                out.push(b'/');
            }
            segment = out.len();
        } else {
            out.push(byte);
        }
        rest = tail;
    }
}

/// Takes a dot segment back out; says whether there was one. What is popped was pushed before, so the
/// whole stays linear.
fn end_segment(out: &mut Vec<u8>, start: usize) -> Result<bool, TargetError> {
    match &out[start..] {
        b"." => {
            out.truncate(start);
            Ok(true)
        }
        b".." => {
            let parent = out[..start - 1]
                .iter()
                .rposition(|byte| *byte == b'/')
                .ok_or(TargetError::AboveRoot)?;
            out.truncate(parent + 1);
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn check_name(name: &[u8]) -> Result<(), BadHost> {
    let mut previous = b'.';
    for &byte in name {
        // Names are read for every request, and nearly all of them are plain.
        let is_plain = match byte {
            b'.' => previous != b'.',
            _ => CLASS[usize::from(byte)] & REG_NAME != 0,
        };
        if !is_plain {
            return check_escaped_name(name);
        }
        previous = byte;
    }
    // `previous` is a dot also when there was nothing at all.
    if previous == b'.' { Err(BadHost) } else { Ok(()) }
}

fn check_escaped_name(name: &[u8]) -> Result<(), BadHost> {
    let mut previous = b'.';
    let mut escape_digits = 0;
    for &byte in name {
        let is_allowed = match byte {
            _ if escape_digits > 0 => {
                escape_digits -= 1;
                hex::value(byte).is_some()
            }
            b'%' => {
                escape_digits = 2;
                true
            }
            b'.' => previous != b'.',
            _ => CLASS[usize::from(byte)] & REG_NAME != 0,
        };
        if !is_allowed {
            return Err(BadHost);
        }
        previous = byte;
    }
    // `previous` is a dot also when there was nothing at all.
    if previous == b'.' || escape_digits > 0 { Err(BadHost) } else { Ok(()) }
}

/// `""`, `":"` or `":"` and a port number.
fn check_port(port: &[u8]) -> Result<(), BadHost> {
    let Some((colon, digits)) = port.split_first() else { return Ok(()) };
    if *colon != b':' || !digits.iter().all(u8::is_ascii_digit) {
        return Err(BadHost);
    }
    // Leading zeros are allowed, as the parser of heads allows them.
    let number = digits
        .iter()
        .fold(0_u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    if number > u32::from(u16::MAX) { Err(BadHost) } else { Ok(()) }
}

/// Allowed in a path segment as it is.
const PCHAR: u8 = 1;
/// Allowed in a registered name as it is.
const REG_NAME: u8 = 2;
/// Needs a second look when a path is resolved.
const SPECIAL: u8 = 4;

static CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut byte = 0_u8;
    loop {
        let is_unreserved =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        let is_sub_delim = matches!(
            byte,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
        );
        if is_unreserved || is_sub_delim {
            // A comma would make two hosts look like one.
            class[byte as usize] |= if byte == b',' { PCHAR } else { PCHAR | REG_NAME };
        }
        if matches!(byte, b':' | b'@') {
            class[byte as usize] |= PCHAR;
        }
        if matches!(byte, b'%' | b'#' | b'/' | b'.') || byte.is_ascii_control() {
            class[byte as usize] |= SPECIAL;
        }
        if byte == u8::MAX {
            break class;
        }
        byte += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resolved(path: &str) -> Result<String, TargetError> {
        let mut out = b"left over".to_vec();
        resolve(path.as_bytes(), true, &mut out).map(|()| out.escape_ascii().to_string())
    }

    /// F2, V17: the path is decoded once and dot segments are resolved once.
    #[test]
    fn a_path_is_decoded_once_and_its_dots_resolved_once() {
        let table = [
            ("/", "/"),
            ("/a/b.html", "/a/b.html"),
            ("/a.b/c..d/...", "/a.b/c..d/..."),
            ("/a//b///c", "/a/b/c"),
            ("/a/./b", "/a/b"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/b/../c", "/a/c"),
            ("/a/b/..", "/a/"),
            ("/a//../b", "/b"),
            ("/a/%2e%2e/b", "/b"),
            ("/a/.%2E/b", "/b"),
            ("/a/%2e/b", "/a/b"),
            ("/a%20b", "/a b"),
            ("/%41%5a", "/AZ"),
            // An encoded slash is one, before dots are looked for.
            ("/a%2Fb", "/a/b"),
            ("/a%2f/b%2F", "/a/b/"),
            ("/a%2f..%2fb", "/b"),
            ("/a/b%2F.%2F%2e%2e", "/a/"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a?b", "/a?b"), // `split` has taken the query away: this one is part of the name
            ("/a%3Fb", "/a?b"),
            ("/a%23b", "/a#b"),
            ("/a#b/../c", "/a"),
            // Twice encoded stays once encoded.
            ("/%252e%252e/a", "/%2e%2e/a"),
            ("/%252fa", "/%2fa"),
            ("/a%2500", "/a%00"),
            // Not dot segments, whatever other systems make of them.
            ("/a/..;/b", "/a/..;/b"),
            ("/a/..%3b/b", "/a/..;/b"),
            ("/a/..%5c..%5cb", r"/a/..\\..\\b"),
            (r"/a\..\b", r"/a\\..\\b"),
            ("/a/..%c0%af../b", r"/a/..\xc0\xaf../b"),
            ("/a/%c0%ae%c0%ae/b", r"/a/\xc0\xae\xc0\xae/b"),
            ("/a/%ef%bc%8e%ef%bc%8e/b", r"/a/\xef\xbc\x8e\xef\xbc\x8e/b"),
            ("/.../b", "/.../b"),
            ("/a/.. /b", "/a/.. /b"),
            ("/a/..%20/b", "/a/.. /b"),
        ];
        for (path, expected) in table {
            assert_eq!(resolved(path).as_deref(), Ok(expected), "{path}");
        }
    }

    /// F2, V17: nothing above the root, no NUL, no line ends.
    #[test]
    fn a_path_that_lies_is_refused() {
        use TargetError as E;
        let table = [
            ("/..", E::AboveRoot),
            ("/../", E::AboveRoot),
            ("/../etc/passwd", E::AboveRoot),
            ("/%2e%2e/etc/passwd", E::AboveRoot),
            ("/%2E./etc/passwd", E::AboveRoot),
            ("/a/../../etc/passwd", E::AboveRoot),
            ("/a/..//../etc/passwd", E::AboveRoot),
            ("/./..", E::AboveRoot),
            ("/..%2fetc", E::AboveRoot),
            ("/%2e%2e%2fetc", E::AboveRoot),
            ("/a%2f%2e.%2F..%2fetc", E::AboveRoot),
            ("/a%00.png", E::Nul),
            ("/a\0", E::Nul),
            ("/a%0d%0aSet-Cookie:%20x", E::ControlByte),
            ("/a%0d", E::ControlByte),
            ("/a%0A", E::ControlByte),
            ("/a\x01", E::ControlByte),
            ("/a\x7f", E::ControlByte),
            ("/a%", E::BadEscape),
            ("/a%2", E::BadEscape),
            ("/a%zz", E::BadEscape),
            ("/a%+1", E::BadEscape),
            ("/a%u002e", E::BadEscape),
            ("", E::NotAPath),
            ("a/b", E::NotAPath),
            ("*", E::NotAPath),
        ];
        for (path, expected) in table {
            assert_eq!(resolved(path), Err(expected), "{path:?}");
        }
    }

    #[test]
    fn slashes_are_kept_where_merging_is_off() {
        let mut out = Vec::new();
        for (path, expected) in [
            ("/a//b", "/a//b"),
            ("//", "//"),
            ("/a//../b", "/a/b"),
            ("//..", "/"),
            ("/a/.//b", "/a//b"),
        ] {
            resolve(path.as_bytes(), false, &mut out).expect("resolves");
            assert_eq!(out, expected.as_bytes(), "{path}");
        }
    }

    #[test]
    fn a_target_splits_into_authority_path_and_query() {
        let table: [(&str, Option<&str>, &str, Option<&str>); 8] = [
            ("/", None, "/", None),
            ("/a?b", None, "/a", Some("b")),
            ("/a?b?c", None, "/a", Some("b?c")),
            ("/a?", None, "/a", Some("")),
            ("http://Host:80/a?b", Some("Host:80"), "/a", Some("b")),
            ("HTTPS://host", Some("host"), "/", None),
            ("http://host?q", Some("host"), "/", Some("q")),
            ("*", None, "*", None),
        ];
        for (target, authority, path, query) in table {
            let parts = split(target.as_bytes()).expect("splits");
            assert_eq!(parts.authority, authority.map(str::as_bytes), "{target}");
            assert_eq!(parts.path, path.as_bytes(), "{target}");
            assert_eq!(parts.query, query.map(str::as_bytes), "{target}");
        }
        for target in ["", "a", "host:443", "ftp://host/", "?a", "**", "http:/a"] {
            assert_eq!(split(target.as_bytes()), Err(TargetError::NotAPath), "{target}");
        }
        for target in ["/a#b?c", "/a?b#c", "/#", "http://host#x", "http://host/a#"] {
            assert_eq!(split(target.as_bytes()), Err(TargetError::Fragment), "{target}");
        }
    }

    #[test]
    fn a_host_is_lower_cased_and_loses_port_and_dot() {
        let table = [
            ("Example.ORG", "example.org"),
            ("example.org.", "example.org"),
            ("example.org.:8080", "example.org"),
            ("example.org:", "example.org"),
            ("a_b-c.example", "a_b-c.example"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("a:000080", "a"),
            ("[::1]", "[::1]"),
            ("[2001:DB8::1]:8080", "[2001:db8::1]"),
            ("a%2db", "a%2db"),
            ("[v1.A:b~]:80", "[v1.a:b~]"),
        ];
        let mut out = b"left over".to_vec();
        for (value, expected) in table {
            host(value.as_bytes(), &mut out).expect("is valid");
            assert_eq!(out, expected.as_bytes(), "{value}");
        }
    }

    #[test]
    fn an_invalid_host_is_refused() {
        let bad = [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            ":80",
            "a b",
            "a/b",
            "a\\b",
            "user@host",
            "a:b",
            "a:65536",
            "a:123456",
            "a:99999999999999999999",
            "a:80:80",
            "[::1",
            "[::1]x",
            "[zz]",
            "[]",
            "[v.x]",
            "[v1.]",
            "[vg.x]",
            "[v1.a/b]",
            "[fe80::1%25eth0]",
            "a\0b",
            "a%2",
            "a%zz",
            "a,b ",
            "\u{e9}",
            "a?b",
            "a#b",
        ];
        let mut out = Vec::new();
        for value in bad {
            assert_eq!(host(value.as_bytes(), &mut out), Err(BadHost), "{value:?}");
        }
    }

    #[test]
    fn an_authority_has_a_port() {
        for value in ["a:1", "example.org:443", "[::1]:8080"] {
            assert!(is_authority(value.as_bytes()), "{value}");
        }
        for value in ["", "/", "a", "a:", ":1", "[::1]", "/a:1", "http://a:1", "a:1:2", "a b:1"] {
            assert!(!is_authority(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn an_encoded_path_is_safe_in_a_location() {
        let mut out = Vec::new();
        encode_path(b"/a b/\xc3\xa4?#%\\\"<>\r\n/c:@!$&'()*+,;=-._~", &mut out);
        let expected = b"/a%20b/%C3%A4%3F%23%25%5C%22%3C%3E%0D%0A/c:@!$&'()*+,;=-._~";
        assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    /// Bytes that make trouble more likely than plain random ones.
    fn hostile_path() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => prop::sample::select(vec![
                &b"/"[..], b".", b"..", b"%2e", b"%2E", b"%2f", b"%5c", b"\\", b"a", b"%", b"%25",
                b"#", b"?", b"%00", b";", b"%c0%ae", b"%7f", b"//",
            ])
            .prop_map(<[u8]>::to_vec),
            1 => prop::collection::vec(any::<u8>(), 0..4),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| {
            let mut path = b"/".to_vec();
            path.extend(pieces.concat());
            path
        })
    }

    proptest! {
        /// F2, V17
        #[test]
        fn a_resolved_path_is_absolute_and_has_no_dots_or_line_ends(
            path in hostile_path(), merge in any::<bool>()
        ) {
            let mut out = Vec::new();
            if resolve(&path, merge, &mut out).is_ok() {
                prop_assert!(is_dotless(&out), "{:?}", out);
                prop_assert_eq!(is_resolved(&out), !has_control(&out));
                prop_assert!(out.starts_with(b"/"));
                prop_assert!(!out.contains(&0));
                prop_assert!(!merge || !out.windows(2).any(|pair| pair == b"//"));
            } else {
                prop_assert!(out.is_empty());
            }
        }

        /// F2, V21: once resolved, a path stays as it is.
        #[test]
        fn resolving_what_was_resolved_and_encoded_changes_nothing(
            path in hostile_path(), merge in any::<bool>()
        ) {
            let (mut first, mut encoded, mut second) = (Vec::new(), Vec::new(), Vec::new());
            if resolve(&path, merge, &mut first).is_ok() {
                encode_path(&first, &mut encoded);
                prop_assert_eq!(resolve(&encoded, merge, &mut second), Ok(()));
                prop_assert_eq!(first, second);
            }
        }

        #[test]
        fn the_fast_way_and_the_slow_way_agree(path in "/[a-c./]{0,12}") {
            let (mut fast, mut slow) = (Vec::new(), Vec::new());
            let fast_result = resolve(path.as_bytes(), true, &mut fast);
            prop_assert_eq!(fast_result, resolve_slowly(path.as_bytes(), true, &mut slow));
            if fast_result.is_ok() {
                prop_assert_eq!(fast, slow);
            }
        }

        #[test]
        fn any_host_is_taken_or_refused_without_a_panic(value in prop::collection::vec(any::<u8>(), 0..24)) {
            let mut out = Vec::new();
            if host(&value, &mut out).is_ok() {
                prop_assert!(!out.is_empty());
                prop_assert!(!out.iter().any(|byte| matches!(byte, b'/' | b'\\' | 0..=b' ')));
            }
        }
    }
}
