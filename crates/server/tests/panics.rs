//! Mistakes of ours (V47, X19): a panic costs one connection, a worker that ends or is stuck is replaced, and any other
//! thread that is stuck is logged.
#![forbid(unsafe_code)]

mod common;

use std::collections::HashMap;
use std::time::Duration;

use common::{BINARY, LONG, serve, site};
use sekisho_testkit::{Client, Server, Signal, Stopwatch, Tree, eventually, run};

/// Idle connections stay, however long the machine takes.
const METRICS: &str = "keepalive_timeout 10m; keepalive_requests 100000000;
    location = /metrics { status prometheus; }";

fn start(workers: usize) -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let config = site(METRICS);
    let workers = format!("worker_processes {workers};");
    Server::start_in(tree, BINARY, &config.replace("worker_processes 1;", &workers))
}

#[track_caller]
fn metric(server: &Server, name: &str) -> u64 {
    let text = server.connect().get("/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("{text}")) as u64
}

/// Sends a request that makes the server stumble.
#[track_caller]
fn stumble(client: &mut Client, how: &str) {
    client.send(format!("GET /a.txt HTTP/1.1\r\nHost: x\r\nX-Inject-Fault: {how}\r\n\r\n"));
}

/// O14, V47: 1,000 of them, and 10,000 in the long form; the neighbours on the same worker notice nothing.
#[test]
fn a_panic_ends_its_own_connection_and_nothing_else() {
    let is_long = std::env::var_os("SEKISHO_LONG").is_some_and(|value| value != "0");
    let count = if is_long { 10_000 } else { 1000 };
    let server = start(1);
    let mut neighbour = server.connect();
    let mut idle = server.connect();
    for client in [&mut neighbour, &mut idle] {
        assert_eq!(client.get("/a.txt").text(), "hello");
    }
    // What is opened and allocated once is there before anything is measured.
    for how in ["panic", "borrowed"] {
        let mut warm = server.connect();
        stumble(&mut warm, how);
        warm.read_to_end();
    }
    eventually("calm", LONG, || metric(&server, "sekisho_panics_total") == 2);
    let (descriptors, memory) = (server.fds(), server.rss_bytes());
    for turn in 0..count {
        let mut unlucky = server.connect();
        if turn % 3 == 0 {
            // Not on its first turn, and with something asked before it.
            assert_eq!(unlucky.get("/a.txt").text(), "hello");
        }
        stumble(&mut unlucky, if turn % 2 == 0 { "panic" } else { "borrowed" });
        let (bytes, _) = unlucky.read_to_end();
        assert_eq!(bytes, b"", "no answer that could be taken for one");
        if turn % 10 == 0 {
            assert_eq!(neighbour.get("/a.txt").text(), "hello", "turn {turn}");
        }
    }
    assert_eq!(metric(&server, "sekisho_panics_total"), count + 2);
    assert_eq!(metric(&server, "sekisho_workers_replaced_total"), 0);
    assert_eq!(idle.get("/a.txt").text(), "hello", "the idle connection is still there");
    eventually("descriptors as before", LONG, || server.fds() <= descriptors);
    let grown = server.rss_bytes().saturating_sub(memory);
    println!("{count} panics: {} descriptors, memory grown by {grown} bytes", server.fds());
    assert!(grown < 4 << 20, "{grown} bytes more");
    let log = server.log("error.log");
    let line =
        log.lines().find(|line| line.contains("panic, the connection ends: an injected fault"));
    assert!(line.is_some_and(|line| line.contains("[alert]") && line.contains("request id: ")));
    assert!(!server.stderr().contains("panic"), "what there is to say is in the log");
}

/// O14, V47: no code awaits such a task, so its panic must be reported by itself.
#[test]
fn a_panic_beside_the_connections_does_not_pass_without_a_word() {
    let server = start(1);
    let mut client = server.connect();
    stumble(&mut client, "task");
    assert_eq!(client.read_response().text(), "hello");
    eventually("the word", LONG, || server.stderr().contains("an injected fault of a task"));
    assert_eq!(client.get("/a.txt").text(), "hello");
}

/// O14, V47: a release build has no such thing; this one only listens where the test asks for it.
#[test]
fn what_the_worker_cannot_do_without_ends_it_and_it_is_replaced() {
    for workers in [1, 2] {
        let server = start(workers);
        for turn in 1..=3 {
            let mut last = server.connect();
            stumble(&mut last, "worker");
            last.read_to_end();
            eventually("another worker", LONG, || {
                let mut client = server.connect();
                client.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n");
                client.try_read_response(false).is_ok_and(|answer| answer.status == 200)
            });
            eventually("the count", LONG, || {
                metric(&server, "sekisho_workers_replaced_total") == turn
            });
        }
        let log = server.log("error.log");
        assert!(
            log.contains("a worker cannot go on: it panicked: an injected fault of the worker"),
            "{log}"
        );
        assert_eq!(metric(&server, "sekisho_workers"), workers as u64);
        // It ends as ever.
        let mut server = server;
        server.signal(Signal::QUIT);
        assert_eq!(server.wait_exit(LONG).code(), Some(0));
    }
}

/// O14, V14, X19: it is logged, other clients are served by another worker, and the delayed client gets its
/// answer in the end.
#[test]
fn a_stuck_worker_is_told_of_and_replaced() {
    let server = start(1);
    let mut stuck = server.connect();
    let watch = Stopwatch::start();
    stumble(&mut stuck, "stall=8000");
    eventually("the report", LONG, || server.log("error.log").contains("worker-0 hangs"));
    let told = watch.elapsed();
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
    let answered = watch.elapsed();
    println!("told after {told:?}, others served after {answered:?}");
    assert!(told >= Duration::from_secs(2), "{told:?}");
    assert_eq!(metric(&server, "sekisho_workers_stuck_total"), 1);
    assert_eq!(metric(&server, "sekisho_workers_replaced_total"), 1);
    assert_eq!(stuck.read_response().text(), "hello");
    eventually("its word", LONG, || server.log("error.log").contains("worker-0 continued after"));
    eventually("its end", LONG, || metric(&server, "sekisho_workers") == 1);
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
}

/// Which worker has which client.
#[track_caller]
fn workers_by_client(server: &Server) -> HashMap<String, String> {
    let pid = server.id().to_string();
    let listed = run(BINARY, &["ctl", "--pid", &pid, "sessions", "--json"], LONG);
    let all: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let sessions = all["sessions"].as_array().expect("a list").iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    sessions.map(|session| (text(&session["peer"]), text(&session["worker"]))).collect()
}

/// O14, X19: with sockets of their own, so that no other worker accepts the connections in their queues.
#[test]
fn two_that_are_stuck_at_a_time_are_replaced_and_the_third_is_left_alone() {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let config = site(METRICS);
    let config = config.replace("worker_processes 1;", "worker_processes 3;");
    let server = Server::start_in(tree, BINARY, &config.replace("{port};", "{port} reuseport;"));
    // One client of each worker.
    let mut of_each: HashMap<String, Client> = HashMap::new();
    eventually("a client of each worker", LONG, || {
        let mut client = server.connect();
        assert_eq!(client.get("/a.txt").text(), "hello");
        let worker = workers_by_client(&server).remove(&client.local_address().to_string());
        of_each.entry(worker.expect("a worker has it")).or_insert(client);
        of_each.len() == 3
    });
    let mut clients: Vec<(String, Client)> = of_each.into_iter().collect();
    // They are looked at in the order of their numbers.
    clients.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (_, client) in &mut clients[..2] {
        stumble(client, "stall=60000");
    }
    let said = |what: &str| server.tree().text("error.log").matches(what).count();
    eventually("two reports", LONG, || said(" hangs: ") == 2);
    eventually("two new workers", LONG, || said("a worker was replaced") == 2);
    let (name, third) = &mut clients[2];
    assert_eq!(third.get("/a.txt").text(), "hello", "{name} goes on");
    for turn in 0..30 {
        let mut client = server.connect().with_patience(Duration::from_secs(5));
        assert_eq!(client.get("/a.txt").text(), "hello", "newcomer {turn}");
    }
    assert_eq!(metric(&server, "sekisho_workers_replaced_total"), 2);
}

/// O14, X19: there may be eight at a time; the ninth has its turn when one of them goes on.
#[test]
fn the_ninth_that_is_stuck_is_replaced_when_another_goes_on() {
    let server = start(8);
    let said = |what: &str| server.tree().text("error.log").matches(what).count();
    let mut stuck = Vec::new();
    // A worker that sleeps accepts no connection: each is another worker's.
    for stall in [20_000].into_iter().chain([120_000; 8]) {
        let mut client = server.connect().with_patience(LONG);
        assert_eq!(client.get("/a.txt").text(), "hello");
        stumble(&mut client, &format!("stall={stall}"));
        stuck.push(client);
        let count = stuck.len();
        eventually("it sleeps", LONG, || said("an injected fault: stuck for") == count);
        if stuck.len() == 8 {
            eventually("eight new workers", LONG, || said("a worker was replaced") == 8);
        }
    }
    eventually("the ninth report", LONG, || said(" hangs: ") == 9);
    assert_eq!(stuck[0].read_response().text(), "hello");
    eventually("the ninth new worker", LONG, || said("a worker was replaced") == 9);
    assert_eq!(metric(&server, "sekisho_workers_replaced_total"), 9);
}

/// O14, X19: a worker that works without a pause is not stuck.
#[test]
fn a_busy_worker_is_not_taken_for_a_stuck_one() {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let server = serve(tree, METRICS);
    let watch = Stopwatch::start();
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    while watch.elapsed() < Duration::from_secs(4) {
        for client in &mut clients {
            client.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20));
        }
        for client in &mut clients {
            (0..20).for_each(|_| assert_eq!(client.read_response().status, 200));
        }
    }
    assert_eq!(metric(&server, "sekisho_workers_stuck_total"), 0);
}

/// O14, X19: the threads beside the workers. Nothing else can take their place; HTTP is served meanwhile.
#[test]
fn a_stuck_thread_beside_the_workers_is_told_of_and_counted() {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    // There is no NATS server: the thread is there all the same.
    let cluster = "cluster { name edge; node a; nats nats://127.0.0.1:9; }\n";
    let server = Server::start_in(tree, BINARY, &format!("{cluster}{}", site(METRICS)));
    for name in ["control", "cluster"] {
        let mut client = server.connect();
        stumble(&mut client, &format!("{name}=5000"));
        assert_eq!(client.read_response().text(), "hello");
        let said = |what: &str| server.log("error.log").contains(&format!("\"{name}\" {what}"));
        eventually("the report", LONG, || said("hangs: its loop has not run for 2 s"));
        assert_eq!(server.connect().get("/a.txt").text(), "hello");
        eventually("its word", LONG, || said("continued after"));
        let count = format!("sekisho_threads_stuck_total{{thread=\"{name}\"}}");
        assert_eq!(metric(&server, &count), 1);
    }
    assert_eq!(metric(&server, "sekisho_workers_stuck_total"), 0);
    let log = server.log("error.log");
    assert_eq!(log.matches(" hangs: ").count(), 2, "{log}");
}
