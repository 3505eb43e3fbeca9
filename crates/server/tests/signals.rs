//! Reload, graceful and forceful ends, log rotation: a running server and its signals.
#![forbid(unsafe_code)]

mod common;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{BINARY, LONG, Process, http, own_address, pattern, site};
use sekisho_testkit::process::is_listening;
use sekisho_testkit::{Client, End, Server, Signal, Stopwatch, Tree, eventually};

const HOST: &str = "Host: localhost\r\n";
const LARGE: usize = 6 << 20;

/// A server with a large file that it has little room to send ahead of its client.
fn start(more: &str) -> Server {
    let tree = Tree::new();
    tree.file("root/large.bin", pattern(LARGE));
    let config = http(
        "server { listen 127.0.0.1:{port} sndbuf=32k; root {root};
           location /n/ { return 200 $uri; } }",
    );
    Server::start_in(tree, BINARY, &format!("{more}\n{config}"))
}

/// A download that has begun and waits for its client.
#[track_caller]
fn begin_download(server: &Server) -> (Client, Vec<u8>) {
    let mut client = server.connect().with_patience(LONG);
    client.shrink_receive_buffer(16 * 1024);
    client.send(format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n"));
    let start = client.read_bytes(1000);
    (client, start)
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err()
}

/// Sends HUP and waits for the result in the log.
#[track_caller]
fn reload(server: &Server, result: &str) {
    // As it is: under load the log is never quiet.
    let count = || server.tree().text("error.log").matches(result).count();
    let before = count();
    server.signal(Signal::HUP);
    eventually(result, LONG, || count() > before);
}

/// O4: the last line of the log does not call a stop normal that a deadline has cut a response in.
#[test]
fn a_stop_says_that_responses_are_incomplete() {
    let mut server = start("");
    server.rewrite_config(&http(
        "server { listen 127.0.0.1:{port} sndbuf=32k; root {root}; send_timeout 300ms; }",
    ));
    reload(&server, "reloaded");
    let (client, _) = begin_download(&server);
    server.quit();
    assert!(server.wait_exit(LONG).success());
    drop(client);
    let log = server.tree().text("error.log");
    assert!(log.contains("stopped: 1 responses are incomplete"), "{log}");
    assert!(!log.contains("every session ended normally"), "{log}");
}

/// O4: `-s reopen` says what could not be opened again, and fails.
#[test]
fn a_log_that_cannot_be_opened_again_fails_reopen() {
    let tree = Tree::new();
    tree.folder("logs");
    let server = Server::start_in(
        tree,
        BINARY,
        &site("access_log {dir}/logs/access.log; location / { return 200 ok; }"),
    );
    let config = server.config_path().display().to_string();
    let dir = server.tree().dir().display().to_string();
    let reopen =
        || sekisho_testkit::run(BINARY, &["-p", &dir, "-c", &config, "-s", "reopen"], LONG);
    let done = reopen();
    assert_eq!((done.code(), done.stderr.contains("cannot reopen")), (0, false), "{}", done.stderr);
    assert_eq!(server.log("error.log").matches("logs reopened").count(), 1);
    // A folder has taken the place of the log.
    fs::rename(server.tree().path("logs/access.log"), server.tree().path("moved")).expect("moved");
    server.tree().folder("logs/access.log");
    let done = reopen();
    assert_eq!(done.code(), 1, "{}", done.stderr);
    let said = &done.stderr;
    assert!(said.contains("cannot reopen") && said.contains("access.log"), "{said}");
    // It is logged to the file that was open.
    assert_eq!(server.connect().get("/").status, 200);
    eventually("a line", LONG, || server.log("moved").contains("GET /"));
}

/// A shell starts programs in the background with INT and QUIT ignored, `nohup` with HUP, others with CHLD.
#[test]
fn signals_that_were_ignored_by_the_caller_are_taken() {
    let tree = Tree::new();
    tree.script("root/a.cgi", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nran'\n");
    let ignoring = tree.script(
        "ignoring",
        &format!("#!/bin/sh\ntrap '' HUP INT QUIT TERM USR1 USR2 CHLD\nexec {BINARY} \"$@\"\n"),
    );
    let config = site("cgi_extension .cgi;");
    let ignoring = ignoring.display().to_string();
    let mut server = Server::start_in(tree, &ignoring, &config);
    assert_eq!(server.connect().get("/a.cgi").text(), "ran");
    reload(&server, "reloaded");
    server.quit();
    assert!(server.wait_exit(LONG).success());
}

#[test]
fn a_reload_takes_new_roots_and_addresses_and_gives_up_old_ones() {
    // O3
    let one = |port: &str, root: &str| {
        let text = format!("server {{ listen 127.0.0.1:{port}; root {{dir}}/{root}; }}");
        // With it a new root means new workers, and connections end: see `privilege/sandbox.rs`.
        format!("sandbox off;\n{}", http(&text))
    };
    let tree = Tree::new();
    tree.file("one/a.txt", "one");
    tree.file("two/a.txt", "two");
    let server = Server::start_in(tree, BINARY, &one("{port}", "one"));
    let mut kept = server.connect();
    assert_eq!(kept.get("/a.txt").text(), "one");
    // A new root: also on connections that are there already.
    server.rewrite_config(&one("{port}", "two"));
    reload(&server, "reloaded");
    assert_eq!(server.connect().get("/a.txt").text(), "two");
    assert_eq!(kept.get("/a.txt").text(), "two");
    // A new address beside the old one.
    let both = "server { listen 127.0.0.1:{port}; listen 127.0.0.1:{port2}; root {dir}/one; }";
    server.rewrite_config(&format!("sandbox off;\n{}", http(both)));
    reload(&server, "reloaded");
    assert_eq!(server.connect().get("/a.txt").text(), "one");
    assert_eq!(Client::connect(server.address_of(1)).get("/a.txt").text(), "one");
    // The old address goes.
    server.rewrite_config(&one("{port2}", "two"));
    reload(&server, "reloaded");
    eventually("the old address is closed", LONG, || is_refused(server.address()));
    assert_eq!(Client::connect(server.address_of(1)).get("/a.txt").text(), "two");
}

#[test]
fn a_bad_configuration_changes_nothing() {
    // O3, X10
    let good = site("location / { return 200 good; }");
    let server = Server::start(BINARY, &good);
    let mut kept = server.connect();
    assert_eq!(kept.get("/").text(), "good");
    server.rewrite_config(&good.replace("return", "retrun"));
    reload(&server, "reload failed");
    assert!(server.log("error.log").contains("retrun"), "{}", server.log("error.log"));
    // One that is well written and cannot be done, in its second half.
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken = other.local_addr().expect("an address");
    let second = format!(
        "server {{ listen 127.0.0.1:{{port2}}; return 200 new; }} server {{ listen {taken}; }}"
    );
    server.rewrite_config(&http(&second));
    reload(&server, "reload failed");
    server.rewrite_config(&good.replace("error_log {dir}", "error_log {dir}/nowhere"));
    reload(&server, "reload failed");
    assert_eq!(kept.get("/").text(), "good");
    assert_eq!(server.connect().get("/").text(), "good");
    assert!(is_refused(server.address_of(1)), "nothing of it was taken");
    server.rewrite_config(&good.replace("good", "better"));
    reload(&server, "reloaded");
    assert_eq!(kept.get("/").text(), "better");
}

/// Asks again and again on new connections (and on one that is kept, if wanted) while the server is
/// reloaded with these numbers of workers.
fn ask_over_reloads(workers: &[usize], is_kept_too: bool) {
    let config = site("location / { return 200 ok; }");
    let with =
        |count: usize| config.replace("worker_processes 1", &format!("worker_processes {count}"));
    let server = Server::start(BINARY, &with(workers[0]));
    let address = server.address();
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let new = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(Client::connect(address).get("/").status, 200);
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        let kept = scope.spawn(|| {
            let mut client = Client::connect(address);
            while is_kept_too && !is_over.load(Ordering::Relaxed) {
                if client.get("/").says_close() {
                    client = Client::connect(address);
                }
            }
        });
        for count in workers {
            let before = asked.load(Ordering::Relaxed);
            server.rewrite_config(&with(*count));
            reload(&server, "reloaded");
            eventually("a client that reconnected over the reload", LONG, || {
                asked.load(Ordering::Relaxed) > before || new.is_finished()
            });
        }
        is_over.store(true, Ordering::Relaxed);
        kept.join().expect("every request on the kept connection was answered");
        new.join().expect("every new connection was answered");
    });
}

