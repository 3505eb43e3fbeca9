//! Bodies that are changed on their way: `gunzip`, `sub_filter`, `add_before_body`, ranges that are cut here.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use sekisho_testkit::{Server, Tree};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, serve, site};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn gzip_is_decompressed_for_clients_that_do_not_take_it() {
    let text = "text of the file, ".repeat(20_000);
    let tree = Tree::new();
    tree.file("root/a.txt.gz", gzip(text.as_bytes()));
    tree.file("root/broken.txt.gz", &gzip(text.as_bytes())[..500]);
    let server = serve(tree, "gunzip on; gzip_static always;");
    let plain = server.connect().get("/a.txt");
    assert!(plain.text() == text);
    assert_eq!(plain.field("content-encoding"), None);
    assert_eq!(plain.field("vary"), Some("Accept-Encoding"));
    assert!(plain.field("etag").is_some_and(|tag| tag.starts_with("W/")));
    assert_eq!((plain.field("accept-ranges"), plain.field("content-length")), (None, None));
    let packed = server.connect().request("GET", "/a.txt", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.field("content-encoding"), Some("gzip"));
    assert_eq!(packed.body, gzip(text.as_bytes()));
    let head = server.connect().request("HEAD", "/a.txt", "");
    assert_eq!((head.status, head.field("content-encoding")), (200, None));
    // What is no whole gzip does not look complete.
    let mut client = server.connect();
    client.send("GET /broken.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_read_response(false).is_err());
    // The same in HTTP/2.
    let server = serve(
        {
            let tree = Tree::new();
            tree.file("root/a.txt.gz", gzip(text.as_bytes()));
            tree
        },
        "http2 on; gunzip on; gzip_static always; sub_filter_types *; sub_filter 'the file' FILE;",
    );
    let url = server.url("/a.txt");
    let curl = sekisho_testkit::run("curl", &["-s", "--http2-prior-knowledge", &url], LONG);
    assert!(curl.stdout == text.replacen("the file", "FILE", 1));
}

#[test]
fn text_is_replaced_in_whatever_pieces_it_comes() {
    let backend = Backend::start(|connection| {
        while connection.request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"x\"\r\nLast-Modified: Mon, 28 Sep 1970 06:00:00 GMT\r\nContent-Length: 24\r\n\r\n");
            for byte in "one TWO three one two 3.".bytes() {
                connection.send([byte]);
            }
        }
    });
    let to = backend.address();
    let config = site(&format!(
        "location / {{ proxy_pass http://{to}; proxy_buffering off; sub_filter_once off; sub_filter one 1;
             sub_filter two '2$arg_x'; sub_filter $arg_y Y; }}
         location /kept {{ proxy_pass http://{to}; sub_filter one 1; sub_filter_last_modified on; gzip on; gzip_min_length 0; }}
         location /other {{ proxy_pass http://{to}; sub_filter_types text/css; sub_filter three 3; }}"
    ));
    let server = Server::start(BINARY, &config);
    let mut client = server.connect();
    let response = client.get("/?x=x&y=three");
    assert_eq!(response.text(), "1 2x Y 1 2x 3.");
    assert_eq!((response.field("etag"), response.field("last-modified")), (None, None));
    let kept = client.get("/kept");
    assert_eq!(kept.text(), "1 TWO three one two 3.");
    assert_eq!(kept.field("etag"), Some("W/\"x\""));
    assert!(kept.field("last-modified").is_some());
    assert_eq!(client.get("/other").text(), "one TWO 3 one two 3.");
    let url = server.url("/kept");
    let curl = sekisho_testkit::run("curl", &["-s", "--compressed", &url], LONG);
    assert_eq!(curl.stdout, "1 TWO three one two 3.");
}

#[test]
fn other_responses_stand_before_and_behind_a_body() {
    let tree = Tree::new();
    tree.file("root/a.html", "body");
    tree.file("root/a.txt", "text");
    tree.file("root/before.html", "<");
    let backend = Backend::saying(">");
    let server = serve(
        tree,
        &format!(
            "location / {{ add_before_body /before.html; add_after_body /after; }}
             location = /before.html {{ }}
             location /after {{ proxy_pass http://{}; }}
             location /cycle.html {{ add_after_body /cycle.html; return 200 x; }}",
            backend.address()
        ),
    );
    let mut client = server.connect();
    let response = client.get("/a.html");
    assert_eq!(response.text(), "<body>");
    assert!(response.field("etag").is_some_and(|tag| tag.starts_with("W/")));
    assert_eq!(response.field("accept-ranges"), None);
    assert_eq!(client.request("GET", "/a.html", "Range: bytes=1-2\r\n").text(), "<body>");
    assert_eq!(client.get("/a.txt").text(), "text");
    assert_eq!(client.get("/missing.html").status, 404);
    assert_eq!(
        client.get("/cycle.html").text(),
        "xx",
        "only the client's own request has additions"
    );
}

#[test]
fn parts_are_cut_here_where_a_server_cannot() {
    let backend = Backend::start(|connection| {
        while connection.request().is_some() {
            connection.answer("200 OK", "ETag: \"x\"\r\n", "0123456789");
        }
    });
    let to = backend.address();
    let server = Server::start(
        BINARY,
        &site(&format!("proxy_force_ranges on; location / {{ proxy_pass http://{to}; }}")),
    );
    let mut client = server.connect();
    let part = client.request("GET", "/", "Range: bytes=3-5\r\n");
    assert_eq!((part.status, part.text()), (206, "345".to_owned()));
    assert_eq!(part.field("content-range"), Some("bytes 3-5/10"));
    assert_eq!(client.request("GET", "/", "Range: bytes=20-\r\n").status, 416);
    assert_eq!(client.request("GET", "/", "Range: bytes=3-5\r\nIf-Range: \"y\"\r\n").status, 200);
    let whole = client.get("/");
    assert_eq!((whole.status, whole.field("accept-ranges")), (200, Some("bytes")));
}

#[test]
fn a_random_file_of_a_folder_is_served() {
    let tree = Tree::new();
    for name in ["a", "b", "c"] {
        tree.file(&format!("root/x/{name}.txt"), name);
    }
    tree.file("root/x/.hidden", "hidden");
    tree.folder("root/empty");
    let server = serve(tree, "random_index on;");
    let mut client = server.connect();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let response = client.get("/x/");
        assert_eq!(response.field("content-type"), Some("text/plain"));
        seen.insert(response.text());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(client.get("/empty/").status, 403);
    assert_eq!(client.get("/x/b.txt").text(), "b");
}

#[test]
fn cookies_tell_clients_apart() {
    let tree = Tree::new();
    tree.file("root/a", "a");
    let server = serve(
        tree,
        "userid on; userid_path /p; userid_expires 1d; userid_flags secure httponly;
         add_header X-Got $uid_got; add_header X-Set $uid_set;",
    );
    let mut client = server.connect();
    let first = client.get("/a");
    let cookie = first.field("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.starts_with("uid=") && cookie.contains("; expires="), "{cookie}");
    assert!(cookie.ends_with("; path=/p; secure; httponly"), "{cookie}");
    let set = first.field("x-set").expect("a value").to_owned();
    let value = cookie.split(';').next().unwrap_or_default();
    let again = client.request("GET", "/a", &format!("Cookie: a=b; {value}\r\n"));
    assert_eq!((again.field("set-cookie"), again.field("x-got")), (None, Some(&*set)));
    let other = client.get("/a").field("x-set").expect("a value").to_owned();
    assert_ne!(set, other);
}
