//! HTTP/3 over real sockets (Q1–Q5): what clients see of files, programs, uploads, deadlines, reloads and stops.
#![forbid(unsafe_code)]

#[path = "../background_load/mod.rs"]
mod background_load;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod handshake;
mod path;
#[path = "../tls/support.rs"]
#[expect(dead_code, reason = "shared with the tests of TLS")]
mod support;
mod tunnel;
mod violations;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use background_load::ByPidFile;
use client::Client;
use common::{BINARY, LONG, Process, http, pattern};
use sekisho_testkit::{Server, Signal, Stopwatch, Tree, eventually, free_port, have};
use support::{can_make_certificates, certificate};

/// The deadlines that are measured, and how late the peer may see them (T4).
const TIME: Duration = Duration::from_millis(900);
const LATE_MAX: Duration = Duration::from_millis(50);

/// A deadline: what happens, and how the peer sees it.
type Row = (&'static str, fn(&Server) -> Duration);

/// A server with TLS and QUIC on one port; `body` is put into its block.
fn site(body: &str) -> String {
    http(&format!(
        "server {{ listen 127.0.0.1:{{port}} ssl; listen 127.0.0.1:{{port}} quic; server_name a.test;\n\
         root {{root}}; ssl_certificate {{dir}}/a.test.pem; ssl_certificate_key {{dir}}/a.test.key;\n{body}\n}}"
    ))
}

fn serve(tree: Tree, config: &str) -> Server {
    certificate(&tree, "a.test", "30");
    Server::start_in(tree, BINARY, config)
}

#[test]
fn files_of_every_size_come_whole() {
    // Q1, F1
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    let large = pattern(5_000_000);
    tree.file("root/large.bin", &large);
    tree.file("root/small.txt", "hello\n");
    tree.file("root/empty", "");
    let server = serve(tree, &site("location /http3 { return 200 \"$http3 $server_protocol\"; }"));
    let mut client = Client::connect(server.address(), "a.test");
    assert_eq!(client.get("/small.txt").body, b"hello\n");
    assert_eq!(client.get("/http3").body, b"h3 HTTP/3.0");
    let empty = client.get("/empty");
    assert_eq!((empty.status, empty.body.len(), empty.is_complete), (200, 0, true));
    assert_eq!(client.get("/none").status, 404);
    let whole = client.get("/large.bin");
    assert!(whole.is_complete && whole.body == large, "{} bytes came", whole.body.len());
    assert_eq!(whole.field("content-length"), Some("5000000"));
    let id = client.request("GET", "/large.bin", &[("range", "bytes=4999990-")], &[]);
    let part = client.response(id);
    assert_eq!((part.status, &part.body[..]), (206, &large[4_999_990..]));
    let id = client.request("HEAD", "/large.bin", &[], &[]);
    let head = client.response(id);
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn many_requests_share_a_connection() {
    // Q1, M5: a download that nobody reads delays no other request.
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.file("root/small.txt", "hello\n");
    let server = serve(tree, &site(""));
    let mut client = Client::connect(server.address(), "a.test");
    let ids: Vec<_> = (0..100).map(|_| client.request("GET", "/small.txt", &[], &[])).collect();
    for id in ids {
        let response = client.response(id);
        assert_eq!((response.status, &response.body[..]), (200, &b"hello\n"[..]));
    }
}

#[test]
fn uploads_arrive_whole_and_refused_ones_are_answered() {
    // Q1, F5, H6
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.folder("root/up");
    let server = serve(
        tree,
        &site(
            "location /up { dav_methods PUT; client_max_body_size 10m; } client_max_body_size 1k;",
        ),
    );
    let mut client = Client::connect(server.address(), "a.test");
    let body = pattern(3_000_000);
    let id = client.request("PUT", "/up/x", &[("content-length", "3000000")], &body);
    assert_eq!(client.response(id).status, 201);
    assert_eq!(std::fs::read(server.tree().path("root/up/x")).expect("a file"), body);
    // Without a length.
    let id = client.request("PUT", "/up/y", &[], &body[..100_000]);
    assert_eq!(client.response(id).status, 201);
    let id = client.request("POST", "/", &[("content-length", "5000")], &body[..5000]);
    assert_eq!(client.response(id).status, 413);
    let id = client.request("PUT", "/up/z", &[("content-length", "10")], b"short");
    let response = client.response(id);
    assert!(response.reset.is_some() || response.status == 400, "{response:?}");
    assert!(!server.tree().path("root/up/z").exists());
    assert_eq!(client.get("/none").status, 404);
}

#[test]
fn many_bodies_at_once_are_passed_on() {
    // Q1, M5, U1: bodies of many streams that arrive together, with and without a length, some piece by piece.
    if !can_make_certificates() {
        return;
    }
    let behind = format!("127.0.0.1:{}", free_port());
    let config = site(&format!("location / {{ proxy_pass http://{behind}; }}")).replace(
        "http {",
        &format!(
            "http {{ server {{ listen {behind}; location / {{ return 200 $content_length; }} }}"
        ),
    );
    let server = serve(Tree::new(), &config);
    let body = pattern(5000);
    for (fields, pieces) in [(&[("content-length", "5000")][..], 1), (&[], 1), (&[], 5)] {
        let mut client = Client::connect(server.address(), "a.test");
        let ids: Vec<_> = (0..50).map(|_| client.head("POST", "/x", fields)).collect();
        for piece in body.chunks(5000 / pieces) {
            for id in &ids {
                client.data(*id, piece);
            }
        }
        for id in &ids {
            client.finish(*id);
        }
        for id in ids {
            let response = client.response(id);
            assert_eq!((response.status, &response.body[..]), (200, &b"5000"[..]));
        }
    }
}

#[test]
fn tcp_responses_announce_http3() {
    if !can_make_certificates() || !have("curl") {
        return;
    }
    let tree = Tree::new();
    tree.file("root/x", "x");
    let server =
        serve(tree, &site("location /own { add_header Alt-Svc 'h3=\":1\"'; return 200 own; }"));
    let alt_svc = |path: &str| {
        let url = format!("https://{}{path}", server.address());
        let output = Command::new("curl").args(["-sik", &url]).output().expect("curl runs");
        let text = String::from_utf8_lossy(&output.stdout).to_lowercase();
        text.lines().filter(|it| it.starts_with("alt-svc")).map(str::to_owned).collect::<Vec<_>>()
    };
    let port = server.address().port();
    assert_eq!(alt_svc("/x"), [format!("alt-svc: h3=\":{port}\"; ma=86400")]);
    assert_eq!(alt_svc("/own"), ["alt-svc: h3=\":1\""]);
    let mut client = Client::connect(server.address(), "a.test");
    assert_eq!(client.get("/x").field("alt-svc"), None);
}

#[test]
fn the_name_chooses_the_server() {
    // S1: settings of TLS are those of the name, over QUIC as over TCP.
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "b.test", "30");
    let other = "server { listen 127.0.0.1:{port} quic; server_name b.test; root {root};\n\
         ssl_certificate {dir}/b.test.pem; ssl_certificate_key {dir}/b.test.key; return 200 b; }\n\
         server { listen 127.0.0.1:{port} quic; server_name c.test; ssl_reject_handshake on; }";
    let config = site("return 200 a;").replace("}\n}\n", &format!("}}\n{other}\n}}\n"));
    let server = serve(tree, &config);
    for (name, expected) in [("a.test", "a"), ("b.test", "b"), ("unknown.test", "a")] {
        let mut client = Client::connect(server.address(), name);
        assert_eq!(client.get("/").body, expected.as_bytes(), "{name}");
    }
    let mut refused = Client::begin(server.address(), "c.test");
    refused.until("a refusal", |client| client.lost.is_some());
    let why = format!("{:?}", refused.lost);
    // `unrecognized_name`, which is 112.
    assert!(why.contains("crypto(70)"), "{why}");
}

#[test]
fn a_reload_cuts_no_connection() {
    // Q2, O3: also where the workers are replaced, since another root changes the places of the sandbox.
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.file("root/large.bin", pattern(3_000_000));
    tree.file("other/x", "other");
    let slow = "location /slow { limit_rate 1m; alias {root}/large.bin; }";
    let server = serve(tree, &site(slow));
    let mut client = Client::connect(server.address(), "a.test");
    let download = client.request("GET", "/slow", &[], &[]);
    client.until("the beginning", |client| !client.so_far(download).body.is_empty());
    let other = format!("{slow} location /other/ {{ root {{dir}}; }}");
    server.rewrite_config(&site(&other));
    server.signal(Signal::HUP);
    eventually("the new configuration serves", LONG, || {
        Client::connect(server.address(), "a.test").get("/other/x").body == b"other"
    });
    // Requests of the old connection go on, in the configuration that its worker has.
    let small = client.request("GET", "/none", &[], &[]);
    assert_eq!(client.response(small).status, 404);
    let whole = client.response(download);
    assert!(whole.is_complete && whole.body == pattern(3_000_000), "{}", whole.body.len());
}

#[test]
fn a_graceful_stop_ends_requests_first() {
    // Q5, O4
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.file("root/large.bin", pattern(2_000_000));
    let mut server = serve(tree, &site("limit_rate 1m;"));
    let mut client = Client::connect(server.address(), "a.test");
    let mut idle = Client::connect(server.address(), "a.test");
    assert_eq!(idle.get("/none").status, 404);
    let download = client.request("GET", "/large.bin", &[], &[]);
    client.until("the beginning", |client| !client.so_far(download).body.is_empty());
    server.quit();
    client.until("GOAWAY", |client| client.control.iter().any(|(kind, _)| *kind == 7));
    let whole = client.response(download);
    assert!(whole.is_complete && whole.body.len() == 2_000_000, "{}", whole.body.len());
    for client in [&mut client, &mut idle] {
        client.until("the end", |client| client.lost.is_some());
        let why = format!("{:?}", client.lost);
        assert!(why.contains("ApplicationClosed"), "{why}");
    }
    assert!(server.wait_exit(LONG).success());
}

#[test]
fn deadlines_are_seen_by_the_peer() {
    // T4, Q4: none early, each within 50 ms in one of five tries.
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.folder("root/up");
    tree.file("root/large.bin", pattern(5_000_000));
    let server = serve(
        tree,
        &site(
            "client_header_timeout 900ms; keepalive_timeout 900ms; client_body_timeout 900ms;\n\
               send_timeout 900ms; location /up { dav_methods PUT; }",
        ),
    );
    let rows: [Row; 4] = [
        ("no request after the handshake: close", |server| {
            let clock = Stopwatch::start();
            let mut client = Client::connect(server.address(), "a.test");
            client.until("the end", |client| client.lost.is_some());
            clock.elapsed()
        }),
        ("idle: close", |server| {
            let mut client = Client::connect(server.address(), "a.test");
            assert_eq!(client.get("/none").status, 404);
            let clock = Stopwatch::start();
            client.until("the end", |client| client.lost.is_some());
            clock.elapsed()
        }),
        ("body: 408", |server| {
            let mut client = Client::connect(server.address(), "a.test");
            let id = client.head("PUT", "/up/x", &[("content-length", "10")]);
            client.data(id, b"half");
            let clock = Stopwatch::start();
            client.until("408", |client| client.so_far(id).status == 408);
            clock.elapsed()
        }),
        ("response that is not read: reset", |server| {
            let mut client = Client::connect(server.address(), "a.test");
            client.reads_nothing = true;
            let id = client.request("GET", "/large.bin", &[], &[]);
            let (mut clock, mut frames) = (Stopwatch::start(), 0);
            let mut earlier = Stopwatch::start();
            let resets = |client: &Client| client.connection.stats().frame_rx.reset_stream;
            let begun = Stopwatch::start();
            while resets(&client) == 0 && begun.elapsed() < LONG {
                let before = Stopwatch::start();
                client.turn(Duration::from_millis(5));
                let came = client.connection.stats().frame_rx.stream;
                // It may have waited for this process since the turn before.
                let earlier = std::mem::replace(&mut earlier, before);
                if came != frames {
                    (clock, frames) = (earlier, came);
                }
            }
            let seen = clock.elapsed();
            client.read_now(id);
            let response = client.so_far(id);
            assert!(response.reset.is_some() && !response.is_complete, "{:?}", response.reset);
            seen
        }),
    ];
    for (what, measure) in rows {
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let seen = measure(&server);
            // The client's clock starts a moment after the server's.
            assert!(seen + Duration::from_millis(15) >= TIME, "{what}: early, {seen:?}");
            best = best.min(seen);
            if best <= TIME + LATE_MAX {
                break;
            }
        }
        println!("{what}: {best:?}");
        assert!(best <= TIME + LATE_MAX, "{what}: {best:?}");
    }
}

