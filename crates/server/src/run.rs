//! A running server: its sockets, logs and workers, and what controls it: signals, the control plane, the socket for
//! upgrades, the end of workers, time. `reload.rs` has the change of configuration, `upgrade.rs` that of the binary.

use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sekisho_config::{Config, Level, Listen, ListenAddress, Workers as WorkerCount};
use sekisho_lifecycle::drain::{Drain, Fact, Order as DrainOrder, Outcome};
use sekisho_lifecycle::{Manner, Moment};
use sekisho_log::Logs;
use sekisho_net::listen::Inherited;
use sekisho_net::native::NativeRules;
use sekisho_net::{Clock, Groups, Site, Sockets, WorkerCommand, Zones, quic_process};
use sekisho_parent::pid_file::PidFile;
use sekisho_parent::{Delivery, Order as ParentOrder, Say};
use sekisho_route::Machine;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::certificates::Certificates;
use crate::cluster::{Cluster, Membership};
use crate::control_plane::{self, ControlPlane, Identities, Rules};
use crate::handover::{self, Call, DRAINED, Handover, HandoverRequest};
use crate::inherit::Inherit;
use crate::opening::{self, Opened};
use crate::parent_link::{self, Orders};
use crate::reload::ReloadResult;
use crate::sandbox::{Choice, Domain, Fit};
use crate::service_manager::{self, State};
use crate::setup::{self, Plan};
use crate::stores::Stores;
use crate::upgrade::{Program, Upgrade};
use crate::watchdog::Watch;
use crate::workers::{Duty, Ended, Workers};
use crate::{Problem, daemon, local_socket, sandbox, user};

/// The signals that control a server. Their handlers are installed before the process number is published: a
/// signal that comes while the server starts waits, and does not kill it.
#[derive(Debug)]
struct Signals {
    quit: Signal,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    reopen: Signal,
    upgrade: Signal,
}

impl Signals {
    fn take() -> Result<Self, Problem> {
        let take = |kind: SignalKind| {
            signal(kind)
                .map_err(|error| Problem::new(format_args!("cannot handle signals: {error}")))
        };
        // A write beyond a limit on the size of files is an error of that write, not the end of the process (O5).
        drop(take(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            quit: take(SignalKind::quit())?,
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
            hang_up: take(SignalKind::hangup())?,
            reopen: take(SignalKind::user_defined1())?,
            upgrade: take(SignalKind::user_defined2())?,
        })
    }
}

/// What controls a server.
#[derive(Debug)]
enum ServerEvent {
    End(Manner),
    Reload,
    Reopen,
    Upgrade,
    ChildChanged,
    Called(Call),
    FromControlPlane(control_plane::ServerRequest),
    FromParent(ParentOrder, Box<Delivery>),
    WorkerEnded(Ended),
    /// A file could not be had: a place may have changed.
    SandboxRecheck,
    /// A thread that is watched woke up after all of them had slept.
    ThreadWoke,
    TimePassed,
}

