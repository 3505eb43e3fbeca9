//! A response that is put together of slices (`slice`), each asked for when the one before is complete.

use std::rc::Rc;
use std::task::{Context, Poll};

use sekisho_config::Level;
use sekisho_filter::slice::{Slices, WrongSlice};
use sekisho_http::{Fields, Status};
use sekisho_lifecycle::Moment;
use sekisho_route::SubrequestTarget;

use super::{Requests, Wish};
use crate::task::{BodyIn, Describe, Outbox, Progress, Task, Work, Wrapper};
use crate::{forward, without};

/// The slices of a resource that a client gets. The head of the first one has been given.
#[derive(Debug)]
pub struct SliceTask {
    /// The present slice.
    source: Box<dyn Task>,
    requests: Rc<dyn Requests>,
    slices: Slices,
    /// What each slice asks for.
    target: SubrequestTarget,
    /// Where the present slice begins, where its next byte stands, and where it ends.
    start: u64,
    at: u64,
    end: u64,
    /// Whether the present slice is passed over.
    is_passed_over: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The head of the present slice has not come.
    Head,
    Body,
    Complete,
    Broken,
}

impl SliceTask {
    /// Begins with the first slice, whose bytes are `at..end` of the whole.
    pub fn new(
        source: Box<dyn Task>,
        requests: Rc<dyn Requests>,
        slices: Slices,
        target: SubrequestTarget,
        (at, end): (u64, u64),
    ) -> Self {
        let (is_passed_over, stage) = (false, Stage::Body);
        Self { source, requests, slices, target, start: at, at, end, is_passed_over, stage }
    }

    /// The same, where the first slice has to be asked for again in its turn.
    #[must_use]
    pub fn without_first(self) -> Self {
        Self { is_passed_over: true, ..self }
    }

    /// The head of a slice has come.
    fn judge(&mut self, status: Status, fields: &Fields) -> Stage {
        if status != Status::PARTIAL_CONTENT {
            let code = status.code();
            let message = format_args!("unexpected status code {code} in slice response");
            self.requests.report(Level::Error, message);
            return Stage::Broken;
        }
        match self.slices.check(fields.get("content-range"), fields.get("etag")) {
            Ok((range, _)) => {
                (self.start, self.at, self.end) = (range.start, range.start, range.end);
                Stage::Body
            }
            Err(wrong) => self.broken(wrong),
        }
    }

    fn broken(&self, wrong: WrongSlice) -> Stage {
        self.requests.report(Level::Error, format_args!("{wrong}"));
        Stage::Broken
    }

    /// Its body is not what its head says.
    fn wrong_length(&self) -> Stage {
        self.broken(WrongSlice::Length(self.at - self.start, self.end - self.start))
    }

    /// The present slice is complete.
    fn next(&mut self) -> Stage {
        if self.at != self.end {
            return self.wrong_length();
        }
        self.is_passed_over = false;
        let Some(start) = self.slices.next_start() else { return Stage::Complete };
        let target = SubrequestTarget { slice_start: Some(start), ..self.target.clone() };
        match self.requests.start(Wish::body_of(target)) {
            Some(task) => {
                self.source = task;
                Stage::Head
            }
            None => Stage::Broken,
        }
    }
}

impl Wrapper for SliceTask {
    type Inner = dyn Task;

    fn inner(&self) -> Option<&Self::Inner> {
        Some(&*self.source)
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        Some(&mut *self.source)
    }
}

impl Work for SliceTask {
    forward!(cancel, next_deadline, hold, absorb, stops_with_client, is_service, conclude);
    without!(narrow);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        loop {
            match self.stage {
                Stage::Complete => return Poll::Ready(Progress::Done),
                Stage::Broken => return Poll::Ready(Progress::Break),
                Stage::Head | Stage::Body => {}
            }
            match self.source.poll(cx, out, now) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Progress::Head(status, _)) if self.stage == Stage::Head => {
                    self.stage = self.judge(status, &out.fields);
                    out.fields.clear();
                }
                Poll::Ready(Progress::Body) if self.stage == Stage::Body => {
                    let wanted = self.slices.wanted_of(self.at, out.body.len());
                    self.at += out.body.len() as u64;
                    if self.at > self.end {
                        self.stage = self.wrong_length();
                        out.body.clear();
                        continue;
                    }
                    if self.is_passed_over {
                        out.body.clear();
                        continue;
                    }
                    out.body.truncate(wanted.end);
                    out.body.drain(..wanted.start);
                    if !out.body.is_empty() {
                        return Poll::Ready(Progress::Body);
                    }
                }
                Poll::Ready(Progress::Done) if self.stage == Stage::Body => {
                    self.stage = self.next();
                }
                Poll::Ready(_) => self.stage = Stage::Broken,
            }
        }
    }
}

impl BodyIn for SliceTask {
    forward!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for SliceTask {
    forward!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        self.source.name()
    }
}
