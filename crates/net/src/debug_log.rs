//! What `error_log … debug` says about a request, a line for each phase: its head, the location and what is done there,
//! each server that was asked, the response. The close of a connection is logged where it happens.

use std::fmt;
use std::time::Duration;

use sekisho_config::Level;
use sekisho_http::{BodyLength, Status};
use sekisho_lifecycle::Moment;
use sekisho_route::{Action, Request, RouteState};

use crate::exchange::Exchange;
use crate::link::Link;
use crate::worker::{BoundSite, Worker};

/// The head of a request and what was decided.
pub(crate) fn note_decision<F>(
    worker: &Worker,
    bound_site: &BoundSite,
    request: &Request<'_>,
    route: &RouteState,
    action: &Action<F>,
    now: Moment,
) {
    let logger = bound_site.site.error_logger(route.location);
    if !logger.wants(Level::Debug) {
        return;
    }
    let (head, connection) = (request.head, Some(request.connection.id));
    let stamp = worker.clock.stamp(now);
    let (method, target) = (head.method_name().escape_ascii(), head.target().escape_ascii());
    let (version, fields) = (head.version().as_str(), head.fields().count());
    let message = format_args!("request: \"{method} {target} {version}\", {fields} fields");
    logger.write(Level::Debug, stamp, connection, message);
    let location = &bound_site.site.location(route.location).matches;
    let path = route.path.escape_ascii();
    let message = format_args!("location \"{location}\" for \"{path}\": {}", Shown(action, route));
    logger.write(Level::Debug, stamp, connection, message);
}

/// What is done.
struct Shown<'a, F>(&'a Action<F>, &'a RouteState);

impl<F> fmt::Display for Shown<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.1.file.escape_ascii();
        match self.0 {
            Action::File(_) => write!(f, "file \"{file}\""),
            Action::Cgi => write!(f, "program \"{file}\""),
            Action::Pass => f.write_str("pass to a server"),
            Action::FileOp(_) => write!(f, "change of \"{file}\""),
            Action::Listing => write!(f, "listing of \"{file}\""),
            Action::Service => f.write_str("service"),
            Action::Status(_) => f.write_str("status page"),
            Action::Redirect(status) => {
                write!(f, "redirect {status} to \"{}\"", self.1.text.escape_ascii())
            }
            Action::Text(status) => write!(f, "text with {status}"),
            Action::Error(status) => write!(f, "error {status}"),
            Action::Options => f.write_str("options"),
            Action::Close => f.write_str("close"),
            Action::Wait(_) => f.write_str("wait"),
        }
    }
}

/// A time in seconds, or a dash.
struct Seconds(Option<Duration>);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => write!(f, "{:.3}", time.as_secs_f64()),
            None => f.write_str("-"),
        }
    }
}

impl Exchange {
    /// The head of the response leaves.
    pub(crate) fn note_head(&self, link: &Link, length: BodyLength, now: Moment) {
        self.note(link, now, |write| {
            let length = match length {
                BodyLength::Known(bytes) => bytes.to_string(),
                BodyLength::Empty => "0".to_owned(),
                BodyLength::Unknown => "unknown".to_owned(),
            };
            write(format_args!("response: {}, length {length}", self.status));
        });
    }

    /// The request is over.
    pub(crate) fn note_end(&self, link: &Link, is_complete: bool, now: Moment) {
        self.note(link, now, |write| {
            for one in &self.route.upstream.tries {
                let status = one.status.map_or(0, Status::code);
                let (connect, head) = (Seconds(one.connect_time), Seconds(one.header_time));
                let (all, name) = (Seconds(one.response_time), &one.name);
                write(format_args!(
                    "upstream \"{name}\": {status}, {} bytes, connect {connect}, header {head}, response {all}",
                    one.received
                ));
            }
            let sent = self.head_bytes + self.body_bytes.saturating_sub(self.unsent_bytes());
            let time = Seconds(Some(now.since(self.arrival.since)));
            let end = if is_complete { "complete" } else { "cut off" };
            write(format_args!("request is over: {}, {end}, {sent} bytes in {time}", self.status));
        });
    }

    fn note(&self, link: &Link, now: Moment, lines: impl FnOnce(&dyn Fn(fmt::Arguments<'_>))) {
        let Some(accepted) = &self.accepted else { return };
        let logger = accepted.bound_site.site.error_logger(self.route.location);
        if logger.wants(Level::Debug) {
            let stamp = link.worker.clock.stamp(now);
            lines(&|message| logger.write(Level::Debug, stamp, Some(link.id), message));
        }
    }
}
