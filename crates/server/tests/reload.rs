//! The change of configuration while clients ask (O3): no client is refused, reset or cut short, and the
//! caller gets the result.
#![forbid(unsafe_code)]

mod background_load;
mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use background_load::{Load, install, is_over, is_root, rounds};
use common::{BINARY, LONG, http, pattern};
use sekisho_testkit::{Client, End, Finished, Server, Signal, Tree, eventually, run};

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Larger than all buffers on the way.
const LARGE: usize = 16 << 20;

/// A server whose pid file is where `-s` finds it.
fn start(config: &str) -> Server {
    let server = Server::start(BINARY, config);
    eventually("the pid file", LONG, || server.tree().text("server.pid").ends_with('\n'));
    server
}

/// A configuration with a pid file, so many workers, and these servers.
fn with(workers: usize, servers: &str) -> String {
    let config = http(servers).replace("processes 1", &format!("processes {workers}"));
    format!("pid {{dir}}/server.pid;\n{config}")
}

/// One server that says a word.
fn says(word: &str) -> String {
    with(1, &format!("server {{ listen 127.0.0.1:{{port}}; location / {{ return 200 {word}; }} }}"))
}

/// `-s reload`
#[track_caller]
fn reload(server: &Server) -> Finished {
    run(BINARY, &["-s", "reload", "-c", &server.config_path().display().to_string()], LONG)
}

/// A reload that goes well.
#[track_caller]
fn change(server: &Server, config: &str) {
    server.rewrite_config(config);
    let finished = reload(server);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
}

#[test]
fn whoever_asks_for_a_reload_learns_how_it_went() {
    // O3
    let server = start(&says("one"));
    let mut kept = server.connect();
    assert_eq!(kept.get("/").text(), "one");
    change(&server, &says("two"));
    assert_eq!(kept.get("/").text(), "two", "in use when the result is there");
    // The caller gets a warning.
    server.rewrite_config(
        &says("three").replace("access_log off;", "access_log off; ssl_dhparam dh.pem;"),
    );
    let warned = reload(&server);
    assert_eq!(warned.code(), 0);
    assert!(warned.stderr.contains("ssl_dhparam"), "{warned:?}");
    assert_eq!(kept.get("/").text(), "three");
}

#[test]
fn a_reload_that_cannot_be_done_changes_nothing_and_says_why() {
    // O3, X10
    let server = start(&says("good"));
    let mut kept = server.connect();
    assert_eq!(kept.get("/").text(), "good");
    let descriptors = server.fds();
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address").to_string();
    let new = "server { listen 127.0.0.1:{port2}; listen unix:{dir}/new; return 200 new; }";
    let mut is_as_before = || {
        assert_eq!(kept.get("/").text(), "good");
        assert_eq!(server.connect().get("/").text(), "good");
        assert!(TcpStream::connect(server.address_of(1)).is_err(), "nothing of it was taken");
        assert!(!server.tree().exists("new"), "nor left behind");
    };
    for (config, words) in [
        (says("good").replace("return", "retrun"), ["retrun", "did you mean \"return\"?"]),
        (with(1, &format!("{new} server {{ listen {address}; }}")), [&*address, "in use"]),
        (with(1, &format!("{new} server {{ listen unix:{{dir}}; }}")), ["cannot listen", "unix:"]),
        (with(2, &format!("error_log {{dir}}/nowhere/x.log; {new}")), ["nowhere/x.log", "the old"]),
    ] {
        server.rewrite_config(&config);
        let finished = reload(&server);
        assert_eq!(finished.code(), 1, "{finished:?}");
        for word in words {
            assert!(finished.stderr.contains(word), "no {word:?} in {}", finished.stderr);
        }
        is_as_before();
    }
    // Where the pid file cannot be written, `-s` cannot find the server by it.
    server.rewrite_config(&with(3, new).replace("server.pid", "nowhere/server.pid"));
    server.signal(Signal::HUP);
    let is_told = || server.log("error.log").contains("stays in use: cannot write");
    eventually("the verdict in the log", LONG, is_told);
    is_as_before();
    eventually("no descriptor more", LONG, || server.fds() <= descriptors + 1);
    change(&server, &says("better"));
    assert_eq!(kept.get("/").text(), "better");
}

