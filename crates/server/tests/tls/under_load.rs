//! Certificates and binaries that change while HTTP/2 clients ask: no request fails.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, kill_process};
use rustls::client::Resumption;
use sekisho_testkit::{Server, Signal, Tree, eventually};

use crate::common::{BINARY, LONG};
use crate::goaway::{self, Tally};
use crate::support::{Speech, can_make_certificates, certificate, der, site};

/// Clients that ask without a pause, for so many seconds.
fn load(server: &Server, seconds: u32) -> Child {
    Command::new("h2load")
        .args(["-c", "4", "-m", "4", "-D", &seconds.to_string(), "--connect-to"])
        .arg(server.address().to_string())
        .arg(format!("https://a.test:{}/", server.address().port()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("h2load runs")
}

/// A server that is known by its pid file, as its process changes.
struct Replaced {
    server: Server,
}

impl Replaced {
    fn start(body: &str) -> Self {
        let tree = Tree::new();
        certificate(&tree, "a.test", "30");
        // A connection that has had its share of requests would end for another reason.
        let body = format!("keepalive_requests 10000000; keepalive_time 1d; {body}");
        let config = format!("pid {{dir}}/server.pid;\n{}", site(&body));
        let new = Self { server: Server::start_in(tree, BINARY, &config) };
        eventually("the pid file", LONG, || new.pid().is_some());
        new
    }

    fn pid(&self) -> Option<i32> {
        self.server.tree().text("server.pid").trim().parse().ok()
    }

    fn send(&self, signal: Signal) {
        let pid = self.pid().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("it takes signals");
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        // The last one is no child of ours.
        if let Some(pid) = self.pid().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn has(name: &str) -> bool {
    let is_there = Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_there {
        println!("skipped: there is no {name}");
    }
    is_there
}

#[test]
fn sessions_are_resumed_with_the_process_that_takes_over() {
    // S4, O4
    if !can_make_certificates() {
        return;
    }
    let replaced = Replaced::start("location / { return 200 '$pid $ssl_session_reused'; }");
    let address = replaced.server.address();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut speech = Speech::new(&[version]);
        speech.config.resumption = Resumption::in_memory_sessions(8);
        let ask = || speech.connect(address, "a.test").expect("a handshake").get("/", "a.test").1;
        let old = replaced.pid().expect("it runs");
        assert_eq!(ask(), format!("{old} ."));
        replaced.send(Signal::USR2);
        eventually("the new process", LONG, || replaced.pid().is_some_and(|pid| pid != old));
        eventually("that one answers alone", LONG, || {
            let mut fresh = Speech::default().connect(address, "a.test").expect("a handshake");
            !fresh.get("/", "a.test").1.starts_with(&old.to_string())
        });
        let new = replaced.pid().expect("it runs");
        assert_eq!(ask(), format!("{new} r"), "by its first connection");
    }
}

#[test]
fn reloads_with_other_certificates_fail_no_request() {
    // S4, O3
    if !can_make_certificates() || !has("h2load") {
        return;
    }
    let replaced = Replaced::start("return 200 answered;");
    let server = &replaced.server;
    let clients = load(server, 3);
    for days in ["40", "50"] {
        certificate(server.tree(), "a.test", days);
        let new = der(server.tree(), "a.test");
        replaced.send(Signal::HUP);
        eventually("the new certificate", LONG, || {
            let client = Speech::default().connect(server.address(), "a.test");
            client.is_ok_and(|client| client.shown() == new)
        });
    }
    let output = clients.wait_with_output().expect("h2load ends");
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find(|line| line.starts_with("requests: ")).unwrap_or_default();
    println!("{line}");
    assert!(line.contains(" 0 failed, 0 errored, 0 timeout"), "{said}");
}

/// What h2load counts at a binary upgrade are requests that it has not sent: it opens no connection again after a GOAWAY
/// and counts what it would have asked for next as failed, here and against nginx (`docs/adr/0061-tls.md`). So the
/// clients are ones that honour GOAWAY, with several streams each.
#[test]
fn ten_upgrades_and_two_reloads_fail_no_request() {
    // S4, O3, O4, M2
    const UPGRADES: usize = 10;
    if !can_make_certificates() {
        return;
    }
    let replaced = Replaced::start("return 200 answered;");
    let server = &replaced.server;
    let (is_over, tally) = (AtomicBool::new(false), Tally::default());
    thread::scope(|scope| {
        let clients = scope.spawn(|| goaway::ask(server.address(), (4, 8), &is_over, &tally));
        let answered = || tally.answered.load(Ordering::SeqCst);
        for turn in 0..UPGRADES {
            let (asked, before) = (answered(), replaced.pid());
            if turn % 5 == 2 {
                certificate(server.tree(), "a.test", &format!("{}", 40 + turn));
                let new = der(server.tree(), "a.test");
                replaced.send(Signal::HUP);
                eventually("the new certificate", LONG, || {
                    let client = Speech::default().connect(server.address(), "a.test");
                    client.is_ok_and(|client| client.shown() == new)
                });
            }
            replaced.send(Signal::USR2);
            eventually("another process", LONG, || {
                replaced.pid().is_some_and(|now| Some(now) != before)
            });
            eventually("answers", LONG, || clients.is_finished() || answered() > asked + 100);
            assert!(!clients.is_finished(), "a request has failed");
        }
        is_over.store(true, Ordering::SeqCst);
        clients.join().expect("no failure");
    });
    println!("{tally:?}, none failed");
    // Clients were told to go, again and again.
    assert!(tally.connections.into_inner() > 2 * UPGRADES);
}
