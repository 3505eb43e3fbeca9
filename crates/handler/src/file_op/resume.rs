//! Uploads that can be resumed: tus 1.0 with creation, creation-with-upload, termination and expiration.
//!
//! What is known about an upload lies in its store as `.sekisho-partial-ID.info`; what has come of it, once
//! something has, lies beside it as `.sekisho-partial-ID`, and its length is the offset. Both survive a restart.
//! When all has come, the file is given its name as every upload is, and the note becomes
//! `.sekisho-partial-ID.done` for an hour, so that a client that missed the last answer learns that it is done.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use sekisho_config::{FileOps, Sync};
use sekisho_http::{Head, Known, Method, Status, date, file_name, target};
use sekisho_route::Store;

use super::beneath::{self, Spot};
use super::conditions::Conditions;
use super::intake::Sink;
use super::land::{self, Rules};
use super::note::{self, Note};
use super::temp::{self, Temp};
use super::{Answer, Call, Failure, FileOpStage, Outcome, Prepared, Programs, sweep, unfinished};

/// What the names of unfinished uploads begin with.
pub(crate) const PREFIX: &str = ".sekisho-partial-";
/// What the names of notes about them end with.
pub(crate) const NOTE: &str = ".info";
/// The same when the upload is done.
pub(crate) const DONE: &str = ".done";
/// How long it is known that an upload is done.
pub(crate) const DONE_LIFE: Duration = Duration::from_hours(1);
pub(crate) const VERSION: &[u8] = b"1.0.0";
const EXTENSIONS: &[u8] = b"creation,creation-with-upload,termination,expiration";
pub(crate) const MEDIA_TYPE: &[u8] = b"application/offset+octet-stream";
/// How many digits the name of an upload has.
pub(crate) const ID_BYTES: usize = 32;

