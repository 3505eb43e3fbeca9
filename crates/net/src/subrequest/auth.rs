//! `auth_request`: the decision waits for what another location says.

use std::task::{Context, Poll};

use sekisho_config::{Assignee, AuthRequest};
use sekisho_handler::filter::Wish;
use sekisho_handler::{BodyIn, Describe, Outbox, Progress, Task, Work, Wrapper, forward, without};
use sekisho_http::Status;
use sekisho_lifecycle::Moment;
use sekisho_route::{RouteState, Sent, SubrequestTarget, expand};

use super::{RequestTree, Subrequest};

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
        tree: &std::rc::Rc<RequestTree>,
        route: &RouteState,
        rule: &std::sync::Arc<AuthRequest>,
    ) -> Result<Box<dyn Task>, Status> {
        let wish = Wish { target: SubrequestTarget::get(&rule.path), hides_errors: true };
        let subrequest = Subrequest::start(tree, &std::rc::Rc::new(route.clone()), 0, wish);
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

impl Wrapper for AuthTask {
    type Inner = Subrequest;

    fn inner(&self) -> Option<&Self::Inner> {
        Some(&self.subrequest)
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        Some(&mut self.subrequest)
    }
}

impl Work for AuthTask {
    forward!(cancel, next_deadline, is_service);
    without!(hold, absorb, narrow);

    fn stops_with_client(&self) -> bool {
        true
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
}

impl BodyIn for AuthTask {
    without!(body_sink, direct_bytes_done, end_body, return_body);

    /// The body is not for it.
    fn take(&mut self, _: &mut Context<'_>, _: &[u8], _: Moment) -> usize {
        0
    }
}

impl Describe for AuthTask {
    forward!(upstream_view, describe_subrequests);
    without!(plain_bytes, describe_upstream, describe_body);

    fn name(&self) -> &'static str {
        "auth_request"
    }
}
