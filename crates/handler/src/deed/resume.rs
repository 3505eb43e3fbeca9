//! Uploads that can be resumed: tus 1.0 with creation, creation-with-upload, termination and expiration.
//!
//! What has come of an upload lies in its store as `.sekisho-partial-ID`, and its length is the offset;
//! what is known about it lies beside it as `.sekisho-partial-ID.info`. Both survive a restart. When all has
//! come, the file is given its name as every upload is, and the note stays until it expires, so that a
//! client that missed the last answer learns that it is done.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use sekisho_config::{Deeds, Sync};
use sekisho_http::{Head, Known, Method, Status, date, file_name, target};
use sekisho_route::Store;

use super::beneath::{self, Spot};
use super::conditions::Conditions;
use super::land::{self, Rules};
use super::note::{self, Note};
use super::temp::{self, Temp};
use super::{Answer, Call, Failure, Job, Outcome, Programs, Receiver, Stage};

/// What the names of unfinished uploads begin with.
pub(super) const PREFIX: &str = ".sekisho-partial-";
/// What the names of notes about them end with.
pub(super) const NOTE: &str = ".info";
const VERSION: &[u8] = b"1.0.0";
const EXTENSIONS: &[u8] = b"creation,creation-with-upload,termination,expiration";
const MEDIA_TYPE: &[u8] = b"application/offset+octet-stream";
/// How many digits the name of an upload has.
const ID_BYTES: usize = 32;

