//! The head of a program's answer (V24): the same result for every cut, and no more taken than the limit;
//! what leaves is what a second, simple reading of the same lines lets pass; nothing in it can split a
//! response or control the connection, as another parser of responses sees it.
//!
//! The last four bytes of the input say where the rest is cut, and by which rules it is read.

use sekisho_gateway::cgi::{Fed, HeadError, HeadReader, HeadRules, Kind, ResponseHead};
use sekisho_http::token::{is_token_byte, is_value_byte};

use crate::cuts;

const SERVERS_OWN: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "date",
    "server",
    "status",
    "content-length",
    "x-sendfile",
];

type Outcome = Result<Option<(ResponseHead, usize)>, HeadError>;

/// Holds the reader to it.
pub fn check(data: &[u8]) {
    let (payload, seed) = cuts::split_seed(data);
    let rules = HeadRules {
        bytes_max: if seed >> 8 & 3 == 0 { (seed >> 12 & 0x7f) as usize } else { 4096 },
        is_strict: seed >> 10 & 1 == 0,
        takes_accel: seed >> 11 & 1 == 0,
    };
    let ways = cuts::ways(payload, seed);
    let whole = read(rules, &ways[0]);
    for pieces in &ways[1..] {
        assert_eq!(read(rules, pieces), whole, "the cut makes a difference");
    }
    match whole {
        Ok(None) => assert!(payload.len() <= rules.bytes_max, "more was held than may be"),
        Err(_) => {}
        Ok(Some((head, taken))) => {
            assert!(taken <= payload.len() && taken <= rules.bytes_max);
            assert!(payload[..taken].ends_with(b"\n"));
            leaves_well(&head);
            if rules.is_strict {
                assert_eq!(lines_of(&head), passed(&payload[..taken], rules), "{head:?}");
            }
            stays(&head);
        }
    }
}

fn read(rules: HeadRules, pieces: &[&[u8]]) -> Outcome {
    let mut reader = HeadReader::new(rules);
    let mut before = 0;
    for piece in pieces {
        match reader.feed(piece)? {
            Fed::More => before += piece.len(),
            Fed::Head { head, taken } => {
                assert!(taken <= piece.len());
                return Ok(Some((head, before + taken)));
            }
        }
    }
    Ok(None)
}

/// Put into a response it is a head of that many fields, and nothing else.
fn leaves_well(head: &ResponseHead) {
    assert!((200..600).contains(&head.status.code()));
    let lines = lines_of(head);
    for (name, value) in &lines {
        assert!(!name.is_empty() && name.iter().copied().all(is_token_byte), "{name:?}");
        assert!(value.iter().copied().all(is_value_byte), "{value:?}");
        let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
        assert!(
            !SERVERS_OWN.contains(&lower.as_str()) && !lower.starts_with("x-accel-"),
            "{lower}"
        );
    }
    let text = [b"HTTP/1.1 200 OK\r\n", head.fields.as_lines(), b"\r\n"].concat();
    let mut room = vec![httparse::EMPTY_HEADER; lines.len() + 1];
    let mut response = httparse::Response::new(&mut room);
    assert_eq!(response.parse(&text), Ok(httparse::Status::Complete(text.len())));
    assert_eq!(response.headers.len(), lines.len());
    let is =
        |wanted: &[u8]| lines.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).count();
    assert_eq!(head.has_content_type, is(b"content-type") > 0);
    assert!(is(b"location") <= 1);
    match &head.kind {
        Kind::Document => {}
        Kind::ClientRedirect => assert_eq!((head.status.code(), is(b"location")), (302, 1)),
        Kind::LocalRedirect(path) => assert!(path.starts_with(b"/") && !path.starts_with(b"//")),
        Kind::Accel(target) => assert!(!target.is_empty()),
    }
}

fn lines_of(head: &ResponseHead) -> Vec<(Vec<u8>, Vec<u8>)> {
    head.fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// What a strict head of whole lines lets pass: line by line, with a `Location` of the client's at the end.
fn passed(head: &[u8], rules: HeadRules) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut fields = Vec::new();
    let (mut location, mut status, mut has_accel) = (None, None, false);
    let mut nominated: Vec<Vec<u8>> = Vec::new();
    for line in head.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
        let value = value.trim_ascii().to_vec();
        let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
        match lower.as_str() {
            "location" => location = Some(value),
            "status" => status = Some(value[..3].to_vec()),
            "connection" => nominated.extend(
                value
                    .split(|byte| *byte == b',')
                    .map(|name| name.trim_ascii().to_ascii_lowercase()),
            ),
            "x-accel-redirect" => has_accel |= rules.takes_accel && !value.is_empty(),
            "x-lighttpd-send-file" => {}
            _ if SERVERS_OWN.contains(&lower.as_str()) || lower.starts_with("x-accel-") => {}
            _ => fields.push((name.to_vec(), value)),
        }
    }
    fields.retain(|(name, _)| !nominated.contains(&name.to_ascii_lowercase()));
    if let Some(location) = location.filter(|_| !has_accel) {
        let is_ok = status.is_none_or(|status| status == b"200");
        let is_local = location.starts_with(b"/") && !location.starts_with(b"//");
        if !(is_ok && is_local) {
            fields.push((b"Location".to_vec(), location));
        }
    }
    fields
}

/// What has been let through is let through again.
fn stays(head: &ResponseHead) {
    let mut text = format!("Status: {}\r\n", head.status.code()).into_bytes();
    if let Some(length) = head.content_length {
        text.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
    }
    text.extend_from_slice(head.fields.as_lines());
    text.extend_from_slice(b"\r\n");
    let rules = HeadRules { bytes_max: usize::MAX, is_strict: true, takes_accel: true };
    let len = text.len();
    text.extend_from_slice(b"body: a\r\n");
    let again = read(rules, &[&text]).expect("it was good").expect("it is whole");
    assert_eq!(again.1, len, "what follows is body");
    assert_eq!((again.0.status, again.0.content_length), (head.status, head.content_length));
    assert_eq!(lines_of(&again.0).len(), lines_of(head).len());
}
