//! Bytes that wait on a disk that is full (O10): what a peer takes for a complete message has every byte.

use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;

use prost::Message as _;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use sekisho_endpoint::{blocking, http};
use sekisho_testkit::{Client, Server, Tree, eventually};

use crate::backend::{Backend, Connection};
use crate::cache::status;
use crate::common::{BINARY, LONG, pattern, site};
use crate::gateways::record;

/// More than the buffers on the way to a slow client hold.
const BODY_BYTES: usize = 8 << 20;
/// The size of a file at which the disk is full: nothing fits, a part of the first write, just the first write, more.
const LIMITS: [u64; 8] = [0, 1, 4096, 65_535, 65_536, 100_000, 1_000_000, 2_500_001];

/// A server whose error log is a pipe: the limit is not for pipes.
pub(crate) struct Limited {
    pub(crate) server: Server,
    log: File,
    text: String,
}

impl Limited {
    pub(crate) fn start(body: &str) -> Self {
        Self::start_with("", body)
    }

    /// The same with blocks beside `http`.
    fn start_with(blocks: &str, body: &str) -> Self {
        let tree = Tree::new();
        tree.folder("cache");
        let fifo = tree.path("log");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a fifo");
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let log = File::options().read(true).write(true).custom_flags(flags).open(fifo);
        let config = format!("{blocks}\n{}", site(body).replace("error.log debug", "log error"));
        let server = Server::start_in(tree, BINARY, &config);
        Self { server, log: log.expect("opened"), text: String::new() }
    }

