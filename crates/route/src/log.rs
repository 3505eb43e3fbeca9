//! Lines of the access log (O6): a format with its variables filled in and escaped, so that whatever a
//! client sends, it stays one line and the fields in it can be told apart.
//!
//! A format is compiled when the configuration is loaded. Variables of nearly every format have a piece of
//! their own, which is written without a look-up, without a copy in between and without an allocation.

use std::cell::Cell;

use sekisho_config::{Escape, LogFormat, Part, Template, Variable};
use sekisho_http::{Head, Known, date};

use crate::address::push_ip;
use crate::credentials;
use crate::escape::{escape_from, push_escaped};
use crate::route_state::{Request, RouteState, WallTime};
use crate::table::Table;
use crate::variable::{self, NESTED_MAX, Scope, Sent, expand, push_number, push_seconds};

/// A compiled `log_format`.
#[derive(Debug)]
pub struct LineFormat {
    escape: Escape,
    pieces: Box<[Piece]>,
}

/// One piece of a line.
#[derive(Debug)]
enum Piece {
    Literal(Box<[u8]>),
    RemoteAddr,
    RemoteUser,
    TimeLocal,
    TimeIso8601,
    Request,
    RequestTime,
    Status,
    BodyBytesSent,
    BytesSent,
    /// `$http_name`
    RequestField(Option<Known>, Box<[u8]>),
    /// A value that is always there and has no byte that needs an escape.
    Plain(Variable),
    /// Any other value.
    Text(Variable),
}

impl LineFormat {
    /// Compiles a format.
    pub fn new(format: &LogFormat) -> Self {
        let pieces = format.line.parts.iter().map(|part| match part {
            Part::Literal(text) => Piece::Literal(text.as_slice().into()),
            Part::Variable(variable) => Piece::of(variable),
        });
        Self { escape: format.escape, pieces: pieces.collect() }
    }
}

impl Piece {
    fn of(variable: &Variable) -> Self {
        use Variable as V;
        match variable {
            V::RemoteAddr => Self::RemoteAddr,
            V::RemoteUser => Self::RemoteUser,
            V::TimeLocal => Self::TimeLocal,
            V::TimeIso8601 => Self::TimeIso8601,
            V::Request => Self::Request,
            V::RequestTime => Self::RequestTime,
            V::Status => Self::Status,
            V::BodyBytesSent => Self::BodyBytesSent,
            V::BytesSent => Self::BytesSent,
            V::Http(name) => {
                let name = name.replace('_', "-").into_bytes();
                Self::RequestField(Known::from_bytes(&name), name.into())
            }
            V::Connection
            | V::ConnectionRequests
            | V::ConnectionTime
            | V::Connections(_)
            | V::LimitRate
            | V::Msec
            | V::Pid
            | V::Pipe
            // It is `OK` or empty, and empty is not written as `-`.
            | V::RequestCompletion
            | V::RequestId
            | V::RequestLength
            | V::Scheme
            | V::ServerProtocol => Self::Plain(variable.clone()),
            _ => Self::Text(variable.clone()),
        }
    }
}

/// The time of a line as text, made once a second.
#[derive(Debug)]
pub struct TimeTexts {
    /// The second and the offset from UTC that they are of.
    of: Option<(i64, i32)>,
    local: Vec<u8>,
    iso8601: Vec<u8>,
}

impl TimeTexts {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { of: None, local: Vec::new(), iso8601: Vec::new() }
    }

    /// `06/Nov/1994:08:49:37 +0000`
    fn local(&mut self, wall: WallTime) -> &[u8] {
        self.bring_up_to(wall);
        &self.local
    }

    /// `1994-11-06T08:49:37+00:00`
    fn iso8601(&mut self, wall: WallTime) -> &[u8] {
        self.bring_up_to(wall);
        &self.iso8601
    }

    fn bring_up_to(&mut self, wall: WallTime) {
        let of = Some((wall.unix_secs, wall.utc_offset_secs));
        if self.of == of {
            return;
        }
        self.of = of;
        self.local.clear();
        push_time_local(wall, &mut self.local);
        self.iso8601.clear();
        push_time_iso8601(wall, &mut self.iso8601);
    }
}

