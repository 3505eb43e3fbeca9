//! The service `control` (E9): lists, shows, cancels and ends sessions of every protocol, reloads and stops
//! the server, and reports the result. Only for sessions with a control socket.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prost::Message;
use sekisho_config::Level;
use sekisho_endpoint::control::{
    ControlRequest, Finding, Listed, Measure, Metrics, Outcome, Session, What,
};
use sekisho_endpoint::{
    Caller, Code, ControlAccess, Endpoint, Identity, Manner, Request, RequestId, Response, Service,
    SessionInfo, Work, WriteError, control,
};
use sekisho_net::native::gate::NOT_AN_OPERATOR;
use sekisho_net::native::shown_peer;
use sekisho_net::query::SessionFilter;
use sekisho_net::session::ShutdownRequest;
use tokio::sync::oneshot;

use super::ServerRequest;
use super::host::Host;
use super::{memory, metrics, nodes, overview};
use crate::reload::ReloadResult;

/// The shortest pause between two records of metrics.
const MEASURE_EVERY_MIN: Duration = Duration::from_millis(50);

/// What native sessions speak.
const NATIVE: &str = "native";

pub(super) type Failure = (Code, String);

/// The service.
pub(super) struct Control {
    host: Rc<Host>,
}

impl Control {
    pub(super) fn new(host: Rc<Host>) -> Self {
        Self { host }
    }
}

impl Service for Control {
    fn schema(&self) -> Option<&str> {
        Some(control::SCHEMA)
    }

    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        Work::later(async move {
            let answer = self.answer(&request, &response).await;
            // If the client has gone, the answer is dropped.
            let _ = match answer {
                Ok(body) => response.body(&body),
                Err((code, text)) => response.error(code, &text),
            };
        })
    }
}

impl Control {
    async fn answer(&self, request: &Request, response: &Response) -> Result<Vec<u8>, Failure> {
        let caller = request.caller();
        if caller.control == ControlAccess::None {
            return Err((Code::PermissionError, NOT_AN_OPERATOR.to_owned()));
        }
        let ask = ControlRequest::decode(request.body())
            .map_err(|error| (Code::InvalidRequest, error.to_string()))?;
        // Also of what another node is asked.
        if caller.control == ControlAccess::Read && ask.what.as_ref().is_none_or(What::is_change) {
            let message =
                format_args!("command denied to {}, which may only read", caller.identity);
            self.host.log(Level::Warn, Some(caller.session), message);
            let text = format!("\"control\" is read-only to {}", caller.identity);
            return Err((Code::PermissionError, text));
        }
        let who = shown_operator(caller);
        if nodes::is_for_another(&self.host, &ask) {
            return nodes::pass_on(&self.host, ask, &who, response).await;
        }
        let Some(what) = ask.what else {
            return Err((Code::UnsupportedOperation, "unknown command".to_owned()));
        };
        match what {
            What::List(_) => Ok(self.list(response).await?.encode_to_vec()),
            What::Show(of) => Ok(self.show(&of.reference).await.encode_to_vec()),
            What::Cancel(command) => {
                let outcome = self.cancel(&command).await;
                self.note(&who, "cancel", &command.reference, &outcome);
                Ok(outcome.encode_to_vec())
            }
            What::ShutDown(command) => {
                let outcome = self.shut_down(&command).await;
                self.note(&who, "shutdown", &command.reference, &outcome);
                Ok(outcome.encode_to_vec())
            }
            What::Reload(_) => {
                self.host.log(Level::Notice, None, format_args!("reload requested by {who}"));
                self.command(ServerRequest::Reload).await
            }
            What::Reopen(_) => self.command(ServerRequest::Reopen).await,
            What::Stop(stop) => {
                let manner = if stop.forceful { Manner::Forceful } else { Manner::Graceful };
                self.host.log(Level::Notice, None, format_args!("stop requested by {who}"));
                self.ask_main(|answer| ServerRequest::Stop(manner, answer)).await?;
                let result = control::CommandResult { is_good: true, text: String::new() };
                Ok(result.encode_to_vec())
            }
            What::Drain(drain) => {
                let action = if drain.is_over { "end of drain" } else { "drain" };
                self.host.log(Level::Notice, None, format_args!("{action} requested by {who}"));
                self.host.shared.is_drained.store(!drain.is_over, Ordering::Relaxed);
                let result = control::CommandResult { is_good: true, text: String::new() };
                Ok(result.encode_to_vec())
            }
            What::Measure(measure) => {
                Ok(self.measure(measure, response).await?.unwrap_or_default().encode_to_vec())
            }
            What::MeasureMemory(_) => Ok(memory::gather(&self.host).await.encode_to_vec()),
            What::PurgeCache(wanted) => {
                let purged = self.host.purge(wanted).await;
                let entries = purged.entries;
                let message = format_args!("{entries} cache entries purged by {who}");
                self.host.log(Level::Notice, None, message);
                Ok(purged.encode_to_vec())
            }
            What::ListCertificates(_) => {
                let certificates = self.host.certificates();
                Ok(control::CertificateList { certificates }.encode_to_vec())
            }
            What::ListServices(_) => {
                let services = self.host.list_services().await;
                Ok(control::ServiceList { services }.encode_to_vec())
            }
            What::Overview(_) => Ok(overview::gather(&self.host).await.encode_to_vec()),
            What::ListNodes(_) => Ok(nodes::list(&self.host).await?.encode_to_vec()),
            What::DescribeNode(_) => Ok(nodes::describe(&self.host).await.encode_to_vec()),
            What::Upgrade(_) => {
                self.host.log(Level::Notice, None, format_args!("upgrade requested by {who}"));
                let started = self.ask_main(ServerRequest::Upgrade).await?;
                let is_good = started.is_ok();
                let text = started.err().unwrap_or_default();
                Ok(control::CommandResult { is_good, text }.encode_to_vec())
            }
        }
    }

