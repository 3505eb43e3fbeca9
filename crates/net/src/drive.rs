//! The loop: feed the engine, drain it, wait for bytes or a deadline.
//!
//! A connection has its turns (see `turns.rs`) and in between is nothing but a record: the stream, the
//! engine, and nothing else. Buffers ([`Busy`]) are borrowed from the worker while there is something to do.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sekisho_config::Level;
use sekisho_handler::Piece;
use sekisho_handler::memory;
use sekisho_handler::task::{Way, rest};
use sekisho_http1::{Event, Http1};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::session::Fact;
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Engine, Manner, Moment, Stage};

use crate::admission::{Admitted, TooMany};
use crate::busy::Busy;
use crate::session::{Key, Seat, Token, Wish};
use crate::stream::Stream;
use crate::worker::{Door, Worker};

/// So much of a file is sent before other sessions get their turn.
const FILE_TURN_BYTES: u64 = 2 << 20;
/// So many pipelined requests are answered before other sessions get their turn.
const TURN_REQUESTS: u32 = 128;
/// Files from this size on are sent corked: the kernel splices them in pieces of 64 KiB, and without the
/// cork the odd bytes at the end of each would leave as a segment of their own.
const CORK_BYTES: u64 = 512 << 10;
/// A client that has taken this much of a file is no slow reader.
const TRUST_BYTES: u64 = 1 << 20;
/// A client that was here so shortly ago may have sent its next request before it can know that we drain.
const DRAIN_QUIET: Duration = Duration::from_millis(100);

/// How long an answer may take to leave when the end is forced.
const FORCE_PATIENCE: Duration = Duration::from_secs(1);

/// A client's connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one connection")]
pub struct Connection {
    pub(crate) engine: Http1,
    pub(crate) busy: Option<Box<Busy>>,
    pub(crate) worker: Rc<Worker>,
    pub(crate) door: Rc<Door>,
    pub(crate) id: u64,
    pub(crate) key: Key,
    pub(crate) local: Option<IpAddr>,
    pub(crate) stream: Stream,
    #[expect(dead_code, reason = "counts the connection out when it is dropped")]
    admitted: Option<Box<Admitted>>,
    /// There are as many as there may be, which it is still to be told.
    is_one_too_many: bool,
    /// How many bytes have come, and how many have left beside those of files.
    pub(crate) received: u64,
    sent: u64,
    /// When bytes last moved.
    pub(crate) active: Moment,
    is_shut: bool,
    has_input_ended: bool,
    /// How much of files the client has been sent.
    file_sent: u64,
    is_corked: bool,
}

impl Connection {
    /// A connection that has just been accepted.
    pub fn new(
        worker: Rc<Worker>,
        door: Rc<Door>,
        stream: Stream,
        remote: Option<SocketAddr>,
        local: Option<IpAddr>,
    ) -> Self {
        let placed = door.placed();
        let policy = std::sync::Arc::clone(placed.site.first_policy(placed.listen(local)));
        let main = &placed.site.config().main;
        let admitted = worker.shared.admission.admit(main, remote.map(|remote| remote.ip()));
        let now = worker.clock.now();
        let engine = Http1::new(policy, now);
        let id = worker.next_connection();
        let seat = Seat::new(id, door.id, now, remote, worker.wish.get().max(door.wish.get()));
        let key = worker.sessions.borrow_mut().enter(seat);
        Self {
            engine,
            busy: None,
            worker,
            door,
            id,
            key,
            local,
            stream,
            is_one_too_many: matches!(admitted, Err(TooMany)),
            admitted: admitted.ok().flatten().map(Box::new),
            received: 0,
            sent: 0,
            active: now,
            is_shut: false,
            has_input_ended: false,
            file_sent: 0,
            is_corked: false,
        }
    }

