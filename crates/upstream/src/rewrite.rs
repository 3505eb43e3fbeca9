//! What a proxy changes on the way: the target of a request (`proxy_pass` with a URI), and the places that
//! an answer names (`proxy_redirect`, `proxy_cookie_domain`, `_path`, `_flags`). Patterns and replacements come
//! expanded; a regular expression is a function of the caller's.

use sekisho_http::target::push_escape;

/// What the target of an upstream request is made of.
#[derive(Clone, Copy, Debug)]
pub struct TargetParts<'a> {
    /// The URI in `proxy_pass`, if it has one.
    pub pass: Option<&'a [u8]>,
    /// The prefix of the location, which that URI replaces; empty in a regular expression or a named one.
    pub location: &'a [u8],
    /// Path and query as the client wrote them, without scheme and authority.
    pub original: &'a [u8],
    /// The path, decoded and resolved, perhaps rewritten.
    pub path: &'a [u8],
    /// The query string.
    pub query: Option<&'a [u8]>,
    /// Whether the path is no longer what the client asked for (`rewrite`, an internal redirect).
    pub is_rewritten: bool,
    /// Whether a script of the location has changed the path (`rewrite … break`): then the URI in `proxy_pass` is ignored.
    pub is_in_place: bool,
    /// Whether the URI in `proxy_pass` has variables: then it is the target, whole.
    pub is_computed: bool,
}

/// The target of the upstream request, by nginx's rules.
pub fn upstream_target(parts: &TargetParts<'_>, out: &mut Vec<u8>) {
    match parts.pass {
        Some(pass) if parts.is_computed => out.extend_from_slice(pass),
        None if !parts.is_rewritten => {
            // A fragment is the client's own; readers differ about what it is in a target (U3).
            let end = memchr::memchr(b'#', parts.original).unwrap_or(parts.original.len());
            out.extend_from_slice(&parts.original[..end]);
        }
        pass => {
            let pass = pass.filter(|_| !parts.is_in_place);
            out.extend_from_slice(pass.unwrap_or_default());
            let skipped = if pass.is_some() { parts.location.len() } else { 0 };
            let rest = parts.path.get(skipped..).unwrap_or_default();
            if parts.is_rewritten || has_escape(parts.original) {
                for byte in rest {
                    push_path_byte(*byte, out);
                }
            } else {
                // As the client wrote it, so that nothing is escaped that was not.
                out.extend_from_slice(rest);
            }
            if let Some(query) = parts.query.filter(|query| !query.is_empty()) {
                out.push(b'?');
                out.extend_from_slice(query);
            }
        }
    }
}

/// Whether the path of a target has an escape: only then can its decoded form hold what must be escaped.
fn has_escape(target: &[u8]) -> bool {
    memchr::memchr2(b'%', b'?', target).is_some_and(|at| target[at] == b'%')
}

/// A byte that would end the path, or is not allowed in a target, is escaped (`NGX_ESCAPE_URI`).
fn push_path_byte(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b' ' | b'#' | b'%' | b'?' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|'
        | b'}' => {
            push_escape(byte, out);
        }
        0..=0x1f | 0x7f..=0xff => push_escape(byte, out),
        _ => out.push(byte),
    }
}

/// `proxy_redirect FROM TO`, `proxy_cookie_path FROM TO`: what begins with `from` begins with `to`.
pub fn replace_prefix(value: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    value.strip_prefix(from).map(|rest| [to, rest].concat())
}

/// `proxy_cookie_domain FROM TO`: the whole domain, in any case; a dot in front of it stays.
pub fn replace_domain(value: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let (dot, domain) = match value.split_first() {
        Some((b'.', rest)) => (&b"."[..], rest),
        _ => (&b""[..], value),
    };
    domain.eq_ignore_ascii_case(from).then(|| [dot, to].concat())
}

/// The new value of a `Refresh` field: only the value of `url=` is an address.
pub fn refresh(value: &[u8], rewrite: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let at = value.windows(4).position(|four| four.eq_ignore_ascii_case(b"url="))? + 4;
    let place = rewrite(&value[at..])?;
    Some([&value[..at], &place].concat())
}

/// `samesite=`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum SameSite {
    Strict,
    Lax,
    None,
    /// `nosamesite`
    Removed,
}

impl SameSite {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Lax => "Lax",
            Self::None => "None",
            Self::Removed => "",
        }
    }
}

