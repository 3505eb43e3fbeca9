//! The client's side of FastCGI, SCGI and uwsgi (V24): the same events for every cut, in records or as they are;
//! nothing in a head that could split a response or control the connection; no more body than was
//! declared; and parameters that a second, simple reader reads back.
//!
//! The last four bytes of the input say where the rest is cut and what was asked.

use sekisho_gateway::SingleRequest;
use sekisho_gateway::fastcgi::FastCgi;
use sekisho_gateway::uwsgi::Modifiers;
use sekisho_http::Fields;
use sekisho_http::token::{is_token_byte, is_value_byte};
use sekisho_http::upstream::{RequestBody, Scratch, Timeouts, UpstreamProtocol, is_hop_by_hop};
use sekisho_lifecycle::Moment;

use crate::cuts;
use crate::upstream_events::{Report, Seen, play, request};

/// Holds the engines to it.
pub fn check(data: &[u8]) {
    let (payload, seed) = cuts::split_seed(data);
    let bytes_max = if seed >> 8 & 3 == 0 { 40 } else { 4096 };
    let is_head = seed >> 10 & 3 == 0;
    let keeps_alive = seed >> 12 & 1 == 0;
    let pairs: Fields = [("A", "b")].into_iter().collect();
    let asked = sekisho_http::upstream::Request { keeps_alive, ..request(&pairs, is_head) };
    let timeouts = Timeouts::default();

    // As they are, in records that the input makes itself, and in sound records.
    same(payload, seed, |pieces| play(SingleRequest::scgi(bytes_max, timeouts), &asked, pieces));
    same(payload, seed, |pieces| {
        play(SingleRequest::uwsgi(Modifiers::default(), bytes_max, timeouts), &asked, pieces)
    });
    same(payload, seed, |pieces| play(FastCgi::new(bytes_max, timeouts), &asked, pieces));
    let framed = framed(payload, seed);
    let report =
        same(&framed, seed, |pieces| play(FastCgi::new(bytes_max, timeouts), &asked, pieces));
    if keeps_alive && matches!(report.seen.last(), Some(Seen::End(_))) {
        assert_eq!(report.reuse, Ok(()), "records keep the connection in step");
    }
    parameters(payload, seed);
}

fn same(input: &[u8], seed: u32, play: impl Fn(&[&[u8]]) -> Report) -> Report {
    let [whole, rest @ ..] = cuts::ways(input, seed).map(|pieces| play(&pieces));
    for cut in rest {
        assert_eq!(cut, whole, "the cut makes a difference");
    }
    let mut declared = None;
    let mut length = 0;
    for seen in &whole.seen {
        match seen {
            Seen::Head(head) => {
                declared = head.body_length();
                assert!((200..600).contains(&head.status.code()));
                for (name, value) in head.fields.iter() {
                    assert!(!name.is_empty() && name.iter().copied().all(is_token_byte));
                    assert!(value.iter().copied().all(is_value_byte));
                    assert!(!is_hop_by_hop(name) || name.eq_ignore_ascii_case(b"expect"));
                    assert!(!name.eq_ignore_ascii_case(b"content-length"));
                }
            }
            Seen::Body(bytes) => length += bytes.len() as u64,
            Seen::End(_) => assert!(declared.is_none_or(|declared| declared == length)),
            _ => {}
        }
    }
    assert!(declared.is_none_or(|declared| length <= declared));
    whole
}

/// The input as an application would send it: pieces of standard output, some of standard error between
/// them, and the end.
fn framed(payload: &[u8], seed: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut record = |kind: u8, content: &[u8], padding: u8| {
        let [high, low] = (content.len() as u16).to_be_bytes();
        out.extend_from_slice(&[1, kind, 0, 1, high, low, padding, 0]);
        out.extend_from_slice(content);
        out.extend_from_slice(&vec![0; usize::from(padding)]);
    };
    for (at, piece) in cuts::ways(payload, seed)[2].iter().enumerate() {
        if at % 3 == 1 {
            record(7, b"oh", (seed >> 16) as u8 & 7);
        }
        record(6, piece, (seed >> 20) as u8 & 7);
    }
    record(6, b"", 0);
    record(3, &[0; 8], (seed >> 24) as u8 & 7);
    out
}

