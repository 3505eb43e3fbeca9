//! Where a request comes from and what its link promises: `$invalid_referer`, `$secure_link`,
//! `$secure_link_expires`. Signatures are compared in constant time.

use md5::{Digest, Md5};
use sekisho_config::{Links, Matched, Pattern, Referers, ServerName, Signature};
use sekisho_http::{Known, hex};
use subtle::ConstantTimeEq as _;

use crate::credentials::{URL_SAFE, decode_base64};
use crate::variable::Scope;

/// A host longer than this is none (nginx's bound).
const HOST_MAX: usize = 256;
/// What 16 bytes are in base64, with padding.
const SIGNATURE_MAX: usize = 24;

impl Scope<'_> {
    fn links(&self) -> Option<&Links> {
        self.settings().links.as_deref()
    }

    /// `$invalid_referer`: nothing, or 1.
    pub(crate) fn push_invalid_referer(&self, out: &mut Vec<u8>) {
        let referers = self.links().and_then(|links| links.referers.as_deref());
        if let Some(referers) = referers
            && !self.is_valid_referer(referers)
        {
            out.push(b'1');
        }
    }

    fn is_valid_referer(&self, referers: &Referers) -> bool {
        let Some(referer) = self.request.head.known(Known::Referer) else {
            return referers.none;
        };
        let scheme = [&b"http://"[..], b"https://"].into_iter().find(|scheme| {
            let start = referer.get(..scheme.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        // nginx takes nothing shorter than `http://i.ru` for an address.
        let Some(scheme) = scheme.filter(|_| referer.len() >= b"http://i.ru".len()) else {
            return referers.blocked;
        };
        let address = &referer[scheme.len()..];
        let end = address.iter().position(|byte| matches!(byte, b'/' | b':'));
        let (host, rest) = address.split_at(end.unwrap_or(address.len()));
        if host.len() > HOST_MAX {
            return false;
        }
        let host = host.to_ascii_lowercase();
        let path = rest.iter().position(|byte| *byte == b'/').map_or(&[][..], |at| &rest[at..]);
        if let Some(start) = named(referers, &host) {
            return path.starts_with(start);
        }
        (referers.server_names && self.is_server_name(&host))
            || referers.patterns.iter().any(|pattern| self.is_referer_matched(pattern, address))
    }

    /// Where the expression runs out of steps, the request fails: neither value of the variable would be right.
    fn is_referer_matched(&self, pattern: &Pattern, text: &[u8]) -> bool {
        let matched = pattern.regex.matches(text);
        if matched == Matched::Exhausted {
            self.exhaust("invalid_referer");
        }
        matched == Matched::Yes
    }

    fn is_server_name(&self, host: &[u8]) -> bool {
        let names = &self.table.server(self.route_state.server).names;
        names.iter().any(|name| match name {
            ServerName::Exact(name) => name.as_bytes() == host,
            ServerName::LeadingWildcard(end) => is_longer_and_ends(host, end.as_bytes()),
            ServerName::TrailingWildcard(start) => is_longer_and_starts(host, start.as_bytes()),
            ServerName::Regex(pattern) => self.is_referer_matched(pattern, host),
        })
    }

    /// `$secure_link`: of a signed value nothing where it is wrong, 0 where it is too late, 1 where it is
    /// right; of a signed path the link itself, or nothing.
    pub(crate) fn push_secure_link(&self, out: &mut Vec<u8>) {
        match self.links().and_then(|links| links.signature.as_ref()) {
            None => {}
            Some(Signature::Secret(secret)) => {
                out.extend_from_slice(signed_link(self.request.head.target(), secret));
            }
            Some(Signature::Value { value, signed }) => {
                let mut text = Vec::new();
                self.nested(value, &mut text);
                let (signature, until) = split_expiry(&text);
                let until = match until.map(expiry) {
                    Some(None) => return,
                    Some(Some(until)) => Some(until),
                    None => None,
                };
                let mut wanted = Vec::with_capacity(SIGNATURE_MAX);
                if signature.len() > SIGNATURE_MAX
                    || decode_base64(signature, &URL_SAFE, &mut wanted).is_none()
                {
                    return;
                }
                let mut text = Vec::new();
                self.nested(signed, &mut text);
                if !bool::from(Md5::digest(&text).as_slice().ct_eq(&wanted)) {
                    return;
                }
                let is_late = until.is_some_and(|until| until < self.request.wall.unix_secs);
                out.push(if is_late { b'0' } else { b'1' });
            }
        }
    }

    /// `$secure_link_expires`
    pub(crate) fn push_secure_link_expires(&self, out: &mut Vec<u8>) {
        let signature = self.links().and_then(|links| links.signature.as_ref());
        if let Some(Signature::Value { value, .. }) = signature {
            let mut text = Vec::new();
            self.nested(value, &mut text);
            if let (_, Some(until)) = split_expiry(&text)
                && expiry(until).is_some()
            {
                out.extend_from_slice(until);
            }
        }
    }
}

/// The path prefix for a host, if the host is named.
fn named<'r>(referers: &'r Referers, host: &[u8]) -> Option<&'r [u8]> {
    let exact = referers.exact.iter().find(|(name, _)| name == host);
    let leading = || referers.leading.iter().find(|(end, _)| is_longer_and_ends(host, end));
    let trailing = || referers.trailing.iter().find(|(start, _)| is_longer_and_starts(host, start));
    let found = exact.or_else(leading).or_else(trailing)?;
    Some(&found.1)
}

fn is_longer_and_ends(host: &[u8], end: &[u8]) -> bool {
    host.len() > end.len() && host.ends_with(end)
}

fn is_longer_and_starts(host: &[u8], start: &[u8]) -> bool {
    host.len() > start.len() && host.starts_with(start)
}

fn split_expiry(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == b',') {
        Some(comma) => (&text[..comma], Some(&text[comma + 1..])),
        None => (text, None),
    }
}

/// Seconds since 1970, from 1 on.
fn expiry(text: &[u8]) -> Option<i64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    number.parse().ok().filter(|number| *number > 0)
}

/// The link of `/prefix/signature/link`, if it is signed with the secret.
fn signed_link<'t>(target: &'t [u8], secret: &[u8]) -> &'t [u8] {
    let after_slash = |text: &'t [u8]| {
        let slash = text.iter().position(|byte| *byte == b'/')?;
        Some((&text[..slash], &text[slash + 1..]))
    };
    let parts = target.get(1..).and_then(after_slash).and_then(|(_, rest)| after_slash(rest));
    let Some((signature, link)) = parts.filter(|(_, link)| !link.is_empty()) else { return b"" };
    let digest = Md5::new().chain_update(link).chain_update(secret).finalize();
    let shown = hex::bytes(signature).unwrap_or_default();
    if bool::from(digest.as_slice().ct_eq(&shown)) { link } else { b"" }
}
