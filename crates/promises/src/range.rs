//! Field values and log lines: ranges lie within the body and are not larger than it together; dates, hosts
//! and conditions are read or ignored; a log line is one line whatever a client sends.
//!
//! The lines of the input are, in turn, the values of several fields; the whole of it is a value, too.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sekisho_config::Escape;
use sekisho_fuzz::site;
use sekisho_http::conditional::{Since, Validators, Verdict, evaluate, if_range_holds};
use sekisho_http::range::{self, Ranges};
use sekisho_http::{Accepted, Coding, Head, Status, Version, date, target};
use sekisho_http1::parse::is_host;
use sekisho_route::compression::{mark_compressed, mark_varying};
use sekisho_route::{
    ConnectionFacts, Exchange, Request, RequestIdSeed, Sent, Table, WallTime, log_line,
};

static TABLE: LazyLock<Table> = LazyLock::new(site::table);

fuzz_target!(|data: &[u8]| {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').take(8).collect();
    for value in lines.iter().copied().chain([data]) {
        ranges(value);
        dates(value);
        hosts(value);
        codings(value);
    }
    if let Some(seconds) = data.first_chunk() {
        seconds_are_written(i64::from_le_bytes(*seconds));
        seconds_are_written(i64::from_le_bytes(*seconds) >> 24);
    }
    conditions(&lines);
    logs(data, &lines);
});

fn ranges(value: &[u8]) {
    for size in [0, 1, 10, 1000, u64::MAX] {
        for parts_max in [0, 1, 3, range::PARTS_MAX] {
            let parts = match range::parse(value, size, parts_max) {
                Ranges::Whole => continue,
                Ranges::Unsatisfiable => Vec::new(),
                Ranges::One(part) => vec![part],
                Ranges::Many(parts) => {
                    assert!(parts.len() > 1);
                    parts
                }
            };
            assert!(size > 0 && parts_max > 0 && parts.len() <= parts_max);
            let mut total = 0_u64;
            for (at, part) in parts.iter().enumerate() {
                assert!(part.start < part.end && part.end <= size, "{part:?} of {size}");
                total = total.checked_add(part.end - part.start).expect("no overflow");
                for other in &parts[..at] {
                    assert!(part.end <= other.start || other.end <= part.start, "{parts:?}");
                }
            }
            assert!(total <= size);
        }
    }
}

/// A coding is taken only where it was named, or gzip for an asterisk; field lines stay whole lines.
fn codings(value: &[u8]) {
    let mut head = Head::default();
    head.begin(b"GET", b"/", Version::Http11);
    head.push(b"Accept-Encoding", value);
    let lower = value.to_ascii_lowercase();
    let says = |name: &str| lower.windows(name.len()).any(|word| word == name.as_bytes());
    for coding in Accepted::of(&head).iter() {
        assert!(says(coding.name()) || (coding == Coding::Gzip && says("*")));
    }
    let line: Vec<u8> = value.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect();
    for name in [&b"ETag: "[..], b"Vary:", b"Accept-Ranges: ", b""] {
        let mut lines = [b"A: b\r\n", name, &line, b"\r\nC: d\r\n"].concat();
        mark_compressed(&mut lines, Coding::Brotli);
        mark_varying(&mut lines);
        let text = lines.strip_suffix(b"\r\n").expect("whole lines");
        assert!(text.starts_with(b"A: b\r\n"));
        let count = text.split(|byte| *byte == b'\n').count();
        assert!((3..=5).contains(&count), "{}", lines.escape_ascii());
    }
}

fn dates(value: &[u8]) {
    if let Some(seconds) = date::parse(value) {
        assert!(seconds >= 0);
        seconds_are_written(seconds);
        let mut out = Vec::new();
        date::write(seconds, &mut out);
        assert_eq!(date::parse(&out), Some(seconds), "{}", value.escape_ascii());
    }
}

fn seconds_are_written(seconds: i64) {
    let civil = date::civil(seconds);
    assert!((1..=9999).contains(&civil.year));
    assert!((1..=12).contains(&civil.month) && (1..=31).contains(&civil.day));
    assert!(civil.hour < 24 && civil.minute < 60 && civil.second < 60 && civil.weekday < 7);
    let mut out = Vec::new();
    date::write(seconds, &mut out);
    assert_eq!(out.len(), "Sun, 06 Nov 1994 08:49:37 GMT".len());
    assert!(out.iter().all(|byte| matches!(byte, b' '..=b'~')));
}

