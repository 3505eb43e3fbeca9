//! The native endpoint: its addresses, its limits, and which clients may control the server through it.

mod identity;

use std::time::Duration;

use super::{Context, ENDPOINT, MAIN, Row, active, block, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::listen::addresses;
use crate::model::{Admin, ListenAddress, ListenOptions};
use crate::report::did_you_mean;
use crate::value;

/// A request's slot is a number of 16 bits.
const REQUESTS_MAX: usize = 1 << 16;
/// Below this not even a list of sessions gets through.
const BYTES_MIN: u64 = 4096;
const BYTES_MAX: u64 = 1 << 30;

/// A turn of a worker is not held up for longer.
const SPIN_MICROS_MAX: u64 = 1000;

pub(super) const ROWS: &[Row] = &[
    block("endpoint", MAIN, "", Context::Endpoint, "The native endpoint (ours)").once(),
    active(
        "listen",
        ENDPOINT,
        "address [option] ...",
        "",
        "An address for native sessions (ours): `ADDRESS:PORT`, or `unix:PATH` with `mode=0660` for the file and `ipc` for shared memory; `ssl` for TLS over TCP; `backlog=N`",
        listen,
    )
    .repeated(),
    active(
        "services",
        ENDPOINT,
        "all|name ...",
        "all",
        "The services that are offered at these addresses (ours): `control`, `http` and those that the program has, of which `echo` is always one",
        services,
    ),
    active(
        "http_addresses",
        ENDPOINT,
        "address ...",
        "",
        "The `listen` addresses of HTTP servers that sessions reach through the service `http`; without it only sessions that may control the server reach any (ours)",
        http_addresses,
    ),
    active(
        "admin",
        ENDPOINT,
        "user|group|uid name ...",
        "",
        "Who may control the server over a local socket, beside root and the server's own user (ours)",
        admin,
    )
    .repeated(),
    active(
        "credential_file",
        ENDPOINT,
        "file|off",
        "off",
        "A client that sends the content of this file may control the server, over TCP too (ours)",
        |_, d, s| {
            let file = &d.arg(0).text;
            s.main.endpoint.credential_file = (**file != *b"off").then(|| s.path(file));
            Ok(())
        },
    ),
    active(
        "token_file",
        ENDPOINT,
        "file|off",
        "off",
        "Tokens by which clients prove who they are (ours): a line for each, `NAME:TOKEN`, with tokens of at least 16 bytes",
        |_, d, s| {
            let file = &d.arg(0).text;
            s.main.endpoint.token_file = (**file != *b"off").then(|| s.path(file));
            Ok(())
        },
    ),
    active(
        "password_file",
        ENDPOINT,
        "file|off",
        "off",
        "Users and passwords by which native clients prove who they are (ours), as for `auth_basic_user_file`",
        |_, d, s| {
            let file = &d.arg(0).text;
            s.main.endpoint.password_file = (**file != *b"off").then(|| s.path(file));
            Ok(())
        },
    ),
    active(
        "allow_identity",
        ENDPOINT,
        "who ...",
        "",
        "Which clients may begin a native session (ours): `all`, `anonymous`, `identified`, `unix:USER`, `group:GROUP`, `token:NAME`, `user:NAME`, `certificate:SUBJECT`, `address:NETWORK`; without it all",
        identity::allow,
    )
    .repeated(),
    active(
        "permit",
        ENDPOINT,
        "service [read|full] who ...",
        "",
        "Which callers may call a service, by whatever protocol (ours): `who` as for `allow_identity`. A service without it is for all; `control` has `read` (see all, change nothing) and `full`",
        identity::permit,
    )
    .repeated(),
    active(
        "sessions_max",
        ENDPOINT,
        "number",
        "1024",
        "The maximum number of sessions; further ones get `RESOURCE_LIMIT_REACHED` (ours)",
        |_, d, s| set(&mut s.main.endpoint.sessions_max, count(d, u32::MAX as usize)),
    ),
    active(
        "sessions_per_address",
        ENDPOINT,
        "number|auto",
        "auto",
        "The maximum number of sessions of one address: an IPv4 address, an IPv6 /64 network, a local user; `auto` is three quarters (ours)",
        |_, d, s| {
            let is_auto = *d.arg(0).text == *b"auto";
            let count = if is_auto { Ok(None) } else { count(d, u32::MAX as usize).map(Some) };
            set(&mut s.main.endpoint.sessions_per_address, count)
        },
    ),
    active(
        "sessions_per_identity",
        ENDPOINT,
        "number|off",
        "off",
        "The maximum number of sessions of one identity, wherever they come from (ours)",
        |_, d, s| set(&mut s.main.endpoint.sessions_per_identity, count_or_off(d)),
    ),
    active(
        "requests_per_identity",
        ENDPOINT,
        "number|off",
        "off",
        "The maximum number of running calls of one identity, over all sessions and protocols (ours)",
        |_, d, s| set(&mut s.main.endpoint.requests_per_identity, count_or_off(d)),
    ),
    active(
        "requests_per_address",
        ENDPOINT,
        "number|off",
        "off",
        "The maximum number of running calls of one address, over all sessions and protocols (ours)",
        |_, d, s| set(&mut s.main.endpoint.requests_per_address, count_or_off(d)),
    ),
    active(
        "admin_sessions",
        ENDPOINT,
        "number",
        "8",
        "The number of additional sessions for operators, however full the server is (ours)",
        |_, d, s| set(&mut s.main.endpoint.admin_sessions, count(d, u32::MAX as usize)),
    ),
    active(
        "requests_per_session",
        ENDPOINT,
        "number",
        "256",
        "The maximum number of running requests of a session, from 1 to 65536 (ours)",
        |_, d, s| set(&mut s.main.endpoint.requests_per_session, count(d, REQUESTS_MAX)),
    ),
    active(
        "channels_per_session",
        ENDPOINT,
        "number",
        "64",
        "How many channels of a session may be undrained at once, from 1 to 65536 (ours)",
        |_, d, s| set(&mut s.main.endpoint.channels_per_session, count(d, REQUESTS_MAX)),
    ),
    active(
        "frame_bytes_max",
        ENDPOINT,
        "size",
        "1m",
        "The longest request, result or record (ours)",
        |_, d, s| set(&mut s.main.endpoint.frame_bytes_max, bytes(d)),
    ),
    active(
        "channel_bytes_max",
        ENDPOINT,
        "size",
        "256k",
        "How much of a channel the server buffers for a slow client (ours)",
        |_, d, s| set(&mut s.main.endpoint.channel_bytes_max, bytes(d)),
    ),
    active(
        "handshake_timeout",
        ENDPOINT,
        "time|off",
        "10s",
        "The time from connecting to the end of the first message; bytes do not extend it (ours)",
        |_, d, s| set(&mut s.main.endpoint.handshake_timeout, d.deadline(0)),
    ),
    active(
        "frame_timeout",
        ENDPOINT,
        "time|off",
        "10s",
        "The time from a frame's first byte to its last; each 16 KiB extend it by the same time (ours)",
        |_, d, s| set(&mut s.main.endpoint.frame_timeout, d.deadline(0)),
    ),
    active(
        "session_timeout",
        ENDPOINT,
        "time|off",
        "300s",
        "How long a session lives without traffic (ours)",
        |_, d, s| set(&mut s.main.endpoint.session_timeout, d.deadline(0)),
    ),
    active(
        "session_lifetime_max",
        ENDPOINT,
        "time",
        "1h",
        "How far into the future a session may extend its life (ours)",
        |_, d, s| set(&mut s.main.endpoint.session_lifetime_max, d.time(0)),
    ),
    active(
        "spin",
        ENDPOINT,
        "microseconds|off",
        "off",
        "How long a session through shared memory (`ipc`) looks for the next bytes before it sleeps, from `1us` to `1000us` (ours): an answer that comes sooner costs no wakeup, at the price of the worker's time; a session that looks in vain looks for half as long the next time",
        |_, d, s| set(&mut s.main.endpoint.spin, spin(d)),
    ),
];

fn listen(_: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let wrong = |reason: String| {
        Fault::at(word, format!("{reason} in \"{}\" of the \"listen\" directive", word.shown()))
    };
    let found = addresses(&word.text).map_err(wrong)?;
    if matches!(found[..], [ListenAddress::Tcp(_), ..]) && !has_port(d.text(word)?) {
        // HTTP's port is not ours.
        return Err(Fault::at(word, "a native endpoint has no default port: add one"));
    }
    let mut options = ListenOptions::default();
    for word in &d.args()[1..] {
        let text = d.text(word)?;
        let wrong = || Fault::at(word, format!("invalid parameter \"{text}\""));
        match text.split_once('=') {
            None if text == "ipc" => {
                if !matches!(found[..], [ListenAddress::Unix(_)]) {
                    return Err(Fault::at(word, "\"ipc\" begins at a Unix socket"));
                }
                options.ipc = true;
            }
            None if text == "ssl" => {
                if !matches!(found[..], [ListenAddress::Tcp(_), ..]) {
                    return Err(Fault::at(word, "\"ssl\" is for TCP"));
                }
                options.tls = true;
            }
            Some(("mode", mode)) => {
                if !matches!(found[..], [ListenAddress::Unix(_)]) {
                    return Err(Fault::at(word, "\"mode\" is for the file of a Unix socket"));
                }
                let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777);
                options.mode = Some(mode.ok_or_else(wrong)?);
            }
            Some(("backlog", number)) => {
                let number = value::number(number).ok().and_then(|n| u32::try_from(n).ok());
                options.backlog = Some(number.filter(|n| *n > 0).ok_or_else(wrong)?);
            }
            _ => {
                let known = ["ipc", "ssl", "mode=", "backlog="];
                return Err(wrong().help(did_you_mean(text, known.into_iter())));
            }
        }
    }
    let listens = &mut s.main.endpoint.listens;
    for address in found {
        if listens.iter().any(|(other, _)| *other == address) {
            return Err(Fault::at(word, format!("a duplicate listen {}", word.shown())));
        }
        s.endpoint_places.push((address.clone(), word.span));
        listens.push((address, options.clone()));
    }
    Ok(())
}

