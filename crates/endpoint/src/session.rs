//! A session as its connection, its handlers and its endpoint share it: the engine, what is to be sent, and
//! the wakers. All of them are on one thread; none keeps it borrowed while it calls another.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use sekisho_lifecycle::{Cancel, Cause, Deadline, Engine, Manner, Moment, Request, RequestId};
use sekisho_native::{Greeting, Scratch, Server};
use sekisho_service::{
    AcquireError, AnswerError, Caller, Code, Identity, Peer, RequestCounter, ResponseSink,
    SessionMemory, WriteError, Written,
};
use tokio::net::UnixStream;

use crate::admission::{Admitted, Evidence, SlotGuard};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::working::Turn;

/// What its parts share.
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) state: RefCell<State>,
    pub(crate) clock: Clock,
    pub(crate) peer: Peer,
    /// The turn that its connection has.
    pub(crate) turn: Turn,
    /// How many requests were admitted.
    pub(crate) requests: Cell<u64>,
    /// What it holds of the endpoint's budget, and how much that may be.
    pub(crate) memory: Rc<SessionMemory>,
    endpoint: Weak<Endpoint>,
}

pub(crate) struct State {
    pub(crate) engine: Server,
    pub(crate) scratch: Scratch,
    /// Its label and slot, once it is admitted.
    pub(crate) member: Option<Member>,
    /// The connection, to be woken when a handler or an operator did something.
    pub(crate) waker: Option<Waker>,
    /// The connection is at work and will look by itself.
    pub(crate) is_polling: bool,
    /// The time at which its turn began.
    pub(crate) now: Moment,
    /// The connection is gone.
    pub(crate) is_over: bool,
    waiters: BTreeMap<RequestId, Waiters>,
    flags: BTreeMap<RequestId, Cancel>,
}

/// The tasks that wait for a change of a request: one task, mostly.
struct Waiters {
    first: Waker,
    others: Vec<Waker>,
}

/// The identity of a session.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) label: String,
    pub(crate) application: String,
    /// The same for services.
    pub(crate) caller: Rc<Caller>,
    /// What its requests count against.
    pub(crate) counter: RequestCounter,
    pub(crate) since: Moment,
    is_admin: bool,
    is_control_only: bool,
    /// Few sessions have any.
    evidence: Option<Box<Evidence>>,
    /// Gone with the connection and the last answer.
    slot: Option<SlotGuard>,
}

/// A session as it can be seen from outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionInfo {
    /// Its number.
    pub id: u64,
    /// What it calls itself.
    pub label: String,
    /// Which program it is.
    pub application: String,
    /// Whether it has an admin slot.
    pub is_admin: bool,
    /// The peer.
    pub peer: Peer,
    /// Who it is.
    pub identity: Identity,
    /// How long it has been here.
    pub age: Duration,
    /// Where it stands.
    pub state: sekisho_lifecycle::Session,
    /// The strongest shutdown that was asked for.
    pub asked: Option<Manner>,
    /// Its next deadline, and how long until then.
    pub deadline: Option<(Deadline, Duration)>,
    /// Bytes that came from it.
    pub received_bytes: u64,
    /// Bytes that it took.
    pub sent_bytes: u64,
    /// How many requests it has made.
    pub requests_total: u64,
    /// Its requests, in the order in which they came.
    pub requests: Vec<RequestInfo>,
}

/// A request as it can be seen from outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestInfo {
    /// Its number in the session.
    pub id: RequestId,
    /// The client's number for it.
    pub slot: u16,
    /// The service that works on it.
    pub service: u32,
    /// That service's name.
    pub service_name: Option<String>,
    /// How long ago it came.
    pub age: Duration,
    /// Where it stands.
    pub state: Request,
    /// What cancelled it.
    pub cancelled: Option<Cause>,
}

impl State {
    /// The connection is gone. So is the slot, unless a service is still at work: one that has answered and
    /// keeps its handle keeps the session's record, but not the slot.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
        self.free_slot();
    }

    fn free_slot(&mut self) {
        if self.engine.stay().running() == 0
            && let Some(member) = &mut self.member
        {
            member.slot = None;
        }
    }
}

impl Session {
    /// What it has in memory: itself, its connection, and what is to leave. One that is being changed just
    /// now is taken for an idle one.
    pub(crate) fn memory_bytes(&self) -> usize {
        let own = size_of::<Self>() + size_of::<Connection<UnixStream>>();
        let out = self.state.try_borrow().map_or(0, |state| state.scratch.out.capacity());
        own + out + self.memory.held()
    }

