//! The HTTP world: clients of every manner, the network between, and the server's own driver, sessions and engines,
//! with handlers and programs that do what the plan says.

mod answer;
mod client;
mod handler;
mod plan;
mod planned_request;
mod process;
mod program;
mod record;
pub(crate) mod site;
mod spoil;
mod task;
mod timeline;
mod transport;
mod watch;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sekisho_handler::OpenFile;
use sekisho_lifecycle::drain::Outcome;
use sekisho_lifecycle::{DeadlineKind, Moment, Session, drain};
use sekisho_net::Site;
use sekisho_net::session::{ShutdownRequest, Token};
use sekisho_net::simulation::SimulatedWorker;
use sekisho_net::transport::Ready;

use crate::context::SimContext;
use crate::network::Pipe;
use crate::rng::Rng;
use crate::{Fault, RunStats, Scope};

use client::Client;
use plan::{Plan, PlannedClient};
use process::Process;
use task::Handlers;
use transport::SimulatedTransport;
use watch::Watch;

/// What [`Fault::DeadlineEarly`] and [`Fault::DeadlineLate`] are wrong by.
const WRONG_BY: Duration = Duration::from_millis(1);
/// What [`Fault::DripExtends`] gives for each byte.
const EXTENDED_BY: Duration = Duration::from_millis(200);

/// The actors of the world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Actor {
    Client(usize),
    /// What has arrived at the server's end of a connection.
    ServerEnd(usize),
    /// The worker's event loop.
    Loop,
    /// The worker's timer.
    Timer,
    /// A handler that waits.
    Task(u64),
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

/// What the world and all that the driver calls share. Nothing is borrowed while the driver runs.
#[derive(Debug)]
struct Shared {
    sim: RefCell<Sim>,
    server: RefCell<Process>,
    links: RefCell<Vec<Link>>,
    watches: RefCell<Vec<Option<Watch>>>,
    /// By session.
    clients: RefCell<BTreeMap<u64, usize>>,
    planned: Vec<PlannedClient>,
    /// By task.
    wakers: RefCell<BTreeMap<u64, Waker>>,
    file: Rc<OpenFile>,
}

impl Shared {
    fn client_of(&self, session: u64) -> Option<usize> {
        self.clients.borrow().get(&session).copied()
    }
}

struct World {
    plan: Plan,
    shared: Rc<Shared>,
    worker: SimulatedWorker,
    sites: Vec<Arc<Site>>,
    clients: Vec<Client>,
    /// The timer has called: see [`Fault::DeadlineEarly`].
    has_timer_called: bool,
    cut_short: u64,
}

/// Plays the world of a seed; an error says what went wrong and what led to it.
pub(crate) fn sim(
    seed: u64,
    fault: Option<Fault>,
    scope: Scope,
    is_traced: bool,
) -> Result<RunStats, (String, Vec<String>)> {
    let drawn = Plan::draw(seed, scope);
    let sim = Sim::new(Rng::new(seed).apart(1 << 33), fault, is_traced);
    let mut world = World::new(drawn, sim);
    world.begin();
    loop {
        let Some(who) = world.shared.sim.borrow_mut().step() else { break };
        world.act(who);
        world.go_on();
    }
    world.settle()
}

impl World {
    fn new(plan: Plan, sim: Sim) -> Self {
        let planned = plan.clients.clone();
        let clients =
            planned.iter().enumerate().map(|(at, planned)| Client::new(at, planned.clone()));
        let links = planned.iter().map(|planned| Link {
            up: Pipe::new(planned.ways[0]),
            down: Pipe::new(planned.ways[1]),
        });
        let text = |policies| site::text(policies, plan.sessions_max, false);
        let sites: Vec<_> = plan.sites.iter().map(|it| site::open(&text(it))).collect();
        let shared = Rc::new(Shared {
            sim: RefCell::new(sim),
            server: RefCell::new(Process::new(&plan)),
            links: RefCell::new(links.collect()),
            watches: RefCell::new(planned.iter().map(|_| None).collect()),
            clients: RefCell::default(),
            wakers: RefCell::default(),
            file: site::file(&sites[0]),
            planned: planned.clone(),
        });
        let script = Rc::new(Handlers(Rc::clone(&shared)));
        let worker = SimulatedWorker::new(&sites[0], script).expect("a worker can be made");
        let clients = clients.collect();
        Self { plan, shared, worker, sites, clients, has_timer_called: false, cut_short: 0 }
    }

