//! Peaks of memory of each kind in 64 MB: the server survives, refuses with 503, and serves new clients again
//! within five seconds after the peak (X8, ADR 0056). With `SEKISHO_LONG=1` the peaks are larger.
#![forbid(unsafe_code)]

mod attacks;
#[path = "../common/mod.rs"]
mod common;
mod limited;
mod trim;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;

use prost::Message;
use sekisho_endpoint::blocking::Client as Native;
use sekisho_endpoint::{Code, http};
use sekisho_native::VERSION;
use sekisho_native::frame::{self, Head, Kind};
use sekisho_native::message::{self, Hello};
use sekisho_testkit::{Client, Server, Tree, eventually, run};

use common::{LONG, site};
use limited::{Form, Limited};

fn is_long() -> bool {
    std::env::var_os("SEKISHO_LONG").is_some()
}

/// A folder with so many entries.
fn many(tree: &Tree, entries: usize) {
    tree.folder("root/many");
    for number in 0..entries {
        let path = tree.path(&format!("root/many/file-with-a-name-{number}"));
        fs::File::create(path).expect("a file");
    }
    // A folder that has just changed may change again unseen: it is not shared.
    let changed = fs::metadata(tree.path("root/many")).expect("it was made").ctime();
    eventually("the folder has its age", LONG, || {
        tree.file("now", "");
        fs::metadata(tree.path("now")).is_ok_and(|now| now.ctime() > changed + 1)
    });
}

fn small(tree: &Tree) {
    tree.file("root/small.txt", "small");
}

/// Sends this and reads the status, if one comes; the rest is left where it is.
fn slow_reader(server: &Server, target: &str, fields: &str) -> (Client, u16) {
    let mut client = server.connect().with_patience(LONG);
    client.shrink_receive_buffer(4096);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let line = client.read_bytes(12);
    let status = String::from_utf8_lossy(&line[9..]).parse().expect("a status");
    (client, status)
}

fn half_heads(form: Form) {
    let tree = Tree::new();
    small(&tree);
    let config = site("client_header_timeout 10m;");
    let Some(mut limited) = Limited::start(form, tree, &config) else { return };
    // So short that each is no matter for the budget.
    let half = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(3000));
    let (crowd, is_shed) = crowd(&limited, 15_000, half.as_bytes());
    assert!(limited.server.is_running(), "it was killed with {} half heads", crowd.len());
    assert!(is_shed, "{} half heads, and none was refused", crowd.len());
    println!("{} half heads", crowd.len());
    drop(crowd);
    limited.recovers("half heads");
    // O6, O7: an operator sees when it began and when it ended.
    let log = || limited.server.log("error.log");
    eventually("both lines", LONG, || log().contains("memory is no longer short, after"));
    assert!(log().contains("new connections and costly work are refused"), "{}", log());
    let (pid, binary) = (limited.server.id().to_string(), common::BINARY);
    let shown = run(binary, &["ctl", "--pid", &pid, "metrics", "--prometheus"], LONG);
    let has = |start: &str, end: &str| {
        let mut lines = shown.stdout.lines().filter_map(|line| line.strip_prefix(start));
        lines.any(|rest| rest != end)
    };
    assert!(has("sekisho_memory_shortages_total ", "0"), "{}", shown.stdout);
    assert!(has("sekisho_memory_refusals_total ", "0"), "{}", shown.stdout);
    assert!(shown.stdout.contains("\nsekisho_memory_short 0\n"), "{}", shown.stdout);
}

/// Connections that send this and no more, until new clients are refused.
fn crowd(limited: &Limited, most: usize, bytes: &[u8]) -> (Vec<Client>, bool) {
    let mut crowd = Vec::new();
    let is_shed = (0..most).any(|number| {
        let mut client = limited.server.connect();
        // One that is refused need not take it all.
        let _ = client.try_send(bytes);
        crowd.push(client);
        number % 50 == 49 && limited.newcomer() != Some(200)
    });
    (crowd, is_shed)
}

