//! Compression over real sockets: what is decoded is what was there, the head says what the body is, and no
//! other client waits for it.
#![forbid(unsafe_code)]

mod common;
#[path = "compression/decode.rs"]
mod decode;
#[path = "compression/neighbours.rs"]
mod neighbours;
#[path = "compression/streams.rs"]
mod streams;

use std::time::Duration;

use common::{BINARY, http, serve};
use decode::{CODINGS, Decoder, decoded, text};
use sekisho_testkit::{Framing, Response, Server, Tree, noise, run};

/// Everything is compressed that can be.
const ALL: &str = "gzip on; gzip_types *; brotli on; brotli_types *; zstd on; zstd_types *;";

fn fields(coding: &str) -> String {
    format!("Accept-Encoding: {coding}\r\n")
}

fn get(server: &Server, target: &str, accept: &str) -> Response {
    server.connect().request("GET", target, &fields(accept))
}

/// F1
#[test]
fn every_size_comes_back_whole_in_every_coding() {
    const KIB: usize = 1024;
    let sizes = [
        0,
        1,
        19,
        20,
        21,
        63,
        64,
        500,
        4 * KIB,
        32 * KIB - 1,
        32 * KIB,
        32 * KIB + 1,
        64 * KIB,
        128 * KIB - 1,
        128 * KIB,
        128 * KIB + 1,
        1024 * KIB,
    ];
    let tree = Tree::new();
    for size in sizes {
        tree.file(&format!("root/text-{size}.txt"), text(size));
        tree.file(&format!("root/noise-{size}.txt"), noise(size));
    }
    let server = serve(tree, ALL);
    for coding in CODINGS {
        for size in sizes {
            for kind in ["text", "noise"] {
                let name = format!("{kind}-{size}.txt");
                let target = format!("/{name}");
                let response = get(&server, &target, coding);
                let plain = server.tree().read(&format!("root/{name}"));
                assert_eq!(response.status, 200, "{coding} {name}");
                assert!(decoded(&response) == plain, "{coding} {name}");
                let is_coded = response.field("content-encoding") == Some(coding);
                // Below the least length nothing happens, and what would not be shorter stays as it is.
                match (kind, size) {
                    ("text", 500..) => assert!(is_coded, "{coding} {name}"),
                    (_, 0..20) | ("noise", 0..=32_768) => assert!(!is_coded, "{coding} {name}"),
                    _ => {}
                }
                assert_eq!(response.field("vary").is_some(), size >= 20, "{coding} {name}");
                if size <= 32 * KIB {
                    assert_eq!(response.framing, Framing::Length(response.body.len()), "{name}");
                }
                let tag = response.field("etag").expect("a file has a tag");
                assert_eq!(tag.starts_with("W/"), is_coded, "{coding} {name}");
                assert_eq!(response.field("accept-ranges").is_some(), !is_coded);
                // HEAD has the same head.
                let head = server.connect().request("HEAD", &target, &fields(coding));
                let bare = |response: &Response| -> Vec<(String, String)> {
                    let all = response.fields.iter();
                    all.filter(|(name, _)| name != "Date").cloned().collect()
                };
                assert_eq!(bare(&head), bare(&response), "{coding} {name}");
            }
        }
    }
}

/// F1: `Accept-Encoding` on the wire.
#[test]
fn a_client_gets_what_it_asks_for() {
    let tree = Tree::new();
    tree.file("root/a.txt", text(5000));
    let server = serve(tree, ALL);
    for (accept, expected) in [
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, deflate, br", Some("br")),
        ("gzip", Some("gzip")),
        ("br;q=0.5, gzip", Some("gzip")),
        ("*", Some("gzip")),
        ("gzip;q=0, *", None),
        ("gzip;q=0", None),
        ("identity;q=0", None),
        ("identity", None),
        ("gzip;q=7", None),
        ("deflate", None),
        ("", None),
    ] {
        let response = get(&server, "/a.txt", accept);
        assert_eq!(response.field("content-encoding"), expected, "{accept}");
        assert_eq!(response.field("vary"), Some("Accept-Encoding"), "{accept}");
        assert_eq!(decoded(&response), text(5000), "{accept}");
    }
    let response = server.connect().get("/a.txt");
    assert_eq!(response.field("content-encoding"), None);
    assert_eq!(response.field("vary"), Some("Accept-Encoding"));
}

