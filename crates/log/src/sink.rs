//! Sinks: open files with a bounded queue each, and the one thread that empties them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::fs::OFlags;
use sekisho_config::{Level, LogTarget};
use sekisho_openings::open_guarded;

use crate::destination::Destination;
use crate::error_log::Stamp;
use crate::syslog::{Header, Socket};
use crate::wakeup::{AtOnce, Next, Wakeup};

/// How many bytes of lines one sink may hold back while its target is slow.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// What the writing thread keeps to exchange for a full queue, and a queue keeps of it.
const SPARE_BYTES_MAX: usize = 128 << 10;
/// With so many, the thread does not wait for more to come.
const QUEUE_BYTES_URGENT: usize = QUEUE_BYTES_MAX / 4;

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
    wakeup: Arc<Wakeup>,
    /// What each line begins with at a syslog server.
    header: Option<Header>,
}

/// How long lines may wait, and what becomes of them then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffering {
    /// So many bytes may wait.
    pub bytes: Option<u64>,
    /// So long.
    pub flush: Option<Duration>,
    /// Each write is a gzip member of this level.
    pub gzip: Option<u32>,
}

/// The part of a sink that the writing thread holds, so that it can write the rest when the sink is gone.
#[derive(Debug)]
struct Outlet {
    queue: Mutex<Queue>,
    /// Locked by the writing thread, for as long as the target takes.
    file: Mutex<Destination>,
    /// The file was not there before.
    is_new: bool,
    /// The last line is not whole: the target took no more of it.
    is_torn: AtomicBool,
    dropped: AtomicU64,
    /// How many of them have been reported to the target.
    told: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    /// Up to so many bytes may stay here until it is time to write everything (`buffer=`).
    buffer: usize,
    /// After so many bytes of the lines, this file replaces the one before.
    next: Option<(usize, File)>,
}

/// A sink while it is in use, and its outlet, which may outlive it.
type Known = (Weak<Sink>, Arc<Outlet>);

/// All sinks, and the thread that writes them.
#[derive(Debug)]
pub struct Logs {
    sinks: Mutex<HashMap<LogTarget, Known>>,
    wakeup: Arc<Wakeup>,
    /// Disconnected when the thread is over.
    writer: Mutex<Option<Receiver<Infallible>>>,
}

impl Logs {
    /// No sink yet, and no thread: see [`Logs::start`].
    pub fn new() -> Arc<Self> {
        let wakeup = Arc::new(Wakeup::new());
        Arc::new(Self { sinks: Mutex::default(), wakeup, writer: Mutex::new(None) })
    }

    /// The sink for a target, opened for appending; the same one for the same target.
    pub fn open(&self, target: &LogTarget, buffering: Buffering) -> io::Result<Arc<Sink>> {
        let mut sinks = lock(&self.sinks);
        let known = sinks.get(target);
        if let Some(sink) = known.and_then(|(sink, _)| sink.upgrade()) {
            return Ok(sink);
        }
        let outlet = match (known, target) {
            (Some((_, outlet)), _) => Arc::clone(outlet),
            (None, LogTarget::File(path)) => {
                let (file, is_new) = append_to(path)?;
                let file = match buffering.gzip {
                    Some(level) => Destination::Compressed(file, level),
                    None => Destination::File(file),
                };
                Arc::new(Outlet::new(file, is_new))
            }
            (None, LogTarget::Syslog(syslog)) => {
                Arc::new(Outlet::new(Destination::Syslog(Box::new(Socket::open(syslog)?)), false))
            }
            // A descriptor of its own: a write that waits must not hold the lock of the process's stderr.
            (None, LogTarget::Stderr) => {
                let copy = io::stderr().as_fd().try_clone_to_owned()?;
                Arc::new(Outlet::new(Destination::File(copy.into()), false))
            }
        };
        if buffering.bytes.is_some() {
            self.wakeup.flush_every(buffering.flush.unwrap_or(Duration::from_secs(1)));
        }
        let buffer = buffering.bytes.map_or(0, |bytes| (bytes as usize).min(QUEUE_BYTES_MAX / 2));
        lock(&outlet.queue).buffer = buffer;
        let sink = Arc::new(Sink {
            target: target.clone(),
            outlet: Arc::clone(&outlet),
            wakeup: Arc::clone(&self.wakeup),
            header: match target {
                LogTarget::Syslog(syslog) => Some(Header::new(syslog)),
                LogTarget::File(_) | LogTarget::Stderr => None,
            },
        });
        sinks.insert(target.clone(), (Arc::downgrade(&sink), outlet));
        Ok(sink)
    }

