//! The upgrade of the binary by USR2 (O4): a new process takes the sockets over while clients ask, and if
//! that fails, the old one goes on.
#![forbid(unsafe_code)]

mod background_load;
mod common;

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use background_load::{ByPidFile, Load, install, is_over, is_root, rounds, send};
use common::{BINARY, LONG, http};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use sekisho_testkit::process::worker_of;
use sekisho_testkit::{Client, Server, Signal, Stopwatch, Tree, as_root, eventually, pause, run};

/// A configuration whose server is known by its pid file.
fn config(listen: &str) -> String {
    let servers =
        format!("server {{ {listen} root {{root}}; location = / {{ return 200 $pid; }} }}");
    format!("pid {{dir}}/server.pid;\n{}", http(&servers))
}

/// A server started from a binary of its own, which can be replaced.
fn start(config: &str) -> (Server, ByPidFile) {
    let tree = Tree::new();
    let binary = tree.path("sekisho");
    install(Path::new(BINARY), &binary);
    let pid_file = tree.path("server.pid");
    let binary = binary.display().to_string();
    let server = Server::start_in(tree, &binary, config);
    eventually("the pid file", LONG, || {
        fs::read_to_string(&pid_file).is_ok_and(|it| !it.is_empty())
    });
    (server, ByPidFile::new(pid_file))
}

/// Puts something else where the binary lies; the running one is not touched.
fn replace_binary(server: &Server, by: &Path) {
    let next = server.tree().path("next");
    install(by, &next);
    fs::rename(next, server.tree().path("sekisho")).expect("renamed");
}

/// The same with a text.
fn replace_binary_by_text(server: &Server, text: &str) {
    replace_binary(server, &server.tree().file("text", text));
}

#[test]
fn upgrades_under_load_lose_nobody() {
    // O4, X11: zero failed requests, zero resets.
    for (options, main) in [("", ""), ("reuseport", ""), ("", "on"), ("reuseport", "on")] {
        let config = config(&format!("listen 127.0.0.1:{{port}} {options};"));
        // With a parent and without.
        let main = if main.is_empty() { "" } else { "master_process on;\n" };
        let config = format!("{main}{config}");
        let (mut server, current) = start(&config.replace("processes 1", "processes 2"));
        let load = Load::start(server.address(), 3);
        for _ in 0..rounds(5, 20) {
            current.upgrade();
            load.wait_for_more(rounds(3, 2_000));
            assert!(!server.tree().exists("server.pid.oldbin"));
        }
        println!("{} upgrades, {} answers", rounds(5, 20), load.stop());
        assert_eq!(server.wait_exit(LONG).code(), Some(0), "the first one came to a good end");
        let last = current.pid().expect("it runs");
        current.signal(Signal::QUIT);
        eventually("its end", LONG, || is_over(last));
        assert!(!server.tree().exists("server.pid"));
        assert!(!server.log("error.log").contains("[error]"), "{}", server.log("error.log"));
    }
}

#[test]
fn the_old_process_finishes_what_it_has_begun() {
    // O4, L6
    let tree_config = config("listen 127.0.0.1:{port};");
    let (mut server, current) = start(&tree_config);
    let file = fs::File::create(server.tree().path("root/large.bin")).expect("a file");
    file.set_len(16 << 20).expect("a file of zeros takes no room");
    let mut running = server.connect().with_patience(LONG);
    running.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    running.read_bytes(1000);
    let old = server.id();
    server.signal(Signal::USR2);
    eventually("the new process", LONG, || current.pid().is_some_and(|pid| pid != old));
    eventually("the old one makes way", LONG, || server.log("error.log").contains("serves now"));
    assert_eq!(server.tree().text("server.pid.oldbin").trim(), old.to_string(), "as nginx does");
    let new = current.pid().expect("just seen").to_string();
    eventually("answers by the new one alone", LONG, || {
        (0..10).all(|_| server.connect().get("/").text() == new)
    });
    assert!(server.is_running());
    assert_eq!(running.read_bytes((16 << 20) - 1000).len(), (16 << 20) - 1000);
    running.half_close();
    running.read_to_close();
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
    assert!(!server.tree().exists("server.pid.oldbin"));
    assert_eq!(current.pid().map(|pid| pid.to_string()), Some(new));
}

