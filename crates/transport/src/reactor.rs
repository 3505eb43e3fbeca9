//! Readiness of the transports of one thread: an epoll of its own, and for each transport that waits a slot with what
//! has become ready and who wants to know. The owner of the loop takes events from the epoll and hands them over.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::Waker;

use rustix::event::epoll::{self, CreateFlags};
use slab::Slab;

use crate::{Ready, Transport};

/// The bit of a token that tells a slot of the reactor from a token of its owner.
const SLOT_BIT: u64 = 1 << 31;

/// The transports of one thread that wait.
#[derive(Debug)]
pub struct Reactor {
    epoll: OwnedFd,
    slots: RefCell<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    slots: Slab<Slot>,
    /// Tells a slot from its predecessors in the same place.
    generation: u32,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    /// Readiness that the transport has not been told of.
    ready: Ready,
    /// What the waker is to be woken for.
    wanted: Ready,
    waker: Option<Waker>,
}

impl Reactor {
    /// Without any transport.
    pub fn new() -> io::Result<Rc<Self>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Rc::new(Self { epoll, slots: RefCell::default() }))
    }

    /// A slot for a transport.
    pub fn register(self: &Rc<Self>) -> Registration {
        let mut slots = self.slots.borrow_mut();
        slots.generation = slots.generation.wrapping_add(1);
        let generation = slots.generation;
        let slot = Slot { generation, ready: Ready::NOTHING, wanted: Ready::NOTHING, waker: None };
        let index = slots.slots.insert(slot);
        let token = u64::from(generation) << 32 | SLOT_BIT | index as u64;
        Registration { reactor: Rc::clone(self), token }
    }

    /// Whether a token is that of a slot, and not one of the owner's.
    #[inline]
    pub const fn is_slot(token: u64) -> bool {
        token & SLOT_BIT != 0
    }

    /// An event of the epoll at the token of a slot: wakes the task that waits for it.
    pub fn handle(&self, token: u64, ready: Ready) {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.slots.get_mut(index_of(token));
        // A transport that was closed may have had an event just before.
        if let Some(slot) = slot.filter(|slot| u64::from(slot.generation) == token >> 32) {
            slot.ready |= ready;
            if slot.wanted.intersects(ready) {
                slot.wanted = Ready::NOTHING;
                if let Some(waker) = &slot.waker {
                    waker.wake_by_ref();
                }
            }
        }
    }
}

impl AsFd for Reactor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

const fn index_of(token: u64) -> usize {
    (token & (SLOT_BIT - 1)) as usize
}

/// The slot of one transport.
#[derive(Debug)]
pub struct Registration {
    reactor: Rc<Reactor>,
    token: u64,
}

impl Registration {
    /// Tells the transport what has become ready since the last call.
    #[inline]
    pub fn update(&self, transport: &mut impl Transport) {
        let mut slots = self.reactor.slots.borrow_mut();
        if let Some(slot) = slots.slots.get_mut(index_of(self.token)) {
            let ready = std::mem::take(&mut slot.ready);
            if ready != Ready::NOTHING {
                transport.note(ready);
            }
        }
    }

    /// Has this waker woken when the transport becomes ready for one of these.
    #[inline]
    pub fn wait(
        &self,
        transport: &mut impl Transport,
        wanted: Ready,
        waker: &Waker,
    ) -> io::Result<()> {
        transport.watch(self.reactor.as_fd(), self.token)?;
        let mut slots = self.reactor.slots.borrow_mut();
        if let Some(slot) = slots.slots.get_mut(index_of(self.token)) {
            slot.wanted |= wanted | Ready::ENDED | Ready::LOST;
            if !slot.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                slot.waker = Some(waker.clone());
            }
        }
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.reactor.slots.borrow_mut().slots.try_remove(index_of(self.token));
    }
}
