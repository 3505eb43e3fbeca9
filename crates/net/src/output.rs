//! The output of a connection: what the engine has framed is sent, then bodies are pulled from the requests in
//! work, as much as the transport, the protocol and the pace of each allow. The one place that decides whether a
//! file leaves without being read.

use std::io;
use std::task::{Poll, ready};

use rustix::io::pread;
use sekisho_handler::Piece;
use sekisho_handler::memory::{self, Class, RESPONSE_BYTES_MIN};
use sekisho_lifecycle::Moment;

use crate::connection::Connection;
use crate::drive::Budget;
use crate::exchange::Exchange;
use crate::link::Link;
use crate::transport::ClientTransport;

/// Files from this size on are sent corked: the kernel splices them in pieces of 64 KiB, and without the
/// cork the odd bytes at the end of each would leave as a segment of their own.
const CORK_BYTES: u64 = 512 << 10;
/// A client that has taken this much of files is no slow reader.
const TRUST_BYTES: u64 = 1 << 20;
/// A file that is read on its way out is read in portions of this size.
const READ_BYTES: u64 = 64 << 10;

/// The result of pulling from one request.
enum Pulled {
    /// Something was framed or sent, or the request is over.
    Moved,
    /// Nothing may leave now.
    Nothing,
    /// A stretch of a file is next, which the transport can send by itself.
    File,
}

impl<T: ClientTransport> Connection<T> {
    /// Sends all there is. `Pending` with no file bytes left in the budget means that others shall have a turn.
    pub(crate) fn write_out(&mut self, now: Moment, budget: &mut Budget) -> Poll<io::Result<()>> {
        if self.flags.is_delayed == self.link.no_delay {
            self.flags.is_delayed = !self.link.no_delay;
            self.transport.set_no_delay(self.link.no_delay);
        }
        loop {
            ready!(self.send_framed(now))?;
            if !self.pull(now, budget)? {
                break;
            }
        }
        if let Some(datagrams) = self.transport.datagrams() {
            ready!(datagrams.flush())?;
        }
        let is_waiting = self.exchanges.iter().any(|exchange| !exchange.pieces.is_empty());
        // Where several requests share the connection, one that waits for its turn delays no other.
        let is_shared = self.link.protocol.is_multiplexed() && budget.file_bytes > 0;
        if !is_waiting || is_shared {
            return Poll::Ready(Ok(()));
        }
        if budget.file_bytes > 0 && !self.transport.is_full() {
            // Nothing but our own pace, or the protocol's windows, holds it back.
            self.link.protocol.pause_output();
        }
        Poll::Pending
    }

    /// Sends what the engine has framed.
    fn send_framed(&mut self, now: Moment) -> Poll<io::Result<()>> {
        let is_shared = self.link.protocol.is_multiplexed();
        loop {
            if self.link.buffers.as_ref().is_none_or(|buffers| buffers.unsent().is_empty()) {
                return Poll::Ready(Ok(()));
            }
            // A body that a window holds back is no output: its stream has a deadline of its own (T4), and nothing
            // waits for it.
            let is_more = if is_shared {
                self.next_to_send().is_some()
            } else {
                self.exchanges.iter().any(|exchange| !exchange.pieces.is_empty())
            };
            let Some(buffers) = &mut self.link.buffers else { return Poll::Ready(Ok(())) };
            // The last bytes wait for the end of the stream, which comes at once: one packet for both.
            let is_last = self.link.protocol.ends_after_output();
            let Poll::Ready(sent) = self.transport.send(buffers.unsent(), is_more || is_last)
            else {
                self.link.protocol.transmitted(0, true, now);
                return Poll::Pending;
            };
            let sent = sent?;
            self.active = now;
            self.sent += sent as u64;
            let is_left = buffers.has_sent(sent);
            let is_pending = is_left || (is_more && !is_shared);
            self.link.protocol.transmitted(sent as u64, is_pending, now);
        }
    }

