//! The native world: both engines of each session, services that answer, stream, fail and forget, clients
//! that cancel, extend, drain and leave, and the network between them.

mod app;
mod desk;
mod plan;
mod timeline;
mod work;

use sekisho_lifecycle::Manner;

use crate::dice::Dice;
use crate::network::Pipe;
use crate::scene::Scene;
use crate::{Fault, Scope, Tally};

use app::App;
use desk::ServerSession;
use plan::{Act, Plan};

/// Who acts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Who {
    Client(usize),
    ServerSession(usize),
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
    apps: Vec<App>,
    links: Vec<Link>,
    server_sessions: Vec<Option<ServerSession>>,
    /// The endpoint takes nobody any more.
    is_closed: bool,
    tally: Tally,
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
    let guests = drawn.clients.iter().enumerate();
    let apps: Vec<App> =
        guests.map(|(at, guest)| App::new(at, guest.clone(), drawn.policy.clone())).collect();
    let links = drawn
        .clients
        .iter()
        .map(|guest| Link { up: Pipe::new(guest.ways[0]), down: Pipe::new(guest.ways[1]) });
    let mut world = World {
        links: links.collect(),
        server_sessions: (0..apps.len()).map(|_| None).collect(),
        apps,
        is_closed: false,
        tally: Tally { worlds: 1, ..Tally::default() },
        plan: drawn,
    };
    world.begin(&mut play);
    while let Some(who) = play.step() {
        world.act(who, &mut play);
    }
    world.settle(&mut play);
    let mut tally = world.tally;
    tally.steps = play.steps;
    match play.end() {
        (None, _) => Ok(tally),
        (Some(violation), trace) => Err((violation, trace)),
    }
}

impl World {
    fn begin(&mut self, play: &mut Play) {
        for (at, app) in self.apps.iter().enumerate() {
            if !app.guest().asks.is_empty() {
                play.wake(Who::Client(at), app.guest().comes);
            }
        }
        self.wait_for_plan(play);
    }

    fn wait_for_plan(&self, play: &mut Play) {
        if let Some((at, _)) = self.plan.stops.first() {
            play.wake(Who::Plan, *at);
        }
    }

    fn act(&mut self, who: Who, play: &mut Play) {
        match who {
            Who::Client(at) => {
                if self.server_sessions[at].is_none() {
                    if self.is_closed {
                        return;
                    }
                    self.server_sessions[at] = Some(ServerSession::new(at, &self.plan, &mut self.tally, play.now));
                    self.apps[at].connect(play);
                    play.wake(Who::ServerSession(at), play.now);
                }
                let Some(server_session) = &mut self.server_sessions[at] else { return };
                let link = &mut self.links[at];
                let is_unheard = link.down.deliver(play.now, &mut play.dice);
                self.apps[at].poll(link, server_session, &mut self.tally, play);
                if is_unheard {
                    link.up.refuse(play.now, &mut play.dice);
                    play.wake(Who::ServerSession(at), link.up.next_arrival().unwrap_or(play.now));
                }
            }
            Who::ServerSession(at) => {
                let Some(server_session) = &mut self.server_sessions[at] else { return };
                let link = &mut self.links[at];
                let is_unheard = link.up.deliver(play.now, &mut play.dice);
                server_session.poll(link, &self.plan.clients[at], &mut self.tally, play);
                server_session.reclaim(play);
                if is_unheard {
                    link.down.refuse(play.now, &mut play.dice);
                    play.wake(Who::Client(at), link.down.next_arrival().unwrap_or(play.now));
                }
            }
            Who::Plan => {
                let (_, manner) = self.plan.stops.remove(0);
                self.stop(manner, play);
                self.wait_for_plan(play);
            }
        }
    }

    fn stop(&mut self, manner: Manner, play: &mut Play) {
        self.is_closed = true;
        for (at, server_session) in self.server_sessions.iter_mut().enumerate() {
            if let Some(server_session) = server_session {
                server_session.act(Act::ShutDownFromOutside(manner), play);
                play.wake(Who::ServerSession(at), play.now);
            }
        }
    }

    /// What must hold when all is over.
    fn settle(&mut self, play: &mut Play) {
        for (app, server_session) in self.apps.iter().zip(&self.server_sessions) {
            if let Some(server_session) = server_session {
                server_session.settle(play);
                app.settle(server_session, play);
            }
        }
    }
}
