//! Server-side includes in a body (`ssi`): the page is read in pieces, and what it includes is asked for at once where
//! it does not say to wait, a few ahead of what the client has. All comes in the order of the page.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::{Level, Ssi};
use sekisho_filter::ssi::{Environment, Include, Page, Step};
use sekisho_http::{Method, target};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment};
use sekisho_route::SubrequestTarget;

use super::{Requests, Wish};
use crate::task::{BodyIn, Describe, Outbox, Progress, SubrequestView, Task, Work, Wrapper};
use crate::{forward, without};

/// How many parts of a page are in hand at once.
const AHEAD_MAX: usize = 16;

/// A page with includes. The head of its source has been given.
#[derive(Debug)]
pub struct SsiTask {
    source: Box<dyn Task>,
    requests: Rc<dyn Requests>,
    ssi: Arc<Ssi>,
    /// `subrequest_output_buffer_size`
    kept_bytes_max: usize,
    page: Page,
    /// How long the source's body is to be, and how much of it has come.
    length: Option<u64>,
    taken: u64,
    has_ended: bool,
    parts: VecDeque<Part>,
    /// Nothing more of the page is looked at before the last part is complete.
    is_waiting: bool,
    is_broken: bool,
}

/// A part of what the client gets.
#[derive(Debug)]
enum Part {
    Text(Vec<u8>),
    Inner(Box<Inner>),
}

/// Something that is included.
#[derive(Debug)]
struct Inner {
    task: Box<dyn Task>,
    has_head: bool,
    has_output: bool,
    /// Its body becomes the value of this variable.
    set: Option<(Vec<u8>, Vec<u8>)>,
    /// What stands there where it has none.
    stub: Option<Vec<u8>>,
}

struct Around<'a>(&'a dyn Requests);

impl Environment for Around<'_> {
    fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.0.variable(name)
    }

    fn date(&self, format: &[u8], is_local: bool) -> Vec<u8> {
        self.0.date(format, is_local)
    }
}

impl SsiTask {
    /// Begins with it; `length` is how long the body of the source is, where that is known.
    pub fn new(
        source: Box<dyn Task>,
        length: Option<u64>,
        requests: Rc<dyn Requests>,
        ssi: Arc<Ssi>,
        kept_bytes_max: usize,
    ) -> Self {
        let page = Page::new(ssi.value_bytes_max, ssi.is_silent);
        Self {
            source,
            requests,
            ssi,
            kept_bytes_max,
            page,
            length,
            taken: 0,
            has_ended: false,
            parts: VecDeque::new(),
            is_waiting: false,
            is_broken: false,
        }
    }

    /// Reads the page on, as far as its source and the parts in hand allow.
    fn read(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) {
        while !self.is_waiting && self.parts.len() < AHEAD_MAX && !self.is_broken {
            let requests = Rc::clone(&self.requests);
            let around = Around(&*requests);
            let step = self.page.next_step(&mut requests.shared().borrow_mut(), &around);
            if let Some(step) = step {
                if let Some(part) = self.part(step, true) {
                    self.parts.push_back(part);
                }
                continue;
            }
            if self.has_ended {
                return;
            }
            match self.source.poll(cx, out, now) {
                Poll::Pending => return,
                Poll::Ready(Progress::Body) => {
                    self.taken += out.body.len() as u64;
                    self.page.push(&out.body);
                    out.body.clear();
                }
                Poll::Ready(Progress::Done) => {
                    self.is_broken = self.length.is_some_and(|length| length != self.taken);
                    self.has_ended = true;
                    self.page.end();
                }
                Poll::Ready(_) => self.is_broken = true,
            }
        }
    }

    fn part(&mut self, step: Step, may_wait: bool) -> Option<Part> {
        match step {
            Step::Text(text) => Some(Part::Text(text)),
            Step::Wrong(why) => {
                self.requests.report(Level::Error, format_args!("{why}"));
                None
            }
            Step::Include(include) => {
                let waits = include.waits || include.set.is_some();
                let Some(inner) = self.include(include) else {
                    // What went wrong has been reported.
                    return (!self.ssi.is_silent)
                        .then(|| Part::Text(self.page.error_text().to_vec()));
                };
                self.is_waiting |= waits && may_wait;
                Some(Part::Inner(Box::new(inner)))
            }
        }
    }

