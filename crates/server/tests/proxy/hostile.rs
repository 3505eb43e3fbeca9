//! Servers that lie to health checks, and requests that go from one failing server to the next: time, tries and memory are
//! bounded (U1, U2).

use std::time::Duration;

use sekisho_testkit::{Server, Stopwatch, Tree, eventually, pause};

use crate::backend::{Backend, Connection};
use crate::common::{BINARY, LONG, http};

/// A server that answers 500 after a while.
fn failing(after: Duration) -> Backend {
    Backend::start(move |connection| {
        while connection.request().is_some() {
            pause(after);
            connection.answer("500 Failed", "", "failed");
        }
    })
}

/// U1: one request of a client becomes no more than `proxy_next_upstream_tries` to servers, and none after
/// `proxy_next_upstream_timeout`; one that may have been processed is not sent twice.
#[test]
fn a_request_is_not_multiplied_by_failing_servers() {
    const SERVERS: usize = 8;
    let backends: Vec<Backend> = (0..SERVERS).map(|_| failing(Duration::ZERO)).collect();
    let slow: Vec<Backend> = (0..SERVERS).map(|_| failing(Duration::from_millis(200))).collect();
    let list = |backends: &[Backend]| -> String {
        let line = |it: &Backend| format!("server {} max_fails=0;", it.address());
        backends.iter().map(line).collect()
    };
    let config = http(&format!(
        "upstream app {{ {} }} upstream slow {{ {} }}
         proxy_next_upstream error timeout http_500;
         server {{ listen 127.0.0.1:{{port}};
           location / {{ proxy_pass http://app; }}
           location /three {{ proxy_pass http://app; proxy_next_upstream_tries 3; }}
           location /all {{ proxy_pass http://app; proxy_next_upstream error timeout http_500 non_idempotent; }}
           location /slow {{ proxy_pass http://slow; proxy_next_upstream_timeout 500ms; }} }}",
        list(&backends),
        list(&slow)
    ));
    let server = Server::start_in(Tree::new(), BINARY, &config);
    let asked =
        |backends: &[Backend]| -> usize { backends.iter().map(|it| it.heads().len()).sum() };
    let rows = [
        ("GET", "/", SERVERS),
        ("GET", "/three", 3),
        ("POST", "/", 1),
        ("POST", "/three", 1),
        ("POST", "/all", SERVERS),
    ];
    for (method, path, tries) in rows {
        let before = asked(&backends);
        let response = server.connect().request_with_body(method, path, "", b"body");
        assert_eq!(response.status, 500, "{method} {path}");
        assert_eq!(asked(&backends) - before, tries, "{method} {path}");
    }
    let watch = Stopwatch::start();
    assert_eq!(server.connect().get("/slow").status, 500);
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
    assert!((1..=3).contains(&asked(&slow)), "{} tries in 500 ms", asked(&slow));
}

/// U2, X8: a proxy that is its own upstream answers 502 after a few rounds, and takes neither all descriptors nor much memory.
#[test]
fn a_proxy_that_passes_to_itself_ends_soon() {
    for keepalive in ["", "keepalive 8;"] {
        let tree = Tree::new();
        tree.file("root/page.html", "<!--#include virtual=\"/circle\" -->".repeat(20));
        tree.file("root/a.txt", "once");
        let config = http(&format!(
            "upstream self {{ server 127.0.0.1:{{port}}; {keepalive} }}
             server {{ listen 127.0.0.1:{{port}}; root {{root}}; ssi on;
               location /circle {{ proxy_pass http://self; }}
               location /once/ {{ proxy_pass http://self/; }} }}"
        ));
        let server = Server::start_in(tree, BINARY, &config);
        let (memory, fds) = (server.rss_bytes(), server.fds());
        let watch = Stopwatch::start();
        assert_eq!(server.connect().get("/circle").status, 502);
        assert!(server.log("error.log").contains("the server was asked by itself 10 times"));
        assert_eq!(server.connect().get("/page.html").status, 200);
        assert!(watch.elapsed() < Duration::from_secs(20), "{:?}", watch.elapsed());
        let grown = server.rss_bytes().saturating_sub(memory);
        assert!(grown < 16 << 20, "{grown} bytes");
        assert!(server.fds() < fds + 64, "{} descriptors", server.fds());
        // Passing to another server of the same process is not a circle.
        for _ in 0..20 {
            assert_eq!(server.connect().get("/once/a.txt").text(), "once");
        }
    }
}

fn never_answers(connection: &mut Connection) {
    connection.request();
    connection.wait_for_end();
}

fn endless_head(connection: &mut Connection) {
    connection.request();
    connection.send("HTTP/1.1 200 OK\r\n");
    send_for_ever(connection, &b"X-More: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(100));
}

fn endless_body(connection: &mut Connection) {
    connection.request();
    connection.send("HTTP/1.1 200 OK\r\n\r\n");
    send_for_ever(connection, &[b'a'; 16 << 10]);
}

fn trickles(connection: &mut Connection) {
    connection.request();
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
    for _ in 0..3000 {
        if connection.try_send(b"a").is_err() {
            return;
        }
        pause(Duration::from_millis(20));
    }
}

fn not_http(connection: &mut Connection) {
    connection.request();
    connection.send("SSH-2.0-OpenSSH_9.2\r\n");
    connection.wait_for_end();
}

/// As long as the other side takes it, up to 64 MB.
fn send_for_ever(connection: &mut Connection, piece: &[u8]) {
    let mut sent = 0;
    while sent < 64 << 20 && connection.try_send(piece).is_ok() {
        sent += piece.len();
    }
}

/// U2: a server that does not answer a check as it should is left, within the time of the check, and costs no memory.
#[test]
fn a_server_that_lies_to_a_health_check_is_left() {
    type Lie = (&'static str, fn(&mut Connection));
    const LIES: &[Lie] = &[
        ("never answers", never_answers),
        ("endless head", endless_head),
        ("endless body", endless_body),
        ("trickles", trickles),
        ("not HTTP", not_http),
    ];
    std::thread::scope(|scope| {
        for (name, lie) in LIES {
            scope.spawn(move || {
                let backend = Backend::start(lie);
                let config = http(&format!(
                    "match good {{ status 200; body ~ well; }}
                     upstream app {{ zone app 64k; server {}; }}
                     server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://app; proxy_read_timeout 300ms;
                       proxy_connect_timeout 300ms;
                       health_check interval=50ms uri=/health match=good; }} }}",
                    backend.address()
                ));
                let server = Server::start_in(Tree::new(), BINARY, &config);
                let before = server.rss_bytes();
                let watch = Stopwatch::start();
                eventually(name, LONG, || server.log("error.log").contains("peer is unhealthy"));
                assert!(watch.elapsed() < Duration::from_secs(20), "{name}: {:?}", watch.elapsed());
                assert_eq!(server.connect().get("/").status, 502, "{name}");
                let grown = server.rss_bytes().saturating_sub(before);
                assert!(grown < 16 << 20, "{name}: {grown} bytes");
            });
        }
    });
}
