//! Services over HTTP (`service NAME;` in a location): the body of the request is that of the call, the answer is the
//! response. A service does not know that it was called so, unless it asks for the head; `form.rs` has what its
//! answers look like.
//!
//! The call is a task like any other: limits, deadlines, logs and the live view hold for it, and dropping it tells
//! the service that its client is gone.

mod call;
mod form;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sekisho_http::{Method, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment, RequestId};
use sekisho_route::{ClientVerdict, ConnectionFacts};
use sekisho_service::{
    Answer, BodyFeed, Caller, Code, ControlAccess, Held, HttpHead, Identity, OverBudget, Peer,
    Request, RequestPermit, Response, SMALL_BODY_BYTES, Service, Services, SessionMemory,
    body_stream,
};

use crate::memory::{self, Class};
use crate::task::{BodyIn, Describe, Outbox, Progress, Task, Work};
use crate::without;
use call::HttpCall;
use form::{Form, Messages, Piece};

/// What one call may hold: so much, or half of what all native sessions and calls may.
const CALL_BYTES_MAX: usize = 8 << 20;
/// A call whose deadline has passed may still answer for so long.
const LAST_ANSWER: Duration = Duration::from_millis(100);
/// One that was cancelled, for so long: then it is answered for.
const CANCELLED_ANSWER: Duration = Duration::from_secs(1);

/// What a call is made with.
pub struct Call<'a> {
    /// The services of this worker.
    pub services: &'a Services,
    /// The name of the wanted one.
    pub name: &'a str,
    /// The request.
    pub request: &'a sekisho_route::Request<'a>,
    /// Whether a body follows its head.
    pub has_body: bool,
    /// Who calls.
    pub caller: &'a Rc<Caller>,
    /// The time.
    pub now: Moment,
}

/// Calls a service, or prepares the call for when the body is there. A caller that may not call it, or not now, gets
/// that for its answer.
pub fn start(
    call: &Call<'_>,
    admitted: Result<RequestPermit, (Code, String)>,
) -> Result<Box<dyn Task>, Status> {
    let Call { services, name, request, has_body, caller, now } = *call;
    let number = services.number(name).ok_or(Status::SERVICE_UNAVAILABLE)?;
    let service = services.find(number).ok_or(Status::SERVICE_UNAVAILABLE)?;
    let head = request.head;
    let form = Form::of(head)?;
    let native = memory::budget(Class::Native);
    let own = SessionMemory::new(native, CALL_BYTES_MAX.min(native.limit() / 2));
    let http_call = HttpCall::new(form, own);
    let facts = request.connection;
    let mut http = HttpHead {
        method: head.method_name().to_vec(),
        target: head.target().to_vec(),
        ..HttpHead::default()
    };
    head.fields().for_each(|(name, value)| http.fields.push(name, value));
    let by = form.timeout(head).map(|length| now + length);
    let id = RequestId(facts.requests);
    let mut task = ServiceTask {
        call: http_call,
        service,
        waiting: Some((Rc::clone(caller), id, number, http)),
        body: Body::Gathered { bytes: Vec::new(), held: None },
        permit: None,
        work: None,
        stage: Stage::New,
        is_head: head.method() == Method::Head,
        by,
        last: None,
    };
    match admitted {
        Ok(permit) => task.permit = Some(permit),
        Err((code, text)) => {
            task.refuse(code, &text);
            return Ok(Box::new(task));
        }
    }
    if task.service.takes_stream() {
        let (feed, stream) = body_stream();
        if !has_body {
            feed.end();
        }
        task.body = Body::Streamed(feed, Messages::default());
        task.begin(Vec::new(), None, Some(stream));
    } else if !has_body {
        task.begin(Vec::new(), None, None);
    }
    Ok(Box::new(task))
}

/// Who makes a request: the user whose password was right, the subject of a verified certificate, or an address.
pub fn caller_of(
    facts: &ConnectionFacts,
    user: Option<&[u8]>,
    client: Option<SocketAddr>,
) -> Caller {
    let peer = client.map_or(Peer::Unknown, Peer::Tcp);
    let certificate = facts.tls.as_ref().and_then(|tls| tls.client.as_deref());
    let certificate = certificate.filter(|it| it.result == ClientVerdict::Valid);
    let identity = if let Some(user) = user {
        Identity::User(String::from_utf8_lossy(user).into())
    } else if let Some(certificate) = certificate {
        Identity::Certificate(certificate.subject.as_str().into())
    } else {
        Identity::Anonymous
    };
    Caller { session: facts.id, peer, identity, control: ControlAccess::None }
}

