//! What the server holds in memory, by kind.

use std::os::unix::net::UnixStream;

use sekisho_endpoint::ipc::BlockingStream;
use sekisho_endpoint::{Echo, blocking};
use sekisho_testkit::{Server, Tree, eventually};
use serde_json::Value;

use crate::common::{BINARY, LONG, http};
use crate::support::{ctl_ok, native};

fn memory(server: &Server) -> Value {
    serde_json::from_str(&ctl_ok(server, &["memory", "--json"])).expect("JSON")
}

/// How many there are of a kind, and how many bytes.
#[track_caller]
fn of(memory: &Value, kind: &str) -> (u64, u64) {
    let held = memory["held"].as_array().expect("a list");
    let held = held.iter().find(|held| held["kind"] == kind);
    let held = held.unwrap_or_else(|| panic!("{kind} in {memory:#}"));
    (held["count"].as_u64().expect("a number"), held["bytes"].as_u64().expect("a number"))
}

fn site() -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", vec![b'a'; 30_000]);
    tree.file("root/big.bin", vec![b'b'; 8 << 20]);
    let site = http(
        "open_file_cache max=100; open_file_cache_valid 60s;\n\
         server { listen 127.0.0.1:{port}; root {root}; access_log {dir}/access.log combined buffer=1m flush=1h; }",
    );
    let endpoint = "endpoint { listen unix:{dir}/s; listen unix:{dir}/ipc ipc; }\n";
    Server::start_in(tree, BINARY, &format!("{endpoint}{site}"))
}

#[test]
fn every_kind_of_memory_is_shown_as_it_grows() {
    // O7, E10
    let server = site();
    let before = memory(&server);
    assert_eq!(of(&before, "session records").0, 0);
    assert!(of(&before, "configuration").1 > 1000, "{before:#}");
    let mut clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a.txt").body.len(), 30_000);
    }
    // One sends half a head, and one does not take its answer.
    let mut half = server.connect();
    half.send("GET /a.txt HTTP/1.1\r\n");
    let mut slow = server.connect();
    slow.shrink_receive_buffer(4096);
    slow.send("GET /big.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    eventually("two of them have buffers", LONG, || of(&memory(&server), "buffers in use").0 == 2);
    let now = memory(&server);
    assert_eq!(of(&now, "session records").0, 52);
    assert_eq!(of(&now, "connections").0, 52);
    let (slots, tasks) = (of(&now, "session records").1, of(&now, "connections").1);
    assert!((52 * 64..52 * 2000).contains(&slots), "{now:#}");
    assert!((52 * 64..52 * 2000).contains(&tasks), "{now:#}");
    assert!(of(&now, "buffers in use").1 >= 2 * 16 * 1024, "{now:#}");
    let (entries, cached) = of(&now, "file cache");
    assert!(entries >= 1 && (30_000..100_000).contains(&cached), "{now:#}");
    assert_eq!(of(&now, "log buffers").0, 2, "the access log and the error log");
    let number = |name: &str| now[name].as_u64().unwrap_or_else(|| panic!("{name} in {now:#}"));
    assert!(number("resident_bytes") > 1 << 20);
    let held = now["held"].as_array().expect("a list").iter();
    let sum: u64 = held.map(|held| held["bytes"].as_u64().expect("a number")).sum();
    assert_eq!(number("sum_bytes"), sum);
    if cfg!(target_env = "gnu") {
        assert!(number("heap_bytes") >= sum, "{now:#}");
        assert_eq!(number("rest_bytes"), number("heap_bytes") - sum);
    }
    drop((clients, half, slow));
    eventually("all have gone", LONG, || of(&memory(&server), "session records").0 == 0);
    let after = memory(&server);
    assert_eq!(of(&after, "buffers in use"), (0, 0));
    assert!(of(&after, "buffers kept").1 >= 16 * 1024, "{after:#}");
}

