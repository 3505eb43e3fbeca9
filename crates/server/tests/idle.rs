//! What idle clients cost: an idle connection is a record, and nothing of it stays when it has gone.
#![forbid(unsafe_code)]

mod common;

use std::time::Duration;

use common::{BINARY, LONG, site};
use sekisho_testkit::{Client, Server, Stopwatch, Tree, eventually};

const CONNECTIONS: usize = 3000;
/// What one may hold, with all that comes with it.
const BYTES_MAX: usize = 1000;

#[test]
fn an_idle_connection_is_a_record_and_its_memory_is_given_back() {
    // O5
    let tree = Tree::new();
    tree.file("root/a.txt", "a small file");
    // The log's own buffers are not meant here.
    let config = site("keepalive_timeout 300s;").replace("error.log debug", "error.log crit");
    let server = Server::start_in(tree, BINARY, &config);
    // The pool of buffers, the file and its answer are there from the first requests on.
    drop((0..100).map(|_| asked(&server)).collect::<Vec<_>>());
    let before = server.rss_bytes();
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| asked(&server)).collect();
    let grown = server.rss_bytes().saturating_sub(before) as usize;
    println!("{} bytes for each of {CONNECTIONS} idle connections", grown / CONNECTIONS);
    assert!(grown <= CONNECTIONS * BYTES_MAX, "{grown} bytes");
    drop(clients);
    eventually("their memory is given back", LONG, || {
        server.rss_bytes().saturating_sub(before) as usize <= grown / 2
    });
}

/// O5: while every worker sleeps, the thread that watches them sleeps, too.
#[test]
fn an_idle_server_wakes_nobody() {
    let server = Server::start_in(Tree::new(), BINARY, &site(""));
    drop(asked_for_nothing(&server));
    let status = format!("/proc/{0}/task/{0}/status", server.id());
    let wakes = || {
        let text = std::fs::read_to_string(&status).expect("it runs");
        let line = text.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        line.expect("a count").to_owned()
    };
    let (mut last, mut since) = (wakes(), Stopwatch::start());
    eventually("the main thread is not woken for some seconds", LONG, || {
        let now = wakes();
        if now != last {
            (last, since) = (now, Stopwatch::start());
        }
        since.elapsed() > Duration::from_millis(2500)
    });
    // It still sees a worker that works.
    drop(asked_for_nothing(&server));
    eventually("a worker that wakes up is watched", LONG, || wakes() != last);
}

fn asked_for_nothing(server: &Server) -> Client {
    let mut client = server.connect();
    assert_eq!(client.get("/none").status, 404);
    client
}

/// A client that has had one answer.
fn asked(server: &Server) -> Client {
    let mut client = server.connect();
    assert_eq!(client.get("/a.txt").status, 200);
    client
}
