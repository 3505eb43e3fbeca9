//! How a session is woken by whoever works for it: a task's pipe or timer, another thread. Only a session
//! with something to do has a bell; an idle one is woken by its socket, its deadline or an order, which all
//! know its place.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::session::Token;

/// Where the bells of a worker hang.
#[derive(Debug, Default)]
pub(crate) struct Tower {
    rung: Mutex<Rung>,
}

#[derive(Debug, Default)]
struct Rung {
    tokens: Vec<Token>,
    /// Who answers the bells, while it waits.
    keeper: Option<Waker>,
}

impl Tower {
    /// Moves those who were rung for to `to`, and notes whom to wake for the next.
    pub(crate) fn collect(&self, keeper: &Waker, to: &mut Vec<Token>) {
        let mut rung = self.lock();
        to.append(&mut rung.tokens);
        if !rung.keeper.as_ref().is_some_and(|known| known.will_wake(keeper)) {
            rung.keeper = Some(keeper.clone());
        }
    }

    fn ring(&self, token: Token) {
        let mut rung = self.lock();
        rung.tokens.push(token);
        let keeper = if rung.tokens.len() == 1 { rung.keeper.clone() } else { None };
        drop(rung);
        if let Some(keeper) = keeper {
            keeper.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rung> {
        // Nothing that holds the lock can panic half-way.
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Bell {
    tower: Arc<Tower>,
    token: AtomicU64,
    is_rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            self.tower.ring(Token::from_bits(self.token.load(Ordering::Acquire)));
        }
    }
}

/// A bell in the hands of a session.
#[derive(Debug)]
pub(crate) struct Rope {
    bell: Arc<Bell>,
    waker: Waker,
}

impl Rope {
    /// A new bell in the tower.
    pub(crate) fn new(tower: &Arc<Tower>) -> Self {
        let bell = Arc::new(Bell {
            tower: Arc::clone(tower),
            token: AtomicU64::new(0),
            is_rung: AtomicBool::new(false),
        });
        Self { waker: Waker::from(Arc::clone(&bell)), bell }
    }

    /// From now on it rings for this session, and may ring again. Whoever still pulls it for the session
    /// that had it before wakes this one for nothing, which does no harm.
    pub(crate) fn hold(&self, token: Token) {
        self.bell.token.store(token.bits(), Ordering::Release);
        self.bell.is_rung.store(false, Ordering::Release);
    }

    /// What those who work for the session are given.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Key;

    #[test]
    fn a_session_is_called_once_for_many_pulls_and_again_after_its_turn() {
        let tower = Arc::new(Tower::default());
        let rope = Rope::new(&tower);
        let (first, second) = (Token::new(Key::new(3), 7), Token::new(Key::new(4), 8));
        rope.hold(first);
        rope.waker().wake_by_ref();
        rope.waker().wake_by_ref();
        let mut rung = Vec::new();
        tower.collect(Waker::noop(), &mut rung);
        assert_eq!(rung, [first]);
        rope.waker().wake_by_ref();
        rope.hold(second);
        rope.waker().wake_by_ref();
        rung.clear();
        tower.collect(Waker::noop(), &mut rung);
        assert_eq!(rung, [second], "the first was told of its last pull already");
    }

    #[test]
    fn the_keeper_is_woken_by_another_thread() {
        #[derive(Default)]
        struct Keeper(AtomicBool);
        impl Wake for Keeper {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Release);
            }
        }
        let (tower, keeper) = (Arc::new(Tower::default()), Arc::new(Keeper::default()));
        tower.collect(&Waker::from(Arc::clone(&keeper)), &mut Vec::new());
        let rope = Rope::new(&tower);
        rope.hold(Token::new(Key::new(0), 1));
        let waker = rope.waker().clone();
        std::thread::spawn(move || waker.wake()).join().expect("it rings");
        assert!(keeper.0.load(Ordering::Acquire));
    }
}
