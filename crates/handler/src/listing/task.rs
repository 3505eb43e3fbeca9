//! A listing that is too large to be made at once: the folder is read and the listing made in slices, between which
//! others have their turn. Its head leaves when the folder has been read: until then it can be refused.

use std::task::{Context, Poll};

use sekisho_http::{Fields, Status};
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::cancel::Cause;

use super::ListedFolder;
use super::entry::{Entries, ReadError};
use super::form::Writer;
use super::shared::SharedReading;
use crate::task::{self, BodyIn, Describe, Outbox, Progress, Work};
use crate::without;

/// So many entries are written before others have their turn.
const SLICE_ENTRIES: usize = 256;

/// A listing at work.
#[derive(Debug)]
pub(super) struct ListingTask {
    pub(super) stage: ListingStage,
    pub(super) writer: Writer,
    pub(super) place: ListedFolder,
    pub(super) status: Status,
    pub(super) fields: Fields,
    /// Only the head is wanted.
    pub(super) is_head: bool,
    /// A slice has been made: others come first.
    pub(super) is_resting: bool,
}

#[derive(Debug)]
pub(super) enum ListingStage {
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
    /// One slice of work: its result, if there is one to report.
    fn step(&mut self, out: &mut Outbox) -> Option<Progress> {
        match std::mem::replace(&mut self.stage, ListingStage::Over) {
            ListingStage::Reading(reading) => {
                self.is_resting = true;
                match reading.step() {
                    Ok(None) => self.stage = ListingStage::Reading(reading),
                    Ok(Some(entries)) => self.stage = ListingStage::Head(Some(Box::new(entries))),
                    Err(error) => {
                        if error == ReadError::OverBudget {
                            out.fields.push("Retry-After", "1");
                        }
                        return Some(Progress::Fail(self.place.failure(error)));
                    }
                }
                None
            }
            ListingStage::Head(entries) => {
                if let Some(entries) = entries.filter(|_| !self.is_head) {
                    self.stage = ListingStage::Begin(entries);
                }
                out.fields.append(&mut self.fields);
                Some(Progress::Head(self.status, None))
            }
            ListingStage::Begin(entries) => {
                self.writer.begin(&mut out.body);
                self.stage = ListingStage::Writing(entries);
                self.is_resting = true;
                Some(Progress::Body)
            }
            ListingStage::Writing(mut entries) => {
                self.is_resting = true;
                for _ in 0..SLICE_ENTRIES {
                    match entries.next() {
                        Ok(Some(entry)) => self.writer.row(entry, &mut out.body),
                        Ok(None) => {
                            self.place.finish(&self.writer, &entries, &mut out.body);
                            return Some(Progress::Body);
                        }
                        Err(_) => {
                            self.stage = ListingStage::Broken;
                            return None;
                        }
                    }
                }
                self.stage = ListingStage::Writing(entries);
                Some(Progress::Body)
            }
            ListingStage::Over => Some(Progress::Done),
            ListingStage::Broken => Some(Progress::Break),
            ListingStage::Refused => Some(Progress::Fail(Status::SERVICE_UNAVAILABLE)),
        }
    }
}

impl Work for ListingTask {
    without!(next_deadline, hold, absorb, narrow, stops_with_client, is_service, conclude);

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
            ListingStage::Over => ListingStage::Over,
            ListingStage::Reading(_) | ListingStage::Head(_) => ListingStage::Refused,
            _ => ListingStage::Broken,
        };
    }
}

impl BodyIn for ListingTask {
    without!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for ListingTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "listing"
    }
}
