//! Writes lines of the access log into memory, so that callgrind can count what one costs:
//!
//! ```text
//! cargo build --release -p sekisho-route --example log_line
//! valgrind --tool=callgrind target/release/examples/log_line 10000
//! ```
//!
//! The counts of two runs, divided by the difference of their lines, leave out the start.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use sekisho_config::{Memory, Options, load};
use sekisho_http::{Head, Status, Version};
use sekisho_route::{
    ConnectionFacts, LineFormat, Request, RequestIdSeed, RouteState, Sent, Table, TimeTexts,
    WallTime, log_line,
};

const TEXT: &str = "events {} http { access_log /log combined; server { listen 8080; } }";
/// As much as a worker's buffer holds.
const FULL_BYTES: usize = 64 << 10;

fn main() {
    let lines = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let outcome = load(Path::new("/s.conf"), &Options::new("/p"), &Memory::of("/s.conf", TEXT));
    let Some(config) = outcome.config else { panic!("{:?}", outcome.reports) };
    let table = Table::new(Arc::new(config));
    let mut head = Head::default();
    head.begin(b"GET", b"/articles/2026/a-page-of-some-length.html?from=feed", Version::Http11);
    for (name, value) in [
        ("Host", "www.example.org"),
        ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
        ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        ("Accept-Language", "de,en-US;q=0.7,en;q=0.3"),
        ("Accept-Encoding", "gzip, deflate, br, zstd"),
        ("Referer", "https://www.example.org/articles/"),
        ("Connection", "keep-alive"),
        ("Cookie", "session=0123456789abcdef0123456789abcdef; theme=dark"),
    ] {
        head.push(name.as_bytes(), value.as_bytes());
    }
    let remote = ([203, 0, 113, 195], 40_000).into();
    let connection = ConnectionFacts { remote: Some(remote), ..ConnectionFacts::default() };
    let mut route_state = RouteState::default();
    let routed = table.choose_server(0, &head, &mut route_state);
    assert!(routed.is_ok(), "the host is valid");
    let log = &table.location(route_state.location).settings.access_logs[0];
    let (format, mut times) = (LineFormat::new(&log.format), TimeTexts::new());
    let mut out = Vec::with_capacity(FULL_BYTES);
    for number in 0..lines {
        let wall = WallTime { unix_secs: 1_700_000_000, nanos: 0, utc_offset_secs: 3600 };
        let request_id = RequestIdSeed(u128::from(number));
        let request = Request::new(&head, 0, &connection, wall, request_id);
        let sent = Sent {
            status: Some(Status::OK),
            body_bytes: 4000 + u64::from(number),
            completed: true,
            ..Sent::default()
        };
        log_line(&format, &table, &request, &route_state, Some(&sent), &mut times, &mut out);
        out.push(b'\n');
        if out.len() >= FULL_BYTES - 1024 {
            out.clear();
        }
    }
    let number: u32 = lines;
    println!(
        "{number} lines, the last of {} bytes",
        out.split(|byte| *byte == b'\n').rev().nth(1).map_or(0, <[u8]>::len)
    );
}
