//! What callers without any right may reach and take: the addresses of `http`, the slots for sessions before
//! their handshake, sessions by address; and peers that vanish without closing.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use prost::Message;
use sekisho_endpoint::blocking::Client;
use sekisho_endpoint::http::{Head, Request};
use sekisho_endpoint::{Code, Echo, Options};
use sekisho_testkit::{Server, Tree, eventually, have, run};

use crate::common::{BINARY, LONG, http, own_address};
use crate::support::{admin, ctl, metric, native};

/// Two sites: one for all clients, and one at a Unix socket in a folder of the operator's.
fn two_sites(endpoint: &str) -> Server {
    let tree = Tree::new();
    tree.folder("private");
    let servers = "server { listen 127.0.0.1:{port}; return 200 public; }\n\
        server { listen unix:{dir}/private/admin.sock; return 200 operators; }";
    let config = format!("endpoint {{ listen unix:{{dir}}/s; {endpoint} }}\n{}", http(servers));
    Server::start_in(tree, BINARY, &config)
}

/// The status of an HTTP request through the service, at this address.
fn reach(client: &mut Client<UnixStream>, address: &str) -> Result<u32, Code> {
    let request = Request { address: address.to_owned(), ..Request::default() };
    let ticket = client.request(2, &request.encode_to_vec()).expect("asked");
    let mut status = None;
    while let Some(record) = client.next_record(&ticket).expect("alive") {
        status = status.or_else(|| Head::decode(&record[..]).ok().map(|head| head.status));
    }
    match client.answer(ticket) {
        Ok(_) => Ok(status.expect("a head")),
        Err(error) => Err(error.code().expect("a code")),
    }
}

#[test]
fn a_caller_without_the_right_to_control_reaches_only_the_addresses_that_are_named() {
    // E9, V50
    let server = two_sites("http_addresses 127.0.0.1:{port};");
    let public = server.address().to_string();
    let private = format!("unix:{}", server.tree().path("private/admin.sock").display());
    let mut caller = native(&server, "s", "caller");
    assert_eq!(reach(&mut caller, &public), Ok(200));
    assert_eq!(reach(&mut caller, ""), Ok(200), "the first that is named");
    assert_eq!(reach(&mut caller, &private), Err(Code::PermissionError));
    // An operator reaches all of them, at the control socket and at the address.
    let mut operator = admin(&server);
    assert_eq!(reach(&mut operator, &private), Ok(200));
    let stream = UnixStream::connect(server.tree().path("s")).expect("it listens");
    let options = Options { admin: true, ..Options::from("operator") };
    let mut operator = Client::connect(stream, options).expect("admitted");
    assert_eq!(reach(&mut operator, &private), Ok(200));
    assert_eq!(reach(&mut operator, &public), Ok(200));
}

#[test]
fn without_named_addresses_only_operators_make_http_requests() {
    // E9, V50
    let server = two_sites("");
    let mut caller = native(&server, "s", "caller");
    for address in ["", &server.address().to_string()] {
        assert_eq!(reach(&mut caller, address), Err(Code::PermissionError), "{address}");
    }
    assert_eq!(reach(&mut admin(&server), ""), Ok(200));
}

#[test]
fn a_named_address_that_nobody_listens_on_is_an_error() {
    // E9, O2
    let tree = Tree::new();
    tree.file(
        "c.conf",
        "endpoint { listen 127.0.0.1:1; http_addresses 127.0.0.1:3; }\n\
         http { server { listen 127.0.0.1:2; return 200; } }",
    );
    let path = tree.path("c.conf").display().to_string();
    let done = run(BINARY, &["-t", "-c", &path], LONG);
    assert_ne!(done.code(), 0);
    assert!(done.stderr.contains("no server listens on 127.0.0.1:3"), "{}", done.stderr);
}

/// An endpoint at this TCP address and at `{dir}/s`.
fn two_listeners(address: std::net::SocketAddr, limits: &str) -> Server {
    let site = http("server { listen 127.0.0.1:{port}; return 200; }");
    let endpoint = format!("endpoint {{ listen {address}; listen unix:{{dir}}/s; {limits} }}");
    Server::start(BINARY, &format!("{endpoint}\n{site}"))
}

fn echoes(
    client: Result<Client<impl std::io::Read + std::os::fd::AsFd>, sekisho_endpoint::CallError>,
) {
    let mut client = client.expect("admitted");
    assert_eq!(client.call(Echo::NUMBER, b"x").expect("served"), b"x");
}

#[test]
fn peers_that_say_nothing_keep_nobody_out() {
    // E4, E5, V15: 300 half greetings from one address; the handshake timeout is no help here.
    let address = own_address(17_461);
    let server = two_listeners(address, "handshake_timeout 10m;");
    let mut silent = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(address).expect("it listens");
        let _ = stream.write(&[0]);
        silent.push(stream);
    }
    eventually("the oldest are refused", LONG, || {
        metric(&server, "sekisho_native_refused_total", None) >= 200
    });
    echoes(Client::connect(UnixStream::connect(server.tree().path("s")).expect("it listens"), "u"));
    echoes(Client::connect(TcpStream::connect(address).expect("it listens"), "t"));
    let log = server.log("error.log");
    let lines = log.lines().filter(|line| line.contains("refused: RESOURCE_LIMIT_REACHED"));
    let count = lines.count();
    assert!((1..20).contains(&count), "{count} lines");
    drop(silent);
}

