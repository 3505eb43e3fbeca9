//! A request that comes from within the process, as an engine with one request: its head and body are handed over as
//! they are, and so is what is answered. What the caller does not take holds the handler back.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use sekisho_http::refusal::Cause;
use sekisho_http::target::is_host;
use sekisho_http::{
    BodyLength, Head, Known, Policy, Refusal, Response, Scratch, Sends, Status, Version,
};
use sekisho_lifecycle::stay::RequestId;
use sekisho_lifecycle::{CloseReason, Stage, Step};

use sekisho_service::Caller;

use super::Event;
use super::parts::{Parts, encode_head, field};

/// The one request.
const ID: RequestId = RequestId(1);
/// The body is handed over in pieces of this size.
const PIECE_BYTES: usize = 16 * 1024;
/// So much of the answer may wait for the caller.
const ROOM_BYTES: u64 = 64 * 1024;

/// What the caller and the engine share.
#[derive(Debug, Default)]
pub(crate) struct InternalRequest {
    pub(crate) asked: AskedRequest,
    /// The status of the answer, until its head is taken; and the head as the caller gets it.
    pub(crate) status: Option<Status>,
    pub(crate) head: Vec<u8>,
    /// What has been answered, and how much of it was taken.
    pub(crate) out: Vec<u8>,
    pub(crate) taken: usize,
    /// The answer is over; whether it is complete.
    pub(crate) end: Option<bool>,
    /// The caller has gone.
    pub(crate) is_lost: bool,
    pub(crate) reader: Option<Waker>,
    /// Who makes it.
    pub(crate) caller: Option<Rc<Caller>>,
}

impl InternalRequest {
    /// Makes it ready for another request, with its storage.
    pub(crate) fn clear(&mut self) {
        let (mut head, mut out) = (std::mem::take(&mut self.head), std::mem::take(&mut self.out));
        head.clear();
        out.clear();
        *self = Self { head, out, ..Self::default() };
    }

    /// What its storage takes in memory.
    pub(crate) const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.head.capacity() + self.out.capacity()
    }
}

/// The request, as ranges of the message that it came in.
#[derive(Debug, Default)]
pub(crate) struct AskedRequest {
    pub(crate) raw: Vec<u8>,
    pub(crate) method: Range<usize>,
    pub(crate) target: Range<usize>,
    /// What of the body has not been taken.
    pub(crate) body: Range<usize>,
    pub(crate) has_host: bool,
}

impl AskedRequest {
    /// Its method: `GET` if it has none.
    pub(crate) fn method(&self) -> &[u8] {
        let method = &self.raw[self.method.clone()];
        if method.is_empty() { b"GET" } else { method }
    }

    /// Its target: `/` if it has none.
    pub(crate) fn target(&self) -> &[u8] {
        let target = &self.raw[self.target.clone()];
        if target.is_empty() { b"/" } else { target }
    }

    /// How long its body is.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.body.len() as u64
    }

    /// Its fields, with those that frame it.
    pub(crate) fn for_each_field(&self, mut take: impl FnMut(&[u8], &[u8])) {
        let mut fields = Parts::new(&self.raw, 0..self.raw.len());
        // It was read before.
        while let Ok(Some((tag, range))) = fields.next() {
            if tag == 3
                && let Some((name, value)) = field(&self.raw, range)
            {
                take(&self.raw[name], &self.raw[value]);
            }
        }
        if !self.has_host {
            take(b"Host", b"localhost");
        }
        if !self.body.is_empty() || matches!(self.method(), b"POST" | b"PUT") {
            take(b"Content-Length", self.body.len().to_string().as_bytes());
        }
    }
}

/// The engine.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub(crate) struct Internal {
    request: Rc<RefCell<InternalRequest>>,
    policy: Arc<Policy>,
    stage: Stage,
    body_bytes: u64,
    is_told: bool,
    is_loss_told: bool,
    is_body_wanted: bool,
    is_body_held: bool,
    is_body_end_told: bool,
    is_head: bool,
}

impl Internal {
    pub(super) fn new(request: Rc<RefCell<InternalRequest>>, policy: Arc<Policy>) -> Self {
        let (body_bytes, is_head) = {
            let request = request.borrow();
            (request.asked.body_bytes(), request.asked.method() == b"HEAD")
        };
        Self {
            request,
            policy,
            stage: Stage::Open,
            body_bytes,
            is_told: false,
            is_loss_told: false,
            is_body_wanted: false,
            is_body_held: false,
            is_body_end_told: false,
            is_head,
        }
    }

    pub(super) fn caller(&self) -> Option<Rc<Caller>> {
        self.request.borrow().caller.clone()
    }

    pub(super) fn has_lost_caller(&self) -> bool {
        self.request.borrow().is_lost
    }

    pub(super) const fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn has_work(&self) -> bool {
        let has_body = self.is_body_wanted && !self.is_body_held && !self.is_body_end_told;
        let is_lost = self.request.borrow().is_lost && !self.is_loss_told;
        matches!(self.stage, Stage::Open) && (!self.is_told || is_lost || has_body)
    }

