//! Files over real sockets: validators, conditionals, ranges, media types, and that what is on the disk
//! is what is sent.
#![forbid(unsafe_code)]

mod common;

use std::fs::{self, File, FileTimes};
use std::time::{Duration, UNIX_EPOCH};

use common::{BINARY, LONG, http, pattern, serve};
use sekisho_testkit::{Client, Framing, Injected, Server, Stopwatch, Tree, have, run};

const HOST: &str = "Host: localhost\r\n";
const CONTENT: &str = "0123456789abcdefghij";
const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const LATER: &str = "Mon, 07 Nov 1994 08:49:37 GMT";
const LARGE: usize = 5 << 20;

/// A small file of a known age, and a large one.
fn start() -> Server {
    let tree = Tree::new();
    let path = tree.file("root/a.txt", CONTENT);
    let file = File::options().write(true).open(path).expect("it is there");
    let modified = UNIX_EPOCH + Duration::from_secs(784_111_777);
    file.set_times(FileTimes::new().set_modified(modified)).expect("times can be set");
    tree.file("root/large.bin", pattern(LARGE));
    tree.file("root/empty.txt", "");
    serve(
        tree,
        "location /loose/ { alias {root}/; if_modified_since before; }
         location /no-etag/ { alias {root}/; etag off; }
         location /no-ranges/ { alias {root}/; max_ranges 0; }
         location /two-ranges/ { alias {root}/; max_ranges 2; }",
    )
}

/// The status and body of a request for the small file.
#[track_caller]
fn ask(client: &mut Client, fields: &str) -> (u16, String) {
    let response = client.request("GET", "/a.txt", fields);
    (response.status, response.text())
}

fn etag_of(client: &mut Client) -> String {
    client.get("/a.txt").field("etag").expect("files have one").to_owned()
}

