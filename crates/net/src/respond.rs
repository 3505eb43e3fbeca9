//! The answer of one request on its way out: its fields, its head, its body in pieces, and its one ending.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use sekisho_handler::{FileTask, Piece, Reply, Task};
use sekisho_http::{BodyLength, Response, Sends, Status};
use sekisho_lifecycle::{CloseReason, Moment};
use sekisho_route::{ConnectionFacts, added_fields};

use crate::compress::{Compression, Outgoing};
use crate::exchange::Exchange;
use crate::link::{Link, request_view};
use crate::pace::Pace;
use crate::site;
use crate::worker::BoundSite;

impl Exchange {
    /// The fields that every answer begins with.
    pub(crate) fn begin_fields(&mut self, bound_site: &BoundSite, link: &Link, now: Moment) {
        let settings = &bound_site.site.location(self.route.location).settings;
        self.fields.clear();
        self.fields.push("Server", site::product(settings));
        link.worker.clock.push_date(now, &mut self.fields);
    }

    /// Sends a reply; `file_bytes` is how long the file is that it is about.
    pub(crate) fn send_reply(
        &mut self,
        link: &mut Link,
        facts: &ConnectionFacts,
        reply: Reply,
        file_bytes: Option<u64>,
        now: Moment,
    ) {
        let Some(accepted) = &self.accepted else { return };
        let request = request_view(&self.head, accepted, facts, link, now);
        let table = accepted.bound_site.site.table();
        let (status, modified) = (reply.status, reply.modified());
        added_fields(table, &request, &self.route, status, modified, &mut self.fields);
        let compression = Compression { table, request: &request, route: &self.route };
        match compression.apply(reply, file_bytes, &mut self.fields) {
            Outgoing::Reply(reply, plain_bytes) => {
                self.plain_bytes = plain_bytes;
                self.send_pieces(link, reply, now);
            }
            Outgoing::Stream(status, task) => self.send_stream(link, status, task, now),
        }
    }

    /// Frames a reply; what is in memory goes into the batch, the rest waits its turn behind it.
    fn send_pieces(&mut self, link: &mut Link, reply: Reply, now: Moment) {
        let length = BodyLength::of(Some(reply.len()));
        let sends = self.send_head(link, reply.status, length, now);
        if sends != Sends::Nothing && self.waits_for_disk(&reply, now) {
            self.task = Some(Box::new(FileTask::new(reply.piece.into_iter().chain(reply.body))));
            return;
        }
        if let Sends::Exactly(length) = sends {
            self.body_bytes = length;
        }
        if sends != Sends::Nothing {
            let (protocol, buffers) = link.parts();
            let is_free = self.pace.is_none();
            for piece in reply.piece.into_iter().chain(reply.body) {
                match piece.in_memory() {
                    Some(bytes)
                        if is_free
                            && self.pieces.is_empty()
                            && bytes.len() as u64 <= protocol.body_allowance(self.id) =>
                    {
                        protocol.body(self.id, bytes, &mut buffers.scratch, now);
                    }
                    _ => self.pieces.push_back(piece),
                }
            }
        }
        if self.pieces.is_empty() {
            self.finish(link, now);
        } else {
            link.protocol.set_ready(self.id, true, now);
        }
    }

    /// Whether a file of the reply has to be read from a disk first, or is to be read beside the event loop
    /// in any case (`aio threads`).
    fn waits_for_disk(&self, reply: &Reply, now: Moment) -> bool {
        reply.piece.iter().chain(&reply.body).any(|piece| match piece {
            Piece::File(file, range) if file.content().is_none() => {
                self.reads_beside || !file.is_in_memory(range, now)
            }
            _ => false,
        })
    }

    /// Sends the head of an answer whose body a task makes; without one, only the head was asked for.
    fn send_stream(
        &mut self,
        link: &mut Link,
        status: Status,
        task: Option<Box<dyn Task>>,
        now: Moment,
    ) {
        let sends = self.send_head(link, status, BodyLength::Unknown, now);
        match task.filter(|_| sends != Sends::Nothing) {
            Some(task) => self.task = Some(task),
            None => self.finish(link, now),
        }
    }

