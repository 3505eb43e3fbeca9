//! A body becomes an object: in one request if it is small, or else by parts. It is there when it is complete, and not
//! before; an upload that is not completed is removed, also if its client has gone.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sekisho_config::Level;
use sekisho_http::{Fields, Status};
use sekisho_storage::upload_id;
use tokio::time::timeout;

use super::sweep::{self, InUse};
use super::work::{Intake, Work, spawn};
use super::{Client, Question};
use crate::cgi::AloneGuard;
use crate::file_op::random;

/// How long it takes until a store that could not remove an upload is asked again; every pause is twice as long as the one
/// before. All of them take 17 minutes.
const ABORT_PAUSE_MIN: Duration = Duration::from_secs(1);
const ABORT_PAUSE_MAX: Duration = Duration::from_secs(512);
/// So long a worker that ends waits for the first attempt, within the time that force has.
const ABORT_WAIT: Duration = Duration::from_secs(3);

/// On what condition an object may be written; a store that can checks it in the same step.
#[derive(Clone, Debug, Default)]
pub(super) enum Guard {
    #[default]
    None,
    /// There is none of this key.
    Absent,
    /// There is one with this entity tag.
    Tag(Vec<u8>),
}

impl Guard {
    fn push(&self, fields: &mut Fields) {
        match self {
            Self::None => {}
            Self::Absent => fields.push("If-None-Match", "*"),
            Self::Tag(tag) => fields.push("If-Match", tag),
        }
    }

    const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// What an object is to be.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) key: Vec<u8>,
    pub(super) media_type: Vec<u8>,
    pub(super) guard: Guard,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) tag: Vec<u8>,
    pub(super) bytes: u64,
}

/// Stores a body.
pub(super) async fn store(
    work: &Rc<Work>,
    intake: &Intake,
    target: &Target,
) -> Result<Stored, Status> {
    let (first, is_last) = intake.part(Vec::new()).await;
    if is_last {
        return put(work, target, first).await;
    }
    let mut upload = Multipart::begin(work, target).await?;
    let (mut part, mut is_last) = (first, false);
    loop {
        // The last part may be missing, if the one before was full.
        if !part.is_empty() {
            upload.part(part).await?;
        }
        if is_last {
            break;
        }
        (part, is_last) = intake.part(Vec::new()).await;
    }
    let bytes = upload.bytes;
    let tag = upload.complete(&target.guard).await?;
    Ok(Stored { tag, bytes })
}

/// Stores what is here already.
async fn put(work: &Rc<Work>, target: &Target, body: Vec<u8>) -> Result<Stored, Status> {
    let bytes = body.len() as u64;
    let draft = work.client.storage.place.put(&target.key, &target.media_type);
    let question = Question { body: Some(body.into()), ..Question::new(draft) };
    let answer = guarded(work, question, &target.guard).await;
    // Whatever was answered: where the answer was lost, the object may be there.
    work.forget(&target.key).await;
    let answer = answer?;
    Ok(Stored { tag: answer.fields.get("etag").unwrap_or_default().to_vec(), bytes })
}

/// Asks on a condition. A store that does not know of it is asked without: the condition was looked at before.
async fn guarded(
    work: &Work,
    question: Question,
    guard: &Guard,
) -> Result<super::ask::Answer, Status> {
    let mut asked = question.clone();
    guard.push(&mut asked.draft.fields);
    // Asked again, it might not hold because of what was done the first time.
    asked.is_repeatable = guard.is_none() && question.is_repeatable;
    let draft = question.draft.clone();
    let answer = work.ask(asked).await?;
    if answer.status.code() < 300 {
        return Ok(answer);
    }
    let refusal = answer.refusal();
    if refusal.code == "NotImplemented" && !guard.is_none() {
        return work.succeed(question).await;
    }
    Err(work.client.refused(&draft, &refusal))
}

/// An upload by parts. Dropped before it is complete, it is removed from the store.
#[derive(Debug)]
pub(super) struct Multipart {
    work: Rc<Work>,
    pub(super) key: Vec<u8>,
    pub(super) id: String,
    media_type: Vec<u8>,
    /// Entity tags, or names.
    pub(super) parts: Vec<String>,
    pub(super) bytes: u64,
    /// Whether it is none of ours to remove: it is over, or goes on with another request.
    pub(super) is_kept: bool,
    _in_use: Option<InUse>,
}

