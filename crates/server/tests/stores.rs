//! What several servers share through a real Redis: rates and places hold for all of them together (`store=`), each failure
//! mode does what it says while the store is away, and TLS sessions are resumed with any of them.
#![forbid(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::store::Store;
use common::{BINARY, LONG, http};
use sekisho_testkit::{
    Background, Client, Server, Signal, Stopwatch, Tree, eventually, free_port, have, pause, run,
};

trait Nodes {
    fn node(&self, failure: &str) -> Server;
}

impl Nodes for Store {
    /// A server whose zones are there.
    fn node(&self, failure: &str) -> Server {
        let store = format!("store=redis+unix://{}", self.socket());
        let config = http(&format!(
            "limit_store_failure {failure};
             limit_req_zone all zone=rate:1m rate=50r/s {store};
             limit_conn_zone all zone=places:1m {store};
             server {{ listen 127.0.0.1:{{port}}; root {{root}}; cgi_max_processes_per_address off; cgi_read_timeout 10m; keepalive_requests 1000000;
                 location /rate {{ limit_req zone=rate burst=10 nodelay; }}
                 location /cgi-bin/ {{ limit_conn places 3; cgi on; }} }}"
        ));
        let tree = Tree::new();
        tree.file("root/rate", "here");
        tree.script("root/cgi-bin/wait", "#!/bin/sh\nprintf 'X: 1\\n\\nstart\\n'; sleep 600\n");
        tree.script("root/cgi-bin/short", "#!/bin/sh\nprintf 'X: 1\\n\\nshort\\n'\n");
        Server::start_in(tree, BINARY, &config)
    }
}

#[test]
fn a_rate_holds_for_all_servers_together() {
    let Some(store) = Store::start() else { return };
    let nodes: Vec<Server> = (0..3).map(|_| store.node("local")).collect();
    let mut clients: Vec<Client> = nodes.iter().map(Server::connect).collect();
    let (since, mut passed) = (Stopwatch::start(), 0);
    while since.elapsed() < Duration::from_secs(3) {
        for client in &mut clients {
            passed += u32::from(client.get("/rate").status == 200);
        }
    }
    let allowed = 50.0 * since.elapsed().as_secs_f64() + 11.0;
    let ratio = f64::from(passed) / allowed;
    println!("{passed} of {allowed:.0} requests passed");
    assert!((0.8..1.06).contains(&ratio), "{passed} of {allowed:.0} requests passed");
}

#[test]
fn places_are_taken_and_left_for_all_servers_together() {
    let Some(store) = Store::start() else { return };
    let (one, other) = (store.node("local"), store.node("local"));
    let held_more = |held: &mut Vec<Client>| {
        let mut client = one.connect();
        client.send("GET /cgi-bin/wait HTTP/1.1\r\nHost: x\r\n\r\n");
        held.push(client);
        eventually("the program", LONG, || one.children().len() == held.len());
    };
    let mut held = Vec::new();
    for _ in 0..3 {
        held_more(&mut held);
    }
    let status = || other.connect().get("/cgi-bin/short").status;
    eventually("all places are taken elsewhere", LONG, || status() == 503);
    held.pop();
    eventually("one was left", LONG, || status() == 200);
    held_more(&mut held);
    eventually("all are taken again", LONG, || status() == 503);
    // A server that was killed holds its places until its lease ends.
    let mut one = one;
    one.signal(Signal::KILL);
    one.wait_exit(LONG);
    eventually("the lease ends", 4 * LONG, || status() == 200);
}

#[test]
fn what_counts_while_the_store_is_away_is_configured() {
    let Some(mut store) = Store::start() else { return };
    let modes = ["local", "allow", "deny"];
    let nodes = modes.map(|mode| store.node(mode));
    for node in &nodes {
        assert_eq!(node.connect().get("/rate").status, 200);
    }
    store.end();
    for (mode, node) in modes.iter().zip(&nodes) {
        let mut client = node.connect();
        eventually("it is noticed", LONG, || {
            client.get("/rate");
            node.log("error.log").contains("of zone \"rate\" is away")
        });
        let passed = (0..200).filter(|_| client.get("/rate").status == 200).count();
        match *mode {
            "local" => assert!((1..100).contains(&passed), "{passed}"),
            "allow" => assert_eq!(passed, 200),
            _ => assert_eq!(passed, 0),
        }
    }
    store.run();
    for node in &nodes {
        let mut client = node.connect();
        eventually("it is back", LONG, || {
            client.get("/rate");
            node.log("error.log").contains("of zone \"rate\" answers again")
        });
        eventually("requests pass again", LONG, || client.get("/rate").status == 200);
    }
}

