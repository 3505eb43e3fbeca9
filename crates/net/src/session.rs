//! The sessions of one worker: their slots, the armed deadline of each, the commands for it, and which
//! sessions are due.
//!
//! A deadline that moves later costs a store, not a timer: the queue holds for each session an entry no
//! later than its deadline, and an entry that comes up early is put back. So a kept-alive connection
//! re-arms its deadlines without a system call and without touching the queue (T1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::task::Waker;

use sekisho_lifecycle::session::{Fact, Order};
use sekisho_lifecycle::{Deadline, Manner, Moment, Session};
use slab::Slab;
use tokio::sync::oneshot;

use crate::protocol::ProtocolKind;
use crate::query::Running;
use crate::transport::Ready;

/// So many entries of sessions that have left may wait in the queue in any case.
const QUEUE_SPARE: usize = 256;
/// Room for so few is kept when the last session ends.
const FEW: usize = 32;

/// What the worker wants of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ShutdownRequest {
    /// To go on.
    #[default]
    Continue,
    /// To end when its running request has ended.
    Drain,
    /// To end now.
    Force,
}

impl ShutdownRequest {
    /// The request as the session table knows it.
    pub const fn manner(self) -> Option<Manner> {
        match self {
            Self::Continue => None,
            Self::Drain => Some(Manner::Graceful),
            Self::Force => Some(Manner::Forceful),
        }
    }
}

/// What is asked of one session.
#[derive(Debug, Default)]
pub struct SessionCommand {
    /// To say what it does.
    pub is_asked: bool,
    /// To cancel these requests: the one with this number, or all of them. The answer is whether any was there.
    pub(crate) cancels: Vec<(Option<u64>, oneshot::Sender<Option<bool>>)>,
    /// Its answer to the last query.
    running: Vec<Running>,
}

/// What a session is to do in its turn.
#[derive(Debug)]
pub struct TurnOrders {
    /// The shutdown that was requested of it.
    pub shutdown: ShutdownRequest,
    /// What its socket has become ready for.
    pub ready: Ready,
    /// Something is asked of it alone.
    pub has_command: bool,
    /// Whether it is to end unless a request is in work.
    pub is_shed: bool,
}

/// A client's address, without what only this machine would understand of it: half the size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Remote {
    /// A Unix socket.
    Unix,
    V4([u8; 4], u16),
    V6([u8; 16], u16),
}

impl Remote {
    fn new(remote: Option<SocketAddr>) -> Self {
        match remote {
            None => Self::Unix,
            Some(SocketAddr::V4(v4)) => Self::V4(v4.ip().octets(), v4.port()),
            Some(SocketAddr::V6(v6)) => Self::V6(v6.ip().octets(), v6.port()),
        }
    }

    fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Unix => None,
            Self::V4(octets, port) => Some(SocketAddr::new(IpAddr::from(octets), port)),
            Self::V6(octets, port) => Some(SocketAddr::new(IpAddr::from(octets), port)),
        }
    }
}

/// A session's slot in the worker: what can be seen of it from outside (L34).
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct SessionSlot {
    /// Its number.
    pub id: u64,
    /// When it came.
    pub since: Moment,
    /// Bytes that came and that left, up to its last turn.
    pub moved: (u64, u64),
    /// Requests so far, up to its last turn.
    pub requests: u64,
    /// The native session that it was made for, if it was.
    pub within: Option<NonZeroU64>,
    /// What is asked of it alone.
    command: Option<Box<SessionCommand>>,
    deadline: Option<Deadline>,
    /// The moment of its entry in the queue, if it has one.
    queued: Option<Moment>,
    session: Session,
    /// Which listener it came in by.
    pub listener_id: u32,
    remote: Remote,
    shutdown: ShutdownRequest,
    /// What its socket has become ready for since its last turn.
    ready: Ready,
    /// It waits until it can send.
    waits_to_send: bool,
    /// It wants a turn at its entry in the queue, though its deadline may be later.
    turns_early: bool,
    /// It is its turn.
    is_due: bool,
    /// Its memory is needed (O9).
    is_shed: bool,
    /// What it speaks, once that is known.
    pub protocol: Option<ProtocolKind>,
}