#[test]
fn native_sessions_and_the_memory_they_share_are_shown() {
    // O7, E7
    let server = site();
    let nobody = memory(&server);
    assert_eq!(nobody["shared"]["bytes"], 0);
    let own = of(&nobody, "native sessions").0;
    assert_eq!(own, 1, "the asking client has a session");
    let mut plain = native(&server, "s", "plain");
    plain.call(Echo::NUMBER, b"x").expect("an echo");
    let socket = UnixStream::connect(server.tree().path("ipc")).expect("it listens");
    let stream = BlockingStream::connect(socket).expect("memory");
    let mut sharing = blocking::Client::connect(stream, "sharing").expect("admitted");
    sharing.call(Echo::NUMBER, b"x").expect("an echo");
    let now = memory(&server);
    assert_eq!(of(&now, "native sessions").0, own + 2);
    assert!(of(&now, "native sessions").1 > of(&nobody, "native sessions").1);
    assert!(now["shared"]["bytes"].as_u64().expect("a number") >= 4096, "{now:#}");
    let text = ctl_ok(&server, &["memory"]);
    for kind in ["session records", "file cache", "configuration", "shared memory", "resident"] {
        assert!(text.contains(kind), "{kind} in\n{text}");
    }
}

/// O7: and it is freed when the client goes.
#[test]
fn the_memory_of_a_large_upload_is_shown() {
    let site = http(
        "server { listen 127.0.0.1:{port}; root {root}; client_max_body_size 0; dav_methods PUT; }",
    );
    let server = Server::start(BINARY, &site);
    let mut client = server.connect();
    client.send("PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\nbegin");
    eventually("an upload", LONG, || of(&memory(&server), "buffers in use").0 == 1);
    let held = of(&memory(&server), "upload memory");
    if held.0 == 0 {
        println!("skipped: not on this file system");
        return;
    }
    assert!(held.0 == 1 && (1 << 20..2 << 20).contains(&held.1), "{held:?}");
    drop(client);
    eventually("none", LONG, || of(&memory(&server), "upload memory") == (0, 0));
}

/// E4, O7: the body of a request that `http` makes for a native session is held once, and shown.
#[test]
fn the_bodies_of_internal_requests_are_held_once_and_shown() {
    use prost::Message as _;
    use sekisho_endpoint::http::{NUMBER, Request};
    const BODIES: u64 = 24;
    const BYTES: u64 = 900_000;
    let site = http(
        "limit_req_zone $request_uri zone=one:1m rate=1r/m;
         server { listen 127.0.0.1:{port}; root {root}; client_max_body_size 0;
         location / { limit_req zone=one burst=100; dav_methods PUT; } }",
    );
    let endpoint = "endpoint { listen unix:{dir}/s; http_addresses 127.0.0.1:{port}; }\n";
    let server = Server::start_in(Tree::new(), BINARY, &format!("{endpoint}{site}"));
    let put = |body: Vec<u8>| {
        let (method, target) = ("PUT".to_owned(), "/a".to_owned());
        Request { method, target, body: body.into(), ..Request::default() }.encode_to_vec()
    };
    // The first one has the place of its minute; the others wait.
    let mut clients: Vec<_> = (0..4).map(|_| native(&server, "s", "putting")).collect();
    clients[0].call(NUMBER, &put(b"x".to_vec())).expect("the first one");
    let before = server.rss_bytes();
    let body = put(vec![b'x'; BYTES as usize]);
    let tickets: Vec<_> = (0..BODIES as usize)
        .map(|at| clients[at % 4].request(NUMBER, &body).expect("made"))
        .collect();
    for client in &mut clients {
        client.call(Echo::NUMBER, b"all is sent").expect("an echo");
    }
    eventually("they wait", LONG, || of(&memory(&server), "connections").0 == BODIES);
    let held = of(&memory(&server), "native sessions").1;
    assert!((BODIES * BYTES..BODIES * (BYTES + 200_000)).contains(&held), "{held} bytes are shown");
    let grown = server.rss_bytes().saturating_sub(before);
    assert!(grown < BODIES * BYTES * 3 / 2, "{grown} bytes for {BODIES} bodies of {BYTES}");
    drop((clients, tickets));
    eventually("all have gone", LONG, || of(&memory(&server), "native sessions").0 == 1);
}
