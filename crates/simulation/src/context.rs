//! What all actors of a world share: the time, the schedule, the random numbers, the trace, and the first
//! violation.

use std::fmt::Debug;

use sekisho_lifecycle::Moment;

use crate::fault::Fault;
use crate::rng::Rng;
use crate::schedule::Schedule;

/// So many lines of a trace are kept: the last ones.
const TRACE_LINES_MAX: usize = 400;
/// No world needs more steps than this.
const STEPS_MAX: u64 = 200_000;

/// The world as its actors see it.
#[derive(Debug)]
pub struct SimContext<Actor> {
    /// The time.
    pub now: Moment,
    /// Which actor is woken when.
    pub schedule: Schedule<Actor>,
    /// For what happens on the way.
    pub rng: Rng,
    /// What is wrong with this server on purpose.
    pub fault: Option<Fault>,
    /// How many steps have been taken: turns, and looks of engines at input.
    pub steps: u64,
    trace: Option<Vec<String>>,
    violation: Option<String>,
}

impl<Actor: Copy + Ord + Debug> SimContext<Actor> {
    /// The beginning.
    pub fn new(rng: Rng, fault: Option<Fault>, is_traced: bool) -> Self {
        Self {
            now: Moment::ZERO,
            schedule: Schedule::new(),
            rng,
            fault,
            steps: 0,
            trace: is_traced.then(Vec::new),
            violation: None,
        }
    }

    /// Moves to the next entry of the schedule; `None` at the end of the world.
    pub fn step(&mut self) -> Option<Actor> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            self.violate(|| "the world does not come to its end".into());
        }
        if self.violation.is_some() {
            return None;
        }
        match self.schedule.next_due()? {
            Ok((at, who)) => {
                self.now = self.now.max(at);
                Some(who)
            }
            Err(who) => {
                self.violate(|| format!("{who:?} is woken again and again: a busy loop"));
                None
            }
        }
    }

    /// Wakes an actor at this moment at the latest.
    pub fn wake(&mut self, who: Actor, at: Moment) {
        self.schedule.wake(who, at.max(self.now), &mut self.rng);
    }

    /// A line of the trace, made only if the trace is kept.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        let millis = self.now.as_nanos() / 1_000_000;
        if let Some(trace) = &mut self.trace {
            if trace.len() >= TRACE_LINES_MAX {
                trace.remove(0);
            }
            trace.push(format!("{millis:>7} ms  {}", line()));
        }
    }

    /// A promise was broken. The first one counts.
    pub fn violate(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let what = what();
            self.say(|| format!("VIOLATION: {what}"));
            self.violation = Some(what);
        }
    }

    /// What must hold.
    pub fn demand(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violate(what);
        }
    }

    /// Whether the server is wrong in this way.
    pub fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// What went wrong, and what led to it.
    pub fn end(self) -> (Option<String>, Vec<String>) {
        (self.violation, self.trace.unwrap_or_default())
    }
}