    /// One turn: as far as bytes and answers go without waiting. `Ready` is the end.
    fn turn(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<CloseReason> {
        let mut requests_left = TURN_REQUESTS;
        let mut file_left = FILE_TURN_BYTES;
        loop {
            match self.flush(now, &mut file_left) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(CloseReason::TransportLost),
                Poll::Pending if file_left == 0 => {
                    return rest(cx);
                }
                Poll::Pending => {
                    self.hold_task(true, now);
                    if let Stage::Closed(reason) = self.engine.stage() {
                        return Poll::Ready(reason);
                    }
                    return Poll::Pending;
                }
            }
            match self.engine.stage() {
                Stage::Closed(reason) => return Poll::Ready(reason),
                Stage::Lingering if !self.is_shut => {
                    self.stream.shut_down_write();
                    self.is_shut = true;
                }
                Stage::Lingering | Stage::Open => {}
            }
            if self.feed(cx, now, &mut requests_left) || self.work(cx, now) {
                if requests_left == 0 {
                    requests_left = TURN_REQUESTS;
                    // The answers so far leave first; then the others have their turn.
                    if self.flush(now, &mut file_left).is_ready() {
                        return rest(cx);
                    }
                }
                continue;
            }
            if self.has_input_ended {
                return Poll::Pending;
            }
            let has_task = self.busy.as_ref().is_some_and(|busy| busy.task.is_some());
            let is_poured = has_task && self.is_poured(cx);
            if !(self.engine.wants_input() || (!is_poured && self.watches())) {
                if has_task && self.is_client_gone(is_poured) {
                    return Poll::Ready(CloseReason::TransportLost);
                }
                return Poll::Pending;
            }
            if has_task {
                match ready!(self.sluice_body(cx, now)) {
                    Ok(Some(_)) => continue,
                    Ok(None) => {}
                    Err(_) => return Poll::Ready(CloseReason::TransportLost),
                }
            }
            match ready!(self.read()) {
                Ok(0) => {
                    self.has_input_ended = true;
                    if let Some(event) = self.engine.input_ended(now) {
                        self.handle(&event, now);
                    }
                }
                Ok(count) => {
                    self.active = now;
                    self.received += count as u64;
                }
                Err(_) => return Poll::Ready(CloseReason::TransportLost),
            }
        }
    }

    /// Offers the engine what has been read, and handles what comes of it, until it rests, a batch is
    /// full or something must be sent before it can go on. Whether anything happened.
    fn feed(&mut self, cx: &mut Context<'_>, now: Moment, requests_left: &mut u32) -> bool {
        let mut happened = false;
        loop {
            let Some(busy) = &mut self.busy else { return happened };
            let is_full = !busy.pieces.is_empty() || !busy.has_room() || busy.is_paced();
            if *requests_left == 0 || is_full {
                return happened;
            }
            if self.engine.awaits_request() {
                if busy.unread().is_empty() {
                    return happened;
                }
                busy.serving.begin(now);
                if self.repeat(now) {
                    *requests_left -= 1;
                    happened = true;
                    continue;
                }
            }
            let Some(busy) = &mut self.busy else { return happened };
            let input = &busy.input[busy.taken..busy.filled];
            let step = self.engine.receive(input, &mut busy.scratch, now);
            if step.is_rest() {
                return happened;
            }
            happened = true;
            let offered = busy.taken;
            busy.taken += step.taken;
            busy.serving.received(step.taken);
            match step.event {
                None => {}
                Some(Event::Body(range)) => {
                    self.offer_body(cx, offered + range.start..offered + range.end, now);
                }
                Some(Event::BodyEnd) => self.end_body(cx, now),
                Some(event) => {
                    if matches!(event, Event::Request) {
                        *requests_left -= 1;
                        // An empty line before it is no part of it.
                        let is_whole =
                            !matches!(busy.input.get(offered), None | Some(b'\r' | b'\n'));
                        busy.head = if is_whole { offered..busy.taken } else { 0..0 };
                    }
                    self.handle(&event, now);
                    if let Some(busy) = &mut self.busy {
                        busy.head = 0..0;
                    }
                }
            }
        }
    }

