//! POST where `upload_store` is a storage: the body is a file, or a form with files in it. All of them are completed when
//! all have come, or none is.

use std::rc::Rc;

use sekisho_config::{Conflict, FileOps};
use sekisho_http::multipart::{self, Event, Form, Limits, Malformed};
use sekisho_http::{Known, Status, file_name};
use sekisho_route::{Store, Table, media_type_of};

use super::Client;
use super::change::{free_key, intake};
use super::upload::{Guard, Multipart, Stored, Target, store};
use super::work::{Done, Intake, Operation, Outcome, Undone, Work};
use crate::file_op::{
    PART_HEAD_BYTES_MAX, form_name, is_urlencoded, random, raw_name, stored_answer, way_back,
};
use crate::memory::{self, Class};
use crate::task::Task;
use crate::upstream::Call;

/// So much of a form is looked at in one step.
const STEP_BYTES: usize = 256 << 10;

/// Where files are put.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) work: Rc<Work>,
    /// What every key begins with.
    pub(super) prefix: Vec<u8>,
    pub(super) conflict: Conflict,
    table: std::sync::Arc<Table>,
    location: sekisho_config::LocationId,
    address: Option<Vec<u8>>,
    back: Option<Vec<u8>>,
    seconds: i64,
}

impl Folder {
    pub(super) fn of(
        call: &Call<'_>,
        file_ops: &FileOps,
        place: &Store,
        client: Rc<Client>,
    ) -> Self {
        let root = client.storage.root();
        let file = &call.route_state.file;
        let below = file.strip_prefix(root.as_bytes()).unwrap_or_default();
        let mut prefix = client.storage.place.key(below);
        if !prefix.is_empty() && !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        Self {
            table: client.context().table(),
            work: Work::new(client),
            prefix,
            conflict: file_ops.conflict,
            location: call.route_state.location,
            address: place.address.clone(),
            back: way_back(call.request.head, call.route_state),
            seconds: call.request.wall.unix_secs,
        }
    }

    /// The same for work of its own.
    pub(super) fn again(&self) -> Self {
        Self {
            work: Work::new(Rc::clone(&self.work.client)),
            prefix: self.prefix.clone(),
            table: std::sync::Arc::clone(&self.table),
            address: None,
            back: None,
            ..*self
        }
    }

    /// A name for what has none.
    pub(super) fn made_up(&self) -> String {
        format!("upload-{}-{}", self.seconds, &random()[..8])
    }

    /// The type of a file of this name.
    pub(super) fn media_type(&self, name: &str) -> Vec<u8> {
        media_type_of(&self.table, self.location, name.as_bytes()).as_bytes().to_vec()
    }

    /// What a file of this name becomes.
    pub(super) async fn target(&self, name: &str) -> Result<Target, Status> {
        let key = [&self.prefix, name.as_bytes()].concat();
        let media_type = self.media_type(name);
        let (key, guard) = match self.conflict {
            Conflict::Replace => (key, Guard::None),
            Conflict::Refuse => match self.work.head(&key).await? {
                None => (key, Guard::Absent),
                Some(_) => return Err(Status::CONFLICT),
            },
            Conflict::Rename => match self.work.head(&key).await? {
                None => (key, Guard::Absent),
                Some(_) => (free_key(&self.work, &key).await?, Guard::Absent),
            },
        };
        Ok(Target { key, media_type, guard })
    }

    fn answer(&self, files: &[(Vec<u8>, u64)]) -> Done {
        let (status, fields, body) =
            stored_answer(files, self.address.as_deref(), self.back.as_deref());
        Done { status, fields, body }
    }

    /// The name that a key has here.
    fn name(&self, key: &[u8]) -> Vec<u8> {
        key.get(self.prefix.len()..).unwrap_or_default().to_vec()
    }
}

/// Starts to store a body.
pub(super) fn start(
    call: &Call<'_>,
    file_ops: &FileOps,
    place: &Store,
    client: Rc<Client>,
) -> Result<Box<dyn Task>, Status> {
    let head = call.request.head;
    let content_type = head.known(Known::ContentType).unwrap_or_default();
    let storage = std::sync::Arc::clone(&client.storage);
    let folder = Folder::of(call, file_ops, place, client);
    let work = Rc::clone(&folder.work);
    if multipart::is_form(content_type) {
        let boundary = multipart::boundary(content_type).ok_or(Status::BAD_REQUEST)?;
        let limits = Limits { parts_max: file_ops.parts_max, head_bytes_max: PART_HEAD_BYTES_MAX };
        let form = Form::new(&boundary, limits);
        let part = usize::try_from(storage.part_bytes).unwrap_or(usize::MAX);
        let share = memory::budget(Class::Uploads).take(part.saturating_add(STEP_BYTES));
        let share = share.ok_or(Status::SERVICE_UNAVAILABLE)?;
        let intake = Intake::new(STEP_BYTES, call.has_body, Some(share));
        let body = Rc::clone(&intake);
        return Ok(Operation::start(work, intake, async move {
            store_form(&folder, &body, form, part).await
        }));
    }
    let name = raw_name(head, &call.route_state.query, place);
    if name.is_none() && is_urlencoded(content_type) {
        // The fields of a form, and no file.
        return Err(Status::UNSUPPORTED_MEDIA_TYPE);
    }
    let intake = intake(call, &storage)?;
    let body = Rc::clone(&intake);
    Ok(Operation::start(work, intake, async move {
        let name = name.unwrap_or_else(|| folder.made_up());
        let target = folder.target(&name).await?;
        let stored = store(&folder.work, &body, &target).await;
        let Stored { bytes, .. } = stored.map_err(|status| conflict(status, &target.guard))?;
        Ok(folder.answer(&[(folder.name(&target.key), bytes)]))
    }))
}