impl SessionSlot {
    /// A slot for a session that has just connected. `remote` is `None` for a Unix socket.
    pub fn new(
        id: u64,
        listener_id: u32,
        since: Moment,
        remote: Option<SocketAddr>,
        shutdown: ShutdownRequest,
    ) -> Self {
        Self {
            id,
            since,
            moved: (0, 0),
            requests: 0,
            within: None,
            command: None,
            deadline: None,
            queued: None,
            session: Session::Vacant,
            listener_id,
            remote: Remote::new(remote),
            shutdown,
            ready: Ready::NOTHING,
            waits_to_send: false,
            turns_early: false,
            is_due: false,
            is_shed: false,
            protocol: None,
        }
    }

    /// The client has another address now (RFC 9000 §9).
    pub fn set_remote(&mut self, remote: SocketAddr) {
        self.remote = Remote::new(Some(remote));
    }

    /// The client's address; `None` for a Unix socket.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote.address()
    }

    /// Its state.
    pub fn session(&self) -> Session {
        self.session
    }

    /// The deadline it has armed.
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// The shutdown that was requested of it.
    pub fn shutdown(&self) -> ShutdownRequest {
        self.shutdown
    }

    /// What is asked of it alone.
    pub fn command_mut(&mut self) -> &mut SessionCommand {
        self.command.get_or_insert_default()
    }

    /// Whether it has been asked what it does, and has not answered.
    pub fn is_asked(&self) -> bool {
        self.command.as_ref().is_some_and(|command| command.is_asked)
    }

    /// What it said about its running requests.
    pub fn take_running(&mut self) -> Vec<Running> {
        self.command
            .as_mut()
            .map(|command| std::mem::take(&mut command.running))
            .unwrap_or_default()
    }
}

/// A session's place in [`Sessions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(u32);

impl Key {
    /// The place with this number.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Its number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A session as the kernel and other threads know it: its slot, and enough of its number to tell it from
/// earlier sessions in that slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token(u64);

impl Token {
    /// The session with this number at this place.
    pub const fn new(Key(index): Key, id: u64) -> Self {
        Self(id << 32 | index as u64)
    }

    /// The same, as one number.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// From that number.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The place.
    pub const fn key(self) -> Key {
        Key(self.0 as u32)
    }
}

/// All sessions of a worker and the queue of their deadlines.
#[derive(Debug, Default)]
pub struct Sessions {
    slots: Slab<SessionSlot>,
    queue: BinaryHeap<Reverse<(Moment, u32, u64)>>,
    due: Due,
}

/// The sessions that are due, and the waker of the loop that runs them.
#[derive(Debug, Default)]
struct Due {
    tokens: Vec<Token>,
    loop_waker: Option<Waker>,
}

impl Due {
    fn add(&mut self, index: u32, slot: &mut SessionSlot) {
        if std::mem::replace(&mut slot.is_due, true) {
            return;
        }
        self.tokens.push(Token::new(Key(index), slot.id));
    }

    /// Wakes the loop if sessions are due.
    fn wake_loop(&self) {
        if let Some(loop_waker) = self.loop_waker.as_ref().filter(|_| !self.tokens.is_empty()) {
            loop_waker.wake_by_ref();
        }
    }
}

impl Sessions {
    /// Gives a session its slot (L1).
    pub fn enter(&mut self, slot: SessionSlot) -> Key {
        // More than there can be descriptors: it always fits.
        let key = Key(self.slots.insert(slot) as u32);
        self.after(key, Fact::Connected);
        key
    }

    /// Tells a session's table what happened. A pair that the table does not have is a bug of ours and
    /// changes nothing.
    pub fn after(&mut self, key: Key, fact: Fact) -> Order {
        let slot = &mut self.slots[key.index()];
        match slot.session.after(fact) {
            Ok((next, order)) => {
                slot.session = next;
                order
            }
            Err(illegal) => {
                debug_assert!(false, "{illegal:?}");
                Order::Nothing
            }
        }
    }

