//! Requests of our own to a group: not a client's request that is passed on, but one that a handler needs, such as those
//! to object storage. They are upstream requests like any other: the same task, deadlines, tries, connections and caches.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sekisho_config::{CacheChoice, Level, Pass, PassTo};
use sekisho_http::{Fields, Method, Status};
use sekisho_lifecycle::Moment;
use sekisho_upstream::request::{Rules, UpstreamRequest};

use super::body::Body;
use super::cache::{self, Cache, CachedTask, Purge};
use super::circle::Cause;
use super::group::Group;
use super::pool::Pools;
use super::task::{Parts, Stage, UpstreamTask};
use super::tls::Secure;
use super::{By, Call, Key, manner};
use crate::cgi::HandlerContext;
use crate::disk::Operation;
use crate::task::Task;

/// A request of our own.
#[derive(Clone, Debug)]
pub(crate) struct OwnRequest {
    pub(crate) method: Method,
    pub(crate) target: Vec<u8>,
    /// All fields but those of framing and the signature.
    pub(crate) fields: Fields,
    pub(crate) body: Option<Arc<Vec<u8>>>,
    /// Whether it may be sent again when it may have been done, as its method allows it.
    pub(crate) is_repeatable: bool,
    pub(crate) signer: Rc<dyn Sign>,
}

/// Proves that a request is ours, when all of its fields are known.
pub(crate) trait Sign: fmt::Debug {
    /// Adds what proves it.
    fn sign(&self, fields: &mut Fields);
}

/// So much of a target as may be shown: a shared access signature is as good as a key.
pub(super) fn before_signature(target: &[u8]) -> &[u8] {
    let starts =
        |at: &usize| matches!(target[*at], b'?' | b'&') && target[at + 1..].starts_with(b"sig=");
    let end = (0..target.len()).find(starts).unwrap_or(target.len());
    &target[..end]
}

/// How an answer is looked for in a cache.
#[derive(Clone, Debug)]
pub(crate) struct CacheQuery {
    /// Its key there.
    pub(crate) key: Vec<u8>,
    /// The client's conditions and range: they are judged here, by the whole answer.
    pub(crate) conditions: Fields,
    /// The client wants no body.
    pub(crate) is_head: bool,
}

/// What requests of our own are sent with; it outlives the decision that led to it.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) context: Rc<dyn HandlerContext>,
    pools: Rc<Pools>,
    group: Arc<Group>,
    pass: Arc<Pass>,
    secure: Option<Secure>,
    cache: Option<Arc<Cache>>,
}

impl Sender {
    /// Sends as a location's `pass` says; an error is the status to answer with, and has been reported.
    pub(crate) fn new(
        call: &Call<'_>,
        pass: &Arc<Pass>,
        context: Rc<dyn HandlerContext>,
    ) -> Result<Self, Status> {
        let unable = |why: &str| {
            context.report(Level::Error, format_args!("{why}"));
            Status::INTERNAL_SERVER_ERROR
        };
        let PassTo::Named(to) = &pass.to else { return Err(unable("no server is named")) };
        let group = call.groups.get(to.group.0 as usize).ok_or_else(|| unable("no such group"))?;
        let forward = &pass.forward;
        let secure = if to.is_tls {
            let ready = call.tls.get(&forward.tls).ok_or_else(|| unable("no settings for TLS"))?;
            let now = Duration::from_secs(context.wall_secs().max(0) as u64);
            // No variable has a part in it.
            let made = Secure::new(ready, &forward.tls, to.host.as_bytes(), now, |_| Vec::new());
            Some(made.map_err(|why| unable(&why))?)
        } else {
            None
        };
        let cache = match &forward.caching.cache {
            Some(CacheChoice::Named(id)) => call.caches.get(id.0 as usize).cloned(),
            Some(CacheChoice::Computed(_)) | None => None,
        };
        Ok(Self {
            pools: Rc::clone(call.pools),
            group: Arc::clone(group),
            pass: Arc::clone(pass),
            secure,
            cache,
            context,
        })
    }

