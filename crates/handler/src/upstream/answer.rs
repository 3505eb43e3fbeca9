//! The head of a server's answer as the client gets it: fields that are hidden, places that have another name here,
//! and what `X-Accel-…` asks for.

use std::sync::Arc;

use sekisho_config::{
    CookieName, CookieRule, Destination, ErrorPage, Expression, Forward, Matched, Part, Pass,
    PassTo, Rename, Template, Variable,
};
use sekisho_http::upstream::{Pairs, ResponseHead};
use sekisho_http::{Fields, Status};
use sekisho_route::push_origin;
use sekisho_upstream::fields::Accel;
use sekisho_upstream::rewrite::{CookieFlags, refresh, replace_domain, replace_prefix, set_cookie};

use super::plan::Source;

/// What of an answer with `X-Accel-Redirect` is kept, as nginx does: what the target is, rather than its content.
const KEPT_AT_HANDOVER: [&str; 6] = [
    "Content-Type",
    "Set-Cookie",
    "Content-Disposition",
    "Cache-Control",
    "Expires",
    "Accept-Ranges",
];

/// What is done with a place that an answer names.
#[derive(Debug)]
enum Renamed {
    Text(Vec<u8>, Vec<u8>),
    Pattern(Arc<sekisho_config::Pattern>, Vec<Filled>),
}

/// A piece of a replacement: all but what the expression finds is known before.
#[derive(Debug)]
enum Filled {
    Text(Vec<u8>),
    Group(usize),
}

#[derive(Debug)]
enum FlagsFor {
    Text(Vec<u8>, CookieFlags),
    Pattern(Arc<sekisho_config::Pattern>, CookieFlags),
}

/// How an answer is changed. Made with the request: its variables are the request's.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// What goes before a path that `proxy_redirect` makes (`absolute_redirect`).
    origin: Vec<u8>,
    redirects: Vec<Renamed>,
    cookie_domains: Vec<Renamed>,
    cookie_paths: Vec<Renamed>,
    cookie_flags: Vec<FlagsFor>,
}

impl Changes {
    pub(super) fn new(source: &Source<'_>, pass: &Pass) -> Self {
        let forward = &pass.forward;
        let rename =
            |list: &[Rename]| list.iter().filter_map(|one| renamed(source, pass, one)).collect();
        let cookie_flags = forward.cookie_flags.iter().map(|rule| match &rule.name {
            CookieName::Text(name) => FlagsFor::Text(source.value(name), flags(source, rule)),
            CookieName::Pattern(pattern) => {
                FlagsFor::Pattern(Arc::clone(pattern), flags(source, rule))
            }
        });
        let mut origin = Vec::new();
        if !forward.redirects.is_empty() {
            push_origin(source.table, source.request, source.route_state, &mut origin);
        }
        Self {
            origin,
            redirects: rename(&forward.redirects),
            cookie_domains: rename(&forward.cookie_domains),
            cookie_paths: rename(&forward.cookie_paths),
            cookie_flags: cookie_flags.collect(),
        }
    }

    /// As in nginx, a place that was changed into a path becomes an address.
    fn location(&self, value: &[u8]) -> Option<Vec<u8>> {
        let new = apply(&self.redirects, value, replace_prefix)?;
        Some(if new.starts_with(b"/") { [&*self.origin, &*new].concat() } else { new })
    }

    fn cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        if self.cookie_domains.is_empty()
            && self.cookie_paths.is_empty()
            && self.cookie_flags.is_empty()
        {
            return None;
        }
        let end = value.iter().position(|byte| b"=;".contains(byte)).unwrap_or(value.len());
        let name = value[..end].trim_ascii();
        let flags = self.cookie_flags.iter().find_map(|rule| match rule {
            FlagsFor::Text(own, flags) => own.eq_ignore_ascii_case(name).then_some(*flags),
            FlagsFor::Pattern(pattern, flags) => pattern.regex.is_match(name).then_some(*flags),
        });
        set_cookie(
            value,
            |domain| apply(&self.cookie_domains, domain, replace_domain),
            |path| apply(&self.cookie_paths, path, replace_prefix),
            flags.unwrap_or_default(),
        )
    }
}

/// Those that are known, and those that variables say; what says none changes none.
fn flags(source: &Source<'_>, rule: &CookieRule) -> CookieFlags {
    let mut flags = rule.flags;
    for template in &rule.computed {
        flags.add(&source.value(template));
    }
    flags
}

fn renamed(source: &Source<'_>, pass: &Pass, rename: &Rename) -> Option<Renamed> {
    Some(match rename {
        Rename::Default => {
            let PassTo::Named(Destination { host, uri, is_tls, .. }) = &pass.to else {
                return None;
            };
            let scheme: &[u8] = if *is_tls { b"https://" } else { b"http://" };
            let from = match uri {
                Some(uri) => [scheme, host.as_bytes(), uri].concat(),
                None => [scheme, host.as_bytes(), b"/"].concat(),
            };
            // As in nginx: without a URI, what stands behind the host stays as it is.
            let to = if uri.is_some() { &pass.location } else { &b"/"[..] };
            Renamed::Text(from, to.to_vec())
        }
        Rename::Text(from, to) => Renamed::Text(source.value(from), source.value(to)),
        Rename::Pattern(pattern, to) => {
            Renamed::Pattern(Arc::clone(pattern), filled(source, to, &pattern.regex))
        }
    })
}

