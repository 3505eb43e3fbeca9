//! A request body on its way from the transport into the memory that its task has for it, without passing through
//! the engine and its buffers.

use std::io;
use std::task::{Context, Poll};

use sekisho_handler::task::{BodySink, rest};
use sekisho_lifecycle::Moment;

use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::transport::ClientTransport;

/// So much of a body is taken before other sessions get their turn.
const TURN_BYTES: u64 = 4 << 20;

impl<T: ClientTransport> Connection<T> {
    /// Takes what there is of a body directly into its task's memory. `Ready(None)` when this body, or what is
    /// left of it, goes through the engine.
    #[inline(never)]
    pub(crate) fn take_direct_body(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
    ) -> Poll<io::Result<Option<u64>>> {
        let Some(at) = self.exchanges.places().find(|at| self.may_be_direct(*at)) else {
            return Poll::Ready(Ok(None));
        };
        let Self { transport, link, exchanges, .. } = self;
        let Some(exchange) = exchanges.get_mut(at) else { return Poll::Ready(Ok(None)) };
        let wanted = link.protocol.direct_body(exchange.id);
        let Some(task) = &mut exchange.task else { return Poll::Ready(Ok(None)) };
        let (taken, end) = match task.body_sink(cx) {
            BodySink::Memory([]) => {
                exchange.awaits_room = true;
                link.protocol.hold_body(exchange.id, true, now);
                return Poll::Pending;
            }
            BodySink::Memory(_) => exchange.read_body(cx, transport, wanted),
            BodySink::Ordinary => return Poll::Ready(Ok(None)),
        };
        let id = exchange.id;
        if taken > 0 {
            link.protocol.body_taken(id, taken, now);
            self.active = now;
            self.received += taken;
        }
        match end {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending if taken == 0 => Poll::Pending,
            _ if taken >= TURN_BYTES && self.link.protocol.direct_body(id) > 0 => rest(cx),
            // Zero is the end of the stream, which reaches the engine in the ordinary way.
            _ if taken == 0 => Poll::Ready(Ok(None)),
            _ => Poll::Ready(Ok(Some(taken))),
        }
    }

    fn may_be_direct(&self, at: usize) -> bool {
        let is_all_taken =
            self.link.buffers.as_ref().is_none_or(|buffers| buffers.unread().is_empty());
        self.exchanges.get(at).is_some_and(|exchange| {
            exchange.task.is_some()
                && exchange.body.is_empty()
                && is_all_taken
                && self.link.protocol.direct_body(exchange.id) > 0
        })
    }
}

impl Exchange {
    /// Takes what there is of a body into the memory that the task has for it: how much, and why no more.
    fn read_body<T: ClientTransport>(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut T,
        wanted: u64,
    ) -> (u64, Poll<io::Result<()>>) {
        let Some(task) = &mut self.task else { return (0, Poll::Ready(Ok(()))) };
        let mut taken = 0;
        let end = loop {
            let BodySink::Memory(room) = task.body_sink(cx) else { break Poll::Ready(Ok(())) };
            let left = wanted.min(TURN_BYTES).saturating_sub(taken);
            let most = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if most == 0 {
                break Poll::Ready(Ok(()));
            }
            match transport.read(&mut room[..most]) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Ok(0)) => break Poll::Ready(Ok(())),
                Poll::Ready(Ok(count)) => {
                    taken += count as u64;
                    self.received += count as u64;
                    task.direct_bytes_done(count as u64);
                }
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
            }
        };
        (taken, end)
    }
}
