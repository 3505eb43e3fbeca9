//! What sessions hold in memory for as long as a client or a service likes: bodies of requests, what services keep,
//! what waits to leave. All of it is taken from one budget of the endpoint, and each session has a part of that at
//! the most (E4); beyond it a request is answered with `RESOURCE_LIMIT_REACHED`.

use std::fmt;
use std::rc::Rc;

use sekisho_lifecycle::Share;

use crate::session::Session;

/// A body up to this size is not counted: the number of requests of a session bounds those.
pub(crate) const SMALL_BODY_BYTES: usize = 4 * 1024;

/// Memory that is held for a request, until this is dropped.
pub struct Held {
    session: Rc<Session>,
    share: Share,
}

/// The session or the endpoint holds as much as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverBudget;

impl Held {
    /// Takes so many bytes for a session.
    pub(crate) fn take(session: &Rc<Session>, bytes: usize) -> Result<Self, OverBudget> {
        if !session.may_hold(bytes) {
            return Err(OverBudget);
        }
        let share = session.budget.take(bytes).ok_or(OverBudget)?;
        session.held.update(|held| held + bytes);
        Ok(Self { session: Rc::clone(session), share })
    }

    /// Takes so many more.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), OverBudget> {
        if !self.session.may_hold(more) || !self.share.resize(self.share.bytes() + more) {
            return Err(OverBudget);
        }
        self.session.held.update(|held| held + more);
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let bytes = self.share.bytes();
        self.session.held.update(|held| held.saturating_sub(bytes));
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Held({})", self.share.bytes())
    }
}

impl fmt::Display for OverBudget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the memory limit of the session or the endpoint is reached")
    }
}

impl std::error::Error for OverBudget {}
