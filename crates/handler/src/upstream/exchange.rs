//! One exchange with a server over one connection: bytes between the socket and the engine.

use std::io;
use std::task::{Context, Poll, ready};

use sekisho_config::Forward;
use sekisho_http::upstream::{Event, Request, RequestFault};
use sekisho_lifecycle::{Deadline, Moment, Share};
use sekisho_upstream::keepalive::Usage;

use super::body::Body;
use super::engine::Engine;
use super::pool::{Connection, INPUT_BYTES, Pools, Work};
use super::stream::Stream;
use crate::memory::{self, Class};

/// How much of a request body waits to leave, and how much where the share of request bodies is used up (O9).
const OUT_BYTES: usize = 64 * 1024;
const OUT_BYTES_MIN: usize = 8 * 1024;
/// How much of an answer's body is read at a time, where it need not be looked at.
const DIRECT_BYTES: usize = 128 * 1024;
/// Less than this is not worth a read of its own.
const DIRECT_MIN: usize = 4 * 1024;

/// What happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happened {
    /// This, with the bytes that it speaks of in [`Exchange::span`].
    Event(Event),
    /// So many bytes of the body have been appended to where they belong.
    Direct(usize),
    /// Bytes moved, and nothing is to be done about it.
    Moved,
}

/// An exchange.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Behind a pointer: it goes from here to the pool and back with each request.
    pub(super) connection: Box<Connection>,
    pub(super) work: Box<Work>,
    /// How much of the request body has been framed.
    body_at: u64,
    has_body_ended: bool,
    /// The server has closed its side.
    has_input_ended: bool,
    is_held: bool,
    /// Where the bytes of the last event lie in the input.
    base: usize,
    pub(super) received: u64,
    pub(super) sent: u64,
    /// The memory of what the server has not taken.
    share: Option<Share>,
}

impl Exchange {
    /// Over a new connection.
    pub(super) fn connected(stream: Stream, engine: Engine, work: Box<Work>, now: Moment) -> Self {
        let usage = Usage { requests: 0, opened: now };
        Self::over(Box::new(Connection { stream, engine, usage, unread: Vec::new() }), work)
    }

    /// Over a connection that was kept.
    pub(super) fn kept(
        mut connection: Box<Connection>,
        forward: &Forward,
        work: Box<Work>,
    ) -> Self {
        connection.engine.set_policy(forward);
        Self::over(connection, work)
    }

    fn over(mut connection: Box<Connection>, mut work: Box<Work>) -> Self {
        work.clear();
        work.input.append(&mut connection.unread);
        Self {
            connection,
            work,
            body_at: 0,
            has_body_ended: false,
            has_input_ended: false,
            is_held: false,
            base: 0,
            received: 0,
            sent: 0,
            share: None,
        }
    }

    /// Frames the head of the request.
    pub(super) fn start(&mut self, request: &Request<'_>, now: Moment) -> Result<(), RequestFault> {
        self.connection.usage.requests += 1;
        self.connection.engine.get_mut().start(request, &mut self.work.scratch, now)
    }

    /// Whether nothing waits to leave.
    pub(super) fn is_all_sent(&self) -> bool {
        self.work.sent == self.work.scratch.out.len()
    }

    /// Whether all of the request has been framed.
    pub(super) const fn is_request_framed(&self) -> bool {
        self.has_body_ended
    }