    fn begin(&mut self) {
        let sim = &mut self.shared.sim.borrow_mut();
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

    fn now(&self) -> Moment {
        self.shared.sim.borrow().now
    }

    fn act(&mut self, who: Actor) {
        self.worker.set_now(self.now());
        match who {
            Actor::Client(at) => {
                if self.shared.watches.borrow()[at].is_none() && !self.connect(at) {
                    return;
                }
                self.play_client(at);
            }
            Actor::ServerEnd(at) => self.arrive(at),
            Actor::Loop => self.turn(),
            Actor::Timer => {}
            Actor::Task(id) => {
                let waker = self.shared.wakers.borrow().get(&id).cloned();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Actor::Run(id) => {
                let (server, sim) =
                    (&mut *self.shared.server.borrow_mut(), &mut *self.shared.sim.borrow_mut());
                let Some(mut runner) = server.runs.remove(&id) else { return };
                runner.turn(server, sim);
                if !runner.is_over() {
                    server.leave_alone(id, runner, sim);
                }
            }
            Actor::Server => self.tell(drain::Fact::TimePassed),
            Actor::Plan => self.go_by_plan(),
        }
    }

    /// What an actor's step has led to: the event loop and the timer are woken, the process may end.
    fn go_on(&mut self) {
        let forced = self.worker.cut_short();
        for _ in self.cut_short..forced {
            self.tell(drain::Fact::CutShort);
        }
        self.cut_short = forced;
        let outcome = self.shared.server.borrow().outcome;
        if let Some(outcome) = outcome {
            self.exit(outcome);
        }
        let now = self.now();
        let timer = self.keep_time(now);
        let mut sim = self.shared.sim.borrow_mut();
        let panics = self.worker.panics();
        sim.demand(panics == 0, || "a panic in the driver".into());
        if let Some(at) = timer {
            sim.wake(Actor::Timer, at);
        }
        if self.worker.is_woken() {
            sim.wake(Actor::Loop, now);
        }
    }

    /// Lets the worker's timer look, as far as it is not wrong on purpose.
    fn keep_time(&mut self, now: Moment) -> Option<Moment> {
        let fault = self.shared.sim.borrow().fault;
        let wrong = WRONG_BY.as_nanos() as u64;
        let was_woken = self.worker.is_woken();
        let next = match fault {
            Some(Fault::DeadlineLate) => {
                let earlier = Moment::from_nanos(now.as_nanos().saturating_sub(wrong));
                self.worker.keep_time(earlier).map(|at| at + WRONG_BY)
            }
            Some(Fault::DeadlineEarly) => {
                let next = self.worker.keep_time(now + WRONG_BY);
                next.map(|at| Moment::from_nanos(at.as_nanos().saturating_sub(wrong)))
            }
            Some(Fault::DripExtends) => {
                let last = self.last_byte_of_a_late_head(now);
                match last.map(|at| at + EXTENDED_BY).filter(|at| !at.is_due(now)) {
                    Some(later) => Some(later),
                    None => self.worker.keep_time(now),
                }
            }
            _ => self.worker.keep_time(now),
        };
        self.has_timer_called |= !was_woken && self.worker.is_woken();
        next
    }

    /// When a byte last came of a head that is late.
    fn last_byte_of_a_late_head(&self, now: Moment) -> Option<Moment> {
        let watches = self.shared.watches.borrow();
        let late = watches.iter().flatten().filter(|watch| {
            let armed = self.worker.session(watch.token).and_then(|view| view.deadline);
            armed.is_some_and(|it| it.kind == DeadlineKind::Header && it.at.is_due(now))
        });
        late.map(|watch| watch.active).max()
    }

    /// A round of the event loop.
    fn turn(&mut self) {
        let now = self.now();
        let is_early = self.shared.sim.borrow().has(Fault::DeadlineEarly);
        if std::mem::take(&mut self.has_timer_called) && is_early {
            self.worker.set_now(now + WRONG_BY);
        }
        for token in self.worker.begin_round() {
            let Some(at) = self.client_at(token) else { continue };
            if let Some(watch) = &self.shared.watches.borrow()[at] {
                watch.begin_turn(&mut self.shared.sim.borrow_mut());
            }
            self.worker.give_turn(token);
            self.rest(at);
        }
        self.worker.set_now(now);
    }

    fn client_at(&self, token: Token) -> Option<usize> {
        self.shared
            .watches
            .borrow()
            .iter()
            .flatten()
            .find(|it| it.token == token)
            .map(|it| it.client)
    }

    /// A session has had its turn.
    fn rest(&self, at: usize) {
        let shared = &self.shared;
        let mut watches = shared.watches.borrow_mut();
        let Some(watch) = &mut watches[at] else { return };
        let mut sim = shared.sim.borrow_mut();
        sim.steps += 1;
        if let Some(view) = self.worker.session(watch.token) {
            watch.rest(&view, &shared.server.borrow(), &mut sim);
            if sim.has(Fault::BusyLoop) && view.is_idle {
                self.worker.call(watch.token);
            }
        } else {
            let is_over = watch.is_over();
            sim.demand(is_over, || format!("session {at} has gone without a reason"));
            let is_lost =
                watch.record.reason == Some(sekisho_lifecycle::CloseReason::TransportLost);
            if sim.has(Fault::BuffersForgotten) && is_lost {
                self.worker.lose_buffers();
            }
        }
        let links = shared.links.borrow();
        let now = sim.now;
        let arrival = links[at].down.next_arrival();
        if let Some(arrival) = arrival {
            sim.wake(Actor::Client(at), arrival);
        }
        sim.wake(Actor::ServerEnd(at), links[at].up.next_arrival().unwrap_or(now));
    }

    /// A client connects; none is accepted when the server is about to end.
    fn connect(&mut self, at: usize) -> bool {
        let shared = Rc::clone(&self.shared);
        let is_ending = {
            let server = shared.server.borrow();
            server.shutdown > ShutdownRequest::Continue || server.outcome.is_some()
        };
        if is_ending {
            return false;
        }
        shared.sim.borrow_mut().say(|| format!("client {at} connects"));
        let transport = Box::new(SimulatedTransport::new(&shared, at));
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, at as u8));
        self.worker.connect(transport, SocketAddr::new(address, 1000), |id, token| {
            let (mut server, mut sim) = (shared.server.borrow_mut(), shared.sim.borrow_mut());
            shared.clients.borrow_mut().insert(id, at);
            let watches = &mut *shared.watches.borrow_mut();
            // Refused sessions do not count.
            let counts = |it: &&Watch| !it.is_over() && !it.record.was_one_too_many;
            let is_full = watches.iter().flatten().filter(counts).count() >= server.sessions_max;
            watches[at] = Some(Watch::new(at, (id, token), is_full, &mut server, &mut sim));
        });
        self.rest(at);
        true
    }

