//! Slots for programs, counted over the whole server, and the queue of requests that wait for one: `slots.rs`
//! decides which request gets a slot. Also the process groups that run, so that they can be killed when the
//! server ends.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::orphans::Orphans;
use super::slots::{Claim, ClaimId, Slots, Standing};

/// To start a program takes about a millisecond. A machine that has not done it after this long is not waited for.
const START_LIMIT: Duration = Duration::from_secs(2);

/// The process slots of the whole server, and the orphans of programs.
#[derive(Debug, Default)]
pub struct ProcessSlots {
    slots: Mutex<Slots>,
    running: Mutex<Running>,
    started: Condvar,
    pub(super) orphans: Orphans,
}

/// The process groups that run, as long as their numbers are theirs.
#[derive(Debug, Default)]
struct Running {
    groups: HashSet<Pid>,
    /// How many are being started: their numbers are not known yet, though they may run already.
    starting: usize,
    is_over: bool,
}

/// A program that is being started.
#[derive(Debug)]
pub(super) struct Starting(Arc<ProcessSlots>);

/// A place, or a number in the queue for one. Dropping it gives either back.
#[derive(Debug)]
pub(super) struct Ticket {
    process_slots: Arc<ProcessSlots>,
    id: ClaimId,
    claim: Claim,
    was_granted: bool,
}

impl ProcessSlots {
    /// How many programs run.
    pub fn taken(&self) -> usize {
        self.lock().running()
    }

    /// Whether there is no place, and no room to wait for one.
    pub(super) fn is_full(&self, claim: &Claim) -> bool {
        self.lock().is_full(claim)
    }

    /// A place, or a number in the queue; `None` when the queue is full.
    pub(super) fn take(self: &Arc<Self>, claim: Claim) -> Option<Ticket> {
        let (id, standing) = self.lock().claim(claim)?;
        let was_granted = standing == Standing::Granted;
        Some(Ticket { process_slots: Arc::clone(self), id, claim, was_granted })
    }

    /// Ends every program at once, and each that begins from now on: the server ends and does not wait for
    /// programs. It waits only for a program that is being started: the starting thread would end with the
    /// server, and the program would not.
    pub fn kill_all(&self) {
        let mut running = self.running();
        running.is_over = true;
        for group in running.groups.drain() {
            // A group that is gone need not be killed.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let is_starting = |running: &mut Running| running.starting > 0;
        let _ = self.started.wait_timeout_while(running, START_LIMIT, is_starting);
    }

    /// To be said before a program is started.
    pub(super) fn start(self: &Arc<Self>) -> Starting {
        self.running().starting += 1;
        Starting(Arc::clone(self))
    }

    /// A group is about to be reaped: its number may be another's after.
    pub(super) fn end(&self, group: Pid) {
        self.running().groups.remove(&group);
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // Nothing that holds the lock can panic half-way.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        // Nothing that holds the lock can panic half-way.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Starting {
    /// Its group has begun.
    pub(super) fn begin(self, group: Pid) {
        let mut running = self.0.running();
        if running.is_over {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        } else {
            running.groups.insert(group);
        }
        // `end`, which is called next, takes the lock again.
        drop(running);
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.running().starting -= 1;
        self.0.started.notify_all();
    }
}

impl Ticket {
    /// Whose place it is.
    pub(super) const fn process_slots(&self) -> &Arc<ProcessSlots> {
        &self.process_slots
    }

    /// Whether this is a place by now, or never will be.
    pub(super) fn standing(&self) -> Standing {
        if self.was_granted {
            Standing::Granted
        } else {
            self.process_slots.lock().standing(self.id)
        }
    }

    /// Stores the waker to call when that changes.
    pub(super) fn wake(&self, waker: &Waker) {
        self.process_slots.lock().wake(self.id, waker);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.process_slots.lock().give_back(self.id, &self.claim, self.was_granted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command};

    fn sleeper() -> (Child, Pid) {
        let child = Command::new("sleep").arg("60").process_group(0).spawn().expect("a process");
        let pid = Pid::from_child(&child);
        (child, pid)
    }

    /// C6, O4: a server that ends without waiting leaves no process behind.
    #[test]
    fn every_group_that_runs_ends_at_once_and_none_that_has_ended() {
        let process_slots = Arc::new(ProcessSlots::default());
        let (mut early, mut late, mut other) = (sleeper(), sleeper(), sleeper());
        process_slots.start().begin(early.1);
        process_slots.start().begin(other.1);
        process_slots.end(other.1);
        process_slots.kill_all();
        process_slots.start().begin(late.1);
        for (child, _) in [&mut early, &mut late] {
            assert_eq!(child.wait().expect("it ends").signal(), Some(9));
        }
        assert!(other.0.try_wait().expect("it is ours").is_none());
        other.0.kill().expect("it ends");
        other.0.wait().expect("it ends");
    }

    /// C6, O4: it runs already, and only the thread that starts it knows.
    #[test]
    fn who_is_just_being_started_is_waited_for() {
        let process_slots = Arc::new(ProcessSlots::default());
        let (mut child, group) = sleeper();
        let starting = process_slots.start();
        let end = std::thread::spawn({
            let process_slots = Arc::clone(&process_slots);
            move || process_slots.kill_all()
        });
        while !process_slots.running().is_over {
            std::thread::yield_now();
        }
        assert!(!end.is_finished(), "a program is being started");
        starting.begin(group);
        end.join().expect("the end");
        assert_eq!(child.wait().expect("it ends").signal(), Some(9));
        // A program that could not be started delays nothing.
        drop(process_slots.start());
        process_slots.kill_all();
    }
}
