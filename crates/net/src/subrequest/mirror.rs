//! `mirror`: copies of a request for other locations. They go on alone: nobody waits for their answers, and what they
//! do has no effect on the request. A worker does not end before they have, unless it is forced to.

use std::cell::{Cell, RefCell};
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_config::{Level, LocationId, Settings};
use sekisho_handler::disk::{Device, Operation};
use sekisho_handler::filter::Wish;
use sekisho_handler::request_body::{BodyFile, Gathered, RequestBody};
use sekisho_handler::{BodyIn, Describe, Outbox, Progress, Task, Work, Wrapper, forward, without};
use sekisho_lifecycle::Moment;
use sekisho_route::{RequestIdSeed, RouteState, SubrequestTarget};

use super::{RequestTree, Subrequest};
use crate::query::{Peer, Running as RunningView};
use crate::worker::Worker;

/// How many copies a worker may have at once; further ones are left out.
const COPIES_MAX: usize = 1024;
/// How much of a body is read from a file at once.
const READ_BYTES: usize = 64 * 1024;

/// Copies that go on alone in a worker.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    count: Cell<usize>,
    running: RefCell<Vec<Weak<RefCell<Subrequest>>>>,
    is_forced: Cell<bool>,
    changed: tokio::sync::Notify,
}

impl Copies {
    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.count.get()
    }

    /// Shows each of them that belongs to a session, with the session's number.
    pub(crate) fn each_view(&self, mut show: impl FnMut(u64, Peer, RunningView), now: Moment) {
        for copy in self.running.borrow().iter().filter_map(Weak::upgrade) {
            // One that is polled just now is not shown.
            let Ok(copy) = copy.try_borrow() else { continue };
            let tree = copy.tree();
            let request = tree.view(now);
            let mut inner = Vec::new();
            copy.describe_subrequests(&mut inner, now);
            let RequestIdSeed(request_id) = tree.accepted.request_id;
            let upstream = copy.upstream_view(now).map(|view| {
                let left = view.deadline.map_or(Duration::ZERO, |deadline| deadline.at.since(now));
                (view, left)
            });
            let own = inner.remove(0);
            let peer = request.connection.remote.map_or(Peer::Unix, Peer::Address);
            let view = RunningView {
                number: 0,
                request_id,
                method: request.head.method_name().escape_ascii().to_string(),
                target: own.path,
                handler: "mirror",
                age: own.age,
                status: own.status,
                is_cancelled: false,
                upstream,
                subrequests: inner,
            };
            show(request.connection.id, peer, view);
        }
    }

    fn enter(&self, copy: &Rc<RefCell<Subrequest>>) {
        let mut running = self.running.borrow_mut();
        running.retain(|copy| copy.strong_count() > 0);
        running.push(Rc::downgrade(copy));
    }

    /// Ends all of them.
    pub(crate) fn force(&self) {
        self.is_forced.set(true);
        self.changed.notify_waiters();
    }
}

/// One of them, until this is dropped.
struct Running(Rc<Worker>);