/// Whether an address says its port.
fn has_port(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let host = text.rsplit_once(':').map(|(host, _)| host);
    is_number || host.is_some_and(|host| !host.contains(':') || host.ends_with(']'))
}

fn services(_: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let known: Vec<&str> = ["control", "http"]
        .into_iter()
        .chain(s.options.services.iter().map(String::as_str))
        .collect();
    let mut wanted: Vec<String> = Vec::new();
    for word in d.args() {
        let text = d.text(word)?;
        if text == "all" {
            wanted.extend(known.iter().map(|name| (*name).to_owned()));
        } else if known.contains(&text) {
            wanted.push(text.to_owned());
        } else {
            let fault = d.invalid(word, "is not a service of this program");
            return Err(fault.help(did_you_mean(text, known.into_iter())));
        }
    }
    wanted.sort_unstable();
    wanted.dedup();
    s.main.endpoint.services = wanted;
    Ok(())
}

fn http_addresses(_: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    for word in d.args() {
        let wrong = |reason: String| Fault::at(word, format!("{reason} in \"{}\"", word.shown()));
        let found = addresses(&word.text).map_err(wrong)?;
        s.http_places.extend(found.iter().map(|address| (address.clone(), word.span)));
        s.main.endpoint.http_addresses.extend(found);
    }
    Ok(())
}

