//! Faults of the whole machine: a log that takes nothing, a file that is replaced while it is sent, too little
//! memory, a clock that jumps, a sudden death. (A full disk is with the uploads, missing descriptors with the
//! limits.)

use std::fs::{self, File, FileTimes};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use sekisho_testkit::{
    Client, Server, Signal, Stopwatch, Tree, eventually, have, pause, run, wait_for,
};

use crate::common::{BINARY, LONG, Process, http, own_address, pattern, serve, site};
use crate::sweep::is_long;

fn dropped(server: &Server) -> u64 {
    let pid = server.id().to_string();
    let text = run(BINARY, &["ctl", "--pid", &pid, "metrics", "--prometheus"], LONG).stdout;
    let line = text.lines().find_map(|line| line.strip_prefix("sekisho_log_lines_dropped_total "));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no such metric: {text}"))
}

/// X20, V41
#[test]
fn a_log_that_is_full_holds_nobody_up_and_its_lines_are_counted() {
    let tree = Tree::new();
    tree.file("root/a.txt", "a");
    let config = site("").replace("access_log off", "access_log /dev/full");
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    for _ in 0..200 {
        assert_eq!(client.get("/a.txt").text(), "a");
    }
    eventually("all are counted", LONG, || dropped(&server) == 200);
}

/// X20: no reader reads, then one does, then there is none.
#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    let tree = Tree::new();
    let fifo = tree.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a fifo");
    let reader = fs::OpenOptions::new().read(true).write(true).open(&fifo).expect("opened");
    let config = http(
        "log_format long '$request_uri';
         server { listen 127.0.0.1:{port}; access_log {dir}/fifo long; return 200 ok; }",
    );
    let mut server = Server::start_in(tree, BINARY, &config);
    // More than the pipe and the queue hold.
    let target = format!("/{}", "x".repeat(7000));
    let mut client = server.connect();
    let watch = Stopwatch::start();
    for _ in 0..900 {
        assert_eq!(client.get(&target).text(), "ok");
    }
    assert!(watch.elapsed() < LONG, "{:?}", watch.elapsed());
    assert!(dropped(&server) > 0);
    // The waiting lines come when the reader reads.
    let mut read = vec![0; target.len()];
    let mut reader: File = reader;
    reader.read_exact(&mut read).expect("lines");
    assert_eq!(read, target.as_bytes());
    // The reader dies.
    drop(reader);
    for _ in 0..20 {
        assert_eq!(client.get("/gone").text(), "ok");
    }
    drop(client);
    server.quit();
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
}

/// X9: a client that has begun to receive a file gets that file.
#[test]
fn a_file_that_is_replaced_while_it_is_sent_is_sent_to_its_end() {
    const BYTES: usize = 8 << 20;
    let tree = Tree::new();
    tree.file("root/large", pattern(BYTES));
    let server = serve(tree, "");
    let mut client = server.connect().with_patience(LONG);
    client.shrink_receive_buffer(16 << 10);
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let begun = client.read_bytes(100);
    server.tree().file("root/next", "new");
    fs::rename(server.tree().path("root/next"), server.tree().path("root/large")).expect("moved");
    let other = server.connect().get("/large");
    assert_eq!(other.text(), "new");
    // Put together again, as if nothing had been read before.
    let rest = client.read_bytes(BYTES);
    let all = [begun, rest].concat();
    let head_end = all.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&all[..head_end]).into_owned();
    let body = [&all[head_end..], &client.read_bytes(head_end - 100)].concat();
    assert!(body == pattern(BYTES), "the old content, whole");
    let etag = other.field("etag").expect("an entity tag");
    assert!(!head.contains(etag), "the old entity tag");
    assert_eq!(client.get("/large").text(), "new");
}