    /// What an operator did is in the log.
    fn note(&self, who: &str, what: &str, reference: &str, outcome: &Outcome) {
        if outcome.finding() == Finding::Done {
            let message = format_args!("{what} of session {} by {who}", reference.escape_debug());
            self.host.log(Level::Notice, None, message);
        }
    }

    async fn ask_main<T>(
        &self,
        request_of: impl FnOnce(oneshot::Sender<T>) -> ServerRequest,
    ) -> Result<T, Failure> {
        let (answer, answered) = oneshot::channel();
        let ended = || (Code::ServiceUnavailable, "the server is about to end".to_owned());
        self.host.main.send(request_of(answer)).map_err(|_| ended())?;
        answered.await.map_err(|_| ended())
    }

    /// Has the main thread do something, and encodes its result.
    async fn command(
        &self,
        request_of: impl FnOnce(oneshot::Sender<ReloadResult>) -> ServerRequest,
    ) -> Result<Vec<u8>, Failure> {
        let ReloadResult { is_good, text } = self.ask_main(request_of).await?;
        Ok(fitting(control::CommandResult { is_good, text }).encode_to_vec())
    }

    /// Every session, through the channel.
    async fn list(&self, response: &Response) -> Result<Listed, Failure> {
        let channel = response.acquire_channel().map_err(no_channel)?;
        let (mut sessions, silent_workers) =
            self.host.worker_registry.sessions(SessionFilter::All).await;
        sessions.extend(self.host.native_sessions().await);
        sessions.sort_unstable_by_key(|session| session.id);
        let count = sessions.len() as u64;
        let sent = control::send_sessions(&channel, sessions).await;
        response.release_channel(channel);
        check_sent(sent)?;
        Ok(Listed { count, silent_workers })
    }

    async fn show(&self, reference: &str) -> Outcome {
        match self.find(reference).await {
            Ok(session) => done(session),
            Err(outcome) => outcome,
        }
    }

    async fn cancel(&self, command: &control::Cancel) -> Outcome {
        let session = match self.find(&command.reference).await {
            Ok(session) => session,
            Err(outcome) => return outcome,
        };
        let only = Some(command.request).filter(|number| *number > 0);
        let registry = &self.host.worker_registry;
        let native = only.map(|only| RequestId(only.saturating_sub(1)));
        let cancelled = match self.host.own_session(session.id) {
            Some((endpoint, info)) => {
                let ids = info.requests.iter().map(|request| request.id);
                let meant = ids.filter(|id| native.is_none_or(|only| only == *id));
                meant.filter(|id| endpoint.cancel(session.id, *id)).count() as u64
            }
            None if session.protocol == NATIVE => {
                registry.cancel_native(&session, native).await.unwrap_or(0)
            }
            None => u64::from(registry.cancel(&session, only).await == Some(true)),
        };
        let finding = if cancelled == 0 { Finding::NothingRuns } else { Finding::Done };
        Outcome { finding: finding.into(), cancelled, ..done(session) }
    }

    async fn shut_down(&self, command: &control::ShutDown) -> Outcome {
        let session = match self.find(&command.reference).await {
            Ok(session) => session,
            Err(outcome) => return outcome,
        };
        let manner = if command.forceful { Manner::Forceful } else { Manner::Graceful };
        let is_here = if let Some((endpoint, _)) = self.host.own_session(session.id) {
            endpoint.shut_down(session.id, manner)
        } else if session.protocol == NATIVE {
            self.host.worker_registry.shut_down_native(&session, manner).await
        } else {
            let shutdown =
                if command.forceful { ShutdownRequest::Force } else { ShutdownRequest::Drain };
            self.host.worker_registry.shut_down(&session, shutdown).await
        };
        if is_here { done(session) } else { none() }
    }