#[test]
fn a_pid_file_that_was_left_behind_signals_nobody() {
    // O3: its number may belong to any process by now.
    let tree = Tree::new();
    let mut other = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("started");
    tree.file("server.pid", other.id().to_string());
    let config = says("x").replace("{dir}", &tree.dir().display().to_string());
    let path = tree.file("x.conf", config.replace("{port}", "1")).display().to_string();
    for word in ["reload", "quit", "stop", "reopen"] {
        let finished = run(BINARY, &["-s", word, "-c", &path], LONG);
        assert_eq!(finished.code(), 1, "{finished:?}");
        assert!(finished.stderr.contains("no running server"), "{finished:?}");
    }
    assert!(other.try_wait().expect("a child of ours").is_none(), "it lives");
    other.kill().and_then(|()| other.wait()).expect("a child of ours");
}

#[test]
fn a_pid_file_that_names_an_ended_server_or_one_with_another_file_signals_nobody() {
    // O3
    let server = start(&says("one"));
    let tree = server.tree();
    let config = fs::read_to_string(server.config_path()).expect("its configuration");
    let path = tree.file("other.conf", config.replace("server.pid", "other.pid"));
    let path = path.display().to_string();
    tree.file("other.pid", server.id().to_string());
    let stop = || run(BINARY, &["-s", "stop", "-c", &path], LONG);
    let finished = stop();
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.stderr.contains("a server with another pid file"), "{finished:?}");
    assert_eq!(server.connect().get("/").text(), "one");
    // A process that has not been reaped still has its name.
    let mut ended = Command::new(BINARY).arg("-v").stdout(Stdio::null()).spawn().expect("started");
    eventually("its end", LONG, || is_over(ended.id()));
    tree.file("other.pid", ended.id().to_string());
    let finished = stop();
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.stderr.contains("which has ended"), "{finished:?}");
    ended.wait().expect("a child of ours");
}

#[test]
fn a_second_server_does_not_take_the_pid_file_of_one_that_runs() {
    // O3, O4
    let mut first = start(&says("one"));
    let path = first.tree().path("server.pid");
    let pid = first.tree().text("server.pid");
    let config = says("two").replace("{dir}/server.pid", &path.display().to_string());
    let second = || Server::try_start(Tree::new(), BINARY, &config, &[]);
    let failed = second().expect_err("the file is another's");
    let said = failed.stderr;
    assert!(said.contains("a running server") && said.contains(pid.trim()), "{said}");
    assert_eq!(first.tree().text("server.pid"), pid);
    // A server that ends no longer needs it, though its last requests take their time.
    let mut slow = first.connect();
    slow.send("GET / HTTP/1.1\r\n");
    eventually("it is in work", LONG, || first.log("error.log").contains("serves on"));
    first.quit();
    eventually("the end begins", LONG, || first.log("error.log").contains("draining"));
    let second = second().expect("the lock is free");
    assert_eq!(fs::read_to_string(&path).expect("the file").trim(), second.id().to_string());
    drop(slow);
    first.wait_exit(LONG);
    assert!(path.exists(), "the first one leaves the file of the second");
}

#[test]
fn strangers_are_not_listened_to() {
    // O3, V50
    if !is_root() {
        return;
    }
    let server = start(&says("one"));
    server.rewrite_config(&says("two"));
    let tree = Tree::new();
    let binary = tree.path("sekisho");
    install(Path::new(BINARY), &binary);
    server.tree().mode(".", 0o755);
    tree.mode(".", 0o755);
    let output = Command::new(binary)
        .args(["-s", "reload", "-c"])
        .arg(server.config_path())
        .uid(65_534)
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(server.connect().get("/").text(), "one");
    assert_eq!(reload(&server).code(), 0, "and others are not kept from it");
}

#[test]
fn many_reloads_under_load_lose_nobody_and_leave_nothing_behind() {
    // O3, X10: zero failed requests, zero resets; memory and descriptors do not grow.
    let server = start(&says("ok").replace("processes 1", "processes 2"));
    // Of two workers one may not have begun.
    let at_rest = server.fds() + 16;
    let load = Load::start(server.address(), 3);
    let config = |at: usize| says(["ok", "fine"][at % 2]).replace("processes 1", "processes 2");
    let mut before = 0;
    let many = rounds(50, 1000);
    for at in 0..many {
        change(&server, &config(at));
        if at == many / 5 {
            before = server.rss_bytes();
        }
    }
    load.wait_for_more(3);
    let after = server.rss_bytes();
    let answered = load.stop();
    assert!(answered > many, "{answered}");
    println!("{many} reloads, {answered} answers: {before} {after} bytes");
    assert!(after <= before + (2 << 20), "{before} {after} bytes");
    eventually("descriptors are back", LONG, || server.fds() <= at_rest);
}

