//! Links between processes at a binary upgrade (Q2). All processes have the same UDP sockets, but only the newest one
//! reads them: it passes datagrams of an older process's connections on to that process until it has ended. Each process
//! sends through the sockets by itself.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::watch;

use super::keys;
use super::route::{Forwarded, own_slot};
use crate::worker::Shared;

/// Processes before this one that may have connections; the oldest ones lose theirs.
const FORMER_MAX: usize = 8;
/// The longest datagram with its addresses.
const MESSAGE_BYTES_MAX: usize = (64 << 10) + 256;
/// Bytes of datagrams that may wait for another process; the kernel allows less where `wmem_max` says so.
const LINK_BYTES: usize = 4 << 20;
/// How long the predecessor may take until it stops reading the sockets.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
/// The message that the sockets are now the successor's to read.
const RELEASED: &[u8] = b"released";

/// A link to a process, for those that come after it.
#[derive(Debug)]
pub struct ProcessLink {
    /// The byte that names the process in connection ids.
    pub process: u8,
    /// Where its datagrams are sent to.
    pub socket: OwnedFd,
}

impl ProcessLink {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { process: self.process, socket: self.socket.try_clone()? })
    }
}

/// The links of this process.
#[derive(Debug, Default)]
pub(super) struct ProcessLinks {
    /// To processes before this one, the newest first.
    former: Mutex<Vec<ProcessLink>>,
    /// The end that this process reads, and the end for its successors.
    own: Mutex<Option<(OwnedFd, OwnedFd)>>,
    /// The predecessor still reads the sockets.
    is_waiting: watch::Sender<bool>,
    /// A successor reads the sockets.
    is_replaced: AtomicBool,
}

impl ProcessLinks {
    /// Waits until the sockets are this process's to read.
    pub(super) async fn wait_for_release(&self) {
        // The sender lives as long as `self`.
        let _ = self.is_waiting.subscribe().wait_for(|is_waiting| !is_waiting).await;
    }

    /// Passes a datagram on to a process. It is dropped where that is too slow, and comes back where it has ended or is
    /// not known.
    pub(super) fn send(&self, process: u8, forwarded: Forwarded) -> Option<Forwarded> {
        let mut former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = former.iter().position(|link| link.process == process) else {
            // Of the successor, read in the last moment: a reset would end the connection.
            return (!self.is_replaced.load(Ordering::Relaxed)).then_some(forwarded);
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&former[at].socket, &forwarded.encode(), flags) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => {
                former.remove(at);
                Some(forwarded)
            }
        }
    }

    /// All links that a successor needs: first our own, then those to former processes. Whether the first one is new.
    fn hand_over(&self) -> io::Result<(Vec<ProcessLink>, Option<OwnedFd>)> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = own.is_none();
        if is_new {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let kind = SocketType::SEQPACKET;
            let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
            // Less room loses datagrams sooner.
            let _ = set_socket_send_buffer_size(&theirs, LINK_BYTES);
            *own = Some((ours, theirs));
        }
        let Some((ours, theirs)) = &*own else { return Ok((Vec::new(), None)) };
        let mut links = vec![ProcessLink { process: keys::process(), socket: theirs.try_clone()? }];
        let former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        for link in former.iter().take(FORMER_MAX - 1) {
            links.push(link.try_clone()?);
        }
        Ok((links, if is_new { Some(ours.try_clone()?) } else { None }))
    }
}

/// The links for a process that takes over. Datagrams that come back through ours are taken from now on. Called inside
/// of a runtime.
pub fn hand_over(shared: &Arc<Shared>) -> io::Result<Vec<ProcessLink>> {
    let (links, new) = shared.quic_routes.processes.hand_over()?;
    if let Some(ours) = new {
        tokio::spawn(take_forwarded(Arc::clone(shared), register(ours)?));
    }
    Ok(links)
}

