//! Looks after the workers: one that has ended is replaced (V47), one that is stuck is logged and replaced as
//! well, so that the connections in its accept queue are served (X19). The threads beside them (the control plane, the
//! cluster, stores, certificates) are logged when they are stuck: what only one of them has cannot be replaced.
//!
//! Stuck means: not asleep, and no turn of its loop for [`STUCK_AFTER`]; the time for which it waited for a
//! processor does not count. Its sessions stay with it; should it go on, it finishes them and ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sekisho_config::Level;
use sekisho_handler::disk;
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::drain::{Fact, Order as DrainOrder};
use sekisho_net::{Heartbeat, WatchedThread};

use crate::run::{Server, worker_count};
use crate::workers::{WorkerHandle, Workers};

/// How often the threads are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a thread may take for one turn of its loop.
const STUCK_AFTER: Duration = Duration::from_secs(2);
/// When the watchdog itself is so late, the whole process was stopped: no thread is to blame.
const LATE: Duration = Duration::from_millis(500);
/// So many may be stuck at a time and be replaced; a disk that hangs would take all that come after them.
const REPLACED_MAX: usize = 8;
/// One that ends sooner than this is not replaced at once, or a fault that comes back would make us spin.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// What there is to look after.
#[derive(Debug)]
pub(crate) struct Watch {
    next: Option<Moment>,
    /// When the places of workers that are gone are to be filled.
    vacant: Vec<Moment>,
    /// The threads beside the workers.
    beside: Vec<(Arc<WatchedThread>, Watched)>,
    /// The devices that are known to be stuck.
    stuck_disks: Vec<(u32, u32)>,
}

/// A thread as the watchdog knows it.
#[derive(Debug)]
pub(crate) struct Watched {
    heartbeat: Arc<Heartbeat>,
    /// How it was found at the last look, where it was not asleep.
    seen: Option<Seen>,
    /// Since when it is known to be stuck.
    pub(crate) stuck: Option<Moment>,
}

/// How a thread was found.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// How often its loop had turned.
    loop_count: u64,
    /// When it was first found so.
    at: Moment,
    /// How long it had waited for a processor by then.
    waited: Duration,
}

/// What was found.
#[derive(PartialEq, Eq, Debug)]
enum Finding {
    /// It is stuck; what the kernel says that it does.
    Stuck(Option<char>),
    /// It goes on, and was stuck since.
    GoesOn(Moment),
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            next: Some(Moment::ZERO),
            vacant: Vec::new(),
            beside: Vec::new(),
            stuck_disks: Vec::new(),
        }
    }
}

impl Watch {
    /// When there is something to do.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.vacant.iter().copied().chain(self.next).min()
    }

    /// A thread woke up: from now on it may become stuck.
    pub(crate) fn thread_woke(&mut self, now: Moment) {
        self.next.get_or_insert(now + PERIOD);
    }

    /// A worker that served has ended.
    fn vacate(&mut self, lived: Duration, now: Moment) {
        self.vacant.push(if lived < LIFE_MIN { now + LIFE_MIN } else { now });
    }

    /// How many places are to be filled now.
    fn take_due(&mut self, now: Moment) -> usize {
        let before = self.vacant.len();
        self.vacant.retain(|at| !at.is_due(now));
        before - self.vacant.len()
    }

    /// Looks at every thread, if it is time to; returns the names of those of which there is something to say.
    fn look(&mut self, workers: &mut Workers, now: Moment) -> Vec<(String, Finding)> {
        let due = *self.next.get_or_insert(now);
        if !due.is_due(now) {
            return Vec::new();
        }
        let is_late = now.since(due) > LATE;
        self.next = Some(now + PERIOD);
        let shared = workers.shared();
        let of = |thread: &Arc<WatchedThread>| {
            (Arc::clone(thread), Watched::new(Arc::clone(&thread.heartbeat)))
        };
        let known = self.beside.len();
        self.beside.extend(shared.watched_threads.all().iter().skip(known).map(of));
        let alarm = &shared.wake_alarm;
        alarm.arm();
        let handles = workers.handles.iter().chain(&workers.retired).map(|handle| &handle.watched);
        let mut all = handles.chain(self.beside.iter().map(|(_, watched)| watched));
        if all.all(Watched::is_asleep) && self.stuck_disks.is_empty() {
            // The alarm tells when there is something to look at again.
            self.next = None;
        } else {
            alarm.disarm();
        }
        let mut findings = Vec::new();
        for handle in workers.handles.iter_mut().chain(&mut workers.retired) {
            let finding = handle.watched.check(is_late, now);
            if matches!(finding, Some(Finding::Stuck(_))) {
                shared.counters.workers_stuck.fetch_add(1, Ordering::Relaxed);
            }
            findings.extend(finding.map(|finding| (handle.name(), finding)));
        }
        for (thread, watched) in &mut self.beside {
            let finding = watched.check(is_late, now);
            if matches!(finding, Some(Finding::Stuck(_))) {
                thread.stuck_count.fetch_add(1, Ordering::Relaxed);
            }
            if watched.seen.is_some() {
                // By the next look it has answered, however much it has to do.
                thread.heartbeat.ask();
            }
            let name = || format!("the thread \"{}\"", thread.name);
            findings.extend(finding.map(|finding| (name(), finding)));
        }
        findings
    }
}

