//! A peer that writes what it likes into the memory, rings without end, and closes what it pleases.

use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, OFlags};
use sekisho_endpoint::{CloseReason, Echo, ipc};
use sekisho_native::frame::{self, Head, Kind};
use sekisho_native::message::{self, Hello};

use crate::support::{ENDLESS, PATIENT, Raw, Rng, Server, alone, held, is_ready, rounds};

/// Words in which positions and flags stand.
const CONTROL: [usize; 10] = [0, 1, 16, 32, 48, 128, 129, 144, 160, 176];

/// What a good client would say.
fn speech(rng: &mut Rng) -> Vec<u8> {
    let mut wire = Vec::new();
    message::write(&mut wire, Kind::Hello, 0, &Hello { major: 1, ..Hello::default() });
    for slot in 0..rng.roll(6) as u16 {
        let service = [Echo::NUMBER, ENDLESS, PATIENT][rng.roll(3) as usize];
        let head = Head { word: service, ..Head::of_slot(Kind::Request, slot) };
        let body = vec![7; rng.roll(2000) as usize];
        frame::write(&mut wire, head, &body);
    }
    wire
}

/// One thing that a bad client does.
fn misdeed(raw: &mut Raw, rng: &mut Rng) {
    let near = |rng: &mut Rng| {
        let value = rng.next();
        match rng.roll(4) {
            0 => value,
            1 => value % 70_000,
            2 => u64::MAX - value % 70_000,
            _ => value % 3,
        }
    };
    match rng.roll(16) {
        0..=4 => {
            let at = CONTROL[rng.roll(CONTROL.len() as u64) as usize];
            raw.memory[at].store(near(rng), Ordering::Relaxed);
        }
        5 | 6 => {
            for _ in 0..rng.roll(200) {
                let at = rng.roll(raw.memory.len() as u64) as usize;
                raw.memory[at].store(rng.next(), Ordering::Relaxed);
            }
        }
        7 => raw.write(&vec![rng.roll(256) as u8; rng.roll(3000) as usize]),
        8 => raw.write(&speech(rng)),
        9 => raw.ring(1),
        10 => {
            // A full counter on an open file that blocks: a write to it would block now.
            if let Some(wakeup) = &raw.server_wakeup {
                let flags = rustix::fs::fcntl_getfl(wakeup).expect("open");
                rustix::fs::fcntl_setfl(wakeup, flags & !OFlags::NONBLOCK).expect("allowed");
                let mut count = [0; 8];
                let _ = rustix::fs::fcntl_setfl(wakeup, flags | OFlags::NONBLOCK);
                let _ = rustix::io::read(wakeup, &mut count);
                raw.ring(u64::MAX - 1);
                let _ = rustix::fs::fcntl_setfl(wakeup, flags & !OFlags::NONBLOCK);
                // Our own write would stand still as well.
                raw.server_wakeup = None;
            }
        }
        11 => {
            if let Some(file) = &raw.memory_file {
                assert!(rustix::fs::ftruncate(file, rng.roll(4096)).is_err(), "it is sealed");
                assert!(rustix::fs::ftruncate(file, 1 << 20).is_err(), "it is sealed");
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(file, flags, 0, 4096 + rng.roll(65536));
            }
        }
        12 => drop(raw.client_wakeup.take()),
        13 => drop(raw.memory_file.take()),
        14 => {
            if let Some(socket) = &raw.socket {
                let _ = match rng.roll(3) {
                    0 => socket.shutdown(std::net::Shutdown::Write),
                    1 => socket.shutdown(std::net::Shutdown::Both),
                    _ => rustix::net::send(socket, b"x", rustix::net::SendFlags::NOSIGNAL)
                        .map(drop)
                        .map_err(Into::into),
                };
            }
        }
        _ => drop(raw.server_wakeup.take()),
    }
}

#[test]
fn a_peer_that_corrupts_whatever_it_can_harms_only_itself() {
    // E7, L12, V42, V43, X18
    let _alone = alone();
    let before = held();
    let mut server = Server::start(ipc::Config::default());
    let mut honest = server.client();
    let mut rng = Rng(0x5e71_5b0f_0d0d_0007);
    let count = rounds(300, 100_000);
    for round in 0..count {
        let mut raw = Raw::connect(&server.path()).expect("an open server");
        if rng.roll(4) != 0 {
            raw.write(&speech(&mut rng));
        }
        for _ in 0..=rng.roll(12) {
            misdeed(&mut raw, &mut rng);
            if rng.roll(4) == 0 {
                std::thread::yield_now();
            }
        }
        raw.ring(1);
        drop(raw);
        if round % 50 == 0 {
            assert_eq!(honest.call(Echo::NUMBER, b"still there?").expect("it is"), b"still there?");
        }
        // The server is given the time to end them; otherwise it would be full.
        server.ended((round as usize).saturating_sub(100));
    }
    server.ended(count as usize);
    assert_eq!(honest.call(Echo::NUMBER, b"and now?").expect("it is"), b"and now?");
    drop(honest);
    server.ended(count as usize + 1);
    assert_eq!(server.slots.taken(), (0, 0));
    let reasons = server.ends.lock().expect("whole").clone();
    for reason in [CloseReason::OutOfSync, CloseReason::PeerClosed, CloseReason::PeerClosedEarly] {
        assert!(reasons.contains(&reason), "{reason:?}");
    }
    server.stop();
    drop(server);
    assert_eq!(held(), before, "descriptors and shared memory");
}

