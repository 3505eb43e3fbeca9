//! PUT and DELETE, and what else changes objects: decided as for files, done by the store.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sekisho_config::{Conflict, DeleteDirectories, FileOps, Level, LocationId, Storage};
use sekisho_http::conditional::{self, PreconditionResult, Since, Validators};
use sekisho_http::{Head, Status, file_name, target};
use sekisho_route::{Destination, FileOp, Table, media_type};
use sekisho_storage::{Scope, list_page, part_bytes};

use super::ask::{PAUSE, PAUSE_MAX};
use super::upload::{Guard, Target, store};
use super::work::{Done, Intake, Known, Operation, Outcome, Undone, Work};
use super::{Client, Question, post, propfind, sweep, tus};
use crate::cgi::HandlerContext;
use crate::file_op::tus::is_spoken;
use crate::file_op::{is_deep_enough, own_conditions};
use crate::memory::{self, Class};
use crate::task::Task;
use crate::upstream::Call;

/// How many names are tried where the wanted one is taken (`upload_conflict rename`).
const NAMES_MAX: u32 = 100;
/// How many objects one request removes.
const OBJECTS_MAX: usize = 100_000;
/// How long a copy may take, unless a timeout is configured.
const COPY_TIME_MAX: Duration = Duration::from_mins(1);
/// How many pages of a listing are asked for: a store that has no end must not keep us for ever.
pub(super) const PAGES_MAX: usize = 1000;

/// Starts a file operation in a store; an error is the status to answer with.
pub fn operate(
    call: &Call<'_>,
    file_op: &FileOp,
    context: Rc<dyn HandlerContext>,
) -> Result<Box<dyn Task>, Status> {
    let settings = &call.table.location(call.route_state.location).settings;
    let file_ops = settings.file_ops.as_deref().ok_or(Status::FORBIDDEN)?;
    if let FileOp::Store(place) | FileOp::Resume(place) = file_op {
        let storage = file_ops.storage.as_ref().ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let client = Client::of_store(call, storage, context)?;
        sweep::visit(&client);
        let is_tus = file_ops.resumable.is_some() && is_spoken(call.request.head);
        return match file_op {
            FileOp::Resume(_) => tus::resume(call, file_ops, place, client),
            _ if is_tus => tus::create(call, file_ops, place, client),
            _ => post::start(call, file_ops, place, client),
        };
    }
    let client = Client::of_root(call, Rc::clone(&context))?;
    if !matches!(file_op, FileOp::Propfind) {
        sweep::visit(&client);
    }
    let refuse = |status: Status, why: &str| {
        context.report(Level::Info, format_args!("{why}"));
        Err(status)
    };
    match file_op {
        FileOp::Put => put(call, file_ops, client, &refuse),
        FileOp::Delete => delete(call, file_ops, client, &refuse),
        FileOp::Mkcol => make_folder(call, client, &refuse),
        FileOp::Copy(to) => copy(call, to, false, client, &refuse),
        FileOp::Propfind => propfind::start(call, client, &refuse),
        FileOp::Move(to) => copy(call, to, true, client, &refuse),
        _ => refuse(Status::NOT_IMPLEMENTED, "this method is not supported in a storage"),
    }
}

pub(super) type Refuse<'a> = dyn Fn(Status, &str) -> Result<Box<dyn Task>, Status> + 'a;

/// The body of a request; 503 where uploads hold as much memory as they may.
pub(super) fn intake(call: &Call<'_>, storage: &Storage) -> Result<Rc<Intake>, Status> {
    let part = part_bytes(storage.part_bytes, call.body_bytes);
    // What is known to be small is sent in one piece, and ends before its room is full.
    let max = match call.body_bytes {
        Some(bytes) if bytes <= part => bytes + 1,
        _ => part,
    };
    let max = usize::try_from(max).map_err(|_| Status::CONTENT_TOO_LARGE)?;
    if memory::is_short() {
        return Err(Status::SERVICE_UNAVAILABLE);
    }
    let share = memory::budget(Class::Uploads).take(max).ok_or(Status::SERVICE_UNAVAILABLE)?;
    Ok(Intake::new(max, call.has_body, Some(share)))
}

