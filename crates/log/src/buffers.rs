//! A worker's own buffers, in which lines of the access log come together: one for each sink that lines are
//! written to in this turn of the event loop. No lock is taken and no thread is woken for a line; the whole
//! buffer goes into its sink's queue when the worker has nothing else to do, or when it is full.

use std::sync::Arc;

use crate::sink::Sink;

/// A buffer with so many bytes is handed over at once.
const FULL_BYTES: usize = 64 << 10;
/// How many sinks lines may wait for; with one more, all are handed over.
const SINKS_MAX: usize = 16;
/// How many buffers are kept for later …
const SPARE_MAX: usize = 4;
/// … and how large they may have grown.
const SPARE_BYTES_MAX: usize = 2 * FULL_BYTES;

/// The buffers of one worker.
#[derive(Debug, Default)]
pub struct LineBuffers {
    buffers: Vec<Buffer>,
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Buffer {
    sink: Arc<Sink>,
    lines: Vec<u8>,
    /// How many bytes are whole lines. What follows them was left behind by a panic.
    whole_bytes: usize,
}

impl LineBuffers {
    /// Appends a line: `write` makes it, without its end. Where that panics, there is no line.
    pub fn line(&mut self, sink: &Arc<Sink>, write: impl FnOnce(&mut Vec<u8>)) {
        let known = self.buffers.iter().position(|buffer| Arc::ptr_eq(&buffer.sink, sink));
        let at = known.unwrap_or_else(|| self.begin(sink));
        let buffer = &mut self.buffers[at];
        buffer.lines.truncate(buffer.whole_bytes);
        write(&mut buffer.lines);
        buffer.lines.push(b'\n');
        buffer.whole_bytes = buffer.lines.len();
        if buffer.whole_bytes >= FULL_BYTES {
            buffer.hand_over();
        }
    }

    fn begin(&mut self, sink: &Arc<Sink>) -> usize {
        if self.buffers.len() >= SINKS_MAX {
            self.hand_over();
        }
        let lines = self.spare.pop().unwrap_or_default();
        self.buffers.push(Buffer { sink: Arc::clone(sink), lines, whole_bytes: 0 });
        self.buffers.len() - 1
    }

    /// Puts all lines into the queues of their sinks. Called when the worker has nothing else to do, and at its end.
    pub fn hand_over(&mut self) {
        for mut buffer in self.buffers.drain(..) {
            buffer.hand_over();
            let lines = std::mem::take(&mut buffer.lines);
            if self.spare.len() < SPARE_MAX && lines.capacity() <= SPARE_BYTES_MAX {
                self.spare.push(lines);
            }
        }
    }

    /// Whether no line waits.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// How many buffers there are, and what they hold in memory.
    pub fn memory_usage(&self) -> (usize, usize) {
        let used = self.buffers.iter().map(|buffer| &buffer.lines);
        let bytes = used.chain(&self.spare).map(Vec::capacity).sum();
        (self.buffers.len() + self.spare.len(), bytes)
    }
}

impl Buffer {
    fn hand_over(&mut self) {
        if self.whole_bytes > 0 {
            self.sink.lines(&self.lines[..self.whole_bytes]);
        }
        self.lines.clear();
        self.whole_bytes = 0;
    }
}

impl Drop for Buffer {
    /// However a worker ends, its lines are not lost.
    fn drop(&mut self) {
        self.hand_over();
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use sekisho_config::LogTarget;

    use super::*;
    use crate::sink::{Buffering, Logs};

    struct Scene {
        dir: tempfile::TempDir,
        logs: Arc<Logs>,
    }

    impl Scene {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().expect("a temporary directory"), logs: Logs::new() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn sink(&self, name: &str) -> Arc<Sink> {
            self.logs
                .open(&LogTarget::File(self.path(name)), Buffering::default())
                .expect("it opens")
        }

        fn written(&self, name: &str) -> String {
            self.logs.flush();
            read(&self.path(name))
        }
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).expect("the file")
    }

    fn put(buffers: &mut LineBuffers, sink: &Arc<Sink>, text: &str) {
        buffers.line(sink, |out| out.extend_from_slice(text.as_bytes()));
    }

    /// O6
    #[test]
    fn lines_wait_for_the_hand_over_and_keep_their_order() {
        let scene = Scene::new();
        let (one, two) = (scene.sink("one"), scene.sink("two"));
        let mut buffers = LineBuffers::default();
        assert!(buffers.is_empty());
        put(&mut buffers, &one, "a");
        put(&mut buffers, &two, "b");
        put(&mut buffers, &one, "c");
        assert!(!buffers.is_empty());
        assert_eq!(scene.written("one"), "", "nothing is in the queue yet");
        buffers.hand_over();
        assert!(buffers.is_empty());
        assert_eq!((scene.written("one"), scene.written("two")), ("a\nc\n".into(), "b\n".into()));
        buffers.hand_over();
        assert_eq!(scene.written("one"), "a\nc\n", "no line comes twice");
    }