#[test]
fn a_file_comes_with_its_validators() {
    // F1
    let server = start();
    let mut client = server.connect();
    let response = client.get("/a.txt");
    assert_eq!((response.status, response.text().as_str()), (200, CONTENT));
    assert_eq!(response.field("last-modified"), Some(MODIFIED));
    assert_eq!(response.field("accept-ranges"), Some("bytes"));
    assert_eq!(response.field("content-type"), Some("text/plain"));
    let etag = response.field("etag").expect("files have one");
    assert!(etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    let large = client.get("/large.bin");
    assert_eq!(large.framing, Framing::Length(LARGE));
    assert!(large.body == pattern(LARGE), "every byte at its place");
    let empty = client.get("/empty.txt");
    assert_eq!((empty.status, empty.framing), (200, Framing::Length(0)));
    assert_eq!(client.get("/no-etag/a.txt").field("etag"), None);
}

#[test]
fn conditionals_are_asked_in_the_order_of_the_rfc() {
    // F1: RFC 9110 §13.2.2
    let server = start();
    let mut client = server.connect();
    let etag = etag_of(&mut client);
    let rows = [
        (format!("If-None-Match: {etag}\r\n"), 304),
        (format!("If-None-Match: \"x\", W/{etag}\r\n"), 304),
        ("If-None-Match: *\r\n".to_owned(), 304),
        ("If-None-Match: \"x\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {MODIFIED}\r\n"), 304),
        (format!("If-Modified-Since: {EARLIER}\r\n"), 200),
        (format!("If-Modified-Since: {LATER}\r\n"), 200),
        ("If-Modified-Since: yesterday\r\n".to_owned(), 200),
        // A tag that differs outweighs a time that does not.
        (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {MODIFIED}\r\n"), 200),
        (format!("If-None-Match: {etag}\r\nIf-Modified-Since: {EARLIER}\r\n"), 304),
        (format!("If-Match: {etag}\r\n"), 200),
        ("If-Match: *\r\n".to_owned(), 200),
        ("If-Match: \"x\"\r\n".to_owned(), 412),
        // Weak tags never match strongly.
        (format!("If-Match: W/{etag}\r\n"), 412),
        (format!("If-Unmodified-Since: {MODIFIED}\r\n"), 200),
        (format!("If-Unmodified-Since: {EARLIER}\r\n"), 412),
        (format!("If-Match: {etag}\r\nIf-Unmodified-Since: {EARLIER}\r\n"), 200),
        (format!("If-Match: \"x\"\r\nIf-None-Match: {etag}\r\n"), 412),
        (format!("If-Match: {etag}\r\nIf-None-Match: {etag}\r\n"), 304),
        (format!("If-None-Match: {etag}\r\nRange: bytes=0-1\r\n"), 304),
    ];
    for (fields, status) in rows {
        assert_eq!(ask(&mut client, &fields).0, status, "{fields:?}");
    }
    let response = client.request("GET", "/a.txt", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(response.field("etag"), Some(etag.as_str()));
    assert_eq!(response.field("last-modified"), Some(MODIFIED));
    assert_eq!(response.framing, Framing::None);
    let since = format!("If-Modified-Since: {LATER}\r\n");
    assert_eq!(client.request("GET", "/loose/a.txt", &since).status, 304);
    assert_eq!(client.request("HEAD", "/a.txt", "If-None-Match: *\r\n").status, 304);
}

#[test]
fn single_ranges_are_cut_out() {
    // F1
    let server = start();
    let mut client = server.connect();
    let rows = [
        ("bytes=0-0", 206, "0", "bytes 0-0/20"),
        ("bytes=5-9", 206, "56789", "bytes 5-9/20"),
        ("bytes=15-", 206, "fghij", "bytes 15-19/20"),
        ("bytes=15-999", 206, "fghij", "bytes 15-19/20"),
        ("bytes=-3", 206, "hij", "bytes 17-19/20"),
        ("bytes=-999", 206, CONTENT, "bytes 0-19/20"),
        ("bytes=20-", 416, "", "bytes */20"),
        ("bytes=99-100", 416, "", "bytes */20"),
        ("bytes=-0", 416, "", "bytes */20"),
        ("bytes=5-2", 416, "", "bytes */20"),
        ("lines=1-2", 200, CONTENT, ""),
        ("bytes=a-b", 416, "", "bytes */20"),
    ];
    for (range, status, body, content_range) in rows {
        let response = client.request("GET", "/a.txt", &format!("Range: {range}\r\n"));
        assert_eq!(response.field("content-range").unwrap_or_default(), content_range, "{range}");
        assert_eq!(response.status, status, "{range}");
        if status != 416 {
            assert_eq!(response.text(), body, "{range}");
        }
    }
    let all = pattern(LARGE);
    let response = client.request("GET", "/large.bin", "Range: bytes=1000000-3999999\r\n");
    assert_eq!(response.status, 206);
    assert!(response.body == all[1_000_000..4_000_000], "the right stretch");
    let empty = client.request("GET", "/empty.txt", "Range: bytes=0-\r\n");
    assert!(matches!(empty.status, 416 | 200), "{}", empty.status);
    let response = client.request("GET", "/no-ranges/a.txt", "Range: bytes=0-0\r\n");
    assert_eq!((response.status, response.field("accept-ranges")), (200, None));
}

#[test]
fn several_ranges_come_as_parts_and_too_many_as_the_whole() {
    // F1, V16
    let server = start();
    let mut client = server.connect();
    let response = client.request("GET", "/a.txt", "Range: bytes=0-1, 4-5,-2\r\n");
    assert_eq!(response.status, 206);
    let media_type = response.field("content-type").expect("it has one");
    let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").expect("parts");
    let part = |range: &str, bytes: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {range}/20\r\n\r\n\
             {bytes}"
        )
    };
    let parts = [part("0-1", "01"), part("4-5", "45"), part("18-19", "ij")].concat();
    assert_eq!(response.text(), format!("{parts}\r\n--{boundary}--\r\n"));
    // The same where the file is sent from its descriptor, and the connection goes on.
    let response = client.request("GET", "/large.bin", "Range: bytes=0-99999,200000-299999\r\n");
    let all = pattern(LARGE);
    assert_eq!(response.status, 206);
    for stretch in [&all[..100_000], &all[200_000..300_000]] {
        assert!(response.body.windows(stretch.len()).any(|window| window == stretch));
    }
    assert_eq!(ask(&mut client, "Range: bytes=0-1,99-\r\n").1, "01", "one that can be satisfied");
    assert_eq!(ask(&mut client, "Range: bytes=88-,99-\r\n").0, 416);
    let two = client.request("GET", "/two-ranges/a.txt", "Range: bytes=0-0,2-2,4-4\r\n");
    assert_eq!((two.status, two.text().as_str()), (200, CONTENT));
    // A thousand tiny ranges must not cost a thousand answers.
    let many: Vec<String> = (0..1000).map(|at| format!("{at}-{at}")).collect();
    let response =
        client.request("GET", "/large.bin", &format!("Range: bytes={}\r\n", many.join(",")));
    assert!(response.body.len() <= LARGE + 4096, "{}", response.body.len());
}