fn filled(source: &Source<'_>, template: &Template, regex: &Expression) -> Vec<Filled> {
    let pieces = template.parts.iter().map(|part| match part {
        Part::Literal(text) => Filled::Text(text.clone()),
        Part::Variable(Variable::Capture(number)) => {
            // The whole match is not among the groups.
            Filled::Group(usize::from(*number).saturating_sub(1))
        }
        Part::Variable(Variable::NamedCapture(name)) if regex.group(name).is_some() => {
            Filled::Group(regex.group(name).unwrap_or_default())
        }
        Part::Variable(_) => Filled::Text(source.value(&Template { parts: vec![part.clone()] })),
    });
    pieces.collect()
}

type Replace = fn(&[u8], &[u8], &[u8]) -> Option<Vec<u8>>;

/// The first rule that fits.
fn apply(rules: &[Renamed], value: &[u8], replace: Replace) -> Option<Vec<u8>> {
    rules.iter().find_map(|rule| match rule {
        Renamed::Text(from, to) => replace(value, from, to),
        Renamed::Pattern(pattern, to) => {
            let mut groups = Vec::new();
            if pattern.regex.captures(value, &mut groups) != Matched::Yes {
                return None;
            }
            let mut new = Vec::new();
            for piece in to {
                match piece {
                    Filled::Text(text) => new.extend_from_slice(text),
                    Filled::Group(at) => {
                        let range = groups.get(*at).cloned().flatten();
                        let text = range.and_then(|range| value.get(range));
                        new.extend_from_slice(text.unwrap_or_default());
                    }
                }
            }
            Some(new)
        }
    })
}

/// What a head comes to.
#[derive(Debug)]
pub(super) enum Answer {
    /// It is given to the client, whose fields have been written; with the length of the body, where it is known.
    Given(Status, Option<u64>),
    /// Another target answers (`X-Accel-Redirect`).
    HandOver(Vec<u8>),
    /// An `error_page` answers.
    Intercepted(Status),
}

/// What the head of an answer means for the client.
pub(super) struct Reading<'a> {
    pub(super) forward: &'a Forward,
    pub(super) changes: &'a Changes,
    pub(super) error_pages: &'a [ErrorPage],
    pub(super) is_head: bool,
}

impl Reading<'_> {
    /// Reads a head; fields go to `fields`, what is asked of us to `accel`.
    pub(super) fn read(
        &self,
        head: &ResponseHead,
        fields: &mut Fields,
        accel: &mut Accel,
    ) -> Answer {
        let Self { forward, changes, .. } = self;
        if has_accel(&head.fields) {
            *accel = Accel::parse(&head.fields, forward.ignored);
        }
        if let Some(target) = accel.redirect.take() {
            for (name, value) in head.fields.iter() {
                if KEPT_AT_HANDOVER.iter().any(|kept| name.eq_ignore_ascii_case(kept.as_bytes())) {
                    fields.push(name, value);
                }
            }
            return Answer::HandOver(target);
        }
        let code = head.status.code();
        if forward.intercept_errors
            && code >= 300
            && self.error_pages.iter().any(|page| page.codes.contains(&code))
        {
            if head.status == Status::UNAUTHORIZED {
                for value in head.fields.all(b"www-authenticate") {
                    fields.push("WWW-Authenticate", value);
                }
            }
            return Answer::Intercepted(head.status);
        }
        for (name, value) in head.fields.iter().filter(|(name, _)| forward.visible.has(name)) {
            let new = match name.len() {
                8 if name.eq_ignore_ascii_case(b"location") => changes.location(value),
                7 if name.eq_ignore_ascii_case(b"refresh") => {
                    refresh(value, |url| apply(&changes.redirects, url, replace_prefix))
                }
                10 if name.eq_ignore_ascii_case(b"set-cookie") => changes.cookie(value),
                12 if name.eq_ignore_ascii_case(b"content-type") => {
                    accel.charset.as_deref().and_then(|charset| with_charset(value, charset))
                }
                _ => None,
            };
            fields.push(name, new.as_deref().unwrap_or(value));
        }
        let says_length = self.is_head || head.has_body || code == 304;
        let length = if says_length { head.content_length } else { Some(0) };
        Answer::Given(head.status, length)
    }
}

fn has_accel(fields: &Pairs) -> bool {
    fields.iter().any(|(name, _)| name.len() > 8 && name[..8].eq_ignore_ascii_case(b"x-accel-"))
}

fn with_charset(value: &[u8], charset: &[u8]) -> Option<Vec<u8>> {
    let media_type = value.split(|byte| *byte == b';').next()?.trim_ascii_end();
    Some([media_type, b"; charset=", charset].concat())
}
