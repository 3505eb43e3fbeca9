//! What a service is and what it works with (E1): a request, and a response through which it gives its one
//! answer, opens a channel and sees that it is cancelled. It does not know the transport.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use sekisho_lifecycle::{Cancel, RequestId};
use sekisho_native::Code;
use sekisho_native::server::{AcquireError, AnswerError, WriteError, Written};

use crate::memory::{Held, OverBudget, SMALL_BODY_BYTES};
use crate::session::Session;

/// After so many writes that did not have to wait, a producer lets others have their turn.
const WRITES_IN_A_ROW: u32 = 128;

/// Answers requests. A service lives on its endpoint's thread; what would hold that thread up is
/// [`Work::Blocking`], or done elsewhere and awaited here.
pub trait Service {
    /// Takes a request. The answer is given through `response`, now, by the work that is returned, or by
    /// another holder of the response; exactly one is given in any case (L32).
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work;
}

/// What is left to do after a call.
pub enum Work {
    /// Nothing.
    Done,
    /// This: the session polls it.
    Later(Pin<Box<dyn Future<Output = ()>>>),
    /// This, on a thread of the runtime's pool: it may block or compute, and what it returns is the answer.
    Blocking(Response, BlockingWork),
}

/// Work for a thread of the pool. It looks at the flag from time to time: a raised one wants it to end.
pub type BlockingWork = Box<dyn FnOnce(&Cancel) -> Answer + Send>;

/// An answer: a result, or an error with its text.
pub type Answer = Result<Vec<u8>, (Code, String)>;

impl Work {
    /// Work that takes time.
    pub fn later(work: impl Future<Output = ()> + 'static) -> Self {
        Self::Later(Box::pin(work))
    }

    /// Work that blocks or computes for more than a fraction of a millisecond.
    pub fn blocking(
        response: Response,
        work: impl FnOnce(&Cancel) -> Answer + Send + 'static,
    ) -> Self {
        Self::Blocking(response, Box::new(work))
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Done => "Done",
            Self::Later(_) => "Later",
            Self::Blocking(..) => "Blocking",
        })
    }
}

/// A service made of an async closure.
pub fn service_fn<F, W>(serve: F) -> Rc<dyn Service>
where
    F: Fn(Request, Response) -> W + 'static,
    W: Future<Output = ()> + 'static,
{
    struct Closure<F>(F);
    impl<F, W> Service for Closure<F>
    where
        F: Fn(Request, Response) -> W + 'static,
        W: Future<Output = ()> + 'static,
    {
        fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
            Work::later((self.0)(request, response))
        }
    }
    Rc::new(Closure(serve))
}

/// The services of an endpoint, by number and by name.
#[derive(Default, Clone)]
pub struct Services {
    by_number: BTreeMap<u32, (Rc<str>, Rc<dyn Service>)>,
}

/// Two services cannot have one number or one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DuplicateService {
    /// The number that was to be given.
    pub number: u32,
    /// The name that was to be given.
    pub name: String,
}

impl Services {
    /// Adds a service under a number, which clients use, and a name, for operators.
    pub fn add(
        &mut self,
        number: u32,
        name: &str,
        service: Rc<dyn Service>,
    ) -> Result<(), DuplicateService> {
        if self.by_number.contains_key(&number) || self.number(name).is_some() {
            return Err(DuplicateService { number, name: name.to_owned() });
        }
        self.by_number.insert(number, (name.into(), service));
        Ok(())
    }

    /// The number of the service with this name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.by_number.iter().find(|(_, (other, _))| **other == *name).map(|(number, _)| *number)
    }

    /// The name of the service with this number.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.by_number.get(&number).map(|(name, _)| &**name)
    }

    pub(crate) fn find(&self, number: u32) -> Option<Rc<dyn Service>> {
        self.by_number.get(&number).map(|(_, service)| Rc::clone(service))
    }
}

/// A request message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub(crate) session: u64,
    pub(crate) id: RequestId,
    pub(crate) service: u32,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The bytes that the client sent; the service defines their meaning.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The same, to keep.
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// The session it came in.
    pub const fn session(&self) -> u64 {
        self.session
    }

    /// Its number in that session.
    pub const fn id(&self) -> RequestId {
        self.id
    }

    /// The number by which the service was called.
    pub const fn service(&self) -> u32 {
        self.service
    }
}

/// The response. Clones are the same response; if the last one is dropped without an answer, the client gets
/// `UNKNOWN` (L32).
#[derive(Clone)]
pub struct Response {
    call: Rc<Hold>,
}

/// One request, held: by a response and its clones, or by its channel.
struct Hold {
    session: Rc<Session>,
    id: RequestId,
    /// The memory of its body; a body that was taken out counts until the request is over.
    _body: Option<Held>,
}

