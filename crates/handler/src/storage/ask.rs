//! One question to a store until its answer: a store that is away for a moment is asked again.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sekisho_http::{Fields, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment};
use sekisho_route::upstream_facts::UpstreamFacts;
use sekisho_storage::{Draft, Refusal};

use super::{Client, Question};
use crate::task::{Outbox, Progress, Task, UpstreamView};

/// For so long a question is repeated, unless the configured timeout is shorter.
const REPEAT_MAX: Duration = Duration::from_secs(10);
/// The first pause; each one is twice as long as the one before.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);
/// No answer that is read as a whole is longer, unless the question says so: a page of a listing has a thousand keys of a
/// thousand bytes.
pub(super) const BODY_BYTES_MAX: usize = 8 << 20;
/// So much of an error is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// A `Range` for an object that is asked for only because of what an error says.
pub(super) const FIRST_BYTE: &[u8] = b"bytes=0-0";

/// A question that is being asked.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) client: Rc<Client>,
    pub(super) question: Question,
    task: Option<Box<dyn Task>>,
    since: Moment,
    pause: Duration,
    resumes: Option<Moment>,
    is_cancelled: bool,
    /// The status of a HEAD that was refused: the object is being asked for, since that answer says why.
    refused: Option<Status>,
    /// There is nothing behind the head.
    is_over: bool,
}

impl Ask {
    pub(super) fn new(client: &Rc<Client>, question: Question, now: Moment) -> Self {
        let resumes = (!question.pause.is_zero()).then(|| now + question.pause);
        Self {
            client: Rc::clone(client),
            question,
            task: None,
            since: now,
            pause: PAUSE,
            resumes,
            is_cancelled: false,
            refused: None,
            is_over: false,
        }
    }

    /// Whether the answer to a HEAD leaves open why it was refused.
    fn wants_reason(&self, status: Status, fields: &Fields) -> bool {
        self.question.draft.method == "HEAD"
            && self.refused.is_none()
            && Refusal::new(status.code(), fields, b"").is_unexplained()
    }

    fn ask_reason(&mut self, status: Status) {
        self.refused = Some(status);
        let draft = self.question.draft.clone();
        self.question.draft = Draft { method: "GET", ..draft }.field("Range", FIRST_BYTE);
        self.task = None;
    }

    /// Whether it is asked again, after a pause.
    fn repeats(&mut self, status: Status, now: Moment) -> bool {
        let is_passing = matches!(status.code(), 429 | 500 | 502 | 503);
        let timeout = self.client.storage.forward.read_timeout.unwrap_or(REPEAT_MAX);
        let until = self.since + timeout.min(REPEAT_MAX);
        if !is_passing || !self.question.is_repeatable || self.is_cancelled || until.is_due(now) {
            return false;
        }
        self.task = None;
        self.resumes = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }

    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        now: Moment,
    ) -> Poll<Progress> {
        loop {
            if self.is_over {
                return Poll::Ready(Progress::Done);
            }
            if self.is_cancelled && self.task.is_none() {
                return Poll::Ready(Progress::Fail(Status::SERVICE_UNAVAILABLE));
            }
            if let Some(at) = self.resumes
                && !at.is_due(now)
            {
                return Poll::Pending;
            }
            self.resumes = None;
            let (client, question) = (&self.client, &self.question);
            let task = self.task.get_or_insert_with(|| client.begin(question, now));
            match ready!(task.poll(cx, out, now)) {
                Progress::Fail(status) if self.repeats(status, now) => out.fields.clear(),
                Progress::Head(status, _) if self.repeats(status, now) => out.fields.clear(),
                Progress::Head(status, _) if self.wants_reason(status, &out.fields) => {
                    out.fields.clear();
                    self.ask_reason(status);
                }
                progress @ (Progress::Head(..) | Progress::Fail(_)) => {
                    let status = match (self.refused, &progress) {
                        (Some(refused), Progress::Head(status, _)) if *status != refused => refused,
                        (Some(refused), Progress::Fail(_)) => refused,
                        _ => return Poll::Ready(progress),
                    };
                    // The object is refused in another way, or not at all: more is not known.
                    out.fields.clear();
                    self.task = None;
                    self.is_over = true;
                    return Poll::Ready(Progress::Head(status, Some(0)));
                }
                progress => return Poll::Ready(progress),
            }
        }
    }

    pub(super) fn hold(&mut self, is_held: bool, now: Moment) {
        if let Some(task) = &mut self.task {
            task.hold(is_held, now);
        }
    }

    pub(super) fn absorb(&mut self, cx: &mut Context<'_>, now: Moment) {
        if let Some(task) = &mut self.task {
            task.absorb(cx, now);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        match self.resumes {
            Some(at) => Some(Deadline { at, kind: DeadlineKind::Wait }),
            None => self.task.as_ref().and_then(|task| task.next_deadline()),
        }
    }

    pub(super) fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        if let Some(task) = &self.task {
            task.describe_upstream(facts);
        }
    }

    pub(super) fn upstream_view(&self, now: Moment) -> Option<UpstreamView> {
        self.task.as_ref().and_then(|task| task.upstream_view(now))
    }

    pub(super) fn cancel(&mut self, cause: Cause, now: Moment) {
        self.is_cancelled = true;
        if let Some(task) = &mut self.task {
            task.cancel(cause, now);
        }
    }
}