/// What a peer does, and how its session ends though it stays connected.
type Case = (&'static str, fn(&mut Raw), CloseReason);

#[test]
fn corruption_ends_the_session_at_once_and_with_a_reason() {
    // E7, V42
    let _alone = alone();
    let cases: [Case; 5] = [
        (
            "a position beyond the ring",
            |raw| raw.memory[0].store(1 << 20, Ordering::Relaxed),
            CloseReason::OutOfSync,
        ),
        (
            "a position that went back",
            |raw| raw.memory[0].store(1, Ordering::Relaxed),
            CloseReason::OutOfSync,
        ),
        (
            "more read than was written",
            |raw| {
                let mut wire = Vec::new();
                let head = Head { word: Echo::NUMBER, ..Head::of_slot(Kind::Request, 0) };
                // The server looks at the other's position when it has no room for this.
                for slot in 0..20 {
                    frame::write(&mut wire, Head { slot, ..head }, &vec![7; 1000]);
                }
                let stream = Head { word: ENDLESS, ..Head::of_slot(Kind::Request, 20) };
                frame::write(&mut wire, stream, b"");
                raw.memory[144].store(1 << 40, Ordering::Relaxed);
                raw.write(&wire);
            },
            CloseReason::OutOfSync,
        ),
        (
            "bytes on the socket",
            |raw| {
                let socket = raw.socket.as_ref().expect("open");
                rustix::net::send(socket, b"x", rustix::net::SendFlags::NOSIGNAL).expect("sent");
            },
            CloseReason::OutOfSync,
        ),
        (
            "the end of its side",
            |raw| raw.memory[1].store(1, Ordering::Relaxed),
            CloseReason::PeerClosed,
        ),
    ];
    for (name, corrupt, reason) in cases {
        let mut server = Server::start(ipc::Config::default());
        let mut raw = Raw::connect(&server.path()).expect("an open server");
        let mut wire = Vec::new();
        message::write(&mut wire, Kind::Hello, 0, &Hello { major: 1, ..Hello::default() });
        raw.write(&wire);
        crate::support::until(|| server.slots.taken() == (1, 0));
        // Its greeting is read by now, and it sleeps.
        corrupt(&mut raw);
        raw.ring(1);
        assert!(is_ready(raw.socket.as_ref().expect("open"), 5000), "{name}: the server closes");
        server.ended(1);
        assert_eq!(server.ends.lock().expect("whole")[..], [reason], "{name}");
        server.stop();
    }
}

#[test]
fn a_full_wakeup_descriptor_does_not_block_the_server() {
    // E7: the counter of the open file that both have is full, and writing or reading it blocks.
    let _alone = alone();
    let mut server = Server::start(ipc::Config::default());
    let mut honest = server.client();
    let mut bad: Vec<Raw> = Vec::new();
    for _ in 0..10 {
        let mut raw = Raw::connect(&server.path()).expect("an open server");
        let mut wire = Vec::new();
        message::write(&mut wire, Kind::Hello, 0, &Hello { major: 1, ..Hello::default() });
        let head = Head { word: ENDLESS, ..Head::of_slot(Kind::Request, 0) };
        frame::write(&mut wire, head, b"");
        let wakeup = raw.server_wakeup.take().expect("open");
        rustix::fs::fcntl_setfl(&wakeup, OFlags::empty()).expect("allowed");
        raw.write(&wire);
        rustix::io::write(&wakeup, &(u64::MAX - 1).to_ne_bytes()).expect("room");
        // The pipe is never read: the server's ringing fills it.
        raw.memory[160].store(1, Ordering::Relaxed);
        raw.server_wakeup = Some(wakeup);
        bad.push(raw);
        for _ in 0..100 {
            assert_eq!(honest.call(Echo::NUMBER, b"x").expect("served"), b"x");
        }
    }
    drop(bad);
    server.ended(10);
    drop(honest);
    server.stop();
}
