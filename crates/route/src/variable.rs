//! Variables and the values that contain them. Nothing is remembered between two expansions and nothing
//! outside the arguments is asked.

mod database;
mod named;
mod presence;
mod tls;
mod upstream;

use std::cell::Cell;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;

use sekisho_config::{
    AssignedId, ConnectionState, Level, Map, MapId, MapValue, Part, PrereadVariable, ServerName,
    Settings, Template, Variable,
};
use sekisho_filter::slice;
use sekisho_filter::time_format::{self, Zone};
use sekisho_http::{Fields, Head, Known, ProxyAddresses, Status, Version, date, hex, target};
use sekisho_lifecycle::Moment;

pub use named::named_variable;

use crate::access_checks::LimitStatus;
use crate::address::push_ip;
use crate::capture::Captures;
use crate::credentials;
use crate::log::{push_time_iso8601, push_time_local};
use crate::path_mapping;
use crate::route_state::{Census, ConnectionFacts, Request, RouteState, WallTime};
use crate::table::Table;

/// What is known after the answer was sent, for logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent<'a> {
    /// The status; `None` when nothing was answered.
    pub status: Option<Status>,
    /// Bytes sent in all.
    pub bytes: u64,
    /// Bytes of the body that were sent.
    pub body_bytes: u64,
    /// The response's fields.
    pub fields: &'a Fields,
    /// The fields behind its body.
    pub trailers: Option<&'a Fields>,
    /// Bytes of the request: line, fields and body.
    pub request_bytes: u64,
    /// How long the body was before it was compressed; `None` where it was not.
    pub plain_bytes: Option<u64>,
    /// Whether all of the answer has left.
    pub completed: bool,
    /// The fields that the protocol itself has added to its head; `None` where none was sent.
    pub framing: Option<SentFraming>,
}

/// How the head of an answer said where it ends and what becomes of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentFraming {
    /// `Content-Length`
    pub length: Option<u64>,
    /// `Transfer-Encoding: chunked`
    pub is_chunked: bool,
    /// `Connection`; empty where the protocol has no such field.
    pub connection: &'static str,
    /// The seconds in `Keep-Alive`.
    pub keep_alive_secs: Option<u64>,
}

impl SentFraming {
    /// Appends the value of one of its fields; whether it is one of them.
    fn push(&self, name: &str, out: &mut Vec<u8>) -> bool {
        match (name, self.length, self.keep_alive_secs) {
            ("content-length", Some(length), _) => push_number(length, out),
            ("transfer-encoding", ..) if self.is_chunked => out.extend_from_slice(b"chunked"),
            ("connection", ..) => out.extend_from_slice(self.connection.as_bytes()),
            ("keep-alive", _, Some(secs)) => push_text(format_args!("timeout={secs}"), out),
            _ => return false,
        }
        true
    }
}

/// Appends a value with its variables filled in. What a variable does not have is nothing.
pub fn expand(
    template: &Template,
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    sent: Option<&Sent<'_>>,
    out: &mut Vec<u8>,
) {
    let nested = Cell::new(NESTED_MAX);
    Scope { table, request, route_state, sent, captures: &route_state.captures, nested: &nested }
        .expand(template, out);
}

/// Appends the value of one variable.
pub fn push_variable(
    variable: &Variable,
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    out: &mut Vec<u8>,
) {
    let nested = Cell::new(NESTED_MAX);
    Scope {
        table,
        request,
        route_state,
        sent: None,
        captures: &route_state.captures,
        nested: &nested,
    }
    .variable(variable, out);
}

/// How many values within values (maps, roots) one expansion may need: maps that refer to each other in a
/// circle end with an empty value.
pub(crate) const NESTED_MAX: u16 = 64;

/// Everything a variable may look at.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) table: &'a Table,
    pub(crate) request: &'a Request<'a>,
    pub(crate) route_state: &'a RouteState,
    pub(crate) sent: Option<&'a Sent<'a>>,
    /// The route state's, or those of a `map`'s key within that `map`'s value.
    pub(crate) captures: &'a Captures,
    /// How many nested values are left.
    pub(crate) nested: &'a Cell<u16>,
}

