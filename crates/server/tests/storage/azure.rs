//! What only Azure has: tokens, blocks that belong to an object and not to an upload, and copies that take time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sekisho_testkit::{Server, Tree, eventually, pause};

use crate::common::{BINARY, LONG, http, pattern};
use crate::odd::{asked, odd_store};
use crate::store::{Kind, Store};

const MIB: usize = 1 << 20;

fn config(store: &Store, more: &str) -> String {
    let block = store.block("s", &format!("part_size 5m; {more}"));
    format!(
        "proxy_cache_path {{dir}}/cache keys_zone=one:1m; {block}
         server {{ listen 127.0.0.1:{{port}}; root storage:s; client_max_body_size 1g;
             dav_methods PUT DELETE COPY MOVE; autoindex on; index none;
             location /up {{ upload_store storage:s/in; upload_resumable on; upload_resumable_expires 6s; }} }}"
    )
}

#[test]
fn a_token_does_what_a_key_does_and_is_shown_nowhere() {
    let Some(mut store) = Store::start(Kind::Azure) else { return };
    let tree = Tree::new();
    let token = store.ask("{\"do\": \"token\"}").trim_matches('"').to_owned();
    tree.file("keys", format!("azure_storage_sas_token = ?{token}\n"));
    let server = Server::start_in(tree, BINARY, &http(&config(&store, "cache one 1s;")));
    let large = pattern(6 * MIB);
    for (target, body) in [("/a.txt", &b"small"[..]), ("/large", &large)] {
        let put = server.connect().request_with_body("PUT", target, "", body);
        assert_eq!(put.status, 201, "{}", server.log("error.log"));
        let given = server.connect().get(target);
        assert_eq!((given.status, given.body == body), (200, true));
    }
    let copy = server.connect().request("COPY", "/a.txt", "Destination: /b.txt\r\n");
    assert_eq!(copy.status, 201, "{}", server.log("error.log"));
    assert!(server.connect().get("/").text().contains("b.txt"));
    assert_eq!(server.connect().request("DELETE", "/a.txt", "").status, 204);
    assert_eq!(store.keys(), "[\"pre/b.txt\", \"pre/large\"]");
    // The store is away, and one of its answers is a refusal.
    drop(store);
    assert_eq!(server.connect().get("/other").status, 502);
    let log = server.log("error.log");
    assert!(log.contains("Connection refused") && log.contains("/sekishotest/bucket/pre/other?"));
    assert!(!log.contains("sig="), "{log}");
}

/// Blocks go with whatever is completed first: an upload that lost its blocks does not become an object.
#[test]
fn of_two_uploads_of_one_object_the_one_that_is_acknowledged_stays() {
    let Some(mut store) = Store::start(Kind::Azure) else { return };
    let server = store.serve(&config(&store, ""));
    let mut slow = server.connect();
    slow.send(format!("PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 12 * MIB));
    slow.send(pattern(11 * MIB));
    eventually("parts have come", LONG, || store.ask("{\"do\": \"uploads\"}").contains("pre/x"));
    let quick = server.connect().request_with_body("PUT", "/x", "", pattern(7 * MIB));
    assert_eq!(quick.status, 201, "{}", server.log("error.log"));
    let refused = slow.send(pattern(MIB)).read_response();
    assert_eq!(refused.status, 409, "{}", server.log("error.log"));
    assert_eq!(server.connect().get("/x").body.len(), 7 * MIB);
}

/// Azure does not say when a block came.
#[test]
fn an_upload_that_goes_on_does_not_expire() {
    let Some(store) = Store::start(Kind::Azure) else { return };
    let server = store.serve(&config(&store, ""));
    let length = 15 * MIB;
    let fields =
        format!("Tus-Resumable: 1.0.0\r\nUpload-Length: {length}\r\nContent-Length: 0\r\n");
    let created = server.connect().request("POST", "/up", &fields);
    let target = created.field("location").expect("its address").to_owned();
    let offset = || {
        let mut client = server.connect();
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: x\r\nTus-Resumable: 1.0.0\r\n\r\n"));
        let told = client.read_head_response();
        (told.status, told.field("upload-offset").and_then(|it| it.parse().ok()))
    };
    pause(Duration::from_millis(3500));
    // The client goes: two parts have come, and nothing else says so.
    let mut client = server.connect();
    client.send(format!(
        "PATCH {target} HTTP/1.1\r\nHost: x\r\nTus-Resumable: 1.0.0\r\nContent-Length: {length}\r\n\
         Content-Type: application/offset+octet-stream\r\nUpload-Offset: 0\r\n\r\n"
    ));
    client.send(pattern(11 * MIB));
    eventually("two parts have come", LONG, || offset() == (200, Some(10 * MIB)));
    drop(client);
    pause(Duration::from_millis(3500));
    assert_eq!(offset(), (200, Some(10 * MIB)), "{}", server.log("error.log"));
    eventually("its end", LONG, || offset().0 == 410);
    assert_eq!(offset().0, 404, "nothing of it is left");
}

/// Copies that were asked for, and how often their state was.
static LOOKS: AtomicU32 = AtomicU32::new(0);

#[expect(clippy::unnecessary_wraps, reason = "the shape of every odd store")]
fn copies_slowly(method: &str, target: &str, _: &str) -> Option<String> {
    let copy = |status: &str| format!("x-ms-copy-status: {status}\r\n");
    let state = match (method, target.ends_with("/to"), target.ends_with("/bad")) {
        ("put", _, _) => copy("pending"),
        ("head", true, _) => match LOOKS.fetch_add(1, Ordering::Relaxed) {
            0 => return Some("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()),
            1 | 2 => copy("pending"),
            _ => copy("success"),
        },
        ("head", _, true) => copy("failed"),
        _ => String::new(),
    };
    let status = if method == "put" { "202 Accepted" } else { "200 OK" };
    Some(format!("HTTP/1.1 {status}\r\n{state}Content-Length: 0\r\n\r\n"))
}

#[test]
fn a_copy_that_takes_time_is_waited_for() {
    let (port, seen) = odd_store(copies_slowly);
    let config = http(&format!(
        "storage s {{ url az://bucket/pre; endpoint http://127.0.0.1:{port}; }}
         server {{ listen 127.0.0.1:{{port}}; root storage:s; dav_methods COPY MOVE DELETE; }}"
    ));
    let server = Server::start(BINARY, &config);
    let to = |name: &str| format!("Destination: /{name}\r\n");
    assert_eq!(server.connect().request("MOVE", "/from", &to("to")).status, 201);
    let heads = asked(&seen, " head ");
    assert_eq!(heads.iter().filter(|it| it.ends_with("/to")).count(), 4, "{heads:?}");
    assert_eq!(asked(&seen, " delete ").len(), 1, "only when the copy is there");
    assert_eq!(server.connect().request("MOVE", "/from", &to("bad")).status, 502);
    assert_eq!(asked(&seen, " delete ").len(), 1);
    assert!(server.log("error.log").contains("500 failed"));
}