#[test]
fn if_range_decides_between_the_part_and_the_whole() {
    // F1: RFC 9110 §13.1.5
    let server = start();
    let mut client = server.connect();
    let etag = etag_of(&mut client);
    let rows = [
        (etag.clone(), 206),
        ("\"x\"".to_owned(), 200),
        (format!("W/{etag}"), 200),
        (MODIFIED.to_owned(), 206),
        (EARLIER.to_owned(), 200),
        (LATER.to_owned(), 200),
    ];
    for (value, status) in rows {
        let fields = format!("Range: bytes=0-0\r\nIf-Range: {value}\r\n");
        assert_eq!(ask(&mut client, &fields).0, status, "{value}");
    }
}

#[test]
fn the_media_type_follows_the_extension() {
    // F1
    let tree = Tree::new();
    for name in ["a.html", "a.css", "a.PNG", "a.tar.gz", "noext", ".html", "a.unknown", "a.x"] {
        tree.file(&format!("root/{name}"), "x");
        tree.file(&format!("root/own/{name}"), "x");
    }
    let server = serve(
        tree,
        "default_type application/octet-stream; types { text/html html htm; text/css css;
           image/png png; application/gzip gz; }
         location /own/ { types { text/x-own x; } default_type text/x-default; }",
    );
    let mut client = server.connect();
    let rows = [
        ("/a.html", "text/html"),
        ("/a.css", "text/css"),
        ("/a.PNG", "image/png"),
        ("/a.tar.gz", "application/gzip"),
        ("/noext", "application/octet-stream"),
        ("/.html", "application/octet-stream"),
        ("/a.unknown", "application/octet-stream"),
        ("/own/a.x", "text/x-own"),
        ("/own/a.html", "text/x-default"),
    ];
    for (target, media_type) in rows {
        assert_eq!(client.get(target).field("content-type"), Some(media_type), "{target}");
    }
}

#[test]
fn a_charset_is_added_to_text_and_to_nothing_else() {
    // F1
    let tree = Tree::new();
    tree.file("root/a.html", "x");
    tree.file("root/a.png", "x");
    let server = serve(tree, "charset utf-8; location /text { return 200 ok; }");
    let mut client = server.connect();
    for (target, media_type) in [
        ("/a.html", "text/html; charset=utf-8"),
        ("/a.png", "image/png"),
        ("/text", "text/plain; charset=utf-8"),
        ("/missing", "text/html; charset=utf-8"),
    ] {
        assert_eq!(client.get(target).field("content-type"), Some(media_type), "{target}");
    }
}

#[test]
fn whoever_writes_a_file_and_asks_for_it_gets_what_was_written() {
    // F1: same name, same size, many times in a tenth of a second
    let tree = Tree::new();
    tree.file("root/page.txt", "page 0000");
    let server = serve(tree, "");
    let mut client = server.connect();
    let mut tags = Vec::new();
    for turn in 0..50 {
        let content = format!("page {turn:04}");
        server.tree().file("root/page.txt", &content);
        let response = client.get("/page.txt");
        assert_eq!(response.text(), content);
        tags.push(response.field("etag").map(str::to_owned));
    }
    // By rename as well, which keeps the old file intact for its readers.
    for turn in 0..50 {
        let content = format!("made {turn:04}");
        server.tree().file("root/new", &content);
        fs::rename(server.tree().path("root/new"), server.tree().path("root/page.txt"))
            .expect("renamed");
        assert_eq!(client.get("/page.txt").text(), content);
    }
    fs::remove_file(server.tree().path("root/page.txt")).expect("removed");
    assert_eq!(client.get("/page.txt").status, 404);
    server.tree().file("root/page.txt", "back");
    assert_eq!(client.get("/page.txt").text(), "back");
    // Large files are not kept in memory, but their descriptors are.
    for turn in 0..20_u8 {
        server.tree().file("root/page.txt", vec![turn; 100_000]);
        assert!(client.get("/page.txt").body == vec![turn; 100_000], "turn {turn}");
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_does_not_look_complete() {
    // F1, H2, X9
    let tree = Tree::new();
    let path = tree.file("root/large.bin", pattern(LARGE));
    let config = http("server { listen 127.0.0.1:{port} sndbuf=32k; root {root}; }");
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    client.shrink_receive_buffer(16 * 1024);
    client.send(format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n"));
    let start = client.read_bytes(1000);
    assert!(start.starts_with(b"HTTP/1.1 200 OK\r\n"));
    File::options().write(true).open(path).expect("there").set_len(2 << 20).expect("shrunk");
    let (rest, _) = client.read_to_end();
    let received = start.len() + rest.len();
    assert!(received < LARGE, "{received} bytes came");
    // The server is well, and tells the new size.
    assert_eq!(server.connect().get("/large.bin").body.len(), 2 << 20);
}

#[test]
fn many_clients_get_a_large_file_at_the_same_time() {
    // F1
    let server = start();
    let all = pattern(LARGE);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = server.connect().with_patience(LONG);
                for _ in 0..3 {
                    assert!(client.get("/large.bin").body == all);
                }
            });
        }
    });
}

