//! Sinks: open files with a bounded queue each, and the one thread that empties them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::fs::OFlags;
use sekisho_config::LogTarget;

use crate::guard::open_guarded;

/// How many bytes of lines one sink may hold back while its target is slow.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// How long the end waits for a target that takes nothing.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// How many lines of all logs were dropped since the start.
static ALL_DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many lines of all logs were dropped since the start, because their target was too slow or full.
pub fn lines_dropped() -> u64 {
    ALL_DROPPED.load(Ordering::Relaxed)
}

/// One place that lines go to.
#[derive(Debug)]
pub struct Sink {
    target: LogTarget,
    outlet: Arc<Outlet>,
    /// Lines are left in the queue until so many bytes are there …
    buffer: usize,
    bell: Arc<Bell>,
}

/// The part of a sink that the writing thread holds, so that it can write the rest when the sink is gone.
#[derive(Debug)]
struct Outlet {
    queue: Mutex<Queue>,
    /// Locked by whoever writes, for as long as the target takes.
    file: Mutex<File>,
    /// The file was not there before.
    is_new: bool,
    /// The last line is not whole: the target took no more of it.
    is_torn: AtomicBool,
    dropped: AtomicU64,
    /// How many of them the target has been told of.
    told: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    /// After so many bytes of the lines, this file takes the place of the one before.
    next: Option<(usize, File)>,
}

/// Wakes the writing thread.
#[derive(Debug, Default)]
struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct BellState {
    is_rung: bool,
    is_over: bool,
    /// The shortest flush time of a buffered sink: the thread then wakes up without a bell.
    flush: Option<Duration>,
}

/// A sink while somebody has it, and what is left of it after.
type Known = (Weak<Sink>, Arc<Outlet>);

/// All sinks, and the thread that writes them.
#[derive(Debug)]
pub struct Logs {
    sinks: Mutex<HashMap<LogTarget, Known>>,
    bell: Arc<Bell>,
    /// Disconnected when the thread is over.
    writer: Mutex<Option<Receiver<Infallible>>>,
}

impl Logs {
    /// No sink yet, and no thread: see [`Logs::start`].
    pub fn new() -> Arc<Self> {
        Arc::new(Self { sinks: Mutex::default(), bell: Arc::default(), writer: Mutex::new(None) })
    }

    /// The sink for a target, opened for appending; the same one for the same target.
    pub fn open(
        &self,
        target: &LogTarget,
        buffer: Option<u64>,
        flush: Option<Duration>,
    ) -> io::Result<Arc<Sink>> {
        let mut sinks = lock(&self.sinks);
        let known = sinks.get(target);
        if let Some(sink) = known.and_then(|(sink, _)| sink.upgrade()) {
            return Ok(sink);
        }
        let outlet = match (known, target) {
            (Some((_, outlet)), _) => Arc::clone(outlet),
            (None, LogTarget::File(path)) => {
                let (file, is_new) = append_to(path)?;
                Arc::new(Outlet::new(file, is_new))
            }
            // A descriptor of its own: who waits for it must not hold the lock of the one that everybody
            // prints to.
            (None, LogTarget::Stderr) => {
                Arc::new(Outlet::new(io::stderr().as_fd().try_clone_to_owned()?.into(), false))
            }
        };
        if buffer.is_some() {
            let flush = flush.unwrap_or(Duration::from_secs(1));
            let mut state = lock(&self.bell.state);
            state.flush = Some(state.flush.map_or(flush, |other| other.min(flush)));
        }
        let sink = Arc::new(Sink {
            target: target.clone(),
            outlet: Arc::clone(&outlet),
            buffer: buffer.map_or(0, |bytes| (bytes as usize).min(QUEUE_BYTES_MAX / 2)),
            bell: Arc::clone(&self.bell),
        });
        sinks.insert(target.clone(), (Arc::downgrade(&sink), outlet));
        Ok(sink)
    }

    /// Gives files that root has just made to whom the server becomes: they are opened again, by an upgrade say.
    /// Where that is not possible, they are written on as they are.
    pub fn give_new_files_to(&self, uid: u32, gid: u32) {
        for (target, (_, outlet)) in lock(&self.sinks).iter() {
            let file = lock(&outlet.file);
            let is_plain =
                || file.metadata().is_ok_and(|about| about.is_file() && about.nlink() == 1);
            if matches!(target, LogTarget::File(_)) && outlet.is_new && is_plain() {
                let _ = std::os::unix::fs::fchown(&*file, Some(uid), Some(gid));
            }
        }
    }

