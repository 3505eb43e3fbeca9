//! A request whose entry is hot: it is answered without a request to a server being made.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::{Family, Level};
use sekisho_http::Status;
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::cancel::Cause;
use sekisho_route::upstream_facts::UpstreamFacts;
use sekisho_upstream::cache::{CacheStatus, Key};

use super::folder::Cache;
use super::serve::{Serving, View};
use crate::cgi::HandlerContext;
use crate::task::{BodyIn, Describe, Outbox, Progress, Work};
use crate::without;

/// A hit.
#[derive(Debug)]
pub(in crate::upstream) struct Hit {
    pub(super) cache: Arc<Cache>,
    pub(super) key: Key,
    pub(super) context: Rc<dyn HandlerContext>,
    pub(super) view: View,
    pub(super) serving: Serving,
    pub(super) is_cancelled: bool,
}

impl Work for Hit {
    without!(next_deadline, hold, absorb, is_service, conclude);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, _: Moment) -> Poll<Progress> {
        if self.is_cancelled {
            return Poll::Ready(if self.serving.is_head_given() {
                Progress::Break
            } else {
                Progress::Fail(Status::SERVICE_UNAVAILABLE)
            });
        }
        let wall_secs = || self.context.wall_secs();
        self.serving.poll(cx, &self.view, None, out, wall_secs).map(|given| match given {
            Ok(progress) => progress,
            Err(error) => {
                let message = format_args!("cannot give an answer from the cache: {error}");
                self.context.report(Level::Crit, message);
                self.serving.discard(&self.cache, self.key);
                Progress::Break
            }
        })
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        self.is_cancelled = true;
    }

    fn narrow(&mut self, part: &Range<u64>) -> bool {
        self.serving.narrow(part);
        true
    }

    fn stops_with_client(&self) -> bool {
        true
    }
}

impl BodyIn for Hit {
    without!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for Hit {
    without!(plain_bytes, upstream_view, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        match self.view.pass.family {
            Family::Proxy => "proxy",
            family => family.name(),
        }
    }

    fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        facts.tries.truncate(facts.settled);
        facts.cache = Some(CacheStatus::Hit);
        facts.fields.clear();
        facts.fields.extend_from(&self.serving.kept.entry.fields);
    }
}
