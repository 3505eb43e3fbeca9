//! What the files about signals, reloads and upgrades share: clients that ask without a pause while the
//! server is controlled, and servers that are known by their pid file because they come and go.
#![allow(dead_code, reason = "each scenario file uses what it needs")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use sekisho_testkit::response::Context;
use sekisho_testkit::{Response, Signal, Stopwatch, eventually, run};

use crate::common::LONG;

/// A client that was idle for this long may find its connection closed by a server that drains.
const IDLE: Duration = Duration::from_millis(75);

/// More rounds than the usual few, for long runs (`SEKISHO_LONG=1`).
pub(crate) fn rounds(few: usize, many: usize) -> usize {
    if std::env::var_os("SEKISHO_LONG").is_some() { many } else { few }
}

/// How a client asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asks {
    /// Again and again on one connection, until an answer says that it closes.
    OnOneConnection,
    /// Each time on a new connection, which it keeps until it is closed.
    OnNewConnections,
}

/// Clients that ask without a pause.
#[derive(Debug)]
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    answered: Arc<[AtomicUsize]>,
    clients: Vec<JoinHandle<Result<(), String>>>,
}

impl Load {
    /// So many clients of each kind.
    pub(crate) fn start(address: SocketAddr, of_each: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let answered: Arc<[AtomicUsize]> = (0..2 * of_each).map(|_| AtomicUsize::new(0)).collect();
        let clients = (0..2 * of_each)
            .map(|at| {
                let asks = [Asks::OnOneConnection, Asks::OnNewConnections][at % 2];
                let (is_over, answered) = (Arc::clone(&is_over), Arc::clone(&answered));
                thread::spawn(move || ask_on(address, asks, &is_over, &answered[at]))
            })
            .collect();
        let load = Self { is_over, answered, clients };
        load.wait_for_more(3);
        load
    }

    /// Waits until every client that still asks has had so many answers more.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, more: usize) {
        let count = |at: usize| self.answered[at].load(Ordering::Relaxed);
        let goals: Vec<usize> = (0..self.clients.len()).map(|at| count(at) + more).collect();
        eventually("answers for every client", LONG, || {
            let is_there = |at: usize| count(at) >= goals[at] || self.clients[at].is_finished();
            (0..goals.len()).all(is_there)
        });
    }

    /// Ends it: how many requests were answered. Fails the test when one was not.
    #[track_caller]
    pub(crate) fn stop(self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        self.finish()
    }

    /// Waits until the server refuses them all: how many were answered.
    #[track_caller]
    pub(crate) fn finish(self) -> usize {
        let failed: Vec<String> = self
            .clients
            .into_iter()
            .filter_map(|client| client.join().expect("a client does not panic").err())
            .collect();
        let answered = self.answered.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        assert!(failed.is_empty(), "after {answered} answers: {failed:#?}");
        answered
    }
}

fn ask_on(
    address: SocketAddr,
    asks: Asks,
    is_over: &AtomicBool,
    answered: &AtomicUsize,
) -> Result<(), String> {
    let mut stream: Option<TcpStream> = None;
    let mut since = Stopwatch::start();
    while !is_over.load(Ordering::Relaxed) {
        let mut connected = match stream.take() {
            Some(stream) => stream,
            None => match connect(address) {
                Ok(stream) => stream,
                // The end of the server: the connection was refused.
                Err(ErrorKind::ConnectionRefused) => return Ok(()),
                Err(kind) => return Err(format!("{asks:?}: connect: {kind}")),
            },
        };
        let response = match ask(&mut connected, since) {
            Ok(response) => response,
            // On a machine so busy that we were idle ourselves, a close is in order.
            Err(Failed { was_idle: true, has_begun: false, .. }) => continue,
            Err(failed) => return Err(format!("{asks:?}: {}", failed.why)),
        };
        since = Stopwatch::start();
        if response.status != 200 {
            return Err(format!("{asks:?}: {response:?}"));
        }
        answered.fetch_add(1, Ordering::Relaxed);
        if asks == Asks::OnOneConnection && !response.says_close() {
            stream = Some(connected);
        }
    }
    Ok(())
}

