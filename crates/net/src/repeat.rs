//! Answers to heads that come again and again. Most of the work on a small file is finding out what was
//! asked for; where the next head is the same to the byte, at the same address, that is known already, and
//! what was sent is sent again, with the date of now.
//!
//! Only what follows from the head and the files alone is kept ([`sekisho_route::Exchange::is_repeatable`]), and only
//! for as long as the file cache would trust what it has seen of these files
//! ([`sekisho_handler::FileCache::trusted_until`]): within this time the long way would give the same answer.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sekisho_handler::file_cache::{self, CONTENT_BYTES_MAX};
use sekisho_http::Status;
use sekisho_http1::{Policy, Seen};
use sekisho_lifecycle::Moment;

use crate::clock::{Clock, DATE_BYTES};
use crate::drive::Connection;
use crate::worker::Placed;

/// How many heads a worker knows again.
const ANSWERS_MAX: usize = 8;
/// Longer ones are not kept.
const HEAD_BYTES_MAX: usize = 1024;
/// What an answer's own head may add to its body.
const WIRE_BYTES_MAX: usize = CONTENT_BYTES_MAX as usize + 2048;

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
    /// All that was sent.
    wire: Box<[u8]>,
    /// Where the date stands in it, and which it is.
    date_at: usize,
    date_secs: i64,
    /// Whether the error log wants a line about it, as far as there is room.
    is_noted: bool,
}

impl Answer {
    /// Brings the date up to now.
    fn date(&mut self, clock: &Clock, now: Moment) {
        let secs = clock.wall(now).unix_secs;
        if self.date_secs != secs {
            self.date_secs = secs;
            let date = &mut self.wire[self.date_at..self.date_at + DATE_BYTES];
            clock.copy_date(now, date);
        }
    }
}

/// What is known of an answer before it is framed.
#[derive(Debug)]
pub(crate) struct Repeatable {
    seen: Seen,
    policy: Arc<Policy>,
    placed: Rc<Placed>,
    status: Status,
    valid_until: Moment,
    is_noted: bool,
    /// Where in the output it begins.
    at: usize,
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

    /// How many answers are known, and what they hold in memory.
    pub(crate) fn weigh(&self) -> (usize, usize) {
        let bytes = self.answers.iter().map(|answer| answer.head.len() + answer.wire.len());
        let own = self.answers.capacity() * size_of::<Answer>();
        (self.answers.len(), own + bytes.sum::<usize>())
    }

    /// The answer to a head that the input begins with.
    fn find(
        &mut self,
        input: &[u8],
        placed: &Rc<Placed>,
        listen: usize,
        now: Moment,
    ) -> Option<&mut Answer> {
        self.answers.iter_mut().find(|answer| {
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
    /// Whether the answer that is about to be framed can be given again, and what is known of it.
    pub(crate) fn repeatable(
        &self,
        status: Status,
        valid_until: Moment,
        is_noted: bool,
    ) -> Option<Repeatable> {
        let busy = self.busy.as_ref()?;
        let serving = &busy.serving;
        let current = serving.current.as_ref()?;
        let settings = &current.placed.site.location(serving.exchange.location).settings;
        // Whoever has their log written wants the head looked at.
        let rate = serving.exchange.limit_rate.unwrap_or(settings.limit_rate);
        let is_plain = settings.access_logs.is_empty() && rate == 0;
        if !serving.exchange.is_repeatable() || !is_plain {
            return None;
        }
        let is_known_whole = !busy.head.is_empty() && busy.head.len() <= HEAD_BYTES_MAX;
        Some(Repeatable {
            seen: self.engine.seen().filter(|_| is_known_whole)?,
            policy: Arc::clone(self.engine.policy()),
            placed: Rc::clone(&current.placed),
            status,
            valid_until,
            is_noted,
            at: busy.scratch.out.len(),
        })
    }

    /// Keeps the answer that was just framed for others that are the same, if it is all there.
    pub(crate) fn keep_for_repeats(&mut self, known: Repeatable) {
        let Some(busy) = &self.busy else { return };
        let is_whole =
            busy.pieces.is_empty() && busy.task.is_none() && !busy.serving.is_answering();
        let wire = busy.scratch.out.get(known.at..).unwrap_or_default();
        if !is_whole || wire.is_empty() || wire.len() > WIRE_BYTES_MAX {
            return;
        }
        let Some(seen) = self.engine.answered(known.seen) else { return };
        let date = &busy.serving.fields[busy.serving.date.clone()];
        let Some(line_at) = wire.windows(date.len()).position(|window| window == date) else {
            return;
        };
        self.worker.repeats.borrow_mut().keep(Answer {
            head: busy.input.get(busy.head.clone()).unwrap_or_default().into(),
            listen: known.placed.listen(self.local),
            placed: known.placed,
            valid_until: known.valid_until,
            changes: busy.serving.changes,
            seen,
            policy: known.policy,
            status: known.status,
            wire: wire.into(),
            date_at: line_at + Clock::DATE_NAME.len(),
            // Whichever it is, it is set anew.
            date_secs: i64::MIN,
            is_noted: known.is_noted,
        });
    }

    /// Answers the request at the front of the input, if its head is known: whether it was.
    pub(crate) fn repeat(&mut self, now: Moment) -> bool {
        let Some(busy) = &mut self.busy else { return false };
        let mut repeats = self.worker.repeats.borrow_mut();
        if repeats.answers.is_empty() {
            return false;
        }
        let placed = self.door.placed();
        let listen = placed.listen(self.local);
        let Some(answer) = repeats.find(busy.unread(), &placed, listen, now) else { return false };
        // From idle to a running request and back (L2, L5): nobody sees what is in between. A session that
        // shall end goes the long way.
        if !self.worker.sessions.borrow().seat(self.key).may_go_on() {
            return false;
        }
        if answer.is_noted {
            let second = self.worker.clock.wall(now).unix_secs;
            if !self.worker.not_found.borrow_mut().pass_over(second) {
                return false;
            }
        }
        answer.date(&self.worker.clock, now);
        let Answer { seen, policy, wire, .. } = &*answer;
        if !self.engine.answer_again(*seen, policy, wire, &mut busy.scratch, now) {
            return false;
        }
        busy.take(answer.head.len());
        busy.pace = None;
        self.worker.shared.counters.requests.fetch_add(1, Ordering::Relaxed);
        self.worker.tally.borrow_mut().add_at_once(answer.status);
        true
    }
}
