//! How the request to a group comes to its end, and what becomes of its connection and of what follows the body.

use sekisho_http::upstream::is_trailer;
use sekisho_http::{Fields, Version};
use sekisho_lifecycle::Moment;

use super::{Ending, Parts, Stage, UpstreamTask};
use crate::task::Outbox;
use crate::upstream::exchange::Exchange;

impl UpstreamTask {
    pub(super) fn end(&mut self, ending: Ending) {
        if let Some(keeping) = &mut self.parts.keeping {
            keeping.abandon();
        }
        self.leave();
        self.ending = Some(ending);
    }

    /// Lets the exchange go. Its connection can be used again only where the protocol can say that the answer is not
    /// wanted any more.
    pub(super) fn leave(&mut self) {
        if matches!(self.parts.stage, Stage::Ended) {
            return;
        }
        if let Stage::Exchanging(peer, exchange) =
            std::mem::replace(&mut self.parts.stage, Stage::Ended)
        {
            self.count(&exchange);
            let now = self.parts.context.now();
            let Parts { pools, group, manner, .. } = &self.parts;
            let (connection, work) = exchange.cancel(now);
            pools.give_back(work);
            if let Some(connection) = connection {
                pools.keep(group, *manner, peer, connection, now);
            }
        }
    }

    fn count(&mut self, exchange: &Exchange) {
        (self.counts.received, self.counts.sent) = (exchange.received, exchange.sent);
    }

    /// The rest of the answer is of no use.
    pub(super) fn finish_early(&mut self, ending: Ending) {
        let now = self.parts.context.now();
        self.parts.machine.finished(&self.parts.group.balancer, now);
        self.end(ending);
    }

    /// The answer is complete: the connection may serve another request.
    pub(super) fn finish(&mut self, now: Moment) {
        if let Some(keeping) = &mut self.parts.keeping {
            keeping.complete();
        }
        self.parts.machine.finished(&self.parts.group.balancer, now);
        if let Stage::Exchanging(peer, mut exchange) =
            std::mem::replace(&mut self.parts.stage, Stage::Ended)
        {
            self.count(&exchange);
            std::mem::swap(&mut self.trailers, &mut exchange.work.scratch.trailers);
            let Parts { pools, group, manner, .. } = &self.parts;
            let (connection, work) = exchange.settle(now);
            pools.give_back(work);
            if let Some(connection) = connection {
                pools.keep(group, *manner, peer, connection, now);
            }
        }
        let instead = self.parts.keeping.as_mut().and_then(|keeping| keeping.take_confirmed());
        self.ending = Some(instead.map_or(Ending::Done, Ending::ServeStored));
    }

    /// Says whether fields may follow the body of the answer that has begun.
    pub(super) fn expect_trailers(&self, out: &mut Outbox) {
        let Stage::Exchanging(_, exchange) = &self.parts.stage else { return };
        let head = &exchange.work.scratch.head;
        // With HTTP/1 only a body in chunks has trailers.
        let may_follow = head.version == Version::Http2 || head.content_length.is_none();
        if self.parts.pass.forward.pass_trailers && head.has_body && may_follow {
            out.trailers = Some(Fields::default());
        }
    }

    /// What followed the body, as far as the client is to have it.
    pub(super) fn passed_trailers(&self) -> Fields {
        let visible = &self.parts.pass.forward.visible;
        let fields = self.trailers.iter();
        fields.filter(|(name, _)| is_trailer(name) && visible.has(name)).collect()
    }
}
