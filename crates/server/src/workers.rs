//! The threads that serve: started, told what to do, retired when a reload makes them too many.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use sekisho_lifecycle::Moment;
use sekisho_net::listen::Listener;
use sekisho_net::worker::Shared;
use sekisho_net::{Order, Site, Sockets, Worker};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Problem;

/// A thread that serves.
#[derive(Debug)]
struct Hand {
    id: u64,
    orders: UnboundedSender<Order>,
    thread: JoinHandle<()>,
    /// When a retired one is ended by force.
    force_at: Option<Moment>,
}

/// A thread has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    id: u64,
    /// Why, where it was not told to.
    pub(crate) error: Option<String>,
}

/// What a thread was there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// To serve.
    Serving,
    /// To end with its last session.
    Retired,
    /// Nothing: it was started for a change that did not come.
    None,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Workers {
    started: Instant,
    shared: Arc<Shared>,
    hands: Vec<Hand>,
    /// Those that a reload has made too many: they drain.
    retired: Vec<Hand>,
    begun: u64,
    ended: (UnboundedSender<Ended>, UnboundedReceiver<Ended>),
}

/// What a change of the workers needs, made ready: from here on nothing can fail.
#[derive(Debug)]
pub(crate) struct Change {
    listeners: Vec<Vec<Listener>>,
    new: Vec<Hand>,
}

impl Change {
    /// How many threads are new.
    pub(crate) fn new_count(&self) -> usize {
        self.new.len()
    }
}

impl Workers {
    /// None yet.
    pub(crate) fn new(started: Instant) -> Self {
        Self {
            started,
            shared: Arc::default(),
            hands: Vec::new(),
            retired: Vec::new(),
            begun: 0,
            ended: unbounded_channel(),
        }
    }

    /// What they share.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Those who can be asked, retired ones included, by their names.
    pub(crate) fn roster(&self) -> Vec<(String, UnboundedSender<Order>)> {
        let hands = self.hands.iter().chain(&self.retired);
        hands.map(|hand| (format!("worker-{}", hand.id), hand.orders.clone())).collect()
    }

    /// Ends every program that runs: nobody is waited for any more.
    pub(crate) fn kill_programs(&self) {
        self.shared.seats.kill_all();
    }

    /// Makes ready for so many workers on these sockets: starts those that are missing.
    pub(crate) fn prepare(&mut self, sockets: &Sockets, count: usize) -> Result<Change, Problem> {
        let listeners = (0..count).map(|index| sockets.for_worker(index, count));
        let listeners = listeners.collect::<Result<_, _>>().map_err(Problem::new)?;
        let mut new = Vec::new();
        for _ in self.hands.len()..count {
            // Those that were started before one could not be end when nobody can order them any more.
            new.push(self.spawn()?);
        }
        Ok(Change { listeners, new })
    }

    /// Gives every worker the site; those that are too many retire, and have until `force_at` for it.
    pub(crate) fn serve(&mut self, site: &Arc<Site>, change: Change, force_at: Option<Moment>) {
        self.hands.extend(change.new);
        for mut hand in self.hands.drain(change.listeners.len().min(self.hands.len())..) {
            // One that has ended takes no orders; its end is told elsewhere.
            let _ = hand.orders.send(Order::Retire);
            hand.force_at = force_at;
            self.retired.push(hand);
        }
        for (hand, listeners) in self.hands.iter().zip(change.listeners) {
            let _ = hand.orders.send(Order::Serve(Arc::clone(site), listeners));
        }
    }

    /// Tells every worker the same.
    pub(crate) fn tell_all(&self, order: impl Fn() -> Order) {
        for hand in self.hands.iter().chain(&self.retired) {
            let _ = hand.orders.send(order());
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

    /// Lets one go that has ended, and says what it was.
    pub(crate) fn let_go(&mut self, ended: &Ended) -> Duty {
        let place = |hands: &[Hand]| hands.iter().position(|hand| hand.id == ended.id);
        let (hand, duty) = if let Some(at) = place(&self.retired) {
            (self.retired.remove(at), Duty::Retired)
        } else if let Some(at) = place(&self.hands) {
            (self.hands.remove(at), Duty::Serving)
        } else {
            return Duty::None;
        };
        // It has said its last; one that panicked has said so on stderr.
        let _ = hand.thread.join();
        duty
    }

    /// How many serve.
    pub(crate) fn count(&self) -> usize {
        self.hands.len()
    }

    /// When the next retired worker must be ended by force.
    pub(crate) fn next_force(&self) -> Option<Moment> {
        self.retired.iter().filter_map(|hand| hand.force_at).min()
    }

    /// Ends the retired workers whose time is over.
    pub(crate) fn force_retired(&mut self, now: Moment) {
        for hand in &mut self.retired {
            if hand.force_at.take_if(|at| at.is_due(now)).is_some() {
                let _ = hand.orders.send(Order::Stop);
            }
        }
    }

    /// How many sessions were ended by force in the middle of a request so far.
    pub(crate) fn cut_short(&self) -> u64 {
        self.shared.counters.forced.load(Ordering::Relaxed)
    }

    /// Waits for the end of every thread.
    pub(crate) fn join(self) {
        for hand in self.hands.into_iter().chain(self.retired) {
            let _ = hand.thread.join();
        }
    }

    fn spawn(&mut self) -> Result<Hand, Problem> {
        let id = self.begun;
        let (orders, inbox) = unbounded_channel();
        let (started, shared) = (self.started, Arc::clone(&self.shared));
        let panicked = Some("it panicked".to_owned());
        let mut farewell = Farewell { id, error: panicked, to: self.ended.0.clone() };
        let body = move || {
            shared.workers.fetch_add(1, Ordering::AcqRel);
            let ended = Worker::run(started, Arc::clone(&shared), inbox);
            shared.workers.fetch_sub(1, Ordering::AcqRel);
            farewell.explain(ended);
        };
        let thread = std::thread::Builder::new()
            .name(format!("worker-{id}"))
            .spawn(body)
            .map_err(|error| Problem::new(format_args!("cannot start a worker: {error}")))?;
        self.begun += 1;
        Ok(Hand { id, orders, thread, force_at: None })
    }
}

/// Tells of a thread's end, however it comes.
struct Farewell {
    id: u64,
    error: Option<String>,
    to: UnboundedSender<Ended>,
}

impl Farewell {
    fn explain(&mut self, ended: io::Result<()>) {
        self.error = ended.err().map(|error| error.to_string());
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        // Nobody listens when the process ends at the same time.
        let _ = self.to.send(Ended { id: self.id, error: self.error.take() });
    }
}
