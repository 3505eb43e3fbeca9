//! What a request does for the cache of its location while it is passed on.

use std::io;
use std::task::{Context, Poll};

use sekisho_config::Level;
use sekisho_http::Fields;
use sekisho_lifecycle::Moment;

use super::{Ending, Keeping, Stage, UpstreamTask};
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
        let wall = (self.parts.context.now(), self.parts.context.wall_secs());
        if let Some(stored) = keeping.stored(wall) {
            self.parts.machine.set_stored(stored);
        }
        self.parts.keeping = Some(Box::new(keeping));
    }

    /// Whether it is useful even if its client has gone.
    pub(in crate::upstream) fn goes_on_alone(&self) -> bool {
        let keeps = self.parts.keeping.as_deref().is_some_and(Keeping::goes_on);
        let is_wanted = keeps || self.parts.pass.forward.ignore_client_abort;
        self.is_storing() || (is_wanted && self.has_request())
    }

    /// The stored response is given: no server has a better one.
    pub(super) fn serve_stale(&mut self) {
        let stale = self.parts.keeping.as_mut().and_then(|keeping| keeping.take_stale());
        self.end(stale.map_or(Ending::Break, Ending::ServeStored));
    }

    /// The stored response is given as soon as the server's has ended, so that the connection can be kept.
    pub(super) fn serve_revalidated(&mut self) {
        let wall_secs = self.parts.context.wall_secs();
        let Some(keeping) = &mut self.parts.keeping else { return };
        match &self.parts.stage {
            Stage::Exchanging(_, exchange) if !self.parts.machine.is_over() => {
                keeping.confirm(&exchange.work.scratch.head, wall_secs);
            }
            // The connection was lost behind the head.
            _ => {
                let confirmed = keeping.take_confirmed();
                self.end(confirmed.map_or(Ending::Break, Ending::ServeStored));
            }
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