#[test]
fn a_weak_tag_goes_round() {
    // F1
    let tree = Tree::new();
    tree.file("root/small.txt", text(5000));
    tree.file("root/large.txt", text(100_000));
    let server = serve(tree, ALL);
    for target in ["/small.txt", "/large.txt"] {
        let first = get(&server, target, "br");
        let tag = first.field("etag").expect("a tag").to_owned();
        assert!(tag.starts_with("W/"), "{tag}");
        let ask = |fields: &str| {
            let fields = format!("Accept-Encoding: br\r\n{fields}\r\n");
            server.connect().request("GET", target, &fields)
        };
        let same = ask(&format!("If-None-Match: {tag}"));
        assert_eq!(same.status, 304);
        assert_eq!(same.field("etag"), Some(tag.as_str()));
        assert_eq!(same.field("vary"), Some("Accept-Encoding"));
        assert_eq!(same.field("content-encoding"), None);
        // The strong form of it is the same to a weak comparison, and a weak tag is no strong one.
        assert_eq!(ask(&format!("If-None-Match: {}", &tag[2..])).status, 304);
        assert_eq!(ask("If-None-Match: \"other\"").status, 200);
        assert_eq!(ask(&format!("If-Match: {tag}")).status, 412);
        let modified = first.field("last-modified").expect("a time");
        assert_eq!(ask(&format!("If-Modified-Since: {modified}")).status, 304);
        // Without a coding the tag is strong.
        let plain = server.connect().get(target);
        assert_eq!(plain.field("etag"), Some(&tag[2..]));
        // A part is a part of the file as it is.
        let part = ask("Range: bytes=10-19");
        assert_eq!((part.status, &part.body[..]), (206, &text(20)[10..]));
        assert_eq!(part.field("content-encoding"), None);
        let part = ask(&format!("Range: bytes=10-19\r\nIf-Range: {tag}"));
        assert_eq!((part.status, part.field("content-encoding")), (200, Some("br")));
    }
}