/// A call at work.
struct ServiceTask {
    call: Rc<HttpCall>,
    service: Rc<dyn Service>,
    /// What the request is made of, until the service is called.
    waiting: Option<(Rc<Caller>, RequestId, u32, HttpHead)>,
    body: Body,
    /// It counts as running, once the service has it for as long as that holds it.
    permit: Option<RequestPermit>,
    work: Option<Pin<Box<dyn Future<Output = ()>>>>,
    stage: Stage,
    is_head: bool,
    /// Until when the caller waits, where it said so.
    by: Option<Moment>,
    /// It was told to end: it is answered for then, and why.
    last: Option<(Moment, Code, &'static str)>,
}

/// The request's body.
enum Body {
    /// What has come so far, and what is held for it.
    Gathered { bytes: Vec<u8>, held: Option<Held> },
    /// The service takes it while it comes; with gRPC, what the messages in it have.
    Streamed(BodyFeed, Messages),
    /// The service has it, or nobody wants it.
    Over,
}

/// How far the response is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    New,
    /// The head is on its way, and records follow.
    Records,
    /// So is the rest.
    Last,
}

impl ServiceTask {
    /// The service is not called: this is the answer.
    fn refuse(&mut self, code: Code, text: &str) {
        self.body = Body::Over;
        self.waiting = None;
        self.call.fail(code, text);
    }

    /// Calls the service.
    fn begin(
        &mut self,
        body: Vec<u8>,
        held: Option<Held>,
        stream: Option<sekisho_service::BodyStream>,
    ) {
        let Some((caller, id, number, http)) = self.waiting.take() else { return };
        let body = match self.call.form.unwrapped(body) {
            Ok(body) => body,
            Err(text) => return self.call.fail(Code::InvalidRequest, text),
        };
        let mut request =
            Request::new(&caller, id, number, body).with_http(http).with_deadline(self.by);
        if let Some(stream) = stream {
            request = request.with_stream(stream);
        }
        let permit = self.permit.take().unwrap_or_default();
        let response = Response::counted(Rc::<HttpCall>::clone(&self.call), id, held, permit);
        let service = Rc::clone(&self.service);
        // A service that panics has dropped its handles, which is an answer (L32).
        if let Ok(work) = catch_unwind(AssertUnwindSafe(|| service.call(request, response))) {
            self.work = work.into_future(beside);
        }
    }

    /// Lets the service work.
    fn work(&mut self, cx: &mut Context<'_>) {
        let Some(work) = &mut self.work else { return };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(())) | Err(_) => self.work = None,
        }
    }

    /// The caller's deadline has passed: the service is told, and has a moment for its answer. One that does not give it,
    /// after this or another reason to end, is answered for.
    fn keep_deadlines(&mut self, now: Moment) {
        if self.by.take_if(|by| by.is_due(now)).is_some() {
            let text = "the deadline of the request has passed";
            self.last = Some((now + LAST_ANSWER, Code::SessionExpired, text));
            self.call.cancel(Cause::Deadline);
        }
        if let Some((_, code, text)) = self.last.take_if(|(at, ..)| at.is_due(now)) {
            self.call.fail(code, text);
        }
    }
}

/// Runs work that blocks on a thread of the runtime's pool.
async fn beside(work: Box<dyn FnOnce() -> Answer + Send>) -> Option<Answer> {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => Some(answer),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends.
            Err(_) => None,
        },
    }
}

impl Work for ServiceTask {
    without!(hold, absorb, narrow, conclude);

    fn is_service(&self) -> bool {
        true
    }

