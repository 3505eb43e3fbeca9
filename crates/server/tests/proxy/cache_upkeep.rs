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
    for target in ["/x/1", "/x/2", "/y"] {
        kept(&server, target, "");
    }
    let done = purge(&server, &["/x/*"]);
    assert_eq!((done.code(), &*done.stdout), (0, "2 entries deleted\n"), "{}", done.stderr);
    assert_eq!(["/x/1", "/x/2", "/y"].map(|it| get(&server, it, "").0), ["MISS", "MISS", "HIT"]);
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

/// A purge of one key reads the file of this key, however many there are.
#[test]
fn a_purge_of_one_key_reads_one_file() {
    const BYTES: usize = 30_000;
    let backend = Backend::start(|connection| {
        while connection.request().is_some() {
            connection.answer("200 OK", "Cache-Control: max-age=600\r\n", vec![b'x'; BYTES]);
        }
    });
    let server = cached(&backend, "", 1);
    for number in 0..100 {
        kept(&server, &format!("/{number}"), "");
    }
    let read = || -> usize {
        let io = std::fs::read_to_string(format!("/proc/{}/io", server.id())).expect("it runs");
        let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        line.expect("a count").parse().expect("a number")
    };
    // The first one indexes the folder.
    assert_eq!(&*purge(&server, &["/1"]).stdout, "1 entries deleted\n");
    let before = read();
    assert_eq!(&*purge(&server, &["/2"]).stdout, "1 entries deleted\n");
    assert!(read() - before < 20 * BYTES, "{} bytes", read() - before);
}

/// What a killed process was writing is deleted at the next start; what another process writes is not.
#[test]
fn leftovers_of_a_killed_process_are_deleted() {
    let backend = counting();
    let mut server = cached(&backend, "", 1);
    kept(&server, "/a", "");
    server.quit();
    server.wait_exit(LONG);
    let (dead, live) = (server.tree().path("cache/a/bc"), server.tree().path("cache/d/ef"));
    let write = |folder: &std::path::Path| {
        std::fs::create_dir_all(folder).expect("a folder");
        let path = folder.join(".new-4711-0");
        (std::fs::File::create(&path).expect("a file"), path)
    };
    let ((_, dead), (file, live)) = (write(&dead), write(&live));
    file.lock().expect("nobody else has it");
    server.start_again(BINARY);
    eventually("it is deleted", LONG, || !dead.exists());
    assert_eq!(get(&server, "/a", "").0, "HIT");
    assert!(live.exists());
}
