//! Requests that come again and again: a known head is answered without parsing it anew, and clients see no
//! difference.
#![forbid(unsafe_code)]

mod common;

use std::fs::{self, File, FileTimes};
use std::time::{Duration, UNIX_EPOCH};

use common::{BINARY, LONG, http, serve};
use sekisho_testkit::{Response, Server, Tree, eventually};

const REQUESTS: usize = 200;
/// Files are trusted from the second request on, so nearly all requests are repeats.
const TRUSTED: &str =
    "open_file_cache max=100; open_file_cache_valid 60s; open_file_cache_errors on;";

fn files() -> Tree {
    let tree = Tree::new();
    for name in ["a.txt", "b.txt", "index.html"] {
        tree.file(&format!("root/{name}"), format!("this is {name}"));
    }
    tree
}

/// What an answer is, but for its date.
fn essence(response: &Response) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let fields = response.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("date"));
    (response.status, fields.cloned().collect(), response.body.clone())
}

#[test]
fn a_repeated_answer_is_the_same_to_the_byte() {
    // F1, H3
    let server = serve(files(), TRUSTED);
    let targets = ["/a.txt", "/b.txt", "/", "/missing", "/a.txt?x=1"];
    let asks = [
        ("GET", ""),
        ("HEAD", ""),
        ("GET", "Range: bytes=2-5\r\n"),
        ("GET", "If-None-Match: *\r\n"),
    ];
    for target in targets {
        for (method, fields) in asks {
            let mut client = server.connect();
            let first = client.request(method, target, fields);
            for _ in 0..REQUESTS / 10 {
                assert_eq!(essence(&client.request(method, target, fields)), essence(&first));
            }
        }
    }
    // In between, in one go, and from several clients at once.
    let request = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for round in 0..REQUESTS {
        let target = targets[round % targets.len()];
        let all = [request(target), request("/a.txt"), request(target)].concat();
        for client in &mut clients {
            client.send(&all);
        }
        for client in &mut clients {
            let (first, middle, last) =
                (client.read_response(), client.read_response(), client.read_response());
            assert_eq!(essence(&first), essence(&last), "{target}");
            assert_eq!(middle.text(), "this is a.txt");
        }
    }
}

#[test]
fn a_repeat_counts_as_a_request_and_closes_when_it_should() {
    // H1, H2
    let server = serve(files(), &format!("{TRUSTED} keepalive_requests {REQUESTS};"));
    for _ in 0..3 {
        let mut client = server.connect();
        for request in 1..=REQUESTS {
            let response = client.get("/a.txt");
            assert_eq!((response.status, response.says_close()), (200, request == REQUESTS));
        }
        client.expect_closed(LONG);
        for _ in 0..3 {
            let mut client = server.connect();
            let response = client.request("GET", "/a.txt", "Connection: close\r\n");
            assert!(response.says_close());
            client.expect_closed(LONG);
            let mut client = server.connect();
            client.send("GET /a.txt HTTP/1.0\r\n\r\n");
            assert!(client.read_to_close().ends_with(b"this is a.txt"));
        }
    }
}

#[test]
fn what_depends_on_more_than_the_head_is_never_repeated() {
    // F7, V49
    let body = format!(
        "{TRUSTED}
         location / {{ add_header X-Connection $connection; add_header X-Request $request_id always; }}
         location /fixed/ {{ alias {{root}}/; add_header X-Host $host; add_header X-Arg $arg_x; }}
         location /soon/ {{ alias {{root}}/; expires 1h; }}"
    );
    let server = serve(files(), &body);
    let (mut one, mut other) = (server.connect(), server.connect());
    let mut seen = std::collections::HashSet::new();
    for _ in 0..REQUESTS / 4 {
        for target in ["/a.txt", "/missing"] {
            let (first, second) = (one.get(target), other.get(target));
            assert!(seen.insert(first.field("X-Request").expect("an id").to_owned()));
            assert!(seen.insert(second.field("X-Request").expect("an id").to_owned()));
        }
        let (first, second) = (one.get("/a.txt"), other.get("/a.txt"));
        assert_ne!(first.field("X-Connection"), second.field("X-Connection"));
        let fixed = one.get("/fixed/a.txt?x=7");
        assert_eq!((fixed.field("X-Host"), fixed.field("X-Arg")), (Some("localhost"), Some("7")));
        let other_host = "GET /fixed/a.txt?x=7 HTTP/1.1\r\nHost: Other.example\r\n\r\n";
        assert_eq!(other.send(other_host).read_response().field("X-Host"), Some("other.example"));
    }
    // `Expires` is as old as its answer.
    let expires = || server.connect().get("/soon/a.txt").field("Expires").map(str::to_owned);
    let first = expires();
    assert!(first.is_some());
    eventually("a later time", LONG, || expires() != first);
}

#[test]
fn the_same_head_at_another_address_is_another_request() {
    // F7, V49
    let config = format!(
        "{TRUSTED} server {{ listen 127.0.0.1:{{port}}; root {{root}}; }}
         server {{ listen 127.0.0.1:{{port2}}; location / {{ alias {{root}}/sub/; }} }}"
    );
    let tree = files();
    tree.file("root/sub/a.txt", "another file");
    let server = Server::start_in(tree, BINARY, &http(&config));
    let mut one = sekisho_testkit::Client::connect(server.address_of(0));
    let mut other = sekisho_testkit::Client::connect(server.address_of(1));
    for _ in 0..REQUESTS / 4 {
        let request = "GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert_eq!(one.send(request).read_response().text(), "this is a.txt");
        assert_eq!(other.send(request).read_response().text(), "another file");
    }
}

#[test]
fn a_hot_file_that_changes_is_seen_within_a_moment_and_a_reload_at_once() {
    // F1, O3
    let tree = files();
    let path = tree.path("root/a.txt");
    let old = UNIX_EPOCH + Duration::from_secs(784_111_777);
    let file = File::options().write(true).open(&path).expect("it is there");
    file.set_times(FileTimes::new().set_modified(old)).expect("times can be set");
    let server = serve(tree, "location /gone/ { alias {root}/; }");
    let mut client = server.connect();
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/a.txt").text(), "this is a.txt");
    }
    fs::write(&path, "it has changed").expect("it can be written");
    eventually("the new content", LONG, || client.get("/a.txt").text() == "it has changed");
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/gone/a.txt").status, 200);
    }
    let config = fs::read_to_string(server.config_path()).expect("a configuration");
    server.rewrite_config(&config.replace("alias", "return 410; alias"));
    server.signal(sekisho_testkit::Signal::HUP);
    eventually("the new configuration", LONG, || client.get("/gone/a.txt").status == 410);
    assert_eq!(client.get("/gone/a.txt").status, 410);
}

#[test]
fn every_repeat_is_logged_where_logs_are_wanted() {
    // O6
    let body = format!("{TRUSTED} access_log {{dir}}/access.log;");
    let server = serve(files(), &body);
    let mut client = server.connect();
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/a.txt").status, 200);
    }
    eventually("all lines", LONG, || server.log("access.log").lines().count() == REQUESTS);
}
