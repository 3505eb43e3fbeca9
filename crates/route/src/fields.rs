//! Fields that the configuration adds to an answer: `add_header`, `expires`, and the media type. It
//! must never let a value split the response.

use std::cell::Cell;

use sekisho_config::{Expires, LocationId, Template};
use sekisho_http::fields::is_field_value;
use sekisho_http::{Fields, Known, Status, date};

use crate::redirect;
use crate::route_state::{Request, RouteState};
use crate::subrequest::AuthAnswer;
use crate::table::Table;
use crate::variable::{NESTED_MAX, Scope, Sent, expand};

/// Adds `Expires`, `Cache-Control`, `WWW-Authenticate` and the `add_header`s. A value that is
/// empty, or has a control byte in it, adds nothing. `modified` is the answer's `Last-Modified`.
pub fn added_fields(
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    status: Status,
    modified: Option<i64>,
    out: &mut Fields,
) {
    let settings = &table.location(route_state.location).settings;
    let is_good = is_good(status);
    if modified.is_some_and(|modified| modified > request.wall.unix_secs)
        && out.has("last-modified")
    {
        // No date is later than the answer itself (RFC 9110 §8.8.2.1).
        out.remove("last-modified");
        out.push_with("Last-Modified", |value| date::write(request.wall.unix_secs, value));
    }
    if !settings.changed_fields.is_empty() {
        change_fields(table, request, route_state, status, out);
    }
    if is_good {
        let said = |value: &Template, is_modified, out: &Fields| {
            let mut text = Vec::new();
            expand_sent(value, table, request, route_state, status, out, &mut text);
            let text = std::str::from_utf8(&text).unwrap_or_default();
            Expires::read(text, is_modified).unwrap_or(Expires::Off)
        };
        let (now, expires) = (request.wall.unix_secs, &settings.expires);
        // Another server's answer says it itself.
        let is_said = modified.is_none() && !matches!(expires, Expires::Off);
        let said_by_field =
            if is_said { out.get("last-modified").and_then(date::parse) } else { None };
        let modified = modified.or(said_by_field);
        match expires {
            Expires::By(value) => push_expires(&said(value, false, out), now, modified, out),
            Expires::ModifiedBy(value) => push_expires(&said(value, true, out), now, modified, out),
            plain => push_expires(plain, now, modified, out),
        }
    }
    if !route_state.redirect.is_empty() && !out.has("location") {
        redirect::push_kept(table, request, route_state, out);
    }
    if route_state.access_progress.is_challenged {
        push_challenge(&route_state.access_progress.realm, out);
    }
    let refused = |auth: &&AuthAnswer| auth.status == Status::UNAUTHORIZED;
    if let Some(auth) = route_state.auth.as_deref().filter(refused) {
        // What the location said that was asked for permission; as in nginx it stays where an `error_page` has another status.
        for challenge in auth.challenges.iter().filter(|value| is_field_value(value)) {
            out.push("WWW-Authenticate", challenge);
        }
    }
    for field in settings.add_headers.iter().filter(|field| is_good || field.always) {
        let mut expanded = Vec::new();
        let value = if let Some(literal) = field.value.as_literal() {
            literal
        } else {
            expand_sent(&field.value, table, request, route_state, status, out, &mut expanded);
            &expanded
        };
        if ["Last-Modified", "ETag"].iter().any(|known| field.name.eq_ignore_ascii_case(known)) {
            // As in nginx, these take the place of the file's own; an empty one takes it away.
            out.remove(&field.name);
        }
        if !value.is_empty() && is_field_value(value) {
            out.push(&*field.name, value);
        }
    }
    if settings.filters.as_deref().is_some_and(|filters| filters.user_id.is_some()) {
        scope(table, request, route_state, &Cell::new(NESTED_MAX)).push_user_id(out);
    }
}

/// `more_set_headers`, `more_clear_headers`. A value that is empty takes the field away, one with a control byte changes nothing.
fn change_fields(
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    status: Status,
    out: &mut Fields,
) {
    let settings = &table.location(route_state.location).settings;
    for field in settings.changed_fields.iter() {
        let known = out.get("content-type").unwrap_or_default();
        let media_type = known.split(|byte| *byte == b';').next().unwrap_or_default();
        if !field.is_for(status.code(), media_type.trim_ascii()) {
            continue;
        }
        let mut value = Vec::new();
        if let Some(template) = &field.value {
            expand_sent(template, table, request, route_state, status, out, &mut value);
        }
        if !is_field_value(&value) {
            continue;
        }
        out.retain(|name, _| !field.is_about(name));
        if !value.is_empty() {
            out.push(&*field.name, &value);
        }
    }
}

fn scope<'a>(
    table: &'a Table,
    request: &'a Request<'a>,
    route_state: &'a RouteState,
    nested: &'a Cell<u16>,
) -> Scope<'a> {
    Scope { table, request, route_state, sent: None, captures: &route_state.captures, nested }
}