impl Running {
    fn begin(worker: &Rc<Worker>) -> Option<Self> {
        let count = worker.copies.count.get();
        if count >= COPIES_MAX {
            return None;
        }
        worker.copies.count.set(count + 1);
        Some(Self(Rc::clone(worker)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.copies.count.update(|count| count - 1);
        self.0.vacated.notify_waiters();
    }
}

/// The body of a request, for its copies.
#[derive(Clone, Debug)]
enum Kept {
    Memory(Rc<[u8]>),
    File(Arc<BodyFile>),
}

/// The body of a copy, on its way to the handler.
#[derive(Debug)]
pub(crate) struct MirrorBody {
    kept: Kept,
    /// How much the handler has taken of all, and what was read of a file and not taken.
    taken: u64,
    read: Vec<u8>,
    reading: Option<Operation<std::io::Result<Vec<u8>>>>,
    has_ended: bool,
}

impl MirrorBody {
    const fn new(kept: Kept) -> Self {
        Self { kept, taken: 0, read: Vec::new(), reading: None, has_ended: false }
    }

    /// How long it is.
    pub(crate) fn len(&self) -> u64 {
        match &self.kept {
            Kept::Memory(bytes) => bytes.len() as u64,
            Kept::File(file) => file.len(),
        }
    }

    /// Another handler gets it from the beginning.
    pub(crate) fn rewind(&mut self) {
        *self = Self::new(self.kept.clone());
    }

    /// Gives the handler what it takes.
    pub(crate) fn feed(&mut self, task: &mut dyn Task, cx: &mut Context<'_>, now: Moment) {
        while !self.has_ended {
            if self.taken == self.len() {
                self.has_ended = true;
                return task.end_body(cx, now);
            }
            let count = match &self.kept {
                Kept::Memory(bytes) => task.take(cx, &bytes[self.taken as usize..], now),
                Kept::File(_) => match self.fill(cx) {
                    Poll::Pending => return,
                    Poll::Ready(()) if self.read.is_empty() => {
                        // The file cannot be read: the handler sees a body that does not go on, and its deadline.
                        self.has_ended = true;
                        return;
                    }
                    Poll::Ready(()) => {
                        let count = task.take(cx, &self.read, now);
                        self.read.drain(..count);
                        count
                    }
                },
            };
            self.taken += count as u64;
            if count == 0 {
                return;
            }
        }
    }

    /// Reads on, where all that was read has been taken.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.read.is_empty() {
            if let Some(reading) = &mut self.reading {
                let Poll::Ready(read) = Pin::new(reading).poll(cx) else { return Poll::Pending };
                self.reading = None;
                self.read = read.ok().and_then(Result::ok).unwrap_or_default();
                return Poll::Ready(());
            }
            let Kept::File(file) = &self.kept else { return Poll::Ready(()) };
            let (file, at) = (Arc::clone(file), self.taken);
            let Ok(descriptor) = file.descriptor() else { return Poll::Ready(()) };
            let device = Device::of(descriptor);
            self.reading = Some(device.read(move || file.read_at(at, READ_BYTES)));
        }
        Poll::Ready(())
    }
}

/// Starts the copies of a request that passed these locations, without its body.
pub(crate) fn start(tree: &Rc<RequestTree>, route: &RouteState, locations: &[LocationId]) {
    start_kept(tree, route, locations, None);
}

fn start_kept(
    tree: &Rc<RequestTree>,
    route: &RouteState,
    locations: &[LocationId],
    body: Option<&Kept>,
) {
    let outer = Rc::new(route.clone());
    let site = Arc::clone(&tree.accepted.bound_site.site);
    for location in locations {
        let Some(mirrors) = &site.location(*location).settings.mirrors else { continue };
        for path in mirrors.paths.iter() {
            let target = SubrequestTarget {
                path: path.to_vec(),
                query: route.query.clone(),
                method: route.method,
                slice_start: None,
            };
            let wish = Wish { target, hides_errors: true };
            let Some(copy) = Subrequest::start(tree, &outer, 0, wish) else { return };
            let Some(running) = Running::begin(&tree.worker) else {
                tree.report(
                    route,
                    Level::Warn,
                    format_args!("too many mirrored requests, one is left out"),
                );
                return;
            };
            let copy = copy.with_body(body.cloned().map(MirrorBody::new));
            tokio::task::spawn_local(go_on(copy, running));
        }
    }
}

/// Reads the answer of a copy to its end; nobody takes it.
async fn go_on(copy: Subrequest, running: Running) {
    let worker = Rc::clone(&running.0);
    let copy = Rc::new(RefCell::new(copy));
    worker.copies.enter(&copy);
    let mut out = Outbox::default();
    loop {
        let now = worker.clock.now();
        let wait = copy.borrow().next_deadline().map(|deadline| deadline.at.since(now));
        let mut timer = pin!(async {
            match wait {
                Some(length) => tokio::time::sleep(length).await,
                None => std::future::pending().await,
            }
        });
        let mut forced = pin!(worker.copies.changed.notified());
        forced.as_mut().enable();
        if worker.copies.is_forced.get() {
            return;
        }
        let progress = poll_fn(|cx| {
            let polled = copy.borrow_mut().poll(cx, &mut out, worker.clock.now());
            if let Poll::Ready(progress) = polled {
                return Poll::Ready(Some(progress));
            }
            if timer.as_mut().poll(cx).is_ready() || forced.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            Poll::Pending
        });
        let progress = progress.await;
        out.body.clear();
        out.fields.clear();
        match progress {
            Some(Progress::Head(..) | Progress::Body | Progress::Informational(_)) | None => {}
            Some(_) => return,
        }
    }
}

