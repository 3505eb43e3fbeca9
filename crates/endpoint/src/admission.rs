//! Admission: slots for sessions, further ones for operators, and the authenticator that finds out who a peer
//! is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sekisho_native::{Code, Greeting};

use crate::stream::PeerCertificate;
use sekisho_service::{AddressKey, ControlAccess, Identity, Peer};

/// How many may be here at once. Endpoints of several threads share one.
#[derive(Debug)]
pub struct SessionSlots {
    taken: [AtomicU32; 2],
    max: [u32; 2],
    greetings: u32,
    /// How many of the ordinary sessions one address may have, and one identity.
    address_max: u32,
    identity_max: u32,
    by_owner: Mutex<HashMap<Owner, u32>>,
}

/// What sessions are counted by, beside their sum.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Owner {
    Address(AddressKey),
    Identity(Identity),
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
    /// This identity has.
    Identity,
}

impl Full {
    /// The same for people.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::All => "the maximum number of sessions is reached",
            Self::Address => "the maximum number of sessions of your address is reached",
            Self::Identity => "the maximum number of sessions of your identity is reached",
        }
    }
}

/// A place that is taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard {
    slots: Arc<SessionSlots>,
    rank: Rank,
    owners: [Option<Owner>; 2],
}

impl SessionSlots {
    /// So many sessions, so many admin sessions beside them, and so many at each listener that have not sent
    /// their greeting.
    pub fn new(sessions: u32, admins: u32, greetings: u32) -> Arc<Self> {
        Self::with_shares(sessions, admins, greetings, (u32::MAX, u32::MAX))
    }

    /// The same, of which one address and one identity may have so many ordinary sessions.
    pub fn with_shares(
        sessions: u32,
        admins: u32,
        greetings: u32,
        (address_max, identity_max): (u32, u32),
    ) -> Arc<Self> {
        Arc::new(Self {
            taken: Default::default(),
            max: [sessions, admins],
            greetings,
            address_max,
            identity_max,
            by_owner: Mutex::default(),
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

    /// Takes a slot. A peer that has proved nothing, or is known to the kernel alone, is counted by its address.
    pub(crate) fn take(
        self: &Arc<Self>,
        rank: Rank,
        peer: &Peer,
        identity: &Identity,
    ) -> Result<SlotGuard, Full> {
        let (taken, max) = (&self.taken[rank as usize], self.max[rank as usize]);
        let more = |count| if count < max { Some(count + 1) } else { None };
        let update = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        update.map_err(|_| Full::All)?;
        let mut guard = SlotGuard { slots: Arc::clone(self), rank, owners: [None, None] };
        if rank == Rank::Admin {
            return Ok(guard);
        }
        let address = AddressKey::of(peer).map(Owner::Address);
        let named = Some(identity).filter(|identity| **identity != Identity::Anonymous);
        let named = named.cloned().map(Owner::Identity);
        let shares = [
            (address, self.address_max, Full::Address),
            (named, self.identity_max, Full::Identity),
        ];
        for (at, (owner, share, full)) in shares.into_iter().enumerate() {
            let Some(owner) = owner.filter(|_| share < max) else { continue };
            let mut by_owner = self.by_owner();
            let count = by_owner.entry(owner.clone()).or_default();
            if *count >= share {
                // What was taken so far is given back with the guard, which needs the lock.
                drop(by_owner);
                return Err(full);
            }
            *count += 1;
            guard.owners[at] = Some(owner);
        }
        Ok(guard)
    }

    fn by_owner(&self) -> MutexGuard<'_, HashMap<Owner, u32>> {
        self.by_owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slots.taken[self.rank as usize].fetch_sub(1, Ordering::Relaxed);
        for owner in self.owners.iter_mut().filter_map(Option::take) {
            if let Entry::Occupied(mut count) = self.slots.by_owner().entry(owner) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

/// A peer that has sent its greeting.
#[derive(Clone, Copy, Debug)]
pub struct Applicant<'a> {
    /// The greeting.
    pub greeting: &'a Greeting,
    /// The peer, as its transport knows it.
    pub peer: &'a Peer,
    /// Its certificate, where it has shown one and that was verified.
    pub certificate: Option<&'a PeerCertificate>,
}

/// What a peer has proved its identity by, kept with its session: it may be withdrawn while the session lasts
/// ([`Endpoint::evidence`](crate::Endpoint::evidence)).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Evidence {
    /// Nothing that the authenticator would look at again.
    #[default]
    None,
    /// Its certificate (DER), and those that came with it.
    Certificate(Arc<[Vec<u8>]>),
    /// A password: a hash of what was stored for it, not of the password itself.
    Password([u8; 32]),
}

/// A peer that is admitted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Admitted {
    /// Who it is.
    pub identity: Identity,
    /// What it may do with the service `control`: something where it has asked for the admin slot, else nothing.
    pub control: ControlAccess,
    /// It is admitted for the service `control` alone, and may call no other.
    pub is_control_only: bool,
    /// What it has proved that by.
    pub evidence: Evidence,
}

/// Whether a peer is admitted, and if not, the error for it.
pub type Admission = Result<Admitted, (Code, String)>;

/// An authenticator's answer.
pub enum Decision {
    /// This.
    Now(Admission),
    /// It takes time. The peer waits, and nothing of its session runs; when it goes, or after
    /// [`decide_timeout`](sekisho_native::Policy::decide_timeout), this is dropped.
    Later(Pin<Box<dyn Future<Output = Admission>>>),
}

impl Decision {
    /// A decision that takes time.
    pub fn later(decide: impl Future<Output = Admission> + 'static) -> Self {
        Self::Later(Box::pin(decide))
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(admission) => write!(out, "Now({admission:?})"),
            Self::Later(_) => out.write_str("Later"),
        }
    }
}

/// Finds out who a peer is, and whether it is admitted. It runs on the endpoint's thread and must not block: what
/// takes time is [`Decision::Later`].
pub trait Authenticator {
    /// Decides on a peer.
    fn decide(&self, applicant: &Applicant<'_>) -> Decision;
}

/// Admits every peer; to the admin slot only this process, its own user and root.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnUser;

impl Authenticator for OwnUser {
    fn decide(&self, applicant: &Applicant<'_>) -> Decision {
        let Applicant { greeting, peer, certificate } = *applicant;
        let own = rustix::process::geteuid().as_raw();
        let is_trusted = match peer {
            Peer::Loopback => true,
            Peer::Local { uid, .. } => *uid == own || *uid == 0,
            Peer::Tcp(_) | Peer::Unknown => false,
        };
        if greeting.wants_admin && !is_trusted {
            let text = "the admin slot is for the server's own user, over a local socket";
            return Decision::Now(Err((Code::PermissionError, text.to_owned())));
        }
        let of_peer = || Identity::of_peer(peer);
        let of_certificate = |of: &PeerCertificate| Identity::Certificate(Arc::clone(&of.subject));
        let identity = certificate.map_or_else(of_peer, of_certificate);
        // Only a session that asks for it controls anything, and then it is trusted.
        let control = if greeting.wants_admin { ControlAccess::Full } else { ControlAccess::None };
        Decision::Now(Ok(Admitted { identity, control, ..Admitted::default() }))
    }
}

impl<F> Authenticator for F
where
    F: Fn(&Applicant<'_>) -> Decision,
{
    fn decide(&self, applicant: &Applicant<'_>) -> Decision {
        self(applicant)
    }
}

impl fmt::Debug for dyn Authenticator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Authenticator")
    }
}
