//! Processes that programs leave behind outside their process group: a process that left its session is
//! found, killed with its request and reaped, so that none stays (C6).
//!
//! The server is the *subreaper* of its programs: a process whose parent has ended becomes a child of the
//! server's first thread, which starts no program itself. That thread's list of children is therefore the
//! list of orphans, and it is empty as a rule: to look costs one read. A chain of parents always ends at a
//! child of ours, so looking again when an orphan has ended finds all of them.
//!
//! The environment of an orphan says which request it belongs to ([`VARIABLE`]). One without it is left alone
//! and only waited for: `cgi_leave_daemons`, or a program that cleaned its environment on purpose.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use tokio::net::unix::pipe::Receiver;

use super::process_slots::ProcessSlots;

/// Names the run that a process belongs to.
pub(super) const VARIABLE: &str = "SEKISHO_RUN";
/// What one read of the list takes: a page, as the kernel gives whole numbers up to that.
const LIST_BYTES: usize = 4096;
/// How much of it is read at the most; there is another look after each end.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The orphans of the whole server.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// The list; `None` where the kernel has none, and then orphans go to the first process of the machine
    /// as they always did.
    list: OnceLock<Option<File>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// The runs that are not over.
    running: HashSet<u64>,
    /// Orphans whose end is waited for.
    adopted: HashSet<Pid>,
}

/// A run whose orphans are ended with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RunId(u64);

impl RunId {
    /// What [`VARIABLE`] says.
    pub(super) fn value(self) -> String {
        format!("{}.{}", std::process::id(), self.0)
    }
}

impl Orphans {
    /// A program is about to be started.
    pub(super) fn begin(&self) -> RunId {
        self.list.get_or_init(open_list);
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        state.running.insert(id);
        RunId(id)
    }

    /// It has ended, or was not started.
    pub(super) fn end(&self, run: RunId) {
        self.lock().running.remove(&run.0);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for orphans: those of runs that are over are killed, all are waited for.
pub(super) fn look(process_slots: &Arc<ProcessSlots>) {
    let orphans = &process_slots.orphans;
    let Some(Some(list)) = orphans.list.get() else { return };
    // From here to the end only this thread reaps orphans, so their process numbers are not reused.
    let mut state = orphans.lock();
    while look_once(process_slots, list, &mut state) {}
}

/// Whether one was reaped: its children are ours since then.
fn look_once(process_slots: &Arc<ProcessSlots>, list: &File, state: &mut State) -> bool {
    let mut has_reaped = false;
    for pid in children(list) {
        let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if run_of(pid).is_some_and(|run| !state.running.contains(&run)) {
            let _ = rustix::process::pidfd_send_signal(&fd, Signal::KILL);
        }
        if reap(&fd) {
            has_reaped = true;
        } else if !state.adopted.contains(&pid) && adopt(process_slots, pid, fd) {
            state.adopted.insert(pid);
        }
    }
    has_reaped
}

/// Our children that are orphans, as the kernel lists them.
fn children(list: &File) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut bytes = [0; LIST_BYTES];
    let mut at = 0;
    while at < LIST_BYTES_MAX
        && let Ok(count @ 1..) = list.read_at(&mut bytes, at)
    {
        at += count as u64;
        let words = bytes[..count].split(u8::is_ascii_whitespace);
        let numbers = words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok());
        found.extend(numbers.filter_map(Pid::from_raw));
    }
    if !found.is_empty() {
        // What the server itself starts (its successor) stays in its session. Every program has a session of
        // its own, and no process can join another's session, whatever group it moves to.
        let own = sekisho_sys::session_of(None).ok();
        found.retain(|pid| {
            let pid = pid.as_raw_nonzero().get();
            own.is_none() || sekisho_sys::session_of(Some(pid)).ok() != own
        });
    }
    found
}

/// Waits for an orphan's end beside everything else; whether that can be done.
fn adopt(process_slots: &Arc<ProcessSlots>, pid: Pid, fd: OwnedFd) -> bool {
    if tokio::runtime::Handle::try_current().is_err() {
        return false;
    }
    // The runtime's pipe is used only to wait: it is the safe way to wait for any descriptor.
    let Ok(ended) = Receiver::from_owned_fd_unchecked(fd) else { return false };
    let process_slots = Arc::clone(process_slots);
    tokio::task::spawn_local(async move {
        let _ = ended.readable().await;
        {
            let mut state = process_slots.orphans.lock();
            reap(&ended);
            state.adopted.remove(&pid);
        }
        // Its own children are ours now.
        look(&process_slots);
    });
    true
}

/// Reaps a child that has ended; returns whether there is no child left to wait for.
fn reap(fd: &impl AsFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(rustix::process::waitid(WaitId::PidFd(fd.as_fd()), options), Ok(None))
}

/// The run of this server that a process belongs to, as its environment says.
fn run_of(pid: Pid) -> Option<u64> {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|one| one.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    let (server, run) = std::str::from_utf8(value).ok()?.split_once('.')?;
    if server.parse() != Ok(std::process::id()) {
        return None;
    }
    run.parse().ok()
}

/// Becomes the subreaper where orphans can be seen afterwards.
fn open_list() -> Option<File> {
    let pid = std::process::id();
    let list = File::open(format!("/proc/self/task/{pid}/children")).ok()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok()?;
    Some(list)
}
