//! HTTP/2 over real sockets with real clients, on the port that speaks HTTP/1 as well (M1–M5). The engine's own rules
//! are proved in its crate; here that files, programs, uploads, limits and ends come out the same by the other protocol.
#![forbid(unsafe_code)]

mod common;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{BINARY, LONG, http, pattern};
use sekisho_testkit::{Background, Server, Signal, Tree, eventually, have, process, run};

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
        sekisho_testkit::pause(Duration::from_millis(100));
    }
    let output = load.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("20000 succeeded, 0 failed, 0 errored"), "{text}");
}
