//! A worker: one thread, one runtime, its sessions, buffers and open files. Nothing in it is locked.

use std::cell::{Cell, OnceCell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use sekisho_config::ListenAddress;
use sekisho_endpoint::Manner;
use sekisho_endpoint::remote::RemoteCall;
use sekisho_handler::cgi::{ProcessSlots, Runs};
use sekisho_handler::memory::HeapWatch;
use sekisho_handler::password::{PasswordCache, UserFiles};
use sekisho_handler::status::StatusQuery;
use sekisho_handler::upstream::Pools;
use sekisho_handler::wait::Hashers;
use sekisho_handler::{FileCache, disk, listing};
use sekisho_service::Services;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::access_log::AccessLog;
use crate::admission::Admission;
use crate::buffers::Buffers;
use crate::clock::Clock;
use crate::counters::Counters;
use crate::exchange::Exchange;
use crate::heartbeat::{Heartbeat, WakeAlarm, WatchedThreads};
use crate::listen::{self, Acceptor, Listener};
use crate::native::Native;
use crate::panic_report::{self, Vital};
use crate::query::WorkerQuery;
use crate::quic::route::Routes;
use crate::quic::{self, WorkerQuic};
use crate::request_stats::RequestStats;
use crate::scheduler::Scheduler;
use crate::session::{Sessions, ShutdownRequest};
use crate::site::Site;
use crate::stream_session::{DatagramSessions, Pipes, SilentServers};
use crate::subrequest::mirror::Copies;

/// How many threads of a worker compress, compute hashes or run services that block.
const COMPUTATIONS_MAX: usize = 32;
/// How many sets of buffers a worker keeps for later.
const POOL_MAX: usize = 64;

/// The commands of the main thread to a worker.
#[derive(Debug)]
pub enum WorkerCommand {
    /// Serve this site on these sockets from now on. Addresses that are not among them close: connections in
    /// their accept queues are still served, idle sessions end, running requests finish.
    Serve(Arc<Site>, Vec<Listener>),
    /// Accept the connections in the queues, end idle sessions, let running requests finish, then end.
    Drain,
    /// The same, but leave the accept queues to other workers or processes: the sockets stay open without
    /// this worker.
    Retire,
    /// End every session, then end.
    Stop,
    /// Answer this.
    Answer(WorkerQuery),
    /// Memory is nearly used up: end connections that it can do without.
    Shed,
    /// End now and leave behind what has not ended; the sender is dropped when all connections are closed.
    Abandon(std::sync::mpsc::Sender<Infallible>),
}

/// What all workers share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Numbers sessions of every protocol.
    pub connections: Arc<AtomicU64>,
    /// What happened so far.
    pub counters: Counters,
    /// How many workers there are.
    pub workers: AtomicUsize,
    /// Places for programs.
    pub process_slots: Arc<ProcessSlots>,
    /// Connections, where they are limited.
    pub admission: Arc<Admission>,
    /// Files of users.
    pub user_files: UserFiles,
    /// The threads that compute password hashes.
    pub hashers: Arc<Hashers>,
    /// Signalled when an open was denied: the paths of the sandbox are checked again.
    pub sandbox_recheck: Notify,
    /// Whether the workers are in a sandbox.
    pub is_kept: AtomicBool,
    /// An operator wants balancers to send new requests elsewhere (`ctl drain`).
    pub is_drained: AtomicBool,
    /// The user that the server has switched to, if it has.
    pub user: OnceLock<String>,
    /// Where the server's status is asked for.
    pub status: OnceLock<UnboundedSender<StatusQuery>>,
    /// Request statistics of workers that have ended.
    pub past: Mutex<RequestStats>,
    /// Where calls of the service `control` go that come in at the workers.
    pub control_calls: OnceLock<UnboundedSender<RemoteCall>>,
    /// What native sessions of workers that have ended counted.
    pub past_native: Mutex<sekisho_endpoint::Counters>,
    /// Makes the services of a worker.
    pub services: OnceLock<ServiceFactory>,
    /// Set off when a thread that is watched wakes up while the watchdog sleeps.
    pub wake_alarm: Arc<WakeAlarm>,
    /// The workers that have QUIC connections.
    pub quic_routes: Routes,
    /// What the watchdog looks at besides the workers.
    pub watched_threads: WatchedThreads,
}

