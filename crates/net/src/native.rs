//! Native sessions in a worker: an endpoint for the addresses of the `endpoint` block, with the services of the worker,
//! `http` for its own handlers, and `control`, which another thread answers. Every worker has one; what they count
//! together they share.

pub mod gate;
pub mod http;
mod log_pace;
mod logger;
mod review;
mod tls;
pub(crate) mod visit;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::PoisonError;
use std::time::Duration;

use sekisho_config::{ListenAddress, ListenOptions};
use sekisho_endpoint::remote::{self, RemoteCall};
use sekisho_endpoint::{
    Budget, Config, Counters, Endpoint, Manner, Policy, Request, RequestId, Response, Service,
    ServiceAccess, Services, SessionInfo, SessionSlots, Work, control, ipc,
};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::listen::Listener;
use crate::site::Site;
use crate::worker::{ListenerContext, Worker};

pub use gate::{GateRules, Tokens};
pub use log_pace::LogPace;
pub use logger::{NativeLog, SessionLogger, shown_peer};
pub use tls::NativeTls;

use gate::Gate;

/// What native sessions may do, the same for every worker. Sessions go on as long as their rules stay the same.
pub struct NativeRules {
    /// Limits and deadlines of a session.
    pub policy: Arc<Policy>,
    /// How many sessions all workers may have together.
    pub slots: Arc<SessionSlots>,
    /// What they may hold together.
    pub budget: Arc<Budget>,
    /// What one of them may hold.
    pub session_bytes_max: usize,
    /// Which peers are admitted, and who they are.
    pub gate: GateRules,
    /// What callers may do, and how much of it at once.
    pub access: ServiceAccess,
    /// The names of the services that are offered.
    pub services: Vec<String>,
    /// The addresses that callers other than operators reach by `http`.
    pub http_addresses: Vec<ListenAddress>,
    /// How long a graceful end waits.
    pub grace: Option<Duration>,
}

impl fmt::Debug for NativeRules {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("NativeRules").field("services", &self.services).finish_non_exhaustive()
    }
}

/// What is asked about native sessions.
#[derive(Debug)]
pub enum NativeQuery {
    /// All of them.
    List(oneshot::Sender<Vec<SessionInfo>>),
    /// The services: those that native sessions may call, and those that HTTP may.
    Services(oneshot::Sender<Vec<control::ServiceInfo>>),
    /// Requests of this session shall be cancelled: the one with this number, or all. The answer is how many were;
    /// `None` where the session is not here.
    Cancel(u64, Option<RequestId>, oneshot::Sender<Option<u64>>),
    /// This session shall end. The answer is whether it is here.
    ShutDown(u64, Manner, oneshot::Sender<bool>),
    /// A call of the service `http` by an operator.
    Call(RemoteCall),
}

/// The native sessions of a worker.
#[derive(Default)]
pub(crate) struct Native {
    current: RefCell<Option<Serving>>,
    /// Every endpoint that has sessions, or may get some: the current one, and those of earlier rules that drain.
    endpoints: RefCell<Vec<Rc<Endpoint>>>,
    /// What earlier endpoints counted.
    past: Cell<Counters>,
    /// A service was called or polled over HTTP since the clock was last looked at for that.
    pub(crate) has_service_worked: Cell<bool>,
    /// Requests of native sessions to HTTP that are over, for others.
    spare_requests: visit::SpareRequests,
    /// The addresses of HTTP, in the order of the configuration.
    pub(crate) contexts: RefCell<Vec<Rc<ListenerContext>>>,
    /// The configuration in use, for the log.
    site: RefCell<Option<Arc<Site>>>,
}

struct Serving {
    rules: Arc<NativeRules>,
    endpoint: Rc<Endpoint>,
    accepting: Vec<JoinHandle<()>>,
}

impl Native {
    /// The configuration in use.
    pub(crate) fn site(&self) -> Option<Arc<Site>> {
        self.site.borrow().clone()
    }

    /// How many connections there are.
    pub(crate) fn connections(&self) -> usize {
        self.endpoints.borrow().iter().map(|endpoint| endpoint.connections()).sum()
    }

    /// A caller was refused a service over HTTP.
    pub(crate) fn count_denied(&self) {
        self.past.set(self.past.get().plus(Counters { denied: 1, ..Counters::default() }));
    }

    /// What happened so far.
    pub(crate) fn counters(&self) -> Counters {
        let endpoints = self.endpoints.borrow();
        let all = endpoints.iter().map(|endpoint| endpoint.counters());
        all.fold(self.past.get(), Counters::plus)
    }

