//! PUT and DELETE: an upload that was acknowledged is there, one that was not leaves nothing.

use std::fmt::Write as _;
use std::time::Duration;

use sekisho_testkit::{Server, Signal, eventually};
use sha2::{Digest as _, Sha256};

use crate::common::{BINARY, LONG, http, pattern};
use crate::store::{Kind, Store};

for_each_store! {
    what_was_put_is_there_and_what_was_deleted_is_not,
    an_upload_that_is_not_completed_leaves_nothing,
}

const MIB: usize = 1 << 20;

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::from("\""), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    }) + "\""
}

fn writable(store: &Store, more: &str) -> Server {
    let block = store.block("s", &format!("part_size 5m; {more}"));
    store.serve(&format!(
        "proxy_cache_path {{dir}}/cache keys_zone=one:1m; {block}
         server {{ listen 127.0.0.1:{{port}}; root storage:s; client_max_body_size 1g;
             dav_methods PUT DELETE; upload_delete_directories recursive;
             location /kept/ {{ upload_conflict refuse; }}
             location /renamed/ {{ upload_conflict rename; }}
             location /safe/ {{ upload_delete_directories off; }} }}"
    ))
}

fn what_was_put_is_there_and_what_was_deleted_is_not(mut store: Store) {
    let server = writable(&store, "cache one 1m;");
    let put = |target: &str, fields: &str, body: &[u8]| {
        server.connect().request_with_body("PUT", target, fields, body)
    };
    let large = pattern(12 * MIB + 17);
    let exact = pattern(10 * MIB);
    for (target, body) in
        [("/a.txt", &b"small"[..]), ("/empty", b""), ("/d/large", &large), ("/d/exact", &exact)]
    {
        let created = put(target, "", body);
        assert_eq!(created.status, 201, "{target}: {}", server.log("error.log"));
        assert_eq!(created.field("location"), Some(target));
        let given = server.connect().get(target);
        assert_eq!((given.status, given.body.len()), (200, body.len()), "{target}");
        assert_eq!(created.field("etag"), given.field("etag"), "{target}");
        let key = format!("pre{target}");
        assert_eq!(
            store.ask(&format!("{{\"do\": \"sum\", \"key\": \"{key}\"}}")),
            sum(body),
            "{target}"
        );
    }
    assert_eq!(store.ask("{\"do\": \"type\", \"key\": \"pre/a.txt\"}"), "\"text/plain\"");
    // What is kept in the cache goes with the change.
    assert_eq!(put("/a.txt", "", b"replaced").status, 204);
    assert_eq!(server.connect().get("/a.txt").text(), "replaced");
    // A body of unknown length.
    let mut client = server.connect();
    client.send("PUT /chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in large.chunks(MIB) {
        client.send(format!("{:x}\r\n", piece.len())).send(piece).send("\r\n");
    }
    assert_eq!(client.send("0\r\n\r\n").read_response().status, 201);
    assert_eq!(store.ask("{\"do\": \"sum\", \"key\": \"pre/chunked\"}"), sum(&large));
    // Conditions.
    let tag = server.connect().get("/a.txt").field("etag").expect("a tag").to_owned();
    for (target, fields, status) in [
        ("/a.txt", "If-None-Match: *\r\n".to_owned(), 412),
        ("/a.txt", "If-Match: \"other\"\r\n".to_owned(), 412),
        ("/none", "If-Match: \"other\"\r\n".to_owned(), 412),
        ("/new", "If-None-Match: *\r\n".to_owned(), 201),
        ("/a.txt", format!("If-Match: {tag}\r\n"), 204),
        ("/kept/x", String::new(), 201),
        ("/kept/x", String::new(), 409),
        ("/renamed/x.txt", String::new(), 201),
        ("/renamed/x.txt", String::new(), 201),
        ("/folder/", String::new(), 409),
        ("/a.txt", "Content-Range: bytes 0-1/2\r\n".to_owned(), 501),
        ("/.sekisho-x", String::new(), 404),
    ] {
        let response = put(target, &fields, b"body");
        assert_eq!(response.status, status, "{target} {fields}: {}", server.log("error.log"));
    }
    let large_too = put("/new", "If-None-Match: *\r\n", &large);
    assert_eq!(large_too.status, 412);
    let keys = store.keys();
    assert!(
        keys.contains("pre/renamed/x.txt") && keys.matches("pre/renamed/").count() == 2,
        "{keys}"
    );
    assert!(!keys.contains("pre/none") && !keys.contains("sekisho"), "{keys}");
    for (target, fields, status) in [
        ("/nothing", "", 404),
        ("/a.txt", "If-Match: \"other\"\r\n", 412),
        ("/a.txt", "", 204),
        ("/a.txt", "", 404),
        ("/", "", 403),
        ("/safe/", "", 403),
        ("/none/", "", 404),
        ("/d/", "Depth: 0\r\n", 400),
        ("/d/", "If-Match: \"other\"\r\n", 412),
        ("/d/", "If-None-Match: *\r\n", 412),
        ("/d/", "Depth: infinity\r\nIf-Match: *\r\n", 204),
    ] {
        let response = server.connect().request("DELETE", target, fields);
        assert_eq!(response.status, status, "{target}: {}", server.log("error.log"));
    }
    assert_eq!(server.connect().get("/a.txt").status, 404, "nor is it in the cache");
    assert!(!store.keys().contains("pre/d/"));
    assert_eq!(store.ask("{\"do\": \"uploads\"}"), "[]");
}