    fn stops_with_client(&self) -> bool {
        true
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        self.call.note_task(cx);
        self.keep_deadlines(now);
        self.work(cx);
        let form = self.call.form;
        match self.stage {
            Stage::New => {
                let Some(has_channel) = self.call.has_begun() else { return Poll::Pending };
                if has_channel {
                    self.stage = if self.is_head { Stage::Last } else { Stage::Records };
                    return Poll::Ready(form.head_of_records(out));
                }
                let Some(answer) = self.call.take_answer() else { return Poll::Pending };
                let progress = form.head_of_answer(&answer, out, &mut self.call.out());
                self.stage = Stage::Last;
                if self.is_head {
                    self.call.out().clear();
                }
                Poll::Ready(progress)
            }
            Stage::Records => {
                if self.call.take_records(&mut out.body) {
                    return Poll::Ready(Progress::Body);
                }
                let Some(answer) = self.call.take_answer() else { return Poll::Pending };
                self.stage = Stage::Last;
                if form.end_of_records(&answer, out, &mut self.call.out()) {
                    self.poll(cx, out, now)
                } else {
                    // What was sent must not look complete (C5).
                    Poll::Ready(Progress::Break)
                }
            }
            Stage::Last => {
                if self.call.take_records(&mut out.body) {
                    return Poll::Ready(Progress::Body);
                }
                Poll::Ready(Progress::Done)
            }
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let last = self.last.map(|(at, ..)| at);
        let at = self.by.into_iter().chain(last).min().filter(|_| self.stage != Stage::Last)?;
        Some(Deadline { at, kind: DeadlineKind::Wait })
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        const TEXT: &str = "the request was cancelled";
        self.call.cancel(cause);
        if self.waiting.take().is_some() {
            self.call.fail(Code::OperationCancelled, TEXT);
        } else if self.last.is_none() {
            // A service that does not heed it must not hold its session.
            self.last = Some((now + CANCELLED_ANSWER, Code::OperationCancelled, TEXT));
        }
    }
}

impl BodyIn for ServiceTask {
    without!(body_sink, direct_bytes_done, return_body);

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], _: Moment) -> usize {
        match &mut self.body {
            Body::Streamed(feed, _) if self.call.form != Form::Grpc => feed.offer(cx, bytes),
            Body::Streamed(feed, messages) => match offer_messages(cx, feed, messages, bytes) {
                Ok(taken) => taken,
                Err(text) => {
                    self.refuse(Code::InvalidRequest, text);
                    bytes.len()
                }
            },
            Body::Over => bytes.len(),
            Body::Gathered { bytes: body, held } => {
                if hold(&self.call, held, body.len(), bytes.len()).is_ok() {
                    body.extend_from_slice(bytes);
                } else {
                    self.refuse(Code::ResourceLimitReached, &OverBudget.to_string());
                }
                bytes.len()
            }
        }
    }

    fn end_body(&mut self, _: &mut Context<'_>, _: Moment) {
        match std::mem::replace(&mut self.body, Body::Over) {
            Body::Gathered { bytes, held } => self.begin(bytes, held, None),
            Body::Streamed(feed, messages) if messages.is_between() => feed.end(),
            // The service sees that it is cut off.
            Body::Streamed(..) => self.refuse(Code::InvalidRequest, "a message is cut"),
            Body::Over => {}
        }
    }
}

impl Describe for ServiceTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "service"
    }
}

/// Gives the service what is in the messages; how many bytes were taken with what comes before them.
fn offer_messages(
    cx: &Context<'_>,
    feed: &BodyFeed,
    messages: &mut Messages,
    bytes: &[u8],
) -> Result<usize, &'static str> {
    let mut taken = 0;
    while taken < bytes.len() {
        let rest = &bytes[taken..];
        match messages.next(rest)? {
            Piece::Prefix(count) => taken += count,
            Piece::Message(count) => {
                let offered = feed.offer(cx, &rest[..count]);
                messages.took(offered);
                taken += offered;
                if offered < count {
                    break;
                }
            }
        }
    }
    Ok(taken)
}

/// Takes memory for so much more of a body.
fn hold(
    call: &HttpCall,
    held: &mut Option<Held>,
    has: usize,
    more: usize,
) -> Result<(), OverBudget> {
    match held {
        Some(held) => held.grow(more),
        None if has + more <= SMALL_BODY_BYTES => Ok(()),
        None => {
            *held = Some(Held::take(&call.memory, has + more)?);
            Ok(())
        }
    }
}

impl Drop for ServiceTask {
    fn drop(&mut self) {
        self.call.lose_client();
        // A service that waits for the news gets it; then its work is dropped.
        self.work(&mut Context::from_waker(Waker::noop()));
    }
}

impl fmt::Debug for ServiceTask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServiceTask").field("stage", &self.stage).finish_non_exhaustive()
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Call").field("name", &self.name).finish_non_exhaustive()
    }
}