/// Sockets of the parent, and addresses that it could not bind.
type GivenSockets = (Vec<Inherited>, Vec<(ListenAddress, std::io::Error)>);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) plan: Plan,
    pub(crate) program: Program,
    runtime: Rc<Runtime>,
    signals: Signals,
    pub(crate) handover: Option<Handover>,
    /// Where native sessions are served and the server is controlled.
    pub(crate) control_plane: ControlPlane,
    /// The sockets of the `endpoint` block.
    pub(crate) endpoint_sockets: Sockets,
    pub(crate) clock: Clock,
    pub(crate) logs: Arc<Logs>,
    pub(crate) sockets: Sockets,
    pub(crate) site: Arc<Site>,
    /// Where rates and places are counted: they outlive a reload.
    pub(crate) zones: Zones,
    pub(crate) groups: Groups,
    /// Renews certificates that are ordered automatically.
    pub(crate) certificates: Certificates,
    /// Shares limits and secrets with other servers.
    pub(crate) stores: Stores,
    /// Shows and controls other servers through this one, and this one through them.
    pub(crate) cluster: Cluster,
    pub(crate) workers: Workers,
    pub(crate) pid_file: Option<PidFile>,
    pub(crate) drain: Drain,
    /// How many sessions had been cut short when `drain` was last informed.
    cut_short: u64,
    /// How many responses had been incomplete when the stop began.
    incomplete_before: u64,
    /// The addresses that the last reload has closed, and when.
    pub(crate) closed: Option<(Moment, Vec<ListenAddress>)>,
    /// A new process that does not serve yet.
    pub(crate) upgrade: Option<Upgrade>,
    /// The process that we replace, and its sockets, until it knows that we serve.
    predecessor: Option<(u32, Sockets)>,
    /// The watchdog of the threads.
    pub(crate) watch: Watch,
    /// When the places of the sandbox are looked at again, and when they were.
    pub(crate) next_look: Option<Moment>,
    pub(crate) last_look: Option<Moment>,
    /// Where the workers are kept.
    pub(crate) domain: Option<Arc<Domain>>,
    /// When leftovers of uploads are looked for again.
    pub(crate) next_sweep: Option<Moment>,
    /// What native sessions may do.
    pub(crate) rules: (Rules, Option<Arc<NativeRules>>),
    /// What the parent orders, where there is one.
    pub(crate) orders: Orders,
    /// Sockets that the parent has bound for a reload, and addresses that it could not bind.
    pub(crate) given_sockets: Option<GivenSockets>,
    /// A new process serves on our sockets: they, their files and the service manager are its own.
    pub(crate) is_replaced: bool,
}

impl Server {
    /// Opens everything and starts the workers.
    pub(crate) fn start(plan: Plan) -> Result<Self, Problem> {
        let of_parent = parent_link::start()?;
        sekisho_handler::memory::set_up();
        let program = Program::this();
        let heap_before = heap_bytes();
        let config = plan.read_or_report()?;
        opening::raise_descriptor_limit(config.main.worker_rlimit_nofile)?;
        opening::check_worker_count(&config)?;
        let runtime = Rc::new(runtime()?);
        let _within = runtime.enter();
        let signals = Signals::take()?;
        let inherit = Inherit::take(of_parent, &config)?;
        let Inherit { predecessor, is_drained, inherited, shared, quic_links, .. } = inherit;
        let (complaints, mut notes) = (inherit.complaints, inherit.notes);
        let open = |listens: &[Listen], workers| {
            runtime
                .block_on(opening::open_sockets(&inherited, listens, workers))
                .map_err(Problem::new)
        };
        let listens: Vec<Listen> = config.listens().cloned().collect();
        let sockets = open(&listens, worker_count(&config))?;
        let endpoint_sockets =
            open(&control_plane::listens(&config.main.endpoint), worker_count(&config))
                .inspect_err(|_| sockets.remove_files_but(&inherited))?;
        let logs = Logs::new();
        let (zones, groups) = (Zones::default(), Groups::default());
        let opened = opening::open_rest(&config, &logs, (&zones, &groups), shared);
        let opened = opened.inspect_err(|_| {
            sockets.remove_files_but(&inherited);
            endpoint_sockets.remove_files_but(&inherited);
        })?;
        let Opened { mut site, pid_file, handover, control_socket, rules, notes: more } = opened;
        notes.extend(more);
        site.memory_bytes = heap_bytes().saturating_sub(heap_before);
        let started = Clock::machine_now();
        let workers = Workers::new(started, user::own_name(&config), is_drained);
        quic_process::take_over(&workers.shared(), quic_links).map_err(Problem::new)?;
        let (control_socket, control_socket_error) = local_socket::control_socket(control_socket);
        let (control_plane, cluster) =
            ControlPlane::start(control_socket, started, workers.shared(), Arc::clone(&logs))?;
        site.native = rules.for_workers(None);
        site.access = rules.access.clone();
        let rules = (rules, site.native.clone());
        let site = Arc::new(site);
        let certificates = Certificates::start(&site, &workers.shared(), started)?;
        let stores = Stores::start(&site, &workers.shared(), started)?;
        let mut server = Self {
            plan,
            program,
            runtime: Rc::clone(&runtime),
            signals,
            handover: None,
            control_plane,
            endpoint_sockets,
            clock: Clock::new(started),
            logs,
            sockets,
            site,
            zones,
            groups,
            certificates,
            stores,
            cluster,
            workers,
            pid_file,
            drain: Drain::new(config.main.worker_shutdown_timeout),
            cut_short: 0,
            incomplete_before: 0,
            closed: None,
            upgrade: None,
            predecessor: predecessor.map(|predecessor| (predecessor, inherited)),
            watch: Watch::default(),
            next_look: None,
            last_look: None,
            domain: None,
            next_sweep: None,
            rules,
            orders: Orders::of_parent()?,
            given_sockets: None,
            is_replaced: false,
        };
        server.tell_opened(&complaints, &notes, control_socket_error.as_deref());
        server.handover = handover.and_then(|opened| {
            let tell = |error| server.log(Level::Warn, &format!("no socket for upgrades: {error}"));
            opened.map_err(tell).ok()
        });
        match server.serve(worker_count(&config)) {
            Ok(()) => server.start_control_plane(),
            Err(problem) => {
                let inherited = server.predecessor.take().map(|(_, inherited)| inherited);
                let inherited = inherited.unwrap_or_default();
                server.sockets.remove_files_but(&inherited);
                server.endpoint_sockets.remove_files_but(&inherited);
                return Err(problem);
            }
        }
        server.sweep_leftovers();
        server.tell_start();
        Ok(server)
    }

