//! The flag that a handler looks at: raised once, by the first cause, and never lowered. It
//! is a notice: it stops nothing by itself and has no answer of its own. Waking a handler that waits
//! for something else is the shell's business.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A request's cancel flag. Clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicU8>);

/// Why a request is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// The client asked.
    ClientAsked = 1,
    /// The client is gone.
    ClientLost = 2,
    /// The session is shut down by force.
    Shutdown = 3,
    /// A deadline fell.
    Deadline = 4,
    /// An operator asked.
    Operator = 5,
}

const LOWERED: u8 = 0;

impl Cancel {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the flag; says whether this call did it. The first cause stays.
    pub fn raise(&self, cause: Cause) -> bool {
        // Release and acquire: a thread that sees the flag also sees what was written before it was raised.
        self.0.compare_exchange(LOWERED, cause as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the request is cancelled.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) != LOWERED
    }

    /// The first cause that raised the flag.
    pub fn cause(&self) -> Option<Cause> {
        let raised = self.0.load(Ordering::Acquire);
        Cause::ALL.into_iter().find(|cause| *cause as u8 == raised)
    }
}

impl Cause {
    /// Every cause, in the order of its counter.
    pub const ALL: [Self; 5] =
        [Self::ClientAsked, Self::ClientLost, Self::Shutdown, Self::Deadline, Self::Operator];

    /// Its name in logs and metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::ClientAsked => "client_asked",
            Self::ClientLost => "client_lost",
            Self::Shutdown => "shutdown",
            Self::Deadline => "deadline",
            Self::Operator => "operator",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays() {
        // L31
        for first in Cause::ALL {
            let flag = Cancel::new();
            assert!(!flag.is_raised());
            assert_eq!(flag.cause(), None);
            assert!(flag.raise(first));
            for later in Cause::ALL {
                assert!(!flag.raise(later));
            }
            assert_eq!(flag.cause(), Some(first));
        }
    }

    #[test]
    fn a_clone_is_the_same_flag() {
        // L31: the handler reads what the session raises.
        let session_side = Cancel::new();
        let handler_side = session_side.clone();
        session_side.raise(Cause::ClientLost);
        assert!(handler_side.is_raised());
    }

    #[test]
    fn of_many_that_raise_at_once_exactly_one_is_first() {
        // L31
        for _ in 0..100 {
            let flag = Cancel::new();
            let won: Vec<Cause> = std::thread::scope(|scope| {
                let racers = Cause::ALL.map(|cause| {
                    let flag = &flag;
                    scope.spawn(move || flag.raise(cause).then_some(cause))
                });
                racers.into_iter().filter_map(|racer| racer.join().expect("no panic")).collect()
            });
            assert_eq!(won.len(), 1);
            assert_eq!(flag.cause(), Some(won[0]));
        }
    }

    #[test]
    fn every_cause_has_its_own_tag() {
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            assert!(Cause::ALL[index + 1..].iter().all(|other| other.tag() != cause.tag()));
        }
    }
}