    /// Frames what there is of a body that does not come from the client.
    fn fill(&mut self, body: &Body, now: Moment) -> io::Result<()> {
        if matches!(body, Body::Stream(_)) {
            return Ok(());
        }
        let mut file = Vec::new();
        let max = out_bytes_max();
        while self.work.scratch.out.len() - self.work.sent < max {
            let bytes = body.bytes(self.body_at, max, &mut file)?;
            let engine = self.connection.engine.get_mut();
            if bytes.is_empty() {
                self.has_body_ended = true;
                // A body of a known length is whole here; what is not, has failed and says so.
                let _ = engine.end_body(&mut self.work.scratch, now);
                return Ok(());
            }
            let taken = engine.body(bytes, &mut self.work.scratch, now);
            self.body_at += taken as u64;
            if taken < bytes.len() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes body bytes from the client; says how many.
    pub(super) fn take(&mut self, bytes: &[u8], now: Moment) -> usize {
        if self.work.scratch.out.len() - self.work.sent >= out_bytes_max() {
            return 0;
        }
        self.connection.engine.get_mut().body(bytes, &mut self.work.scratch, now)
    }

    /// The client has sent all of it.
    pub(super) fn end_body(&mut self, now: Moment) -> Result<(), RequestFault> {
        if std::mem::replace(&mut self.has_body_ended, true) {
            return Ok(());
        }
        self.connection.engine.get_mut().end_body(&mut self.work.scratch, now)
    }

    /// Sends what can leave. Whether anything did.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        body: &Body,
        now: Moment,
    ) -> io::Result<bool> {
        let mut is_moved = false;
        loop {
            if !self.has_body_ended {
                self.fill(body, now)?;
            }
            let Work { scratch, sent, .. } = &mut *self.work;
            if *sent == scratch.out.len() {
                self.share = None;
                return match self.connection.stream.flush(cx) {
                    Poll::Ready(Err(error)) => Err(error),
                    _ => Ok(is_moved),
                };
            }
            let engine = self.connection.engine.get_mut();
            match self.connection.stream.write(cx, &scratch.out[*sent..]) {
                Poll::Pending => {
                    engine.transmitted(0, true, now);
                    memory::hold(&mut self.share, Class::RequestBodies, scratch.out.capacity());
                    return Ok(is_moved);
                }
                Poll::Ready(written) => {
                    let written = written?;
                    is_moved = true;
                    self.sent += written as u64;
                    *sent += written;
                    let is_empty = *sent == scratch.out.len();
                    if is_empty {
                        scratch.out.clear();
                        *sent = 0;
                    }
                    engine.transmitted(written as u64, !is_empty, now);
                }
            }
        }
    }

    /// The next thing that happens on the receiving side. Body bytes that need not be looked at go to `to`, at most
    /// `direct_max` of them. While nothing comes, no buffer is held. Output that the engine makes meanwhile is to be sent
    /// before more is received.
    pub(super) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        pools: &Pools,
        (to, direct_max): (&mut Vec<u8>, usize),
        now: Moment,
    ) -> Poll<io::Result<Happened>> {
        loop {
            let Work { scratch, input, taken, sent } = &mut *self.work;
            let engine = self.connection.engine.get_mut();
            let step = engine.receive(&input[*taken..], scratch, now);
            self.base = *taken;
            *taken += step.taken;
            if let Some(event) = step.event {
                return Poll::Ready(Ok(Happened::Event(event)));
            }
            if *taken == input.len() {
                input.clear();
                *taken = 0;
            }
            if step.taken > 0 {
                // The server may take more of the body now (HTTP/2: its window is open again).
                if *sent < scratch.out.len() || !self.has_body_ended {
                    return Poll::Ready(Ok(Happened::Moved));
                }
                continue;
            }
            if self.has_input_ended {
                return match engine.input_ended(now) {
                    Some(event) => Poll::Ready(Ok(Happened::Event(event))),
                    None => Poll::Pending,
                };
            }
            if self.connection.stream.poll_readable(cx).is_pending() {
                if input.is_empty() {
                    pools.give_back_input(std::mem::take(input));
                }
                return Poll::Pending;
            }
            let direct = engine.direct_body();
            let room = usize::try_from(direct).unwrap_or(usize::MAX);
            let room = room.min(DIRECT_BYTES).min(direct_max);
            if input.is_empty() && room >= DIRECT_MIN {
                return self.read_body(cx, (direct, room), to, now);
            }
            if *taken > 0 {
                input.drain(..*taken);
                *taken = 0;
            }
            if input.capacity() == 0 {
                *input = pools.borrow_input();
            }
            input.reserve(INPUT_BYTES);
            match ready!(self.connection.stream.read(cx, input))? {
                0 => self.has_input_ended = true,
                count => self.received += count as u64,
            }
        }
    }