fn admin(_: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    for word in &d.args()[1..] {
        let text = d.text(word)?;
        let admin = match &*d.arg(0).text {
            b"user" => Admin::User(text.to_owned()),
            b"group" => Admin::Group(text.to_owned()),
            b"uid" => Admin::Uid(
                value::number(text)
                    .ok()
                    .and_then(|number| u32::try_from(number).ok())
                    .ok_or_else(|| d.invalid(word, "is not the number of a user"))?,
            ),
            _ => return Err(d.invalid(d.arg(0), "must be \"user\", \"group\" or \"uid\"")),
        };
        s.main.endpoint.admins.push(admin);
    }
    Ok(())
}

fn count(d: &Directive<'_>, max: usize) -> Result<u32, Fault> {
    match d.count(0) {
        Ok(count) if count <= max => Ok(count as u32),
        Err(fault) if value::number(d.text(d.arg(0))?).is_err() => Err(fault),
        _ => Err(d.invalid(d.arg(0), &format!("must be from 1 to {max}"))),
    }
}

fn spin(d: &Directive<'_>) -> Result<Duration, Fault> {
    let word = d.arg(0);
    let text = d.text(word)?;
    if text == "off" {
        return Ok(Duration::ZERO);
    }
    let micros = text.strip_suffix("us").and_then(|digits| value::number(digits).ok());
    let micros = micros.filter(|micros| (1..=SPIN_MICROS_MAX).contains(micros));
    let wanted = "is neither \"off\" nor from 1us to 1000us";
    micros.map(Duration::from_micros).ok_or_else(|| d.invalid(word, wanted))
}

fn count_or_off(d: &Directive<'_>) -> Result<Option<u32>, Fault> {
    if *d.arg(0).text == *b"off" { Ok(None) } else { count(d, u32::MAX as usize).map(Some) }
}

fn bytes(d: &Directive<'_>) -> Result<u32, Fault> {
    let size = Some(d.size(0)?).filter(|size| (BYTES_MIN..=BYTES_MAX).contains(size));
    size.map(|size| size as u32).ok_or_else(|| d.invalid(d.arg(0), "must be from 4k to 1g"))
}
