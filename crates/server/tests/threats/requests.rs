//! Requests that want to be more than a request: a tunnel, another address, a connection to another server.

use std::io::ErrorKind;
use std::net::TcpListener;

use sekisho_testkit::{Server, Tree};

use crate::common::{BINARY, serve, site};

const HOST: &str = "Host: localhost\r\n";

/// A site with a program that shows its environment, and one place for each thing that is wanted.
fn start() -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    tree.file("root/near/a.txt", "near");
    tree.script("root/env.cgi", "#!/bin/sh\nprintf 'X: 1\\n\\n'; env | sort\n");
    serve(
        tree,
        "cgi_extension .cgi; keepalive_requests 10000;
         location /n/ { return 200 $uri; }
         location /near/ { allow 192.0.2.1; deny all; }
         location /who { return 200 \"$remote_addr $scheme\"; }",
    )
}

/// V4: no client can leave HTTP/1: what follows is a request, or refused.
#[test]
fn nothing_becomes_a_tunnel() {
    let server = start();
    let next = format!("GET /n/next HTTP/1.1\r\n{HOST}\r\n");
    let upgrades = [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        "Connection: upgrade\r\nUpgrade: TLS/1.2, HTTP/1.1\r\n",
        "Upgrade: h2c\r\n",
    ];
    for fields in upgrades {
        let mut client = server.connect();
        for (method, target) in [("GET", "/n/x"), ("OPTIONS", "*"), ("GET", "/a.txt")] {
            client.send(format!("{method} {target} HTTP/1.1\r\n{HOST}{fields}\r\n{next}"));
            assert_eq!(client.read_response().status, 200, "{method} {target} {fields:?}");
            assert_eq!(client.read_response().text(), "/n/next", "{method} {target} {fields:?}");
        }
        // With a body, that is no part of what follows.
        client.send(format!(
            "POST /n/x HTTP/1.1\r\n{HOST}{fields}Content-Length: 3\r\n\r\nabc{next}"
        ));
        assert_eq!(client.read_response().text(), "/n/x", "{fields:?}");
        assert_eq!(client.read_response().text(), "/n/next", "{fields:?}");
        // A client that goes on as if it had been granted is refused.
        client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        assert_eq!(client.read_response().status, 505, "{fields:?}");
        client.read_to_end();
    }
    for target in ["localhost:80", "127.0.0.1:22", "/n/x"] {
        let mut client = server.connect();
        client.send(format!("CONNECT {target} HTTP/1.1\r\n{HOST}\r\n{next}"));
        let refused = client.read_response();
        assert_eq!(refused.status, 405, "{target}: {refused:?}");
        if !refused.says_close() {
            assert_eq!(client.read_response().text(), "/n/next", "{target}");
        }
    }
}

/// The environment of a program, without the request's fields and what differs for each request.
fn own_variables(server: &Server, fields: &str) -> Vec<String> {
    let shown = server.connect().request("GET", "/env.cgi", fields).text();
    let others = ["HTTP_", "REMOTE_PORT=", "SEKISHO_RUN="];
    let is_own = |line: &&str| !others.iter().any(|other| line.starts_with(other));
    shown.lines().filter(is_own).map(str::to_owned).collect()
}

/// V6: what `Connection` names are fields of the client, and never what we say of it.
#[test]
fn a_connection_field_removes_nothing_that_is_ours() {
    let server = start();
    let plain = own_variables(&server, "");
    assert!(plain.iter().any(|line| line == "REMOTE_ADDR=127.0.0.1"), "{plain:#?}");
    for names in [
        "Remote-Addr, REMOTE_ADDR, X-Forwarded-For, X-Real-IP",
        "Host, Server-Name, Script-Name, Request-Method",
        "close, Content-Length, Transfer-Encoding",
        "keep-alive, Gateway-Interface, Server-Protocol, Path",
    ] {
        assert_eq!(own_variables(&server, &format!("Connection: {names}\r\n")), plain, "{names}");
    }
}

/// V37: an address is that of the connection; what others say of it is a field like any other.
#[test]
fn nobody_is_believed_about_an_address() {
    let server = start();
    let mut client = server.connect();
    for field in [
        "X-Forwarded-For: 192.0.2.1",
        "Forwarded: for=192.0.2.1;proto=https",
        "X-Real-IP: 192.0.2.1",
        "True-Client-IP: 192.0.2.1",
        "X-Forwarded-Proto: https",
        "Via: 1.1 192.0.2.1",
    ] {
        let fields = format!("{field}\r\n");
        assert_eq!(client.request("GET", "/near/a.txt", &fields).status, 403, "{field}");
        assert_eq!(client.request("GET", "/who", &fields).text(), "127.0.0.1 http", "{field}");
        let seen = own_variables(&server, &fields);
        assert!(seen.iter().any(|line| line == "REMOTE_ADDR=127.0.0.1"), "{field}: {seen:#?}");
    }
    let request = format!("GET /near/a.txt HTTP/1.1\r\n{HOST}\r\n");
    let first: [&[u8]; 4] = [
        b"PROXY TCP4 192.0.2.1 127.0.0.1 56324 80\r\n",
        b"PROXY UNKNOWN\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\x7f\0\0\x01\xdc\x04\0\x50",
        b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    ];
    for line in first {
        let mut client = server.connect();
        client.send([line, request.as_bytes()].concat());
        let (bytes, _) = client.read_to_end();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("HTTP/1.1 400 "), "{}: {text}", line.escape_ascii());
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{}: {text}", line.escape_ascii());
    }
}

/// V34: whatever a client or a program names, the server makes no connection.
#[test]
fn no_request_is_made_for_a_client() {
    let inner = TcpListener::bind("127.0.0.1:0").expect("a free port");
    inner.set_nonblocking(true).expect("a socket");
    let there = inner.local_addr().expect("an address");
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let program = format!("#!/bin/sh\nprintf 'Location: http://{there}/inner\\n\\n'\n");
    tree.script("root/to.cgi", &program);
    let accel = format!("#!/bin/sh\nprintf 'X-Accel-Redirect: http://{there}/inner\\n\\n'\n");
    tree.script("root/accel.cgi", &accel);
    let page = format!(
        "error_page 404 http://{there}/$arg_p; cgi_extension .cgi; cgi_x_accel_redirect on;"
    );
    let server = Server::start_in(tree, BINARY, &site(&page));
    let mut client = server.connect();
    // The server that is named is this one, whatever its name.
    assert_eq!(client.get(&format!("http://{there}/a.txt")).text(), "hello");
    for (target, fields, status) in [
        (format!("http://{there}/x"), String::new(), 302),
        (format!("http://{there}@localhost/a.txt"), String::new(), 400),
        (format!("//{there}/a.txt"), String::new(), 302),
        (format!("/unix:/run/x|http://{there}/"), String::new(), 302),
        (
            "/x".to_owned(),
            format!("X-Forwarded-Host: {there}\r\nX-Original-URL: http://{there}/\r\n"),
            302,
        ),
        (format!("/a.txt?url=http://{there}/"), format!("Referer: http://{there}/\r\n"), 200),
        ("/to.cgi".to_owned(), String::new(), 302),
    ] {
        let mut client = server.connect();
        let answer = client.request("GET", &target, &fields);
        assert_eq!(answer.status, status, "{target}: {answer:?}");
    }
    let accel = server.connect().get("/accel.cgi");
    assert!(matches!(accel.status, 302 | 404 | 500 | 502), "{accel:?}");
    assert_eq!(server.connect().request("CONNECT", &there.to_string(), "").status, 405);
    let nobody = inner.accept().expect_err("no connection");
    assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
}
