//! The worker threads: started, given commands, retired when a reload makes them too many.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sekisho_lifecycle::Moment;
use sekisho_net::listen::Listener;
use sekisho_net::worker::Shared;
use sekisho_net::{Heartbeat, Site, Sockets, Worker, WorkerCommand, panic_report};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::sandbox::Domain;
use crate::watchdog::Watched;
use crate::{Problem, privilege, service_factory};

/// How long the workers may take to close what they leave behind.
const ABANDON_PATIENCE: Duration = Duration::from_millis(200);

/// A thread that serves.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) id: u64,
    /// Which of the places it has: the sockets of that one are its own.
    slot: usize,
    commands: UnboundedSender<WorkerCommand>,
    thread: JoinHandle<()>,
    /// When a retired one is ended by force.
    force_at: Option<Moment>,
    pub(crate) begun: Moment,
    pub(crate) watched: Watched,
}

impl WorkerHandle {
    /// Its name in the log and in lists.
    pub(crate) fn name(&self) -> String {
        format!("worker-{}", self.id)
    }

    /// Sends it a command. A worker that has ended takes none; its end is reported elsewhere.
    pub(crate) fn tell(&self, command: WorkerCommand) {
        let _ = self.commands.send(command);
    }
}

/// A thread has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) id: u64,
    /// Why, where it was not told to.
    pub(crate) error: Option<String>,
}

/// What a thread was there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// To serve; since when.
    Serving(Moment),
    /// To end with its last session; since when it was stuck, if it was.
    Retired(Option<Moment>),
    /// Nothing: it was started for a change that did not come.
    None,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Workers {
    started: Instant,
    shared: Arc<Shared>,
    pub(crate) handles: Vec<WorkerHandle>,
    /// Those that a reload has made too many: they drain.
    pub(crate) retired: Vec<WorkerHandle>,
    /// The sandbox of workers that are started now.
    domain: Option<Arc<Domain>>,
    begun: u64,
    ended: (UnboundedSender<Ended>, UnboundedReceiver<Ended>),
}

/// What a change of the workers needs, made ready: from here on nothing can fail.
#[derive(Debug)]
pub(crate) struct Change {
    listeners: Vec<Vec<Listener>>,
    new: Vec<WorkerHandle>,
    /// Where the new ones are kept; if that is elsewhere than the others, they take the place of all of them.
    domain: Option<Arc<Domain>>,
    is_for_all: bool,
}

impl Change {
    /// How many threads are new.
    pub(crate) fn new_count(&self) -> usize {
        self.new.len()
    }
}

impl Workers {
    /// None yet, of a server that runs as this user and is drained or not.
    pub(crate) fn new(started: Instant, user: Option<&str>, is_drained: bool) -> Self {
        Self {
            started,
            shared: Arc::new(Shared {
                services: OnceLock::from(service_factory()),
                user: user.map(|name| OnceLock::from(name.to_owned())).unwrap_or_default(),
                is_drained: AtomicBool::new(is_drained),
                ..Shared::default()
            }),
            handles: Vec::new(),
            retired: Vec::new(),
            domain: None,
            begun: 0,
            ended: unbounded_channel(),
        }
    }

    /// What they share.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The workers that can be asked, by their names: the serving ones, and then the retired ones.
    pub(crate) fn channels(&self) -> Vec<(String, UnboundedSender<WorkerCommand>)> {
        let handles = self.handles.iter().chain(&self.retired);
        handles.map(|handle| (handle.name(), handle.commands.clone())).collect()
    }

    /// Kills every program that runs, without waiting for any.
    pub(crate) fn kill_programs(&self) {
        self.shared.process_slots.kill_all();
    }

