//! The control plane's thread: its endpoints, their listeners and authenticators, and the main thread's
//! commands.

use std::cell::{Cell, RefCell};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho_config::Level;
use sekisho_endpoint::control::{Certificate, PurgeCache, Purged};
use sekisho_endpoint::remote::{self, RemoteCall};
use sekisho_endpoint::{
    Admitted, Applicant, Budget, Caller, Code, Config, ControlAccess, Decision, Echo, Endpoint,
    Identity, Peer, Request, Response, Service, ServiceAccess, Services, SessionSlots, Work,
};
use sekisho_handler::memory::HeapWatch;
use sekisho_handler::status::StatusQuery;
use sekisho_handler::upstream::{Purge, Snapshot};
use sekisho_lifecycle::{Manner, Moment};
use sekisho_log::Logs;
use sekisho_native::frame::Kind;
use sekisho_native::message::{Bye, write};
use sekisho_net::clock::unix_time;
use sekisho_net::native::gate::{NOT_AN_OPERATOR, control_access};
use sekisho_net::native::{NativeLog, SessionLogger};
use sekisho_net::tls::InUse;
use sekisho_net::worker::Shared;
use sekisho_net::{Clock, Site, WatchedThread};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::control::Control;
use super::memory_guard;
use super::overview::History;
use super::status;
use super::worker_registry::WorkerRegistry;
use super::{ControlCommand, Rules, ServerRequest};
use crate::cluster::{Membership, Question};

/// Without descriptors, accepting pauses this long (O5).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Peers that have only just connected to the control socket.
const CONTROL_GREETINGS: u32 = 16;
/// What sessions at the control socket may hold in memory: a budget of their own, so that other sessions
/// cannot use it up.
const SEAT_BYTES: usize = 16 << 20;
/// What one of them may hold.
const SESSION_BYTES_MAX: usize = 8 << 20;
/// How long clients have to take the last frames.
const GOODBYE: Duration = Duration::from_millis(500);

/// What the tasks of the control plane share.
pub(super) struct Host {
    /// The workers.
    pub(super) worker_registry: WorkerRegistry,
    /// What all workers share.
    pub(super) shared: Arc<Shared>,
    /// All logs.
    pub(super) logs: Arc<Logs>,
    /// The process's clock, and the site whose log is written.
    clock: Clock,
    site: RefCell<Option<Arc<Site>>>,
    /// The main thread.
    pub(super) main: UnboundedSender<ServerRequest>,
    /// The thread that asks other nodes.
    pub(super) cluster: UnboundedSender<Question>,
    membership: RefCell<Option<Arc<Membership>>>,
    /// The control socket's; the workers have those of the block.
    endpoint: RefCell<Option<Rc<Endpoint>>>,
    /// Whether the server is about to end.
    pub(super) is_ending: Cell<bool>,
    pub(super) ending: Notify,
    /// Gives memory back to the system when sessions have ended.
    heap: HeapWatch,
    /// What earlier looks at the server found.
    pub(super) history: RefCell<History>,
}

/// Runs the control plane on this thread until the command to end.
pub(super) fn run(
    (control_sockets, watched): (Vec<StdUnixListener>, Arc<WatchedThread>),
    started: Instant,
    (shared, logs): (Arc<Shared>, Arc<Logs>),
    (commands, questions, mut calls): (
        UnboundedReceiver<ControlCommand>,
        UnboundedReceiver<StatusQuery>,
        UnboundedReceiver<RemoteCall>,
    ),
    (main, cluster): (UnboundedSender<ServerRequest>, UnboundedSender<Question>),
) {
    let mut builder = Builder::new_current_thread();
    let builder = watched.heartbeat.attach(&mut builder);
    let runtime = builder.enable_io().enable_time().build_local(LocalOptions::default());
    let Ok(runtime) = runtime else { return };
    let host = Rc::new(Host {
        worker_registry: WorkerRegistry::default(),
        shared,
        logs,
        clock: Clock::new(started),
        site: RefCell::default(),
        main,
        cluster,
        membership: RefCell::default(),
        endpoint: RefCell::default(),
        is_ending: Cell::new(false),
        ending: Notify::new(),
        heap: HeapWatch::default(),
        history: RefCell::default(),
    });
    runtime.block_on(async move {
        tokio::task::spawn_local(async move { watched.answer().await });
        tokio::task::spawn_local(status::answer_all(Rc::clone(&host), questions));
        tokio::task::spawn_local(memory_guard::watch(Rc::clone(&host)));
        let services = host.services();
        tokio::task::spawn_local(async move {
            // Sessions at the workers call `control`, too.
            while let Some(call) = calls.recv().await {
                let services = services.clone();
                tokio::task::spawn_local(async move { call.serve(&services).await });
            }
        });
        host.obey(control_sockets, commands).await;
    });
}