    /// A session's slot.
    pub fn slot(&self, key: Key) -> &SessionSlot {
        &self.slots[key.index()]
    }

    /// The same, to write into.
    pub fn slot_mut(&mut self, key: Key) -> &mut SessionSlot {
        &mut self.slots[key.index()]
    }

    /// How the kernel and other threads know a session.
    pub fn token(&self, key: Key) -> Token {
        Token::new(key, self.slots[key.index()].id)
    }

    /// All sessions.
    pub fn iter(&self) -> impl Iterator<Item = &SessionSlot> {
        self.slots.iter().map(|(_, slot)| slot)
    }

    /// All sessions, to write into.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut SessionSlot> {
        self.slots.iter_mut().map(|(_, slot)| slot)
    }

    /// Takes a session's slot back. Its entry in the queue is passed over when it comes up.
    pub fn leave(&mut self, key: Key) {
        self.slots.remove(key.index());
        if !self.slots.is_empty() {
            return;
        }
        if self.slots.capacity() + self.queue.capacity() <= FEW {
            // Those that come and go one by one need not pay for the memory each time.
            return self.queue.clear();
        }
        self.queue = BinaryHeap::new();
        self.slots.shrink_to_fit();
    }

    /// What the slots and the queue of their deadlines hold in memory.
    pub fn memory_bytes(&self) -> usize {
        // A place of the slab is a slot, or the number of the next free one.
        let slots = self.slots.capacity() * (size_of::<SessionSlot>() + size_of::<usize>());
        slots + self.queue.capacity() * size_of::<Reverse<(Moment, u32, u64)>>()
    }

    /// How many are here.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Notes what a session waits for, and when it wants a turn before its deadline; `true` when the queue has a new
    /// first entry, so that the timer must be set anew.
    pub fn arm(
        &mut self,
        key: Key,
        deadline: Option<Deadline>,
        turn_at: Option<Moment>,
        waits_to_send: bool,
    ) -> bool {
        let slot = &mut self.slots[key.index()];
        slot.waits_to_send = waits_to_send;
        (slot.deadline, slot.turns_early) = (deadline, turn_at.is_some());
        let at = match (deadline, turn_at) {
            (Some(Deadline { at, .. }), None) => at,
            (Some(Deadline { at, .. }), Some(turn)) => at.min(turn),
            (None, Some(turn)) => turn,
            (None, None) => return false,
        };
        if slot.queued.is_some_and(|queued| queued <= at) {
            return false;
        }
        slot.queued = Some(at);
        self.drop_stale_entries();
        let slot = &self.slots[key.index()];
        let is_first = self.queue.peek().is_none_or(|Reverse((first, _, _))| at < *first);
        self.queue.push(Reverse((at, key.0, slot.id)));
        is_first
    }

    /// Entries of ended sessions stay until they come up. When there are many, all are removed at once, so
    /// that the queue is at most a few times as long as the number of sessions.
    fn drop_stale_entries(&mut self) {
        if self.queue.len() > QUEUE_SPARE + 4 * self.slots.len() {
            let slots = &self.slots;
            self.queue.retain(|Reverse((at, index, id))| {
                let slot = slots.get(*index as usize);
                slot.is_some_and(|slot| slot.id == *id && slot.queued == Some(*at))
            });
        }
    }

    /// A session's socket has become ready. It is its turn, unless it waits for something else.
    pub fn note_ready(&mut self, token: Token, ready: Ready) {
        let Key(index) = token.key();
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        // Its predecessor's socket may still be open in a child that is about to become another program.
        if Token::new(token.key(), slot.id) != token {
            return;
        }
        slot.ready |= ready;
        if ready.may_read() || slot.waits_to_send {
            self.due.add(index, slot);
        }
    }

    /// A task or another thread wants a session to have a turn.
    pub fn call(&mut self, token: Token) {
        let Key(index) = token.key();
        if let Some(slot) = self.slots.get_mut(index as usize)
            && Token::new(token.key(), slot.id) == token
        {
            self.due.add(index, slot);
        }
    }

