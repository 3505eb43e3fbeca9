//! Two servers in a row, of which one is this one, see the same requests, whatever a client sends. Each
//! writes a log; what the first has passed on is what the second has read.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use sekisho_testkit::{Background, Server, Signal, Tree, eventually, have};

use crate::common::{BINARY, LONG, http, own_address};
use crate::smuggling::corpus;

const CLIENTS: usize = 16;
/// What an incomplete request may take.
const SHORT: &str = "500ms";

/// The same payload with targets of its own, as long as before.
fn numbered(payload: &[u8], number: usize) -> Vec<u8> {
    let mut text = payload.to_vec();
    for (word, new) in [
        (&b"/n/first"[..], format!("/n/{number:05}")),
        (b"/n/smuggled", format!("/n/s{number:07}")),
    ] {
        while let Some(at) = text.windows(word.len()).position(|window| window == word) {
            text.splice(at..at + word.len(), new.bytes());
        }
    }
    text
}

/// Sends everything to the first server, one connection for each. What is not whole ends by the server's own deadline.
fn send_all(front: SocketAddr) {
    let corpus = corpus();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(payload) = corpus.get(number)
                {
                    let mut client = TcpStream::connect(front).expect("it listens");
                    client.set_read_timeout(Some(LONG)).expect("a socket takes its options");
                    let end = "GET /n/end HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
                    // A server may refuse before it has read all, and close: both may fail then.
                    let _ =
                        client.write_all(&[&*numbered(payload, number), end.as_bytes()].concat());
                    let _ = client.read_to_end(&mut Vec::new());
                }
            });
        }
    });
}

/// Targets of a log whose lines are `WORD TARGET`, where `WORD` says that the request was passed on, sorted.
fn targets(log: &str, is_passed: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = log.lines().filter_map(|line| line.split_once(' '));
    let mut found: Vec<_> =
        lines.filter(|(word, _)| is_passed(word)).map(|it| it.1.to_owned()).collect();
    found.sort();
    found
}

/// A peer that runs, and the log that it writes.
struct Peer {
    process: Background,
    tree: Tree,
    graceful: Signal,
}

impl Peer {
    fn start(program: &str, config: &str, arguments: &[&str], at: SocketAddr) -> Self {
        let tree = Tree::new();
        let dir = tree.dir().display().to_string();
        tree.folder("root");
        let path = tree.file("peer.conf", config.replace("{dir}", &dir)).display().to_string();
        let arguments =
            arguments.iter().map(|it| it.replace("{conf}", &path).replace("{dir}", &dir));
        let output = fs::File::create(tree.path("stdout")).expect("a file can be made");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin"));
        let process = Background::start(command.stdout(output).stderr(Stdio::null()));
        eventually(program, LONG, || TcpStream::connect(at).is_ok());
        let graceful = match program {
            "nginx" => Signal::QUIT,
            "lighttpd" => Signal::INT,
            "apache2" => Signal::WINCH,
            _ => Signal::USR1,
        };
        Self { process, tree, graceful }
    }

    /// Ends it when it has done everything, since some write their logs only then, and reads one.
    fn end(mut self, log: &str) -> String {
        self.process.end_by(self.graceful, LONG);
        self.tree.text(log)
    }
}

