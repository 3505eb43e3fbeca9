//! A request in a location with a cache: it is answered from there, waits for another request that fetches
//! the same, or is passed on.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::Level;
use sekisho_http::Status;
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment};
use sekisho_route::upstream_facts::UpstreamFacts;
use sekisho_upstream::cache::{CacheStatus, Key, StaleCause, may_serve_stale};

use super::Question;
use super::folder::{Cache, Fetching, Kept, Looked};
use super::keep::{Instead, Keeping, Start};
use super::serve::{Serving, View};
use super::write::prolong;
use crate::cgi::HandlerContext;
use crate::disk::{self, DiskError, Operation};
use crate::forward;
use crate::task::{BodyIn, Describe, Outbox, Progress, Work, Wrapper};
use crate::upstream::alone::{go_on, is_last};
use crate::upstream::task::{Advanced, UpstreamTask};

/// The state of the request.
///
/// ```text
/// Begun ─► Looking ─► Serving ◄──────────┐
///             │ ▲                        │ stale, or still valid
///             ▼ │                        │
///           Waiting ──► Asking ──────────┘
/// ```
#[derive(Debug)]
enum State {
    /// Nothing has been done.
    Begun,
    /// The entry is looked for on the disk.
    Looking(Operation<Looked>),
    /// Another request fetches the entry; this one waits until then.
    Waiting(Key, Moment),
    /// A server is asked.
    Asking,
    /// The answer comes from the cache.
    Serving(Box<Serving>),
    /// It was cancelled, and this is its answer.
    Cancelled,
}

/// A request in a location with a cache.
#[derive(Debug)]
pub(in crate::upstream) struct CachedTask {
    question: Question,
    context: Rc<dyn HandlerContext>,
    view: View,
    /// `None` when it goes on by itself.
    task: Option<Box<UpstreamTask>>,
    state: State,
    status: CacheStatus,
    uses: u32,
    /// Held while the disk is looked at again after a wait.
    fetching: Option<Fetching>,
    /// Until when it waits for another request.
    waits_until: Option<Moment>,
    is_head_given: bool,
    is_over: bool,
}

impl CachedTask {
    pub(in crate::upstream) const fn new(
        question: Question,
        context: Rc<dyn HandlerContext>,
        view: View,
        task: Box<UpstreamTask>,
    ) -> Self {
        Self {
            question,
            context,
            view,
            task: Some(task),
            state: State::Begun,
            status: CacheStatus::Miss,
            uses: 0,
            fetching: None,
            waits_until: None,
            is_head_given: false,
            is_over: false,
        }
    }

    fn report(&self, level: Level, what: &str) {
        self.context.report(level, format_args!("{what}"));
    }

    fn goes_on(&self) -> bool {
        matches!(self.state, State::Asking)
            && self.task.as_deref().is_some_and(UpstreamTask::goes_on_alone)
    }

    fn begin(&mut self, now: Moment) {
        let Question { cache, key, is_bypassed, asked, rules, .. } = &self.question;
        if !is_bypassed
            && let Some(kept) = cache.hot(*key, &rules.key, || &**asked, now)
            && kept.entry.lifetime.is_fresh(self.context.wall_secs())
        {
            return self.serve(kept, CacheStatus::Hit);
        }
        let (known, is_worth_a_look) = cache.ask(*key, now);
        self.uses = known.uses;
        if *is_bypassed {
            self.status = CacheStatus::Bypass;
            self.ask_server(*key, None, None, true);
        } else if is_worth_a_look {
            self.look(now);
        } else {
            self.missed(*key, now);
        }
    }

    fn look(&mut self, now: Moment) {
        let Question { cache, key, asked, rules, .. } = &self.question;
        let (cache, asked, text) = (Arc::clone(cache), Arc::clone(asked), Arc::clone(&rules.key));
        let (key, device) = (*key, cache.device());
        self.state = State::Looking(device.read(move || cache.look(key, &text, &asked, now)));
    }

    /// A server is asked; its answer belongs into this slot.
    fn ask_server(
        &mut self,
        slot: Key,
        fetching: Option<Fetching>,
        kept: Option<Arc<Kept>>,
        may_store: bool,
    ) {
        let far = self.question.far.clone().filter(|_| kept.is_none());
        let may_store = may_store && far.is_none();
        let start = Start { slot, uses: self.uses, fetching, kept, may_store };
        let mut keeping = Keeping::new(&self.question, start);
        if let Some(task) = &mut self.task {
            keeping.add_validators(task.pairs_mut());
            if let Some(far) = far {
                task.pairs_mut().extend_from(&far);
            }
            if let Some(signer) = &self.question.signer {
                signer.sign(task.pairs_mut());
            }
            task.keep_by(keeping);
        }
        self.state = State::Asking;
    }