    /// Gives files that root has just made to the server's later user: they are opened again, by an upgrade
    /// for example. If that is not possible, they are written on as they are.
    pub fn give_new_files_to(&self, uid: u32, gid: u32) {
        for (target, (_, outlet)) in lock(&self.sinks).iter() {
            let destination = lock(&outlet.file);
            let Some(file) = destination.file() else { continue };
            let is_plain =
                || file.metadata().is_ok_and(|about| about.is_file() && about.nlink() == 1);
            if matches!(target, LogTarget::File(_)) && outlet.is_new && is_plain() {
                let _ = std::os::unix::fs::fchown(file, Some(uid), Some(gid));
            }
        }
    }

    /// Starts the writing thread. Called once privileges and masks are as the workers shall have them.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        let logs = Arc::clone(self);
        let (over, writer) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("log".into()).stack_size(128 << 10).spawn(move || {
            logs.write_until_end();
            drop(over);
        })?;
        *lock(&self.writer) = Some(writer);
        Ok(())
    }

    /// The writing thread: see [`Wakeup`].
    fn write_until_end(&self) {
        let (mut spare, mut next) = (Vec::new(), Next::WriteAll);
        let mut at_once = AtOnce::new();
        while next != Next::End {
            let has_written = self.write(next, &mut spare);
            if !has_written {
                at_once.restore();
            }
            if has_written && !at_once.admit() {
                next = self.wakeup.pause();
                continue;
            }
            spare = Vec::new();
            next = self.wakeup.sleep(|| {
                let sinks = lock(&self.sinks);
                let due = sinks.values().filter(|(_, outlet)| outlet.settle());
                due.count() > 0
            });
        }
        self.flush();
    }

    /// Writes what every sink holds, and drops the sinks that are not in use. Takes as long as the
    /// targets do.
    pub fn flush(&self) {
        self.write(Next::WriteAll, &mut Vec::new());
    }

    /// Writes what the sinks hold, all of it or what is due; whether there was anything.
    fn write(&self, what: Next, spare: &mut Vec<u8>) -> bool {
        let mut outlets = Vec::new();
        lock(&self.sinks).retain(|_, (sink, outlet)| {
            if what == Next::WriteAll || outlet.is_due() {
                outlets.push(Arc::clone(outlet));
            }
            sink.strong_count() > 0
        });
        let mut has_written = false;
        for outlet in outlets {
            has_written |= outlet.write_out(spare);
        }
        has_written
    }

    /// Opens every file anew under its name (`USR1`, `-s reopen`). A file that cannot be opened keeps
    /// its old descriptor, and the error is returned. Waiting lines go to the old file, written by the log's
    /// thread and not by the caller.
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
        self.wakeup.call();
        failed
    }

    /// How many sinks there are, and what their queues hold in memory.
    pub fn memory_usage(&self) -> (usize, usize) {
        let sinks = lock(&self.sinks);
        let bytes = sinks.values().map(|(_, outlet)| lock(&outlet.queue).lines.capacity());
        (sinks.len(), bytes.sum())
    }

    /// Writes what is left and ends the thread. When a target takes nothing, the thread is left behind.
    pub fn stop(&self) {
        self.wakeup.end();
        match lock(&self.writer).take().map(|writer| writer.recv_timeout(STOP_LIMIT)) {
            Some(Err(RecvTimeoutError::Timeout)) => self.flush_files(),
            _ => self.flush(),
        }
    }

    /// Writes what no reader can keep from being written.
    fn flush_files(&self) {
        let outlets: Vec<_> = lock(&self.sinks).values().map(|(_, it)| Arc::clone(it)).collect();
        for outlet in outlets {
            let is_file = |to: &Destination| {
                to.file().and_then(|file| file.metadata().ok()).is_some_and(|about| about.is_file())
            };
            if outlet.file.try_lock().is_ok_and(|to| is_file(&to)) {
                outlet.write_out(&mut Vec::new());
            }
        }
    }
}

impl Sink {
    /// Puts a whole line (with its end) into the queue. Never blocks on the target.
    pub fn line(&self, line: &[u8]) {
        self.lines(line);
    }

    /// Puts whole lines (with their ends) into the queue, as many as it has room for. Never blocks on the target.
    pub fn lines(&self, lines: &[u8]) {
        let mut queue = lock(&self.outlet.queue);
        let before = queue.lines.len();
        let (taken, dropped) = fitting(lines, QUEUE_BYTES_MAX.saturating_sub(before));
        queue.lines.extend_from_slice(taken);
        let (after, buffer) = (queue.lines.len(), queue.buffer);
        drop(queue);
        if !dropped.is_empty() {
            self.outlet.drop_lines(count_lines(dropped));
        }
        let urgent = buffer.max(QUEUE_BYTES_URGENT);
        if before <= urgent && after > urgent {
            self.wakeup.call();
        } else if after > buffer {
            self.wakeup.note_lines();
        }
    }

