//! What several servers share through a real Redis: rates and places hold for all of them together (`store=`), each failure
//! mode does what it says while the store is away, and TLS sessions are resumed with any of them.
#![forbid(unsafe_code)]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::{BINARY, LONG, http};
use sekisho_testkit::{Background, Client, Server, Signal, Stopwatch, Tree, eventually, have, run};

/// A store at a Unix socket, which can be ended and started again.
struct Store {
    tree: Tree,
    process: Option<Background>,
}

impl Store {
    /// `None` without Redis.
    fn start() -> Option<Self> {
        have("redis-server").then(|| {
            let mut store = Self { tree: Tree::new(), process: None };
            store.run();
            store
        })
    }

    fn socket(&self) -> String {
        self.tree.path("redis.sock").display().to_string()
    }

    fn run(&mut self) {
        let socket = self.socket();
        let dir = self.tree.dir().display().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket", &socket, "--dir", &dir]);
        self.process = Some(Background::start(command.stdout(Stdio::null())));
        eventually("Redis", LONG, || {
            run("redis-cli", &["-s", &socket, "ping"], LONG).stdout.starts_with("PONG")
        });
    }

    fn end(&mut self) {
        self.process = None;
    }

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
    let cli = |arguments: &[&str]| {
        let socket = store.socket();
        run("redis-cli", &[&["-s", socket.as_str()], arguments].concat(), LONG).stdout
    };
    let reloads = || server.log("error.log").matches("reloaded").count() as u64;
    for round in 0..ROUNDS {
        // The store takes its time, and answers within its bound.
        cli(&["client", "pause", "120"]);
        let mut client = server.connect();
        for _ in 0..EACH {
            assert_eq!(client.get("/rate").status, 200);
        }
        server.signal(Signal::HUP);
        eventually("the reload", LONG, || reloads() > round);
    }
    let excess = || cli(&["hget", "sekisho:req:slow:all", "excess"]).trim().parse().unwrap_or(0);
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
