//! Answers that are compressed while they are sent: large files and what programs say.

use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sekisho_testkit::{
    Client, End, ReadError, Server, Tree, eventually, have, noise, run, wait_for,
};

use crate::common::{LONG, serve};
use crate::decode::{CODINGS, Decoder, decoded, text};
use crate::{ALL, get};

const MIB: usize = 1 << 20;

fn ask(server: &Server, target: &str, coding: &str) -> Client {
    let mut client = server.connect();
    client.send(format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {coding}\r\n\r\n"
    ));
    client
}

/// A location of programs beside the files.
fn programs(tree: Tree, body: &str) -> Server {
    serve(tree, &format!("{ALL} {body} location /cgi-bin/ {{ cgi on; }} location / {{ }}"))
}

/// F1
#[test]
fn a_large_file_comes_whole_in_bounded_memory() {
    const BYTES: usize = 20_000_000;
    const GROWTH_MAX: u64 = 16 << 20;
    if !have("curl") {
        return;
    }
    let tree = Tree::new();
    let content = text(BYTES);
    tree.file("root/a.txt", &content);
    let server = serve(tree, ALL);
    server.connect().get("/missing");
    let before = server.rss_bytes();
    let out = server.tree().path("out");
    let mut most = 0;
    for coding in CODINGS {
        let accept = format!("Accept-Encoding: {coding}");
        let url = server.url("/a.txt");
        let out = out.to_string_lossy().into_owned();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut most = 0;
                while !is_over.load(Ordering::Relaxed) {
                    most = most.max(server.rss_bytes());
                    sekisho_testkit::pause(Duration::from_millis(5));
                }
                most
            });
            let done =
                run("curl", &["-sS", "-H", &accept, "-o", &out, &url], Duration::from_mins(2));
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(done.code(), 0, "{coding}: {}", done.stderr);
            most = most.max(watcher.join().expect("the memory was watched"));
        });
        let mut decoder = Decoder::new(coding);
        let coded = server.tree().read("out");
        assert!(coded.len() < BYTES / 2, "{coding}: {}", coded.len());
        decoder.push(&coded);
        assert!(decoder.out() == content, "{coding}");
        assert!(decoder.ends_well(), "{coding}");
    }
    let growth = most.saturating_sub(before);
    println!("the server grew by {} KiB", growth / 1024);
    assert!(growth < GROWTH_MAX, "{growth} bytes");
}

