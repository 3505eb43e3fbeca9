//! Connection ids name the worker and the process that have the connection: the kernel hands a datagram to the worker's
//! socket, and a datagram that comes to another one all the same, as after a reload that replaced the workers or after a
//! binary upgrade, is passed on (Q2).

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, EcnCodepoint, InvalidCid};
use rustls::crypto::aws_lc_rs as provider;
use sekisho_config::ListenAddress;
use tokio::sync::mpsc;

use super::endpoint::Datagram;
use super::keys;
use super::process::ProcessLinks;
use crate::worker::{ListenerContext, Shared};

/// Length of our connection ids: the worker's slot, the process, and random bytes.
const ID_BYTES: usize = 8;
/// Workers that may have connections at a time, those that drain included.
const SLOTS: usize = 256;
/// Datagrams that may wait for another worker; more are dropped, as a full socket drops them.
const FORWARDED_MAX: usize = 1024;
/// The bit of the first byte that tells long headers, and where the id is in both forms (RFC 8999 §5).
const LONG_HEADER: u8 = 0x80;
const LONG_ID_AT: usize = 6;
const SHORT_ID_AT: usize = 1;

/// Makes connection ids of one worker.
pub(super) struct RoutedIds {
    pub(super) slot: u8,
    pub(super) process: u8,
}

impl ConnectionIdGenerator for RoutedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        // Without random numbers no handshake would succeed either.
        let _ = provider::default_provider().secure_random.fill(&mut id);
        (id[0], id[1]) = (self.slot, self.process);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        // An id of this worker, or of a former process whose connections are gone.
        if id.len() == ID_BYTES { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// A datagram on its way to another worker or process.
#[derive(Debug)]
pub(crate) struct Forwarded {
    address: ListenAddress,
    remote: SocketAddr,
    local: Option<IpAddr>,
    ecn: Option<EcnCodepoint>,
    bytes: BytesMut,
}

impl Forwarded {
    /// The address that it came to.
    pub(super) const fn address(&self) -> &ListenAddress {
        &self.address
    }

    pub(super) fn into_datagram(self) -> Datagram {
        let Self { remote, local, ecn, bytes, .. } = self;
        Datagram { remote, local, ecn, bytes }
    }

    /// As a message to another process: a line with the addresses, and the bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { address, remote, local, ecn, bytes } = self;
        let listen = match address {
            ListenAddress::Udp(address) | ListenAddress::Tcp(address) => address.to_string(),
            ListenAddress::Unix(_) => String::new(),
        };
        let local = local.map_or_else(|| "-".to_owned(), |local| local.to_string());
        let ecn = ecn.map_or(0, |ecn| ecn as u8);
        let mut message = format!("{listen} {remote} {local} {ecn}\n").into_bytes();
        message.extend_from_slice(bytes);
        message
    }

    /// Reads a message that was written by the function above.
    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let end = message.iter().position(|byte| *byte == b'\n')?;
        let mut words = std::str::from_utf8(&message[..end]).ok()?.split(' ');
        let address = ListenAddress::Udp(words.next()?.parse().ok()?);
        let remote = words.next()?.parse().ok()?;
        let local = match words.next()? {
            "-" => None,
            local => Some(local.parse().ok()?),
        };
        let ecn = EcnCodepoint::from_bits(words.next()?.parse().ok()?);
        Some(Self { address, remote, local, ecn, bytes: BytesMut::from(&message[end + 1..]) })
    }
}

/// The workers that have QUIC connections, by the byte in their connection ids, and the links to other processes.
#[derive(Debug, Default)]
pub struct Routes {
    slots: Mutex<Vec<Option<mpsc::Sender<Forwarded>>>>,
    pub(super) processes: ProcessLinks,
}

impl Routes {
    /// Waits until the process that this one replaces reads the sockets no more.
    pub(super) async fn wait_for_release(&self) {
        self.processes.wait_for_release().await;
    }

    /// Takes a slot whose remainder by `count` is `index`, so that the kernel finds the worker's socket by it.
    fn enter(&self, index: usize, count: usize, to: mpsc::Sender<Forwarded>) -> Option<u8> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.resize_with(SLOTS, || None);
        let count = count.clamp(1, SLOTS);
        let is_free = |slot: &usize| slots[*slot].as_ref().is_none_or(mpsc::Sender::is_closed);
        // Any other slot works too; its datagrams are passed on.
        let suitable = (index % count..SLOTS).step_by(count);
        let slot = suitable.chain(0..SLOTS).find(is_free)?;
        slots[slot] = Some(to);
        Some(slot as u8)
    }

    /// Gives a datagram to the worker of a slot; it is dropped where that is too slow, and comes back where it is gone.
    pub(super) fn send(&self, slot: u8, forwarded: Forwarded) -> Option<Forwarded> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        match slots.get(usize::from(slot)).and_then(Option::as_ref) {
            Some(to) => match to.try_send(forwarded) {
                Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => None,
                Err(mpsc::error::TrySendError::Closed(forwarded)) => Some(forwarded),
            },
            None => Some(forwarded),
        }
    }
}

/// A worker's slot.
#[derive(Debug)]
pub(super) struct Route {
    slot: u8,
    process: u8,
    shared: Arc<Shared>,
}