/// Makes the services of each worker: they live on its thread.
#[derive(Clone)]
pub struct ServiceFactory(pub Arc<dyn Fn() -> Services + Send + Sync>);

impl std::fmt::Debug for ServiceFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServiceFactory")
    }
}

/// An address as the connections that came through it see it: which site answers there now.
#[derive(Debug)]
pub struct ListenerContext {
    /// Its number, unique in its worker.
    pub id: u32,
    /// Where.
    pub address: ListenAddress,
    /// The shutdown that was requested of the sessions that come in here from now on.
    pub shutdown: Cell<ShutdownRequest>,
    pub(crate) bound_site: RefCell<Rc<BoundSite>>,
    /// Who sends datagrams here.
    pub(crate) datagram_sessions: DatagramSessions,
}

/// A site, and which of its addresses is meant.
#[derive(Debug)]
pub struct BoundSite {
    /// The site.
    pub site: Arc<Site>,
    /// An index into its addresses.
    listen: usize,
    /// More specific addresses with this one's port: no socket can be opened for them beside a wildcard's, so
    /// their connections are accepted here.
    particular: Vec<(IpAddr, usize)>,
}

impl BoundSite {
    pub(crate) fn new(site: &Arc<Site>, address: &ListenAddress) -> Option<Self> {
        let (site, listen) = if let Some(listen) = site.listen_index(address) {
            (site, listen)
        } else {
            let stream = site.stream()?;
            (stream, stream.listen_index(address)?)
        };
        let listens = &site.config().http.listens;
        let particular = listens.iter().enumerate().filter_map(|(index, other)| {
            listen::covers(address, &other.address).map(|particular| (particular, index))
        });
        Some(Self { site: Arc::clone(site), listen, particular: particular.collect() })
    }

    /// Which of the site's addresses a connection to `local` came to.
    pub fn listen(&self, local: Option<IpAddr>) -> usize {
        let is_local = |(address, _): &&(IpAddr, usize)| Some(*address) == local;
        self.particular.iter().find(is_local).map_or(self.listen, |(_, index)| *index)
    }
}

impl ListenerContext {
    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match &self.address {
            ListenAddress::Tcp(address) | ListenAddress::Udp(address) => address.ip().is_loopback(),
            ListenAddress::Unix(_) => true,
        }
    }

    /// Whether QUIC connections come in here.
    pub(crate) fn is_quic(&self) -> bool {
        let bound_site = self.bound_site();
        bound_site.site.config().http.listens[bound_site.listen].options.quic
    }

    /// The site that answers here now.
    pub fn bound_site(&self) -> Rc<BoundSite> {
        Rc::clone(&self.bound_site.borrow())
    }
}

/// A listener that is open: its sockets, and the tasks that accept from them.
#[derive(Debug)]
struct OpenListener {
    listener_context: Rc<ListenerContext>,
    sockets: Vec<(u64, Rc<Acceptor>, JoinHandle<()>)>,
}

