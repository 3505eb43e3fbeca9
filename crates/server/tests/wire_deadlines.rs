//! Every kind of deadline of every protocol, seen from the other end of the wire (T4): what it causes arrives not
//! before its time and at most [`LATE_MAX`] after it. Prints the table. The time of a connection begins when it is
//! accepted, which is at once with `deferred=off` (ADR 0014).
#![forbid(unsafe_code)]

mod common;
#[path = "tls/support.rs"]
#[expect(dead_code, reason = "shared with the tests of TLS")]
mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use common::{BINARY, LONG};
use rustls::{ClientConnection, StreamOwned};
use sekisho_testkit::{Server, Stopwatch, Tree, have, wait_for};
use socket2::{Domain, Socket, Type};
use support::Speech;

/// How late the peer may see it (T4).
const LATE_MAX: Duration = Duration::from_millis(50);
/// A machine that is busy with something else may be late by itself: one of so many tries must be in time.
const TRIES: usize = 5;

const HEADER: Duration = Duration::from_millis(900);
const BODY: Duration = Duration::from_secs(1);
const KEEP_ALIVE: Duration = Duration::from_millis(1100);
const SEND: Duration = Duration::from_millis(1200);
const PROGRAM: Duration = Duration::from_millis(700);
const UPSTREAM: Duration = Duration::from_millis(800);
const STREAM: Duration = Duration::from_millis(600);
const PREREAD: Duration = Duration::from_millis(500);
const LINGER: Duration = Duration::from_millis(650);
const LINGER_ALL: Duration = Duration::from_millis(850);
const CONNECT: Duration = Duration::from_millis(550);
const UPSTREAM_SEND: Duration = Duration::from_millis(1050);
const DRAIN: Duration = Duration::from_millis(750);
const NATIVE_HANDSHAKE: Duration = Duration::from_millis(950);
const NATIVE_FRAME: Duration = Duration::from_millis(1150);
const NATIVE_SESSION: Duration = Duration::from_millis(1250);

const LARGE_BYTES: u64 = 256 << 20;

/// The servers under test and behind it.
struct World {
    server: Server,
    native: SocketAddr,
    to_nowhere: SocketAddr,
    /// Accepts connections, and that is all.
    silent: TcpListener,
    /// Completes no handshake: its queue is full of these.
    full: (Socket, Vec<Socket>),
    /// Reads nothing, with a small receive buffer.
    unread: TcpListener,
}