fn unfinished_uploads(form: Form) {
    let tree = Tree::new();
    small(&tree);
    let config = site("dav_methods PUT; client_max_body_size 0; client_body_timeout 10m;");
    let Some(mut limited) = Limited::start(form, tree, &config) else { return };
    let count = if is_long() { 9000 } else { 6000 };
    let mut kept = limited.server.connect().with_patience(LONG);
    assert_eq!(kept.get("/small.txt").status, 200);
    let mut crowd = Vec::new();
    let mut is_shed = false;
    for number in 0..count {
        let mut client = limited.server.connect();
        let body = "x".repeat(1000);
        let put =
            format!("PUT /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n{body}");
        let _ = client.try_send(put);
        crowd.push(client);
        if number % 200 == 199 && limited.newcomer() != Some(200) {
            is_shed = true;
            break;
        }
    }
    assert!(limited.server.is_running(), "it was killed with {} uploads", crowd.len());
    if is_shed {
        // An earlier connection is served, except for costly requests.
        assert_eq!(kept.get("/small.txt").status, 200);
        let put = kept.request_with_body("PUT", "/new", "", b"a body");
        assert_eq!((put.status, put.field("retry-after")), (503, Some("1")));
    }
    println!("{} unfinished uploads, refused: {is_shed}", crowd.len());
    drop(crowd);
    limited.recovers("uploads");
}

fn compressed_streams(form: Form) {
    let tree = Tree::new();
    small(&tree);
    let line = "what is said again and again can be said in fewer words, 0123456789\n";
    tree.file("root/large.txt", line.repeat((20 << 20) / line.len()));
    let config = site("zstd on; zstd_types *;");
    let Some(mut limited) = Limited::start(form, tree, &config) else { return };
    let readers: Vec<_> = (0..60)
        .map(|_| slow_reader(&limited.server, "/large.txt", "Accept-Encoding: zstd\r\n"))
        .collect();
    assert!(readers.iter().all(|(_, status)| matches!(status, 200 | 503)));
    assert!(limited.server.is_running(), "it was killed");
    drop(readers);
    limited.recovers("compressed streams");
}

fn listings(form: Form) {
    let tree = Tree::new();
    small(&tree);
    many(&tree, if is_long() { 100_000 } else { 5000 });
    let Some(mut limited) = Limited::start(form, tree, &site("autoindex on;")) else { return };
    // Sorted by size, each is read by itself.
    for target in ["/many/", "/many/?sort=size"] {
        let readers: Vec<_> = (0..50).map(|_| slow_reader(&limited.server, target, "")).collect();
        let refused = readers.iter().filter(|(_, status)| *status == 503).count();
        println!("{target}: {refused} of {} refused", readers.len());
        assert!(limited.server.is_running(), "{target}: it was killed");
        assert!(readers.iter().any(|(_, status)| *status == 200), "{target}: no client was served");
        assert_eq!(refused > 0, target.contains("size"), "{target}: {refused} refused");
        drop(readers);
        limited.recovers("listings");
    }
}

fn archives(form: Form) {
    let tree = Tree::new();
    small(&tree);
    many(&tree, if is_long() { 100_000 } else { 3000 });
    let config = site("autoindex on; autoindex_archive zip tar;");
    let Some(mut limited) = Limited::start(form, tree, &config) else { return };
    let readers: Vec<_> =
        (0..50).map(|_| slow_reader(&limited.server, "/many/?download=zip", "")).collect();
    let refused = readers.iter().filter(|(_, status)| *status == 503).count();
    println!("{refused} of {} refused", readers.len());
    assert!(limited.server.is_running(), "it was killed");
    assert!(refused > 0 && readers.iter().any(|(_, status)| *status == 200), "{refused} refused");
    drop(readers);
    limited.recovers("archives");
}