/// Whether a name in a folder is a note about an upload that has been given its name.
pub(super) fn is_finished(folder: &OwnedFd, name: &[u8]) -> bool {
    if !name.starts_with(PREFIX.as_bytes()) || !name.ends_with(NOTE.as_bytes()) {
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

/// Whether a request to a store speaks the protocol.
pub(super) fn is_spoken(head: &Head) -> bool {
    head.named(b"tus-resumable").is_some()
}

/// What a server that speaks the protocol says of itself (OPTIONS).
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
    deeds: &Deeds,
    programs: &Programs,
) -> Result<Stage, Failure> {
    spoken(begin(call, deeds, programs))
}

/// HEAD, PATCH and DELETE: it is asked for, goes on, or is given up.
pub(super) fn resume(call: &Call<'_>, deeds: &Deeds, store: &Store) -> Result<Stage, Failure> {
    spoken(go_on(call, deeds, store))
}

/// Every answer says which version it speaks.
fn spoken(stage: Result<Stage, Failure>) -> Result<Stage, Failure> {
    stage.map_err(|failure| failure.field("Tus-Resumable", VERSION))
}

fn check_version(head: &Head) -> Result<(), Failure> {
    if head.named(b"tus-resumable") == Some(VERSION) {
        return Ok(());
    }
    Err(Failure::of(Status::PRECONDITION_FAILED).field("Tus-Version", VERSION))
}

fn begin(call: &Call<'_>, deeds: &Deeds, programs: &Programs) -> Result<Stage, Failure> {
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
    let id = temp::random();
    let name = name.unwrap_or_else(|| format!("upload-{seconds}-{}", &id[..8]));
    let shelf = Shelf::find(call, deeds, &id)?;
    programs.refuse(name.as_bytes())?;
    let note = Note { length, name, metadata: metadata.to_vec(), is_done: false };
    let mut location = Vec::new();
    target::encode_path(&call.exchange.path, &mut location);
    if !location.ends_with(b"/") {
        location.push(b'/');
    }
    location.extend_from_slice(id.as_bytes());
    shelf.write_note(&note)?;
    let file = match shelf.make() {
        Ok(file) => file,
        Err(failure) => {
            shelf.remove(&shelf.note_name());
            return Err(failure);
        }
    };
    let answer = Answer::new(Status::CREATED).field("Location", &location);
    let upload = Upload { shelf, note, file, offset: 0, answer };
    Ok(if call.has_body || length == 0 {
        Stage::Receiving(Box::new(upload))
    } else {
        let answer = upload.answered();
        Stage::Ready(Job::quick(move || Ok(answer)))
    })
}

fn go_on(call: &Call<'_>, deeds: &Deeds, store: &Store) -> Result<Stage, Failure> {
    let head = call.request.head;
    check_version(head)?;
    let is_id = store.name.len() == ID_BYTES && store.name.iter().all(u8::is_ascii_hexdigit);
    let id = std::str::from_utf8(&store.name).ok().filter(|_| is_id).ok_or(Status::NOT_FOUND)?;
    let shelf = Shelf::find(call, deeds, id)?;
    let (note, noted) = shelf.read_note()?;
    match head.method() {
        Method::Head => shelf.tell(&note, &noted),
        Method::Delete => shelf.give_up(),
        _ => shelf.append(call, note, &noted),
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
    fn find(call: &Call<'_>, deeds: &Deeds, id: &str) -> Result<Self, Failure> {
        let exchange = call.exchange;
        let path = exchange.file.strip_suffix(b"/").unwrap_or(&exchange.file).to_vec();
        let root_bytes = exchange.root_bytes.min(path.len());
        let any = [&path, &b"/x"[..]].concat();
        let spot = Spot::find(&any, root_bytes, call.settings().disable_symlinks, false)
            .map_err(|errno| Failure::by(errno, Status::NOT_FOUND, "open store", &path))?;
        let life = deeds.resumable.unwrap_or_default();
        let seconds = call.request.wall.unix_secs;
        super::sweep::visit(&spot.folder, Some(life), seconds);
        let (folder, id) = (Arc::clone(&spot.folder), id.to_owned());
        Ok(Self { folder, spot, path, id, rules: Rules::of(deeds), life, seconds })
    }

    fn data_name(&self) -> String {
        format!("{PREFIX}{}", self.id)
    }

    fn note_name(&self) -> String {
        format!("{PREFIX}{}{NOTE}", self.id)
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
        let name = self.note_name();
        let file = rustix::fs::openat(&*self.folder, name, flags, Mode::empty());
        let file = match file {
            Ok(file) => file,
            Err(Errno::NOENT) => return Err(Failure::of(Status::NOT_FOUND)),
            Err(errno) => return Err(fail(errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(fail)?;
        Ok((read(&file).map_err(fail)?, stat))
    }

    fn make(&self) -> Result<OwnedFd, Failure> {
        let flags = OFlags::CREATE | OFlags::EXCL;
        let file = self.open(flags).map_err(|errno| self.fail(errno))?;
        // Nobody else can have it yet, but for a sweep, which then finds it young.
        temp::lock(file.as_fd());
        Ok(file)
    }

    fn open(&self, more: OFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
        rustix::fs::openat(&*self.folder, self.data_name(), flags, Mode::RUSR | Mode::WUSR)
    }

    /// When it is over with what was last touched then.
    fn expiry(&self, touched: i64) -> i64 {
        touched.saturating_add(i64::try_from(self.life.as_secs()).unwrap_or(i64::MAX))
    }

    fn check_age(&self, touched: i64) -> Result<(), Failure> {
        if self.expiry(touched) > self.seconds { Ok(()) } else { Err(Status::GONE.into()) }
    }

    /// HEAD
    fn tell(&self, note: &Note, noted: &Stat) -> Result<Stage, Failure> {
        let data = beneath::look(&*self.folder, self.data_name().as_bytes());
        let (offset, touched) = match data.map_err(|errno| self.fail(errno))? {
            _ if note.is_done => (note.length, noted.st_mtime),
            Some(data) => (data.st_size as u64, data.st_mtime),
            None => return Err(Failure::of(Status::NOT_FOUND)),
        };
        self.check_age(touched)?;
        let mut answer = Answer::new(Status::OK)
            .field("Upload-Offset", offset.to_string().as_bytes())
            .field("Upload-Length", note.length.to_string().as_bytes())
            .field("Cache-Control", b"no-store");
        if !note.metadata.is_empty() {
            answer = answer.field("Upload-Metadata", &note.metadata);
        }
        let answer = Ok(self.dated(answer, touched));
        Ok(Stage::Ready(Job::quick(move || answer)))
    }

    /// DELETE
    fn give_up(self) -> Result<Stage, Failure> {
        if let Ok(file) = self.open(OFlags::empty())
            && !temp::lock(file.as_fd())
        {
            return Err(Failure::of(Status::LOCKED));
        }
        self.remove(&self.data_name());
        self.remove(&self.note_name());
        let answer = Answer::new(Status::NO_CONTENT).field("Tus-Resumable", VERSION);
        Ok(Stage::Ready(Job::quick(move || Ok(answer))))
    }

    /// PATCH
    fn append(self, call: &Call<'_>, note: Note, noted: &Stat) -> Result<Stage, Failure> {
        let head = call.request.head;
        if head.known(Known::ContentType) != Some(MEDIA_TYPE) {
            return Err(Failure::of(Status::UNSUPPORTED_MEDIA_TYPE));
        }
        let wanted = number(head, b"upload-offset").ok_or(Status::BAD_REQUEST)?;
        if note.is_done {
            self.check_age(noted.st_mtime)?;
            if wanted != note.length || call.has_body {
                return Err(Failure::of(Status::CONFLICT));
            }
            let answer = self.answered(Answer::new(Status::NO_CONTENT), note.length);
            return Ok(Stage::Ready(Job::quick(move || Ok(answer))));
        }
        let file = match self.open(OFlags::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Err(Failure::of(Status::NOT_FOUND)),
            Err(errno) => return Err(self.fail(errno)),
        };
        if !temp::lock(file.as_fd()) {
            return Err(Failure::of(Status::LOCKED));
        }
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.fail(errno))?;
        if stat.st_nlink == 0 {
            return Err(Failure::of(Status::NOT_FOUND));
        }
        self.check_age(stat.st_mtime)?;
        let offset = stat.st_size as u64;
        if wanted != offset {
            return Err(Failure::of(Status::CONFLICT));
        }
        if call.body_bytes.is_some_and(|bytes| bytes > note.length.saturating_sub(offset)) {
            return Err(Failure::of(Status::CONTENT_TOO_LARGE));
        }
        let answer = Answer::new(Status::NO_CONTENT);
        Ok(Stage::Receiving(Box::new(Upload { shelf: self, note, file, offset, answer })))
    }

    fn dated(&self, answer: Answer, touched: i64) -> Answer {
        let mut expires = Vec::new();
        date::write(self.expiry(touched), &mut expires);
        answer.field("Upload-Expires", &expires).field("Tus-Resumable", VERSION)
    }

    fn answered(&self, answer: Answer, offset: u64) -> Answer {
        let answer = answer.field("Upload-Offset", offset.to_string().as_bytes());
        self.dated(answer, self.seconds)
    }
}

/// Bytes on their way to the end of an unfinished upload. What has come stays, also if no more does.
#[derive(Debug)]
struct Upload {
    shelf: Shelf,
    note: Note,
    file: OwnedFd,
    offset: u64,
    answer: Answer,
}

impl Upload {
    fn answered(self) -> Answer {
        self.shelf.answered(self.answer, self.offset)
    }

    fn finish(self) -> Outcome {
        let fail = |errno| self.shelf.fail(errno);
        if self.offset < self.note.length {
            if self.shelf.rules.sync != Sync::Off {
                rustix::fs::fdatasync(&self.file).map_err(fail)?;
            }
            return Ok(self.answered());
        }
        let Self { shelf, mut note, file, offset, answer } = self;
        let data = shelf.data_name();
        let temp = Temp::of_partial(file, &shelf.folder, data, offset);
        let spot = shelf.spot.named(note.name.as_bytes());
        let path = [&shelf.path, &b"/"[..], &spot.name].concat();
        land::land(temp, &spot, &Conditions::default(), &shelf.rules, &path)?;
        note.is_done = true;
        if shelf.write_note(&note).is_err() {
            // The file is where it belongs, and that is the answer. The old note would say of it that it is
            // lost; without one, a client that misses this answer begins anew.
            shelf.remove(&shelf.note_name());
        }
        Ok(shelf.answered(answer, offset))
    }
}

impl Receiver for Upload {
    fn take(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        if bytes.len() as u64 > self.note.length.saturating_sub(self.offset) {
            let failure = Failure::of(Status::CONTENT_TOO_LARGE);
            return Err(failure.field("Tus-Resumable", VERSION));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(&self.file, rest) {
                Ok(count) if count > 0 => {
                    rest = &rest[count..];
                    self.offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Ok(_) => return Err(self.shelf.fail(Errno::IO)),
                Err(errno) => return Err(self.shelf.fail(errno)),
            }
        }
        Ok(bytes.len())
    }

    fn failure(&self, errno: Errno) -> Failure {
        self.shelf.fail(errno)
    }

    fn finish(self: Box<Self>) -> Job {
        let is_slow = self.shelf.rules.is_slow();
        Job::slow_if(is_slow, move || {
            Self::finish(*self).map_err(|failure| failure.field("Tus-Resumable", VERSION))
        })
    }
}

/// A field that is a number.
fn number(head: &Head, name: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(head.named(name)?).ok()?;
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}
