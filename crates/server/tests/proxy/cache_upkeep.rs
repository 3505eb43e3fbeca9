//! What operators and the disk ask of a cache: a purge, room, and several workers with one folder.

use std::sync::atomic::{AtomicUsize, Ordering};

use sekisho_testkit::{Finished, Server, Tree, eventually, run};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, http};

fn counting() -> Backend {
    let count = AtomicUsize::new(0);
    Backend::start(move |connection| {
        while let Some(head) = connection.request() {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            let vary = if head.contains("/vary") { "Vary: X-Kind\r\n" } else { "" };
            let fields = format!("Cache-Control: max-age=600\r\n{vary}");
            connection.answer("200 OK", &fields, format!("answer {number}"));
        }
    })
}

fn cached(backend: &Backend, path: &str, workers: usize) -> Server {
    let config = http(&format!(
        "proxy_cache_path {{dir}}/cache levels=1:2 keys_zone=one:1m {path};
         server {{ listen 127.0.0.1:{{port}} reuseport; proxy_cache one; proxy_cache_key $uri;
         add_header X-Cache $upstream_cache_status always; location / {{ proxy_pass http://{}; }} }}",
        backend.address()
    ));
    let config = config.replace("worker_processes 1;", &format!("worker_processes {workers};"));
    Server::start_in(Tree::new(), BINARY, &config)
}

fn get(server: &Server, target: &str, fields: &str) -> (String, String) {
    let response = server.connect().request("GET", target, fields);
    (response.field("x-cache").unwrap_or_default().to_owned(), response.text())
}

#[track_caller]
fn purge(server: &Server, arguments: &[&str]) -> Finished {
    let pid = server.id().to_string();
    run(BINARY, &[&["ctl", "--pid", &pid, "cache", "purge"], arguments].concat(), LONG)
}

/// Waits until it is kept, and says what.
fn kept(server: &Server, target: &str, fields: &str) -> String {
    let mut text = String::new();
    eventually("it is kept", LONG, || {
        let (state, body) = get(server, target, fields);
        text = body;
        state == "HIT"
    });
    text
}

#[test]
fn entries_are_purged_by_their_key_with_all_variants() {
    let backend = counting();
    let server = cached(&backend, "", 2);
    let (a, b) = (kept(&server, "/a", ""), kept(&server, "/b", ""));
    kept(&server, "/vary", "X-Kind: 1\r\n");
    kept(&server, "/vary", "X-Kind: 2\r\n");
    let done = purge(&server, &["/a"]);
    assert_eq!((done.code(), &*done.stdout), (0, "1 entries deleted\n"), "{}", done.stderr);
    assert_ne!(kept(&server, "/a", ""), a, "it was fetched again");
    assert_eq!(get(&server, "/b", ""), ("HIT".to_owned(), b));
    let done = purge(&server, &["/vary", "--zone", "one"]);
    assert_eq!((done.code(), &*done.stdout), (0, "2 entries deleted\n"), "{}", done.stderr);
    assert_eq!(get(&server, "/vary", "X-Kind: 2\r\n").0, "MISS");
    kept(&server, "/vary", "X-Kind: 2\r\n");
    let done = purge(&server, &["--all"]);
    assert_eq!((done.code(), &*done.stdout), (0, "3 entries deleted\n"), "{}", done.stderr);
    assert_eq!(get(&server, "/b", "").0, "MISS");
    assert_eq!(purge(&server, &[]).code(), 2, "all of it must be asked for");
    assert_eq!(purge(&server, &["/a", "--zone", "none"]).code(), 1);
    assert!(server.log("error.log").contains("cache entries purged by"));
}

/// `min_free`: a disk with less room than that gets it from the cache.
#[test]
fn room_on_the_disk_is_kept_for_others() {
    let backend = counting();
    let server = cached(&backend, "min_free=1000000g inactive=4s", 1);
    let first = kept(&server, "/a", "");
    eventually("it is gone though it was asked for", LONG, || get(&server, "/a", "").1 != first);
}

/// What one worker has kept is given by all.
#[test]
fn workers_share_one_cache() {
    let backend = counting();
    let server = cached(&backend, "", 4);
    let first = kept(&server, "/shared", "");
    for _ in 0..40 {
        assert_eq!(get(&server, "/shared", ""), ("HIT".to_owned(), first.clone()));
    }
}