    fn play_client(&mut self, at: usize) {
        let shared = &self.shared;
        let (mut sim, mut links) = (shared.sim.borrow_mut(), shared.links.borrow_mut());
        let (sim, link) = (&mut *sim, &mut links[at]);
        let is_unheard = link.down.deliver(sim.now, &mut sim.rng);
        self.clients[at].poll(link, &mut shared.server.borrow_mut().stats, sim);
        if is_unheard {
            link.up.refuse(sim.now, &mut sim.rng);
        }
        if let Some(at_server) = link.up.next_arrival() {
            sim.wake(Actor::ServerEnd(at), at_server);
        }
    }

    /// Lets arrive at the server what is due, and tells the worker as the kernel does.
    fn arrive(&mut self, at: usize) {
        let shared = &self.shared;
        let (mut sim, mut links) = (shared.sim.borrow_mut(), shared.links.borrow_mut());
        let (sim, link) = (&mut *sim, &mut links[at]);
        if link.up.deliver(sim.now, &mut sim.rng) {
            link.down.refuse(sim.now, &mut sim.rng);
            sim.wake(Actor::Client(at), link.down.next_arrival().unwrap_or(sim.now));
        }
        if let Some(next) = link.up.next_arrival() {
            sim.wake(Actor::ServerEnd(at), next);
        }
        if link.up.has_room_for_sender() {
            sim.wake(Actor::Client(at), sim.now + link.down.latency_min());
        }
        let mut watches = shared.watches.borrow_mut();
        let Some(watch) = watches[at].as_mut().filter(|watch| !watch.is_over()) else { return };
        if !watch.is_told_of_changes {
            return;
        }
        let mut ready = Ready::NOTHING;
        let (bytes, has_fin, is_reset) = watch.told;
        if link.up.arrived_bytes() != bytes {
            ready |= Ready::TO_READ;
        }
        if link.up.has_fin() && !has_fin {
            ready |= Ready::TO_READ | Ready::ENDED;
            watch.record.has_seen_fin = true;
        }
        if link.up.is_reset() && !is_reset {
            ready = Ready::ALL;
        }
        if watch.is_full && link.down.room() > 0 {
            watch.is_full = false;
            ready |= Ready::TO_SEND;
        }
        watch.told = (link.up.arrived_bytes(), link.up.has_fin(), link.up.is_reset());
        if ready != Ready::NOTHING {
            self.worker.note_ready(watch.token, ready);
        }
    }

