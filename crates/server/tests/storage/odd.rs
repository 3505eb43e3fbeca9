//! Stores that answer what they should not, or not at all.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sekisho_testkit::{Server, Tree, eventually};

use crate::common::{BINARY, LONG, http, pattern};

/// What was asked: the number of the connection, the method and the target.
pub(crate) type Asked = Arc<Mutex<Vec<String>>>;

/// A store that answers by `answer`, which gets the method, the target and the head; without an answer it hangs up.
pub(crate) fn odd_store(answer: fn(&str, &str, &str) -> Option<String>) -> (u16, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    // It ends with the test.
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || converse(number, stream, &seen, answer));
        }
    });
    (port, asked)
}

fn converse(
    number: usize,
    stream: TcpStream,
    seen: &Mutex<Vec<String>>,
    answer: fn(&str, &str, &str) -> Option<String>,
) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        head.make_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: u64 = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        let _ = reader.by_ref().take(length).read_to_end(&mut Vec::new());
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let line = format!("{number} {method} {target}");
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        let Some(answer) = answer(method, target, &head) else { return };
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn server(port: u16) -> Server {
    let config = http(&format!(
        "storage s {{ url s3://bucket/pre/; endpoint http://127.0.0.1:{port}; credentials none; timeout 2s; abandoned off; }}
         server {{ listen 127.0.0.1:{{port}}; root storage:s; dav_methods PUT DELETE; upload_conflict refuse;
             client_max_body_size 1g; upload_delete_directories recursive; }}"
    ));
    Server::start_in(Tree::new(), BINARY, &config)
}

pub(crate) fn asked(asked: &Asked, method: &str) -> Vec<String> {
    let all = asked.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter(|line| line.contains(method)).cloned().collect()
}

