//! PUT and DELETE, and what else changes objects: decided as for files, done by the store.

use std::rc::Rc;

use sekisho_config::{Conflict, DeleteDirectories, FileOps, Level, Storage};
use sekisho_http::conditional::{self, PreconditionResult, Since, Validators};
use sekisho_http::{Head, Status, file_name, target};
use sekisho_lifecycle::Moment;
use sekisho_route::{FileOp, media_type};
use sekisho_storage::{list_page, part_bytes};

use super::upload::{Guard, Target, store};
use super::work::{Done, Intake, Known, Operation, Outcome, Undone, Work};
use super::{Client, Question};
use crate::cgi::HandlerContext;
use crate::file_op::{is_deep_enough, own_conditions};
use crate::memory;
use crate::task::Task;
use crate::upstream::Call;

/// How many names are tried where the wanted one is taken (`upload_conflict rename`).
const NAMES_MAX: u32 = 100;
/// How many objects one request removes.
const OBJECTS_MAX: usize = 100_000;

/// Starts a file operation in a store; an error is the status to answer with.
pub fn operate(
    call: &Call<'_>,
    file_op: &FileOp,
    context: Rc<dyn HandlerContext>,
    _: Moment,
) -> Result<Box<dyn Task>, Status> {
    let settings = &call.table.location(call.route_state.location).settings;
    let file_ops = settings.file_ops.as_deref().ok_or(Status::FORBIDDEN)?;
    let client = Client::of_root(call, Rc::clone(&context))?;
    let refuse = |status: Status, why: &str| {
        context.report(Level::Info, format_args!("{why}"));
        Err(status)
    };
    match file_op {
        FileOp::Put => put(call, file_ops, client, &refuse),
        FileOp::Delete => delete(call, file_ops, client, &refuse),
        _ => refuse(Status::NOT_IMPLEMENTED, "this method is not supported in a storage"),
    }
}

type Refuse<'a> = dyn Fn(Status, &str) -> Result<Box<dyn Task>, Status> + 'a;

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
    let share = memory::uploads().take(max).ok_or(Status::SERVICE_UNAVAILABLE)?;
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
    let conditions = own_conditions(head);
    let work = Work::new(client);
    let running = Rc::clone(&work);
    Ok(Operation::start(work, Intake::none(), async move {
        if is_folder {
            return delete_folder(&running, &key, how).await;
        }
        let Some(there) = running.head(&key).await? else { return Err(Status::NOT_FOUND.into()) };
        check(conditions.as_deref(), Some(&there))?;
        running.delete(&key).await?;
        Ok(Done::new(Status::NO_CONTENT))
    }))
}

/// Every key that begins with a prefix, up to a bound.
pub(super) async fn keys_below(work: &Work, prefix: &[u8]) -> Result<Vec<String>, Status> {
    let place = &work.client.storage.place;
    let mut keys: Vec<String> = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let mut query = vec![("list-type", &b"2"[..]), ("prefix", prefix)];
        if let Some(next) = &next {
            query.push(("continuation-token", next.as_bytes()));
        }
        let answer = work.succeed(Question::new(place.bucket("GET", &query))).await?;
        let page = list_page(&answer.body).ok_or(Status::BAD_GATEWAY)?;
        keys.extend(page.entries.into_iter().map(|entry| entry.key));
        if keys.len() > OBJECTS_MAX {
            return Err(Status::CONTENT_TOO_LARGE);
        }
        match page.next {
            Some(more) => next = Some(more),
            None => return Ok(keys),
        }
    }
}

/// A folder is what keys begin with: all of them go, one by one, the folder's own object last.
async fn delete_folder(work: &Work, key: &[u8], how: DeleteDirectories) -> Outcome {
    let keys = keys_below(work, key).await?;
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
