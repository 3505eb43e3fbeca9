//! The client's side of HTTP/1 (V1, V2): the same events for every cut; a head that is taken has one
//! meaning, also for another parser; a body is as long as was declared, or visibly cut; a connection is
//! kept only if every byte belonged to the answer. And the other way: whatever pairs a request is made of, what
//! is written is one request to our own server's parser, with the framing that was asked for, or nothing.
//!
//! The last four bytes of the input say where the rest is cut and what was asked. Before a byte 0xff stands the
//! answer, behind it pairs for a request, each a line.

use sekisho_http::upstream::{
    Request, RequestBody, ResponseHead, Scratch, Timeouts, UpstreamProtocol, is_hop_by_hop,
};
use sekisho_http::{Fields, Head, Known, Version};
use sekisho_http1::client::Limits;
use sekisho_http1::frame::Framer;
use sekisho_http1::parse::{self, Framing};
use sekisho_http1::{Client, Policy};
use sekisho_lifecycle::Moment;

use crate::cuts;
use crate::upstream_events::{Report, Seen, play, request};

/// Holds the engine to it.
pub fn check(data: &[u8]) {
    let (payload, seed) = cuts::split_seed(data);
    let parting = memchr::memchr(0xff, payload).unwrap_or(payload.len());
    let answer = &payload[..parting];
    let limits = match seed >> 8 & 3 {
        0 => Limits { head_bytes_max: 64, fields_max: 3 },
        _ => Limits::default(),
    };
    let is_head = seed >> 10 & 3 == 0;
    let asks_upgrade = seed >> 12 & 1 == 0;
    let mut pairs: Fields = [("Host", "a")].into_iter().collect();
    if asks_upgrade {
        pairs.push(b"Connection", b"upgrade");
        pairs.push(b"Upgrade", b"x");
    }
    let [whole, rest @ ..] = cuts::ways(answer, seed).map(|pieces| {
        let client = Client::new(limits, Timeouts::default());
        play(client, &request(&pairs, is_head), &pieces)
    });
    for cut in rest {
        assert_eq!(cut, whole, "the cut makes a difference");
    }
    holds(&whole, answer, is_head, asks_upgrade);
    sends_one_request(payload.get(parting + 1..).unwrap_or_default(), seed);
}

fn holds(report: &Report, answer: &[u8], is_head: bool, asks_upgrade: bool) {
    let mut at = 0;
    let mut body: Option<&[u8]> = None;
    let mut last = None;
    for seen in &report.seen {
        match seen {
            Seen::Informational(head) | Seen::Head(head) | Seen::Upgraded(head) => {
                at += agrees(&answer[at..], head);
                let code = head.status.code();
                let is_informational = matches!(seen, Seen::Informational(_));
                assert_eq!(is_informational, code < 200 && code != 101);
                assert!(!matches!(seen, Seen::Upgraded(_)) || (asks_upgrade && code == 101));
                assert!(!(is_head && head.has_body));
                last = Some(head);
            }
            Seen::Body(bytes) => body = Some(bytes),
            Seen::Stderr(_) => panic!("there is none"),
            Seen::Failed(_) => assert!(report.reuse != Ok(())),
            Seen::End(trailers) => {
                let head = last.expect("a head before the end");
                if head.status.code() != 101 {
                    let length = body.map_or(0, <[u8]>::len) as u64;
                    let declared = head.body_length();
                    assert!(declared.is_none_or(|declared| declared == length), "as declared");
                    assert!(head.has_body || length == 0);
                }
                assert!(trailers.iter().all(|(name, _)| !is_hop_by_hop(name)));
            }
        }
    }
    if report.reuse == Ok(()) {
        assert_eq!(report.taken, answer.len(), "each byte belonged to the answer");
    }
}

/// Another parser reads the same head; its length.
fn agrees(bytes: &[u8], head: &ResponseHead) -> usize {
    let mut room = [httparse::EMPTY_HEADER; 256];
    let mut other = httparse::Response::new(&mut room);
    let Ok(httparse::Status::Complete(len)) = other.parse(bytes) else {
        panic!("another parser does not take it: {}", bytes.escape_ascii());
    };
    assert_eq!(other.code, Some(head.status.code()));
    assert_eq!(other.version, Some(u8::from(head.version == Version::Http11)));
    let lengths = other.headers.iter().filter(|field| is(field.name, "content-length"));
    let codings = other.headers.iter().filter(|field| is(field.name, "transfer-encoding"));
    let (lengths, codings) = (lengths.count(), codings.count());
    assert!(lengths + codings.min(1) <= 1, "one framing");
    assert_eq!(lengths == 1, head.content_length.is_some());
    let mut kept = other.headers.iter();
    for (name, value) in head.fields.iter() {
        assert!(!is_hop_by_hop(name) || name.eq_ignore_ascii_case(b"upgrade"));
        let found = kept.find(|field| field.name.as_bytes() == name && field.value == value);
        assert!(found.is_some(), "in its order: {}", name.escape_ascii());
    }
    len
}

fn is(name: &str, known: &str) -> bool {
    name.eq_ignore_ascii_case(known)
}

/// U3: what leaves is one request, whatever it was made of.
fn sends_one_request(text: &[u8], seed: u32) {
    let mut pairs = Fields::default();
    let mut lines = text.split(|byte| *byte == 0xfe);
    let method = lines.next().unwrap_or_default();
    let target = lines.next().unwrap_or_default();
    for line in lines {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        pairs.push(&line[..colon], line.get(colon + 1..).unwrap_or_default());
    }
    let body = match seed >> 16 & 3 {
        0 => RequestBody::Unknown,
        1 => RequestBody::Known(u64::from(seed >> 24)),
        _ => RequestBody::None,
    };
    let version = if seed >> 18 & 3 == 0 { Version::Http10 } else { Version::Http11 };
    let keeps_alive = seed >> 20 & 1 == 0;
    let request = Request { method, target, version, pairs: &pairs, body, keeps_alive };
    let mut client = Client::new(Limits::default(), Timeouts::default());
    let mut scratch = Scratch::default();
    if client.start(&request, &mut scratch, Moment::ZERO).is_err() {
        assert!(scratch.out.is_empty(), "nothing is sent");
        assert!(client.is_reusable(), "and nothing has happened");
        return;
    }
    let limits = Policy {
        line_bytes_max: usize::MAX,
        field_bytes_max: usize::MAX,
        head_bytes_max: usize::MAX,
        fields_max: usize::MAX,
        ..Policy::default()
    };
    let mut head = Head::default();
    let read = parse::head(&mut Framer::default(), &scratch.out, &limits, &mut head);
    let (len, message) = read.expect("one meaning").expect("whole");
    assert_eq!(len, scratch.out.len(), "one head and nothing behind it");
    assert_eq!((head.method_name(), head.target(), head.version()), (method, target, version));
    let framing = match body {
        RequestBody::None => Framing::None,
        RequestBody::Known(length) => Framing::Length(length),
        RequestBody::Unknown => Framing::Chunked,
    };
    assert_eq!(message.framing, framing);
    assert!(head.all_known(Known::Host).count() <= 1);
    assert!(head.known(Known::Expect).is_none() && head.known(Known::KeepAlive).is_none());
    let wants_close = pairs.all(b"connection").any(|value| {
        value
            .split(|byte| *byte == b',')
            .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
    });
    let is_upgrade = head.known(Known::Upgrade).is_some();
    assert!(is_upgrade || message.persists == (keeps_alive && !wants_close));
}
