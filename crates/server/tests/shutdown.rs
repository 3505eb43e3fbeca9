//! The end of a server (O4): graceful by QUIT, forceful by TERM, one after the other; which clients are
//! served, which are not, and what the exit status says.
#![forbid(unsafe_code)]

mod background_load;
mod common;

use std::net::TcpStream;
use std::time::Duration;

use background_load::{Load, is_over, is_root, rounds};
use common::{BINARY, LONG, Process, http, own_address, site};
use sekisho_testkit::{Client, End, Server, Signal, Stopwatch, Tree, eventually};

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Larger than all buffers on the way.
const LARGE: usize = 16 << 20;
/// A client that has asked nothing for longer than this is idle when the server drains.
const QUIET: Duration = Duration::from_millis(100);

/// A server that says `ok`, and has a file that is larger than all buffers on its way; a reader may take as
/// long as a busy machine makes it.
fn start(main: &str, listen_options: &str) -> Server {
    let tree = Tree::new();
    let file = std::fs::File::create(tree.path("root/large.bin")).expect("a file");
    file.set_len(LARGE as u64).expect("a file of zeros takes no room");
    let config = http(&format!(
        "server {{ listen 127.0.0.1:{{port}} {listen_options}; root {{root}}; send_timeout 10m;
           location = / {{ return 200 ok; }} }}"
    ));
    Server::start_in(tree, BINARY, &config.replace("worker_processes 1;", main))
}

/// A download that has begun and waits for its client.
#[track_caller]
fn begin_download(server: &Server) -> Client {
    let mut client = server.connect().with_patience(LONG);
    client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.read_bytes(1000);
    client
}

#[test]
fn quit_under_load_answers_every_request_that_was_accepted() {
    // O4, L6, L9: no connection is reset, and every accepted client gets an answer.
    for options in ["", "reuseport"] {
        for _ in 0..rounds(3, 50) {
            let mut server = start("worker_processes 2;", options);
            let load = Load::start(server.address(), 4);
            server.quit();
            load.finish();
            assert_eq!(server.wait_exit(LONG).code(), Some(0));
        }
    }
}

#[test]
fn quit_serves_the_connections_that_wait_to_be_accepted() {
    // O4
    for options in ["", "reuseport"] {
        let mut server = start("worker_processes 2;", options);
        // A stopped process accepts no connection; the kernel queues them all the same.
        server.signal(Signal::STOP);
        let mut early: Vec<Client> = (0..40).map(|_| server.connect()).collect();
        for client in &mut early {
            client.send(GET);
        }
        let mut late = server.connect();
        server.quit();
        // Connected before the word, asks after it.
        late.send(GET);
        server.signal(Signal::CONT);
        for mut client in early.into_iter().chain([late]) {
            assert_eq!(client.read_response().text(), "ok");
            assert_eq!(client.read_to_close(), b"");
        }
        assert_eq!(server.wait_exit(LONG).code(), Some(0));
    }
}

#[test]
fn quit_serves_those_who_wait_at_a_unix_socket() {
    use std::io::{Read, Write};
    // O4
    let config = http("server { listen unix:{dir}/socket; location / { return 200 ok; } }");
    let mut server = Server::start(BINARY, &config);
    let path = server.tree().path("socket");
    // The file is there before the server listens.
    let connect = || std::os::unix::net::UnixStream::connect(&path);
    eventually("the socket", LONG, || connect().is_ok());
    server.signal(Signal::STOP);
    let mut stream = connect().expect("let in by the kernel");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    stream.write_all(GET.as_bytes()).expect("sent");
    server.quit();
    server.signal(Signal::CONT);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer and a good end");
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    drop(stream);
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
    assert!(!path.exists(), "the file is gone with its socket");
}

#[test]
fn quit_ends_idle_sessions_at_once_and_lets_the_others_finish() {
    // O4, L3, L6, L15
    let mut server = start("worker_processes 1;", "");
    let mut idle = server.connect();
    assert_eq!(idle.get("/").status, 200);
    idle.expect_open_for(QUIET + Duration::from_millis(100));
    let mut recent = server.connect();
    assert_eq!(recent.get("/").status, 200);
    let mut running = begin_download(&server);
    // A client that asks in the same moment does not know yet, and is answered.
    server.signal(Signal::STOP);
    server.quit();
    recent.send(GET);
    let watch = Stopwatch::start();
    server.signal(Signal::CONT);
    assert_eq!(idle.expect_closed(LONG), End::Closed);
    assert!(watch.elapsed() < Duration::from_secs(2), "{:?}: at once", watch.elapsed());
    assert_eq!(recent.read_response().text(), "ok");
    assert_eq!(recent.read_to_close(), b"");
    drop(recent);
    // No new connection is accepted, though one download goes on.
    eventually("closed listeners", LONG, || TcpStream::connect(server.address()).is_err());
    assert!(server.is_running());
    let rest = running.read_bytes(LARGE - 1000);
    assert!(rest[1000..].iter().all(|byte| *byte == 0));
    running.half_close();
    running.read_to_close();
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
}

