//! The transport through shared memory, for programs on one machine. Two rings carry the bytes of the
//! session, wakeup descriptors wake the side that sleeps, and a Unix socket, over which it all begins, stays
//! open to show that the peer lives. `docs/protocol.md` has it byte by byte, [`sekisho_ring`] the rings.
//!
//! The server makes the memory and the wakeup descriptors, so it need not check what a peer would have made. The peer is not
//! trusted with anything else either: what it writes into the memory is copied before it is looked at, and no
//! call of the server's on anything shared can block.

mod blocking;
mod greeting;
mod link;
mod spin;
mod stream;
mod wakeup;

use std::fmt;
use std::time::Duration;

use sekisho_ring::{RING_BYTES_MAX, RING_BYTES_MIN};
use tokio::net::UnixStream;

pub use blocking::BlockingStream;
pub use stream::Stream;

use sekisho_service::Peer;

/// How a server offers shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The ring from client to server; rounded up to a power of two.
    pub request_bytes: usize,
    /// The ring from server to client; rounded up to a power of two.
    pub answer_bytes: usize,
    /// Whose processes may connect.
    pub access: Access,
    /// So long the server looks for the next bytes before it sleeps; zero is not at all. It costs the thread that time, at the
    /// most, and saves a wakeup where the client answers sooner.
    pub spin: Duration,
}

/// Whose processes may connect, as the kernel vouches for them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// The server's own user's, and root's.
    #[default]
    OwnUser,
    /// These users' as well.
    Users(Vec<u32>),
    /// All that can open the socket.
    Anybody,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            request_bytes: 64 << 10,
            answer_bytes: 128 << 10,
            access: Access::default(),
            spin: Duration::ZERO,
        }
    }
}

impl Config {
    /// The sizes that rings really get.
    pub(crate) fn ring_bytes(&self) -> (usize, usize) {
        let fit = |bytes: usize| bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX).next_power_of_two();
        (fit(self.request_bytes), fit(self.answer_bytes))
    }
}

impl Access {
    /// Whether this peer may connect.
    pub(crate) fn admits(&self, peer: Peer) -> bool {
        let Peer::Local { uid, .. } = peer else { return *self == Self::Anybody };
        let is_own = uid == 0 || uid == rustix::process::geteuid().as_raw();
        match self {
            Self::OwnUser => is_own,
            Self::Users(users) => is_own || users.contains(&uid),
            Self::Anybody => true,
        }
    }
}

/// Both ends of a session, for a server and a client in one process.
pub fn pair(config: &Config) -> std::io::Result<(Stream, Stream)> {
    let (near, far) = UnixStream::pair()?;
    Ok((Stream::connect(near), Stream::accept(far, config)))
}

/// Why there is no shared memory, as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refused(pub(crate) u32);

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = sekisho_native::Code::of_number(self.0);
        write!(out, "the server does not share memory with us: {code}")
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_within_bounds() {
        let sizes = |request_bytes, answer_bytes| {
            Config { request_bytes, answer_bytes, ..Config::default() }.ring_bytes()
        };
        assert_eq!(sizes(0, 5000), (RING_BYTES_MIN, 8192));
        assert_eq!(sizes(65536, usize::MAX), (65536, RING_BYTES_MAX));
    }

    #[test]
    fn only_the_own_user_and_root_connect_unless_others_are_named() {
        // E7
        let own = rustix::process::geteuid().as_raw();
        let of = |uid| Peer::Local { uid, pid: None };
        let other = own + 1000;
        for (access, admits_other) in [
            (Access::OwnUser, false),
            (Access::Users(vec![other]), true),
            (Access::Users(vec![other + 1]), false),
            (Access::Anybody, true),
        ] {
            assert!(access.admits(of(0)) && access.admits(of(own)));
            assert_eq!(access.admits(of(other)), admits_other, "{access:?}");
            assert_eq!(access.admits(Peer::Unknown), access == Access::Anybody);
        }
    }
}