    /// There is no entry.
    fn missed(&mut self, slot: Key, now: Moment) {
        self.status = CacheStatus::Miss;
        let Question { cache, caching, .. } = &self.question;
        let fetching = match self.fetching.take() {
            Some(own) => Ok(own),
            None => cache.fetch(slot, caching.lock_age, now),
        };
        match fetching {
            Ok(own) => self.ask_server(slot, Some(own), None, true),
            Err(until) if caching.lock => {
                let waits_until = *self.waits_until.get_or_insert(now + caching.lock_timeout);
                self.state = State::Waiting(slot, until.min(waits_until));
            }
            Err(_) => self.ask_server(slot, None, None, true),
        }
    }

    fn looked(&mut self, looked: Looked, now: Moment) {
        let Looked { slot, kept, problem } = looked;
        if let Some(problem) = problem {
            self.report(Level::Crit, &problem);
        }
        let Some(kept) = kept else { return self.missed(slot, now) };
        let lifetime = &kept.entry.lifetime;
        let wall_secs = self.context.wall_secs();
        if lifetime.is_fresh(wall_secs) {
            self.fetching = None;
            return self.serve(kept, CacheStatus::Hit);
        }
        let Question { cache, caching, .. } = &self.question;
        let use_stale = caching.use_stale;
        let may_update =
            may_serve_stale(lifetime, use_stale, StaleCause::Updating, wall_secs).is_some();
        let fetching = match self.fetching.take() {
            Some(own) => Some(own),
            None => cache.fetch(slot, caching.lock_age, now).ok(),
        };
        let is_beside = may_update && caching.background_update;
        match fetching {
            None if may_update => self.serve(kept, CacheStatus::Updating),
            Some(own)
                if is_beside && self.task.as_deref().is_some_and(UpstreamTask::has_request) =>
            {
                self.update_beside(slot, own, kept);
            }
            fetching => {
                self.status = CacheStatus::Expired;
                self.ask_server(slot, fetching, Some(kept), true);
            }
        }
    }

    /// The disk of the cache does not respond: a server is asked, and nothing is kept.
    fn not_looked(&mut self, error: DiskError) {
        self.report(Level::Crit, &format!("cannot look into the cache: {error}"));
        self.status = CacheStatus::Miss;
        let fetching = self.fetching.take();
        self.ask_server(self.question.key, fetching, None, false);
    }

    /// The stale answer is given, and a new one is fetched beside it.
    fn update_beside(&mut self, slot: Key, fetching: Fetching, kept: Arc<Kept>) {
        self.ask_server(slot, Some(fetching), Some(Arc::clone(&kept)), true);
        if let Some(task) = self.task.take() {
            let cache = Arc::clone(&self.question.cache);
            tokio::task::spawn_local(async move {
                let (task, instead) = go_on(task).await;
                if let Some(mut instead) = instead {
                    settle(&cache, &mut instead, task.now());
                }
            });
        }
        self.serve(kept, CacheStatus::Stale);
    }

    fn serve(&mut self, kept: Arc<Kept>, status: CacheStatus) {
        self.status = status;
        self.state = State::Serving(Box::new(Serving::new(kept, None)));
    }

    /// The stored response is given instead of the server's.
    fn serve_instead(&mut self, mut instead: Instead, now: Moment) {
        settle(&self.question.cache, &mut instead, now);
        self.status = instead.status;
        self.state = State::Serving(Box::new(Serving::new(instead.kept, instead.lifetime)));
    }

    fn wait(&mut self, cx: &Context<'_>, slot: Key, now: Moment) -> Poll<()> {
        let Question { cache, caching, .. } = &self.question;
        cache.wait(slot, cx.waker());
        match cache.fetch(slot, caching.lock_age, now) {
            Ok(own) => {
                // The request that fetched it is done, and has perhaps stored it.
                self.fetching = Some(own);
                self.look(now);
                Poll::Ready(())
            }
            Err(_) if self.waits_until.is_some_and(|until| until.is_due(now)) => {
                self.ask_server(slot, None, None, false);
                Poll::Ready(())
            }
            Err(until) => {
                let waits_until = self.waits_until.unwrap_or(until);
                self.state = State::Waiting(slot, until.min(waits_until));
                Poll::Pending
            }
        }
    }

    fn serving_failed(&mut self, error: &io::Error) -> Progress {
        self.report(Level::Crit, &format!("cannot give an answer from the cache: {error}"));
        if let State::Serving(serving) = &self.state
            && !disk::is_busy(error)
        {
            serving.discard(&self.question.cache, self.question.key);
        }
        self.is_over = true;
        Progress::Break
    }

