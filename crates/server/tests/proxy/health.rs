//! Active checks: a server that dies is left before a request finds out, and asked again when it is back.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use sekisho_testkit::{Server, Stopwatch, Tree, eventually, run};
use serde_json::Value;

use crate::common::{BINARY, LONG, http};

/// A server that can die: its socket is closed, and nobody listens any more.
struct Mortal {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    checks: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
    body: &'static str,
}

impl Mortal {
    fn start(body: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let mut server =
            Self { address, stop: Arc::default(), checks: Arc::default(), thread: None, body };
        server.live(listener);
        server
    }

    fn live(&mut self, listener: TcpListener) {
        let (stop, checks, body) = (Arc::clone(&self.stop), Arc::clone(&self.checks), self.body);
        stop.store(false, Ordering::SeqCst);
        self.thread = Some(std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { return };
                stream.set_read_timeout(Some(LONG)).expect("it can be set");
                let mut head = [0; 4096];
                let count = stream.read(&mut head).unwrap_or(0);
                if head[..count].starts_with(b"GET /health ") {
                    checks.fetch_add(1, Ordering::SeqCst);
                }
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-State: fine\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes());
            }
        }));
    }

    fn die(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // It waits for the next connection.
        drop(TcpStream::connect(self.address).expect("it lives"));
        self.thread.take().expect("it lives").join().expect("it ends");
    }

    fn come_back(&mut self) {
        let mut listener = None;
        eventually("its port", LONG, || {
            listener = TcpListener::bind(self.address).ok();
            listener.is_some()
        });
        self.live(listener.expect("it is free"));
    }
}

fn get(server: &Server) -> String {
    server.connect().get("/").text()
}

#[test]
fn a_server_that_dies_is_left_and_asked_again_when_it_is_back() {
    let (mut a, b) = (Mortal::start("a"), Mortal::start("b"));
    let server = Server::start_in(
        Tree::new(),
        BINARY,
        &http(&format!(
            "upstream app {{ zone app 64k; server {} max_fails=0; server {} max_fails=0; }}
             server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://app;
               proxy_set_header Host $host; health_check interval=100ms fails=2 passes=2 uri=/health; }} }}",
            a.address, b.address
        )),
    );
    let said: std::collections::BTreeSet<String> = (0..4).map(|_| get(&server)).collect();
    assert_eq!(said.len(), 2, "both are asked: {said:?}");
    a.die();
    eventually("it is found out", LONG, || {
        server.log("error.log").contains("peer is unhealthy while connecting")
    });
    let healthy = |address: SocketAddr| {
        let pid = server.id().to_string();
        let text = run(BINARY, &["ctl", "--pid", &pid, "metrics", "--json"], LONG).stdout;
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let families = all["metrics"].as_array().expect("a list");
        let samples =
            families.iter().flat_map(|family| family["samples"].as_array().expect("a list"));
        let mut meant = samples.filter(|sample| {
            sample["name"] == "sekisho_upstream_server_healthy"
                && sample["labels"]["server"] == address.to_string()
        });
        meant.next().and_then(|sample| sample["value"].as_f64()).map(|value| value > 0.5)
    };
    assert_eq!((healthy(a.address), healthy(b.address)), (Some(false), Some(true)));
    let failures = || server.log("error.log").matches("connect() failed").count();
    let before = failures();
    for _ in 0..20 {
        assert_eq!(get(&server), "b");
    }
    assert_eq!(failures(), before, "no request had to find out");
    a.come_back();
    eventually("it is back", LONG, || server.log("error.log").contains("peer is healthy"));
    eventually("it is asked", LONG, || get(&server) == "a");
}

/// However many workers there are, each check is made once.
#[test]
fn checks_are_made_once_for_all_workers() {
    let (a, b) = (Mortal::start("a"), Mortal::start("b"));
    let config = http(&format!(
        "upstream app {{ zone app 64k; server {}; server {}; }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://app;
           health_check interval=200ms uri=/health; }} }}",
        a.address, b.address
    ));
    let config = config.replace("worker_processes 1;", "worker_processes 4;");
    let _server = Server::start_in(Tree::new(), BINARY, &config);
    let begun = Stopwatch::start();
    let count = || a.checks.load(Ordering::SeqCst);
    eventually("some checks", LONG, || count() >= 5);
    let (made, elapsed) = (count(), begun.elapsed());
    let most = elapsed.as_millis() as usize / 200 + 3;
    assert!(made <= most, "{made} checks in {elapsed:?}");
}

/// `match`: status, fields and body; `mandatory`: nobody is asked before a check has passed.
#[test]
fn an_answer_must_be_as_the_rules_say() {
    let table = [
        ("status 200; header X-State = fine; body ~ \"all is well\";", true),
        ("status ! 500-599; header ! X-None; header X-State ~ ^f; body !~ error;", true),
        ("status 301;", false),
        ("header X-State != fine;", false),
        ("header X-None;", false),
        ("body ~ \"is bad\";", false),
        // Without a result within the bound the check fails, also where it is negated.
        (r#"body !~ "(?=a)(([a-z ])+)+\1!";"#, false),
    ];
    for (rules, passes) in table {
        let backend = Mortal::start("all is well here");
        let server = Server::start_in(
            Tree::new(),
            BINARY,
            &http(&format!(
                "match rules {{ {rules} }}
                 upstream app {{ zone app 64k; server {}; }}
                 server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://app;
                   health_check interval=50ms uri=/health match=rules mandatory; }} }}",
                backend.address
            )),
        );
        if passes {
            eventually(rules, LONG, || server.connect().get("/").status == 200);
        } else {
            eventually("a check", LONG, || backend.checks.load(Ordering::SeqCst) >= 2);
            assert_eq!(server.connect().get("/").status, 502, "{rules}");
            assert!(server.log("error.log").contains("no live upstreams"), "{rules}");
        }
    }
}
