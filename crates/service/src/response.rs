//! A response: exactly one answer, a channel before it, and the news that it is not wanted any more. Behind it is the
//! protocol that the request came by.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll};

use sekisho_lifecycle::{Cancel, RequestId};
use sekisho_native::Code;
use sekisho_native::server::{AcquireError, AnswerError, WriteError, Written};

use crate::limits::RequestPermit;
use crate::memory::{Held, OverBudget, SMALL_BODY_BYTES, SessionMemory};

/// After so many writes that did not have to wait, a producer lets others have their turn.
const WRITES_IN_A_ROW: u32 = 128;

/// Where responses go: the engine of a native session, or an exchange of HTTP. A session has one for all of its
/// requests, which are told apart by their numbers.
pub trait ResponseSink {
    /// The answer is a result.
    fn result(&self, id: RequestId, body: &[u8]) -> Result<(), AnswerError>;
    /// The answer is an error.
    fn error(&self, id: RequestId, code: Code, text: &str) -> Result<(), AnswerError>;
    /// Opens the request's channel.
    fn acquire_channel(&self, id: RequestId) -> Result<(), AcquireError>;
    /// Opens one more channel beside it; its number.
    fn add_channel(&self, id: RequestId) -> Result<u8, AcquireError> {
        let _ = id;
        Err(AcquireError::Unsupported)
    }
    /// Sends a record through one of the request's channels, of which the first is zero, if there is room for it. If
    /// not, the tasks that wait for the request are woken when it may be tried again.
    fn write(&self, id: RequestId, channel: u8, record: &[u8]) -> Result<Written, WriteError>;
    /// All records of this channel have been sent; for the first, those of all channels.
    fn release_channel(&self, id: RequestId, channel: u8);
    /// The longest record.
    fn record_bytes_max(&self) -> usize;
    /// Whether the client reads the channel.
    fn is_wanted(&self, id: RequestId, channel: u8) -> bool;
    /// Whether the request is cancelled.
    fn is_cancelled(&self, id: RequestId) -> bool;
    /// The flag that is raised when it is.
    fn cancel_flag(&self, id: RequestId) -> Cancel;
    /// The task is woken when something happens to the request.
    fn wait(&self, id: RequestId, cx: &Context<'_>);
    /// Whether a result of so many bytes may wait to leave.
    fn may_send(&self, bytes: usize) -> bool;
    /// What the session holds.
    fn memory(&self) -> &Rc<SessionMemory>;
    /// The last handle of the request is gone; if it has no answer, this is one.
    fn drop_handle(&self, id: RequestId);
}

/// The response. Clones are the same response; if the last one is dropped without an answer, the client gets
/// `UNKNOWN`.
#[derive(Clone)]
pub struct Response {
    call: Rc<Call>,
}

/// One request, held: by a response and its clones, or by its channel.
struct Call {
    sink: Rc<dyn ResponseSink>,
    id: RequestId,
    /// The memory of its body; a body that was taken out counts until the request is over.
    body: Cell<Option<Held>>,
    /// It counts as running for as long.
    _permit: RequestPermit,
}

impl Response {
    /// The response to a request, whose body is held so.
    pub fn new(sink: Rc<dyn ResponseSink>, id: RequestId, body: Option<Held>) -> Self {
        Self::counted(sink, id, body, RequestPermit::default())
    }

    /// The same for a request that is counted as running.
    pub fn counted(
        sink: Rc<dyn ResponseSink>,
        id: RequestId,
        body: Option<Held>,
        permit: RequestPermit,
    ) -> Self {
        Self { call: Rc::new(Call { sink, id, body: Cell::new(body), _permit: permit }) }
    }

    /// The body has come meanwhile, and is held so.
    pub fn hold_body(&self, body: Option<Held>) {
        self.call.body.set(body);
    }

    /// Takes memory for this request from the budget of the session and the endpoint, for as long as what is
    /// returned is there. Where there is none, the answer is `RESOURCE_LIMIT_REACHED`.
    pub fn hold(&self, bytes: usize) -> Result<Held, OverBudget> {
        Held::take(self.call.sink.memory(), bytes)
    }