#[test]
fn one_address_does_not_take_all_sessions() {
    // E4
    let address = own_address(17_462);
    let server = two_listeners(address, "sessions_max 8;");
    let connect = || Client::connect(TcpStream::connect(address).expect("it listens"), "many");
    let mut sessions: Vec<_> = (0..6).map(|_| connect().expect("admitted")).collect();
    let error = connect().expect_err("three quarters are taken");
    assert_eq!(error.code(), Some(Code::ResourceLimitReached));
    let mut local = native(&server, "s", "local");
    assert_eq!(local.call(Echo::NUMBER, b"x").expect("served"), b"x");
    drop(sessions.pop());
    eventually("a free slot", LONG, || connect().is_ok());
}

#[test]
fn a_peer_that_vanishes_without_a_word_is_looked_for() {
    // L12: the kernel's keep-alive timer runs on the server's end of an idle session.
    let address = own_address(17_463);
    let server = two_listeners(address, "");
    let stream = TcpStream::connect(address).expect("it listens");
    let peer = stream.local_addr().expect("bound").port();
    let client = Client::connect(stream, "idle").expect("admitted");
    let ends = format!(":{:04X} ", address.port());
    let other = format!(":{peer:04X} 01 ");
    eventually("a keep-alive timer", LONG, || {
        let sockets = fs::read_to_string("/proc/net/tcp").expect("Linux");
        let mut ours = sockets.lines().filter(|it| it.contains(&ends) && it.contains(&other));
        ours.any(|line| line.split_whitespace().nth(5).is_some_and(|it| it.starts_with("02:")))
    });
    assert_eq!(ctl(&server, &["sessions"]).code(), 0);
    drop(client);
}

/// Starts a server whose abstract names another process has taken: this one.
fn with_taken_names() -> (Server, Vec<UnixListener>) {
    let tree = Tree::new();
    let dir = tree.path(".").display().to_string();
    tree.script(
        "wrapper",
        &format!(
            "#!/bin/sh\necho $$ >{dir}/pid.new; mv {dir}/pid.new {dir}/pid.known\n\
             while [ ! -e {dir}/go ]; do sleep 0.02; done\nexec {BINARY} \"$@\"\n"
        ),
    );
    let (known, go) = (tree.path("pid.known"), tree.path("go"));
    let taker = std::thread::spawn(move || {
        eventually("the number", LONG, || known.exists());
        let pid = fs::read_to_string(known).expect("a number");
        let names = [format!("sekisho/{}", pid.trim()), format!("sekisho/{}/handover", pid.trim())];
        let taken = names.map(|name| {
            let name = SocketAddr::from_abstract_name(name).expect("a name");
            UnixListener::bind_addr(&name).expect("the name is free")
        });
        fs::write(go, "").expect("written");
        Vec::from(taken)
    });
    let binary = tree.path("wrapper").display().to_string();
    let config = http("server { listen 127.0.0.1:{port}; return 200 $pid; }");
    let server = Server::start_in(tree, &binary, &config);
    (server, taker.join().expect("they are taken"))
}

#[test]
fn a_server_whose_names_are_taken_can_be_controlled_by_its_file() {
    // E9, V50
    if !rustix::process::geteuid().is_root() {
        println!("skipped: there is no folder for the file");
        return;
    }
    let (mut server, taken) = with_taken_names();
    let listed = ctl(&server, &["sessions"]);
    assert_eq!(listed.code(), 0, "{}{}", listed.stdout, listed.stderr);
    assert!(server.log("error.log").contains("cannot be used"), "{}", server.log("error.log"));
    for listener in &taken {
        listener.set_nonblocking(true).expect("a socket takes its options");
        assert!(listener.accept().is_err(), "no connection to the wrong one");
    }
    let file = format!("/run/sekisho/{}.sock", server.id());
    assert!(fs::metadata(&file).is_ok());
    assert_eq!(ctl(&server, &["reload"]).code(), 0);
    server.quit();
    assert!(server.wait_exit(LONG).success());
    assert!(fs::metadata(&file).is_err(), "it goes with its server");
}

#[test]
fn a_process_of_another_user_is_not_taken_for_a_server() {
    // E10, V50
    if !rustix::process::geteuid().is_root() || !have("unshare") || !have("python3") {
        println!("skipped: another user and a network namespace are needed");
        return;
    }
    let tree = Tree::new();
    let ready = tree.path("ready").display().to_string();
    tree.mode(".", 0o777);
    tree.file(
        "pose.py",
        format!(
            "import os, socket, time\nos.setgid(65534); os.setuid(65534)\ns = socket.socket(socket.AF_UNIX)\n\
             s.bind('\\0sekisho/%d' % os.getpid())\ns.listen()\nopen('{ready}', 'w').close()\n\
             time.sleep(600)\n"
        ),
    );
    let pose = tree.path("pose.py").display().to_string();
    let script = format!(
        "python3 {pose} & poser=$!\n\
         while [ ! -e {ready} ]; do sleep 0.02; done\n\
         {BINARY} ctl sessions; status=$?; kill $poser; exit $status"
    );
    let done = run("unshare", &["-n", "sh", "-c", &script], LONG);
    assert_ne!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stderr.contains("no server of yours or of root's runs"), "{}", done.stderr);
}
