//! The response of a service as an HTTP exchange takes it: records gather up to a bound, the answer waits behind them.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::task::{Context, Waker};

use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Cancel, RequestId};
use sekisho_service::{
    AcquireError, Answer, AnswerError, Code, ResponseSink, SessionMemory, WriteError, Written,
};

use super::form::Form;

/// So much may wait to leave before a producer waits.
const ROOM_BYTES: usize = 64 * 1024;
/// The longest record, and the longest result.
const RECORD_BYTES_MAX: usize = 1 << 20;
const RESULT_BYTES_MAX: usize = 16 << 20;

/// One call.
pub(super) struct HttpCall {
    pub(super) form: Form,
    pub(super) memory: Rc<SessionMemory>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    channel: Channel,
    /// What is to leave, framed.
    out: Vec<u8>,
    answer: Option<Answer>,
    is_answered: bool,
    /// The client has gone.
    is_lost: bool,
    cancel: Cancel,
    /// Tasks that wait for a change.
    waiters: Vec<Waker>,
    /// The connection.
    task: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Channel {
    #[default]
    None,
    Open,
    Released,
}

impl HttpCall {
    pub(super) fn new(form: Form, memory: Rc<SessionMemory>) -> Rc<Self> {
        Rc::new(Self { form, memory, state: RefCell::default() })
    }

    /// The connection's task is woken when the service has done something.
    pub(super) fn note_task(&self, cx: &Context<'_>) {
        let mut state = self.state.borrow_mut();
        if !state.task.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.task = Some(cx.waker().clone());
        }
    }

    /// Whether there is something to answer with, and if so, whether there is or was a channel.
    pub(super) fn has_begun(&self) -> Option<bool> {
        let state = self.state.borrow();
        let has_channel = state.channel != Channel::None;
        (has_channel || state.answer.is_some()).then_some(has_channel)
    }

    pub(super) fn take_answer(&self) -> Option<Answer> {
        self.state.borrow_mut().answer.take()
    }

    /// Moves what waits to leave; whether there was anything.
    pub(super) fn take_records(&self, to: &mut Vec<u8>) -> bool {
        let mut state = self.state.borrow_mut();
        if state.out.is_empty() {
            return false;
        }
        if to.is_empty() {
            std::mem::swap(to, &mut state.out);
        } else {
            to.append(&mut state.out);
        }
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
        true
    }

    /// What waits to leave, to be added to.
    pub(super) fn out(&self) -> RefMut<'_, Vec<u8>> {
        RefMut::map(self.state.borrow_mut(), |state| &mut state.out)
    }

    /// The call is over with this error, unless it has its answer.
    pub(super) fn fail(&self, code: Code, text: &str) {
        let _ = self.give(Err((code, text.to_owned())));
    }

    pub(super) fn cancel(&self, cause: Cause) {
        let mut state = self.state.borrow_mut();
        state.cancel.raise(cause);
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
    }

    pub(super) fn lose_client(&self) {
        let mut state = self.state.borrow_mut();
        state.is_lost = true;
        state.out = Vec::new();
        state.task = None;
        drop(state);
        self.cancel(Cause::ClientLost);
    }

    fn give(&self, answer: Answer) -> Result<(), AnswerError> {
        let mut state = self.state.borrow_mut();
        if std::mem::replace(&mut state.is_answered, true) {
            return Err(AnswerError::AnsweredAlready);
        }
        if state.channel == Channel::Open {
            // A producer that answers without releasing its channel has not sent all (L29).
            state.channel = Channel::Released;
        }
        state.answer = Some(answer);
        drop(state);
        self.wake_connection();
        Ok(())
    }

    fn wake_connection(&self) {
        let task = self.state.borrow().task.clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl ResponseSink for HttpCall {
    fn result(&self, _: RequestId, body: &[u8]) -> Result<(), AnswerError> {
        if body.len() > RESULT_BYTES_MAX {
            return Err(AnswerError::TooLarge);
        }
        self.give(Ok(body.to_vec()))
    }

    fn error(&self, _: RequestId, code: Code, text: &str) -> Result<(), AnswerError> {
        self.give(Err((code, text.to_owned())))
    }

    fn acquire_channel(&self, _: RequestId) -> Result<(), AcquireError> {
        let mut state = self.state.borrow_mut();
        if state.channel != Channel::None || state.is_answered {
            return Err(AcquireError::OutOfOrder);
        }
        state.channel = Channel::Open;
        drop(state);
        self.wake_connection();
        Ok(())
    }

    fn write(&self, _: RequestId, _: u8, record: &[u8]) -> Result<Written, WriteError> {
        let mut state = self.state.borrow_mut();
        if state.channel != Channel::Open || state.is_answered {
            return Err(WriteError::NotOpen);
        }
        if record.len() > RECORD_BYTES_MAX {
            return Err(WriteError::TooLarge);
        }
        if state.is_lost {
            return Err(WriteError::Unwanted);
        }
        // One record may always wait, however long it is.
        if !state.out.is_empty() && state.out.len() + record.len() > ROOM_BYTES {
            return Ok(Written::Full);
        }
        self.form.put_record(record, &mut state.out);
        drop(state);
        self.wake_connection();
        Ok(Written::Sent)
    }

    fn release_channel(&self, _: RequestId, _: u8) {
        let mut state = self.state.borrow_mut();
        if state.channel == Channel::Open {
            state.channel = Channel::Released;
        }
    }

    fn record_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX
    }

    fn is_wanted(&self, _: RequestId, _: u8) -> bool {
        let state = self.state.borrow();
        state.channel == Channel::Open && !state.is_lost
    }

    fn is_cancelled(&self, _: RequestId) -> bool {
        self.state.borrow().cancel.is_raised()
    }

    fn cancel_flag(&self, _: RequestId) -> Cancel {
        self.state.borrow().cancel.clone()
    }

    fn wait(&self, _: RequestId, cx: &Context<'_>) {
        let waiters = &mut self.state.borrow_mut().waiters;
        if !waiters.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiters.push(cx.waker().clone());
        }
    }

    fn may_send(&self, bytes: usize) -> bool {
        bytes <= RESULT_BYTES_MAX
    }

    fn memory(&self) -> &Rc<SessionMemory> {
        &self.memory
    }

    fn drop_handle(&self, _: RequestId) {
        // A service that goes without an answer has given this one (L32).
        let _ = self.give(Err((Code::Unknown, "the service gave no answer".to_owned())));
    }
}
