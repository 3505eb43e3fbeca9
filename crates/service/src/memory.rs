//! What sessions hold in memory for as long as a client or a service likes: bodies of requests, what services keep,
//! what waits to leave. All of it is taken from one budget of the endpoint, and each session has a part of that at
//! the most; beyond it a request is answered with `RESOURCE_LIMIT_REACHED`.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use sekisho_lifecycle::{Budget, Share};

/// A body up to this size is not counted: the number of requests of a session bounds those.
pub const SMALL_BODY_BYTES: usize = 4 * 1024;

/// What a session holds of a budget, and how much that may be.
#[derive(Debug)]
pub struct SessionMemory {
    held: Cell<usize>,
    max: usize,
    budget: Arc<Budget>,
}

impl SessionMemory {
    /// Of a session that may hold so much of this budget.
    pub fn new(budget: &Arc<Budget>, max: usize) -> Rc<Self> {
        Rc::new(Self { held: Cell::new(0), max, budget: Arc::clone(budget) })
    }

    /// How many bytes it holds.
    pub const fn held(&self) -> usize {
        self.held.get()
    }

    /// How many it may hold.
    pub const fn max(&self) -> usize {
        self.max
    }

    fn may_hold(&self, bytes: usize) -> bool {
        self.held.get().checked_add(bytes).is_some_and(|sum| sum <= self.max)
    }
}

/// Memory that is held for a request, until this is dropped.
pub struct Held {
    memory: Rc<SessionMemory>,
    share: Share,
}

/// The session or the endpoint holds as much as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverBudget;

impl Held {
    /// Takes so many bytes for a session.
    pub fn take(memory: &Rc<SessionMemory>, bytes: usize) -> Result<Self, OverBudget> {
        if !memory.may_hold(bytes) {
            return Err(OverBudget);
        }
        let share = memory.budget.take(bytes).ok_or(OverBudget)?;
        memory.held.update(|held| held + bytes);
        Ok(Self { memory: Rc::clone(memory), share })
    }

    /// Takes so many more.
    pub fn grow(&mut self, more: usize) -> Result<(), OverBudget> {
        if !self.memory.may_hold(more) || !self.share.resize(self.share.bytes() + more) {
            return Err(OverBudget);
        }
        self.memory.held.update(|held| held + more);
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let bytes = self.share.bytes();
        self.memory.held.update(|held| held.saturating_sub(bytes));
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
