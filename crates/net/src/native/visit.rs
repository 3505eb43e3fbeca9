//! A request of a native session to the HTTP handlers of its own worker: a connection without a transport, which is
//! served as any other one, so that limits, logs, deadlines and the live view hold for it. Where the answer is in
//! memory, it is there when the request has been made.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use sekisho_config::ListenAddress;
use sekisho_http::Status;

use crate::connection::Connection;
use crate::protocol::{InternalRequest, Protocol};
use crate::session::Token;
use crate::transport::{Stream, Within};
use crate::worker::{ListenerContext, Worker};

/// A request under way; dropping it is a lost client.
#[derive(Debug)]
pub(crate) struct Visit {
    request: Rc<RefCell<InternalRequest>>,
    worker: Rc<Worker>,
    token: Token,
}

/// What has come of it.
#[derive(Debug)]
pub(crate) enum Part {
    /// Its status, and all of it as the caller gets it.
    Head(Status, Vec<u8>),
    Body(Vec<u8>),
    /// The answer is over; whether it is complete.
    End(bool),
}

impl Worker {
    /// Makes a request at this listener, on behalf of a session whose client has this address.
    pub(crate) fn visit(
        self: &Rc<Self>,
        request: InternalRequest,
        on_behalf_of: u64,
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
        let request = Rc::new(RefCell::new(request));
        let bound_site = listener_context.bound_site();
        let policies = bound_site.site.first_policy(bound_site.listen(local));
        connection.link.protocol = Protocol::internal(policies, &request);
        connection.flags.is_undecided = false;
        connection.link.parts().1.since = connection.active;
        connection.came_from_within(on_behalf_of);
        let token = self.sessions.borrow().token(connection.link.key);
        self.shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
        self.begin_visit(connection, token);
        Visit { request, worker: Rc::clone(self), token }
    }
}

impl Visit {
    /// What comes next. A body comes as it was made; taking it makes room for more.
    pub(crate) fn poll_part(&mut self, cx: &Context<'_>) -> Poll<Part> {
        let mut request = self.request.borrow_mut();
        if let Some((status, head)) = request.head.take() {
            return Poll::Ready(Part::Head(status, head));
        }
        if !request.out.is_empty() {
            let out = std::mem::take(&mut request.out);
            let is_over = request.end.is_some();
            drop(request);
            if !is_over {
                self.worker.give_due_turn(self.token);
            }
            return Poll::Ready(Part::Body(out));
        }
        if let Some(is_complete) = request.end {
            return Poll::Ready(Part::End(is_complete));
        }
        request.reader = Some(cx.waker().clone());
        Poll::Pending
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
    }
}
