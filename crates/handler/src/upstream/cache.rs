//! Caches of answers (U5): folders of entries as all workers share them, and requests that are answered from one. What
//! is kept and given is decided by `upstream::cache`, which is pure; here are the files. They are read and written by
//! threads of the blocking pool, and renamed into place when they are complete.

mod folder;
mod hit;
mod hot;
mod keep;
mod serve;
mod task;
mod write;

use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::{CacheChoice, Caching, Family, Pass, Template, Variable};
use sekisho_http::{Fields, Known, Method};
use sekisho_lifecycle::Moment;
use sekisho_route::push_origin;
use sekisho_upstream::cache::Key;

use super::Call;
use super::answer::Changes;
use super::own::{CacheQuery, Sign};
use super::plan::{Plan, Source};
use crate::cgi::HandlerContext;
use folder::Asked;
pub use folder::{Cache, Caches, Purge};
use hit::Hit;
pub(super) use keep::Instead;
pub(super) use keep::Keeping;
use keep::Rules;
use serve::Serving;
pub(super) use serve::View;
pub(super) use task::CachedTask;

/// What a request is to the cache of its location.
#[derive(Debug)]
pub(super) struct Question {
    cache: Arc<Cache>,
    key: Key,
    caching: Arc<Caching>,
    asked: Arc<Asked>,
    rules: Rc<Rules>,
    is_bypassed: bool,
    /// The range that is asked for, where it is not to be cut of a whole answer.
    far: Option<Rc<Fields>>,
    /// What signs a request of our own when a server is asked: validators of what is kept may be signed, too.
    signer: Option<Rc<dyn Sign>>,
}

/// Fields that would make the answer specific to one request.
const CONDITIONS: [&str; 6] =
    ["If-Modified-Since", "If-Unmodified-Since", "If-None-Match", "If-Match", "Range", "If-Range"];

/// The cache of a location, where it has one; an error is a name that no cache has.
pub(super) fn cache_of(call: &Call<'_>, source: &Source<'_>) -> Result<Option<Arc<Cache>>, String> {
    let settings = &call.table.location(call.route_state.location).settings;
    let Some(pass) = settings.pass.as_deref() else { return Ok(None) };
    match &pass.forward.caching.cache {
        None => Ok(None),
        Some(CacheChoice::Named(id)) => Ok(call.caches.get(id.0 as usize).cloned()),
        Some(CacheChoice::Computed(template)) => {
            let name = source.value(template);
            if matches!(name.as_slice(), b"" | b"off") {
                return Ok(None);
            }
            let found = call.caches.iter().find(|cache| cache.is_named(&name, pass.family));
            let unknown = || format!("cache \"{}\" not found", name.escape_ascii());
            found.cloned().map(Some).ok_or_else(unknown)
        }
    }
}

/// What the directives of a location say about a request and its cache.
#[derive(Debug)]
pub(super) struct Lookup<'a> {
    pass: &'a Arc<Pass>,
    cache: Arc<Cache>,
    key: Key,
    /// The value of `proxy_cache_key`.
    text: Vec<u8>,
    is_bypassed: bool,
}

impl<'a> Lookup<'a> {
    /// `None` where the request has nothing to do with a cache.
    pub(super) fn new(
        call: &Call<'_>,
        source: &Source<'_>,
        cache: Arc<Cache>,
        pass: &'a Arc<Pass>,
    ) -> Option<Self> {
        let caching = &pass.forward.caching;
        let method = call.route_state.method;
        // The key does not know the body of a GET, unless it says so.
        let has_unknown_body = call.has_body
            && matches!(method, Method::Get | Method::Head)
            && !caching.key.names(&Variable::RequestBody);
        if !caching.rules.has_method(method) || has_unknown_body {
            return None;
        }
        let text = source.value(&caching.key);
        let is_bypassed = says(source, &caching.bypass);
        Some(Self { pass, cache, key: Key::new(&text), text, is_bypassed })
    }