#[test]
fn no_connection_is_lost_over_reloads() {
    // O3
    ask_over_reloads(&[2; 20], true);
}

#[test]
fn no_connection_is_lost_when_workers_come_and_go() {
    // O3
    ask_over_reloads(&[3, 1, 2, 3, 1, 3, 2, 1, 3, 1, 3, 1, 2, 1, 3, 1], true);
}

#[test]
fn a_signal_while_the_server_starts_does_not_kill_it() {
    // O4: signals may come as soon as the pid file exists.
    for signal in [Signal::HUP, Signal::USR1, Signal::QUIT, Signal::TERM] {
        let tree = Tree::new();
        let address = own_address(18_080);
        let conf =
            format!("pid p; error_log e; events {{}} http {{ server {{ listen {address}; }} }}");
        tree.file("x.conf", conf);
        let mut server = Process::start(tree, &["-c", "x.conf"]);
        eventually("the pid file", LONG, || server.tree().exists("p"));
        server.signal(signal);
        if matches!(signal, Signal::HUP | Signal::USR1) {
            assert_eq!(Client::connect(address).get("/").status, 404);
            server.signal(Signal::QUIT);
        }
        assert_eq!(server.wait_exit(), Some(0), "{signal:?}");
    }
}

#[test]
fn a_download_ends_under_the_configuration_it_began_with() {
    // O3
    let server = start("");
    let (mut client, start) = begin_download(&server);
    // With the same places: others would mean other workers.
    server.rewrite_config(&http(
        "server { listen 127.0.0.1:{port} sndbuf=32k; root {root}; location / { return 200 new; } }",
    ));
    reload(&server, "reloaded");
    assert_eq!(server.connect().get("/large.bin").text(), "new");
    let head_end = start.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let rest = client.read_bytes(head_end + LARGE - start.len());
    assert!([start, rest].concat()[head_end..] == pattern(LARGE));
    assert_eq!(client.get("/large.bin").text(), "new", "the next request is the new one's");
}

