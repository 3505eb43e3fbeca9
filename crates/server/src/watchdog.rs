//! Looks after the workers: one that has ended is replaced (V47), one that is stuck is told of, and replaced
//! as well, so that those who wait at its socket are served (F19).
//!
//! Stuck means: not asleep, and no turn of its loop for [`STUCK_AFTER`]; the time for which it waited for a
//! processor does not count. What it has in hand stays with it; should it go on, it finishes that and ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sekisho_config::Level;
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::drain::{Fact, Order as DrainOrder};
use sekisho_net::Pulse;

use crate::run::{Server, worker_count};
use crate::workers::{Hand, Seen, Workers};

/// How often the workers are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a worker may take for one turn of its loop.
const STUCK_AFTER: Duration = Duration::from_secs(2);
/// When we ourselves are so late, the machine (or somebody) has stopped us all: nobody is to blame.
const LATE: Duration = Duration::from_millis(500);
/// So many may be stuck at a time and be replaced; a disk that hangs would take all that come after them.
const REPLACED_MAX: usize = 8;
/// One that ends sooner than this is not replaced at once, or a fault that comes back would make us spin.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// What there is to look after.
#[derive(Debug)]
pub(crate) struct Watch {
    next: Option<Moment>,
    /// Places of workers that are to be filled, and when.
    vacant: Vec<(usize, Moment)>,
}

/// What was found.
#[derive(PartialEq, Eq, Debug)]
enum Finding {
    /// It is stuck: its place among the others, its name, and what the kernel says that it does.
    Stuck(usize, String, Option<char>),
    /// It goes on after so long.
    GoesOn(String, Moment),
}

impl Default for Watch {
    fn default() -> Self {
        Self { next: Some(Moment::ZERO), vacant: Vec::new() }
    }
}

impl Watch {
    /// When there is something to do.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.vacant.iter().map(|(_, at)| *at).chain(self.next).min()
    }

    /// A worker that served has ended.
    fn vacate(&mut self, at: usize, lived: Duration, now: Moment) {
        let due = if lived < LIFE_MIN { now + LIFE_MIN } else { now };
        self.vacant.push((at, due));
    }

    fn take_due(&mut self, now: Moment) -> Vec<usize> {
        let (due, later) = self.vacant.drain(..).partition(|(_, at)| at.is_due(now));
        self.vacant = later;
        let due: Vec<(usize, Moment)> = due;
        due.into_iter().map(|(at, _)| at).collect()
    }

    /// Looks at every worker, if it is time to.
    fn look(&mut self, workers: &mut Workers, now: Moment) -> Vec<Finding> {
        let due = *self.next.get_or_insert(now);
        if !due.is_due(now) {
            return Vec::new();
        }
        let is_late = now.since(due) > LATE;
        self.next = Some(now + PERIOD);
        let mut findings = Vec::new();
        for (at, hand) in workers.hands.iter_mut().chain(&mut workers.retired).enumerate() {
            findings.extend(feel(at, hand, is_late, now));
        }
        findings
    }
}

/// Feels the pulse of one worker.
fn feel(at: usize, hand: &mut Hand, is_late: bool, now: Moment) -> Option<Finding> {
    let turns = hand.pulse.turns();
    let goes_on = hand.seen.is_some_and(|seen| seen.turns != turns);
    if hand.pulse.is_asleep() || goes_on {
        hand.seen = None;
        let since = hand.stuck.take()?;
        return Some(Finding::GoesOn(hand.name(), since));
    }
    let waited = hand.pulse.waited();
    let seen = hand.seen.get_or_insert(Seen { turns, at: now, waited });
    if is_late {
        (seen.at, seen.waited) = (now, waited);
    }
    let own = now.since(seen.at).saturating_sub(waited.saturating_sub(seen.waited));
    if hand.stuck.is_some() || own < STUCK_AFTER {
        return None;
    }
    if Pulse::is_traced() {
        // Who stops threads to look at them is no reason to replace them.
        hand.seen = None;
        return None;
    }
    hand.stuck = Some(seen.at);
    Some(Finding::Stuck(at, hand.name(), hand.pulse.state()))
}

impl Server {
    /// A worker that served has ended, which nobody had told it to: another one takes its place.
    pub(crate) fn fill_later(&mut self, at: usize, begun: Moment) -> DrainOrder {
        let now = self.clock.now();
        self.watch.vacate(at, now.since(begun), now);
        // The new one comes before the old one is counted out.
        self.fill_due();
        self.tell_drain(Fact::Ended)
    }

    /// Looks after the workers.
    pub(crate) fn watch_workers(&mut self) {
        if self.drain.manner().is_some() {
            self.watch = Watch::default();
            return;
        }
        let now = self.clock.now();
        for finding in self.watch.look(&mut self.workers, now) {
            match finding {
                Finding::Stuck(at, name, state) => self.tell_stuck(at, &name, state, now),
                Finding::GoesOn(name, since) => self.tell_that_it_went_on(&name, since),
            }
        }
        self.fill_due();
    }

    /// Who was stuck is not any more.
    pub(crate) fn tell_that_it_went_on(&self, name: &str, since: Moment) {
        let after = self.clock.now().since(since).as_millis();
        self.log(Level::Warn, &format!("{name} went on after {after} ms"));
    }

    fn tell_stuck(&mut self, at: usize, name: &str, state: Option<char>, now: Moment) {
        let counters = &self.workers.shared().counters;
        counters.workers_stuck.fetch_add(1, Ordering::Relaxed);
        let state = state.map_or(String::new(), |state| format!(" (state {state})"));
        let secs = STUCK_AFTER.as_secs();
        let text = format!("{name} is stuck: no turn of its loop for {secs} s{state}");
        self.log(Level::Crit, &text);
        let stuck = self.workers.retired.iter().filter(|hand| hand.stuck.is_some()).count();
        if at < self.workers.count() && stuck < REPLACED_MAX {
            self.workers.retire(at, None);
            self.watch.vacant.push((at, now));
        }
    }

    fn fill_due(&mut self) {
        if self.drain.manner().is_some() {
            return;
        }
        let now = self.clock.now();
        let count = worker_count(self.site.config());
        let due = self.watch.take_due(now);
        if due.is_empty() {
            return;
        }
        for at in due {
            // A reload may have been quicker.
            if self.workers.count() >= count {
                continue;
            }
            match self.workers.replace(at, count, &self.sockets, &self.site, now) {
                Ok(()) => {
                    self.drain.after(Fact::Began, now);
                    self.log(Level::Notice, "a worker was replaced");
                }
                Err(problem) => {
                    self.log(Level::Emerg, &format!("a worker cannot be replaced: {problem}"));
                    self.watch.vacant.push((at, now + LIFE_MIN));
                }
            }
        }
        self.tell_desk_of_workers();
    }
}
