//! What connections do, counted as nginx's `stub_status` counts it. A connection is counted by what it does when
//! its turn is over: a request that is answered within one turn costs nothing here.

use std::sync::atomic::{AtomicU64, Ordering};

use sekisho_lifecycle::Stage;
use sekisho_route::ConnectionCounts;

use crate::connection::Connection;
use crate::transport::ClientTransport;

/// What a connection does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// No byte of the next request has come.
    Waiting,
    /// A head has begun.
    Reading,
    /// A request is being worked on or answered.
    Writing,
    /// Its answer has left, and it ends.
    Ending,
}

/// The number of connections by activity.
#[derive(Debug, Default)]
pub struct Activities([AtomicU64; 4]);

impl Activities {
    fn add(&self, activity: Activity) {
        self.0[activity as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, activity: Activity) {
        self.0[activity as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// The counts. The connection that asks counts as writing, whatever it did before this turn.
    pub(crate) fn counts_with_request(&self, own: Activity) -> ConnectionCounts {
        let count = |activity: Activity| {
            let count = self.0[activity as usize].load(Ordering::Relaxed);
            count.saturating_sub(u64::from(activity == own))
        };
        let mut counts = ConnectionCounts {
            active: 0,
            reading: count(Activity::Reading),
            writing: count(Activity::Writing) + 1,
            waiting: count(Activity::Waiting),
        };
        counts.active = counts.reading + counts.writing + counts.waiting;
        counts
    }

    /// A connection has come.
    pub(crate) fn enter(&self) -> Activity {
        self.add(Activity::Waiting);
        Activity::Waiting
    }

    /// A connection has gone.
    pub(crate) fn leave(&self, activity: Activity) {
        self.remove(activity);
    }
}

impl<T: ClientTransport> Connection<T> {
    /// Counts the connection by what it does, where that has changed.
    pub(crate) fn note_activity(&mut self) {
        let protocol = &self.link.protocol;
        let activity = match protocol.stage() {
            Stage::Lingering | Stage::Closed(_) => Activity::Ending,
            Stage::Open if !self.exchanges.is_empty() => Activity::Writing,
            Stage::Open if protocol.is_idle() => Activity::Waiting,
            Stage::Open if protocol.awaits_request() => Activity::Writing,
            Stage::Open => Activity::Reading,
        };
        if activity != self.link.activity {
            let activities = &self.link.worker.shared.counters.activities;
            activities.remove(self.link.activity);
            activities.add(activity);
            self.link.activity = activity;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_asks_is_counted_as_writing() {
        let activities = Activities::default();
        let own = activities.enter();
        activities.enter();
        activities.add(Activity::Reading);
        activities.add(Activity::Ending);
        let counts = activities.counts_with_request(own);
        let expected = ConnectionCounts { active: 3, reading: 1, writing: 1, waiting: 1 };
        assert_eq!(counts, expected);
    }
}