    fn include(&self, include: Include) -> Option<Inner> {
        let Some(target) = resolve(&include.target, self.requests.path()) else {
            let shown = include.target.escape_ascii();
            self.requests
                .report(Level::Error, format_args!("unsafe URI in SSI include: \"{shown}\""));
            return None;
        };
        let stub = include.stub.as_ref().map(|name| {
            let block = self.requests.shared().borrow().block(name).map(<[u8]>::to_vec);
            block.ok_or(name)
        });
        let stub = match stub.transpose() {
            Ok(stub) => stub,
            Err(name) => {
                let name = name.escape_ascii();
                let message = format_args!("\"stub\"=\"{name}\" for \"include\" not found");
                self.requests.report(Level::Error, message);
                return None;
            }
        };
        let task = self.requests.start(Wish { target, hides_errors: stub.is_some() })?;
        let set = include.set.map(|name| (name, Vec::new()));
        Some(Inner { task, has_head: false, has_output: false, set, stub })
    }

    /// The first part is complete.
    fn complete(&mut self) {
        let Some(part) = self.parts.pop_front() else { return };
        if let Part::Inner(inner) = part {
            let Inner { has_output, set, stub, .. } = *inner;
            if let Some((name, value)) = set {
                let is_kept = self.requests.shared().borrow_mut().set(&name, value);
                if !is_kept {
                    let message = format_args!("too much in SSI variables");
                    self.requests.report(Level::Error, message);
                }
            }
            if let Some(block) = stub.filter(|_| !has_output) {
                self.put_block(&block);
            }
        }
        if self.parts.is_empty() {
            self.is_waiting = false;
        }
    }

    /// Puts the parts of a block where the first part stood.
    fn put_block(&mut self, block: &[u8]) {
        let mut page = self.page.within(block, self.ssi.value_bytes_max);
        let requests = Rc::clone(&self.requests);
        let mut parts = Vec::new();
        loop {
            let around = Around(&*requests);
            let step = page.next_step(&mut requests.shared().borrow_mut(), &around);
            let Some(step) = step else { break };
            parts.extend(self.part(step, false));
        }
        for part in parts.into_iter().rev() {
            self.parts.push_front(part);
        }
    }

    /// Lets what is included go on that is not first: its answer begins to be made.
    fn prepare(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) {
        for part in self.parts.iter_mut().skip(1) {
            let Part::Inner(inner) = part else { continue };
            if !inner.has_head
                && let Poll::Ready(progress) = inner.task.poll(cx, out, now)
            {
                match progress {
                    Progress::Head(..) => inner.has_head = true,
                    _ => self.is_broken = true,
                }
                out.fields.clear();
                out.body.clear();
            }
        }
    }
}

/// What an include names: a path, which is relative to that of the page, and arguments.
fn resolve(text: &[u8], page: &[u8]) -> Option<SubrequestTarget> {
    let mark = text.iter().position(|byte| *byte == b'?');
    let (path, query) = match mark {
        Some(mark) => (&text[..mark], &text[mark + 1..]),
        None => (text, &[][..]),
    };
    let mut whole = Vec::new();
    if !path.starts_with(b"/") {
        let folder = page.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        // The page's path is decoded already.
        for byte in &page[..folder] {
            match byte {
                b'%' | b'?' | b'#' => whole.extend_from_slice(format!("%{byte:02X}").as_bytes()),
                _ => whole.push(*byte),
            }
        }
    }
    whole.extend_from_slice(path);
    let mut resolved = Vec::new();
    target::resolve(&whole, true, &mut resolved).ok()?;
    (!resolved.is_empty()).then(|| SubrequestTarget {
        path: resolved,
        query: query.to_vec(),
        method: Method::Get,
        slice_start: None,
    })
}

impl Wrapper for SsiTask {
    type Inner = dyn Task;

    fn inner(&self) -> Option<&Self::Inner> {
        Some(&*self.source)
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        Some(&mut *self.source)
    }
}