    /// How many lines were dropped because the target was too slow or full.
    pub fn dropped(&self) -> u64 {
        self.outlet.dropped.load(Ordering::Relaxed)
    }

    /// Whether lines begin with something (see [`Self::begin_line`]).
    pub fn is_syslog(&self) -> bool {
        self.header.is_some()
    }

    /// Appends what a line of this sink begins with, before the line itself: nothing but for a syslog server, where
    /// `severity` is that of the line or, without one, that of the configuration.
    pub fn begin_line(&self, severity: Option<Level>, stamp: Stamp, out: &mut Vec<u8>) {
        if let Some(header) = &self.header {
            header.push(severity, stamp, out);
        }
    }

    /// Where the lines go.
    pub fn target(&self) -> &LogTarget {
        &self.target
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // The last holder is gone (an old configuration's log): the rest is written, and the file closed.
        lock(&self.outlet.queue).buffer = 0;
        self.wakeup.call();
    }
}

/// The lines that fit into so many bytes, and the rest.
fn fitting(lines: &[u8], room: usize) -> (&[u8], &[u8]) {
    if lines.len() <= room {
        return (lines, b"");
    }
    let end = lines[..room].iter().rposition(|byte| *byte == b'\n');
    lines.split_at(end.map_or(0, |end| end + 1))
}

fn count_lines(lines: &[u8]) -> u64 {
    lines.split_inclusive(|byte| *byte == b'\n').count() as u64
}

impl Outlet {
    fn new(file: Destination, is_new: bool) -> Self {
        Self {
            queue: Mutex::default(),
            file: Mutex::new(file),
            is_new,
            is_torn: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            told: AtomicU64::new(0),
        }
    }

    /// Whether it holds more than it should.
    fn is_due(&self) -> bool {
        let queue = lock(&self.queue);
        queue.lines.len() > queue.buffer || queue.next.is_some()
    }

    /// Before the thread sleeps: an empty queue gives its memory back. Whether there is something to write after
    /// all.
    fn settle(&self) -> bool {
        let mut queue = lock(&self.queue);
        if queue.lines.is_empty() {
            queue.lines = Vec::new();
        }
        queue.lines.len() > queue.buffer || queue.next.is_some()
    }

    /// Writes the queue, whether there was anything in it. The spare buffer is there so that none is allocated
    /// each time.
    fn write_out(&self, spare: &mut Vec<u8>) -> bool {
        // Locked first: what is taken first is written first.
        let mut file = lock(&self.file);
        let mut queue = lock(&self.queue);
        std::mem::swap(&mut queue.lines, spare);
        let next = queue.next.take();
        drop(queue);
        let (old, new) = spare.split_at(next.as_ref().map_or(0, |(bytes, _)| *bytes));
        if let Some((_, next)) = next {
            self.write(&mut file, old);
            file.replace_file(next);
        }
        self.write(&mut file, new);
        let has_written = !spare.is_empty();
        spare.clear();
        spare.shrink_to(SPARE_BYTES_MAX);
        has_written
    }

    fn drop_lines(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        ALL_DROPPED.fetch_add(count, Ordering::Relaxed);
    }

    fn write(&self, file: &mut Destination, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        let untold = dropped - self.told.load(Ordering::Relaxed);
        // What a full disk has cut off is a line of its own: the next is not joined to it.
        if self.is_torn.load(Ordering::Relaxed) && file.write_some(b"\n") == 1 {
            self.is_torn.store(false, Ordering::Relaxed);
        }
        let taken = file.write_some(lines);
        let mut is_told = taken == lines.len();
        if is_told {
            if untold > 0 {
                let told = format!("{untold} lines were dropped\n");
                is_told = file.write_some(told.as_bytes()) == told.len();
            }
        } else {
            self.drop_lines(count_lines(&lines[taken..]));
            let is_torn = taken > 0 && lines[taken - 1] != b'\n';
            self.is_torn.fetch_or(is_torn, Ordering::Relaxed);
        }
        if is_told {
            self.told.store(dropped, Ordering::Relaxed);
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        // Without a thread (a failed start) nothing else writes the rest.
        self.write_out(&mut Vec::new());
    }
}

/// Opens a file; and whether it is a new one.
fn append_to(path: &Path) -> io::Result<(File, bool)> {
    if let Some(given) = sekisho_openings::log(path) {
        return Ok((given?, false));
    }
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
        let sink =
            logs.open(&LogTarget::File(path.clone()), Buffering::default()).expect("it opens");
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
    fn waiting_lines_are_counted_as_memory() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let logs = Logs::new();
        let target = LogTarget::File(dir.path().join("a.log"));
        let sink = logs.open(&target, Buffering::default()).expect("it opens");
        assert_eq!(logs.memory_usage(), (1, 0));
        sink.line(&[b'x'; 1000]);
        assert!(logs.memory_usage().1 >= 1000);
    }

