//! HTTP/2 over real sockets with real clients, on the port that speaks HTTP/1 as well (M1–M5). The engine's own rules
//! are proved in its crate; here that files, programs, uploads, limits and ends come out the same by the other protocol.
#![forbid(unsafe_code)]

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{BINARY, LONG, http, pattern};
use sekisho_testkit::{
    Background, Server, Signal, Stopwatch, Tree, eventually, have, pause, process, run,
};

const SITE: &str = "server { listen 127.0.0.1:{port}; http2 on; root {root};
    cgi_max_processes_per_address off; client_max_body_size 8m; keepalive_requests 100000;
    location /cgi-bin/ { cgi on; cgi_kill_grace 300ms; cgi_read_timeout 10m; }
    location /up/ { dav_methods PUT DELETE; create_full_put_path on; }
    location /slow/ { alias {root}/; limit_rate 1m; }
    location /teapot { return 418; }
    location /closed { return 444; } }";

fn start() -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    tree.file("root/large.bin", pattern(3_000_000));
    let sh = |script: &str| format!("#!/bin/sh\n{script}\n");
    tree.script(
        "root/cgi-bin/echo.cgi",
        &sh("printf 'X-Length: %s\\n\\n' \"$CONTENT_LENGTH\"; cat"),
    );
    tree.script("root/cgi-bin/silent.cgi", &sh("printf 'X: 1\\n\\nstart\\n'; sleep 600"));
    tree.script("root/cgi-bin/dies.cgi", &sh("printf 'X: 1\\n\\nstart\\n'; kill -KILL $$"));
    Server::start_in(tree, BINARY, &http(SITE))
}

/// What curl says, speaking HTTP/2 from its first byte; `None` without curl.
fn curl(server: &Server, target: &str, more: &[&str]) -> Option<(String, i32)> {
    if !have("curl") {
        return None;
    }
    let url = server.url(target);
    let mut arguments =
        vec!["-s", "--http2-prior-knowledge", "-w", "[%{http_code} %{http_version}]"];
    arguments.extend_from_slice(more);
    arguments.push(&url);
    let finished = run("curl", &arguments, LONG);
    Some((finished.stdout.clone(), finished.code()))
}

