//! Answers to heads that come again and again. Most of the work on a small file is finding out what was
//! asked for; where the next head is the same to the byte, at the same address, that is known already.
//!
//! Only what follows from the head and the files alone is kept ([`sekisho_route::Exchange::is_repeatable`]), and only
//! for as long as the file cache would trust what it has seen of these files
//! ([`sekisho_handler::FileCache::trusted_until`]): within this time the long way would give the same answer.

use std::rc::Rc;
use std::sync::Arc;

use sekisho_handler::{Piece, Reply, file_cache};
use sekisho_http::Status;
use sekisho_http1::{BodyLength, Policy, Response, Seen};
use sekisho_lifecycle::Moment;

use crate::drive::Connection;
use crate::serve;
use crate::worker::Placed;

/// How many heads a worker knows again.
const ANSWERS_MAX: usize = 8;
/// Longer ones are not kept.
const HEAD_BYTES_MAX: usize = 1024;

/// An answer, and the head that it is for.
#[derive(Debug)]
struct Answer {
    /// As it came, its empty line included: no other head begins with it.
    head: Box<[u8]>,
    /// Where it was asked; also says which of a site's addresses.
    placed: Rc<Placed>,
    listen: usize,
    valid_until: Moment,
    /// How many changes the server itself had made to files.
    changes: u64,
    seen: Seen,
    policy: Arc<Policy>,
    status: Status,
    /// The field lines before and after `Date`.
    before_date: Box<[u8]>,
    after_date: Box<[u8]>,
    /// What the body is, in memory.
    body: Option<Piece>,
    /// Whether the error log wants a line about it, as far as there is room.
    is_noted: bool,
}

/// The answers that a worker knows.
#[derive(Debug, Default)]
pub struct Repeats {
    answers: Vec<Answer>,
    /// Which one goes next.
    oldest: usize,
}

impl Repeats {
    /// Forgets everything: some file is not what it was.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.oldest = 0;
    }

    /// How many answers are known, and what they hold in memory; bodies lie in the file cache.
    pub(crate) fn weigh(&self) -> (usize, usize) {
        let bytes = self
            .answers
            .iter()
            .map(|answer| answer.head.len() + answer.before_date.len() + answer.after_date.len());
        let own = self.answers.capacity() * size_of::<Answer>();
        (self.answers.len(), own + bytes.sum::<usize>())
    }

    /// The answer to a head that the input begins with.
    fn find(
        &self,
        input: &[u8],
        placed: &Rc<Placed>,
        listen: usize,
        now: Moment,
    ) -> Option<&Answer> {
        self.answers.iter().find(|answer| {
            input.starts_with(&answer.head)
                && Rc::ptr_eq(&answer.placed, placed)
                && answer.listen == listen
                && !answer.valid_until.is_due(now)
                && answer.changes == file_cache::changes()
        })
    }

    /// Keeps an answer, in the place of an older one for the same head or of the oldest.
    fn keep(&mut self, answer: Answer) {
        let same = self.answers.iter().position(|known| known.head == answer.head);
        match same {
            Some(at) => self.answers[at] = answer,
            None if self.answers.len() < ANSWERS_MAX => self.answers.push(answer),
            None => {
                self.answers[self.oldest] = answer;
                self.oldest = (self.oldest + 1) % ANSWERS_MAX;
            }
        }
    }
}

impl Connection {
    /// Keeps the answer to the request in work for others that are the same, if it can be kept.
    pub(crate) fn keep_for_repeats(&mut self, reply: &Reply, valid_until: Moment, is_noted: bool) {
        let Some(busy) = &self.busy else { return };
        let serving = &busy.serving;
        let Some(current) = &serving.current else { return };
        let settings = &current.placed.site.location(serving.exchange.location).settings;
        // Whoever has their log written wants the head looked at.
        let rate = serving.exchange.limit_rate.unwrap_or(settings.limit_rate);
        let is_plain = settings.access_logs.is_empty() && rate == 0;
        if !serving.exchange.is_repeatable() || !is_plain {
            return;
        }
        let head = busy.input.get(busy.head.clone()).unwrap_or_default();
        let (Some(seen), Some(body)) = (self.engine.seen(), reply.body_in_memory()) else { return };
        if head.is_empty() || head.len() > HEAD_BYTES_MAX {
            return;
        }
        self.worker.repeats.borrow_mut().keep(Answer {
            head: head.into(),
            placed: Rc::clone(&current.placed),
            listen: current.placed.listen(self.local),
            valid_until,
            changes: busy.serving.changes,
            seen,
            policy: Arc::clone(self.engine.policy()),
            status: reply.status,
            before_date: serving.fields[..serving.date.start].into(),
            after_date: serving.fields[serving.date.end..].into(),
            body,
            is_noted,
        });
    }

    /// Answers the request at the front of the input, if its head is known: whether it was.
    pub(crate) fn repeat(&mut self, now: Moment) -> bool {
        let Some(busy) = &mut self.busy else { return false };
        let repeats = self.worker.repeats.borrow();
        if repeats.answers.is_empty() {
            return false;
        }
        let placed = self.door.placed();
        let listen = placed.listen(self.local);
        let Some(answer) = repeats.find(busy.unread(), &placed, listen, now) else { return false };
        if answer.is_noted {
            let second = self.worker.clock.wall(now).unix_secs;
            if !self.worker.not_found.borrow_mut().pass_over(second) {
                return false;
            }
        }
        if !self.engine.receive_again(answer.seen, &mut busy.scratch) {
            return false;
        }
        busy.take(answer.head.len());
        busy.pace = None;
        self.engine.set_policy(&answer.policy);
        let fields = &mut busy.serving.fields;
        fields.clear();
        fields.extend_from_slice(&answer.before_date);
        self.worker.clock.write_date_field(now, fields);
        fields.extend_from_slice(&answer.after_date);
        let body = answer.body.as_ref().and_then(Piece::in_memory).unwrap_or_default();
        let length = match body.len() {
            0 => BodyLength::Empty,
            length => BodyLength::Known(length as u64),
        };
        serve::admit(&self.worker, self.key, &mut self.engine, now);
        let response = Response { status: answer.status, fields, length };
        self.engine.respond(&response, &mut busy.scratch, now);
        self.engine.body(body, &mut busy.scratch);
        self.engine.finish(&mut busy.scratch, now);
        self.worker.tally.borrow_mut().add(answer.status, now.since(busy.serving.since()));
        drop(repeats);
        self.release();
        true
    }
}
