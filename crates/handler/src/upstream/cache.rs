//! Caches of answers (U5): folders of entries as all workers share them, and requests that are answered from one. What
//! is kept and given is decided by `upstream::cache`, which is pure; here are the files. They are read and written by
//! threads of the blocking pool, and renamed into place when they are complete.

mod folder;
mod keep;
mod serve;
mod task;
mod write;

use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::{CacheChoice, Caching, Family, Template};
use sekisho_http::upstream::push_end_to_end;
use sekisho_http::{Fields, Known, Method};
use sekisho_upstream::cache::Key;

use super::Call;
use super::own::{CacheQuery, Sign};
use super::plan::{Plan, Source};
use folder::Asked;
pub use folder::{Cache, Caches};
pub(super) use keep::Instead;
pub(super) use keep::Keeping;
use keep::Rules;
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

impl Question {
    /// The same for what goes on by itself.
    fn again(&self) -> Self {
        Self {
            cache: Arc::clone(&self.cache),
            key: self.key,
            caching: Arc::clone(&self.caching),
            asked: Arc::clone(&self.asked),
            rules: Rc::clone(&self.rules),
            is_bypassed: self.is_bypassed,
            far: self.far.clone(),
            signer: self.signer.clone(),
        }
    }
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

/// What is asked of the cache of this location; the plan becomes one for an answer that can be kept.
pub(super) fn question(
    call: &Call<'_>,
    source: &Source<'_>,
    cache: Arc<Cache>,
    plan: &mut Plan,
) -> Option<Question> {
    let settings = &call.table.location(call.route_state.location).settings;
    let pass = settings.pass.as_deref()?;
    let caching = &pass.forward.caching;
    let method = call.route_state.method;
    if !caching.rules.has_method(method) {
        return None;
    }
    let is_set =
        |name: &str| pass.forward.set_headers.iter().any(|(set, _)| set.eq_ignore_ascii_case(name));
    let range = call.request.head.known(Known::Range).unwrap_or_default();
    let is_far =
        !range.is_empty() && caching.range_offset_max.is_some_and(|max| begins_behind(range, max));
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
    let says = |templates: &[Template]| {
        templates.iter().any(|one| !matches!(source.value(one).as_slice(), b"" | b"0"))
    };
    let key = source.value(&caching.key);
    let head = call.request.head;
    let mut fields = Fields::default();
    push_end_to_end(head, &mut fields, |_| false);
    let rules = Rules {
        method,
        is_authorized: head.known(Known::Authorization).is_some(),
        is_refused: says(&caching.no_cache) || (is_head && !is_converted),
        key: key.as_slice().into(),
    };
    Some(Question {
        cache,
        key: Key::new(&key),
        caching: Arc::clone(caching),
        asked: Arc::new(Asked::new(&fields)),
        rules: Rc::new(rules),
        is_bypassed: says(&caching.bypass),
        far: is_far.then(|| Rc::new(far)),
        signer: None,
    })
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