    /// Moves the sessions that are due to `to`, and stores the waker to call for the next.
    pub fn take_due(&mut self, loop_waker: &Waker, to: &mut Vec<Token>) {
        to.append(&mut self.due.tokens);
        if !self.due.loop_waker.as_ref().is_some_and(|known| known.will_wake(loop_waker)) {
            self.due.loop_waker = Some(loop_waker.clone());
        }
    }

    /// A session that was due has its turn; whether it is still here.
    pub fn begin_turn(&mut self, token: Token) -> bool {
        let slot = self.slots.get_mut(token.key().index());
        let slot = slot.filter(|slot| Token::new(token.key(), slot.id) == token);
        slot.map(|slot| slot.is_due = false).is_some()
    }

    /// The shutdown that was requested of a session.
    pub fn shutdown(&self, key: Key) -> ShutdownRequest {
        self.slots[key.index()].shutdown
    }

    /// What a session is to do now.
    pub fn orders(&mut self, key: Key) -> TurnOrders {
        let slot = &mut self.slots[key.index()];
        let ready = std::mem::take(&mut slot.ready);
        let is_shed = std::mem::take(&mut slot.is_shed);
        TurnOrders { shutdown: slot.shutdown, ready, has_command: slot.command.is_some(), is_shed }
    }

    /// The command for this session alone; it is handed out once.
    pub(crate) fn take_command(&mut self, key: Key) -> SessionCommand {
        self.slots[key.index()].command.take().map(|command| *command).unwrap_or_default()
    }

    /// What a session that was asked does.
    pub(crate) fn answer_command(&mut self, key: Key, running: Vec<Running>) {
        self.slots[key.index()].command_mut().running = running;
    }

    /// The memory of these sessions is needed: they end in their turns, where no request is in work.
    pub fn shed(&mut self, keys: impl IntoIterator<Item = Key>) {
        for Key(index) in keys {
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            slot.is_shed = true;
            self.due.add(index, slot);
        }
        self.due.wake_loop();
    }

    /// Asks some sessions what they do.
    pub fn ask_where(&mut self, is_meant: impl Fn(&SessionSlot) -> bool) {
        for (index, slot) in self.slots.iter_mut().filter(|(_, slot)| is_meant(slot)) {
            slot.command_mut().is_asked = true;
            self.due.add(index as u32, slot);
        }
        self.due.wake_loop();
    }

    /// Has the session with this number cancel a request, or all of its requests; it answers in its turn. For one
    /// that is not here, `None` is answered at once.
    pub(crate) fn cancel(
        &mut self,
        id: u64,
        request: Option<u64>,
        answer: oneshot::Sender<Option<bool>>,
    ) {
        let Some((index, slot)) = self.slots.iter_mut().find(|(_, slot)| slot.id == id) else {
            let _ = answer.send(None);
            return;
        };
        slot.command_mut().cancels.push((request, answer));
        self.due.add(index as u32, slot);
        self.due.wake_loop();
    }

    /// Requests a shutdown of every session and wakes it. A request is never weakened (L10).
    pub fn request_shutdown_of_all(&mut self, shutdown: ShutdownRequest) {
        self.request_shutdown_where(shutdown, |_| true);
    }

    /// Requests a shutdown of some sessions and wakes them.
    pub fn request_shutdown_where(
        &mut self,
        shutdown: ShutdownRequest,
        is_meant: impl Fn(&SessionSlot) -> bool,
    ) {
        for (index, slot) in &mut self.slots {
            if shutdown > slot.shutdown && is_meant(slot) {
                slot.shutdown = shutdown;
                self.due.add(index as u32, slot);
            }
        }
        self.due.wake_loop();
    }

    /// Gives every session whose deadline is due its turn, and says when the next entry comes up.
    pub fn wake_due(&mut self, now: Moment) -> Option<Moment> {
        let next = self.find_due(now);
        self.due.wake_loop();
        next
    }

