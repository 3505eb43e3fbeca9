//! Which server: the same groups as in `http`, with another one tried where a connection cannot be made.

use std::net::TcpListener;

use sekisho_testkit::{Client, eventually};

use crate::common::LONG;
use crate::{Backend, serve};

fn greeting(address: std::net::SocketAddr) -> String {
    let mut client = Client::connect(address);
    String::from_utf8(client.read_bytes(1)).expect("text")
}

#[test]
fn connections_go_to_the_servers_in_turn_and_past_those_that_are_gone() {
    let (a, b) = (Backend::echo("a"), Backend::echo("b"));
    // A port that nobody listens on.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let gone = listener.local_addr().expect("it has an address");
    drop(listener);
    let server = serve(&format!(
        "upstream all {{ server {0}; server {1}; }}
         upstream with_gone {{ server {2} max_fails=1 fail_timeout=1h; server {0}; }}
         upstream one {{ server {2}; server {1} backup; }}
         server {{ listen 127.0.0.1:{{port}}; proxy_pass all; }}
         server {{ listen 127.0.0.1:{{port2}}; proxy_pass with_gone; }}
         server {{ listen 127.0.0.1:{{port3}}; proxy_pass one; proxy_next_upstream off; }}",
        a.address, b.address, gone
    ));
    let said: String = (0..4).map(|_| greeting(server.address())).collect();
    assert!(said == "abab" || said == "baba", "{said}");
    let said: String = (0..4).map(|_| greeting(server.address_of(1))).collect();
    assert_eq!(said, "aaaa");
    let log = server.log("error.log");
    assert_eq!(log.matches("connect() failed (111: Connection refused)").count(), 1, "{log}");
    assert!(log.contains("upstream server temporarily disabled"), "{log}");
    assert_eq!(Client::connect(server.address_of(2)).read_to_close(), b"", "nobody else is tried");
    let tried = format!("TCP 200 0 1 {gone}, {}", a.address);
    eventually("both tries in the log", LONG, || server.log("access.log").contains(&tried));
    eventually("its status", LONG, || server.log("access.log").contains("TCP 502 0 0"));
}

/// The same keys go to the same servers as in `http`: one balancer for both.
#[test]
fn a_hash_keeps_a_key_at_one_server() {
    let (a, b) = (Backend::echo("a"), Backend::echo("b"));
    let server = serve(&format!(
        "upstream all {{ hash $remote_addr consistent; server {}; server {}; }}
         server {{ listen 127.0.0.1:{{port}}; proxy_pass all; }}",
        a.address, b.address
    ));
    let said: std::collections::HashSet<String> =
        (0..6).map(|_| greeting(server.address())).collect();
    assert_eq!(said.len(), 1, "{said:?}");
}