/// What has been counted reaches the store, also if the configuration is loaded anew while the store is told.
#[test]
fn a_reload_loses_no_count() {
    const ROUNDS: u64 = 8;
    const EACH: u64 = 10;
    let Some(store) = Store::start() else { return };
    let config = http(&format!(
        "limit_req_zone all zone=slow:1m rate=1r/m store=redis+unix://{};
         server {{ listen 127.0.0.1:{{port}}; root {{root}}; location /rate {{ limit_req zone=slow burst=1000 nodelay; }} }}",
        store.socket()
    ));
    let tree = Tree::new();
    tree.file("root/rate", "here");
    let server = Server::start_in(tree, BINARY, &config);
    let reloads = || server.log("error.log").matches("reloaded").count() as u64;
    for round in 0..ROUNDS {
        // The store takes its time, and answers within its bound.
        store.ask(&["client", "pause", "120"]);
        let mut client = server.connect();
        for _ in 0..EACH {
            assert_eq!(client.get("/rate").status, 200);
        }
        server.signal(Signal::HUP);
        eventually("the reload", LONG, || reloads() > round);
    }
    let excess =
        || store.ask(&["hget", "sekisho:req:slow:all", "excess"]).trim().parse().unwrap_or(0);
    // Less what has run off meanwhile, and the first one, which is free.
    let expected = (ROUNDS * EACH - 1) * 1000;
    eventually("all are counted", LONG, || (expected - 1500..=expected).contains(&excess()));
}

#[test]
fn a_session_is_resumed_with_another_server() {
    // S4
    let Some(store) = Store::start() else { return };
    if !have("openssl") {
        return;
    }
    // The same paths on both, as on the machines of a fleet.
    let shared = Tree::new();
    let dir = shared.dir().display().to_string();
    let order = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=a.test \
         -keyout {dir}/key.pem -out {dir}/cert.pem"
    );
    assert_eq!(run("sh", &["-c", &order], LONG).code(), 0);
    let config = http(&format!(
        "ssl_session_ticket_store redis+unix://{};
         server {{ listen 127.0.0.1:{{port}} ssl; server_name a.test; return 200 $ssl_session_reused;
             ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem; }}",
        store.socket()
    ));
    let start = || Server::start_in(Tree::new(), BINARY, &config);
    let (one, other) = (start(), start());
    let ask = |server: &Server, arguments: &str| {
        let ask = format!(
            "printf 'GET / HTTP/1.0\\r\\nHost: a.test\\r\\n\\r\\n' | openssl s_client -connect {} -servername a.test \
             -ign_eof {arguments} 2>&1",
            server.address()
        );
        run("sh", &["-c", &ask], LONG).stdout
    };
    // Until both have the secret of the store, each has one of its own.
    eventually("both share a secret", LONG, || {
        ask(&one, &format!("-sess_out {dir}/session"));
        ask(&other, &format!("-sess_in {dir}/session")).contains("Reused, TLSv1.3")
    });
    assert!(ask(&one, &format!("-sess_in {dir}/session")).contains("Reused"), "and with itself");
}

/// Two servers share counts by this store, for keys that lie in different places of it.
fn assert_counts_together(url: &str) {
    let config = http(&format!(
        "limit_req_zone $arg_key zone=few:1m rate=1r/m store={url};
         server {{ listen 127.0.0.1:{{port}}; root {{root}}; location /rate {{ limit_req zone=few burst=200 nodelay; }} }}"
    ));
    let start = || {
        let tree = Tree::new();
        tree.file("root/rate", "here");
        Server::start_in(tree, BINARY, &config)
    };
    let (one, other) = (start(), start());
    // A busy machine may need longer for the first connection than a store is waited for.
    let mut round = 0;
    eventually("both are connected", LONG, || {
        round += 1;
        let target = format!("/rate?key=first{round}");
        let (mut client, mut second) = (one.connect(), other.connect());
        for _ in 0..230 {
            client.get(&target);
        }
        second.get(&target);
        pause(Duration::from_millis(50));
        second.get(&target).status == 503
    });
    let before = [&one, &other].map(|server| server.log("error.log").len());
    for key in ["a", "b", "c", "d"] {
        let target = format!("/rate?key={key}");
        let mut client = one.connect();
        let passed = (0..230).filter(|_| client.get(&target).status == 200).count();
        assert_eq!(passed, 201, "{}", one.log("error.log"));
        let (mut client, mut asked) = (other.connect(), 0);
        eventually("the other one knows", LONG, || {
            asked += 1;
            client.get(&target).status == 503
        });
        assert!(asked < 200, "{asked} requests passed: {}", other.log("error.log"));
    }
    for (server, before) in [one, other].iter().zip(before) {
        assert!(!server.log("error.log")[before..].contains("is away"));
    }
}

