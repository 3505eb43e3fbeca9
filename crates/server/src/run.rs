//! A running server: its sockets, logs and workers, and the signals that steer it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::{Resource, Rlimit};
use sekisho_config::{Config, Level, ListenAddress, Workers};
use sekisho_log::Logs;
use sekisho_net::worker::Shared;
use sekisho_net::{Clock, Order, Site, Sockets, Worker};
use sekisho_route::Machine;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Problem;
use crate::pid_file::PidFile;
use crate::setup::{self, Plan};
use crate::user;

/// A thread that serves.
#[derive(Debug)]
struct Hand {
    orders: UnboundedSender<Order>,
    thread: JoinHandle<()>,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    plan: Plan,
    started: Instant,
    clock: Clock,
    logs: Arc<Logs>,
    sockets: Sockets,
    site: Arc<Site>,
    shared: Arc<Shared>,
    hands: Vec<Hand>,
    /// Workers that a reload has made too many: they drain.
    retired: Vec<Hand>,
    pid_file: Option<PidFile>,
    /// Told by each worker that ends.
    ended: (UnboundedSender<()>, UnboundedReceiver<()>),
}

impl Server {
    /// Opens everything and starts the workers.
    pub(crate) fn start(plan: Plan) -> Result<Self, Problem> {
        let config = plan.read_or_report()?;
        raise_descriptor_limit(config.main.worker_rlimit_nofile)?;
        let logs = Logs::new();
        let sockets = Sockets::default()
            .reopen(&config.http.listens, worker_count(&config))
            .map_err(Problem::new)?;
        let site = Site::new(Arc::clone(&config), &logs, machine()).map_err(Problem::new)?;
        let pid_file = config.main.pid.as_deref().map(PidFile::write).transpose()?;
        if let Some((name, group)) = &config.main.user {
            user::become_user(name, group.as_deref())?;
        }
        logs.start()
            .map_err(|error| Problem::new(format_args!("cannot start a thread: {error}")))?;
        let started = Clock::machine_now();
        let mut server = Self {
            plan,
            started,
            clock: Clock::new(started),
            logs,
            sockets,
            site: Arc::new(site),
            shared: Arc::default(),
            hands: Vec::new(),
            retired: Vec::new(),
            pid_file,
            ended: unbounded_channel(),
        };
        server.serve()?;
        Ok(server)
    }

    /// The addresses that are listened on, with the ports that were found for port 0.
    pub(crate) fn addresses(&self) -> Vec<ListenAddress> {
        self.sockets.addresses()
    }