#[test]
fn workers_come_and_go_under_load() {
    // O3: with `reuseport` each worker has its own socket, and connections wait in it.
    for options in ["", "reuseport"] {
        let config = |workers: usize| {
            with(
                workers,
                &format!("server {{ listen 127.0.0.1:{{port}} {options}; return 200 ok; }}"),
            )
        };
        let server = start(&config(1));
        let load = Load::start(server.address(), 4);
        for _ in 0..rounds(3, 50) {
            for workers in [3, 1, 2, 4, 1] {
                change(&server, &config(workers));
                load.wait_for_more(2);
            }
        }
        load.stop();
        eventually("the retired are gone", LONG, || workers(&server) == 1);
    }
}

#[test]
fn an_address_may_change_its_options_under_load() {
    // O3
    let config = |options: &str| {
        with(2, &format!("server {{ listen 127.0.0.1:{{port}} {options}; return 200 ok; }}"))
    };
    let server = start(&config(""));
    let load = Load::start(server.address(), 3);
    for options in ["reuseport", "backlog=100", "reuseport backlog=200", "", "reuseport"] {
        change(&server, &config(options));
        load.wait_for_more(3);
    }
    load.stop();
}

#[test]
fn an_address_that_goes_serves_those_who_are_there() {
    // O3, L6
    let both = "server { listen 127.0.0.1:{port}; listen 127.0.0.1:{port2}; root {root};
                  location = / { return 200 ok; } }";
    let one = both.replace("listen 127.0.0.1:{port2};", "");
    let tree = Tree::new();
    let file = fs::File::create(tree.path("root/large.bin")).expect("a file");
    file.set_len(LARGE as u64).expect("a file of zeros takes no room");
    let server = Server::start_in(tree, BINARY, &with(2, both));
    eventually("the pid file", LONG, || server.tree().text("server.pid").ends_with('\n'));
    let going = server.address_of(1);
    let mut kept = server.connect();
    assert_eq!(kept.get("/").text(), "ok");
    for _ in 0..3 {
        let mut idle = Client::connect(going);
        assert_eq!(idle.get("/").text(), "ok");
        let mut running = Client::connect(going).with_patience(LONG);
        running.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
        running.read_bytes(1000);
        // Connections that wait to be accepted while the address is removed.
        server.signal(Signal::STOP);
        let mut waiting: Vec<Client> = (0..10).map(|_| Client::connect(going)).collect();
        for client in &mut waiting {
            client.send(GET);
        }
        server.rewrite_config(&with(2, &one));
        server.signal(Signal::HUP);
        server.signal(Signal::CONT);
        for mut client in waiting {
            assert_eq!(client.read_response().text(), "ok");
            client.read_to_close();
        }
        assert_eq!(idle.expect_closed(LONG), End::Closed);
        eventually("the address is closed", LONG, || TcpStream::connect(going).is_err());
        assert_eq!(running.read_bytes(LARGE - 1000).len(), LARGE - 1000, "it finishes");
        running.half_close();
        running.read_to_close();
        assert_eq!(kept.get("/").text(), "ok", "at the other address nothing has happened");
        // And back at once: the old socket may be open a moment longer.
        change(&server, &with(2, both));
        change(&server, &with(2, &one));
        change(&server, &with(2, both));
        assert_eq!(Client::connect(going).get("/").text(), "ok");
    }
}

#[test]
fn sessions_that_must_go_have_no_longer_than_worker_shutdown_timeout() {
    // O3, L14
    let config = |listen: &str| {
        let server =
            format!("server {{ {listen} root {{root}}; location = / {{ return 200 ok; }} }}");
        format!("worker_shutdown_timeout 500ms;\n{}", with(1, &server))
    };
    let tree = Tree::new();
    let file = fs::File::create(tree.path("root/large.bin")).expect("a file");
    file.set_len(LARGE as u64).expect("a file of zeros takes no room");
    let server = Server::start_in(
        tree,
        BINARY,
        &config("listen 127.0.0.1:{port}; listen 127.0.0.1:{port2};"),
    );
    eventually("the pid file", LONG, || server.tree().text("server.pid").ends_with('\n'));
    let mut running = Client::connect(server.address_of(1)).with_patience(LONG);
    running.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    running.read_bytes(1000);
    change(&server, &config("listen 127.0.0.1:{port};"));
    // It does not read, so only the server sees its end.
    eventually("its end", LONG, || server.log("error.log").contains("closed: forced"));
    assert!(running.read_to_end().0.len() < LARGE);
    assert_eq!(server.connect().get("/").text(), "ok");
}

