//! A call that a service of another thread answers: the request goes there, records and the answer come back, as much
//! at a time as there is room for, and cancel goes after the request. What a service cannot do on the thread of its
//! caller is forwarded so.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use sekisho_lifecycle::{Budget, Cancel, Cause, RequestId};
use sekisho_service::{
    AcquireError, Answer, AnswerError, Caller, Code, Request, Response, ResponseSink, Services,
    SessionMemory, Work, WriteError, Written,
};

use crate::working::beside;

/// So much may wait between the threads.
const ROOM_BYTES: usize = 64 * 1024;
/// The longest record.
const RECORD_BYTES_MAX: usize = 64 * 1024;

/// A call on its way to another thread.
pub struct RemoteCall {
    caller: Caller,
    id: RequestId,
    service: u32,
    body: Vec<u8>,
    pipe: Arc<Pipe>,
    /// A service has the request, and gives its one answer.
    is_served: bool,
}

/// What goes back.
#[derive(Default)]
struct Pipe {
    state: Mutex<State>,
    cancel: Cancel,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
struct State {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
    has_channel: bool,
    is_released: bool,
    answer: Option<Answer>,
    is_answered: bool,
    /// The caller wants no more records.
    is_unwanted: bool,
    reader: Option<Waker>,
    waiters: Vec<Waker>,
}

/// What has come back.
enum Part {
    Record(Vec<u8>),
    /// There is a channel, though it has no records yet.
    Channel,
    Answer(Answer),
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Consistent after every step, also if the other thread panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_part(&self, cx: &Context<'_>, knows_channel: bool) -> Poll<Part> {
        let mut state = self.lock();
        if state.has_channel && !knows_channel {
            return Poll::Ready(Part::Channel);
        }
        if let Some(record) = state.records.pop_front() {
            state.bytes -= record.len();
            let waiters = std::mem::take(&mut state.waiters);
            drop(state);
            waiters.into_iter().for_each(Waker::wake);
            return Poll::Ready(Part::Record(record));
        }
        if let Some(answer) = state.answer.take() {
            return Poll::Ready(Part::Answer(answer));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The service is to look again, for one of these reasons.
    fn tell(&self, is_unwanted: bool, cancelled: Option<Cause>) {
        if let Some(cause) = cancelled {
            self.cancel.raise(cause);
        }
        let mut state = self.lock();
        state.is_unwanted |= is_unwanted;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        changed
    }

    fn give(&self, answer: Answer) -> Result<(), AnswerError> {
        self.change(|state| {
            if std::mem::replace(&mut state.is_answered, true) {
                return Err(AnswerError::AnsweredAlready);
            }
            state.answer = Some(answer);
            Ok(())
        })
    }
}

/// What comes back of a call, for a caller that is no session. Dropped, it says that the caller is gone.
pub struct Returned {
    pipe: Arc<Pipe>,
    knows_channel: bool,
}

impl Returned {
    /// The next record, or the answer.
    pub async fn next(&mut self) -> Result<Vec<u8>, Answer> {
        loop {
            let knows_channel = self.knows_channel;
            match std::future::poll_fn(|cx| self.pipe.poll_part(cx, knows_channel)).await {
                Part::Channel => self.knows_channel = true,
                Part::Record(record) => return Ok(record),
                Part::Answer(answer) => return Err(answer),
            }
        }
    }

    /// The answer; records are skipped.
    pub async fn answer(&mut self) -> Answer {
        loop {
            if let Err(answer) = self.next().await {
                return answer;
            }
        }
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        self.pipe.tell(true, Some(Cause::ClientLost));
    }
}

impl fmt::Debug for Returned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Returned").finish_non_exhaustive()
    }
}

/// Has a request answered elsewhere: `send` hands the call over, and says whether there is a thread for it.
pub fn forward(
    request: Request,
    response: Response,
    send: impl FnOnce(RemoteCall) -> bool + 'static,
) -> Work {
    Work::later(async move {
        let (caller, id, service) = (request.caller().clone(), request.id(), request.service());
        let (mut call, returned) = RemoteCall::new(caller, service, request.into_body());
        call.id = id;
        if !send(call) {
            let _ = response.error(Code::ServiceUnavailable, "the server is about to end");
            return;
        }
        take_back(&returned.pipe, &response).await;
    })
}

async fn take_back(pipe: &Pipe, response: &Response) {
    let mut channel = None;
    let mut is_told = false;
    loop {
        let part = std::future::poll_fn(|cx| pipe.poll_part(cx, channel.is_some()));
        let part = tokio::select! {
            part = part => part,
            () = response.cancelled(), if !is_told => {
                is_told = true;
                pipe.tell(false, Some(response.cancel_flag().cause().unwrap_or(Cause::ClientAsked)));
                continue;
            }
        };
        match part {
            Part::Channel => match response.acquire_channel() {
                Ok(acquired) => channel = Some(acquired),
                Err(error) => {
                    let _ = response.error(Code::ResourceLimitReached, &error.to_string());
                    return;
                }
            },
            Part::Record(record) => {
                if let Some(channel) = &channel
                    && channel.write(&record).await.is_err()
                {
                    pipe.tell(true, None);
                }
            }
            Part::Answer(answer) => {
                if let Some(channel) = channel.take() {
                    response.release_channel(channel);
                }
                response.give(answer);
                return;
            }
        }
    }
}

impl RemoteCall {
    /// A call, and what comes back of it.
    pub fn new(caller: Caller, service: u32, body: Vec<u8>) -> (Self, Returned) {
        let pipe = Arc::<Pipe>::default();
        let returned = Returned { pipe: Arc::clone(&pipe), knows_channel: false };
        let id = RequestId(0);
        (Self { caller, id, service, body, pipe, is_served: false }, returned)
    }

