//! Who may come in: slots for sessions, one more for whoever is in charge (E4), and the authenticator that checks
//! credentials.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sekisho_native::{Code, Greeting};

use crate::stream::Peer;

/// How many may be here at once. Endpoints of several threads share one.
#[derive(Debug)]
pub struct SessionSlots {
    taken: [AtomicU32; 3],
    max: [u32; 3],
}

/// What a slot is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rank {
    /// A peer that has connected and not been admitted.
    Greeting = 0,
    /// An ordinary session.
    Session = 1,
    /// A session of whoever is in charge.
    Admin = 2,
}

/// A place that is taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard {
    slots: Arc<SessionSlots>,
    rank: Rank,
}

impl SessionSlots {
    /// So many sessions, so many admin sessions beside them, and so many that have only just connected.
    pub fn new(sessions: u32, admins: u32, greetings: u32) -> Arc<Self> {
        Arc::new(Self { taken: Default::default(), max: [greetings, sessions, admins] })
    }

    /// How many ordinary and admin sessions there are.
    pub fn taken(&self) -> (u32, u32) {
        (self.taken[1].load(Ordering::Relaxed), self.taken[2].load(Ordering::Relaxed))
    }

    pub(crate) fn take(self: &Arc<Self>, rank: Rank) -> Option<SlotGuard> {
        let (taken, max) = (&self.taken[rank as usize], self.max[rank as usize]);
        let more = |count| if count < max { Some(count + 1) } else { None };
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(SlotGuard { slots: Arc::clone(self), rank })
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slots.taken[self.rank as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Looks at who comes.
pub trait Authenticator {
    /// Whether the peer may come in, and if not, what it is told.
    fn admit(&self, greeting: &Greeting, peer: &Peer) -> Result<(), (Code, String)>;
}

/// Lets everybody in; to the admin slot only this process, its own user and root.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnUser;

impl Authenticator for OwnUser {
    fn admit(&self, greeting: &Greeting, peer: &Peer) -> Result<(), (Code, String)> {
        let own = rustix::process::geteuid().as_raw();
        let is_trusted = match peer {
            Peer::Loopback => true,
            Peer::Local { uid, .. } => *uid == own || *uid == 0,
            Peer::Tcp(_) | Peer::Unknown => false,
        };
        if greeting.wants_admin && !is_trusted {
            let text = "the admin slot is for the server's own user, over a local socket";
            return Err((Code::PermissionError, text.to_owned()));
        }
        Ok(())
    }
}

impl<F> Authenticator for F
where
    F: Fn(&Greeting, &Peer) -> Result<(), (Code, String)>,
{
    fn admit(&self, greeting: &Greeting, peer: &Peer) -> Result<(), (Code, String)> {
        self(greeting, peer)
    }
}

impl fmt::Debug for dyn Authenticator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Authenticator")
    }
}