/// A program of Redis, and what it is asked with.
fn redis(tree: &Tree, program: &str, arguments: &[&str]) -> Background {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(tree.dir()).stdout(Stdio::null()).stderr(Stdio::null());
    Background::start(&mut command)
}

fn answers(arguments: &[&str]) -> bool {
    run("redis-cli", &[arguments, &["ping"]].concat(), LONG).stdout.starts_with("PONG")
}

fn free_ports<const N: usize>() -> [String; N] {
    std::array::from_fn(|_| free_port().to_string())
}

#[test]
fn a_store_may_be_a_cluster() {
    if !have("redis-server") || !have("redis-cli") {
        return;
    }
    let tree = Tree::new();
    let ports: [String; 3] = free_ports();
    let _servers: Vec<Background> = ports
        .iter()
        .map(|port| {
            let file = format!("{port}.conf");
            let cluster = ["--cluster-enabled", "yes", "--cluster-config-file", &file];
            let own = ["--port", port, "--bind", "127.0.0.1", "--save", ""];
            redis(&tree, "redis-server", &[&own[..], &cluster].concat())
        })
        .collect();
    eventually("Redis", LONG, || ports.iter().all(|port| answers(&["-p", port])));
    let all: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let create = [&["--cluster", "create"], &all[..], &["--cluster-yes"]].concat();
    run("redis-cli", &create, LONG);
    eventually("the cluster", LONG, || {
        ports.iter().all(|port| {
            let info = run("redis-cli", &["-p", port, "cluster", "info"], LONG).stdout;
            info.contains("cluster_state:ok")
        })
    });
    assert_counts_together(&format!("redis-cluster://{},{}", all[0], all[1]));
}

