//! Framer and parser over raw bytes: the same result for every cut; what is taken is well formed, within
//! the limits, and read back the same when it is written again.

use crate::cuts;
use sekisho_http::token::{is_token_byte, is_value_byte};
use sekisho_http::{Head, Known, Version, target};
use sekisho_http1::frame::Framer;
use sekisho_http1::parse::{self, Framing, Message};
use sekisho_http1::{Cause, Policy};

/// A head as it was read: how long it was, and what it says.
type ParseResult = Result<Option<(usize, Message)>, Cause>;

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let (payload, seed) = cuts::split_seed(data);
    let limits = limits(seed >> 8);
    let mut first: Option<(ParseResult, Written)> = None;
    for pieces in cuts::ways(payload, seed) {
        let mut head = Head::default();
        let result = read(&pieces, &limits, &mut head);
        let written = Written::of(&head);
        if let Ok(Some((len, message))) = result {
            assert!(len <= limits.head_bytes_max + 2, "{len}");
            check_head(&head, message, &limits);
            check_again(&head, message);
        }
        let found = (result, written);
        match &first {
            None => first = Some(found),
            Some(first) => assert_eq!(*first, found, "the cut makes a difference"),
        }
    }
}

fn limits(bits: u32) -> Policy {
    match bits & 3 {
        0 => Policy {
            line_bytes_max: 40,
            field_bytes_max: 40,
            head_bytes_max: 120,
            fields_max: 4,
            ..Policy::default()
        },
        1 => Policy { line_bytes_max: 100, head_bytes_max: 60, ..Policy::default() },
        _ => Policy::default(),
    }
}

/// What a head holds, to be compared.
#[derive(PartialEq, Debug)]
struct Written {
    line: (Vec<u8>, Vec<u8>, Version),
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Written {
    fn of(head: &Head) -> Self {
        let fields = head.fields().map(|(name, value)| (name.to_vec(), value.to_vec()));
        Self {
            line: (head.method_name().to_vec(), head.target().to_vec(), head.version()),
            fields: fields.collect(),
        }
    }
}

/// Offers the pieces as the engine does: what was not taken comes again with more behind it.
fn read(pieces: &[&[u8]], limits: &Policy, head: &mut Head) -> ParseResult {
    let mut framer = Framer::default();
    let mut inbox = Vec::new();
    let mut skipped = 0;
    for piece in pieces {
        inbox.extend_from_slice(piece);
        if framer.scanned() == 0 {
            let blank = framer.skip_blank(&inbox)?;
            assert!(blank <= 2 && blank <= inbox.len());
            inbox.drain(..blank);
            skipped += blank;
            assert!(skipped <= 2, "more than one empty line was skipped");
        }
        let before = framer.scanned();
        let found = parse::head(&mut framer, &inbox, limits, head)?;
        assert!(framer.scanned() >= before && framer.scanned() <= inbox.len());
        let Some((len, message)) = found else {
            assert_eq!(framer.scanned(), inbox.len(), "all that is there has been looked at");
            assert!(inbox.len() < limits.head_bytes_max, "an incomplete head is bounded");
            continue;
        };
        check_other_parser(&inbox[..len], head);
        return Ok(Some((skipped + len, message)));
    }
    Ok(None)
}

/// Another parser reads the same fields.
fn check_other_parser(bytes: &[u8], head: &Head) {
    let fields_at = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let block = &bytes[fields_at..];
    let mut room = vec![httparse::EMPTY_HEADER; head.fields().count() + 1];
    match httparse::parse_headers(block, &mut room) {
        Ok(httparse::Status::Complete((len, fields))) => {
            assert_eq!(len, block.len());
            let fields = fields.iter().map(|field| (field.name.as_bytes(), field.value));
            assert!(fields.eq(head.fields()), "{}", bytes.escape_ascii());
        }
        other => panic!("{other:?}: {}", bytes.escape_ascii()),
    }
}

fn check_head(head: &Head, message: Message, limits: &Policy) {
    assert!(
        !head.method_name().is_empty() && head.method_name().iter().copied().all(is_token_byte)
    );
    assert!(!head.target().is_empty());
    assert!(head.target().iter().all(|byte| *byte > b' ' && *byte != 0x7f));
    assert!(head.fields().count() <= limits.fields_max);
    for (name, value) in head.fields() {
        assert!(!name.is_empty() && name.iter().copied().all(is_token_byte), "{name:?}");
        assert!(value.iter().copied().all(is_value_byte), "{value:?}");
        assert_eq!(value, value.trim_ascii(), "white space around a value");
    }
    let (codings, lengths) = (
        head.all_known(Known::TransferEncoding).count(),
        head.all_known(Known::ContentLength).count(),
    );
    match message.framing {
        Framing::None => assert_eq!((codings, lengths), (0, 0)),
        Framing::Length(_) => assert_eq!((codings, lengths), (0, 1)),
        Framing::Chunked => assert!(codings > 0 && lengths == 0),
    }
    let hosts = head.all_known(Known::Host).count();
    assert!(hosts == 1 || (hosts == 0 && head.version() == Version::Http10), "{hosts} hosts");
    if let Some(host) = head.known(Known::Host) {
        // The parser and the router must agree on what a host is.
        assert_eq!(target::host(host, &mut Vec::new()), Ok(()), "{host:?}");
    }
}

/// What was understood is understood the same when it is written again.
fn check_again(head: &Head, message: Message) {
    let mut text = Vec::new();
    let version = head.version().as_str().as_bytes();
    for part in [head.method_name(), b" ", head.target(), b" ", version, b"\r\n"] {
        text.extend_from_slice(part);
    }
    for (name, value) in head.fields() {
        for part in [name, b": ", value, b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    let generous = Policy {
        line_bytes_max: usize::MAX,
        field_bytes_max: usize::MAX,
        head_bytes_max: usize::MAX,
        fields_max: usize::MAX,
        ..Policy::default()
    };
    let mut again = Head::default();
    let result = read(&[&text], &generous, &mut again);
    assert_eq!(result, Ok(Some((text.len(), message))));
    assert_eq!(Written::of(head), Written::of(&again));
}
