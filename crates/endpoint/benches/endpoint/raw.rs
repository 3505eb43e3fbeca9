//! What the machine can do: ping-pong over bare descriptors, a bare ring with an eventfd, and memory copied
//! through a ring. As little code as possible, each a thread that answers and one that asks.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};

use crate::measure::{Cores, Sample, each, pin, throughput};

/// The size of a message, as everywhere.
const MESSAGE: usize = 64;

pub(crate) fn sockets<S: Read + Write + Send + 'static>(
    (mut near, mut far): (S, S),
    count: usize,
    cores: Cores,
) -> Sample {
    let server = thread::spawn(move || {
        pin(Cores::SERVER);
        let mut message = [0; MESSAGE];
        while far.read_exact(&mut message).is_ok() {
            far.write_all(&message).expect("written");
        }
    });
    pin(cores.client());
    let mut message = [7; MESSAGE];
    let sample = each(count, || {
        near.write_all(&message).expect("written");
        near.read_exact(&mut message).expect("read");
    });
    drop(near);
    server.join().expect("it ends");
    sample
}

pub(crate) fn tcp() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let near = std::net::TcpStream::connect(address).expect("connected");
    let (far, _) = listener.accept().expect("accepted");
    near.set_nodelay(true).expect("set");
    far.set_nodelay(true).expect("set");
    (near, far)
}

fn wakeup() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")
}

fn send_wakeup(wakeup: &OwnedFd) {
    rustix::io::write(wakeup, &1_u64.to_ne_bytes()).expect("written");
}

fn wait_for_wakeup(wakeup: &OwnedFd) {
    rustix::io::read(wakeup, &mut [0; 8]).expect("read");
}

pub(crate) fn eventfds(count: usize, cores: Cores) -> Sample {
    let wakeups = Arc::new((wakeup(), wakeup()));
    let far = Arc::clone(&wakeups);
    let calls = count + count / 10;
    let server = thread::spawn(move || {
        pin(Cores::SERVER);
        for _ in 0..calls {
            wait_for_wakeup(&far.0);
            send_wakeup(&far.1);
        }
    });
    pin(cores.client());
    let sample = each(count, || {
        send_wakeup(&wakeups.0);
        wait_for_wakeup(&wakeups.1);
    });
    server.join().expect("it ends");
    sample
}

/// One way of a bare ring: positions, a word that says that the reader sleeps, and messages of eight words.
struct Bare {
    tail: AtomicU64,
    head: AtomicU64,
    sleeps: AtomicU64,
    words: Vec<AtomicU64>,
    wakeup: OwnedFd,
}

const BARE_WORDS: usize = 8 * 64;

impl Bare {
    fn new() -> Self {
        Self {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            words: (0..BARE_WORDS).map(|_| AtomicU64::new(0)).collect(),
            wakeup: wakeup(),
        }
    }

    fn send(&self, message: &[u64; 8]) {
        let tail = self.tail.load(Ordering::Relaxed);
        let at = tail as usize % BARE_WORDS;
        for (word, value) in self.words[at..at + 8].iter().zip(message) {
            word.store(*value, Ordering::Relaxed);
        }
        self.tail.store(tail + 8, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) != 0 {
            self.sleeps.store(0, Ordering::Relaxed);
            send_wakeup(&self.wakeup);
        }
    }

    fn receive(&self) -> [u64; 8] {
        let head = self.head.load(Ordering::Relaxed);
        while self.tail.load(Ordering::Acquire) == head {
            self.sleeps.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.tail.load(Ordering::Acquire) != head {
                break;
            }
            wait_for_wakeup(&self.wakeup);
        }
        let at = head as usize % BARE_WORDS;
        let mut message = [0; 8];
        for (value, word) in message.iter_mut().zip(&self.words[at..at + 8]) {
            *value = word.load(Ordering::Relaxed);
        }
        self.head.store(head + 8, Ordering::Release);
        message
    }
}

/// A bare ring each way, in which a side that has nothing sleeps at its eventfd.
pub(crate) fn ring(count: usize, cores: Cores) -> Sample {
    let rings = Arc::new((Bare::new(), Bare::new()));
    let far = Arc::clone(&rings);
    let calls = count + count / 10;
    let server = thread::spawn(move || {
        pin(Cores::SERVER);
        for _ in 0..calls {
            far.1.send(&far.0.receive());
        }
    });
    pin(cores.client());
    let sample = each(count, || {
        rings.0.send(&[7; 8]);
        assert_eq!(rings.1.receive(), [7; 8]);
    });
    server.join().expect("it ends");
    sample
}

/// Records copied into a ring of four pieces and out of it, 64 KiB in all; a side that cannot go on sleeps.
pub(crate) fn memcpy(record: usize, total: u64, cores: Cores) -> Sample {
    const PIECES: usize = 4;
    const PIECE: usize = 16 * 1024;
    let pieces: Vec<Mutex<Vec<u8>>> = (0..PIECES).map(|_| Mutex::new(vec![0; PIECE])).collect();
    let ring = Arc::new((pieces, Bare::new(), Bare::new()));
    let far = Arc::clone(&ring);
    let records = total / record as u64;
    // Small records share a piece, as they share a write.
    let per_piece = (PIECE / record).max(1) as u64;
    let per_record = record.div_ceil(PIECE).max(1);
    let used = record.min(PIECE);
    let rounds = records / per_piece * per_record as u64;
    let server = thread::spawn(move || {
        pin(Cores::SERVER);
        let source = vec![7_u8; record];
        for round in 0..rounds {
            if round >= PIECES as u64 {
                far.2.receive();
            }
            let mut piece = far.0[round as usize % PIECES].lock().expect("whole");
            for at in 0..per_piece as usize {
                piece[at * used..(at + 1) * used].copy_from_slice(&source[..used]);
            }
            drop(piece);
            far.1.send(&[round; 8]);
        }
    });
    pin(cores.client());
    let bytes = rounds * per_piece * used as u64;
    let sample = throughput(bytes, records, || {
        let mut into = vec![0_u8; record.max(PIECE)];
        for round in 0..rounds {
            ring.1.receive();
            let piece = ring.0[round as usize % PIECES].lock().expect("whole");
            let at = (round as usize % per_record) * used;
            for part in 0..per_piece as usize {
                let place = at + part * used;
                into[place..place + used].copy_from_slice(&piece[part * used..(part + 1) * used]);
            }
            drop(piece);
            ring.2.send(&[round; 8]);
        }
        std::hint::black_box(&into);
    });
    server.join().expect("it ends");
    sample
}
