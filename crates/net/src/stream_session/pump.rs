//! Bytes and datagrams on their way: from the client to the server and back, as far as both take them. What one side
//! does not take holds the other back. Between two plain TCP sockets long transfers pass through a pipe, within the
//! kernel.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_handler::task::rest;
use sekisho_http::Status;
use sekisho_http::upstream::{Failure, Phase};
use sekisho_lifecycle::{CloseReason, Moment};

use super::pipe::{PIPE_BYTES, Pipe};
use super::{Client, Over, StreamSession};
use crate::transport::Transport;

/// So much passes in one turn before others have theirs.
const TURN_BYTES: usize = 1 << 20;
/// A direction that has carried so much is likely to carry more: it is worth a pipe.
const SPLICE_AFTER_BYTES: u64 = 64 << 10;
/// No datagram is longer.
const DATAGRAM_BYTES: usize = 64 << 10;

/// One direction of a session.
#[derive(Debug)]
pub(super) struct Direction {
    /// What was read and has not been taken: from `sent` on.
    pub(super) buffer: Vec<u8>,
    sent: usize,
    /// The same within the kernel.
    pipe: Option<Pipe>,
    /// How much has been read.
    pub(super) bytes: u64,
    /// The source has ended.
    pub(super) has_ended: bool,
    /// The other side has been told so.
    is_shut: bool,
    /// Bytes a second; 0 for no limit.
    pub(super) rate: u64,
    /// Since when that is reckoned, and when reading may go on.
    pub(super) since: Moment,
    pub(super) resumes: Option<Moment>,
}