    /// Starts the writing thread. Called once privileges and masks are as the workers shall have them.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        let logs = Arc::clone(self);
        let (over, writer) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("log".into()).stack_size(128 << 10).spawn(move || {
            while logs.bell.wait() {
                logs.flush();
            }
            logs.flush();
            drop(over);
        })?;
        *lock(&self.writer) = Some(writer);
        Ok(())
    }

    /// Writes what every sink holds, and lets go of those that nobody else does. Takes as long as the
    /// targets do.
    pub fn flush(&self) {
        let mut outlets = Vec::new();
        lock(&self.sinks).retain(|_, (sink, outlet)| {
            outlets.push(Arc::clone(outlet));
            sink.strong_count() > 0
        });
        let mut spare = Vec::new();
        for outlet in outlets {
            spare = outlet.write_out(spare);
        }
    }

    /// Opens every file anew under its name (`USR1`, `-s reopen`). A file that cannot be opened keeps
    /// its old descriptor, and the error is told. Lines that wait go to the old file, and not by the
    /// hands of the caller.
    pub fn reopen(&self) -> Vec<(PathBuf, io::Error)> {
        let mut failed = Vec::new();
        for (target, (sink, outlet)) in lock(&self.sinks).iter() {
            let LogTarget::File(path) = target else { continue };
            if sink.strong_count() == 0 {
                continue;
            }
            match append_to(path) {
                Ok((file, _)) => {
                    let mut queue = lock(&outlet.queue);
                    queue.next = Some((queue.lines.len(), file));
                }
                Err(error) => failed.push((path.clone(), error)),
            }
        }
        self.bell.ring();
        failed
    }

    /// How many sinks there are, and what their queues hold in memory.
    pub fn weigh(&self) -> (usize, usize) {
        let sinks = lock(&self.sinks);
        let bytes = sinks.values().map(|(_, outlet)| lock(&outlet.queue).lines.capacity());
        (sinks.len(), bytes.sum())
    }

    /// Writes what is left and ends the thread. When a target takes nothing, the thread is left behind.
    pub fn stop(&self) {
        lock(&self.bell.state).is_over = true;
        self.bell.rung.notify_all();
        match lock(&self.writer).take().map(|writer| writer.recv_timeout(STOP_LIMIT)) {
            Some(Err(RecvTimeoutError::Timeout)) => self.flush_files(),
            _ => self.flush(),
        }
    }

    /// Writes what no reader can keep from being written.
    fn flush_files(&self) {
        let outlets: Vec<_> = lock(&self.sinks).values().map(|(_, it)| Arc::clone(it)).collect();
        for outlet in outlets {
            let is_file = |file: &File| file.metadata().is_ok_and(|about| about.is_file());
            if outlet.file.try_lock().is_ok_and(|file| is_file(&file)) {
                outlet.write_out(Vec::new());
            }
        }
    }
}

impl Sink {
    /// Puts a whole line (with its end) into the queue. Never blocks on the target.
    pub fn line(&self, line: &[u8]) {
        let mut queue = lock(&self.outlet.queue);
        if queue.lines.len() + line.len() > QUEUE_BYTES_MAX {
            self.outlet.drop_lines(1);
            return;
        }
        let was_below = queue.lines.len() <= self.buffer;
        queue.lines.extend_from_slice(line);
        let is_above = queue.lines.len() > self.buffer;
        drop(queue);
        if was_below && is_above {
            self.bell.ring();
        }
    }

    /// How many lines were dropped because the target was too slow or full.
    pub fn dropped(&self) -> u64 {
        self.outlet.dropped.load(Ordering::Relaxed)
    }

    /// Where the lines go.
    pub fn target(&self) -> &LogTarget {
        &self.target
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // The last holder is gone (an old configuration's log): the rest is written, and the file closed.
        self.bell.ring();
    }
}

impl Outlet {
    fn new(file: File, is_new: bool) -> Self {
        Self {
            queue: Mutex::default(),
            file: Mutex::new(file),
            is_new,
            is_torn: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            told: AtomicU64::new(0),
        }
    }