    /// O6: what waits has a bound.
    #[test]
    fn a_full_buffer_is_handed_over_at_once() {
        let scene = Scene::new();
        let sink = scene.sink("log");
        let mut buffers = LineBuffers::default();
        let text = "x".repeat(999);
        for _ in 0..FULL_BYTES / 1000 {
            put(&mut buffers, &sink, &text);
        }
        assert_eq!(scene.written("log").len(), 0);
        put(&mut buffers, &sink, &text);
        assert_eq!(scene.written("log").len(), (FULL_BYTES / 1000 + 1) * 1000);
        put(&mut buffers, &sink, "next");
        buffers.hand_over();
        assert!(scene.written("log").ends_with("x\nnext\n"));
    }

    /// O6: nor is the number of sinks without a bound.
    #[test]
    fn lines_for_many_sinks_are_all_written() {
        let scene = Scene::new();
        let names: Vec<String> = (0..SINKS_MAX * 3).map(|number| format!("log{number}")).collect();
        let sinks: Vec<_> = names.iter().map(|name| scene.sink(name)).collect();
        let mut buffers = LineBuffers::default();
        for _ in 0..2 {
            for (name, sink) in names.iter().zip(&sinks) {
                put(&mut buffers, sink, name);
                assert!(buffers.buffers.len() <= SINKS_MAX);
            }
        }
        buffers.hand_over();
        assert!(buffers.memory_usage().0 <= SPARE_MAX);
        for name in &names {
            assert_eq!(scene.written(name), format!("{name}\n{name}\n"));
        }
    }

    /// O6, O14: a panic while a line is made costs this line.
    #[test]
    fn a_line_that_was_not_finished_is_not_written() {
        let scene = Scene::new();
        let sink = scene.sink("log");
        let mut buffers = LineBuffers::default();
        put(&mut buffers, &sink, "before");
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            buffers.line(&sink, |out| {
                out.extend_from_slice(b"half a li");
                std::panic::resume_unwind(Box::new(()));
            });
        }));
        assert!(broken.is_err());
        put(&mut buffers, &sink, "after");
        buffers.hand_over();
        assert_eq!(scene.written("log"), "before\nafter\n");
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            buffers.line(&sink, |out| {
                out.extend_from_slice(b"half a li");
                std::panic::resume_unwind(Box::new(()));
            });
        }));
        assert!(broken.is_err());
        buffers.hand_over();
        assert_eq!(scene.written("log"), "before\nafter\n");
    }

    /// O6: not even if the worker does not hand them over.
    #[test]
    fn lines_of_buffers_that_are_dropped_are_not_lost() {
        let scene = Scene::new();
        let sink = scene.sink("log");
        let mut buffers = LineBuffers::default();
        put(&mut buffers, &sink, "last");
        // The configuration has been replaced: only the line holds the sink.
        drop(sink);
        drop(buffers);
        assert_eq!(scene.written("log"), "last\n");
    }

    /// O6: after a hand-over nothing of an old configuration is held.
    #[test]
    fn a_sink_without_lines_is_not_held() {
        let scene = Scene::new();
        let sink = scene.sink("log");
        let mut buffers = LineBuffers::default();
        put(&mut buffers, &sink, "line");
        assert_eq!(Arc::strong_count(&sink), 2);
        buffers.hand_over();
        assert_eq!(Arc::strong_count(&sink), 1);
    }

    /// O6: a slow target delays no request; what does not fit is dropped by whole lines, and counted.
    #[test]
    fn a_full_queue_takes_whole_lines_and_counts_the_rest() {
        let scene = Scene::new();
        let sink = scene.sink("log");
        let mut buffers = LineBuffers::default();
        let text = "x".repeat((1 << 20) + (1 << 18));
        for _ in 0..3 {
            put(&mut buffers, &sink, &text);
        }
        // A quarter of a mebibyte is left, less three ends of lines.
        let short = "y".repeat(1023);
        for _ in 0..260 {
            put(&mut buffers, &sink, &short);
        }
        buffers.hand_over();
        assert_eq!(sink.dropped(), 5);
        let text = scene.written("log");
        assert_eq!(text.lines().filter(|line| *line == short).count(), 255);
        assert!(text.ends_with("y\n5 lines were dropped\n"));
    }
}