#[test]
fn curl_asks_for_heads_parts_and_changes() {
    // F1, H12
    if !have("curl") {
        return;
    }
    let server = start();
    let tree = Tree::new();
    let out = tree.path("out").display().to_string();
    let curl = |arguments: &[&str]| {
        let url = server.url("/a.txt");
        let arguments = [&["-sS", "-o", &out, "-w", "%{http_code}"], arguments, &[&url]].concat();
        let finished = run("curl", &arguments, LONG);
        assert_eq!(finished.code(), 0, "{arguments:?}: {}", finished.stderr);
        finished.stdout
    };
    assert_eq!((curl(&[]).as_str(), tree.text("out").as_str()), ("200", CONTENT));
    assert_eq!(curl(&["-I"]), "200");
    let head = tree.text("out");
    assert!(head.contains("Content-Length: 20\r\n") && head.contains("ETag: \""), "{head}");
    assert_eq!((curl(&["-r", "2-4"]).as_str(), tree.text("out").as_str()), ("206", "234"));
    assert_eq!((curl(&["-r", "-2"]).as_str(), tree.text("out").as_str()), ("206", "ij"));
    tree.file("out", &CONTENT[..7]);
    assert_eq!(curl(&["-C", "-"]), "206");
    assert_eq!(tree.text("out"), CONTENT, "resumed where it stopped");
    assert_eq!(curl(&["-z", MODIFIED]), "304");
    assert_eq!(curl(&["-z", EARLIER]), "200");
    let etag = tree.path("etag").display().to_string();
    assert_eq!(curl(&["--etag-save", &etag]), "200");
    assert_eq!(curl(&["--etag-compare", &etag]), "304");
    assert_eq!(curl(&["-0"]), "200", "HTTP/1.0");
    assert_eq!(curl(&["-d", "some body"]), "405");
    assert_eq!(curl(&["-H", "Expect: 100-continue", "-d", "some body"]), "405");
}

#[test]
fn curl_reuses_its_connection_after_errors() {
    // H2
    if !have("curl") {
        return;
    }
    let server = start();
    let watch = Stopwatch::start();
    let (good, missing) = (server.url("/a.txt"), server.url("/missing"));
    let finished = run("curl", &["-sS", "-v", &good, &missing, &good], LONG);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    assert_eq!(finished.stdout.matches(CONTENT).count(), 2);
    let connects = finished.stderr.matches("Connected to").count();
    assert_eq!(connects, 1, "{:?}: {}", watch.elapsed(), finished.stderr);
}

