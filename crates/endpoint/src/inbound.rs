//! Which calls may be made, and bodies that come after their requests: handed on part by part to services that take them so, gathered for the
//! others. What a service takes is the client's credit; what a session holds of it is counted.

use std::rc::Rc;

use sekisho_lifecycle::{Moment, RequestId};
use sekisho_native::event::With;
use sekisho_service::{
    BodyFeed, Caller, Code, Held, OverBudget, RequestPermit, Response, SMALL_BODY_BYTES, Service,
    body_stream,
};

use crate::connection::Connection;
use crate::control;
use crate::session::State;
use crate::stream::Stream;

/// What a part that waits for its service takes beside its bytes: its place, its allocation, its share of the budget.
const PART_BYTES: usize = 128;

/// A body that is on its way.
pub(crate) enum Inbound {
    /// Its service takes it as it comes. The first piece came with the request and has no credit to give back.
    Streamed { feed: BodyFeed, has_first: bool },
    /// Its service is called when all of it is there.
    Gathered(Box<Gathered>),
}

/// A call that is made when its body is there.
pub(crate) struct Gathered {
    call: AdmittedCall,
    deadline: Option<Moment>,
    body: Vec<u8>,
    held: Option<Held>,
}

/// A call that its caller may make.
pub(crate) struct AdmittedCall {
    pub(crate) id: RequestId,
    pub(crate) number: u32,
    pub(crate) service: Rc<dyn Service>,
    pub(crate) caller: Rc<Caller>,
    pub(crate) response: Response,
}

impl<S: Stream> Connection<S> {
    /// Finds the service that a request is for, and whether its caller may use it now. If not, the request has its
    /// answer.
    pub(crate) fn admit_call(
        &self,
        id: RequestId,
        number: u32,
        held: Option<Held>,
    ) -> Option<AdmittedCall> {
        self.endpoint.count(|counters| counters.requests += 1);
        self.session.requests.update(|count| count + 1);
        let Some((name, service)) = self.endpoint.services.find_named(number) else {
            let text = format!("there is no service {number}");
            let response = self.response(id, held, RequestPermit::default());
            // A request that has just come in has no answer yet.
            let _ = response.error(Code::ServiceNotFound, &text);
            return None;
        };
        let (caller, counter) = self.session.caller();
        if number != control::NUMBER && self.session.is_control_only() {
            let text = format!("service \"{name}\" is not permitted to {}", caller.identity);
            self.deny(id, &caller, name, Code::PermissionError, &text);
            return None;
        }
        match self.endpoint.config.access.admit(name, &caller, &counter) {
            Ok(permit) => {
                let response = self.response(id, held, permit);
                Some(AdmittedCall { id, number, service, caller, response })
            }
            Err((code, text)) => {
                self.deny(id, &caller, name, code, &text);
                None
            }
        }
    }

    /// Calls a service by its name or number, with what the client said about the request.
    pub(crate) fn start_with(
        &mut self,
        id: RequestId,
        service: u32,
        with: &With,
        body: Vec<u8>,
        held: Option<Held>,
    ) {
        let service = if with.service.is_empty() {
            service
        } else {
            let Some(number) = self.endpoint.services.number(&with.service) else {
                let text = format!("there is no service {}", with.service);
                // A request that has just come in has no answer yet.
                let response = self.response(id, None, RequestPermit::default());
                let _ = response.error(Code::ServiceNotFound, &text);
                return;
            };
            self.session.state.borrow_mut().engine.set_service(id, number);
            number
        };
        let Some(call) = self.admit_call(id, service, held) else { return };
        if !with.body_follows {
            return self.start(call, with.deadline, body, None);
        }
        if call.service.takes_stream() {
            let (feed, stream) = body_stream();
            let has_first = !body.is_empty();
            if has_first {
                feed.push(None, body, None);
            }
            self.inbound.insert(id, Inbound::Streamed { feed, has_first });
            return self.start(call, with.deadline, Vec::new(), Some(stream));
        }
        let gathered = Gathered { call, deadline: with.deadline, body, held: None };
        self.inbound.insert(id, Inbound::Gathered(Box::new(gathered)));
    }

