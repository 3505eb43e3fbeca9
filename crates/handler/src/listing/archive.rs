//! A listed folder as one file (`autoindex_archive`): all that its listings show, read and sent in slices.
//! What another location answers for is left out, and so is every link to a folder: it may lead back.

mod tar;
mod zip;

use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use rustix::io::Errno;
use sekisho_config::Level;
use sekisho_http::{Fields, Status, target};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Moment, Share};

use super::ListedFolder;
use super::order;
use super::shared::Readings;
use super::walk::{self, Purpose, Step, Walk};
use crate::task::{self, BodyIn, Describe, Outbox, Progress, Work};
use crate::without;
use tar::Tar;
use zip::Zip;

/// What one read takes: a block of the archive.
const READ_BYTES: usize = zip::BLOCK_BYTES_MAX;
/// So many blocks are sent before others have their turn.
const SLICE_BLOCKS: u32 = 4;
/// What every archive holds: the block, and what is made of it.
pub(super) const BUFFER_BYTES: usize = 4 * READ_BYTES;

/// The form of an archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Zip,
    Tar,
}

impl Kind {
    fn extension(self) -> &'static [u8] {
        match self {
            Self::Zip => b".zip",
            Self::Tar => b".tar",
        }
    }
}

/// An archive at work.
#[derive(Debug)]
pub(super) struct ArchiveTask {
    stage: ArchiveStage,
    encoder: Encoder,
    walk: Walk,
    /// What it holds is taken from the budget.
    share: Share,
    status: Status,
    fields: Fields,
    is_head: bool,
    buffer: Vec<u8>,
    blocks: u32,
    is_resting: bool,
}

#[derive(Debug)]
enum ArchiveStage {
    Head,
    Walking,
    File {
        descriptor: OwnedFd,
        at: u64,
        end: u64,
    },
    Finishing,
    Over,
    Broken,
    /// Given up before its head has left.
    Refused,
}

#[derive(Debug)]
enum Encoder {
    Zip(Box<Zip>),
    Tar(Tar),
}

impl ArchiveTask {
    pub(super) fn new(
        kind: Kind,
        query: &[u8],
        place: ListedFolder,
        readings: Readings,
        share: Share,
        status: Status,
        is_head: bool,
    ) -> Self {
        let name = folder_name(&place.path);
        let wanted = order::arguments(query, b"name").map(order::decoded).collect();
        let mut fields = Fields::new();
        let media_type = match kind {
            Kind::Zip => "application/zip",
            Kind::Tar => "application/x-tar",
        };
        fields.push("Content-Type", media_type);
        disposition(&name, kind, &mut fields);
        let encoder = match kind {
            Kind::Zip => Encoder::Zip(Box::default()),
            Kind::Tar => Encoder::Tar(Tar::default()),
        };
        Self {
            stage: ArchiveStage::Head,
            encoder,
            walk: Walk::new(place, readings, Purpose::Archive { top: name, wanted }),
            share,
            status,
            fields,
            is_head,
            buffer: Vec::new(),
            blocks: 0,
            is_resting: false,
        }
    }

    /// One slice of work: its result, if there is one to report.
    fn step(&mut self, out: &mut Outbox) -> Option<Progress> {
        let body = &mut out.body;
        match std::mem::replace(&mut self.stage, ArchiveStage::Broken) {
            ArchiveStage::Head => {
                self.stage = if self.is_head { ArchiveStage::Over } else { ArchiveStage::Walking };
                out.fields.append(&mut self.fields);
                return Some(Progress::Head(self.status, None));
            }
            ArchiveStage::Walking => self.stage = self.walk_on(body),
            ArchiveStage::File { descriptor, at, end } => {
                self.stage = self.read_on(descriptor, at, end, body);
            }
            ArchiveStage::Finishing => {
                self.is_resting = true;
                let is_done = match &mut self.encoder {
                    Encoder::Zip(zip) => zip.finish(body),
                    Encoder::Tar(_) => {
                        Tar::finish(body);
                        true
                    }
                };
                self.stage = if is_done { ArchiveStage::Over } else { ArchiveStage::Finishing };
            }
            ArchiveStage::Over => {
                self.stage = ArchiveStage::Over;
                return Some(Progress::Done);
            }
            ArchiveStage::Broken => return Some(Progress::Break),
            ArchiveStage::Refused => return Some(Progress::Fail(Status::SERVICE_UNAVAILABLE)),
        }
        (!out.body.is_empty()).then_some(Progress::Body)
    }

    /// Looks for the next entry and begins with it.
    fn walk_on(&mut self, body: &mut Vec<u8>) -> ArchiveStage {
        let weight = if let Encoder::Zip(zip) = &self.encoder { zip.weight() } else { 0 };
        if !self.share.resize(BUFFER_BYTES + weight + self.walk.waiting_bytes()) {
            return self.break_off(walk::OVER_BUDGET);
        }
        self.blocks += 1;
        self.is_resting = self.blocks.is_multiple_of(SLICE_BLOCKS * 16);
        match self.walk.next() {
            Step::Worked => {
                self.is_resting = true;
                ArchiveStage::Walking
            }
            Step::Folder { name, modified } => {
                match &mut self.encoder {
                    Encoder::Zip(zip) => zip.folder(&name, modified, body),
                    Encoder::Tar(_) => Tar::folder(&name, modified, body),
                }
                ArchiveStage::Walking
            }
            Step::File { name, modified, size, descriptor } => {
                match &mut self.encoder {
                    Encoder::Zip(zip) => zip.begin_file(&name, size, modified, body),
                    Encoder::Tar(tar) => tar.begin_file(&name, size, modified, body),
                }
                ArchiveStage::File { descriptor, at: 0, end: size }
            }
            Step::End => {
                if let Some((name, text)) = self.walk.take_unread() {
                    self.add_text(&name, &text, body);
                }
                ArchiveStage::Finishing
            }
            Step::Failed(why) => self.break_off(why),
            Step::Found { .. } => ArchiveStage::Walking,
        }
    }