#[test]
fn others_are_served_while_a_large_text_is_compressed() {
    // One worker; brotli takes its time for 100 MB.
    let tree = Tree::new();
    let part = text(MIB);
    let large = part.repeat(100);
    tree.file("root/large.txt", &large);
    drop(large);
    tree.file("root/small.txt", "small");
    let server = serve(tree, &format!("{ALL} brotli_comp_level 9;"));
    let is_over = AtomicBool::new(false);
    let is_enough = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = ask(&server, "/large.txt", "br").with_patience(Duration::from_mins(2));
            while !is_enough.load(Ordering::Relaxed) {
                let bytes = client.read_bytes(1000);
                if bytes.windows(5).any(|end| end == b"0\r\n\r\n") {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
        });
        let mut client = server.connect();
        for _ in 0..200 {
            assert_eq!(client.get("/small.txt").text(), "small");
        }
        assert!(!is_over.load(Ordering::Relaxed), "200 answers came before the end of one");
        is_enough.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_a_program_says_is_compressed() {
    let tree = Tree::new();
    let body = text(300_000);
    tree.file("root/cgi-bin/body", &body);
    tree.script(
        "root/cgi-bin/long.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/x\\n\\n'; cat body\n",
    );
    tree.script(
        "root/cgi-bin/known.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/x\\nETag: \"a\"\\nContent-Length: 300000\\n\\n'; cat body\n",
    );
    tree.script(
        "root/cgi-bin/coded.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/x\\nContent-Encoding: x\\n\\n'; cat body\n",
    );
    tree.script("root/cgi-bin/short.cgi", "#!/bin/sh\nprintf 'Content-Length: 5\\n\\nshort'\n");
    tree.script("root/cgi-bin/none.cgi", "#!/bin/sh\nprintf 'Status: 204\\n\\n'\n");
    tree.script("root/cgi-bin/empty.cgi", "#!/bin/sh\nprintf 'Content-Type: text/x\\n\\n'\n");
    let server = programs(tree, "");
    for coding in CODINGS {
        for name in ["long", "known"] {
            let target = format!("/cgi-bin/{name}.cgi");
            let response = get(&server, &target, coding);
            assert_eq!(response.field("content-encoding"), Some(coding), "{name}");
            assert_eq!(response.field("vary"), Some("Accept-Encoding"));
            assert_eq!(response.field("content-length"), None);
            assert!(decoded(&response) == body, "{coding} {name}");
            let head = server.connect().request(
                "HEAD",
                &target,
                &format!("Accept-Encoding: {coding}\r\n"),
            );
            assert_eq!(head.field("content-encoding"), Some(coding), "HEAD {name}");
            assert_eq!(head.field("content-length"), None);
        }
        let known = get(&server, "/cgi-bin/known.cgi", coding);
        assert_eq!(known.field("etag"), Some("W/\"a\""));
        let coded = get(&server, "/cgi-bin/coded.cgi", coding);
        assert_eq!(coded.fields_named("content-encoding"), ["x"]);
        assert!(coded.body == body);
        let short = get(&server, "/cgi-bin/short.cgi", coding);
        assert_eq!((short.field("content-encoding"), short.text().as_str()), (None, "short"));
        assert_eq!(get(&server, "/cgi-bin/none.cgi", coding).status, 204);
        assert!(decoded(&get(&server, "/cgi-bin/empty.cgi", coding)).is_empty());
    }
}

/// H1, H3: a stream is an answer like any other.
#[test]
fn a_connection_is_kept_after_a_stream_and_pipelines() {
    let tree = Tree::new();
    tree.file("root/large.txt", text(400_000));
    tree.file("root/small.txt", text(5000));
    tree.script("root/cgi-bin/a.cgi", "#!/bin/sh\nprintf 'X: y\\n\\n'; cat ../large.txt\n");
    let server = programs(tree, "");
    let targets =
        ["/large.txt", "/small.txt", "/cgi-bin/a.cgi", "/large.txt", "/missing", "/small.txt"];
    for coding in CODINGS {
        let request = |target: &&str| {
            format!("GET {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n")
        };
        let all: Vec<String> = targets.iter().map(request).collect();
        let mut client = server.connect();
        client.send(all.concat());
        for target in targets {
            let response = client.read_response();
            assert_eq!(response.field("content-encoding"), Some(coding), "{target}");
            let plain = decoded(&response);
            match target {
                "/small.txt" => assert_eq!(plain, text(5000)),
                "/missing" => assert_eq!(response.status, 404),
                _ => assert!(plain == text(400_000), "{target}"),
            }
        }
        // A request with a body that is not needed.
        let fields = format!("Accept-Encoding: {coding}\r\n");
        let response = client.request_with_body("GET", "/large.txt", &fields, vec![b'x'; 30_000]);
        assert!(decoded(&response) == text(400_000));
        assert_eq!(client.get("/small.txt").body, text(5000));
    }
}

/// O4: a graceful end waits for the answer.
#[test]
fn a_stream_is_finished_before_a_graceful_end() {
    let tree = Tree::new();
    tree.file("root/large.txt", noise(8 * MIB));
    let mut server = serve(tree, ALL);
    let mut client = server.connect().with_patience(Duration::from_mins(1));
    client.shrink_receive_buffer(16 * 1024);
    client.send("GET /large.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(client.read_bytes(1));
    }
    server.quit();
    eventually("the end of listening", LONG, || {
        std::net::TcpStream::connect(server.address()).is_err()
    });
    let mut decoder = Decoder::new("gzip");
    while let Some(chunk) = read_chunk(&mut client) {
        decoder.push(&chunk);
    }
    assert!(decoder.out() == noise(8 * MIB));
    assert!(decoder.ends_well());
    assert!(server.wait_exit(LONG).success());
}

/// A line that a program prints reaches the client while the program waits.
#[test]
fn a_program_that_pauses_is_heard_at_once() {
    let script = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n\
        for n in 1 2 3; do echo \"line $n\"; while [ ! -e gate-$n ]; do sleep 0.01; done; done\n";
    for coding in CODINGS {
        let tree = Tree::new();
        tree.script("root/cgi-bin/trickle.cgi", script);
        let server = programs(tree, "");
        let mut client = ask(&server, "/cgi-bin/trickle.cgi", coding);
        let mut decoder = Decoder::new(coding);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(client.read_bytes(1));
        }
        for line in 1..=3 {
            let expected = "line 1\nline 2\nline 3\n"[..7 * line].to_owned();
            // The gate is shut: what is awaited here can only come by a flush.
            while decoder.out() != expected.as_bytes() {
                decoder.push(&read_chunk(&mut client).expect("not the last chunk"));
                assert!(expected.as_bytes().starts_with(decoder.out()), "{coding}");
            }
            server.tree().file(&format!("root/cgi-bin/gate-{line}"), "");
        }
        while let Some(chunk) = read_chunk(&mut client) {
            decoder.push(&chunk);
        }
        assert!(decoder.ends_well(), "{coding}");
    }
}