    fn step(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        loop {
            match &mut self.state {
                State::Begun => self.begin(now),
                State::Looking(disk) => match Pin::new(disk).poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(looked)) => self.looked(looked, now),
                    Poll::Ready(Err(error)) => self.not_looked(error),
                },
                State::Waiting(slot, _) => {
                    let slot = *slot;
                    if self.wait(cx, slot, now).is_pending() {
                        return Poll::Pending;
                    }
                }
                State::Asking => {
                    let Some(task) = &mut self.task else { return Poll::Ready(Progress::Break) };
                    match task.advance(cx, out, now) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Advanced::Progress(progress)) => {
                            return Poll::Ready(progress);
                        }
                        Poll::Ready(Advanced::ServeStored(instead)) => {
                            out.fields.clear();
                            out.body.clear();
                            self.serve_instead(*instead, now);
                        }
                    }
                }
                State::Serving(_) => return self.serving_step(cx, out),
                State::Cancelled => {
                    let is_begun = self.is_head_given;
                    return Poll::Ready(if is_begun {
                        Progress::Break
                    } else {
                        Progress::Fail(Status::SERVICE_UNAVAILABLE)
                    });
                }
            }
        }
    }

    fn serving_step(&mut self, cx: &mut Context<'_>, out: &mut Outbox) -> Poll<Progress> {
        let wall_secs = || self.context.wall_secs();
        let State::Serving(serving) = &mut self.state else { return Poll::Pending };
        // A client's conditions and range are judged where its answer is sent: filters may change the body before.
        let own = self.question.signer.is_some().then_some(&*self.question.asked);
        match serving.poll(cx, &self.view, own, out, wall_secs) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(progress)) => Poll::Ready(progress),
            Poll::Ready(Err(error)) => Poll::Ready(self.serving_failed(&error)),
        }
    }
}

/// A response that was found to be still valid is written anew, with its new lifetime.
fn settle(cache: &Arc<Cache>, instead: &mut Instead, now: Moment) {
    let fetching = instead.fetching.take();
    if let Some(lifetime) = instead.lifetime {
        let (own, kept, slot) = (Arc::clone(cache), Arc::clone(&instead.kept), instead.slot);
        cache.device().detach(move || {
            // What could not be written is asked for again next time.
            let _ = prolong(&own, slot, &kept, lifetime, now);
            drop(fetching);
        });
    }
}

impl Wrapper for CachedTask {
    type Inner = UpstreamTask;

    fn inner(&self) -> Option<&Self::Inner> {
        self.task.as_deref()
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        self.task.as_deref_mut()
    }
}

impl Work for CachedTask {
    forward!(is_service, conclude);

    fn stops_with_client(&self) -> bool {
        !self.goes_on() && self.task.as_deref().is_none_or(Work::stops_with_client)
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        let progress = self.step(cx, out, now);
        if let Poll::Ready(progress) = &progress {
            self.is_over |= is_last(progress);
            self.is_head_given |= matches!(progress, Progress::Head(..) | Progress::Upgrade(_));
        }
        progress
    }

    fn narrow(&mut self, part: &Range<u64>) -> bool {
        let State::Serving(serving) = &mut self.state else { return false };
        serving.narrow(part);
        true
    }

    fn hold(&mut self, is_held: bool, now: Moment) {
        if let (State::Asking, Some(task)) = (&self.state, &mut self.task) {
            task.hold(is_held, now);
        }
    }

    fn absorb(&mut self, cx: &mut Context<'_>, now: Moment) {
        if let (State::Asking, Some(task)) = (&self.state, &mut self.task) {
            task.absorb(cx, now);
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        match (&self.state, &self.task) {
            (State::Waiting(_, at), _) => Some(Deadline { at: *at, kind: DeadlineKind::Wait }),
            (State::Asking, Some(task)) => task.next_deadline(),
            _ => None,
        }
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        if cause == Cause::ClientLost && self.goes_on() {
            return;
        }
        self.is_over = true;
        if let (State::Asking, Some(task)) = (&self.state, &mut self.task) {
            task.cancel(cause, now);
        } else {
            self.state = State::Cancelled;
        }
    }
}

impl BodyIn for CachedTask {
    forward!(body_sink, direct_bytes_done, end_body, return_body);

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        match &mut self.task {
            Some(task) if !matches!(self.state, State::Serving(_)) => task.take(cx, bytes, now),
            _ => bytes.len(),
        }
    }
}

impl Describe for CachedTask {
    forward!(plain_bytes, upstream_view, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        self.task.as_deref().map_or("cache", Describe::name)
    }

    fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        if let Some(task) = &self.task {
            task.describe_upstream(facts);
        }
        facts.cache = Some(self.status);
        if let State::Serving(serving) = &self.state {
            facts.fields.clear();
            facts.fields.extend_from(&serving.kept.entry.fields);
        }
    }
}

impl Drop for CachedTask {
    fn drop(&mut self) {
        if self.is_over || !self.goes_on() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        if let Some(task) = self.task.take() {
            tokio::task::spawn_local(async move { drop(go_on(task).await) });
        }
    }
}