/// A handler whose request has copies: what it takes of the body is gathered for them, and when all has come they are
/// started.
#[derive(Debug)]
pub(crate) struct MirroredTask {
    source: Box<dyn Task>,
    gathering: Option<RequestBody>,
    /// What the handler has taken and is not gathered.
    pending: Vec<u8>,
    has_ended: bool,
    tree: Rc<RequestTree>,
    route: Box<RouteState>,
    locations: Vec<LocationId>,
}

impl MirroredTask {
    /// Around a handler; the body is expected to be so long, where that is known.
    pub(crate) fn new(
        source: Box<dyn Task>,
        settings: &Settings,
        body_bytes: Option<u64>,
        tree: Rc<RequestTree>,
        route: &RouteState,
        locations: Vec<LocationId>,
    ) -> Self {
        let gathering = Some(RequestBody::of(settings, body_bytes));
        let route = Box::new(route.clone());
        Self { source, gathering, pending: Vec::new(), has_ended: false, tree, route, locations }
    }

    /// Gathers what the handler has taken; whether all of it is.
    fn gather(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(body) = &mut self.gathering else { return true };
        match body.take(cx, &self.pending) {
            Ok(taken) => {
                self.pending.drain(..taken);
                self.pending.is_empty()
            }
            Err(error) => {
                self.lose_body(&error);
                true
            }
        }
    }

    fn lose_body(&mut self, error: &std::io::Error) {
        self.gathering = None;
        let message = format_args!("the body of a mirrored request is lost: {error}");
        self.tree.report(&self.route, Level::Error, message);
    }

    /// Starts the copies when the whole body is there.
    fn advance(&mut self, cx: &mut Context<'_>) {
        let is_gathered = self.gather(cx);
        let Some(body) = &mut self.gathering else { return };
        if !self.has_ended || !is_gathered {
            return;
        }
        body.end();
        let Poll::Ready(gathered) = body.poll_gathered(cx) else { return };
        self.gathering = None;
        let kept = match gathered {
            Ok(Gathered::Memory(bytes, _)) => Kept::Memory(bytes.into()),
            Ok(Gathered::File(file)) => Kept::File(Arc::new(file)),
            Err(error) => return self.lose_body(&error),
        };
        start_kept(&self.tree, &self.route, &self.locations, Some(&kept));
    }
}

impl Wrapper for MirroredTask {
    type Inner = dyn Task;

    fn inner(&self) -> Option<&Self::Inner> {
        Some(&*self.source)
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        Some(&mut *self.source)
    }
}

impl Work for MirroredTask {
    forward!(cancel, next_deadline, hold, absorb, narrow, stops_with_client, is_service, conclude);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        self.advance(cx);
        self.source.poll(cx, out, now)
    }
}

impl BodyIn for MirroredTask {
    forward!(return_body);
    without!(body_sink, direct_bytes_done);

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        // No more is offered to the handler than both can take.
        if !self.gather(cx) {
            return 0;
        }
        let taken = self.source.take(cx, bytes, now);
        if self.gathering.is_some() {
            self.pending.extend_from_slice(&bytes[..taken]);
            self.gather(cx);
        }
        taken
    }

    fn end_body(&mut self, cx: &mut Context<'_>, now: Moment) {
        self.has_ended = true;
        self.advance(cx);
        self.source.end_body(cx, now);
    }
}

impl Describe for MirroredTask {
    forward!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        self.source.name()
    }
}
