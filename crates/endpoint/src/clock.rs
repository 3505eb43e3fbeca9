//! The only file of this crate that asks for the time. It is the runtime's clock, so that a program which
//! embeds an endpoint can pause it in its tests.

use std::time::Duration;

use sekisho_lifecycle::Moment;
use tokio::time::Instant;

/// An endpoint's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that begins now.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// This moment.
    pub(crate) fn now(&self) -> Moment {
        Moment::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// How long it has run.
    pub(crate) fn uptime(&self) -> Duration {
        self.start.elapsed()
    }

    /// A moment as the runtime's timer understands it.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        self.start + Duration::from_nanos(moment.as_nanos())
    }
}