/// `proxy_cookie_flags`: what is set or taken away; `None` leaves a flag as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CookieFlags {
    /// `secure`, `nosecure`
    pub secure: Option<bool>,
    /// `httponly`, `nohttponly`
    pub http_only: Option<bool>,
    /// `samesite=…`, `nosamesite`
    pub same_site: Option<SameSite>,
}

impl CookieFlags {
    /// Adds a word of `proxy_cookie_flags`; returns whether it is valid.
    pub fn add(&mut self, word: &[u8]) -> bool {
        match word.to_ascii_lowercase().as_slice() {
            b"secure" => self.secure = Some(true),
            b"nosecure" => self.secure = Some(false),
            b"httponly" => self.http_only = Some(true),
            b"nohttponly" => self.http_only = Some(false),
            b"samesite=strict" => self.same_site = Some(SameSite::Strict),
            b"samesite=lax" => self.same_site = Some(SameSite::Lax),
            b"samesite=none" => self.same_site = Some(SameSite::None),
            b"nosamesite" => self.same_site = Some(SameSite::Removed),
            _ => return false,
        }
        true
    }
}

/// The new value of a `Set-Cookie` field, or `None` when nothing changes. `domain` and `path` rewrite the value
/// of their attribute; `flags` is what holds for the cookie.
pub fn set_cookie(
    value: &[u8],
    mut domain: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    mut path: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    flags: CookieFlags,
) -> Option<Vec<u8>> {
    let mut attributes: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    for part in value.split(|byte| *byte == b';') {
        let equals = memchr::memchr(b'=', part);
        let name = part[..equals.unwrap_or(part.len())].trim_ascii().to_vec();
        attributes.push((name, equals.map(|at| part[at + 1..].trim_ascii().to_vec())));
    }
    let mut is_changed = false;
    for (name, value) in attributes.iter_mut().skip(1) {
        let Some(value) = value else { continue };
        let new = if name.eq_ignore_ascii_case(b"domain") {
            domain(value)
        } else if name.eq_ignore_ascii_case(b"path") {
            path(value)
        } else {
            None
        };
        if let Some(new) = new {
            *value = new;
            is_changed = true;
        }
    }
    is_changed |= set_flag(&mut attributes, "Secure", flags.secure);
    is_changed |= set_flag(&mut attributes, "HttpOnly", flags.http_only);
    is_changed |= set_same_site(&mut attributes, flags.same_site);
    is_changed.then(|| written(&attributes))
}

type Attributes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn position(attributes: &Attributes, name: &str) -> Option<usize> {
    let is = |(other, _): &(Vec<u8>, _)| other.eq_ignore_ascii_case(name.as_bytes());
    attributes.iter().skip(1).position(is).map(|at| at + 1)
}

fn set_flag(attributes: &mut Attributes, name: &str, flag: Option<bool>) -> bool {
    match (flag, position(attributes, name)) {
        (Some(true), None) => {
            attributes.push((name.as_bytes().to_vec(), None));
            true
        }
        (Some(false), Some(at)) => {
            attributes.remove(at);
            true
        }
        _ => false,
    }
}

fn set_same_site(attributes: &mut Attributes, wanted: Option<SameSite>) -> bool {
    const NAME: &str = "SameSite";
    match (wanted, position(attributes, NAME)) {
        (Some(SameSite::Removed), found) => {
            if let Some(at) = found {
                attributes.remove(at);
            }
            found.is_some()
        }
        (Some(wanted), found) => {
            let attribute = (NAME.as_bytes().to_vec(), Some(wanted.as_str().as_bytes().to_vec()));
            let Some(at) = found else {
                attributes.push(attribute);
                return true;
            };
            let is_same = attributes[at]
                .1
                .as_ref()
                .is_some_and(|value| value.eq_ignore_ascii_case(wanted.as_str().as_bytes()));
            if !is_same {
                attributes[at] = attribute;
            }
            !is_same
        }
        (None, _) => false,
    }
}