    /// The addresses that are listened on, with the ports that were found for port 0.
    pub(crate) fn addresses(&self) -> Vec<ListenAddress> {
        self.sockets.addresses()
    }

    /// Serves until a signal ends it; the exit status says whether all ended well (O4).
    pub(crate) fn run(mut self) -> ExitCode {
        let runtime = Rc::clone(&self.runtime);
        match parent_link::link() {
            Some(link) => link.say(&Say::Ready(&self.status())),
            None => service_manager::tell(State::Ready, self.status()),
        }
        let config = self.site.config();
        if config.main.processes.daemon && !daemon::logs_to_stderr(config) {
            daemon::close_stderr();
        }
        if let Some((predecessor, sockets)) = self.predecessor.take()
            && let Err(problem) = self.relieve(predecessor, &sockets)
        {
            self.log(Level::Emerg, &format!("refused by process {predecessor}: {problem}"));
            self.sockets.remove_files_but(&sockets);
            self.endpoint_sockets.remove_files_but(&sockets);
            drop(self.pid_file.take());
            self.logs.stop();
            return ExitCode::FAILURE;
        }
        // Not before: of two processes the one that serves answers for this node.
        self.join_cluster();
        let outcome = runtime.block_on(self.serve_events());
        let incomplete = self.workers.incomplete() - self.incomplete_before;
        let message = match outcome {
            Outcome::Drained if incomplete == 0 => "stopped: every session ended normally",
            // Its client has gone, or a deadline has ended it.
            Outcome::Drained => &*format!("stopped: {incomplete} responses are incomplete"),
            Outcome::Forced => "stopped: sessions were cut short",
            Outcome::Abandoned => "stopped: some sessions did not end in time",
        };
        self.log(Level::Notice, message);
        drop(self.pid_file.take());
        self.control_plane.end();
        if outcome == Outcome::Abandoned {
            self.workers.kill_programs();
            self.workers.abandon();
        } else {
            self.workers.join();
        }
        self.logs.stop();
        ExitCode::from(outcome.exit_status())
    }