impl Direction {
    pub(super) const fn new(now: Moment) -> Self {
        Self {
            buffer: Vec::new(),
            sent: 0,
            pipe: None,
            bytes: 0,
            has_ended: false,
            is_shut: false,
            rate: 0,
            since: now,
            resumes: None,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    fn is_empty(&self) -> bool {
        self.buffer.len() == self.sent && self.pipe.as_ref().is_none_or(|pipe| pipe.filled == 0)
    }

    fn waiting(&self) -> &[u8] {
        &self.buffer[self.sent..]
    }

    /// So much was taken. An empty buffer is given up: a session that rests has none.
    fn taken(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.buffer.len() {
            self.buffer.clear();
            self.sent = 0;
        }
    }

    /// How much may be read now; where nothing may, when that changes is noted.
    fn allowance(&mut self, most: usize, now: Moment) -> usize {
        if self.rate == 0 {
            return most;
        }
        if self.resumes.is_some_and(|at| !at.is_due(now)) {
            return 0;
        }
        let elapsed = now.since(self.since).as_millis() + 1000;
        let earned = u128::from(self.rate) * elapsed / 1000;
        let left = earned.saturating_sub(u128::from(self.bytes));
        if left == 0 {
            let ahead = u128::from(self.bytes) - earned + 1;
            let millis = (ahead * 1000 / u128::from(self.rate) + 1).min(60_000) as u64;
            self.resumes = Some(now + Duration::from_millis(millis));
            return 0;
        }
        self.resumes = None;
        most.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// So much was read: the next comes when the rate has caught up with it, as in nginx.
    fn note_read(&mut self, count: usize, now: Moment) {
        self.bytes += count as u64;
        if let Some(millis) = (count as u64 * 1000).checked_div(self.rate) {
            self.resumes = Some(now + Duration::from_millis(millis));
        }
    }
}

/// What a step of a direction came to.
enum Step {
    /// Something passed.
    Moved(usize),
    /// Nothing can pass now.
    Waits,
    /// All that the source sent has been taken, and no more will come.
    Ended,
}

impl StreamSession {
    /// Reads what the client has sent behind what waits, up to so much in all; 0 is the end.
    pub(super) fn read_client(&mut self, most: usize) -> Poll<io::Result<usize>> {
        let Self { client, up, .. } = self;
        let filled = up.buffer.len();
        if filled >= most {
            return Poll::Pending;
        }
        up.buffer.resize(most, 0);
        let read = client.read(&mut up.buffer[filled..]);
        let count = if let Poll::Ready(Ok(count)) = read { count } else { 0 };
        up.buffer.truncate(filled + count);
        up.bytes += count as u64;
        up.has_ended |= matches!(read, Poll::Ready(Ok(0) | Err(_)));
        read
    }

    /// `return`: the value, and then the end.
    pub(super) fn answer(&mut self, now: Moment) -> Poll<Over> {
        while !self.down.is_empty() {
            match self.client.send(self.down.waiting()) {
                Poll::Ready(Ok(count)) => {
                    self.down.taken(count);
                    self.down.bytes += count as u64;
                    self.active = now;
                }
                Poll::Ready(Err(_)) => {
                    return Poll::Ready(Over::new(Status::OK, CloseReason::TransportLost));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Over::new(Status::OK, CloseReason::ByConfiguration))
    }

    /// Moves what can be moved.
    pub(super) fn relay(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Over> {
        if self.facts.is_udp {
            return self.relay_datagrams(cx, now);
        }
        let mut budget = TURN_BYTES;
        loop {
            let up = self.step_up(cx, now);
            let down = self.step_down(cx, now);
            let mut moved = 0;
            for step in [&up, &down] {
                match step {
                    Err(over) => return Poll::Ready(*over),
                    Ok(Step::Moved(count)) => moved += (*count).max(1),
                    Ok(Step::Waits | Step::Ended) => {}
                }
            }
            if moved > 0 {
                self.active = now;
            }
            let (is_up_over, is_down_over) =
                (matches!(up, Ok(Step::Ended)), matches!(down, Ok(Step::Ended)));
            let is_over = if self.settings.half_close {
                is_up_over && is_down_over
            } else {
                is_up_over || is_down_over
            };
            if is_over {
                return Poll::Ready(Over::well());
            }
            budget = budget.saturating_sub(moved);
            if moved == 0 {
                return Poll::Pending;
            }
            if budget == 0 {
                return rest(cx);
            }
        }
    }

    /// From the client to the server.
    fn step_up(&mut self, cx: &mut Context<'_>, now: Moment) -> Result<Step, Over> {
        let Some(server) = &mut self.server else { return Ok(Step::Waits) };
        let up = &mut self.up;
        if let Some(pipe) = up.pipe.as_mut().filter(|pipe| pipe.filled > 0) {
            return match server.splice_out(cx, pipe.output(), pipe.filled) {
                Poll::Ready(Ok(count)) => {
                    pipe.filled -= count.min(pipe.filled);
                    Ok(Step::Moved(count))
                }
                Poll::Ready(Err(_)) => Err(server_lost()),
                Poll::Pending => Ok(Step::Waits),
            };
        }
        if !up.waiting().is_empty() {
            return match server.write(cx, up.waiting()) {
                Poll::Ready(Ok(count)) => {
                    up.taken(count);
                    Ok(Step::Moved(count))
                }
                Poll::Ready(Err(_)) => Err(server_lost()),
                Poll::Pending => Ok(Step::Waits),
            };
        }
        if up.has_ended {
            match server.flush(cx) {
                Poll::Pending => return Ok(Step::Waits),
                Poll::Ready(Err(_)) => return Err(server_lost()),
                Poll::Ready(Ok(())) => {}
            }
            if self.settings.half_close && !std::mem::replace(&mut up.is_shut, true) {
                server.shut_down_write();
            }
            return Ok(Step::Ended);
        }
        let most = up.allowance(self.settings.buffer_bytes, now);
        if most == 0 {
            return Ok(Step::Waits);
        }
        if up.rate == 0
            && up.bytes >= SPLICE_AFTER_BYTES
            && server.can_splice()
            && let Client::Stream(client) = &mut self.client
            && client.capabilities().splice
        {
            if up.pipe.is_none() {
                up.pipe = self.worker.pipes.borrow();
            }
            if let Some(pipe) = &mut up.pipe {
                return match client.splice_in(pipe.input(), PIPE_BYTES) {
                    Poll::Ready(Ok(0)) => {
                        up.has_ended = true;
                        Ok(Step::Moved(0))
                    }
                    Poll::Ready(Ok(count)) => {
                        pipe.filled += count;
                        up.bytes += count as u64;
                        Ok(Step::Moved(count))
                    }
                    Poll::Ready(Err(_)) => Err(client_lost()),
                    Poll::Pending => Ok(Step::Waits),
                };
            }
        }
        match self.read_client(most) {
            Poll::Ready(Ok(count)) => {
                // It has been counted already.
                self.up.note_read(count, now);
                self.up.bytes -= count as u64;
                Ok(Step::Moved(count))
            }
            Poll::Ready(Err(_)) => Err(client_lost()),
            Poll::Pending => {
                self.up.buffer = Vec::new();
                Ok(Step::Waits)
            }
        }
    }

    /// From the server to the client.
    fn step_down(&mut self, cx: &mut Context<'_>, now: Moment) -> Result<Step, Over> {
        let Some(server) = &mut self.server else { return Ok(Step::Waits) };
        let down = &mut self.down;
        if let Some(pipe) = down.pipe.as_mut().filter(|pipe| pipe.filled > 0)
            && let Client::Stream(client) = &mut self.client
        {
            return match client.splice_out(pipe.output(), pipe.filled) {
                Poll::Ready(Ok(count)) => {
                    pipe.filled -= count.min(pipe.filled);
                    Ok(Step::Moved(count))
                }
                Poll::Ready(Err(_)) => Err(client_lost()),
                Poll::Pending => Ok(Step::Waits),
            };
        }
        if !down.waiting().is_empty() {
            return match self.client.send(down.waiting()) {
                Poll::Ready(Ok(count)) => {
                    down.taken(count);
                    Ok(Step::Moved(count))
                }
                Poll::Ready(Err(_)) => Err(client_lost()),
                Poll::Pending => Ok(Step::Waits),
            };
        }
        if down.has_ended {
            if self.settings.half_close && !std::mem::replace(&mut down.is_shut, true) {
                self.client.shut_down_write();
            }
            return Ok(Step::Ended);
        }
        let most = down.allowance(self.settings.buffer_bytes, now);
        if most == 0 {
            return Ok(Step::Waits);
        }
        let is_spliced = down.rate == 0
            && down.bytes >= SPLICE_AFTER_BYTES
            && server.can_splice()
            && self.client.can_splice();
        if is_spliced && down.pipe.is_none() {
            down.pipe = self.worker.pipes.borrow();
        }
        if let Some(pipe) = down.pipe.as_mut().filter(|_| is_spliced) {
            return match server.splice_in(cx, pipe.input(), PIPE_BYTES, now) {
                Poll::Ready(Ok(0)) => {
                    down.has_ended = true;
                    Ok(Step::Moved(0))
                }
                Poll::Ready(Ok(count)) => {
                    pipe.filled += count;
                    down.bytes += count as u64;
                    Ok(Step::Moved(count))
                }
                Poll::Ready(Err(_)) => Err(server_lost()),
                Poll::Pending => Ok(Step::Waits),
            };
        }
        // All spare room is filled.
        if down.buffer.capacity() != most {
            down.buffer = Vec::with_capacity(most);
        }
        match server.read(cx, &mut down.buffer, now) {
            Poll::Ready(Ok(0)) => {
                down.has_ended = true;
                Ok(Step::Moved(0))
            }
            Poll::Ready(Ok(count)) => {
                down.note_read(count, now);
                Ok(Step::Moved(count))
            }
            Poll::Ready(Err(_)) => Err(server_lost()),
            Poll::Pending => {
                down.buffer = Vec::new();
                Ok(Step::Waits)
            }
        }
    }

    /// Datagrams go one by one. Their number says when a session is over.
    fn relay_datagrams(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Over> {
        let Client::Datagrams(client) = &self.client else { return Poll::Pending };
        let inbox = std::rc::Rc::clone(&client.inbox);
        let Some(server) = &mut self.server else { return Poll::Pending };
        while self.up.allowance(1, now) > 0
            && let Some(datagram) = inbox.take()
        {
            self.requests += 1;
            self.up.note_read(datagram.len(), now);
            self.active = now;
            if let Poll::Ready(Err(error)) = server.write(cx, &datagram) {
                server.blame(Failure::Lost(error.raw_os_error()), Phase::Sending, now);
                return Poll::Ready(Over::new(Status::BAD_GATEWAY, CloseReason::BrokenOff));
            }
        }
        if self.has_all_responses() {
            return Poll::Ready(Over::well());
        }
        let mut budget = TURN_BYTES;
        loop {
            let Some(server) = &mut self.server else { return Poll::Pending };
            if self.down.allowance(1, now) == 0 {
                return Poll::Pending;
            }
            self.down.buffer.clear();
            self.down.buffer.reserve(DATAGRAM_BYTES);
            match server.read(cx, &mut self.down.buffer, now) {
                Poll::Ready(Ok(count)) => {
                    self.responses += 1;
                    if let Some(silence) = &mut self.silence {
                        self.worker.silent_servers.note_answer(silence, now);
                    }
                    self.down.note_read(count, now);
                    self.active = now;
                    budget = budget.saturating_sub(count.max(1));
                    let _ = self.client.send(&self.down.buffer);
                }
                Poll::Ready(Err(error)) => {
                    server.blame(Failure::Lost(error.raw_os_error()), Phase::ReadingHead, now);
                    return Poll::Ready(Over::new(Status::BAD_GATEWAY, CloseReason::BrokenOff));
                }
                Poll::Pending => {
                    self.down.buffer = Vec::new();
                    return Poll::Pending;
                }
            }
            if self.has_all_responses() {
                return Poll::Ready(Over::well());
            }
            if budget == 0 {
                return rest(cx);
            }
        }
    }

    fn has_all_responses(&self) -> bool {
        let (requests, responses) = (self.settings.requests_max, self.settings.responses_max);
        requests.is_none_or(|max| self.requests >= max)
            && responses.is_some_and(|each| self.responses >= each * self.requests)
    }

    /// `proxy_timeout`: for datagrams it is the ordinary end, unless an answer is missing.
    pub(super) fn expire_relaying(&mut self, reason: CloseReason, now: Moment) -> Over {
        if !self.facts.is_udp {
            let message = format_args!("connection timed out (110: Connection timed out)");
            self.report(sekisho_config::Level::Info, message, now);
            return Over::new(Status::OK, reason);
        }
        let wanted = self.settings.responses_max;
        if wanted.is_none_or(|each| self.responses >= each * self.requests) {
            return Over::well();
        }
        if let Some(server) = &mut self.server {
            server.blame(Failure::ReadTimeout, Phase::ReadingHead, now);
        }
        Over::new(Status::BAD_GATEWAY, reason)
    }

    /// Pipes that are empty are for others while this session rests.
    pub(super) fn give_back_pipes(&mut self) {
        for direction in [&mut self.up, &mut self.down] {
            if direction.pipe.as_ref().is_some_and(|pipe| pipe.filled == 0)
                && let Some(pipe) = direction.pipe.take()
            {
                self.worker.pipes.give_back(pipe);
            }
        }
    }
}

impl Client {
    fn can_splice(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.capabilities().splice)
    }
}

/// The client is gone.
const fn client_lost() -> Over {
    Over::new(Status::OK, CloseReason::TransportLost)
}

/// The server has reset its side: so is the client's, that it is not taken for an ordinary end (C5).
const fn server_lost() -> Over {
    Over::new(Status::OK, CloseReason::BrokenOff)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many bytes pass in a time as the rate allows, and reading goes on when there is room again.
    #[test]
    fn a_rate_gives_leave_to_read_and_says_when_there_is_more() {
        let mut direction = Direction::new(Moment::ZERO);
        let at = Moment::from_millis;
        assert_eq!(direction.allowance(4096, at(0)), 4096, "no limit");
        direction.rate = 1000;
        assert_eq!(direction.allowance(4096, at(0)), 1000, "the first second is there at once");
        direction.note_read(1000, at(0));
        assert_eq!(direction.allowance(4096, at(0)), 0);
        assert_eq!(direction.resumes, Some(at(1000)));
        assert_eq!(direction.allowance(4096, at(999)), 0);
        assert_eq!(direction.allowance(4096, at(1000)), 1000);
        assert_eq!(direction.resumes, None);
        assert_eq!(direction.allowance(100, at(5000)), 100, "no more than there is room for");
    }
}
