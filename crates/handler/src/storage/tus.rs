//! Uploads to a storage that can be resumed (tus 1.0). What is known about one lies beside its object as
//! `.sekisho-partial-ID.info`; what has come of it are the parts of a multipart upload, and the beginning of the next part is
//! an object `.sekisho-partial-ID.N` with the number of that part. So every server of the store can go on with it.

use std::rc::Rc;
use std::time::Duration;

use sekisho_config::{FileOps, UnfinishedMax};
use sekisho_http::{Head, Known, Method, Status, date, file_name, target};
use sekisho_route::Store;
use sekisho_storage::{PARTS_MAX, Part, part_bytes, parts};

use super::change::keys_below;
use super::post::Folder;
use super::sweep::{self, InUse};
use super::upload::{Guard, Multipart, abort};
use super::work::{Done, Intake, Operation, Outcome, Undone, Work, spawn};
use super::{Client, Question};
use crate::file_op::random;
use crate::file_op::tus::{
    DONE, DONE_LIFE, ID_BYTES, MEDIA_TYPE, NOTE, Note, OWNER_BYTES, PREFIX, VERSION, metadata,
    number, owner_of,
};
use crate::memory::{self, Class};
use crate::task::Task;
use crate::upstream::Call;

/// An upload that is not complete, or was until a moment ago.
struct Partial {
    folder: Folder,
    id: String,
    life: Duration,
    seconds: i64,
}

/// What is known about it.
struct Noted {
    note: Note,
    key: Vec<u8>,
    upload: String,
    /// When anything of it came last.
    touched: i64,
}

/// What has come of it.
struct Came {
    parts: Vec<Part>,
    /// How long the beginning of the next part is.
    tail_bytes: u64,
}

impl Came {
    fn bytes(&self) -> u64 {
        self.parts.iter().fold(0, |bytes, part| part.bytes.saturating_add(bytes))
    }

    fn offset(&self) -> u64 {
        self.bytes().saturating_add(self.tail_bytes)
    }
}

/// Every answer names the protocol's version.
fn speaking(outcome: Outcome) -> Outcome {
    match outcome {
        Ok(done) => Ok(done.field("Tus-Resumable", VERSION)),
        Err(undone) => Err(undone.field("Tus-Resumable", VERSION)),
    }
}

fn is_version(head: &Head) -> bool {
    head.named(b"tus-resumable") == Some(VERSION)
}

/// An answer without any work.
fn at_once(client: Rc<Client>, undone: Undone) -> Box<dyn Task> {
    Operation::start(Work::new(client), Intake::none(), async move { speaking(Err(undone)) })
}

fn wrong_version() -> Undone {
    Undone::from(Status::PRECONDITION_FAILED).field("Tus-Version", VERSION)
}

/// The body of a request; parts are as large as an upload of this length needs them.
fn intake(call: &Call<'_>, client: &Client, length: u64) -> Result<Rc<Intake>, Status> {
    let part = part_bytes(client.storage.part_bytes, Some(length));
    let max = usize::try_from(part).map_err(|_| Status::CONTENT_TOO_LARGE)?;
    let share = memory::budget(Class::Uploads).take(max).ok_or(Status::SERVICE_UNAVAILABLE)?;
    Ok(Intake::new(max, call.has_body, Some(share)))
}