#[test]
fn usr1_under_load_loses_no_line() {
    // O4, O6
    let server = start(&says("ok").replace("access_log off;", "access_log {dir}/access.log;"));
    let load = Load::start(server.address(), 2);
    let log = server.tree().path("access.log");
    for turn in 0..5 {
        fs::rename(&log, server.tree().path(&format!("access.log.{turn}"))).expect("renamed");
        server.signal(Signal::USR1);
        eventually("the new file", LONG, || log.exists());
        load.wait_for_more(3);
    }
    let answered = load.stop();
    let lines = || -> usize {
        let names = server.tree().names(".");
        let logs = names.iter().filter(|name| name.starts_with("access.log"));
        logs.map(|name| server.tree().text(name).lines().count()).sum()
    };
    eventually("a line for each", LONG, || lines() >= answered);
    assert!(lines() <= answered + 4, "{} lines for {answered} answers", lines());
}

/// How many workers run.
fn workers(server: &Server) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
    let names = tasks.map(|task| fs::read_to_string(task.expect("read").path().join("comm")));
    names.filter(|name| name.as_ref().is_ok_and(|name| name.starts_with("worker-"))).count()
}

/// A server that switches to another protocol and sends back what it gets.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut piece = [0; 4096];
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(count @ 1..) = stream.read(&mut piece) else { return };
                    head.extend_from_slice(&piece[..count]);
                }
                let switch =
                    "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
                let _ = stream.write_all(switch.as_bytes());
                while let Ok(count @ 1..) = stream.read(&mut piece) {
                    let _ = stream.write_all(&piece[..count]);
                }
            });
        }
    });
    address
}

/// Downloads a file by HTTP/2: the first bytes, and the others when it may go on. What has come.
async fn download_by_http2(address: SocketAddr, may_go_on: Arc<AtomicBool>) -> Vec<u8> {
    let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let (send, connection) = h2::client::handshake(stream).await.expect("a connection");
    tokio::task::spawn_local(connection);
    let mut send = send.ready().await.expect("a connection");
    let request =
        ::http::Request::get(format!("http://{address}/large.bin")).body(()).expect("made");
    let (response, _) = send.send_request(request, true).expect("sent");
    let mut body = response.await.expect("a response").into_body();
    let mut received = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.expect("it is not broken off");
        received.extend_from_slice(&piece);
        while !may_go_on.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        body.flow_control().release_capacity(piece.len()).expect("a window");
    }
    received
}

/// So many downloads by HTTP/2, each on a connection of its own, in one thread.
fn downloads_by_http2(
    address: SocketAddr,
    count: usize,
    may_go_on: &Arc<AtomicBool>,
) -> thread::JoinHandle<Vec<Vec<u8>>> {
    let may_go_on = Arc::clone(may_go_on);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime.expect("a runtime"), async {
            let begin =
                |_| tokio::task::spawn_local(download_by_http2(address, Arc::clone(&may_go_on)));
            let tasks: Vec<_> = (0..count).map(begin).collect();
            let mut all = Vec::new();
            for task in tasks {
                all.push(task.await.expect("no panic"));
            }
            all
        })
    })
}

/// The size of a download, and what an upload sends after each reload.
const DOWNLOAD_BYTES: usize = 8 << 20;
const UPLOAD_STEP: usize = 2048;
/// How many folders there are; a configuration names two of them.
const PLACES: usize = 7;

