//! The HTTP/2 world: clients with many streams, which reset some, withhold windows or vanish, and the server's own
//! driver, sessions and engine. Times and handlers follow the plan; what clients are sent they judge themselves.

mod client;
mod handler;
mod plan;
mod transport;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sekisho_lifecycle::{Moment, Session};
use sekisho_net::Site;
use sekisho_net::session::{SessionSlot, ShutdownRequest, Token};
use sekisho_net::simulation::SimulatedWorker;
use sekisho_net::transport::Ready;

use crate::context::SimContext;
use crate::http::site;
use crate::network::Pipe;
use crate::rng::Rng;
use crate::{Fault, RunStats, Scope};

use client::Client;
use handler::Handlers;
use plan::{NOBODY_IS_LEFT, Plan, PlannedClient};
use transport::SimulatedTransport;

/// Every deadline is short against the length of a world.
const SITE: &str = "error_log stderr emerg; events {} http { access_log off; server { listen 127.0.0.1:80; \
    server_name a; http2 on; client_header_timeout 4s; client_body_timeout 4s; keepalive_timeout 30s; \
    send_timeout 3s; lingering_timeout 1s; lingering_time 3s; client_max_body_size 1m; \
    location / { return 200; } } }";
/// So long after a graceful end was asked for, no session is idle any more: it was told, and lingers no longer.
const GRACE: Duration = Duration::from_secs(10);
/// So long after a forceful end was asked for the process ends, whatever sessions are left.
const FORCE_PATIENCE: Duration = Duration::from_secs(2);

/// Who acts.
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
    /// What the plan says.
    Plan,
}

type Sim = SimContext<Actor>;

/// A connection, and what the worker was told of it.
#[derive(Debug)]
struct Link {
    up: Pipe,
    down: Pipe,
    /// By which the worker knows it.
    token: Option<Token>,
    is_watched: bool,
    is_full: bool,
    told: (u64, bool, bool),
}

/// What the world and all that the driver calls share. Nothing is borrowed while the driver runs.
#[derive(Debug)]
struct Shared {
    sim: RefCell<Sim>,
    links: RefCell<Vec<Link>>,
    planned: Vec<PlannedClient>,
    /// Handlers that have not ended, with whom they wake.
    tasks: RefCell<BTreeMap<u64, Option<Waker>>>,
    next_task: Cell<u64>,
}

struct World {
    plan: Plan,
    shared: Rc<Shared>,
    worker: SimulatedWorker,
    site: Arc<Site>,
    clients: Vec<Client>,
    shutdown: ShutdownRequest,
    /// When no session may be idle any more, and when the process ends.
    drained_by: Option<Moment>,
    forced_until: Option<Moment>,
}

