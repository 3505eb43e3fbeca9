//! Fields that the configuration adds to an answer: `add_header`, `expires`, and the media type. It
//! must never let a value split the response.

use sekisho_config::{Expires, Template};
use sekisho_http::{Status, date};

use crate::exchange::{Exchange, Request};
use crate::table::Table;
use crate::variable::{Sent, expand};

/// Appends `Expires`, `Cache-Control`, `WWW-Authenticate` and the `add_header`s, each line ended by CRLF. A value that is
/// empty, or has a control byte in it, adds nothing. `modified` is the answer's `Last-Modified`.
pub fn added_fields(
    table: &Table,
    request: &Request<'_>,
    exchange: &Exchange,
    status: Status,
    modified: Option<i64>,
    out: &mut Vec<u8>,
) {
    let settings = &table.location(exchange.location).settings;
    let is_good =
        matches!(status.code(), 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308);
    if is_good {
        if !matches!(settings.expires, Expires::Off | Expires::Epoch | Expires::Max) {
            exchange.is_particular.set(true);
        }
        push_expires(&settings.expires, request.wall.unix_secs, modified, out);
    }
    if exchange.passage.is_challenged {
        push_challenge(&exchange.passage.realm, out);
    }
    let sent = Sent { status: Some(status), ..Sent::default() };
    for field in settings.add_headers.iter().filter(|field| is_good || field.always) {
        push_field(
            &field.name,
            &field.value,
            |template, out| {
                expand(template, table, request, exchange, Some(&sent), out);
            },
            out,
        );
    }
}

/// The media type for `exchange.path`: by its extension, or else the `default_type`.
pub fn media_type<'t>(table: &'t Table, exchange: &Exchange) -> &'t str {
    let settings = &table.location(exchange.location).settings;
    let known = extension(&exchange.path).and_then(|extension| {
        // Longer than any extension there is; a lower-case copy costs no allocation.
        let mut lower = [0; 64];
        let lower = lower.get_mut(..extension.len())?;
        lower.copy_from_slice(extension);
        lower.make_ascii_lowercase();
        settings.types.by_extension.get(&*lower)
    });
    known.unwrap_or(&settings.default_type)
}

/// What follows the last dot of the last segment, unless the segment begins with it.
fn extension(path: &[u8]) -> Option<&[u8]> {
    let mark = path.iter().rposition(|byte| matches!(byte, b'.' | b'/'))?;
    let is_extension = path[mark] == b'.' && mark > 0 && path[mark - 1] != b'/';
    is_extension.then(|| &path[mark + 1..])
}

/// `WWW-Authenticate`: the realm is a quoted string (RFC 7617 §2). What cannot stand in a field is left out.
fn push_challenge(realm: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"WWW-Authenticate: Basic realm=\"");
    for &byte in realm.iter().filter(|byte| !byte.is_ascii_control()) {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.extend_from_slice(b"\"\r\n");
}

fn push_field(
    name: &str,
    value: &Template,
    expand: impl FnOnce(&Template, &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    let value_start = out.len();
    expand(value, out);
    let value = &out[value_start..];
    if value.is_empty() || value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        out.truncate(start);
    } else {
        out.extend_from_slice(b"\r\n");
    }
}

fn push_expires(expires: &Expires, now: i64, modified: Option<i64>, out: &mut Vec<u8>) {
    const EPOCH: i64 = 1;
    /// Thu, 31 Dec 2037 23:55:55 GMT
    const END: i64 = 2_145_916_555;
    const TEN_YEARS: i64 = 315_360_000;
    const DAY: i64 = 86_400;

    // `None` is `no-cache`.
    let (at, max_age) = match *expires {
        Expires::Off => return,
        Expires::Epoch => (EPOCH, None),
        Expires::Max => (END, Some(TEN_YEARS)),
        // nginx takes a distance of nothing as "now", whatever it is measured from.
        Expires::Modified(0) => (now, Some(0)),
        Expires::After(secs) => (now.saturating_add(secs), (secs >= 0).then_some(secs)),
        Expires::Modified(secs) => {
            let at = modified.unwrap_or(now).saturating_add(secs);
            let age = at.saturating_sub(now);
            (at, (secs >= 0 && age >= 0).then_some(age))
        }
        Expires::Daily(of_day) => {
            let today = now.div_euclid(DAY).saturating_mul(DAY).saturating_add(i64::from(of_day));
            let at = if today > now { today } else { today.saturating_add(DAY) };
            (at, Some(at.saturating_sub(now)))
        }
    };
    out.extend_from_slice(b"Expires: ");
    date::write(at, out);
    out.extend_from_slice(b"\r\nCache-Control: ");
    match max_age {
        None => out.extend_from_slice(b"no-cache"),
        Some(age) => {
            out.extend_from_slice(b"max-age=");
            out.extend_from_slice(itoa::Buffer::new().format(age).as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}
