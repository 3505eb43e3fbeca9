//! What is sent to a server, made once for a request: every try sends the same.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sekisho_config::{
    Family, Forward, Pass, PassTo, Resolver, Template, UpstreamPlace, UpstreamTls,
};
use sekisho_gateway::push_http_params;
use sekisho_http::target::split_authority;
use sekisho_http::upstream::push_end_to_end;
use sekisho_http::{Fields, Status, Version};
use sekisho_route::{Request, RouteState, Table, expand, push_origin};
use sekisho_upstream::request::Try;
use sekisho_upstream::rewrite::{TargetParts, upstream_target};

use super::group::{Group, declared};
use super::pool::Pools;
use super::resolve::names_of;
use super::tls::{Secure, UpstreamTlsConfigs};

/// The request as it leaves, but for its body.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) method: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) version: Option<Version>,
    pub(super) pairs: Fields,
    /// `https://`
    pub(super) is_tls: bool,
    /// `$proxy_host`: the name that a certificate must have.
    pub(super) host: Vec<u8>,
    /// What goes before a path that `proxy_redirect` makes.
    pub(super) origin: Vec<u8>,
    /// Memory for the tries of a request.
    pub(super) tries: Vec<Try>,
}

impl Plan {
    /// Nothing of the request before is left.
    pub(super) fn clear(&mut self) {
        let Self { method, target, version, pairs, is_tls, host, origin, tries: _ } = self;
        for text in [method, target, host, origin] {
            text.clear();
        }
        pairs.clear();
        (*version, *is_tls) = (None, false);
    }

    /// The memory that it holds.
    pub(super) fn capacity(&self) -> usize {
        let Self { method, target, pairs, host, origin, tries, .. } = self;
        method.capacity()
            + target.capacity()
            + pairs.capacity()
            + host.capacity()
            + origin.capacity()
            + tries.capacity() * size_of::<Try>()
    }
}

/// What a plan is made from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) table: &'a Table,
    pub(super) request: &'a Request<'a>,
    pub(super) route_state: &'a RouteState,
}

/// Why no request can be made.
#[derive(Debug)]
pub(super) struct NoPlan(pub(super) Status, pub(super) String);