/// Whether a request may go on, by what there is.
fn check(conditions: Option<&Head>, there: Option<&Known>) -> Result<(), Status> {
    let Some(head) = conditions else { return Ok(()) };
    let holds = match there {
        // What is not there matches nothing, and has not been modified.
        None => head.known(sekisho_http::Known::IfMatch).is_none(),
        Some(there) => {
            let validators = Validators { etag: Some(&there.tag), modified: there.modified };
            conditional::evaluate(head, &validators, Since::Off) == PreconditionResult::Proceed
        }
    };
    if holds { Ok(()) } else { Err(Status::PRECONDITION_FAILED) }
}

fn put(
    call: &Call<'_>,
    file_ops: &FileOps,
    client: Rc<Client>,
    refuse: &Refuse<'_>,
) -> Result<Box<dyn Task>, Status> {
    let (route_state, head) = (call.route_state, call.request.head);
    if route_state.path.last() == Some(&b'/') {
        return refuse(Status::CONFLICT, "PUT was refused: the path ends with a slash");
    }
    if head.named(b"content-range").is_some() {
        return refuse(Status::NOT_IMPLEMENTED, "PUT was refused: it has a Content-Range");
    }
    let conditions = own_conditions(head);
    let names_old = head.known(sekisho_http::Known::IfMatch).is_some() && file_ops.methods.delete;
    let conflict = match file_ops.conflict {
        Conflict::Rename if names_old => Conflict::Replace,
        conflict => conflict,
    };
    let key = client.key(&route_state.file, route_state.root_bytes);
    let media_type = media_type(call.table, route_state).as_bytes().to_vec();
    let intake = intake(call, &client.storage)?;
    let path = route_state.path.clone();
    let has_etag = call.table.location(route_state.location).settings.etag;
    let work = Work::new(client);
    let (body, running) = (Rc::clone(&intake), Rc::clone(&work));
    Ok(Operation::start(work, intake, async move {
        let there = running.head(&key).await?;
        check(conditions.as_deref(), there.as_ref())?;
        let is_new = there.is_none();
        let (key, guard) = match (there, conflict) {
            (Some(_), Conflict::Refuse) => return Err(Status::CONFLICT.into()),
            (Some(_), Conflict::Rename) => (free_key(&running, &key).await?, Guard::Absent),
            (Some(there), Conflict::Replace) if conditions.is_some() => {
                (key, Guard::Tag(there.tag))
            }
            (None, Conflict::Replace) if conditions.is_none() => (key, Guard::None),
            (None, _) => (key, Guard::Absent),
            (Some(_), Conflict::Replace) => (key, Guard::None),
        };
        let target = Target { key, media_type, guard };
        let stored = store(&running, &body, &target).await.map_err(|status| match status {
            // It was not there when it was looked for.
            Status::PRECONDITION_FAILED if conditions.is_none() => Status::CONFLICT,
            status => status,
        })?;
        let is_new = is_new || matches!(target.guard, Guard::Absent);
        let mut done = Done::new(if is_new { Status::CREATED } else { Status::NO_CONTENT });
        if is_new {
            done = done.field("Location", location(&path, &target.key));
        }
        if has_etag && !stored.tag.is_empty() {
            done = done.field("ETag", &stored.tag);
        }
        Ok(done)
    }))
}

/// The address of what has been stored: the path, with the name that it was given.
fn location(path: &[u8], key: &[u8]) -> Vec<u8> {
    let folder = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let name = key.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let mut out = Vec::new();
    target::encode_path(&path[..folder], &mut out);
    target::encode_path(name, &mut out);
    out
}

/// A key that is not taken, made of one that is.
pub(super) async fn free_key(work: &Work, key: &[u8]) -> Result<Vec<u8>, Status> {
    let folder = key.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    for number in 1..=NAMES_MAX {
        let name = file_name::numbered(&key[folder..], number);
        let other = [&key[..folder], &name].concat();
        if work.head(&other).await?.is_none() {
            return Ok(other);
        }
    }
    Err(Status::CONFLICT)
}