/// What was not there when it was looked for is there now.
fn conflict(status: Status, guard: &Guard) -> Status {
    match (status, guard) {
        (Status::PRECONDITION_FAILED, Guard::Absent) => Status::CONFLICT,
        (status, _) => status,
    }
}

/// What a form has in it, in its order.
enum Found {
    File(Option<String>),
    Field,
    Bytes(Vec<u8>),
}

/// Why a form is refused.
struct BadForm(Status);

impl From<Malformed> for BadForm {
    fn from(malformed: Malformed) -> Self {
        Self(match malformed {
            Malformed::TooManyParts => Status::CONTENT_TOO_LARGE,
            _ => Status::BAD_REQUEST,
        })
    }
}

fn found(event: &Event<'_>) -> Option<Found> {
    match event {
        Event::Part(part) => {
            // A field for a file in which none was chosen has an empty name.
            let name = part.file_name.as_deref().filter(|name| !name.is_empty());
            Some(match name {
                Some(name) => Found::File(file_name::safe(&form_name(name))),
                None => Found::Field,
            })
        }
        Event::Data(bytes) => Some(Found::Bytes(bytes.to_vec())),
        Event::PartEnd => None,
    }
}

/// A file of a form: its parts are in the store, and what is not sent yet is here.
struct Coming {
    upload: Multipart,
    target: Target,
    bytes: Vec<u8>,
}

async fn store_form(folder: &Folder, intake: &Intake, mut form: Form, part: usize) -> Outcome {
    let mut files: Vec<Coming> = Vec::new();
    let mut is_file = false;
    loop {
        let (bytes, is_last) = intake.some().await;
        let mut all = Vec::new();
        let received = form.receive(&bytes, |event| {
            all.extend(found(&event));
            Ok::<(), BadForm>(())
        });
        received.map_err(|BadForm(status)| Undone::from(status))?;
        for one in all {
            match one {
                Found::Field => is_file = false,
                Found::File(name) => {
                    is_file = true;
                    flush(&mut files).await?;
                    let name = unused(&files, folder, &name.unwrap_or_else(|| folder.made_up()));
                    let target = folder.target(&name).await?;
                    let upload = Multipart::begin(&folder.work, &target).await?;
                    files.push(Coming { upload, target, bytes: Vec::new() });
                }
                Found::Bytes(bytes) => {
                    let Some(file) = files.last_mut().filter(|_| is_file) else { continue };
                    file.bytes.extend_from_slice(&bytes);
                    if file.bytes.len() >= part {
                        let full = std::mem::take(&mut file.bytes);
                        file.upload.part(full).await?;
                    }
                }
            }
        }
        if is_last {
            break;
        }
    }
    form.finish().map_err(|malformed| Undone::from(BadForm::from(malformed).0))?;
    if files.is_empty() {
        return Err(Status::BAD_REQUEST.into());
    }
    flush(&mut files).await?;
    complete(folder, files).await
}

/// All of the last file is sent.
async fn flush(files: &mut [Coming]) -> Result<(), Status> {
    match files.last_mut() {
        Some(file) if !file.bytes.is_empty() => {
            let rest = std::mem::take(&mut file.bytes);
            file.upload.part(rest).await
        }
        _ => Ok(()),
    }
}

/// Two files of one form may have the same name: neither replaces the other.
fn unused(files: &[Coming], folder: &Folder, wanted: &str) -> String {
    let is_taken =
        |name: &str| files.iter().any(|file| folder.name(&file.target.key) == name.as_bytes());
    let mut name = wanted.to_owned();
    let mut number = 0;
    while is_taken(&name) {
        number += 1;
        name = String::from_utf8_lossy(&file_name::numbered(wanted.as_bytes(), number)).into();
    }
    name
}

/// Every file has come: they appear one after the other, and go again if one of them cannot.
async fn complete(folder: &Folder, files: Vec<Coming>) -> Outcome {
    let mut done: Vec<(Vec<u8>, u64)> = Vec::new();
    let mut new: Vec<Vec<u8>> = Vec::new();
    for Coming { upload, target, .. } in files {
        let bytes = upload.bytes;
        let is_new = match target.guard {
            Guard::Absent => Ok(true),
            _ => folder.work.head(&target.key).await.map(|there| there.is_none()),
        };
        let completed = match is_new {
            Ok(is_new) => upload.complete(&target.guard).await.map(|_| is_new),
            Err(status) => Err(status),
        };
        match completed {
            Ok(true) => new.push(target.key.clone()),
            Ok(false) => {}
            Err(status) => {
                for key in &new {
                    // What cannot be undone has been reported.
                    let _ = folder.work.delete(key).await;
                }
                return Err(conflict(status, &target.guard).into());
            }
        }
        done.push((folder.name(&target.key), bytes));
    }
    Ok(folder.answer(&done))
}