/// Whether a name in a folder is a note about an upload that has been given its name.
pub(super) fn is_finished(folder: &OwnedFd, name: &[u8]) -> bool {
    if !name.starts_with(PREFIX.as_bytes()) {
        return false;
    }
    if name.ends_with(DONE.as_bytes()) {
        return true;
    }
    if !name.ends_with(NOTE.as_bytes()) {
        return false;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(folder, name, flags, Mode::empty());
    opened.and_then(|file| read(&file)).is_ok_and(|note| note.is_done)
}

fn read(file: &OwnedFd) -> Result<Note, Errno> {
    let mut bytes = vec![0; note::BYTES_MAX];
    let count = rustix::io::read(file, &mut *bytes)?;
    Note::from_bytes(&bytes[..count]).ok_or(Errno::IO)
}

/// Whether a request to a store uses the protocol.
pub(crate) fn is_spoken(head: &Head) -> bool {
    head.named(b"tus-resumable").is_some()
}

/// The protocol's answer to OPTIONS.
pub(super) fn describe(max_bytes: Option<u64>) -> Answer {
    let mut answer = Answer::new(Status::NO_CONTENT)
        .field("Tus-Resumable", VERSION)
        .field("Tus-Version", VERSION)
        .field("Tus-Extension", EXTENSIONS);
    if let Some(max) = max_bytes {
        answer = answer.field("Tus-Max-Size", max.to_string().as_bytes());
    }
    answer
}

/// POST: an upload is begun.
pub(super) fn create(
    call: &Call<'_>,
    file_ops: &FileOps,
    programs: &Programs,
) -> Result<FileOpStage, Failure> {
    speaking(begin(call, file_ops, programs))
}

/// HEAD, PATCH and DELETE: query, continue or cancel an upload.
pub(super) fn resume(
    call: &Call<'_>,
    file_ops: &FileOps,
    store: &Store,
) -> Result<FileOpStage, Failure> {
    speaking(go_on(call, file_ops, store))
}

/// Every answer names the protocol's version.
fn speaking<T>(done: Result<T, Failure>) -> Result<T, Failure> {
    done.map_err(|failure| failure.field("Tus-Resumable", VERSION))
}

fn check_version(head: &Head) -> Result<(), Failure> {
    if head.named(b"tus-resumable") == Some(VERSION) {
        return Ok(());
    }
    Err(Failure::of(Status::PRECONDITION_FAILED).field("Tus-Version", VERSION))
}

fn begin(call: &Call<'_>, file_ops: &FileOps, programs: &Programs) -> Result<FileOpStage, Failure> {
    let head = call.request.head;
    check_version(head)?;
    let length = number(head, b"upload-length").ok_or(Status::BAD_REQUEST)?;
    if call.settings().client_max_body_size.is_some_and(|max| length > max) {
        return Err(Failure::of(Status::CONTENT_TOO_LARGE));
    }
    let is_with_upload = head.known(Known::ContentType) == Some(MEDIA_TYPE);
    if call.has_body && !is_with_upload {
        return Err(Failure::of(Status::UNSUPPORTED_MEDIA_TYPE));
    }
    let metadata = head.named(b"upload-metadata").unwrap_or_default();
    let seconds = call.request.wall.unix_secs;
    let wanted =
        note::metadata(metadata, b"filename").or_else(|| note::metadata(metadata, b"name"));
    let name = wanted.and_then(|name| file_name::safe(&name));
    let client = call.route_state.client(call.request.connection);
    let owner = unfinished::owner_of(client.map(|client| client.ip()));
    let random = temp::random();
    let id = format!("{owner}{}", &random[unfinished::OWNER_BYTES..]);
    let name = name.unwrap_or_else(|| format!("upload-{seconds}-{}", &id[ID_BYTES - 8..]));
    let shelf = Shelf::find(call, file_ops, &id)?;
    programs.refuse(name.as_bytes())?;
    let note = Note { length, name, metadata: metadata.to_vec(), is_done: false };
    let mut location = Vec::new();
    target::encode_path(&call.route_state.path, &mut location);
    if !location.ends_with(b"/") {
        location.push(b'/');
    }
    location.extend_from_slice(id.as_bytes());
    let (has_body, max) = (call.has_body, file_ops.unfinished_max);
    Ok(FileOpStage::prepare(&call.device(), move || {
        speaking(unfinished::admit(&shelf.folder, owner.as_bytes(), max, seconds))?;
        if let Err(failure) = shelf.write_note(&note) {
            unfinished::leave(&shelf.folder, &shelf.id);
            return speaking(Err(failure));
        }
        let answer = Answer::new(Status::CREATED).field("Location", &location);
        // No file before the first byte: an upload that is never continued costs its note alone.
        let upload = Upload { shelf, note, file: None, offset: 0, answer };
        Ok(if has_body || length == 0 {
            Prepared::Receive(Box::new(upload))
        } else {
            Prepared::Answer(upload.answered())
        })
    }))
}

fn go_on(call: &Call<'_>, file_ops: &FileOps, store: &Store) -> Result<FileOpStage, Failure> {
    let head = call.request.head;
    check_version(head)?;
    let is_id = store.name.len() == ID_BYTES && store.name.iter().all(u8::is_ascii_hexdigit);
    let id = std::str::from_utf8(&store.name).ok().filter(|_| is_id).ok_or(Status::NOT_FOUND)?;
    let shelf = Shelf::find(call, file_ops, id)?;
    Ok(match head.method() {
        Method::Head => FileOpStage::prepare(&call.device(), move || {
            speaking(shelf.tell().map(Prepared::Answer))
        }),
        Method::Delete => FileOpStage::prepare(&call.device(), move || {
            speaking(shelf.give_up().map(Prepared::Answer))
        }),
        _ => {
            let piece = Piece::of(call);
            FileOpStage::prepare(&call.device(), move || speaking(shelf.append(piece)))
        }
    })
}

/// What a PATCH says of the bytes that it brings.
#[derive(Debug)]
struct Piece {
    offset: u64,
    has_body: bool,
    body_bytes: Option<u64>,
}

impl Piece {
    fn of(call: &Call<'_>) -> Result<Self, Failure> {
        let head = call.request.head;
        if head.known(Known::ContentType) != Some(MEDIA_TYPE) {
            return Err(Failure::of(Status::UNSUPPORTED_MEDIA_TYPE));
        }
        let offset = number(head, b"upload-offset").ok_or(Status::BAD_REQUEST)?;
        Ok(Self { offset, has_body: call.has_body, body_bytes: call.body_bytes })
    }
}

/// Where an upload lies until it is complete.
#[derive(Debug)]
struct Shelf {
    folder: Arc<OwnedFd>,
    /// A name in the folder, to be replaced by the upload's own.
    spot: Spot,
    /// Of the store, for the log.
    path: Vec<u8>,
    id: String,
    rules: Rules,
    life: Duration,
    seconds: i64,
}

impl Shelf {
    fn find(call: &Call<'_>, file_ops: &FileOps, id: &str) -> Result<Self, Failure> {
        let route_state = call.route_state;
        let path = route_state.file.strip_suffix(b"/").unwrap_or(&route_state.file).to_vec();
        let root_bytes = route_state.root_bytes.min(path.len());
        let any = [&path, &b"/x"[..]].concat();
        let spot = Spot::find(&any, root_bytes, call.settings().disable_symlinks, false)
            .map_err(|errno| Failure::by(errno, Status::NOT_FOUND, "open store", &path))?;
        let life = file_ops.resumable.unwrap_or_default();
        let seconds = call.request.wall.unix_secs;
        sweep::visit(&spot.folder, Some(life), seconds);
        let (folder, id) = (Arc::clone(&spot.folder), id.to_owned());
        Ok(Self { folder, spot, path, id, rules: Rules::of(file_ops), life, seconds })
    }

    fn data_name(&self) -> String {
        format!("{PREFIX}{}", self.id)
    }

    fn note_name(&self) -> String {
        format!("{PREFIX}{}{NOTE}", self.id)
    }

    fn done_name(&self) -> String {
        format!("{PREFIX}{}{DONE}", self.id)
    }

    fn fail(&self, errno: Errno) -> Failure {
        let file = [&self.path, &b"/"[..], self.data_name().as_bytes()].concat();
        Failure::by(errno, Status::NOT_FOUND, "upload", &file)
    }

    fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&*self.folder, name, AtFlags::empty());
    }

    /// The note appears, or replaces the one before, in one step.
    fn write_note(&self, note: &Note) -> Result<(), Failure> {
        let bytes = note.to_bytes();
        if bytes.len() > note::BYTES_MAX {
            return Err(Failure::of(Status::HEADER_TOO_LARGE));
        }
        let written = Temp::new(&self.folder).and_then(|mut temp| {
            temp.write(&bytes)?;
            temp.replace(&self.folder, self.note_name().as_bytes())
        });
        written.map_err(|errno| self.fail(errno))
    }

    fn read_note(&self) -> Result<(Note, Stat), Failure> {
        let fail = |errno| self.fail(errno);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |name| rustix::fs::openat(&*self.folder, name, flags, Mode::empty());
        let file = match open(self.note_name()) {
            Err(Errno::NOENT) => open(self.done_name()),
            opened => opened,
        };
        let file = match file {
            Ok(file) => file,
            Err(Errno::NOENT) => return Err(Failure::of(Status::NOT_FOUND)),
            Err(errno) => return Err(fail(errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(fail)?;
        Ok((read(&file).map_err(fail)?, stat))
    }

    /// The file of the upload, to append to it; locked against other requests meanwhile.
    fn open_locked(&self) -> Result<OwnedFd, Failure> {
        let file = self.open(OFlags::CREATE).map_err(|errno| self.fail(errno))?;
        if !temp::lock(file.as_fd()) {
            return Err(Failure::of(Status::LOCKED));
        }
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.fail(errno))?;
        if stat.st_nlink == 0 {
            return Err(Failure::of(Status::NOT_FOUND));
        }
        if stat.st_size == 0 {
            // It may have been given up, or done, since its note was read.
            let note = beneath::look(&*self.folder, self.note_name().as_bytes());
            if note.map_err(|errno| self.fail(errno))?.is_none() {
                self.remove(&self.data_name());
                return Err(Failure::of(Status::NOT_FOUND));
            }
        }
        Ok(file)
    }

    fn open(&self, more: OFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
        rustix::fs::openat(&*self.folder, self.data_name(), flags, Mode::RUSR | Mode::WUSR)
    }

    /// When an upload that was last changed then expires.
    fn expiry(&self, touched: i64, is_done: bool) -> i64 {
        let life = if is_done { self.life.min(DONE_LIFE) } else { self.life };
        touched.saturating_add(i64::try_from(life.as_secs()).unwrap_or(i64::MAX))
    }

    fn check_age(&self, touched: i64, is_done: bool) -> Result<(), Failure> {
        if self.expiry(touched, is_done) > self.seconds { Ok(()) } else { Err(Status::GONE.into()) }
    }

    /// HEAD
    fn tell(&self) -> Outcome {
        let (note, noted) = self.read_note()?;
        let data = beneath::look(&*self.folder, self.data_name().as_bytes());
        let (offset, touched) = match data.map_err(|errno| self.fail(errno))? {
            _ if note.is_done => (note.length, noted.st_mtime),
            Some(data) => (data.st_size as u64, data.st_mtime),
            None => (0, noted.st_mtime),
        };
        self.check_age(touched, note.is_done)?;
        let mut answer = Answer::new(Status::OK)
            .field("Upload-Offset", offset.to_string().as_bytes())
            .field("Upload-Length", note.length.to_string().as_bytes())
            .field("Cache-Control", b"no-store");
        if !note.metadata.is_empty() {
            answer = answer.field("Upload-Metadata", &note.metadata);
        }
        Ok(self.dated(answer, touched, note.is_done))
    }

    /// DELETE
    fn give_up(&self) -> Outcome {
        let (note, _) = self.read_note()?;
        if let Ok(file) = self.open(OFlags::empty())
            && !temp::lock(file.as_fd())
        {
            return Err(Failure::of(Status::LOCKED));
        }
        for name in [self.data_name(), self.note_name(), self.done_name()] {
            self.remove(&name);
        }
        if !note.is_done {
            unfinished::leave(&self.folder, &self.id);
        }
        Ok(Answer::new(Status::NO_CONTENT).field("Tus-Resumable", VERSION))
    }

    /// PATCH
    fn append(self, piece: Result<Piece, Failure>) -> Result<Prepared, Failure> {
        let (note, noted) = self.read_note()?;
        let piece = piece?;
        if note.is_done {
            self.check_age(noted.st_mtime, true)?;
            if piece.offset != note.length || piece.has_body {
                return Err(Failure::of(Status::CONFLICT));
            }
            let answer = self.answered(Answer::new(Status::NO_CONTENT), note.length, true);
            return Ok(Prepared::Answer(answer));
        }
        let data = beneath::look(&*self.folder, self.data_name().as_bytes());
        let data = data.map_err(|errno| self.fail(errno))?;
        self.check_age(data.map_or(noted.st_mtime, |data| data.st_mtime), false)?;
        if data.is_none() && piece.offset != 0 {
            return Err(Failure::of(Status::CONFLICT));
        }
        let file = self.open_locked()?;
        let offset = rustix::fs::fstat(&file).map_err(|errno| self.fail(errno))?.st_size as u64;
        if piece.offset != offset {
            return Err(Failure::of(Status::CONFLICT));
        }
        if piece.body_bytes.is_some_and(|bytes| bytes > note.length.saturating_sub(offset)) {
            return Err(Failure::of(Status::CONTENT_TOO_LARGE));
        }
        let answer = Answer::new(Status::NO_CONTENT);
        let file = Some(file);
        Ok(Prepared::Receive(Box::new(Upload { shelf: self, note, file, offset, answer })))
    }

    fn dated(&self, answer: Answer, touched: i64, is_done: bool) -> Answer {
        let mut expires = Vec::new();
        date::write(self.expiry(touched, is_done), &mut expires);
        answer.field("Upload-Expires", &expires).field("Tus-Resumable", VERSION)
    }

    fn answered(&self, answer: Answer, offset: u64, is_done: bool) -> Answer {
        let answer = answer.field("Upload-Offset", offset.to_string().as_bytes());
        self.dated(answer, self.seconds, is_done)
    }
}

/// Bytes on their way to the end of an unfinished upload. What has come stays, also if no more does.
#[derive(Debug)]
struct Upload {
    shelf: Shelf,
    note: Note,
    /// There when something has come.
    file: Option<OwnedFd>,
    offset: u64,
    answer: Answer,
}

impl Upload {
    fn answered(self) -> Answer {
        self.shelf.answered(self.answer, self.offset, false)
    }

    fn opened(&mut self) -> Result<&OwnedFd, Failure> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.shelf.open_locked()?,
        };
        Ok(self.file.insert(file))
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.len() as u64 > self.note.length.saturating_sub(self.offset) {
            return Err(Failure::of(Status::CONTENT_TOO_LARGE));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let offset = self.offset;
            match rustix::io::pwrite(self.opened()?, rest, offset) {
                Ok(count) if count > 0 => {
                    rest = &rest[count..];
                    self.offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Ok(_) => return Err(self.shelf.fail(Errno::IO)),
                Err(errno) => return Err(self.shelf.fail(errno)),
            }
        }
        Ok(())
    }

    fn end(mut self) -> Outcome {
        if self.offset < self.note.length {
            if self.shelf.rules.sync != Sync::Off
                && let Some(file) = &self.file
            {
                rustix::fs::fdatasync(file).map_err(|errno| self.shelf.fail(errno))?;
            }
            return Ok(self.answered());
        }
        self.opened()?;
        let Self { shelf, mut note, file, offset, answer } = self;
        let file = file.ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let data = shelf.data_name();
        let temp = Temp::of_partial(file, &shelf.folder, data, offset);
        let spot = shelf.spot.named(note.name.as_bytes());
        let path = [&shelf.path, &b"/"[..], &spot.name].concat();
        land::land(temp, &spot, &Conditions::default(), &shelf.rules, &path)?;
        note.is_done = true;
        let (old, new) = (shelf.note_name(), shelf.done_name());
        if shelf.write_note(&note).is_err()
            || rustix::fs::renameat(&*shelf.folder, &old, &*shelf.folder, &new).is_err()
        {
            // The file is where it belongs, and that is the answer. The old note would report it as lost;
            // without one, a client that misses this answer begins anew.
            shelf.remove(&old);
        }
        sweep::has_finished();
        unfinished::leave(&shelf.folder, &shelf.id);
        Ok(shelf.answered(answer, offset, true))
    }
}

impl Sink for Upload {
    fn open(&mut self) -> Result<(), Failure> {
        speaking(self.opened().map(|_| ()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        speaking(self.write_all(bytes))
    }

    fn failure(&self, errno: Errno) -> Failure {
        self.shelf.fail(errno).field("Tus-Resumable", VERSION)
    }

    fn finish(self: Box<Self>) -> Outcome {
        speaking((*self).end())
    }

    fn keeps_parts(&self) -> bool {
        true
    }
}

/// A field that is a number.
pub(crate) fn number(head: &Head, name: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(head.named(name)?).ok()?;
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}
