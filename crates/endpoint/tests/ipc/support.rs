//! A server on a thread of its own, what is left of its sessions, and random numbers.

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use sekisho_endpoint::{
    CloseReason, Config, Echo, Endpoint, Manner, Observer, Peer, Policy, Request, Response,
    Services, SessionSlots, blocking, ipc, service_fn,
};
use sekisho_sys::SharedMemory;
use tokio::sync::oneshot;

/// Only one test at a time counts descriptors.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // The first runtime of a process opens what all of them share. Made while alone: its own descriptors must not be
    // counted by another test.
    drop(tokio::runtime::Builder::new_current_thread().enable_all().build());
    alone
}

/// Writes records until the client wants no more.
pub(crate) const ENDLESS: u32 = 20;
/// Answers when it is cancelled.
pub(crate) const PATIENT: u32 = 21;

/// How many rounds there are.
pub(crate) fn rounds(few: u32, many: u32) -> u32 {
    if std::env::var_os("SEKISHO_LONG").is_some() { many } else { few }
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.next() % sides
    }
}

/// A server on its thread, until it is stopped.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    pub(crate) ends: Arc<Mutex<Vec<CloseReason>>>,
    pub(crate) slots: Arc<SessionSlots>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Deadlines for tests: short, but for one that is only slow.
pub(crate) fn policy() -> Policy {
    Policy {
        linger_timeout: Duration::from_millis(200),
        send_timeout: Some(Duration::from_secs(1)),
        handshake_timeout: Some(Duration::from_secs(2)),
        ..Policy::default()
    }
}

struct Ends(Arc<Mutex<Vec<CloseReason>>>);

impl Observer for Ends {
    fn closed(&self, _: u64, _: &Peer, reason: CloseReason) {
        self.0.lock().expect("whole").push(reason);
    }
}

impl Server {
    pub(crate) fn start(config: ipc::Config) -> Self {
        Self::start_with(config, policy())
    }

    pub(crate) fn start_with(config: ipc::Config, policy: Policy) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ipc");
        let ends = Arc::new(Mutex::new(Vec::new()));
        let slots = SessionSlots::new(200, 1, 200);
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let (ends_there, slots_taken) = (Arc::clone(&ends), Arc::clone(&slots));
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime.expect("a runtime"), async move {
                let config_here = Config {
                    observer: Rc::new(Ends(ends_there)),
                    slots: slots_taken,
                    policy: Arc::new(policy),
                    ..Config::default()
                };
                let endpoint = Endpoint::new(config_here, services());
                let listener = tokio::net::UnixListener::bind(path).expect("bound");
                tokio::task::spawn_local(Rc::clone(&endpoint).listen_ipc(listener, config));
                tell.send(()).expect("heard");
                let _ = stopped.await;
                endpoint.shut_down_all(Manner::Forceful).await;
                assert_eq!(endpoint.connections(), 0);
                assert!(endpoint.list().is_empty());
            });
        });
        told.recv().expect("it listens");
        Self { folder, ends, slots, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("ipc")
    }

    pub(crate) fn socket(&self) -> UnixStream {
        connect(&self.path())
    }

    /// An honest client, which is not kept waiting.
    pub(crate) fn client(&self) -> blocking::Client<ipc::BlockingStream> {
        let mut stream = ipc::BlockingStream::connect(self.socket()).expect("shared");
        stream.set_read_timeout(Some(Duration::from_secs(20)));
        blocking::Client::connect(stream, "honest").expect("admitted")
    }

    /// Waits until so many sessions have ended.
    pub(crate) fn ended(&self, count: usize) {
        until(|| self.ends.lock().expect("whole").len() >= count);
    }

    /// Ends it; its own checks are made by then.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends in order");
        }
    }
}

pub(crate) fn connect(path: &Path) -> UnixStream {
    UnixStream::connect(path).expect("connected")
}

/// Waits until something is so, and not for ever.
pub(crate) fn until(is_so: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        pause(1);
    }
    panic!("it never became so");
}