    /// Keeps nothing for the next request, if none is under way.
    pub(crate) fn trim(&self) {
        let Ok(mut state) = self.state.try_borrow_mut() else { return };
        let State { engine, scratch, .. } = &mut *state;
        if scratch.out.is_empty() && engine.trim() {
            scratch.out = Vec::new();
        }
    }

    pub(crate) fn new(endpoint: &Rc<Endpoint>, id: u64, engine: Server, peer: Peer) -> Rc<Self> {
        let state = State {
            engine,
            scratch: Scratch::default(),
            member: None,
            waker: None,
            is_polling: false,
            now: Moment::ZERO,
            is_over: false,
            waiters: BTreeMap::new(),
            flags: BTreeMap::new(),
        };
        Rc::new(Self {
            id,
            state: RefCell::new(state),
            clock: endpoint.clock,
            peer,
            turn: Turn::default(),
            requests: Cell::new(0),
            memory: SessionMemory::new(&endpoint.config.budget, endpoint.config.session_bytes_max),
            endpoint: Rc::downgrade(endpoint),
        })
    }

    /// Something was done that may have taken long.
    pub(crate) fn look_at_clock(&self) {
        self.turn.note(self.clock.now());
    }

    /// The caller, as its requests name it, and what they count against.
    pub(crate) fn caller(&self) -> (Rc<Caller>, RequestCounter) {
        let state = self.state.borrow();
        let of = |member: &Member| (Rc::clone(&member.caller), member.counter.clone());
        // Requests come from sessions that are admitted.
        let nobody = || (Rc::new(Caller::unproved(self.id, self.peer)), RequestCounter::default());
        state.member.as_ref().map_or_else(nobody, of)
    }

    /// The caller, once it is admitted.
    pub(crate) fn admitted_caller(&self) -> Option<Rc<Caller>> {
        self.state.borrow().member.as_ref().map(|member| Rc::clone(&member.caller))
    }

    /// What it was admitted for, if that may be withdrawn, and the session goes on.
    pub(crate) fn evidence(&self) -> Option<(Rc<Caller>, Evidence)> {
        let state = self.state.borrow();
        let member = state.member.as_ref()?;
        let evidence = member.evidence.as_deref()?;
        let goes_on = !state.is_over && state.engine.stay().asked().is_none();
        goes_on.then(|| (Rc::clone(&member.caller), evidence.clone()))
    }

    /// Whether it was admitted for the service `control` alone.
    pub(crate) fn is_control_only(&self) -> bool {
        self.state.borrow().member.as_ref().is_some_and(|member| member.is_control_only)
    }

    /// Something is done with the engine, by a handler or an operator; the connection takes it from there.
    pub(crate) fn command<T>(
        &self,
        command: impl FnOnce(&mut Server, &mut Scratch, Moment) -> T,
    ) -> T {
        let mut state = self.state.borrow_mut();
        // Within a turn it is the turn's time: one look at the clock for all that a turn does.
        let now = if state.is_polling { state.now } else { self.clock.now() };
        let State { engine, scratch, .. } = &mut *state;
        let done = command(engine, scratch, now);
        if state.is_over {
            state.free_slot();
        }
        if !state.is_polling
            && let Some(waker) = state.waker.clone()
        {
            drop(state);
            waker.wake();
        }
        done
    }

