//! Whether there is an object, or a folder of objects: what a decision waits for.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use sekisho_http::{Fields, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment};
use sekisho_route::upstream_facts::UpstreamFacts;
use sekisho_route::{ObjectLook, RouteState};
use sekisho_storage::{Refusal, list_page};

use super::ask::{Ask, Gather};
use super::{Client, Question};
use crate::cgi::HandlerContext;
use crate::task::{Outbox, Progress, Task, UpstreamView};
use crate::upstream::{CacheQuery, Call};

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
        // The root itself is always a folder.
        let is_root = below == b"/";
        let query = [("list-type", &b"2"[..]), ("max-keys", b"1"), ("prefix", &key)];
        let question = Question::new(client.storage.place.bucket("GET", &query));
        Looking::Folder(Box::new(Gather::new(&client, question, now)), is_root)
    } else {
        let has_cache = client.sender.has_cache();
        let method = if has_cache { "GET" } else { "HEAD" };
        let mut question = Question::new(client.storage.place.object(method, &key, &[]));
        if has_cache {
            let key = client.cache_key(&key);
            question.cached =
                Some(CacheQuery { key, conditions: Fields::default(), is_head: true });
        }
        Looking::Object(Box::new(Ask::new(&client, question, now)))
    };
    Ok(Box::new(LookTask { looking, found: ObjectLook::Missing }))
}

/// A look at a store.
#[derive(Debug)]
struct LookTask {
    looking: Looking,
    found: ObjectLook,
}

#[derive(Debug)]
enum Looking {
    Object(Box<Ask>),
    /// And whether it is the root.
    Folder(Box<Gather>, bool),
}

impl Looking {
    fn ask(&self) -> &Ask {
        match self {
            Self::Object(ask) => ask,
            Self::Folder(gather, _) => &gather.ask,
        }
    }

    fn ask_mut(&mut self) -> &mut Ask {
        match self {
            Self::Object(ask) => ask,
            Self::Folder(gather, _) => &mut gather.ask,
        }
    }
}

/// What the head of an answer says; the body is not needed.
fn seen(ask: &Ask, status: Status) -> ObjectLook {
    if matches!(status.code(), 200..300 | 304) {
        return ObjectLook::Object;
    }
    let refusal = Refusal::new(status.code(), b"");
    match ask.client.refused(&ask.question.draft, &refusal) {
        Status::NOT_FOUND => ObjectLook::Missing,
        status => ObjectLook::Failed(status),
    }
}

impl Task for LookTask {
    fn name(&self) -> &'static str {
        "storage"
    }

    fn stops_with_client(&self) -> bool {
        true
    }

    /// The body is not for it.
    fn take(&mut self, _: &mut Context<'_>, _: &[u8], _: Moment) -> usize {
        0
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        self.found = match &mut self.looking {
            Looking::Object(ask) => loop {
                let progress = ready!(ask.poll(cx, out, now));
                out.fields.clear();
                out.body.clear();
                match progress {
                    Progress::Head(status, _) => break seen(ask, status),
                    Progress::Informational(_) => {}
                    Progress::Fail(status) => break ObjectLook::Failed(status),
                    _ => break ObjectLook::Failed(Status::BAD_GATEWAY),
                }
            },
            Looking::Folder(gather, is_root) => match ready!(gather.poll_success(cx, now)) {
                Ok(answer) => match list_page(&answer.body) {
                    Some(page) if page.entries.is_empty() && !*is_root => ObjectLook::Missing,
                    Some(_) => ObjectLook::Folder,
                    None => ObjectLook::Failed(Status::BAD_GATEWAY),
                },
                Err(status) => ObjectLook::Failed(status),
            },
        };
        Poll::Ready(Progress::Again)
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.looking.ask().next_deadline()
    }

    fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        self.looking.ask().describe_upstream(facts);
    }

    fn upstream_view(&self, now: Moment) -> Option<UpstreamView> {
        self.looking.ask().upstream_view(now)
    }

    fn conclude(&mut self, route_state: &mut RouteState) {
        route_state.objects.get_or_insert_default().note(self.found);
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        self.looking.ask_mut().cancel(cause, now);
    }
}
