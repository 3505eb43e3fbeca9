//! What a session costs that has been used and is idle now.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use sekisho_endpoint::{Echo, blocking, ipc};

use crate::support::{ENDLESS, Server, alone, connect};

const PATH: &str = "SEKISHO_TEST_IDLE_PATH";
const SESSIONS: usize = 100;
/// The bar for one of them.
const IDLE_BYTES_MAX: usize = 256 * 1024;

/// Not a test of its own: the clients, in a process of their own, so that only the server's memory is measured.
#[test]
fn idle_clients() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        let stream = ipc::BlockingStream::connect(connect(path.as_ref())).expect("shared");
        let mut client = blocking::Client::connect(stream, "idle").expect("admitted");
        // Both rings are gone through from end to end, so that every page of them is there.
        for _ in 0..3 {
            let large = vec![7; 100_000];
            assert_eq!(client.call(Echo::NUMBER, &large).expect("a result").len(), large.len());
        }
        let ticket = client.request(ENDLESS, b"").expect("made");
        for _ in 0..100 {
            client.next_record(&ticket).expect("alive");
        }
        client.abandon(ticket);
        assert_eq!(client.call(Echo::NUMBER, b"x").expect("a result"), b"x");
        clients.push(client);
    }
    println!("here");
    // Until the test closes stdin.
    let _ = std::io::stdin().lines().next();
}

/// What is resident of this process, shared memory included.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("there");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    let number = line.split_whitespace().nth(1).expect("a number");
    number.parse::<usize>().expect("a number") * 1024
}

#[test]
fn an_idle_session_costs_less_than_its_bar() {
    // E7
    let _alone = alone();
    let mut server = Server::start(ipc::Config::default());
    let mut warm = server.client();
    assert_eq!(warm.call(Echo::NUMBER, &[7; 4000]).expect("a result").len(), 4000);
    let before = resident_bytes();
    let mut clients = Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", "idle::idle_clients", "--nocapture"])
        .env(PATH, server.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut said = BufReader::new(clients.stdout.take().expect("a pipe")).lines();
    assert!(said.any(|line| line.is_ok_and(|line| line.ends_with("here"))), "they are idle");
    assert_eq!(server.slots.taken().0 as usize, SESSIONS + 1);
    let each = (resident_bytes().saturating_sub(before)) / SESSIONS;
    drop(clients.stdin.take());
    clients.wait().expect("gone");
    drop(warm);
    server.ended(SESSIONS + 1);
    server.stop();
    println!("{} KiB for each idle session", each / 1024);
    assert!(each < IDLE_BYTES_MAX, "{each} bytes for each idle session");
}
