//! The control plane's thread: its endpoints, their listeners and authenticators, and the main thread's
//! commands.

use std::cell::{Cell, RefCell};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho_config::{BuiltIn, Level, ListenAddress};
use sekisho_endpoint::control::{Certificate, PurgeCache, Purged};
use sekisho_endpoint::{
    Authenticator, Budget, CloseReason, Code, Config, Echo, Endpoint, Greeting, Observer, Peer,
    Policy, RequestId, Services, SessionSlots, ipc,
};
use sekisho_handler::memory::{self, HeapWatch};
use sekisho_handler::status::StatusQuery;
use sekisho_handler::upstream::Snapshot;
use sekisho_lifecycle::stay::Bug;
use sekisho_lifecycle::{Manner, Moment};
use sekisho_log::Logs;
use sekisho_native::frame::Kind;
use sekisho_native::message::{Bye, write};
use sekisho_net::clock::unix_time;
use sekisho_net::listen::Listener;
use sekisho_net::tls::InUse;
use sekisho_net::worker::Shared;
use sekisho_net::{Clock, Site};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

use super::control::Control;
use super::http::HttpService;
use super::log_pace::LogPace;
use super::memory_guard;
use super::operators::{Operators, REFUSAL};
use super::overview::History;
use super::status;
use super::worker_registry::WorkerRegistry;
use super::{ControlCommand, Rules, ServerRequest};

/// Without descriptors, accepting pauses this long (O5).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Peers that have only just connected: so many at the addresses, and so many at the control socket.
const GREETINGS: u32 = 256;
const CONTROL_GREETINGS: u32 = 16;
/// What sessions at the control socket may hold in memory: a budget of their own, so that other sessions
/// cannot use it up.
const SEAT_BYTES: usize = 16 << 20;
/// What one session may hold: so much, or half of what all may.
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
    /// Every endpoint that has, or may get, sessions: the control socket's, that of the block, and those of earlier
    /// configurations that drain.
    endpoints: RefCell<Vec<Rc<Endpoint>>>,
    /// What earlier endpoints counted.
    past: Cell<sekisho_endpoint::Counters>,
    /// Whether the server is about to end.
    pub(super) is_ending: Cell<bool>,
    pub(super) ending: Notify,
    /// Gives memory back to the system when sessions have ended.
    heap: HeapWatch,
    /// How often a refusal is logged.
    refusals: RefCell<LogPace>,
    /// What earlier looks at the server found.
    pub(super) history: RefCell<History>,
}

/// The endpoint of the block, under its rules.
struct Public {
    rules: Rules,
    endpoint: Rc<Endpoint>,
    accepting: Vec<(u64, JoinHandle<()>)>,
}