    /// Moves a portion of a body into the output, or sends a stretch of a file. Whether there may be more.
    fn pull(&mut self, now: Moment, budget: &mut Budget) -> io::Result<bool> {
        // A response that is held back by its pace leaves the turn to the next.
        while let Some(at) = self.next_to_send() {
            let Self { link, exchanges, transport, .. } = self;
            let Some(exchange) = exchanges.get_mut(at) else { return Ok(false) };
            let sends_files = exchange.sends_files
                && transport.capabilities().send_file
                && link.protocol.takes_files(exchange.id);
            let moved = match exchange.pull(link, sends_files, budget, now) {
                Pulled::Moved => true,
                Pulled::Nothing => false,
                Pulled::File => self.send_file(at, now, budget)?,
            };
            if moved {
                self.finish_pieces(at, now);
                return Ok(true);
            }
            let is_paused = self.exchanges.get(at).is_some_and(Exchange::is_paused);
            if !self.link.protocol.is_multiplexed() || !is_paused {
                return Ok(false);
            }
            if let Some(exchange) = self.exchanges.get(at) {
                self.link.protocol.set_ready(exchange.id, false, now);
            }
        }
        Ok(false)
    }

    /// The exchange that may send a part of its body next.
    fn next_to_send(&self) -> Option<usize> {
        if self.link.protocol.is_multiplexed() {
            return self.link.protocol.next_to_send().and_then(|id| self.exchanges.find(id));
        }
        let has_body = |at: &usize| self.exchanges.get(*at).is_some_and(|it| !it.pieces.is_empty());
        self.exchanges.places().find(has_body)
    }

    /// When the last piece has gone and no task makes more, the response is complete.
    fn finish_pieces(&mut self, at: usize, now: Moment) {
        let Self { link, exchanges, .. } = self;
        let Some(exchange) = exchanges.get_mut(at) else { return };
        if exchange.pieces.is_empty() && exchange.task.is_none() {
            exchange.finish(link, now);
            let pending = link.buffers.as_ref().is_some_and(|buffers| !buffers.unsent().is_empty());
            link.protocol.transmitted(0, pending, now);
        }
        self.settle(at);
    }

    /// Sends a stretch of a file without reading it; whether any byte left.
    fn send_file(&mut self, at: usize, now: Moment, budget: &mut Budget) -> io::Result<bool> {
        let Some(exchange) = self.exchanges.get_mut(at) else { return Ok(false) };
        let Some(Piece::File(file, range)) = exchange.pieces.front_mut() else { return Ok(false) };
        let Some(descriptor) = file.descriptor() else { return Ok(false) };
        let wanted = (range.end - range.start).min(budget.file_bytes);
        let count = exchange.pace.as_mut().map_or(wanted, |pace| pace.allow(wanted, now));
        if count == 0 {
            return Ok(false);
        }
        if !self.flags.is_corked && range.end - range.start >= CORK_BYTES && exchange.pace.is_none()
        {
            self.flags.is_corked = true;
            begin_long_file(&self.transport, &self.link);
        }
        let Poll::Ready(sent) = self.transport.send_file(descriptor, range.start, count as usize)
        else {
            self.link.protocol.transmitted(0, true, now);
            return Ok(false);
        };
        let sent = sent? as u64;
        self.active = now;
        if sent == 0 {
            // The file is shorter than its head said: the client must not take this for all.
            exchange.break_off(&mut self.link, now);
            return Ok(true);
        }
        range.start += sent;
        let is_done = range.is_empty();
        if let Some(pace) = &mut exchange.pace {
            pace.sent(sent);
        }
        budget.file_bytes -= sent;
        self.file_sent = self.file_sent.saturating_add(sent);
        if self.file_sent >= TRUST_BYTES && self.file_sent - sent < TRUST_BYTES {
            self.transport.lift_unsent_limit();
        }
        self.link.protocol.file_sent(exchange.id, sent);
        self.link.protocol.transmitted(sent, true, now);
        if is_done {
            exchange.pieces.pop_front();
            if std::mem::take(&mut self.flags.is_corked) {
                self.transport.cork(false);
            }
        }
        Ok(true)
    }
}

