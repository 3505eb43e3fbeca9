//! What is bounded, and what happens at the bound: bodies, heads, connections, descriptors.
#![forbid(unsafe_code)]

mod common;

use std::time::Duration;

use common::{BINARY, LONG, http, pattern, serve, site};
use sekisho_testkit::{Client, End, Response, Server, Stopwatch, Tree, eventually, noise, pause};

const HOST: &str = "Host: localhost\r\n";

fn start() -> Server {
    serve(
        Tree::new(),
        "location /n/ { return 200 $uri; }
         location /limited { return 200 ok; client_max_body_size 10; }
         location /uploads/ { client_max_body_size 10; }
         location /bounded { return 200 ok; client_body_discard_max 1k; }",
    )
}

/// The connection is usable: another request gets its answer.
#[track_caller]
fn assert_kept(client: &mut Client) {
    assert_eq!(client.get("/n/kept").text(), "/n/kept");
}

/// Sends a request beyond a limit, and reads the answer before the close.
#[track_caller]
fn refused(server: &Server, bytes: impl AsRef<[u8]>) -> Response {
    let mut client = server.connect();
    client.send(bytes);
    let response = client.read_response();
    assert!(response.says_close(), "{response:?}");
    assert_eq!(client.read_to_close(), b"", "nothing follows");
    response
}

#[test]
fn a_body_over_the_limit_is_413_and_the_connection_is_kept() {
    // H6, H10, V3
    let server = start();
    for target in ["/limited", "/uploads/x"] {
        let mut client = server.connect();
        let response = client.request_with_body("POST", target, "", "x".repeat(11));
        assert_eq!(response.status, 413, "{target}");
        assert!(!response.says_close(), "{target}");
        assert_kept(&mut client);
        // Exactly the limit is not over it.
        let response = client.request_with_body("POST", target, "", "x".repeat(10));
        assert_ne!(response.status, 413, "{target}");
        assert_kept(&mut client);
    }
}

#[test]
fn a_body_over_the_limit_is_refused_at_once_where_the_client_asks_first() {
    // H6, H7, V28
    let server = start();
    let mut client = server.connect();
    let response =
        client.request("POST", "/limited", "Content-Length: 1000\r\nExpect: 100-continue\r\n");
    assert_eq!(response.status, 413, "no 100 before it");
}

#[test]
fn a_body_beyond_the_discard_bound_ends_the_connection_and_the_answer_arrives() {
    // H6, V3
    let server = start();
    let mut client = server.connect();
    client.send(format!("POST /bounded HTTP/1.1\r\n{HOST}Content-Length: 300000\r\n\r\n"));
    let response = client.read_response();
    assert_eq!((response.status, response.says_close()), (200, true));
    // A client that goes on sending is listened to for a while and not reset.
    client.send("z".repeat(300_000));
    client.half_close();
    assert_eq!(client.read_to_close(), b"");

    // The size of these chunks is not known beforehand.
    let mut client = server.connect();
    client.send(format!("POST /bounded HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n"));
    assert_eq!(client.read_response().status, 200);
    client.send(format!("1000\r\n{}\r\n", "z".repeat(4096)));
    assert_eq!(client.expect_closed(LONG), End::Closed);
}

#[test]
fn heads_have_limits() {
    // H10, V31
    let server = start();
    let long = |bytes: usize| "a".repeat(bytes);
    let line = |target: &str| format!("GET {target} HTTP/1.1\r\n{HOST}\r\n");
    assert_eq!(refused(&server, line(&format!("/n/{}", long(9000)))).status, 414);
    assert_eq!(refused(&server, long(20_000)).status, 414, "no line end ever comes");
    let field = |field: &str| format!("GET /n/x HTTP/1.1\r\n{HOST}{field}\r\n");
    assert_eq!(refused(&server, field(&format!("X: {}\r\n", long(9000)))).status, 431);
    assert_eq!(refused(&server, field(&"X: y\r\n".repeat(10_000))).status, 431);
    let big_fields = format!("X: {}\r\n", long(7000)).repeat(6);
    assert_eq!(refused(&server, field(&big_fields)).status, 431, "too large in all");
    // Just below the limits all is well.
    let mut client = server.connect();
    let target = format!("/n/{}", long(7000));
    assert_eq!(client.get(&target).text(), target);
    assert_eq!(client.request("GET", "/n/x", &"X: y\r\n".repeat(90)).status, 200);
    let fields = format!("X: {}\r\nY: {}\r\n", long(7000), long(7000));
    assert_eq!(client.request("GET", "/n/x", &fields).status, 200);
}