fn delete(
    call: &Call<'_>,
    file_ops: &FileOps,
    client: Rc<Client>,
    refuse: &Refuse<'_>,
) -> Result<Box<dyn Task>, Status> {
    let (route_state, head) = (call.route_state, call.request.head);
    if call.has_body {
        return Err(Status::UNSUPPORTED_MEDIA_TYPE);
    }
    if !is_deep_enough(&route_state.path, file_ops.delete_depth_min) {
        return refuse(Status::CONFLICT, "DELETE was refused: less deep than min_delete_depth");
    }
    let key = client.key(&route_state.file, route_state.root_bytes);
    if key.len() == client.storage.place.prefix.len() {
        return refuse(Status::FORBIDDEN, "DELETE was refused: it names the root");
    }
    let is_folder = route_state.path.ends_with(b"/");
    let how = file_ops.delete_directories;
    if is_folder && how == DeleteDirectories::Off {
        return refuse(Status::FORBIDDEN, "DELETE was refused: it names a folder");
    }
    if is_folder && !matches!(head.named(b"depth"), None | Some(b"infinity")) {
        return refuse(Status::BAD_REQUEST, "DELETE was refused: Depth is not infinity");
    }
    let conditions = own_conditions(head);
    let (table, location) = (client.context().table(), route_state.location);
    let path = route_state.path.clone();
    let work = Work::new(client);
    let running = Rc::clone(&work);
    Ok(Operation::start(work, Intake::none(), async move {
        if is_folder {
            let keys = keys_below(&running, &key).await?;
            check_folder(&running, conditions.as_deref(), &key, &keys).await?;
            check_rules(&table, location, &path, &key, &keys)?;
            return delete_folder(&running, &key, &keys, how).await;
        }
        let Some(there) = running.head(&key).await? else {
            return Err(running.missing(&key).await.into());
        };
        check(conditions.as_deref(), Some(&there))?;
        running.delete(&key).await?;
        Ok(Done::new(Status::NO_CONTENT))
    }))
}

/// Whether a request may go on with a folder. It has the entity tag of its own object, or none.
async fn check_folder(
    work: &Work,
    conditions: Option<&Head>,
    key: &[u8],
    keys: &[String],
) -> Result<(), Status> {
    if conditions.is_none() || keys.is_empty() {
        return Ok(());
    }
    let own = if keys.iter().any(|it| it.as_bytes() == key) { work.head(key).await? } else { None };
    let own = own.unwrap_or_else(|| Known { tag: Vec::new(), bytes: 0, modified: 0 });
    check(conditions, Some(&own))
}

/// Every key that begins with a prefix, up to a bound.
pub(super) async fn keys_below(work: &Work, prefix: &[u8]) -> Result<Vec<String>, Status> {
    let place = &work.client.storage.place;
    let mut keys: Vec<String> = Vec::new();
    let mut next: Option<String> = None;
    let mut seen = 0;
    for _ in 0..PAGES_MAX {
        let draft = place.list(prefix, Scope::All, next.as_deref().map(str::as_bytes));
        let answer = work.succeed(Question::new(draft)).await?;
        let page = list_page(&answer.body).ok_or(Status::BAD_GATEWAY)?;
        seen += page.entries.len();
        if seen > OBJECTS_MAX {
            return Err(Status::CONTENT_TOO_LARGE);
        }
        let more = page.next.clone();
        keys.extend(page.keys_below(prefix));
        match more {
            None => return Ok(keys),
            // The same page would come again.
            more if more == next => break,
            more => next = more,
        }
    }
    Err(work.endless("a listing"))
}