/// POST: an upload is begun.
pub(super) fn create(
    call: &Call<'_>,
    file_ops: &FileOps,
    place: &Store,
    client: Rc<Client>,
) -> Result<Box<dyn Task>, Status> {
    let head = call.request.head;
    let settings = &call.table.location(call.route_state.location).settings;
    if !is_version(head) {
        return Ok(at_once(client, wrong_version()));
    }
    let Some(length) = number(head, b"upload-length") else {
        return Ok(at_once(client, Status::BAD_REQUEST.into()));
    };
    if settings.client_max_body_size.is_some_and(|max| length > max) {
        return Ok(at_once(client, Status::CONTENT_TOO_LARGE.into()));
    }
    if call.has_body && head.known(Known::ContentType) != Some(MEDIA_TYPE) {
        return Ok(at_once(client, Status::UNSUPPORTED_MEDIA_TYPE.into()));
    }
    let said = head.named(b"upload-metadata").unwrap_or_default().to_vec();
    let wanted = metadata(&said, b"filename").or_else(|| metadata(&said, b"name"));
    let wanted = wanted.and_then(|name| file_name::safe(&name));
    let owner = owner_of(call.route_state.client(call.request.connection).map(|it| it.ip()));
    let id = format!("{owner}{}", &random()[OWNER_BYTES..]);
    let mut location = Vec::new();
    target::encode_path(&call.route_state.path, &mut location);
    if !location.ends_with(b"/") {
        location.push(b'/');
    }
    location.extend_from_slice(id.as_bytes());
    let intake = intake(call, &client, length)?;
    let partial = Partial::of(call, file_ops, place, client, id);
    partial.visit();
    let (max, has_body) = (file_ops.unfinished_max, call.has_body);
    let (work, body) = (Rc::clone(&partial.folder.work), Rc::clone(&intake));
    Ok(Operation::start(work, intake, async move {
        let begun = partial.begin(length, wanted, said, (owner, max)).await;
        let noted = match begun {
            Ok(noted) => noted,
            Err(status) => return speaking(Err(status.into())),
        };
        let done = Done::new(Status::CREATED).field("Location", &location);
        if !has_body && length > 0 {
            return speaking(Ok(partial.dated(
                done.field("Upload-Offset", "0"),
                noted.touched,
                false,
            )));
        }
        speaking(partial.receive(noted, None, &body, done).await)
    }))
}

/// HEAD, PATCH and DELETE: an upload is queried, continued or given up.
pub(super) fn resume(
    call: &Call<'_>,
    file_ops: &FileOps,
    place: &Store,
    client: Rc<Client>,
) -> Result<Box<dyn Task>, Status> {
    let head = call.request.head;
    if !is_version(head) {
        return Ok(at_once(client, wrong_version()));
    }
    let is_id = place.name.len() == ID_BYTES && place.name.iter().all(u8::is_ascii_hexdigit);
    let id = std::str::from_utf8(&place.name).ok().filter(|_| is_id).map(str::to_owned);
    let Some(id) = id else { return Ok(at_once(client, Status::NOT_FOUND.into())) };
    let method = head.method();
    let is_patch = !matches!(method, Method::Head | Method::Delete);
    if is_patch && head.known(Known::ContentType) != Some(MEDIA_TYPE) {
        return Ok(at_once(client, Status::UNSUPPORTED_MEDIA_TYPE.into()));
    }
    let offset = number(head, b"upload-offset");
    if is_patch && offset.is_none() {
        return Ok(at_once(client, Status::BAD_REQUEST.into()));
    }
    let intake = if is_patch { intake(call, &client, 0)? } else { Intake::none() };
    let partial = Partial::of(call, file_ops, place, client, id);
    let (work, body) = (Rc::clone(&partial.folder.work), Rc::clone(&intake));
    let body_bytes = call.body_bytes.filter(|_| call.has_body);
    Ok(Operation::start(work, intake, async move {
        let outcome = match method {
            Method::Head => partial.tell().await,
            Method::Delete => partial.give_up().await,
            _ => partial.append(offset.unwrap_or_default(), body_bytes, &body).await,
        };
        if matches!(&outcome, Err(undone) if undone.status == Status::GONE) {
            partial.forget().await;
        }
        speaking(outcome)
    }))
}

impl Partial {
    fn of(
        call: &Call<'_>,
        file_ops: &FileOps,
        place: &Store,
        client: Rc<Client>,
        id: String,
    ) -> Self {
        Self {
            folder: Folder::of(call, file_ops, place, client),
            id,
            life: file_ops.resumable.unwrap_or_default(),
            seconds: call.request.wall.unix_secs,
        }
    }

    fn work(&self) -> &Rc<Work> {
        &self.folder.work
    }

    fn key(&self, suffix: &str) -> Vec<u8> {
        [&self.folder.prefix, format!("{PREFIX}{}{suffix}", self.id).as_bytes()].concat()
    }

    fn tail_key(&self, part: usize) -> Vec<u8> {
        self.key(&format!(".{part}"))
    }

    /// Removes uploads of the folder whose time is over, unless that was done a while ago.
    fn visit(&self) {
        let client = &self.work().client;
        if !sweep::is_due(client, &self.folder.prefix.escape_ascii().to_string(), self.life) {
            return;
        }
        let (folder, life, seconds) = (self.folder.again(), self.life, self.seconds);
        spawn(async move {
            let work = Rc::clone(&folder.work);
            let one = Self { folder, id: String::new(), life, seconds };
            // What went wrong has been reported, and is tried again later.
            let _ = work.alone(one.expire()).await;
        });
    }