/// X8: what the limits allow fits, and a client beyond them gets an error.
#[test]
fn with_little_memory_the_limits_shed_before_it_is_gone() {
    const SESSIONS: usize = 100;
    let tree = Tree::new();
    tree.file("root/a.txt", "a");
    let config = site("client_max_body_size 0; dav_methods PUT; client_header_timeout 60s;")
        .replace("events {}", "events { connections_max 100; }");
    let server = Server::start_in(tree, BINARY, &config);
    assert_eq!(server.connect().get("/a.txt").text(), "a");
    let before = server.rss_bytes();
    limit_memory(&server, 48 << 20);
    // Half heads as large as may be, half uploads, and clients that do not read.
    let mut crowd = Vec::new();
    let mut refused = 0;
    for number in 0..3 * SESSIONS {
        let mut client = server.connect();
        let bytes = match number % 3 {
            0 => format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(8000)),
            1 => {
                let body = "x".repeat(200_000);
                format!("PUT /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n{body}")
            }
            _ => "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n".repeat(300),
        };
        // One that is refused need not take it all.
        let _ = client.try_send(bytes);
        crowd.push(client);
    }
    for client in &mut crowd {
        if client.received().is_empty()
            && let Ok(response) = std::mem::replace(client, Client::connect(server.address()))
                .with_patience(Duration::from_millis(50))
                .try_read_response(false)
            && response.status == 503
        {
            refused += 1;
        }
    }
    assert!(refused > 0, "a client was refused");
    let grown = server.rss_bytes().saturating_sub(before);
    println!("{SESSIONS} busy sessions: {} KiB each", grown / 1024 / SESSIONS as u64);
    drop(crowd);
    eventually("service as before", LONG, || {
        let mut client = server.connect();
        let _ = client.try_send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        client.try_read_response(false).is_ok_and(|response| response.text() == "a")
    });
}

/// The server may have so much more memory than it has, and no more.
fn limit_memory(server: &Server, more: u64) {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).expect("its status");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("its size");
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
    let most = Some((kib << 10) + more);
    let pid = Pid::from_raw(server.id().cast_signed()).expect("a process");
    let limit = Rlimit { current: most, maximum: most };
    prlimit(Some(pid), Resource::As, limit).expect("a child of ours can be limited");
}

/// A binary whose wall clock can be set, by a file that says how far it is off.
fn with_clock(tree: &Tree) -> Option<String> {
    if !have("faketime") {
        return None;
    }
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"];
    let library = places.map(|place| format!("{place}/faketime/libfaketimeMT.so.1"));
    let Some(library) = library.into_iter().find(|library| Path::new(library).exists()) else {
        println!("skipped: libfaketime is not installed");
        return None;
    };
    let clock = tree.path("clock").display().to_string();
    let script = format!(
        "#!/bin/sh\nexport LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={clock} FAKETIME_NO_CACHE=1 \
         FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1\nexec {BINARY} \"$@\"\n"
    );
    tree.file("clock", "+0d\n");
    let wrapper = tree.file("wrapper", script);
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("executable");
    Some(wrapper.display().to_string())
}

/// X14, T1: deadlines and caches go by another clock; `Date` goes by this one.
#[test]
fn a_wall_clock_that_jumps_ten_years_fires_and_stalls_nothing() {
    let tree = Tree::new();
    let Some(binary) = with_clock(&tree) else { return };
    tree.file("root/a.txt", "old");
    tree.script("root/cgi-bin/slow", "#!/bin/sh\nsleep 1\nprintf 'X: y\\n\\nslow'\n");
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = File::options().write(true).open(tree.path("root/a.txt")).expect("opened");
    file.set_times(FileTimes::new().set_modified(past)).expect("dated");
    let config = site(
        "keepalive_timeout 3s; client_header_timeout 3s; location /cgi-bin/ { cgi on; }
         cgi_read_timeout 4s;",
    );
    let server = Server::start_in(tree, &binary, &config);
    for (offset, is_in_year) in [("+3650d", 1), ("-3650d", -1), ("+0d", 0)] {
        let mut idle = server.connect();
        assert_eq!(idle.get("/a.txt").text(), "old");
        let watch = Stopwatch::start();
        let mut half = server.connect();
        half.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n");
        let mut program = server.connect();
        program.send("GET /cgi-bin/slow HTTP/1.1\r\nHost: a\r\n\r\n");
        // What was sent before has come by then, to the one worker.
        eventually("the program runs", LONG, || !server.children().is_empty());
        server.tree().file("clock", format!("{offset}\n"));
        // What runs goes on.
        let mut other = server.connect();
        let year_of = |date: &str| date.split(' ').nth(3).and_then(|year| year.parse::<i64>().ok());
        let mut years = Vec::new();
        let is_followed = wait_for(Duration::from_secs(3), || {
            let response = other.get("/a.txt");
            assert_eq!(response.text(), "old");
            let year = response.field("date").and_then(year_of).expect("a date");
            years.push(year);
            let now = this_year();
            year == now + is_in_year * 10 || (year - now - is_in_year * 10).abs() <= 1
        });
        assert!(is_followed, "{offset}: {years:?}");
        assert_eq!(program.read_response().text(), "slow", "{offset}");
        // Neither early nor late by the clock on the wall.
        let answer = half.read_response();
        let took = watch.elapsed().as_secs_f64();
        assert_eq!(answer.status, 408, "{offset}");
        assert!((2.9..8.0).contains(&took), "{offset}: a head's deadline after {took} s");
        idle.expect_closed(LONG);
        // A file that changes is seen to have.
        server.tree().file("root/a.txt", "new");
        eventually("the new content", LONG, || server.connect().get("/a.txt").text() == "new");
        server.tree().file("root/a.txt", "old");
        eventually("the old content", LONG, || server.connect().get("/a.txt").text() == "old");
    }
}