impl Host {
    async fn obey(
        self: Rc<Self>,
        mut control_sockets: Vec<StdUnixListener>,
        mut commands: UnboundedReceiver<ControlCommand>,
    ) {
        let mut own: Option<(Rc<RefCell<Rules>>, Rc<Endpoint>)> = None;
        while let Some(command) = commands.recv().await {
            match command {
                ControlCommand::Serve(rules, site) => {
                    *self.site.borrow_mut() = Some(site);
                    self.membership.borrow_mut().clone_from(&rules.membership);
                    if let Some((known, endpoint)) = &own {
                        *known.borrow_mut() = (*rules).clone();
                        // Whoever has lost a right does not keep it until its session ends; what runs is answered.
                        let has_lost = |caller: &Caller| {
                            let access = control_of(&caller.peer, &rules);
                            access == ControlAccess::None || access < caller.control
                        };
                        endpoint.shut_down_those(has_lost, Manner::Graceful);
                    } else {
                        let sockets = std::mem::take(&mut control_sockets);
                        own = Some(self.open_control_sockets(sockets, &rules));
                    }
                }
                ControlCommand::Workers(workers, serving) => {
                    self.worker_registry.set(workers, serving);
                }
                ControlCommand::ShutDown => {
                    self.is_ending.set(true);
                    self.ending.notify_waiters();
                }
                ControlCommand::End => break,
            }
        }
        self.is_ending.set(true);
        self.ending.notify_waiters();
        // First the running answers, such as the one to the operator that stopped the server; then every
        // session ends.
        let _ = tokio::time::timeout(GOODBYE, self.shut_down(Manner::Graceful)).await;
        let _ = tokio::time::timeout(GOODBYE, self.shut_down(Manner::Forceful)).await;
    }

    /// Ends the sessions of the control socket.
    async fn shut_down(&self, manner: Manner) {
        if let Some(endpoint) = self.endpoint() {
            endpoint.shut_down_all(manner).await;
        }
    }

    /// Writes a line into the error log.
    pub(super) fn log(&self, level: Level, session: Option<u64>, message: std::fmt::Arguments<'_>) {
        let site = self.site.borrow();
        if let Some(site) = site.as_ref().filter(|site| site.log.wants(level)) {
            site.log.write(level, self.clock.stamp(self.clock.now()), session, message);
        }
    }

    /// The time.
    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// How long the server has been running.
    pub(super) fn uptime(&self) -> Duration {
        self.now().since(Moment::ZERO)
    }

    /// What this node is in its cluster.
    pub(super) fn membership(&self) -> Option<Arc<Membership>> {
        self.membership.borrow().clone()
    }

    /// The configuration in use.
    pub(super) fn site(&self) -> Option<Arc<Site>> {
        self.site.borrow().clone()
    }

    /// Deletes entries of caches.
    pub(super) async fn purge(&self, wanted: PurgeCache) -> Purged {
        let now = self.clock.now();
        let caches: Vec<_> = {
            let site = self.site.borrow();
            let all = site.iter().flat_map(|site| site.caches());
            let is_meant = |zone: &str| wanted.zone.is_empty() || wanted.zone == zone;
            all.filter(|cache| is_meant(cache.name())).map(Arc::clone).collect()
        };
        let count = caches.len() as u64;
        // Files are looked into: beside the loop.
        let mut running = Vec::new();
        for cache in caches {
            let key = wanted.key.clone();
            let own = Arc::clone(&cache);
            running.push(cache.device().change(move || own.purge(Purge::parse(&key), now)));
        }
        let mut entries = 0;
        for one in running {
            entries += one.await.ok().and_then(Result::ok).unwrap_or(0);
        }
        Purged { caches: count, entries }
    }

    /// The servers of all groups: the block, the group, the server, and what is known of it.
    pub(super) fn upstream_servers(&self) -> Vec<(&'static str, String, Arc<str>, Snapshot)> {
        let (site, now) = (self.site.borrow(), self.clock.now());
        let mut all = Vec::new();
        let Some(http) = site.as_deref() else { return all };
        let blocks = [("http", Some(http)), ("stream", http.stream().map(|stream| &**stream))];
        for (block, site) in blocks {
            for group in site.into_iter().flat_map(Site::groups) {
                for (server, snapshot) in group.servers(now) {
                    all.push((block, group.name().to_owned(), server, snapshot));
                }
            }
        }
        all
    }

    /// What the configuration in use holds in memory.
    pub(super) fn configuration_bytes(&self) -> u64 {
        self.site.borrow().as_ref().map_or(0, |site| site.memory_bytes)
    }

    /// The certificates that are shown to clients.
    pub(super) fn certificates(&self) -> Vec<Certificate> {
        let site = self.site.borrow();
        let now = unix_time().as_secs() as i64;
        let all = site.as_ref().map(|site| site.certificates()).unwrap_or_default();
        let shown = |one: InUse| {
            let of = one.certificate.unwrap_or_default();
            let is_missing = of.to == 0;
            Certificate {
                seconds_left: if is_missing { 0 } else { of.to - now },
                names: one.names,
                issuer: of.issuer,
                serial: of.serial,
                valid_from: of.from,
                valid_to: of.to,
                is_missing,
                source: one.source,
            }
        };
        all.into_iter().map(shown).collect()
    }

