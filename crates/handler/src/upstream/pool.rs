//! What a worker keeps for requests that are passed on: connections that may carry another one, and memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sekisho_http::upstream::Scratch;
use sekisho_lifecycle::{Moment, Share};
use sekisho_transport::Reactor;
use sekisho_upstream::keepalive::{self, Usage};

use super::engine::Engine;
use super::group::Group;
use super::plan::Plan;
use super::stream::Stream;
use crate::memory::{self, Class, PASSED_ON_BYTES};

/// How many sets of buffers are kept.
const WORK_MAX: usize = 64;
/// What is read at a time.
pub(super) const INPUT_BYTES: usize = 16 * 1024;
/// How often an idle connection is read before its server says too much.
const IDLE_READS_MAX: usize = 16;
/// Buffers that have grown beyond this are not kept.
const KEEP_BYTES: usize = 64 * 1024;
/// Memory for this many requests is taken from the budget at once, so that the workers seldom meet there.
const PERMITS: usize = 16;

/// A connection to a server, with its protocol engine.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) engine: Engine,
    pub(super) usage: Usage,
    /// What has come and says nothing yet: a part of a frame that belongs to no request.
    pub(super) unread: Vec<u8>,
}

impl Connection {
    /// Whether it is still there while it carries no request. What a server sends meanwhile ends it, unless the protocol
    /// has something to say between requests: that is answered.
    fn is_usable(&mut self, now: Moment) -> bool {
        if self.stream.is_idle() {
            return true;
        }
        if !self.engine.get().is_attended_when_idle() {
            return false;
        }
        let mut cx = Context::from_waker(Waker::noop());
        let mut scratch = Scratch::default();
        for _ in 0..IDLE_READS_MAX {
            self.unread.reserve(INPUT_BYTES);
            match self.stream.read(&mut cx, &mut self.unread) {
                Poll::Pending => {
                    if self.unread.is_empty() {
                        self.unread = Vec::new();
                    }
                    return true;
                }
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return false,
            }
            let engine = self.engine.get_mut();
            let step = engine.receive(&self.unread, &mut scratch, now);
            self.unread.drain(..step.taken);
            let is_sent = self.stream.send_at_once(&scratch.out);
            engine.transmitted(scratch.out.len() as u64, false, now);
            scratch.out.clear();
            if !is_sent || !engine.is_reusable() {
                return false;
            }
        }
        false
    }
}

/// The buffers of one exchange.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) scratch: Scratch,
    /// What has come and has not been taken: from `taken` on.
    pub(super) input: Vec<u8>,
    pub(super) taken: usize,
    /// How much of the output has left.
    pub(super) sent: usize,
}

impl Work {
    /// Nothing of the exchange before is left.
    pub(super) fn clear(&mut self) {
        self.scratch.head.clear();
        self.scratch.trailers.clear();
        self.scratch.out.clear();
        self.input.clear();
        (self.taken, self.sent) = (0, 0);
    }
}

/// Which connections are equal: those to one group in one protocol, with the same name and certificates. One that was
/// made for a location that does not verify its server must not serve one that does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct PoolKey {
    group: u64,
    manner: u64,
}

/// Idle connections, as long as their group is there.
type GroupPool = (Weak<Group>, keepalive::Pool<Box<Connection>>);

/// What a worker keeps.
#[derive(Debug)]
pub struct Pools {
    groups: RefCell<HashMap<PoolKey, GroupPool, foldhash::fast::RandomState>>,
    #[expect(clippy::vec_box, reason = "they are handed out and taken back as boxes")]
    work: RefCell<Vec<Box<Work>>>,
    plans: RefCell<Vec<Plan>>,
    inputs: RefCell<Vec<Vec<u8>>>,
    /// Requests in work, and the memory that the budget has granted for them (O9).
    in_work: Cell<usize>,
    granted: RefCell<Share>,
    random: Cell<u64>,
    is_watched: Cell<bool>,
    /// Where sockets to servers are watched.
    pub(super) reactor: Rc<Reactor>,
}

impl Pools {
    /// Nothing yet; `seed` is where the random numbers begin.
    pub fn new(seed: u64, reactor: &Rc<Reactor>) -> Rc<Self> {
        Rc::new(Self {
            groups: RefCell::default(),
            work: RefCell::default(),
            plans: RefCell::default(),
            inputs: RefCell::default(),
            in_work: Cell::new(0),
            granted: RefCell::new(memory::budget(Class::ProxyBuffers).empty_share()),
            random: Cell::new(seed | 1),
            is_watched: Cell::new(false),
            reactor: Rc::clone(reactor),
        })
    }