    /// Adds a file of our own.
    fn add_text(&mut self, name: &[u8], text: &[u8], body: &mut Vec<u8>) {
        let (size, modified) = (text.len() as u64, self.walk.place.wall_secs);
        match &mut self.encoder {
            Encoder::Zip(zip) => {
                zip.begin_file(name, size, modified, body);
                for block in text.chunks(READ_BYTES) {
                    zip.data(block, body);
                }
                zip.end_file(body);
            }
            Encoder::Tar(tar) => {
                tar.begin_file(name, size, modified, body);
                tar.data(text, body);
                tar.end_file(body);
            }
        }
    }

    /// Reads a block of a file. What the file gained since it was opened is left out; a tar of a file that
    /// has shrunk is broken off, a ZIP has the true size.
    fn read_on(
        &mut self,
        descriptor: OwnedFd,
        at: u64,
        end: u64,
        body: &mut Vec<u8>,
    ) -> ArchiveStage {
        self.blocks += 1;
        self.is_resting = self.blocks.is_multiple_of(SLICE_BLOCKS);
        self.buffer.resize(READ_BYTES, 0);
        let wanted = (end - at).min(READ_BYTES as u64) as usize;
        let mut count = 0;
        while count < wanted {
            let room = &mut self.buffer[count..wanted];
            match rustix::io::pread(&descriptor, room, at + count as u64) {
                Ok(0) => break,
                Ok(read) => count += read,
                Err(Errno::INTR) => {}
                Err(_) => return self.break_off("a file cannot be read"),
            }
        }
        let bytes = &self.buffer[..count];
        if !bytes.is_empty() {
            match &mut self.encoder {
                Encoder::Zip(zip) => zip.data(bytes, body),
                Encoder::Tar(tar) => tar.data(bytes, body),
            }
            let at = at + count as u64;
            if at < end && count == wanted {
                return ArchiveStage::File { descriptor, at, end };
            }
        }
        let is_whole = match &mut self.encoder {
            Encoder::Zip(zip) => {
                zip.end_file(body);
                true
            }
            Encoder::Tar(tar) => tar.end_file(body),
        };
        if is_whole { ArchiveStage::Walking } else { self.break_off("a file became shorter") }
    }

    /// Logs why the archive ends early: the client must not take it for complete.
    fn break_off(&self, why: &str) -> ArchiveStage {
        let place = &self.walk.place;
        let file = place.file.escape_ascii();
        let message = format_args!("archive of \"{file}\" is incomplete and was cut off: {why}");
        place.context.report(Level::Error, message);
        ArchiveStage::Broken
    }
}

impl Work for ArchiveTask {
    without!(next_deadline, hold, absorb, narrow, stops_with_client, is_service, conclude);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, _: Moment) -> Poll<Progress> {
        loop {
            if std::mem::take(&mut self.is_resting) {
                return task::rest(cx);
            }
            if let Some(progress) = self.step(out) {
                return Poll::Ready(progress);
            }
        }
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        self.stage = match self.stage {
            ArchiveStage::Over => ArchiveStage::Over,
            ArchiveStage::Head => ArchiveStage::Refused,
            _ => ArchiveStage::Broken,
        };
    }
}

impl BodyIn for ArchiveTask {
    without!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for ArchiveTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "archive"
    }
}

/// The last part of a folder's address: what the archive, and the folder in it, is called.
fn folder_name(path: &[u8]) -> Vec<u8> {
    let last = path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
    last.unwrap_or(b"files").to_vec()
}

/// `Content-Disposition`, with a name in ASCII for old clients (RFC 6266).
fn disposition(name: &[u8], kind: Kind, fields: &mut Fields) {
    fields.push_with("Content-Disposition", |value| {
        value.extend_from_slice(b"attachment; filename=\"");
        let is_safe =
            |byte: u8| byte.is_ascii_alphanumeric() || b" !#&()+,-.=@[]^_{}~".contains(&byte);
        value.extend(name.iter().map(|byte| if is_safe(*byte) { *byte } else { b'_' }));
        value.extend_from_slice(kind.extension());
        value.push(b'"');
        if std::str::from_utf8(name).is_ok() {
            value.extend_from_slice(b"; filename*=UTF-8''");
            for &byte in name {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    value.push(byte);
                } else {
                    target::push_escape(byte, value);
                }
            }
            value.extend_from_slice(kind.extension());
        }
    });
    fields.push("X-Content-Type-Options", "nosniff");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_named_after_its_folder() {
        assert_eq!(folder_name(b"/a/b c/"), b"b c");
        assert_eq!(folder_name(b"/"), b"files");
        let mut fields = Fields::new();
        disposition("ü\"\\;x".as_bytes(), Kind::Zip, &mut fields);
        let value = fields.get("content-disposition").expect("it is said");
        assert_eq!(
            String::from_utf8_lossy(value),
            "attachment; filename=\"_____x.zip\"; \
             filename*=UTF-8''%C3%BC%22%5C%3Bx.zip"
        );
    }
}