    /// Tells the process that we replace to end; an error if it refuses.
    fn relieve(&self, predecessor: u32, sockets: &Sockets) -> Result<(), Problem> {
        let (level, message) = match handover::ask(predecessor, HandoverRequest::Ready, "") {
            Ok(Some((true, _))) => (Level::Notice, format!("took over from process {predecessor}")),
            Ok(Some((false, text))) => return Err(Problem(text)),
            Ok(None) => (Level::Error, format!("process {predecessor} is gone")),
            Err(error) => {
                // It may be there, and its files be in use.
                let message = format!("process {predecessor} could not be notified: {error}");
                self.log(Level::Error, &message);
                return Ok(());
            }
        };
        self.log(level, &message);
        // Socket files that it listened on and we do not are no longer used.
        sockets.remove_files_but_all(&[&self.sockets, &self.endpoint_sockets]);
        Ok(())
    }

    async fn serve_events(&mut self) -> Outcome {
        loop {
            let order = match self.next_event().await {
                ServerEvent::End(manner) => self.end(manner),
                ServerEvent::Reload => {
                    match parent_link::link() {
                        Some(link) => self.orders.ask_for_reload(link, None),
                        None => drop(self.reload().await),
                    }
                    DrainOrder::Nothing
                }
                ServerEvent::Reopen => {
                    self.begin_reopen(None);
                    DrainOrder::Nothing
                }
                ServerEvent::Upgrade => {
                    // Why not is in the log.
                    self.begin_upgrade(None);
                    DrainOrder::Nothing
                }
                ServerEvent::ChildChanged => {
                    self.look_after_upgrade();
                    DrainOrder::Nothing
                }
                ServerEvent::Called(call) => self.answer(call),
                ServerEvent::FromControlPlane(event) => self.serve_control_plane(event).await,
                ServerEvent::FromParent(order, delivery) => self.obey(order, *delivery).await,
                ServerEvent::WorkerEnded(ended) => self.worker_ended(&ended),
                ServerEvent::SandboxRecheck => {
                    self.check_sandbox_paths();
                    DrainOrder::Nothing
                }
                ServerEvent::ThreadWoke => {
                    self.watch.thread_woke(self.clock.now());
                    DrainOrder::Nothing
                }
                ServerEvent::TimePassed => self.time_passed(),
            };
            if let Some(outcome) = self.carry_out(order) {
                return outcome;
            }
        }
    }

