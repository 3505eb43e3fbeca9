//! Request bodies: they are gathered before the program starts, or stream to it, whole and in bounded memory (C7), and
//! what a program does not want is no harm.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sekisho_testkit::response::Context;
use sekisho_testkit::{Client, Injected, Response, Tree, eventually, pause, run};

use crate::common::{LONG, pattern};
use crate::support::{Site, is_long, sh};

const MIB: usize = 1 << 20;
/// How much the server may grow while bodies pass through it.
const GROWTH_MAX: u64 = 32 << 20;
const PIECE: usize = 64 * 1024;

/// Prints `CONTENT_LENGTH`, and the checksum of the bytes that came.
const SUM: &str = "sum=$(sha256sum | cut -d' ' -f1)\n\
     printf 'Content-Type: text/plain\\n\\n'; echo \"$CONTENT_LENGTH $CONTENT_TYPE $sum\"";

#[test]
fn large_bodies_arrive_whole_in_bounded_memory() {
    // C7, X4, V28
    let (bytes, clients) = if is_long() { (100 * MIB, 20) } else { (8 * MIB, 6) };
    let body = pattern(bytes);
    let tree = Tree::new();
    tree.script("root/cgi-bin/sum.cgi", &sh(SUM));
    let copy = tree.file("body", &body);
    let sum = run("sha256sum", &[&copy.to_string_lossy()], Duration::from_mins(1));
    let sum = sum.stdout.split(' ').next().unwrap_or_default().to_owned();
    let site = Site::start(
        tree,
        "client_max_body_size 1g; cgi_read_timeout 60s;\n\
         location /streamed/ { alias {root}/cgi-bin/; cgi on; cgi_request_buffering off; }",
    );
    let before = site.server.rss_bytes();
    let expected = format!("{bytes} a/b {sum}\n");
    let send = |number: usize| {
        let mut client = site.server.connect().with_patience(Duration::from_mins(5));
        let folder = ["cgi-bin", "streamed"][number / 2 % 2];
        post(&mut client, &format!("/{folder}/sum.cgi"), &body, number.is_multiple_of(2));
        let response = client.try_read_response(false).map_err(|error| error.to_string())?;
        if (response.status, response.text().as_str()) != (200, expected.as_str()) {
            return Err(format!("{response:?}"));
        }
        // The connection is kept.
        client.send("GET /ok.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        client.try_read_response(false).map_err(|error| format!("the next: {error}"))
    };
    let is_over = AtomicBool::new(false);
    let (most, results) = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(site.server.rss_bytes());
                pause(Duration::from_millis(10));
            }
            most
        });
        let send = &send;
        let senders: Vec<_> =
            (0..clients).map(|number| scope.spawn(move || send(number))).collect();
        let results: Vec<_> = senders.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        (watcher.join().expect("the memory was watched"), results)
    });
    for result in results {
        let result = result.unwrap_or_else(|_| Err("a body was not taken".to_owned()));
        assert!(result.is_ok(), "{result:?}\n{}", site.server.log("error.log"));
    }
    let growth = most.saturating_sub(before);
    println!("{clients} bodies of {bytes} bytes: the server grew by {} KiB", growth / 1024);
    assert!(growth < GROWTH_MAX, "{growth} bytes");
    site.assert_clean("large bodies");
}

/// Sends a body with its length or in chunks.
fn post(client: &mut Client, target: &str, body: &[u8], is_chunked: bool) {
    let framing = if is_chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {}", body.len())
    };
    client.send(format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: a/b\r\n{framing}\r\n\r\n"
    ));
    for piece in body.chunks(PIECE) {
        if is_chunked {
            let mut framed = format!("{:x}\r\n", piece.len()).into_bytes();
            framed.extend_from_slice(piece);
            framed.extend_from_slice(b"\r\n");
            client.send(framed);
        } else {
            client.send(piece);
        }
    }
    if is_chunked {
        client.send("0\r\n\r\n");
    }
}