    pub(super) fn receive(&mut self, scratch: &mut Scratch) -> Step<Event> {
        let step = |event| Step { taken: 0, event: Some(event) };
        if !self.has_work() {
            return Step::NOTHING;
        }
        let request = &mut *self.request.borrow_mut();
        if request.is_lost && !self.is_loss_told {
            self.is_loss_told = true;
            if !std::mem::replace(&mut self.is_told, true) {
                self.stage = Stage::Closed(CloseReason::PeerClosedEarly);
                return Step::NOTHING;
            }
            return step(Event::ClientLost(ID));
        }
        if !std::mem::replace(&mut self.is_told, true) {
            scratch.head.clear();
            scratch.head.begin(request.asked.method(), request.asked.target(), Version::Http11);
            request.asked.for_each_field(|name, value| scratch.head.push(name, value));
            return match fault(&scratch.head, &self.policy) {
                None => step(Event::Request(ID)),
                Some(cause) => step(Event::Refused(ID, cause.into())),
            };
        }
        let body = &mut request.asked.body;
        let piece = body.start..body.end.min(body.start + PIECE_BYTES);
        body.start = piece.end;
        if piece.is_empty() {
            self.is_body_end_told = true;
            return step(Event::BodyEnd(ID));
        }
        step(Event::Stored(ID, Bytes::copy_from_slice(&request.asked.raw[piece])))
    }

    pub(super) fn refuse(&mut self) -> Event {
        self.is_told = true;
        Event::Refused(ID, Cause::TooManyConnections.into())
    }

    pub(super) const fn request_body(&self) -> (bool, Option<u64>) {
        (self.body_bytes > 0, Some(self.body_bytes))
    }

    pub(super) fn take_body(&mut self, max: Option<u64>) -> Result<(), Refusal> {
        if max.is_some_and(|max| self.body_bytes > max) {
            self.request.borrow_mut().asked.body = 0..0;
            return Err(Cause::BodyTooLarge.into());
        }
        self.is_body_wanted = true;
        Ok(())
    }

    pub(super) const fn hold_body(&mut self, is_held: bool) {
        self.is_body_held = is_held;
    }

    pub(super) fn respond(&self, response: &Response<'_>) -> Sends {
        let (sends, length) = match response.length {
            _ if response.status.is_bodyless() => (Sends::Nothing, None),
            BodyLength::Empty | BodyLength::Known(0) => (Sends::Nothing, Some(0)),
            BodyLength::Known(length) if self.is_head => (Sends::Nothing, Some(length)),
            BodyLength::Known(length) => (Sends::Exactly(length), Some(length)),
            BodyLength::Unknown if self.is_head => (Sends::Nothing, None),
            BodyLength::Unknown => (Sends::Stream, None),
        };
        let status = u32::from(response.status.code());
        self.change(|request| {
            request.head.clear();
            encode_head(status, response.fields, length, &mut request.head);
            request.status = Some(response.status);
        });
        sends
    }

    pub(super) fn body_allowance(&self) -> u64 {
        let request = self.request.borrow();
        ROOM_BYTES.saturating_sub((request.out.len() - request.taken) as u64)
    }

    pub(super) fn body(&self, bytes: &[u8]) {
        if !self.is_head {
            self.change(|request| request.out.extend_from_slice(bytes));
        }
    }

    pub(super) fn finish(&mut self) {
        self.end(true, CloseReason::ClientAsked);
    }

    pub(super) fn abort(&mut self, reason: CloseReason) {
        self.end(false, reason);
    }

    fn end(&mut self, is_complete: bool, reason: CloseReason) {
        if let Stage::Open = self.stage {
            self.stage = Stage::Closed(reason);
            self.change(|request| request.end = Some(is_complete));
        }
    }

    fn change(&self, change: impl FnOnce(&mut InternalRequest)) {
        let mut request = self.request.borrow_mut();
        change(&mut request);
        let reader = request.reader.take();
        drop(request);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// What a parser would refuse: method, target, names and values are in order, or there would be no request.
fn fault(head: &Head, policy: &Policy) -> Option<Cause> {
    let line = head.method_name().len() + head.target().len() + " HTTP/1.1 \r\n".len();
    if line > policy.line_bytes_max {
        return Some(Cause::LineTooLong);
    }
    let (mut count, mut bytes) = (0, line);
    for (name, value) in head.fields() {
        let field = name.len() + value.len() + ": \r\n".len();
        if field > policy.field_bytes_max {
            return Some(Cause::FieldTooLong);
        }
        (count, bytes) = (count + 1, bytes + field);
    }
    if bytes > policy.head_bytes_max {
        return Some(Cause::HeadTooLarge);
    }
    if count > policy.fields_max {
        return Some(Cause::TooManyFields);
    }
    let mut hosts = head.all_known(Known::Host);
    match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => Some(Cause::HostRepeated),
        (Some(host), None) if !is_host(host) => Some(Cause::HostInvalid),
        _ => head.repeats_single_field().then_some(Cause::FieldRepeated),
    }
}

impl Drop for Internal {
    fn drop(&mut self) {
        // A turn that panicked, or a worker that ends.
        self.end(false, CloseReason::Panicked);
    }
}