/// What is written is read back by a reader that knows nothing of the writer.
fn parameters(payload: &[u8], seed: u32) {
    let mut pairs = Fields::default();
    for line in payload.split(|byte| *byte == b'\n') {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        pairs.push(&line[..colon], line.get(colon + 1..).unwrap_or_default());
    }
    let length = u64::from(seed >> 24);
    let asked = sekisho_http::upstream::Request {
        body: RequestBody::Known(length),
        ..request(&pairs, false)
    };
    let is_sound = pairs.iter().all(|(name, value)| {
        !name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'=')) && !value.contains(&0)
    });
    let mut expected: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (name, value) in pairs.iter().filter(|(name, _)| *name != b"CONTENT_LENGTH") {
        expected.push((name.to_vec(), value.to_vec()));
    }
    let written = |mut engine: Box<dyn UpstreamProtocol>| {
        let mut scratch = Scratch::default();
        let started = engine.start(&asked, &mut scratch, Moment::ZERO);
        assert_eq!(started.is_ok(), is_sound);
        assert!(is_sound || scratch.out.is_empty(), "nothing is sent");
        scratch.out
    };
    let timeouts = Timeouts::default();
    let scgi = written(Box::new(SingleRequest::scgi(4096, timeouts)));
    let modifiers = Modifiers::default();
    let uwsgi = written(Box::new(SingleRequest::uwsgi(modifiers, 4096, timeouts)));
    let fastcgi = written(Box::new(FastCgi::new(4096, timeouts)));
    if !is_sound {
        return;
    }
    let length = (b"CONTENT_LENGTH".to_vec(), length.to_string().into_bytes());
    let read = [read_scgi(&scgi), read_uwsgi(&uwsgi), read_fastcgi(&fastcgi)];
    for (at, found) in read.into_iter().enumerate() {
        let lengths = found.iter().filter(|pair| **pair == length).count();
        assert_eq!(lengths, 1, "the length is said once");
        let others = found
            .into_iter()
            .filter(|(name, _)| name != b"CONTENT_LENGTH" && !(at == 0 && name == b"SCGI"));
        let expected = expected.iter().filter(|(name, _)| !(at == 0 && name == b"SCGI")).cloned();
        assert!(others.eq(expected), "{at}");
    }
}

type Read = Vec<(Vec<u8>, Vec<u8>)>;

fn read_scgi(wire: &[u8]) -> Read {
    let colon = memchr::memchr(b':', wire).expect("a length");
    let len: usize = String::from_utf8_lossy(&wire[..colon]).parse().expect("a number");
    assert_eq!((wire.len(), wire.last()), (colon + 1 + len + 1, Some(&b',')));
    let mut texts = wire[colon + 1..colon + 1 + len].split(|byte| *byte == 0);
    let mut all = Vec::new();
    while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
        all.push((name.to_vec(), value.to_vec()));
    }
    assert_eq!(all[0].0, b"CONTENT_LENGTH", "it comes first");
    all
}

fn read_uwsgi(wire: &[u8]) -> Read {
    let len = usize::from(u16::from_le_bytes([wire[1], wire[2]]));
    let mut rest = &wire[4..];
    assert_eq!(rest.len(), len);
    let mut text = || {
        let (len, behind) = rest.split_first_chunk::<2>()?;
        let (text, behind) = behind.split_at(usize::from(u16::from_le_bytes(*len)));
        rest = behind;
        Some(text.to_vec())
    };
    let mut all = Vec::new();
    while let Some(name) = text() {
        all.push((name, text().expect("a value")));
    }
    all
}

fn read_fastcgi(wire: &[u8]) -> Read {
    let mut rest = wire;
    let mut params = Vec::new();
    while let Some((header, behind)) = rest.split_first_chunk::<8>() {
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[1] == 4 {
            params.extend_from_slice(&behind[..len]);
        }
        rest = &behind[len + usize::from(header[6])..];
    }
    let mut left = params.as_slice();
    let mut all = Vec::new();
    while !left.is_empty() {
        let (name, value) = (read_length(&mut left), read_length(&mut left));
        let (pair, behind) = left.split_at(name + value);
        all.push((pair[..name].to_vec(), pair[name..].to_vec()));
        left = behind;
    }
    all
}

fn read_length(bytes: &mut &[u8]) -> usize {
    let long = bytes[0] >= 0x80;
    let (len, rest) = bytes.split_at(if long { 4 } else { 1 });
    *bytes = rest;
    len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) & 0x7fff_ffff
}
