//! QUIC (RFC 9000) in a worker: sockets, connections, keys. The state machine of a connection is `quinn_proto`'s; the
//! sessions are ours, with their turns, deadlines and slots, as those of every other protocol (Q1).

mod acknowledged;
mod connection;
mod crypto;
mod endpoint;
pub(crate) mod keys;
pub mod process;
pub(crate) mod route;
mod tokens;

use std::cell::{OnceCell, RefCell};
use std::io;
use std::rc::Rc;

pub(crate) use connection::QuicConnection;
pub(crate) use endpoint::{QuicEndpoint, receive};
use route::Route;

use crate::listen::Acceptor;
use crate::worker::{ListenerContext, Worker};

/// A socket of a worker.
#[derive(Debug)]
struct Socket {
    context: Rc<ListenerContext>,
    acceptor: Rc<Acceptor>,
    endpoint: Rc<QuicEndpoint>,
}

/// The QUIC sockets of a worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerQuic {
    route: OnceCell<Rc<Route>>,
    sockets: RefCell<Vec<Socket>>,
}

impl WorkerQuic {
    /// The endpoint of a socket: the one that it has, or a new one.
    pub(crate) fn endpoint(
        &self,
        worker: &Rc<Worker>,
        context: &Rc<ListenerContext>,
        acceptor: &Rc<Acceptor>,
    ) -> io::Result<Rc<QuicEndpoint>> {
        let mut sockets = self.sockets.borrow_mut();
        if let Some(known) = sockets.iter().find(|it| Rc::ptr_eq(&it.acceptor, acceptor)) {
            return Ok(Rc::clone(&known.endpoint));
        }
        let route = self.route(worker, acceptor)?;
        let endpoint = Rc::new(QuicEndpoint::new(context, acceptor, &route)?);
        let (context, acceptor) = (Rc::clone(context), Rc::clone(acceptor));
        sockets.push(Socket { context, acceptor, endpoint: Rc::clone(&endpoint) });
        Ok(endpoint)
    }

    /// A socket is closed, and its last connection has ended.
    fn forget(&self, acceptor: &Rc<Acceptor>) {
        self.sockets.borrow_mut().retain(|it| !Rc::ptr_eq(&it.acceptor, acceptor));
    }

    /// This worker's slot; what others pass on to it is taken from then on.
    fn route(&self, worker: &Rc<Worker>, acceptor: &Acceptor) -> io::Result<Rc<Route>> {
        if let Some(route) = self.route.get() {
            return Ok(Rc::clone(route));
        }
        let (route, mut from) = Route::new(&worker.shared, acceptor.position())
            .ok_or_else(|| io::Error::other("too many workers have QUIC connections"))?;
        let taker = Rc::downgrade(worker);
        tokio::task::spawn_local(async move {
            while let Some(forwarded) = from.recv().await {
                let Some(worker) = taker.upgrade() else { break };
                let found = {
                    let sockets = worker.quic.sockets.borrow();
                    let known =
                        sockets.iter().find(|it| it.context.address == *forwarded.address());
                    known.map(|it| (Rc::clone(&it.context), Rc::clone(&it.endpoint)))
                };
                if let Some((context, endpoint)) = found {
                    endpoint.take_forwarded(&worker, &context, forwarded);
                }
            }
        });
        Ok(Rc::clone(self.route.get_or_init(|| Rc::new(route))))
    }
}