    async fn next_event(&mut self) -> ServerEvent {
        let next = [
            self.drain.next_deadline(),
            self.workers.next_force(),
            self.upgrade.as_ref().map(Upgrade::ready_by),
            self.next_sweep,
            self.watch.next().filter(|_| self.drain.manner().is_none()),
            self.next_look,
        ];
        let next = next.into_iter().flatten().min().map(|at| self.clock.instant(at));
        let time = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let upgrade = &self.upgrade;
        let successor_ended = async {
            match upgrade {
                Some(upgrade) => upgrade.ended().await,
                None => std::future::pending().await,
            }
        };
        let shared = self.workers.shared();
        let handover = &mut self.handover;
        let call = async {
            match handover {
                Some(handover) => handover.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.signals.quit.recv() => ServerEvent::End(Manner::Graceful),
            _ = self.signals.terminate.recv() => ServerEvent::End(Manner::Forceful),
            _ = self.signals.interrupt.recv() => ServerEvent::End(Manner::Forceful),
            _ = self.signals.hang_up.recv() => ServerEvent::Reload,
            _ = self.signals.reopen.recv() => ServerEvent::Reopen,
            _ = self.signals.upgrade.recv() => ServerEvent::Upgrade,
            () = successor_ended => ServerEvent::ChildChanged,
            call = call => ServerEvent::Called(call),
            (order, delivery) = self.orders.next() => {
                ServerEvent::FromParent(order, Box::new(delivery))
            }
            event = self.control_plane.next() => ServerEvent::FromControlPlane(event),
            ended = self.workers.next_end() => ServerEvent::WorkerEnded(ended),
            () = shared.sandbox_recheck.notified() => ServerEvent::SandboxRecheck,
            () = shared.wake_alarm.set_off() => ServerEvent::ThreadWoke,
            () = time => ServerEvent::TimePassed,
        }
    }

    pub(crate) fn end(&mut self, manner: Manner) -> DrainOrder {
        if self.upgrade.is_some() {
            self.abandon_upgrade("the server is shutting down");
        }
        self.tell_drain(Fact::Asked(manner))
    }

    fn worker_ended(&mut self, ended: &Ended) -> DrainOrder {
        let duty = self.workers.release(ended);
        if let Some(error) = &ended.error {
            self.log(Level::Emerg, &format!("a worker cannot go on: {error}"));
        }
        match duty {
            Duty::None => DrainOrder::Nothing,
            Duty::Serving(begun) if self.drain.manner().is_none() => self.fill_later(begun),
            Duty::Retired(Some(since)) => {
                self.tell_that_it_went_on(&format!("worker-{}", ended.id), since);
                self.tell_drain(Fact::Ended)
            }
            Duty::Serving(..) | Duty::Retired(None) => self.tell_drain(Fact::Ended),
        }
    }

    fn time_passed(&mut self) -> DrainOrder {
        self.workers.force_retired(self.clock.now());
        self.look_after_upgrade();
        self.watch_threads();
        if self.next_look.take_if(|at| at.is_due(self.clock.now())).is_some() {
            self.check_sandbox_paths();
        }
        if self.next_sweep.is_some_and(|at| at.is_due(self.clock.now())) {
            self.sweep_leftovers();
        }
        self.tell_drain(Fact::TimePassed)
    }

    /// Tells the table what happened, and first whether a session was cut short meanwhile.
    pub(crate) fn tell_drain(&mut self, fact: Fact) -> DrainOrder {
        let now = self.clock.now();
        let cut_short = self.workers.cut_short();
        if std::mem::replace(&mut self.cut_short, cut_short) < cut_short {
            self.drain.after(Fact::CutShort, now);
        }
        self.drain.after(fact, now)
    }

    /// Carries out the table's order; returns the outcome if the process is to end.
    fn carry_out(&mut self, order: DrainOrder) -> Option<Outcome> {
        match order {
            DrainOrder::Nothing => {}
            DrainOrder::ShutDownAll(manner) => {
                let message = match manner {
                    Manner::Graceful => "draining: no new connections, running requests finish",
                    Manner::Forceful => "stopping: every session ends now",
                };
                self.log(Level::Notice, message);
                if manner == Manner::Graceful {
                    self.incomplete_before = self.workers.incomplete();
                }
                if !self.is_replaced {
                    if parent_link::link().is_none() {
                        service_manager::tell(State::Stopping, message);
                    }
                    self.pid_file.iter().for_each(PidFile::release);
                }
                match manner {
                    // The new process accepts the waiting connections.
                    Manner::Graceful if self.is_replaced => {
                        self.workers.tell_all(|| WorkerCommand::Retire);
                        quic_process::release(&self.workers.shared());
                    }
                    Manner::Graceful => {
                        self.sockets.refuse_newcomers_but(&Sockets::default());
                        self.workers.tell_all(|| WorkerCommand::Drain);
                    }
                    Manner::Forceful => {
                        if !self.is_replaced {
                            self.sockets.remove_files_but(&Sockets::default());
                        }
                        self.workers.tell_all(|| WorkerCommand::Stop);
                    }
                }
                if !self.is_replaced {
                    self.endpoint_sockets.remove_files_but(&Sockets::default());
                }
                if let Some(link) = parent_link::link().filter(|_| !self.is_replaced) {
                    // It closes its own descriptors of the sockets, and removes the files.
                    link.say(&Say::Stopping);
                }
                self.tell_files_left(&self.sockets, &Sockets::default());
                self.tell_files_left(&self.endpoint_sockets, &Sockets::default());
                self.cluster.leave();
                self.control_plane.tell(control_plane::ControlCommand::ShutDown);
                // The workers have descriptors of their own, for as long as they need them.
                self.sockets = Sockets::default();
                self.endpoint_sockets = Sockets::default();
            }
            DrainOrder::Exit(outcome) => {
                if !self.is_replaced {
                    self.sockets.remove_files_but(&Sockets::default());
                }
                return Some(outcome);
            }
        }
        None
    }

    fn answer(&mut self, call: Call) -> DrainOrder {
        match call.question {
            _ if self.successor() != Some(call.pid) => {
                call.answer(false, "no upgrade by this process is in progress");
            }
            HandoverRequest::Failed => {
                let why = format!("the new process says: {}", call.said);
                call.answer(true, "");
                self.abandon_upgrade(&why);
            }
            HandoverRequest::Sockets => self.give_sockets(call),
            HandoverRequest::TicketSecrets => {
                call.answer(true, &sekisho_net::tls::hand_over_ticket_secrets());
            }
            HandoverRequest::QuicLinks => self.give_quic_links(call),
            HandoverRequest::Drained => {
                let is_drained = self.workers.shared().is_drained.load(Ordering::Relaxed);
                call.answer(true, if is_drained { DRAINED } else { "" });
            }
            HandoverRequest::Ready => {
                call.answer(true, "");
                return self.make_way();
            }
        }
        DrainOrder::Nothing
    }

    /// Does what an operator asks for through the control plane.
    async fn serve_control_plane(&mut self, event: control_plane::ServerRequest) -> DrainOrder {
        match event {
            control_plane::ServerRequest::Reload(answer)
                if let Some(link) = parent_link::link()
                    && self.drain.manner().is_none() =>
            {
                self.orders.ask_for_reload(link, Some(answer));
                DrainOrder::Nothing
            }
            control_plane::ServerRequest::Reload(answer) => {
                let result = self.reload().await;
                // The result is in the log, too, so a caller that has gone loses nothing.
                let _ = answer.send(result);
                DrainOrder::Nothing
            }
            control_plane::ServerRequest::Reopen(answer) => {
                self.begin_reopen(Some(answer));
                DrainOrder::Nothing
            }
            control_plane::ServerRequest::Upgrade(answer) => {
                self.begin_upgrade(Some(answer));
                DrainOrder::Nothing
            }
            control_plane::ServerRequest::Stop(manner, answer) => {
                let order = self.end(manner);
                let _ = answer.send(());
                order
            }
            control_plane::ServerRequest::Ended => {
                self.log(
                    Level::Emerg,
                    "the control plane has ended: `sekisho ctl` cannot connect any more",
                );
                DrainOrder::Nothing
            }
        }
    }

    /// Takes up the cluster of the configuration in use.
    pub(crate) fn join_cluster(&mut self) {
        let membership = self.rules.0.membership.as_ref();
        if let Err(problem) = self.cluster.take_up(membership, &self.site) {
            self.log(Level::Error, &problem.to_string());
        }
    }

    /// Gives the control plane its rules.
    pub(crate) fn start_control_plane(&self) {
        self.tell_control_plane_of_workers();
        let (rules, site) = (Box::new(self.rules.0.clone()), Arc::clone(&self.site));
        self.control_plane.tell(control_plane::ControlCommand::Serve(rules, site));
    }

    /// Tells the control plane which workers it can ask.
    pub(crate) fn tell_control_plane_of_workers(&self) {
        let (workers, serving) = (self.workers.channels(), self.workers.count());
        self.control_plane.tell(control_plane::ControlCommand::Workers(workers, serving));
    }

    /// Gives every worker the current site and sockets; starts those that are missing, retires those too
    /// many.
    pub(crate) fn serve(&mut self, count: usize) -> Result<(), Problem> {
        let choice = sandbox::choose(self.site.config(), self.domain.as_ref(), Fit::Exactly)?;
        self.serve_within(choice, count)
    }

    /// The same within a domain that has been chosen.
    pub(crate) fn serve_within(&mut self, choice: Choice, count: usize) -> Result<(), Problem> {
        let domain = choice.domain.clone();
        let now = self.clock.now();
        let change =
            self.workers.prepare(&[&self.sockets, &self.endpoint_sockets], count, domain, now)?;
        self.take_choice(choice);
        self.commit(change);
        Ok(())
    }

    /// The same when all is ready for it.
    pub(crate) fn commit(&mut self, change: crate::workers::Change) {
        let now = self.clock.now();
        for _ in 0..change.new_count() {
            self.drain.after(Fact::Began, now);
        }
        let main = &self.site.config().main;
        self.drain.set_grace(main.worker_shutdown_timeout);
        let force_at = main.former_sessions_timeout.map(|timeout| now + timeout);
        self.workers.serve(&self.site, change, force_at);
    }

    /// One line about the server's state.
    pub(crate) fn status(&self) -> String {
        let (addresses, workers) = (self.sockets.addresses().len(), self.workers.count());
        format!("serving on {addresses} addresses with {workers} workers")
    }

    /// Opens the logs again, or has the parent do it first; an operator may wait for the result.
    fn begin_reopen(&mut self, answer: Option<oneshot::Sender<ReloadResult>>) {
        self.orders.reopenings.extend(answer);
        match parent_link::link() {
            Some(link) => link.say(&Say::Reopen),
            None => self.reopen_logs(),
        }
    }

    pub(crate) fn reopen_logs(&mut self) {
        let failed = self.logs.reopen();
        let mut said = String::new();
        for (path, error) in &failed {
            let (path, who) = (path.display(), self.who());
            let text = format!(
                "cannot reopen {path}: {error}{who}: logging continues to the file that was open"
            );
            self.log(Level::Error, &text);
            said.push_str(&text);
            said.push('\n');
        }
        let is_good = failed.is_empty();
        let outcome = if is_good { "logs reopened" } else { "some logs could not be reopened" };
        self.log(Level::Notice, outcome);
        for answer in self.orders.reopenings.drain(..) {
            // The result is in the log, too.
            let _ = answer.send(ReloadResult { is_good, text: said.clone() });
        }
    }

    /// The user that the server has changed to, for a log line about a denial.
    pub(crate) fn who(&self) -> String {
        let shared = self.workers.shared();
        shared.user.get().map_or(String::new(), |name| format!(" for user \"{name}\""))
    }

    pub(crate) fn log(&self, level: Level, message: &str) {
        let stamp = self.clock.stamp(self.clock.now());
        self.site.log.write(level, stamp, None, format_args!("{message}"));
    }
}

/// The runtime of the main thread.
fn runtime() -> Result<Runtime, Problem> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let built = builder.enable_all().build();
    built.map_err(|error| Problem::new(format_args!("cannot start: {error}")))
}

/// What the process has from the allocator: the difference shows how much a configuration holds.
pub(crate) fn heap_bytes() -> u64 {
    sekisho_sys::heap().map_or(0, |(used, _)| used)
}

/// What native sessions may do.
pub(crate) fn rules(config: &Config, before: Option<&Rules>) -> Result<Rules, Problem> {
    let endpoint = config.main.endpoint.clone();
    let identities = Identities::new(&endpoint)?;
    let rules = Rules::new(endpoint, identities, config.main.worker_shutdown_timeout, before);
    Ok(Rules { membership: Membership::new(config)?, ..rules })
}

pub(crate) fn worker_count(config: &Config) -> usize {
    match config.main.worker_processes {
        WorkerCount::Count(count) => count.max(1),
        WorkerCount::Auto => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

pub(crate) fn machine() -> Machine {
    Machine { hostname: setup::hostname(), pid: std::process::id() }
}