impl Scope<'_> {
    pub(crate) fn settings(&self) -> &Settings {
        &self.table.location(self.route_state.location).settings
    }

    /// What the location's `alias` replaces.
    pub(crate) fn alias_from(&self) -> path_mapping::AliasFrom {
        self.table.alias_from(self.route_state.location)
    }

    pub(crate) fn expand(&self, template: &Template, out: &mut Vec<u8>) {
        template.parts.iter().for_each(|part| self.part(part, out));
    }

    pub(crate) fn part(&self, part: &Part, out: &mut Vec<u8>) {
        match part {
            Part::Literal(text) => out.extend_from_slice(text),
            Part::Variable(variable) => self.variable(variable, out),
        }
    }

    /// A value within a value.
    pub(crate) fn nested(&self, template: &Template, out: &mut Vec<u8>) {
        if let Some(text) = template.as_literal() {
            out.extend_from_slice(text);
        } else if let Some(left) = self.nested.get().checked_sub(1) {
            self.nested.set(left);
            self.expand(template, out);
        }
    }

    /// Appends the value of a variable.
    #[expect(clippy::too_many_lines, reason = "one line for each variable")]
    pub(crate) fn variable(&self, variable: &Variable, out: &mut Vec<u8>) {
        use Variable as V;
        let Self {
            request: Request { head, connection, wall, request_id, .. }, route_state, ..
        } = self;
        let sent = self.sent.copied().unwrap_or_default();
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        match variable {
            V::Arg(name) => put(argument(&route_state.query, name.as_bytes()).unwrap_or_default()),
            V::Args | V::QueryString => put(&route_state.query),
            V::Assigned(id) => self.assigned(*id, out),
            V::BinaryRemoteAddr => match route_state.client(connection).map(|remote| remote.ip()) {
                Some(IpAddr::V4(address)) => put(&address.octets()),
                Some(IpAddr::V6(address)) => put(&address.octets()),
                None => {}
            },
            V::BodyBytesSent => push_number(sent.body_bytes, out),
            V::BytesSent => push_number(sent.bytes, out),
            V::Capture(number) => put(self.captures.numbered(*number).unwrap_or_default()),
            V::Connection => push_number(connection.id, out),
            V::ConnectionRequests => push_number(connection.requests, out),
            V::ConnectionTime => push_age(connection.since, self.request.now, out),
            V::Connections(what) => {
                let counts = self.request.census.map(Census::connections).unwrap_or_default();
                push_number(
                    match what {
                        ConnectionState::Active => counts.active,
                        ConnectionState::Reading => counts.reading,
                        ConnectionState::Writing => counts.writing,
                        ConnectionState::Waiting => counts.waiting,
                    },
                    out,
                );
            }
            V::ContentLength => put(head.known(Known::ContentLength).unwrap_or_default()),
            V::ContentType => push_request_field(head, b"content-type", out),
            V::Cookie(name) => put(self.cookie(name.as_bytes()).unwrap_or_default()),
            V::Database(at) => self.push_from_database(*at, out),
            V::DateGmt => push_date(*wall, Zone::Gmt, out),
            V::DateLocal => push_date(*wall, Zone::Local(wall.utc_offset_secs), out),
            // There is no view of symbolic links here: the real path is taken to be the given one.
            V::DocumentRoot | V::RealpathRoot => path_mapping::write_root(self, out),
            V::DocumentUri | V::Uri => put(&route_state.path),
            V::Geo(at) => self.geo(*at, out),
            V::Host if route_state.host.is_empty() => self.push_server_name(out),
            V::Host => put(&route_state.host),
            V::Hostname => put(self.table.machine().hostname.as_bytes()),
            V::Http(name) => push_request_field(head, name.as_bytes(), out),
            V::Https => put(if connection.is_tls { b"on" } else { b"" }),
            V::InvalidReferer => self.push_invalid_referer(out),
            V::IsRequestPort => put(if request_port(head).is_empty() { b"" } else { b":" }),
            V::RequestPort => put(request_port(head)),
            V::IsArgs => put(if route_state.query.is_empty() { b"" } else { b"?" }),
            V::LimitConnStatus => {
                put(route_state
                    .access_progress
                    .connections
                    .map_or("", LimitStatus::name)
                    .as_bytes());
            }
            V::LimitReqStatus => {
                put(route_state.access_progress.rate.map_or("", LimitStatus::name).as_bytes());
            }
            V::LimitRate => push_number(route_state.limit_rate.unwrap_or_default(), out),
            V::Map(id) => {
                if let Some(map) = self.table.config().http.maps.get(id.0 as usize) {
                    self.map_once(*id, map, out);
                }
            }
            V::Msec => {
                push_seconds(wall.unix_secs.max(0) as u64, wall.nanos / 1_000_000, out);
            }
            V::NamedCapture(name) => {
                let _ = self.captures.push_named(0, name, out)
                    || route_state.captures.push_named(0, name, out);
            }
            V::NginxVersion => put(env!("CARGO_PKG_VERSION").as_bytes()),
            V::Pid => push_number(u64::from(self.table.machine().pid), out),
            V::ProxyAddr => push_proxied(connection, |it| it.source, push_address, out),
            V::ProxyPort => push_proxied(connection, |it| it.source, push_port, out),
            V::ProxyServerAddr => {
                push_proxied(connection, |it| it.destination, push_address, out);
            }
            V::ProxyServerPort => push_proxied(connection, |it| it.destination, push_port, out),
            V::ProxyValue(which) => {
                if let Some(header) = connection.proxied.as_deref() {
                    header.push_value(*which, out);
                }
            }
            V::RequestBody => put(route_state.body.bytes.as_deref().map_or(b"", Vec::as_slice)),
            V::RequestBodyFile => {
                let file = route_state.body.file.as_deref().map(|file| file.as_os_str().as_bytes());
                put(file.unwrap_or_default());
            }
            V::Preread(what) => {
                let hello = route_state.client_hello.as_deref();
                put(hello.map_or(b"", |hello| match what {
                    PrereadVariable::ServerName => &hello.server_name,
                    PrereadVariable::AlpnProtocols => &hello.alpn_protocols,
                    PrereadVariable::Protocol => hello.protocol.as_bytes(),
                }));
            }
            V::Protocol => put(if connection.is_udp { b"UDP" } else { b"TCP" }),
            V::Pipe => put(if self.request.is_pipelined { b"p" } else { b"." }),
            V::RemoteAddr => push_address(route_state.client(connection), out),
            V::RemotePort => push_port(route_state.client(connection), out),
            V::RealipRemoteAddr => push_address(connection.remote, out),
            V::RealipRemotePort => push_port(connection.remote, out),
            V::RemoteUser => {
                let start = out.len();
                let field = head.known(Known::Authorization).unwrap_or_default();
                if let Some(colon) = credentials::decode(field, out) {
                    out.truncate(start + colon);
                }
            }
            // What could not be read is shown as it came.
            V::Request if head.method_name().is_empty() => put(head.unreadable()),
            V::Request => {
                put(head.method_name());
                put(b" ");
                put(head.target());
                put(b" ");
                put(head.version().as_str().as_bytes());
            }
            V::RequestCompletion => put(if sent.completed { b"OK" } else { b"" }),
            V::RequestFilename if route_state.file.is_empty() => {
                let mut file = Vec::new();
                path_mapping::write_file(self, &route_state.path, &mut file);
                put(&file);
            }
            V::RequestFilename => put(&route_state.file),
            V::RequestId => push_request_id(request_id.0, out),
            V::RequestLength => push_number(sent.request_bytes, out),
            V::RequestMethod => put(match route_state.method.name() {
                Some(name) if route_state.method != head.method() && !route_state.is_subrequest => {
                    name.as_bytes()
                }
                _ => head.method_name(),
            }),
            V::GzipRatio => push_ratio(sent.plain_bytes, sent.body_bytes, out),
            V::RequestTime => push_age(self.request.since, self.request.now, out),
            V::RequestUri => {
                let target = head.target();
                match target::split_authority(target) {
                    Some((_, rest)) => {
                        put(if rest.starts_with(b"/") { b"" } else { b"/" });
                        put(rest);
                    }
                    None => put(target),
                }
            }
            V::Scheme => put(if connection.is_tls { b"https" } else { b"http" }),
            V::SecureLink => self.push_secure_link(out),
            V::SecureLinkExpires => self.push_secure_link_expires(out),
            V::SentHttp(name) => {
                if !sent.framing.is_some_and(|framing| framing.push(name, out)) {
                    push_sent_field(sent.fields, name.as_bytes(), out);
                }
            }
            V::SentTrailer(name) => {
                if let Some(trailers) = sent.trailers {
                    push_sent_field(trailers, name.as_bytes(), out);
                }
            }
            V::ServerAddr => push_address(connection.local, out),
            V::ServerName => self.push_server_name(out),
            V::ServerPort => push_port(connection.local, out),
            V::Http2 => put(match (head.version(), connection.tls.is_some()) {
                (Version::Http2, true) => b"h2",
                (Version::Http2, false) => b"h2c",
                _ => b"",
            }),
            V::Http3 => put(if head.version() == Version::Http3 { b"h3" } else { b"" }),
            V::ServerProtocol => put(head.version().as_str().as_bytes()),
            V::SliceRange => self.push_slice_range(out),
            V::Split(at) => {
                if let Some(split) = self.table.config().http.splits.get(*at as usize) {
                    let mut source = Vec::new();
                    self.nested(&split.source, &mut source);
                    out.extend_from_slice(split.value(&source));
                }
            }
            V::Status => self.push_status(out),
            V::Tls(variable) => tls::put(connection.tls.as_deref(), *variable, out),
            V::Upstream(variable) => self.push_upstream(variable, out),
            V::TimeIso8601 => push_time_iso8601(*wall, out),
            V::TimeLocal => push_time_local(*wall, out),
            V::UidGot => self.push_uid_got(out),
            V::UidSet => self.push_uid_set(out),
        }
    }

    /// `$slice_range`: what another server is asked for. Asking for it turns slices on.
    fn push_slice_range(&self, out: &mut Vec<u8>) {
        let size = self.settings().filters.as_deref().and_then(|filters| filters.slice);
        let Some(size) = size else { return };
        let kept = &self.route_state.slice_start;
        let start = match kept.get() {
            None if self.route_state.is_subrequest => return,
            None => {
                let head = self.request.head;
                let has_condition = head.known(Known::IfRange).is_some();
                slice::first_start(head.known(Known::Range), has_condition, size.get())
            }
            Some(start) => start,
        };
        kept.set(Some(start));
        slice::push_range(start, size.get(), out);
    }

    /// `$status`
    pub(crate) fn push_status(&self, out: &mut Vec<u8>) {
        match self.sent.and_then(|sent| sent.status).or(self.route_state.status) {
            Some(status) => push_number(u64::from(status.code()), out),
            None => out.extend_from_slice(b"000"),
        }
    }

    /// A variable of the configuration's own: what a `set` or a later match gave it, or what it is otherwise.
    fn assigned(&self, id: AssignedId, out: &mut Vec<u8>) {
        let Some(known) = self.table.config().http.assigned.get(id.0 as usize) else { return };
        let group = match &known.otherwise {
            Some(Variable::NamedCapture(name)) => Some(name.as_str()),
            _ => None,
        };
        let is_of_map = !std::ptr::eq(self.captures, &raw const self.route_state.captures);
        if group.is_some_and(|name| is_of_map && self.captures.push_named(0, name, out)) {
            return;
        }
        let set = self.route_state.assigned.value(id.0).zip(self.route_state.assigned.stamp(id.0));
        let is_newer =
            |(name, (_, matches))| self.route_state.captures.push_named(matches, name, out);
        if group.zip(set).is_some_and(is_newer) {
            return;
        }
        match (set, &known.otherwise) {
            (Some((value, _)), _) => out.extend_from_slice(value),
            (None, Some(otherwise)) => self.variable(otherwise, out),
            (None, None) if self.settings().rewriting.warns_of_unset => {
                self.route_state.log_entries.borrow_mut().unset(id, &known.name);
            }
            (None, None) => {}
        }
    }

    /// The name of the server as the configuration has it.
    pub(crate) fn push_server_name(&self, out: &mut Vec<u8>) {
        let (before, name, after) = match self.table.server(self.route_state.server).names.first() {
            None => return,
            Some(ServerName::Exact(name)) => ("", name, ""),
            Some(ServerName::LeadingWildcard(name)) => ("*", name, ""),
            Some(ServerName::TrailingWildcard(name)) => ("", name, "*"),
            Some(ServerName::Regex(pattern)) => ("~", &pattern.source, ""),
        };
        for text in [before, name, after] {
            out.extend_from_slice(text.as_bytes());
        }
    }

    pub(crate) fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        let pairs = self.request.head.all_known(Known::Cookie);
        pairs.flat_map(|line| line.split(|byte| *byte == b';')).find_map(|pair| {
            let pair = pair.trim_ascii();
            let (other, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
            other.trim_ascii().eq_ignore_ascii_case(name).then(|| value[1..].trim_ascii())
        })
    }

    /// The value of a `geo`. What is no address is the highest one, as in nginx.
    fn geo(&self, at: u32, out: &mut Vec<u8>) {
        let Some(geo) = self.table.config().http.geos.get(at as usize) else { return };
        let address = match &geo.address {
            None => self.route_state.client(self.request.connection).map(|client| client.ip()),
            Some(template) => {
                let mut text = Vec::new();
                self.nested(template, &mut text);
                std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok())
            }
        };
        let mut address = address.unwrap_or(Ipv4Addr::BROADCAST.into());
        if geo.has_proxies() {
            let mut lines: Vec<&[u8]> =
                self.request.head.values_like(None, b"x-forwarded-for").collect();
            lines.reverse();
            let texts = lines.into_iter().flat_map(|line| line.rsplit(|byte| *byte == b','));
            let parsed =
                texts.map(|text| std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok());
            address = geo.forwarded(address, parsed.map_while(|address| address));
        }
        out.extend_from_slice(geo.value(address));
    }

    /// The value of a `map`: what was found first holds for the whole request, unless it is volatile.
    fn map_once(&self, MapId(id): MapId, map: &Map, out: &mut Vec<u8>) {
        if map.is_volatile {
            return self.map(map, out);
        }
        if let Some(value) = self.route_state.found.borrow().value(id) {
            return out.extend_from_slice(value);
        }
        let start = out.len();
        self.map(map, out);
        self.route_state.found.borrow_mut().set(id, &out[start..]);
    }

    /// The value of a `map`, looked up.
    fn map(&self, map: &Map, out: &mut Vec<u8>) {
        let Some(left) = self.nested.get().checked_sub(1) else { return };
        self.nested.set(left);
        let mut source = Vec::new();
        self.expand(&map.source, &mut source);
        let mut key = source.to_ascii_lowercase();
        if map.hostnames && key.last() == Some(&b'.') {
            key.pop();
        }
        let wildcard = || {
            let leading = map
                .leading
                .iter()
                .find(|(suffix, _)| key.len() > suffix.len() && key.ends_with(suffix));
            let found = leading.or_else(|| {
                map.trailing
                    .iter()
                    .find(|(prefix, _)| key.len() > prefix.len() && key.starts_with(prefix))
            });
            found.map(|(_, value)| value)
        };
        match map.exact.get(&key).or_else(|| wildcard().map(MapValue::Template)) {
            Some(MapValue::Literal(text)) => return out.extend_from_slice(text),
            Some(MapValue::Template(value)) => return self.expand(value, out),
            None => {}
        }
        if !source.is_empty() {
            let mut captures = Captures::default();
            for (pattern, value) in map.patterns.candidates(&source) {
                if captures.matches(pattern, &source) {
                    self.route_state.captures.note_mapped(&captures);
                    return Scope { captures: &captures, ..*self }.expand(value, out);
                }
                if captures.is_exhausted() {
                    return self.exhaust(&map.name);
                }
            }
        }
        self.expand(&map.default, out);
    }

    /// An expression that decides on a variable ran out of steps: no value holds, the default of a `map` included, and the
    /// request fails (V31).
    pub(crate) fn exhaust(&self, name: &str) {
        if self.route_state.captures.exhaust_variable() {
            let text = format!("a regular expression of \"${name}\" took too many steps");
            self.route_state.log_entries.borrow_mut().add(Level::Error, text);
        }
    }
}