/// Lets others run for so many milliseconds.
pub(crate) fn pause(millis: u64) {
    let time = Timespec { tv_sec: 0, tv_nsec: millis as i64 * 1_000_000 };
    let _ = rustix::event::poll(&mut [], Some(&time));
}

/// Whether something can be read from it soon.
pub(crate) fn is_ready(socket: &UnixStream, millis: u64) -> bool {
    let time = Timespec { tv_sec: millis as i64 / 1000, tv_nsec: millis as i64 % 1000 * 1_000_000 };
    let mut ready = [PollFd::new(socket, PollFlags::IN)];
    rustix::event::poll(&mut ready, Some(&time)).is_ok_and(|count| count > 0)
}

/// Open descriptors of this process, and pieces of shared memory.
pub(crate) fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("there").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there");
    (descriptors, maps.lines().filter(|line| line.contains("memfd:sekisho")).count())
}

/// What a hostile peer works with.
pub(crate) struct Raw {
    pub(crate) socket: Option<UnixStream>,
    pub(crate) memory_file: Option<OwnedFd>,
    pub(crate) memory: SharedMemory,
    pub(crate) server_wakeup: Option<OwnedFd>,
    pub(crate) client_wakeup: Option<OwnedFd>,
    tail: u64,
}

pub(crate) const HELLO: [u8; 16] = *b"SEKI-IPC\x01\0\0\0\0\0\0\0";

impl Raw {
    /// Comes as far as the memory.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let socket = UnixStream::connect(path)?;
        rustix::net::send(&socket, &HELLO, rustix::net::SendFlags::NOSIGNAL)?;
        let (bytes, descriptors) = receive(&socket)?;
        let Ok([memory_file, server_wakeup, client_wakeup]) = <[OwnedFd; 3]>::try_from(descriptors)
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        assert_eq!((bytes.len(), &bytes[..8]), (32, &b"SEKI-IPC"[..]));
        let memory = SharedMemory::map(&memory_file, 4096 + 3 * 65536)?;
        Ok(Self {
            socket: Some(socket),
            memory_file: Some(memory_file),
            memory,
            server_wakeup: Some(server_wakeup),
            client_wakeup: Some(client_wakeup),
            tail: 0,
        })
    }

    /// Puts bytes where a good client would.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        use std::sync::atomic::Ordering;
        for byte in bytes {
            let at = 4096 + self.tail as usize % 65536;
            let word = &self.memory[at / 8];
            let mut whole = word.load(Ordering::Relaxed).to_le_bytes();
            whole[at % 8] = *byte;
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
            self.tail += 1;
        }
        self.memory[0].store(self.tail, Ordering::Release);
        self.ring(1);
    }

    /// Wakes the server; with a large number it will soon be full.
    pub(crate) fn ring(&self, count: u64) {
        if let Some(wakeup) = &self.server_wakeup {
            let _ = rustix::io::write(wakeup, &count.to_ne_bytes());
        }
    }
}

/// One message with its descriptors.
pub(crate) fn receive(socket: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let mut into = [IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(socket, &mut into, &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    bytes.truncate(received.bytes);
    Ok((bytes, descriptors))
}

fn services() -> Services {
    let mut services = Services::default();
    services.add(Echo::NUMBER, "echo", Rc::new(Echo)).expect("free");
    services.add(ENDLESS, "endless", service_fn(endless)).expect("free");
    services.add(PATIENT, "patient", service_fn(patient)).expect("free");
    services
}

async fn endless(_: Request, response: Response) {
    let record = RefCell::new(vec![7; 3000]);
    let Ok(channel) = response.acquire_channel() else { return };
    while channel.is_wanted() {
        let record = record.borrow().clone();
        if channel.write(&record).await.is_err() {
            break;
        }
    }
    response.release_channel(channel);
    let _ = response.body(b"enough");
}

async fn patient(request: Request, response: Response) {
    response.cancelled().await;
    let _ = response.body(request.body());
}
