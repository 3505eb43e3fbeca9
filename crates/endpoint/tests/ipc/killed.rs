//! Clients that are killed, as real processes, in the middle of everything.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sekisho_endpoint::{Echo, Policy, blocking, ipc};

use crate::support::{ENDLESS, PATIENT, Rng, Server, alone, connect, held, pause, policy, rounds};

/// Names the server that the process is to trouble.
const PATH: &str = "SEKISHO_TEST_IPC_PATH";

/// Not a test of its own: what the killed processes run.
#[test]
fn client_process() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let mut rng = Rng(u64::from(std::process::id()) << 20 | 1);
    println!("here");
    loop {
        let Ok(stream) = ipc::BlockingStream::connect(connect(path.as_ref())) else { continue };
        let Ok(mut client) = blocking::Client::connect(stream, "doomed") else { continue };
        for _ in 0..rng.roll(50) {
            let size = [0, 64, 3000, 300_000][rng.roll(4) as usize];
            match rng.roll(4) {
                0 => drop(client.call(Echo::NUMBER, &vec![7; size])),
                1 => {
                    let Ok(ticket) = client.request(ENDLESS, b"") else { break };
                    for _ in 0..rng.roll(100) {
                        let _ = client.next_record(&ticket);
                    }
                    client.abandon(ticket);
                }
                2 => {
                    let Ok(ticket) = client.request(PATIENT, &vec![7; size]) else { break };
                    client.abandon(ticket);
                }
                _ => {
                    let tickets: Vec<_> =
                        (0..20).flat_map(|_| client.request(Echo::NUMBER, &[7; 100])).collect();
                    for ticket in tickets {
                        let _ = client.answer(ticket);
                    }
                }
            }
        }
    }
}

fn start(server: &Server) -> Child {
    let program = std::env::current_exe().expect("it runs");
    let mut child = Command::new(program)
        .args(["--exact", "killed::client_process", "--nocapture"])
        .env(PATH, server.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let mut said = child.stdout.take().expect("a pipe");
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"here\n") && said.read(&mut byte).expect("read") == 1 {
        line.push(byte[0]);
    }
    child
}

#[test]
fn killed_processes_leave_nothing_behind() {
    // E7, L12, L13, V44, X18
    let _alone = alone();
    let before = held();
    let mut server = Server::start(ipc::Config::default());
    let mut honest = server.client();
    let mut rng = Rng(0x0dd0_5eed_0dd0_5eed);
    let mut running: Vec<Child> = Vec::new();
    for round in 0..rounds(40, 10_000) {
        running.push(start(&server));
        if running.len() > 3 {
            let at = rng.roll(running.len() as u64) as usize;
            let mut child = running.swap_remove(at);
            pause(rng.roll(4));
            child.kill().expect("killed");
            child.wait().expect("gone");
        }
        if round % 20 == 0 {
            assert_eq!(honest.call(Echo::NUMBER, b"still there?").expect("it is"), b"still there?");
        }
    }
    for mut child in running {
        child.kill().expect("killed");
        child.wait().expect("gone");
    }
    drop(honest);
    crate::support::until(|| server.slots.taken() == (0, 0));
    // While the server still runs: its listener and its runtime are what is left.
    crate::support::until(|| held().1 == before.1);
    let ended = server.ends.lock().expect("whole").len();
    server.stop();
    drop(server);
    assert_eq!(held(), before, "descriptors and shared memory");
    println!("{ended} sessions have ended");
}

#[test]
fn stopped_processes_are_given_up_at_their_deadline() {
    // E6, E7, X18: they hold their sockets and their memory, and say nothing any more.
    let _alone = alone();
    let before = held();
    let short = Policy { session_timeout: Some(Duration::from_secs(2)), ..policy() };
    let mut server = Server::start_with(ipc::Config::default(), short);
    let mut honest = server.client();
    let mut rng = Rng(0x0570_99ed_5eed);
    for _ in 0..rounds(1, 50) {
        let (mut stopped, mut most) = (Vec::new(), 0);
        for _ in 0..6 {
            let child = start(&server);
            crate::support::until(|| server.slots.taken().0 > 1);
            pause(rng.roll(20));
            kill_process(Pid::from_child(&child), Signal::STOP).expect("a child of ours");
            stopped.push(child);
            most = most.max(server.slots.taken().0);
        }
        // One that was just between two sessions holds nothing; the others are there, and then are not.
        assert!(most > 2, "{most} at a time");
        let mut is_alone = false;
        for _ in 0..20_000 {
            assert_eq!(honest.call(Echo::NUMBER, b"x").expect("served"), b"x");
            is_alone = server.slots.taken() == (1, 0);
            if is_alone {
                break;
            }
            pause(1);
        }
        assert!(is_alone, "{:?} are there", server.slots.taken());
        for mut child in stopped {
            child.kill().expect("killed");
            child.wait().expect("gone");
        }
    }
    drop(honest);
    crate::support::until(|| server.slots.taken() == (0, 0));
    crate::support::until(|| held().1 == before.1);
    server.stop();
    drop(server);
    assert_eq!(held(), before, "descriptors and shared memory");
}
