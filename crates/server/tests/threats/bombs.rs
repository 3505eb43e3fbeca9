//! A little that wants to cost a lot: bytes that unpack to a thousand times as many, heads of many fields.

use std::fmt::Write as _;
use std::io::Write as _;
use std::{fs, iter};

use flate2::Compression;
use flate2::write::GzEncoder;
use sekisho_testkit::{Server, Tree};

use crate::background_load::rounds;
use crate::common::{BINARY, http, serve};

const MIB: usize = 1 << 20;

/// Ten gigabytes of zeros in about ten megabytes: a stream of gzip may have many members.
fn bomb() -> Vec<u8> {
    let mut member = GzEncoder::new(Vec::new(), Compression::best());
    member.write_all(&vec![0; MIB]).expect("memory takes it");
    let member = member.finish().expect("memory takes it");
    iter::repeat_n(member, 10_000).flatten().collect()
}

/// The most memory that a process has had.
fn peak_bytes(server: &Server) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).expect("it runs");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a kernel that tells");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// V28: where we unpack (`gunzip`), a client gets a bomb as fast as it reads it, and the server holds little of it; filters
/// behind it as well. Brotli and zstd are never unpacked.
#[test]
fn a_bomb_is_unpacked_no_faster_than_its_client_reads() {
    const CLIENTS: usize = 10;
    let tree = Tree::new();
    tree.file("root/page.html.gz", bomb());
    let server = serve(
        tree,
        "gzip_static always; gunzip on;
         location /sub/ { alias {root}/; sub_filter none other; sub_filter_once off; }
         location /ssi/ { alias {root}/; ssi on; }",
    );
    assert_eq!(server.connect().request("HEAD", "/page.html", "").status, 200);
    let before = peak_bytes(&server);
    let mut clients = Vec::new();
    for path in ["/page.html", "/sub/page.html", "/ssi/page.html"] {
        for _ in 0..CLIENTS {
            let mut client = server.connect();
            client.shrink_receive_buffer(64 << 10);
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let start = client.read_bytes(MIB);
            assert!(
                start.starts_with(b"HTTP/1.1 200 OK\r\n") && start.ends_with(&[0; 1000]),
                "{path}"
            );
            clients.push(client);
        }
    }
    // They read no more, and others are served.
    assert_eq!(server.connect().get("/none").status, 404);
    let grown = peak_bytes(&server).saturating_sub(before);
    println!("the server has grown by {} KiB", grown >> 10);
    assert!(grown < 3 * CLIENTS * MIB, "the server has grown by {grown} bytes");
}

/// V28: what comes packed is kept, handed on and sent as it came. The server does not unpack it, so it costs
/// what was sent.
#[test]
fn ten_gigabytes_of_zeros_in_ten_megabytes_are_ten_megabytes() {
    let bomb = bomb();
    assert!(bomb.len() < 12 * MIB, "{} bytes", bomb.len());
    let tree = Tree::new();
    tree.file("root/page.html.gz", &bomb);
    tree.file("root/page.html", "plain");
    tree.script("root/count.cgi", "#!/bin/sh\nprintf 'X: 1\\n\\n'; wc -c\n");
    tree.folder("store");
    let server = serve(
        tree,
        "client_max_body_size 16m; cgi_extension .cgi; gzip_static on; gzip on; gzip_types *;
         location /put/ { dav_methods PUT; create_full_put_path on; }
         location /form { upload_store {dir}/store; }",
    );
    let mut client = server.connect();
    assert_eq!(client.get("/page.html").text(), "plain");
    let before = peak_bytes(&server);
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let fields = format!("Content-Encoding: {coding}\r\n");
        let stored = client.request_with_body("PUT", &format!("/put/{coding}"), &fields, &bomb);
        assert_eq!(stored.status, 201, "{coding}");
        assert!(server.tree().read(&format!("root/put/{coding}")) == bomb, "{coding}: as it came");
        let counted = client.request_with_body("POST", "/count.cgi", &fields, &bomb);
        assert_eq!(counted.text().trim(), bomb.len().to_string(), "{coding}");
    }
    let mut form =
        b"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.gz\"\r\nContent-Encoding: gzip\r\n\r\n".to_vec();
    form.extend_from_slice(&bomb);
    form.extend_from_slice(b"\r\n--x--\r\n");
    let fields = "Content-Type: multipart/form-data; boundary=x\r\nContent-Encoding: gzip\r\n";
    assert!(client.request_with_body("POST", "/form", fields, &form).status < 400);
    assert!(server.tree().read("store/f.gz") == bomb);
    // Nor is it unpacked for a client that does not take gzip.
    let packed = client.request("GET", "/page.html", "Accept-Encoding: gzip\r\n");
    assert!(packed.body == bomb && packed.field("content-encoding") == Some("gzip"));
    assert_eq!(
        client.request("GET", "/page.html", "Accept-Encoding: identity\r\n").text(),
        "plain"
    );
    let grown = peak_bytes(&server).saturating_sub(before);
    println!("the server has grown by {} KiB", grown >> 10);
    assert!(grown < 8 * MIB, "the server has grown by {grown} bytes");
    // What is refused by its size is refused by the size that it has on the way.
    let twice = [bomb.as_slice(), bomb.as_slice()].concat();
    let refused = client.request_with_body("PUT", "/put/x", "Content-Encoding: gzip\r\n", &twice);
    assert_eq!(refused.status, 413);
}

