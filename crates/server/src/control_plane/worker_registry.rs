//! The workers, as the control plane asks them: one query to each, all at once, and their answers.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use sekisho_endpoint::control;
use sekisho_endpoint::remote::RemoteCall;
use sekisho_endpoint::{Manner, RequestId, SessionInfo};
use sekisho_net::ProtocolKind;
use sekisho_net::WorkerCommand;
use sekisho_net::memory_usage::MemoryUsage;
use sekisho_net::native::NativeQuery;
use sekisho_net::query::{Peer, SessionFilter, SessionView, WorkerMetrics, WorkerQuery};
use sekisho_net::session::ShutdownRequest;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// How long a worker may take to answer: one that is at work on something long is listed another time.
const PATIENCE: Duration = Duration::from_secs(2);

/// The workers.
#[derive(Debug, Default)]
pub(super) struct WorkerRegistry {
    workers: RefCell<Vec<(String, UnboundedSender<WorkerCommand>)>>,
    /// How many of them serve: they come first.
    serving: Cell<usize>,
    next: Cell<usize>,
}

impl WorkerRegistry {
    /// These are the workers from now on.
    pub(super) fn set(
        &self,
        workers: Vec<(String, UnboundedSender<WorkerCommand>)>,
        serving: usize,
    ) {
        self.serving.set(serving.min(workers.len()));
        *self.workers.borrow_mut() = workers;
    }

    /// Asks every worker; workers that have ended are skipped. Also returns how many did not answer in time.
    async fn ask<T>(
        &self,
        question: impl Fn(oneshot::Sender<T>) -> WorkerQuery,
    ) -> (Vec<(String, T)>, u32) {
        self.ask_those(|_| true, question).await
    }

    /// Asks the worker of a session alone.
    async fn ask_worker_of<T>(
        &self,
        session: &control::Session,
        question: impl Fn(oneshot::Sender<T>) -> WorkerQuery,
    ) -> impl Iterator<Item = T> {
        let (answers, _) = self.ask_those(|name| name == session.worker, question).await;
        answers.into_iter().map(|(_, answer)| answer)
    }

    async fn ask_those<T>(
        &self,
        is_asked: impl Fn(&str) -> bool,
        question: impl Fn(oneshot::Sender<T>) -> WorkerQuery,
    ) -> (Vec<(String, T)>, u32) {
        let mut asked = Vec::new();
        for (name, commands) in self.workers.borrow().iter().filter(|(name, _)| is_asked(name)) {
            let (answer, answered) = oneshot::channel();
            if commands.send(WorkerCommand::Answer(question(answer))).is_ok() {
                asked.push((name.clone(), answered));
            }
        }
        let by = tokio::time::Instant::now() + PATIENCE;
        let (mut answers, mut silent) = (Vec::new(), 0);
        for (name, answered) in asked {
            match tokio::time::timeout_at(by, answered).await {
                Ok(Ok(answer)) => answers.push((name, answer)),
                Ok(Err(_)) => {}
                Err(_) => silent += 1,
            }
        }
        (answers, silent)
    }

    /// Their sessions, and how many workers did not answer in time.
    pub(super) async fn sessions(&self, filter: SessionFilter) -> (Vec<control::Session>, u32) {
        let (answers, silent) = self.ask(|answer| WorkerQuery::Sessions(filter, answer)).await;
        let mut sessions = Vec::new();
        for (worker, views) in answers {
            sessions.extend(views.into_iter().map(|view| shown(view, &worker)));
        }
        (sessions, silent)
    }

    /// Cancels the running request of a session; `None` when its worker does not have it any more.
    pub(super) async fn cancel(
        &self,
        session: &control::Session,
        request: Option<u64>,
    ) -> Option<bool> {
        let cancel = |answer| WorkerQuery::Cancel(session.id, request, answer);
        self.ask_worker_of(session, cancel).await.find_map(|answer| answer)
    }

    /// Ends a session; returns whether its worker still has it.
    pub(super) async fn shut_down(
        &self,
        session: &control::Session,
        shutdown: ShutdownRequest,
    ) -> bool {
        let query = |answer| WorkerQuery::ShutDown(session.id, shutdown, answer);
        self.ask_worker_of(session, query).await.any(|is_here| is_here)
    }

    /// The native sessions of all of them, with the names of the workers.
    pub(super) async fn native_sessions(&self) -> Vec<(String, SessionInfo)> {
        let list = |answer| WorkerQuery::Native(NativeQuery::List(answer));
        let (answers, _) = self.ask(list).await;
        let named = |(worker, all): (String, Vec<SessionInfo>)| {
            all.into_iter().map(move |info| (worker.clone(), info)).collect::<Vec<_>>()
        };
        answers.into_iter().flat_map(named).collect()
    }

