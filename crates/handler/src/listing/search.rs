//! A search below a listed folder (`autoindex_search`, `?search=`): a walk by the rules of archives that keeps what it finds, and
//! then one listing of it. Nothing is sent before the search is over, so that it can still be refused.

use std::task::{Context, Poll};

use sekisho_http::{Fields, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Moment, Share};

use super::entry::{Facts, Shown};
use super::form::Writer;
use super::order::{By, SortOrder, natural};
use super::walk::{Step, Walk};
use crate::task::{self, BodyIn, Describe, Outbox, Progress, Work};
use crate::without;

/// More than this is not shown.
const FOUND_MAX: usize = 1000;
/// So many entries are looked at before others have their turn.
const SLICE_ENTRIES: usize = 128;
/// What a search holds before it has found anything.
pub(super) const BYTES_MIN: usize = 4096;

/// Something that was found, as a path below the folder.
#[derive(Debug)]
struct Found {
    name: Vec<u8>,
    is_folder: bool,
    facts: Facts,
}

/// A search at work.
#[derive(Debug)]
pub(super) struct SearchTask {
    stage: SearchStage,
    walk: Walk,
    found: Vec<Found>,
    found_bytes: usize,
    is_cut: bool,
    writer: Writer,
    order: SortOrder,
    /// What it holds is taken from the budget of listings.
    share: Share,
    status: Status,
    fields: Fields,
    is_head: bool,
}

#[derive(Clone, Copy, Debug)]
enum SearchStage {
    Walking,
    Head,
    Body,
    Over,
    Refused,
}

impl SearchTask {
    pub(super) fn new(
        walk: Walk,
        writer: Writer,
        order: SortOrder,
        share: Share,
        status: Status,
        fields: Fields,
        is_head: bool,
    ) -> Self {
        Self {
            stage: SearchStage::Walking,
            walk,
            found: Vec::new(),
            found_bytes: 0,
            is_cut: false,
            writer,
            order,
            share,
            status,
            fields,
            is_head,
        }
    }

    /// Looks at some entries; whether the search is over.
    fn walk_on(&mut self) -> Result<bool, Status> {
        for _ in 0..SLICE_ENTRIES {
            match self.walk.next() {
                Step::Found { name, is_folder, facts } => {
                    if self.found.len() == FOUND_MAX {
                        self.is_cut = true;
                        return Ok(true);
                    }
                    self.found_bytes += name.capacity() + size_of::<Found>();
                    self.found.push(Found { name, is_folder, facts });
                }
                // A folder that became unreadable, or more entries than are looked at.
                Step::Failed(_) => {
                    self.is_cut = true;
                    return Ok(true);
                }
                Step::End => return Ok(true),
                Step::Worked | Step::Folder { .. } | Step::File { .. } => {}
            }
        }
        let bytes = BYTES_MIN + self.found_bytes + self.walk.waiting_bytes();
        if self.share.resize(bytes) {
            Ok(false)
        } else {
            Err(self.walk.place.over_budget("search"))
        }
    }

    /// The whole listing.
    fn write(&mut self, out: &mut Vec<u8>) {
        let order = self.order;
        self.found.sort_by(|a, b| {
            let compared = match order.by {
                By::Name => natural(&a.name, &b.name),
                By::Bytes => a.name.cmp(&b.name),
                By::Size => a.facts.size.cmp(&b.facts.size),
                By::Time => a.facts.modified.cmp(&b.facts.modified),
            };
            if order.is_descending { compared.reverse() } else { compared }
        });
        self.writer.begin(out);
        for found in &self.found {
            let Found { name, is_folder, facts } = &found;
            let (is_folder, facts) = (*is_folder, *facts);
            self.writer.row(Shown { name, is_folder, is_link: false, facts }, out);
        }
        self.writer.count(self.is_cut, out);
        self.writer.end(out);
    }
}

impl Work for SearchTask {
    without!(next_deadline, hold, absorb, narrow, stops_with_client, is_service, conclude);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, _: Moment) -> Poll<Progress> {
        match self.stage {
            SearchStage::Walking => match self.walk_on() {
                Ok(is_over) => {
                    if is_over {
                        self.stage = SearchStage::Head;
                    }
                    task::rest(cx)
                }
                Err(status) => {
                    out.fields.push("Retry-After", "1");
                    Poll::Ready(Progress::Fail(status))
                }
            },
            SearchStage::Head => {
                self.stage = if self.is_head { SearchStage::Over } else { SearchStage::Body };
                out.fields.append(&mut self.fields);
                Poll::Ready(Progress::Head(self.status, None))
            }
            SearchStage::Body => {
                self.write(&mut out.body);
                self.stage = SearchStage::Over;
                Poll::Ready(Progress::Body)
            }
            SearchStage::Over => Poll::Ready(Progress::Done),
            SearchStage::Refused => Poll::Ready(Progress::Fail(Status::SERVICE_UNAVAILABLE)),
        }
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        if matches!(self.stage, SearchStage::Walking | SearchStage::Head) {
            self.stage = SearchStage::Refused;
        }
    }
}

impl BodyIn for SearchTask {
    without!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for SearchTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "search"
    }
}