/// A configuration for all kinds of sessions; the places of its sandbox depend on the number.
fn with_places(at: usize, echo: SocketAddr) -> String {
    let (place, other) = (at % PLACES, (at * 3 + 1) % PLACES);
    let server = format!(
        "client_max_body_size 0; client_body_timeout 10m; send_timeout 10m; proxy_read_timeout 10m;
         server {{ listen 127.0.0.1:{{port}}; http2 on; root {{root}}; dav_methods PUT;
           location /now/ {{ alias {{dir}}/place{place}/; }}
           location /socket {{ proxy_pass http://{echo}; proxy_http_version 1.1;
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }}"
    );
    let config = with(1, &server).replace("error.log debug", "error.log info");
    format!("sandbox_read {{dir}}/place{other};\n{config}")
}

/// Sessions that are open all the while.
struct Sessions {
    sockets: Vec<Client>,
    downloads: Vec<Client>,
    uploads: Vec<Client>,
}

impl Sessions {
    /// 100 tunnels, 50 downloads and 20 uploads of so many bytes.
    fn open(server: &Server, upload_bytes: usize) -> Self {
        let open = |request: String| {
            let mut client = server.connect().with_patience(LONG);
            client.shrink_receive_buffer(256 << 10);
            client.send(request);
            client
        };
        let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
        let socket = |_| {
            let mut client = open(format!("GET /socket HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n"));
            assert_eq!(client.read_head_response().status, 101);
            client
        };
        let download = |_| {
            let close = "Connection: close\r\n";
            let mut client = open(format!("GET /large.bin HTTP/1.1\r\nHost: a\r\n{close}\r\n"));
            client.read_bytes(12);
            client
        };
        let upload = |number| {
            let length = format!("Content-Length: {upload_bytes}\r\n");
            open(format!("PUT /up{number} HTTP/1.1\r\nHost: a\r\n{length}\r\n"))
        };
        Self {
            sockets: (0..100).map(socket).collect(),
            downloads: (0..50).map(download).collect(),
            uploads: (0..20).map(upload).collect(),
        }
    }

    /// Sends on: a piece of each upload, and a message by every tenth WebSocket, from this one on.
    fn go_on(&mut self, piece: &[u8], from: usize) {
        for upload in &mut self.uploads {
            upload.send(piece);
        }
        for (number, socket) in self.sockets.iter_mut().enumerate().skip(from).step_by(10) {
            let message = format!("{from} {number}");
            socket.send(&message);
            assert_eq!(socket.read_bytes(message.len()), message.as_bytes());
        }
    }

    /// Finishes all of them: every byte has come.
    fn finish(mut self, server: &Server, large: &[u8], uploaded: &[u8]) {
        for from in 0..10 {
            self.go_on(b"", from);
        }
        for client in &mut self.downloads {
            let rest = client.read_to_close();
            assert!(rest.ends_with(large), "{} bytes", rest.len());
        }
        for (number, client) in self.uploads.iter_mut().enumerate() {
            assert_eq!(client.read_response().status, 201);
            assert!(server.tree().read(&format!("root/up{number}")) == uploaded, "{number}");
        }
    }
}

/// O3, O13, X10: sessions of every kind outlive reloads that change the places of the sandbox each time. None is cut,
/// every byte comes, new requests see the new places, and nothing is left behind.
#[test]
fn sessions_of_every_kind_outlive_many_reloads_with_other_places() {
    let tree = Tree::new();
    let large = pattern(DOWNLOAD_BYTES);
    tree.file("root/large.bin", &large);
    for place in 0..PLACES {
        tree.file(&format!("place{place}/name"), place.to_string());
    }
    let to = echo();
    let server = Server::start_in(tree, BINARY, &with_places(0, to));
    eventually("the pid file", LONG, || server.tree().text("server.pid").ends_with('\n'));
    let descriptors = server.fds();
    let many = rounds(20, 1000);
    let uploaded = pattern(UPLOAD_STEP * many);
    let mut sessions = Sessions::open(&server, uploaded.len());
    let may_go_on = Arc::new(AtomicBool::new(false));
    let by_http2 = downloads_by_http2(server.address(), 10, &may_go_on);
    let before = server.rss_bytes();
    for (at, piece) in uploaded.chunks(UPLOAD_STEP).enumerate() {
        change(&server, &with_places(at + 1, to));
        assert_eq!(server.connect().get("/now/name").text(), ((at + 1) % PLACES).to_string());
        sessions.go_on(piece, at % 10);
    }
    let after = server.rss_bytes();
    println!("{many} reloads: {before} {after} bytes, {} workers", workers(&server));
    assert!(after <= before + (16 << 20), "{before} {after} bytes");
    sessions.finish(&server, &large, &uploaded);
    may_go_on.store(true, Ordering::Relaxed);
    for received in by_http2.join().expect("no panic") {
        assert!(received == large, "{} bytes by HTTP/2", received.len());
    }
    eventually("the workers of old configurations are gone", LONG, || workers(&server) == 1);
    eventually("descriptors are back", LONG, || server.fds() <= descriptors + 16);
}