/// A worker's own state, shared by the tasks of its thread.
#[derive(Debug)]
pub struct Worker {
    /// The time.
    pub clock: Clock,
    /// The worker's sessions.
    pub sessions: RefCell<Sessions>,
    /// Their connections, and which sessions are due.
    pub(crate) scheduler: Scheduler,
    /// Its native sessions.
    pub(crate) native: Native,
    /// Lines of the access log are about to be handed over.
    pub(crate) is_log_due: Cell<bool>,
    /// Its services, once one is called.
    services: OnceCell<Rc<Services>>,
    /// The looks at the memory that have led to shed connections.
    pub(crate) critical_looks: Cell<u64>,
    /// Opened files.
    pub files: RefCell<FileCache>,
    /// Listings that are asked for very often.
    pub listings: RefCell<listing::Cache>,
    /// The number of sessions whose client takes nothing of what is sent.
    pub(crate) stalled: Cell<u32>,
    /// What is read of a file that cannot be sent unread.
    pub(crate) read_buffer: RefCell<Vec<u8>>,
    /// Whether a sweep of the opened files is under way.
    is_sweeping: Cell<bool>,
    #[expect(clippy::vec_box, reason = "they are handed out and taken back as boxes")]
    pub(crate) pool: RefCell<Vec<Box<Buffers>>>,
    #[expect(clippy::vec_box, reason = "they are handed out and taken back as boxes")]
    pub(crate) exchange_pool: RefCell<Vec<Box<Exchange>>>,
    pub(crate) timer: RefCell<Option<Waker>>,
    /// Signalled when a session ends: accepting may go on, a drained worker may end.
    pub vacated: Notify,
    /// Whether the loop turns, as seen from outside.
    pub(crate) heartbeat: Arc<Heartbeat>,
    /// Signalled when something has panicked without which this worker is of no use.
    pub broken: Notify,
    /// The shutdown that was requested of every session, also of those that come.
    pub shutdown: Cell<ShutdownRequest>,
    /// How many sessions the worker may have.
    pub sessions_max: Cell<usize>,
    /// Passwords that were right or wrong a moment ago.
    pub password_cache: RefCell<PasswordCache>,
    /// Programs that go on without their client.
    pub runs: Runs,
    /// Copies of requests that go on alone (`mirror`).
    pub(crate) copies: Copies,
    /// Connections to other servers.
    pub(crate) upstreams: Rc<Pools>,
    /// Makes the checks of servers that are due.
    pub(crate) checking: RefCell<Option<JoinHandle<()>>>,
    /// Its QUIC sockets.
    pub(crate) quic: WorkerQuic,
    /// Pipes between sockets.
    pub(crate) pipes: Pipes,
    /// Sessions with datagrams, in the order in which they end for others.
    pub(crate) silent_servers: SilentServers,
    /// What the requests here came to.
    pub stats: RefCell<RequestStats>,
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// Distinguishes request ids: random at the start, counted on.
    request_id: Cell<u128>,
    /// Numbers listeners.
    listener_count: Cell<u32>,
    /// How many sockets are being emptied before they close.
    emptying: Cell<usize>,
    /// Its lines of the access log, until they are handed over.
    pub(crate) access_log: AccessLog,
    /// Whether the heap is watched for memory that can go back.
    pub(crate) heap: HeapWatch,
    /// Lines about missing files are few a second: how many this second, and how many were left out.
    pub not_found: RefCell<crate::request_log::NotFoundLines>,
    /// What a simulation decides here, and what is reported to it.
    #[cfg(feature = "simulation")]
    pub(crate) simulation: OnceCell<crate::simulation::Seam>,
}

/// A listener is being emptied, until this is dropped: also where that ends in a panic, or the worker could never end.
struct DrainingListener(Rc<Worker>);

impl DrainingListener {
    fn begin(worker: &Rc<Worker>) -> Self {
        worker.emptying.update(|count| count + 1);
        Self(Rc::clone(worker))
    }
}

impl Drop for DrainingListener {
    fn drop(&mut self) {
        self.0.emptying.update(|count| count - 1);
        self.0.vacated.notify_waiters();
    }
}

