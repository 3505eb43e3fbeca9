//! Certificates and binaries that change while HTTP/2 clients ask: no request fails.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, kill_process};
use sekisho_testkit::{Server, Signal, Tree, eventually};

use crate::common::{BINARY, LONG};
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
    fn start() -> Self {
        let tree = Tree::new();
        certificate(&tree, "a.test", "30");
        // A connection that has had its share of requests would end for another reason.
        let body = "keepalive_requests 10000000; keepalive_time 1d; return 200 answered;";
        let config = format!("pid {{dir}}/server.pid;\n{}", site(body));
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
fn reloads_with_other_certificates_fail_no_request() {
    // S4, O3
    if !can_make_certificates() || !has("h2load") {
        return;
    }
    let replaced = Replaced::start();
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

/// One request at a time on each connection: h2load and curl fail what they have queued when GOAWAY comes.
/// `SEKISHO_LONG=1` takes ten.
#[test]
fn upgrades_of_the_binary_fail_no_request() {
    // S4, O4
    if !can_make_certificates() || !has("curl") {
        return;
    }
    let is_long = std::env::var_os("SEKISHO_LONG").is_some_and(|value| value != "0");
    let replaced = Replaced::start();
    let address = replaced.server.address();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let asks = || {
            let mut answered = 0;
            while !is_over.load(Ordering::SeqCst) {
                let output = Command::new("curl")
                    .args(["-sk", "--http2", "--resolve"])
                    .arg(format!("a.test:{}:{}", address.port(), address.ip()))
                    .args(["-o", "/dev/null", "-w", "%{http_code} %{exitcode}\\n"])
                    .arg(format!("https://a.test:{}/[1-200]", address.port()))
                    .output()
                    .expect("curl runs");
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                let good = said.lines().filter(|line| *line == "200 0").count();
                assert_eq!(good, 200, "{said}");
                answered += good;
            }
            answered
        };
        let clients = [(); 3].map(|()| scope.spawn(asks));
        for _ in 0..if is_long { 10 } else { 2 } {
            let before = replaced.pid();
            replaced.send(Signal::USR2);
            eventually("another process", LONG, || {
                replaced.pid().is_some_and(|now| Some(now) != before)
            });
        }
        is_over.store(true, Ordering::SeqCst);
        let answered: usize = clients.map(|it| it.join().expect("no failure")).into_iter().sum();
        println!("{answered} answers, none failed");
    });
}
