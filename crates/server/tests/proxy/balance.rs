//! Which server of a group is asked (U1); `crates/upstream` holds the algorithms to nginx's.

use sekisho_testkit::{Server, Tree};

use crate::backend::Backend;
use crate::common::{BINARY, http};

fn start(servers: &[Backend], method: &str, weights: &[&str]) -> Server {
    let lines: Vec<String> = servers
        .iter()
        .zip(weights)
        .map(|(backend, weight)| format!("server {} {weight};", backend.address()))
        .collect();
    let lines = lines.concat();
    let body = format!(
        "upstream back {{ zone back 64k; {method} {lines} }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://back; }} }}"
    );
    Server::start_in(Tree::new(), BINARY, &http(&body))
}

#[test]
fn servers_take_turns_by_weight_and_key() {
    let servers = [Backend::saying("a"), Backend::saying("b"), Backend::saying("c")];
    let asked = |server: &Server, targets: &[&str]| -> String {
        let mut client = server.connect();
        targets.iter().map(|target| client.get(target).text()).collect()
    };
    let same = ["/"; 8];
    let server = start(&servers, "", &["weight=5", "", ""]);
    assert_eq!(asked(&server, &same[..7]), "aabacaa");
    let server = start(&servers, "", &["down", "", "backup"]);
    assert_eq!(asked(&server, &same[..3]), "bbb");
    let server = start(&servers, "hash $request_uri consistent;", &["", "", ""]);
    let keys = ["/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8"];
    let first = asked(&server, &keys);
    assert_eq!(first, asked(&server, &keys), "a key has its server");
    assert!(first.contains('a') || first.contains('b'), "{first}");
    let server = start(&servers, "ip_hash;", &["", "", ""]);
    let one = asked(&server, &same);
    assert!(one.chars().all(|server| one.starts_with(server)), "{one}");
    let server = start(&servers, "least_conn;", &["", "", ""]);
    assert_eq!(asked(&server, &same[..3]), "abc");
    let server = start(&servers, "random two least_conn;", &["", "", ""]);
    assert_eq!(asked(&server, &same).len(), 8);
}

/// The address is that of the client, not of the balancer before us.
#[test]
fn ip_hash_goes_by_the_real_address() {
    let (one, two) = (Backend::saying("one"), Backend::saying("two"));
    let body = format!(
        "upstream back {{ ip_hash; server {}; server {}; }}
         server {{ listen 127.0.0.1:{{port}}; set_real_ip_from 127.0.0.1;
           location / {{ proxy_pass http://back; }} }}",
        one.address(),
        two.address()
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let asked = |client: u8| {
        let real = format!("X-Real-IP: 10.0.{client}.1\r\n");
        server.connect().request("GET", "/", &real).text()
    };
    let first: Vec<String> = (1..20).map(asked).collect();
    assert!(first.contains(&"one".to_owned()) && first.contains(&"two".to_owned()), "{first:?}");
    assert_eq!(first, (1..20).map(asked).collect::<Vec<_>>());
}

/// A reload keeps connections to servers that stay, and takes others in.
#[test]
fn a_reload_changes_the_group() {
    let (one, two) = (Backend::saying("one"), Backend::saying("two"));
    let body = |backend: &Backend| {
        http(&format!(
            "upstream back {{ server {}; }}
             server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://back; }} }}",
            backend.address()
        ))
    };
    let server = Server::start_in(Tree::new(), BINARY, &body(&one));
    assert_eq!(server.connect().get("/").text(), "one");
    server.rewrite_config(&body(&two));
    server.signal(sekisho_testkit::Signal::HUP);
    sekisho_testkit::eventually("the other server", crate::common::LONG, || {
        server.connect().get("/").text() == "two"
    });
}
