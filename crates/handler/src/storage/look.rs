//! Whether there is an object, or a folder of objects: what a decision waits for.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use sekisho_http::{Fields, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment};
use sekisho_route::upstream_facts::UpstreamFacts;
use sekisho_route::{ObjectLook, RouteState};
use sekisho_storage::{Refusal, Scope, list_page};

use super::ask::{Ask, Gather, Refusing};
use super::work::EMPTY_PAGES_MAX;
use super::{Client, Question};
use crate::cgi::HandlerContext;
use crate::task::{BodyIn, Describe, Outbox, Progress, Task, UpstreamView, Work};
use crate::upstream::{CacheQuery, Call};
use crate::without;

/// Begins to look for what the decision needs to know; an error is the status to answer with.
pub fn look(
    call: &Call<'_>,
    context: Rc<dyn HandlerContext>,
    now: Moment,
) -> Result<Box<dyn Task>, Status> {
    let route_state = call.route_state;
    let client = Client::of_root(call, context)?;
    let asked = route_state.objects.as_deref().map_or(&b""[..], |objects| objects.asked());
    let below = asked.get(route_state.root_bytes..).unwrap_or_default();
    let key = client.storage.place.key(below);
    let looking = if below.ends_with(b"/") {
        let question = Question::new(client.storage.place.list(&key, Scope::First, None));
        let gather = Box::new(Gather::new(&client, question, now));
        // The root itself is always a folder.
        Looking::Folder(Folder { gather, is_root: below == b"/", key, pages: 1 })
    } else {
        let has_cache = client.sender.has_cache();
        let method = if has_cache { "GET" } else { "HEAD" };
        let mut question = Question::new(client.storage.place.object(method, &key));
        if has_cache {
            let key = client.storage.place.cache_key(&key);
            question.cached =
                Some(CacheQuery { key, conditions: Fields::default(), is_head: true });
        }
        Looking::Object(Box::new(Ask::new(&client, question, now)))
    };
    Ok(Box::new(LookTask { looking, refusing: None, found: ObjectLook::Missing }))
}

/// A look at a store.
#[derive(Debug)]
struct LookTask {
    looking: Looking,
    refusing: Option<Refusing>,
    found: ObjectLook,
}

#[derive(Debug)]
enum Looking {
    Object(Box<Ask>),
    Folder(Folder),
}

/// A folder is what keys begin with.
#[derive(Debug)]
struct Folder {
    gather: Box<Gather>,
    is_root: bool,
    key: Vec<u8>,
    /// How many pages were asked for: one without any key may lead to another one.
    pages: usize,
}

impl Folder {
    fn poll(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<ObjectLook> {
        loop {
            let answer = match ready!(self.gather.poll_success(cx, now)) {
                Ok(answer) => answer,
                Err(status) => return Poll::Ready(ObjectLook::Failed(status)),
            };
            let Some(page) = list_page(&answer.body) else {
                return Poll::Ready(ObjectLook::Failed(Status::BAD_GATEWAY));
            };
            if !page.entries.is_empty() || self.is_root {
                return Poll::Ready(ObjectLook::Folder);
            }
            let Some(next) = page.next else { return Poll::Ready(ObjectLook::Missing) };
            if self.pages == EMPTY_PAGES_MAX {
                return Poll::Ready(ObjectLook::Failed(Status::BAD_GATEWAY));
            }
            self.pages += 1;
            let client = Rc::clone(&self.gather.ask.client);
            let draft = client.storage.place.list(&self.key, Scope::First, Some(next.as_bytes()));
            *self.gather = Gather::new(&client, Question::new(draft), now);
        }
    }
}

impl Looking {
    fn ask(&self) -> &Ask {
        match self {
            Self::Object(ask) => ask,
            Self::Folder(folder) => &folder.gather.ask,
        }
    }

    fn ask_mut(&mut self) -> &mut Ask {
        match self {
            Self::Object(ask) => ask,
            Self::Folder(folder) => &mut folder.gather.ask,
        }
    }
}

/// What the head of an answer says; `None` where the body is needed.
const fn seen(status: Status) -> Option<ObjectLook> {
    match status.code() {
        200..300 | 304 => Some(ObjectLook::Object),
        404 => Some(ObjectLook::Missing),
        _ => None,
    }
}

fn refused(ask: &Ask, refusal: &Refusal) -> ObjectLook {
    match ask.client.refused(&ask.question.draft, refusal) {
        Status::NOT_FOUND => ObjectLook::Missing,
        status => ObjectLook::Failed(status),
    }
}

impl Work for LookTask {
    without!(hold, absorb, narrow, is_service);

    fn stops_with_client(&self) -> bool {
        true
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        self.found = match &mut self.looking {
            Looking::Object(ask) => loop {
                let progress = ready!(ask.poll(cx, out, now));
                if let Some(refusing) = &mut self.refusing {
                    match refusing.take(&progress, out) {
                        Some(refusal) => break refused(ask, &refusal),
                        None => continue,
                    }
                }
                if let Progress::Head(status, _) = progress
                    && seen(status).is_none()
                {
                    self.refusing = Some(Refusing::new(status, out));
                    continue;
                }
                out.fields.clear();
                out.body.clear();
                match progress {
                    Progress::Head(status, _) => break seen(status).unwrap_or(ObjectLook::Missing),
                    Progress::Informational(_) => {}
                    Progress::Fail(status) => break ObjectLook::Failed(status),
                    _ => break ObjectLook::Failed(Status::BAD_GATEWAY),
                }
            },
            Looking::Folder(folder) => ready!(folder.poll(cx, now)),
        };
        Poll::Ready(Progress::Again)
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.looking.ask().next_deadline()
    }

    fn conclude(&mut self, route_state: &mut RouteState) {
        route_state.objects.get_or_insert_default().note(self.found);
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        self.looking.ask_mut().cancel(cause, now);
    }
}

impl BodyIn for LookTask {
    without!(body_sink, direct_bytes_done, end_body, return_body);

    /// The body is not for it.
    fn take(&mut self, _: &mut Context<'_>, _: &[u8], _: Moment) -> usize {
        0
    }
}

impl Describe for LookTask {
    without!(plain_bytes, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "storage"
    }

    fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        self.looking.ask().describe_upstream(facts);
    }

    fn upstream_view(&self, now: Moment) -> Option<UpstreamView> {
        self.looking.ask().upstream_view(now)
    }
}