    /// Serves until a signal ends it; the exit status says whether all ended well (O4).
    pub(crate) fn run(mut self) -> Result<ExitCode, Problem> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Problem::new(format_args!("cannot start: {error}")))?;
        let code = runtime.block_on(self.obey_signals());
        drop(self.pid_file.take());
        self.sockets.remove_files_but(&Sockets::default());
        self.logs.stop();
        code
    }

    async fn obey_signals(&mut self) -> Result<ExitCode, Problem> {
        let listen = |kind: SignalKind| -> Result<Signal, Problem> {
            signal(kind).map_err(|error| Problem::new(format_args!("cannot take signals: {error}")))
        };
        let mut quit = listen(SignalKind::quit())?;
        let mut terminate = listen(SignalKind::terminate())?;
        let mut interrupt = listen(SignalKind::interrupt())?;
        let mut hang_up = listen(SignalKind::hangup())?;
        let mut reopen = listen(SignalKind::user_defined1())?;
        let mut is_draining = false;
        let mut force_at: Option<tokio::time::Instant> = None;
        loop {
            let force = async {
                match force_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = quit.recv() => {
                    if is_draining {
                        self.tell_all(|| Order::Stop);
                        continue;
                    }
                    is_draining = true;
                    self.log(Level::Notice, "draining: no new connections, running requests finish");
                    let timeout = self.site.config().main.worker_shutdown_timeout;
                    force_at = timeout.map(|length| tokio::time::Instant::now() + length);
                    self.close_sockets();
                    self.tell_all(|| Order::Drain);
                }
                _ = terminate.recv() => self.stop(&mut is_draining),
                _ = interrupt.recv() => self.stop(&mut is_draining),
                () = force => {
                    force_at = None;
                    self.log(Level::Warn, "worker_shutdown_timeout: the rest is ended by force");
                    self.tell_all(|| Order::Stop);
                }
                _ = hang_up.recv(), if !is_draining => self.reload(),
                _ = reopen.recv() => self.reopen_logs(),
                _ = self.ended.1.recv() => {
                    self.retired.retain(|hand| !hand.thread.is_finished());
                    if is_draining && self.shared.workers.load(Ordering::Acquire) == 0 {
                        break;
                    }
                }
            }
        }
        for hand in self.hands.drain(..).chain(self.retired.drain(..)) {
            // A worker that panicked has said so on stderr.
            let _ = hand.thread.join();
        }
        let forced = self.shared.counters.forced.load(Ordering::Relaxed);
        Ok(if forced == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn stop(&mut self, is_draining: &mut bool) {
        *is_draining = true;
        self.log(Level::Notice, "stopping: every session ends now");
        self.close_sockets();
        self.tell_all(|| Order::Stop);
    }

    fn close_sockets(&mut self) {
        let sockets = std::mem::take(&mut self.sockets);
        sockets.remove_files_but(&Sockets::default());
    }

    /// Reads the configuration again; a bad one changes nothing and says so (O3).
    fn reload(&mut self) {
        let outcome = self.plan.read();
        for report in &outcome.reports {
            self.log(Level::Warn, &report.line());
        }
        let Some(config) = outcome.config.map(Arc::new) else {
            self.log(
                Level::Emerg,
                "reload failed: the configuration has errors, the old one stays",
            );
            return;
        };
        if let Err(problem) = self.take_over(config) {
            self.log(
                Level::Emerg,
                &format!("reload failed, the old configuration stays: {problem}"),
            );
            return;
        }
        self.log(Level::Notice, "reloaded");
    }

    fn take_over(&mut self, config: Arc<Config>) -> Result<(), Problem> {
        let sockets = self
            .sockets
            .reopen(&config.http.listens, worker_count(&config))
            .map_err(Problem::new)?;
        let site = Site::new(config, &self.logs, machine()).map_err(Problem::new)?;
        self.sockets.remove_files_but(&sockets);
        self.sockets = sockets;
        self.site = Arc::new(site);
        self.serve()?;
        let pid = self.site.config().main.pid.clone();
        if self.pid_file.as_ref().map(PidFile::path) != pid.as_deref() {
            self.pid_file = pid.as_deref().map(PidFile::write).transpose()?;
        }
        Ok(())
    }

    fn reopen_logs(&self) {
        for (path, error) in self.logs.reopen() {
            self.log(Level::Error, &format!("cannot reopen {}: {error}", path.display()));
        }
        self.log(Level::Notice, "logs reopened");
    }

    /// Gives every worker the current site; starts those that are missing, drains those too many.
    fn serve(&mut self) -> Result<(), Problem> {
        let count = worker_count(self.site.config());
        while self.hands.len() < count {
            let hand = self.spawn(self.hands.len())?;
            self.hands.push(hand);
        }
        for hand in self.hands.drain(count..) {
            // A worker that has ended takes no orders; it is told by its end.
            let _ = hand.orders.send(Order::Drain);
            self.retired.push(hand);
        }
        for (index, hand) in self.hands.iter().enumerate() {
            let listeners = self.sockets.for_worker(index).map_err(Problem::new)?;
            let _ = hand.orders.send(Order::Serve(Arc::clone(&self.site), listeners));
        }
        Ok(())
    }

    fn spawn(&self, index: usize) -> Result<Hand, Problem> {
        let (orders, inbox) = unbounded_channel();
        let (started, shared) = (self.started, Arc::clone(&self.shared));
        let ended = self.ended.0.clone();
        shared.workers.fetch_add(1, Ordering::AcqRel);
        let body = move || {
            let workers = Arc::clone(&shared);
            if let Err(error) = Worker::run(started, shared, inbox) {
                eprintln!("sekisho: a worker cannot run: {error}");
            }
            workers.workers.fetch_sub(1, Ordering::AcqRel);
            // Nobody listens when the process ends at the same time.
            let _ = ended.send(());
        };
        let thread = std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(body)
            .map_err(|error| Problem::new(format_args!("cannot start a worker: {error}")))?;
        Ok(Hand { orders, thread })
    }

    fn tell_all(&self, order: impl Fn() -> Order) {
        for hand in self.hands.iter().chain(&self.retired) {
            let _ = hand.orders.send(order());
        }
    }

    fn log(&self, level: Level, message: &str) {
        let stamp = self.clock.stamp(self.clock.now());
        self.site.log.write(level, stamp, None, format_args!("{message}"));
    }
}

fn worker_count(config: &Config) -> usize {
    match config.main.worker_processes {
        Workers::Count(count) => count.max(1),
        Workers::Auto => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// As many descriptors as we may have, or as many as the configuration says.
fn raise_descriptor_limit(wanted: Option<u64>) -> Result<(), Problem> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let next = match wanted {
        None => Rlimit { current: limit.maximum, maximum: limit.maximum },
        Some(wanted) => {
            let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
            Rlimit { current: Some(wanted), maximum }
        }
    };
    match rustix::process::setrlimit(Resource::Nofile, next) {
        Ok(()) => Ok(()),
        // Asked for by nobody: what there is will do.
        Err(_) if wanted.is_none() => Ok(()),
        Err(error) => Err(Problem::new(format_args!("worker_rlimit_nofile: {error}"))),
    }
}

fn machine() -> Machine {
    Machine { hostname: setup::hostname(), pid: std::process::id() }
}