    /// Cancels requests of a native session, and returns how many; `None` when its worker does not have it any more.
    pub(super) async fn cancel_native(
        &self,
        session: &control::Session,
        request: Option<RequestId>,
    ) -> Option<u64> {
        let cancel = |answer| WorkerQuery::Native(NativeQuery::Cancel(session.id, request, answer));
        self.ask_worker_of(session, cancel).await.find_map(|answer| answer)
    }

    /// Ends a native session; returns whether its worker still has it.
    pub(super) async fn shut_down_native(
        &self,
        session: &control::Session,
        manner: Manner,
    ) -> bool {
        let shut_down =
            |answer| WorkerQuery::Native(NativeQuery::ShutDown(session.id, manner, answer));
        self.ask_worker_of(session, shut_down).await.any(|is_here| is_here)
    }

    /// The services of the first worker that answers: all workers have the same.
    pub(super) async fn services(&self) -> Vec<control::ServiceInfo> {
        let list = |answer| WorkerQuery::Native(NativeQuery::Services(answer));
        let (answers, _) = self.ask(list).await;
        answers.into_iter().next().map(|(_, services)| services).unwrap_or_default()
    }

    /// Hands a call to one of the serving workers, in turn; returns whether there is one.
    pub(super) fn call(&self, call: RemoteCall) -> bool {
        let workers = self.workers.borrow();
        let at = self.next.replace(self.next.get().wrapping_add(1));
        let Some((_, commands)) = workers.get(at.checked_rem(self.serving.get()).unwrap_or(0))
        else {
            return false;
        };
        commands.send(WorkerCommand::Answer(WorkerQuery::Native(NativeQuery::Call(call)))).is_ok()
    }

    /// Memory is nearly used up: has each of them end connections that it can do without, also one that sleeps.
    pub(super) fn shed(&self) {
        for (_, commands) in &*self.workers.borrow() {
            let _ = commands.send(WorkerCommand::Shed);
        }
    }

    /// What they hold in memory, and how many workers did not answer in time.
    pub(super) async fn memory_usage(&self) -> (Vec<(String, Vec<MemoryUsage>)>, u32) {
        self.ask(WorkerQuery::MeasureMemory).await
    }

    /// What they have counted.
    pub(super) async fn measure(&self) -> Vec<(String, WorkerMetrics)> {
        self.ask(WorkerQuery::Measure).await.0
    }
}

/// An HTTP session as it is shown.
fn shown(view: SessionView, worker: &str) -> control::Session {
    let requests = view.running.into_iter().map(|running| {
        let mut request = control::Request {
            id: running.number,
            handler: running.handler.to_owned(),
            method: running.method,
            target: running.target,
            state: sekisho_lifecycle::Request::Processing.to_string(),
            age_millis: millis(running.age),
            cancelled: if running.is_cancelled { "operator".to_owned() } else { String::new() },
            status: running.status.map_or(0, u32::from),
            request_id: format!("{:032x}", running.request_id),
            ..control::Request::default()
        };
        let subrequests = running.subrequests.into_iter().map(|view| control::Subrequest {
            path: view.path,
            handler: view.handler.to_owned(),
            age_millis: millis(view.age),
            status: view.status.map_or(0, u32::from),
            depth: u32::from(view.depth),
        });
        request.subrequests = subrequests.collect();
        if let Some((view, left)) = running.upstream {
            request.upstream = view.server.to_string();
            request.upstream_try = u32::try_from(view.attempt).unwrap_or(u32::MAX);
            request.upstream_age_millis = millis(view.age);
            let kind = view.deadline.map_or("", |deadline| deadline.kind.tag());
            kind.clone_into(&mut request.upstream_deadline);
            request.upstream_deadline_millis = millis(left);
        }
        request
    });
    control::Session {
        node: String::new(),
        id: view.id,
        protocol: view.protocol.map_or("", ProtocolKind::name).to_owned(),
        label: String::new(),
        application: String::new(),
        peer: match view.peer {
            Peer::Address(address) => address.to_string(),
            Peer::Unix => "unix".to_owned(),
            Peer::Within(session) => format!("session :{session}"),
        },
        admin: false,
        state: view.state.to_string(),
        asked: match view.shutdown {
            ShutdownRequest::Continue => "",
            ShutdownRequest::Drain => "graceful",
            ShutdownRequest::Force => "forceful",
        }
        .to_owned(),
        age_millis: millis(view.age),
        deadline: view.deadline.map_or("", |(deadline, _)| deadline.kind.tag()).to_owned(),
        deadline_millis: view.deadline.map_or(0, |(_, left)| millis(left)),
        received_bytes: view.moved.0,
        sent_bytes: view.moved.1,
        requests_total: view.requests,
        worker: worker.to_owned(),
        requests: requests.into_iter().collect(),
        // Each request may have its own.
        identity: String::new(),
    }
}

pub(super) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