    /// Whether answers are kept.
    pub(crate) fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Begins to forget what is kept under a key, if anything is kept at all.
    pub(crate) fn forget(&self, key: &[u8]) -> Option<Operation<io::Result<u64>>> {
        let cache = self.cache.clone()?;
        let (key, now) = (key.to_vec(), self.context.now());
        Some(cache.device().change(move || cache.purge(Purge::Key(&key), now)))
    }

    /// Begins to ask.
    pub(crate) fn send(&self, request: &OwnRequest, now: Moment) -> Box<dyn Task> {
        let mut task = self.task(request, now);
        request.signer.sign(task.pairs_mut());
        task
    }

    /// The same; the answer may come from the cache, and is kept there. It must be a GET: an answer without a body could
    /// not be given to others.
    pub(crate) fn send_cached(
        &self,
        request: &OwnRequest,
        query: &CacheQuery,
        now: Moment,
    ) -> Box<dyn Task> {
        let Some(cache) = &self.cache else { return self.send(request, now) };
        let view = cache::View {
            pass: Arc::clone(&self.pass),
            origin: Vec::new(),
            changes: None,
            error_pages: Arc::default(),
            status: None,
            is_head: query.is_head,
        };
        let caching = Arc::clone(&self.pass.forward.caching);
        let signer = Rc::clone(&request.signer);
        let question = cache::own_question(Arc::clone(cache), caching, query, signer);
        let mut task = self.task(request, now);
        task.set_head_only(query.is_head);
        Box::new(CachedTask::new(question, Rc::clone(&self.context), view, task))
    }

    fn task(&self, request: &OwnRequest, now: Moment) -> Box<UpstreamTask> {
        let Self { context, pools, group, pass, secure, .. } = self;
        let forward = &pass.forward;
        let mut plan = pools.borrow_plan();
        plan.method.extend_from_slice(request.method.name().unwrap_or("GET").as_bytes());
        plan.target.extend_from_slice(&request.target);
        plan.pairs.extend_from(&request.fields);
        plan.version = Some(forward.http_version);
        plan.is_tls = secure.is_some();
        if let PassTo::Named(to) = &pass.to {
            plan.host.extend_from_slice(to.host.as_bytes());
        }
        let key = Key { by: By::Text(Vec::new()), binding: None };
        let selection = key.select(group);
        let rules = Rules { next: forward.next_upstream, connect_timeout: forward.connect_timeout };
        // The machine goes by the method: what must not be done twice is to it like a POST.
        let method = if request.is_repeatable { request.method } else { Method::Post };
        let machine = UpstreamRequest::new(rules, method, false, selection, now);
        let secured = secure.as_ref().map(|secure| (&*forward.tls, secure));
        Box::new(UpstreamTask::new(Parts {
            bind: None,
            cause: Cause::default(),
            manner: manner((pass.family, false), secured, None),
            secure: secure.clone(),
            context: Rc::clone(context),
            pools: Rc::clone(pools),
            permit: pools.permit(),
            resolving: group.names.is_some().then_some((key, now)),
            group: Arc::clone(group),
            pass: Arc::clone(pass),
            plan,
            machine,
            body: request.body.clone().map_or(Body::None, |bytes| Body::Memory(bytes, None)),
            body_memory: 0,
            changes: None,
            error_pages: Arc::default(),
            status: None,
            is_head: request.method == Method::Head,
            binding: None,
            stage: Stage::Ready,
            unsent: Body::None,
            has_body_ended: true,
            keeping: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_in_a_target_is_not_shown() {
        for (target, shown) in [
            ("/a?sv=1&sig=x&se=2", "/a?sv=1"),
            ("/a?sig=x", "/a"),
            ("/sig=a?b=sig=", "/sig=a?b=sig="),
            ("/", "/"),
        ] {
            assert_eq!(before_signature(target.as_bytes()), shown.as_bytes(), "{target}");
        }
    }
}