impl Work for SsiTask {
    forward!(stops_with_client, is_service, conclude);
    without!(narrow);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        loop {
            self.read(cx, out, now);
            if self.is_broken {
                return Poll::Ready(Progress::Break);
            }
            let inner = match self.parts.front_mut() {
                None if self.has_ended => return Poll::Ready(Progress::Done),
                None => return Poll::Pending,
                Some(Part::Text(text)) => {
                    std::mem::swap(text, &mut out.body);
                    self.complete();
                    return Poll::Ready(Progress::Body);
                }
                Some(Part::Inner(inner)) => inner,
            };
            match inner.task.poll(cx, out, now) {
                Poll::Pending => {
                    self.prepare(cx, out, now);
                    if self.is_broken {
                        return Poll::Ready(Progress::Break);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Progress::Head(..)) => {
                    inner.has_head = true;
                    out.fields.clear();
                }
                Poll::Ready(Progress::Body) => {
                    inner.has_output |= !out.body.is_empty();
                    if let Some((_, value)) = &mut inner.set {
                        value.append(&mut out.body);
                        if value.len() > self.kept_bytes_max {
                            let message = format_args!("too big subrequest response");
                            self.requests.report(Level::Error, message);
                            self.is_broken = true;
                        }
                    } else if !out.body.is_empty() {
                        return Poll::Ready(Progress::Body);
                    }
                }
                Poll::Ready(Progress::Done) => self.complete(),
                Poll::Ready(_) => self.is_broken = true,
            }
        }
    }

    fn hold(&mut self, is_held: bool, now: Moment) {
        match self.parts.front_mut() {
            Some(Part::Inner(inner)) => inner.task.hold(is_held, now),
            _ => self.source.hold(is_held, now),
        }
    }

    fn absorb(&mut self, cx: &mut Context<'_>, now: Moment) {
        self.source.absorb(cx, now);
        for part in &mut self.parts {
            if let Part::Inner(inner) = part {
                inner.task.absorb(cx, now);
            }
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let inner = self.parts.iter().filter_map(|part| match part {
            Part::Inner(inner) => Some(inner),
            Part::Text(_) => None,
        });
        // One that waits for its turn has no deadline of its own: nobody asks it.
        let polled = inner.enumerate().filter(|(at, inner)| *at == 0 || !inner.has_head);
        let inner = polled.filter_map(|(_, inner)| inner.task.next_deadline());
        let is_read = !self.is_waiting && self.parts.len() < AHEAD_MAX && !self.has_ended;
        let source = is_read.then(|| self.source.next_deadline()).flatten();
        inner.chain(source).min_by_key(|deadline| deadline.at)
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        self.source.cancel(cause, now);
        for part in &mut self.parts {
            if let Part::Inner(inner) = part {
                inner.task.cancel(cause, now);
            }
        }
        if !self.parts.is_empty() || self.has_ended {
            self.is_broken = true;
        }
    }
}

impl BodyIn for SsiTask {
    forward!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for SsiTask {
    forward!(plain_bytes, upstream_view, describe_upstream, describe_body);

    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn describe_subrequests(&self, views: &mut Vec<SubrequestView>, now: Moment) {
        self.source.describe_subrequests(views, now);
        for part in &self.parts {
            if let Part::Inner(inner) = part {
                inner.task.describe_subrequests(views, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_relative_to_their_page_and_never_leave_the_root() {
        let shown = |text: &str, page: &str| {
            resolve(text.as_bytes(), page.as_bytes()).map(|target| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                (text(&target.path), text(&target.query))
            })
        };
        let some = |path: &str, query: &str| Some((path.to_owned(), query.to_owned()));
        for (text, page, expected) in [
            ("/a?b=c?d", "/x", some("/a", "b=c?d")),
            ("b", "/a/x", some("/a/b", "")),
            ("../b", "/a/x", some("/b", "")),
            ("../../b", "/a/x", None),
            ("/../etc", "/", None),
            ("/%2e%2e/etc", "/", None),
            ("/tes%741?%41", "/", some("/test1", "%41")),
            ("/a%3fb", "/", some("/a?b", "")),
            ("b", "/%41?/x", some("/%41?/b", "")),
            ("", "/a/x", some("/a/", "")),
        ] {
            assert_eq!(shown(text, page), expected, "{text} in {page}");
        }
    }
}