    /// The one answer: a result. Where the client takes nothing and more results wait than the session may hold, it
    /// is `RESOURCE_LIMIT_REACHED` instead.
    pub fn body(&self, body: &[u8]) -> Result<(), AnswerError> {
        if body.len() > SMALL_BODY_BYTES && !self.call.sink.may_send(body.len()) {
            return self.error(Code::ResourceLimitReached, &OverBudget.to_string());
        }
        self.call.sink.result(self.call.id, body)
    }

    /// The one answer: an error.
    pub fn error(&self, code: Code, text: &str) -> Result<(), AnswerError> {
        self.call.sink.error(self.call.id, code, text)
    }

    /// The one answer: either. A result that is too long becomes an error.
    pub fn give(&self, answer: crate::Answer) {
        let given = match answer {
            Ok(body) => self.body(&body),
            Err((code, text)) => self.error(code, &text),
        };
        if let Err(error @ AnswerError::TooLarge) = given {
            // If there is an answer already, this changes nothing.
            let _ = self.error(Code::ResourceLimitReached, &error.to_string());
        }
    }

    /// Opens the request's channel.
    pub fn acquire_channel(&self) -> Result<Channel, AcquireError> {
        self.call.sink.acquire_channel(self.call.id)?;
        Ok(Channel { call: Rc::clone(&self.call), number: 0, in_a_row: Cell::new(0) })
    }

    /// Opens one more channel, while the first one is open. Clients tell them apart by their numbers; each has its own
    /// credit. Where the caller's protocol has one channel for each request, as HTTP and native 1.0 do, this is
    /// [`AcquireError::Unsupported`].
    pub fn add_channel(&self) -> Result<Channel, AcquireError> {
        let number = self.call.sink.add_channel(self.call.id)?;
        Ok(Channel { call: Rc::clone(&self.call), number, in_a_row: Cell::new(0) })
    }

    /// All records of this channel have been sent. With the first channel all the others end. An answer may only
    /// follow that.
    #[expect(clippy::needless_pass_by_value, reason = "a released channel cannot be written to")]
    pub fn release_channel(&self, channel: Channel) {
        channel.call.sink.release_channel(channel.call.id, channel.number);
    }

    /// Whether the request is cancelled. It still gives its one answer: what it has, or
    /// `OPERATION_CANCELLED`.
    pub fn is_cancelled(&self) -> bool {
        self.call.sink.is_cancelled(self.call.id)
    }

    /// Waits until the request is cancelled.
    pub fn cancelled(&self) -> impl Future<Output = ()> + use<'_> {
        std::future::poll_fn(|cx| {
            if self.is_cancelled() {
                return Poll::Ready(());
            }
            self.call.sink.wait(self.call.id, cx);
            Poll::Pending
        })
    }

    /// The flag for work on another thread.
    pub fn cancel_flag(&self) -> Cancel {
        self.call.sink.cancel_flag(self.call.id)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Response({})", self.call.id)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.sink.drop_handle(self.id);
        self.body.take();
    }
}

/// A stream of records to the client, ended by [`Response::release_channel`].
pub struct Channel {
    call: Rc<Call>,
    number: u8,
    /// Writes since the producer last waited.
    in_a_row: Cell<u32>,
}

impl Channel {
    /// Sends a record, when the client has room for it. Once the client has gone or wants no more, this is
    /// [`WriteError::Unwanted`]: the producer may stop, and the request gives its one answer as ever. A
    /// loop of writes lets other sessions have their turn from time to time, whatever the writes return.
    pub async fn write(&self, record: &[u8]) -> Result<(), WriteError> {
        std::future::poll_fn(|cx| self.poll_write(cx, record)).await
    }

    /// The same for futures written by hand.
    pub fn poll_write(&self, cx: &mut Context<'_>, record: &[u8]) -> Poll<Result<(), WriteError>> {
        if self.in_a_row.get() >= WRITES_IN_A_ROW {
            self.in_a_row.set(0);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Call { sink, id, .. } = &*self.call;
        match sink.write(*id, self.number, record) {
            Ok(Written::Full) => {
                self.in_a_row.set(0);
                sink.wait(*id, cx);
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
        self.call.sink.record_bytes_max()
    }

    /// Whether the client still reads.
    pub fn is_wanted(&self) -> bool {
        self.call.sink.is_wanted(self.call.id, self.number)
    }

    /// Which of the request's channels it is; the first is zero.
    pub const fn number(&self) -> u8 {
        self.number
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Channel({})", self.call.id)
    }
}
