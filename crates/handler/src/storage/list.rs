//! `autoindex` of a folder in a store: one page of its entries at a time.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use sekisho_http::Status;
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment};
use sekisho_route::upstream_facts::UpstreamFacts;
use sekisho_storage::{Page, Scope, list_page};

use super::ask::Gather;
use super::{Client, Question};
use crate::cgi::HandlerContext;
use crate::listing::{self, Listable, ObjectListing};
use crate::task::{BodyIn, Describe, Outbox, Progress, Task, UpstreamView, Work};
use crate::upstream::Call;
use crate::without;

/// Begins to list the folder that was decided on; an error is the status to answer with.
pub fn list(
    call: &Call<'_>,
    listing: &listing::Call<'_>,
    context: Rc<dyn HandlerContext>,
    now: Moment,
) -> Result<Box<dyn Task>, Status> {
    let client = Client::of_root(call, context)?;
    let listing = ObjectListing::new(listing)?;
    let prefix = client.key(&call.route_state.file, call.route_state.root_bytes);
    let draft = client.storage.place.list(&prefix, Scope::Folder, listing.next.as_deref());
    let question = Question::new(draft);
    let gather = Gather::new(&client, question, now);
    Ok(Box::new(ListTask { gather, listing, prefix, body: None, is_over: false }))
}

/// A listing of a folder in a store.
#[derive(Debug)]
struct ListTask {
    gather: Gather,
    listing: ObjectListing,
    prefix: Vec<u8>,
    /// The page, until it is given.
    body: Option<Vec<u8>>,
    is_over: bool,
}

impl ListTask {
    fn entries(&self, page: &Page) -> Vec<Listable> {
        let name = |key| name_below(&self.prefix, key).map(<[u8]>::to_vec);
        let folders = page.prefixes.iter().filter_map(|prefix| {
            Some(Listable { name: name(prefix)?, is_folder: true, bytes: 0, modified: 0 })
        });
        let objects = page.entries.iter().filter_map(|entry| {
            let (bytes, modified) = (entry.bytes, entry.modified);
            Some(Listable { name: name(&entry.key)?, is_folder: false, bytes, modified })
        });
        folders.chain(objects).collect()
    }
}

/// The name of an object or folder in a folder. An object that is called like the folder itself stands for the folder.
pub(super) fn name_below<'k>(folder: &[u8], key: &'k str) -> Option<&'k [u8]> {
    let name = key.as_bytes().strip_prefix(folder)?;
    let name = name.strip_suffix(b"/").unwrap_or(name);
    (!name.is_empty() && !name.contains(&b'/')).then_some(name)
}

impl Work for ListTask {
    without!(hold, absorb, narrow, is_service, conclude);

    fn stops_with_client(&self) -> bool {
        true
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        if self.is_over {
            return Poll::Ready(Progress::Done);
        }
        if let Some(body) = self.body.take() {
            self.is_over = true;
            if self.listing.is_head {
                return Poll::Ready(Progress::Done);
            }
            out.body.extend_from_slice(&body);
            return Poll::Ready(Progress::Body);
        }
        let answer = match ready!(self.gather.poll_success(cx, now)) {
            Ok(answer) => answer,
            Err(status) => return Poll::Ready(Progress::Fail(status)),
        };
        let Some(page) = list_page(&answer.body) else {
            return Poll::Ready(Progress::Fail(Status::BAD_GATEWAY));
        };
        let body = self.listing.write(self.entries(&page), page.next.as_deref());
        let bytes = body.len() as u64;
        self.body = Some(body);
        out.fields.append(&mut self.listing.fields);
        Poll::Ready(Progress::Head(self.listing.status, Some(bytes)))
    }

    fn next_deadline(&self) -> Option<Deadline> {
        if self.body.is_some() || self.is_over { None } else { self.gather.ask.next_deadline() }
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        self.gather.ask.cancel(cause, now);
    }
}

impl BodyIn for ListTask {
    without!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for ListTask {
    without!(plain_bytes, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "storage"
    }

    fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        self.gather.ask.describe_upstream(facts);
    }

    fn upstream_view(&self, now: Moment) -> Option<UpstreamView> {
        self.gather.ask.upstream_view(now)
    }
}
