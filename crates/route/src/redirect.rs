//! Field values for the client: the address of a redirect, and the methods it may use. Always a valid field
//! value, whatever the path or a variable holds.

use sekisho_config::{Part, Settings, Template};
use sekisho_http::{Fields, Method, target};

use crate::route_state::{Request, RouteState};
use crate::table::Table;
use crate::variable::{Scope, push_number, push_text};

/// Writes the address of a `return` or `error_page` into `route_state.text`: a path becomes absolute under
/// `absolute_redirect`, all else stays as it was written.
pub(crate) fn write_address(
    table: &Table,
    request: &Request<'_>,
    route_state: &mut RouteState,
    address: &[u8],
) {
    let mut text = std::mem::take(&mut route_state.text);
    text.clear();
    if address.first() == Some(&b'/') {
        push_origin(table, request, route_state, &mut text);
    }
    route_state.origin_bytes = text.len();
    push_visible(address, &mut text);
    route_state.text = text;
}

/// A path that only variables have given a second slash at its beginning would be read as another host (V48);
/// what the configuration itself wrote is meant.
pub(crate) fn keep_host(settings: &Settings, template: &Template, address: &mut Vec<u8>) {
    let is_meant =
        matches!(template.parts.first(), Some(Part::Literal(text)) if text.starts_with(b"//"));
    if !settings.absolute_redirect && !is_meant && address.starts_with(b"//") {
        address.splice(..0, *b"/.");
    }
}

/// Writes the address of the directory that the path names without its slash into `route_state.text`.
pub(crate) fn write_directory(table: &Table, request: &Request<'_>, route_state: &mut RouteState) {
    let mut text = std::mem::take(&mut route_state.text);
    text.clear();
    push_origin(table, request, route_state, &mut text);
    route_state.origin_bytes = text.len();
    if text.is_empty() && route_state.path.starts_with(b"//") {
        // Without `merge_slashes`, `//name/` would be read as another host.
        text.extend_from_slice(b"/.");
    }
    target::encode_path(&route_state.path, &mut text);
    text.push(b'/');
    if !route_state.query.is_empty() {
        text.push(b'?');
        push_visible(&route_state.query, &mut text);
    }
    route_state.text = text;
}

/// Appends the `Location` of a redirect that an `error_page` is answered for.
pub(crate) fn push_kept(
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    out: &mut Fields,
) {
    out.push_with("Location", |value| {
        if route_state.redirect.first() == Some(&b'/') {
            push_origin(table, request, route_state, value);
        }
        value.extend_from_slice(&route_state.redirect);
    });
}

/// Writes the value of `Allow` over what `out` holds.
pub(crate) fn write_methods<'a>(methods: impl IntoIterator<Item = &'a Method>, out: &mut Vec<u8>) {
    out.clear();
    for name in methods.into_iter().filter_map(|method| method.name()) {
        if !out.is_empty() {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(name.as_bytes());
    }
}

/// `http://host:port` under `absolute_redirect`, as nginx puts it together; nothing otherwise.
pub fn push_origin(
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    out: &mut Vec<u8>,
) {
    let settings = &table.location(route_state.location).settings;
    if !settings.absolute_redirect {
        return;
    }
    let connection = request.connection;
    let (scheme, usual_port): (&[u8], u16) =
        if connection.is_tls { (b"https://", 443) } else { (b"http://", 80) };
    out.extend_from_slice(scheme);
    let start = out.len();
    if settings.server_name_in_redirect {
        let nested = std::cell::Cell::new(0);
        let captures = &route_state.captures;
        Scope { table, request, route_state, sent: None, captures, nested: &nested }
            .push_server_name(out);
    }
    if out.len() == start {
        out.extend_from_slice(&route_state.host);
    }
    if out.len() == start {
        match connection.local.map(|local| local.ip().to_canonical()) {
            Some(std::net::IpAddr::V6(address)) => push_text(format_args!("[{address}]"), out),
            Some(std::net::IpAddr::V4(address)) => push_text(format_args!("{address}"), out),
            None => out.extend_from_slice(b"localhost"),
        }
    }
    if settings.port_in_redirect
        && let Some(port) = connection.local.map(|local| local.port())
        && port != usual_port
    {
        out.push(b':');
        push_number(u64::from(port), out);
    }
}

/// Bytes that are not allowed in a field value, or in a URI, are percent-encoded.
fn push_visible(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if byte.is_ascii_graphic() {
            out.push(byte);
        } else {
            target::push_escape(byte, out);
        }
    }
}
