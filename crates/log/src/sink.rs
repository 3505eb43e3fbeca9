//! Sinks: open files with a bounded queue each, and the one thread that empties them.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use sekisho_config::LogTarget;

/// How many bytes of lines one sink may hold back while its target is slow.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// One place that lines go to.
#[derive(Debug)]
pub struct Sink {
    target: LogTarget,
    queue: Mutex<Vec<u8>>,
    file: Mutex<Option<File>>,
    dropped: AtomicU64,
    /// Lines are left in the queue until so many bytes are there …
    buffer: usize,
    bell: Arc<Bell>,
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

/// All sinks, and the thread that writes them.
#[derive(Debug)]
pub struct Logs {
    sinks: Mutex<HashMap<LogTarget, Weak<Sink>>>,
    bell: Arc<Bell>,
    writer: Mutex<Option<JoinHandle<()>>>,
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
        if let Some(sink) = sinks.get(target).and_then(Weak::upgrade) {
            return Ok(sink);
        }
        let file = match target {
            LogTarget::File(path) => Some(append_to(path)?),
            LogTarget::Stderr => None,
        };
        if buffer.is_some() {
            let flush = flush.unwrap_or(Duration::from_secs(1));
            let mut state = lock(&self.bell.state);
            state.flush = Some(state.flush.map_or(flush, |other| other.min(flush)));
        }
        let sink = Arc::new(Sink {
            target: target.clone(),
            queue: Mutex::default(),
            file: Mutex::new(file),
            dropped: AtomicU64::new(0),
            buffer: buffer.map_or(0, |bytes| (bytes as usize).min(QUEUE_BYTES_MAX / 2)),
            bell: Arc::clone(&self.bell),
        });
        sinks.insert(target.clone(), Arc::downgrade(&sink));
        Ok(sink)
    }

    /// Starts the writing thread. Called once privileges and masks are as the workers shall have them.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        let logs = Arc::clone(self);
        let thread = std::thread::Builder::new().name("log".into()).stack_size(128 << 10).spawn(
            move || {
                while logs.bell.wait() {
                    logs.flush();
                }
                logs.flush();
            },
        )?;
        *lock(&self.writer) = Some(thread);
        Ok(())
    }

    /// Writes what every sink holds.
    pub fn flush(&self) {
        let sinks: Vec<_> = lock(&self.sinks).values().filter_map(Weak::upgrade).collect();
        let mut spare = Vec::new();
        for sink in sinks {
            spare = sink.write_out(spare);
        }
    }

    /// Opens every file anew under its name (`USR1`, `-s reopen`). A file that cannot be opened keeps
    /// its old descriptor, and the error is told.
    pub fn reopen(&self) -> Vec<(PathBuf, io::Error)> {
        self.flush();
        let mut failed = Vec::new();
        let mut sinks = lock(&self.sinks);
        sinks.retain(|_, sink| sink.strong_count() > 0);
        for (target, sink) in sinks.iter() {
            let (LogTarget::File(path), Some(sink)) = (target, sink.upgrade()) else { continue };
            match append_to(path) {
                Ok(file) => *lock(&sink.file) = Some(file),
                Err(error) => failed.push((path.clone(), error)),
            }
        }
        failed
    }

    /// Writes what is left and ends the thread.
    pub fn stop(&self) {
        lock(&self.bell.state).is_over = true;
        self.bell.rung.notify_all();
        if let Some(thread) = lock(&self.writer).take() {
            // A panic in the log thread has already been printed; there is nothing left to save.
            let _ = thread.join();
        }
        self.flush();
    }
}

impl Sink {
    /// Puts a whole line (with its end) into the queue. Never blocks on the target.
    pub fn line(&self, line: &[u8]) {
        let mut queue = lock(&self.queue);
        if queue.len() + line.len() > QUEUE_BYTES_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let was_below = queue.len() <= self.buffer;
        queue.extend_from_slice(line);
        let is_above = queue.len() > self.buffer;
        drop(queue);
        if was_below && is_above {
            self.bell.ring();
        }
    }

    /// How many lines were dropped because the target was too slow or full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes the queue; takes and gives back a spare buffer so that none is allocated each time.
    fn write_out(&self, mut spare: Vec<u8>) -> Vec<u8> {
        std::mem::swap(&mut *lock(&self.queue), &mut spare);
        if spare.is_empty() {
            return spare;
        }
        let written = match &mut *lock(&self.file) {
            Some(file) => file.write_all(&spare),
            None => io::stderr().write_all(&spare),
        };
        if written.is_err() {
            let lines = spare.split_inclusive(|byte| *byte == b'\n').count();
            self.dropped.fetch_add(lines as u64, Ordering::Relaxed);
        }
        spare.clear();
        spare.shrink_to(64 << 10);
        spare
    }

    /// Where the lines go.
    pub fn target(&self) -> &LogTarget {
        &self.target
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // The last holder is gone (an old configuration's log): nothing else will write the rest.
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

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// A panic while a queue was locked leaves it as it was: whole lines.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
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