#[test]
fn a_store_may_be_named_by_sentinels() {
    if !have("redis-server") || !have("redis-sentinel") {
        return;
    }
    let tree = Tree::new();
    let [port, sentinel]: [String; 2] = free_ports();
    let _server =
        redis(&tree, "redis-server", &["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
    eventually("Redis", LONG, || answers(&["-p", &port]));
    tree.file(
        "sentinel.conf",
        format!("port {sentinel}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {port} 1\n"),
    );
    let _sentinel = redis(&tree, "redis-sentinel", &["sentinel.conf"]);
    eventually("the sentinel", LONG, || answers(&["-p", &sentinel]));
    assert_counts_together(&format!("redis-sentinel://127.0.0.1:{sentinel}/main"));
}

/// How Redis speaks by TLS and nothing else.
const BY_TLS: [&str; 14] = [
    "--port",
    "0",
    "--bind",
    "127.0.0.1",
    "--tls-auth-clients",
    "no",
    "--tls-replication",
    "yes",
    "--tls-cert-file",
    "store.pem",
    "--tls-key-file",
    "store.key",
    "--tls-ca-cert-file",
    "own.pem",
];

/// Makes the files that these name, and `other.pem` of another authority; returns their folder.
fn certificates(tree: &Tree) -> String {
    let dir = tree.dir().display().to_string();
    let new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let make = format!(
        "set -e; cd {dir}; for name in own other; do {new} -x509 -days 30 -subj /CN=$name -keyout $name.key -out $name.pem; done
         {new} -subj /CN=store -keyout store.key -out store.csr; echo subjectAltName=IP:127.0.0.1 > store.cnf
         openssl x509 -req -in store.csr -CA own.pem -CAkey own.key -CAcreateserial -days 30 -extfile store.cnf -out store.pem"
    );
    assert_eq!(run("sh", &["-c", &make], LONG).code(), 0);
    dir
}

#[test]
fn a_cluster_is_spoken_to_by_tls() {
    if !have("redis-server") || !have("redis-cli") || !have("openssl") {
        return;
    }
    let tree = Tree::new();
    let dir = certificates(&tree);
    let file = format!("{dir}/own.pem");
    let cli = ["--tls", "--cacert", &file, "-a", "secret", "--no-auth-warning"];
    let ports: [String; 3] = free_ports();
    let _servers: Vec<Background> = ports
        .iter()
        .map(|port| {
            let file = format!("{port}.conf");
            let cluster = ["--cluster-enabled", "yes", "--cluster-config-file", &file];
            let own = ["--tls-port", port, "--tls-cluster", "yes", "--save", ""];
            let login = ["--requirepass", "secret", "--masterauth", "secret"];
            redis(&tree, "redis-server", &[&own[..], &cluster, &login, &BY_TLS].concat())
        })
        .collect();
    eventually("Redis", LONG, || {
        ports.iter().all(|port| answers(&[&cli[..], &["-p", port]].concat()))
    });
    let all: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let create = [&["--cluster", "create"], &all[..], &["--cluster-yes"]].concat();
    run("redis-cli", &[&cli[..], &create].concat(), LONG);
    eventually("the cluster", LONG, || {
        ports.iter().all(|port| {
            let asked = [&cli[..], &["-p", port, "cluster", "info"]].concat();
            let info = run("redis-cli", &asked, LONG).stdout;
            info.contains("cluster_state:ok")
        })
    });
    let url = format!("rediss-cluster://:secret@{},{}", all[0], all[1]);
    assert_counts_together(&format!("{url}?ca={file}"));
    // The library tries again before it says why, which may take longer than a store is waited for.
    assert_not_trusted(&format!("{url}?ca={dir}/other.pem"), "");
}

#[test]
fn sentinels_are_spoken_to_by_tls() {
    if !have("redis-server") || !have("redis-sentinel") || !have("openssl") {
        return;
    }
    let tree = Tree::new();
    let dir = certificates(&tree);
    let file = format!("{dir}/own.pem");
    let [port, sentinel, nobody]: [String; 3] = free_ports();
    let own = ["--tls-port", &port, "--save", "", "--requirepass", "secret"];
    let _server = redis(&tree, "redis-server", &[&own[..], &BY_TLS].concat());
    let cli = ["--tls", "--cacert", &file, "--no-auth-warning"];
    eventually("Redis", LONG, || answers(&[&cli[..], &["-p", &port, "-a", "secret"]].concat()));
    let tls: Vec<String> =
        BY_TLS.chunks(2).map(|pair| format!("{} {}\n", &pair[0][2..], pair[1])).collect();
    let tls = tls.concat();
    tree.file(
        "sentinel.conf",
        format!("{tls}tls-port {sentinel}\nsentinel monitor main 127.0.0.1 {port} 1\nsentinel auth-pass main secret\n"),
    );
    let _sentinel = redis(&tree, "redis-sentinel", &["sentinel.conf"]);
    eventually("the sentinel", LONG, || answers(&[&cli[..], &["-p", &sentinel]].concat()));
    // The first one is away.
    let url = format!("rediss-sentinel://:secret@127.0.0.1:{nobody},127.0.0.1:{sentinel}");
    assert_counts_together(&format!("{url}/main?ca={file}"));
    // What is said is the cause of one of the two.
    assert_not_trusted(&format!("{url}/main?ca={dir}/other.pem"), "");
}

/// A store whose certificate is of another authority is not used.
#[track_caller]
fn assert_not_trusted(url: &str, why: &str) {
    let config = http(&format!(
        "limit_req_zone all zone=few:1m rate=1r/m store={url};
         server {{ listen 127.0.0.1:{{port}}; return 200; limit_req zone=few; }}"
    ));
    let server = Server::start_in(Tree::new(), BINARY, &config);
    eventually("it is refused", LONG, || {
        let log = server.log("error.log");
        log.contains("is away: ") && log.contains(why) && !log.contains("secret")
    });
}

/// `rediss://`: with an authority that is trusted, and with another one.
#[test]
fn a_store_is_spoken_to_by_tls() {
    if !have("redis-server") || !have("openssl") {
        return;
    }
    let tree = Tree::new();
    let dir = certificates(&tree);
    let [port]: [String; 1] = free_ports();
    let own = ["--tls-port", &port, "--save", "", "--requirepass", "secret"];
    let _server = redis(&tree, "redis-server", &[&own[..], &BY_TLS].concat());
    let file = format!("{dir}/own.pem");
    eventually("Redis", LONG, || {
        answers(&["--tls", "--cacert", &file, "-p", &port, "-a", "secret", "--no-auth-warning"])
    });
    assert_counts_together(&format!("rediss://:secret@127.0.0.1:{port}/0?ca={dir}/own.pem"));
    assert_not_trusted(
        &format!("rediss://:secret@127.0.0.1:{port}?ca={dir}/other.pem"),
        "certificate",
    );
}

/// What a store says that is no store: to each connection, and to each request on it.
type Lie = (&'static str, fn(&mut TcpStream));

const LIES: &[Lie] = &[
    ("silence", |stream| drop(stream.read(&mut [0; 16_384]))),
    ("not Redis", |stream| drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n"))),
    ("an array without an end", |stream| drop(stream.write_all(b"*2147483647\r\n:1\r\n"))),
    ("nested arrays", |stream| drop(stream.write_all(&b"*1\r\n".repeat(200_000)))),
    ("a string without an end", |stream| {
        let _ = stream.write_all(b"$536870912\r\n");
        for _ in 0..4096 {
            if stream.write_all(&[b'x'; 16_384]).is_err() {
                return;
            }
        }
    }),
    ("a long error", |stream| {
        let _ = stream.write_all(&[&b"-ERR "[..], &vec![b'x'; 1 << 20], b"\r\n"].concat());
    }),
    ("other types", |stream| drop(stream.write_all(&b"+OK\r\n$-1\r\n".repeat(1000)))),
    ("huge numbers", |stream| drop(stream.write_all(&b":9223372036854775807\r\n".repeat(1000)))),
    ("redirects", |stream| drop(stream.write_all(&b"-MOVED 1 127.0.0.1:1\r\n".repeat(1000)))),
];

/// A store that answers each message with a lie. Its thread ends with the test.
fn liar(lie: fn(&mut TcpStream)) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                stream.set_read_timeout(Some(LONG)).expect("an option");
                while stream.read(&mut [0; 16_384]).is_ok_and(|count| count > 0) {
                    lie(&mut stream);
                }
            });
        }
    });
    port
}