    /// The session that is meant by `:id` or by a label; a label that several have means none of them.
    async fn find(&self, reference: &str) -> Result<Session, Outcome> {
        if let Some(number) = reference.strip_prefix(':') {
            let Ok(id) = number.parse() else { return Err(none()) };
            let mut native = self.host.native_sessions().await;
            native.retain(|session| session.id == id);
            if let Some(session) = native.pop() {
                return Ok(session);
            }
            return self
                .host
                .worker_registry
                .sessions(SessionFilter::One(id))
                .await
                .0
                .pop()
                .ok_or_else(none);
        }
        let mut found = self.host.native_sessions().await;
        found.retain(|session| session.label == reference && !reference.is_empty());
        match found.pop() {
            None => Err(none()),
            Some(one) if found.is_empty() => Ok(one),
            Some(last) => {
                found.push(last);
                let finding = Finding::Ambiguous.into();
                Err(Outcome { finding, sessions: found, cancelled: 0 })
            }
        }
    }

    /// What happened so far; once, or again and again through the channel.
    async fn measure(
        &self,
        measure: Measure,
        response: &Response,
    ) -> Result<Option<Metrics>, Failure> {
        if measure.every_millis == 0 {
            return Ok(Some(metrics::gather(&self.host).await));
        }
        let every = Duration::from_millis(measure.every_millis.into()).max(MEASURE_EVERY_MIN);
        let channel = response.acquire_channel().map_err(no_channel)?;
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut sent = Ok(());
        while sent.is_ok() && !self.host.is_ending.get() {
            tokio::select! {
                _ = ticks.tick() => {
                    let record = metrics::gather(&self.host).await.encode_to_vec();
                    tokio::select! {
                        written = channel.write(&record) => sent = written,
                        () = response.cancelled() => break,
                    }
                }
                () = response.cancelled() => break,
                () = self.host.ending.notified() => break,
            }
        }
        response.release_channel(channel);
        check_sent(sent)?;
        Ok(None)
    }
}

impl Host {
    /// A session at the control socket.
    fn own_session(&self, id: u64) -> Option<(Rc<Endpoint>, SessionInfo)> {
        let endpoint = self.endpoint()?;
        let info = endpoint.show(id)?;
        Some((endpoint, info))
    }

    /// The services of the workers, and those of the control socket.
    async fn list_services(&self) -> Vec<control::ServiceInfo> {
        let own = self.endpoint().map(|endpoint| control::describe_services(endpoint.services()));
        let mut services = self.worker_registry.services().await;
        for own in own.unwrap_or_default() {
            if services.iter().all(|other| other.number != own.number) {
                services.push(own);
            }
        }
        services.sort_unstable_by_key(|service| service.number);
        services
    }

    /// Every native session: of the control socket, and of the workers.
    pub(super) async fn native_sessions(&self) -> Vec<Session> {
        let own = self.endpoint().map(|endpoint| endpoint.list()).unwrap_or_default();
        let own = own.into_iter().map(|info| Session::of(info, "control"));
        let workers = self.worker_registry.native_sessions().await;
        own.chain(workers.into_iter().map(|(worker, info)| Session::of(info, &worker))).collect()
    }
}

/// An operator as it stands in the log.
fn shown_operator(caller: &Caller) -> String {
    let peer = shown_peer(&caller.peer);
    match caller.identity {
        Identity::Unix(_) | Identity::Anonymous => peer,
        Identity::Node(_) => caller.identity.to_string(),
        _ => format!("{} at {peer}", caller.identity),
    }
}

/// A client that wants no more records gets its answer all the same (L28).
pub(super) fn check_sent(sent: Result<(), WriteError>) -> Result<(), Failure> {
    match sent {
        Ok(()) | Err(WriteError::Unwanted) => Ok(()),
        Err(error) => Err((Code::ResourceLimitReached, error.to_string())),
    }
}

fn done(session: Session) -> Outcome {
    Outcome { finding: Finding::Done.into(), sessions: vec![session], cancelled: 0 }
}

fn none() -> Outcome {
    Outcome { finding: Finding::NotFound.into(), ..Outcome::default() }
}

pub(super) fn no_channel(error: sekisho_endpoint::AcquireError) -> Failure {
    (Code::ResourceLimitReached, error.to_string())
}

/// A result that fits in a frame: a long text is cut off.
fn fitting(mut result: control::CommandResult) -> control::CommandResult {
    const TEXT_BYTES_MAX: usize = 3072;
    if result.text.len() > TEXT_BYTES_MAX {
        result.text.truncate(result.text.floor_char_boundary(TEXT_BYTES_MAX));
        result.text.push_str("\n… the error log has the rest\n");
    }
    result
}
