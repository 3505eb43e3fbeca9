//! WebSocket and other protocols that a connection is switched to (U6).

use std::time::Duration;

use sekisho_testkit::{Client, Server, Signal, Stopwatch, Tree, eventually, pause};

use crate::backend::Backend;
use crate::common::{LONG, serve, site};

const ASK: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// nginx's recipe.
pub(crate) fn location(backend: &Backend, more: &str) -> String {
    format!(
        "location / {{ proxy_pass http://{}; proxy_http_version 1.1;
           proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \"upgrade\"; {more} }}",
        backend.address()
    )
}

pub(crate) fn recipe(backend: &Backend, more: &str) -> Server {
    serve(Tree::new(), &location(backend, more))
}

/// A client that has upgraded its connection.
fn open(server: &Server) -> Client {
    let mut client = server.connect();
    client.send(ASK);
    assert_eq!(client.read_head_response().status, 101);
    assert_eq!(client.read_bytes(5), b"hello");
    client
}

pub(crate) fn echo() -> Backend {
    Backend::start(|connection| {
        let head = connection.request().unwrap_or_default();
        if !head.contains("Upgrade: websocket") {
            return connection.answer("400 Bad Request", "", "no upgrade");
        }
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: HSmrc0sMlYUkAGmm5OPpG2HaGWk=\r\n\r\nhello",
        );
        while connection.more().is_some() {
            let bytes = connection.take_unread();
            connection.send(bytes);
        }
        connection.close();
    })
}

#[test]
fn bytes_go_both_ways_after_an_upgrade() {
    let backend = echo();
    let server = recipe(&backend, "");
    let mut client = server.connect();
    client.send(ASK);
    let response = client.read_head_response();
    assert_eq!(response.status, 101, "{}", server.log("error.log"));
    assert_eq!(response.field("upgrade"), Some("websocket"));
    assert_eq!(response.field("sec-websocket-accept"), Some("HSmrc0sMlYUkAGmm5OPpG2HaGWk="));
    assert_eq!(client.read_bytes(5), b"hello");
    for round in 0..20 {
        let message = vec![round; 1 + usize::from(round) * 1000];
        client.send(&message);
        assert!(client.read_bytes(message.len()) == message);
    }
    // What was said last is passed on, and then the end; the echo may or may not be quicker than that.
    client.send("bye").half_close();
    let (rest, _) = client.read_to_end();
    assert!(b"bye".starts_with(&rest), "{}", rest.escape_ascii());
}

#[test]
fn the_end_of_a_server_ends_the_tunnel() {
    let backend = Backend::start(|connection| {
        connection.request();
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nlast",
        );
        connection.close();
    });
    let server = recipe(&backend, "");
    let mut client = server.connect();
    client.send(ASK);
    assert_eq!(client.read_head_response().status, 101);
    let (bytes, _) = client.read_to_end();
    assert!(bytes.ends_with(b"last"), "{bytes:?}");
}

/// M5: what the server does not take at once waits, and the tunnel goes on behind it.
#[test]
fn a_server_that_takes_bytes_slowly_gets_all_of_them() {
    const BYTES: usize = 16_000_000;
    let backend = Backend::start(|connection| {
        connection.request();
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        // The buffers on the way are full by then.
        pause(Duration::from_millis(500));
        if connection.read(BYTES).is_some() {
            connection.send("all");
        }
        connection.wait_for_end();
    });
    let server = recipe(&backend, "");
    let mut client = server.connect();
    client.send(ASK);
    assert_eq!(client.read_head_response().status, 101);
    client.send(vec![b'x'; BYTES]);
    assert_eq!(client.read_bytes(3), b"all");
}

/// T2: silence ends a tunnel after `proxy_read_timeout`.
#[test]
fn a_silent_tunnel_ends() {
    let backend = echo();
    let server = recipe(&backend, "proxy_read_timeout 500ms;");
    let mut client = server.connect();
    client.send(ASK);
    assert_eq!(client.read_head_response().status, 101);
    assert_eq!(client.read_bytes(5), b"hello");
    client.expect_closed(Duration::from_secs(30));
    let log = server.log("error.log");
    let words = "upstream timed out (110: Connection timed out) while proxying upgraded connection";
    assert!(log.contains(words), "{log}");
}

/// A client that goes takes its tunnel along; what does not ask for one gets an answer.
#[test]
fn a_client_that_goes_ends_the_tunnel() {
    let backend = echo();
    let server = recipe(&backend, "");
    let before = server.fds();
    let mut client = server.connect();
    client.send(ASK);
    assert_eq!(client.read_head_response().status, 101);
    client.reset();
    eventually("the end", LONG, || server.fds() <= before + 1);
    let response = server.connect().get("/plain");
    assert_eq!((response.status, response.text().as_str()), (400, "no upgrade"));
}

#[test]
fn a_tunnel_outlives_a_reload_that_replaces_the_workers() {
    // O3: longer than the time that a stop has by default (10 s), with other places for the sandbox each time.
    const LIFE: Duration = Duration::from_millis(11_500);
    let backend = echo();
    let server = recipe(&backend, "");
    let mut tunnels: Vec<_> = (0..3).map(|_| open(&server)).collect();
    let watch = Stopwatch::start();
    for turn in 0..3 {
        let folder = server.tree().folder(&format!("folder{turn}"));
        let more = format!(
            "location /{turn}/ {{ root {}; }} location /p{turn} {{ proxy_pass http://127.0.0.1:{}; }}",
            folder.display(),
            1000 + turn
        );
        server.rewrite_config(&site(&format!("{}\n{more}", location(&backend, ""))));
        server.signal(Signal::HUP);
        eventually("the reload", LONG, || {
            server.log("error.log").matches("reloaded").count() > turn
        });
        tunnels.push(open(&server));
    }
    while watch.elapsed() < LIFE {
        for tunnel in &mut tunnels {
            tunnel.send("ping");
            assert_eq!(tunnel.read_bytes(4), b"ping");
        }
        pause(Duration::from_millis(100));
    }
}
