//! The HTTP world: clients of every manner, the network between, and a server made of the real engine, the
//! real lifecycle tables and the real machine for programs, inside a model of the shell.

mod answer;
mod ask;
mod client;
mod house;
mod plan;
mod program;
mod record;
mod server_session;
mod serve;
mod timeline;
mod work;

use sekisho_lifecycle::drain;
use sekisho_lifecycle::drain::Outcome;
use sekisho_lifecycle::{CloseReason, Manner};

use crate::dice::Dice;
use crate::network::Pipe;
use crate::scene::Scene;
use crate::{Fault, Scope, Tally};

use client::Client;
use house::House;
use plan::Plan;
use server_session::ServerSession;

/// Who acts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Who {
    Client(usize),
    ServerSession(usize),
    /// A program that outlives its answer.
    Run(u64),
    /// The server as a whole.
    Server,
    /// What the plan says.
    Plan,
}

type Play = Scene<Who>;

/// A connection.
#[derive(Debug)]
struct Link {
    up: Pipe,
    down: Pipe,
}

struct World {
    plan: Plan,
    house: House,
    clients: Vec<Client>,
    links: Vec<Link>,
    server_sessions: Vec<Option<ServerSession>>,
}

/// Plays the world of a seed; an error says what went wrong and what led to it.
pub(crate) fn play(
    seed: u64,
    fault: Option<Fault>,
    scope: Scope,
    is_traced: bool,
) -> Result<Tally, (String, Vec<String>)> {
    let drawn = Plan::draw(seed, scope);
    let mut play = Play::new(Dice::new(seed).apart(1 << 33), fault, is_traced);
    let clients: Vec<Client> = drawn
        .clients
        .iter()
        .enumerate()
        .map(|(at, guest)| Client::new(at, guest.clone()))
        .collect();
    let links = drawn
        .clients
        .iter()
        .map(|guest| Link { up: Pipe::new(guest.ways[0]), down: Pipe::new(guest.ways[1]) });
    let mut world = World {
        links: links.collect(),
        server_sessions: (0..clients.len()).map(|_| None).collect(),
        house: House::new(&drawn),
        clients,
        plan: drawn,
    };
    world.begin(&mut play);
    while let Some(who) = play.step() {
        world.act(who, &mut play);
    }
    world.settle(&mut play);
    let mut tally = world.house.tally;
    tally.steps = play.steps;
    match play.end() {
        (None, _) => Ok(tally),
        (Some(violation), trace) => Err((violation, trace)),
    }
}

impl World {
    fn begin(&mut self, play: &mut Play) {
        for (at, client) in self.clients.iter().enumerate() {
            if !client.guest().asks.is_empty() {
                play.wake(Who::Client(at), client.guest().comes);
            }
        }
        self.wait_for_plan(play);
    }

    /// The next thing that the plan says.
    fn wait_for_plan(&self, play: &mut Play) {
        let times = self.plan.reloads.iter().copied();
        let stops = self.plan.stops.iter().map(|(at, _)| *at);
        let cancels = self.plan.cancels.iter().map(|(at, _)| *at);
        if let Some(at) = times.chain(stops).chain(cancels).min() {
            play.wake(Who::Plan, at);
        }
    }

    fn act(&mut self, who: Who, play: &mut Play) {
        match who {
            Who::Client(at) => {
                if self.server_sessions[at].is_none() && !self.connect(at, play) {
                    return;
                }
                let is_unheard = self.links[at].down.deliver(play.now, &mut play.dice);
                self.clients[at].poll(&mut self.links[at], &mut self.house.tally, play);
                if is_unheard {
                    self.links[at].up.refuse(play.now, &mut play.dice);
                    play.wake(Who::ServerSession(at), self.links[at].up.next_arrival().unwrap_or(play.now));
                }
            }
            Who::ServerSession(at) => {
                let link = &mut self.links[at];
                let is_unheard = link.up.deliver(play.now, &mut play.dice);
                let Some(server_session) = &mut self.server_sessions[at] else { return };
                if !server_session.is_over() && self.house.outcome.is_none() {
                    server_session.poll(link, self.clients[at].guest(), &mut self.house, play);
                } else if let Some(next) = link.up.next_arrival() {
                    play.wake(Who::ServerSession(at), next);
                }
                if is_unheard {
                    link.down.refuse(play.now, &mut play.dice);
                    play.wake(Who::Client(at), link.down.next_arrival().unwrap_or(play.now));
                }
            }
            Who::Run(id) => {
                let Some(mut runner) = self.house.runs.remove(&id) else { return };
                runner.turn(&mut self.house, play);
                if !runner.is_over() {
                    self.house.leave_alone(id, runner, play);
                }
            }
            Who::Server => self.tell(drain::Fact::TimePassed, play),
            Who::Plan => self.go_by_plan(play),
        }
        // What the end of a session, or of time, has led to.
        if let Some(outcome) = self.house.outcome {
            self.exit(outcome, play);
        }
    }

