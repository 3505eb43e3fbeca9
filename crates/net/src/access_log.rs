//! A worker's side of the access log: lines are made in the worker's own buffers, and handed over to the writing
//! thread when the event loop has nothing else to do.

use std::cell::RefCell;

use sekisho_log::{LineBuffers, Stamp};
use sekisho_route::{Request, RouteState, Sent, TimeTexts, log_line, wants_line};

use crate::log_files;
use crate::site::{LineTarget, Site};

/// What a worker has of the access log.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    buffers: RefCell<LineBuffers>,
    times: RefCell<TimeTexts>,
}

impl AccessLog {
    /// Writes the lines that the location's `access_log`s want about a request.
    pub(crate) fn write(
        &self,
        site: &Site,
        request: &Request<'_>,
        route_state: &RouteState,
        sent: &Sent<'_>,
    ) {
        let (table, sent) = (site.table(), Some(sent));
        let (mut buffers, mut times) = (self.buffers.borrow_mut(), self.times.borrow_mut());
        let logs = &site.location(route_state.location).settings.access_logs;
        for (log, opened) in logs.iter().zip(site.access_logs(route_state.location)) {
            if let Some(condition) = &log.condition
                && !wants_line(condition, table, request, route_state, sent)
            {
                continue;
            }
            let found;
            let sink = match &opened.to {
                LineTarget::Sink(sink) => sink,
                LineTarget::Path(path) => {
                    let Some(sink) = log_files::open(path, site, request, route_state, sent) else {
                        continue;
                    };
                    found = sink;
                    &found
                }
            };
            buffers.line(sink, |line| {
                if sink.is_syslog() {
                    sink.begin_line(None, stamp(request), line);
                }
                log_line(&opened.format, table, request, route_state, sent, &mut times, line);
            });
        }
    }

    /// Whether there are no lines to hand over.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.borrow().is_empty()
    }

    /// Gives the lines to the writing thread. Nothing where there are none.
    pub(crate) fn hand_over(&self) {
        let mut buffers = self.buffers.borrow_mut();
        if !buffers.is_empty() {
            buffers.hand_over();
        }
    }

    /// How many buffers there are, and what they hold in memory.
    pub(crate) fn memory_usage(&self) -> (usize, usize) {
        self.buffers.borrow().memory_usage()
    }
}

pub(crate) fn stamp(request: &Request<'_>) -> Stamp {
    let wall = request.wall;
    Stamp { unix_secs: wall.unix_secs, utc_offset_secs: wall.utc_offset_secs }
}