impl Worker {
    /// Runs a worker on this thread until it is drained or stopped.
    pub fn run(
        start: Instant,
        shared: Arc<Shared>,
        heartbeat: Arc<Heartbeat>,
        commands: mpsc::UnboundedReceiver<WorkerCommand>,
    ) -> io::Result<()> {
        panic_report::begin_worker();
        let runtime = heartbeat
            .attach(&mut Builder::new_current_thread())
            .enable_all()
            // File operations have threads by device, so that a disk that hangs holds up no others (`handler/disk.rs`);
            // computations and services have the rest. What they do needs little stack.
            .max_blocking_threads(disk::THREADS_MAX + COMPUTATIONS_MAX)
            .thread_stack_size(512 << 10)
            // Look at the sockets after each round of tasks of a full batch, not in the middle of one.
            .event_interval(256)
            .build_local(LocalOptions::default())?;
        let _within = runtime.enter();
        let worker = Rc::new(Self::new(Clock::new(start), shared, heartbeat)?);
        runtime.block_on(async {
            let ended = worker.obey(commands).await;
            // Each of them holds the worker: one that ends in the middle would leave them all behind.
            worker.scheduler.drop_all();
            // Nor would the last lines be written then.
            worker.access_log.hand_over();
            ended
        })
    }

    /// A worker without sessions and listeners. Within the runtime that it is to run in.
    pub(crate) fn new(
        clock: Clock,
        shared: Arc<Shared>,
        heartbeat: Arc<Heartbeat>,
    ) -> io::Result<Self> {
        let scheduler = Scheduler::new()?;
        let upstreams = Pools::new(random_seed() as u64, &scheduler.reactor);
        Ok(Self {
            clock,
            sessions: RefCell::default(),
            scheduler,
            native: Native::default(),
            is_log_due: Cell::new(false),
            services: OnceCell::new(),
            critical_looks: Cell::new(0),
            files: RefCell::default(),
            listings: RefCell::default(),
            read_buffer: RefCell::default(),
            is_sweeping: Cell::new(false),
            pool: RefCell::default(),
            exchange_pool: RefCell::default(),
            timer: RefCell::new(None),
            vacated: Notify::new(),
            stalled: Cell::new(0),
            heartbeat,
            broken: Notify::new(),
            shutdown: Cell::new(ShutdownRequest::Continue),
            sessions_max: Cell::new(usize::MAX),
            password_cache: RefCell::default(),
            runs: Runs::default(),
            copies: Copies::default(),
            upstreams,
            checking: RefCell::default(),
            quic: WorkerQuic::default(),
            pipes: Pipes::default(),
            silent_servers: SilentServers::default(),
            stats: RefCell::default(),
            shared,
            request_id: Cell::new(random_seed()),
            listener_count: Cell::new(0),
            emptying: Cell::new(0),
            access_log: AccessLog::default(),
            heap: HeapWatch::default(),
            not_found: RefCell::default(),
            #[cfg(feature = "simulation")]
            simulation: OnceCell::new(),
        })
    }

