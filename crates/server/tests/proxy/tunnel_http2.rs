//! WebSocket over HTTP/2 (RFC 8441) to servers that speak HTTP/1.1 (U6, M3, M5), asked for by the `h2` crate.

use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use sekisho_testkit::{Server, Stopwatch, Tree, eventually, run};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, pattern, serve};
use crate::http2_backend::{block_on, connect};
use crate::tunnel::{echo, location};

fn recipe(backend: &Backend, more: &str) -> Server {
    let tunnel = location(backend, "proxy_read_timeout 20s;");
    serve(Tree::new(), &format!("http2 on; access_log {{dir}}/access.log; {tunnel} {more}"))
}

/// What `ctl` prints.
fn ctl(server: &Server, arguments: &[&str]) -> String {
    let pid = server.id().to_string();
    run(BINARY, &[&["ctl", "--pid", &pid], arguments].concat(), LONG).stdout
}

type Opened = (Response<RecvStream>, SendStream<Bytes>);

/// Asks for a tunnel; the response and the client's side of the stream.
async fn ask(server: &Server, path: &str, protocol: &'static str) -> Opened {
    let mut sender = connect(server.address()).await;
    // The first SETTINGS of the server come with its first response, at the latest.
    let plain = Request::get("http://a.test/plain").body(()).expect("sound");
    let (response, _) = sender.send_request(plain, true).expect("sent");
    response.await.expect("answered");
    assert!(sender.is_extended_connect_protocol_enabled());
    let request = Request::connect(format!("http://a.test{path}"))
        .header("sec-websocket-version", "13")
        .extension(Protocol::from_static(protocol))
        .body(())
        .expect("sound");
    let mut sender = sender.ready().await.expect("ready");
    let (response, stream) = sender.send_request(request, false).expect("sent");
    (response.await.expect("answered"), stream)
}

/// Reads as many bytes as are wanted.
async fn read(body: &mut RecvStream, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        let piece = body.data().await.expect("more").expect("no reset");
        let _ = body.flow_control().release_capacity(piece.len());
        all.extend_from_slice(&piece);
    }
    all
}

#[test]
fn a_websocket_over_http2_is_an_upgrade_for_the_server() {
    let backend = echo();
    let server = recipe(&backend, "");
    block_on(async {
        let (response, mut stream) = ask(&server, "/chat?x", "websocket").await;
        assert_eq!(response.status(), 200, "{}", server.log("error.log"));
        for hop_by_hop in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
            assert!(!response.headers().contains_key(hop_by_hop), "{response:?}");
        }
        let mut body = response.into_body();
        assert_eq!(read(&mut body, 5).await, b"hello");
        // More than every window on the way, in both directions at once.
        let sent = Bytes::from(pattern(3_000_000));
        let expected = sent.clone();
        let reading = tokio::spawn(async move { (read(&mut body, expected.len()).await, body) });
        let mut rest = sent.clone();
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            let capacity = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
            let capacity = capacity.expect("open").expect("no reset").min(rest.len());
            stream.send_data(rest.split_to(capacity), false).expect("sent");
        }
        let (received, mut body) = reading.await.expect("read");
        assert!(received == sent, "{} bytes came back", received.len());
        // The client ends its side: so does the server, and then the tunnel.
        stream.send_data(Bytes::new(), true).expect("sent");
        while let Some(piece) = body.data().await {
            piece.expect("no reset");
        }
    });
    let heads = backend.heads();
    let head = heads.last().expect("a request");
    assert!(head.starts_with("GET /chat?x HTTP/1.1\r\n"), "{head}");
    let key = head.split("Sec-WebSocket-Key: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    assert!(key.is_some_and(|key| key.len() == 24 && key.ends_with("==")), "{head}");
    assert!(head.contains("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"), "{head}");
    assert!(head.contains("sec-websocket-version: 13\r\n"), "{head}");
    let log = || server.log("access.log");
    eventually("the line", LONG, || log().contains("\"GET /chat?x HTTP/2.0\" 200"));
}

#[test]
fn what_leads_to_no_tunnel_gets_an_error() {
    let backend = echo();
    let server = recipe(
        &backend,
        "location /static { return 200 x; } location /no { return 403; }
         location /plain-pass { proxy_pass http://127.0.0.1:1; }",
    );
    let saying = Backend::saying("no tunnel");
    let plain = recipe(&saying, "");
    block_on(async {
        let cases = [
            (&server, "/chat", "connect-udp", 501),
            (&server, "/static", "websocket", 501),
            (&server, "/no", "websocket", 403),
            (&server, "/plain-pass", "websocket", 502),
            (&plain, "/", "websocket", 502),
        ];
        for (server, path, protocol, status) in cases {
            let (response, _stream) = ask(server, path, protocol).await;
            assert_eq!(response.status(), status, "{path} {protocol}");
        }
    });
}

#[test]
fn a_tunnel_over_http2_is_seen_cancelled_and_reset() {
    let backend = echo();
    let server = recipe(&backend, "");
    let before = server.fds();
    block_on(async {
        let (response, _stream) = ask(&server, "/chat", "websocket").await;
        let mut body = response.into_body();
        assert_eq!(read(&mut body, 5).await, b"hello");
        let list = ctl(&server, &["sessions"]);
        let row = list.lines().find(|line| line.contains("GET /chat")).unwrap_or_default();
        assert!(row.contains("http2") && row.contains("upstream_read_timeout"), "{list}");
        let id = row.split_whitespace().next().unwrap_or_default().to_owned();
        ctl(&server, &["session", "cancel", &id]);
        let end = loop {
            match body.data().await {
                Some(Ok(_)) => {}
                other => break other,
            }
        };
        let error = end.expect("no plain end").expect_err("a reset");
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    });
    // The client resets the stream: the connection to the server ends.
    block_on(async {
        let (response, mut stream) = ask(&server, "/chat", "websocket").await;
        assert_eq!(read(&mut response.into_body(), 5).await, b"hello");
        stream.send_reset(Reason::CANCEL);
        let watch = Stopwatch::start();
        while server.fds() > before + 1 {
            assert!(watch.elapsed() < LONG, "the server is still connected");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// T2: silence ends a tunnel after `proxy_read_timeout`, visibly.
#[test]
fn a_silent_tunnel_over_http2_ends() {
    let backend = echo();
    let more = location(&backend, "proxy_read_timeout 500ms;");
    let server = serve(Tree::new(), &format!("http2 on; {more}"));
    block_on(async {
        let (response, _stream) = ask(&server, "/chat", "websocket").await;
        let mut body = response.into_body();
        assert_eq!(read(&mut body, 5).await, b"hello");
        while let Some(Ok(_)) = body.data().await {}
    });
    let log = server.log("error.log");
    assert!(log.contains("while proxying upgraded connection"), "{log}");
}
