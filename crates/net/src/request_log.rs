//! What is written about a request: its line in the access log, and what an operator wants to know about an
//! answer that went wrong.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use sekisho_config::Level;
use sekisho_http::refusal::Cause;
use sekisho_http::{Known, Status};
use sekisho_lifecycle::Moment;
use sekisho_route::{Request, RouteState, Sent};

use crate::dispatch::RouteInput;
use crate::error_context::{ErrorContext, RequestText, SystemError};
use crate::exchange::{Accepted, Exchange};
use crate::link::{Link, request_view};
use crate::worker::{BoundSite, Worker};

/// How many lines about missing files a worker writes in a second.
const NOT_FOUND_LINES: u32 = 20;

/// Keeps lines about missing files few: a client that probes for files must not fill the log.
#[derive(Debug, Default)]
pub struct NotFoundLines {
    second: i64,
    written: u32,
    left_out: u64,
}

impl NotFoundLines {
    /// Whether a line may be written now, and how many were left out since the last one.
    fn admit(&mut self, second: i64) -> Option<u64> {
        if self.second != second {
            (self.second, self.written) = (second, 0);
        }
        if self.written >= NOT_FOUND_LINES {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Exchange {
    /// Writes the access log's line.
    pub(crate) fn log(&mut self, link: &Link, is_complete: bool, now: Moment) {
        let Some(accepted) = self.accepted.clone() else { return };
        let worker = &link.worker;
        if self.status == Status::FORBIDDEN {
            worker.shared.sandbox_recheck.notify_one();
        }
        let site = &accepted.bound_site.site;
        {
            let mut stats = worker.stats.borrow_mut();
            stats.add(self.status, now.since(self.arrival.since));
            stats.locations.add(site.serial(), self.route.location.0);
        }
        self.note_end(link, is_complete, now);
        let settings = &site.location(self.route.location).settings;
        if settings.access_logs.is_empty() && !self.route.has_log_entries() {
            return;
        }
        let body_bytes = self.body_bytes.saturating_sub(self.unsent_bytes());
        let facts = link.facts();
        let request = request_view(&self.head, &accepted, self.arrival, &facts, link, now);
        let sent = Sent {
            status: Some(self.status),
            bytes: self.head_bytes + body_bytes,
            body_bytes,
            fields: &self.fields,
            trailers: self.trailers.as_deref(),
            request_bytes: self.received,
            plain_bytes: self.plain_bytes,
            completed: is_complete,
            framing: self.framing,
        };
        worker.access_log.write(site, &request, &self.route, &sent);
        // Fields and lines have variables too.
        write_entries(worker, &accepted.bound_site, &request, &mut self.route, now);
    }
}

/// Writes into the error log what the decision had to say (`rewrite_log` and the like).
pub(crate) fn write_entries(
    worker: &Worker,
    bound_site: &BoundSite,
    request: &Request<'_>,
    route: &mut RouteState,
    now: Moment,
) {
    if !route.has_log_entries() {
        return;
    }
    let log_entries = route.take_log_entries();
    let logger = bound_site.site.error_logger(route.location);
    let stamp = worker.clock.stamp(now);
    let about = about(bound_site, request, route);
    for log_entry in log_entries.iter().filter(|log_entry| logger.wants(log_entry.level)) {
        let message = format_args!("{}, {about}", log_entry.text);
        logger.write(log_entry.level, stamp, Some(request.connection.id), message);
    }
}

/// What the error log says about a request.
pub(crate) fn about<'a>(
    bound_site: &'a BoundSite,
    request: &Request<'a>,
    route: &RouteState,
) -> ErrorContext<'a> {
    let table = bound_site.site.table();
    ErrorContext {
        client: route.client(request.connection),
        server: table.server(table.location(route.location).server),
        request: RequestText::of(request.head),
        upstream: None,
        id: Some(request.request_id),
    }
}

/// Whose answer went wrong.
pub(crate) struct Trouble<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) accepted: &'a Accepted,
    pub(crate) request: &'a Request<'a>,
    pub(crate) route: &'a RouteState,
}