/// A deadline: what it is called, how long it is, and how the peer sees it.
type Row = (&'static str, Duration, fn(&World) -> Duration);

const ROWS: &[Row] = &[
    ("http1, first head never begun: 408", HEADER, http1_without_a_byte),
    ("http1, first head unfinished: 408", HEADER, http1_half_head),
    ("http1, later head unfinished: 408", HEADER, http1_later_head),
    ("http1, body: 408", BODY, http1_body),
    ("http1, idle: close", KEEP_ALIVE, http1_idle),
    ("http1, client stops reading: reset", SEND, http1_send),
    ("cgi_read_timeout: 504", PROGRAM, cgi_read),
    ("http1, lingering_timeout: reset", LINGER, http1_linger),
    ("http1, lingering_time: reset", LINGER_ALL, http1_linger_all),
    ("proxy_connect_timeout: 504", CONNECT, proxy_connect),
    ("proxy_send_timeout: 504", UPSTREAM_SEND, proxy_send),
    ("proxy_read_timeout: 504", UPSTREAM, proxy_read),
    ("proxy_read_timeout in a body: cut", UPSTREAM, proxy_read_body),
    ("fastcgi_connect_timeout: 504", CONNECT, fastcgi_connect),
    ("fastcgi_read_timeout: 504", UPSTREAM, fastcgi_read),
    ("stream, proxy_connect_timeout: close", CONNECT, stream_connect),
    ("worker_shutdown_timeout: 503", DRAIN, drain),
    ("http2, no request: GOAWAY", HEADER, http2_without_request),
    ("http2, header block unfinished: GOAWAY", HEADER, http2_half_block),
    ("http2, idle: GOAWAY", KEEP_ALIVE, http2_idle),
    ("http2, idle, TLS: GOAWAY", KEEP_ALIVE, http2_idle_tls),
    ("http2, no request, TLS: GOAWAY", HEADER, http2_without_request_tls),
    ("http2, body: 408", BODY, http2_body),
    ("http2, window not opened: RST_STREAM", SEND, http2_window),
    ("http2, client stops reading: reset", SEND, http2_send),
    ("TLS, no hello: close", HEADER, tls_without_a_byte),
    ("TLS, half a hello: close", HEADER, tls_half_hello),
    ("http1, idle, TLS: close", KEEP_ALIVE, http1_idle_tls),
    ("stream, proxy_timeout: close", STREAM, stream_idle),
    ("stream, preread_timeout: close", PREREAD, stream_preread),
    ("native, no handshake: close", NATIVE_HANDSHAKE, native_without_handshake),
    ("native, half a frame: close", NATIVE_FRAME, native_half_frame),
    ("native, session_timeout: BYE", NATIVE_SESSION, native_session),
];

fn start() -> World {
    let tree = Tree::new();
    support::certificate(&tree, "a.test", "30");
    tree.file("root/a.txt", "hello");
    let file = std::fs::File::create(tree.path("root/large.bin")).expect("a file");
    file.set_len(LARGE_BYTES).expect("a file of zeros takes no room");
    tree.script("root/hang.cgi", "#!/bin/sh\nexec sleep 60\n");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let behind = silent.local_addr().expect("it has an address");
    let full = full_queue();
    let nowhere = full.0.local_addr().ok().and_then(|it| it.as_socket()).expect("an address");
    let unread = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    unread.set_recv_buffer_size(16 << 10).expect("an option");
    unread.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port is free");
    unread.listen(16).expect("it listens");
    let unread = TcpListener::from(unread);
    let stuck = unread.local_addr().expect("it has an address");
    let native = common::own_address(7455);
    let to_nowhere = common::own_address(7456);
    let half = half_response();
    let ms = |time: Duration| format!("{}ms", time.as_millis());
    let config = format!(
        "worker_processes 1; error_log {{dir}}/error.log info; events {{}}
         endpoint {{ listen {native}; handshake_timeout {}; frame_timeout {}; session_timeout {}; }}
         stream {{
           server {{ listen 127.0.0.1:{{port3}}; proxy_pass {behind}; proxy_timeout {}; }}
           server {{ listen 127.0.0.1:{{port4}}; ssl_preread on; proxy_pass {behind}; preread_timeout {}; }}
           server {{ listen {to_nowhere}; proxy_pass {nowhere}; proxy_connect_timeout {}; }}
         }}
         http {{
           access_log off; client_header_timeout {}; client_body_timeout {}; keepalive_timeout {}; send_timeout {};
           reset_timedout_connection on; root {{root}}; lingering_timeout 30s; client_max_body_size 0;
           server {{
             listen 127.0.0.1:{{port}} deferred=off; http2 on;
             location /up/ {{ dav_methods PUT; create_full_put_path on; }}
             location = /hang.cgi {{ cgi on; cgi_read_timeout {}; }}
             location /proxy {{ proxy_pass http://{behind}; proxy_read_timeout {}; }}
             location /fastcgi {{ fastcgi_pass {behind}; fastcgi_read_timeout {}; }}
             location /nowhere {{ proxy_pass http://{nowhere}; proxy_connect_timeout {}; }}
             location /nobody {{ fastcgi_pass {nowhere}; fastcgi_connect_timeout {}; }}
             location /stuck {{ proxy_pass http://{stuck}; proxy_send_timeout {}; client_body_temp_path {{dir}}; }}
             location /half {{ proxy_pass http://{half}; proxy_read_timeout {}; }}
             location /linger {{ return 200 ok; client_body_discard_max 1k; lingering_timeout {}; }}
             location /linger/all {{ return 200 ok; client_body_discard_max 1k; lingering_time {}; }}
           }}
           server {{
             listen 127.0.0.1:{{port2}} ssl deferred=off; http2 on; server_name a.test;
             ssl_certificate {{dir}}/a.test.pem; ssl_certificate_key {{dir}}/a.test.key;
           }}
         }}",
        ms(NATIVE_HANDSHAKE),
        ms(NATIVE_FRAME),
        ms(NATIVE_SESSION),
        ms(STREAM),
        ms(PREREAD),
        ms(CONNECT),
        ms(HEADER),
        ms(BODY),
        ms(KEEP_ALIVE),
        ms(SEND),
        ms(PROGRAM),
        ms(UPSTREAM),
        ms(UPSTREAM),
        ms(CONNECT),
        ms(CONNECT),
        ms(UPSTREAM_SEND),
        ms(UPSTREAM),
        ms(LINGER),
        ms(LINGER_ALL),
    );
    let server = Server::start_in(tree, BINARY, &config);
    World { server, native, to_nowhere, silent, full, unread }
}

/// A listener whose queue is full: the kernel drops what asks for another connection.
fn full_queue() -> (Socket, Vec<Socket>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port is free");
    listener.listen(0).expect("it listens");
    let to = listener.local_addr().expect("an address");
    let waiting = (0..8).map(|_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("an option");
        // It is under way.
        let _ = socket.connect(&to);
        socket
    });
    let waiting = waiting.collect();
    (listener, waiting)
}

/// A server that sends a head and a part of its body to each request, and nothing more.
fn half_response() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("an address");
    // It ends with the test.
    thread::spawn(move || {
        let mut all = Vec::new();
        for mut stream in listener.incoming().flatten() {
            read_until(&mut stream, b"\r\n\r\n");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").expect("sent");
            all.push(stream);
        }
    });
    address
}

/// T4, T10, M4, S2, E2, E6, U2, C4
#[test]
fn every_deadline_reaches_the_wire_in_time() {
    if !have("openssl") {
        return;
    }
    let world = start();
    let mut wrong = Vec::new();
    let results: Vec<Vec<Duration>> = thread::scope(|scope| {
        let world = &world;
        let rows = ROWS.iter().map(|(_, length, measure)| {
            scope.spawn(move || {
                let mut seen = Vec::new();
                while seen.len() < TRIES {
                    seen.push(measure(world));
                    if seen.iter().any(|it| *it <= *length + LATE_MAX) {
                        break;
                    }
                }
                seen
            })
        });
        let rows: Vec<_> = rows.collect();
        rows.into_iter().map(|row| row.join().expect("no panic")).collect()
    });
    for ((name, length, _), seen) in ROWS.iter().zip(results) {
        let late = seen.iter().min().expect("a try").saturating_sub(*length);
        println!("{name:<42} {length:>8?}  late by {late:?} ({} tries)", seen.len());
        if seen.iter().any(|it| *it < *length) || late > LATE_MAX {
            wrong.push(format!("{name}, {length:?}: seen after {seen:?}"));
        }
    }
    drop((world.silent, world.full, world.unread));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("connected");
    stream.set_read_timeout(Some(LONG)).expect("a limit");
    stream.set_nodelay(true).expect("an option");
    stream
}

/// A connection whose receive buffer is small.
fn connect_small(to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(64 << 10).expect("an option");
    socket.connect(&to.into()).expect("connected");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LONG)).expect("a limit");
    stream
}

/// Reads until `end` is there; fails at the end of the stream.
fn read_until(stream: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !seen.windows(end.len()).any(|part| part == end) {
        let count = stream.read(&mut buffer).expect("bytes");
        assert!(
            count > 0,
            "ended before {:?}: {}",
            end.escape_ascii().to_string(),
            seen.escape_ascii()
        );
        seen.extend_from_slice(&buffer[..count]);
    }
    seen
}

/// Waits for the end of the stream, or its reset.
fn wait_for_end(stream: &mut impl Read) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof
                ) =>
            {
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits for a reset without reading; how long after the last byte it came. The kernel takes and acknowledges bytes as
/// long as its receive buffer has room.
fn reset_after_last_byte(stream: &TcpStream) -> Duration {
    let mut watch = Stopwatch::start();
    let (mut received, mut last_look) = (0, watch);
    let is_reset = wait_for(LONG, || {
        // Acknowledged at once: a delayed acknowledgement would count from up to 40 ms later.
        rustix::net::sockopt::set_tcp_quickack(stream, true).expect("an option");
        let waiting = rustix::io::ioctl_fionread(stream).expect("a number");
        if waiting > received {
            (received, watch) = (waiting, last_look);
        }
        last_look = Stopwatch::start();
        stream.take_error().expect("an option").is_some()
    });
    assert!(is_reset, "no reset");
    watch.elapsed()
}

const GET: &[u8] = b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n";

fn http1_without_a_byte(world: &World) -> Duration {
    let watch = Stopwatch::start();
    let mut stream = connect(world.server.address());
    read_until(&mut stream, b" 408 ");
    watch.elapsed()
}

fn http1_half_head(world: &World) -> Duration {
    let watch = Stopwatch::start();
    let mut stream = connect(world.server.address());
    stream.write_all(b"GET /a.txt HT").expect("sent");
    read_until(&mut stream, b" 408 ");
    watch.elapsed()
}

fn http1_later_head(world: &World) -> Duration {
    let mut stream = connect(world.server.address());
    stream.write_all(GET).expect("sent");
    read_until(&mut stream, b"\r\n\r\nhello");
    let watch = Stopwatch::start();
    stream.write_all(b"GET /a.txt HT").expect("sent");
    read_until(&mut stream, b" 408 ");
    watch.elapsed()
}

fn http1_body(world: &World) -> Duration {
    let mut stream = connect(world.server.address());
    let watch = Stopwatch::start();
    stream
        .write_all(b"PUT /up/a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
        .expect("sent");
    read_until(&mut stream, b" 408 ");
    watch.elapsed()
}

/// The quiet time begins at the server, before the client has read the response.
fn http1_idle(world: &World) -> Duration {
    let mut stream = connect(world.server.address());
    let watch = Stopwatch::start();
    stream.write_all(GET).expect("sent");
    read_until(&mut stream, b"\r\n\r\nhello");
    wait_for_end(&mut stream);
    watch.elapsed()
}

fn http1_send(world: &World) -> Duration {
    let mut stream = connect_small(world.server.address());
    stream.write_all(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    stream.read_exact(&mut vec![0; 4 << 20]).expect("bytes");
    reset_after_last_byte(&stream)
}

fn cgi_read(world: &World) -> Duration {
    let mut stream = connect(world.server.address());
    let watch = Stopwatch::start();
    stream.write_all(b"GET /hang.cgi HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    read_until(&mut stream, b" 504 ");
    watch.elapsed()
}

fn proxy_read(world: &World) -> Duration {
    let mut stream = connect(world.server.address());
    let watch = Stopwatch::start();
    stream.write_all(b"GET /proxy HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    read_until(&mut stream, b" 504 ");
    watch.elapsed()
}

fn response_after(world: &World, request: &[u8], status: &[u8]) -> Duration {
    let mut stream = connect(world.server.address());
    let watch = Stopwatch::start();
    stream.write_all(request).expect("sent");
    read_until(&mut stream, status);
    watch.elapsed()
}

fn proxy_connect(world: &World) -> Duration {
    response_after(world, b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n", b" 504 ")
}

fn fastcgi_connect(world: &World) -> Duration {
    response_after(world, b"GET /nobody HTTP/1.1\r\nHost: a\r\n\r\n", b" 504 ")
}

fn fastcgi_read(world: &World) -> Duration {
    response_after(world, b"GET /fastcgi HTTP/1.1\r\nHost: a\r\n\r\n", b" 504 ")
}

fn proxy_read_body(world: &World) -> Duration {
    let mut stream = connect(world.server.address());
    let watch = Stopwatch::start();
    stream.write_all(b"GET /half HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    read_until(&mut stream, b"\r\n\r\nabc");
    wait_for_end(&mut stream);
    watch.elapsed()
}

fn stream_connect(world: &World) -> Duration {
    let mut stream = connect(world.to_nowhere);
    let watch = Stopwatch::start();
    stream.write_all(b"x").expect("sent");
    wait_for_end(&mut stream);
    watch.elapsed()
}

/// The time begins when the server behind takes no more.
fn proxy_send(world: &World) -> Duration {
    const BODY_BYTES: usize = 16 << 20;
    let mut stream = connect(world.server.address());
    let head = format!("POST /stuck HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(&vec![b'x'; BODY_BYTES]).expect("sent");
    let (behind, _) = world.unread.accept().expect("a connection");
    stream.set_nonblocking(true).expect("an option");
    let mut watch = Stopwatch::start();
    let (mut received, mut last_look) = (0, watch);
    let mut response = [0; 64];
    let is_answered = wait_for(LONG, || {
        let waiting = rustix::io::ioctl_fionread(&behind).expect("a number");
        if waiting > received {
            (received, watch) = (waiting, last_look);
        }
        last_look = Stopwatch::start();
        stream.read(&mut response).is_ok()
    });
    let elapsed = watch.elapsed();
    assert!(is_answered && response.starts_with(b"HTTP/1.1 504 "), "{}", response.escape_ascii());
    elapsed
}

fn http1_linger(world: &World) -> Duration {
    let mut stream = connect(world.server.address());
    stream
        .write_all(b"POST /linger HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n")
        .expect("sent");
    read_until(&mut stream, b"\r\n\r\nok");
    // The last byte that comes starts the time.
    let watch = Stopwatch::start();
    stream.write_all(b"x").expect("sent");
    let is_reset = || stream.take_error().expect("an option").is_some();
    assert!(wait_for(LONG, is_reset), "no reset");
    watch.elapsed()
}

/// A client that goes on sending is left in the end.
fn http1_linger_all(world: &World) -> Duration {
    let mut stream = connect(world.server.address());
    let watch = Stopwatch::start();
    stream
        .write_all(b"POST /linger/all HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n")
        .expect("sent");
    read_until(&mut stream, b"\r\n\r\nok");
    assert!(wait_for(LONG, || stream.write_all(b"x").is_err()), "no reset");
    watch.elapsed()
}

/// A request that does not finish is ended by force: it gets its response.
fn drain(_: &World) -> Duration {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let behind = silent.local_addr().expect("it has an address");
    let config = format!(
        "worker_processes 1; worker_shutdown_timeout {}ms; error_log {{dir}}/error.log info; events {{}}
         http {{ access_log off; server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://{behind}; }} }} }}",
        DRAIN.as_millis()
    );
    let mut server = Server::start(BINARY, &config);
    let mut stream = connect(server.address());
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let _passed_on = silent.accept().expect("a connection");
    let watch = Stopwatch::start();
    server.quit();
    read_until(&mut stream, b" 503 ");
    let elapsed = watch.elapsed();
    server.wait_exit(LONG);
    elapsed
}

/// A frame (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block without tables.
fn block(method: &str, path: &str) -> Vec<u8> {
    let fields =
        [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a.test")];
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// The preface, SETTINGS with an initial window, and the acknowledgement of the server's.
fn preface(window: u32) -> Vec<u8> {
    let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &settings), &frame(4, 1, 0, &[])]
        .concat()
}

/// Reads frames until one of this kind has come, and returns its payload.
fn read_frame(stream: &mut impl Read, wanted: u8) -> Vec<u8> {
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).expect("a frame");
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).expect("its payload");
        if header[3] == wanted {
            return payload;
        }
    }
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn goaway_after(stream: &mut (impl Read + Write), sent: &[u8], watch: Stopwatch) -> Duration {
    stream.write_all(sent).expect("sent");
    stream.flush().expect("sent");
    read_frame(stream, GOAWAY);
    let elapsed = watch.elapsed();
    wait_for_end(stream);
    assert!(watch.elapsed() < elapsed + Duration::from_secs(1), "the end comes with it");
    elapsed
}

fn http2_without_request(world: &World) -> Duration {
    let watch = Stopwatch::start();
    goaway_after(&mut connect(world.server.address()), &preface(65_535), watch)
}

fn http2_half_block(world: &World) -> Duration {
    let watch = Stopwatch::start();
    let sent = [preface(65_535), frame(HEADERS, END_STREAM, 1, &block("GET", "/a.txt"))].concat();
    goaway_after(&mut connect(world.server.address()), &sent, watch)
}

fn idle_http2(stream: &mut (impl Read + Write)) -> Duration {
    let head = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block("GET", "/a.txt"));
    stream.write_all(&preface(65_535)).expect("sent");
    let watch = Stopwatch::start();
    goaway_after(stream, &head, watch)
}

fn http2_idle(world: &World) -> Duration {
    idle_http2(&mut connect(world.server.address()))
}

fn http2_idle_tls(world: &World) -> Duration {
    idle_http2(&mut tls(world, &["h2"]))
}

fn http2_without_request_tls(world: &World) -> Duration {
    let watch = Stopwatch::start();
    let mut stream = tls(world, &["h2"]);
    goaway_after(&mut stream, &preface(65_535), watch)
}

fn http2_body(world: &World) -> Duration {
    let mut stream = connect(world.server.address());
    stream.write_all(&preface(65_535)).expect("sent");
    let watch = Stopwatch::start();
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &block("PUT", "/up/b"))).expect("sent");
    // `:status 408` is not in the static table: its value is a literal.
    let head = read_frame(&mut stream, HEADERS);
    assert!(head.windows(3).any(|part| part == b"408") || head.len() > 3, "{head:?}");
    watch.elapsed()
}

fn http2_window(world: &World) -> Duration {
    let mut stream = connect(world.server.address());
    stream.write_all(&preface(2000)).expect("sent");
    let watch = Stopwatch::start();
    let head = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block("GET", "/large.bin"));
    stream.write_all(&head).expect("sent");
    read_frame(&mut stream, RST_STREAM);
    watch.elapsed()
}

fn http2_send(world: &World) -> Duration {
    let mut stream = connect_small(world.server.address());
    stream.write_all(&preface(0x7fff_ffff)).expect("sent");
    stream.write_all(&frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes())).expect("sent");
    let head = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block("GET", "/large.bin"));
    stream.write_all(&head).expect("sent");
    stream.read_exact(&mut vec![0; 4 << 20]).expect("bytes");
    reset_after_last_byte(&stream)
}

fn tls_without_a_byte(world: &World) -> Duration {
    let watch = Stopwatch::start();
    let mut stream = connect(world.server.address_of(1));
    wait_for_end(&mut stream);
    watch.elapsed()
}

fn tls_half_hello(world: &World) -> Duration {
    let watch = Stopwatch::start();
    let mut stream = connect(world.server.address_of(1));
    stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 7, 7, 7]).expect("sent");
    wait_for_end(&mut stream);
    watch.elapsed()
}

fn tls(world: &World, protocols: &[&str]) -> StreamOwned<ClientConnection, TcpStream> {
    let speech = Speech::default().alpn(protocols);
    speech.connect(world.server.address_of(1), "a.test").expect("a handshake").stream
}

fn http1_idle_tls(world: &World) -> Duration {
    let mut stream = tls(world, &[]);
    let watch = Stopwatch::start();
    stream.write_all(b"GET /a.txt HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("sent");
    read_until(&mut stream, b"\r\n\r\nhello");
    wait_for_end(&mut stream);
    watch.elapsed()
}

fn stream_idle(world: &World) -> Duration {
    let mut stream = connect(world.server.address_of(2));
    let watch = Stopwatch::start();
    stream.write_all(b"x").expect("sent");
    wait_for_end(&mut stream);
    watch.elapsed()
}

fn stream_preread(world: &World) -> Duration {
    let watch = Stopwatch::start();
    let mut stream = connect(world.server.address_of(3));
    wait_for_end(&mut stream);
    watch.elapsed()
}

/// Its first byte has it accepted at once (ADR 0014).
fn native_without_handshake(world: &World) -> Duration {
    let watch = Stopwatch::start();
    let mut stream = connect(world.native);
    stream.write_all(&HELLO[..1]).expect("sent");
    wait_for_end(&mut stream);
    watch.elapsed()
}

/// `HELLO` with major version 1.
const HELLO: &[u8] = &[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 1];
const BYE: u8 = 3;

/// Reads native frames until one of this kind has come.
fn read_native(stream: &mut TcpStream, wanted: u8) {
    loop {
        let mut head = [0; 12];
        stream.read_exact(&mut head).expect("a frame");
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        stream.read_exact(&mut vec![0; length]).expect("its payload");
        if head[4] == wanted {
            return;
        }
    }
}

fn native_half_frame(world: &World) -> Duration {
    let mut stream = connect(world.native);
    stream.write_all(HELLO).expect("sent");
    read_native(&mut stream, 2);
    let watch = Stopwatch::start();
    stream.write_all(&[7, 0, 0]).expect("sent");
    read_native(&mut stream, BYE);
    watch.elapsed()
}

fn native_session(world: &World) -> Duration {
    let mut stream = connect(world.native);
    let watch = Stopwatch::start();
    stream.write_all(HELLO).expect("sent");
    read_native(&mut stream, BYE);
    watch.elapsed()
}