/// Whatever a store says, requests are limited locally and wait for nothing; memory and log are bounded.
#[test]
fn a_lying_store_harms_nobody() {
    std::thread::scope(|scope| {
        for (name, lie) in LIES {
            for scheme in ["redis", "redis-cluster"] {
                scope.spawn(move || lied_to(name, *lie, scheme));
            }
        }
    });
}

fn lied_to(name: &str, lie: fn(&mut TcpStream), scheme: &str) {
    let port = liar(lie);
    let tree = Tree::new();
    tree.file("root/rate", "here");
    let config = http(&format!(
        "limit_store_failure local;
         limit_req_zone all zone=rate:1m rate=1000r/s store={scheme}://127.0.0.1:{port};
         server {{ listen 127.0.0.1:{{port}}; root {{root}}; keepalive_requests 1000000;
             location /rate {{ limit_req zone=rate burst=1000 nodelay; }} }}"
    ));
    let mut server = Server::start_in(tree, BINARY, &config);
    let before = server.rss_bytes();
    let mut client = server.connect();
    let (since, mut slowest, mut most) = (Stopwatch::start(), Duration::ZERO, before);
    while since.elapsed() < Duration::from_secs(2) {
        let watch = Stopwatch::start();
        let status = client.get("/rate").status;
        assert!(matches!(status, 200 | 503), "{name} {scheme}: {status}");
        slowest = slowest.max(watch.elapsed());
        most = most.max(server.rss_bytes());
        pause(Duration::from_millis(5));
    }
    assert!(slowest < Duration::from_secs(1), "{name} {scheme}: {slowest:?}");
    let grown = (most - before) >> 20;
    println!("{name}, {scheme}: +{grown} MB, slowest {slowest:?}");
    assert!(grown < 48, "{name} {scheme}: {grown} MB");
    assert!(server.is_running(), "{name} {scheme}");
    let log = server.tree().text("error.log");
    let complaints = log.lines().filter(|line| line.contains("the store"));
    let (lines, bytes) = complaints.fold((0, 0), |(n, bytes), line| (n + 1, bytes + line.len()));
    assert!(lines < 20 && bytes < 20_000, "{name} {scheme}: {lines} lines, {bytes} bytes");
}
