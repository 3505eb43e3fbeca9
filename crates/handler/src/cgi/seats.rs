//! Places for programs, counted over the whole server (`cgi_max_processes`), and the queue of those who
//! wait for one (`cgi_queue`). First come, first served: a place that becomes free is handed to the one
//! who waited longest, so nobody can be overtaken.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::strays::Strays;

/// To start a program takes about a millisecond. A machine that has not done it after this long is not waited for.
const START_LIMIT: Duration = Duration::from_secs(2);

/// The places of the whole server, and what programs leave behind.
#[derive(Debug, Default)]
pub struct Seats {
    state: Mutex<State>,
    running: Mutex<Running>,
    started: Condvar,
    pub(super) strays: Strays,
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
pub(super) struct Starting(Arc<Seats>);

#[derive(Debug, Default)]
struct State {
    taken: usize,
    next: u64,
    waiting: VecDeque<Waiting>,
    /// Places that have been handed over and not been noticed yet.
    granted: Vec<u64>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    waker: Option<Waker>,
}

/// A place, or a number in the queue for one. Dropping it gives either back.
#[derive(Debug)]
pub(super) struct Ticket {
    seats: Arc<Seats>,
    /// `None` for a place that was free at once.
    number: Option<u64>,
}

impl Seats {
    /// How many programs run.
    pub fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Whether there is no place, and no room to wait for one.
    pub(super) fn is_full(&self, max: usize, queue_max: usize) -> bool {
        let state = self.lock();
        (state.taken >= max || !state.waiting.is_empty()) && state.waiting.len() >= queue_max
    }

    /// A place, or a number in the queue; `None` when the queue is full.
    pub(super) fn take(self: &Arc<Self>, max: usize, queue_max: usize) -> Option<Ticket> {
        let mut state = self.lock();
        if state.taken < max && state.waiting.is_empty() {
            state.taken += 1;
            return Some(Ticket { seats: Arc::clone(self), number: None });
        }
        if state.waiting.len() >= queue_max {
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.waiting.push_back(Waiting { number, waker: None });
        Some(Ticket { seats: Arc::clone(self), number: Some(number) })
    }

    /// Ends every program at once, and each that begins from now on: the server ends and waits for nobody. Only
    /// who is just being started is waited for: its thread would end with the server, and the program would not.
    pub fn kill_all(&self) {
        let mut running = self.running();
        running.is_over = true;
        for group in running.groups.drain() {
            // A group that is gone has what it was to get.
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        // Its end, which is told next, takes the lock again.
        drop(running);
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.running().starting -= 1;
        self.0.started.notify_all();
    }
}

impl State {
    /// Hands a place to whoever has waited longest, or frees it.
    fn pass_on(&mut self) {
        let Some(first) = self.waiting.pop_front() else {
            self.taken -= 1;
            return;
        };
        self.granted.push(first.number);
        if let Some(waker) = first.waker {
            waker.wake();
        }
    }
}

impl Ticket {
    /// Whose place it is.
    pub(super) const fn seats(&self) -> &Arc<Seats> {
        &self.seats
    }

    /// Whether this is a place by now.
    pub(super) fn is_granted(&self) -> bool {
        self.number.is_none_or(|number| self.seats.lock().granted.contains(&number))
    }

    /// Whom to wake when it becomes one.
    pub(super) fn wake(&self, waker: &Waker) {
        let mut state = self.seats.lock();
        let own = state.waiting.iter_mut().find(|waiting| Some(waiting.number) == self.number);
        if let Some(waiting) = own {
            waiting.waker = Some(waker.clone());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.seats.lock();
        let Some(number) = self.number else { return state.pass_on() };
        if let Some(index) = state.granted.iter().position(|granted| *granted == number) {
            state.granted.swap_remove(index);
            state.pass_on();
        } else {
            state.waiting.retain(|waiting| waiting.number != number);
        }
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

    /// C6, O4: a server that waits for nobody leaves nobody behind.
    #[test]
    fn every_group_that_runs_ends_at_once_and_none_that_has_ended() {
        let seats = Arc::new(Seats::default());
        let (mut early, mut late, mut other) = (sleeper(), sleeper(), sleeper());
        seats.start().begin(early.1);
        seats.start().begin(other.1);
        seats.end(other.1);
        seats.kill_all();
        seats.start().begin(late.1);
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
        let seats = Arc::new(Seats::default());
        let (mut child, group) = sleeper();
        let starting = seats.start();
        let end = std::thread::spawn({
            let seats = Arc::clone(&seats);
            move || seats.kill_all()
        });
        while !seats.running().is_over {
            std::thread::yield_now();
        }
        assert!(!end.is_finished(), "somebody is being started");
        starting.begin(group);
        end.join().expect("the end");
        assert_eq!(child.wait().expect("it ends").signal(), Some(9));
        // And who could not be started holds nobody up.
        drop(seats.start());
        seats.kill_all();
    }

    #[test]
    fn places_are_handed_on_in_order_and_the_queue_is_bounded() {
        // C12
        let seats = Arc::new(Seats::default());
        let first = seats.take(1, 2).expect("a place");
        assert!(first.is_granted());
        let second = seats.take(1, 2).expect("a number");
        let third = seats.take(1, 2).expect("a number");
        assert!(!second.is_granted() && !third.is_granted());
        assert!(seats.take(1, 2).is_none(), "the queue is full");
        drop(first);
        assert!(second.is_granted() && !third.is_granted());
        drop(second);
        assert!(third.is_granted());
        drop(third);
        assert_eq!(seats.taken(), 0);
    }

    #[test]
    fn one_who_gives_up_waiting_takes_no_place() {
        let seats = Arc::new(Seats::default());
        let first = seats.take(1, 9).expect("a place");
        let second = seats.take(1, 9).expect("a number");
        let third = seats.take(1, 9).expect("a number");
        drop(second);
        drop(first);
        assert!(third.is_granted());
        drop(third);
        assert_eq!(seats.taken(), 0);
    }
}