#[test]
fn limits_are_directives() {
    // H10
    let server = serve(
        Tree::new(),
        "large_client_header_buffers 4 1k; client_header_fields_max 5; keepalive_requests 3;
         location / { return 200 $uri; }",
    );
    let long = "a".repeat(1100);
    let request = format!("GET /{long} HTTP/1.1\r\n{HOST}\r\n");
    assert_eq!(refused(&server, request).status, 414);
    let request = format!("GET / HTTP/1.1\r\n{HOST}X: {long}\r\n\r\n");
    assert_eq!(refused(&server, request).status, 431);
    let request = format!("GET / HTTP/1.1\r\n{HOST}{}\r\n", "X: y\r\n".repeat(5));
    assert_eq!(refused(&server, request).status, 431);
    let mut client = server.connect();
    assert!(!client.get("/1").says_close());
    assert!(!client.get("/2").says_close());
    assert!(client.get("/3").says_close(), "the last that one connection may carry");
    assert_eq!(client.read_to_close(), b"");
}

#[test]
fn no_more_connections_are_taken_than_worker_connections_says() {
    // H10, O5
    let config = site("location / { return 200 ok; }")
        .replace("events {}", "events { worker_connections 3; }");
    let server = Server::start(BINARY, &config);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients[..3] {
        assert_eq!(client.get("/").status, 200);
    }
    clients[3].send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    clients[3].expect_open_for(Duration::from_millis(250));
    clients.remove(0);
    assert_eq!(clients[2].read_response().status, 200, "its turn has come");
}

/// H10: a slot that becomes free is given to the next connection at once, not at the next look (100 ms).
#[test]
fn a_free_slot_wakes_the_listener() {
    const ROUNDS: usize = 10;
    let config = site("location / { return 200 ok; }")
        .replace("events {}", "events { worker_connections 1; }");
    let server = Server::start(BINARY, &config);
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    let waits: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let mut next = server.connect();
            next.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            // The listener has seen that there is no slot.
            next.expect_open_for(Duration::from_millis(10));
            let watch = Stopwatch::start();
            drop(std::mem::replace(&mut client, next));
            assert_eq!(client.read_response().status, 200);
            watch.elapsed()
        })
        .collect();
    let shortest = waits.iter().min().expect("a round");
    assert!(*shortest < Duration::from_millis(50), "{waits:?}");
}

#[test]
fn one_connection_too_many_is_told_so() {
    // H10, O5, V15
    let config = site("location / { return 200 ok; }")
        .replace("events {}", "events { connections_max 3; connections_per_address 2; }");
    let server = Server::start(BINARY, &config);
    let mut clients: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    // It gets the error without having sent a request.
    let mut third = server.connect();
    let response = third.read_response();
    assert_eq!((response.status, response.says_close()), (503, true));
    drop(third);
    drop(clients);
    eventually("there is room again", LONG, || server.connect().get("/").status == 200);
}

