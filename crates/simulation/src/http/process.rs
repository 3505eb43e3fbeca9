//! The process around the worker: which configuration is in effect, the shutdown that was requested, and the books of
//! what handlers and programs hold. At the end of the world the books must be even.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sekisho_http::Policy;
use sekisho_lifecycle::drain::{Fact, Order, Outcome};
use sekisho_lifecycle::{Drain, Manner, Moment};
use sekisho_net::session::ShutdownRequest;

use super::plan::Plan;
use super::program::Runner;
use super::{Actor, Sim};
use crate::{Fault, RunStats};

/// The server as a whole.
#[derive(Debug)]
pub(super) struct Process {
    sites: Vec<[Arc<Policy>; 2]>,
    site: usize,
    /// How many sessions there may be at a time.
    pub(super) sessions_max: usize,
    /// The shutdown that was requested.
    pub(super) shutdown: ShutdownRequest,
    /// Since when a shutdown was requested.
    pub(super) ends_since: Option<Moment>,
    /// Since when by force.
    pub(super) forced_since: Option<Moment>,
    /// The tasks that run.
    pub(super) tasks: BTreeSet<u64>,
    tasks_started: u64,
    /// Those that were cancelled.
    pub(super) cancelled: BTreeSet<u64>,
    /// Programs that were started, and that were swept.
    pub(super) runs_started: u64,
    /// See there.
    pub(super) runs_swept: u64,
    /// Programs that outlive their answer.
    pub(super) runs: BTreeMap<u64, Runner>,
    /// The shutdown.
    pub(super) drain: Drain,
    /// How the server has ended.
    pub(super) outcome: Option<Outcome>,
    /// What happened.
    pub(super) stats: RunStats,
}

impl Process {
    /// A server that has just started.
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            sites: plan.sites.clone(),
            site: 0,
            sessions_max: plan.sessions_max,
            shutdown: ShutdownRequest::Continue,
            ends_since: None,
            forced_since: None,
            tasks: BTreeSet::new(),
            tasks_started: 0,
            cancelled: BTreeSet::new(),
            runs_started: 0,
            runs_swept: 0,
            runs: BTreeMap::new(),
            drain: Drain::new(plan.grace),
            outcome: None,
            stats: RunStats { worlds: 1, ..RunStats::default() },
        }
    }

    /// The policy of a server in the configuration of the day.
    pub(super) fn policy(&self, host: usize) -> &Arc<Policy> {
        &self.sites[self.site][host]
    }

    /// Another configuration comes into effect; which.
    pub(super) fn reload(&mut self) -> usize {
        self.site = (self.site + 1).min(self.sites.len() - 1);
        self.site
    }

    /// A task begins; its number.
    pub(super) fn begin_task(&mut self) -> u64 {
        self.tasks_started += 1;
        self.tasks.insert(self.tasks_started);
        self.tasks_started
    }

    /// A task has ended.
    pub(super) fn end_task(&mut self, id: u64, sim: &mut Sim) {
        let was_there = self.tasks.remove(&id);
        sim.demand(was_there, || format!("task {id} has ended twice"));
    }

    /// A program goes on alone.
    pub(super) fn leave_alone(&mut self, id: u64, runner: Runner, sim: &mut Sim) {
        if let Some(at) = runner.next_wake()
            && !sim.has(Fault::ProgramForgotten)
        {
            sim.wake(Actor::Run(id), at);
        }
        self.runs.insert(id, runner);
    }

    /// Tells the shutdown what happened, and does what it orders. Says whether sessions have a new shutdown request.
    pub(super) fn tell(&mut self, fact: Fact, sim: &mut Sim) -> bool {
        let order = self.drain.after(fact, sim.now);
        if let Some(at) = self.drain.next_deadline() {
            sim.wake(Actor::Server, at);
        }
        match order {
            Order::Nothing => false,
            Order::ShutDownAll(manner) => {
                sim.say(|| format!("all sessions shall end: {manner:?}"));
                let shutdown = if manner == Manner::Graceful {
                    ShutdownRequest::Drain
                } else {
                    ShutdownRequest::Force
                };
                self.shutdown = self.shutdown.max(shutdown);
                self.ends_since.get_or_insert(sim.now);
                if shutdown == ShutdownRequest::Force {
                    self.forced_since.get_or_insert(sim.now);
                }
                true
            }
            Order::Exit(outcome) => {
                sim.say(|| format!("the server ends: {outcome:?}"));
                sim.demand(self.outcome.is_none(), || "the server has ended twice".into());
                self.outcome = Some(outcome);
                false
            }
        }
    }
}