    /// Reads body bytes to where they belong: `direct` of them need not be looked at, and there is `room` for some.
    fn read_body(
        &mut self,
        cx: &mut Context<'_>,
        (direct, room): (u64, usize),
        to: &mut Vec<u8>,
        now: Moment,
    ) -> Poll<io::Result<Happened>> {
        to.reserve(room);
        let count = ready!(self.connection.stream.read(cx, to))?;
        if count == 0 {
            self.has_input_ended = true;
            return Poll::Ready(Ok(Happened::Moved));
        }
        self.received += count as u64;
        // What was read behind the body is not the body's.
        let behind = (count as u64).saturating_sub(direct) as usize;
        let end = to.len() - behind;
        self.work.input.extend_from_slice(&to[end..]);
        to.truncate(end);
        self.connection.engine.get_mut().body_taken((count - behind) as u64, now);
        Poll::Ready(Ok(Happened::Direct(count - behind)))
    }

    /// Gives the input back where nothing of it is left; else only what is left of it stays in memory (O9).
    pub(super) fn give_back_input(&mut self, pools: &Pools) {
        let Work { input, taken, .. } = &mut *self.work;
        input.drain(..std::mem::take(taken));
        if input.is_empty() {
            pools.give_back_input(std::mem::take(input));
        } else {
            input.shrink_to_fit();
        }
    }

    /// The exchange is over: what the engine has to say leaves if it can at once, and what has come behind the answer is
    /// looked at, so that nothing of it is taken for the next one. The connection, if it may be used again.
    pub(super) fn settle(mut self, now: Moment) -> (Option<Box<Connection>>, Box<Work>) {
        let Work { scratch, input, taken, sent } = &mut *self.work;
        let engine = self.connection.engine.get_mut();
        loop {
            let step = engine.receive(&input[*taken..], scratch, now);
            *taken += step.taken;
            if step.is_rest() {
                break;
            }
        }
        let is_kept = engine.is_reusable()
            && !self.has_input_ended
            && self.connection.stream.send_at_once(&scratch.out[*sent..]);
        if is_kept {
            engine.transmitted((scratch.out.len() - *sent) as u64, false, now);
            self.connection.unread.extend_from_slice(&input[*taken..]);
        }
        (is_kept.then_some(self.connection), self.work)
    }

    /// The answer is not wanted any more. The same as [`Exchange::settle`] where the protocol can say so and go on.
    pub(super) fn cancel(mut self, now: Moment) -> (Option<Box<Connection>>, Box<Work>) {
        let can_go_on = self.connection.engine.get_mut().cancel(&mut self.work.scratch, now);
        if can_go_on { self.settle(now) } else { (None, self.work) }
    }

    /// Whether more of the answer is to come for now.
    pub(super) fn hold(&mut self, is_held: bool, now: Moment) {
        if self.is_held != is_held {
            self.is_held = is_held;
            self.connection.engine.get_mut().hold(is_held, now);
        }
    }

    /// The bytes that the last event speaks of.
    pub(super) fn span(&self, span: sekisho_http::upstream::Span) -> &[u8] {
        let range = span.range();
        self.work.input.get(self.base + range.start..self.base + range.end).unwrap_or_default()
    }

    /// The deadline of the engine.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        self.connection.engine.get().next_deadline()
    }
}

/// How much of a request body may wait to leave.
fn out_bytes_max() -> usize {
    if memory::is_full(Class::RequestBodies) { OUT_BYTES_MIN } else { OUT_BYTES }
}
