//! Other responses before and behind a body (`add_before_body`, `add_after_body`).

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::Addition;
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment};
use sekisho_route::SubrequestTarget;

use super::{Requests, Wish};
use crate::task::{BodyIn, Describe, Outbox, Progress, SubrequestView, Task, Work, Wrapper};
use crate::{forward, without};

/// A body with others around it. The head of its source has been given.
#[derive(Debug)]
pub struct AdditionTask {
    source: Box<dyn Task>,
    requests: Rc<dyn Requests>,
    addition: Arc<Addition>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Start,
    Before(Box<dyn Task>),
    Source,
    After(Box<dyn Task>),
    Complete,
    Broken,
}

impl AdditionTask {
    /// Begins with it.
    pub fn new(source: Box<dyn Task>, requests: Rc<dyn Requests>, addition: Arc<Addition>) -> Self {
        Self { source, requests, addition, stage: Stage::Start }
    }

    /// What stands at a path, then `put`; `otherwise` where there is none.
    fn start(
        &self,
        path: Option<&Arc<[u8]>>,
        put: fn(Box<dyn Task>) -> Stage,
        otherwise: Stage,
    ) -> Stage {
        let Some(path) = path else { return otherwise };
        let task = self.requests.start(Wish::body_of(SubrequestTarget::get(path)));
        task.map_or(Stage::Broken, put)
    }

    /// The task whose turn it is.
    fn current(&mut self) -> Option<&mut Box<dyn Task>> {
        match &mut self.stage {
            Stage::Before(task) | Stage::After(task) => Some(task),
            Stage::Source => Some(&mut self.source),
            Stage::Start | Stage::Complete | Stage::Broken => None,
        }
    }

    /// The present one is complete.
    fn next(&mut self) {
        self.stage = match self.stage {
            Stage::Start => self.start(self.addition.before.as_ref(), Stage::Before, Stage::Source),
            Stage::Before(_) => Stage::Source,
            Stage::Source => {
                self.start(self.addition.after.as_ref(), Stage::After, Stage::Complete)
            }
            Stage::After(_) | Stage::Complete => Stage::Complete,
            Stage::Broken => Stage::Broken,
        };
    }
}

impl Wrapper for AdditionTask {
    type Inner = dyn Task;

    fn inner(&self) -> Option<&Self::Inner> {
        Some(&*self.source)
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        Some(&mut *self.source)
    }
}

impl Work for AdditionTask {
    forward!(stops_with_client, is_service, conclude);
    without!(narrow);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        loop {
            match self.stage {
                Stage::Complete => return Poll::Ready(Progress::Done),
                Stage::Broken => return Poll::Ready(Progress::Break),
                Stage::Start | Stage::Before(_) | Stage::Source | Stage::After(_) => {}
            }
            let Some(task) = self.current() else {
                self.next();
                continue;
            };
            match task.poll(cx, out, now) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Progress::Head(..)) => out.fields.clear(),
                Poll::Ready(Progress::Body) if out.body.is_empty() => {}
                Poll::Ready(Progress::Body) => return Poll::Ready(Progress::Body),
                Poll::Ready(Progress::Done) => self.next(),
                Poll::Ready(_) => self.stage = Stage::Broken,
            }
        }
    }

    fn hold(&mut self, is_held: bool, now: Moment) {
        if let Some(task) = self.current() {
            task.hold(is_held, now);
        }
    }

    fn absorb(&mut self, cx: &mut Context<'_>, now: Moment) {
        if let Some(task) = self.current() {
            task.absorb(cx, now);
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        match &self.stage {
            Stage::Before(task) | Stage::After(task) => task.next_deadline(),
            Stage::Source => self.source.next_deadline(),
            Stage::Start | Stage::Complete | Stage::Broken => None,
        }
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        if let Some(task) = self.current() {
            task.cancel(cause, now);
        }
    }
}

impl BodyIn for AdditionTask {
    forward!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for AdditionTask {
    forward!(plain_bytes, upstream_view, describe_upstream, describe_body);

    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn describe_subrequests(&self, views: &mut Vec<SubrequestView>, now: Moment) {
        match &self.stage {
            Stage::Before(task) | Stage::After(task) => task.describe_subrequests(views, now),
            _ => self.source.describe_subrequests(views, now),
        }
    }
}