fn connect(address: SocketAddr) -> Result<TcpStream, ErrorKind> {
    let stream = TcpStream::connect_timeout(&address, LONG).map_err(|error| error.kind())?;
    stream.set_read_timeout(Some(LONG)).map_err(|error| error.kind())?;
    Ok(stream)
}

/// Why there was no answer.
struct Failed {
    why: String,
    /// Whether the connection had been idle for so long that the server may have closed it.
    was_idle: bool,
    /// Whether anything of an answer had come.
    has_begun: bool,
}

/// Asks; `since` tells when the connection became idle, or a little before that.
fn ask(stream: &mut TcpStream, since: Stopwatch) -> Result<Response, Failed> {
    let mut received = Vec::new();
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let was_idle = since.elapsed() > IDLE;
    let failed = |why: String, received: &[u8]| {
        let why = format!("{why} after {} bytes", received.len());
        Failed { why, was_idle, has_begun: !received.is_empty() }
    };
    sent.map_err(|error| failed(error.to_string(), &received))?;
    let mut buffer = [0; 4096];
    loop {
        let context = Context { is_head: false, is_closed: false };
        match Response::parse(&received, context) {
            Ok(Some((response, _))) => return Ok(response),
            Ok(None) => {}
            Err(why) => return Err(failed(why.to_string(), &received)),
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(failed("closed".to_owned(), &received)),
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) => return Err(failed(error.to_string(), &received)),
        }
    }
}

/// A server known by its pid file: it may have taken the place of the one that the test started.
#[derive(Debug)]
pub(crate) struct ByPidFile(PathBuf);

impl ByPidFile {
    /// The server that this file names.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Its process, if it is there.
    pub(crate) fn pid(&self) -> Option<u32> {
        fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }

    /// Sends a signal.
    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.pid().expect("a server that can be signalled");
        send(pid, signal);
    }

    /// Asks for an upgrade and waits until the new process has taken over and the old one is gone.
    #[track_caller]
    pub(crate) fn upgrade(&self) -> u32 {
        let old = self.pid().expect("a server that can be upgraded");
        send(old, Signal::USR2);
        let is_other = |pid: Option<u32>| pid.is_some_and(|pid| pid != old);
        eventually("another process in the pid file", LONG, || is_other(self.pid()));
        eventually("the end of the old process", LONG, || is_over(old));
        self.pid().expect("just seen")
    }
}

impl Drop for ByPidFile {
    fn drop(&mut self) {
        if let Some(pid) = self.pid().filter(|pid| is_program_of_ours(*pid)) {
            send(pid, Signal::KILL);
        }
    }
}

/// Sends a signal to a process.
pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
    // It may just have ended.
    kill_process(pid, signal).ok();
}

/// Whether a process has ended, whether or not it has been reaped.
pub(crate) fn is_over(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

fn is_program_of_ours(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim() == "sekisho"
}

/// Puts a copy of a program somewhere. Another process does it: a file that this one had open for writing
/// would be "busy" for as long as another test that forks just then has it, too.
#[track_caller]
pub(crate) fn install(program: &Path, to: &Path) {
    let [program, to] = [program, to].map(|path| path.display().to_string());
    let installed = run("install", &["-m", "755", &program, &to], LONG);
    assert_eq!(installed.code(), 0, "{installed:?}");
}

/// Whether we are root: only root can change its user.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root can become another user");
    }
    is_root
}

/// How many lines of a log hold a text.
pub(crate) fn lines_with(log: &Path, text: &str) -> usize {
    let log = fs::read_to_string(log).unwrap_or_default();
    log.lines().filter(|line| line.contains(text)).count()
}