/// O3: longer than a stop may take by default (10 s), with a parent and without.
#[test]
fn a_download_outlives_an_upgrade_however_long_it_takes() {
    const LIFE: Duration = Duration::from_millis(11_500);
    let download = |main: &str| {
        let (mut server, current) = start(&format!("{main}{}", config("listen 127.0.0.1:{port};")));
        let file = fs::File::create(server.tree().path("root/large.bin")).expect("a file");
        file.set_len(16 << 20).expect("a file of zeros takes no room");
        let mut running = server.connect().with_patience(LONG);
        running.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
        running.read_bytes(1000);
        let old = current.pid();
        current.signal(Signal::USR2);
        eventually("the new process", LONG, || current.pid().is_some_and(|pid| Some(pid) != old));
        let (watch, mut read) = (Stopwatch::start(), 1000);
        while watch.elapsed() < LIFE {
            read += running.read_bytes(10_000).len();
            pause(Duration::from_millis(100));
        }
        assert_eq!(running.read_bytes((16 << 20) - read).len(), (16 << 20) - read);
        running.half_close();
        running.read_to_close();
        assert_eq!(server.wait_exit(LONG).code(), Some(0));
        let last = current.pid().expect("it runs");
        current.signal(Signal::QUIT);
        eventually("its end", LONG, || is_over(last));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| download(""));
        scope.spawn(|| download("master_process on;\n"));
    });
}

/// A balancer that sends new requests elsewhere goes on doing so, until the operator says otherwise.
#[test]
fn a_server_that_drains_still_does_after_an_upgrade() {
    let (server, current) =
        start(&config("listen 127.0.0.1:{port}; location = /ready { status health; }"));
    let ready = || server.connect().get("/ready").status;
    let ctl = |arguments: &[&str]| {
        let pid = current.pid().expect("it runs").to_string();
        run(BINARY, &[&["ctl", "--pid", &pid], arguments].concat(), LONG).code()
    };
    current.upgrade();
    assert_eq!((ready(), ctl(&["drain"]), ready()), (200, 0, 503));
    current.upgrade();
    assert_eq!(ready(), 503);
    assert_eq!((ctl(&["drain", "--end"]), ready()), (0, 200));
    current.upgrade();
    assert_eq!(ready(), 200);
    current.signal(Signal::QUIT);
    eventually("the end", LONG, || !server.tree().exists("server.pid"));
}

#[test]
fn a_new_process_has_the_new_binary_the_new_configuration_and_every_socket() {
    // O4, O3
    let both = "listen 127.0.0.1:{port}; listen unix:{dir}/kept; listen unix:{dir}/going;";
    let (server, current) = start(&config(both));
    replace_binary(&server, Path::new(BINARY));
    let next = "listen 127.0.0.1:{port}; listen 127.0.0.1:{port2}; listen unix:{dir}/kept;";
    server.rewrite_config(&config(next));
    let new = current.upgrade().to_string();
    assert_eq!(server.connect().get("/").text(), new);
    assert_eq!(Client::connect(server.address_of(1)).get("/").text(), new);
    let mut stream = UnixStream::connect(server.tree().path("kept")).expect("it is there");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with(&new), "{answer}");
    assert!(!server.tree().exists("going"), "the socket is closed");
    // The new one is a server like the first: it can be reloaded and replaced.
    let path = server.config_path().display().to_string();
    assert_eq!(run(BINARY, &["-s", "reload", "-c", &path], LONG).code(), 0);
    current.upgrade();
    assert_eq!(run(BINARY, &["-s", "quit", "-c", &path], LONG).code(), 0);
    eventually("the end", LONG, || !server.tree().exists("server.pid"));
    assert!(!server.tree().exists("kept"));
}

