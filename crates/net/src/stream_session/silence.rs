//! Which sessions with datagrams end when there is no descriptor for another one: those whose servers have been silent
//! for the longest time. A datagram may come from a forged address, and nothing says that its client is there; an
//! answer of the server says at least that the session is of use (ADR 0095).
//!
//! An answer counts as much as [`UNANSWERED_TIMEOUT`]: while a flood lasts, sessions that are answered are kept before new
//! ones, and new ones before those that were answered long ago.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use sekisho_handler::descriptors::{DATAGRAM_SESSIONS, DescriptorPermit};
use sekisho_lifecycle::Moment;

use super::Inbox;
use crate::session::Token;
use crate::worker::Worker;

/// How long a session may be idle whose server has never answered.
pub(super) const UNANSWERED_TIMEOUT: Duration = Duration::from_secs(10);
/// How exact the order is: most answers change nothing in it.
const STEP: Duration = Duration::from_secs(1);

/// The place of a session in the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Silence {
    /// When the session began, or [`UNANSWERED_TIMEOUT`] after the last answer.
    since: Moment,
    id: u64,
}

/// The sessions of a worker.
#[derive(Debug, Default)]
pub(crate) struct SilentServers(RefCell<BTreeMap<Silence, (Token, Rc<Inbox>)>>);

impl SilentServers {
    /// A session begins.
    pub(super) fn enter(&self, token: Token, inbox: &Rc<Inbox>, id: u64, now: Moment) -> Silence {
        let silence = Silence { since: now, id };
        self.0.borrow_mut().insert(silence, (token, Rc::clone(inbox)));
        silence
    }

    /// The server has answered.
    pub(super) fn note_answer(&self, silence: &mut Silence, now: Moment) {
        let since = now + UNANSWERED_TIMEOUT;
        if since.since(silence.since) < STEP {
            return;
        }
        let mut all = self.0.borrow_mut();
        let session = all.remove(silence);
        silence.since = since;
        all.extend(session.map(|session| (*silence, session)));
    }

    pub(super) fn leave(&self, silence: Silence) {
        self.0.borrow_mut().remove(&silence);
    }
}

impl Worker {
    /// A descriptor for one more session with datagrams; where the worker has no more of them, a session ends.
    pub(crate) fn admit_datagrams(&self) -> Option<DescriptorPermit> {
        let workers = self.shared.workers.load(std::sync::atomic::Ordering::Relaxed).max(1);
        let descriptors = usize::try_from(DATAGRAM_SESSIONS.max()).unwrap_or(usize::MAX) / workers;
        // The others are for connections.
        let max = descriptors.min(self.sessions_max.get() / 2).max(1);
        if self.silent_servers.0.borrow().len() >= max {
            self.end_silent_session();
        }
        DATAGRAM_SESSIONS.take().or_else(|| {
            self.end_silent_session();
            DATAGRAM_SESSIONS.take()
        })
    }

    fn end_silent_session(&self) {
        let first = self.silent_servers.0.borrow_mut().pop_first();
        if let Some((_, (token, inbox))) = first {
            inbox.evict();
            self.give_due_turn(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Key;

    /// O5: the longest silence first; an answer counts as much as ten seconds.
    #[test]
    fn the_longest_silence_comes_first() {
        let servers = SilentServers::default();
        let at = Moment::from_millis;
        let token = Token::new(Key::new(0), 1);
        let inbox = Rc::new(Inbox::default());
        let enter = |(begun, id)| servers.enter(token, &inbox, id, begun);
        let mut all: Vec<Silence> =
            [0, 1, 2, 15_500].map(at).into_iter().zip(0..).map(enter).collect();
        servers.note_answer(&mut all[0], at(5000));
        servers.note_answer(&mut all[2], at(9000));
        // Within a step nothing changes, later it does.
        servers.note_answer(&mut all[0], at(5900));
        assert_eq!(all[0].since, at(15_000));
        let order: Vec<u64> = servers.0.borrow().keys().map(|one| one.id).collect();
        assert_eq!(order, [1, 0, 3, 2]);
        servers.leave(all[1]);
        assert_eq!(servers.0.borrow().len(), 3);
    }
}
