//! A request of a native session to the HTTP handlers of its own worker: a connection without a transport, which is
//! served as any other one, so that limits, logs, deadlines and the live view hold for it. Where the answer is in
//! memory, it is there when the request has been made.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use sekisho_config::ListenAddress;
use sekisho_http::Status;
use sekisho_service::Caller;

use crate::connection::Connection;
use crate::protocol::{AskedRequest, InternalRequest, Protocol, ProtocolKind};
use crate::session::Token;
use crate::transport::{Stream, Within};
use crate::worker::{ListenerContext, Worker};

/// What was taken of a body is removed when it is so much, though more of it waits.
const LEFT_BYTES: usize = 64 * 1024;
/// So many requests are kept for others, with storage of at most so many bytes each.
const KEPT: usize = 8;
const KEPT_BYTES: usize = 8 * 1024;

/// Requests that are over, for others.
#[derive(Debug, Default)]
pub(crate) struct SpareRequests(RefCell<Vec<Rc<RefCell<InternalRequest>>>>);

impl SpareRequests {
    fn take(&self) -> Rc<RefCell<InternalRequest>> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    fn keep(&self, request: &Rc<RefCell<InternalRequest>>) {
        let mut kept = self.0.borrow_mut();
        if Rc::strong_count(request) > 1 || kept.len() >= KEPT {
            return;
        }
        let mut free = request.borrow_mut();
        free.clear();
        if free.memory_bytes() <= KEPT_BYTES {
            drop(free);
            kept.push(Rc::clone(request));
        }
    }
}

/// A request under way; dropping it is a lost client.
#[derive(Debug)]
pub(crate) struct Visit {
    request: Rc<RefCell<InternalRequest>>,
    worker: Rc<Worker>,
    token: Token,
}

/// What has come of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Its head, all of it as the caller gets it.
    Head(Status),
    /// A piece of its body.
    Body,
    /// The answer is over; whether it is complete.
    End(bool),
}

impl Worker {
    /// Makes a request at this listener, on behalf of a session whose client has this address.
    pub(crate) fn visit(
        self: &Rc<Self>,
        asked: AskedRequest,
        caller: &Rc<Caller>,
        remote: Option<SocketAddr>,
        listener_context: &Rc<ListenerContext>,
    ) -> Visit {
        let local = match listener_context.address {
            ListenAddress::Tcp(address) if !address.ip().is_unspecified() => Some(address.ip()),
            _ => None,
        };
        let stream = Stream::Within(Within);
        let context = Rc::clone(listener_context);
        let mut connection = Connection::new(Rc::clone(self), context, stream, remote, local);
        let request = self.native.spare_requests.take();
        {
            let request = &mut *request.borrow_mut();
            request.asked = asked;
            request.caller = Some(Rc::clone(caller));
        }
        let bound_site = listener_context.bound_site();
        let policies = bound_site.site.first_policy(bound_site.listen(local));
        connection.link.protocol = Protocol::internal(policies, &request);
        connection.flags.is_undecided = false;
        connection.flags.is_fresh = true;
        connection.link.parts().1.since = connection.active;
        connection.came_from_within(caller.session);
        let token = self.sessions.borrow().token(connection.link.key);
        self.shared.counters.accepted.count(ProtocolKind::Internal);
        self.begin_visit(connection, token);
        Visit { request, worker: Rc::clone(self), token }
    }
}

impl Visit {
    /// What comes next, and all that there is of it. [`Self::took`] says how much of that is done with.
    pub(crate) fn poll_part<R>(
        &self,
        cx: &mut Context<'_>,
        look: impl FnOnce(&mut Context<'_>, Part, &[u8]) -> Poll<R>,
    ) -> Poll<R> {
        let mut request = self.request.borrow_mut();
        if let Some(status) = request.status {
            return look(cx, Part::Head(status), &request.head);
        }
        if request.taken < request.out.len() {
            return look(cx, Part::Body, &request.out[request.taken..]);
        }
        if let Some(is_complete) = request.end {
            return look(cx, Part::End(is_complete), &[]);
        }
        request.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The head was taken, or so much of the body. Where nothing is left of it, there is room for more.
    pub(crate) fn took(&self, part: Part, bytes: usize) {
        let mut request = self.request.borrow_mut();
        if part != Part::Body {
            request.status = None;
            return;
        }
        request.taken += bytes;
        if request.taken < request.out.len() {
            if request.taken >= LEFT_BYTES {
                let taken = std::mem::take(&mut request.taken);
                request.out.drain(..taken);
            }
            return;
        }
        request.out.clear();
        request.taken = 0;
        let is_over = request.end.is_some();
        drop(request);
        if !is_over {
            self.worker.give_due_turn(self.token);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut request = self.request.borrow_mut();
        request.is_lost = true;
        let is_over = request.end.is_some();
        drop(request);
        if !is_over {
            self.worker.give_due_turn(self.token);
        }
        self.worker.native.spare_requests.keep(&self.request);
    }
}