#[test]
fn an_upgrade_that_fails_changes_nothing() {
    // O4, X11: bad binary, early exit, bad configuration.
    let good = config("listen 127.0.0.1:{port}; listen unix:{dir}/socket;");
    let (server, current) = start(&good);
    let mut kept = server.connect();
    let old = server.id().to_string();
    assert_eq!(kept.get("/").text(), old);
    let mut fails = |why: &str, is_there: &str| {
        server.signal(Signal::USR2);
        let has_failed = || server.log("error.log").contains(is_there);
        eventually(&format!("{why} is logged"), LONG, has_failed);
        assert_eq!(current.pid(), Some(server.id()), "{why}: the pid file is back");
        assert!(!server.tree().exists("server.pid.oldbin"), "{why}");
        assert!(server.tree().exists("socket"), "{why}");
        assert_eq!(kept.get("/").text(), old, "{why}: sessions go on");
        assert_eq!(server.connect().get("/").text(), old, "{why}: and new ones come");
        assert!(server.children().is_empty(), "{why}: no process is left behind");
    };
    server.rewrite_config(&good.replace("listen", "lissten"));
    fails("a bad configuration", "unknown directive \"lissten\"");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address").to_string();
    server.rewrite_config(&good.replace("listen unix", &format!("listen {address}; listen unix")));
    let why = format!("the new process says: cannot listen on {address}");
    fails("an address that is taken", &why);
    server.rewrite_config(&good);
    replace_binary_by_text(&server, "no program");
    fails("a file that is no program", "no upgrade: cannot start");
    replace_binary_by_text(&server, "#!/bin/sh\nexit 3\n");
    fails("a program that ends early", "the new process ended: exit status: 3");
    // And when all is well again it works.
    replace_binary(&server, Path::new(BINARY));
    let new = current.upgrade();
    assert_eq!(server.connect().get("/").text(), new.to_string());
}

/// O4: an operator who asks gets the result.
#[test]
fn ctl_upgrade_waits_for_the_result() {
    let good = config("listen 127.0.0.1:{port};");
    let (server, current) = start(&good);
    let upgrade = || {
        let pid = current.pid().expect("it runs").to_string();
        run(BINARY, &["ctl", "--pid", &pid, "upgrade"], LONG)
    };
    server.rewrite_config(&good.replace("listen", "lissten"));
    let failed = upgrade();
    assert_eq!(failed.code(), 1, "{}", failed.stdout);
    assert!(failed.stderr.contains("unknown directive \"lissten\""), "{}", failed.stderr);
    assert_eq!(current.pid(), Some(server.id()));
    server.rewrite_config(&good);
    let done = upgrade();
    assert_eq!((done.code(), done.stdout.trim()), (0, "the new process serves"), "{}", done.stderr);
    let new = current.pid().expect("it runs");
    assert_ne!(new, server.id());
    assert_eq!(server.connect().get("/").text(), new.to_string());
    current.signal(Signal::QUIT);
    eventually("its end", LONG, || is_over(new));
}

/// O4: what the command line named is started again, as in nginx; a package manager may have changed the link.
#[test]
fn a_server_that_was_started_through_a_link_becomes_what_the_link_names_now() {
    let tree = Tree::new();
    let (old, new, link) = (tree.path("old-1.0"), tree.path("new-1.1"), tree.path("sekisho"));
    install(Path::new(BINARY), &old);
    install(Path::new(BINARY), &new);
    std::os::unix::fs::symlink("old-1.0", &link).expect("a link");
    let current = ByPidFile::new(tree.path("server.pid"));
    let server =
        Server::start_in(tree, &link.display().to_string(), &config("listen 127.0.0.1:{port};"));
    eventually("the pid file", LONG, || current.pid() == Some(server.id()));
    let runs = || fs::read_link(format!("/proc/{}/exe", current.pid().unwrap_or_default())).ok();
    assert_eq!(runs(), Some(old));
    let next = server.tree().path("next");
    std::os::unix::fs::symlink("new-1.1", &next).expect("a link");
    fs::rename(&next, &link).expect("renamed");
    current.upgrade();
    assert_eq!(runs(), Some(new.clone()));
    // The file that runs is taken where the link is gone.
    fs::remove_file(&link).expect("removed");
    let last = current.upgrade();
    assert_eq!(runs(), Some(new));
    // It is known as a server by what it does, whatever its file is called.
    let path = server.config_path().display().to_string();
    let told = run(BINARY, &["ctl", "-c", &path, "status"], LONG);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    let told = run(BINARY, &["-s", "quit", "-c", &path], LONG);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    eventually("its end", LONG, || is_over(last));
    // Another process is none.
    server.tree().file("server.pid", std::process::id().to_string());
    let told = run(BINARY, &["-s", "quit", "-c", &path], LONG);
    assert_eq!(told.code(), 1);
    assert!(told.stderr.contains("which is not a Sekisho server"), "{}", told.stderr);
}

