//! What the server asks of the allocator for a request: nothing, where its head is known and the answer is in
//! memory. Counted in the real binary over real sockets: the C library's allocator is wrapped by `count.c`.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

use std::process::Command;

use common::{BINARY, LONG, http};
use sekisho_testkit::{Client, Server, Tree, eventually};

const COUNTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/allocations/counted");
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/allocations/count.c");
const REQUESTS: u64 = 1000;
/// Before anything is counted: buffers grow to their size, and files are opened.
const WARM_UP: usize = 100;

/// A server whose allocations are counted; `None` where that is not possible here.
fn counted(server_block: &str) -> Option<Server> {
    if cfg!(not(target_env = "gnu")) {
        println!("skipped: only glibc's allocator can be counted");
        return None;
    }
    let tree = Tree::new();
    tree.file("root/small.html", "x".repeat(1024));
    tree.file("root/index.html", "hello");
    tree.file("root/large.bin", vec![7; 100 << 10]);
    tree.link("server", BINARY);
    let library = tree.path("count.so");
    // A machine that builds Rust programs on Linux has a C compiler, which links them.
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .arg(&library)
        .arg(SOURCE)
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!("skipped: no C compiler");
        return None;
    }
    let config = http(&format!(
        "server {{ listen 127.0.0.1:{{port}}; root {{root}}; keepalive_requests 1000000; {server_block} }}"
    ));
    // A missing file is logged a few times a second; that path is not the one that is counted here.
    Some(Server::start_in(tree, COUNTED, &config.replace("error.log debug", "error.log crit")))
}

/// How often the workers have asked the allocator for memory.
fn allocations(server: &Server) -> u64 {
    let counts = server.tree().read("allocations");
    let all = u64::from_ne_bytes(counts[..8].try_into().expect("eight bytes"));
    assert!(all > 100, "a server that has started has allocated: {all}");
    u64::from_ne_bytes(counts[8..16].try_into().expect("eight bytes"))
}

/// So many allocations were made for [`REQUESTS`] requests, each with the head that `head` makes.
fn count(server: &Server, head: impl Fn(u64) -> String) -> u64 {
    let mut client = server.connect();
    for number in 0..WARM_UP {
        ask(&mut client, &head(number as u64));
    }
    let before = allocations(server);
    for number in 0..REQUESTS {
        ask(&mut client, &head(number));
    }
    allocations(server) - before
}

/// The same without work that is done now and then, independent of requests: pools are swept every few
/// seconds.
fn count_at_least(server: &Server, head: impl Fn(u64) -> String) -> u64 {
    (0..3).map(|_| count(server, &head)).min().unwrap_or(u64::MAX)
}

fn ask(client: &mut Client, head: &str) {
    client.send(head);
    let response = client.read_response();
    assert!(response.status < 500, "{}", response.status);
}

fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// Files are trusted from the second request on, however slow the machine is.
const TRUSTED: &str =
    "open_file_cache max=100; open_file_cache_valid 60s; open_file_cache_errors on;";

#[test]
fn nothing_is_allocated_for_kept_alive_requests_that_come_again() {
    let Some(server) = counted(TRUSTED) else { return };
    for target in ["/small.html", "/", "/none", "/large.bin", "/small.html?query"] {
        assert_eq!(count_at_least(&server, |_| get(target, "")), 0, "{target}");
    }
    for fields in ["Range: bytes=7-9\r\n", "If-None-Match: *\r\n", "Range: bytes=9999-\r\n"] {
        assert_eq!(count_at_least(&server, |_| get("/small.html", fields)), 0, "{fields}");
    }
    let other = |number| get(["/small.html", "/", "/none"][number as usize % 3], "");
    assert_eq!(count_at_least(&server, other), 0, "several in turn");
}

#[test]
fn a_head_that_never_came_before_costs_no_allocation_either() {
    for settings in ["", TRUSTED] {
        let Some(server) = counted(settings) else { return };
        let number = |number: u64| format!("X-Number: {number}\r\n");
        let heads: [(&str, &dyn Fn(u64) -> String); 7] = [
            ("small", &|n| get("/small.html", &number(n))),
            ("query", &|n| get(&format!("/small.html?{n}"), "")),
            ("index", &|n| get("/", &number(n))),
            ("missing", &|n| get("/none", &number(n))),
            ("range", &|n| get("/small.html", &format!("Range: bytes={}-\r\n", n % 1000))),
            ("unmodified", &|n| get("/small.html", &format!("If-None-Match: *\r\n{}", number(n)))),
            ("large", &|n| get("/large.bin", &number(n))),
        ];
        for (name, head) in heads {
            // Files that have just been written are not trusted for a moment, and without `open_file_cache` a
            // folder's time, or a missing file, may be looked at anew now and then.
            eventually(name, LONG, || {
                let found = count(&server, head);
                println!("{name}: {found} allocations for {REQUESTS} requests");
                found <= REQUESTS / 10
            });
        }
    }
}