impl Multipart {
    pub(super) async fn begin(work: &Rc<Work>, target: &Target) -> Result<Self, Status> {
        let place = &work.client.storage.place;
        let id = match place.begin_upload(&target.key, &target.media_type) {
            None => random(),
            Some(draft) => {
                let question = Question { body: Some(Arc::default()), ..Question::new(draft) };
                let answer = work.succeed(question).await?;
                upload_id(&answer.body).ok_or_else(|| without_id(work))?
            }
        };
        let in_use = InUse::begin(&id);
        sweep::visit(&work.client);
        Ok(Self {
            work: Rc::clone(work),
            key: target.key.clone(),
            id,
            media_type: target.media_type.clone(),
            parts: Vec::new(),
            bytes: 0,
            is_kept: false,
            _in_use: in_use,
        })
    }

    /// One that was begun before.
    pub(super) fn resume(
        work: &Rc<Work>,
        (key, media_type): (Vec<u8>, Vec<u8>),
        id: String,
        (parts, bytes): (Vec<String>, u64),
        in_use: InUse,
    ) -> Self {
        let work = Rc::clone(work);
        Self { work, key, id, media_type, parts, bytes, is_kept: true, _in_use: Some(in_use) }
    }

    /// Sends the next part.
    pub(super) async fn part(&mut self, body: Vec<u8>) -> Result<(), Status> {
        let number = self.parts.len() as u32 + 1;
        let bytes = body.len() as u64;
        let place = &self.work.client.storage.place;
        let draft = place.upload_part(&self.key, &self.id, number);
        let question = Question { body: Some(body.into()), ..Question::new(draft) };
        let answer = self.work.succeed(question).await.map_err(|status| self.lost(status))?;
        let tag = place.part_tag(&self.id, number, &answer.fields);
        self.parts.push(tag);
        self.bytes += bytes;
        Ok(())
    }

    /// An upload that is no longer there is told only to a client that goes on with it.
    const fn lost(&self, status: Status) -> Status {
        match status {
            Status::GONE if !self.is_kept => Status::BAD_GATEWAY,
            status => status,
        }
    }

    /// Makes an object of the parts; returns its entity tag.
    pub(super) async fn complete(mut self, guard: &Guard) -> Result<Vec<u8>, Status> {
        if self.parts.is_empty() && self.work.client.storage.place.begins_uploads() {
            self.part(Vec::new()).await?;
        }
        let place = &self.work.client.storage.place;
        let (draft, body) =
            place.complete_upload(&self.key, &self.id, &self.media_type, &self.parts);
        let mut question = Question { body: Some(body.into()), ..Question::new(draft.clone()) };
        question.is_repeatable = false;
        let answer = guarded(&self.work, question, guard).await;
        // Whatever was answered, as above.
        self.work.forget(&self.key).await;
        let answer = answer.map_err(|status| self.lost(status))?;
        let tag = place
            .completed(&answer.fields, &answer.body)
            .map_err(|refusal| self.lost(self.work.client.refused(&draft, &refusal)))?;
        self.is_kept = true;
        Ok(tag)
    }
}

fn without_id(work: &Work) -> Status {
    let name = &work.client.storage.name;
    let message = format_args!("storage \"{name}\" began an upload and did not say its id");
    work.client.context().report(Level::Error, message);
    Status::BAD_GATEWAY
}

impl Drop for Multipart {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let (client, key, id) = (
            Rc::clone(&self.work.client),
            std::mem::take(&mut self.key),
            std::mem::take(&mut self.id),
        );
        // The worker does not end before the store was asked.
        let guard = AloneGuard::new(&client.sender.context);
        spawn(remove(client, key, id, guard));
    }
}

/// Removes an upload, whatever becomes of its client. A store that was away is asked again later; what cannot be removed
/// then is swept.
async fn remove(client: Rc<Client>, key: Vec<u8>, id: String, guard: AloneGuard) {
    let work = Work::new(client);
    let first = work.alone(abort(&work, &key, &id));
    if let Ok(Ok(()) | Err(Status::FORBIDDEN)) = timeout(ABORT_WAIT, first).await {
        return;
    }
    drop(guard);
    let mut pause = ABORT_PAUSE_MIN;
    loop {
        match work.alone(abort_after(pause, &work, &key, &id)).await {
            Ok(()) | Err(Status::FORBIDDEN) => return,
            Err(_) if pause >= ABORT_PAUSE_MAX => return,
            Err(_) => pause *= 2,
        }
    }
}

/// Removes an upload.
pub(super) async fn abort(work: &Work, key: &[u8], id: &str) -> Result<(), Status> {
    abort_after(Duration::ZERO, work, key, id).await
}

async fn abort_after(pause: Duration, work: &Work, key: &[u8], id: &str) -> Result<(), Status> {
    let Some(draft) = work.client.storage.place.abort_upload(key, id) else { return Ok(()) };
    let answer = work.ask(Question { pause, ..Question::new(draft.clone()) }).await?;
    // One that has gone is gone.
    if answer.status.code() < 300 || answer.status == Status::NOT_FOUND {
        return Ok(());
    }
    Err(work.client.refused(&draft, &answer.refusal()))
}