#[test]
fn a_new_process_that_never_serves_is_given_up() {
    // O4, X11
    let (server, current) = start(&config("listen 127.0.0.1:{port};"));
    replace_binary_by_text(&server, "#!/bin/sh\nexec sleep 600\n");
    server.signal(Signal::USR2);
    eventually("the pid file is put aside", LONG, || server.tree().exists("server.pid.oldbin"));
    // Meanwhile all goes on, and a second word is one too many.
    assert_eq!(server.connect().get("/").text(), server.id().to_string());
    server.signal(Signal::USR2);
    eventually("it is told", LONG, || {
        server.log("error.log").contains("another upgrade is in progress")
    });
    eventually("the end of patience", LONG, || {
        server.log("error.log").contains("was not ready within")
    });
    assert_eq!(current.pid(), Some(server.id()));
    assert!(server.children().is_empty());
    // The end of the server is the end of an upgrade, too.
    server.signal(Signal::USR2);
    eventually("another try", LONG, || server.children().len() == 1);
    let child = server.children()[0];
    let mut server = server;
    server.quit();
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
    assert!(is_over(child));
    assert!(!server.tree().exists("server.pid") && !server.tree().exists("server.pid.oldbin"));
}

#[test]
fn the_sockets_of_the_endpoint_are_handed_over_too() {
    // O4, E9
    let endpoint = "endpoint { listen unix:{dir}/native; listen 127.0.0.1:{port2}; }";
    let config = format!("{endpoint}\n{}", config("listen 127.0.0.1:{port};"));
    let (mut server, current) = start(&config);
    let path = server.tree().path("native");
    let connect = || {
        let stream = UnixStream::connect(&path).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
        sekisho_endpoint::blocking::Client::connect(stream, "test").expect("admitted")
    };
    let mut before = connect();
    assert_eq!(before.call(3, b"x").expect("answered"), b"x");
    let new = current.upgrade();
    assert!(before.call(3, b"x").is_err(), "its session has come to its end");
    assert_eq!(connect().call(3, b"y").expect("answered"), b"y");
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
    assert_eq!(connect().call(3, b"z").expect("answered"), b"z");
    let listed = run(BINARY, &["ctl", "--pid", &new.to_string(), "sessions"], LONG);
    assert_eq!(listed.code(), 0, "{}", listed.stderr);
    current.signal(Signal::QUIT);
    eventually("its end", LONG, || is_over(new));
    assert!(!path.exists(), "the socket's file is gone");
}

#[test]
fn sockets_are_given_to_the_new_process_alone() {
    // O4, V50
    let (server, _current) = start(&config("listen 127.0.0.1:{port};"));
    let name = format!("sekisho/{}/handover", server.id());
    for question in ["sockets\n", "ready\n", "nonsense\n", "reload", ""] {
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let mut stream = UnixStream::connect_addr(&address).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
        stream.write_all(question.as_bytes()).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("there");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok();
        assert!(!answer.starts_with("listen") && !answer.starts_with("done"), "{answer}");
    }
    assert_eq!(server.connect().get("/").text(), server.id().to_string());
}