/// Takes the links of the process that this one replaces; its own is the first. The sockets are read when it says so, or
/// has ended. Called inside of a runtime.
pub fn take_over(shared: &Arc<Shared>, mut links: Vec<ProcessLink>) -> io::Result<()> {
    links.truncate(FORMER_MAX);
    if let Some(predecessor) = links.first() {
        let socket = register(predecessor.socket.try_clone()?)?;
        let routes = Arc::clone(shared);
        shared.quic_routes.processes.is_waiting.send_replace(true);
        tokio::spawn(async move {
            // The message, or the end of the process.
            let _ = tokio::time::timeout(RELEASE_LIMIT, socket.readable()).await;
            routes.quic_routes.processes.is_waiting.send_replace(false);
        });
    }
    links.retain(|link| link.process != keys::process());
    let former = &shared.quic_routes.processes.former;
    *former.lock().unwrap_or_else(PoisonError::into_inner) = links;
    Ok(())
}

/// The workers of this process read the sockets no more: the successor may.
pub fn release(shared: &Shared) {
    let processes = &shared.quic_routes.processes;
    processes.is_replaced.store(true, Ordering::Relaxed);
    let own = processes.own.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((ours, _)) = &*own {
        // A successor that has ended does not wait.
        let _ = rustix::net::send(ours, RELEASED, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// A link as the runtime waits for it.
fn register(link: OwnedFd) -> io::Result<UnixDatagram> {
    UnixDatagram::from_std(net::UnixDatagram::from(link))
}

/// Gives datagrams that a successor has passed on to the workers that have their connections.
async fn take_forwarded(shared: Arc<Shared>, link: UnixDatagram) {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let received = link.async_io(Interest::READABLE, || {
            Ok(rustix::net::recv(&link, &mut *buffer, RecvFlags::DONTWAIT)?.0)
        });
        // Nothing, or an error, is the end of all other ends; as long as we have one, it does not come.
        let Ok(count @ 1..) = received.await else { return };
        let Some(forwarded) = Forwarded::decode(&buffer[..count]) else { continue };
        if let Some(slot) = own_slot(&forwarded) {
            // A worker that has ended has no connections.
            let _ = shared.quic_routes.send(slot, forwarded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_datagram_goes_to_the_process_that_has_the_connection() {
        // Q2
        let (old, new) = (Arc::<Shared>::default(), Arc::<Shared>::default());
        let mut links = hand_over(&old).expect("links");
        // Both are this process here.
        links[0].process = keys::process().wrapping_sub(1);
        let former = links[0].process;
        take_over(&new, links).expect("taken");
        let processes = &new.quic_routes.processes;
        let waited = tokio::time::timeout(Duration::from_millis(20), processes.wait_for_release());
        assert!(waited.await.is_err(), "the old process still reads");
        release(&old);
        processes.wait_for_release().await;

        let own_id = [&[0x40, 7, keys::process()][..], &[1; 6]].concat();
        let (slot, mut worker) = old.quic_routes.enter_for_test(7);
        assert_eq!(slot, Some(7));
        let forwarded = Forwarded::for_test(&own_id);
        assert!(processes.send(former, forwarded).is_none(), "passed on");
        let taken = worker.recv().await.expect("a datagram");
        assert_eq!(taken.encode(), Forwarded::for_test(&own_id).encode());
        // A process that is not known.
        assert!(processes.send(former.wrapping_sub(9), Forwarded::for_test(&own_id)).is_some());
    }

    #[tokio::test]
    async fn a_process_that_has_ended_gets_nothing() {
        let shared = Arc::<Shared>::default();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, socket) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .expect("a pair");
        let process = keys::process().wrapping_sub(1);
        take_over(&shared, vec![ProcessLink { process, socket }]).expect("taken");
        drop(ours);
        let processes = &shared.quic_routes.processes;
        processes.wait_for_release().await;
        assert!(processes.send(process, Forwarded::for_test(&[0x40; 9])).is_some());
        assert!(processes.former.lock().expect("not poisoned").is_empty());
    }
}