/// F1
#[test]
fn a_text_is_recoded_to_the_charset_that_its_head_names() {
    let tree = Tree::new();
    let text = b"a\x80\n".repeat(3);
    let long = b"\x80x".repeat(600_000);
    tree.file("root/a.txt", &text);
    tree.file("root/long.txt", &long);
    tree.file("root/a.bin", &text);
    let config = http(
        "charset_map one utf-8 { 80 E282AC; } charset_map one two { 80 81; }
         types { text/plain txt; application/x-bin bin; }
         server { listen 127.0.0.1:{port}; root {root}; source_charset one;
           location /two/ { alias {root}/; charset two; }
           location / { charset utf-8; } }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    let response = client.get("/a.txt");
    assert_eq!(response.field("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(response.text(), "a\u{20ac}\n".repeat(3));
    assert_eq!(client.get("/long.txt").text(), "\u{20ac}x".repeat(600_000));
    assert_eq!(client.get("/a.bin").body, text);
    // One byte for one: ranges are those of the recoded text.
    let response = client.request("GET", "/two/a.txt", "Range: bytes=1-1\r\n");
    assert_eq!((response.status, response.body.as_slice()), (206, &b"\x81"[..]));
    // Where lengths change there are none.
    let response = client.request("GET", "/a.txt", "Range: bytes=1-1\r\n");
    assert_eq!((response.status, response.field("accept-ranges")), (200, None));
}

/// F1
#[test]
fn if_range_is_compared_with_the_validator_that_the_client_has_got() {
    let tree = Tree::new();
    tree.file("root/a.txt", "0123456789");
    let date = "Mon, 28 Sep 1970 06:00:00 GMT";
    let config = http(&format!(
        "server {{ listen 127.0.0.1:{{port}}; root {{root}};
           add_header Last-Modified \"{date}\"; add_header ETag '\"mine\"'; }}"
    ));
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    for (validator, status) in
        [(date, 206), ("\"mine\"", 206), ("\"other\"", 200), ("Mon, 28 Sep 1970 06:00:01 GMT", 200)]
    {
        let fields = format!("Range: bytes=1-2\r\nIf-Range: {validator}\r\n");
        assert_eq!(client.request("GET", "/a.txt", &fields).status, status, "{validator}");
    }
}

/// How long each read of a file takes here.
const SLOW_READ: (&str, &str) = ("pread64", "delay_enter=1000000");

/// Asks for the large file while every read takes a second: whether others are served meanwhile, by the one worker.
fn assert_holds_up_nobody(server: &Server, injected: &[(&str, &str)]) {
    let Some(injected) = Injected::all(server, injected) else { return };
    let mut slow = server.connect();
    slow.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut other = server.connect();
    let watch = Stopwatch::start();
    for _ in 0..100 {
        assert_eq!(other.get("/small.html").status, 200);
    }
    // Three portions, a second each.
    assert!(watch.elapsed() < Duration::from_secs(2), "the event loop waits for the disk");
    let response = slow.read_response();
    assert_eq!((response.status, response.body.len()), (200, 300_000));
    assert_eq!(response.body, pattern(300_000));
    assert!(watch.elapsed() > Duration::from_secs(2), "it was read beside the event loop");
    drop(injected);
    // Ranges and several of them come the same way.
    let part = slow.request("GET", "/large.bin", "Range: bytes=200000-200009\r\n");
    assert_eq!((part.status, part.body.as_slice()), (206, &pattern(300_000)[200_000..200_010]));
}

#[test]
fn a_file_that_is_not_in_memory_holds_up_nobody_else() {
    // O5: the kernel says that it would have to wait for the disk.
    let tree = Tree::new();
    tree.file("root/large.bin", pattern(300_000));
    tree.file("root/small.html", "small");
    let server = serve(tree, "open_file_cache max=10; open_file_cache_valid 60s;");
    // What is known already is not asked for again.
    assert_eq!(server.connect().get("/small.html").status, 200);
    assert_holds_up_nobody(&server, &[("preadv2", "error=EAGAIN"), SLOW_READ]);
}

#[test]
fn with_aio_threads_every_file_is_read_beside_the_event_loop() {
    // O5: for file systems that cannot say whether they would wait.
    let tree = Tree::new();
    tree.file("root/large.bin", pattern(300_000));
    tree.file("root/small.html", "small");
    let server =
        serve(tree, "aio threads=default; open_file_cache max=10; open_file_cache_valid 60s;");
    assert_eq!(server.connect().get("/small.html").status, 200);
    assert_holds_up_nobody(&server, &[SLOW_READ]);
}

#[test]
fn a_small_file_that_is_not_in_memory_is_served_and_kept_once_it_is() {
    // O5
    let tree = Tree::new();
    tree.file("root/small.html", "small");
    let server = serve(tree, "open_file_cache max=10; open_file_cache_valid 60s;");
    let Some(injected) = Injected::into(&server, "preadv2", "error=EAGAIN") else { return };
    for _ in 0..3 {
        assert_eq!(server.connect().get("/small.html").text(), "small");
    }
    drop(injected);
    assert_eq!(server.connect().get("/small.html").text(), "small");
    // From here on it is in the cache: nothing is read.
    let Some(injected) = Injected::into(&server, "preadv2,pread64,sendfile", "error=EIO") else {
        return;
    };
    assert_eq!(server.connect().get("/small.html").text(), "small");
    drop(injected);
}
