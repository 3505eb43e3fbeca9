//! How exact deadlines are with many sessions: none falls early, however many there are; the histogram of
//! lateness is printed. How late is too late is asserted only where the machine is ours
//! (`SEKISHO_STRICT=1`), and in a release build; the figures are kept in `docs/benchmarks.md`.
#![forbid(unsafe_code)]

mod common;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use common::{LONG, serve};
use rustix::event::{Timespec, epoll};
use sekisho_testkit::{Stopwatch, Tree, pause};
use socket2::{Domain, Socket, Type};

/// Long enough that every session is there before the first deadline falls.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Over which the sessions come, and so the deadlines are spread.
const SPREAD: Duration = Duration::from_secs(2);

fn session_count() -> usize {
    let is_long = std::env::var_os("SEKISHO_LONG").is_some() || is_strict();
    if is_long { 10_000 } else { 2_000 }
}

fn is_strict() -> bool {
    std::env::var_os("SEKISHO_STRICT").is_some()
}

/// A session and when its connecting began and ended, on the test's clock.
struct Waiting {
    stream: TcpStream,
    begun: Duration,
    connected: Duration,
}

fn connect(index: usize, to: SocketAddr, watch: Stopwatch) -> Waiting {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    // Several source addresses, so that ports do not run out.
    let from = Ipv4Addr::new(127, 0, 0, 2 + (index % 8) as u8);
    socket.bind(&SocketAddr::from((from, 0)).into()).expect("an address");
    let begun = watch.elapsed();
    socket.connect(&to.into()).expect("it connects");
    // Half a head: from its first byte on the session is there (ADR 0014), and the rest is awaited.
    let sent = socket.send(b"GET /a.txt HT").expect("room for some bytes");
    assert_eq!(sent, 13);
    let connected = watch.elapsed();
    socket.set_nonblocking(true).expect("non-blocking");
    Waiting { stream: socket.into(), begun, connected }
}

#[test]
fn no_deadline_falls_early_with_thousands_of_sessions() {
    // T1, T2, T4
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let server = serve(tree, &format!("client_header_timeout {}ms;", TIMEOUT.as_millis()));
    let count = session_count();
    let watch = Stopwatch::start();
    let mut sessions = Vec::with_capacity(count);
    for index in 0..count {
        let due = SPREAD.mul_f64(index as f64 / count as f64);
        if let Some(ahead) = due.checked_sub(watch.elapsed()) {
            pause(ahead);
        }
        sessions.push(connect(index, server.address(), watch));
    }
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    for (index, session) in sessions.iter().enumerate() {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&poll, session.stream.as_fd(), data, epoll::EventFlags::IN)
            .expect("it is added");
    }
    let ticks = server.cpu_ticks();
    let quiet_until = watch.elapsed();
    let mut late = Vec::with_capacity(count);
    let mut events = Vec::with_capacity(1024);
    let mut ticks_at_first = None;
    while late.len() < count {
        assert!(watch.elapsed() < LONG + TIMEOUT, "{} of {count} came", late.len());
        events.clear();
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&second))
            .expect("epoll waits");
        let now = watch.elapsed();
        ticks_at_first.get_or_insert_with(|| server.cpu_ticks());
        for event in &events {
            let session = &mut sessions[event.data.u64() as usize];
            epoll::delete(&poll, session.stream.as_fd()).expect("it is taken out");
            let earliest = session.begun + TIMEOUT;
            assert!(now >= earliest, "early: {now:?}, not before {earliest:?}");
            late.push(now.saturating_sub(session.connected + TIMEOUT));
            let mut status = [0; 12];
            let read = session.stream.read(&mut status).expect("an answer");
            assert_eq!(&status[..read], b"HTTP/1.1 408");
        }
    }
    let waited = ticks_at_first.unwrap_or(ticks) - ticks;
    println!("{count} sessions; CPU ticks while they waited (from {quiet_until:?} on): {waited}");
    print_histogram(&mut late);
    if is_strict() {
        let within = |limit: u64| late.partition_point(|d| *d <= Duration::from_millis(limit));
        assert!(within(10) * 100 >= count * 99, "99 % within 10 ms");
        assert_eq!(within(50), count, "all within 50 ms");
        assert!(waited <= 2, "no CPU while they wait: {waited} ticks");
    }
}

fn print_histogram(late: &mut [Duration]) {
    late.sort_unstable();
    let at = |share: usize| late[(late.len() - 1) * share / 100];
    println!("late: p50 {:?}, p99 {:?}, most {:?}", at(50), at(99), at(100));
    let mut from = 0;
    for limit in [1, 2, 5, 10, 20, 50, 100, 1000, 60_000] {
        let to = late.partition_point(|d| *d <= Duration::from_millis(limit));
        println!("  up to {limit:>5} ms: {}", to - from);
        from = to;
    }
}
