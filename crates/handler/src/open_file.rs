//! An opened file: what heads say of it, its content where that is small, and whether the rest is in memory.

use std::cell::{Cell, RefCell};
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Stat;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use sekisho_http::{Coding, Fields, date};
use sekisho_lifecycle::Moment;

use crate::compress;

/// Files up to this size are kept in memory and leave in one write with their head.
const CONTENT_BYTES_MAX: u64 = 32 * 1024;
/// What a held descriptor weighs in the cache.
pub(crate) const DESCRIPTOR_WEIGHT: u64 = 16 << 10;
/// How many forms of a content are kept.
const COMPRESSED_MAX: usize = 4;
/// In so many places a file is looked at for whether it is in memory.
const LOOKS: u64 = 4;
/// So long what was seen there is believed.
const SEEN_FRESH: Duration = Duration::from_secs(1);

type Compressed = (Coding, u8, Option<Rc<[u8]>>);

/// An opened regular file and what heads say of it.
#[derive(Debug)]
pub struct OpenFile {
    /// `None` for a file whose whole content is in memory.
    descriptor: Option<Arc<OwnedFd>>,
    content: Option<Box<[u8]>>,
    /// Compressed forms of the content, by coding and level; `None` where there is no shorter one. Together
    /// they are not longer than the content.
    compressed: RefCell<Vec<Compressed>>,
    size: u64,
    modified: i64,
    etag: Box<[u8]>,
    /// `modified` as a field says it.
    modified_text: Box<[u8]>,
    /// When all of it was last seen to be in memory.
    seen_in_memory: Cell<Option<Moment>>,
    /// The fields of the response that was made last, for the next one alike.
    description: RefCell<Option<Box<Description>>>,
}

/// What the fields of a response with a whole file, or a range of it, depend on beside the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescriptionKey<'a> {
    pub(crate) media_type: &'a [u8],
    pub(crate) charset: Option<&'a str>,
    pub(crate) has_etag: bool,
    pub(crate) takes_ranges: bool,
}

#[derive(Debug)]
struct Description {
    media_type: Box<[u8]>,
    charset: Option<Box<str>>,
    has_etag: bool,
    takes_ranges: bool,
    fields: Fields,
}

impl Description {
    fn is_for(&self, key: &DescriptionKey<'_>) -> bool {
        *self.media_type == *key.media_type
            && self.charset.as_deref() == key.charset
            && self.has_etag == key.has_etag
            && self.takes_ranges == key.takes_ranges
    }
}