#[test]
fn quit_lets_a_running_download_finish() {
    // O4
    let mut server = start("");
    let mut idle = server.connect();
    assert_eq!(idle.get("/n/x").status, 200);
    let mut silent = server.connect();
    let mut begun = server.connect();
    begun.send("GET /n/begun HTT");
    let (mut client, start) = begin_download(&server);
    server.quit();
    // Idle connections close at once, new ones are not taken.
    assert_eq!(idle.expect_closed(LONG), End::Closed);
    assert_eq!(silent.expect_closed(LONG), End::Closed);
    eventually("the listener is closed", LONG, || !is_listening(server.address().port()));
    assert!(is_refused(server.address()));
    assert!(server.is_running());
    // A request whose first byte has come is answered, and told that it was the last.
    begun.send(format!("P/1.1\r\n{HOST}\r\n"));
    let response = begun.read_response();
    assert_eq!((response.text().as_str(), response.says_close()), ("/n/begun", true));
    let rest = client.read_to_close();
    assert!([start, rest].concat().ends_with(&pattern(LARGE)), "the whole file came");
    drop((begun, client));
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
}

#[test]
fn term_and_int_end_a_server_within_two_seconds() {
    // O4
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = start("");
        let mut idle = server.connect();
        assert_eq!(idle.get("/n/x").status, 200);
        let (mut client, start) = begin_download(&server);
        let watch = Stopwatch::start();
        server.signal(signal);
        let status = server.wait_exit(LONG);
        assert!(watch.elapsed() < Duration::from_secs(2), "{signal:?}: {:?}", watch.elapsed());
        assert_ne!(status.code(), Some(0), "{signal:?}: a request was cut");
        let (rest, _) = client.read_to_end();
        assert!(start.len() + rest.len() < LARGE);
        idle.expect_closed(LONG);
    }
    let mut server = start("");
    let mut idle = server.connect();
    assert_eq!(idle.get("/n/x").status, 200);
    server.term();
    assert_eq!(server.wait_exit(LONG).code(), Some(0), "nothing was cut");
}