    async fn expire(mut self) -> Result<(), Status> {
        let before = [&self.folder.prefix, PREFIX.as_bytes()].concat();
        for key in keys_below(self.work(), &before).await? {
            let id = key.get(before.len()..).unwrap_or_default();
            let id = id.strip_suffix(NOTE).or_else(|| id.strip_suffix(DONE));
            let Some(id) = id.filter(|id| id.len() == ID_BYTES) else { continue };
            id.clone_into(&mut self.id);
            match self.expire_one().await {
                // It went in the meantime, its note cannot be read, or a request works on it: the others are not kept by that.
                Ok(()) | Err(Status::NOT_FOUND | Status::LOCKED) => {}
                Err(status) => return Err(status),
            }
        }
        Ok(())
    }

    async fn expire_one(&self) -> Result<(), Status> {
        let mut noted = self.read_note().await?;
        if !noted.note.is_done {
            match self.came(&mut noted).await {
                // The store no longer has it.
                Err(Status::GONE) => noted.touched = i64::MIN,
                came => drop(came?),
            }
        }
        if self.check_age(&noted).is_err() {
            self.give_up().await.map_err(|undone| undone.status)?;
        }
        Ok(())
    }

    /// Begins an upload: first its parts, then the note that leads to them.
    async fn begin(
        &self,
        length: u64,
        wanted: Option<String>,
        said: Vec<u8>,
        (owner, max): (String, UnfinishedMax),
    ) -> Result<Noted, Status> {
        self.admit(&owner, max).await?;
        let name = wanted.unwrap_or_else(|| self.folder.made_up());
        let target = self.folder.target(&name).await?;
        let mut upload = Multipart::begin(self.work(), &target).await?;
        let name = String::from_utf8_lossy(&target.key[self.folder.prefix.len()..]).into_owned();
        let note = Note { length, name, metadata: said, is_done: false };
        self.write_note(NOTE, &note, &upload.id).await?;
        upload.is_kept = true;
        let id = std::mem::take(&mut upload.id);
        Ok(Noted { note, key: target.key, upload: id, touched: self.seconds })
    }

    /// Whether one more upload is too many.
    async fn admit(&self, owner: &str, max: UnfinishedMax) -> Result<(), Status> {
        let all = [&self.folder.prefix, PREFIX.as_bytes()].concat();
        let keys = keys_below(self.work(), &all).await?;
        let own = [&all, owner.as_bytes()].concat();
        let unfinished: Vec<&String> = keys.iter().filter(|key| key.ends_with(NOTE)).collect();
        let of_address = unfinished.iter().filter(|key| key.as_bytes().starts_with(&own)).count();
        if of_address >= max.of_address {
            Err(Status::TOO_MANY_REQUESTS)
        } else if unfinished.len() >= max.of_store {
            Err(Status::INSUFFICIENT_STORAGE)
        } else {
            Ok(())
        }
    }

    async fn write_note(&self, suffix: &str, note: &Note, upload: &str) -> Result<(), Status> {
        let bytes = [format!("upload {upload}\n").as_bytes(), &note.to_bytes()].concat();
        self.work().put(&self.key(suffix), bytes).await
    }

    async fn read_note(&self) -> Result<Noted, Status> {
        let found = match self.work().get(&self.key(NOTE)).await? {
            None => self.work().get(&self.key(DONE)).await?,
            found => found,
        };
        let (bytes, touched) = found.ok_or(Status::NOT_FOUND)?;
        let read = || {
            let end = bytes.iter().position(|byte| *byte == b'\n')?;
            let upload = std::str::from_utf8(bytes[..end].strip_prefix(b"upload ")?).ok()?;
            Some((Note::from_bytes(&bytes[end + 1..])?, upload.to_owned()))
        };
        let (note, upload) = read().ok_or(Status::NOT_FOUND)?;
        let key = [&self.folder.prefix, note.name.as_bytes()].concat();
        Ok(Noted { note, key, upload, touched })
    }