    /// The memory of one more request; `None` where the budget does not have it.
    pub(super) fn permit(self: &Rc<Self>) -> Option<Permit> {
        let in_work = self.in_work.get() + 1;
        let mut granted = self.granted.borrow_mut();
        if in_work * PASSED_ON_BYTES > granted.bytes()
            && !granted.resize((in_work + PERMITS - 1) * PASSED_ON_BYTES)
            && !granted.resize(in_work * PASSED_ON_BYTES)
        {
            return None;
        }
        self.in_work.set(in_work);
        Some(Permit(Rc::clone(self)))
    }

    /// A random number (xorshift), for `random`.
    pub(super) fn random(&self) -> u32 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        (x >> 32) as u32
    }

    pub(super) fn borrow_work(&self) -> Box<Work> {
        self.work.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn give_back(&self, mut work: Box<Work>) {
        let bytes = work.scratch.out.capacity()
            + work.scratch.head.fields.capacity()
            + work.scratch.trailers.capacity()
            + work.input.capacity();
        let mut kept = self.work.borrow_mut();
        if kept.len() < WORK_MAX && bytes <= KEEP_BYTES {
            work.clear();
            kept.push(work);
        }
    }

    /// Memory to read into; it may have none yet.
    pub(super) fn borrow_input(&self) -> Vec<u8> {
        self.inputs.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn give_back_input(&self, input: Vec<u8>) {
        let mut kept = self.inputs.borrow_mut();
        if kept.len() < WORK_MAX && (1..=KEEP_BYTES).contains(&input.capacity()) {
            kept.push(input);
        }
    }

    pub(super) fn borrow_plan(&self) -> Plan {
        self.plans.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn give_back_plan(&self, mut plan: Plan) {
        let mut kept = self.plans.borrow_mut();
        if kept.len() < WORK_MAX && plan.capacity() <= KEEP_BYTES {
            plan.clear();
            kept.push(plan);
        }
    }

    /// A kept connection to this server that is still there.
    pub(super) fn take(
        &self,
        group: &Group,
        manner: u64,
        peer: usize,
        now: Moment,
    ) -> Option<Box<Connection>> {
        let mut groups = self.groups.borrow_mut();
        let (_, pool) = groups.get_mut(&PoolKey { group: group.serial, manner })?;
        while let Some((mut connection, usage)) = pool.take(peer, now) {
            if connection.is_usable(now) {
                connection.usage = usage;
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose exchange has ended, if it may be kept.
    pub(super) fn keep(
        self: &Rc<Self>,
        group: &Arc<Group>,
        manner: u64,
        peer: usize,
        connection: Box<Connection>,
        now: Moment,
    ) {
        let reuse = connection.engine.get().reuse();
        let usage = connection.usage;
        if keepalive::may_keep(&group.keepalive, reuse, usage, now).is_err() {
            return;
        }
        let mut groups = self.groups.borrow_mut();
        let (_, pool) = groups
            .entry(PoolKey { group: group.serial, manner })
            .or_insert_with(|| (Arc::downgrade(group), keepalive::Pool::new(group.keepalive)));
        pool.put(peer, connection, usage, now);
        drop(groups);
        if !self.is_watched.replace(true) {
            tokio::task::spawn_local(watch(Rc::downgrade(self), now));
        }
    }

    /// Closes what has been idle for too long, and what belongs to a group that is gone. Until when nothing has to be
    /// done; `None` when nothing is kept.
    fn expire(&self, now: Moment) -> Option<Moment> {
        let mut groups = self.groups.borrow_mut();
        groups.retain(|_, (group, pool)| {
            pool.expire(now);
            pool.remove(|_, connection| !connection.is_usable(now));
            group.strong_count() > 0 && !pool.is_empty()
        });
        groups.values().filter_map(|(_, pool)| pool.next_deadline()).min()
    }
}

/// The memory of a request that is passed on, until this is dropped.
#[derive(Debug)]
pub(super) struct Permit(Rc<Pools>);

impl Drop for Permit {
    fn drop(&mut self) {
        let in_work = self.0.in_work.get() - 1;
        self.0.in_work.set(in_work);
        let mut granted = self.0.granted.borrow_mut();
        if granted.bytes() >= (in_work + 2 * PERMITS) * PASSED_ON_BYTES {
            // Less is always granted.
            let _ = granted.resize((in_work + PERMITS) * PASSED_ON_BYTES);
        }
    }
}

/// Closes idle connections when their time is over, and at the latest after a while those that their server has closed.
async fn watch(pools: std::rc::Weak<Pools>, start: Moment) {
    const LOOK: Duration = Duration::from_secs(10);
    let begun = tokio::time::Instant::now();
    loop {
        let now = start + begun.elapsed();
        let Some(kept) = pools.upgrade() else { return };
        let Some(next) = kept.expire(now) else {
            kept.is_watched.set(false);
            return;
        };
        drop(kept);
        tokio::time::sleep(next.since(now).clamp(Duration::from_millis(1), LOOK)).await;
    }
}