/// Runs the control plane on this thread until the command to end.
pub(super) fn run(
    control_sockets: Vec<StdUnixListener>,
    started: Instant,
    (shared, logs): (Arc<Shared>, Arc<Logs>),
    (commands, questions): (UnboundedReceiver<ControlCommand>, UnboundedReceiver<StatusQuery>),
    main: UnboundedSender<ServerRequest>,
) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().build_local(LocalOptions::default());
    let Ok(runtime) = runtime else { return };
    let host = Rc::new(Host {
        worker_registry: WorkerRegistry::default(),
        shared,
        logs,
        clock: Clock::new(started),
        site: RefCell::default(),
        main,
        endpoints: RefCell::default(),
        past: Cell::default(),
        is_ending: Cell::new(false),
        ending: Notify::new(),
        heap: HeapWatch::default(),
        refusals: RefCell::default(),
        history: RefCell::default(),
    });
    runtime.block_on(async move {
        tokio::task::spawn_local(status::answer_all(Rc::clone(&host), questions));
        tokio::task::spawn_local(memory_guard::watch(Rc::clone(&host)));
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
        let mut public: Option<Public> = None;
        while let Some(command) = commands.recv().await {
            match command {
                ControlCommand::Serve(rules, listeners, site) => {
                    *self.site.borrow_mut() = Some(site);
                    if let Some((known, _)) = &own {
                        *known.borrow_mut() = (*rules).clone();
                    } else {
                        let sockets = std::mem::take(&mut control_sockets);
                        own = Some(self.open_control_sockets(sockets, &rules));
                    }
                    public = Some(self.serve(public, *rules, listeners));
                }
                ControlCommand::Workers(workers, serving) => {
                    self.worker_registry.set(workers, serving);
                }
                ControlCommand::ShutDown(manner) => {
                    self.is_ending.set(true);
                    self.ending.notify_waiters();
                    let host = Rc::clone(&self);
                    let kept = own.as_ref().map(|(_, endpoint)| Rc::clone(endpoint));
                    for (_, accepting) in public.iter_mut().flat_map(|it| it.accepting.drain(..)) {
                        accepting.abort();
                    }
                    tokio::task::spawn_local(async move {
                        host.shut_down(manner, kept.as_ref()).await;
                        let _ = host.main.send(ServerRequest::Drained);
                    });
                }
                ControlCommand::End => break,
            }
        }
        self.is_ending.set(true);
        self.ending.notify_waiters();
        // First the running answers, such as the one to the operator that stopped the server; then every
        // session ends.
        let _ = tokio::time::timeout(GOODBYE, self.shut_down(Manner::Graceful, None)).await;
        let _ = tokio::time::timeout(GOODBYE, self.shut_down(Manner::Forceful, None)).await;
    }

    /// Ends the sessions of all endpoints but one.
    async fn shut_down(&self, manner: Manner, kept: Option<&Rc<Endpoint>>) {
        let endpoints: Vec<_> = self.endpoints();
        let ending = endpoints.iter().filter(|it| kept.is_none_or(|kept| !Rc::ptr_eq(it, kept)));
        futures_util::future::join_all(ending.map(|endpoint| endpoint.shut_down_all(manner))).await;
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
        let purge = move || {
            let key = Some(wanted.key.as_slice()).filter(|key| !key.is_empty());
            caches.iter().filter_map(|cache| cache.purge(key, now).ok()).sum()
        };
        // Files are looked into: beside the loop.
        let entries = tokio::task::spawn_blocking(purge).await.unwrap_or(0);
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

    /// Every endpoint.
    pub(super) fn endpoints(&self) -> Vec<Rc<Endpoint>> {
        self.endpoints.borrow().clone()
    }

    /// What happened at all of them so far.
    pub(super) fn counters(&self) -> sekisho_endpoint::Counters {
        let endpoints = self.endpoints.borrow();
        let all = endpoints.iter().map(|endpoint| endpoint.counters());
        all.fold(self.past.get(), sekisho_endpoint::Counters::plus)
    }

    /// The control socket, by its name and by its file: its own endpoint, so that clients at the addresses
    /// cannot take its session slots.
    fn open_control_sockets(
        self: &Rc<Self>,
        control_sockets: Vec<StdUnixListener>,
        rules: &Rules,
    ) -> (Rc<RefCell<Rules>>, Rc<Endpoint>) {
        let admin_sessions = rules.endpoint.admin_sessions;
        let config = Config {
            policy: Arc::new(policy(rules)),
            slots: SessionSlots::new(admin_sessions, admin_sessions, CONTROL_GREETINGS),
            budget: Budget::new(SEAT_BYTES),
            session_bytes_max: SESSION_BYTES_MAX,
            // A peer that may not control is turned away before.
            authenticator: Rc::new(|_: &Greeting, _: &Peer| Ok(())),
            observer: Rc::new(SessionLogger(Rc::clone(self))),
            ids: Arc::clone(&self.shared.connections),
        };
        let endpoint = self.add(Endpoint::new(config, self.services(&BuiltIn::ALL, None)));
        let rules = Rc::new(RefCell::new(rules.clone()));
        // A socket that cannot be registered with the runtime is skipped; that does not happen in practice.
        for listener in control_sockets.into_iter().filter_map(|it| UnixListener::from_std(it).ok())
        {
            let (known, serving) = (Rc::clone(&rules), Rc::clone(&endpoint));
            tokio::task::spawn_local(take_operators(listener, known, serving));
        }
        (rules, endpoint)
    }

    /// Takes up a configuration. If the rules are the same, sessions go on; otherwise sessions under the old
    /// rules drain, and are ended by force when their time is over.
    fn serve(
        self: &Rc<Self>,
        before: Option<Public>,
        rules: Rules,
        listeners: Vec<Listener>,
    ) -> Public {
        let before = before.map(|mut before| {
            before.accepting.retain(|(_, accepting)| {
                accepting.abort();
                false
            });
            before
        });
        let endpoint = match before {
            Some(before) if before.rules.is_same_but_addresses(&rules) => before.endpoint,
            before => {
                if let Some(before) = before {
                    self.retire(before.endpoint, before.rules.grace);
                }
                let limits = &rules.endpoint;
                let config = Config {
                    policy: Arc::new(policy(&rules)),
                    slots: SessionSlots::with_address_limit(
                        limits.sessions_max,
                        limits.admin_sessions,
                        GREETINGS,
                        limits.sessions_of_an_address(),
                    ),
                    budget: Arc::clone(memory::native()),
                    session_bytes_max: SESSION_BYTES_MAX.min(memory::native().limit() / 2),
                    authenticator: with_memory(rules.operators.clone().authenticator()),
                    observer: Rc::new(SessionLogger(Rc::clone(self))),
                    ids: Arc::clone(&self.shared.connections),
                };
                let services = self.services(&limits.services, Some(&limits.http_addresses));
                self.add(Endpoint::new(config, services))
            }
        };
        let mut accepting = Vec::new();
        for Listener { address, cookie, socket, .. } in listeners {
            let endpoint = Rc::clone(&endpoint);
            let listens = &rules.endpoint.listens;
            let is_ipc = listens.iter().any(|(other, options)| *other == address && options.ipc);
            // A socket that cannot be registered with the runtime is skipped; that does not happen in
            // practice.
            let task = match address {
                // No `listen` of an endpoint says so.
                ListenAddress::Udp(_) => continue,
                ListenAddress::Tcp(_) => TcpListener::from_std(socket.into())
                    .map(|listener| tokio::task::spawn_local(endpoint.listen_tcp(listener))),
                // Every process that can open the socket may begin; the authenticator decides which may
                // control, as everywhere.
                ListenAddress::Unix(_) if is_ipc => {
                    let config = ipc::Config { access: ipc::Access::Anybody, ..Default::default() };
                    UnixListener::from_std(socket.into()).map(|listener| {
                        tokio::task::spawn_local(endpoint.listen_ipc(listener, config))
                    })
                }
                ListenAddress::Unix(_) => UnixListener::from_std(socket.into())
                    .map(|listener| tokio::task::spawn_local(endpoint.listen_unix(listener))),
            };
            accepting.extend(task.ok().map(|task| (cookie, task)));
        }
        Public { rules, endpoint, accepting }
    }

    fn retire(self: &Rc<Self>, endpoint: Rc<Endpoint>, grace: Option<Duration>) {
        let host = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let graceful = endpoint.shut_down_all(Manner::Graceful);
            let is_over = if let Some(grace) = grace {
                tokio::time::timeout(grace, graceful).await.is_ok()
            } else {
                graceful.await;
                true
            };
            if !is_over {
                endpoint.shut_down_all(Manner::Forceful).await;
            }
            host.past.set(host.past.get().plus(endpoint.counters()));
            host.endpoints.borrow_mut().retain(|other| !Rc::ptr_eq(other, &endpoint));
        });
    }

    fn add(&self, endpoint: Rc<Endpoint>) -> Rc<Endpoint> {
        self.endpoints.borrow_mut().push(Rc::clone(&endpoint));
        endpoint
    }

    /// The services that are offered, to operators alone or also to other clients, which reach these
    /// addresses by `http`.
    fn services(
        self: &Rc<Self>,
        offered: &[BuiltIn],
        http_addresses: Option<&[ListenAddress]>,
    ) -> Services {
        use sekisho_endpoint::{control, http};
        let mut services = Services::default();
        for service in offered {
            // Their numbers and names differ.
            let _ = match service {
                BuiltIn::Control => {
                    services.add(control::NUMBER, "control", Rc::new(Control::new(Rc::clone(self))))
                }
                BuiltIn::Http => {
                    let host = Rc::clone(self);
                    let service = match http_addresses {
                        None => HttpService::for_operators(host),
                        Some(named) => HttpService::for_all(host, named.to_vec()),
                    };
                    services.add(http::NUMBER, "http", Rc::new(service))
                }
                BuiltIn::Echo => services.add(Echo::NUMBER, "echo", Rc::new(Echo)),
            };
        }
        services
    }
}