/// With lingering, nginx writes its line when it is over, and not before it ends.
const NGINX: &str = "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log; events { }
    http { client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c; uwsgi_temp_path {dir}/d;
    scgi_temp_path {dir}/e; lingering_close off; log_format pair '$upstream_status $request_uri'; access_log {dir}/access.log pair;";

fn nginx(rest: &str, at: SocketAddr) -> Peer {
    let config = format!("{NGINX} server {{ listen {at}; {rest} }} }}");
    Peer::start("nginx", &config, &["-c", "{conf}", "-e", "{dir}/error.log"], at)
}

fn apache(at: SocketAddr) -> Peer {
    let modules = ["mpm_event", "authz_core", "dir", "mime"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
    let config = format!(
        "ServerRoot {{dir}}\nPidFile {{dir}}/pid\nErrorLog {{dir}}/error.log\nServerName localhost\nListen {at}\n{}
         TypesConfig /etc/mime.types\nUser www-data\nGroup www-data\nDocumentRoot {{dir}}/root\nMaxKeepAliveRequests 0
         LogFormat \"- %U%q\" pair\nCustomLog {{dir}}/access.log pair\nErrorDocument 404 gone
         <Directory {{dir}}/root>\nRequire all granted\n</Directory>\n",
        modules.concat()
    );
    Peer::start("apache2", &config, &["-D", "FOREGROUND", "-f", "{conf}"], at)
}

fn lighttpd(at: SocketAddr) -> Peer {
    let config = format!(
        "server.modules = ( \"mod_accesslog\", \"mod_staticfile\" )\nserver.document-root = \"{{dir}}/root\"
         server.bind = \"{}\"\nserver.port = {}\naccesslog.filename = \"{{dir}}/access.log\"\naccesslog.format = \"- %U%q\"\n",
        at.ip(),
        at.port()
    );
    Peer::start("lighttpd", &config, &["-D", "-f", "{conf}"], at)
}

fn haproxy(to: SocketAddr, at: SocketAddr) -> Peer {
    let config = format!(
        "global\n    log stdout format raw local0\n    nbthread 1\ndefaults\n    mode http\n    log global
    timeout client {SHORT}\n    timeout server 5s\n    timeout connect 5s\n    http-reuse always
    log-format \"%s %HU\"\nfrontend front\n    bind {at}\n    default_backend back
backend back\n    server one {to}\n"
    );
    Peer::start("haproxy", &config, &["-f", "{conf}"], at)
}

/// Fails where one list has what the other has not.
#[track_caller]
fn assert_same(passed: &[String], read: &[String]) {
    let counted = |all: &[String], target: &str| all.iter().filter(|it| *it == target).count();
    let differing: BTreeSet<_> = passed
        .iter()
        .chain(read)
        .filter(|target| counted(passed, target) != counted(read, target))
        .map(|target| (target, counted(passed, target), counted(read, target)))
        .collect();
    assert!(differing.is_empty(), "target, times passed on, times read: {differing:?}");
}

/// Whether a log says that a request went on.
fn has_status(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
}

/// This server in front of a peer. With buffering the peer reads what went on and nothing else; without, a request may
/// have gone on in part, but never one that the client hid.
fn in_front_of(peer: Peer, at: SocketAddr) {
    let serve = |prefix: &str, buffering: &str| {
        let server = Server::start_in(
            Tree::new(),
            BINARY,
            &http(&format!(
                "log_format pair '$upstream_status $request_uri';
                 client_header_timeout {SHORT}; client_body_timeout {SHORT}; keepalive_timeout {SHORT};
                 upstream back {{ server {at} max_fails=0; keepalive 4; }}
                 server {{ listen 127.0.0.1:{{port}}; access_log {{dir}}/pair.log pair; location / {{ proxy_pass http://back{prefix}/;
                   proxy_set_header Host $host; proxy_request_buffering {buffering}; }} }}"
            )),
        );
        send_all(server.address());
        server.log("pair.log")
    };
    let (buffered, streamed) = (serve("/on", "on"), serve("/off", "off"));
    let log = peer.end("access.log");
    let read = |prefix: &str| -> Vec<String> {
        let all = targets(&log, |_| true);
        all.iter().filter_map(|target| Some(target.strip_prefix(prefix)?.to_owned())).collect()
    };
    let passed = targets(&buffered, has_status);
    assert!(passed.iter().filter(|target| *target != "/n/end").count() > 40, "{buffered}");
    assert_same(&passed, &read("/on"));
    let seen = targets(&streamed, |_| true);
    for target in read("/off") {
        assert!(seen.contains(&target), "{target} was read, and we did not see it");
    }
    for target in targets(&log, |_| true) {
        assert!(!target.contains("/n/s0"), "{target} was hidden, and went on");
    }
}

/// This server behind a peer: whatever the peer makes of what the client sent, both make the same of it.
fn behind(start: impl FnOnce(SocketAddr) -> (Peer, SocketAddr, &'static str)) {
    let server = Server::start_in(
        Tree::new(),
        BINARY,
        &http(
            "log_format pair '$status $request_uri';
             server { listen 127.0.0.1:{port}; access_log {dir}/pair.log pair; location / { return 200 $uri; } }",
        ),
    );
    let (peer, at, log) = start(server.address());
    send_all(at);
    let theirs = peer.end(log);
    let passed = targets(&theirs, |word| has_status(word) || word == "one");
    let read = targets(&server.log("pair.log"), |_| true);
    assert!(read.len() > 40, "{theirs}");
    assert_same(&passed, &read);
}

/// V1, V2, U3: neither takes for one request what the other takes for two.
#[test]
fn nginx_behind_us_reads_what_we_read() {
    if have("nginx") {
        let at = own_address(8080);
        in_front_of(nginx("location / { return 200 $uri; }", at), at);
    }
}

/// V1, V2, U3: neither takes for one request what the other takes for two.
#[test]
fn apache_behind_us_reads_what_we_read() {
    if have("apache2") {
        let at = own_address(8080);
        in_front_of(apache(at), at);
    }
}

/// V1, V2, U3: neither takes for one request what the other takes for two.
#[test]
fn lighttpd_behind_us_reads_what_we_read() {
    if have("lighttpd") {
        let at = own_address(8080);
        in_front_of(lighttpd(at), at);
    }
}

/// V1, V2, U3: neither takes for one request what the other takes for two.
#[test]
fn we_read_what_nginx_before_us_reads() {
    if have("nginx") {
        behind(|to| {
            let at = own_address(8080);
            let proxy = format!(
                "client_header_timeout {SHORT}; client_body_timeout {SHORT}; keepalive_timeout {SHORT};
                 location / {{ proxy_pass http://{to}; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}"
            );
            (nginx(&proxy, at), at, "access.log")
        });
    }
}

/// V1, V2, U3: neither takes for one request what the other takes for two.
#[test]
fn we_read_what_haproxy_before_us_reads() {
    if have("haproxy") {
        behind(|to| {
            let at = own_address(8080);
            (haproxy(to, at), at, "stdout")
        });
    }
}