    /// Writes the queue; takes and gives back a spare buffer so that none is allocated each time.
    fn write_out(&self, mut spare: Vec<u8>) -> Vec<u8> {
        // Locked first: what is taken first is written first.
        let mut file = lock(&self.file);
        let mut queue = lock(&self.queue);
        std::mem::swap(&mut queue.lines, &mut spare);
        let next = queue.next.take();
        drop(queue);
        let (old, new) = spare.split_at(next.as_ref().map_or(0, |(bytes, _)| *bytes));
        if let Some((_, next)) = next {
            self.write(&mut file, old);
            *file = next;
        }
        self.write(&mut file, new);
        spare.clear();
        spare.shrink_to(64 << 10);
        spare
    }

    fn drop_lines(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        ALL_DROPPED.fetch_add(count, Ordering::Relaxed);
    }

    fn write(&self, file: &mut File, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        let untold = dropped - self.told.load(Ordering::Relaxed);
        // What a full disk has cut off is a line of its own: the next is not joined to it.
        if self.is_torn.load(Ordering::Relaxed) && file.write_all(b"\n").is_ok() {
            self.is_torn.store(false, Ordering::Relaxed);
        }
        let taken = write_some(file, lines);
        let mut is_told = taken == lines.len();
        if is_told {
            if untold > 0 {
                is_told = writeln!(file, "{untold} lines were dropped").is_ok();
            }
        } else {
            let lost = lines[taken..].split_inclusive(|byte| *byte == b'\n').count();
            self.drop_lines(lost as u64);
            let is_torn = taken > 0 && lines[taken - 1] != b'\n';
            self.is_torn.fetch_or(is_torn, Ordering::Relaxed);
        }
        if is_told {
            self.told.store(dropped, Ordering::Relaxed);
        }
    }
}

