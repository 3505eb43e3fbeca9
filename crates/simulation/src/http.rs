//! The HTTP world: clients of every manner, the network between, and a server made of the real engine, the
//! real lifecycle tables and the real machine for programs, inside a model of the shell.

mod answer;
mod client;
mod model_server;
mod plan;
mod planned_request;
mod program;
mod record;
mod serve;
mod server_session;
mod timeline;
mod work;

use sekisho_lifecycle::drain;
use sekisho_lifecycle::drain::Outcome;
use sekisho_lifecycle::{CloseReason, Manner};

use crate::context::SimContext;
use crate::network::Pipe;
use crate::rng::Rng;
use crate::{Fault, RunStats, Scope};

use client::Client;
use model_server::ModelServer;
use plan::Plan;
use server_session::ServerSession;

/// Who acts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Actor {
    Client(usize),
    ServerSession(usize),
    /// A program that outlives its answer.
    Run(u64),
    /// The server as a whole.
    Server,
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
    server: ModelServer,
    clients: Vec<Client>,
    links: Vec<Link>,
    server_sessions: Vec<Option<ServerSession>>,
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
    let clients: Vec<Client> = drawn
        .clients
        .iter()
        .enumerate()
        .map(|(at, planned)| Client::new(at, planned.clone()))
        .collect();
    let links = drawn
        .clients
        .iter()
        .map(|planned| Link { up: Pipe::new(planned.ways[0]), down: Pipe::new(planned.ways[1]) });
    let mut world = World {
        links: links.collect(),
        server_sessions: (0..clients.len()).map(|_| None).collect(),
        server: ModelServer::new(&drawn),
        clients,
        plan: drawn,
    };
    world.begin(&mut sim);
    while let Some(who) = sim.step() {
        world.act(who, &mut sim);
    }
    world.settle(&mut sim);
    let mut stats = world.server.stats;
    stats.steps = sim.steps;
    match sim.end() {
        (None, _) => Ok(stats),
        (Some(violation), trace) => Err((violation, trace)),
    }
}

impl World {
    fn begin(&mut self, sim: &mut Sim) {
        for (at, client) in self.clients.iter().enumerate() {
            if !client.planned().asks.is_empty() {
                sim.wake(Actor::Client(at), client.planned().comes);
            }
        }
        self.wait_for_plan(sim);
    }

    /// The next thing that the plan says.
    fn wait_for_plan(&self, sim: &mut Sim) {
        let times = self.plan.reloads.iter().copied();
        let stops = self.plan.stops.iter().map(|(at, _)| *at);
        let cancels = self.plan.cancels.iter().map(|(at, _)| *at);
        if let Some(at) = times.chain(stops).chain(cancels).min() {
            sim.wake(Actor::Plan, at);
        }
    }

    fn act(&mut self, who: Actor, sim: &mut Sim) {
        match who {
            Actor::Client(at) => {
                if self.server_sessions[at].is_none() && !self.connect(at, sim) {
                    return;
                }
                let is_unheard = self.links[at].down.deliver(sim.now, &mut sim.rng);
                self.clients[at].poll(&mut self.links[at], &mut self.server.stats, sim);
                if is_unheard {
                    self.links[at].up.refuse(sim.now, &mut sim.rng);
                    sim.wake(
                        Actor::ServerSession(at),
                        self.links[at].up.next_arrival().unwrap_or(sim.now),
                    );
                }
            }
            Actor::ServerSession(at) => {
                let link = &mut self.links[at];
                let is_unheard = link.up.deliver(sim.now, &mut sim.rng);
                let Some(server_session) = &mut self.server_sessions[at] else { return };
                if !server_session.is_over() && self.server.outcome.is_none() {
                    server_session.poll(link, self.clients[at].planned(), &mut self.server, sim);
                } else if let Some(next) = link.up.next_arrival() {
                    sim.wake(Actor::ServerSession(at), next);
                }
                if is_unheard {
                    link.down.refuse(sim.now, &mut sim.rng);
                    sim.wake(Actor::Client(at), link.down.next_arrival().unwrap_or(sim.now));
                }
            }
            Actor::Run(id) => {
                let Some(mut runner) = self.server.runs.remove(&id) else { return };
                runner.turn(&mut self.server, sim);
                if !runner.is_over() {
                    self.server.leave_alone(id, runner, sim);
                }
            }
            Actor::Server => self.tell(drain::Fact::TimePassed, sim),
            Actor::Plan => self.go_by_plan(sim),
        }
        // What the end of a session, or of time, has led to.
        if let Some(outcome) = self.server.outcome {
            self.exit(outcome, sim);
        }
    }