/// An answer as a whole.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) fields: Fields,
    pub(super) body: Vec<u8>,
    /// How long the body is, or would be.
    pub(super) length: Option<u64>,
}

impl Answer {
    /// Why it is no success.
    pub(super) fn refusal(&self) -> Refusal {
        Refusal::new(self.status.code(), &self.fields, &self.body)
    }
}

/// A refusal on its way: its body says why.
#[derive(Debug)]
pub(super) struct Refusing(Answer);

impl Refusing {
    pub(super) fn new(status: Status, out: &mut Outbox) -> Self {
        let fields = std::mem::take(&mut out.fields);
        Self(Answer { status, fields, body: Vec::new(), length: None })
    }

    /// Takes what has come behind the head; the refusal when that was enough.
    pub(super) fn take(&mut self, progress: &Progress, out: &mut Outbox) -> Option<Refusal> {
        let body = &mut self.0.body;
        body.append(&mut out.body);
        let is_open = matches!(progress, Progress::Body) && body.len() < REFUSAL_BYTES_MAX;
        (!is_open).then(|| self.0.refusal())
    }
}

/// A question whose answer is gathered.
#[derive(Debug)]
pub(super) struct Gather {
    pub(super) ask: Ask,
    out: Outbox,
    head: Option<(Status, Fields, Option<u64>)>,
    body: Vec<u8>,
}

impl Gather {
    pub(super) fn new(client: &Rc<Client>, question: Question, now: Moment) -> Self {
        let ask = Ask::new(client, question, now);
        Self { ask, out: Outbox::default(), head: None, body: Vec::new() }
    }

    /// The answer, whatever it says; an error where none came, with the status for a client.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
    ) -> Poll<Result<Answer, Status>> {
        loop {
            match ready!(self.ask.poll(cx, &mut self.out, now)) {
                Progress::Head(status, length) => {
                    let fields = std::mem::take(&mut self.out.fields);
                    self.head = Some((status, fields, length));
                }
                Progress::Informational(_) => self.out.fields.clear(),
                Progress::Body => {
                    self.body.append(&mut self.out.body);
                    if self.body.len() > self.ask.question.answer_bytes_max {
                        return Poll::Ready(Err(Status::BAD_GATEWAY));
                    }
                }
                Progress::Done => {
                    self.body.append(&mut self.out.body);
                    let Some((status, fields, length)) = self.head.take() else {
                        return Poll::Ready(Err(Status::BAD_GATEWAY));
                    };
                    let body = std::mem::take(&mut self.body);
                    return Poll::Ready(Ok(Answer { status, fields, body, length }));
                }
                Progress::Fail(status) => return Poll::Ready(Err(status)),
                _ => return Poll::Ready(Err(Status::BAD_GATEWAY)),
            }
        }
    }

    /// The same; a refusal is an error, too, and has been reported.
    pub(super) fn poll_success(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
    ) -> Poll<Result<Answer, Status>> {
        let answer = match ready!(self.poll(cx, now)) {
            Ok(answer) if answer.status.code() < 300 => return Poll::Ready(Ok(answer)),
            Ok(answer) => answer,
            Err(status) => return Poll::Ready(Err(status)),
        };
        let refused = self.ask.client.refused(&self.ask.question.draft, &answer.refusal());
        Poll::Ready(Err(refused))
    }
}
