//! Frames of a scripted server, and what the engine has sent as text.

use std::time::Duration;

use sekisho_http::Fields;
use sekisho_http::upstream::Timeouts;
use sekisho_http2::client::{Client, Limits};
use sekisho_http2::frame::{self, HEADER_BYTES, Header, Kind, PREFACE, flag};
use sekisho_http2::hpack::Decoder;

use crate::harness::{Task, pairs};

pub(crate) const TIMEOUTS: Timeouts =
    Timeouts { send: Some(Duration::from_secs(10)), read: Some(Duration::from_secs(20)) };

pub(crate) fn task() -> Task<Client> {
    Task::new(Client::new(Limits::default(), TIMEOUTS, false))
}

pub(crate) fn host() -> Fields {
    pairs(&[("Host", "a")])
}

pub(crate) fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::header(&mut out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
    out
}

pub(crate) fn data(stream: u32, payload: &[u8], ends: bool) -> Vec<u8> {
    frame(Kind::Data, if ends { flag::END_STREAM } else { 0 }, stream, payload)
}

/// A header block that needs no table.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        assert!(name.len() < 127 && value.len() < 127);
        out.extend_from_slice(&[0, name.len() as u8]);
        out.extend_from_slice(name.as_bytes());
        out.push(value.len() as u8);
        out.extend_from_slice(value.as_bytes());
    }
    out
}

pub(crate) fn headers(stream: u32, fields: &[(&str, &str)], ends: bool) -> Vec<u8> {
    let flags = flag::END_HEADERS | if ends { flag::END_STREAM } else { 0 };
    frame(Kind::Headers, flags, stream, &block(fields))
}

pub(crate) fn ok(stream: u32) -> Vec<u8> {
    headers(stream, &[(":status", "200")], false)
}

pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::settings(&mut out, values);
    out
}

pub(crate) fn window(stream: u32, increment: u32) -> Vec<u8> {
    frame(Kind::WindowUpdate, 0, stream, &increment.to_be_bytes())
}

pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(Kind::RstStream, 0, stream, &code.to_be_bytes())
}

pub(crate) fn go_away(last: u32, code: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::go_away(&mut out, last, code);
    out
}

/// What the engine has sent since the last call, frame by frame.
pub(crate) fn sent(task: &mut Task<Client>, decoder: &mut Decoder) -> Vec<String> {
    task.flush();
    let wire = std::mem::take(&mut task.wire);
    let mut wire = wire.as_slice();
    let mut seen = Vec::new();
    if let Some(rest) = wire.strip_prefix(PREFACE) {
        seen.push("preface".to_owned());
        wire = rest;
    }
    while let Some(header) = Header::read(wire) {
        let end = HEADER_BYTES + header.len as usize;
        let payload = &wire[HEADER_BYTES..end];
        wire = &wire[end..];
        let fin = if header.has(flag::END_STREAM) { " END" } else { "" };
        let stream = header.stream;
        seen.push(match header.kind {
            Kind::Headers => {
                assert!(header.has(flag::END_HEADERS));
                let mut fields = Vec::new();
                let read = decoder.decode(payload, &mut Vec::new(), |field| {
                    fields.push(format!(
                        "{}={}",
                        field.name.escape_ascii(),
                        field.value.escape_ascii()
                    ));
                });
                read.expect("a block");
                format!("HEADERS {stream}{fin} {}", fields.join(" "))
            }
            Kind::Data => format!("DATA {stream}{fin} {}", payload.len()),
            Kind::Settings if header.has(flag::ACK) => "SETTINGS ACK".to_owned(),
            Kind::Settings => "SETTINGS".to_owned(),
            Kind::WindowUpdate => {
                format!("WINDOW {stream} {}", frame::number(payload, 0).expect("a number"))
            }
            Kind::RstStream => {
                format!("RESET {stream} {}", frame::number(payload, 0).expect("a number"))
            }
            Kind::Ping if header.has(flag::ACK) => "PONG".to_owned(),
            kind => format!("{kind:?}"),
        });
    }
    assert!(wire.is_empty(), "whole frames only");
    seen
}
