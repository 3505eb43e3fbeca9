//! `grpc_pass` and HTTP/2 to servers (U1–U4, M2, M3): unary and streaming calls, trailers, cuts, cancels and retries.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use sekisho_testkit::{Background, Server, Tree, eventually, have, python_with, run};

use crate::backend::nobody;
use crate::common::{BINARY, LONG, http, pattern};
use crate::http2_backend::{Answer, Http2Backend, block_on, call, connect, read, send_whole};

fn start(backend: &Http2Backend, more: &str) -> Server {
    let to = backend.address;
    let config = http(&format!(
        "log_format own '$uri $status $upstream_addr $upstream_status $upstream_trailer_grpc_status';
         upstream kept {{ server {to}; keepalive 4; }}
         upstream two {{ server {nobody}; server {to}; }}
         upstream both {{ server {to}; server {to}; }}
         server {{ listen 127.0.0.1:{{port}}; http2 on; root {{root}};
           access_log {{dir}}/access.log own; grpc_read_timeout 1m;
           location / {{ grpc_pass grpc://kept; }}
           location /alone/ {{ rewrite ^/alone(.*) $1 break; grpc_pass {to}; }}
           location /two/ {{ rewrite ^/two(.*) $1 break; grpc_pass two; }}
           location /silent {{ grpc_pass kept; grpc_read_timeout 300ms; }}
           location /host {{ rewrite ^ /unary break; grpc_pass kept; grpc_set_header Host other.test;
             grpc_set_header X set; grpc_hide_header X-Mine; }}
           location /var {{ set $to kept; rewrite ^ /unary break; grpc_pass grpc://$to; }}
           {more}
         }}",
        nobody = nobody(),
    ));
    Server::start_in(Tree::new(), BINARY, &config)
}

async fn ask(server: &Server, path: &str, body: &'static [u8]) -> Result<Answer, h2::Error> {
    let mut sender = connect(server.address()).await;
    let (response, stream) = sender.send_request(call(path), false)?;
    tokio::spawn(send_whole(stream, Bytes::from_static(body)));
    read(response).await
}

fn is_well(answer: &Answer, body: &[u8]) {
    assert_eq!((answer.status, answer.body.as_slice()), (200, body), "{answer:?}");
    assert_eq!(answer.head["content-type"], "application/grpc");
    let trailers = answer.trailers.as_ref().expect("trailers");
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["grpc-message"], "it went well");
}

#[test]
fn a_call_comes_back_with_its_trailers() {
    let backend = Http2Backend::start();
    let server = start(&backend, "");
    block_on(async {
        is_well(&ask(&server, "/unary", b"hello").await.expect("answered"), b"hello");
        is_well(&ask(&server, "/alone/unary", b"hello").await.expect("answered"), b"hello");
        is_well(&ask(&server, "/var", b"hello").await.expect("answered"), b"hello");
        is_well(
            &ask(&server, "/down", b"").await.expect("answered"),
            b"message 0;message 1;message 2;message 3;message 4;",
        );
        let answer = ask(&server, "/host", b"x").await.expect("answered");
        is_well(&answer, b"x");
        assert!(!answer.head.contains_key("x-mine"));
        // An answer that is nothing but trailers ends with its head.
        let answer = ask(&server, "/error", b"hello").await.expect("answered");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.head["grpc-status"], "12");
        assert!(answer.body.is_empty() && answer.trailers.is_none(), "{answer:?}");
        assert_eq!(ask(&server, "/none", b"").await.expect("answered").status, 404);
    });
    let asked = backend.said.lines();
    assert_eq!(asked[0], "POST http://kept/unary te=trailers x=y");
    assert_eq!(asked[1], format!("POST http://{}/unary te=trailers x=y", backend.address));
    assert_eq!(asked[4], "POST http://other.test/unary te=trailers x=set");
    eventually("the access log", LONG, || server.log("access.log").lines().count() == 7);
    let log = server.log("access.log");
    let first = format!("/unary 200 {} 200 0", backend.address);
    assert_eq!(log.lines().next(), Some(&*first), "{log}");
    // Kept connections are used again, one request at a time.
    assert_eq!(backend.said.connections.load(Ordering::SeqCst), 2);
}

/// No body is gathered: each side hears the other at once, in both directions.
#[test]
fn both_directions_go_on_at_the_same_time() {
    let backend = Http2Backend::start();
    let server = start(&backend, "");
    block_on(async {
        let mut sender = connect(server.address()).await;
        let (response, mut stream) = sender.send_request(call("/both"), false).expect("sent");
        stream.send_data(Bytes::from_static(b"one"), false).expect("sent");
        let mut body = response.await.expect("a head before the body is whole").into_body();
        for (said, next) in [("one", Some("two")), ("two", Some("three")), ("three", None)] {
            assert_eq!(body.data().await.expect("more").expect("data"), said);
            if let Some(next) = next {
                stream.send_data(Bytes::from(next), false).expect("sent");
            }
        }
        stream.send_data(Bytes::new(), true).expect("sent");
        assert!(body.data().await.is_none());
        let trailers = body.trailers().await.expect("read").expect("trailers");
        assert_eq!(trailers["grpc-status"], "0");
        // A server that hears every piece before the body is whole.
        let (response, mut stream) = sender.send_request(call("/up"), false).expect("sent");
        for count in 1..=3_usize {
            stream.send_data(Bytes::from_static(b"xxxx"), false).expect("sent");
            let line = format!("so far {}", count * 4);
            while !backend.said.lines().contains(&line) {
                tokio::task::yield_now().await;
            }
        }
        stream.send_data(Bytes::new(), true).expect("sent");
        is_well(&read(response).await.expect("answered"), b"12");
    });
}

/// Windows of both connections are kept over many times their size.
#[test]
fn large_bodies_pass_through_small_windows() {
    let backend = Http2Backend::start();
    let server = start(&backend, "client_max_body_size 0;");
    let body = pattern(5_000_000);
    let sent = Bytes::from(body.clone());
    let answer = block_on(async {
        let mut sender = connect(server.address()).await;
        let (response, stream) = sender.send_request(call("/both"), false).expect("sent");
        tokio::spawn(send_whole(stream, sent));
        read(response).await.expect("answered")
    });
    assert!(answer.body == body, "every byte in its place");
    assert_eq!(answer.trailers.expect("trailers")["grpc-status"], "0");
}

/// M3: what is cut upstream is a reset for the client, never an end.
#[test]
fn a_cut_answer_is_a_reset() {
    let backend = Http2Backend::start();
    let server = start(&backend, "");
    let cut = block_on(ask(&server, "/cut", b""));
    let error = cut.expect_err("it must not look whole");
    assert!(error.is_reset(), "{error:?}");
    let log = server.log("error.log");
    assert!(log.contains("upstream rejected request with error 2"), "{log}");
    // U2: a silent server is a 504.
    let late = block_on(ask(&server, "/silent", b"")).expect("answered");
    assert_eq!(late.status, 504);
    assert!(server.log("error.log").contains("upstream timed out"));
}

/// C6: a client that resets its stream ends the one upstream, and the connection there goes on.
#[test]
fn a_cancelled_call_is_cancelled_upstream() {
    let backend = Http2Backend::start();
    let server = start(&backend, "");
    block_on(async {
        let mut sender = connect(server.address()).await;
        let (response, mut stream) = sender.send_request(call("/hang"), false).expect("sent");
        let mut body = response.await.expect("a head").into_body();
        assert_eq!(body.data().await.expect("more").expect("data"), "begun");
        stream.send_reset(h2::Reason::CANCEL);
        drop((body, stream));
        while !backend.said.lines().contains(&"reset: Some(CANCEL)".to_owned()) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        is_well(&ask(&server, "/unary", b"next").await.expect("answered"), b"next");
    });
    assert_eq!(backend.said.connections.load(Ordering::SeqCst), 1, "it was kept");
}

/// U1: what a server has not processed is asked for again, though a call is not idempotent.
#[test]
fn a_refused_call_is_made_again() {
    let backend = Http2Backend::start();
    let server = start(&backend, "location /refused-first { grpc_pass both; }");
    let answer = block_on(ask(&server, "/refused-first", b"again")).expect("answered");
    is_well(&answer, b"again");
    assert_eq!(backend.said.requests.load(Ordering::SeqCst), 2);
    // A server that is not there costs nothing.
    let backend = Http2Backend::start();
    let server = start(&backend, "");
    for _ in 0..2 {
        is_well(&block_on(ask(&server, "/two/unary", b"x")).expect("answered"), b"x");
    }
}

/// `proxy_http_version 2`: any request, with buffers, and clients of HTTP/1.
#[test]
fn http2_is_spoken_to_any_server() {
    let backend = Http2Backend::start();
    let server = start(
        &backend,
        "location /p/ { proxy_pass http://kept/; proxy_http_version 2; proxy_pass_trailers on; }
         location /q/ { proxy_pass http://kept/; proxy_http_version 2; }",
    );
    let mut client = server.connect();
    let response = client.request_with_body("POST", "/p/unary", "", pattern(200_000));
    assert_eq!(response.status, 200, "{}", server.log("error.log"));
    assert!(response.body == pattern(200_000));
    let response = client.request_with_body("POST", "/q/both", "", b"hello");
    assert_eq!(response.text(), "hello");
    assert_eq!(client.get("/p/none").status, 404);
    // Another protocol is never spoken over a connection of this one.
    assert_eq!(backend.said.connections.load(Ordering::SeqCst), 1);
    client.send(
        "POST /p/unary HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
    );
    let raw = String::from_utf8(client.read_to_close()).expect("text");
    assert!(raw.contains("Transfer-Encoding: chunked\r\n"), "{raw}");
    assert!(
        raw.ends_with("2\r\nhi\r\n0\r\ngrpc-status: 0\r\ngrpc-message: it went well\r\n\r\n"),
        "{raw}"
    );
}

/// `ctl` shows the server that is asked, as for the other protocols.
#[test]
fn a_call_is_seen_while_it_runs() {
    let backend = Http2Backend::start();
    let server = start(&backend, "");
    block_on(async {
        let mut sender = connect(server.address()).await;
        let (response, stream) = sender.send_request(call("/hang"), false).expect("sent");
        let mut body = response.await.expect("a head").into_body();
        assert_eq!(body.data().await.expect("more").expect("data"), "begun");
        let id = server.id().to_string();
        let seen = run(BINARY, &["ctl", "--pid", &id, "sessions", "--json"], LONG).stdout;
        assert!(seen.contains("grpc") && seen.contains(&backend.address.to_string()), "{seen}");
        drop((body, stream));
    });
}

/// The real library on both sides: unary, both ways of streaming and both at a time, an error with its text, a deadline.
#[test]
fn grpc_itself_works_through_it() {
    const CODE: &str = include_str!("grpc_peers.py");
    let python =
        match python_with("grpcio", "grpc", concat!(env!("CARGO_TARGET_TMPDIR"), "/grpcio")) {
            Ok(python) => python,
            Err(why) => return println!("skipped: {why}"),
        };
    let tree = Tree::new();
    tree.file("peers.py", CODE);
    let script = tree.path("peers.py").display().to_string();
    let socket = tree.path("grpc.sock").display().to_string();
    let mut command = std::process::Command::new(&python);
    let _peer = Background::start(command.args([&*script, "serve", &*socket]));
    eventually("the gRPC server", LONG, || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    let config = http(&format!(
        "upstream app {{ server unix:{socket}; keepalive 2; }}
         server {{ listen 127.0.0.1:{{port}}; http2 on; client_max_body_size 8m;
             location / {{ grpc_pass grpc://app; }} }}"
    ));
    let server = Server::start_in(tree, BINARY, &config);
    let said = run(&python, &[&script, "ask", &server.address().to_string()], LONG);
    assert_eq!(said.stdout.trim(), "all is well", "{} {}", said.stderr, server.log("error.log"));
}

/// `grpcs://`: the handshake offers HTTP/2 and nothing else, the certificate is verified where that is asked for, and our
/// own may have an encrypted key.
#[test]
fn calls_are_made_over_tls() {
    if !have("openssl") {
        return;
    }
    let tree = Tree::new();
    let openssl = |arguments: &str| {
        let mut command = std::process::Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(tree.dir());
        assert!(command.output().expect("it runs").status.success(), "{arguments}");
    };
    for name in ["back", "other", "mine"] {
        openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.pem -days 3 \
             -subj /CN={name}.test -addext subjectAltName=DNS:{name}.test"
        ));
    }
    openssl("pkcs8 -topk8 -in mine.key -out locked.key -passout pass:secret");
    tree.file("passwords", "wrong\nsecret\n");
    let backend = Http2Backend::start();
    let to = backend.address;
    let config = http(&format!(
        "server {{ listen 127.0.0.1:{{port2}} ssl; http2 on; ssl_certificate {{dir}}/back.pem;
           ssl_certificate_key {{dir}}/back.key; ssl_verify_client optional_no_ca;
           location / {{ grpc_pass {to}; grpc_set_header X \"$ssl_alpn_protocol $ssl_client_s_dn\"; }} }}
         upstream u {{ server 127.0.0.1:{{port2}}; keepalive 2; }}
         server {{ listen 127.0.0.1:{{port}}; http2 on; grpc_ssl_name back.test;
           grpc_ssl_trusted_certificate {{dir}}/back.pem;
           location / {{ grpc_pass grpcs://u; grpc_ssl_verify on; grpc_ssl_certificate {{dir}}/mine.pem;
             grpc_ssl_certificate_key {{dir}}/locked.key; grpc_ssl_password_file {{dir}}/passwords; }}
           location /wrong/ {{ rewrite ^ /unary break; grpc_pass grpcs://u; grpc_ssl_verify on;
             grpc_ssl_trusted_certificate {{dir}}/other.pem; }}
           location /any/ {{ rewrite ^ /unary break; grpc_pass grpcs://u; }} }}"
    ));
    let server = Server::start_in(tree, BINARY, &config);
    block_on(async {
        for _ in 0..3 {
            is_well(&ask(&server, "/unary", b"hello").await.expect("answered"), b"hello");
        }
        is_well(&ask(&server, "/any/", b"x").await.expect("answered"), b"x");
        assert_eq!(ask(&server, "/wrong/", b"x").await.expect("answered").status, 502);
    });
    let asked = backend.said.lines();
    assert!(asked[0].ends_with(" te=trailers x=h2 CN=mine.test"), "{asked:?}");
    assert!(asked[3].ends_with(" te=trailers x=h2"), "{asked:?}");
    let log = server.log("error.log");
    assert!(log.contains("upstream SSL certificate or handshake: "), "{log}");
    assert!(log.contains("upstream: \"grpcs://127.0.0.1:"), "{log}");
}
