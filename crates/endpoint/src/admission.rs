//! Admission: slots for sessions, further ones for operators (E4), and the authenticator that checks
//! credentials.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sekisho_native::{Code, Greeting};

use sekisho_service::Peer;

use crate::stream::AddressKey;

/// How many may be here at once. Endpoints of several threads share one.
#[derive(Debug)]
pub struct SessionSlots {
    taken: [AtomicU32; 2],
    max: [u32; 2],
    greetings: u32,
    /// How many of the ordinary sessions one address may have.
    address_max: u32,
    by_address: Mutex<HashMap<AddressKey, u32>>,
}

/// What a slot is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rank {
    /// An ordinary session.
    Session = 0,
    /// A session of an operator.
    Admin = 1,
}

/// Why there is no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// There are as many sessions as there may be.
    All,
    /// This address has as many as one may have.
    Address,
}

impl Full {
    /// The same for people.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::All => "the maximum number of sessions is reached",
            Self::Address => "the maximum number of sessions of your address is reached",
        }
    }
}

/// A place that is taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard {
    slots: Arc<SessionSlots>,
    rank: Rank,
    address: Option<AddressKey>,
}

impl SessionSlots {
    /// So many sessions, so many admin sessions beside them, and so many at each listener that have not sent
    /// their greeting.
    pub fn new(sessions: u32, admins: u32, greetings: u32) -> Arc<Self> {
        Self::with_address_limit(sessions, admins, greetings, u32::MAX)
    }

    /// The same, of which one address may have so many ordinary sessions.
    pub fn with_address_limit(
        sessions: u32,
        admins: u32,
        greetings: u32,
        address_max: u32,
    ) -> Arc<Self> {
        Arc::new(Self {
            taken: Default::default(),
            max: [sessions, admins],
            greetings,
            address_max,
            by_address: Mutex::default(),
        })
    }

    /// How many peers of a listener may have only just connected.
    pub(crate) const fn greetings(&self) -> u32 {
        self.greetings
    }

    /// How many ordinary and admin sessions there are.
    pub fn taken(&self) -> (u32, u32) {
        (self.taken[0].load(Ordering::Relaxed), self.taken[1].load(Ordering::Relaxed))
    }

    pub(crate) fn take(self: &Arc<Self>, rank: Rank, peer: &Peer) -> Result<SlotGuard, Full> {
        let (taken, max) = (&self.taken[rank as usize], self.max[rank as usize]);
        let more = |count| if count < max { Some(count + 1) } else { None };
        let update = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        update.map_err(|_| Full::All)?;
        let mut guard = SlotGuard { slots: Arc::clone(self), rank, address: None };
        if rank == Rank::Session
            && self.address_max < max
            && let Some(address) = AddressKey::of(peer)
        {
            let mut by_address = self.by_address();
            let count = by_address.entry(address).or_default();
            if *count >= self.address_max {
                drop(by_address);
                return Err(Full::Address);
            }
            *count += 1;
            guard.address = Some(address);
        }
        Ok(guard)
    }

    fn by_address(&self) -> MutexGuard<'_, HashMap<AddressKey, u32>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slots.taken[self.rank as usize].fetch_sub(1, Ordering::Relaxed);
        if let Some(address) = self.address
            && let Entry::Occupied(mut count) = self.slots.by_address().entry(address)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// Authenticates peers.
pub trait Authenticator {
    /// Whether the peer is admitted, and if not, the error for it.
    fn admit(&self, greeting: &Greeting, peer: &Peer) -> Result<(), (Code, String)>;
}

/// Admits every peer; to the admin slot only this process, its own user and root.
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