/// Nanoseconds that the threads of a process have run.
fn cpu_nanos(server: &Server) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
    let of = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    let all: Vec<u64> = tasks.flatten().filter_map(of).collect();
    (!all.is_empty()).then(|| all.iter().sum())
}

/// How the fields of a head differ.
#[derive(Clone, Copy, Debug)]
enum Names {
    Distinct,
    /// All the same, which is one long value for a parser that joins them.
    Same,
    /// The same but for their ends.
    Alike,
}

/// Requests that were not sent before, each with so many fields of 64 bytes.
fn requests(count: usize, fields: usize, names: Names, number: &mut usize) -> String {
    let mut out = String::new();
    for _ in 0..count {
        *number += 1;
        let _ = write!(out, "GET /n/{number} HTTP/1.1\r\nHost: localhost\r\n");
        for field in 0..fields {
            let name = match names {
                Names::Distinct => format!("{field:03}-x-name-of-a-field"),
                Names::Same => "x-name-of-a-field-000".to_owned(),
                Names::Alike => format!("x-name-of-a-field-{field:03}"),
            };
            let _ = write!(out, "{name}: {number:039}\r\n");
        }
        out.push_str("\r\n");
    }
    out
}

/// Processor time for each byte of requests with so many fields: the least of several rounds, since other
/// load on the machine only adds to it.
fn nanos_per_byte(server: &Server, fields: usize, names: Names, number: &mut usize) -> Option<f64> {
    let mut least = f64::MAX;
    for _ in 0..rounds(5, 25) {
        let mut client = server.connect();
        let before = cpu_nanos(server)?;
        let mut bytes = 0;
        for _ in 0..20 {
            let batch = requests(20, fields, names, number);
            bytes += batch.len();
            client.send(batch);
            (0..20).for_each(|_| assert_eq!(client.read_response().status, 200));
        }
        least = least.min((cpu_nanos(server)? - before) as f64 / bytes as f64);
    }
    Some(least)
}

/// V31: a byte of a head costs the same among a hundred fields as among a few, whatever the fields are called.
#[test]
fn a_byte_of_a_head_costs_the_same_however_many_fields_there_are() {
    let config = http(
        "keepalive_requests 10000000; server { listen 127.0.0.1:{port}; return 200 $http_x_y; }",
    );
    let server = Server::start(BINARY, &config.replace(" debug;", " error;"));
    let mut number = 0;
    for names in [Names::Distinct, Names::Same, Names::Alike] {
        let mut costs = Vec::new();
        for fields in [1, 10, 25, 50, 99] {
            let Some(cost) = nanos_per_byte(&server, fields, names, &mut number) else {
                println!("skipped: the kernel does not tell how long threads have run");
                return;
            };
            costs.push((fields, cost));
        }
        println!("{names:?}: {costs:.1?}");
        // The costs of the request itself are shared by more bytes the more there are: only growth is a fault.
        let (_, most) = costs[costs.len() - 1];
        for (fields, cost) in &costs {
            assert!(
                most <= 2.0 * cost,
                "{names:?}: {most} for each byte of 99 fields, {cost} of {fields}"
            );
        }
    }
}