    /// What has come so far, and when its last part did. The tail is not read.
    async fn came(&self, noted: &mut Noted) -> Result<Came, Status> {
        let all = all_parts(self.work(), &noted.key, &noted.upload).await?;
        // Only what follows without a gap has come.
        let in_order = (1..).zip(&all).take_while(|(number, part)| part.number == *number).count();
        let parts: Vec<Part> = all.into_iter().take(in_order).collect();
        noted.touched = parts.iter().map(|part| part.modified).fold(noted.touched, i64::max);
        let tail = self.work().head(&self.tail_key(parts.len() + 1)).await?;
        let (tail_bytes, modified) = tail.map_or((0, 0), |tail| (tail.bytes, tail.modified));
        noted.touched = noted.touched.max(modified);
        Ok(Came { parts, tail_bytes })
    }

    /// The beginning of the next part. It is smaller than a part, unless parts were larger when it came.
    async fn tail(&self, came: &Came, intake: &Intake) -> Result<Vec<u8>, Status> {
        if came.tail_bytes == 0 {
            return Ok(Vec::new());
        }
        let bytes = usize::try_from(came.tail_bytes).map_err(|_| Status::CONTENT_TOO_LARGE)?;
        intake.reserve(bytes)?;
        let tail = self.work().get_up_to(&self.tail_key(came.parts.len() + 1), bytes).await?;
        // Another server may have gone on with it.
        tail.map(|(tail, _)| tail).filter(|tail| tail.len() == bytes).ok_or(Status::CONFLICT)
    }

    fn expiry(&self, touched: i64, is_done: bool) -> i64 {
        let life = if is_done { self.life.min(DONE_LIFE) } else { self.life };
        touched.saturating_add(i64::try_from(life.as_secs()).unwrap_or(i64::MAX))
    }

    fn dated(&self, done: Done, touched: i64, is_done: bool) -> Done {
        let mut expires = Vec::new();
        date::write(self.expiry(touched, is_done), &mut expires);
        done.field("Upload-Expires", &expires)
    }

    fn check_age(&self, noted: &Noted) -> Result<(), Status> {
        let expiry = self.expiry(noted.touched, noted.note.is_done);
        if expiry > self.seconds { Ok(()) } else { Err(Status::GONE) }
    }

    /// HEAD
    async fn tell(&self) -> Outcome {
        let mut noted = self.read_note().await?;
        let offset = if noted.note.is_done {
            noted.note.length
        } else {
            self.came(&mut noted).await?.offset()
        };
        self.check_age(&noted)?;
        let mut done = Done::new(Status::OK)
            .field("Upload-Offset", offset.to_string())
            .field("Upload-Length", noted.note.length.to_string())
            .field("Cache-Control", "no-store");
        if !noted.note.metadata.is_empty() {
            done = done.field("Upload-Metadata", &noted.note.metadata);
        }
        Ok(self.dated(done, noted.touched, noted.note.is_done))
    }

    /// DELETE
    async fn give_up(&self) -> Outcome {
        let noted = self.read_note().await?;
        if !noted.note.is_done {
            let Some(_turn) = InUse::begin(&noted.upload) else {
                return Err(Status::LOCKED.into());
            };
            abort(self.work(), &noted.key, &noted.upload).await?;
        }
        self.clean_up().await?;
        Ok(Done::new(Status::NO_CONTENT))
    }

    /// Its time is over, or the store has removed what had come: nothing of it is left.
    async fn forget(&self) {
        // Another server may have completed it meanwhile.
        if self.read_note().await.is_ok_and(|noted| !noted.note.is_done) {
            // What went wrong has been reported, and is tried again when uploads expire.
            let _ = self.give_up().await;
        }
    }

    /// Removes what lies beside the object.
    async fn clean_up(&self) -> Result<(), Status> {
        for key in keys_below(self.work(), &self.key("")).await? {
            self.work().delete(key.as_bytes()).await?;
        }
        Ok(())
    }