fn this_year() -> i64 {
    let seconds = fs::metadata("/proc/self").and_then(|about| about.modified()).expect("a time");
    let since = seconds.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    1970 + (since.as_secs_f64() / 31_556_952.0) as i64
}

/// X16: what a server that was killed has just begun to start holds its sockets for a moment.
#[test]
fn an_address_that_is_in_use_for_a_moment_is_waited_for() {
    let address = own_address(18_090);
    let held = std::net::TcpListener::bind(address).expect("a free address");
    let tree = Tree::new();
    let config = site("return 200 ok;").replace("127.0.0.1:{port}", &address.to_string());
    let dir = tree.dir().display().to_string();
    tree.file("c.conf", config.replace("{dir}", &dir).replace("{root}", &dir));
    let path = tree.path("c.conf").display().to_string();
    let _server = Process::start(tree, &["-c", &path]);
    pause(Duration::from_millis(400));
    drop(held);
    eventually("it serves", LONG, || {
        std::net::TcpStream::connect(address).is_ok()
            && Client::connect(address).get("/").text() == "ok"
    });
}

/// X16: whenever it dies, the next one starts at once, and nothing half is there.
#[test]
fn a_server_that_is_killed_at_any_moment_starts_again() {
    let tree = Tree::new();
    tree.folder("store");
    tree.script("root/cgi-bin/cat", "#!/bin/sh\nprintf 'X: y\\n\\n'\nexec cat\n");
    let config = format!(
        "pid {{dir}}/server.pid;\nendpoint {{ listen unix:{{dir}}/s; listen unix:{{dir}}/ipc ipc; }}\n{}",
        site(
            "listen unix:{dir}/http; client_max_body_size 0; dav_methods PUT COPY;
             location /cgi-bin/ { cgi on; }
             location /store/ { upload_store {dir}/store; upload_resumable on; }"
        )
    );
    let mut server = Server::start_in(tree, BINARY, &config);
    let body = pattern(300_000);
    let mut seed = 0x5eed_0016_u64;
    let mut random = move |bound: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % bound
    };
    for turn in 0..if is_long() { 900 } else { 10 } {
        let mut clients = Vec::new();
        let length = body.len();
        let heads = [
            format!("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"),
            format!("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"),
            format!("POST /store/?name=b HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"),
            format!("POST /cgi-bin/cat HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"),
        ];
        for head in &heads {
            let mut client = server.connect();
            let sent = if random(3) == 0 { length } else { random(length as u64) as usize };
            let _ = client.try_send([head.as_bytes(), &body[..sent]].concat());
            clients.push(client);
        }
        pause(Duration::from_micros(random(30_000)));
        server.signal(Signal::KILL);
        server.wait_exit(LONG);
        server.start_again(BINARY);
        for path in ["root/a", "store/b"] {
            let found = fs::read(server.tree().path(path));
            assert!(
                found.is_err() || found.is_ok_and(|found| found == body),
                "turn {turn}: {path}"
            );
        }
        let is_ours = |name: &String| name.contains(".sekisho-upload-");
        eventually("leftovers are swept", LONG, || {
            let mut names = server.tree().names("root");
            names.extend(server.tree().names("store"));
            !names.iter().any(is_ours)
        });
        // The dead server's socket may have lived a moment longer, and have taken us in.
        eventually("an answer", LONG, || {
            let asked = || -> std::io::Result<String> {
                let mut stream = std::net::TcpStream::connect(server.address())?;
                stream.write_all(
                    b"POST /cgi-bin/cat HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
                )?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                Ok(answer)
            };
            asked().is_ok_and(|answer| answer.ends_with("\r\n\r\nhello"))
        });
        assert!(server.is_running(), "turn {turn}");
        let pid = server.id().to_string();
        eventually("the pid file", LONG, || server.log("server.pid").trim() == pid);
        for socket in ["s", "ipc", "http"] {
            let stream = std::os::unix::net::UnixStream::connect(server.tree().path(socket));
            assert!(stream.is_ok(), "turn {turn}: {socket}");
        }
    }
}