fn native_sessions(form: Form) {
    let tree = Tree::new();
    small(&tree);
    tree.file("root/large.bin", vec![b'x'; 20 << 20]);
    let port = common::own_address(17_455);
    let config = format!(
        "endpoint {{ listen {port}; http_addresses 127.0.0.1:{{port}}; }}\n{}",
        site("client_max_body_size 0;")
    );
    let Some(mut limited) = Limited::start(form, tree, &config) else { return };
    let connect = || {
        let stream = TcpStream::connect(port).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
        Native::connect(stream, "greedy")
    };
    let asked = |target: &str, body: Vec<u8>| {
        let target = target.to_owned();
        http::Request { target, body: body.into(), ..http::Request::default() }.encode_to_vec()
    };
    let before = limited.server.rss_bytes();
    // The clients read neither files nor the answers to large bodies.
    let mut bodies = vec![asked("/large.bin", Vec::new()); 48];
    bodies.extend(vec![asked("/small.txt", vec![b'x'; 900_000]); 4]);
    let count = if is_long() { 200 } else { 20 };
    let sessions: Vec<_> = (0..count).map(|_| greedy_session(port, &bodies)).collect();
    let is_refused = || {
        let mut other = match connect() {
            Ok(other) => other,
            Err(error) => return error.code() == Some(Code::ResourceLimitReached),
        };
        let ticket = other.request(http::NUMBER, &asked("/small.txt", vec![b'x'; 900_000]));
        let answer = other.answer(ticket.expect("sent"));
        answer.is_err_and(|error| error.code() == Some(Code::ResourceLimitReached))
    };
    eventually("the budget is spent", LONG, is_refused);
    assert!(limited.server.is_running(), "it was killed");
    let grown = limited.server.rss_bytes().saturating_sub(before);
    println!("{} sessions took {} KiB", sessions.len(), grown >> 10);
    assert!(grown < form.limit_bytes() / 2, "{grown} bytes");
    drop(sessions);
    limited.recovers("native sessions");
    let is_served = || {
        let Ok(mut other) = connect() else { return false };
        let Ok(ticket) = other.request(http::NUMBER, &asked("/small.txt", Vec::new())) else {
            return false;
        };
        while let Ok(Some(_)) = other.next_record(&ticket) {}
        other.answer(ticket).is_ok()
    };
    eventually("a native newcomer is served", LONG, is_served);
}

/// A native session that makes these requests, as far as the server takes them, and reads nothing.
fn greedy_session(address: SocketAddr, bodies: &[Vec<u8>]) -> TcpStream {
    let (major, minor) = (VERSION.major, VERSION.minor);
    let mut wire = Vec::new();
    message::write(&mut wire, Kind::Hello, 0, &Hello { major, minor, ..Hello::default() });
    for (slot, body) in (1..).zip(bodies) {
        let head = Head { word: http::NUMBER, ..Head::of_slot(Kind::Request, slot) };
        frame::write(&mut wire, head, body);
    }
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nonblocking(true).expect("a socket takes its options");
    // Until the server takes no more; it may have refused the session.
    let _ = sekisho_testkit::wait_for(std::time::Duration::from_millis(200), || {
        match stream.write(&wire) {
            Ok(count) => {
                wire.drain(..count);
                wire.is_empty()
            }
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    });
    stream
}

/// X8: the kernel kills a process that takes more.
#[test]
fn half_heads_in_a_control_group() {
    half_heads(Form::Group);
}

/// X8: the same where no control group can be made.
#[test]
fn half_heads_with_a_limit_that_is_told() {
    half_heads(Form::Told);
}

/// X8: the kernel kills a process that takes more.
#[test]
fn unfinished_uploads_in_a_control_group() {
    unfinished_uploads(Form::Group);
}

/// X8: the same where no control group can be made.
#[test]
fn unfinished_uploads_with_a_limit_that_is_told() {
    unfinished_uploads(Form::Told);
}

/// X8: the kernel kills a process that takes more.
#[test]
fn compressed_streams_in_a_control_group() {
    compressed_streams(Form::Group);
}

/// X8: the same where no control group can be made.
#[test]
fn compressed_streams_with_a_limit_that_is_told() {
    compressed_streams(Form::Told);
}

/// X8: the kernel kills a process that takes more.
#[test]
fn listings_in_a_control_group() {
    listings(Form::Group);
}

/// X8: the same where no control group can be made.
#[test]
fn listings_with_a_limit_that_is_told() {
    listings(Form::Told);
}

/// X8: the kernel kills a process that takes more.
#[test]
fn archives_in_a_control_group() {
    archives(Form::Group);
}

/// X8: the same where no control group can be made.
#[test]
fn archives_with_a_limit_that_is_told() {
    archives(Form::Told);
}

/// X8: the kernel kills a process that takes more.
#[test]
fn native_sessions_in_a_control_group() {
    native_sessions(Form::Group);
}

/// X8: the same where no control group can be made.
#[test]
fn native_sessions_with_a_limit_that_is_told() {
    native_sessions(Form::Told);
}
