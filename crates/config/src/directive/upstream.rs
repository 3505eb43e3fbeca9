//! `upstream` blocks: groups of servers that requests are passed to, and how one of them is chosen.

use std::net::IpAddr;

use super::{Context, HTTP, Row, STREAM, UPSTREAM, UPSTREAMS, active, block, nothing, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{UpstreamGroup, UpstreamPlace, UpstreamServer};
use crate::value;
use sekisho_upstream::{Method, PeerSettings};

pub(super) const ROWS: &[Row] = &[
    block("upstream", HTTP, "name", Context::Upstream, "A group of servers that requests are passed to"),
    block("upstream", STREAM, "name", Context::StreamUpstream, "A group of servers that connections and datagrams are passed to"),
    active(
        "server",
        UPSTREAMS,
        "address [parameter] ...",
        "",
        "A server of the group: host and port or `unix:` and a path, with `weight=`, `max_conns=`, `max_fails=`, `fail_timeout=`, `slow_start=`, `route=`, `backup`, `down`, `drain`, and `resolve` for a name that is looked up while the server runs",
        server,
    )
    .repeated(),
    active(
        "zone",
        UPSTREAMS,
        "name [size]",
        "",
        "Accepted: the state of a group is always shared by all workers. `health_check` needs it, as in nginx",
        nothing,
    ),
    active(
        "least_conn",
        UPSTREAMS,
        "",
        "",
        "Chooses the server with the fewest running requests",
        |l, d, _| choose(l, d, Method::LeastConnections),
    ),
    active(
        "ip_hash",
        UPSTREAMS,
        "",
        "",
        "Chooses the server by the client's address",
        |l, d, _| choose(l, d, Method::IpHash),
    ),
    active(
        "hash",
        UPSTREAMS,
        "key [consistent]",
        "",
        "Chooses the server by a key; `consistent` is ketama, as in nginx",
        |l, d, s| {
            let method = match d.args().get(1) {
                None => Method::Hash,
                Some(word) if &*word.text == b"consistent" => Method::ConsistentHash,
                Some(word) => return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown()))),
            };
            let key = d.template(d.arg(0), s)?;
            if let Some(group) = &mut l.group {
                group.key = Some(key);
            }
            choose(l, d, method)
        },
    ),
    active(
        "random",
        UPSTREAMS,
        "[two] [method]",
        "",
        "Chooses a random server; with `two` the better of two, by `least_conn`",
        |l, d, _| {
            let words: Vec<&[u8]> = d.args().iter().map(|word| &*word.text).collect();
            let method = match words.as_slice() {
                [] => Method::Random,
                [b"two"] | [b"two", b"least_conn"] => Method::RandomTwo,
                _ => return Err(d.not_built(d.arg(words.len() - 1))),
            };
            choose(l, d, method)
        },
    ),
    active(
        "keepalive",
        UPSTREAM,
        "connections",
        "",
        "How many idle connections to the group each worker keeps",
        |l, d, _| {
            let count = d.count(0)?;
            change(l, |group| group.keepalive.connections = count)
        },
    ),
    active(
        "keepalive_requests",
        UPSTREAM,
        "number",
        "",
        "How many requests one connection to a server carries (1000)",
        |l, d, _| {
            let count = d.number(0)?;
            change(l, |group| group.keepalive.requests = count)
        },
    ),
    active(
        "keepalive_time",
        UPSTREAM,
        "time",
        "",
        "How old a connection to a server may become (1h)",
        |l, d, _| {
            let time = d.deadline(0)?;
            change(l, |group| group.keepalive.time = time)
        },
    ),
    active(
        "keepalive_timeout",
        UPSTREAM,
        "time",
        "",
        "How long a connection to a server may be idle (60s)",
        |l, d, _| {
            let time = d.deadline(0)?;
            change(l, |group| group.keepalive.timeout = time)
        },
    ),
];

#[expect(clippy::unnecessary_wraps, reason = "the end of every apply function")]
fn change(l: &mut Level, change: impl FnOnce(&mut UpstreamGroup)) -> Result<(), Fault> {
    if let Some(group) = &mut l.group {
        change(group);
    }
    Ok(())
}

fn choose(l: &mut Level, d: &Directive<'_>, method: Method) -> Result<(), Fault> {
    let Some(group) = &mut l.group else { return Ok(()) };
    if group.method != Method::RoundRobin {
        return Err(Fault::new(format!("\"{}\": load balancing method is redefined", d.row.name)));
    }
    group.method = method;
    Ok(())
}

fn server(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let text = d.text(word)?;
    let wrong = |why: &str| Fault::at(word, format!("{why} in upstream \"{text}\""));
    // Only HTTP has a port of its own.
    let port = if l.context == Context::StreamUpstream { 0 } else { 80 };
    let place = UpstreamPlace::parse(text, port).map_err(wrong)?;
    if matches!(place, UpstreamPlace::Tcp(_, 0)) {
        return Err(wrong("no port"));
    }
    let mut peer = PeerSettings::new(text);
    let mut is_resolved = false;
    // As in nginx, what stands before the server decides.
    let method = l.group.as_ref().map_or(Method::RoundRobin, |group| group.method);
    let may_have_backup = matches!(method, Method::RoundRobin | Method::LeastConnections);
    Fault::each(&d.args()[1..], |word| {
        let text = d.text(word)?;
        let invalid = || Fault::at(word, format!("invalid parameter \"{text}\""));
        let (name, said) = text.split_once('=').unwrap_or((text, ""));
        let number = || value::number(said).ok().and_then(|number| u32::try_from(number).ok());
        let time = || value::time(said).map_err(|_| invalid());
        match name {
            "weight" => peer.weight = number().filter(|weight| *weight > 0).ok_or_else(invalid)?,
            "max_conns" => peer.max_conns = number().ok_or_else(invalid)?,
            "max_fails" => peer.max_fails = number().ok_or_else(invalid)?,
            "fail_timeout" => set(&mut peer.fail_timeout, time())?,
            "slow_start" => peer.slow_start = Some(time()?).filter(|time| !time.is_zero()),
            "backup" if said.is_empty() && !may_have_backup => {
                return Err(Fault::at(
                    word,
                    "balancing method does not support parameter \"backup\"",
                ));
            }
            "backup" if said.is_empty() => peer.is_backup = true,
            "down" if said.is_empty() => peer.is_down = true,
            "resolve" if said.is_empty() => is_resolved = true,
            "route" if !said.is_empty() => peer.route = Some(said.into()),
            "drain" if said.is_empty() => peer.is_drained = true,
            "service" => return Err(d.not_built(word)),
            _ => return Err(invalid()),
        }
        Ok(())
    })?;
    // An address need not be looked up.
    let is_resolved = is_resolved
        && matches!(&place, UpstreamPlace::Tcp(host, _) if host.parse::<IpAddr>().is_err());
    let span = Some(word.span);
    let server = UpstreamServer { peer, place, addresses: Vec::new(), is_resolved, span };
    change(l, |group| group.servers.push(server))
}