    fn find_due(&mut self, now: Moment) -> Option<Moment> {
        while let Some(&Reverse((at, index, id))) = self.queue.peek() {
            if !at.is_due(now) {
                return Some(at);
            }
            self.queue.pop();
            let slot = self.slots.get_mut(index as usize);
            let Some(slot) = slot.filter(|slot| slot.id == id) else {
                continue;
            };
            // A session may have two entries, when its deadline moved earlier: only the one that it
            // knows of counts.
            if slot.queued != Some(at) {
                continue;
            }
            slot.queued = None;
            match slot.deadline {
                _ if slot.turns_early => self.due.add(index, slot),
                Some(deadline) if deadline.at.is_due(now) => self.due.add(index, slot),
                Some(Deadline { at, .. }) => {
                    slot.queued = Some(at);
                    self.queue.push(Reverse((at, index, id)));
                }
                None => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_lifecycle::DeadlineKind;

    /// Takes the sessions that are due and gives them their turn.
    fn due(sessions: &mut Sessions) -> Vec<Key> {
        let mut tokens = Vec::new();
        sessions.take_due(Waker::noop(), &mut tokens);
        tokens.retain(|token| sessions.begin_turn(*token));
        tokens.into_iter().map(Token::key).collect()
    }

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    fn by(millis: u64) -> Deadline {
        Deadline { at: at(millis), kind: DeadlineKind::Header }
    }

    fn slot(id: u64) -> SessionSlot {
        SessionSlot::new(id, 0, Moment::ZERO, None, ShutdownRequest::Continue)
    }

    #[test]
    fn a_deadline_never_wakes_early_and_is_not_lost_when_it_moves() {
        // T1, T2
        let mut sessions = Sessions::default();
        let key = sessions.enter(slot(1));
        assert!(sessions.arm(key, Some(by(10)), None, false));
        assert!(!sessions.arm(key, Some(by(30)), None, false), "later: nothing to set");
        assert_eq!(sessions.wake_due(at(10)), Some(at(30)), "put back, not woken");
        assert_eq!(due(&mut sessions), []);
        assert!(sessions.arm(key, Some(by(20)), None, false), "earlier: a new first entry");
        assert_eq!(sessions.wake_due(at(20)), Some(at(30)));
        assert_eq!(due(&mut sessions), [key]);
        assert_eq!(sessions.wake_due(at(30)), None, "the stale entry is passed over");
        assert_eq!(due(&mut sessions), []);
    }

    #[test]
    fn a_session_has_a_turn_before_its_deadline_where_it_wants_one() {
        // T4
        let mut sessions = Sessions::default();
        let key = sessions.enter(slot(0));
        assert!(sessions.arm(key, Some(by(100)), Some(at(25)), true));
        assert_eq!(sessions.slot(key).deadline(), Some(by(100)), "the view has the deadline");
        assert_eq!(sessions.wake_due(at(24)), Some(at(25)));
        assert_eq!(sessions.wake_due(at(25)), None);
        assert_eq!(due(&mut sessions), [key]);
        sessions.arm(key, Some(by(100)), None, true);
        assert_eq!(sessions.wake_due(at(50)), Some(at(100)));
        assert_eq!(due(&mut sessions), []);
    }

    #[test]
    fn the_queue_does_not_grow_with_those_who_have_left() {
        // T1, O5
        let mut sessions = Sessions::default();
        let stays = sessions.enter(slot(0));
        sessions.arm(stays, Some(by(90_000)), None, false);
        for id in 1..100_000 {
            let key = sessions.enter(slot(id));
            sessions.arm(key, Some(by(60_000 + id)), None, false);
            assert!(sessions.queue.len() <= QUEUE_SPARE + 10, "{}", sessions.queue.len());
            sessions.leave(key);
        }
        sessions.wake_due(at(89_999));
        assert_eq!(due(&mut sessions), []);
        sessions.wake_due(at(90_000));
        assert_eq!(due(&mut sessions), [stays]);
    }

    #[test]
    fn a_session_without_a_deadline_contributes_nothing_to_the_wait() {
        // T2
        let mut sessions = Sessions::default();
        let key = sessions.enter(slot(1));
        sessions.arm(key, Some(by(10)), None, false);
        sessions.arm(key, None, None, false);
        assert_eq!(sessions.wake_due(at(10)), None);
        sessions.leave(key);
        assert!(sessions.is_empty());
    }

    #[test]
    fn the_slot_of_a_closed_session_is_not_mistaken_for_the_next() {
        let mut sessions = Sessions::default();
        let _other = sessions.enter(slot(0));
        let key = sessions.enter(slot(1));
        sessions.arm(key, Some(by(10)), None, false);
        let old = sessions.token(key);
        sessions.leave(key);
        let key = sessions.enter(slot(2));
        assert_eq!(old.key(), key, "the same place");
        sessions.arm(key, Some(by(50)), None, false);
        assert_eq!(sessions.wake_due(at(20)), Some(at(50)));
        sessions.note_ready(old, Ready::ALL);
        sessions.call(old);
        assert_eq!(due(&mut sessions), []);
        assert_eq!(sessions.orders(key).ready, Ready::NOTHING);
    }

    #[test]
    fn a_session_is_due_once_however_often_it_is_called_and_only_for_what_it_waits_for() {
        let mut sessions = Sessions::default();
        let key = sessions.enter(slot(1));
        let token = sessions.token(key);
        sessions.note_ready(token, Ready::TO_SEND);
        assert_eq!(due(&mut sessions), [], "it does not wait for that");
        sessions.note_ready(token, Ready::TO_READ);
        sessions.call(token);
        assert_eq!(due(&mut sessions), [key]);
        assert_eq!(sessions.orders(key).ready, Ready::TO_SEND | Ready::TO_READ);
        assert_eq!(sessions.orders(key).ready, Ready::NOTHING, "told once");
        sessions.arm(key, None, None, true);
        sessions.note_ready(token, Ready::TO_SEND);
        assert_eq!(due(&mut sessions), [key]);
    }

    #[test]
    fn an_address_is_kept_whole() {
        for address in ["192.0.2.1:80", "[2001:db8::1]:65535"] {
            let address = address.parse().ok();
            assert_eq!(Remote::new(address).address(), address);
        }
        assert_eq!(Remote::new(None).address(), None);
    }

    #[test]
    fn force_may_follow_drain_and_never_the_reverse() {
        // L10
        let mut sessions = Sessions::default();
        let key = sessions.enter(slot(1));
        sessions.request_shutdown_of_all(ShutdownRequest::Force);
        sessions.request_shutdown_of_all(ShutdownRequest::Drain);
        assert_eq!(sessions.shutdown(key), ShutdownRequest::Force);
    }

    #[test]
    fn what_happens_to_a_session_can_be_seen() {
        // L1, L2, L5, L6, L9, L34
        let mut sessions = Sessions::default();
        let key = sessions.enter(slot(7));
        let seen =
            |sessions: &Sessions| sessions.iter().next().map(|slot| slot.session().to_string());
        assert_eq!(seen(&sessions).as_deref(), Some("idle"));
        assert_eq!(sessions.after(key, Fact::RequestReceived), Order::Admit);
        assert_eq!(seen(&sessions).as_deref(), Some("p_1"));
        assert_eq!(sessions.after(key, Fact::ShutdownAsked(Manner::Graceful)), Order::Nothing);
        assert_eq!(seen(&sessions).as_deref(), Some("c_1"));
        assert_eq!(sessions.after(key, Fact::ResponseSent), Order::ReleaseWorker);
        assert_eq!(seen(&sessions).as_deref(), Some("shutdown"));
    }

    #[test]
    fn only_those_who_are_meant_are_asked_to_go() {
        let mut sessions = Sessions::default();
        let stays =
            sessions.enter(SessionSlot::new(1, 1, Moment::ZERO, None, ShutdownRequest::Continue));
        let goes =
            sessions.enter(SessionSlot::new(2, 2, Moment::ZERO, None, ShutdownRequest::Continue));
        sessions.request_shutdown_where(ShutdownRequest::Drain, |slot| slot.listener_id == 2);
        assert_eq!(
            (sessions.shutdown(stays), sessions.shutdown(goes)),
            (ShutdownRequest::Continue, ShutdownRequest::Drain)
        );
    }
}