    /// The control socket's endpoint.
    pub(super) fn endpoint(&self) -> Option<Rc<Endpoint>> {
        self.endpoint.borrow().clone()
    }

    /// The control socket, by its name and by its file: its own endpoint, so that clients at the addresses
    /// cannot take its session slots.
    fn open_control_sockets(
        self: &Rc<Self>,
        control_sockets: Vec<StdUnixListener>,
        rules: &Rules,
    ) -> (Rc<RefCell<Rules>>, Rc<Endpoint>) {
        let admin_sessions = rules.endpoint.admin_sessions;
        let policy = Arc::new(rules.policy());
        let rules = Rc::new(RefCell::new(rules.clone()));
        let known = Rc::clone(&rules);
        let config = Config {
            policy,
            slots: SessionSlots::new(admin_sessions, admin_sessions, CONTROL_GREETINGS),
            budget: Budget::new(SEAT_BYTES),
            session_bytes_max: SESSION_BYTES_MAX,
            // A peer that may not control is turned away before, unless it lost the right since it connected.
            authenticator: Rc::new(move |applicant: &Applicant<'_>| {
                let peer = applicant.peer;
                let access = control_of(peer, &known.borrow());
                if access == ControlAccess::None {
                    let text = NOT_AN_OPERATOR.to_owned();
                    return Decision::Now(Err((Code::PermissionError, text)));
                }
                // Only a session that asks for it controls anything.
                let wants = applicant.greeting.wants_admin;
                let control = if wants { access } else { ControlAccess::None };
                let identity = Identity::of_peer(peer);
                Decision::Now(Ok(Admitted { identity, control, ..Admitted::default() }))
            }),
            // What an operator may do is not counted with what others do.
            access: ServiceAccess::default(),
            observer: Rc::new(SessionLogger::new(HostLog(Rc::clone(self)))),
            ids: Arc::clone(&self.shared.connections),
        };
        let endpoint = Endpoint::new(config, self.services());
        *self.endpoint.borrow_mut() = Some(Rc::clone(&endpoint));
        // A socket that cannot be registered with the runtime is skipped; that does not happen in practice.
        for listener in control_sockets.into_iter().filter_map(|it| UnixListener::from_std(it).ok())
        {
            let (known, serving) = (Rc::clone(&rules), Rc::clone(&endpoint));
            tokio::task::spawn_local(take_operators(listener, known, serving));
        }
        (rules, endpoint)
    }

    /// The services for operators.
    fn services(self: &Rc<Self>) -> Services {
        use sekisho_endpoint::{control, http};
        let mut services = Services::default();
        let control = Rc::new(Control::new(Rc::clone(self)));
        // Their numbers and names differ.
        let _ = services.add(control::NUMBER, "control", control);
        let _ = services.add(http::NUMBER, "http", Rc::new(ToWorker(Rc::clone(self))));
        let _ = services.add(Echo::NUMBER, "echo", Rc::new(Echo));
        services
    }
}

/// The service `http`: one of the workers answers, in turn.
struct ToWorker(Rc<Host>);

impl Service for ToWorker {
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        remote::forward(request, response, move |call| self.0.worker_registry.call(call))
    }
}

/// Serves operators at the control socket, and turns others away.
async fn take_operators(listener: UnixListener, rules: Rc<RefCell<Rules>>, endpoint: Rc<Endpoint>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if is_welcome(&stream, &rules.borrow()) {
                    tokio::task::spawn_local(endpoint.serve(stream));
                } else {
                    turn_away(&stream);
                }
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// The log of the configuration in use.
struct HostLog(Rc<Host>);

impl NativeLog for HostLog {
    fn log(&self, level: Level, session: Option<u64>, message: std::fmt::Arguments<'_>) {
        self.0.log(level, session, message);
    }

    fn now(&self) -> Moment {
        self.0.now()
    }

    fn note_activity(&self) {
        // Sessions that outlive the runtime's work have nowhere to put it.
        if !self.0.is_ending.get() {
            self.0.heap.note_activity();
        }
    }
}

fn is_welcome(stream: &tokio::net::UnixStream, rules: &Rules) -> bool {
    let peer = stream.peer_cred().map(|of| Peer::Local { uid: of.uid(), pid: None });
    peer.is_ok_and(|peer| control_of(&peer, rules) > ControlAccess::None)
}

/// What a process may do at the control socket.
fn control_of(peer: &Peer, rules: &Rules) -> ControlAccess {
    control_access(&rules.identities.permissions, peer, &Identity::of_peer(peer))
}

/// Sends the reason, and keeps no state for a peer that may not control.
fn turn_away(stream: &tokio::net::UnixStream) {
    let mut out = Vec::new();
    let code = Code::PermissionError.number();
    let bye = Bye { code, text: NOT_AN_OPERATOR.to_owned(), major: 0, minor: 0 };
    write(&mut out, Kind::Bye, 0, &bye);
    // A fresh socket has room for it.
    let _ = stream.try_write(&out);
}
