//! Several servers seen and controlled as one (`cluster`, `ctl --cluster`), at a real NATS server.
#![forbid(unsafe_code)]

mod background_load;
mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use background_load::{ByPidFile, Load, install};
use common::{BINARY, LONG, http};
use sekisho_testkit::{
    Background, Finished, Server, Signal, Tree, eventually, free_port, have, run,
};

/// A NATS server, which can be ended and started again.
struct Nats {
    tree: Tree,
    port: u16,
    process: Option<Background>,
}

impl Nats {
    /// `None` where it is not installed. `config` is put into its configuration.
    fn start(config: &str) -> Option<Self> {
        if !have("nats-server") {
            return None;
        }
        let tree = Tree::new();
        let port = free_port();
        tree.file("nats.conf", format!("listen: 127.0.0.1:{port}\n{config}\n"));
        let mut nats = Self { tree, port, process: None };
        nats.run();
        Some(nats)
    }

    fn run(&mut self) {
        let mut command = Command::new("nats-server");
        command.arg("-c").arg(self.tree.path("nats.conf"));
        self.process = Some(Background::start(command.stdout(Stdio::null()).stderr(Stdio::null())));
        eventually("NATS", LONG, || std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    fn end(&mut self) {
        self.process = None;
    }

    /// What a node's configuration says before `http`.
    fn cluster(&self, node: &str) -> String {
        format!("cluster {{ name edge; node {node}; nats nats://127.0.0.1:{}; }}", self.port)
    }

    /// Nodes of these names, that know of each other.
    fn nodes<const N: usize>(&self, names: [&str; N]) -> [Server; N] {
        let nodes = names.map(|name| node(&self.cluster(name)));
        for server in &nodes {
            eventually("all nodes are there", LONG, || {
                let shown = ctl(server, &["nodes"]).stdout;
                names.iter().all(|name| state(&shown, name) == Some("ready"))
            });
        }
        nodes
    }
}

fn config(cluster: &str) -> String {
    let body = http(
        "server { listen 127.0.0.1:{port}; root {root}; cgi_read_timeout 10m;
            location = / { return 200 $pid; }
            location /health { status health; }
            location /cgi-bin/ { cgi on; } }",
    );
    format!("pid {{dir}}/server.pid;\n{cluster}\n{body}")
}

/// A server from a binary of its own, which can be replaced.
fn node(cluster: &str) -> Server {
    let tree = Tree::new();
    tree.script("root/cgi-bin/wait", "#!/bin/sh\nprintf 'X: 1\\n\\nstart\\n'; sleep 600\n");
    let binary = tree.path("sekisho");
    install(Path::new(BINARY), &binary);
    Server::start_in(tree, &binary.display().to_string(), &config(cluster))
}

/// `ctl` at this server, by its pid file.
fn ctl(server: &Server, arguments: &[&str]) -> Finished {
    let config = server.config_path().display().to_string();
    run(BINARY, &[&["ctl", "-c", &config], arguments].concat(), LONG)
}

fn ctl_ok(server: &Server, arguments: &[&str]) -> String {
    let done = ctl(server, arguments);
    assert_eq!(done.code(), 0, "{arguments:?}: {}{}", done.stdout, done.stderr);
    done.stdout
}

/// The state of a node in a table of them.
fn state<'a>(table: &'a str, node: &str) -> Option<&'a str> {
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find(|row| row.first().is_some_and(|name| name.trim_end_matches('*') == node))
        .and_then(|row| row.get(1).copied())
}

