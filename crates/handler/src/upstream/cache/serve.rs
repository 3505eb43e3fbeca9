//! An answer that is given from the cache: its head as if it had just come, and its body from the file.

use std::fs::File;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use sekisho_config::{ErrorPage, Pass};
use sekisho_http::{Fields, Status};
use sekisho_upstream::cache::entry::BodySum;
use sekisho_upstream::cache::{Key, Lifetime, Selection, select};
use sekisho_upstream::fields::Accel;

use super::folder::{Asked, Body, Cache, Kept};
use crate::disk::{Device, Operation};
use crate::task::{Outbox, Progress};
use crate::upstream::answer::{Answer, Changes, EXHAUSTED, Reading};

/// What is read at a time.
const PIECE_BYTES: usize = 128 * 1024;

/// How an answer is changed for the client, as one that comes from a server is.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct View {
    pub(in crate::upstream) pass: Arc<Pass>,
    pub(in crate::upstream) origin: Vec<u8>,
    pub(in crate::upstream) changes: Option<Rc<Changes>>,
    pub(in crate::upstream) error_pages: Arc<[ErrorPage]>,
    /// The status that an `error_page` wants.
    pub(in crate::upstream) status: Option<Status>,
    pub(in crate::upstream) is_head: bool,
}

/// An answer on its way from the disk.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) kept: Arc<Kept>,
    lifetime: Lifetime,
    is_head_given: bool,
    /// What of the body is still to be given.
    at: u64,
    end: u64,
    /// Sums the body, where all of it is given.
    sum: Option<BodySum>,
    disk: Option<Operation<io::Result<Vec<u8>>>>,
}

impl Serving {
    pub(super) fn new(kept: Arc<Kept>, lifetime: Option<Lifetime>) -> Self {
        let lifetime = lifetime.unwrap_or(kept.entry.lifetime);
        let end = kept.entry.body_bytes;
        // A body in memory was summed when it was read.
        let sum = matches!(kept.body, Body::File(_)).then(BodySum::default);
        Self { kept, lifetime, is_head_given: false, at: 0, end, sum, disk: None }
    }

    pub(super) const fn is_head_given(&self) -> bool {
        self.is_head_given
    }

    /// Only this part of the body is given.
    pub(super) fn narrow(&mut self, part: &Range<u64>) {
        if *part != (self.at..self.end) {
            (self.at, self.end, self.sum) = (part.start, part.end, None);
        }
    }