#[test]
fn a_second_signal_and_the_shutdown_timeout_turn_grace_into_force() {
    // O4
    for second in [Signal::QUIT, Signal::TERM] {
        let mut server = start("");
        let (_client, _) = begin_download(&server);
        server.quit();
        eventually("draining", LONG, || server.log("error.log").contains("draining"));
        assert!(server.is_running());
        server.signal(second);
        assert_ne!(server.wait_exit(LONG).code(), Some(0), "{second:?}");
    }
    let mut server = start("worker_shutdown_timeout 300ms;");
    let (_client, _) = begin_download(&server);
    let watch = Stopwatch::start();
    server.quit();
    assert_ne!(server.wait_exit(LONG).code(), Some(0));
    assert!(watch.elapsed() >= Duration::from_millis(300), "{:?}", watch.elapsed());
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
}

#[test]
fn usr1_opens_the_logs_again() {
    // O4, O6
    let config = http(
        "server { listen 127.0.0.1:{port}; access_log {dir}/access.log; access_log {dir}/second.log;
           location / { return 200 ok; } }",
    );
    let server = Server::start(BINARY, &config);
    let mut client = server.connect();
    for turn in 0..3 {
        client.get(&format!("/turn-{turn}"));
        let line = format!("/turn-{turn}");
        eventually("the line", LONG, || server.log("access.log").contains(&line));
        for name in ["access", "second", "error"] {
            let old = server.tree().path(&format!("{name}.{turn}"));
            fs::rename(server.tree().path(&format!("{name}.log")), old).expect("renamed");
        }
        client.get("/between");
        server.signal(Signal::USR1);
        for name in ["access.log", "second.log", "error.log"] {
            eventually(name, LONG, || server.tree().exists(name));
        }
    }
    client.get("/last");
    for name in ["access", "second"] {
        eventually("the line", LONG, || server.log(&format!("{name}.log")).contains("/last"));
        let all: String = [0, 1, 2].map(|turn| server.log(&format!("{name}.{turn}"))).concat();
        let all = all + &server.log(&format!("{name}.log"));
        assert_eq!(all.matches("/between").count(), 3, "no line is lost: {all}");
        assert_eq!(all.matches("/turn-").count(), 3, "{all}");
        assert!(!server.log(&format!("{name}.log")).contains("/turn-"));
    }
}

/// The names of a server's threads.
fn workers(server: &Server) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("worker-")).count()
}

#[test]
fn as_many_workers_serve_as_are_wanted() {
    // O1, O3, O4
    for listen in ["127.0.0.1:{port}", "127.0.0.1:{port} reuseport"] {
        let config =
            http(&format!("server {{ listen {listen}; location / {{ return 200 $uri; }} }}"));
        let with = |count: usize| {
            config.replace("worker_processes 1", &format!("worker_processes {count}"))
        };
        let mut server = Server::start(BINARY, &with(2));
        eventually("two workers", LONG, || workers(&server) == 2);
        let mut clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
        for (at, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.get(&format!("/{at}")).text(), format!("/{at}"));
        }
        for count in [3, 1] {
            server.rewrite_config(&with(count));
            reload(&server, "reloaded");
            clients.clear();
            eventually("so many workers", LONG, || workers(&server) == count);
            for _ in 0..20 {
                assert_eq!(server.connect().get("/x").text(), "/x");
            }
        }
        server.quit();
        assert_eq!(server.wait_exit(LONG).code(), Some(0));
    }
}