impl Default for TimeTexts {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends a line, without its end. Values are escaped as the format says; under [`Escape::Default`] a
/// value that is not there is `-`.
pub fn log_line(
    format: &LineFormat,
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    sent: Option<&Sent<'_>>,
    times: &mut TimeTexts,
    out: &mut Vec<u8>,
) {
    let nested = Cell::new(NESTED_MAX);
    let scope = Scope {
        table,
        request,
        route_state,
        sent,
        captures: &route_state.captures,
        nested: &nested,
    };
    for piece in &format.pieces {
        match piece {
            Piece::Literal(text) => out.extend_from_slice(text),
            Piece::RemoteAddr => match route_state.client(request.connection) {
                Some(address) => push_ip(address.ip(), out),
                None => out.extend_from_slice(b"unix:"),
            },
            Piece::RemoteUser => push_user(format.escape, request, out),
            Piece::TimeLocal => out.extend_from_slice(times.local(request.wall)),
            Piece::TimeIso8601 => out.extend_from_slice(times.iso8601(request.wall)),
            Piece::Request => push_request(format.escape, request, out),
            Piece::RequestTime => {
                let age = request.now.since(request.since);
                push_seconds(age.as_secs(), age.subsec_millis(), out);
            }
            Piece::Status => scope.push_status(out),
            Piece::BodyBytesSent => push_number(sent.map_or(0, |sent| sent.body_bytes), out),
            Piece::BytesSent => push_number(sent.map_or(0, |sent| sent.bytes), out),
            Piece::RequestField(known, name) => {
                push_field(format.escape, request.head, *known, name, out);
            }
            Piece::Plain(variable) => scope.variable(variable, out),
            // A request that could not be read has a path, which is empty.
            Piece::Text(Variable::Uri | Variable::DocumentUri) if route_state.path.is_empty() => {}
            Piece::Text(variable) => {
                let start = out.len();
                scope.variable(variable, out);
                if out.len() > start || !scope.is_there_empty(variable) {
                    escape_from(format.escape, start, out);
                }
            }
        }
    }
}

/// Whether an `access_log` with this `if=` wants a line: its value is neither empty nor `0`.
pub fn wants_line(
    condition: &Template,
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    sent: Option<&Sent<'_>>,
) -> bool {
    let mut value = Vec::new();
    expand(condition, table, request, route_state, sent, &mut value);
    !matches!(value.as_slice(), b"" | b"0")
}

/// `$remote_user`
fn push_user(how: Escape, request: &Request<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Some(field) = request.head.known(Known::Authorization)
        && let Some(colon) = credentials::decode(field, out)
    {
        out.truncate(start + colon);
    }
    escape_from(how, start, out);
}

/// `$request`
fn push_request(how: Escape, request: &Request<'_>, out: &mut Vec<u8>) {
    let head = request.head;
    // What could not be read is shown as it came. A client that was refused before it had sent a line asked for nothing.
    if head.method_name().is_empty() {
        return push_escaped(how, head.unreadable(), out);
    }
    push_escaped(how, head.method_name(), out);
    out.push(b' ');
    // Only where all of it is missing it is `-`.
    if !head.target().is_empty() {
        push_escaped(how, head.target(), out);
    }
    out.push(b' ');
    out.extend_from_slice(head.version().as_str().as_bytes());
}

/// `$http_name`: nearly always the client has sent the field once, or not at all.
fn push_field(how: Escape, head: &Head, known: Option<Known>, name: &[u8], out: &mut Vec<u8>) {
    let mut values = head.values_like(known, name);
    match (values.next(), values.next()) {
        (None, _) => push_escaped(how, b"", out),
        (Some([]), None) => {}
        (Some(value), None) => push_escaped(how, value, out),
        _ => {
            let start = out.len();
            variable::push_request_field(head, name, out);
            escape_from(how, start, out);
        }
    }
}

/// `06/Nov/1994:08:49:37 +0000`
pub(crate) fn push_time_local(wall: WallTime, out: &mut Vec<u8>) {
    let civil = local_time(wall);
    date::push_two(civil.day, out);
    out.push(b'/');
    out.extend_from_slice(date::MONTHS[usize::from(civil.month - 1)].as_bytes());
    out.push(b'/');
    date::push_four(civil.year, out);
    out.push(b':');
    date::push_time(&civil, out);
    out.push(b' ');
    push_offset(wall, b"", out);
}

/// `1994-11-06T08:49:37+00:00`
pub(crate) fn push_time_iso8601(wall: WallTime, out: &mut Vec<u8>) {
    let civil = local_time(wall);
    date::push_four(civil.year, out);
    out.push(b'-');
    date::push_two(civil.month, out);
    out.push(b'-');
    date::push_two(civil.day, out);
    out.push(b'T');
    date::push_time(&civil, out);
    push_offset(wall, b":", out);
}

fn local_time(wall: WallTime) -> date::Civil {
    date::civil(wall.unix_secs.saturating_add(i64::from(wall.utc_offset_secs)))
}

fn push_offset(wall: WallTime, separator: &[u8], out: &mut Vec<u8>) {
    let offset = wall.utc_offset_secs;
    let minutes = offset.unsigned_abs() / 60;
    out.push(if offset < 0 { b'-' } else { b'+' });
    date::push_two((minutes / 60 % 100) as u8, out);
    out.extend_from_slice(separator);
    date::push_two((minutes % 60) as u8, out);
}
