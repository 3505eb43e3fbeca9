//! Work on a store that takes several questions, one after the other, and perhaps a body: a future that a task drives. It
//! owns no timer: the deadline of the question that is open is the task's.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use sekisho_http::{Fields, Status, date};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment, Share};
use sekisho_route::upstream_facts::UpstreamFacts;
use sekisho_storage::{Scope, list_page};

use super::ask::{Answer, BODY_BYTES_MAX, FIRST_BYTE, Gather};
use super::{Client, Question};
use crate::task::{self, BodyIn, Describe, Outbox, Progress, Task, UpstreamView};
use crate::without;

/// A successful end.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) status: Status,
    pub(super) fields: Fields,
    pub(super) body: Vec<u8>,
}

impl Done {
    pub(super) fn new(status: Status) -> Self {
        Self { status, fields: Fields::new(), body: Vec::new() }
    }

    pub(super) fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push(name, value);
        self
    }
}

/// Why it could not be done: the status to answer with, and fields that belong to it. The cause has been reported.
#[derive(Debug)]
pub(super) struct Undone {
    pub(super) status: Status,
    pub(super) fields: Fields,
}

impl Undone {
    pub(super) fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push(name, value);
        self
    }
}

impl From<Status> for Undone {
    fn from(status: Status) -> Self {
        Self { status, fields: Fields::new() }
    }
}

/// How many pages without any object are looked at.
pub(super) const EMPTY_PAGES_MAX: usize = 100;

pub(super) type Outcome = Result<Done, Undone>;

/// What is known of an object.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) tag: Vec<u8>,
    pub(super) bytes: u64,
    pub(super) modified: i64,
}

/// A store, and the question that is open.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) client: Rc<Client>,
    open: RefCell<Option<Gather>>,
}

impl Work {
    pub(super) fn new(client: Rc<Client>) -> Rc<Self> {
        Rc::new(Self { client, open: RefCell::new(None) })
    }

    /// The answer, whatever it says; an error where none came.
    pub(super) async fn ask(&self, question: Question) -> Result<Answer, Status> {
        let now = self.client.context().now();
        *self.open.borrow_mut() = Some(Gather::new(&self.client, question, now));
        poll_fn(|cx| {
            let now = self.client.context().now();
            let mut open = self.open.borrow_mut();
            let Some(gather) = open.as_mut() else {
                return Poll::Ready(Err(Status::INTERNAL_SERVER_ERROR));
            };
            let answer = gather.poll(cx, now);
            if answer.is_ready() {
                *open = None;
            }
            answer
        })
        .await
    }

    /// The same; a refusal is an error, too. One that is expected is looked at by `is_expected` before it is reported.
    pub(super) async fn succeed(&self, question: Question) -> Result<Answer, Status> {
        let draft = question.draft.clone();
        let answer = self.ask(question).await?;
        if answer.status.code() < 300 {
            return Ok(answer);
        }
        let refusal = answer.refusal();
        Err(self.client.refused(&draft, &refusal))
    }

    /// What is known of an object; `None` where there is none.
    pub(super) async fn head(&self, key: &[u8]) -> Result<Option<Known>, Status> {
        let question = Question::new(self.client.storage.place.object("HEAD", key));
        let answer = match self.succeed(question).await {
            Ok(answer) => answer,
            Err(Status::NOT_FOUND) => return Ok(None),
            Err(status) => return Err(status),
        };
        let field = |name: &str| answer.fields.get(name);
        let modified = field("last-modified").and_then(date::parse).unwrap_or_default();
        let tag = field("etag").unwrap_or_default().to_vec();
        Ok(Some(Known { tag, bytes: answer.length.unwrap_or_default(), modified }))
    }

    /// The status where there is no object. A HEAD does not say whether there is a bucket.
    pub(super) async fn missing(&self, key: &[u8]) -> Status {
        let draft = self.client.storage.place.object("GET", key);
        match self.succeed(Question::new(draft.field("Range", FIRST_BYTE))).await {
            Ok(_) => Status::NOT_FOUND,
            Err(status) => status,
        }
    }

    /// All of a small object, and when it was changed; `None` where there is none.
    pub(super) async fn get(&self, key: &[u8]) -> Result<Option<(Vec<u8>, i64)>, Status> {
        self.get_up_to(key, BODY_BYTES_MAX).await
    }