    /// While a task works the client is watched: if it goes, the task must know at once (L12). What it
    /// sends meanwhile waits in the buffer, as far as that reaches; what more there is, in the socket, where
    /// [`Self::is_client_gone`] watches over it.
    fn watches(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| {
            busy.task.is_some() && (busy.filled < busy.input.len() || busy.taken > 0)
        })
    }

    /// Whether the task takes the body into memory, from where it is on its way to the disk. What more there
    /// is waits in the socket, and so does the end behind it: it says nothing about a body that is all there.
    #[inline(never)]
    fn is_poured(&mut self, cx: &mut Context<'_>) -> bool {
        let task = self.busy.as_mut().and_then(|busy| busy.task.as_mut());
        task.is_some_and(|task| matches!(task.way(cx), Way::Memory(_)))
    }

    /// Whether the client of a task has gone, although what it sent cannot be read to its end now (L12).
    fn is_client_gone(&self, is_poured: bool) -> bool {
        let is_lost_by_fin = self.stream.has_ended() && self.engine.loses_by_fin() && !is_poured;
        self.stream.is_lost() || is_lost_by_fin
    }

    /// Whether more may be put into the batch before it leaves.
    pub(crate) fn has_room(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.has_room())
    }

    fn read(&mut self) -> Poll<io::Result<usize>> {
        let busy = self.busy.get_or_insert_with(|| self.worker.borrow_buffers());
        if busy.taken == busy.filled {
            (busy.taken, busy.filled) = (0, 0);
        } else if busy.filled == busy.input.len() {
            if busy.taken > 0 {
                busy.input.copy_within(busy.taken..busy.filled, 0);
                busy.filled -= busy.taken;
                busy.taken = 0;
            } else {
                // The engine bounds what it leaves untaken by the limits of a head.
                busy.input.resize(busy.input.len() * 2, 0);
            }
        }
        let read = ready!(self.stream.read(&mut busy.input[busy.filled..]))?;
        busy.filled += read;
        Poll::Ready(Ok(read))
    }

    /// Sends all there is. `Pending` with `file_left` at zero means that others shall have a turn.
    fn flush(&mut self, now: Moment, file_left: &mut u64) -> Poll<io::Result<()>> {
        loop {
            let Some(busy) = &mut self.busy else { return Poll::Ready(Ok(())) };
            if busy.sent < busy.scratch.out.len() {
                let more = !busy.pieces.is_empty();
                // The last bytes wait for the end of the stream, which comes at once: one packet for both.
                let is_last = self.engine.ends_after_output();
                let left = busy.scratch.out.len() - busy.sent;
                let allowed = busy.allow(left as u64, now) as usize;
                if allowed == 0 {
                    return Poll::Pending;
                }
                let bytes = &busy.scratch.out[busy.sent..busy.sent + allowed];
                let more_or_last = allowed == left && (more || is_last);
                let sent = self.stream.send(bytes, more_or_last);
                let Poll::Ready(sent) = sent else {
                    self.engine.transmitted(0, true, now);
                    return Poll::Pending;
                };
                let sent = sent?;
                self.active = now;
                self.sent += sent as u64;
                busy.sent += sent;
                busy.has_sent(sent as u64);
                let pending = busy.sent < busy.scratch.out.len();
                if !pending {
                    busy.scratch.out.clear();
                    busy.sent = 0;
                    if !busy.serving.is_answering() {
                        busy.serving.leave_places();
                    }
                }
                self.engine.transmitted(sent as u64, pending || more, now);
            } else if let Some(piece) = busy.pieces.front_mut() {
                let Piece::File(file, range) = piece else {
                    let piece = busy.pieces.pop_front();
                    if let Some(bytes) = piece.as_ref().and_then(Piece::in_memory) {
                        self.engine.body(bytes, &mut busy.scratch);
                    }
                    self.end_of_pieces(now);
                    continue;
                };
                let Some(descriptor) = file.descriptor().filter(|_| !range.is_empty()) else {
                    let range = range.start as usize..range.end as usize;
                    if let Some(bytes) = file.content().and_then(|content| content.get(range)) {
                        self.engine.body(bytes, &mut busy.scratch);
                    }
                    busy.pieces.pop_front();
                    self.end_of_pieces(now);
                    continue;
                };
                if *file_left == 0 {
                    return Poll::Pending;
                }
                let wanted = (range.end - range.start).min(*file_left);
                let count = match &mut busy.pace {
                    Some(pace) => pace.allow(wanted, now) as usize,
                    None => wanted as usize,
                };
                if count == 0 {
                    return Poll::Pending;
                }
                let is_long = range.end - range.start >= CORK_BYTES && busy.pace.is_none();
                if !self.is_corked && is_long {
                    self.is_corked = true;
                    let remote = self.worker.sessions.borrow().seat(self.key).remote();
                    begin_large(&self.stream, remote, &self.door);
                }
                let sent = self.stream.send_file(descriptor, range.start, count);
                let Poll::Ready(sent) = sent else {
                    self.engine.transmitted(0, true, now);
                    return Poll::Pending;
                };
                let sent = sent? as u64;
                self.active = now;
                if sent == 0 {
                    // The file is shorter than its head said: the client must not take this for all.
                    self.break_off(now);
                    return Poll::Ready(Ok(()));
                }
                range.start += sent;
                if let Some(pace) = &mut busy.pace {
                    pace.sent(sent);
                }
                *file_left -= sent;
                self.file_sent = self.file_sent.saturating_add(sent);
                if self.file_sent >= TRUST_BYTES && self.file_sent - sent < TRUST_BYTES {
                    self.stream.lift_unsent_limit();
                }
                let is_done = range.is_empty();
                self.engine.file_sent(sent);
                self.engine.transmitted(sent, true, now);
                if is_done {
                    busy.pieces.pop_front();
                    if std::mem::take(&mut self.is_corked) {
                        self.stream.cork(false);
                    }
                    self.end_of_pieces(now);
                }
            } else {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// How many bytes the client took.
    pub(crate) const fn sent_bytes(&self) -> u64 {
        self.sent.saturating_add(self.file_sent)
    }

    /// When the last piece has gone, the response is complete.
    fn end_of_pieces(&mut self, now: Moment) {
        if self.busy.as_ref().is_some_and(|busy| busy.pieces.is_empty()) {
            self.finish(now);
            let pending = self.busy.as_ref().is_some_and(|busy| !busy.scratch.out.is_empty());
            self.engine.transmitted(0, pending, now);
        }
    }

    /// Whether no request is in work, so that it can be refused.
    fn may_be_shed(&self) -> bool {
        let is_open = self.engine.stage() == Stage::Open && self.engine.wants_input();
        is_open && self.worker.sessions.borrow().seat(self.key).session().running() == 0
    }

    /// A graceful end is wished: the answer that comes next says that it is the last.
    fn drain(&mut self) {
        self.engine.close_after_next();
        // A response whose head has promised to go on is not the last one.
        let is_last = self.engine.will_close();
        let mut sessions = self.worker.sessions.borrow_mut();
        if is_last && sessions.seat(self.key).session().running() > 0 {
            sessions.after(self.key, Fact::ShutdownAsked(Manner::Graceful));
        }
    }

    /// When a session that drains and is idle ends: at once, unless its client was here a moment ago. Then
    /// the next request may be on its way, and whoever closes now would reset it.
    fn quiet_at(&self) -> Option<Deadline> {
        let at = self.active + DRAIN_QUIET;
        self.engine.is_idle().then_some(Deadline { at, kind: DeadlineKind::KeepAlive })
    }

    /// Ends the session: the log says why, the worker gets its seat back.
    fn close(&mut self, reason: CloseReason, now: Moment) {
        if reason.wants_reset() || self.engine.is_cut() {
            self.stream.reset_on_close();
        }
        self.cut_short(now);
        // A transport that is lost unasked is a forceful shutdown (L12).
        let fact = Fact::ShutdownAsked(if reason == CloseReason::TransportLost {
            Manner::Forceful
        } else {
            Manner::Graceful
        });
        self.worker.sessions.borrow_mut().after(self.key, fact);
        let counters = &self.worker.shared.counters;
        counters.close(reason);
        counters.received_bytes.fetch_add(self.received, Ordering::Relaxed);
        counters.sent_bytes.fetch_add(self.sent_bytes(), Ordering::Relaxed);
        let placed = self.door.placed();
        if placed.site.log.wants(Level::Debug) {
            let message = format_args!("closed: {}", reason.tag());
            placed.site.log.write(
                Level::Debug,
                self.worker.clock.stamp(now),
                Some(self.id),
                message,
            );
        }
    }
}

/// A large file begins to leave.
fn begin_large(stream: &Stream, remote: Option<SocketAddr>, door: &Door) {
    stream.cork(true);
    let is_local = remote.is_some_and(|remote| remote.ip().to_canonical().is_loopback());
    // Whoever came in by a local door has it already.
    if is_local && !door.is_local() {
        stream.stay_local();
    }
}

impl Connection {
    /// A turn: does what there is to do. `Ready` is the end of the session.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let this = self;
        let now = this.worker.clock.now();
        let orders = this.worker.sessions.borrow_mut().orders(this.key);
        this.stream.note(orders.ready);
        let wish = orders.wish;
        if orders.is_asked || orders.cancel.is_some() {
            this.run_errand(&orders, now);
        }
        match wish {
            Wish::GoOn => {}
            Wish::Drain => this.drain(),
            // A task can still give its answer; everything else ends here (O4).
            Wish::Force if this.cancel_task(Cause::Shutdown, now) => this.drain(),
            Wish::Force => {
                // Whoever has their answer and lingers loses nothing.
                if this.engine.stage() == Stage::Open && !this.engine.is_idle() {
                    this.worker.shared.counters.forced.fetch_add(1, Ordering::Relaxed);
                }
                this.close(CloseReason::Forced, now);
                return Poll::Ready(());
            }
        }
        // With next to no memory left, nobody begins with a request, or goes on with half a head (X8).
        let is_shed = orders.ready.may_read() && memory::is_critical() && this.may_be_shed();
        if std::mem::take(&mut this.is_one_too_many) || is_shed {
            // Told once; from here on it is an ordinary connection that closes.
            let event = this.engine.refuse_connection();
            this.handle(&event, now);
        }
        loop {
            if let Poll::Ready(reason) = this.turn(cx, now) {
                this.close(reason, now);
                return Poll::Ready(());
            }
            // Data that came in the same turn has won (T3).
            match this.next_deadline().filter(|deadline| deadline.at.is_due(now)) {
                Some(Deadline {
                    kind: DeadlineKind::Program | DeadlineKind::Silence | DeadlineKind::Wait,
                    ..
                }) => {
                    if !this.expire_task(cx, now) {
                        break;
                    }
                }
                Some(Deadline { kind, .. }) => {
                    this.worker.shared.counters.expire(kind);
                    if let Some(event) = this.engine.expire(now) {
                        this.handle(&event, now);
                    }
                }
                None => break,
            }
        }
        let has_all = this.engine.stage() == Stage::Lingering || this.engine.is_idle();
        if wish == Wish::Force && has_all {
            // It has its answer, and nobody waits for it to say that it read it.
            this.close(CloseReason::Forced, now);
            return Poll::Ready(());
        }
        if this.busy.as_ref().is_some_and(|busy| busy.is_done())
            && let Some(busy) = this.busy.take()
        {
            this.worker.give_back_buffers(busy);
        }
        let mut deadline = this.next_deadline();
        if wish == Wish::Drain
            && let Some(quiet) = this.quiet_at()
        {
            if quiet.at.is_due(now) {
                this.engine.shut_down_gracefully(now);
                this.close(CloseReason::Draining, now);
                return Poll::Ready(());
            }
            deadline = deadline.filter(|deadline| deadline.at < quiet.at).or(Some(quiet));
        }
        if wish == Wish::Force {
            // Its answer is on the way; who does not take it is not waited for.
            let last = Deadline { at: now + FORCE_PATIENCE, kind: DeadlineKind::Send };
            deadline = deadline.filter(|deadline| deadline.at < last.at).or(Some(last));
        }
        if let Some(at) = this.busy.as_ref().and_then(|busy| busy.pace?.resumes()) {
            let resumed = Deadline { at, kind: DeadlineKind::Send };
            deadline = deadline.filter(|deadline| deadline.at < at).or(Some(resumed));
        }
        if this.worker.turns.add(&mut this.stream, Token::new(this.key, this.id)).is_err() {
            // Nobody would tell of what comes.
            this.close(CloseReason::TransportLost, now);
            return Poll::Ready(());
        }
        let mut sessions = this.worker.sessions.borrow_mut();
        this.note_moved(sessions.seat_mut(this.key));
        let is_first = sessions.arm(this.key, deadline, this.stream.is_full());
        drop(sessions);
        if is_first {
            this.worker.wake_timer();
        }
        Poll::Pending
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(busy) = self.busy.take() {
            self.worker.give_back_buffers(busy);
        }
        self.worker.sessions.borrow_mut().leave(self.key);
        self.worker.vacated.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        println!(
            "connection {}, engine {}, stream {}, seat {}",
            size_of::<Connection>(),
            size_of::<Http1>(),
            size_of::<Stream>(),
            size_of::<Seat>(),
        );
        assert!(size_of::<Connection>() + size_of::<Seat>() <= 384);
    }
}
