//! Lines of the access log (O6): a format with its variables filled in and escaped, so that whatever a
//! client sends, it stays one line and the fields in it can be told apart.

use std::cell::Cell;

use sekisho_config::{Escape, LogFormat, Part, Template, Variable};

use crate::exchange::{Exchange, Request};
use crate::table::Table;
use crate::variable::{NESTED_MAX, Scope, Sent, expand, push_text};

/// Appends a line, without its end. Values are escaped as the format says; under [`Escape::Default`] a
/// value that is not there is `-`.
pub fn log_line(
    format: &LogFormat,
    table: &Table,
    request: &Request<'_>,
    exchange: &Exchange,
    sent: Option<&Sent<'_>>,
    out: &mut Vec<u8>,
) {
    let nested = Cell::new(NESTED_MAX);
    let scope =
        Scope { table, request, exchange, sent, captures: &exchange.captures, nested: &nested };
    for part in &format.line.parts {
        match part {
            Part::Literal(text) => out.extend_from_slice(text),
            Part::Variable(variable) => {
                let start = out.len();
                scope.variable(variable, out);
                // This one is always there: it says `OK` or nothing.
                if out.len() > start || *variable != Variable::RequestCompletion {
                    escape(format.escape, start, out);
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
    exchange: &Exchange,
    sent: Option<&Sent<'_>>,
) -> bool {
    let mut value = Vec::new();
    expand(condition, table, request, exchange, sent, &mut value);
    !matches!(value.as_slice(), b"" | b"0")
}

/// Escapes what has been appended since `start`. Most values need nothing, and are left where they are.
fn escape(how: Escape, start: usize, out: &mut Vec<u8>) {
    match how {
        Escape::None => {}
        Escape::Default if out.len() == start => out.push(b'-'),
        Escape::Default => {
            let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
            if out[start..].iter().all(|byte| is_plain(*byte)) {
                return;
            }
            for byte in out.split_off(start) {
                if is_plain(byte) {
                    out.push(byte);
                } else {
                    push_text(format_args!("\\x{byte:02X}"), out);
                }
            }
        }
        Escape::Json => {
            let is_plain = |byte: u8| matches!(byte, b' '..=0x7f) && !matches!(byte, b'"' | b'\\');
            if out[start..].iter().all(|byte| is_plain(*byte)) {
                return;
            }
            push_json(&out.split_off(start), out);
        }
    }
}

/// nginx writes bytes that are not UTF-8 as they are, and the line is no longer JSON; here they become
/// the code points of the same number.
fn push_json(value: &[u8], out: &mut Vec<u8>) {
    for chunk in value.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0x08 => out.extend_from_slice(b"\\b"),
                0x0c => out.extend_from_slice(b"\\f"),
                0..0x20 => push_text(format_args!("\\u{byte:04X}"), out),
                _ => out.push(byte),
            }
        }
        for byte in chunk.invalid() {
            push_text(format_args!("\\u{byte:04X}"), out);
        }
    }
}