    /// Makes ready for so many workers on these sockets, kept within this domain: starts those that are
    /// missing, and all of them where the domain is another one.
    pub(crate) fn prepare(
        &mut self,
        sockets: &[&Sockets],
        count: usize,
        domain: Option<Arc<Domain>>,
        now: Moment,
    ) -> Result<Change, Problem> {
        let listeners = (0..count).map(|index| listeners_of(sockets, index, count));
        let listeners = listeners.collect::<Result<_, _>>()?;
        let is_for_all = match (&self.domain, &domain) {
            (None, None) => false,
            (Some(old), Some(new)) => !Arc::ptr_eq(old, new),
            _ => true,
        };
        let there = if is_for_all { 0 } else { self.handles.len() };
        let mut new = Vec::new();
        for _ in there..count {
            // If one cannot be started, those started before it end because their command channels are
            // dropped.
            new.push(self.spawn(domain.as_deref(), now)?);
        }
        Ok(Change { listeners, new, domain, is_for_all })
    }

    /// Gives every worker the site; those that are too many retire, and have until `force_at` for it.
    pub(crate) fn serve(&mut self, site: &Arc<Site>, change: Change, force_at: Option<Moment>) {
        let kept = if change.is_for_all { 0 } else { change.listeners.len() };
        for at in (kept..self.handles.len()).rev() {
            self.retire(at, force_at);
        }
        self.handles.extend(change.new);
        self.domain = change.domain;
        for (slot, (handle, listeners)) in self.handles.iter_mut().zip(change.listeners).enumerate()
        {
            handle.slot = slot;
            handle.tell(WorkerCommand::Serve(Arc::clone(site), listeners));
        }
    }

    /// Lets one finish what it has.
    pub(crate) fn retire(&mut self, at: usize, force_at: Option<Moment>) {
        let mut handle = self.handles.remove(at);
        handle.tell(WorkerCommand::Retire);
        handle.force_at = force_at;
        self.retired.push(handle);
    }

    /// The slot of a worker that has ended, if there are to be so many. Not derived from the others'
    /// positions: more than one may have ended.
    pub(crate) fn vacant_slot(&self, count: usize) -> Option<usize> {
        (0..count).find(|slot| self.handles.iter().all(|handle| handle.slot != *slot))
    }