#[test]
fn without_descriptors_nothing_spins_and_service_returns() {
    // O5, V39, X7
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let config = http(
        "keepalive_timeout 60s; client_header_timeout 60s;
         server { listen 127.0.0.1:{port}; root {root}; location /n/ { return 200 $uri; } }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let mut first = server.connect();
    assert_eq!(first.get("/n/first").status, 200);
    server.limit_descriptors(64);
    let mut crowd: Vec<_> = (0..500).map(|_| server.connect()).collect();
    for client in &mut crowd {
        client.send("GET /n/crowd HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    eventually("the shortage", LONG, || server.log("error.log").contains("pausing accept()"));
    let before = server.cpu_ticks();
    pause(Duration::from_secs(1));
    let used = server.cpu_ticks() - before;
    assert!(used <= 5, "{used} ticks in a second of shortage: more than 5 %");
    assert_eq!(first.get("/n/still").text(), "/n/still", "running sessions go on");
    // As some leave, others are served.
    for mut client in crowd.drain(..250) {
        client.try_read_response(false).ok();
    }
    assert_eq!(crowd[0].read_response().text(), "/n/crowd");
    drop(crowd);
    // A file takes a descriptor of its own: that of a connection whose end has been noticed.
    eventually("files again", LONG, || server.connect().get("/a.txt").text() == "hello");
    assert_eq!(first.get("/a.txt").text(), "hello");
}

#[test]
fn an_answer_leaves_no_faster_than_its_rate() {
    // T1: never early; how late depends on the machine.
    let tree = Tree::new();
    tree.file("root/small.bin", pattern(20_000));
    tree.file("root/large.bin", pattern(300_000));
    tree.file("root/noise.txt", noise(40_000));
    tree.script("root/count.cgi", "#!/bin/sh\nprintf 'Content-Type: a/b\\n\\n%020000d' 0\n");
    let server = serve(
        tree,
        "cgi_extension .cgi; limit_rate 20k; gzip_types text/plain;
         location = /noise.txt { gzip on; limit_rate 40k; }
         location = /large.bin { limit_rate 200k; limit_rate_after 100k; }
         location /free/ { limit_rate 0; return 200 ok; }",
    );
    let rows = [
        ("/small.bin", Some(20_000), 0.97),
        ("/count.cgi", Some(20_000), 0.97),
        ("/large.bin", Some(300_000), 0.95),
        // Compressed as it leaves.
        ("/noise.txt", None, 0.95),
    ];
    for (target, bytes, seconds) in rows {
        let mut client = server.connect();
        let watch = Stopwatch::start();
        client.send(format!(
            "GET {target} HTTP/1.1\r\n{HOST}Accept-Encoding: gzip\r\n\r\nGET /free/ HTTP/1.1\r\n{HOST}\r\n"
        ));
        assert_eq!(server.connect().get("/free/").text(), "ok", "others do not wait for it");
        let response = client.read_response();
        assert!(bytes.is_none_or(|bytes| bytes == response.body.len()), "{target}");
        assert_eq!(response.field("content-encoding").is_some(), bytes.is_none(), "{target}");
        assert!(watch.elapsed().as_secs_f64() >= seconds, "{target}: {:?}", watch.elapsed());
        assert_eq!(client.read_response().text(), "ok", "the next one comes behind it");
    }
    // A client that leaves is not sent the rest, and the end of the server does not wait for it.
    let mut slow = server.connect();
    slow.send(format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n"));
    slow.read_bytes(1000);
    drop(slow);
    let mut server = server;
    server.term();
    server.wait_exit(LONG);
}

#[test]
fn a_client_that_resets_a_slow_answer_is_gone_at_once() {
    // L12: a pause of minutes is not waited out.
    let body = format!(
        "location /slow {{ limit_rate 10; return 200 {}; }} location /status {{ stub_status; }}",
        "x".repeat(3000)
    );
    let server = serve(Tree::new(), &body);
    let mut slow = server.connect();
    slow.send(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let active = || {
        let text = server.connect().get("/status").text();
        text.lines().next().unwrap_or_default().to_owned()
    };
    eventually("the answer begins", LONG, || active() == "Active connections: 2 ");
    slow.reset();
    eventually("the client is gone", LONG, || active() == "Active connections: 1 ");
}