#[test]
fn sessions_of_all_nodes_are_seen_and_controlled_from_one() {
    let Some(nats) = Nats::start("") else { return };
    let [a, b, c] = nats.nodes(["a", "b", "c"]);
    let mut at_b = b.connect();
    at_b.send("GET /cgi-bin/wait HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut at_c = c.connect();
    at_c.send("GET /cgi-bin/wait HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut of_b = None;
    eventually("both requests", LONG, || {
        let all = ctl_ok(&a, &["--cluster", "requests"]);
        let row = |node: &str| {
            let is_his = |line: &&str| line.starts_with(node) && line.contains("/cgi-bin/wait");
            all.lines().find(is_his).map(|line| line.split(' ').next().unwrap_or("").to_owned())
        };
        of_b = row("b:");
        of_b.is_some() && row("c:").is_some()
    });
    let of_b = of_b.expect("it was found");
    let only_c = ctl_ok(&a, &["--node", "c", "requests"]);
    assert_eq!(only_c.matches("/cgi-bin/wait").count(), 1, "{only_c}");
    let shown = ctl_ok(&a, &["--cluster", "session", "show", &of_b]);
    assert!(shown.contains("/cgi-bin/wait"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("session") && line.ends_with(&of_b)));
    let json = ctl_ok(&a, &["--cluster", "sessions", "--json"]);
    assert!(json.contains("\"node\": \"b\""), "{json}");
    let cancelled = ctl_ok(&a, &["--cluster", "session", "cancel", &of_b]);
    assert!(cancelled.starts_with(&format!("{of_b} (")), "{cancelled}");
    eventually("the program's end", LONG, || b.children().is_empty());
    assert_eq!(c.children().len(), 1, "only one request was meant");
    assert!(b.log("error.log").contains(" by node:uid 0, pid "), "{}", b.log("error.log"));

    let metrics = ctl_ok(&a, &["--cluster", "metrics", "--prometheus"]);
    for node in ["a", "b", "c"] {
        let name = format!("sekisho_requests_total{{node=\"{node}\",protocol=\"http1\"}}");
        assert_eq!(metrics.matches(&name).count(), 1, "{metrics}");
    }
    assert_eq!(metrics.matches("# TYPE sekisho_requests_total ").count(), 1);
    let status = ctl_ok(&a, &["--cluster", "status", "--json"]);
    assert_eq!(status.lines().filter(|line| line.starts_with('{')).count(), 3, "{status}");

    let services = ctl_ok(&a, &["--cluster", "services"]);
    for node in ["node a", "node b", "node c"] {
        assert!(services.lines().any(|line| line == node), "{services}");
    }
    let services = ctl_ok(&a, &["--cluster", "services", "--json"]);
    assert!(services.contains("\"node\": \"b\""), "{services}");

    for (arguments, code, text) in [
        (&["--cluster", "session", "cancel", ":1"][..], 6, "say NODE:1"),
        (&["--cluster", "session", "cancel", "b:999999"], 5, "no session"),
        (&["--cluster", "session", "cancel", "zz:1"], 1, "no node \"zz\""),
        (&["--cluster", "session", "show", "nobody"], 5, "at any node"),
        (&["--cluster", "stop"], 1, "--node"),
        (&["--node", "zz", "status"], 1, "no node \"zz\""),
        (&["--node", "z.z", "status"], 1, "no name of a node"),
        (&["--node", "b", "metrics", "--watch"], 1, "one at a time"),
        // What is done at no other node is not done at this one instead.
        (&["--node", "b", "call", "http", "/"], 1, "--socket"),
        (&["--node", "zz", "call", "echo"], 1, "--socket"),
        (&["--cluster", "call", "echo"], 1, "--socket"),
        (&["--node", "b", "nodes"], 1, "leave --node out"),
    ] {
        let done = ctl(&a, arguments);
        assert_eq!(done.code(), code, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(text), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn nodes_are_drained_stopped_killed_and_it_shows() {
    let Some(nats) = Nats::start("") else { return };
    let [a, mut b, mut c] = nats.nodes(["a", "b", "c"]);
    let health = |server: &Server| server.connect().get("/health").status;
    ctl_ok(&a, &["--node", "b", "drain"]);
    assert_eq!((health(&a), health(&b)), (200, 503));
    assert_eq!(state(&ctl_ok(&a, &["nodes"]), "b"), Some("drained"));
    ctl_ok(&a, &["--cluster", "drain", "--end"]);
    assert_eq!(health(&b), 200);

    ctl_ok(&a, &["--node", "b", "stop"]);
    assert_eq!(b.wait_exit(LONG).code(), Some(0));
    eventually("it has left", LONG, || state(&ctl_ok(&a, &["nodes"]), "b").is_none());
    c.signal(Signal::KILL);
    c.wait_exit(LONG);
    let done = ctl(&a, &["nodes"]);
    assert_eq!((done.code(), state(&done.stdout, "c")), (1, Some("silent")));
    // What is not all of it has the status of it.
    for command in ["sessions", "requests", "metrics", "services"] {
        let done = ctl(&a, &["--cluster", command]);
        assert_eq!(done.code(), 1, "{command}");
        assert!(done.stderr.contains("node \"c\" does not answer"), "{}", done.stderr);
    }
    let done = ctl(&a, &["--cluster", "reload"]);
    assert_eq!(done.code(), 1);
    assert!(done.stderr.contains("nothing was done: node \"c\""), "{}", done.stderr);
}

#[test]
fn of_two_servers_with_one_name_each_says_so_and_none_leaves_for_the_other() {
    let Some(nats) = Nats::start("") else { return };
    let [a, mut b] = nats.nodes(["a", "b"]);
    let mut copy = node(&nats.cluster("b"));
    for server in [&b, &copy] {
        eventually("it warns", LONG, || {
            server.log("error.log").contains("another server calls itself node \"b\", too")
        });
    }
    ctl_ok(&copy, &["stop"]);
    assert_eq!(copy.wait_exit(LONG).code(), Some(0));
    b.signal(Signal::KILL);
    b.wait_exit(LONG);
    let done = ctl(&a, &["nodes"]);
    assert_eq!((done.code(), state(&done.stdout, "b")), (1, Some("silent")), "{}", done.stdout);
    assert_eq!(ctl(&a, &["--cluster", "reload"]).code(), 1);
}

#[test]
fn a_rolling_reload_stops_where_it_fails_and_says_where() {
    let Some(nats) = Nats::start("") else { return };
    let [a, b, c] = nats.nodes(["a", "b", "c"]);
    let all = ctl_ok(&a, &["--cluster", "reload"]);
    assert_eq!(all, "b: reloaded\nc: reloaded\na: reloaded\n");
    b.rewrite_config(&format!("{}\nnonsense;\n", config(&nats.cluster("b"))));
    let done = ctl(&a, &["--cluster", "reload"]);
    assert_eq!((done.code(), done.stdout.as_str()), (1, ""));
    for text in ["stopped at node \"b\"", "unknown directive \"nonsense\"", "not touched: c, a"] {
        assert!(done.stderr.contains(text), "{text}: {}", done.stderr);
    }
    // A reload that changes nothing about the cluster does not leave it.
    for server in [&a, &b, &c] {
        assert_eq!(server.log("error.log").matches("joined cluster").count(), 1);
    }
    // One that does is answered, and the node is there under its new name.
    c.rewrite_config(&config(&nats.cluster("d")));
    ctl_ok(&a, &["--node", "c", "reload"]);
    eventually("its new name", LONG, || {
        let shown = ctl(&a, &["nodes"]).stdout;
        state(&shown, "d") == Some("ready") && state(&shown, "c").is_none()
    });
}

#[test]
fn a_rolling_upgrade_loses_no_request() {
    let Some(nats) = Nats::start("") else { return };
    let nodes = nats.nodes(["a", "b", "c"]);
    let pids = nodes.each_ref().map(|node| ByPidFile::new(node.tree().path("server.pid")));
    let before = pids.each_ref().map(|of| of.pid().expect("it runs"));
    let loads = nodes.each_ref().map(|node| Load::start(node.address(), 2));
    let all = ctl_ok(&nodes[0], &["--cluster", "upgrade"]);
    assert_eq!(all, "b: upgraded\nc: upgraded\na: upgraded\n");
    for (of, before) in pids.iter().zip(before) {
        assert_ne!(of.pid(), Some(before));
    }
    for load in &loads {
        load.wait_for_more(20);
    }
    let answers: usize = loads.map(Load::stop).iter().sum();
    println!("{answers} answers");
    // The same nodes, by their new processes.
    let shown = ctl_ok(&nodes[0], &["nodes"]);
    assert_eq!(shown.matches("ready").count(), 3, "{shown}");
    // A binary that does not run changes nothing.
    let broken = nodes[1].tree().file("broken", "no program");
    install(&broken, &nodes[1].tree().path("sekisho.new"));
    std::fs::rename(nodes[1].tree().path("sekisho.new"), nodes[1].tree().path("sekisho"))
        .expect("renamed");
    let done = ctl(&nodes[0], &["--cluster", "upgrade"]);
    assert_eq!(done.code(), 1);
    assert!(done.stderr.contains("stopped at node \"b\""), "{}", done.stderr);
    assert_eq!(ctl_ok(&nodes[0], &["nodes"]).matches("ready").count(), 3);
    for of in &pids {
        of.signal(Signal::TERM);
    }
}

#[test]
fn without_nats_each_node_is_controlled_alone_and_it_comes_back() {
    let Some(mut nats) = Nats::start("") else { return };
    let [a, b] = nats.nodes(["a", "b"]);
    nats.end();
    eventually("it is noticed", LONG, || a.log("error.log").contains("NATS is away"));
    let done = ctl(&a, &["nodes"]);
    assert_eq!(done.code(), 1);
    assert!(done.stderr.contains("NATS is away"), "{}", done.stderr);
    assert_eq!(ctl(&a, &["--node", "b", "status"]).code(), 1);
    assert_eq!(ctl(&a, &["--node", "a", "status"]).code(), 0, "its own name needs no NATS");
    assert_eq!(ctl(&a, &["reload"]).code(), 0);
    assert_eq!(b.connect().get("/health").status, 200);
    nats.run();
    eventually("both are back", LONG, || {
        let shown = ctl(&a, &["nodes"]).stdout;
        ["a", "b"].iter().all(|node| state(&shown, node) == Some("ready"))
    });
}

/// A seed, and the public key that belongs to it.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const KEY: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

#[test]
fn a_node_proves_itself_by_a_key_over_tls_or_by_a_password() {
    let certificates = Tree::new();
    let at = |name: &str| certificates.path(name).display().to_string();
    let names = ["-addext", "subjectAltName=IP:127.0.0.1"];
    let subject = ["-subj", "/CN=nats", "-addext", "basicConstraints=critical,CA:FALSE"];
    let out = ["-keyout", &at("key.pem"), "-out", &at("cert.pem")];
    let kind = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let all = [&kind[..], &["-nodes", "-days", "7"], &out, &subject, &names].concat();
    assert_eq!(run("openssl", &all, LONG).code(), 0);
    let seed = certificates.file("seed", SEED).display().to_string();
    let tls =
        format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}", at("cert.pem"), at("key.pem"));
    let users = format!("authorization {{ users = [ {{ nkey: {KEY} }} ] }}");
    let Some(nats) = Nats::start(&format!("{tls}\n{users}")) else { return };
    let cluster = |scheme: &str, more: &str| {
        format!("cluster {{ name edge; node a; nats {scheme}://127.0.0.1:{}; {more} }}", nats.port)
    };
    let trusted = format!("trusted_certificate {};", at("cert.pem"));
    let good = node(&cluster("tls", &format!("{trusted} credentials {seed};")));
    eventually("it has joined", LONG, || good.log("error.log").contains("joined cluster"));
    for (config, why) in [
        (cluster("tls", &trusted), "Authorization Violation"),
        (cluster("tls", ""), "invalid peer certificate"),
        (cluster("nats", ""), "it wants TLS"),
    ] {
        let server = node(&config);
        eventually(why, LONG, || {
            let log = server.log("error.log");
            log.contains("NATS is away") && log.contains(why)
        });
        assert!(!server.log("error.log").contains("joined cluster"));
    }
    let users = "authorization { user: edge, password: \"se:cret\" }";
    let Some(nats) = Nats::start(users) else { return };
    let address = format!("edge:se:cret@127.0.0.1:{}", nats.port);
    let server = node(&format!("cluster {{ name edge; node a; nats nats://{address}; }}"));
    eventually("it has joined", LONG, || server.log("error.log").contains("joined cluster"));
    assert!(!server.log("error.log").contains("se:cret"));
}

#[test]
fn a_credentials_file_that_is_none_is_an_error_at_the_start() {
    let tree = Tree::new();
    let file = tree.file("credentials", "nothing in it").display().to_string();
    for (path, text) in [(file.as_str(), "no user's seed"), ("/nowhere", "No such file")] {
        let cluster = format!(
            "cluster {{ name edge; node a; nats nats://127.0.0.1:1; credentials {path}; }}"
        );
        let own = Tree::new();
        let conf = own.file(
            "conf",
            config(&cluster)
                .replace("{port}", "8999")
                .replace("{dir}", "/tmp")
                .replace("{root}", "/tmp"),
        );
        for flags in [&["-t"][..], &[]] {
            let conf = conf.display().to_string();
            let done = run(BINARY, &[flags, &["-c", &conf]].concat(), LONG);
            assert_eq!(done.code(), 1, "{flags:?}");
            assert!(done.stderr.contains(text), "{flags:?}: {}", done.stderr);
        }
    }
}
