//! Threads beside the workers for what no request waits for: certificates that change by themselves, what servers share
//! through stores. Each is started where a configuration first has work for it, takes every later configuration up, and
//! ends with the process.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use sekisho_config::Level;
use sekisho_net::worker::Shared;
use sekisho_net::{Clock, Site};
use tokio::sync::watch;

use crate::{Problem, privilege};

/// What such a thread does.
pub(crate) trait Work {
    /// The name of the thread.
    const NAME: &'static str;

    /// Whether there is anything to do for this configuration.
    fn is_needed(site: &Site) -> bool;

    /// Does it, for this configuration and all that follow.
    fn run(context: Context) -> impl Future<Output = ()>;
}

/// A thread beside the workers.
#[derive(Debug)]
pub(crate) struct Background<W> {
    sites: watch::Sender<Arc<Site>>,
    shared: Arc<Shared>,
    started: Instant,
    is_running: bool,
    work: PhantomData<fn() -> W>,
}

impl<W: Work> Background<W> {
    /// Starts the thread, where the configuration has anything for it to do.
    pub(crate) fn start(
        site: &Arc<Site>,
        shared: &Arc<Shared>,
        started: Instant,
    ) -> Result<Self, Problem> {
        let ((sites, _), shared) = (watch::channel(Arc::clone(site)), Arc::clone(shared));
        let mut all = Self { sites, shared, started, is_running: false, work: PhantomData };
        all.run_if_needed()?;
        Ok(all)
    }

    /// Takes up another configuration.
    pub(crate) fn take_up(&mut self, site: &Arc<Site>) -> Result<(), Problem> {
        self.sites.send_replace(Arc::clone(site));
        self.run_if_needed()
    }

    fn run_if_needed(&mut self) -> Result<(), Problem> {
        if self.is_running || !W::is_needed(&self.sites.borrow()) {
            return Ok(());
        }
        let context = Context { sites: self.sites.subscribe(), started: self.started };
        spawn(W::NAME, &self.shared, move || W::run(context))?;
        self.is_running = true;
        Ok(())
    }
}

/// A thread with a runtime of its own and no privileges, which is watched and ends with the process.
pub(crate) fn spawn<F: Future<Output = ()>>(
    name: &'static str,
    shared: &Shared,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<(), Problem> {
    let watched = shared.watched_threads.add(name, &shared.wake_alarm);
    let body = move || {
        if privilege::give_up_rest_in_thread().is_err() {
            return;
        }
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = watched.heartbeat.attach(&mut builder).enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(async {
                tokio::select! {
                    () = work() => {}
                    () = watched.answer() => {}
                }
            });
        }
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| Problem::new(format_args!("cannot start a thread: {error}")))?;
    Ok(())
}

/// What the work knows of the server.
#[derive(Clone)]
pub(crate) struct Context {
    /// The configuration in effect.
    pub(crate) sites: watch::Receiver<Arc<Site>>,
    started: Instant,
}

impl Context {
    /// The time of the server's logs.
    pub(crate) fn clock(&self) -> Clock {
        Clock::new(self.started)
    }

    /// Writes a line into the error log.
    pub(crate) fn log(&self, level: Level, message: &str) {
        let clock = self.clock();
        let stamp = clock.stamp(clock.now());
        self.sites.borrow().log.write(level, stamp, None, format_args!("{message}"));
    }
}