#[test]
fn somebody_with_fewer_rights_can_be_replaced_too() {
    // O4: the pid file and its folder belong to root, the server runs as user nobody.
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let binary = tree.path("sekisho");
    install(Path::new(BINARY), &binary);
    tree.mode(".", 0o755);
    tree.folder("run");
    tree.file("run/error.log", "");
    tree.mode("run/error.log", 0o666);
    let config = config("listen 127.0.0.1:{port};")
        .replace("{dir}/server.pid", "{dir}/run/server.pid")
        .replace("{dir}/error.log", "{dir}/run/error.log");
    let current = ByPidFile::new(tree.path("run/server.pid"));
    let binary = binary.display().to_string();
    let mut server = Server::start_in(tree, &binary, &format!("user nobody nogroup;\n{config}"));
    eventually("the pid file", LONG, || current.pid() == Some(server.id()));
    for _ in 0..2 {
        let new = current.upgrade();
        assert_eq!(server.connect().get("/").text(), worker_of(new).to_string());
    }
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
    let last = current.pid().expect("it runs");
    send(last, Signal::QUIT);
    eventually("its end", LONG, || is_over(last));
    assert!(!server.tree().exists("run/server.pid"), "it goes with the parent");
}

/// Plays an old process: offers a Unix socket that the new configuration does not have, and gives this
/// answer when the new one serves.
fn take_over_from_us(tree: &Tree, answer: &str) -> Child {
    let from = std::process::id();
    let name = SocketAddr::from_abstract_name(format!("sekisho/{from}/handover")).expect("a name");
    let control = UnixListener::bind_addr(&name).expect("it is free");
    let path = tree.path("old.sock");
    // From the round before.
    let _ = fs::remove_file(&path);
    let old = UnixListener::bind(&path).expect("a socket");
    let text = format!(
        "error_log {dir}/error.log notice; worker_processes 1; events {{}}
         http {{ access_log off; server {{ listen unix:{dir}/new.sock; return 200; }} }}",
        dir = tree.path("").display()
    );
    let config = tree.file("conf", &text);
    let mut command = Command::new(BINARY);
    command.arg("-c").arg(config).args(as_root(&text, &[]));
    let child = command.env("SEKISHO_UPGRADE_FROM", from.to_string()).spawn();
    let child = child.expect("it starts");
    for question in ["sockets\n", "ticket-secrets\n", "quic-links\n", "drained\n", "ready\n"] {
        let (mut stream, _) = control.accept().expect("a call");
        let mut line = vec![0; question.len()];
        stream.read_exact(&mut line).expect("a question");
        assert_eq!(line, question.as_bytes());
        if question == "sockets\n" {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut rights = SendAncillaryBuffer::new(&mut space);
            let descriptors = [old.as_fd()];
            rights.push(SendAncillaryMessage::ScmRights(&descriptors));
            let line = format!("listen we unix:{}\n", path.display());
            let line = [IoSlice::new(line.as_bytes())];
            rustix::net::sendmsg(&stream, &line, &mut rights, SendFlags::empty()).expect("sent");
            stream.write_all(b"done\n").expect("sent");
        } else if question == "ready\n" {
            // Before it there were questions that an older process does not know: it hangs up.
            stream.write_all(answer.as_bytes()).expect("sent");
        }
    }
    child
}

#[test]
fn files_of_the_old_process_go_only_when_it_does() {
    // O4
    let tree = Tree::new();
    let (old, new) = (tree.path("old.sock"), tree.path("new.sock"));
    let log = || fs::read_to_string(tree.path("error.log")).unwrap_or_default();

    let mut child = take_over_from_us(&tree, "failed\nnot now");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    assert!(log().contains("refused by process") && log().contains("not now"), "{}", log());
    assert!(old.exists() && !new.exists());

    let end = |mut child: Child| {
        send(child.id(), Signal::TERM);
        child.wait().expect("it ends");
        assert!(!new.exists());
    };
    let child = take_over_from_us(&tree, "");
    eventually("the error is told", LONG, || log().contains("could not be notified"));
    UnixStream::connect(&new).expect("it serves all the same");
    assert!(old.exists(), "the old process may still be there");
    end(child);

    let child = take_over_from_us(&tree, "done\n");
    eventually("the old file is gone", LONG, || !old.exists());
    end(child);
}