impl Source<'_> {
    pub(super) fn value(&self, template: &Template) -> Vec<u8> {
        let mut value = Vec::new();
        self.push_value(template, &mut value);
        value
    }

    fn push_value(&self, template: &Template, out: &mut Vec<u8>) {
        match template.as_literal() {
            Some(text) => out.extend_from_slice(text),
            None => expand(template, self.table, self.request, self.route_state, None, out),
        }
    }

    /// How connections to this host are encrypted; an error says why they cannot be.
    pub(super) fn secure(
        &self,
        configs: &UpstreamTlsConfigs,
        settings: &UpstreamTls,
        host: &[u8],
    ) -> Result<Secure, String> {
        let ready = configs.get(settings).ok_or("no settings for TLS")?;
        let wall = self.request.wall;
        let now = Duration::new(wall.unix_secs.max(0) as u64, wall.nanos);
        Secure::new(ready, settings, host, now, |template| self.value(template))
    }

    /// An address, with a port or without; `None` where the value is none.
    pub(super) fn address(&self, template: &Template) -> Option<SocketAddr> {
        let text = String::from_utf8(self.value(template)).ok()?;
        let address = text.parse().map(|ip| SocketAddr::new(ip, 0));
        address.or_else(|_| text.parse()).ok()
    }

    /// The group that is asked, and the request for it.
    pub(super) fn plan(
        &self,
        pass: &Pass,
        groups: &[Arc<Group>],
        pools: &Pools,
    ) -> Result<(Arc<Group>, Plan), NoPlan> {
        let mut plan = pools.borrow_plan();
        let mut computed = Vec::new();
        let (group, uri, is_computed) = match &pass.to {
            PassTo::Named(to) => {
                let Some(group) = groups.get(to.group.0 as usize) else {
                    return Err(NoPlan(Status::INTERNAL_SERVER_ERROR, "no such group".to_owned()));
                };
                plan.is_tls = to.is_tls;
                plan.host.extend_from_slice(to.host.as_bytes());
                (Arc::clone(group), to.uri.as_deref(), false)
            }
            PassTo::Computed(template) => {
                self.push_value(template, &mut computed);
                let resolver = &self.table.location(self.route_state.location).settings.resolver;
                let known = Known { groups, resolver };
                let (group, uri) = computed_group(pass.family, &computed, known, &mut plan)?;
                (group, uri, uri.is_some())
            }
        };
        let RouteState { method, .. } = *self.route_state;
        let head = self.request.head;
        match (&pass.forward.method, method.name()) {
            (Some(template), _) => {
                self.push_value(template, &mut plan.method);
                plan.method.make_ascii_uppercase();
            }
            // An `error_page` asks with GET.
            (None, Some(name)) if method != head.method() => {
                plan.method.extend_from_slice(name.as_bytes());
            }
            (None, _) => plan.method.extend_from_slice(head.method_name()),
        }
        if !pass.forward.redirects.is_empty() {
            push_origin(self.table, self.request, self.route_state, &mut plan.origin);
        }
        match pass.family {
            Family::Proxy | Family::Grpc => {
                self.target(pass, uri, is_computed, &mut plan.target);
                self.fields(pass.family, &pass.forward, &mut plan);
                if head.asks_tunnel() && plan.pairs.get("sec-websocket-key").is_none() {
                    plan.pairs.push(b"Sec-WebSocket-Key", websocket_key(|| pools.random()));
                }
                plan.version = Some(pass.forward.http_version);
            }
            Family::FastCgi | Family::Scgi | Family::Uwsgi => {
                self.params(&pass.forward, &mut plan.pairs);
            }
        }
        Ok((group, plan))
    }

    fn target(&self, pass: &Pass, uri: Option<&[u8]>, is_computed: bool, out: &mut Vec<u8>) {
        let target = self.request.head.target();
        let original = split_authority(target).map_or(target, |(_, rest)| rest);
        let route_state = self.route_state;
        // A path must begin with a slash whatever the client wrote behind the authority.
        if !original.starts_with(b"/") && uri.is_none() && !route_state.is_moved {
            out.push(b'/');
        }
        let parts = TargetParts {
            pass: uri,
            location: &pass.location,
            original,
            path: &route_state.path,
            query: Some(&route_state.query),
            is_rewritten: route_state.is_moved,
            is_in_place: route_state.is_rewritten,
            is_computed,
        };
        upstream_target(&parts, out);
    }

    /// The client's fields, and what `proxy_set_header` puts in their place.
    fn fields(&self, family: Family, forward: &Forward, plan: &mut Plan) {
        let is_set = |name: &[u8]| {
            forward.set_headers.iter().any(|(set, _)| name.eq_ignore_ascii_case(set.as_bytes()))
        };
        if !is_set(b"host") {
            plan.pairs.push(b"Host", &plan.host);
        }
        for (name, value) in forward.set_headers.iter() {
            if value.as_literal() == Some(b"") {
                continue;
            }
            // An empty value is left out.
            plan.pairs.push_unless_empty(name.as_bytes(), |out| self.push_value(value, out));
        }
        // HTTP/1.0 does without `Host` (a client of HTTP/1.0 may have sent none); later versions need one.
        if forward.http_version != Version::Http10 && plan.pairs.get("host").is_none() {
            plan.pairs.push(b"Host", &plan.host);
        }
        if !forward.pass_request_headers {
            return;
        }
        let head = self.request.head;
        push_end_to_end(head, &mut plan.pairs, is_set);
        // A gRPC client that takes trailers says so, and its server wants to know it.
        let wants_trailers = |value: &[u8]| {
            let mut words = value.split(|byte| *byte == b',');
            words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers"))
        };
        let mut said = head.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"te"));
        if family == Family::Grpc && !is_set(b"te") && said.any(|(_, value)| wants_trailers(value))
        {
            plan.pairs.push(b"te", b"trailers");
        }
    }

    fn params(&self, forward: &Forward, out: &mut Fields) {
        for param in forward.params.iter() {
            // As in nginx, a parameter of this kind that is set to nothing removes the client's field.
            if param.name.starts_with("HTTP_") && param.value.as_literal() == Some(b"") {
                continue;
            }
            if param.is_optional {
                out.push_unless_empty(param.name.as_bytes(), |out| {
                    self.push_value(&param.value, out);
                });
            } else {
                out.push_with(param.name.as_bytes(), |out| self.push_value(&param.value, out));
            }
        }
        if forward.pass_request_headers {
            let is_set = |name: &[u8]| forward.params.iter().any(|it| it.name.as_bytes() == name);
            push_http_params(self.request.head, is_set, out);
        }
    }
}