#[test]
fn a_client_that_changes_its_port_goes_on() {
    // Q3: NAT rebinding.
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.file("root/large.bin", pattern(2_000_000));
    let config = site("").replace("worker_processes 1", "worker_processes 2");
    let server = serve(tree, &config);
    let mut client = Client::connect(server.address(), "a.test");
    for _ in 0..5 {
        let download = client.request("GET", "/large.bin", &[], &[]);
        client.until("the beginning", |client| !client.so_far(download).body.is_empty());
        client.rebind();
        let whole = client.response(download);
        assert!(whole.is_complete && whole.body == pattern(2_000_000), "{}", whole.body.len());
    }
}

#[test]
fn retry_proves_addresses() {
    // Q3
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.file("root/x", "x");
    let server = serve(tree, &site("quic_retry on;"));
    let mut client = Client::connect(server.address(), "a.test");
    assert_eq!(client.get("/x").body, b"x");
}

#[test]
fn a_lost_client_ends_its_program() {
    // C6 over HTTP/3: a reset of the stream, and the end of the connection.
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.script("root/cgi/sleep", "#!/bin/sh\necho $$ > \"$0.pid\"\nexec sleep 600\n");
    let server = serve(tree, &site("location /cgi/ { cgi on; }"));
    let pid = server.tree().path("root/cgi/sleep.pid");
    let is_gone = |id: &str| !std::path::Path::new(&format!("/proc/{id}")).exists();
    for ends_connection in [false, true] {
        let _ = std::fs::remove_file(&pid);
        let mut client = Client::connect(server.address(), "a.test");
        let id = client.request("GET", "/cgi/sleep", &[], &[]);
        client.until("the program", |_| {
            std::fs::read_to_string(&pid).is_ok_and(|it| it.ends_with('\n'))
        });
        let program = std::fs::read_to_string(&pid).expect("a number").trim().to_owned();
        if ends_connection {
            client.close();
        } else {
            client
                .connection
                .recv_stream(id)
                .stop(quinn_proto::VarInt::from_u32(0x10c))
                .expect("open");
            client.turn(Duration::ZERO);
        }
        eventually("the program is gone", LONG, || {
            client.turn(Duration::from_millis(5));
            is_gone(&program)
        });
    }
}