    /// What is given next; an error where the file is not what it was. `own` are the conditions of a request of our
    /// own.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        view: &View,
        own: Option<&Asked>,
        out: &mut Outbox,
        wall_secs: impl FnOnce() -> i64,
    ) -> Poll<io::Result<Progress>> {
        if !std::mem::replace(&mut self.is_head_given, true) {
            return Poll::Ready(self.head(view, own, out, wall_secs()));
        }
        if self.at == self.end {
            return Poll::Ready(Ok(Progress::Done));
        }
        let count = (self.end - self.at).min(PIECE_BYTES as u64) as usize;
        let before = out.body.len();
        match &self.kept.body {
            Body::Memory(body) => {
                let at = self.at as usize;
                out.body.extend_from_slice(&body[at..at + count]);
            }
            Body::File(file) => {
                let at = self.kept.head_bytes + self.at;
                if self.disk.is_none() && read_cached(file, at, count, &mut out.body)? == 0 {
                    let kept = Arc::clone(&self.kept);
                    self.disk = Some(Device::of(file).read(move || read(&kept, at, count)));
                }
                if let Some(disk) = &mut self.disk {
                    let piece = ready!(Pin::new(disk).poll(cx));
                    self.disk = None;
                    out.body.extend_from_slice(&piece.map_err(io::Error::from)??);
                }
            }
        }
        if let Some(sum) = &mut self.sum {
            sum.update(&out.body[before..]);
        }
        self.at += (out.body.len() - before) as u64;
        // The last piece is given only if all of them are what was stored: else the answer is cut.
        if self.at == self.end
            && let Some(sum) = self.sum.take()
            && !sum.fits(&self.kept.entry)
        {
            out.body.truncate(before);
            return Poll::Ready(Err(io::Error::other("cache file has a wrong checksum")));
        }
        Poll::Ready(Ok(Progress::Body))
    }

    /// Deletes the entry, which is damaged.
    pub(super) fn discard(&self, cache: &Arc<Cache>, main: Key) {
        // A variant lies under its own name, or under that of the key where it was the first.
        let slots = [main, Key(self.kept.entry.variant)];
        let own = Arc::clone(cache);
        cache.device().detach(move || slots.into_iter().for_each(|slot| own.remove(slot)));
    }

    fn head(
        &mut self,
        view: &View,
        own: Option<&Asked>,
        out: &mut Outbox,
        wall_secs: i64,
    ) -> io::Result<Progress> {
        let entry = &self.kept.entry;
        let reading = Reading {
            pass: &view.pass,
            origin: &view.origin,
            changes: view.changes.as_deref(),
            error_pages: &view.error_pages,
            is_head: view.is_head,
        };
        let mut accel = Accel::default();
        let status = match reading.read(&self.kept.head, &mut out.fields, &mut accel) {
            Answer::Given(status, _) => view.status.unwrap_or(status),
            Answer::HandOver(target) => return Ok(Progress::HandOver(target)),
            Answer::Intercepted(status) => return Ok(Progress::Fail(status)),
            Answer::Undecided => return Err(io::Error::other(EXHAUSTED)),
        };
        out.limit_rate = accel.limit_rate;
        out.charset = accel.charset;
        out.fields.remove("Age");
        // It belongs to the framing.
        out.fields.remove("Content-Length");
        out.fields.push_number("Age", u64::from(self.lifetime.age(wall_secs)));
        let bytes = entry.body_bytes;
        if status == Status::OK && !out.fields.has("Accept-Ranges") {
            out.fields.push("Accept-Ranges", "bytes");
        }
        out.is_kept = own.is_none();
        let selection = own.map_or(Selection::Whole, |own| {
            select(|name| own.get(name.as_bytes()), status, &entry.fields, bytes)
        });
        match selection {
            Selection::Whole => {}
            Selection::NotModified => {
                (self.at, self.sum) = (self.end, None);
                return Ok(Progress::Head(Status::NOT_MODIFIED, Some(bytes)));
            }
            Selection::Failed => return Ok(Progress::Fail(Status::PRECONDITION_FAILED)),
            Selection::Part(part) => {
                let value = format!("bytes {}-{}/{bytes}", part.start, part.end - 1);
                out.fields.push("Content-Range", value);
                self.narrow(&part);
                return Ok(Progress::Head(Status::PARTIAL_CONTENT, Some(part.end - part.start)));
            }
            Selection::Unsatisfiable => {
                out.fields.clear();
                out.fields.push("Content-Range", format!("bytes */{bytes}"));
                return Ok(Progress::Fail(Status::RANGE_NOT_SATISFIABLE));
            }
        }
        if view.is_head {
            (self.at, self.sum) = (self.end, None);
            if bytes == 0 {
                // The response to a HEAD says how long the body is that it does not have.
                return Ok(Progress::Head(status, content_length(&entry.fields)));
            }
        }
        Ok(Progress::Head(status, Some(bytes)))
    }
}

fn content_length(fields: &Fields) -> Option<u64> {
    fields.get("content-length").and_then(|text| str::from_utf8(text).ok()?.parse().ok())
}

fn read(kept: &Kept, at: u64, count: usize) -> io::Result<Vec<u8>> {
    let Body::File(file) = &kept.body else { return Ok(Vec::new()) };
    let mut piece = vec![0; count];
    file.read_exact_at(&mut piece, at)?;
    Ok(piece)
}

/// Adds up to `count` bytes of a file, as far as they are in the page cache; how many. A file system that cannot tell
/// is read by a thread.
fn read_cached(file: &File, at: u64, count: usize, out: &mut Vec<u8>) -> io::Result<usize> {
    let before = out.len();
    out.resize(before + count, 0);
    let into = &mut [IoSliceMut::new(&mut out[before..])];
    let read = preadv2(file, into, at, ReadWriteFlags::NOWAIT);
    let read = match read {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(read) => Ok(read),
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR) => Ok(0),
        Err(errno) => Err(errno.into()),
    };
    out.truncate(before + *read.as_ref().unwrap_or(&0));
    read
}