    /// Somebody comes; nobody is let in any more when the server is about to end.
    fn connect(&mut self, at: usize, play: &mut Play) -> bool {
        if self.house.shutdown > house::ModelShutdown::Continue || self.house.outcome.is_some() {
            return false;
        }
        play.say(|| format!("client {at} connects"));
        self.server_sessions[at] = Some(ServerSession::new(at, &mut self.house, play));
        play.wake(Who::ServerSession(at), play.now);
        true
    }

    fn go_by_plan(&mut self, play: &mut Play) {
        let now = play.now;
        if let Some(at) = self.plan.reloads.iter().position(|at| at.is_due(now)) {
            self.plan.reloads.remove(at);
            play.say(|| "reload".into());
            self.house.reload();
            if play.has(Fault::ReloadCloses) {
                for (at, server_session) in self.server_sessions.iter_mut().enumerate() {
                    if let Some(server_session) =
                        server_session.as_mut().filter(|server_session| !server_session.is_over() && server_session.is_idle())
                    {
                        server_session.close(
                            CloseReason::PeerClosed,
                            &mut self.links[at],
                            &mut self.house,
                            play,
                        );
                    }
                }
            }
        }
        if let Some(at) = self.plan.stops.iter().position(|(at, _)| at.is_due(now)) {
            let (_, manner) = self.plan.stops.remove(at);
            self.stop(manner, play);
        }
        if let Some(at) = self.plan.cancels.iter().position(|(at, _)| at.is_due(now)) {
            let (_, client) = self.plan.cancels.remove(at);
            if let Some(server_session) = self.server_sessions[client].as_mut().filter(|server_session| !server_session.is_over()) {
                server_session.cancel_task(&mut self.house, play);
                play.wake(Who::ServerSession(client), now);
            }
        }
        self.wait_for_plan(play);
    }

    fn stop(&mut self, manner: Manner, play: &mut Play) {
        play.say(|| format!("an operator asks for the end: {manner:?}"));
        self.tell(drain::Fact::Asked(manner), play);
    }

    fn tell(&mut self, fact: drain::Fact, play: &mut Play) {
        if self.house.tell(fact, play) {
            for (at, server_session) in self.server_sessions.iter().enumerate() {
                if server_session.as_ref().is_some_and(|server_session| !server_session.is_over()) {
                    play.wake(Who::ServerSession(at), play.now);
                }
            }
        }
    }

    /// The process ends, and with it whatever was left behind.
    fn exit(&mut self, outcome: Outcome, play: &mut Play) {
        for (at, server_session) in self.server_sessions.iter_mut().enumerate() {
            let Some(server_session) = server_session.as_mut().filter(|server_session| !server_session.is_over()) else { continue };
            play.demand(outcome == Outcome::Abandoned, || {
                format!("the server has ended ({outcome:?}), and session {at} has not")
            });
            server_session.abandon(&mut self.links[at], &mut self.house, play);
        }
    }

    /// What must hold when all is over.
    fn settle(&mut self, play: &mut Play) {
        let house = &mut self.house;
        play.demand(house.outcome.is_some(), || "the server has not ended".into());
        let left = house.drain.left();
        play.demand(left == 0, || format!("{left} sessions are still counted"));
        let (buffers, tasks) = (house.buffers, house.tasks.len());
        play.demand(buffers == 0, || format!("{buffers} buffers were not given back"));
        play.demand(tasks == 0, || format!("{tasks} tasks have not ended"));
        let (started, swept) = (house.runs_started, house.runs_swept);
        play.demand(started == swept, || format!("{started} programs began, {swept} were swept"));
        for (client, server_session) in self.clients.iter().zip(&self.server_sessions) {
            if let Some(server_session) = server_session {
                client.settle(&server_session.record, &mut house.tally, play);
            }
        }
    }
}