#[test]
fn one_port_speaks_both_versions() {
    // M1, H2
    let server = start();
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
    let Some((text, _)) = curl(&server, "/a.txt", &[]) else { return };
    assert_eq!(text, "hello[200 2]");
    for (target, status) in [("/missing", 404), ("/teapot", 418)] {
        let (text, _) = curl(&server, target, &["-o", "/dev/null"]).expect("curl");
        assert_eq!(text, format!("[{status} 2]"), "{target}");
    }
    // What begins as a request and is none is refused in the words of HTTP/1.
    let mut client = server.connect();
    client.send("PRI * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.read_response().status >= 400);
}

#[test]
fn files_ranges_and_heads_come_as_by_http1() {
    // M1, F1
    let server = start();
    let body = |arguments: &[&str]| curl(&server, "/a.txt", arguments).map(|(text, _)| text);
    let Some(text) = body(&["-r", "1-3"]) else { return };
    assert_eq!(text, "ell[206 2]");
    let head = body(&["-I"]).expect("curl");
    assert!(head.contains("content-length: 5") && head.contains("etag:"), "{head}");
    let file = server.tree().path("got.bin");
    let at = file.display().to_string();
    curl(&server, "/large.bin", &["-o", &at]);
    assert!(fs::read(&file).expect("a file") == pattern(3_000_000), "every byte in its place");
}

#[test]
fn programs_get_bodies_and_uploads_are_kept() {
    // M1, M5, C7, F5
    let server = start();
    let tree = server.tree();
    tree.file("body.bin", pattern(2_000_000));
    let at = tree.path("body.bin").display().to_string();
    let sent = format!("@{at}");
    let got = tree.path("got.bin").display().to_string();
    let arguments = ["--data-binary", &sent, "-o", &got];
    let Some((text, _)) = curl(&server, "/cgi-bin/echo.cgi", &arguments) else { return };
    assert_eq!(text, "[200 2]");
    assert!(fs::read(&got).expect("a file") == pattern(2_000_000), "the program saw all of it");
    assert_eq!(curl(&server, "/up/x/y.bin", &["-T", &at]).expect("curl").0, "[201 2]");
    assert!(fs::read(tree.path("root/up/x/y.bin")).expect("a file") == pattern(2_000_000));
    // H6, M3: what is too large is answered, and its rest refused without an error.
    if !have("nghttp") {
        return;
    }
    tree.file("huge.bin", vec![0; 9 << 20]);
    let huge = tree.path("huge.bin").display().to_string();
    let url = server.url("/up/z.bin");
    let said = run("nghttp", &["-v", "-n", "-H:method: PUT", "-d", &huge, &url], LONG).stdout;
    assert!(said.contains(":status: 413") && said.contains("NO_ERROR"), "{said}");
    assert!(!tree.path("root/up/z.bin").exists());
}

/// A frame (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of a request, without tables.
fn head(method: &str, path: &str) -> Vec<u8> {
    let fields =
        [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a.test")];
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// A client whose windows are as large as they are at first, 65,535 bytes.
fn client(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("connected");
    stream.set_read_timeout(Some(LONG)).expect("a limit");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("sent");
    stream.write_all(&frame(4, 0, 0, &[])).expect("sent");
    stream
}

/// Reads frames until DATA frames have brought so many bytes.
fn read_data(stream: &mut TcpStream, bytes: usize) {
    let mut got = 0;
    while got < bytes {
        let mut header = [0; 9];
        stream.read_exact(&mut header).expect("a frame");
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        stream.read_exact(&mut vec![0; length]).expect("its payload");
        assert_ne!(header[3], 3, "the stream was reset");
        got += if header[3] == 0 { length } else { 0 };
    }
    assert_eq!(got, bytes);
}

/// Nothing comes for a while: for longer than any short deadline of a handler.
fn expect_silence(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
    let error = stream.read(&mut [0]).expect_err("silence");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    stream.set_read_timeout(Some(LONG)).expect("a limit");
}

#[test]
fn a_program_goes_on_when_the_window_that_held_its_output_opens() {
    // M3, T4: a deadline that a handler sets for itself meanwhile changes nothing.
    const WINDOW: usize = 65_535;
    let server = start();
    let bytes = 2 * WINDOW + 1000;
    let script = format!("#!/bin/sh\nprintf 'X: 1\\n\\n'; head -c {bytes} /dev/zero");
    server.tree().script("root/cgi-bin/long.cgi", &script);
    let mut stream = client(&server);
    stream.write_all(&frame(1, 5, 1, &head("GET", "/cgi-bin/long.cgi"))).expect("sent");
    for part in [WINDOW, WINDOW, 1000] {
        read_data(&mut stream, part);
        if part == WINDOW {
            expect_silence(&mut stream);
            for number in [0, 1] {
                let opened = frame(8, 0, number, &(WINDOW as u32).to_be_bytes());
                stream.write_all(&opened).expect("sent");
            }
        }
    }
}

/// How often the threads of a server have gone to sleep.
fn wakes(server: &Server) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).expect("its threads");
    let of_thread = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    tasks.map(|task| of_thread(task.expect("a thread").path())).sum()
}

#[test]
fn an_answer_that_its_pace_and_then_a_window_holds_back_costs_nothing() {
    // M3: one stream waits for its pace, another one uses up the window of the connection.
    let server = start();
    let mut stream = client(&server);
    let slow = frame(1, 5, 1, &head("GET", "/slow/large.bin"));
    let other = frame(1, 5, 3, &head("GET", "/large.bin"));
    stream.write_all(&[slow, other].concat()).expect("sent");
    read_data(&mut stream, 65_535);
    expect_silence(&mut stream);
    let (before, since) = (wakes(&server), Stopwatch::start());
    eventually("half a second", LONG, || since.elapsed() > Duration::from_millis(500));
    let woken = wakes(&server) - before;
    assert!(woken < 50, "woken {woken} times in half a second");
}

/// M3: one answer that its client does not read holds up no other request of the connection.
#[test]
fn a_request_is_served_while_another_answer_is_not_read() {
    const WINDOW: u32 = 0x7fff_ffff;
    let server = start();
    let long = fs::File::create(server.tree().path("root/long.bin")).expect("a file");
    long.set_len(64 << 20).expect("a long file");
    let mut stream = TcpStream::connect(server.address()).expect("connected");
    let settings = [&4_u16.to_be_bytes()[..], &WINDOW.to_be_bytes()].concat();
    let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    first.extend(frame(4, 0, 0, &settings));
    first.extend(frame(8, 0, 0, &(WINDOW - 65_535).to_be_bytes()));
    first.extend(frame(1, 5, 1, &head("GET", "/long.bin")));
    stream.write_all(&first).expect("sent");
    // Until the kernel has no more room for what nobody reads.
    let waiting = || rustix::io::ioctl_fionread(&stream).expect("a number");
    let mut before = 0;
    eventually("a full connection", LONG, || {
        pause(Duration::from_millis(300));
        let is_full = waiting() > 0 && waiting() == before;
        before = waiting();
        is_full
    });
    let other = [frame(1, 4, 3, &head("PUT", "/up/kept")), frame(0, 1, 3, b"kept")].concat();
    stream.write_all(&other).expect("sent");
    eventually("the upload", LONG, || server.tree().text("root/up/kept") == "kept");
}

#[test]
fn a_cut_answer_is_seen_as_cut() {
    // M3, C5
    let server = start();
    let Some((_, code)) = curl(&server, "/cgi-bin/dies.cgi", &["-o", "/dev/null"]) else { return };
    assert_ne!(code, 0, "a stream that was reset is an error");
    let (_, code) = curl(&server, "/closed", &["-o", "/dev/null"]).expect("curl");
    assert_ne!(code, 0, "no answer at all");
    assert_eq!(curl(&server, "/a.txt", &[]).expect("curl").0, "hello[200 2]");
}

/// A client in the background.
fn background_curl(server: &Server, target: &str) -> Background {
    let url = server.url(target);
    Background::start(Command::new("curl").args([
        "-s",
        "-N",
        "--http2-prior-knowledge",
        "-o",
        "/dev/null",
        &url,
    ]))
}

#[test]
fn a_client_that_goes_ends_its_program() {
    // C6, L12
    let server = start();
    if !have("curl") {
        return;
    }
    let client = background_curl(&server, "/cgi-bin/silent.cgi");
    eventually("the program runs", LONG, || !process::children(server.id()).is_empty());
    eventually("its answer has begun", LONG, || {
        let sessions = run(BINARY, &["ctl", "--pid", &server.id().to_string(), "sessions"], LONG);
        sessions.stdout.contains("http2")
    });
    drop(client);
    eventually("it is gone", LONG, || process::children(server.id()).is_empty());
}

#[test]
fn a_stream_is_seen_and_cancelled_and_a_graceful_end_waits_for_the_others() {
    // L6, L31, L34, M2, O4
    let mut server = start();
    if !have("curl") {
        return;
    }
    let mut slow = background_curl(&server, "/slow/large.bin");
    let _silent = background_curl(&server, "/cgi-bin/silent.cgi");
    let pid = server.id().to_string();
    let requests = || run(BINARY, &["ctl", "--pid", &pid, "requests"], LONG).stdout;
    eventually("both run", LONG, || {
        let text = requests();
        text.contains("/slow/large.bin") && text.contains("/cgi-bin/silent.cgi")
    });
    let text = requests();
    let line = text.lines().find(|line| line.contains("silent.cgi")).expect("a line");
    let session = line.split_whitespace().next().expect("a session").to_owned();
    let session = session.trim_end_matches(|c: char| !c.is_ascii_digit()).to_owned();
    let cancelled = run(BINARY, &["ctl", "--pid", &pid, "session", "cancel", &session], LONG);
    assert_eq!(cancelled.code(), 0, "{text}\n{cancelled:?}");
    eventually("the program is gone", LONG, || process::children(server.id()).is_empty());
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(LONG).success(), "every stream came to its end");
    assert!(slow.wait().success(), "and the download was complete");
}

