//! Slow clients on purpose: `slowhttptest` in its three modes. The others are served meanwhile, and the
//! attackers are gone after their deadline (V15). `SEKISHO_LONG=1` takes the full number.
#![forbid(unsafe_code)]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::{LONG, pattern, serve};
use sekisho_testkit::{Background, Server, Stopwatch, Tree, eventually, have, pause};

fn attackers() -> usize {
    if std::env::var_os("SEKISHO_LONG").is_some() { 4_000 } else { 500 }
}

fn start() -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    tree.file("root/big.bin", pattern(4 << 20));
    tree.script("root/cgi-bin/eat.cgi", "#!/bin/sh\necho\ncat >/dev/null\n");
    let body = "client_header_timeout 3s; client_body_timeout 3s; send_timeout 3s;\n\
                lingering_timeout 1s; keepalive_timeout 3s;\n\
                location /cgi-bin/ { cgi on; }";
    serve(tree, body)
}

fn attack(server: &Server, mode: &[&str], target: &str) -> Background {
    let count = attackers().to_string();
    let url = server.url(target);
    Background::start(
        Command::new("slowhttptest")
            .args(mode)
            .args(["-c", &count, "-r", "2000", "-i", "1", "-l", "8", "-u", &url])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    )
}

/// Asks again and again while the attack runs; all must be answered, and how long that took is printed.
fn serve_others(server: &Server, mode: &str) {
    let watch = Stopwatch::start();
    let mut times = Vec::new();
    while watch.elapsed() < Duration::from_secs(4) {
        let one = Stopwatch::start();
        assert_eq!(server.connect().get("/a.txt").status, 200);
        times.push(one.elapsed());
        pause(Duration::from_millis(5));
    }
    times.sort_unstable();
    let (count, part) = (times.len(), |percent| times[(times.len() - 1) * percent / 100]);
    let (half, most, all) = (part(50), part(99), part(100));
    println!("{mode}: {count} others answered, p50 {half:?}, p99 {most:?}, the slowest {all:?}");
    if std::env::var_os("SEKISHO_STRICT").is_some() {
        assert!(most < Duration::from_millis(5), "{mode}: p99 {most:?}");
    }
}

#[test]
fn slow_clients_hold_nobody_up_and_are_gone_after_their_deadline() {
    // T4, O5, V15
    if !have("slowhttptest") {
        println!("skipped: slowhttptest is not installed");
        return;
    }
    let server = start();
    // Once it has answered, everything that it opens for itself is open.
    assert_eq!(server.connect().get("/a.txt").status, 200);
    let base = server.fds();
    let modes: [(&str, &[&str], &str); 3] = [
        ("slow head", &["-H"], "/a.txt"),
        ("slow body", &["-B", "-s", "100000", "-t", "POST"], "/a.txt"),
        (
            "slow read",
            &["-X", "-w", "10", "-y", "20", "-n", "5", "-z", "32", "-k", "3"],
            "/big.bin",
        ),
    ];
    for (name, mode, target) in modes {
        let attack = attack(&server, mode, target);
        serve_others(&server, name);
        drop(attack);
        eventually("the attackers are gone", LONG, || server.fds() <= base + 4);
    }
    assert_eq!(server.connect().get("/a.txt").status, 200);
}

#[test]
fn many_short_connections_leave_nothing_behind() {
    // O5, L11
    let server = start();
    server.connect().get("/a.txt");
    let count = if std::env::var_os("SEKISHO_LONG").is_some() { 200_000 } else { 5_000 };
    let (fds, mut rss) = (server.fds(), 0);
    for index in 0..count {
        let response = server.connect().request("GET", "/a.txt", "Connection: close\r\n");
        assert_eq!(response.status, 200);
        if index == count / 5 {
            rss = server.rss_bytes();
        }
    }
    eventually("descriptors are back", LONG, || server.fds() <= fds);
    let grown = server.rss_bytes().saturating_sub(rss);
    println!("{count} connections: {grown} bytes more than after a fifth of them");
    assert!(grown < 2 << 20, "memory grew by {grown} bytes");
}
