//! A listing that is too large to be made at once: its head leaves before the folder has been read, and
//! the rest is made in slices, between which others have their turn.

use std::task::{Context, Poll};

use sekisho_http::Status;
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::cancel::Cause;

use super::Place;
use super::entry::{Entries, Reading};
use super::form::Writer;
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
    /// The head has not left.
    Head(Box<Reading>),
    /// Nothing of the body has left.
    Begin(Box<Reading>),
    Reading(Box<Reading>),
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
            Stage::Head(reading) => {
                if !self.is_head {
                    self.stage = Stage::Begin(reading);
                }
                out.fields.append(&mut self.fields);
                Some(Progress::Head(self.status, None))
            }
            Stage::Begin(reading) => {
                self.writer.begin(&mut out.body);
                self.stage = Stage::Reading(reading);
                self.is_resting = true;
                Some(Progress::Body)
            }
            Stage::Reading(mut reading) => {
                self.is_resting = true;
                self.stage = match reading.step() {
                    Ok(false) => Stage::Reading(reading),
                    Ok(true) => Stage::Writing(Box::new(reading.finish())),
                    Err(_) => Stage::Broken,
                };
                None
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
            Stage::Head(_) => Stage::Refused,
            _ => Stage::Broken,
        };
    }
}