impl OpenFile {
    /// How long it is.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// When it was last modified, in seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.modified
    }

    /// Its entity tag, quotes included.
    pub fn etag(&self) -> &[u8] {
        &self.etag
    }

    /// When it was last modified, as `Last-Modified` says it.
    pub fn modified_text(&self) -> &[u8] {
        &self.modified_text
    }

    /// Adds the fields that describe it. `write` is called for them unless the last response had the same.
    pub(crate) fn describe(
        &self,
        key: DescriptionKey<'_>,
        fields: &mut Fields,
        write: impl FnOnce(&mut Fields),
    ) {
        let mut kept = self.description.borrow_mut();
        if let Some(known) = kept.as_ref().filter(|known| known.is_for(&key)) {
            fields.extend_from(&known.fields);
            return;
        }
        let mut made = Fields::new();
        write(&mut made);
        fields.extend_from(&made);
        *kept = Some(Box::new(Description {
            media_type: key.media_type.into(),
            charset: key.charset.map(Into::into),
            has_etag: key.has_etag,
            takes_ranges: key.takes_ranges,
            fields: made,
        }));
    }

    /// The content, where it is in memory.
    pub fn content(&self) -> Option<&[u8]> {
        self.content.as_deref()
    }

    /// The descriptor to send from, where the content is not in memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(|descriptor| descriptor.as_fd())
    }

    /// The same, for a caller that may need it for longer than the file is kept.
    pub fn shared_descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.descriptor.clone()
    }

    /// Whether a stretch can be read without waiting for a disk, as far as a few looks tell: its bytes are in
    /// memory. A file system that cannot say so is taken for a fast one.
    pub fn is_in_memory(&self, range: &Range<u64>, now: Moment) -> bool {
        let Some(descriptor) = &self.descriptor else { return true };
        let is_known = self.seen_in_memory.get().is_some_and(|at| now.since(at) < SEEN_FRESH);
        if range.is_empty() || is_known {
            return true;
        }
        let step = ((range.end - range.start - 1) / (LOOKS - 1)).max(1);
        let mut places = (0..LOOKS).map(|look| (range.start + look * step).min(range.end - 1));
        let is_in_memory = places.all(|place| {
            let mut byte = [0];
            let flags = ReadWriteFlags::NOWAIT;
            let read = preadv2(descriptor, &mut [IoSliceMut::new(&mut byte)], place, flags);
            read != Err(Errno::AGAIN)
        });
        if is_in_memory && *range == (0..self.size) {
            self.seen_in_memory.set(Some(now));
        }
        is_in_memory
    }

    /// Whether its content would be kept, and could not be read without waiting for a disk.
    pub(crate) fn is_unread(&self) -> bool {
        self.content.is_none() && self.size <= CONTENT_BYTES_MAX
    }

    /// The compressed content, made once and kept; `None` when it is not in memory or would not be shorter.
    pub fn compressed(&self, coding: Coding, level: u8) -> Option<Rc<[u8]>> {
        let content = self.content()?;
        let mut kept = self.compressed.borrow_mut();
        if let Some((.., form)) = kept.iter().find(|form| (form.0, form.1) == (coding, level)) {
            return form.clone();
        }
        let form: Option<Rc<[u8]>> = compress::whole(coding, level, content).map(Rc::from);
        let bytes = form.as_ref().map_or(0, |form| form.len());
        let kept_bytes = |kept: &[Compressed]| -> usize { kept.iter().map(form_bytes).sum() };
        while kept.len() >= COMPRESSED_MAX || kept_bytes(&kept) + bytes > content.len() {
            // The oldest is dropped first. The new one alone is shorter than the content.
            kept.remove(0);
        }
        kept.push((coding, level, form.clone()));
        form
    }

    /// What it has in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let described = self.description.borrow().as_ref().map_or(0, |known| {
            size_of::<Description>() + known.media_type.len() + known.fields.capacity()
        });
        let fields = self.etag.len() + self.modified_text.len() + described;
        let compressed: usize = self.compressed.borrow().iter().map(form_bytes).sum();
        size_of::<Self>() + self.content.as_ref().map_or(0, |it| it.len()) + compressed + fields
    }

    /// What it weighs in the cache.
    pub(crate) fn weight(&self) -> u64 {
        let compressed: usize = self.compressed.borrow().iter().map(form_bytes).sum();
        match &self.content {
            Some(content) => (content.len() + compressed) as u64,
            None => DESCRIPTOR_WEIGHT,
        }
    }

    pub(crate) fn new(descriptor: OwnedFd, stat: &Stat) -> Self {
        let mut size = stat.st_size as u64;
        let content =
            if size <= CONTENT_BYTES_MAX { read_whole(&descriptor, size, false) } else { None };
        if let Some(content) = &content {
            // The file may have changed between the two calls: what was read is what is served.
            size = content.len() as u64;
        }
        let etag = etag_of(stat, size);
        let mut modified_text = Vec::new();
        date::write(stat.st_mtime, &mut modified_text);
        Self {
            descriptor: if content.is_some() { None } else { Some(Arc::new(descriptor)) },
            compressed: RefCell::default(),
            content,
            size,
            modified: stat.st_mtime,
            etag: etag.into_bytes().into(),
            modified_text: modified_text.into(),
            seen_in_memory: Cell::new(None),
            description: RefCell::default(),
        }
    }
}

/// The entity tag of a file, quotes included.
pub(crate) fn etag_of(stat: &Stat, size: u64) -> String {
    let nanos = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    format!("\"{nanos:x}-{size:x}\"")
}

fn form_bytes((.., form): &Compressed) -> usize {
    form.as_ref().map_or(0, |form| form.len())
}

/// The whole content, or what there is of it; `None` when it cannot be read, or
/// only by waiting for a disk where that may not be.
pub(crate) fn read_whole(descriptor: &OwnedFd, size: u64, may_wait: bool) -> Option<Box<[u8]>> {
    let mut content = vec![0; size as usize];
    let mut filled = 0;
    while filled < content.len() {
        let room = &mut content[filled..];
        let flags = if may_wait { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT };
        let read = match preadv2(descriptor, &mut [IoSliceMut::new(room)], filled as u64, flags) {
            // This file system cannot say whether it would wait.
            Err(Errno::OPNOTSUPP) => rustix::io::pread(descriptor, room, filled as u64),
            read => read,
        };
        match read {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    content.truncate(filled);
    Some(content.into())
}
