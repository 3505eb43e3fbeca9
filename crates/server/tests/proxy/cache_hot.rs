//! Hits from memory (U5): a hot entry is given without a look into its file, and is given no longer than it may.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sekisho_testkit::{Client, Response, Server, Tree, eventually, run};

use crate::backend::Backend;
use crate::cache::{cached, status};
use crate::common::{BINARY, LONG, http, pattern};

/// Longer than everything else that a request makes the server read from files.
const BYTES: usize = 50_000;

/// Bytes that the server has read from files.
fn file_bytes_read(server: &Server) -> usize {
    let io = std::fs::read_to_string(format!("/proc/{}/io", server.id())).expect("our process");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.expect("a count").parse().expect("a number")
}

/// Asks until the entry is given from memory.
fn heat(server: &Server, client: &mut Client, target: &str, fields: &str) -> Response {
    let mut last = None;
    eventually("it is hot", LONG, || {
        let before = file_bytes_read(server);
        let response = client.request("GET", target, fields);
        let read = file_bytes_read(server) - before;
        let is_hot = status(&response) == "HIT" && read < BYTES;
        last = Some(response);
        is_hot
    });
    last.expect("there was one")
}

/// A server whose responses begin with their number, then with the value of `X-Kind`.
fn numbered(fields: &'static str) -> Backend {
    let count = AtomicUsize::new(0);
    Backend::start(move |connection| {
        while let Some(head) = connection.request() {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            let kind = head.lines().find_map(|line| line.strip_prefix("X-Kind: ")).unwrap_or("-");
            let mut body = format!("{number} {kind} ").into_bytes();
            body.extend(pattern(BYTES));
            connection.answer("200 OK", fields, body);
        }
    })
}

fn start(response: &Response) -> String {
    let words: Vec<_> = response.body.splitn(3, |byte| *byte == b' ').take(2).collect();
    String::from_utf8_lossy(&words.join(&b' ')).into_owned()
}

/// Many hits do not read the file, and are whole; conditions, ranges and HEAD are those of the entry.
#[test]
fn a_hot_entry_is_given_without_a_look_into_its_file() {
    let backend = numbered("Cache-Control: max-age=600\r\nETag: \"e\"\r\nLocation: /x\r\n");
    let to = backend.address();
    let server = cached("", &format!("location / {{ proxy_pass http://{to}; }}"));
    let mut client = server.connect();
    let first = heat(&server, &mut client, "/a", "");
    let before = file_bytes_read(&server);
    for _ in 0..100 {
        let hit = client.get("/a");
        assert_eq!((status(&hit), hit.body == first.body), ("HIT", true));
        assert_eq!(hit.field("location"), first.field("location"));
    }
    assert!(file_bytes_read(&server) - before < 10 * BYTES);
    assert_eq!(client.request("GET", "/a", "If-None-Match: \"e\"\r\n").status, 304);
    let part = client.request("GET", "/a", "Range: bytes=0-2\r\n");
    assert_eq!((part.status, &*part.body), (206, &b"1 -"[..]));
    client.send("HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = client.read_head_response();
    let length = first.body.len().to_string();
    assert_eq!((status(&head), head.field("content-length")), ("HIT", Some(&*length)));
    assert_eq!(backend.heads().len(), 1);
}

/// A purge, an update and a deletion by hand hold for what is hot, for every worker.
#[test]
fn a_hot_entry_goes_with_its_file() {
    let backend = numbered("Cache-Control: max-age=600\r\n");
    let config = http(&format!(
        "proxy_cache_path {{dir}}/cache keys_zone=one:1m;
         server {{ listen 127.0.0.1:{{port}} reuseport; proxy_cache one; proxy_cache_key $uri;
             add_header X-Cache $upstream_cache_status always; keepalive_requests 1000000;
             location / {{ proxy_pass http://{}; proxy_cache_bypass $arg_fresh; }} }}",
        backend.address()
    ));
    let config = config.replace("worker_processes 1;", "worker_processes 2;");
    let server = Server::start_in(Tree::new(), BINARY, &config);
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for change in ["purge", "update", "delete"] {
        let before = clients.iter_mut().map(|client| heat(&server, client, "/a", "")).last();
        let before = start(&before.expect("a client"));
        match change {
            "purge" => {
                let pid = server.id().to_string();
                let done = run(BINARY, &["ctl", "--pid", &pid, "cache", "purge", "/a"], LONG);
                assert_eq!(&*done.stdout, "1 entries deleted\n", "{}", done.stderr);
            }
            "update" => {
                let fresh = clients[0].get("/a?fresh=1");
                eventually("it is stored", LONG, || {
                    let now = clients[1].get("/a");
                    status(&now) == "HIT" && now.body == fresh.body
                });
            }
            _ => std::fs::remove_dir_all(server.tree().path("cache")).expect("it is there"),
        }
        for client in &mut clients {
            assert_ne!(start(&client.get("/a")), before, "{change}");
        }
    }
}

/// Each variant is hot by itself.
#[test]
fn hot_variants_are_told_apart() {
    let backend = numbered("Cache-Control: max-age=600\r\nVary: X-Kind\r\n");
    let to = backend.address();
    let server = cached("", &format!("location / {{ proxy_pass http://{to}; }}"));
    let mut client = server.connect();
    for _ in 0..2 {
        for (number, kind) in ["a", "b", "c"].into_iter().enumerate() {
            let hit = heat(&server, &mut client, "/", &format!("X-Kind: {kind}\r\n"));
            assert_eq!(start(&hit), format!("{} {kind}", number + 1));
        }
    }
    assert_eq!(status(&client.request("GET", "/", "X-Kind: d\r\n")), "MISS");
}

/// An expired entry is fetched, or served as `proxy_cache_use_stale` says.
#[test]
fn a_hot_entry_expires() {
    let is_down = Arc::new(Mutex::new(false));
    let flag = Arc::clone(&is_down);
    let backend = Backend::start(move |connection| {
        while connection.request().is_some() {
            if *flag.lock().expect("no panic") {
                return connection.close();
            }
            connection.answer("200 OK", "Cache-Control: max-age=2\r\n", pattern(BYTES));
        }
    });
    let to = backend.address();
    let server = cached(
        "",
        &format!("location / {{ proxy_pass http://{to}; proxy_cache_use_stale error; }}"),
    );
    let mut client = server.connect();
    heat(&server, &mut client, "/a", "");
    let expired = crate::cache::until(&mut client, "/a", "EXPIRED");
    assert!(expired.body == pattern(BYTES));
    heat(&server, &mut client, "/a", "");
    *is_down.lock().expect("no panic") = true;
    let stale = crate::cache::until(&mut client, "/a", "STALE");
    assert!(stale.body == pattern(BYTES));
}
