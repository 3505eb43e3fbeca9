//! Lines of the access log (V27): whatever a client sends, one event is one line of plain bytes; where it is JSON,
//! it is one object of the names in the format, and each value is read back as it was; where it is escaped, taking
//! the escapes out gives back the bytes.
//!
//! The lines of the input are, in turn, method, target and the values of fields; the whole of it is one of them.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use sekisho_config::{Escape, Memory, Options, Part, load};
use sekisho_http::{Head, Status, Version};
use sekisho_lifecycle::Moment;
use sekisho_route::{
    ConnectionFacts, LineFormat, Request, RequestIdSeed, RouteState, Sent, Table, TimeTexts,
    WallTime, log_line, push_variable,
};

/// The same variables in both, each as the name that it has.
const TEXT: &str = r#"events {} http {
    log_format plain '"$request" "$http_x" "$uri" "$args" "$host" "$cookie_x" "$remote_user" "$content_type" "$request_method" "$sent_http_y"';
    log_format json escape=json '{"request":"$request","x":"$http_x","uri":"$uri","args":"$args","host":"$host","cookie":"$cookie_x","user":"$remote_user","type":"$content_type","method":"$request_method","y":"$sent_http_y"}';
    access_log /logs/plain plain;
    access_log /logs/json json;
    server { listen 8080; root /srv; }
}"#;
/// What the values are called in the second, but for the last one, which is not the request's.
const NAMES: [&str; 9] =
    ["request", "x", "uri", "args", "host", "cookie", "user", "type", "method"];

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let outcome = load(Path::new("/s.conf"), &Options::new("/p"), &Memory::of("/s.conf", TEXT));
    Table::new(Arc::new(outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.reports))))
});

/// Holds the log to it.
pub fn check(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').take(8).collect();
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
        since: Moment::ZERO,
        now: Moment::ZERO,
        is_pipelined: false,
        census: None,
    };
    // As the parser gives it, and with every byte there is.
    let mut route_state = RouteState::default();
    let _ = TABLE.choose_server(0, &head, &mut route_state);
    route_state.path.extend_from_slice(line(1));
    route_state.query.extend_from_slice(line(2));
    route_state.host = line(3).to_vec();
    let fields = [("Y", line(4))].into_iter().collect();
    let sent = Sent { status: Some(Status::OK), fields: &fields, ..Sent::default() };
    let settings = &TABLE.location(route_state.location).settings;
    assert_eq!(settings.access_logs.len(), 2);
    let parts = settings.access_logs[0].format.line.parts.iter();
    let variables = parts.filter_map(|part| match part {
        Part::Variable(variable) => Some(variable),
        Part::Literal(_) => None,
    });
    let mut values: Vec<(&str, Vec<u8>)> = Vec::new();
    for (name, variable) in NAMES.into_iter().zip(variables) {
        let mut value = Vec::new();
        push_variable(variable, &TABLE, &request, &route_state, &mut value);
        values.push((name, value));
    }
    assert_eq!(values.len(), NAMES.len());
    // One of the two for each input.
    let log = &settings.access_logs[data.len() % 2];
    let mut out = Vec::new();
    let (format, mut times) = (LineFormat::new(&log.format), TimeTexts::new());
    log_line(&format, &TABLE, &request, &route_state, Some(&sent), &mut times, &mut out);
    match log.format.escape {
        Escape::Json => reads_json(&out, &values),
        _ => reads_plain(&out, &values),
    }
}

fn reads_json(line: &[u8], values: &[(&str, Vec<u8>)]) {
    let shown = || line.escape_ascii().to_string();
    assert!(!line.iter().any(|byte| *byte < b' '), "a control byte: {}", shown());
    let read: serde_json::Value =
        serde_json::from_slice(line).unwrap_or_else(|error| panic!("{error}: {}", shown()));
    let object = read.as_object().unwrap_or_else(|| panic!("no object: {}", shown()));
    assert_eq!(object.len(), values.len() + 1, "{}", shown());
    for (name, value) in values {
        // Bytes that are no UTF-8 are the code points of the same number.
        let mut wanted = String::new();
        for chunk in value.utf8_chunks() {
            wanted.push_str(chunk.valid());
            wanted.extend(chunk.invalid().iter().copied().map(char::from));
        }
        assert_eq!(object[*name].as_str(), Some(wanted.as_str()), "{name} in {}", shown());
    }
}

fn reads_plain(line: &[u8], values: &[(&str, Vec<u8>)]) {
    let text = std::str::from_utf8(line).expect("plain bytes");
    assert!(line.iter().all(|byte| matches!(byte, b' '..=b'~')), "{text}");
    // A quote in a value is escaped, so that every other piece is a value.
    let pieces: Vec<&str> = text.split('"').collect();
    assert_eq!(pieces.len(), 2 * (values.len() + 1) + 1, "{text}");
    for (at, (name, value)) in values.iter().enumerate() {
        let mut found = Vec::new();
        let mut rest = pieces[2 * at + 1].as_bytes();
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            if *byte != b'\\' {
                found.push(*byte);
                continue;
            }
            let (digits, after) = rest.split_at(3);
            let digits = std::str::from_utf8(digits).expect("ASCII").strip_prefix('x');
            found.push(u8::from_str_radix(digits.expect("\\xHH"), 16).expect("\\xHH"));
            rest = after;
        }
        if value.is_empty() {
            // What is not there is `-`. Others are there, if only as nothing: a path always is.
            let is_empty = found.is_empty();
            assert!(is_empty || (found == b"-" && *name != "uri"), "{name} in {text}");
        } else {
            assert_eq!(&found, value, "{name} in {text}");
        }
    }
}