/// Whether an answer of this status has trailers.
pub fn has_trailers(table: &Table, route_state: &RouteState, status: Status) -> bool {
    let trailers = &table.location(route_state.location).settings.add_trailers;
    !trailers.is_empty() && trailers.iter().any(|field| field.always || is_good(status))
}

/// Puts the `add_trailer`s into `out`. `sent` is what is known of the answer; each sees those before it.
pub fn added_trailers(
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    status: Status,
    sent: &Sent<'_>,
    out: &mut Fields,
) {
    let trailers = &table.location(route_state.location).settings.add_trailers;
    for field in trailers.iter().filter(|field| field.always || is_good(status)) {
        let mut value = Vec::new();
        let sent = Sent { trailers: Some(out), ..*sent };
        expand(&field.value, table, request, route_state, Some(&sent), &mut value);
        if !value.is_empty() && is_field_value(&value) {
            out.push(&*field.name, &value);
        }
    }
}

/// The statuses that `add_header` is for without `always`.
const fn is_good(status: Status) -> bool {
    matches!(status.code(), 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

/// Whether `If-Range` holds, where `add_header` replaces the validator that it names: it is compared with what the
/// client has got. `None` where the file's own counts.
pub fn if_range_replaced(
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
) -> Option<bool> {
    let asked = request.head.known(Known::IfRange)?;
    let is_tag = asked.starts_with(b"\"") || asked.starts_with(b"W/");
    let name = if is_tag { "ETag" } else { "Last-Modified" };
    let fields = &table.location(route_state.location).settings.add_headers;
    let field = fields.iter().rfind(|field| field.name.eq_ignore_ascii_case(name))?;
    let mut value = Vec::new();
    expand(&field.value, table, request, route_state, None, &mut value);
    Some(if is_tag {
        !asked.starts_with(b"W/") && asked == value
    } else {
        date::parse(asked).is_some_and(|asked| date::parse(&value) == Some(asked))
    })
}

/// Expands a value that may ask what the answer's head says so far: fields that were added before it, too.
fn expand_sent(
    value: &Template,
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    status: Status,
    fields: &Fields,
    out: &mut Vec<u8>,
) {
    let known = without_charset(fields);
    let sent = Sent { status: Some(status), fields: &known, ..Sent::default() };
    expand(value, table, request, route_state, Some(&sent), out);
}

/// The fields, with `Content-Type` as nginx has it at this time: the type, without a `charset`.
fn without_charset(fields: &Fields) -> Fields {
    let mut known = fields.clone();
    known.change("content-type", |value| {
        let (kind, parameter) = value.split_at(value.iter().position(|byte| *byte == b';')?);
        let name = parameter[1..].trim_ascii_start();
        let is_charset = name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"charset="));
        is_charset.then(|| kind.to_vec())
    });
    known
}

/// The media type for `route_state.path`: by its extension, or else the `default_type`.
pub fn media_type<'t>(table: &'t Table, route_state: &RouteState) -> &'t str {
    media_type_of(table, route_state.location, &route_state.path)
}

/// The same of another path in a location.
pub fn media_type_of<'t>(table: &'t Table, location: LocationId, path: &[u8]) -> &'t str {
    let settings = &table.location(location).settings;
    let known = extension(path).and_then(|extension| {
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

/// `WWW-Authenticate`: the realm is a quoted string (RFC 7617 §2). Bytes that are not allowed in a field are
/// left out.
fn push_challenge(realm: &[u8], out: &mut Fields) {
    out.push_with("WWW-Authenticate", |value| {
        value.extend_from_slice(b"Basic realm=\"");
        for &byte in realm.iter().filter(|byte| !byte.is_ascii_control()) {
            if matches!(byte, b'"' | b'\\') {
                value.push(b'\\');
            }
            value.push(byte);
        }
        value.push(b'"');
    });
}

fn push_expires(expires: &Expires, now: i64, modified: Option<i64>, out: &mut Fields) {
    const EPOCH: i64 = 1;
    /// Thu, 31 Dec 2037 23:55:55 GMT
    const END: i64 = 2_145_916_555;
    const TEN_YEARS: i64 = 315_360_000;
    const DAY: i64 = 86_400;

    // `None` is `no-cache`.
    let (at, max_age) = match *expires {
        Expires::Off | Expires::By(_) | Expires::ModifiedBy(_) => return,
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
    // A field of a program is replaced, as in nginx.
    out.remove("expires");
    out.remove("cache-control");
    out.push_with("Expires", |value| date::write(at, value));
    out.push_with("Cache-Control", |value| match max_age {
        None => value.extend_from_slice(b"no-cache"),
        Some(age) => {
            value.extend_from_slice(b"max-age=");
            value.extend_from_slice(itoa::Buffer::new().format(age).as_bytes());
        }
    });
}
