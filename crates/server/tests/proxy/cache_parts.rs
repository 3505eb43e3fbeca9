//! What of an answer from a cache, or for one, a client gets: its conditions and its range are met where the answer is
//! sent, after the filters have had their say.

use sekisho_testkit::{Response, Server};

use crate::backend::Backend;
use crate::cache::{cached, status, until};

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const EARLIER: &str = "Sun, 06 Nov 1994 08:40:37 GMT";

/// A server that gives a page of 23 bytes, or the same compressed below `/gunzip/`.
fn pages() -> Backend {
    Backend::start(|connection| {
        while let Some(head) = connection.request() {
            let fields = format!(
                "Cache-Control: max-age=600\r\nContent-Type: text/html\r\nETag: \"e\"\r\nLast-Modified: {DATE}\r\n"
            );
            let page = "one two three four five";
            if head.contains("/gunzip/") {
                let mut encoder =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                std::io::Write::write_all(&mut encoder, page.as_bytes()).expect("memory");
                let packed = encoder.finish().expect("memory");
                let fields = format!("{fields}Content-Encoding: gzip\r\n");
                connection.answer("200 OK", &fields, packed);
            } else {
                connection.answer("200 OK", &fields, page);
            }
        }
    })
}

fn ask(server: &Server, target: &str, fields: &str) -> Response {
    server.connect().request("GET", target, fields)
}

#[test]
fn a_body_that_filters_change_has_no_ranges() {
    let backend = pages();
    let to = backend.address();
    let pass = format!("proxy_pass http://{to};");
    let server = cached(
        "",
        &format!(
            "location /plain/  {{ {pass} }}
             location /gunzip/ {{ {pass} gunzip on; }}
             location /sub/    {{ {pass} sub_filter two 2; }}
             location /ssi/    {{ {pass} ssi on; }}
             location /after/  {{ {pass} add_after_body /foot; }}
             location /forced/ {{ {pass} proxy_cache off; proxy_force_ranges on; sub_filter two 2; }}
             location /foot    {{ return 200 .; }}"
        ),
    );
    let range = "Range: bytes=2-9\r\n";
    for (place, expected) in [
        ("/gunzip/", "one two three four five"),
        ("/sub/", "one 2 three four five"),
        ("/ssi/", "one two three four five"),
        ("/after/", "one two three four five."),
        ("/forced/", "one 2 three four five"),
    ] {
        for round in ["MISS", "HIT"] {
            let response = ask(&server, place, range);
            let seen = (response.status, response.text());
            assert_eq!(seen, (200, expected.into()), "{place} {round}");
            let fields = ["content-range", "accept-ranges"].map(|name| response.field(name));
            assert_eq!(fields, [None, None], "{place} {round}");
            // A range that cannot be is none, either.
            assert_eq!(ask(&server, place, "Range: bytes=100-\r\n").status, 200, "{place} {round}");
        }
    }
    for round in ["MISS", "HIT"] {
        let part = ask(&server, "/plain/", range);
        assert_eq!((status(&part), part.status, part.text()), (round, 206, "e two th".into()));
        assert_eq!(part.field("content-range"), Some("bytes 2-9/23"));
    }
}

#[test]
fn conditions_are_met_by_what_is_fetched_as_by_what_is_kept() {
    let backend = pages();
    let to = backend.address();
    let server = cached("", &format!("location / {{ proxy_pass http://{to}; }}"));
    let rows = [
        ("If-Match: \"zz\"\r\n".to_owned(), 412),
        ("If-Match: \"e\"\r\n".to_owned(), 200),
        (format!("If-Unmodified-Since: {EARLIER}\r\n"), 412),
        (format!("If-Unmodified-Since: {DATE}\r\n"), 200),
        ("If-None-Match: \"e\"\r\n".to_owned(), 304),
        ("If-None-Match: \"zz\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {DATE}\r\n"), 304),
        (format!("If-Modified-Since: {EARLIER}\r\n"), 200),
        ("If-None-Match: \"e\"\r\nRange: bytes=0-1\r\n".to_owned(), 304),
        ("If-Match: \"zz\"\r\nRange: bytes=0-1\r\n".to_owned(), 412),
    ];
    for (at, (fields, expected)) in rows.into_iter().enumerate() {
        let target = format!("/{at}");
        let first = ask(&server, &target, &fields);
        assert_eq!((status(&first), first.status), ("MISS", expected), "{fields}");
        // What was fetched for it is kept, whatever the client got of it.
        until(&mut server.connect(), &target, "HIT");
        let second = ask(&server, &target, &fields);
        assert_eq!((status(&second), second.status), ("HIT", expected), "{fields}");
        if expected == 304 {
            assert_eq!((second.field("content-type"), second.field("etag")), (None, Some("\"e\"")));
        }
    }
}