#[test]
fn term_ends_a_hundred_downloads_within_two_seconds() {
    // O4, L7, L15
    let mut server = start("worker_processes 2;", "");
    let mut clients: Vec<Client> = (0..100).map(|_| begin_download(&server)).collect();
    let watch = Stopwatch::start();
    server.term();
    let status = server.wait_exit(LONG);
    assert!(watch.elapsed() < Duration::from_secs(2), "{:?}", watch.elapsed());
    assert_ne!(status.code(), Some(0), "a request was cut short");
    for client in &mut clients {
        let bytes = client.read_to_close();
        assert!(bytes.len() < LARGE / 2, "it cannot have come to its end");
    }
    assert!(watch.elapsed() < Duration::from_secs(5), "no client was left hanging");
}

#[test]
fn term_ends_a_crowd_at_once_and_leaves_nothing() {
    // O4, L7, X13: most are idle, some ask, some are served. `SEKISHO_LONG=1` takes ten thousand.
    let mut server = start("worker_processes 2;", "");
    let mut crowd: Vec<Client> = (0..100).map(|_| begin_download(&server)).collect();
    for number in 0..rounds(900, 9_900) {
        let mut client = server.connect();
        if number % 3 == 0 {
            client.send("GET / HTTP/1.1\r\nHost: localhost\r\n");
        } else {
            assert_eq!(client.get("/").status, 200);
        }
        crowd.push(client);
    }
    let watch = Stopwatch::start();
    server.term();
    server.wait_exit(LONG);
    let took = watch.elapsed();
    println!("{} connections: the end took {took:?}", crowd.len());
    let is_strict = std::env::var_os("SEKISHO_STRICT").is_some();
    assert!(took < Duration::from_secs(if is_strict { 1 } else { 5 }), "{took:?}");
    assert!(TcpStream::connect(server.address()).is_err(), "the listener is closed");
}

#[test]
fn quit_lets_fifty_downloads_come_to_their_end() {
    // O4, L6, X12: however long their readers take, for grace has no end here.
    let mut server = start("worker_processes 2; worker_shutdown_timeout off;", "");
    let clients: Vec<Client> = (0..50).map(|_| begin_download(&server)).collect();
    let zeros = vec![0; LARGE - 2000];
    server.quit();
    for mut client in clients {
        let rest = client.read_bytes(LARGE - 1000);
        assert!(rest[1000..] == zeros, "not what is in the file");
        client.half_close();
        client.read_to_close();
    }
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
}

#[test]
fn a_term_that_cuts_nobody_short_is_a_good_end() {
    // O4, L3
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = start("worker_processes 2;", "");
        let mut idle = server.connect();
        assert_eq!(idle.get("/").status, 200);
        let mut silent = server.connect();
        let watch = Stopwatch::start();
        server.signal(signal);
        assert_eq!(server.wait_exit(LONG).code(), Some(0));
        assert!(watch.elapsed() < Duration::from_secs(2));
        assert_eq!(idle.expect_closed(LONG), End::Closed);
        silent.expect_closed(LONG);
    }
}

#[test]
fn a_second_word_escalates() {
    // O4, L10, X12
    for second in [Signal::QUIT, Signal::TERM] {
        let mut server = start("worker_processes 1;", "");
        let mut running = begin_download(&server);
        server.quit();
        eventually("the drain", LONG, || server.log("error.log").contains("draining"));
        assert!(server.is_running());
        let watch = Stopwatch::start();
        server.signal(second);
        assert_ne!(server.wait_exit(LONG).code(), Some(0));
        assert!(watch.elapsed() < Duration::from_secs(2));
        running.read_to_end();
    }
}

#[test]
fn grace_ends_at_worker_shutdown_timeout() {
    // O4, L14, X12
    let mut server = start("worker_processes 1; worker_shutdown_timeout 700ms;", "");
    let mut running = begin_download(&server);
    let watch = Stopwatch::start();
    server.quit();
    assert_eq!(server.wait_exit(LONG).code(), Some(1), "forced, not abandoned");
    let took = watch.elapsed();
    assert!(took >= Duration::from_millis(700) && took < Duration::from_secs(3), "{took:?}");
    running.read_to_end();
    // Without sessions the time is not used up.
    let mut server = start("worker_processes 1; worker_shutdown_timeout 60s;", "");
    let watch = Stopwatch::start();
    server.quit();
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
    assert!(watch.elapsed() < Duration::from_secs(2));
}

