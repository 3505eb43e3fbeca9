//! Stores that are slow, busy or literal: what a cache keeps of them, and what they are asked.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sekisho_testkit::{Server, Signal, Tree, eventually, wait_for};

use crate::common::{BINARY, LONG, http, pattern};
use crate::odd::{asked, odd_store};

fn server(port: u16, cache: &str) -> Server {
    let config = http(&format!(
        "proxy_cache_path {{dir}}/cache keys_zone=one:1m;
         storage s {{ url s3://bucket/; endpoint http://127.0.0.1:{port}; credentials none; timeout 30s; abandoned off; {cache} }}
         server {{ listen 127.0.0.1:{{port}}; root storage:s; dav_methods PUT DELETE; }}"
    ));
    Server::start_in(Tree::new(), BINARY, &config)
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of every odd store")]
fn object(method: &str, tag: &str) -> Option<String> {
    let (length, body) = (tag.len(), if method == "head" { "" } else { tag });
    Some(format!("HTTP/1.1 200 OK\r\nETag: \"{tag}\"\r\nContent-Length: {length}\r\n\r\n{body}"))
}

static MAY_ANSWER: AtomicBool = AtomicBool::new(false);
static IS_CHANGED: AtomicBool = AtomicBool::new(false);

/// The first GET of an object is answered with what was there when it came, long after.
fn answers_late(method: &str, target: &str, _: &str) -> Option<String> {
    match method {
        "get" => {
            let was_changed = IS_CHANGED.load(Ordering::SeqCst);
            if target.ends_with("/a") && !was_changed {
                let _ = wait_for(LONG, || MAY_ANSWER.load(Ordering::SeqCst));
            }
            object(method, if was_changed { "new" } else { "old" })
        }
        "put" => {
            IS_CHANGED.store(true, Ordering::SeqCst);
            // Stored, and the answer is lost.
            if target.ends_with("/lost") { None } else { object(method, "") }
        }
        _ => object(method, "old"),
    }
}

/// U5, F5: a change through this server is seen at once, also where the object is being fetched or the answer to the
/// change is lost.
#[test]
fn what_was_fetched_before_a_change_is_not_kept() {
    let (port, seen) = odd_store(answers_late);
    let server = server(port, "cache one 10m;");
    assert_eq!(server.connect().get("/lost").text(), "old");
    let mut early = server.connect().with_patience(LONG);
    early.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("it is fetched", LONG, || !asked(&seen, "get /bucket/a").is_empty());
    let put = server.connect().request_with_body("PUT", "/a", "", b"new");
    assert!(put.status == 204 || put.status == 201, "{put:?}");
    let mut late = server.connect().with_patience(LONG);
    late.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    MAY_ANSWER.store(true, Ordering::SeqCst);
    assert_eq!(early.read_response().text(), "old", "it was asked for before the change");
    assert_eq!(late.read_response().text(), "new");
    assert_eq!(server.connect().get("/a").text(), "new");
    // On a condition, so that it is not tried again.
    let put = server.connect().request_with_body("PUT", "/lost", "If-Match: \"old\"\r\n", b"new");
    assert_eq!(put.status, 502, "{put:?}");
    assert_eq!(server.connect().get("/lost").text(), "new");
}

static REFUSALS: AtomicU32 = AtomicU32::new(0);

fn is_busy(method: &str, _: &str, _: &str) -> Option<String> {
    if REFUSALS.fetch_add(1, Ordering::SeqCst) < 2 {
        return Some("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n".to_owned());
    }
    object(method, "there")
}

#[test]
fn a_store_that_is_busy_is_asked_again() {
    let (port, _) = odd_store(is_busy);
    let server = server(port, "");
    let mut client = server.connect().with_patience(LONG);
    assert_eq!(client.get("/a").text(), "there");
}

/// Compares what it is told as it is written, and makes errors of what it does not understand.
fn is_literal(method: &str, _: &str, head: &str) -> Option<String> {
    let field =
        |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let is_bad = field("if-modified-since").is_some_and(|date| date == "garbage")
        || field("range").is_some_and(|range| !range.starts_with("bytes="));
    if is_bad {
        return Some("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_owned());
    }
    if field("if-match").is_some_and(|tag| tag != "\"tag\"") {
        return Some("HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n".to_owned());
    }
    object(method, "tag")
}

/// F1: conditions mean for objects what they mean for files, whatever a store makes of them.
#[test]
fn conditions_that_stores_do_not_understand_are_judged_here() {
    let (port, _) = odd_store(is_literal);
    let server = server(port, "");
    for (fields, expected) in [
        ("If-Match: *\r\n", 200),
        ("If-Match: \"x\", \"tag\"\r\n", 200),
        ("If-Match: \"tag\"\r\n", 200),
        ("If-Match: \"x\", \"y\"\r\n", 412),
        ("If-Match: W/\"tag\"\r\n", 412),
        ("If-Match: \"x\"\r\n", 412),
        ("If-Modified-Since: garbage\r\n", 200),
        ("Range: items=0-1\r\n", 200),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = server.connect().request(method, "/a", fields);
            assert_eq!(answer.status, expected, "{method} {fields:?}");
        }
    }
}

/// Takes parts, by a connection for each.
#[expect(clippy::unnecessary_wraps, reason = "the shape of every odd store")]
fn takes_parts(method: &str, target: &str, _: &str) -> Option<String> {
    let (status, body) = match method {
        "post" if target.contains("uploads=") => (
            "200 OK",
            "<InitiateMultipartUploadResult><UploadId>i</UploadId></InitiateMultipartUploadResult>",
        ),
        "put" => ("200 OK", ""),
        "delete" => ("204 No Content", ""),
        _ => ("404 Not Found", ""),
    };
    let length = body.len();
    let fields = format!("ETag: \"part\"\r\nConnection: close\r\nContent-Length: {length}");
    Some(format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n{body}"))
}

/// F5, O4: also where grace is over before the upload is.
#[test]
fn an_upload_that_the_end_of_the_server_cuts_is_removed() {
    for signal in [Signal::QUIT, Signal::TERM] {
        let (port, seen) = odd_store(takes_parts);
        let config = http(&format!(
            "storage s {{ url s3://bucket/; endpoint http://127.0.0.1:{port}; credentials none; abandoned off; }}
             server {{ listen 127.0.0.1:{{port}}; root storage:s; dav_methods PUT; client_max_body_size 1g; }}"
        ));
        let config = format!("worker_shutdown_timeout 1s; {config}");
        let mut server = Server::start_in(Tree::new(), BINARY, &config);
        let mut client = server.connect();
        client.send("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n");
        client.send(pattern(9 << 20));
        eventually("a part", LONG, || !asked(&seen, " put ").is_empty());
        server.signal(signal);
        server.wait_exit(LONG);
        let removed = asked(&seen, " delete ");
        assert!(removed.len() == 1 && removed[0].contains("uploadid=i"), "{signal:?} {removed:?}");
    }
}