#[test]
fn a_body_is_told_as_it_is() {
    // C7, C8: dechunked, with its length and type; none for a request without a body.
    let tree = Tree::new();
    let script = "printf 'X: 1\\n\\n'; printf '<%s> <%s> ' \"${CONTENT_LENGTH-none}\" \"${CONTENT_TYPE-none}\"; cat";
    tree.script("root/cgi-bin/x.cgi", &sh(script));
    let site = Site::start(tree, "");
    let mut client = site.server.connect();
    let target = "/cgi-bin/x.cgi";
    let said = client.request_with_body("POST", target, "Content-Type: a/b\r\n", "hello").text();
    assert_eq!(said, "<5> <a/b> hello");
    client.send(format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n\
         3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: dropped\r\n\r\n"
    ));
    assert_eq!(client.read_response().text(), "<5> <a/b> hello");
    assert_eq!(client.get(target).text(), "<none> <none> ");
    assert_eq!(client.request_with_body("POST", target, "", "").text(), "<0> <none> ");
    assert_eq!(client.request_with_body("PUT", target, "", "x").text(), "<1> <none> x");
    assert_eq!(client.request_with_body("DELETE", target, "", "x").text(), "<1> <none> x");
    drop(client);
    site.assert_clean("bodies");
}

#[test]
fn a_client_that_waits_for_100_gets_it_once_and_only_where_the_body_is_wanted() {
    // H7, H6, C7, V33
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X: 1\\n\\n'; cat"));
    tree.file("root/cgi-bin/plain.cgi", sh("echo"));
    tree.script("root/cgi-bin/asleep.cgi", &sh("sleep 60"));
    let site = Site::start(
        tree,
        "client_max_body_size 10; location /busy/ { alias {root}/cgi-bin/; cgi on; cgi_max_processes 1; cgi_queue 0; }",
    );
    let head = |target: &str, length: usize| {
        format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let mut client = site.server.connect();
        client.send(format!(
            "POST /cgi-bin/x.cgi HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{framing}\r\n\r\n"
        ));
        assert_eq!(client.read_bytes(25), b"HTTP/1.1 100 Continue\r\n\r\n", "{framing}");
        client.send(if framing.contains("chunked") { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" });
        let response = client.read_response();
        assert_eq!((response.status, response.text().as_str()), (200, "hello"), "{framing}");
    }
    // The only place is taken.
    let mut first = site.server.connect();
    first.send("GET /busy/asleep.cgi HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it runs", LONG, || !site.processes().is_empty());
    for (target, length, status) in [
        ("/cgi-bin/x.cgi", 11, 413),
        ("/cgi-bin/none.cgi", 5, 404),
        ("/cgi-bin/plain.cgi", 5, 403),
        ("/busy/x.cgi", 5, 503),
    ] {
        let mut client = site.server.connect();
        client.send(head(target, length));
        let response = client.read_response();
        assert_eq!(response.status, status, "{target}");
        assert_eq!(response.field("Retry-After").is_some(), status == 503, "{target}");
    }
    drop(first);
    site.assert_clean("expectations");
}

#[test]
fn a_body_that_is_too_large_starts_no_program() {
    // H6, C7
    let tree = Tree::new();
    tree.script(
        "root/cgi-bin/x.cgi",
        &sh("echo ran >>\"$TEST_MARK\"/ran; printf 'X: 1\\n\\n'; cat"),
    );
    let site = Site::start(tree, "client_max_body_size 1k;");
    let mut client = site.server.connect();
    let refused = client.request_with_body("POST", "/cgi-bin/x.cgi", "", "x".repeat(1025));
    assert_eq!((refused.status, refused.says_close()), (413, false));
    let mut chunks = String::new();
    for _ in 0..100 {
        let _ = write!(chunks, "64\r\n{}\r\n", "x".repeat(100));
    }
    client.send(format!(
        "POST /cgi-bin/x.cgi HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
    ));
    let refused = client.read_response();
    assert_eq!((refused.status, refused.says_close()), (413, false));
    assert!(!site.server.tree().exists("ran"), "a program ran for a refused request");
    assert_eq!(client.request_with_body("POST", "/cgi-bin/x.cgi", "", "x").text(), "x");
    assert!(site.server.tree().exists("ran"));
    drop(client);
    site.assert_clean("a 413");
}

#[test]
fn a_client_that_is_slow_with_its_body_is_a_408_and_not_a_504() {
    // T9 the other way round: while the body is awaited, the client is late, not the program.
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("cat >/dev/null; printf 'X: 1\\n\\n'"));
    let site = Site::start(tree, "cgi_read_timeout 300ms; client_body_timeout 800ms;");
    let mut client = site.server.connect();
    client.send("POST /cgi-bin/x.cgi HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
    let response = client.read_response();
    assert_eq!((response.status, response.says_close()), (408, true));
    drop(client);
    site.assert_clean("a slow body");
}

#[test]
fn a_body_does_not_pass_to_what_is_answered_instead() {
    // C9, C7, V3: a local redirect is a GET without a body, and so is an error page.
    let tree = Tree::new();
    tree.script("root/cgi-bin/first.cgi", &sh("printf 'Location: /cgi-bin/second.cgi?a=b\\n\\n'"));
    tree.script("root/cgi-bin/dies.cgi", &sh("cat >/dev/null; exit 1"));
    let script =
        "printf 'X: 1\\n\\n'; echo \"$REQUEST_METHOD <${CONTENT_LENGTH-none}> $QUERY_STRING\"; cat";
    tree.script("root/cgi-bin/second.cgi", &sh(script));
    let site = Site::start(tree, "error_page 502 /cgi-bin/second.cgi?error;");
    let mut client = site.server.connect();
    for body in ["hello".to_owned(), "x".repeat(300_000)] {
        let said = client.request_with_body("POST", "/cgi-bin/first.cgi", "", &body);
        assert_eq!((said.status, said.text().as_str()), (200, "GET <none> a=b\n"));
        let said = client.request_with_body("POST", "/cgi-bin/dies.cgi", "", &body);
        assert_eq!((said.status, said.text().as_str()), (502, "GET <none> error\n"));
    }
    drop(client);
    site.assert_clean("redirects");
}

#[test]
fn an_answer_may_come_before_the_body_and_go_on_with_it() {
    // C7: both ways at once.
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X: 1\\n\\n'; exec cat"));
    let site = Site::start(tree, "client_max_body_size 10m; cgi_request_buffering off;");
    let mut client = site.server.connect();
    client.send("POST /cgi-bin/x.cgi HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nping");
    let mut seen = Vec::new();
    while !seen.ends_with(b"ping\r\n") {
        seen.extend(client.read_bytes(1));
    }
    client.send("pong");
    let rest = client.read_bytes(b"4\r\npong\r\n0\r\n\r\n".len());
    assert_eq!(rest, b"4\r\npong\r\n0\r\n\r\n");
    // More than all buffers hold, echoed while it is sent.
    let body = pattern(4 * MIB);
    let mut stream = TcpStream::connect(site.server.address()).expect("connected");
    let mut writer = stream.try_clone().expect("a second handle");
    let mut received = Vec::new();
    thread::scope(|scope| {
        let body = &body;
        let sent = scope.spawn(move || {
            let length = body.len();
            let head = format!(
                "POST /cgi-bin/x.cgi HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
            );
            writer.write_all(head.as_bytes())?;
            writer.write_all(body)
        });
        stream.read_to_end(&mut received).expect("an answer");
        sent.join().expect("no panic").expect("all was sent");
    });
    let context = Context { is_head: false, is_closed: true };
    let (response, _) = Response::parse(&received, context).expect("well formed").expect("whole");
    assert!(response.body == body, "{} bytes came back", response.body.len());
}

#[test]
fn bodies_of_every_length_arrive_whole_by_memory_or_by_file() {
    // C7: around the size of the buffer, of a pipe and of what is written at a time.
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X: 1\\n\\n%s ' \"$CONTENT_LENGTH\"; exec cat"));
    let site = Site::start(
        tree,
        "client_max_body_size 4m; location /large/ { alias {root}/cgi-bin/; cgi on; client_body_buffer_size 1m; }",
    );
    for bytes in
        [1, 4096, 16 << 10, (16 << 10) + 1, 64 << 10, (64 << 10) + 1, 300_000, MIB, MIB + 1]
    {
        let body = pattern(bytes);
        for target in ["/cgi-bin/x.cgi", "/large/x.cgi"] {
            for is_chunked in [true, false] {
                let mut client = site.server.connect();
                post(&mut client, target, &body, is_chunked);
                let response = client.read_response();
                let expected = [format!("{bytes} ").as_bytes(), &body].concat();
                assert!(
                    response.body == expected,
                    "{bytes} bytes to {target}, chunked: {is_chunked}: {} came back",
                    response.body.len()
                );
            }
        }
    }
    site.assert_clean("bodies of every length");
}

#[test]
fn slow_bodies_hold_no_program_and_no_place() {
    // C7, V40: two clients that never finish their bodies, and one place.
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X: 1\\n\\n'; exec cat"));
    let site = Site::start(tree, "cgi_max_processes 1; cgi_queue 0;");
    let heads = ["Content-Length: 1000000", "Content-Length: 100", "Transfer-Encoding: chunked"];
    let mut slow: Vec<Client> = heads
        .iter()
        .map(|framing| {
            let mut client = site.server.connect();
            let head = format!("POST /cgi-bin/x.cgi HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
            client.send(head).send("5\r\nhello\r\n");
            client
        })
        .collect();
    // The only process slot is free for a request whose body is complete.
    for _ in 0..5 {
        let mut client = site.server.connect();
        let answer = client.request_with_body("POST", "/cgi-bin/x.cgi", "", "all of it");
        assert_eq!((answer.status, answer.text().as_str()), (200, "all of it"));
    }
    assert!(site.processes().is_empty(), "a program waits for a slow client");
    // The last of them comes to its end: it is served like any other.
    let mut chunked = slow.pop().expect("three of them");
    chunked.send("0\r\n\r\n");
    assert_eq!(chunked.read_response().text(), "hello");
    drop((slow, chunked));
    site.assert_clean("slow bodies");
}

#[test]
fn a_drip_is_no_body() {
    // T4, C7: a byte now and then keeps `client_body_timeout`, and is too slow all the same.
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X: 1\\n\\n'; exec cat"));
    let site = Site::start(tree, "client_body_timeout 1s; client_body_min_rate 240;");
    let mut client = site.server.connect();
    client.send("POST /cgi-bin/x.cgi HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    let is_refused = sekisho_testkit::wait_for(LONG, || {
        let _ = client.try_send("x");
        pause(Duration::from_millis(200));
        site.server.log("error.log").contains("408")
    });
    assert!(is_refused, "{}", site.server.log("error.log"));
    assert_eq!(client.read_response().status, 408);
    drop(client);
    site.assert_clean("a drip");
}

#[test]
fn a_program_that_reads_its_gathered_body_is_not_silent() {
    // T5, C7: it reads from a file, and for longer than it may be silent.
    let tree = Tree::new();
    let script = "for n in 1 2 3 4 5 6 7 8; do head -c 65536 >/dev/null; sleep 0.2; done\n\
                  printf 'X: 1\\n\\nread\\n'";
    tree.script("root/cgi-bin/reads.cgi", &sh(script));
    tree.script("root/cgi-bin/hangs.cgi", &sh("sleep 60"));
    let site = Site::start(tree, "cgi_read_timeout 500ms; cgi_kill_grace 200ms;");
    let mut client = site.server.connect();
    post(&mut client, "/cgi-bin/reads.cgi", &pattern(800_000), false);
    let response = client.read_response();
    assert_eq!((response.status, response.text().as_str()), (200, "read\n"));
    post(&mut client, "/cgi-bin/hangs.cgi", &pattern(800_000), false);
    assert_eq!(client.read_response().status, 504);
    drop(client);
    site.assert_clean("programs that read");
}

#[test]
fn a_slow_disk_holds_up_only_the_body_that_goes_there() {
    // C7, O5: every write to the temporary file takes a second, and one worker serves all.
    const DELAY: &str = "delay_enter=1000000";
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X: 1\\n\\n'; wc -c"));
    let site = Site::start(tree, "");
    let Some(injected) = Injected::into(&site.server, "pwrite64", DELAY) else { return };
    let mut sender = site.server.connect();
    post(&mut sender, "/cgi-bin/x.cgi", &pattern(200_000), false);
    let mut other = site.server.connect();
    let mut served = 0;
    while site.processes().is_empty() && served < 100 {
        assert_eq!(other.get("/ok.txt").text(), "ok");
        served += 1;
    }
    assert_eq!(served, 100, "the event loop waits for the disk");
    assert_eq!(sender.read_response().text().trim(), "200000");
    drop(injected);
    drop((sender, other));
    site.assert_clean("a slow disk");
}

#[test]
fn a_body_that_cannot_be_kept_is_a_503_and_the_server_goes_on() {
    // C7, C12, O5, X17
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X: 1\\n\\n'; wc -c"));
    let site = Site::start(tree, "");
    for error in ["error=ENOSPC", "error=EIO"] {
        let Some(injected) = Injected::into(&site.server, "pwrite64", error) else { return };
        for is_chunked in [true, false] {
            let mut client = site.server.connect();
            post(&mut client, "/cgi-bin/x.cgi", &pattern(200_000), is_chunked);
            let refused = client.read_response();
            assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")));
            assert_eq!(client.get("/ok.txt").text(), "ok", "the connection is kept");
        }
        drop(injected);
        let mut client = site.server.connect();
        post(&mut client, "/cgi-bin/x.cgi", &pattern(200_000), true);
        assert_eq!(client.read_response().text().trim(), "200000");
    }
    site.assert_clean("a full disk");
}