    /// PATCH
    async fn append(&self, offset: u64, body_bytes: Option<u64>, intake: &Intake) -> Outcome {
        let mut noted = self.read_note().await?;
        if noted.note.is_done {
            self.check_age(&noted)?;
            if offset != noted.note.length || body_bytes.is_some_and(|bytes| bytes > 0) {
                return Err(Status::CONFLICT.into());
            }
            let done = Done::new(Status::NO_CONTENT).field("Upload-Offset", offset.to_string());
            return Ok(self.dated(done, noted.touched, true));
        }
        let Some(turn) = InUse::begin(&noted.upload) else { return Err(Status::LOCKED.into()) };
        let came = self.came(&mut noted).await?;
        self.check_age(&noted)?;
        if offset != came.offset() {
            return Err(Status::CONFLICT.into());
        }
        if body_bytes.is_some_and(|bytes| bytes > noted.note.length.saturating_sub(offset)) {
            return Err(Status::CONTENT_TOO_LARGE.into());
        }
        let done = Done::new(Status::NO_CONTENT);
        self.receive(noted, Some((came, turn)), intake, done).await
    }

    /// Takes bytes behind what has come. What has become a part stays, also if no more comes.
    async fn receive(
        &self,
        noted: Noted,
        came: Option<(Came, InUse)>,
        intake: &Intake,
        done: Done,
    ) -> Outcome {
        let length = noted.note.length;
        let part = part_bytes(self.work().client.storage.part_bytes, Some(length));
        intake.set_max(usize::try_from(part).map_err(|_| Status::CONTENT_TOO_LARGE)?)?;
        let (came, turn) = if let Some(both) = came {
            both
        } else {
            let turn = InUse::begin(&noted.upload).ok_or(Status::LOCKED)?;
            (Came { parts: Vec::new(), tail_bytes: 0 }, turn)
        };
        let bytes = came.bytes();
        let mut before = self.tail(&came, intake).await?;
        let tags = came.parts.into_iter().map(|part| part.tag).collect();
        let target = (noted.key.clone(), self.folder.media_type(&noted.note.name));
        let id = noted.upload.clone();
        let mut upload = Multipart::resume(self.work(), target, id, (tags, bytes), turn);
        let mut had_tail = !before.is_empty();
        let rest = loop {
            let (part, is_last) = intake.part(std::mem::take(&mut before)).await;
            if upload.bytes + part.len() as u64 > length {
                return Err(Status::CONTENT_TOO_LARGE.into());
            }
            if is_last {
                break part;
            }
            let number = upload.parts.len() + 1;
            upload.part(part).await?;
            if !self.work().client.storage.place.dates_parts() {
                // The note says when something came last.
                self.write_note(NOTE, &noted.note, &noted.upload).await?;
            }
            if std::mem::take(&mut had_tail) {
                self.work().delete(&self.tail_key(number)).await?;
            }
        };
        let offset = upload.bytes + rest.len() as u64;
        if offset < length {
            if !rest.is_empty() {
                self.work().put(&self.tail_key(upload.parts.len() + 1), rest).await?;
            }
            let done = done.field("Upload-Offset", offset.to_string());
            return Ok(self.dated(done, self.seconds, false));
        }
        if !rest.is_empty() {
            upload.part(rest).await?;
        }
        let guard = match self.folder.conflict {
            sekisho_config::Conflict::Replace => Guard::None,
            _ => Guard::Absent,
        };
        upload.complete(&guard).await?;
        let note = Note { is_done: true, ..noted.note };
        // The object is where it belongs, and that is the answer: a client that misses it begins anew.
        let _ = self.clean_up().await;
        let _ = self.write_note(DONE, &note, &noted.upload).await;
        let done = done.field("Upload-Offset", offset.to_string());
        Ok(self.dated(done, self.seconds, true))
    }
}

/// Every part of an upload.
pub(super) async fn all_parts(work: &Work, key: &[u8], upload: &str) -> Result<Vec<Part>, Status> {
    let mut all = Vec::new();
    let mut marker = 0;
    loop {
        let place = &work.client.storage.place;
        let answer = match work.succeed(Question::new(place.parts(key, upload, marker))).await {
            // An upload without a beginning is not there before its first part.
            Err(Status::NOT_FOUND) if !place.begins_uploads() => return Ok(all),
            answer => answer?,
        };
        let (page, next) = parts(&answer.body, upload).ok_or(Status::BAD_GATEWAY)?;
        all.extend(page);
        match next {
            None => return Ok(all),
            // There is nothing behind the last possible part, and the same page must not come again.
            Some(next) if next <= marker || u64::from(next) >= PARTS_MAX => {
                return Err(work.endless("the list of an upload's parts"));
            }
            Some(next) => marker = next,
        }
    }
}
