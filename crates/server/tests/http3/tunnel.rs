//! WebSocket over HTTP/3 (RFC 9220) to a server that speaks HTTP/1.1 (U6, Q1).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use sekisho_testkit::{Server, Tree};

use crate::client::Client;
use crate::common::{LONG, pattern};
use crate::support::can_make_certificates;
use crate::{serve, site};

const PROTOCOL: (&str, &str) = (":protocol", "websocket");

/// A server that switches protocols and sends back what comes. Its threads end with the test.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || echo_one(stream));
        }
    });
    address
}

fn echo_one(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(LONG))?;
    let (mut head, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
    while !head.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(&buffer[..count]);
    }
    let head = String::from_utf8_lossy(&head);
    let is_asked = head.contains("\r\nUpgrade: websocket\r\n")
        && head.contains("\r\nSec-WebSocket-Key: ")
        && head.starts_with("GET /chat ");
    if !is_asked {
        return stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    }
    stream.write_all(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Accept: x\r\n\r\nhello",
    )?;
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count])?;
    }
}

fn start(backend: SocketAddr) -> Server {
    serve(
        Tree::new(),
        &site(&format!(
            "location / {{ proxy_pass http://{backend}; proxy_set_header Upgrade $http_upgrade;
               proxy_set_header Connection \"upgrade\"; proxy_read_timeout 20s; }}
             location /static {{ return 200 x; }}"
        )),
    )
}

#[test]
fn a_websocket_over_http3_is_an_upgrade_for_the_server() {
    if !can_make_certificates() {
        return;
    }
    let server = start(echo());
    let mut client = Client::connect(server.address(), "a.test");
    let id = client.head("CONNECT", "/chat", &[PROTOCOL, ("sec-websocket-version", "13")]);
    client.until("the greeting", |client| client.so_far(id).body == b"hello");
    let response = client.so_far(id);
    assert_eq!((response.status, response.field("sec-websocket-accept")), (200, None));
    let allows = client
        .control
        .iter()
        .any(|(kind, payload)| *kind == 4 && payload.windows(2).any(|pair| pair == [8, 1]));
    assert!(allows, "SETTINGS_ENABLE_CONNECT_PROTOCOL: {:?}", client.control);
    // More than every window on the way.
    let sent = pattern(600_000);
    client.data(id, &sent);
    client.until("the echo", |client| client.so_far(id).body.len() == 5 + sent.len());
    assert!(client.so_far(id).body[5..] == sent);
    client.finish(id);
    let response = client.response(id);
    assert!(response.is_complete && response.reset.is_none(), "{:?}", response.reset);
    assert_eq!(client.get("/static").status, 200, "the connection goes on");
}

/// M5: the window of a stream may be full in the middle of what the server behind has sent.
#[test]
fn a_proxied_response_comes_whole() {
    if !can_make_certificates() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let backend = listener.local_addr().expect("it has an address");
    let large = pattern(3_000_000);
    let body = large.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    let server = start(backend);
    let mut client = Client::connect(server.address(), "a.test");
    let response = client.get("/large");
    assert_eq!((response.status, response.reset), (200, None));
    assert!(response.body == large, "{} bytes came", response.body.len());
}

#[test]
fn what_leads_to_no_tunnel_gets_an_error_over_http3() {
    if !can_make_certificates() {
        return;
    }
    let server = start(echo());
    let mut client = Client::connect(server.address(), "a.test");
    let rows = [
        ("/chat", "connect-udp", 501),
        ("/static", "websocket", 501),
        ("/other", "websocket", 400),
    ];
    for (path, protocol, status) in rows {
        let id = client.head("CONNECT", path, &[(":protocol", protocol)]);
        let response = client.response(id);
        assert_eq!((response.status, response.is_complete), (status, true), "{path} {protocol}");
    }
}
