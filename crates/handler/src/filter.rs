//! Filters of response bodies: tasks around the task that makes a body. Each takes what the one within it gives and
//! gives what the next one around it takes, so that a body is held in pieces and what the client does not take holds
//! its source back. Those that need other resources ask for them by [`Requests`].

mod addition;
mod gunzip;
mod slice;
mod ssi;

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::{Level, Recode, Recoding};
use sekisho_filter::ssi::Shared;
use sekisho_filter::substitute::Substituter;
use sekisho_lifecycle::{Deadline, Moment, Share};
use sekisho_route::SubrequestTarget;

use crate::memory::{self, Class};
use crate::task::{BodyIn, Describe, Outbox, Progress, Task, Work, Wrapper, rest};
use crate::{forward, without};

pub use addition::AdditionTask;
pub use gunzip::Gunzip;
pub use slice::SliceTask;
pub use ssi::SsiTask;

/// How much of its input a filter gets at once.
const PIECE_BYTES: usize = 16 * 1024;
/// So much goes through a filter before others have their turn.
const TURN_BYTES: usize = 256 * 1024;

/// What a filter may ask of the request that it works for.
pub trait Requests: fmt::Debug {
    /// Starts a request within this one. `None` where it may have no more; that has been reported.
    fn start(&self, wish: Wish) -> Option<Box<dyn Task>>;
    /// The path of this request.
    fn path(&self) -> &[u8];
    /// The value of a variable; `None` where it has none.
    fn variable(&self, name: &[u8]) -> Option<Vec<u8>>;
    /// The time in this form.
    fn date(&self, format: &[u8], is_local: bool) -> Vec<u8>;
    /// What all pages of the client's request share.
    fn shared(&self) -> &RefCell<Shared>;
    /// Writes a line about the request into its error log.
    fn report(&self, level: Level, message: fmt::Arguments<'_>);
}

/// A request within a request that is wanted.
#[derive(Debug)]
pub struct Wish {
    /// What for.
    pub target: SubrequestTarget,
    /// Whether an error of our own has no page: something else stands in for it.
    pub hides_errors: bool,
}

impl Wish {
    /// The body of this.
    pub const fn body_of(target: SubrequestTarget) -> Self {
        Self { target, hides_errors: false }
    }
}

/// A body cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

/// Changes the bytes of a body.
pub trait BodyFilter: fmt::Debug {
    /// Takes bytes from the start, at least one; says how many. What is ready is added to `out`, no more than a bounded
    /// multiple of what was taken or a fixed length.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken>;
    /// No more comes: the rest is added to `out`.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Broken>;
}

impl BodyFilter for Substituter {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        Self::push(self, bytes, out);
        Ok(bytes.len())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        Self::finish(self, out);
        Ok(())
    }
}

/// Gives a text in another charset.
#[derive(Debug)]
pub struct Recoder(Recoding);

impl Recoder {
    /// By this map.
    pub fn new(recode: &Arc<Recode>) -> Self {
        Self(Recoding::new(recode))
    }
}

impl BodyFilter for Recoder {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        self.0.push(bytes, out);
        Ok(bytes.len())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        self.0.finish(out);
        Ok(())
    }
}

/// A part of a body; the rest is passed over.
#[derive(Debug)]
pub struct Part {
    wanted: Range<u64>,
    at: u64,
}

impl Part {
    /// These bytes of it.
    pub const fn new(wanted: Range<u64>) -> Self {
        Self { wanted, at: 0 }
    }
}

impl BodyFilter for Part {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        let count = bytes.len() as u64;
        let start = self.wanted.start.saturating_sub(self.at).min(count);
        let end = self.wanted.end.saturating_sub(self.at).min(count).max(start);
        out.extend_from_slice(&bytes[start as usize..end as usize]);
        self.at += count;
        Ok(bytes.len())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Broken> {
        Ok(())
    }
}

/// A body that goes through a filter. The head of its source has been given.
#[derive(Debug)]
pub struct FilterTask {
    source: Box<dyn Task>,
    filter: Box<dyn BodyFilter>,
    /// How long the source's body is to be; no head says it any more.
    length: Option<u64>,
    taken: u64,
    input: Vec<u8>,
    /// How much of it the filter has taken.
    at: usize,
    stage: FilterStage,
    turn_bytes: usize,
    /// The memory of the input.
    share: Option<Share>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FilterStage {
    Open,
    /// The source has ended.
    Ended,
    /// So has the filter.
    Finished,
    Broken,
}

impl FilterTask {
    /// Begins with it; `length` is how long the body of the source is, where that is known.
    pub fn new(source: Box<dyn Task>, length: Option<u64>, filter: Box<dyn BodyFilter>) -> Self {
        Self {
            source,
            filter,
            length,
            taken: 0,
            input: Vec::new(),
            at: 0,
            stage: FilterStage::Open,
            turn_bytes: 0,
            share: None,
        }
    }

    /// Lets the filter have what came; whether there is something to give.
    fn feed(&mut self, out: &mut Vec<u8>) -> bool {
        let end = self.input.len().min(self.at + PIECE_BYTES);
        match self.filter.push(&self.input[self.at..end], out) {
            Ok(taken) => {
                self.at += taken;
                self.turn_bytes += taken.max(out.len());
            }
            Err(Broken) => self.stage = FilterStage::Broken,
        }
        !out.is_empty()
    }
}

impl Wrapper for FilterTask {
    type Inner = dyn Task;

    fn inner(&self) -> Option<&Self::Inner> {
        Some(&*self.source)
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        Some(&mut *self.source)
    }
}

impl Work for FilterTask {
    forward!(cancel, hold, absorb, stops_with_client, is_service, conclude);
    without!(narrow);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        loop {
            if self.turn_bytes >= TURN_BYTES {
                self.turn_bytes = 0;
                return rest(cx);
            }
            if self.stage == FilterStage::Broken {
                return Poll::Ready(Progress::Break);
            }
            if self.at < self.input.len() {
                if self.feed(&mut out.body) && self.stage != FilterStage::Broken {
                    return Poll::Ready(Progress::Body);
                }
                continue;
            }
            match self.stage {
                FilterStage::Open => {}
                FilterStage::Ended => {
                    let is_whole = self.length.is_none_or(|length| length == self.taken);
                    let finished = self.filter.finish(&mut out.body);
                    self.stage = match finished {
                        Ok(()) if is_whole => FilterStage::Finished,
                        _ => FilterStage::Broken,
                    };
                    if !out.body.is_empty() && is_whole {
                        return Poll::Ready(Progress::Body);
                    }
                    continue;
                }
                FilterStage::Finished => return Poll::Ready(Progress::Done),
                FilterStage::Broken => return Poll::Ready(Progress::Break),
            }
            match self.source.poll(cx, out, now) {
                Poll::Pending => {
                    self.turn_bytes = 0;
                    return Poll::Pending;
                }
                Poll::Ready(Progress::Body) => {
                    self.input.clear();
                    std::mem::swap(&mut self.input, &mut out.body);
                    self.at = 0;
                    self.taken += self.input.len() as u64;
                    memory::hold(&mut self.share, Class::Filters, self.input.capacity());
                }
                Poll::Ready(Progress::Done) => self.stage = FilterStage::Ended,
                // A head has been given: whatever else it says, there is no other end than this.
                Poll::Ready(_) => self.stage = FilterStage::Broken,
            }
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        // While there is something to filter, it is not the source that is waited for.
        if self.at < self.input.len() { None } else { self.source.next_deadline() }
    }
}

impl BodyIn for FilterTask {
    forward!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for FilterTask {
    forward!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        self.source.name()
    }
}