/// Every value of a request field, joined.
pub(crate) fn push_request_field(head: &Head, name: &[u8], out: &mut Vec<u8>) {
    let separator: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
    for (at, value) in head.values_like(None, name).enumerate() {
        if at > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(value);
    }
}

/// The value of `name=` in a query, as it was sent.
fn argument<'a>(query: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    query.split(|byte| *byte == b'&').find_map(|pair| {
        let (start, value) = pair.split_at_checked(name.len())?;
        start.eq_ignore_ascii_case(name).then_some(value)?.strip_prefix(b"=")
    })
}

/// Every value of a response field, joined.
fn push_sent_field(fields: &Fields, name: &[u8], out: &mut Vec<u8>) {
    for (at, value) in fields.all(name).enumerate() {
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value.trim_ascii());
    }
}

pub(crate) fn push_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// 32 hexadecimal digits.
fn push_request_id(id: u128, out: &mut Vec<u8>) {
    out.extend(id.to_be_bytes().into_iter().flat_map(hex::digits));
}

/// `3.25`: how many times longer the body was before, rounded to hundredths as in nginx. Nothing where it was
/// not compressed, or none of it was sent.
fn push_ratio(plain: Option<u64>, sent: u64, out: &mut Vec<u8>) {
    let Some(plain) = plain.filter(|_| sent > 0) else { return };
    let hundredths = (u128::from(plain) * 1000 / u128::from(sent) + 5) / 10;
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    out.extend_from_slice(text.as_bytes());
}

