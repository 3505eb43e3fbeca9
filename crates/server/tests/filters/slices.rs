//! `slice`: a resource is asked for in ranges, and kept in ranges.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sekisho_testkit::{Server, Tree};

use crate::backend::Backend;
use crate::common::{BINARY, http, pattern};

const SIZE: usize = 100_000;
const SLICE: usize = 16 * 1024;

/// A server of one resource that gives ranges; the tag of what it gives from a request on can be another.
fn ranged(changes_at: usize) -> (Backend, Arc<AtomicUsize>) {
    let content = pattern(SIZE);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let backend = Backend::start(move |connection| {
        while let Some(head) = connection.request() {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let tag = if number >= changes_at { "new" } else { "old" };
            let range = head.lines().find_map(|line| line.strip_prefix("Range: bytes="));
            let Some((from, to)) = range.and_then(|range| range.split_once('-')) else {
                return connection.close();
            };
            let from: usize = from.parse().expect("a number");
            let to: usize = to.parse::<usize>().expect("a number").min(SIZE - 1);
            let fields = format!("ETag: \"{tag}\"\r\nContent-Range: bytes {from}-{to}/{SIZE}\r\n");
            connection.answer("206 Partial Content", &fields, &content[from..=to]);
        }
    });
    (backend, count)
}

fn sliced(backend: &Backend) -> Server {
    let to = backend.address();
    let text = format!(
        "proxy_cache_path {{dir}}/cache keys_zone=one:1m;
         server {{ listen 127.0.0.1:{{port}}; location / {{
             slice {SLICE}; proxy_cache one; proxy_cache_key $uri$slice_range; proxy_cache_valid 200 206 1h;
             proxy_set_header Range $slice_range; proxy_pass http://{to};
             add_header X-Cache $upstream_cache_status; }} }}"
    );
    Server::start_in(Tree::new(), BINARY, &http(&text))
}

#[test]
fn every_range_comes_out_whole_and_each_slice_is_fetched_once() {
    let (backend, count) = ranged(usize::MAX);
    let server = sliced(&backend);
    let content = pattern(SIZE);
    let mut client = server.connect();
    let fetched = || count.load(Ordering::SeqCst);
    let part = client.request("GET", "/a", "Range: bytes=20000-40000\r\n");
    assert_eq!(part.status, 206);
    assert_eq!(part.field("content-range"), Some("bytes 20000-40000/100000"));
    assert!(part.body == content[20_000..=40_000]);
    assert_eq!(fetched(), 2, "slices 1 and 2");
    for (range, expected) in [
        ("bytes=0-0", Some(0..1)),
        ("bytes=16383-16384", Some(16_383..16_385)),
        ("bytes=-1", Some(SIZE - 1..SIZE)),
        ("bytes=50000-", Some(50_000..SIZE)),
        ("bytes=5-3", None),
        ("bytes=3-3,70000-70001", None),
    ] {
        let response = client.request("GET", "/a", &format!("Range: {range}\r\n"));
        match expected {
            Some(expected) => {
                assert_eq!(response.status, 206, "{range}");
                assert!(response.body == content[expected], "{range}");
            }
            None if response.status == 416 => {}
            None => {
                assert_eq!(response.status, 200, "{range}");
                assert!(response.body == content, "{range}");
            }
        }
    }
    let whole = client.get("/a");
    assert_eq!((whole.status, whole.field("content-length")), (200, Some("100000")));
    assert!(whole.body == content);
    assert_eq!(whole.field("x-cache"), Some("HIT"));
    assert_eq!(fetched(), SIZE.div_ceil(SLICE), "each slice once");
    assert_eq!(client.request("GET", "/a", "If-None-Match: \"old\"\r\n").status, 304);
    assert_eq!(client.request("HEAD", "/a", "").field("content-length"), Some("100000"));
}

/// C5: slices of two versions are no resource.
#[test]
fn a_resource_that_changes_between_slices_is_cut() {
    let (backend, _) = ranged(3);
    let server = sliced(&backend);
    let mut client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_read_response(false).is_err());
    assert!(server.log("error.log").contains("etag mismatch in slice response"));
}

/// C5: a slice whose body is not as long as it says is cut, and logged.
#[test]
fn a_slice_that_is_too_short_is_cut_and_logged() {
    let backend = Backend::start(|connection| {
        while let Some(head) = connection.request() {
            let is_first = head.contains("Range: bytes=0-");
            let (from, to) = if is_first { (0, SLICE - 1) } else { (SLICE, 2 * SLICE - 1) };
            let fields = format!("Content-Range: bytes {from}-{to}/{}\r\n", 2 * SLICE);
            let bytes = if is_first { SLICE } else { 100 };
            connection.answer("206 Partial Content", &fields, vec![b'x'; bytes]);
        }
    });
    let server = sliced(&backend);
    let mut client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_read_response(false).is_err());
    let log = server.log("error.log");
    assert_eq!(log.matches("100 bytes instead of 16384 in slice response").count(), 1, "{log}");
}

#[test]
fn an_answer_that_is_no_slice_passes_or_is_refused() {
    let backend = Backend::start(|connection| {
        while let Some(head) = connection.request() {
            if head.starts_with("GET /whole") {
                connection.answer("200 OK", "", "whole");
            } else {
                connection.answer("206 Partial Content", "Content-Range: bytes 5-6/100\r\n", "xx");
            }
        }
    });
    let server = sliced(&backend);
    assert_eq!(server.connect().get("/whole").text(), "whole");
    assert_eq!(server.connect().get("/odd").status, 502);
    assert!(server.log("error.log").contains("unexpected range in slice response"));
}