impl Watched {
    /// Nothing is known of it yet.
    pub(crate) fn new(heartbeat: Arc<Heartbeat>) -> Self {
        Self { heartbeat, seen: None, stuck: None }
    }

    /// Whether there is nothing to look at.
    fn is_asleep(&self) -> bool {
        self.heartbeat.is_asleep() && self.stuck.is_none()
    }

    /// Looks at it.
    fn check(&mut self, is_late: bool, now: Moment) -> Option<Finding> {
        let loop_count = self.heartbeat.loop_count();
        let goes_on = self.seen.is_some_and(|seen| seen.loop_count != loop_count);
        if self.heartbeat.is_asleep() || goes_on {
            self.seen = None;
            return self.stuck.take().map(Finding::GoesOn);
        }
        let waited = self.heartbeat.waited();
        let seen = self.seen.get_or_insert(Seen { loop_count, at: now, waited });
        if is_late {
            (seen.at, seen.waited) = (now, waited);
        }
        let own = now.since(seen.at).saturating_sub(waited.saturating_sub(seen.waited));
        if self.stuck.is_some() || own < STUCK_AFTER {
            return None;
        }
        if Heartbeat::is_traced() {
            // A debugger that stops threads is no reason to replace them.
            self.seen = None;
            return None;
        }
        self.stuck = Some(seen.at);
        Some(Finding::Stuck(self.heartbeat.state()))
    }
}

impl Server {
    /// A serving worker has ended without a command to do so: another one takes its place.
    pub(crate) fn fill_later(&mut self, begun: Moment) -> DrainOrder {
        let now = self.clock.now();
        self.watch.vacate(now.since(begun), now);
        // The new one comes before the old one is counted out.
        self.fill_due();
        self.tell_control_plane_of_workers();
        self.tell_drain(Fact::Ended)
    }

    /// Looks after the threads.
    pub(crate) fn watch_threads(&mut self) {
        if self.drain.manner().is_some() {
            self.watch = Watch::default();
            return;
        }
        let now = self.clock.now();
        for (name, finding) in self.watch.look(&mut self.workers, now) {
            match finding {
                Finding::Stuck(state) => self.tell_stuck(&name, state),
                Finding::GoesOn(since) => self.tell_that_it_went_on(&name, since),
            }
        }
        self.watch_disks();
        self.replace_stuck(now);
        self.fill_due();
    }

    /// A device that does not respond is reported once, and once more when it does again.
    fn watch_disks(&mut self) {
        for disk in disk::views() {
            let known = self.watch.stuck_disks.iter().position(|number| *number == disk.number);
            let (path, (major, minor)) = (disk.path.display(), disk.number);
            match (disk.stuck, known) {
                (Some(age), None) => {
                    self.watch.stuck_disks.push(disk.number);
                    let (secs, running) = (age.as_secs(), disk.running);
                    let text = format!(
                        "the disk of \"{path}\" (device {major}:{minor}) does not respond: a file operation has \
                         taken {secs} s, {running} are under way"
                    );
                    self.log(Level::Crit, &text);
                }
                (None, Some(at)) => {
                    self.watch.stuck_disks.remove(at);
                    let text =
                        format!("the disk of \"{path}\" (device {major}:{minor}) responds again");
                    self.log(Level::Warn, &text);
                }
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
    }

    /// A thread that was stuck goes on.
    pub(crate) fn tell_that_it_went_on(&self, name: &str, since: Moment) {
        let after = self.clock.now().since(since).as_millis();
        self.log(Level::Warn, &format!("{name} continued after {after} ms"));
    }

    fn tell_stuck(&self, name: &str, state: Option<char>) {
        let state = state.map_or(String::new(), |state| format!(" (state {state})"));
        let secs = STUCK_AFTER.as_secs();
        let text = format!("{name} hangs: its loop has not run for {secs} s{state}");
        self.log(Level::Crit, &text);
    }

    /// Replaces stuck workers, at most [`REPLACED_MAX`] at a time. Further ones are replaced when another one
    /// goes on.
    fn replace_stuck(&mut self, now: Moment) {
        let is_stuck = |handle: &WorkerHandle| handle.watched.stuck.is_some();
        let replaced = self.workers.retired.iter().filter(|handle| is_stuck(handle)).count();
        for _ in replaced..REPLACED_MAX {
            let Some(at) = self.workers.handles.iter().position(is_stuck) else { break };
            self.workers.retire(at, None);
            self.watch.vacant.push(now);
        }
    }

    fn fill_due(&mut self) {
        if self.drain.manner().is_some() {
            return;
        }
        let now = self.clock.now();
        let due = self.watch.take_due(now);
        if due == 0 {
            return;
        }
        let count = worker_count(self.site.config());
        for _ in 0..due {
            // A reload may have been quicker.
            let Some(slot) = self.workers.vacant_slot(count) else { break };
            let sockets = [&self.sockets, &self.endpoint_sockets];
            match self.workers.replace(slot, count, &sockets, &self.site, now) {
                Ok(()) => {
                    self.drain.after(Fact::Began, now);
                    self.log(Level::Notice, "a worker was replaced");
                }
                Err(problem) => {
                    self.log(Level::Emerg, &format!("a worker cannot be replaced: {problem}"));
                    self.watch.vacant.push(now + LIFE_MIN);
                }
            }
        }
        self.tell_control_plane_of_workers();
    }
}