fn with_body(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of every odd store")]
fn lists_too_much(method: &str, target: &str, _: &str) -> Option<String> {
    let key = |key: &str| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>");
    Some(match method {
        "get" if target.contains("endless") => with_body(
            "<ListBucketResult><IsTruncated>true</IsTruncated>\
             <NextContinuationToken>same</NextContinuationToken></ListBucketResult>",
        ),
        "get" => {
            let keys = [key("other/x"), key("pre/d/a"), key("pre"), key("pre/e/b")].concat();
            with_body(&format!("<ListBucketResult>{keys}</ListBucketResult>"))
        }
        _ => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
    })
}

#[test]
fn what_is_listed_beside_a_folder_stays_and_a_listing_without_end_is_left() {
    let (port, seen) = odd_store(lists_too_much);
    let server = server(port);
    assert_eq!(server.connect().request("DELETE", "/d/", "").status, 204);
    let deleted = asked(&seen, " delete ");
    assert!(deleted.len() == 1 && deleted[0].ends_with("/bucket/pre/d/a"), "{deleted:?}");
    assert_eq!(server.connect().request("DELETE", "/endless/", "").status, 502);
    assert!(server.log("error.log").contains("a listing has no end"));
    assert_eq!(asked(&seen, "endless").len(), 2, "{:?}", asked(&seen, "endless"));
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of every odd store")]
fn has_one_object(_: &str, _: &str, _: &str) -> Option<String> {
    Some(
        "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nhello world"
            .to_owned(),
    )
}

/// RFC 9110 §14: a cached object answers ranges and conditions by itself, and says which part it sends.
#[test]
fn parts_of_a_cached_object_say_which_they_are() {
    let (port, seen) = odd_store(has_one_object);
    let config = http(&format!(
        "proxy_cache_path {{dir}}/cache keys_zone=one:1m;
         storage s {{ url s3://bucket/pre/; endpoint http://127.0.0.1:{port}; credentials none; timeout 2s;
             abandoned off; cache one 1h; }}
         server {{ listen 127.0.0.1:{{port}}; root storage:s; add_header X-Cache $upstream_cache_status always; }}"
    ));
    let server = Server::start_in(Tree::new(), BINARY, &config);
    eventually("an entry", LONG, || server.connect().get("/a.txt").field("x-cache") == Some("HIT"));
    let fetched = asked(&seen, " get ").len();
    let rows = [
        ("Range: bytes=0-4\r\n", 206, "hello", Some("bytes 0-4/11")),
        ("Range: bytes=6-\r\n", 206, "world", Some("bytes 6-10/11")),
        ("Range: bytes=-3\r\n", 206, "rld", Some("bytes 8-10/11")),
        ("Range: bytes=0-99\r\n", 206, "hello world", Some("bytes 0-10/11")),
        ("Range: bytes=4-4\r\nIf-Range: \"a\"\r\n", 206, "o", Some("bytes 4-4/11")),
        ("Range: bytes=4-4\r\nIf-Range: \"b\"\r\n", 200, "hello world", None),
        ("If-None-Match: \"a\"\r\n", 304, "", None),
    ];
    for (fields, status, body, range) in rows {
        let response = server.connect().request("GET", "/a.txt", fields);
        assert_eq!((response.status, response.text().as_str()), (status, body), "{fields}");
        assert_eq!(response.field("content-range"), range, "{fields}");
    }
    let response = server.connect().request("GET", "/a.txt", "Range: bytes=11-\r\n");
    assert_eq!((response.status, response.field("content-range")), (416, Some("bytes */11")));
    assert_eq!(server.connect().request("GET", "/a.txt", "If-Match: \"b\"\r\n").status, 412);
    assert_eq!(asked(&seen, " get ").len(), fetched, "all from the cache");
}

fn hangs_up(method: &str, _: &str, head: &str) -> Option<String> {
    let is_guarded = method == "put" && head.contains("if-none-match: *");
    (!is_guarded).then(|| "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned())
}

/// The store may have done it: asked again, it would say that the object is there.
#[test]
fn what_must_not_be_done_twice_is_asked_once() {
    let (port, seen) = odd_store(hangs_up);
    let server = server(port);
    let put = server.connect().request_with_body("PUT", "/a.txt", "", b"body");
    assert_eq!(put.status, 502, "{}", server.log("error.log"));
    let (looked, stored) = (asked(&seen, " head "), asked(&seen, " put "));
    assert_eq!(stored.len(), 1, "{stored:?}");
    // By a connection that was kept: another one would not be tried again in any case.
    assert_eq!(looked[0].split(' ').next(), stored[0].split(' ').next(), "{looked:?} {stored:?}");
}

static ABORTS: AtomicU32 = AtomicU32::new(0);

#[expect(clippy::unnecessary_wraps, reason = "the shape of every odd store")]
fn aborts_at_last(method: &str, target: &str, _: &str) -> Option<String> {
    let status = match method {
        "post" if target.contains("uploads=") => {
            return Some(with_body(
                "<InitiateMultipartUploadResult><UploadId>i</UploadId></InitiateMultipartUploadResult>",
            ));
        }
        "delete" if ABORTS.fetch_add(1, Ordering::Relaxed) > 1 => "204 No Content",
        "head" => "404 Not Found",
        _ => "504 Gateway Timeout",
    };
    Some(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))
}

#[test]
fn an_upload_that_cannot_be_removed_at_once_is_removed_later() {
    let (port, seen) = odd_store(aborts_at_last);
    let server = server(port);
    let put = server.connect().request_with_body("PUT", "/x", "", pattern(9 << 20));
    assert_eq!(put.status, 504, "{}", server.log("error.log"));
    eventually("it is removed", LONG, || asked(&seen, " delete ").len() == 3);
    assert!(asked(&seen, " delete ").iter().all(|it| it.ends_with("/bucket/pre/x?uploadid=i")));
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of every odd store")]
fn has_empty_pages(_: &str, target: &str, _: &str) -> Option<String> {
    let entry = "<Blob><Name>pre/d/x</Name><Properties><Content-Length>1</Content-Length></Properties></Blob>";
    let (blobs, next) = match target {
        _ if target.contains("marker=2") && target.contains("pre%2fd") => (entry, ""),
        _ if target.contains("marker=2") => ("", ""),
        _ if target.contains("marker=1") => ("", "2"),
        _ => ("", "1"),
    };
    Some(with_body(&format!(
        "<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
    )))
}

/// Azure may give a page without a key that leads to another one.
#[test]
fn a_folder_is_found_behind_pages_without_keys() {
    let (port, seen) = odd_store(has_empty_pages);
    let server = Server::start(
        BINARY,
        &http(&format!(
            "storage s {{ url az://bucket/pre; endpoint http://127.0.0.1:{port}; }}
             server {{ listen 127.0.0.1:{{port}}; root storage:s; index none; dav_methods MKCOL;
                 location /tried/ {{ rewrite ^/tried(/.*) $1 break; try_files $uri/ =410; }} }}"
        )),
    );
    for (method, target, status) in [
        ("GET", "/tried/d", 200),
        ("GET", "/tried/e", 410),
        ("MKCOL", "/d/", 405),
        ("MKCOL", "/e/", 201),
    ] {
        let response = server.connect().request(method, target, "");
        assert_eq!(response.status, status, "{method} {target}: {:?}", asked(&seen, ""));
    }
}
