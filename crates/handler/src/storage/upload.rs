//! A body becomes an object: in one request if it is small, or else by parts. It is there when it is complete, and not
//! before; an upload that is not completed is removed, also if its client has gone.

use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::Level;
use sekisho_http::{Fields, Status};
use sekisho_storage::{Refusal, completion, copied, upload_id};

use super::sweep::{self, InUse};
use super::work::{Intake, Work, spawn};
use super::{Client, Question};

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
    let mut question = Question::new(work.client.storage.place.object("PUT", &target.key, &[]));
    question.fields.push("Content-Type", &target.media_type);
    question.body = Some(body.into());
    let answer = guarded(work, question, &target.guard).await?;
    work.forget(&target.key).await;
    Ok(Stored { tag: answer.fields.get("etag").unwrap_or_default().to_vec(), bytes })
}

/// Asks on a condition. A store that does not know of it is asked without: the condition was looked at before.
async fn guarded(
    work: &Work,
    question: Question,
    guard: &Guard,
) -> Result<super::ask::Answer, Status> {
    let mut asked = question.clone();
    guard.push(&mut asked.fields);
    // Asked again, it might not hold because of what was done the first time.
    asked.is_repeatable = guard.is_none() && question.is_repeatable;
    let draft = question.draft.clone();
    let answer = work.ask(asked).await?;
    if answer.status.code() < 300 {
        return Ok(answer);
    }
    let refusal = Refusal::new(answer.status.code(), &answer.body);
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
    /// Entity tags.
    pub(super) parts: Vec<String>,
    pub(super) bytes: u64,
    /// Whether it is none of ours to remove: it is over, or goes on with another request.
    pub(super) is_kept: bool,
    _in_use: Option<InUse>,
}

impl Multipart {
    pub(super) async fn begin(work: &Rc<Work>, target: &Target) -> Result<Self, Status> {
        let place = &work.client.storage.place;
        let mut question = Question::new(place.object("POST", &target.key, &[("uploads", b"")]));
        question.fields.push("Content-Type", &target.media_type);
        question.body = Some(Arc::default());
        let answer = work.succeed(question).await?;
        let id = upload_id(&answer.body).ok_or_else(|| {
            let name = &work.client.storage.name;
            let message = format_args!("storage \"{name}\" began an upload and did not say its id");
            work.client.context().report(Level::Error, message);
            Status::BAD_GATEWAY
        })?;
        let in_use = InUse::begin(&id);
        sweep::visit(&work.client);
        Ok(Self {
            work: Rc::clone(work),
            key: target.key.clone(),
            id,
            parts: Vec::new(),
            bytes: 0,
            is_kept: false,
            _in_use: in_use,
        })
    }

    /// One that was begun before.
    pub(super) fn resume(
        work: &Rc<Work>,
        key: Vec<u8>,
        id: String,
        parts: Vec<String>,
        bytes: u64,
        in_use: InUse,
    ) -> Self {
        Self { work: Rc::clone(work), key, id, parts, bytes, is_kept: true, _in_use: Some(in_use) }
    }

    /// Sends the next part.
    pub(super) async fn part(&mut self, body: Vec<u8>) -> Result<(), Status> {
        let number = (self.parts.len() + 1).to_string();
        let bytes = body.len() as u64;
        let query = [("partNumber", number.as_bytes()), ("uploadId", self.id.as_bytes())];
        let draft = self.work.client.storage.place.object("PUT", &self.key, &query);
        let question = Question { body: Some(body.into()), ..Question::new(draft) };
        let answer = self.work.succeed(question).await?;
        let tag = answer.fields.get("etag").unwrap_or_default();
        self.parts.push(String::from_utf8_lossy(tag).into_owned());
        self.bytes += bytes;
        Ok(())
    }

    /// Makes an object of the parts; returns its entity tag.
    pub(super) async fn complete(mut self, guard: &Guard) -> Result<Vec<u8>, Status> {
        if self.parts.is_empty() {
            // There must be one.
            self.part(Vec::new()).await?;
        }
        let query = [("uploadId", self.id.as_bytes())];
        let draft = self.work.client.storage.place.object("POST", &self.key, &query);
        let numbered = (1..).zip(self.parts.iter().map(String::as_str));
        let body = completion(numbered);
        let mut question = Question { body: Some(body.into()), ..Question::new(draft.clone()) };
        question.fields.push("Content-Type", "application/xml");
        question.is_repeatable = false;
        let answer = guarded(&self.work, question, guard).await?;
        let tag =
            copied(&answer.body).map_err(|refusal| self.work.client.refused(&draft, &refusal))?;
        self.is_kept = true;
        self.work.forget(&self.key).await;
        Ok(tag.unwrap_or_default().into_bytes())
    }
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
        spawn(remove(client, key, id));
    }
}

/// Removes an upload, whatever becomes of its client. One that cannot be removed is swept later.
async fn remove(client: Rc<Client>, key: Vec<u8>, id: String) {
    let work = Work::new(client);
    let _ = work.alone(abort(&work, &key, &id)).await;
}

/// Removes an upload.
pub(super) async fn abort(work: &Work, key: &[u8], id: &str) -> Result<(), Status> {
    let query = [("uploadId", id.as_bytes())];
    let draft = work.client.storage.place.object("DELETE", key, &query);
    let answer = work.ask(Question::new(draft.clone())).await?;
    // One that has gone is gone.
    if answer.status.code() < 300 || answer.status == Status::NOT_FOUND {
        return Ok(());
    }
    let refusal = Refusal::new(answer.status.code(), &answer.body);
    Err(work.client.refused(&draft, &refusal))
}