    /// Something happened to a request: the tasks that wait for it look again.
    pub(crate) fn tell(&self, id: RequestId, cancelled: Option<Cause>) {
        let mut state = self.state.borrow_mut();
        if let Some(cause) = cancelled
            && let Some(flag) = state.flags.get(&id)
        {
            flag.raise(cause);
        }
        // They are woken or dropped when the session is not borrowed: a waker may be the last that holds a
        // task, and the task may hold a handle.
        let waiters = state.waiters.remove(&id);
        drop(state);
        if let Some(Waiters { first, others }) = waiters {
            first.wake();
            others.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn become_member(
        &self,
        greeting: Greeting,
        admitted: Admitted,
        counter: RequestCounter,
        slot: SlotGuard,
        now: Moment,
    ) {
        let Admitted { identity, control, is_control_only, evidence } = admitted;
        let evidence = Some(evidence).filter(|evidence| *evidence != Evidence::None).map(Box::new);
        self.state.borrow_mut().member = Some(Member {
            label: greeting.label,
            application: greeting.application,
            caller: Rc::new(Caller { session: self.id, peer: self.peer, identity, control }),
            counter,
            since: now,
            is_admin: greeting.wants_admin,
            is_control_only,
            evidence,
            slot: Some(slot),
        });
    }

    /// What can be seen of it.
    pub(crate) fn info(&self, endpoint: &Endpoint) -> Option<SessionInfo> {
        let now = self.clock.now();
        let state = self.state.borrow();
        let member = state.member.as_ref()?;
        let stay = state.engine.stay();
        let lanes = state.engine.lanes();
        let (received_bytes, sent_bytes) = state.engine.moved();
        let requests = stay.requests().iter().filter_map(|entry| {
            let lane = lanes.get(entry.id)?;
            Some(RequestInfo {
                id: entry.id,
                slot: lane.slot,
                service: lane.service,
                service_name: endpoint.services.name(lane.service).map(str::to_owned),
                age: now.since(lane.since),
                state: entry.state,
                cancelled: entry.cancelled,
            })
        });
        Some(SessionInfo {
            id: self.id,
            label: member.label.clone(),
            application: member.application.clone(),
            is_admin: member.is_admin,
            peer: self.peer,
            identity: member.caller.identity.clone(),
            age: now.since(member.since),
            state: stay.session(),
            asked: stay.asked(),
            deadline: state.engine.next_deadline().map(|armed| (armed, armed.at.since(now))),
            received_bytes,
            sent_bytes,
            requests_total: self.requests.get(),
            requests: requests.collect(),
        })
    }
}

impl ResponseSink for Session {
    fn result(&self, id: RequestId, body: &[u8]) -> Result<(), AnswerError> {
        self.command(|engine, scratch, now| engine.result(id, body, scratch, now))
    }

    fn error(&self, id: RequestId, code: Code, text: &str) -> Result<(), AnswerError> {
        self.command(|engine, scratch, now| engine.error(id, code, text, scratch, now))
    }

    fn acquire_channel(&self, id: RequestId) -> Result<(), AcquireError> {
        self.command(|engine, scratch, now| engine.acquire_channel(id, scratch, now))
    }

    fn add_channel(&self, id: RequestId) -> Result<u8, AcquireError> {
        self.command(|engine, scratch, now| engine.add_channel(id, scratch, now))
    }

    fn write(&self, id: RequestId, channel: u8, record: &[u8]) -> Result<Written, WriteError> {
        self.command(|engine, scratch, now| engine.write(id, channel, record, scratch, now))
    }

    fn release_channel(&self, id: RequestId, channel: u8) {
        self.command(|engine, scratch, now| match channel {
            0 => _ = engine.release_channel(id, scratch, now),
            _ => engine.release_side_channel(id, channel, scratch, now),
        });
    }

    fn record_bytes_max(&self) -> usize {
        self.state.borrow().engine.agreed().record_bytes_max() as usize
    }

    fn is_wanted(&self, id: RequestId, channel: u8) -> bool {
        self.state.borrow().engine.is_wanted(id, channel)
    }

    fn is_cancelled(&self, id: RequestId) -> bool {
        self.state.borrow().engine.is_cancelled(id)
    }

    fn cancel_flag(&self, id: RequestId) -> Cancel {
        let mut state = self.state.borrow_mut();
        if let Some(flag) = state.flags.get(&id) {
            return flag.clone();
        }
        let flag = Cancel::new();
        let entry = state.engine.stay().requests().get(id);
        if let Some(cause) = entry.and_then(|entry| entry.cancelled) {
            flag.raise(cause);
        }
        state.flags.insert(id, flag.clone());
        flag
    }

    fn wait(&self, id: RequestId, cx: &Context<'_>) {
        match self.state.borrow_mut().waiters.entry(id) {
            Entry::Vacant(place) => {
                place.insert(Waiters { first: cx.waker().clone(), others: Vec::new() });
            }
            Entry::Occupied(mut waiters) => {
                let Waiters { first, others } = waiters.get_mut();
                if !std::iter::once(&*first).chain(&*others).any(|it| it.will_wake(cx.waker())) {
                    others.push(cx.waker().clone());
                }
            }
        }
    }

    fn may_send(&self, bytes: usize) -> bool {
        let waiting = self.state.borrow().scratch.out.len();
        // One answer may always wait, however long it is.
        waiting == 0 || waiting.saturating_add(bytes) <= self.memory.max()
    }

    fn memory(&self) -> &Rc<SessionMemory> {
        &self.memory
    }

    fn drop_handle(&self, id: RequestId) {
        self.command(|engine, scratch, now| engine.handle_dropped(id, scratch, now));
        let mut state = self.state.borrow_mut();
        // Most requests have neither.
        let has_waiters = !state.waiters.is_empty();
        let waiters = if has_waiters { state.waiters.remove(&id) } else { None };
        if !state.flags.is_empty() {
            state.flags.remove(&id);
        }
        let is_over = state.is_over;
        drop(state);
        drop(waiters);
        if is_over && let Some(endpoint) = self.endpoint.upgrade() {
            endpoint.reclaim();
        }
    }
}