/// One chunk of a body; `None` for the last.
fn read_chunk(client: &mut Client) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(client.read_bytes(1));
    }
    let size = String::from_utf8_lossy(&line).trim().to_owned();
    let size = usize::from_str_radix(&size, 16).expect("a size");
    let mut chunk = client.read_bytes(size + 2);
    chunk.truncate(size);
    (size > 0).then_some(chunk)
}

/// C5: what cannot be completed does not look complete.
#[test]
fn a_cut_body_does_not_look_complete() {
    let tree = Tree::new();
    tree.script(
        "root/cgi-bin/dies.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/x\\n\\n'; head -c 100000 /dev/zero; kill -9 $$\n",
    );
    tree.file("root/shrinks.txt", noise(16 * MIB));
    let server = programs(tree, "");
    for coding in CODINGS {
        let mut client = ask(&server, "/cgi-bin/dies.cgi", coding);
        let cut = client.try_read_response(false);
        assert!(matches!(cut, Err(ReadError::Ended(..))), "{coding}: {cut:?}");
    }
    // The client does not read, so it waits; then the file is truncated.
    let mut client = server.connect();
    client.shrink_receive_buffer(4096);
    client.send("GET /shrinks.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let head = client.read_bytes(15);
    assert_eq!(head, b"HTTP/1.1 200 OK");
    let path = server.tree().path("root/shrinks.txt");
    OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(1000)).expect("cut");
    let (bytes, end) = client.read_to_end();
    assert!(bytes.len() < 16 * MIB);
    assert!(!bytes.ends_with(b"0\r\n\r\n"), "{end:?} after {} bytes", bytes.len());
    assert!(matches!(end, End::Closed | End::Reset));
}

/// X5
#[test]
fn whoever_goes_away_ends_the_work() {
    let tree = Tree::new();
    let large = text(MIB).repeat(50);
    tree.file("root/large.txt", large);
    tree.script(
        "root/cgi-bin/endless.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/x\\n\\n'; exec yes 'the same line again and again'\n",
    );
    // The cache would hold the file for itself, for a while.
    let server = programs(tree, "open_file_cache off;");
    server.connect().get("/missing");
    for (target, coding) in [("/large.txt", "br"), ("/cgi-bin/endless.cgi", "gzip")] {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let mut client = ask(&server, target, coding);
                client.read_bytes(1000);
                client
            })
            .collect();
        for client in clients {
            client.reset();
        }
        // The file is open no longer, no program runs, and the processor rests.
        let holds = |what: &str| {
            let folder = format!("/proc/{}/fd", server.id());
            let links = std::fs::read_dir(folder).into_iter().flatten().flatten();
            links
                .filter_map(|entry| std::fs::read_link(entry.path()).ok())
                .any(|to| to.ends_with(what))
        };
        eventually("the end of the work", LONG, || server.children().is_empty());
        let is_at_rest = || {
            let before = server.cpu_ticks();
            sekisho_testkit::pause(Duration::from_millis(200));
            server.cpu_ticks() <= before + 1
        };
        assert!(wait_for(LONG, is_at_rest), "{target}");
        assert!(wait_for(LONG, || !holds("large.txt")), "{target}");
    }
}

/// V28: clients that do not read what they asked for cannot fill the memory.
#[test]
fn too_many_streams_are_not_compressed() {
    // At this level an encoder takes 36 MiB, and all of them together may take 256.
    const STREAMS_MAX: usize = 7;
    const GROWTH_MAX: u64 = 300 << 20;
    let tree = Tree::new();
    tree.file("root/large.txt", noise(16 * MIB));
    tree.file("root/small.txt", text(5000));
    let server = serve(tree, "brotli on; brotli_types *; brotli_comp_level 9;");
    server.connect().get("/missing");
    let before = server.rss_bytes();
    let mut coded = 0;
    let mut clients = Vec::new();
    for _ in 0..STREAMS_MAX * 3 {
        let mut client = server.connect().with_patience(Duration::from_mins(1));
        client.shrink_receive_buffer(4096);
        client.send("GET /large.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(client.read_bytes(1));
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(head.contains("Vary: Accept-Encoding"), "{head}");
        coded += usize::from(head.contains("Content-Encoding: br"));
        clients.push(client);
    }
    assert_eq!(coded, STREAMS_MAX);
    let growth = server.rss_bytes().saturating_sub(before);
    println!("{coded} streams took {} KiB", growth / 1024);
    assert!(growth < GROWTH_MAX, "{growth} bytes");
    // Small files do not need a stream, and one that ends makes room.
    assert_eq!(get(&server, "/small.txt", "br").field("content-encoding"), Some("br"));
    drop(clients);
    let is_free = || {
        let mut client = ask(&server, "/large.txt", "br").with_patience(Duration::from_mins(1));
        String::from_utf8_lossy(&client.read_bytes(400)).contains("Content-Encoding: br")
    };
    assert!(wait_for(LONG, is_free));
}
