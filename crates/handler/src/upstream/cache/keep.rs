//! What a request that is passed on does for the cache of its location: its answer is kept, or an answer that was kept
//! before is given in its place.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::Caching;
use sekisho_http::upstream::ResponseHead;
use sekisho_http::{Fields, Method};
use sekisho_lifecycle::Moment;
use sekisho_upstream::cache::freshness::{push_validators, revalidated};
use sekisho_upstream::cache::{
    CacheStatus, Candidate, Entry, Key, Lifetime, PurgeSerial, key, may_store,
};
use sekisho_upstream::request::Stored;

use super::folder::{Asked, Cache, Fetching, Kept};
use super::write::Writer;

/// What of a request decides whether its answer is kept.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) method: Method,
    pub(super) is_authorized: bool,
    pub(super) is_refused: bool,
    /// The value of the cache's key.
    pub(super) key: Arc<[u8]>,
}

/// A stored response that is given instead of a server's.
#[derive(Debug)]
pub(in crate::upstream) struct Instead {
    pub(super) kept: Arc<Kept>,
    pub(super) status: CacheStatus,
    /// It was found to be still valid, for this long.
    pub(super) lifetime: Option<Lifetime>,
    /// Where it is stored, and since when it was asked for.
    pub(super) slot: (Key, PurgeSerial),
    pub(super) fetching: Option<Fetching>,
}

/// What a request does for its cache.
#[derive(Debug)]
pub(in crate::upstream) struct Keeping {
    cache: Arc<Cache>,
    main: Key,
    /// Where the answer belongs, unless its `Vary` says otherwise.
    slot: Key,
    caching: Arc<Caching>,
    asked: Arc<Asked>,
    rules: Rc<Rules>,
    uses: u32,
    /// What is purged from here on is not kept.
    asked_at: PurgeSerial,
    fetching: Option<Fetching>,
    kept: Option<Arc<Kept>>,
    is_revalidating: bool,
    /// Whether the head of the answer has come.
    is_decided: bool,
    writer: Option<Writer>,
    is_complete: bool,
    /// The stored response, which the server has confirmed.
    confirmed: Option<Box<Instead>>,
}

/// What the look into its cache has found for a request.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) slot: Key,
    pub(super) uses: u32,
    pub(super) fetching: Option<Fetching>,
    pub(super) kept: Option<Arc<Kept>>,
    /// Whether the answer may be kept at all.
    pub(super) may_store: bool,
}

impl Keeping {
    pub(super) fn new(question: &super::Question, start: Start) -> Self {
        let Start { slot, uses, fetching, kept, may_store } = start;
        Self {
            cache: Arc::clone(&question.cache),
            main: question.key,
            slot,
            caching: Arc::clone(&question.caching),
            asked: Arc::clone(&question.asked),
            rules: Rc::clone(&question.rules),
            uses,
            asked_at: question.cache.purge_serial(),
            fetching,
            kept,
            is_revalidating: false,
            is_decided: !may_store,
            writer: None,
            is_complete: false,
            confirmed: None,
        }
    }

    /// Asks whether the answer that is kept is still valid, where that is wanted.
    pub(super) fn add_validators(&mut self, pairs: &mut Fields) {
        if let Some(kept) = self.kept.as_deref().filter(|_| self.caching.revalidate) {
            self.is_revalidating = push_validators(&kept.entry.fields, pairs);
        }
    }

    /// Whether the fetch is useful even if its client has gone.
    pub(in crate::upstream) const fn goes_on(&self) -> bool {
        !self.is_decided || self.writer.is_some()
    }

    /// Whether the answer is being kept.
    pub(in crate::upstream) const fn is_storing(&self) -> bool {
        self.writer.is_some()
    }

    /// What the machine has to know of the stored response; `wall` is a moment, and the wall clock then.
    pub(in crate::upstream) fn stored(&self, wall: (Moment, i64)) -> Option<Stored> {
        let kept = self.kept.as_deref()?;
        Some(Stored {
            lifetime: kept.entry.lifetime,
            use_stale: self.caching.use_stale,
            is_revalidating: self.is_revalidating,
            wall,
        })
    }