#[test]
fn what_must_not_be_compressed_is_not() {
    let tree = Tree::new();
    for name in
        ["a.txt", "a.html", "a.png", "a.css", "t/a.txt", "off/a.txt", "v/a.txt", "list/a.txt"]
    {
        tree.file(&format!("root/{name}"), text(5000));
    }
    let server = serve(
        tree,
        "gzip on; gzip_types text/css; gzip_min_length 100;
         location /t/ { gzip_types *; add_header Cache-Control no-transform; }
         location /off/ { gzip off; }
         location /v/ { gzip_types *; gzip_vary off; }
         location /said/ { gzip_types text/plain; return 200 \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
           xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"; }
         location /bad/ { return 500; } location /no/ { return 403; } location /moved/ { return 301 /x; }
         location /nothing/ { return 204; } location /list/ { autoindex on; }",
    );
    for (target, status, coding, varies) in [
        ("/a.html", 200, true, true),
        ("/a.css", 200, true, true),
        ("/a.txt", 200, false, false),
        ("/a.png", 200, false, false),
        ("/t/a.txt", 200, false, false),
        ("/off/a.txt", 200, false, false),
        ("/v/a.txt", 200, true, false),
        ("/said/", 200, true, true),
        ("/bad/", 500, false, false),
        ("/no/", 403, true, true),
        ("/missing", 404, true, true),
        ("/moved/", 301, false, false),
        ("/nothing/", 204, false, false),
        ("/list/", 200, true, true),
    ] {
        let response = get(&server, target, "gzip");
        assert_eq!(response.status, status, "{target}");
        assert_eq!(response.field("content-encoding").is_some(), coding, "{target}");
        let vary = response.fields_named("vary");
        assert_eq!(vary.contains(&"Accept-Encoding"), varies, "{target}");
        decoded(&response);
    }
}

#[test]
fn old_clients_get_what_they_can_read() {
    let tree = Tree::new();
    tree.file("root/small.txt", text(5000));
    tree.file("root/large.txt", text(100_000));
    let old = "location /old/ { alias {root}/; gzip_http_version 1.0; }";
    let server = serve(tree, &format!("{ALL}\n{old}"));
    for (target, length) in [("small.txt", 5000), ("large.txt", 100_000)] {
        for (path, coding) in [("", None), ("old/", Some("gzip"))] {
            let mut client = server.connect();
            client.send(format!(
                "GET /{path}{target} HTTP/1.0\r\nAccept-Encoding: gzip, br, zstd\r\n\r\n"
            ));
            let response = client.read_response();
            assert_eq!(response.field("content-encoding"), coding, "{path}{target}");
            assert_eq!(response.field("transfer-encoding"), None);
            assert_eq!(decoded(&response), text(length), "{path}{target}");
        }
    }
}

#[test]
fn a_compressed_answer_is_known_again() {
    // A hot file: from the second request on the answer is a repeat (ADR 0013).
    let tree = Tree::new();
    tree.file("root/a.txt", text(5000));
    let cache = "open_file_cache max=100; open_file_cache_valid 60s;";
    let server = serve(tree, &format!("{ALL} {cache}"));
    let mut client = server.connect();
    for coding in CODINGS {
        let first = client.request("GET", "/a.txt", &fields(coding));
        for _ in 0..50 {
            let again = client.request("GET", "/a.txt", &fields(coding));
            assert_eq!(again.body, first.body);
            assert_eq!(again.field("content-encoding"), Some(coding));
            assert_eq!(again.field("vary"), Some("Accept-Encoding"));
        }
        assert_eq!(client.get("/a.txt").body, text(5000));
    }
}

#[test]
fn the_log_tells_the_ratio() {
    let tree = Tree::new();
    tree.file("root/small.txt", text(5000));
    tree.file("root/large.txt", text(100_000));
    let server = Server::start_in(
        tree,
        BINARY,
        &http(&format!(
            "log_format r '$uri $gzip_ratio $body_bytes_sent';
             server {{ listen 127.0.0.1:{{port}}; root {{root}}; access_log {{dir}}/r.log r; {ALL} }}"
        )),
    );
    let mut expected = Vec::new();
    for (name, length) in [("small.txt", 5000), ("large.txt", 100_000)] {
        let sent = get(&server, &format!("/{name}"), "gzip").body.len();
        let ratio = (f64::from(length) / sent as f64 * 100.0).round() / 100.0;
        expected.push(format!("/{name} {ratio:.2} {sent}"));
        server.connect().get(&format!("/{name}"));
        expected.push(format!("/{name} - {length}"));
    }
    let log = || server.log("r.log");
    sekisho_testkit::eventually("four lines", common::LONG, || log().lines().count() == 4);
    assert_eq!(log().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn curl_reads_it() {
    let tree = Tree::new();
    tree.file("root/a.txt", text(3_000_000));
    let server = serve(tree, ALL);
    let out = server.tree().path("out");
    let out = out.to_string_lossy();
    for arguments in [&["--compressed"][..], &["--compressed", "-H", "Accept-Encoding: gzip"]] {
        let url = server.url("/a.txt");
        let arguments = [arguments, &["-sS", "-o", &out, &url]].concat();
        let done = run("curl", &arguments, Duration::from_mins(1));
        assert_eq!(done.code(), 0, "{}", done.stderr);
        assert!(server.tree().read("out") == text(3_000_000), "{arguments:?}");
    }
}

#[test]
fn a_decoder_of_this_test_sees_a_cut() {
    // Otherwise the others would prove little.
    for coding in CODINGS {
        let whole = sample(coding);
        let mut decoder = Decoder::new(coding);
        decoder.push(&whole[..whole.len() - 1]);
        assert!(!decoder.ends_well(), "{coding}");
    }
}

fn sample(coding: &str) -> Vec<u8> {
    let tree = Tree::new();
    tree.file("root/a.txt", text(5000));
    get(&serve(tree, ALL), "/a.txt", coding).body
}