    /// Has one of these services answer it, on this thread.
    pub async fn serve(mut self, services: &Services) {
        let (id, service) = (self.id, self.service);
        let Some(found) = services.find(service) else {
            let text = format!("there is no service {service}");
            let _ = self.pipe.give(Err((Code::ServiceNotFound, text)));
            return;
        };
        let memory = SessionMemory::new(&Budget::new(usize::MAX), usize::MAX);
        let sink = Rc::new(RemoteSink { pipe: Arc::clone(&self.pipe), memory });
        let caller = Rc::new(self.caller.clone());
        let request = Request::new(&caller, id, service, std::mem::take(&mut self.body));
        let response = Response::new(sink, id, None);
        self.is_served = true;
        if let Some(work) = found.call(request, response).into_future(beside) {
            work.await;
        }
    }
}

impl Drop for RemoteCall {
    fn drop(&mut self) {
        // An answer that was given stays.
        if !self.is_served {
            let text = "the server is about to end".to_owned();
            let _ = self.pipe.give(Err((Code::ServiceUnavailable, text)));
        }
    }
}

impl fmt::Debug for RemoteCall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RemoteCall({}, {})", self.service, self.id)
    }
}

/// The response on the far side.
struct RemoteSink {
    pipe: Arc<Pipe>,
    /// The request is counted where it came in.
    memory: Rc<SessionMemory>,
}

impl ResponseSink for RemoteSink {
    fn result(&self, _: RequestId, body: &[u8]) -> Result<(), AnswerError> {
        self.pipe.give(Ok(body.to_vec()))
    }

    fn error(&self, _: RequestId, code: Code, text: &str) -> Result<(), AnswerError> {
        self.pipe.give(Err((code, text.to_owned())))
    }

    fn acquire_channel(&self, _: RequestId) -> Result<(), AcquireError> {
        self.pipe.change(|state| {
            if state.has_channel || state.is_answered {
                return Err(AcquireError::OutOfOrder);
            }
            state.has_channel = true;
            Ok(())
        })
    }

    fn write(&self, _: RequestId, _: u8, record: &[u8]) -> Result<Written, WriteError> {
        self.pipe.change(|state| {
            if !state.has_channel || state.is_released || state.is_answered {
                return Err(WriteError::NotOpen);
            }
            if record.len() > RECORD_BYTES_MAX {
                return Err(WriteError::TooLarge);
            }
            if state.is_unwanted {
                return Err(WriteError::Unwanted);
            }
            if state.bytes > 0 && state.bytes + record.len() > ROOM_BYTES {
                return Ok(Written::Full);
            }
            state.bytes += record.len();
            state.records.push_back(record.to_vec());
            Ok(Written::Sent)
        })
    }

    fn release_channel(&self, _: RequestId, _: u8) {
        self.pipe.change(|state| state.is_released = true);
    }

    fn record_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX
    }

    fn is_wanted(&self, _: RequestId, _: u8) -> bool {
        let state = self.pipe.lock();
        state.has_channel && !state.is_released && !state.is_unwanted
    }

    fn is_cancelled(&self, _: RequestId) -> bool {
        self.pipe.cancel.is_raised()
    }

    fn cancel_flag(&self, _: RequestId) -> Cancel {
        self.pipe.cancel.clone()
    }

    fn wait(&self, _: RequestId, cx: &Context<'_>) {
        let mut state = self.pipe.lock();
        if !state.waiters.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiters.push(cx.waker().clone());
        }
    }

    fn may_send(&self, _: usize) -> bool {
        true
    }

    fn memory(&self) -> &Rc<SessionMemory> {
        &self.memory
    }

    fn drop_handle(&self, _: RequestId) {
        let _ = self.pipe.give(Err((Code::Unknown, "the service gave no answer".to_owned())));
    }
}