/// Plays the world of a seed; an error says what went wrong and what led to it.
pub(crate) fn sim(
    seed: u64,
    fault: Option<Fault>,
    scope: Scope,
    is_traced: bool,
) -> Result<RunStats, (String, Vec<String>)> {
    let sim = Sim::new(Rng::new(seed).apart(1 << 33), fault, is_traced);
    let mut world = World::new(Plan::draw(seed, scope), sim);
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
        let links = planned.iter().map(|planned| Link {
            up: Pipe::new(planned.ways[0]),
            down: Pipe::new(planned.ways[1]),
            token: None,
            is_watched: false,
            is_full: false,
            told: (0, false, false),
        });
        let clients = planned.iter().enumerate().map(|(at, it)| Client::new(at, it.clone()));
        let clients = clients.collect();
        let shared = Rc::new(Shared {
            sim: RefCell::new(sim),
            links: RefCell::new(links.collect()),
            planned: planned.clone(),
            tasks: RefCell::default(),
            next_task: Cell::new(0),
        });
        let site = site::open(SITE);
        let script = Rc::new(Handlers(Rc::clone(&shared)));
        let worker = SimulatedWorker::new(&site, script).expect("a worker can be made");
        let shutdown = ShutdownRequest::Continue;
        let (drained_by, forced_until) = (None, None);
        Self { plan, shared, worker, site, clients, shutdown, drained_by, forced_until }
    }

    fn begin(&mut self) {
        let mut sim = self.shared.sim.borrow_mut();
        for (at, client) in self.clients.iter().enumerate() {
            if !client.planned.streams.is_empty() {
                sim.wake(Actor::Client(at), client.planned.comes);
            }
        }
        let plan = &self.plan;
        let times = [plan.drains, plan.forces, plan.reloads, Some(NOBODY_IS_LEFT)];
        let times: Vec<Moment> = times.into_iter().flatten().collect();
        sim.wake(Actor::Plan, times.into_iter().min().unwrap_or(NOBODY_IS_LEFT));
    }

    fn now(&self) -> Moment {
        self.shared.sim.borrow().now
    }

    fn act(&mut self, who: Actor) {
        self.worker.set_now(self.now());
        match who {
            Actor::Client(at) => {
                if self.shared.links.borrow()[at].token.is_none() && !self.connect(at) {
                    return;
                }
                self.play_client(at);
            }
            Actor::ServerEnd(at) => self.arrive(at),
            Actor::Loop => self.turn(),
            Actor::Timer => {}
            Actor::Task(id) => {
                let waker = self.shared.tasks.borrow().get(&id).cloned().flatten();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Actor::Plan => self.go_by_plan(),
        }
    }

    /// What somebody's act has led to: the event loop and the timer are woken.
    fn go_on(&mut self) {
        let now = self.now();
        let timer = self.worker.keep_time(now);
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

    /// A round of the event loop.
    fn turn(&mut self) {
        for token in self.worker.begin_round() {
            let at = self.shared.links.borrow().iter().position(|it| it.token == Some(token));
            let Some(at) = at else { continue };
            self.worker.give_turn(token);
            self.rest(at, token);
        }
    }

    /// A session has had its turn.
    fn rest(&self, at: usize, token: Token) {
        let mut sim = self.shared.sim.borrow_mut();
        sim.steps += 1;
        let now = sim.now;
        if let Some(view) = self.worker.session(token) {
            let is_due = view.deadline.is_some_and(|deadline| deadline.at.is_due(now));
            sim.demand(!is_due, || {
                format!("session {at} rests beyond its deadline {:?}", view.deadline)
            });
            let forgotten = view.forgotten_bytes;
            sim.demand(forgotten == 0, || {
                format!("session {at} forgets to send {forgotten} bytes")
            });
            let has_work = view.requests > 0;
            let is_counted = view.session.running() > 0 || !has_work;
            sim.demand(is_counted, || {
                format!(
                    "session {at} is {:?} and works on {} requests",
                    view.session, view.requests
                )
            });
            let is_bare = !(view.is_idle && view.has_buffers && view.unread_bytes == 0);
            sim.demand(is_bare || has_work, || format!("session {at} is idle and has buffers"));
        }
        let links = self.shared.links.borrow();
        if let Some(arrival) = links[at].down.next_arrival() {
            sim.wake(Actor::Client(at), arrival);
        }
        sim.wake(Actor::ServerEnd(at), links[at].up.next_arrival().unwrap_or(now));
    }

    /// Somebody comes; nobody is let in any more when the server is about to end.
    fn connect(&mut self, at: usize) -> bool {
        if self.shutdown > ShutdownRequest::Continue {
            return false;
        }
        let shared = Rc::clone(&self.shared);
        shared.sim.borrow_mut().say(|| format!("client {at} connects"));
        let transport = Box::new(SimulatedTransport::new(&shared, at));
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, at as u8));
        let mut known = None;
        self.worker.connect(transport, SocketAddr::new(address, 1000), |_, token| {
            shared.links.borrow_mut()[at].token = Some(token);
            known = Some(token);
        });
        self.clients[at].connected();
        if let Some(token) = known {
            self.rest(at, token);
        }
        true
    }

    fn play_client(&mut self, at: usize) {
        let (mut sim, mut links) = (self.shared.sim.borrow_mut(), self.shared.links.borrow_mut());
        let (sim, link) = (&mut *sim, &mut links[at]);
        let is_unheard = link.down.deliver(sim.now, &mut sim.rng);
        self.clients[at].poll(link, sim);
        if is_unheard {
            link.up.refuse(sim.now, &mut sim.rng);
        }
        if let Some(next) = link.down.next_arrival() {
            sim.wake(Actor::Client(at), next);
        }
        if link.down.has_room_for_sender() {
            sim.wake(Actor::ServerEnd(at), sim.now + link.up.latency_min());
        }
        if let Some(at_server) = link.up.next_arrival() {
            sim.wake(Actor::ServerEnd(at), at_server);
        }
    }

    /// Lets arrive at the server what is due, and tells the worker as the kernel does.
    fn arrive(&self, at: usize) {
        let (mut sim, mut links) = (self.shared.sim.borrow_mut(), self.shared.links.borrow_mut());
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
        let Some(token) = link.token.filter(|_| link.is_watched) else { return };
        if self.worker.session(token).is_none() {
            return;
        }
        let mut ready = Ready::NOTHING;
        let (bytes, has_fin, is_reset) = link.told;
        if link.up.arrived_bytes() != bytes {
            ready |= Ready::TO_READ;
        }
        if link.up.has_fin() && !has_fin {
            ready |= Ready::TO_READ | Ready::ENDED;
        }
        if link.up.is_reset() && !is_reset {
            ready = Ready::ALL;
        }
        if link.is_full && link.down.room() > 0 {
            link.is_full = false;
            ready |= Ready::TO_SEND;
        }
        link.told = (link.up.arrived_bytes(), link.up.has_fin(), link.up.is_reset());
        if ready != Ready::NOTHING {
            self.worker.note_ready(token, ready);
        }
    }

    fn go_by_plan(&mut self) {
        let now = self.now();
        let is_due = |at: &mut Option<Moment>| at.take_if(|at| at.is_due(now)).is_some();
        if is_due(&mut self.plan.reloads) {
            self.worker.serve(&self.site).expect("the address is the same");
        }
        if is_due(&mut self.plan.drains) {
            self.end(ShutdownRequest::Drain);
            self.drained_by = Some(now + GRACE);
        }
        if is_due(&mut self.plan.forces) {
            self.end(ShutdownRequest::Force);
            self.forced_until = Some(now + FORCE_PATIENCE);
        }
        if is_due(&mut self.drained_by) {
            let links = self.shared.links.borrow();
            let views = links.iter().filter_map(|link| self.worker.session(link.token?));
            let idle = views.filter(|view| view.is_idle).count();
            self.shared
                .sim
                .borrow_mut()
                .demand(idle == 0, || format!("{idle} idle sessions do not know of the end"));
        }
        if self.forced_until.is_some_and(|at| at.is_due(now)) {
            self.worker.drop_all();
        }
        if NOBODY_IS_LEFT.is_due(now) {
            let left = self.worker.sessions();
            self.shared.sim.borrow_mut().demand(left == 0, || format!("{left} sessions are left"));
        }
        let plan = &self.plan;
        let ends = [self.drained_by, self.forced_until];
        let times = [plan.drains, plan.forces, plan.reloads].into_iter().chain(ends);
        let times = times.flatten().chain([NOBODY_IS_LEFT]);
        if let Some(next) = times.filter(|at| !at.is_due(now)).min() {
            self.shared.sim.borrow_mut().wake(Actor::Plan, next);
        }
    }

    /// An operator asks for the end.
    fn end(&mut self, shutdown: ShutdownRequest) {
        self.shutdown = shutdown;
        self.shared.sim.borrow_mut().say(|| format!("an operator asks for the end: {shutdown:?}"));
        let forgets_idle = self.shared.sim.borrow().has(Fault::StreamlessForgotten);
        if forgets_idle && shutdown == ShutdownRequest::Drain {
            let is_busy = |slot: &SessionSlot| slot.session() != Session::Idle;
            self.worker.request_shutdown_where(shutdown, is_busy);
        } else {
            self.worker.request_shutdown(shutdown);
        }
    }

    /// What must hold when all is over.
    fn settle(self) -> Result<RunStats, (String, Vec<String>)> {
        let mut stats = RunStats { worlds: 1, ..RunStats::default() };
        {
            let sim = &mut *self.shared.sim.borrow_mut();
            let (sessions, buffers) = (self.worker.sessions(), self.worker.buffers_lent());
            sim.demand(sessions == 0, || format!("{sessions} sessions are still there"));
            sim.demand(buffers == 0, || format!("{buffers} buffers were not given back"));
            let tasks = self.shared.tasks.borrow().len();
            sim.demand(tasks == 0, || format!("{tasks} tasks have not ended"));
            let was_forced = self.shutdown == ShutdownRequest::Force;
            for client in &self.clients {
                client.settle(was_forced, &mut stats, sim);
            }
        }
        let sim = self.shared.sim.replace(Sim::new(Rng::new(0), None, false));
        stats.steps = sim.steps;
        drop(self.worker);
        match sim.end() {
            (None, _) => Ok(stats),
            (Some(violation), trace) => Err((violation, trace)),
        }
    }
}