    fn go_by_plan(&mut self) {
        let now = self.now();
        if let Some(at) = self.plan.reloads.iter().position(|at| at.is_due(now)) {
            self.plan.reloads.remove(at);
            self.reload();
        }
        if let Some(at) = self.plan.stops.iter().position(|(at, _)| at.is_due(now)) {
            let (_, manner) = self.plan.stops.remove(at);
            self.shared
                .sim
                .borrow_mut()
                .say(|| format!("an operator asks for the end: {manner:?}"));
            self.tell(drain::Fact::Asked(manner));
        }
        if let Some(at) = self.plan.cancels.iter().position(|(at, _)| at.is_due(now)) {
            let (_, client) = self.plan.cancels.remove(at);
            let mut watches = self.shared.watches.borrow_mut();
            if let Some(watch) = watches[client].as_mut().filter(|watch| !watch.is_over()) {
                self.shared.sim.borrow_mut().say(|| format!("an operator cancels client {client}"));
                watch.record.was_cancelled = true;
                self.worker.cancel(watch.id);
            }
        }
        self.wait_for_plan(&mut self.shared.sim.borrow_mut());
    }

    fn reload(&mut self) {
        let site = self.shared.server.borrow_mut().reload();
        self.shared.sim.borrow_mut().say(|| "reload".into());
        self.worker.serve(&self.sites[site]).expect("the address is the same");
        if self.shared.sim.borrow().has(Fault::ReloadCloses) {
            let is_idle =
                |slot: &sekisho_net::session::SessionSlot| slot.session() == Session::Idle;
            self.worker.request_shutdown_where(ShutdownRequest::Drain, is_idle);
        }
    }

    fn tell(&mut self, fact: drain::Fact) {
        let (shutdown, fault) = {
            let (mut server, mut sim) =
                (self.shared.server.borrow_mut(), self.shared.sim.borrow_mut());
            (server.tell(fact, &mut sim).then_some(server.shutdown), sim.fault)
        };
        match (shutdown, fault) {
            (None, _) => {}
            (Some(ShutdownRequest::Drain), Some(Fault::IdleForgotten)) => {
                let is_busy =
                    |slot: &sekisho_net::session::SessionSlot| slot.session() != Session::Idle;
                self.worker.request_shutdown_where(ShutdownRequest::Drain, is_busy);
            }
            (Some(ShutdownRequest::Force), Some(Fault::ForceWaits)) => {
                self.worker.request_shutdown(ShutdownRequest::Drain);
            }
            (Some(shutdown), _) => self.worker.request_shutdown(shutdown),
        }
    }

    /// The process ends, and with it whatever was left behind.
    fn exit(&mut self, outcome: Outcome) {
        let left: Vec<usize> = {
            let watches = self.shared.watches.borrow();
            let left = watches.iter().flatten().filter(|watch| !watch.is_over());
            left.map(|watch| watch.client).collect()
        };
        for at in &left {
            let (mut server, mut sim) =
                (self.shared.server.borrow_mut(), self.shared.sim.borrow_mut());
            sim.demand(outcome == Outcome::Abandoned, || {
                format!("the server has ended ({outcome:?}), and session {at} has not")
            });
            if let Some(watch) = &mut self.shared.watches.borrow_mut()[*at] {
                watch.abandon(&mut server, &mut sim);
            }
        }
        if !left.is_empty() {
            self.worker.drop_all();
            for at in left {
                self.rest(at);
            }
        }
    }

    /// What must hold when all is over.
    fn settle(self) -> Result<RunStats, (String, Vec<String>)> {
        {
            let (mut server, mut sim) =
                (self.shared.server.borrow_mut(), self.shared.sim.borrow_mut());
            let (server, sim) = (&mut *server, &mut *sim);
            sim.demand(server.outcome.is_some(), || "the server has not ended".into());
            let left = server.drain.left();
            sim.demand(left == 0, || format!("{left} sessions are still counted"));
            let sessions = self.worker.sessions();
            sim.demand(sessions == 0, || format!("{sessions} sessions are still there"));
            let (buffers, tasks) = (self.worker.buffers_lent(), server.tasks.len());
            sim.demand(buffers == 0, || format!("{buffers} buffers were not given back"));
            sim.demand(tasks == 0, || format!("{tasks} tasks have not ended"));
            let (started, swept) = (server.runs_started, server.runs_swept);
            sim.demand(started == swept, || {
                format!("{started} programs began, {swept} were swept")
            });
            let watches = self.shared.watches.borrow();
            for (client, watch) in self.clients.iter().zip(&*watches) {
                if let Some(watch) = watch {
                    client.settle(&watch.record, &mut server.stats, sim);
                }
            }
        }
        let mut stats = self.shared.server.borrow().stats;
        let sim = self.shared.sim.replace(Sim::new(Rng::new(0), None, false));
        stats.steps = sim.steps;
        // What is left of a world that went wrong goes without another word.
        drop(self.worker);
        match sim.end() {
            (None, _) => Ok(stats),
            (Some(violation), trace) => Err((violation, trace)),
        }
    }
}
