//! The native world: both engines of each session, services that answer, stream, fail and forget, clients
//! that cancel, extend, drain and leave, and the network between them.

mod app;
mod plan;
mod server_session;
mod timeline;
mod work;

use sekisho_lifecycle::Manner;

use crate::context::SimContext;
use crate::network::Pipe;
use crate::rng::Rng;
use crate::{Fault, RunStats, Scope};

use app::App;
use plan::{Act, Plan};
use server_session::ServerSession;

/// The actors of the world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Actor {
    Client(usize),
    ServerSession(usize),
    /// What the plan says.
    Plan,
}

type Sim = SimContext<Actor>;

/// A connection.
#[derive(Debug)]
struct Link {
    up: Pipe,
    down: Pipe,
}

struct World {
    plan: Plan,
    apps: Vec<App>,
    links: Vec<Link>,
    server_sessions: Vec<Option<ServerSession>>,
    /// The endpoint admits no session any more.
    is_closed: bool,
    stats: RunStats,
}

/// Plays the world of a seed; an error says what went wrong and what led to it.
pub(crate) fn sim(
    seed: u64,
    fault: Option<Fault>,
    scope: Scope,
    is_traced: bool,
) -> Result<RunStats, (String, Vec<String>)> {
    let drawn = Plan::draw(seed, scope);
    let mut sim = Sim::new(Rng::new(seed).apart(1 << 33), fault, is_traced);
    let planned_clients = drawn.clients.iter().enumerate();
    let apps: Vec<App> = planned_clients
        .map(|(at, planned)| App::new(at, planned.clone(), drawn.policy.clone()))
        .collect();
    let links = drawn
        .clients
        .iter()
        .map(|planned| Link { up: Pipe::new(planned.ways[0]), down: Pipe::new(planned.ways[1]) });
    let mut world = World {
        links: links.collect(),
        server_sessions: (0..apps.len()).map(|_| None).collect(),
        apps,
        is_closed: false,
        stats: RunStats { worlds: 1, ..RunStats::default() },
        plan: drawn,
    };
    world.begin(&mut sim);
    while let Some(who) = sim.step() {
        world.act(who, &mut sim);
    }
    world.settle(&mut sim);
    let mut stats = world.stats;
    stats.steps = sim.steps;
    match sim.end() {
        (None, _) => Ok(stats),
        (Some(violation), trace) => Err((violation, trace)),
    }
}

impl World {
    fn begin(&mut self, sim: &mut Sim) {
        for (at, app) in self.apps.iter().enumerate() {
            if !app.planned().asks.is_empty() {
                sim.wake(Actor::Client(at), app.planned().comes);
            }
        }
        self.wait_for_plan(sim);
    }

    fn wait_for_plan(&self, sim: &mut Sim) {
        if let Some((at, _)) = self.plan.stops.first() {
            sim.wake(Actor::Plan, *at);
        }
    }

    fn act(&mut self, who: Actor, sim: &mut Sim) {
        match who {
            Actor::Client(at) => {
                if self.server_sessions[at].is_none() {
                    if self.is_closed {
                        return;
                    }
                    self.server_sessions[at] =
                        Some(ServerSession::new(at, &self.plan, &mut self.stats, sim.now));
                    self.apps[at].connect(sim);
                    sim.wake(Actor::ServerSession(at), sim.now);
                }
                let Some(server_session) = &mut self.server_sessions[at] else { return };
                let link = &mut self.links[at];
                let is_unheard = link.down.deliver(sim.now, &mut sim.rng);
                self.apps[at].poll(link, server_session, &mut self.stats, sim);
                if is_unheard {
                    link.up.refuse(sim.now, &mut sim.rng);
                    sim.wake(Actor::ServerSession(at), link.up.next_arrival().unwrap_or(sim.now));
                }
            }
            Actor::ServerSession(at) => {
                let Some(server_session) = &mut self.server_sessions[at] else { return };
                let link = &mut self.links[at];
                let is_unheard = link.up.deliver(sim.now, &mut sim.rng);
                server_session.poll(link, &self.plan.clients[at], &mut self.stats, sim);
                server_session.reclaim(sim);
                if is_unheard {
                    link.down.refuse(sim.now, &mut sim.rng);
                    sim.wake(Actor::Client(at), link.down.next_arrival().unwrap_or(sim.now));
                }
            }
            Actor::Plan => {
                let (_, manner) = self.plan.stops.remove(0);
                self.stop(manner, sim);
                self.wait_for_plan(sim);
            }
        }
    }

    fn stop(&mut self, manner: Manner, sim: &mut Sim) {
        self.is_closed = true;
        for (at, server_session) in self.server_sessions.iter_mut().enumerate() {
            if let Some(server_session) = server_session {
                server_session.act(Act::ShutDownFromOutside(manner), sim);
                sim.wake(Actor::ServerSession(at), sim.now);
            }
        }
    }

    /// What must hold when all is over.
    fn settle(&mut self, sim: &mut Sim) {
        for (app, server_session) in self.apps.iter().zip(&self.server_sessions) {
            if let Some(server_session) = server_session {
                server_session.settle(sim);
                app.settle(server_session, sim);
            }
        }
    }
}