/// The key of a WebSocket handshake (RFC 6455 §4.1), which a client of HTTP/2 or HTTP/3 does not send: 16 random bytes
/// in base64.
fn websocket_key(mut random: impl FnMut() -> u32) -> [u8; 24] {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut key = [b'='; 24];
    for digit in &mut key[..22] {
        *digit = DIGITS[(random() >> 26) as usize];
    }
    // The last digit has only two bits of the 128.
    key[21] = DIGITS[(random() >> 30) as usize * 16];
    key
}

/// Where a group may be known from.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) groups: &'a [Arc<Group>],
    pub(super) resolver: &'a Arc<Resolver>,
}

/// The server that an address made of variables names, and the URI after it.
fn computed_group<'c>(
    family: Family,
    computed: &'c [u8],
    known: Known<'_>,
    plan: &mut Plan,
) -> Result<(Arc<Group>, Option<&'c [u8]>), NoPlan> {
    let wrong = |why: &str| {
        let address = computed.escape_ascii();
        NoPlan(Status::INTERNAL_SERVER_ERROR, format!("{why} in upstream \"{address}\""))
    };
    let text = std::str::from_utf8(computed).map_err(|_| wrong("no host"))?;
    let scheme = |scheme: &str| {
        let start = text.get(..scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then(|| &text[scheme.len()..])
    };
    let (rest, port) = match (family, scheme("http://"), scheme("https://")) {
        (Family::Proxy, Some(rest), _) => (rest, 80),
        (Family::Proxy, _, Some(rest)) => {
            plan.is_tls = true;
            (rest, 443)
        }
        (Family::Proxy, ..) => return Err(wrong("invalid URL prefix")),
        (Family::Grpc | Family::Uwsgi, ..) => {
            let is_grpc = family == Family::Grpc;
            let (clear, secured) =
                if is_grpc { ("grpc://", "grpcs://") } else { ("uwsgi://", "suwsgi://") };
            match (scheme(clear), scheme(secured)) {
                (_, Some(rest)) => {
                    plan.is_tls = true;
                    (rest, 0)
                }
                (rest, None) => (rest.unwrap_or(text), 0),
            }
        }
        _ => (text, 0),
    };
    let (address, uri) = match family {
        Family::Proxy => sekisho_config::split_url(rest),
        _ => (rest, ""),
    };
    let uri = Some(uri.as_bytes()).filter(|uri| !uri.is_empty());
    let is_socket = address.starts_with("unix:");
    plan.host = if is_socket { b"localhost".to_vec() } else { address.as_bytes().to_vec() };
    Ok((group_at(address, port, known)?, uri))
}

/// The group of an address that variables made; `port` is the one where none is said, 0 for none.
pub(super) fn group_at(address: &str, port: u16, known: Known<'_>) -> Result<Arc<Group>, NoPlan> {
    let wrong = |why: &str| {
        NoPlan(Status::INTERNAL_SERVER_ERROR, format!("{why} in upstream \"{address}\""))
    };
    if let Some(group) = declared(known.groups, address) {
        return Ok(Arc::clone(group));
    }
    let place = UpstreamPlace::parse(address, port).map_err(wrong)?;
    if matches!(place, UpstreamPlace::Tcp(_, 0)) {
        return Err(wrong("no port"));
    }
    // The same address may be used elsewhere in the configuration: then its connections are shared.
    let group = match (&place, Group::of_place(address, &place)) {
        (_, Some(group)) => group,
        (UpstreamPlace::Tcp(host, port), None) if !known.resolver.servers.is_empty() => {
            let name = format!("{host}:{port}");
            Group::of_names(address, names_of(known.resolver, &name, host, *port))
        }
        (place, None) => {
            let host = match place {
                UpstreamPlace::Tcp(host, _) => host.as_str(),
                UpstreamPlace::Unix(_) => address,
            };
            let why = format!("no resolver defined to resolve {host}");
            return Err(NoPlan(Status::BAD_GATEWAY, why));
        }
    };
    Ok(Arc::new(group))
}
