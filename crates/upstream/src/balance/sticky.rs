//! Sticky sessions: which server a client was sent to before, by a cookie or a route.

use md5::{Digest, Md5};

use super::{Balancer, PeerSettings};

/// What names a server to its clients: its `route`, else a hash of its address, so that addresses do not leak
/// and servers need no numbers. The same as nginx's.
pub fn route_of(peer: &PeerSettings) -> Vec<u8> {
    match &peer.route {
        Some(route) => route.as_bytes().to_vec(),
        None => crate::cache::key::hexadecimal(Md5::digest(peer.name.as_bytes()).into()).to_vec(),
    }
}

/// The server of a route that a client came with: the value of its cookie, or of a variable (`sticky
/// route`), where the first value that is not empty and names a server counts.
pub fn peer_of(balancer: &Balancer, route: &[u8]) -> Option<usize> {
    if route.is_empty() {
        return None;
    }
    balancer.peers().iter().position(|peer| route_of(peer) == route)
}

/// The value of a cookie in `Cookie` fields.
pub fn cookie<'a>(fields: impl Iterator<Item = &'a [u8]>, name: &[u8]) -> Option<&'a [u8]> {
    fields
        .flat_map(|field| field.split(|byte| *byte == b';'))
        .find_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
}

/// Attributes of the cookie that binds a session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CookieSettings {
    /// Its name.
    pub name: Box<str>,
    /// `expires`: seconds, or to the end of all days.
    pub expires: Option<Expires>,
    /// `domain`
    pub domain: Option<Box<str>>,
    /// `path`
    pub path: Option<Box<str>>,
    /// `httponly`
    pub is_http_only: bool,
    /// `secure`
    pub is_secure: bool,
    /// `samesite`
    pub same_site: Option<Box<str>>,
}

/// How long a cookie is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expires {
    /// So many seconds.
    Seconds(u32),
    /// `max`
    Max,
}

/// The value of the `Set-Cookie` field for a session that is bound to a server. `until` is the date at which it
/// expires, made by the caller, who has a clock.
pub fn set_cookie(settings: &CookieSettings, peer: &PeerSettings, until: Option<&str>) -> Vec<u8> {
    let route = route_of(peer);
    let mut value = Vec::with_capacity(128);
    let mut push = |parts: &[&[u8]]| parts.iter().for_each(|part| value.extend_from_slice(part));
    push(&[settings.name.as_bytes(), b"=", &route]);
    match settings.expires {
        None => {}
        Some(Expires::Max) => push(&[b"; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000"]),
        Some(Expires::Seconds(seconds)) => {
            if let Some(until) = until {
                push(&[b"; expires=", until.as_bytes()]);
            }
            push(&[b"; max-age=", itoa::Buffer::new().format(seconds).as_bytes()]);
        }
    }
    let attributes = [("domain", &settings.domain), ("path", &settings.path)];
    for (name, text) in attributes {
        if let Some(text) = text {
            push(&[b"; ", name.as_bytes(), b"=", text.as_bytes()]);
        }
    }
    if settings.is_secure {
        push(&[b"; secure"]);
    }
    if settings.is_http_only {
        push(&[b"; httponly"]);
    }
    if let Some(same_site) = &settings.same_site {
        push(&[b"; samesite=", same_site.as_bytes()]);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method;

    #[test]
    fn a_client_is_led_back_to_its_server() {
        let mut named = PeerSettings::new("10.0.0.2:80");
        named.route = Some("b".into());
        let group =
            Balancer::new(Method::RoundRobin, vec![PeerSettings::new("10.0.0.1:80"), named]);
        let hash = route_of(&group.peers()[0]);
        assert_eq!(hash.len(), 32);
        assert_eq!(peer_of(&group, &hash), Some(0));
        assert_eq!(peer_of(&group, b"b"), Some(1));
        assert_eq!((peer_of(&group, b"c"), peer_of(&group, b"")), (None, None));
        let fields = [b"a=1; srv=b;c".as_slice(), b"srv=x"];
        assert_eq!(cookie(fields.into_iter(), b"srv"), Some(b"b".as_slice()));
        assert_eq!(cookie(fields.into_iter(), b"sr"), None);
    }

    #[test]
    fn a_cookie_names_the_server() {
        let mut peer = PeerSettings::new("a:1");
        peer.route = Some("r".into());
        let mut settings = CookieSettings { name: "srv".into(), ..CookieSettings::default() };
        assert_eq!(set_cookie(&settings, &peer, None), b"srv=r");
        settings.expires = Some(Expires::Seconds(3600));
        settings.domain = Some(".example.com".into());
        settings.path = Some("/".into());
        settings.is_secure = true;
        settings.is_http_only = true;
        settings.same_site = Some("lax".into());
        let set = set_cookie(&settings, &peer, Some("DATE"));
        let expected = "srv=r; expires=DATE; max-age=3600; domain=.example.com; path=/; secure; httponly; \
                        samesite=lax";
        assert_eq!(String::from_utf8_lossy(&set), expected);
    }
}