impl Exchange {
    /// Frames the next portion of the body, as far as the protocol and the pace allow.
    fn pull(
        &mut self,
        link: &mut Link,
        sends_files: bool,
        budget: &mut Budget,
        now: Moment,
    ) -> Pulled {
        if !link.has_room(false) || budget.file_bytes == 0 {
            return Pulled::Nothing;
        }
        let Some(piece) = self.pieces.front_mut() else { return Pulled::Nothing };
        if piece.is_empty() {
            self.pieces.pop_front();
            return Pulled::Moved;
        }
        if sends_files && piece.in_memory().is_none() {
            return Pulled::File;
        }
        let left = piece.len() - self.piece_sent;
        let is_full = memory::is_full(Class::Responses);
        let framed_max = if is_full { RESPONSE_BYTES_MIN as u64 } else { u64::MAX };
        let most = left.min(link.protocol.body_allowance(self.id)).min(framed_max);
        let most = self.pace.as_mut().map_or(most, |pace| pace.allow(most, now));
        if most == 0 {
            return Pulled::Nothing;
        }
        let moved = if let Some(bytes) = piece.in_memory() {
            let start = self.piece_sent as usize;
            let (protocol, buffers) = link.parts();
            let bytes = &bytes[start..start + most as usize];
            let taken = protocol.body(self.id, bytes, &mut buffers.scratch, now) as u64;
            if taken == 0 {
                // A window is full; the engine knows when it opens.
                return Pulled::Nothing;
            }
            self.piece_sent += taken;
            taken
        } else if let Piece::File(file, range) = piece {
            let mut read = link.worker.read_buffer.take();
            read.resize(most.min(READ_BYTES) as usize, 0);
            let count = file.descriptor().map(|file| pread(file, &mut *read, range.start));
            let count = count.and_then(Result::ok).unwrap_or(0);
            let (protocol, buffers) = link.parts();
            let taken = protocol.body(self.id, &read[..count], &mut buffers.scratch, now);
            link.worker.read_buffer.replace(read);
            if taken == 0 && count > 0 {
                return Pulled::Nothing;
            }
            range.start += taken as u64;
            taken as u64
        } else {
            0
        };
        let is_done = self.piece_sent >= piece.len();
        if moved == 0 {
            // The file is shorter than its head said, or cannot be read: the client must see that.
            self.break_off(link, now);
            return Pulled::Moved;
        }
        if let Some(pace) = &mut self.pace {
            pace.sent(moved);
        }
        budget.file_bytes = budget.file_bytes.saturating_sub(moved);
        if is_done {
            self.pieces.pop_front();
            self.piece_sent = 0;
        }
        if self.pieces.is_empty() {
            self.share = None;
            link.protocol.set_ready(self.id, false, now);
        }
        Pulled::Moved
    }

    /// Whether its pace holds it back.
    fn is_paused(&self) -> bool {
        self.pace.as_ref().is_some_and(|pace| pace.resumes().is_some())
    }

    /// How many bytes of the body have not been framed or sent.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.pieces.iter().map(Piece::len).sum::<u64>() - self.piece_sent
    }
}

/// A long file begins to leave.
fn begin_long_file<T: ClientTransport>(transport: &T, link: &Link) {
    transport.cork(true);
    let remote = link.worker.sessions.borrow().slot(link.key).remote();
    let is_local = remote.is_some_and(|remote| remote.ip().to_canonical().is_loopback());
    // A connection that came in at a local address has it already.
    if is_local && !link.listener_context.is_local() {
        transport.stay_local();
    }
}