    /// Sessions and kept buffers, and what they hold in memory.
    pub(crate) fn memory_usage(&self) -> [(usize, usize); 2] {
        let plus = |all: (usize, usize), more: (usize, usize)| (all.0 + more.0, all.1 + more.1);
        let endpoints = self.endpoints.borrow();
        endpoints.iter().fold([(0, 0); 2], |[sessions, buffers], endpoint| {
            let held = (endpoint.memory_usage(), endpoint.buffer_memory_usage());
            [plus(sessions, held.0), plus(buffers, held.1)]
        })
    }

    /// Gives back what idle sessions keep for their next request.
    pub(crate) fn trim(&self) {
        self.endpoints.borrow().iter().for_each(|endpoint| endpoint.trim());
    }

    pub(crate) fn list(&self) -> Vec<SessionInfo> {
        self.endpoints.borrow().iter().flat_map(|endpoint| endpoint.list()).collect()
    }

    fn find(&self, session: u64) -> Option<(Rc<Endpoint>, SessionInfo)> {
        let endpoints = self.endpoints.borrow();
        endpoints.iter().find_map(|it| Some((Rc::clone(it), it.show(session)?)))
    }
}

impl Worker {
    /// Takes up a configuration. If the rules are the same, sessions go on; otherwise sessions under the old
    /// rules drain, and are ended by force when their time is over.
    pub(crate) fn serve_native(self: &Rc<Self>, site: &Arc<Site>, listeners: Vec<Listener>) {
        *self.native.site.borrow_mut() = Some(Arc::clone(site));
        let before = self.native.current.take().map(|mut before| {
            before.accepting.drain(..).for_each(|accepting| accepting.abort());
            before
        });
        let Some(rules) = site.native.clone() else {
            if let Some(before) = before {
                self.retire_native(before);
            }
            return;
        };
        let endpoint = match before {
            Some(before) if Arc::ptr_eq(&before.rules, &rules) => {
                self.review_native(&rules, &before.endpoint, site.native_tls.clone());
                before.endpoint
            }
            before => {
                if let Some(before) = before {
                    self.retire_native(before);
                }
                let endpoint = Endpoint::new(self.native_config(&rules), self.offered(&rules));
                self.native.endpoints.borrow_mut().push(Rc::clone(&endpoint));
                endpoint
            }
        };
        let listens = &site.config().main.endpoint.listens;
        let mut accepting = Vec::new();
        for Listener { address, socket, .. } in listeners {
            let endpoint = Rc::clone(&endpoint);
            let is = |has: &dyn Fn(&ListenOptions) -> bool| {
                listens.iter().any(|(other, options)| *other == address && has(options))
            };
            // A socket that cannot be registered with the runtime is skipped; that does not happen in
            // practice.
            let task = match &address {
                // No `listen` of an endpoint says so.
                ListenAddress::Udp(_) => continue,
                ListenAddress::Tcp(_) => {
                    let tls = site.native_tls.clone().filter(|_| is(&|options| options.tls));
                    TcpListener::from_std(socket.into()).map(|listener| match tls {
                        Some(tls) => {
                            let worker = Rc::downgrade(self);
                            let accept = move |tcp| tls.accept(tcp, Weak::clone(&worker));
                            tokio::task::spawn_local(endpoint.listen_tcp_through(listener, accept))
                        }
                        None => tokio::task::spawn_local(endpoint.listen_tcp(listener)),
                    })
                }
                // Every process that can open the socket may begin; the authenticator decides which may
                // control, as everywhere.
                ListenAddress::Unix(_) if is(&|options| options.ipc) => {
                    let config = ipc::Config {
                        access: ipc::Access::Anybody,
                        spin: site.config().main.endpoint.spin,
                        ..Default::default()
                    };
                    UnixListener::from_std(socket.into()).map(|listener| {
                        tokio::task::spawn_local(endpoint.listen_ipc(listener, config))
                    })
                }
                ListenAddress::Unix(_) => UnixListener::from_std(socket.into())
                    .map(|listener| tokio::task::spawn_local(endpoint.listen_unix(listener))),
            };
            accepting.extend(task);
        }
        *self.native.current.borrow_mut() = Some(Serving { rules, endpoint, accepting });
        let worker = Rc::downgrade(self);
        self.heap.do_before(move || {
            if let Some(worker) = worker.upgrade() {
                worker.native.trim();
            }
        });
    }

    fn native_config(self: &Rc<Self>, rules: &Arc<NativeRules>) -> Config {
        let own = Arc::clone(rules);
        Config {
            policy: Arc::clone(&rules.policy),
            slots: Arc::clone(&rules.slots),
            budget: Arc::clone(&rules.budget),
            session_bytes_max: rules.session_bytes_max,
            authenticator: Rc::new(Gate { rules: own, worker: Rc::downgrade(self) }),
            access: rules.access.clone(),
            observer: Rc::new(SessionLogger::new(logger::WorkerLog(Rc::downgrade(self)))),
            ids: Arc::clone(&self.shared.connections),
        }
    }

