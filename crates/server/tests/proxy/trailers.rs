//! Fields that follow the body of an answer (`proxy_pass_trailers`, RFC 9110 §6.5), and what may come behind one.

use sekisho_testkit::{Tree, eventually};

use crate::backend::Backend;
use crate::common::{LONG, http, serve};
use crate::http2_backend::{block_on, connect, read};

/// A server that ends its answers with fields.
fn backend() -> Backend {
    Backend::start(|connection| {
        while let Some(head) = connection.request() {
            if head.starts_with("GET /length") {
                connection.answer("200 OK", "", "known");
                continue;
            }
            connection.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\n\
                 X-Sum: 42\r\nX-Hidden: no\r\nContent-Length: 9\r\nSet-Cookie: a=b\r\n\r\n",
            );
        }
    })
}

const ENDING: &str = "5\r\nhello\r\n0\r\nX-Sum: 42\r\nX-Own: 5\r\n\r\n";

#[test]
fn trailers_are_passed_on_where_that_is_asked_for() {
    let backend = backend();
    let to = backend.address();
    let server = sekisho_testkit::Server::start_in(
        Tree::new(),
        crate::common::BINARY,
        &http(&format!(
            "log_format own '$uri $upstream_trailer_x_sum $sent_trailer_x_sum';
             server {{ listen 127.0.0.1:{{port}}; http2 on; access_log {{dir}}/access.log own;
               proxy_set_header TE trailers; proxy_hide_header X-Hidden;
               location / {{ proxy_pass http://{to}; proxy_pass_trailers on; add_trailer X-Own $upstream_response_length; }}
               location /slow/ {{ proxy_pass http://{to}; proxy_pass_trailers on; proxy_buffering off;
                 add_trailer X-Own $upstream_response_length; }}
               location /off/ {{ proxy_pass http://{to}; }}
               location /length {{ proxy_pass http://{to}; proxy_pass_trailers on; }}
             }}"
        )),
    );
    let ask = |path: &str, version: &str| {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n"));
        String::from_utf8(client.read_to_close()).expect("text")
    };
    for path in ["/", "/slow/"] {
        let answer = ask(path, "1.1");
        assert!(answer.ends_with(ENDING), "{answer}");
        assert!(!answer.contains("Set-Cookie") && !answer.contains("X-Hidden"), "{answer}");
    }
    let answer = ask("/off/", "1.1");
    assert!(answer.ends_with("5\r\nhello\r\n0\r\n\r\n"), "{answer}");
    // HTTP/1.0 has no chunks, and a length leaves no place for them.
    assert!(ask("/", "1.0").ends_with("\r\n\r\nhello"));
    let answer = ask("/length", "1.1");
    assert!(
        answer.contains("Content-Length: 5\r\n") && answer.ends_with("\r\n\r\nknown"),
        "{answer}"
    );
    // The server was asked for them, over this connection only.
    let head = &backend.heads()[0];
    assert!(head.contains("\r\nTE: trailers\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: close, TE\r\n"), "{head}");
    let answer = block_on(async {
        let mut sender = connect(server.address()).await;
        let request = http::Request::get("http://a/").body(()).expect("sound");
        let (response, _) = sender.send_request(request, true).expect("sent");
        read(response).await.expect("answered")
    });
    assert_eq!((answer.status, &*answer.body), (200, &b"hello"[..]));
    let trailers = answer.trailers.expect("trailers");
    assert_eq!(trailers["x-sum"], "42");
    assert_eq!(trailers.len(), 2);
    eventually("the access log", LONG, || server.log("access.log").lines().count() == 6);
    let log = server.log("access.log");
    assert_eq!(log.lines().next(), Some("/ 42 42"), "{log}");
    assert!(log.contains("/off/ 42 -"), "{log}");
}

/// V48: a value of `add_trailer` with control bytes is not sent, over either version.
#[test]
fn a_trailer_with_control_bytes_is_not_sent() {
    let config = http(
        "server { listen 127.0.0.1:{port}; http2 on; add_trailer X-Path $uri; add_trailer X-End yes;
           location / { return 200 hello; }
           location /split { set $split \"a\\r\\nX-Forged: 1\"; add_trailer X-Path $split; add_trailer X-End yes; return 200 hello; } }",
    );
    let server = sekisho_testkit::Server::start(crate::common::BINARY, &config);
    let rows = [("/split", ""), ("/a%01b", ""), ("/a%7fb", ""), ("/a%20b", "/a b")];
    for (target, value) in rows {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let response = String::from_utf8(client.read_to_close()).expect("text");
        let (_, trailers) = response.split_once("5\r\nhello\r\n0\r\n").expect("a last chunk");
        let own = if value.is_empty() { String::new() } else { format!("X-Path: {value}\r\n") };
        assert_eq!(trailers, format!("{own}X-End: yes\r\n\r\n"), "{target}");
        let response = block_on(async {
            let mut sender = connect(server.address()).await;
            let request = http::Request::get(format!("http://a{target}")).body(()).expect("sound");
            let (response, _) = sender.send_request(request, true).expect("sent");
            read(response).await.expect("answered")
        });
        let trailers = response.trailers.expect("trailers");
        assert_eq!(trailers["x-end"], "yes", "{target}");
        let sent = trailers.get("x-path").map_or(&b""[..], |value| value.as_bytes());
        assert_eq!((trailers.len() - 1, sent), (own.len().min(1), value.as_bytes()), "{target}");
    }
}

/// A filter between the server and the client keeps what follows the body.
#[test]
fn trailers_pass_by_a_filter() {
    let backend = backend();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "location / {{ proxy_pass http://{to}; proxy_pass_trailers on; proxy_set_header TE trailers;
               sub_filter hello goodbye; sub_filter_types *; }}"
        ),
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(client.read_to_close()).expect("text");
    assert!(
        answer.contains("goodbye") && answer.ends_with("\r\nX-Sum: 42\r\nX-Hidden: no\r\n\r\n"),
        "{answer}"
    );
}

/// U4: bytes behind an answer end the connection, also those that came with it.
#[test]
fn what_comes_behind_an_answer_is_not_the_next_one() {
    let backend = Backend::start(|connection| {
        while connection.request().is_some() {
            connection.send(
                "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngoodHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
            );
        }
    });
    let to = backend.address();
    let server = sekisho_testkit::Server::start_in(
        Tree::new(),
        crate::common::BINARY,
        &http(&format!(
            "upstream u {{ server {to}; keepalive 4; }}
             server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://u; }} }}"
        )),
    );
    let mut client = server.connect();
    for count in 1..=4 {
        assert_eq!(client.get("/").text(), "good");
        assert_eq!(backend.connections(), count, "each connection is used once");
    }
}