    /// The same for an object of at most so many bytes.
    pub(super) async fn get_up_to(
        &self,
        key: &[u8],
        bytes_max: usize,
    ) -> Result<Option<(Vec<u8>, i64)>, Status> {
        let mut question = Question::new(self.client.storage.place.object("GET", key));
        question.answer_bytes_max = bytes_max;
        match self.succeed(question).await {
            Ok(answer) => {
                let modified = answer.fields.get("last-modified").and_then(date::parse);
                Ok(Some((answer.body, modified.unwrap_or_default())))
            }
            Err(Status::NOT_FOUND) => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Whether there is any object below a prefix. A page without any may still lead to another one.
    pub(super) async fn has_any(&self, prefix: &[u8]) -> Result<bool, Status> {
        let mut next: Option<String> = None;
        for _ in 0..EMPTY_PAGES_MAX {
            let after = next.as_deref().map(str::as_bytes);
            let draft = self.client.storage.place.list(prefix, Scope::First, after);
            let answer = self.succeed(Question::new(draft)).await?;
            let page = list_page(&answer.body).ok_or(Status::BAD_GATEWAY)?;
            if !page.entries.is_empty() || page.next.is_none() {
                return Ok(!page.entries.is_empty());
            }
            next = page.next;
        }
        Err(self.endless("a listing"))
    }

    /// Writes a small object of our own.
    pub(super) async fn put(&self, key: &[u8], body: Vec<u8>) -> Result<(), Status> {
        let draft = self.client.storage.place.put(key, b"");
        let question = Question { body: Some(body.into()), ..Question::new(draft) };
        self.succeed(question).await.map(drop)
    }

    /// Removes an object; whether there was one is not known.
    pub(super) async fn delete(&self, key: &[u8]) -> Result<(), Status> {
        let question = Question::new(self.client.storage.place.object("DELETE", key));
        let deleted = self.succeed(question).await;
        // Whatever was answered: where the answer was lost, it may be gone.
        self.forget(key).await;
        match deleted {
            // Some stores say that there is none.
            Ok(_) | Err(Status::NOT_FOUND) => Ok(()),
            Err(status) => Err(status),
        }
    }

    /// The object has changed: what is kept of it is no longer given.
    pub(super) async fn forget(&self, key: &[u8]) {
        let sender = &self.client.sender;
        if let Some(purge) = sender.forget(&self.client.storage.place.cache_key(key)) {
            // A cache that cannot be purged has been reported, and its entry becomes stale in time.
            let _ = purge.await;
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.open.borrow().as_ref().and_then(|gather| gather.ask.next_deadline())
    }

    /// Goes on without a client until it is over.
    pub(super) async fn alone<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let now = self.client.context().now();
            let wait = self.next_deadline().map(|deadline| deadline.at.since(now));
            let mut timer = pin!(async {
                match wait {
                    Some(length) => tokio::time::sleep(length).await,
                    None => std::future::pending().await,
                }
            });
            let before = self.next_deadline();
            let done = poll_fn(|cx| {
                if let Poll::Ready(done) = work.as_mut().poll(cx) {
                    return Poll::Ready(Some(done));
                }
                if self.next_deadline() != before {
                    return Poll::Ready(None);
                }
                timer.as_mut().poll(cx).map(|()| None)
            });
            if let Some(done) = done.await {
                return done;
            }
        }
    }
}

/// Begins work that no client waits for.
pub(super) fn spawn(work: impl Future<Output = ()> + 'static) {
    if tokio::runtime::Handle::try_current().is_ok() {
        tokio::task::spawn_local(work);
    }
}

/// A body on its way into parts.
#[derive(Debug)]
pub(super) struct Intake(RefCell<Pieces>);

#[derive(Debug)]
struct Pieces {
    bytes: Vec<u8>,
    max: usize,
    /// Whether bytes are wanted now: while a part is sent, the client is held back.
    is_open: bool,
    has_ended: bool,
    share: Option<Share>,
}

impl Intake {
    pub(super) fn new(max: usize, has_body: bool, share: Option<Share>) -> Rc<Self> {
        let pieces = Pieces { bytes: Vec::new(), max, is_open: false, has_ended: !has_body, share };
        Rc::new(Self(RefCell::new(pieces)))
    }

    /// Without a body.
    pub(super) fn none() -> Rc<Self> {
        Self::new(0, false, None)
    }

    /// Makes sure of room for so many bytes; 503 where uploads hold as much memory as they may.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), Status> {
        let mut pieces = self.0.borrow_mut();
        let has_room = match &mut pieces.share {
            Some(share) => bytes <= share.bytes() || share.resize(bytes),
            None => true,
        };
        if has_room { Ok(()) } else { Err(Status::SERVICE_UNAVAILABLE) }
    }

    /// From now on parts have this size.
    pub(super) fn set_max(&self, max: usize) -> Result<(), Status> {
        self.reserve(max)?;
        self.0.borrow_mut().max = max;
        Ok(())
    }

    fn take(&self, bytes: &[u8]) -> usize {
        let mut pieces = self.0.borrow_mut();
        if !pieces.is_open {
            return 0;
        }
        let count = bytes.len().min(pieces.max.saturating_sub(pieces.bytes.len()));
        pieces.bytes.extend_from_slice(&bytes[..count]);
        count
    }

    fn end(&self) {
        self.0.borrow_mut().has_ended = true;
    }