impl Route {
    /// Takes a slot; also what other workers pass on to it. `None` where no slot is free.
    pub(super) fn new(
        shared: &Arc<Shared>,
        (index, count): (usize, usize),
    ) -> Option<(Self, mpsc::Receiver<Forwarded>)> {
        let (to, from) = mpsc::channel(FORWARDED_MAX);
        let slot = shared.quic_routes.enter(index, count, to)?;
        Some((Self { slot, process: keys::process(), shared: Arc::clone(shared) }, from))
    }

    pub(super) const fn slot(&self) -> u8 {
        self.slot
    }

    pub(super) const fn process(&self) -> u8 {
        self.process
    }

    /// Passes a datagram on that names a connection of another worker or process; gives back what is for this worker,
    /// or for none that is known.
    pub(super) fn pass_on(
        &self,
        context: &ListenerContext,
        datagram: Datagram,
    ) -> Option<Datagram> {
        let [slot, process, ..] = match connection_id(&datagram.bytes) {
            Some(id) if id[..2] != [self.slot, self.process] => id,
            _ => return Some(datagram),
        };
        let Datagram { remote, local, ecn, bytes } = datagram;
        let address = context.address.clone();
        let forwarded = Forwarded { address, remote, local, ecn, bytes };
        let routes = &self.shared.quic_routes;
        let left = if process == self.process {
            routes.send(slot, forwarded)
        } else {
            routes.processes.send(process, forwarded)
        };
        left.map(Forwarded::into_datagram)
    }
}

/// The worker of this process that a datagram is for.
pub(super) fn own_slot(forwarded: &Forwarded) -> Option<u8> {
    let [slot, process, ..] = connection_id(&forwarded.bytes)?;
    (process == keys::process()).then_some(slot)
}

/// The connection id of a datagram, if a server has made it: first packets carry ids that clients have made.
fn connection_id(bytes: &[u8]) -> Option<[u8; ID_BYTES]> {
    let first = *bytes.first()?;
    let at = if first & LONG_HEADER == 0 {
        SHORT_ID_AT
    } else {
        // Initial and 0-RTT packets begin a connection (RFC 9000 §17.2).
        let is_handshake = first & 0x30 == 0x20;
        let is_ours = bytes.get(LONG_ID_AT - 1) == Some(&(ID_BYTES as u8));
        if !is_handshake || !is_ours {
            return None;
        }
        LONG_ID_AT
    };
    bytes.get(at..at + ID_BYTES)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Forwarded {
        pub(crate) fn for_test(bytes: &[u8]) -> Self {
            Self {
                address: ListenAddress::Udp(SocketAddr::from(([127, 0, 0, 1], 443))),
                remote: "[2001:db8::1]:5000".parse().expect("an address"),
                local: Some([127, 0, 0, 1].into()),
                ecn: Some(EcnCodepoint::Ect0),
                bytes: BytesMut::from(bytes),
            }
        }
    }

    impl Routes {
        pub(crate) fn enter_for_test(
            &self,
            index: usize,
        ) -> (Option<u8>, mpsc::Receiver<Forwarded>) {
            let (to, from) = mpsc::channel(1);
            (self.enter(index, SLOTS, to), from)
        }
    }

    #[test]
    fn a_datagram_names_its_connection() {
        // Q2
        let id = [7, 9, 1, 2, 3, 4, 5, 6];
        let short = [&[0x40][..], &id, &[0; 20]].concat();
        assert_eq!(connection_id(&short), Some(id));
        let handshake = [&[0xe0, 0, 0, 0, 1, 8][..], &id, &[0; 20]].concat();
        assert_eq!(connection_id(&handshake), Some(id));
        let initial = [&[0xc0, 0, 0, 0, 1, 8][..], &id, &[0; 20]].concat();
        assert_eq!(connection_id(&initial), None);
        for bad in [&[][..], &[0x40], &[0xe0; 6], &[0xe0, 0, 0, 0, 1, 8, 1]] {
            assert_eq!(connection_id(bad), None);
        }
    }

    #[test]
    fn a_datagram_is_read_as_it_was_written() {
        // Q2
        for local in [None, Some([127, 0, 0, 1].into())] {
            for ecn in [None, Some(EcnCodepoint::Ce)] {
                let given = Forwarded { local, ecn, ..Forwarded::for_test(b"\x40\nbytes") };
                let read = Forwarded::decode(&given.encode()).expect("understood");
                assert_eq!(format!("{given:?}"), format!("{read:?}"));
            }
        }
        for bad in ["", "\n", "127.0.0.1:1 127.0.0.1:2 -\n", "127.0.0.1:1 127.0.0.1:2 - 0"] {
            assert!(Forwarded::decode(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn workers_take_slots_that_their_sockets_are_found_by() {
        let routes = Routes::default();
        let enter = |index, count| {
            let (to, from) = mpsc::channel(1);
            (routes.enter(index, count, to), from)
        };
        let (first, _keep) = enter(1, 4);
        let (second, from) = enter(1, 4);
        assert_eq!((first, second), (Some(1), Some(5)));
        drop(from);
        assert_eq!(enter(1, 4).0, Some(5));
    }
}
