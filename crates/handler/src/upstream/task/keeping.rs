//! What a request does for the cache of its location while it is passed on.

use std::io;
use std::task::{Context, Poll};

use sekisho_config::Level;
use sekisho_http::Fields;
use sekisho_http::upstream::Failure;
use sekisho_lifecycle::Moment;

use super::{Ending, Instead, Keeping, Stage, UpstreamTask};
use crate::cgi::HandlerContext;

/// Something could not be written, so that it is not kept; the client has it all the same.
pub(super) fn report_unkept(context: &dyn HandlerContext, error: &io::Error) {
    context.report(Level::Crit, format_args!("cannot keep an answer in the cache: {error}"));
}

impl UpstreamTask {
    /// The fields of the request that is sent; before it is.
    pub(in crate::upstream) fn pairs_mut(&mut self) -> &mut Fields {
        &mut self.parts.plan.pairs
    }

    pub(in crate::upstream) fn keep_by(&mut self, keeping: Keeping) {
        self.parts.keeping = Some(Box::new(keeping));
    }

    pub(in crate::upstream) fn keeping_mut(&mut self) -> Option<&mut Keeping> {
        self.parts.keeping.as_deref_mut()
    }

    pub(in crate::upstream) fn take_instead(&mut self) -> Option<Instead> {
        self.parts.keeping.as_mut()?.take_instead()
    }

    pub(in crate::upstream) fn put_back(&mut self, instead: Instead) {
        if let Some(keeping) = &mut self.parts.keeping {
            keeping.put_back(instead);
        }
    }

    /// Whether it is useful even if its client has gone.
    pub(in crate::upstream) fn goes_on_alone(&self) -> bool {
        let keeps = self.parts.keeping.as_deref().is_some_and(Keeping::goes_on);
        let is_wanted = keeps || self.parts.pass.forward.ignore_client_abort;
        self.is_storing() || (is_wanted && self.has_request())
    }

    /// Whether an answer that was kept is given as no server could answer.
    pub(super) fn kept_stands_in(&mut self, failure: Failure) -> bool {
        let wall_secs = self.parts.context.wall_secs();
        let keeping = self.parts.keeping.as_deref_mut();
        keeping.is_some_and(|keeping| keeping.stands_in(failure, wall_secs))
    }

    /// Whether an answer that was kept is given instead of the one that has come.
    pub(super) fn gives_kept(&mut self) -> bool {
        let Stage::Exchanging(_, exchange) = &self.parts.stage else { return false };
        let Some(keeping) = &mut self.parts.keeping else { return false };
        let wall_secs = self.parts.context.wall_secs();
        match keeping.replaces(&exchange.work.scratch.head, wall_secs) {
            None => false,
            // A 304 has no body: its end comes next, and its connection is kept.
            Some(false) => true,
            Some(true) => {
                self.finish_early(Ending::Break);
                true
            }
        }
    }

    pub(super) fn keep_bytes(&mut self, bytes: &[u8]) {
        if let Some(keeping) = &mut self.parts.keeping {
            keeping.push(bytes);
        }
    }

    /// Whether the entry of a complete answer is still without its name.
    pub(super) fn is_storing(&self) -> bool {
        self.parts.keeping.as_deref().is_some_and(Keeping::is_finishing)
    }

    /// Ready when the entry of a complete answer has its name.
    pub(super) fn poll_stored(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<()> {
        let Some(keeping) = &mut self.parts.keeping else { return Poll::Ready(()) };
        let stored = std::task::ready!(keeping.poll_finish(cx, now));
        if let Err(error) = stored {
            report_unkept(&*self.parts.context, &error);
        }
        Poll::Ready(())
    }
}