    /// Starts one in the place of one that is gone.
    pub(crate) fn replace(
        &mut self,
        slot: usize,
        count: usize,
        sockets: &[&Sockets],
        site: &Arc<Site>,
        now: Moment,
    ) -> Result<(), Problem> {
        let listeners = listeners_of(sockets, slot, count)?;
        let domain = self.domain.clone();
        let mut handle = self.spawn(domain.as_deref(), now)?;
        handle.slot = slot;
        handle.tell(WorkerCommand::Serve(Arc::clone(site), listeners));
        let at = self.handles.partition_point(|other| other.slot < slot);
        self.handles.insert(at, handle);
        self.shared.counters.workers_replaced.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Tells every worker the same.
    pub(crate) fn tell_all(&self, command: impl Fn() -> WorkerCommand) {
        for handle in self.handles.iter().chain(&self.retired) {
            handle.tell(command());
        }
    }

    /// The next end of a worker.
    pub(crate) async fn next_end(&mut self) -> Ended {
        match self.ended.1.recv().await {
            Some(ended) => ended,
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }

    /// Removes a worker that has ended, and returns what its duty was.
    pub(crate) fn release(&mut self, ended: &Ended) -> Duty {
        let place =
            |handles: &[WorkerHandle]| handles.iter().position(|handle| handle.id == ended.id);
        let (handle, duty) = if let Some(at) = place(&self.retired) {
            let handle = self.retired.remove(at);
            let stuck = handle.watched.stuck;
            (handle, Duty::Retired(stuck))
        } else if let Some(at) = place(&self.handles) {
            let handle = self.handles.remove(at);
            let begun = handle.begun;
            (handle, Duty::Serving(begun))
        } else {
            return Duty::None;
        };
        // It has said its last.
        let _ = handle.thread.join();
        duty
    }

    /// How many serve.
    pub(crate) fn count(&self) -> usize {
        self.handles.len()
    }

    /// When the next retired worker must be ended by force.
    pub(crate) fn next_force(&self) -> Option<Moment> {
        self.retired.iter().filter_map(|handle| handle.force_at).min()
    }

    /// Ends the retired workers whose time is over.
    pub(crate) fn force_retired(&mut self, now: Moment) {
        for handle in &mut self.retired {
            if handle.force_at.take_if(|at| at.is_due(now)).is_some() {
                handle.tell(WorkerCommand::Stop);
            }
        }
    }

    /// How many sessions were ended by force in the middle of a request so far.
    pub(crate) fn cut_short(&self) -> u64 {
        self.shared.counters.forced.load(Ordering::Relaxed)
    }

    /// How many requests have ended before their response was complete.
    pub(crate) fn incomplete(&self) -> u64 {
        self.shared.counters.incomplete.load(Ordering::Relaxed)
    }

    /// Has every worker close what it has left, and waits a moment for that: where the process closed them, an answer
    /// that only the end of the connection ends would look complete (C5).
    pub(crate) fn abandon(&self) {
        let (done, all_done) = std::sync::mpsc::channel();
        for handle in self.handles.iter().chain(&self.retired) {
            // One that has ended already has nothing left.
            let _ = handle.commands.send(WorkerCommand::Abandon(done.clone()));
        }
        drop(done);
        // A worker that is stuck is not waited for.
        let _ = all_done.recv_timeout(ABANDON_PATIENCE);
    }

    /// Waits for the end of every thread.
    pub(crate) fn join(self) {
        for handle in self.handles.into_iter().chain(self.retired) {
            let _ = handle.thread.join();
        }
    }

    fn spawn(&mut self, domain: Option<&Domain>, now: Moment) -> Result<WorkerHandle, Problem> {
        let id = self.begun;
        // Also if it cannot be started: its end is reported, and must not be taken for another worker's.
        self.begun += 1;
        let (commands, inbox) = unbounded_channel();
        let (started, shared) = (self.started, Arc::clone(&self.shared));
        let heartbeat = Arc::new(Heartbeat::new(Arc::clone(&shared.wake_alarm)));
        let own_heartbeat = Arc::clone(&heartbeat);
        let mut exit_notifier = ExitNotifier {
            id,
            outcome: None,
            to: self.ended.0.clone(),
            shared: Arc::clone(&shared),
        };
        shared.workers.fetch_add(1, Ordering::AcqRel);
        let body = move || {
            let ended = privilege::give_up_rest_in_thread()
                .map_err(io::Error::from)
                .and_then(|()| Worker::run(started, shared, own_heartbeat, inbox));
            exit_notifier.explain(ended);
        };
        let thread = std::thread::Builder::new().name(format!("worker-{id}"));
        let thread = match domain {
            Some(domain) => domain.spawn(thread, body),
            None => thread.spawn(body),
        };
        let thread =
            thread.map_err(|error| Problem::new(format_args!("cannot start a worker: {error}")))?;
        Ok(WorkerHandle {
            id,
            slot: usize::MAX,
            commands,
            thread,
            force_at: None,
            begun: now,
            watched: Watched::new(heartbeat),
        })
    }
}

/// The sockets of the worker with this index, one of so many.
fn listeners_of(
    sockets: &[&Sockets],
    index: usize,
    count: usize,
) -> Result<Vec<Listener>, Problem> {
    let mut all = Vec::new();
    for sockets in sockets {
        all.append(&mut sockets.for_worker(index, count).map_err(Problem::new)?);
    }
    Ok(all)
}

/// Tells of a thread's end, however it comes.
struct ExitNotifier {
    id: u64,
    /// How it ended; nothing where it panicked.
    outcome: Option<io::Result<()>>,
    to: UnboundedSender<Ended>,
    shared: Arc<Shared>,
}

impl ExitNotifier {
    /// It has come to its end in order.
    fn explain(&mut self, outcome: io::Result<()>) {
        self.outcome = Some(outcome);
    }
}

impl Drop for ExitNotifier {
    fn drop(&mut self) {
        self.shared.workers.fetch_sub(1, Ordering::AcqRel);
        let error = match self.outcome.take() {
            Some(outcome) => outcome.err().map(|error| error.to_string()),
            None => Some(format!("it panicked: {}", panic_report::take().unwrap_or_default())),
        };
        // There is no receiver when the process ends at the same time.
        let _ = self.to.send(Ended { id: self.id, error });
    }
}