fn hosts(value: &[u8]) {
    let mut out = b"left over".to_vec();
    match target::host(value, &mut out) {
        Ok(()) => {
            assert!(!out.is_empty());
            assert!(out.iter().all(|byte| byte.is_ascii_graphic() && !b"/\\?#@".contains(byte)));
            assert!(!out.iter().any(u8::is_ascii_uppercase));
            let mut again = Vec::new();
            assert_eq!(target::host(&out, &mut again), Ok(()));
            assert_eq!(out, again, "a host stays as it is");
        }
        // The parser may be stricter than the router, never the reverse.
        Err(_) => assert!(!is_host(value), "{}", value.escape_ascii()),
    }
}

fn conditions(lines: &[&[u8]]) {
    let names: [&[u8]; 5] =
        [b"If-Match", b"If-None-Match", b"If-Modified-Since", b"If-Unmodified-Since", b"If-Range"];
    let validators = Validators { etag: Some(b"\"a,b\""), modified: 784_111_777 };
    for method in [&b"GET"[..], b"PUT"] {
        let mut head = Head::default();
        head.begin(method, b"/", Version::Http11);
        for (name, value) in names.into_iter().zip(lines) {
            if !value.is_empty() {
                head.push(name, value);
            }
        }
        for since in [Since::Off, Since::Exact, Since::Before] {
            let (has_match, has_none) =
                (head.named(names[0]).is_some(), head.named(names[1]).is_some());
            let has_after = head.named(names[2]).is_some() && since != Since::Off;
            match evaluate(&head, &validators, since) {
                Verdict::Proceed => {}
                Verdict::NotModified => {
                    assert_eq!(method, b"GET");
                    assert!(has_none || has_after);
                }
                Verdict::PreconditionFailed => {
                    let has_before = head.named(names[3]).is_some();
                    assert!(has_match || has_before || (has_none && method == b"PUT"));
                }
            }
        }
        assert!(if_range_holds(&head, &validators) || head.named(names[4]).is_some());
    }
}

fn logs(data: &[u8], lines: &[&[u8]]) {
    let line = |at: usize| lines.get(at).copied().unwrap_or(data);
    let mut head = Head::default();
    head.begin(line(0), line(1), Version::Http10);
    for (at, name) in [&b"Host"[..], b"X", b"Cookie", b"Content-Type"].into_iter().enumerate() {
        head.push(name, line(at + 2));
    }
    head.push(b"Authorization", &[b"Basic ", line(6)].concat());
    let connection = ConnectionFacts::default();
    let request = Request {
        head: &head,
        listen: 0,
        connection: &connection,
        wall: WallTime { unix_secs: data.len() as i64, nanos: 0, utc_offset_secs: 3600 },
        request_id: RequestIdSeed(1),
    };
    // As the parser gives it, and with every byte there is.
    let mut exchange = Exchange::default();
    let _ = TABLE.choose_server(0, &head, &mut exchange);
    exchange.path.extend_from_slice(line(1));
    exchange.query.extend_from_slice(line(2));
    exchange.host = line(3).to_vec();
    let fields = [b"Y: ", line(4), b"\r\n"].concat();
    let sent = Sent { status: Some(Status::OK), fields: &fields, ..Sent::default() };
    let settings = &TABLE.location(exchange.location).settings;
    assert_eq!(settings.access_logs.len(), 2);
    for log in settings.access_logs.iter() {
        let mut out = Vec::new();
        log_line(&log.format, &TABLE, &request, &exchange, Some(&sent), &mut out);
        match log.format.escape {
            Escape::Json => is_flat_json(&out),
            _ => assert!(out.iter().all(|byte| matches!(byte, b' '..=b'~')), "{out:?}"),
        }
    }
}

/// `{"name":"value",…}` and nothing else: nobody gets out of a string.
fn is_flat_json(line: &[u8]) {
    let shown = || line.escape_ascii().to_string();
    let text = std::str::from_utf8(line).unwrap_or_else(|_| panic!("not UTF-8: {}", shown()));
    let mut rest = text.strip_prefix('{').unwrap_or_else(|| panic!("{}", shown()));
    let mut strings = 0;
    loop {
        rest = string(rest).unwrap_or_else(|| panic!("not a string: {}", shown()));
        strings += 1;
        let expected = if strings % 2 == 1 { ":" } else { "," };
        match rest.strip_prefix(expected) {
            Some(after) => rest = after,
            None => break,
        }
    }
    assert_eq!((rest, strings), ("}", 18), "{}", shown());
}

/// What follows a JSON string.
fn string(text: &str) -> Option<&str> {
    let mut chars = text.strip_prefix('"')?.chars();
    loop {
        match chars.next()? {
            '"' => return Some(chars.as_str()),
            '\0'..' ' => return None,
            '\\' => match chars.next()? {
                '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => {}
                'u' => {
                    for _ in 0..4 {
                        chars.next().filter(char::is_ascii_hexdigit)?;
                    }
                }
                _ => return None,
            },
            _ => {}
        }
    }
}