#[test]
fn what_is_told_after_the_first_word_changes_nothing() {
    // O4: a reload or an upgrade does not bring a server back that ends.
    let mut server = start("worker_processes 1;", "");
    let running = begin_download(&server);
    server.quit();
    eventually("the drain", LONG, || server.log("error.log").contains("draining"));
    server.signal(Signal::HUP);
    server.signal(Signal::USR2);
    eventually("both refused", LONG, || {
        let log = server.log("error.log");
        log.contains("not reloaded") && log.contains("no upgrade")
    });
    drop(running);
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
}

#[test]
fn files_of_the_server_are_gone_with_it() {
    // O4
    for signal in [Signal::QUIT, Signal::TERM] {
        let config = http("server { listen unix:{dir}/socket; listen 127.0.0.1:{port}; }");
        let mut server = Server::start(BINARY, &format!("pid {{dir}}/x.pid;\n{config}"));
        eventually("its files", LONG, || {
            server.tree().exists("socket") && server.tree().exists("x.pid")
        });
        server.signal(signal);
        assert_eq!(server.wait_exit(LONG).code(), Some(0));
        assert!(!server.tree().exists("socket") && !server.tree().exists("x.pid"));
    }
}

#[test]
fn a_pid_file_that_cannot_be_removed_any_more_names_nobody() {
    // O4
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let address = own_address(18_080);
    tree.folder("run");
    tree.mode("run", 0o755);
    tree.mode(".", 0o755);
    let (dir, config) = (tree.dir().display(), site(""));
    let config = config.replace("{dir}", &dir.to_string()).replace("{root}", &dir.to_string());
    let config = config.replace("127.0.0.1:{port}", &address.to_string());
    tree.file("x.conf", format!("user nobody nogroup; pid {dir}/run/x.pid;\n{config}"));
    let path = tree.path("x.conf").display().to_string();
    let mut server = Process::start(tree, &["-c", &path]);
    let id = server.id().to_string();
    eventually("the pid file", LONG, || server.tree().text("run/x.pid").trim() == id);
    server.signal(Signal::QUIT);
    assert_eq!(server.wait_exit(), Some(0));
    assert_eq!(server.tree().text("run/x.pid"), "");
}

#[test]
fn a_second_word_at_once_leaves_no_program_behind() {
    // C6, O4, X13
    for _ in 0..rounds(5, 50) {
        let tree = Tree::new();
        let script = "#!/bin/sh\ntrap '' TERM\necho $$ >\"$0.pid\"\nwhile :; do sleep 1; done\n";
        tree.script("root/deaf.cgi", script);
        let pid_file = tree.path("root/deaf.cgi.pid");
        let mut server =
            Server::start_in(tree, BINARY, &site("cgi_extension .cgi; cgi_kill_grace 60s;"));
        let mut client = server.connect();
        client.send("GET /deaf.cgi HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let pid = || std::fs::read_to_string(&pid_file).ok()?.trim().parse::<u32>().ok();
        eventually("the program runs", LONG, || pid().is_some());
        let pid = pid().expect("its number");
        // Both signals arrive before a worker has acted on the first.
        server.signal(Signal::STOP);
        server.signal(Signal::TERM);
        server.signal(Signal::INT);
        server.signal(Signal::CONT);
        server.wait_exit(LONG);
        eventually("it is gone", Duration::from_secs(2), || is_over(pid));
    }
}

#[test]
fn an_answer_that_the_process_leaves_behind_does_not_look_complete() {
    // C5, O4: HTTP/1.0 knows the end of this answer by the end of the connection.
    let tree = Tree::new();
    let script = "#!/bin/sh\ntrap '' TERM\nprintf 'Content-Type: text/plain\\n\\nbegun'\nwhile :; do sleep 1; done\n";
    tree.script("root/deaf.cgi", script);
    let config = site("cgi_extension .cgi; cgi_kill_grace 60s;");
    let mut server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect().with_patience(LONG);
    client.send("GET /deaf.cgi HTTP/1.0\r\n\r\n");
    let mut head = Vec::new();
    while !head.ends_with(b"begun") {
        head.extend(client.read_bytes(1));
    }
    server.signal(Signal::TERM);
    server.signal(Signal::INT);
    assert_eq!(client.expect_closed(LONG), End::Reset);
    server.wait_exit(LONG);
}

#[test]
fn a_log_that_nobody_reads_does_not_hold_up_the_end() {
    // O4, O6, X20
    let tree = Tree::new();
    let fifo = tree.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).expect("a fifo");
    let reader = std::fs::File::options().read(true).write(true).open(&fifo).expect("a reader");
    let config = "server { listen 127.0.0.1:{port}; access_log {dir}/fifo; return 200 ok; }";
    let mut server = Server::start_in(tree, BINARY, &http(config));
    let long = "x".repeat(4000);
    let mut client = server.connect();
    for _ in 0..100 {
        let target = format!("/{long}");
        assert_eq!(client.get(&target).status, 200);
    }
    server.signal(Signal::USR1);
    assert_eq!(client.get("/").status, 200);
    server.term();
    server.wait_exit(Duration::from_secs(8));
    drop(reader);
}