    /// A part of a body has come: it is in `self.body`.
    pub(crate) fn take_part(&mut self, id: RequestId) {
        let (part, held) = (std::mem::take(&mut self.body), self.body_held.take());
        let is_over = std::mem::take(&mut self.is_body_over);
        let bytes_max = self.session.state.borrow().engine.agreed().frame_bytes_max as usize;
        let bytes = part.len();
        let is_taken = match self.inbound.get_mut(&id) {
            _ if is_over => false,
            // The service is done with it.
            None => return,
            Some(Inbound::Streamed { feed, .. }) => {
                // However small a part is, it waits until the service takes it, and there may be many of them.
                let counted = || Held::take(&self.session.memory, bytes + PART_BYTES);
                if let Ok(held) = held.map_or_else(counted, Ok) {
                    feed.push(self.session.state.borrow().waker.as_ref(), part, Some(held));
                    return;
                }
                false
            }
            Some(Inbound::Gathered(gathered)) => {
                drop(held);
                let memory = &self.session.memory;
                let all = gathered.body.len() + bytes;
                let has_memory = match &mut gathered.held {
                    Some(held) => held.grow(bytes),
                    None if all <= SMALL_BODY_BYTES => Ok(()),
                    None => Held::take(memory, all).map(|held| gathered.held = Some(held)),
                };
                let fits = all <= bytes_max && has_memory.is_ok();
                if fits {
                    gathered.body.extend_from_slice(&part);
                }
                fits
            }
        };
        if is_taken {
            let State { engine, scratch, now, .. } = &mut *self.session.state.borrow_mut();
            engine.body_taken(id, bytes, scratch, *now);
            return;
        }
        self.endpoint.count(|counters| counters.refused += 1);
        let inbound = self.inbound.remove(&id);
        let text = OverBudget.to_string();
        self.session.command(|engine, scratch, now| {
            // Where the service was quicker, its answer stands.
            let _ = engine.error(id, Code::ResourceLimitReached, &text, scratch, now);
        });
        drop(inbound);
    }

    /// A body is complete.
    pub(crate) fn end_body(&mut self, id: RequestId) {
        match self.inbound.remove(&id) {
            Some(Inbound::Streamed { feed, .. }) => feed.end(),
            Some(Inbound::Gathered(gathered)) => {
                let Gathered { call, deadline, body, held } = *gathered;
                call.response.hold_body(held);
                self.start(call, deadline, body, None);
            }
            None => {}
        }
    }

    /// The request was cancelled: the rest of its body will not come.
    pub(crate) fn cut_body(&mut self, id: RequestId, now: Moment) {
        let Some(inbound) = self.inbound.remove(&id) else { return };
        {
            let State { engine, scratch, .. } = &mut *self.session.state.borrow_mut();
            engine.stop_body(id, scratch, now);
        }
        if let Inbound::Gathered(gathered) = inbound {
            let text = "the request was cancelled before its body had come";
            // Its deadline may have answered it.
            let _ = gathered.call.response.error(Code::OperationCancelled, text);
        }
    }

    /// Tells the engine what services have taken of their bodies.
    pub(crate) fn note_bodies(&mut self, now: Moment) {
        if self.inbound.is_empty() {
            return;
        }
        let session = Rc::clone(&self.session);
        let State { engine, scratch, .. } = &mut *session.state.borrow_mut();
        self.inbound.retain(|id, inbound| {
            let Inbound::Streamed { feed, has_first } = inbound else {
                engine.await_body(*id, true, now);
                return true;
            };
            for bytes in feed.taken() {
                if !std::mem::take(has_first) {
                    engine.body_taken(*id, bytes, scratch, now);
                }
            }
            engine.await_body(*id, feed.is_awaited(), now);
            if feed.is_unwanted() {
                engine.stop_body(*id, scratch, now);
            }
            !feed.is_unwanted()
        });
    }
}