    async fn obey(
        self: &Rc<Self>,
        mut commands: mpsc::UnboundedReceiver<WorkerCommand>,
    ) -> io::Result<()> {
        let timer = tokio::task::spawn_local(Rc::clone(self).keep_time());
        let scheduler = tokio::task::spawn_local(Rc::clone(self).run_scheduler());
        let mut open_listeners: Vec<OpenListener> = Vec::new();
        let ended = loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(WorkerCommand::Serve(site, listeners)) => {
                        self.serve(&site, listeners, &mut open_listeners);
                    }
                    Some(WorkerCommand::Drain) => {
                        self.request_shutdown_of_all(ShutdownRequest::Drain);
                        self.shut_down_native(Manner::Graceful);
                        for open_listener in open_listeners.drain(..) {
                            self.empty(open_listener);
                        }
                    }
                    Some(WorkerCommand::Retire) => {
                        self.request_shutdown_of_all(ShutdownRequest::Drain);
                        self.shut_down_native(Manner::Graceful);
                        close(&mut open_listeners).await;
                    }
                    Some(WorkerCommand::Answer(query)) => {
                        self.attend(query);
                    }
                    Some(WorkerCommand::Shed) => self.shed_connections(),
                    Some(WorkerCommand::Abandon(done)) => {
                        self.scheduler.drop_all();
                        drop(done);
                        break Ok(());
                    }
                    Some(WorkerCommand::Stop) | None => {
                        self.request_shutdown_of_all(ShutdownRequest::Force);
                        self.shut_down_native(Manner::Forceful);
                        for open_listener in open_listeners.drain(..) {
                            self.empty(open_listener);
                        }
                    }
                },
                () = self.vacated.notified(), if self.shutdown.get() > ShutdownRequest::Continue => {}
                () = self.broken.notified() => {
                    let said = panic_report::take().unwrap_or_default();
                    break Err(io::Error::other(format!("it panicked: {said}")));
                }
            }
            self.heartbeat.turn();
            if self.shutdown.get() == ShutdownRequest::Force {
                self.runs.force();
                self.copies.force();
            }
            if self.is_over() {
                break Ok(());
            }
        };
        timer.abort();
        scheduler.abort();
        self.keep_native_counters();
        let past = &self.shared.past;
        past.lock().unwrap_or_else(PoisonError::into_inner).merge(&self.stats.borrow());
        ended
    }

    fn is_over(&self) -> bool {
        let may_wait = self.emptying.get() > 0;
        let is_alone = self.runs.alone() > 0 || self.copies.count() > 0;
        let is_empty = self.sessions.borrow().is_empty() && self.native.connections() == 0;
        let is_empty = is_empty && !is_alone;
        self.shutdown.get() > ShutdownRequest::Continue && !may_wait && is_empty
    }

    pub(crate) fn request_shutdown_of_all(&self, shutdown: ShutdownRequest) {
        self.stop_checks();
        self.shutdown.set(self.shutdown.get().max(shutdown));
        self.sessions.borrow_mut().request_shutdown_of_all(shutdown);
    }

    /// Takes over a site: listeners that stay keep their sessions and get the new site; others close.
    fn serve(
        self: &Rc<Self>,
        site: &Arc<Site>,
        listeners: Vec<Listener>,
        open_listeners: &mut Vec<OpenListener>,
    ) {
        self.sessions_max.set(site.config().main.worker_connections.max(1));
        *self.files.borrow_mut() = FileCache::new(site.file_cache());
        *self.listings.borrow_mut() = listing::Cache::default();
        self.check_servers(site);
        self.heap.note_activity();
        let native = &site.config().main.endpoint.listens;
        let is_native = |it: &Listener| native.iter().any(|(address, _)| *address == it.address);
        let (native, listeners): (Vec<_>, Vec<_>) = listeners.into_iter().partition(is_native);
        for mut open_listener in std::mem::take(open_listeners) {
            let place =
                |listener: &Listener| listener.address == open_listener.listener_context.address;
            if !listeners.iter().any(place) {
                self.close_listener(open_listener, site.config().main.former_sessions_timeout);
                continue;
            }
            // A socket that another worker accepts from now on; it stays open.
            open_listener.sockets.retain(|(cookie, _, accepting)| {
                let stays = listeners.iter().any(|listener| listener.cookie == *cookie);
                if !stays {
                    accepting.abort();
                }
                stays
            });
            open_listeners.push(open_listener);
        }
        for listener in listeners {
            let Some(bound_site) = BoundSite::new(site, &listener.address).map(Rc::new) else {
                continue;
            };
            let known = open_listeners
                .iter()
                .position(|it| it.listener_context.address == listener.address);
            let at = known.unwrap_or_else(|| {
                let listener_context = Rc::new(ListenerContext {
                    id: self.next_listener_id(),
                    address: listener.address.clone(),
                    shutdown: Cell::new(ShutdownRequest::Continue),
                    bound_site: RefCell::new(Rc::clone(&bound_site)),
                    datagram_sessions: DatagramSessions::default(),
                });
                open_listeners.push(OpenListener { listener_context, sockets: Vec::new() });
                open_listeners.len() - 1
            });
            let open_listener = &mut open_listeners[at];
            *open_listener.listener_context.bound_site.borrow_mut() = bound_site;
            if open_listener.sockets.iter().all(|(cookie, ..)| *cookie != listener.cookie) {
                self.accept(open_listener, listener);
            }
        }
        let contexts = open_listeners.iter().map(|it| Rc::clone(&it.listener_context));
        *self.native.contexts.borrow_mut() = contexts.collect();
        self.serve_native(site, native);
    }

    fn accept(self: &Rc<Self>, open_listener: &mut OpenListener, listener: Listener) {
        let (cookie, listener_context) =
            (listener.cookie, Rc::clone(&open_listener.listener_context));
        let acceptor = Rc::new(Acceptor::new(listener));
        let is_udp = matches!(listener_context.address, ListenAddress::Udp(_));
        let is_quic = listener_context.is_quic();
        let (worker, own) = (Rc::clone(self), Rc::clone(&acceptor));
        let accepting = if is_quic {
            tokio::task::spawn_local(quic::receive(worker, listener_context, own, false))
        } else if is_udp {
            tokio::task::spawn_local(listen::udp::receive(worker, listener_context, own))
        } else {
            tokio::task::spawn_local(listen::accept(worker, listener_context, own))
        };
        open_listener.sockets.push((cookie, acceptor, accepting));
    }

    /// An address is no longer listened on: its sessions drain, and are ended when their time is over.
    fn close_listener(self: &Rc<Self>, open_listener: OpenListener, grace: Option<Duration>) {
        let listener_context = Rc::clone(&open_listener.listener_context);
        self.request_shutdown_at(&listener_context, ShutdownRequest::Drain);
        self.empty(open_listener);
        if let Some(grace) = grace {
            let worker = Rc::clone(self);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(grace).await;
                worker.request_shutdown_at(&listener_context, ShutdownRequest::Force);
            });
        }
    }

    fn request_shutdown_at(&self, listener_context: &ListenerContext, shutdown: ShutdownRequest) {
        listener_context.shutdown.set(shutdown);
        self.sessions
            .borrow_mut()
            .request_shutdown_where(shutdown, |slot| slot.listener_id == listener_context.id);
    }

    /// Serves the connections in a listener's queue, and closes it.
    fn empty(self: &Rc<Self>, open_listener: OpenListener) {
        for (_, acceptor, accepting) in open_listener.sockets {
            accepting.abort();
            let (worker, listener_context) =
                (Rc::clone(self), Rc::clone(&open_listener.listener_context));
            let emptying = DrainingListener::begin(&worker);
            tokio::task::spawn_local(async move {
                let _emptying = emptying;
                // The task's end is the socket's end; one that was aborted says so, which is no news.
                let _ = accepting.await;
                listen::empty(worker, listener_context, acceptor).await;
            });
        }
    }

    /// Wakes sessions at their deadlines: one timer for all of them.
    async fn keep_time(self: Rc<Self>) {
        let _vital = Vital(Rc::clone(&self));
        let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
        poll_fn(|cx: &mut Context<'_>| -> Poll<()> {
            loop {
                let next = self.sessions.borrow_mut().wake_due(self.clock.now());
                *self.timer.borrow_mut() = Some(cx.waker().clone());
                let Some(next) = next else { return Poll::Pending };
                sleep.as_mut().reset(self.clock.instant(next));
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    /// Sets the one timer anew.
    pub fn wake_timer(&self) {
        let waker = self.timer.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Buffers for a connection that has become busy.
    pub(crate) fn borrow_buffers(&self) -> Box<Buffers> {
        #[cfg(feature = "simulation")]
        if let Some(seam) = self.simulation.get() {
            seam.buffers_lent.update(|lent| lent + 1);
        }
        self.pool.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes the buffers of a connection that has become idle.
    pub(crate) fn give_back_buffers(&self, mut buffers: Box<Buffers>) {
        #[cfg(feature = "simulation")]
        if let Some(seam) = self.simulation.get() {
            seam.buffers_lent.update(|lent| lent - 1);
        }
        let is_worth_keeping = buffers.tidy();
        let mut pool = self.pool.borrow_mut();
        if is_worth_keeping && pool.len() < POOL_MAX {
            pool.push(buffers);
        }
    }

    /// An exchange for a new request.
    pub(crate) fn borrow_exchange(&self) -> Box<Exchange> {
        self.exchange_pool.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes the exchange of a request that is over.
    pub(crate) fn give_back_exchange(&self, mut exchange: Box<Exchange>) {
        let is_worth_keeping = exchange.tidy();
        let mut pool = self.exchange_pool.borrow_mut();
        if is_worth_keeping && pool.len() < POOL_MAX {
            pool.push(exchange);
        }
    }

    /// The services of this worker.
    pub fn services(&self) -> Rc<Services> {
        let make =
            || Rc::new(self.shared.services.get().map(|make| (make.0)()).unwrap_or_default());
        Rc::clone(self.services.get_or_init(make))
    }

    fn next_listener_id(&self) -> u32 {
        let next = self.listener_count.get().wrapping_add(1);
        self.listener_count.set(next);
        next
    }

    /// The next number for a connection.
    pub fn next_connection(&self) -> u64 {
        self.shared.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The seed of the next request's id.
    pub fn next_request_id(&self) -> u128 {
        // An odd step through all of the range: no id comes twice.
        let id = self.request_id.get().wrapping_add(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.request_id.set(id);
        id
    }

    /// What health probes are told: whether new requests are wanted.
    pub(crate) fn is_ready(&self) -> bool {
        let is_drained = self.shared.is_drained.load(Ordering::Relaxed);
        !is_drained && self.shutdown.get() == ShutdownRequest::Continue
    }

    /// What an operator needs to know beside this error: for which user it was denied, and what else may be
    /// the cause.
    pub(crate) fn denial_hint(&self, errno: rustix::io::Errno) -> String {
        let mut hint = String::new();
        if errno != rustix::io::Errno::ACCESS {
            return hint;
        }
        if let Some(user) = self.shared.user.get() {
            hint = format!(" for user \"{user}\"");
        }
        if self.shared.is_kept.load(Ordering::Relaxed) {
            hint.push_str(" (or it is outside the sandbox)");
        }
        hint
    }

    /// The id of the request that came last.
    pub fn last_request_id(&self) -> u128 {
        self.request_id.get()
    }

    /// Starts the task that closes cached files and listings that are no longer asked for; it runs while any
    /// are held.
    pub fn sweep_files_later(self: &Rc<Self>) {
        if self.is_sweeping.replace(true) {
            return;
        }
        let worker = Rc::clone(self);
        tokio::task::spawn_local(async move {
            loop {
                let inactive = worker.files.borrow().inactive();
                tokio::time::sleep(inactive).await;
                let now = worker.clock.now();
                let has_files = worker.files.borrow_mut().sweep(now);
                let has_listings = worker.listings.borrow_mut().sweep(now);
                if !has_files && !has_listings {
                    break;
                }
            }
            worker.is_sweeping.set(false);
        });
    }
}

async fn close(open_listeners: &mut Vec<OpenListener>) {
    for (_, _, accepting) in
        open_listeners.drain(..).flat_map(|open_listener| open_listener.sockets)
    {
        accepting.abort();
        // The task's end is the socket's end; one that was aborted says so, which is no news.
        let _ = accepting.await;
    }
}

/// Random enough that ids of two runs do not meet: the keys of the standard library's hasher.
fn random_seed() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let half = |salt: u64| u128::from(RandomState::new().hash_one(salt));
    half(1) << 64 | half(2)
}