    fn instead(&mut self, status: CacheStatus, lifetime: Option<Lifetime>) -> Option<Box<Instead>> {
        self.is_decided = true;
        let (slot, fetching) = ((self.slot, self.asked_at), self.fetching.take());
        let kept = self.kept.clone()?;
        Some(Box::new(Instead { kept, status, lifetime, slot, fetching }))
    }

    /// The stored response, which is given though it is stale.
    pub(in crate::upstream) fn take_stale(&mut self) -> Option<Box<Instead>> {
        self.instead(CacheStatus::Stale, None)
    }

    /// The head of a server's response says that the stored one is still valid.
    pub(in crate::upstream) fn confirm(&mut self, head: &ResponseHead, wall_secs: i64) {
        let Some(kept) = self.kept.as_deref() else { return };
        let lifetime = revalidated(&self.caching.rules, &kept.head, head, wall_secs).ok();
        self.confirmed = self.instead(CacheStatus::Revalidated, lifetime);
    }

    pub(in crate::upstream) const fn take_confirmed(&mut self) -> Option<Box<Instead>> {
        self.confirmed.take()
    }

    /// The answer goes to the client: it is kept, too, if it may.
    pub(in crate::upstream) fn begin(&mut self, head: &ResponseHead, wall_secs: i64) {
        if std::mem::replace(&mut self.is_decided, true) {
            return;
        }
        let Rules { method, is_authorized, is_refused, key: text } = &*self.rules;
        let candidate = Candidate {
            method: *method,
            is_authorized: *is_authorized,
            is_refused: *is_refused,
            uses: self.uses,
            status: head.status,
            fields: &head.fields,
        };
        let Ok(lifetime) = may_store(&self.caching.rules, &candidate, wall_secs) else {
            // Others need not wait for it.
            self.fetching = None;
            return;
        };
        let vary =
            if self.caching.rules.ignored.vary { Vec::new() } else { key::vary(&head.fields) };
        let variant = if vary.is_empty() {
            self.main
        } else {
            self.main.variant(&vary, |name| self.asked.get(name))
        };
        if self.slot != self.main {
            self.slot = variant;
        }
        let mut fields = head.fields.clone();
        if let Some(length) = head.content_length.filter(|_| !head.has_body) {
            // Of the body that a GET would get.
            fields.push_number("Content-Length", length);
        }
        let entry = Entry {
            key: text.to_vec(),
            vary,
            variant: variant.0,
            lifetime,
            status: head.status,
            fields,
            body_bytes: 0,
            body_checksum: 0,
        };
        self.writer = Writer::new(&self.cache, self.slot, self.asked_at, entry);
    }

    pub(in crate::upstream) fn push(&mut self, bytes: &[u8]) {
        if let Some(writer) = self.writer.as_mut().filter(|_| !bytes.is_empty()) {
            writer.push(bytes);
        }
    }

    /// Ready when more of the body may come.
    pub(in crate::upstream) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.writer {
            Some(writer) => writer.poll_room(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// The answer is complete.
    pub(in crate::upstream) const fn complete(&mut self) {
        self.is_complete = self.writer.is_some();
    }

    /// The answer is of no use, or was cut: nothing is kept of it.
    pub(in crate::upstream) fn abandon(&mut self) {
        self.is_decided = true;
        if !self.is_complete {
            self.writer = None;
        }
        if self.writer.is_none() {
            self.fetching = None;
        }
    }

    /// Whether an entry is about to get its name.
    pub(in crate::upstream) const fn is_finishing(&self) -> bool {
        self.is_complete
    }

    /// Ready when the entry has its name.
    pub(in crate::upstream) fn poll_finish(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
    ) -> Poll<io::Result<()>> {
        let Some(writer) = &mut self.writer else { return Poll::Ready(Ok(())) };
        let result = std::task::ready!(writer.poll_finish(cx, &mut self.fetching, now));
        (self.writer, self.is_complete, self.fetching) = (None, false, None);
        Poll::Ready(result)
    }
}