fn written(attributes: &Attributes) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, (name, value)) in attributes.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(name);
        if let Some(value) = value {
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N1: the rules of `proxy_pass`, from nginx's documentation.
    #[test]
    fn the_target_follows_from_proxy_pass_and_the_location() {
        let parts = TargetParts {
            pass: None,
            location: b"/name/",
            original: b"/name/a%20b/../c?x",
            path: b"/name/c",
            query: Some(b"x"),
            is_rewritten: false,
            is_in_place: false,
            is_computed: false,
        };
        let rows = [
            (parts, "/name/a%20b/../c?x"),
            (TargetParts { original: b"/name/c?x#f", ..parts }, "/name/c?x"),
            (TargetParts { pass: Some(b"/remote/"), ..parts }, "/remote/c?x"),
            (TargetParts { pass: Some(b"/"), query: None, ..parts }, "/c"),
            (TargetParts { pass: Some(b"/r"), location: b"/name", ..parts }, "/r/c?x"),
            (TargetParts { is_rewritten: true, ..parts }, "/name/c?x"),
            (
                TargetParts {
                    is_rewritten: true,
                    is_in_place: true,
                    pass: Some(b"/api/"),
                    ..parts
                },
                "/name/c?x",
            ),
            (TargetParts { pass: Some(b"/v"), is_computed: true, ..parts }, "/v"),
            (
                TargetParts { pass: Some(b"/r/"), path: b"/name/a b%?#\xc3", query: None, ..parts },
                "/r/a%20b%25%3F%23%C3",
            ),
            (TargetParts { pass: Some(b"/r/"), path: b"/n", query: None, ..parts }, "/r/"),
            (TargetParts { is_rewritten: true, query: Some(b""), ..parts }, "/name/c"),
            (
                TargetParts {
                    pass: Some(b"/r/"),
                    path: b"/name/{",
                    original: b"/name/{?%",
                    ..parts
                },
                "/r/{?x",
            ),
            (
                TargetParts { is_rewritten: true, path: b"/a b", original: b"/", ..parts },
                "/a%20b?x",
            ),
        ];
        for (parts, expected) in rows {
            let mut out = Vec::new();
            upstream_target(&parts, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{parts:?}");
        }
    }

    #[test]
    fn places_are_renamed() {
        let to = |value: &str| replace_prefix(value.as_bytes(), b"http://back/", b"/front/");
        assert_eq!(to("http://back/a").as_deref(), Some(b"/front/a".as_slice()));
        assert_eq!(to("http://other/a"), None);
        let place =
            |value: &str| refresh(value.as_bytes(), |url| replace_prefix(url, b"/a", b"/b"));
        assert_eq!(place("5; URL=/a/c").as_deref(), Some(b"5; URL=/b/c".as_slice()));
        assert_eq!((place("5"), place("5; url=/c")), (None, None));
        let domain = |value: &str| replace_domain(value.as_bytes(), b"back.local", b"example.org");
        assert_eq!(domain("BACK.local").as_deref(), Some(b"example.org".as_slice()));
        assert_eq!(domain(".back.local").as_deref(), Some(b".example.org".as_slice()));
        assert_eq!((domain("x.back.local"), domain("")), (None, None));
    }

    #[test]
    fn cookies_are_changed_where_they_must_be() {
        let set = |value: &str, flags: CookieFlags| {
            let new = set_cookie(
                value.as_bytes(),
                |domain| replace_domain(domain, b"back", b"front"),
                |path| replace_prefix(path, b"/one/", b"/"),
                flags,
            );
            new.map(|new| String::from_utf8(new).expect("text"))
        };
        let none = CookieFlags::default();
        let secure = CookieFlags { secure: Some(true), http_only: Some(true), ..none };
        let lax = CookieFlags { same_site: Some(SameSite::Lax), ..none };
        let bare = CookieFlags {
            secure: Some(false),
            http_only: Some(false),
            same_site: Some(SameSite::Removed),
        };
        let rows = [
            ("a=b; Path=/two/", none, None),
            ("a=b;Domain=back; path=/one/x", none, Some("a=b; Domain=front; path=/x")),
            ("domain=back", none, None),
            ("a=b", secure, Some("a=b; Secure; HttpOnly")),
            ("a=b; secure; HTTPONLY", secure, None),
            ("a=b; samesite=strict", lax, Some("a=b; SameSite=Lax")),
            ("a=b; SAMESITE=LAX", lax, None),
            ("a=b", lax, Some("a=b; SameSite=Lax")),
            ("a=b; Secure; HttpOnly; SameSite=None; Max-Age=1", bare, Some("a=b; Max-Age=1")),
            ("a=b", bare, None),
        ];
        for (value, flags, expected) in rows {
            assert_eq!(set(value, flags).as_deref(), expected, "{value}");
        }
    }
}