#[test]
fn a_foreign_client_downloads() {
    // Q1: ngtcp2's client.
    if !can_make_certificates() || !have("gtlsclient") {
        return;
    }
    let tree = Tree::new();
    let large = pattern(5_000_000);
    tree.file("root/large.bin", &large);
    tree.folder("got");
    let server = serve(tree, &site(""));
    let (host, port) = ("127.0.0.1", server.address().port().to_string());
    let uri = format!("https://a.test:{port}/large.bin");
    let got = server.tree().path("got");
    let status = Command::new("timeout")
        .args(["60", "gtlsclient", "-q", "--exit-on-all-streams-close", "--download"])
        .arg(&got)
        .args([host, &port, &uri])
        .status()
        .expect("it runs");
    assert!(status.success());
    assert_eq!(std::fs::read(got.join("large.bin")).expect("a file"), large);
}

#[test]
fn a_binary_upgrade_cuts_no_connection() {
    // Q2, O4: with one process after the other, with and without a parent.
    if !can_make_certificates() {
        return;
    }
    for main in ["", "master_process on;\n"] {
        let tree = Tree::new();
        tree.file("root/large.bin", pattern(1_000_000));
        tree.folder("root/up");
        let slow = "location /slow { limit_rate 500k; alias {root}/large.bin; }\n\
             location /pid { return 200 $pid; } location /up { dav_methods PUT; client_max_body_size 10m; }";
        let config = site(slow).replace("worker_processes 1", "worker_processes 2");
        let mut server = serve(tree, &format!("{main}pid {{dir}}/server.pid;\n{config}"));
        let current = ByPidFile::new(server.tree().path("server.pid"));
        let mut clients = Vec::new();
        for round in 0..3 {
            let mut client = Client::connect(server.address(), "a.test");
            let pid = client.get("/pid").body;
            let download = client.request("GET", "/slow", &[], &[]);
            let upload = client.head("PUT", &format!("/up/{round}"), &[]);
            client.data(upload, &pattern(100_000));
            client.until("the beginning", |client| !client.so_far(download).body.is_empty());
            current.signal(Signal::USR2);
            eventually("new connections reach the new process", LONG, || {
                let mut next = Client::connect(server.address(), "a.test");
                let reached = next.get("/pid").body;
                next.close();
                reached != pid
            });
            clients.push((client, download, upload));
        }
        for (round, (client, download, upload)) in clients.iter_mut().enumerate() {
            // It takes more than the window, so that datagrams go in both directions.
            client.data(*upload, &pattern(700_000));
            client.finish(*upload);
            assert_eq!(client.response(*upload).status, 201, "{main}: {round}");
            let whole = client.response(*download);
            let is_whole = whole.is_complete && whole.body == pattern(1_000_000);
            assert!(is_whole, "{main}: {round}: {} bytes, {:?}", whole.body.len(), client.lost);
            client.until("the end", |client| client.lost.is_some());
            let why = format!("{:?}", client.lost);
            assert!(why.contains("ApplicationClosed"), "{main}: {round}: {why}");
        }
        assert_eq!(server.wait_exit(LONG).code(), Some(0), "{main}");
        current.signal(Signal::QUIT);
        eventually("the end", LONG, || current.pid().is_none());
    }
}

#[test]
fn serve_https_speaks_http3() {
    if !can_make_certificates() || !have("curl") {
        return;
    }
    let (tree, data) = (Tree::new(), Tree::new());
    tree.file("root/index.html", "by HTTP/3");
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listen = address.to_string();
    let process = Process::start_with(
        tree,
        &["serve", "--https", "root", "--listen", &listen, "-q"],
        &[("XDG_DATA_HOME", data.dir())],
    );
    eventually("it says where it is", LONG, || {
        process.tree().text("stdout").contains(&format!("on https://{listen}/"))
    });
    let output = Command::new("curl").args(["-sik", &format!("https://{listen}/")]).output();
    let text = String::from_utf8_lossy(&output.expect("curl runs").stdout).to_lowercase();
    assert!(text.contains(&format!("alt-svc: h3=\":{}\"", address.port())), "{text}");
    let mut client = Client::connect(address, "localhost");
    assert_eq!(client.get("/").body, b"by HTTP/3");
    let mut other = Client::connect(address, "other.test");
    assert_eq!(other.get("/").status, 421);
}
