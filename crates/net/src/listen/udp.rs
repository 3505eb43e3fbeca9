//! Datagrams: a socket hands each one to the session of its client, or begins a new one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use sekisho_config::ListenAddress;
use tokio::io::Interest;

use super::{Acceptor, pause};
use crate::panic_report::Vital;
use crate::protocol::ProtocolKind;
use crate::stream_session::{DatagramClient, Inbox, StreamSession};
use crate::worker::{ListenerContext, Worker};

/// No datagram is longer.
const DATAGRAM_BYTES: usize = 64 << 10;
/// So many are taken before others have their turn.
const BATCH: u32 = 64;

impl Acceptor {
    /// Sends a datagram from the address that the client knows; one that cannot leave now is lost, as on the way.
    pub(crate) fn send_to(&self, bytes: &[u8], to: SocketAddr, from: Option<IpAddr>) {
        if let Ok(socket) = self.registered() {
            let _ = sekisho_sys::send_datagram(socket, bytes, to, from);
        }
    }

    async fn receive(&self, into: &mut [u8]) -> io::Result<Datagram> {
        let socket = self.registered()?;
        let receive = || sekisho_sys::receive_datagram(socket, &mut *into);
        socket.async_io(Interest::READABLE, receive).await
    }
}

/// How long it is, where it came from, and where it came to, if that is told.
type Datagram = (usize, Option<SocketAddr>, Option<IpAddr>);

/// Takes datagrams at a listener for as long as it is open.
pub(crate) async fn receive(
    worker: Rc<Worker>,
    listener_context: Rc<ListenerContext>,
    acceptor: Rc<Acceptor>,
) {
    let _vital = Vital(Rc::clone(&worker));
    let mut buffer = vec![0; DATAGRAM_BYTES];
    let mut batch = 0;
    loop {
        match acceptor.receive(&mut buffer).await {
            Ok((count, Some(remote), local)) => {
                let ends = (remote, local);
                hand_over(&worker, &listener_context, &acceptor, ends, &buffer[..count]);
            }
            Ok((_, None, _)) => {}
            // What an earlier answer met on its way is told here, and concerns nobody else.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => pause(&worker, &listener_context, &error.to_string()).await,
        }
        batch += 1;
        if batch == BATCH {
            batch = 0;
            tokio::task::yield_now().await;
        }
    }
}

fn hand_over(
    worker: &Rc<Worker>,
    listener_context: &Rc<ListenerContext>,
    acceptor: &Rc<Acceptor>,
    (remote, told): (SocketAddr, Option<IpAddr>),
    datagram: &[u8],
) {
    let local = match listener_context.address {
        ListenAddress::Udp(address) if !address.ip().is_unspecified() => Some(address.ip()),
        _ => told,
    };
    let key = (remote, local);
    let known = listener_context.datagram_sessions.borrow().get(&key).cloned();
    if let Some((token, inbox)) = known.filter(|(_, inbox)| !inbox.is_closed()) {
        inbox.put(datagram);
        // At once: datagrams keep their order, also between the sessions of a client.
        worker.give_due_turn(token);
        worker.access_log.hand_over();
        return;
    }
    // As where a queue is full: it is not taken.
    if worker.sessions.borrow().len() >= worker.sessions_max.get() {
        worker.shared.counters.accept_pauses.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let Some(permit) = worker.admit_datagrams() else {
        worker.shared.counters.accept_pauses.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let inbox = Rc::new(Inbox::default());
    inbox.put(datagram);
    let (socket, own) = (Rc::clone(acceptor), Rc::clone(&inbox));
    let client = DatagramClient { socket, remote, local, inbox: own, _permit: permit };
    let session =
        StreamSession::of_datagrams(Rc::clone(worker), Rc::clone(listener_context), client);
    let entry = (session.token(), inbox);
    listener_context.datagram_sessions.borrow_mut().insert(key, entry);
    worker.shared.counters.accepted.count(ProtocolKind::Udp);
    worker.begin_stream(session);
}