#[test]
fn many_streams_at_once_lose_nothing_over_reloads() {
    // M1, O3
    let server = start();
    if !have("h2load") {
        return;
    }
    let url = server.url("/a.txt");
    let load = Command::new("h2load")
        .args(["-n", "20000", "-c", "8", "-m", "32", &url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("h2load is there");
    for _ in 0..2 {
        server.signal(Signal::HUP);
        pause(Duration::from_millis(100));
    }
    let output = load.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("20000 succeeded, 0 failed, 0 errored"), "{text}");
}

#[test]
fn sessions_and_requests_are_counted_by_their_protocol() {
    // O7
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let config = format!(
        "{}\nstream {{ server {{ listen 127.0.0.1:{{port2}}; return hi; }} }}\n",
        http(SITE)
    );
    let server = Server::start_in(tree, BINARY, &config);
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
    let mut second = client(&server);
    for stream in [1, 3] {
        second.write_all(&frame(1, 5, stream, &head("GET", "/a.txt"))).expect("sent");
        read_data(&mut second, 5);
    }
    for _ in 0..3 {
        let mut text = String::new();
        let mut third = TcpStream::connect(server.address_of(1)).expect("connected");
        third.read_to_string(&mut text).expect("the end");
        assert_eq!(text, "hi");
    }
    let pid = server.id().to_string();
    let metrics = run(BINARY, &["ctl", "--pid", &pid, "metrics", "--prometheus"], LONG).stdout;
    for line in [
        "sekisho_requests_total{protocol=\"http1\"} 1",
        "sekisho_requests_total{protocol=\"http2\"} 2",
        "sekisho_requests_total{protocol=\"tcp\"} 3",
        "sekisho_requests_total{protocol=\"udp\"} 0",
        "sekisho_sessions_opened_total{protocol=\"http\"} 2",
        "sekisho_sessions_opened_total{protocol=\"tcp\"} 3",
        "sekisho_sessions{protocol=\"http2\",state=\"idle\"} 1",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line} in\n{metrics}");
    }
}