/// Writes as much as the target takes: how much that was.
fn write_some(file: &mut File, bytes: &[u8]) -> usize {
    let mut taken = 0;
    while taken < bytes.len() {
        match file.write(&bytes[taken..]) {
            Ok(count) if count > 0 => taken += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    taken
}

impl Drop for Outlet {
    fn drop(&mut self) {
        // Without a thread (a start that came to nothing) nothing else writes the rest.
        self.write_out(Vec::new());
    }
}

impl Bell {
    fn ring(&self) {
        let mut state = lock(&self.state);
        if !state.is_rung {
            state.is_rung = true;
            self.rung.notify_one();
        }
    }

    /// Waits for the bell or for the flush time; `false` when it is over.
    fn wait(&self) -> bool {
        let mut state = lock(&self.state);
        while !state.is_rung && !state.is_over {
            if let Some(flush) = state.flush {
                let (guard, timeout) =
                    self.rung.wait_timeout(state, flush).unwrap_or_else(PoisonError::into_inner);
                state = guard;
                if timeout.timed_out() {
                    break;
                }
            } else {
                state = self.rung.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.is_rung = false;
        !state.is_over
    }
}

/// Opens a file; and whether it is a new one.
fn append_to(path: &Path) -> io::Result<(File, bool)> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    match open_guarded(flags | OFlags::EXCL, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Ok((open_guarded(flags, path)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

/// A panic while a queue was locked leaves it as it was: whole lines.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn lines_are_written_in_order_and_survive_a_reopen() {
        // O6
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("a.log");
        let logs = Logs::new();
        let sink = logs.open(&LogTarget::File(path.clone()), None, None).expect("it opens");
        logs.start().expect("a thread");
        sink.line(b"one\n");
        logs.flush();
        std::fs::rename(&path, dir.path().join("a.log.1")).expect("it renames");
        assert!(logs.reopen().is_empty());
        sink.line(b"two\n");
        logs.stop();
        assert_eq!(std::fs::read(dir.path().join("a.log.1")).expect("the old file"), b"one\n");
        assert_eq!(std::fs::read(&path).expect("the new file"), b"two\n");
    }

    #[test]
    fn what_waits_is_weighed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let logs = Logs::new();
        let target = LogTarget::File(dir.path().join("a.log"));
        let sink = logs.open(&target, None, None).expect("it opens");
        assert_eq!(logs.weigh(), (1, 0));
        sink.line(&[b'x'; 1000]);
        assert!(logs.weigh().1 >= 1000);
    }

    #[test]
    fn lines_that_wait_at_a_reopen_go_to_the_old_file() {
        // O6
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("a.log");
        let logs = Logs::new();
        let sink = logs.open(&LogTarget::File(path.clone()), None, None).expect("it opens");
        sink.line(b"one\n");
        std::fs::rename(&path, dir.path().join("a.log.1")).expect("it renames");
        assert!(logs.reopen().is_empty());
        sink.line(b"two\n");
        logs.stop();
        assert_eq!(std::fs::read(dir.path().join("a.log.1")).expect("the old file"), b"one\n");
        assert_eq!(std::fs::read(&path).expect("the new file"), b"two\n");
    }

    #[test]
    fn a_target_that_takes_nothing_holds_up_neither_a_reopen_nor_the_end() {
        // O6
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (fifo, path) = (dir.path().join("fifo"), dir.path().join("a.log"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).expect("a fifo");
        let logs = Logs::new();
        let target = LogTarget::File(fifo.clone());
        assert!(logs.open(&target, None, None).is_err(), "nobody reads it");
        let reader = OpenOptions::new().read(true).write(true).open(&fifo).expect("a reader");
        let blocked = logs.open(&target, None, None).expect("it opens");
        let other = logs.open(&LogTarget::File(path.clone()), None, None).expect("it opens");
        logs.start().expect("a thread");
        blocked.line(&vec![b'x'; QUEUE_BYTES_MAX]);
        // Until the thread has taken it, there is no room for another.
        while lock(&blocked.outlet.queue).lines.len() == QUEUE_BYTES_MAX {
            std::thread::yield_now();
        }
        blocked.line(b"waits\n");
        other.line(b"one\n");
        assert!(logs.reopen().is_empty());
        logs.stop();
        assert_eq!(std::fs::read(&path).expect("the file"), b"one\n");
        drop((blocked, other, reader));
    }

    #[test]
    fn dropped_lines_are_told_once() {
        // O6
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("a.log");
        let logs = Logs::new();
        let sink = logs.open(&LogTarget::File(path.clone()), None, None).expect("it opens");
        sink.line(b"one\n");
        sink.line(&vec![b'x'; QUEUE_BYTES_MAX]);
        logs.flush();
        sink.line(b"two\n");
        logs.flush();
        let found = std::fs::read_to_string(&path).expect("the file");
        assert_eq!(found, "one\n1 lines were dropped\ntwo\n");
    }

    /// X20
    #[test]
    fn a_line_that_was_cut_off_is_not_joined_to_the_next() {
        // O6: one event is one line, also when the target was full for a while.
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let flags = rustix::fs::fcntl_getfl(&writer).expect("its flags");
        rustix::fs::fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("not waited for");
        let outlet = Outlet::new(std::os::fd::OwnedFd::from(writer).into(), false);
        let line = |byte: u8| [vec![byte; 300_000], vec![b'\n']].concat();
        outlet.write(&mut lock(&outlet.file), &line(b'a'));
        outlet.write(&mut lock(&outlet.file), b"lost\n");
        assert_eq!(outlet.dropped.load(Ordering::Relaxed), 2);
        let mut found = vec![0; 300_000];
        let taken = io::Read::read(&mut reader, &mut found).expect("a part of a line");
        outlet.write(&mut lock(&outlet.file), b"next\n");
        drop(outlet);
        found.truncate(taken);
        io::Read::read_to_end(&mut reader, &mut found).expect("the rest");
        let text = String::from_utf8(found).expect("text");
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].bytes().all(|byte| byte == b'a'), "the part");
        assert_eq!(&lines[1..], ["next", "2 lines were dropped"]);
    }

    #[test]
    fn the_rest_of_a_sink_that_is_gone_is_written() {
        // O6
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("a.log");
        let logs = Logs::new();
        let sink = logs.open(&LogTarget::File(path.clone()), Some(4096), None).expect("it opens");
        sink.line(b"one\n");
        drop(sink);
        drop(logs);
        assert_eq!(std::fs::read(&path).expect("the file"), b"one\n");
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_never_blocks() {
        // O6
        let logs = Logs::new();
        let sink = logs.open(&LogTarget::File("/dev/full".into()), None, None).expect("it opens");
        let line = vec![b'x'; QUEUE_BYTES_MAX / 4 + 1];
        for _ in 0..6 {
            sink.line(&line);
        }
        assert_eq!(sink.dropped(), 3);
    }

    #[test]
    fn the_same_target_is_opened_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let target = LogTarget::File(dir.path().join("a.log"));
        let logs = Logs::new();
        let one = logs.open(&target, None, None).expect("it opens");
        let two = logs.open(&target, None, None).expect("it opens");
        assert!(Arc::ptr_eq(&one, &two));
    }
}