    /// The services that are offered under these rules.
    fn offered(self: &Rc<Self>, rules: &NativeRules) -> Services {
        let own = self.services();
        let mut services = Services::default();
        for name in &rules.services {
            // Their numbers and names differ.
            let _ = match name.as_str() {
                "control" => {
                    let forward = Rc::new(ToControlPlane(Rc::downgrade(self)));
                    services.add(control::NUMBER, name, forward)
                }
                "http" => {
                    let named = Some(rules.http_addresses.clone());
                    let service = Rc::new(http::HttpService::new(self, named));
                    services.add(sekisho_endpoint::http::NUMBER, name, service)
                }
                name => {
                    let number = own.number(name);
                    let found = number.and_then(|number| Some((number, own.find(number)?)));
                    let Some((number, service)) = found else { continue };
                    services.add(number, name, service)
                }
            };
        }
        services
    }

    fn retire_native(self: &Rc<Self>, before: Serving) {
        let worker = Rc::clone(self);
        let Serving { rules, endpoint, .. } = before;
        tokio::task::spawn_local(async move {
            let graceful = endpoint.shut_down_all(Manner::Graceful);
            let is_over = if let Some(grace) = rules.grace {
                tokio::time::timeout(grace, graceful).await.is_ok()
            } else {
                graceful.await;
                true
            };
            if !is_over {
                endpoint.shut_down_all(Manner::Forceful).await;
            }
            let native = &worker.native;
            native.past.set(native.past.get().plus(endpoint.counters()));
            native.endpoints.borrow_mut().retain(|other| !Rc::ptr_eq(other, &endpoint));
            worker.vacated.notify_waiters();
        });
    }

    /// Ends every native session, and takes no new ones.
    pub(crate) fn shut_down_native(self: &Rc<Self>, manner: Manner) {
        if let Some(serving) = &mut *self.native.current.borrow_mut() {
            serving.accepting.drain(..).for_each(|accepting| accepting.abort());
        }
        for endpoint in &*self.native.endpoints.borrow() {
            let (worker, endpoint) = (Rc::clone(self), Rc::clone(endpoint));
            tokio::task::spawn_local(async move {
                endpoint.shut_down_all(manner).await;
                worker.vacated.notify_waiters();
            });
        }
    }

    /// Answers what is asked about native sessions.
    pub(crate) fn attend_native(self: &Rc<Self>, query: NativeQuery) {
        // A caller that no longer waits has dropped its end; the failed send does not matter.
        match query {
            NativeQuery::List(answer) => {
                let _ = answer.send(self.native.list());
            }
            NativeQuery::Services(answer) => {
                let current = self.native.current.borrow();
                let native = current.as_ref().map(|serving| serving.endpoint.services());
                let mut services = native.map(control::describe_services).unwrap_or_default();
                for own in control::describe_services(&self.services()) {
                    if services.iter().all(|other| other.number != own.number) {
                        services.push(own);
                    }
                }
                let _ = answer.send(services);
            }
            NativeQuery::Cancel(session, request, answer) => {
                let found = self.native.find(session).map(|(endpoint, info)| {
                    let ids = info.requests.iter().map(|request| request.id);
                    let meant = ids.filter(|id| request.is_none_or(|only| only == *id));
                    meant.filter(|id| endpoint.cancel(session, *id)).count() as u64
                });
                let _ = answer.send(found);
            }
            NativeQuery::ShutDown(session, manner, answer) => {
                let found = self.native.find(session);
                let _ = answer.send(found.is_some_and(|(it, _)| it.shut_down(session, manner)));
            }
            NativeQuery::Call(call) => {
                let worker = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    let mut services = Services::default();
                    let service = Rc::new(http::HttpService::new(&worker, None));
                    // The first one.
                    let _ = services.add(sekisho_endpoint::http::NUMBER, "http", service);
                    call.serve(&services).await;
                });
            }
        }
    }

    /// The worker ends: what it counted is kept.
    pub(crate) fn keep_native_counters(&self) {
        let past = &self.shared.past_native;
        let mut past = past.lock().unwrap_or_else(PoisonError::into_inner);
        *past = past.plus(self.native.counters());
    }
}

/// The service `control`: the control plane answers.
struct ToControlPlane(Weak<Worker>);

impl Service for ToControlPlane {
    fn schema(&self) -> Option<&str> {
        Some(control::SCHEMA)
    }

    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        remote::forward(request, response, move |call| {
            let worker = self.0.upgrade();
            let calls = worker.as_ref().and_then(|worker| worker.shared.control_calls.get());
            calls.is_some_and(|calls| calls.send(call).is_ok())
        })
    }
}

impl fmt::Debug for Native {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Native").field("connections", &self.connections()).finish_non_exhaustive()
    }
}