    /// Sends the head of a task's answer.
    pub(crate) fn send_task_head(
        &mut self,
        link: &mut Link,
        status: Status,
        length: Option<u64>,
        now: Moment,
    ) {
        let Some(accepted) = self.accepted.clone() else { return };
        let bound_site = Rc::clone(&accepted.bound_site);
        self.begin_fields(&bound_site, link, now);
        self.fields.append(&mut self.outbox.fields);
        let facts = link.facts();
        let request = request_view(&self.head, &accepted, &facts, link, now);
        let table = bound_site.site.table();
        added_fields(table, &request, &self.route, status, None, &mut self.fields);
        let compression = Compression { table, request: &request, route: &self.route };
        let is_compressed =
            compression.apply_to_task(status, length, &mut self.task, &mut self.fields);
        let length = BodyLength::of(length.filter(|_| !is_compressed));
        self.send_head(link, status, length, now);
    }

    fn send_head(
        &mut self,
        link: &mut Link,
        status: Status,
        length: BodyLength,
        now: Moment,
    ) -> Sends {
        self.begin_sending(link, now);
        self.status = status;
        let (protocol, buffers) = link.parts();
        let before = buffers.scratch.out.len();
        let response = Response { status, fields: &self.fields, length };
        let sends = protocol.respond(self.id, &response, &mut buffers.scratch, now);
        self.head_bytes = (buffers.scratch.out.len() - before) as u64;
        sends
    }

    /// An answer begins: how fast, and in which way, may it leave?
    fn begin_sending(&mut self, link: &mut Link, now: Moment) {
        let Some(accepted) = &self.accepted else { return };
        let settings = &accepted.bound_site.site.location(self.route.location).settings;
        let rate = self.route.limit_rate.unwrap_or(settings.limit_rate);
        self.pace = Pace::new(rate, settings.limit_rate_after, now);
        self.sends_files = settings.sendfile;
        self.reads_beside = settings.aio_threads;
        link.no_delay = settings.tcp_nodelay;
    }

    /// Body bytes that a task has made: they leave at once, or wait for their turn.
    pub(crate) fn send_made(&mut self, link: &mut Link, now: Moment) {
        let made = &mut self.outbox.body;
        self.body_bytes += made.len() as u64;
        let (protocol, buffers) = link.parts();
        let is_free = self.pace.is_none() && self.pieces.is_empty();
        if is_free && made.len() as u64 <= protocol.body_allowance(self.id) {
            protocol.body(self.id, made, &mut buffers.scratch, now);
            made.clear();
        } else if !made.is_empty() {
            self.pieces.push_back(Piece::Bytes(std::mem::take(made)));
            protocol.set_ready(self.id, true, now);
        }
    }

    /// The response is complete as far as we are concerned.
    pub(crate) fn finish(&mut self, link: &mut Link, now: Moment) {
        let (protocol, buffers) = link.parts();
        protocol.finish(self.id, &mut buffers.scratch, now);
        self.end(link, true, now);
    }

    /// The response cannot be completed.
    pub(crate) fn break_off(&mut self, link: &mut Link, now: Moment) {
        if link.is_forced() {
            link.worker.shared.counters.forced.fetch_add(1, Ordering::Relaxed);
        }
        link.break_off(self.id, CloseReason::BrokenOff, now);
        self.end(link, false, now);
        // What was framed before still leaves; where nothing was, the end follows at once.
        let pending = link.buffers.as_ref().is_some_and(|buffers| !buffers.unsent().is_empty());
        link.protocol.transmitted(0, pending, now);
    }

    /// The client is lost: nobody waits for the answer.
    pub(crate) fn lose_client(&mut self, link: &mut Link, now: Moment) {
        self.drop_task();
        link.break_off(self.id, CloseReason::PeerClosedEarly, now);
        self.end(link, false, now);
    }

    /// Its one ending: what it held is released, and the access log has its line.
    pub(crate) fn end(&mut self, link: &mut Link, is_complete: bool, now: Moment) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.log(link, is_complete, now);
        self.drop_task();
        self.pieces.clear();
        self.piece_sent = 0;
        self.permits.clear();
        link.release();
    }
}