/// Begins a large upload and sends so much of it that parts have left.
fn begin(server: &Server, store: &mut Store, target: &str) -> sekisho_testkit::Client {
    let mut client = server.connect();
    client
        .send(format!("PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 40 * MIB));
    client.send(pattern(11 * MIB));
    eventually("the upload has begun", LONG, || {
        store.ask("{\"do\": \"uploads\"}").contains(target)
    });
    client
}

fn an_upload_that_is_not_completed_leaves_nothing(mut store: Store) {
    let server = writable(&store, "");
    // The client goes.
    drop(begin(&server, &mut store, "/gone"));
    eventually("it is removed", LONG, || store.has_no_uploads());
    assert_eq!(store.keys(), "[]");
    // The store is another one in the middle: it knows nothing of the upload.
    let mut client = begin(&server, &mut store, "/lost");
    let (kind, port) = (store.kind, store.port);
    drop(store);
    let Some(mut store) = Store::start_at(kind, port) else { return };
    let _ = client.try_send(pattern(29 * MIB));
    let response = client.read_response();
    // For Azure it is as if another upload had been completed.
    let expected = if kind == Kind::Azure { 409 } else { 502 };
    assert!(matches!(response.status, 503) || response.status == expected, "{}", response.status);
    assert_eq!((store.keys().as_str(), store.has_no_uploads()), ("[]", true));
}

#[test]
fn what_a_killed_server_has_begun_is_swept() {
    let Some(mut store) = Store::start(Kind::S3) else { return };
    let mut server = writable(&store, "abandoned 1s;");
    let client = begin(&server, &mut store, "/killed");
    server.signal(Signal::KILL);
    server.wait_exit(LONG);
    drop(client);
    assert_eq!(store.keys(), "[]", "no object of an upload that was not complete");
    assert!(store.ask("{\"do\": \"uploads\"}").contains("killed"));
    sekisho_testkit::pause(Duration::from_millis(2100));
    let tree = store.tree();
    let block = store.block("s", "part_size 5m; abandoned 1s;");
    let config = http(&format!(
        "{block} server {{ listen 127.0.0.1:{{port}}; root storage:s; dav_methods PUT; client_max_body_size 1g; }}"
    ));
    let next = Server::start_in(tree, BINARY, &config);
    let put = next.connect().request_with_body("PUT", "/next", "", pattern(6 * MIB));
    assert_eq!(put.status, 201, "{}", next.log("error.log"));
    eventually("the abandoned upload is removed", LONG / 2, || {
        store.ask("{\"do\": \"uploads\"}") == "[]"
    });
    assert_eq!(store.keys(), "[\"pre/next\"]");
    assert!(next.log("error.log").contains("an abandoned upload of \"pre/killed\" was removed"));
}