impl Response {
    pub(crate) fn new(session: Rc<Session>, id: RequestId, body: Option<Held>) -> Self {
        Self { call: Rc::new(Hold { session, id, _body: body }) }
    }

    /// Takes memory for this request from the budget of the session and the endpoint, for as long as what is
    /// returned is there. Where there is none, the answer is `RESOURCE_LIMIT_REACHED` (E4).
    pub fn hold(&self, bytes: usize) -> Result<Held, OverBudget> {
        Held::take(&self.call.session, bytes)
    }

    /// The one answer: a result. Where the client takes nothing and more results wait than the session may hold, it
    /// is `RESOURCE_LIMIT_REACHED` instead (E4).
    pub fn body(&self, body: &[u8]) -> Result<(), AnswerError> {
        let id = self.call.id;
        if body.len() > SMALL_BODY_BYTES && !self.call.session.may_send(body.len()) {
            return self.error(Code::ResourceLimitReached, &OverBudget.to_string());
        }
        self.call.session.command(|engine, scratch, now| engine.result(id, body, scratch, now))
    }

    /// The one answer: an error.
    pub fn error(&self, code: Code, text: &str) -> Result<(), AnswerError> {
        let id = self.call.id;
        self.call.session.command(|engine, scratch, now| engine.error(id, code, text, scratch, now))
    }

    /// Opens the request's channel.
    pub fn acquire_channel(&self) -> Result<Channel, AcquireError> {
        let id = self.call.id;
        self.call
            .session
            .command(|engine, scratch, now| engine.acquire_channel(id, scratch, now))
            .map(|()| Channel { call: Rc::clone(&self.call), in_a_row: Cell::new(0) })
    }

    /// All records have been sent. An answer may only follow this (L29).
    #[expect(clippy::needless_pass_by_value, reason = "a released channel cannot be written to")]
    pub fn release_channel(&self, channel: Channel) {
        channel.call.session.command(|engine, scratch, now| {
            engine.release_channel(channel.call.id, scratch, now);
        });
    }

    /// Whether the request is cancelled. It still gives its one answer: what it has, or
    /// `OPERATION_CANCELLED` (L31).
    pub fn is_cancelled(&self) -> bool {
        self.call.session.is_cancelled(self.call.id)
    }

    /// Waits until the request is cancelled.
    pub fn cancelled(&self) -> impl Future<Output = ()> + use<'_> {
        std::future::poll_fn(|cx| {
            if self.is_cancelled() {
                return Poll::Ready(());
            }
            self.call.session.wait(self.call.id, cx);
            Poll::Pending
        })
    }

    /// The flag for work on another thread.
    pub fn cancel_flag(&self) -> Cancel {
        self.call.session.flag(self.call.id)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Response({})", self.call.id)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.session.drop_handle(self.id);
    }
}

/// A stream of records to the client, ended by [`Response::release_channel`].
pub struct Channel {
    call: Rc<Hold>,
    /// Writes since the producer last waited.
    in_a_row: Cell<u32>,
}

impl Channel {
    /// Sends a record, when the client has room for it. Once the client has gone or wants no more, this is
    /// [`WriteError::Unwanted`]: the producer may stop, and the request gives its one answer as ever (L28). A
    /// loop of writes lets other sessions have their turn from time to time, whatever the writes return.
    pub async fn write(&self, record: &[u8]) -> Result<(), WriteError> {
        std::future::poll_fn(|cx| self.poll_write(cx, record)).await
    }

    /// The same for futures written by hand.
    pub fn poll_write(&self, cx: &mut Context<'_>, record: &[u8]) -> Poll<Result<(), WriteError>> {
        let id = self.call.id;
        if self.in_a_row.get() >= WRITES_IN_A_ROW {
            self.in_a_row.set(0);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let session = &self.call.session;
        match session.command(|engine, scratch, now| engine.write(id, record, scratch, now)) {
            Ok(Written::Full) => {
                self.in_a_row.set(0);
                session.wait(id, cx);
                Poll::Pending
            }
            written => {
                self.in_a_row.update(|count| count + 1);
                Poll::Ready(written.map(|_| ()))
            }
        }
    }

    /// The longest record.
    pub fn record_bytes_max(&self) -> usize {
        self.call.session.state.borrow().engine.agreed().record_bytes_max() as usize
    }

    /// Whether the client still reads.
    pub fn is_wanted(&self) -> bool {
        self.call.session.is_wanted(self.call.id)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Channel({})", self.call.id)
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map()
            .entries(self.by_number.iter().map(|(number, (name, _))| (number, name)))
            .finish()
    }
}

impl fmt::Display for DuplicateService {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a service with the number {} or the name {} exists", self.number, self.name)
    }
}

impl std::error::Error for DuplicateService {}