impl Trouble<'_> {
    /// Writes into the error log what an operator wants to know about an answer that went wrong; `looked` is
    /// the error of the first file that could not be opened.
    pub(crate) fn note(
        &self,
        status: Status,
        input: &RouteInput,
        looked: Option<(rustix::io::Errno, &[u8])>,
        now: Moment,
    ) {
        let refusal = match input {
            RouteInput::Refused(refusal) => Some(refusal),
            // The handler that failed has said why.
            RouteInput::Failed(_) => return,
            RouteInput::Request | RouteInput::Again | RouteInput::Instead(..) => None,
        };
        if refusal.is_none() && !status.is_error() {
            return;
        }
        let Self { worker, request, .. } = self;
        let site = &self.accepted.bound_site.site;
        let logger = site.error_logger(self.route.location);
        let is_too_large = refusal.is_some_and(|refusal| refusal.cause == Cause::BodyTooLarge);
        let level = if refusal.is_some() && !is_too_large { Level::Info } else { Level::Error };
        if !logger.wants(level) {
            return;
        }
        let stamp = worker.clock.stamp(now);
        let facts = request.connection;
        let about = about(&self.accepted.bound_site, request, self.route);
        if is_too_large {
            // In nginx's words, which people search for.
            let body = request.head.known(Known::ContentLength).map_or_else(
                || "chunked body".to_owned(),
                |length| format!("body: {} bytes", length.escape_ascii()),
            );
            let message = format_args!("client intended to send too large {body}, {about}");
            return logger.write(level, stamp, Some(facts.id), message);
        }
        if let Some(refusal) = refusal {
            let cause = refusal.cause.message();
            let message = format_args!("refused with {status}: {cause}, {about}");
            return logger.write(level, stamp, Some(facts.id), message);
        }
        let (Some((errno, file)), true) = (looked, matches!(status.code(), 403 | 404 | 500)) else {
            return;
        };
        let settings = &site.location(self.route.location).settings;
        if status == Status::NOT_FOUND && !settings.log_not_found {
            return;
        }
        let Some(left_out) = worker.not_found.borrow_mut().admit(stamp.unix_secs) else { return };
        if left_out > 0 {
            let message = format_args!("{left_out} similar lines were left out before this one");
            logger.write(level, stamp, None, message);
        }
        if status == Status::FORBIDDEN && errno == rustix::io::Errno::NOENT {
            // An index file is what was not there.
            let folder_bytes = file.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            let folder = file[..folder_bytes].escape_ascii();
            let message = format_args!("directory index of \"{folder}\" is forbidden, {about}");
            return logger.write(level, stamp, Some(facts.id), message);
        }
        let hint = worker.denial_hint(errno) + &link_hint(worker, file, errno);
        let (file, why) = (file.escape_ascii(), SystemError(errno));
        let message = format_args!("open() \"{file}\" failed ({why}){hint}, {about}");
        logger.write(level, stamp, Some(facts.id), message);
    }
}

/// The first link on the way to a file that was denied, and where it leads: the sandbox may not allow that.
fn link_hint(worker: &Worker, file: &[u8], errno: rustix::io::Errno) -> String {
    let is_kept = worker.shared.is_kept.load(Ordering::Relaxed);
    if errno != rustix::io::Errno::ACCESS || !is_kept {
        return String::new();
    }
    let ways: Vec<&Path> = Path::new(OsStr::from_bytes(file)).ancestors().collect();
    let link = ways.into_iter().rev().find_map(|at| Some((at, std::fs::read_link(at).ok()?)));
    let shown = |path: &Path| path.as_os_str().as_bytes().escape_ascii().to_string();
    link.map_or(String::new(), |(link, target)| {
        format!(": \"{}\" is a link to \"{}\"", shown(link), shown(&target))
    })
}
