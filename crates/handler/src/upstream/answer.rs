//! The head of a server's answer as the client gets it: fields that are hidden, places that have another name here,
//! and what `X-Accel-…` asks for.

use std::cell::Cell;
use std::sync::Arc;

use sekisho_config::{
    CookieName, CookieRule, Destination, ErrorPage, Expression, Family, Forward, Matched, Part,
    Pass, PassTo, Rename, Template, Variable,
};
use sekisho_http::upstream::ResponseHead;
use sekisho_http::{Fields, Status};
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
    /// `proxy_redirect default`: follows from the location alone.
    Default,
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
#[derive(Debug)]
pub(super) struct Changes {
    redirects: Vec<Renamed>,
    cookie_domains: Vec<Renamed>,
    cookie_paths: Vec<Renamed>,
    cookie_flags: Vec<FlagsFor>,
    /// An expression could not be decided within its bound.
    is_exhausted: Cell<bool>,
}

impl Changes {
    /// `None` if nothing changes but what `proxy_redirect default` says, as most locations have it.
    pub(super) fn new(source: &Source<'_>, forward: &Forward) -> Option<Self> {
        let is_usual = forward.redirects.iter().all(|one| matches!(one, Rename::Default))
            && forward.cookie_domains.is_empty()
            && forward.cookie_paths.is_empty()
            && forward.cookie_flags.is_empty();
        if is_usual {
            return None;
        }
        let rename = |list: &[Rename]| list.iter().map(|one| renamed(source, one)).collect();
        let cookie_flags = forward.cookie_flags.iter().map(|rule| match &rule.name {
            CookieName::Text(name) => FlagsFor::Text(source.value(name), flags(source, rule)),
            CookieName::Pattern(pattern) => {
                FlagsFor::Pattern(Arc::clone(pattern), flags(source, rule))
            }
        });
        Some(Self {
            redirects: rename(&forward.redirects),
            cookie_domains: rename(&forward.cookie_domains),
            cookie_paths: rename(&forward.cookie_paths),
            cookie_flags: cookie_flags.collect(),
            is_exhausted: Cell::new(false),
        })
    }

    fn is_match(&self, matched: Matched) -> bool {
        self.is_exhausted.set(self.is_exhausted.get() || matched == Matched::Exhausted);
        matched == Matched::Yes
    }

    fn cookie(&self, pass: &Pass, value: &[u8]) -> Option<Vec<u8>> {
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
            FlagsFor::Pattern(pattern, flags) => {
                self.is_match(pattern.regex.matches(name)).then_some(*flags)
            }
        });
        set_cookie(
            value,
            |domain| self.apply(pass, &self.cookie_domains, domain, replace_domain),
            |path| self.apply(pass, &self.cookie_paths, path, replace_prefix),
            flags.unwrap_or_default(),
        )
    }
}

/// The fixed flags, and those from variables; an empty value changes none.
fn flags(source: &Source<'_>, rule: &CookieRule) -> CookieFlags {
    let mut flags = rule.flags;
    for template in &rule.computed {
        flags.add(&source.value(template));
    }
    flags
}

/// `proxy_redirect default`: the server's own address is replaced by the location's path.
fn renamed_by_default(pass: &Pass, value: &[u8], replace: Replace) -> Option<Vec<u8>> {
    let PassTo::Named(Destination { host, uri, is_tls, .. }) = &pass.to else { return None };
    let scheme: &[u8] = if *is_tls { b"https://" } else { b"http://" };
    // As in nginx: without a URI, the part after the host stays as it is.
    let (from, to): (&[u8], &[u8]) = match uri {
        Some(uri) => (uri, &pass.location),
        None => (b"/", b"/"),
    };
    replace(value, &[scheme, host.as_bytes(), from].concat(), to)
}

fn renamed(source: &Source<'_>, rename: &Rename) -> Renamed {
    match rename {
        Rename::Default => Renamed::Default,
        Rename::Text(from, to) => Renamed::Text(source.value(from), source.value(to)),
        Rename::Pattern(pattern, to) => {
            Renamed::Pattern(Arc::clone(pattern), filled(source, to, &pattern.regex))
        }
    }
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

/// For the log.
pub(super) const EXHAUSTED: &str = "a regular expression took too many steps";

type Replace = fn(&[u8], &[u8], &[u8]) -> Option<Vec<u8>>;

impl Changes {
    /// The first rule that fits.
    fn apply(
        &self,
        pass: &Pass,
        rules: &[Renamed],
        value: &[u8],
        replace: Replace,
    ) -> Option<Vec<u8>> {
        rules.iter().find_map(|rule| match rule {
            Renamed::Default => renamed_by_default(pass, value, replace),
            Renamed::Text(from, to) => replace(value, from, to),
            Renamed::Pattern(pattern, to) => {
                let mut groups = Vec::new();
                if !self.is_match(pattern.regex.captures(value, &mut groups)) {
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
    /// An expression of `proxy_redirect` or `proxy_cookie_…` ran out of steps: what it is for may matter.
    Undecided,
}

/// What the head of an answer means for the client.
pub(super) struct Reading<'a> {
    pub(super) pass: &'a Pass,
    /// What goes before a path that `proxy_redirect` makes (`absolute_redirect`).
    pub(super) origin: &'a [u8],
    pub(super) changes: Option<&'a Changes>,
    pub(super) error_pages: &'a [ErrorPage],
    pub(super) is_head: bool,
}

impl Reading<'_> {
    fn redirect(&self, value: &[u8]) -> Option<Vec<u8>> {
        match self.changes {
            Some(changes) => changes.apply(self.pass, &changes.redirects, value, replace_prefix),
            None if self.pass.forward.redirects.is_empty() => None,
            None => renamed_by_default(self.pass, value, replace_prefix),
        }
    }

    /// As in nginx, a place that was changed into a path becomes an address.
    fn location(&self, value: &[u8]) -> Option<Vec<u8>> {
        let new = self.redirect(value)?;
        Some(if new.starts_with(b"/") { [self.origin, &*new].concat() } else { new })
    }

    /// Reads a head; fields go to `fields`, what is asked of us to `accel`.
    pub(super) fn read(
        &self,
        head: &ResponseHead,
        fields: &mut Fields,
        accel: &mut Accel,
    ) -> Answer {
        let forward = &self.pass.forward;
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
        let is_visible = |name: &[u8]| match self.pass.family {
            Family::Proxy | Family::Grpc => forward.visible.has(name),
            Family::FastCgi | Family::Scgi | Family::Uwsgi => forward.visible.has_of_gateway(name),
        };
        for (name, value) in head.fields.iter().filter(|(name, _)| is_visible(name)) {
            let new = match name.len() {
                8 if name.eq_ignore_ascii_case(b"location") => self.location(value),
                7 if name.eq_ignore_ascii_case(b"refresh") => {
                    refresh(value, |url| self.redirect(url))
                }
                10 if name.eq_ignore_ascii_case(b"set-cookie") => {
                    self.changes.and_then(|changes| changes.cookie(self.pass, value))
                }
                _ => None,
            };
            fields.push(name, new.as_deref().unwrap_or(value));
        }
        if self.changes.is_some_and(|changes| changes.is_exhausted.take()) {
            return Answer::Undecided;
        }
        let says_length = self.is_head || head.has_body || code == 304;
        let length = if says_length { head.content_length } else { Some(0) };
        Answer::Given(head.status, length)
    }
}

fn has_accel(fields: &Fields) -> bool {
    fields.iter().any(|(name, _)| name.len() > 8 && name[..8].eq_ignore_ascii_case(b"x-accel-"))
}
