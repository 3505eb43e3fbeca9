//! Variables about upstream servers: where a request is passed, and the result.

use std::time::Duration;

use sekisho_config::{Family, Matched, PassTo, UpstreamVariable};
use sekisho_http::Fields;
use sekisho_upstream::cache::CacheStatus;
use sekisho_upstream::fields::add_forwarded_for;

use super::{Scope, push_number, push_seconds};
use crate::address::push_ip;
use crate::upstream_facts::UpstreamTry;

impl Scope<'_> {
    pub(super) fn push_upstream(&self, variable: &UpstreamVariable, out: &mut Vec<u8>) {
        use UpstreamVariable as U;
        let facts = &self.route_state.upstream;
        let time = |time: Option<Duration>, out: &mut Vec<u8>| match time {
            Some(time) => push_seconds(time.as_secs(), time.subsec_millis(), out),
            None => out.push(b'-'),
        };
        match variable {
            U::Addr => {
                self.each_try(out, |one, out| out.extend_from_slice(one.name.as_bytes()));
            }
            U::Status => self.each_try(out, |one, out| match one.status {
                Some(status) => push_number(u64::from(status.code()), out),
                None => out.push(b'-'),
            }),
            U::ConnectTime => self.each_try(out, |one, out| time(one.connect_time, out)),
            U::HeaderTime => self.each_try(out, |one, out| time(one.header_time, out)),
            U::ResponseTime => self.each_try(out, |one, out| time(one.response_time, out)),
            U::ResponseLength => self.each_try(out, |one, out| push_number(one.body, out)),
            U::BytesReceived => self.each_try(out, |one, out| push_number(one.received, out)),
            U::BytesSent => self.each_try(out, |one, out| push_number(one.sent, out)),
            U::CacheStatus => {
                let status = facts.cache.map(CacheStatus::as_str);
                out.extend_from_slice(status.unwrap_or_default().as_bytes());
            }
            U::Http(name) => push_values(&facts.fields, name, out),
            U::Trailer(name) => push_values(&facts.trailers, name, out),
            U::Cookie(name) => {
                let values = facts.fields.all(b"set-cookie");
                let found = values.filter_map(|value| {
                    let pair = value.split(|byte| *byte == b';').next().unwrap_or_default();
                    let equals = pair.iter().position(|byte| *byte == b'=')?;
                    let (own, value) = (pair[..equals].trim_ascii(), &pair[equals + 1..]);
                    own.eq_ignore_ascii_case(name.as_bytes()).then_some(value.trim_ascii())
                });
                out.extend_from_slice(found.last().unwrap_or_default());
            }
            U::ProxyHost | U::ProxyPort => {
                let Some(pass) = self.settings().pass.as_deref() else { return };
                match &pass.to {
                    _ if pass.family != Family::Proxy => {}
                    PassTo::Named(to) if *variable == U::ProxyHost => {
                        out.extend_from_slice(to.host.as_bytes());
                    }
                    PassTo::Named(to) => push_number(u64::from(to.port), out),
                    PassTo::Computed(template) => {
                        let mut url = Vec::new();
                        self.nested(template, &mut url);
                        let (host, port) = host_and_port(&url);
                        match (variable, port) {
                            (U::ProxyHost, _) => out.extend_from_slice(host),
                            (_, port) => out.extend_from_slice(port),
                        }
                    }
                }
            }
            U::ProxyAddForwardedFor => {
                let mut client = Vec::new();
                match self.route_state.client(self.request.connection) {
                    Some(address) => push_ip(address.ip(), &mut client),
                    None => client.extend_from_slice(b"unix:"),
                }
                let fields = self.request.head.values_like(None, b"x-forwarded-for");
                out.extend_from_slice(&add_forwarded_for(fields, &client));
            }
            U::FastCgiScriptName => self.push_script(false, out),
            U::FastCgiPathInfo => self.push_script(true, out),
        }
    }

    fn each_try(&self, out: &mut Vec<u8>, write: impl Fn(&UpstreamTry, &mut Vec<u8>)) {
        for (at, one) in self.route_state.upstream.tries.iter().enumerate() {
            if at > 0 {
                out.extend_from_slice(if one.is_elsewhere { b" : " } else { b", " });
            }
            write(one, out);
        }
    }

    /// `$fastcgi_script_name` and `$fastcgi_path_info`
    fn push_script(&self, is_info: bool, out: &mut Vec<u8>) {
        let path = &self.route_state.path;
        let forward = self.settings().pass.as_deref().map(|pass| &pass.forward);
        let mut groups = Vec::new();
        let split = forward.and_then(|forward| forward.split_path_info.as_deref());
        let split = split.map(|pattern| pattern.regex.captures(path, &mut groups));
        if split == Some(Matched::Exhausted) {
            return self.exhaust(if is_info { "fastcgi_path_info" } else { "fastcgi_script_name" });
        }
        let is_split = split == Some(Matched::Yes);
        // The whole match is not among them.
        let group = |at: usize| {
            let range = groups.get(at).cloned().flatten()?;
            path.get(range)
        };
        let (script, info) = if is_split {
            (group(0).unwrap_or_default(), group(1).unwrap_or_default())
        } else {
            (path.as_slice(), &[][..])
        };
        if is_info {
            return out.extend_from_slice(info);
        }
        out.extend_from_slice(script);
        if script.last() == Some(&b'/')
            && let Some(forward) = forward
        {
            out.extend_from_slice(&forward.index);
        }
    }
}

/// All values of a field, as one.
fn push_values(fields: &Fields, name: &str, out: &mut Vec<u8>) {
    for (at, value) in fields.all(name.as_bytes()).enumerate() {
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
    }
}

/// The host of a URL as it is written, with its port if it has one; and the port that is meant.
fn host_and_port(url: &[u8]) -> (&[u8], &[u8]) {
    let (rest, default): (&[u8], &[u8]) = match (url.get(..7), url.get(..8)) {
        (Some(start), _) if start.eq_ignore_ascii_case(b"http://") => (&url[7..], b"80"),
        (_, Some(start)) if start.eq_ignore_ascii_case(b"https://") => (&url[8..], b"443"),
        _ => (url, b""),
    };
    let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
    let host = &rest[..end];
    let behind_brackets = host.iter().rposition(|byte| *byte == b']').unwrap_or(0);
    let port = host[behind_brackets..].iter().position(|byte| *byte == b':');
    (host, port.map_or(default, |at| &host[behind_brackets + at + 1..]))
}