    /// The next part, which begins with `before`; and whether it is the last one.
    pub(super) async fn part(&self, before: Vec<u8>) -> (Vec<u8>, bool) {
        self.0.borrow_mut().bytes = before;
        poll_fn(|cx| {
            let mut pieces = self.0.borrow_mut();
            if pieces.bytes.len() >= pieces.max || pieces.has_ended {
                pieces.is_open = false;
                return Poll::Ready((std::mem::take(&mut pieces.bytes), pieces.has_ended));
            }
            if !std::mem::replace(&mut pieces.is_open, true) {
                // What could not be taken before is offered again.
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await
    }

    /// Whatever has come since, and whether it is the end; waits if nothing has.
    pub(super) async fn some(&self) -> (Vec<u8>, bool) {
        poll_fn(|cx| {
            let mut pieces = self.0.borrow_mut();
            if !pieces.bytes.is_empty() || pieces.has_ended {
                pieces.is_open = false;
                return Poll::Ready((std::mem::take(&mut pieces.bytes), pieces.has_ended));
            }
            if !std::mem::replace(&mut pieces.is_open, true) {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await
    }
}

type Running = Pin<Box<dyn Future<Output = Outcome>>>;

/// Work for a client.
pub(super) struct Operation {
    work: Rc<Work>,
    intake: Rc<Intake>,
    stage: Stage,
}

enum Stage {
    Running(Running),
    /// The head has been given, with these bytes to follow.
    Answered(Vec<u8>),
    Cancelled,
    Over,
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").field("work", &self.work).finish_non_exhaustive()
    }
}

impl Operation {
    pub(super) fn start(
        work: Rc<Work>,
        intake: Rc<Intake>,
        running: impl Future<Output = Outcome> + 'static,
    ) -> Box<dyn Task> {
        Box::new(Self { work, intake, stage: Stage::Running(Box::pin(running)) })
    }
}

impl task::Work for Operation {
    without!(hold, absorb, narrow, stops_with_client, is_service, conclude);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, _: Moment) -> Poll<Progress> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Running(mut running) => match running.as_mut().poll(cx) {
                Poll::Pending => {
                    self.stage = Stage::Running(running);
                    Poll::Pending
                }
                Poll::Ready(Ok(done)) => {
                    out.fields.extend_from(&done.fields);
                    let length = done.body.len() as u64;
                    self.stage = Stage::Answered(done.body);
                    Poll::Ready(Progress::Head(done.status, Some(length)))
                }
                Poll::Ready(Err(undone)) => {
                    out.fields.extend_from(&undone.fields);
                    Poll::Ready(Progress::Fail(undone.status))
                }
            },
            Stage::Answered(mut body) if !body.is_empty() => {
                out.body.append(&mut body);
                Poll::Ready(Progress::Body)
            }
            Stage::Answered(_) | Stage::Over => Poll::Ready(Progress::Done),
            Stage::Cancelled => Poll::Ready(Progress::Fail(Status::SERVICE_UNAVAILABLE)),
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.work.next_deadline()
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        if matches!(self.stage, Stage::Running(_)) {
            // What was begun is undone when it is dropped.
            self.stage = Stage::Cancelled;
            *self.work.open.borrow_mut() = None;
        }
    }
}

impl BodyIn for Operation {
    without!(body_sink, direct_bytes_done, return_body);

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], _: Moment) -> usize {
        if !matches!(self.stage, Stage::Running(_)) {
            // The answer is on its way.
            return bytes.len();
        }
        let count = self.intake.take(bytes);
        if count > 0 {
            cx.waker().wake_by_ref();
        }
        count
    }

    fn end_body(&mut self, cx: &mut Context<'_>, _: Moment) {
        self.intake.end();
        cx.waker().wake_by_ref();
    }
}

impl Describe for Operation {
    without!(plain_bytes, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "storage"
    }

    fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        if let Some(gather) = &*self.work.open.borrow() {
            gather.ask.describe_upstream(facts);
        }
    }

    fn upstream_view(&self, now: Moment) -> Option<UpstreamView> {
        self.work.open.borrow().as_ref().and_then(|gather| gather.ask.upstream_view(now))
    }
}

#[cfg(test)]
mod tests {
    use sekisho_lifecycle::Budget;

    use super::*;

    #[test]
    fn larger_parts_take_a_larger_share() {
        let budget = Budget::new(100);
        let intake = Intake::new(40, true, budget.take(40));
        assert_eq!(intake.set_max(60), Ok(()));
        assert_eq!(intake.reserve(50), Ok(()));
        assert_eq!(budget.taken(), 60, "it does not become smaller");
        let _others = budget.take(30).expect("there is room");
        assert_eq!(intake.set_max(80), Err(Status::SERVICE_UNAVAILABLE));
        assert_eq!(budget.taken(), 90);
        assert_eq!(Intake::none().reserve(80), Ok(()));
    }
}