/// `12.345`
pub(crate) fn push_seconds(secs: u64, millis: u32, out: &mut Vec<u8>) {
    push_number(secs, out);
    out.push(b'.');
    out.push(b'0' + (millis / 100 % 10) as u8);
    date::push_two((millis % 100) as u8, out);
}

/// `$date_gmt`, `$date_local`
fn push_date(wall: WallTime, zone: Zone, out: &mut Vec<u8>) {
    time_format::write(wall.unix_secs, zone, b"%A, %d-%b-%Y %H:%M:%S %Z", out);
}

/// From a moment on, as seconds with milliseconds.
fn push_age(since: Moment, now: Moment, out: &mut Vec<u8>) {
    let age = now.since(since);
    push_seconds(age.as_secs(), age.subsec_millis(), out);
}

/// The port that the client asked for: that of the target, else that of `Host`.
fn request_port(head: &Head) -> &[u8] {
    let host = || head.known(Known::Host).unwrap_or_default();
    let authority = target::split_authority(head.target()).map_or_else(host, |(found, _)| found);
    let name_bytes = authority.iter().rposition(|byte| *byte == b']').unwrap_or_default();
    let behind = &authority[name_bytes..];
    behind.iter().position(|byte| *byte == b':').map_or(b"", |at| &behind[at + 1..])
}

fn push_address(address: Option<SocketAddr>, out: &mut Vec<u8>) {
    match address {
        Some(address) => push_ip(address.ip(), out),
        None => out.extend_from_slice(b"unix:"),
    }
}

/// What a balancer has said, if one has.
fn push_proxied(
    connection: &ConnectionFacts,
    which: fn(ProxyAddresses) -> SocketAddr,
    push: fn(Option<SocketAddr>, &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    if let Some(addresses) = connection.proxied.as_deref().and_then(|it| it.addresses) {
        push(Some(which(addresses)), out);
    }
}

/// A proxy need not say a port.
fn push_port(address: Option<SocketAddr>, out: &mut Vec<u8>) {
    if let Some(address) = address.filter(|address| address.port() > 0) {
        push_number(u64::from(address.port()), out);
    }
}

pub(crate) fn push_text(text: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
    struct Bytes<'a>(&'a mut Vec<u8>);
    impl std::fmt::Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // Writing into memory does not fail.
    let _ = Bytes(out).write_fmt(text);
}