/// A folder is what keys begin with: all of them go, one by one, the folder's own object last.
async fn delete_folder(
    work: &Work,
    key: &[u8],
    keys: &[String],
    how: DeleteDirectories,
) -> Outcome {
    if keys.is_empty() {
        return Err(Undone::from(Status::NOT_FOUND));
    }
    let is_empty = keys.iter().all(|it| it.as_bytes() == key);
    if how == DeleteDirectories::Empty && !is_empty {
        return Err(Undone::from(Status::CONFLICT));
    }
    for key in keys.iter().rev() {
        work.delete(key.as_bytes()).await?;
    }
    Ok(Done::new(Status::NO_CONTENT))
}

/// Whether this location answers for every object of a folder, also under its new path: a change must not reach what
/// another location guards.
fn check_rules(
    table: &Table,
    location: LocationId,
    path: &[u8],
    prefix: &[u8],
    keys: &[String],
) -> Result<(), Status> {
    let is_ours = |key: &String| {
        let rest = key.as_bytes().strip_prefix(prefix).unwrap_or_default();
        table.is_entry_of(location, &[path, rest].concat())
    };
    if keys.iter().all(is_ours) { Ok(()) } else { Err(Status::FORBIDDEN) }
}

fn make_folder(
    call: &Call<'_>,
    client: Rc<Client>,
    refuse: &Refuse<'_>,
) -> Result<Box<dyn Task>, Status> {
    let route_state = call.route_state;
    if call.has_body {
        return Err(Status::UNSUPPORTED_MEDIA_TYPE);
    }
    if !route_state.path.ends_with(b"/") {
        return refuse(Status::CONFLICT, "MKCOL was refused: no slash at the end");
    }
    let key = client.key(&route_state.file, route_state.root_bytes);
    let mut location = Vec::new();
    target::encode_path(&route_state.path, &mut location);
    let work = Work::new(client);
    let running = Rc::clone(&work);
    Ok(Operation::start(work, Intake::none(), async move {
        if running.client.storage.place.prefix.len() == key.len() || running.has_any(&key).await? {
            return Err(Status::METHOD_NOT_ALLOWED.into());
        }
        // An empty object whose key ends with a slash stands for a folder, as other tools have it.
        running.put(&key, Vec::new()).await?;
        Ok(Done::new(Status::CREATED).field("Location", &location))
    }))
}

/// COPY and MOVE. A store does them one object after the other: a folder is not copied or moved in one step.
fn copy(
    call: &Call<'_>,
    to: &Destination,
    is_move: bool,
    client: Rc<Client>,
    refuse: &Refuse<'_>,
) -> Result<Box<dyn Task>, Status> {
    let (route_state, head) = (call.route_state, call.request.head);
    if call.has_body {
        return Err(Status::UNSUPPORTED_MEDIA_TYPE);
    }
    let overwrites = match head.named(b"overwrite") {
        None | Some(b"T" | b"t") => true,
        Some(b"F" | b"f") => false,
        Some(_) => return refuse(Status::BAD_REQUEST, "refused: Overwrite is neither T nor F"),
    };
    let is_folder_path = route_state.path.ends_with(b"/");
    let is_deep = match head.named(b"depth") {
        None | Some(b"infinity") => true,
        Some(b"0") if !is_move => false,
        Some(_) => return refuse(Status::BAD_REQUEST, "refused: this Depth is not possible"),
    };
    let from = client.key(&route_state.file, route_state.root_bytes);
    let key = client.key(&to.file, route_state.root_bytes);
    let is_within = |one: &[u8], other: &[u8]| is_folder_path && one.starts_with(other);
    let root = client.storage.place.prefix.len();
    if from == key || is_within(&from, &key) || is_within(&key, &from) || from.len() == root {
        return refuse(Status::FORBIDDEN, "refused: source and destination lie in each other");
    }
    let conditions = own_conditions(head);
    let (path, new_path) = (route_state.path.clone(), to.path.clone());
    let (table, rules) = (client.context().table(), route_state.location);
    let work = Work::new(client);
    let running = Rc::clone(&work);
    Ok(Operation::start(work, Intake::none(), async move {
        let is_new = if is_folder_path {
            let is_new = !running.has_any(&key).await?;
            if !is_new {
                // What is in the way goes by DELETE first.
                let status =
                    if overwrites { Status::CONFLICT } else { Status::PRECONDITION_FAILED };
                return Err(status.into());
            }
            let mut keys = keys_below(&running, &from).await?;
            if keys.is_empty() {
                return Err(Status::NOT_FOUND.into());
            }
            if !is_deep {
                keys.retain(|it| it.as_bytes() == from);
            }
            check_folder(&running, conditions.as_deref(), &from, &keys).await?;
            check_rules(&table, rules, &path, &from, &keys)?;
            check_rules(&table, rules, &new_path, &from, &keys)?;
            for one in &keys {
                let rest = one.as_bytes().strip_prefix(&*from).unwrap_or_default();
                copy_object(&running, one.as_bytes(), &[&key, rest].concat()).await?;
            }
            if is_move {
                for one in keys.iter().rev() {
                    running.delete(one.as_bytes()).await?;
                }
            }
            is_new
        } else {
            let Some(there) = running.head(&from).await? else {
                return Err(running.missing(&from).await.into());
            };
            check(conditions.as_deref(), Some(&there))?;
            if !running.client.storage.place.can_copy(there.bytes) {
                return Err(running.too_large(&from).into());
            }
            let is_new = running.head(&key).await?.is_none();
            if !is_new && !overwrites {
                return Err(Status::PRECONDITION_FAILED.into());
            }
            copy_object(&running, &from, &key).await?;
            if is_move {
                running.delete(&from).await?;
            }
            is_new
        };
        let mut location = Vec::new();
        target::encode_path(&new_path, &mut location);
        Ok(if is_new {
            Done::new(Status::CREATED).field("Location", &location)
        } else {
            Done::new(Status::NO_CONTENT)
        })
    }))
}

