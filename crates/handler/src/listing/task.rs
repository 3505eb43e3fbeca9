//! A listing that is too large to be made at once: the folder is read and the listing made in slices, between which
//! others have their turn. Its head leaves when the folder has been read: until then it can be refused.

use std::task::{Context, Poll};

use sekisho_http::Status;
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::cancel::Cause;

use super::entry::{Entries, ReadError};
use super::form::Writer;
use super::shared::SharedReading;
use super::{Place, RETRY_AFTER};
use crate::task::{self, Outbox, Progress, Task};

/// So many entries are written before others have their turn.
const SLICE_ENTRIES: usize = 256;

/// A listing at work.
#[derive(Debug)]
pub(super) struct ListingTask {
    pub(super) stage: Stage,
    pub(super) writer: Writer,
    pub(super) place: Place,
    pub(super) status: Status,
    pub(super) fields: Vec<u8>,
    /// Only the head is wanted.
    pub(super) is_head: bool,
    /// A slice has been made: others come first.
    pub(super) is_resting: bool,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The folder is being read; the head has not left.
    Reading(SharedReading),
    /// The head has not left. Without entries, only the head is wanted.
    Head(Option<Box<Entries>>),
    /// Nothing of the body has left.
    Begin(Box<Entries>),
    Writing(Box<Entries>),
    Over,
    Broken,
    /// Given up before its head has left.
    Refused,
}

impl ListingTask {
    /// One slice of work: what it came to, if that is something to tell.
    fn step(&mut self, out: &mut Outbox) -> Option<Progress> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Reading(reading) => {
                self.is_resting = true;
                match reading.step() {
                    Ok(None) => self.stage = Stage::Reading(reading),
                    Ok(Some(entries)) => self.stage = Stage::Head(Some(Box::new(entries))),
                    Err(error) => {
                        if error == ReadError::OverBudget {
                            out.fields.extend_from_slice(RETRY_AFTER);
                        }
                        return Some(Progress::Fail(self.place.failure(error)));
                    }
                }
                None
            }
            Stage::Head(entries) => {
                if let Some(entries) = entries.filter(|_| !self.is_head) {
                    self.stage = Stage::Begin(entries);
                }
                out.fields.append(&mut self.fields);
                Some(Progress::Head(self.status, None))
            }
            Stage::Begin(entries) => {
                self.writer.begin(&mut out.body);
                self.stage = Stage::Writing(entries);
                self.is_resting = true;
                Some(Progress::Body)
            }
            Stage::Writing(mut entries) => {
                self.is_resting = true;
                for _ in 0..SLICE_ENTRIES {
                    match entries.next() {
                        Ok(Some((name, is_folder, facts))) => {
                            self.writer.row(name, is_folder, facts, &mut out.body);
                        }
                        Ok(None) => {
                            self.place.finish(&self.writer, &entries, &mut out.body);
                            return Some(Progress::Body);
                        }
                        Err(_) => {
                            self.stage = Stage::Broken;
                            return None;
                        }
                    }
                }
                self.stage = Stage::Writing(entries);
                Some(Progress::Body)
            }
            Stage::Over => Some(Progress::Done),
            Stage::Broken => Some(Progress::Break),
            Stage::Refused => Some(Progress::Fail(Status::SERVICE_UNAVAILABLE)),
        }
    }
}

impl Task for ListingTask {
    fn name(&self) -> &'static str {
        "listing"
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, _: Moment) -> Poll<Progress> {
        loop {
            if std::mem::take(&mut self.is_resting) {
                return task::rest(cx);
            }
            if let Some(progress) = self.step(out) {
                return Poll::Ready(progress);
            }
        }
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        self.stage = match self.stage {
            Stage::Over => Stage::Over,
            Stage::Reading(_) | Stage::Head(_) => Stage::Refused,
            _ => Stage::Broken,
        };
    }
}
