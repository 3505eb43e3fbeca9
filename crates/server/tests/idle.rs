//! What those who wait cost: an idle connection is a record, and nothing of it stays when it has gone.
#![forbid(unsafe_code)]

mod common;

use common::{BINARY, LONG, site};
use sekisho_testkit::{Client, Server, Tree, eventually};

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

/// A client that has had one answer.
fn asked(server: &Server) -> Client {
    let mut client = server.connect();
    assert_eq!(client.get("/a.txt").status, 200);
    client
}