    #[test]
    fn lines_that_wait_at_a_reopen_go_to_the_old_file() {
        // O6
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("a.log");
        let logs = Logs::new();
        let sink =
            logs.open(&LogTarget::File(path.clone()), Buffering::default()).expect("it opens");
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
        assert!(logs.open(&target, Buffering::default()).is_err(), "it has no reader");
        let reader = OpenOptions::new().read(true).write(true).open(&fifo).expect("a reader");
        let blocked = logs.open(&target, Buffering::default()).expect("it opens");
        let other =
            logs.open(&LogTarget::File(path.clone()), Buffering::default()).expect("it opens");
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
        let sink =
            logs.open(&LogTarget::File(path.clone()), Buffering::default()).expect("it opens");
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
        let outlet =
            Outlet::new(Destination::File(std::os::fd::OwnedFd::from(writer).into()), false);
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
        let sink = logs
            .open(
                &LogTarget::File(path.clone()),
                Buffering { bytes: Some(4096), ..Buffering::default() },
            )
            .expect("it opens");
        sink.line(b"one\n");
        drop(sink);
        drop(logs);
        assert_eq!(std::fs::read(&path).expect("the file"), b"one\n");
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_never_blocks() {
        // O6
        let logs = Logs::new();
        let sink = logs
            .open(&LogTarget::File("/dev/full".into()), Buffering::default())
            .expect("it opens");
        let line = vec![b'x'; QUEUE_BYTES_MAX / 4 + 1];
        for _ in 0..6 {
            sink.line(&line);
        }
        assert_eq!(sink.dropped(), 3);
    }

    /// O6: every line wakes the thread that has gone to sleep, and none that it has seen by itself.
    #[test]
    fn no_line_is_slept_over() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("a.log");
        let logs = Logs::new();
        let sink =
            logs.open(&LogTarget::File(path.clone()), Buffering::default()).expect("it opens");
        logs.start().expect("a thread");
        let (times, threads) = (60, 3);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..times {
                        sink.line(b"line\n");
                        // Until it was taken: a thread that sleeps would never do that.
                        while !lock(&sink.outlet.queue).lines.is_empty() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        logs.stop();
        let found = std::fs::read_to_string(&path).expect("the file");
        assert_eq!(found.lines().count(), times * threads);
    }

    /// O6: `buffer=` and `flush=` as in nginx: a line waits for others, but not for longer than that.
    #[test]
    fn a_buffered_line_waits_until_the_buffer_is_full_or_its_time_is_over() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| LogTarget::File(dir.path().join(name));
        let logs = Logs::new();
        let never = Some(Duration::from_hours(1));
        let buffered = |flush| Buffering { bytes: Some(1000), flush, gzip: None };
        let full = logs.open(&at("full"), buffered(never)).expect("it opens");
        full.line(b"first\n");
        assert!(!full.outlet.is_due(), "it waits for more");
        assert!(!full.outlet.settle());
        full.line(&[b'x'; 1000]);
        assert!(full.outlet.is_due());
        assert!(logs.write(Next::WriteDue, &mut Vec::new()));
        let flushed = logs.open(&at("flushed"), buffered(Some(Duration::from_millis(20))));
        let flushed = flushed.expect("it opens");
        logs.start().expect("a thread");
        flushed.line(b"second\n");
        while !lock(&flushed.outlet.queue).lines.is_empty() {
            std::thread::yield_now();
        }
        logs.stop();
        assert_eq!(std::fs::read(dir.path().join("flushed")).expect("the file"), b"second\n");
    }

    /// O6: a thread that sleeps holds no memory for lines.
    #[test]
    fn an_empty_queue_gives_its_memory_back() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let logs = Logs::new();
        let target = LogTarget::File(dir.path().join("a.log"));
        let sink = logs.open(&target, Buffering::default()).expect("it opens");
        logs.start().expect("a thread");
        for _ in 0..3 {
            sink.line(&[b'x'; 10_000]);
            while logs.memory_usage().1 > 0 {
                std::thread::yield_now();
            }
        }
        logs.stop();
    }

    #[test]
    fn the_same_target_is_opened_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let target = LogTarget::File(dir.path().join("a.log"));
        let logs = Logs::new();
        let one = logs.open(&target, Buffering::default()).expect("it opens");
        let two = logs.open(&target, Buffering::default()).expect("it opens");
        assert!(Arc::ptr_eq(&one, &two));
    }
}