impl Work {
    /// A store says again and again that there is more.
    pub(super) fn endless(&self, what: &str) -> Status {
        let name = &self.client.storage.name;
        let message = format_args!("storage \"{name}\": {what} has no end");
        self.client.context().report(Level::Error, message);
        Status::BAD_GATEWAY
    }

    fn endless_copy(&self, key: &[u8]) -> Status {
        let (name, key) = (&self.client.storage.name, key.escape_ascii());
        let message = format_args!("storage \"{name}\": the copy to \"{key}\" takes too long");
        self.client.context().report(Level::Error, message);
        Status::GATEWAY_TIMEOUT
    }

    fn too_large(&self, key: &[u8]) -> Status {
        let (name, key) = (&self.client.storage.name, key.escape_ascii());
        let message = format_args!(
            "storage \"{name}\": \"{key}\" is larger than a store copies at once (5 GiB)"
        );
        self.client.context().report(Level::Error, message);
        Status::NOT_IMPLEMENTED
    }
}

async fn copy_object(work: &Work, from: &[u8], to: &[u8]) -> Result<(), Status> {
    let copied = ask_for_copy(work, from, to).await;
    // Whatever was answered: where the answer was lost, the copy may be there.
    work.forget(to).await;
    copied
}

async fn ask_for_copy(work: &Work, from: &[u8], to: &[u8]) -> Result<(), Status> {
    let Storage { place, forward, .. } = &*work.client.storage;
    let draft = place.copy(from, to);
    let mut question = Question::new(draft.clone());
    question.body = Some(Arc::default());
    let until = work.client.context().now() + forward.read_timeout.unwrap_or(COPY_TIME_MAX);
    let mut answer = work.succeed(question).await?;
    let mut pause = PAUSE;
    loop {
        let copied = place.copied(&answer.fields, &answer.body);
        if copied.map_err(|refusal| work.client.refused(&draft, &refusal))? {
            return Ok(());
        }
        if until.is_due(work.client.context().now()) {
            return Err(work.endless_copy(to));
        }
        // The store copies by itself.
        let question = Question { pause, ..Question::new(place.object("HEAD", to)) };
        answer = work.succeed(question).await?;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