    /// Somebody comes; nobody is let in any more when the server is about to end.
    fn connect(&mut self, at: usize, sim: &mut Sim) -> bool {
        if self.server.shutdown > model_server::ModelShutdown::Continue
            || self.server.outcome.is_some()
        {
            return false;
        }
        sim.say(|| format!("client {at} connects"));
        self.server_sessions[at] = Some(ServerSession::new(at, &mut self.server, sim));
        sim.wake(Actor::ServerSession(at), sim.now);
        true
    }

    fn go_by_plan(&mut self, sim: &mut Sim) {
        let now = sim.now;
        if let Some(at) = self.plan.reloads.iter().position(|at| at.is_due(now)) {
            self.plan.reloads.remove(at);
            sim.say(|| "reload".into());
            self.server.reload();
            if sim.has(Fault::ReloadCloses) {
                for (at, server_session) in self.server_sessions.iter_mut().enumerate() {
                    if let Some(server_session) = server_session.as_mut().filter(|server_session| {
                        !server_session.is_over() && server_session.is_idle()
                    }) {
                        server_session.close(
                            CloseReason::PeerClosed,
                            &mut self.links[at],
                            &mut self.server,
                            sim,
                        );
                    }
                }
            }
        }
        if let Some(at) = self.plan.stops.iter().position(|(at, _)| at.is_due(now)) {
            let (_, manner) = self.plan.stops.remove(at);
            self.stop(manner, sim);
        }
        if let Some(at) = self.plan.cancels.iter().position(|(at, _)| at.is_due(now)) {
            let (_, client) = self.plan.cancels.remove(at);
            if let Some(server_session) = self.server_sessions[client]
                .as_mut()
                .filter(|server_session| !server_session.is_over())
            {
                server_session.cancel_task(&mut self.server, sim);
                sim.wake(Actor::ServerSession(client), now);
            }
        }
        self.wait_for_plan(sim);
    }

    fn stop(&mut self, manner: Manner, sim: &mut Sim) {
        sim.say(|| format!("an operator asks for the end: {manner:?}"));
        self.tell(drain::Fact::Asked(manner), sim);
    }

    fn tell(&mut self, fact: drain::Fact, sim: &mut Sim) {
        if self.server.tell(fact, sim) {
            for (at, server_session) in self.server_sessions.iter().enumerate() {
                if server_session.as_ref().is_some_and(|server_session| !server_session.is_over()) {
                    sim.wake(Actor::ServerSession(at), sim.now);
                }
            }
        }
    }

    /// The process ends, and with it whatever was left behind.
    fn exit(&mut self, outcome: Outcome, sim: &mut Sim) {
        for (at, server_session) in self.server_sessions.iter_mut().enumerate() {
            let Some(server_session) =
                server_session.as_mut().filter(|server_session| !server_session.is_over())
            else {
                continue;
            };
            sim.demand(outcome == Outcome::Abandoned, || {
                format!("the server has ended ({outcome:?}), and session {at} has not")
            });
            server_session.abandon(&mut self.links[at], &mut self.server, sim);
        }
    }

    /// What must hold when all is over.
    fn settle(&mut self, sim: &mut Sim) {
        let server = &mut self.server;
        sim.demand(server.outcome.is_some(), || "the server has not ended".into());
        let left = server.drain.left();
        sim.demand(left == 0, || format!("{left} sessions are still counted"));
        let (buffers, tasks) = (server.buffers, server.tasks.len());
        sim.demand(buffers == 0, || format!("{buffers} buffers were not given back"));
        sim.demand(tasks == 0, || format!("{tasks} tasks have not ended"));
        let (started, swept) = (server.runs_started, server.runs_swept);
        sim.demand(started == swept, || format!("{started} programs began, {swept} were swept"));
        for (client, server_session) in self.clients.iter().zip(&self.server_sessions) {
            if let Some(server_session) = server_session {
                client.settle(&server_session.record, &mut server.stats, sim);
            }
        }
    }
}
