//! `auth_request`: the decision waits for what another location says.

use std::task::{Context, Poll};

use sekisho_config::{Assignee, AuthRequest};
use sekisho_handler::filter::Wish;
use sekisho_handler::{Outbox, Progress, SubrequestView, Task, UpstreamView};
use sekisho_http::Status;
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment};
use sekisho_route::{Request, RouteState, Sent, SubrequestTarget, expand};

use super::{RequestTree, Subrequest};
use crate::exchange::Accepted;
use crate::worker::Worker;

/// So much of its body is read, so that the connection to another server is of use for the next one.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// A task that asks for permission.
#[derive(Debug)]
pub(crate) struct AuthTask {
    subrequest: Subrequest,
    rule: std::sync::Arc<AuthRequest>,
    answer: Option<Answer>,
    body_bytes: usize,
}

#[derive(Debug)]
struct Answer {
    status: Status,
    challenges: Vec<Vec<u8>>,
    values: Vec<(Assignee, Vec<u8>)>,
}

impl AuthTask {
    /// Begins to ask.
    pub(crate) fn start(
        worker: &std::rc::Rc<Worker>,
        accepted: &Accepted,
        request: &Request<'_>,
        route: &RouteState,
        rule: &std::sync::Arc<AuthRequest>,
    ) -> Result<Box<dyn Task>, Status> {
        let tree = RequestTree::new(worker, accepted, request);
        let wish = Wish { target: SubrequestTarget::get(&rule.path), hides_errors: true };
        let subrequest = Subrequest::start(&tree, &std::rc::Rc::new(route.clone()), 0, wish);
        let subrequest = subrequest.ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let rule = std::sync::Arc::clone(rule);
        Ok(Box::new(Self { subrequest, rule, answer: None, body_bytes: 0 }))
    }

    /// Its head has come: what is kept of it is what variables say in it.
    fn note(&mut self, now: Moment) {
        let (status, fields) = self.subrequest.answered();
        let challenges = fields.all(b"www-authenticate").map(<[u8]>::to_vec).collect();
        let tree = self.subrequest.tree();
        let request = tree.view(now);
        let table = tree.accepted.bound_site.site.table();
        let sent = Sent { status: Some(status), fields, ..Sent::default() };
        let value = |(assignee, template): &(Assignee, sekisho_config::Template)| {
            let mut value = Vec::new();
            let route = &self.subrequest.route;
            expand(template, table, &request, route, Some(&sent), &mut value);
            (*assignee, value)
        };
        let values = self.rule.sets.iter().map(value).collect();
        self.answer = Some(Answer { status, challenges, values });
    }
}

impl Task for AuthTask {
    fn name(&self) -> &'static str {
        "auth_request"
    }

    fn stops_with_client(&self) -> bool {
        true
    }

    /// The body is not for it.
    fn take(&mut self, _: &mut Context<'_>, _: &[u8], _: Moment) -> usize {
        0
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        loop {
            if self.body_bytes > BODY_BYTES_MAX {
                return Poll::Ready(Progress::Again);
            }
            match self.subrequest.poll(cx, out, now) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Progress::Head(..)) => {
                    self.note(now);
                    out.fields.clear();
                }
                Poll::Ready(Progress::Body) => {
                    self.body_bytes += out.body.len();
                    out.body.clear();
                }
                Poll::Ready(_) => {
                    out.fields.clear();
                    out.body.clear();
                    return Poll::Ready(Progress::Again);
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.subrequest.next_deadline()
    }

    fn upstream_view(&self, now: Moment) -> Option<UpstreamView> {
        self.subrequest.upstream_view(now)
    }

    fn describe_subrequests(&self, views: &mut Vec<SubrequestView>, now: Moment) {
        self.subrequest.describe_subrequests(views, now);
    }

    fn conclude(&mut self, route: &mut RouteState) {
        route.share_assigned(&self.subrequest.route);
        match self.answer.take() {
            Some(Answer { status, challenges, values }) => {
                for (assignee, value) in values {
                    route.assign(assignee, &value);
                }
                route.note_auth(status, challenges);
            }
            None => route.note_auth(Status::INTERNAL_SERVER_ERROR, Vec::new()),
        }
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        self.subrequest.cancel(cause, now);
    }
}