    /// The response, where it is hot and fresh: no request to a server is made for it.
    pub(super) fn hit(
        &self,
        call: &Call<'_>,
        source: &Source<'_>,
        context: &Rc<dyn HandlerContext>,
        now: Moment,
    ) -> Option<Hit> {
        if self.is_bypassed {
            return None;
        }
        let asked = || Asked::of(call);
        let kept = self.cache.hot(self.key, &self.text, asked, now)?;
        if !kept.entry.lifetime.is_fresh(context.wall_secs()) {
            return None;
        }
        let Call { table, request, route_state, .. } = *call;
        let mut origin = Vec::new();
        if ["location", "refresh"].iter().any(|name| kept.entry.fields.has(name)) {
            push_origin(table, request, route_state, &mut origin);
        }
        let view = View {
            pass: Arc::clone(self.pass),
            origin,
            changes: Changes::new(source, &self.pass.forward).map(Rc::new),
            error_pages: Arc::clone(&table.location(route_state.location).settings.error_pages),
            status: route_state.status,
            is_head: route_state.method == Method::Head,
        };
        let serving = Serving::new(kept, None);
        let (cache, context) = (Arc::clone(&self.cache), Rc::clone(context));
        Some(Hit { cache, key: self.key, context, view, serving, is_cancelled: false })
    }

    /// The plan becomes one for a response that can be stored.
    pub(super) fn question(
        self,
        call: &Call<'_>,
        source: &Source<'_>,
        plan: &mut Plan,
    ) -> Question {
        let Self { pass, cache, key, text, is_bypassed } = self;
        let caching = &pass.forward.caching;
        let method = call.route_state.method;
        let is_set = |name: &str| {
            pass.forward.set_headers.iter().any(|(set, _)| set.eq_ignore_ascii_case(name))
        };
        let range = call.request.head.known(Known::Range).unwrap_or_default();
        let is_far = !range.is_empty()
            && caching.range_offset_max.is_some_and(|max| begins_behind(range, max));
        let mut far = Fields::default();
        for name in CONDITIONS {
            let own = match pass.family {
                Family::Proxy => name.to_owned(),
                _ => format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_")),
            };
            if is_far && matches!(name, "Range" | "If-Range") && !is_set(name) {
                plan.pairs.all(own.as_bytes()).for_each(|value| far.push(&own, value));
            }
            if pass.family != Family::Proxy {
                plan.pairs.remove(&own);
            } else if !is_set(name) {
                plan.pairs.remove(name);
            }
        }
        let is_head = method == Method::Head;
        let is_converted = is_head && pass.family == Family::Proxy && caching.convert_head;
        if is_converted {
            plan.method.clear();
            plan.method.extend_from_slice(b"GET");
        }
        // A GET must not find the response to a HEAD, which has no body.
        let is_apart = is_converted || caching.key.names(&Variable::RequestMethod);
        let rules = Rules {
            method,
            is_authorized: call.request.head.known(Known::Authorization).is_some(),
            is_refused: says(source, &caching.no_cache) || (is_head && !is_apart),
            key: text.into(),
        };
        Question {
            cache,
            key,
            caching: Arc::clone(caching),
            asked: Arc::new(Asked::of(call)),
            rules: Rc::new(rules),
            is_bypassed,
            far: is_far.then(|| Rc::new(far)),
            signer: None,
        }
    }
}

/// Whether one of the values is neither empty nor "0".
fn says(source: &Source<'_>, templates: &[Template]) -> bool {
    templates.iter().any(|one| !matches!(source.value(one).as_slice(), b"" | b"0"))
}

/// What is asked of a cache by a request of our own: it is not a client's, and its answer is the same for all.
pub(super) fn own_question(
    cache: Arc<Cache>,
    caching: Arc<Caching>,
    query: &CacheQuery,
    signer: Rc<dyn Sign>,
) -> Question {
    let rules = Rules {
        method: if query.is_head { Method::Head } else { Method::Get },
        is_authorized: false,
        is_refused: false,
        key: query.key.as_slice().into(),
    };
    Question {
        cache,
        key: Key::new(&query.key),
        caching,
        asked: Arc::new(Asked::new(&query.conditions)),
        rules: Rc::new(rules),
        is_bypassed: false,
        far: None,
        signer: Some(signer),
    }
}

/// Whether a range begins behind an offset, or at an unknown place; with an offset of 0 every one does.
fn begins_behind(range: &[u8], max: u64) -> bool {
    let Some(rest) = range.strip_prefix(b"bytes=") else { return false };
    let first = rest.split(|byte| *byte == b'-').next().unwrap_or_default();
    let start =
        std::str::from_utf8(first).ok().and_then(|digits| digits.trim().parse::<u64>().ok());
    max == 0 || start.is_none_or(|start| start > max)
}