/// Serves operators at the control socket, and turns others away.
async fn take_operators(listener: UnixListener, rules: Rc<RefCell<Rules>>, endpoint: Rc<Endpoint>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if is_welcome(&stream, &rules.borrow().operators) {
                    tokio::task::spawn_local(endpoint.serve(stream));
                } else {
                    turn_away(&stream);
                }
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

impl Rules {
    fn is_same_but_addresses(&self, other: &Self) -> bool {
        let mut endpoint = other.endpoint.clone();
        endpoint.listens.clone_from(&self.endpoint.listens);
        self.operators == other.operators && self.endpoint == endpoint
    }
}

/// Writes into the error log what happens: every end has its reason there (O6).
struct SessionLogger(Rc<Host>);

impl Observer for SessionLogger {
    fn opened(&self, session: u64, label: &str, peer: &Peer) {
        self.0.heap.note_activity();
        let message = format_args!("native session of {}, label \"{label}\"", shown_peer(peer));
        self.0.log(Level::Debug, Some(session), message);
    }

    fn refused(&self, session: u64, peer: &Peer, code: Code, text: &str) {
        let Some(unlogged) = self.0.refusals.borrow_mut().may_log(self.0.now()) else {
            return;
        };
        let peer = shown_peer(peer);
        let more = format!(", and {unlogged} more since the last such line");
        let more = if unlogged > 0 { &more } else { "" };
        let message = format_args!("native session of {peer} refused: {code}, {text}{more}");
        self.0.log(Level::Warn, Some(session), message);
    }

    fn closed(&self, session: u64, peer: &Peer, reason: CloseReason) {
        // Sessions that outlive the runtime's work have nowhere to put it.
        if !self.0.is_ending.get() {
            self.0.heap.note_activity();
        }
        let message = format_args!("closed: {}, native, {}", reason.tag(), shown_peer(peer));
        self.0.log(Level::Debug, Some(session), message);
    }

    fn bug(&self, session: u64, request: RequestId, bug: Bug) {
        let what = match bug {
            Bug::AnsweredWithOpenChannel => "answered while its channel was open",
            Bug::DroppedUnanswered => "went without an answer",
        };
        let message = format_args!("a service {what}: request {request}");
        self.0.log(Level::Error, Some(session), message);
    }
}

/// A peer as people read it.
pub(super) fn shown_peer(peer: &Peer) -> String {
    match peer {
        Peer::Tcp(address) => address.to_string(),
        Peer::Local { uid, pid: Some(pid) } => format!("uid {uid}, pid {pid}"),
        Peer::Local { uid, pid: None } => format!("uid {uid}"),
        Peer::Loopback => "this process".to_owned(),
        Peer::Unknown => "unknown".to_owned(),
    }
}

fn policy(rules: &Rules) -> Policy {
    let limits = &rules.endpoint;
    Policy {
        frame_bytes_max: limits.frame_bytes_max,
        requests_max: limits.requests_per_session,
        channels_max: limits.channels_per_session,
        channel_bytes_max: limits.channel_bytes_max,
        handshake_timeout: limits.handshake_timeout,
        frame_timeout: limits.frame_timeout,
        session_timeout: limits.session_timeout,
        session_extension_max: limits.session_lifetime_max,
        ..Policy::default()
    }
}

/// An authenticator that admits only operators while memory is short (X8).
fn with_memory(authenticator: Rc<dyn Authenticator>) -> Rc<dyn Authenticator> {
    Rc::new(move |greeting: &Greeting, peer: &Peer| {
        if !greeting.wants_admin && memory::is_short() {
            return Err((Code::ResourceLimitReached, "memory is short".to_owned()));
        }
        authenticator.admit(greeting, peer)
    })
}

fn is_welcome(stream: &tokio::net::UnixStream, operators: &Operators) -> bool {
    stream.peer_cred().is_ok_and(|of| operators.has(of.uid()))
}

/// Sends the reason, and keeps no state for a peer that may not control.
fn turn_away(stream: &tokio::net::UnixStream) {
    let mut out = Vec::new();
    let code = Code::PermissionError.number();
    let bye = Bye { code, text: REFUSAL.to_owned(), major: 0, minor: 0 };
    write(&mut out, Kind::Bye, 0, &bye);
    // A fresh socket has room for it.
    let _ = stream.try_write(&out);
}