    /// How often the error log has said this.
    fn said(&mut self, what: &str) -> usize {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = self.log.read(&mut buffer) {
            self.text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        self.text.matches(what).count()
    }
}

/// Sends the same body to every GET, and what it was sent to every POST.
fn backend() -> Backend {
    Backend::start(move |connection: &mut Connection| {
        while let Some((head, sent)) = connection.request_with_body() {
            let fields = "Cache-Control: max-age=600\r\n";
            if head.starts_with("POST") {
                connection.answer("200 OK", "", sent);
            } else if head.contains("length") {
                connection.answer("200 OK", fields, pattern(BODY_BYTES));
            } else {
                let head = format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n");
                connection.send(head);
                for piece in pattern(BODY_BYTES).chunks(30_000) {
                    connection.send(format!("{:x}\r\n", piece.len()));
                    connection.send(piece);
                    connection.send("\r\n");
                }
                connection.send("0\r\n\r\n");
            }
        }
    })
}

/// A client that reads nothing for now.
fn slow_client(server: &Server, target: &str) -> Client {
    let mut client = server.connect().with_patience(LONG);
    client.shrink_receive_buffer(16 << 10);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

/// O10: it goes on in memory, and the log says why.
#[test]
fn a_response_that_waits_for_a_slow_client_is_whole() {
    let to = backend().address();
    let mut limited = Limited::start(&format!("location / {{ proxy_pass http://{to}; }}"));
    let mut lines = 0;
    for limit in LIMITS {
        for target in ["/length", "/chunked"] {
            limited.server.limit_files(Some(limit));
            let mut client = slow_client(&limited.server, target);
            lines += 1;
            eventually("a failed write", LONG, || {
                limited.said("cannot write a response to a temporary file") >= lines
            });
            let response = client.read_response();
            assert_eq!(response.status, 200);
            assert!(response.body == pattern(BODY_BYTES), "{target}, full after {limit} bytes");
            let said = limited.said("cannot write a response to a temporary file");
            assert_eq!(said, lines, "one line for each response");
        }
    }
}

/// O10: the same for FastCGI, whose responses have no length.
#[test]
fn a_response_of_fastcgi_that_waits_for_a_slow_client_is_whole() {
    let backend = Backend::start(|connection| {
        if connection.more().is_some() {
            connection.send(record(6, b"Content-Type: text/plain\r\n\r\n"));
            for piece in pattern(BODY_BYTES).chunks(60_000) {
                connection.send(record(6, piece));
            }
            connection.send(record(6, b""));
            connection.send(record(3, &[0; 8]));
        }
        connection.wait_for_end();
    });
    let to = backend.address();
    let mut limited = Limited::start(&format!("location / {{ fastcgi_pass {to}; }}"));
    for (at, limit) in LIMITS.into_iter().enumerate() {
        limited.server.limit_files(Some(limit));
        let mut client = slow_client(&limited.server, "/");
        eventually("a failed write", LONG, || {
            limited.said("cannot write a response to a temporary file") > at
        });
        let response = client.read_response();
        assert!(response.body == pattern(BODY_BYTES), "full after {limit} bytes");
    }
}

/// The response to a request by a native session whose client reads after a moment only; `None` where it is an error.
fn native_response(server: &Server, target: &str, body: &[u8]) -> Option<Vec<u8>> {
    let stream = TcpStream::connect(server.address_of(1)).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    let mut session = blocking::Client::connect(stream, "slow").expect("a session");
    let method = if body.is_empty() { "GET" } else { "POST" }.to_owned();
    let body = body.to_vec().into();
    let request =
        http::Request { method, target: target.to_owned(), body, ..http::Request::default() };
    let ticket = session.request(http::NUMBER, &request.encode_to_vec()).expect("sent");
    // Another request of the session is finished before a record of this one is taken.
    let other = http::Request { target: "/small".to_owned(), ..http::Request::default() };
    let other = session.request(http::NUMBER, &other.encode_to_vec()).expect("sent");
    while session.next_record(&other).expect("a record").is_some() {}
    session.answer(other).expect("a result");
    let mut records = Vec::new();
    while let Some(record) = session.next_record(&ticket).ok()? {
        records.push(record);
    }
    let done = session.answer(ticket).ok()?;
    let head = http::Head::decode(&**records.first()?).expect("a head");
    let body = records[1..].concat();
    let done = http::Done::decode(&*done).expect("a result");
    assert_eq!(done.body_bytes, body.len() as u64);
    (head.status == 200).then_some(body)
}

/// O10: what comes through a native channel that has no credit for a while is whole, and so is a body on its way to the
/// server, or the client gets an error.
#[test]
fn responses_and_bodies_of_native_sessions_are_whole_or_refused() {
    let to = backend().address();
    let limited = Limited::start_with(
        "endpoint { listen 127.0.0.1:{port2}; http_addresses 127.0.0.1:{port}; }",
        &format!(
            "client_max_body_size 0; location = /small {{ return 200 small; }}
             location / {{ proxy_pass http://{to}; }}"
        ),
    );
    let sent = pattern(900_000);
    for limit in LIMITS.into_iter().map(Some).chain([None]) {
        limited.server.limit_files(limit);
        for target in ["/length", "/chunked"] {
            let body = native_response(&limited.server, target, &[]);
            let body = body.expect("a response needs no disk");
            assert!(body == pattern(BODY_BYTES), "{target}, full after {limit:?} bytes");
        }
        let echoed = native_response(&limited.server, "/echo", &sent);
        assert!(echoed.is_some() || limit.is_some(), "refused without a full disk");
        assert!(echoed.is_none_or(|echoed| echoed == sent), "full after {limit:?} bytes");
    }
}

/// O10: a response of slices is whole, or cut so that the client sees it; each slice is an entry that is whole or not
/// there.
#[test]
fn a_response_of_slices_is_whole_or_cut() {
    let backend = Backend::start(|connection| {
        while let Some(head) = connection.request() {
            let range =
                head.split("Range: bytes=").nth(1).and_then(|rest| rest.split("\r\n").next());
            let (start, end) = range.and_then(|range| range.split_once('-')).expect("a range");
            let start: usize = start.parse().expect("a number");
            let end = end.parse::<usize>().expect("a number").min(BODY_BYTES - 1);
            let fields = format!(
                "Cache-Control: max-age=600\r\nETag: \"a\"\r\nContent-Range: bytes {start}-{end}/{BODY_BYTES}\r\n"
            );
            connection.answer("206 Partial Content", &fields, &pattern(BODY_BYTES)[start..=end]);
        }
    });
    let to = backend.address();
    let limited = Limited::start(&format!(
        "slice 1m; proxy_cache one; proxy_cache_key $uri$slice_range; proxy_cache_valid 206 1h;
         proxy_set_header Range $slice_range; location / {{ proxy_pass http://{to}; }}
         }} proxy_cache_path {{dir}}/cache keys_zone=one:1m; server {{ listen 127.0.0.1:{{port2}};"
    ));
    for (number, limit) in LIMITS.into_iter().enumerate().step_by(2) {
        let target = format!("/{number}");
        limited.server.limit_files(Some(limit));
        let mut client = limited.server.connect().with_patience(LONG);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        if let Ok(response) = client.try_read_response(false) {
            assert!(response.body == pattern(BODY_BYTES), "full after {limit} bytes");
        }
        limited.server.limit_files(None);
        for _ in 0..2 {
            let response = limited.server.connect().with_patience(LONG).get(&target);
            assert_eq!(response.status, 200);
            assert!(response.body == pattern(BODY_BYTES), "after {limit} bytes");
        }
    }
}

/// O10, U5: an entry is whole or not there; the client that waits for its fetch has all of the response.
#[test]
fn a_cached_response_is_whole_or_not_cached() {
    let to = backend().address();
    let limited = Limited::start(&format!(
        "proxy_cache one; location / {{ proxy_pass http://{to}; add_header X-Cache $upstream_cache_status; }}
         }} proxy_cache_path {{dir}}/cache keys_zone=one:1m; server {{ listen 127.0.0.1:{{port2}};"
    ));
    for (number, limit) in LIMITS.into_iter().enumerate() {
        for kind in ["length", "chunked"] {
            limited.server.limit_files(Some(limit));
            let target = format!("/{kind}/{number}");
            let mut slow = slow_client(&limited.server, &target);
            let fast = limited.server.connect().with_patience(LONG).get(&format!("{target}/fast"));
            for response in [fast, slow.read_response()] {
                assert!(response.body == pattern(BODY_BYTES), "{target}, full after {limit} bytes");
            }
            limited.server.limit_files(None);
            for expected in ["MISS", "HIT"] {
                let response = limited.server.connect().with_patience(LONG).get(&target);
                assert_eq!(status(&response), expected, "{target}");
                assert!(response.body == pattern(BODY_BYTES), "{target}");
            }
        }
    }
}

/// O10, F5, C7: a body that cannot be stored is an error; a server or a file gets all of a body or nothing.
#[test]
fn a_request_body_is_whole_or_refused() {
    let to = backend().address();
    let limited = Limited::start(&format!(
        "client_max_body_size 0; location / {{ proxy_pass http://{to}; }}
         location /up/ {{ root {{root}}; dav_methods PUT; create_full_put_path on; }}"
    ));
    let server = &limited.server;
    let body = pattern(3 << 20);
    let send = |method: &str, target: &str| {
        let length = body.len();
        let mut client = server.connect().with_patience(LONG);
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
        ));
        // A refusal may come before all of it has been sent.
        let _ = client.try_send(&body);
        client.read_response()
    };
    for limit in LIMITS.into_iter().map(Some).chain([None]) {
        server.limit_files(limit);
        let echoed = send("POST", "/echo");
        assert_eq!(echoed.status, if limit.is_some() { 500 } else { 200 }, "full after {limit:?}");
        assert!(limit.is_some() || echoed.body == body);
        let stored = send("PUT", "/up/a");
        // A limit on the size of files, which stands for the full disk here, is no want of space.
        assert_eq!(stored.status, if limit.is_some() { 413 } else { 201 }, "full after {limit:?}");
        assert_eq!(server.tree().exists("root/up/a"), limit.is_none());
    }
    assert!(server.tree().read("root/up/a") == body);
}
