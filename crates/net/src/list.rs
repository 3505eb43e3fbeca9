//! A folder is listed: what the listing needs to know of the request and of the site around it.

use std::fmt;
use std::rc::Rc;

use sekisho_config::{Level, ServerId};
use sekisho_handler::cgi::HandlerContext as _;
use sekisho_handler::listing::{self, Listed};
use sekisho_http::Fields;
use sekisho_lifecycle::Moment;
use sekisho_route::{Request, RouteState};

use crate::site;
use crate::work::WorkerContext;
use crate::worker::BoundSite;

/// The server around a listing.
#[derive(Debug)]
struct ListingTaskContext {
    context: WorkerContext,
    server: ServerId,
}

impl listing::ListingContext for ListingTaskContext {
    fn is_ours(&self, path: &[u8]) -> bool {
        let table = self.context.bound_site.site.table();
        table.has_same_access(self.server, self.context.location, path)
    }

    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        self.context.report(level, message);
    }

    fn denial_hint(&self, errno: rustix::io::Errno) -> String {
        self.context.denial_hint(errno)
    }
}

/// Lists the folder that was decided on, or begins to.
pub(crate) fn list(
    context: WorkerContext,
    request: &Request<'_>,
    route_state: &RouteState,
    fields: &mut Fields,
    now: Moment,
) -> Listed {
    let (worker, bound_site) = (Rc::clone(&context.worker), Rc::clone(&context.bound_site));
    let call = call(context, &bound_site, request, route_state, now);
    listing::list(&call, &mut worker.listings.borrow_mut(), fields)
}

/// What is to be listed.
pub(crate) fn call<'a>(
    context: WorkerContext,
    bound_site: &'a BoundSite,
    request: &'a Request<'_>,
    route_state: &'a RouteState,
    now: Moment,
) -> listing::Call<'a> {
    let (site, location) = (&bound_site.site, route_state.location);
    let settings = &site.location(location).settings;
    listing::Call {
        file: &route_state.file,
        root_bytes: route_state.root_bytes,
        path: &route_state.path,
        query: &route_state.query,
        head: request.head,
        method: route_state.method,
        settings,
        settings_name: (site.serial(), location.0),
        context: Rc::new(ListingTaskContext { context, server: route_state.server }),
        status: route_state.status,
        utc_offset_secs: request.wall.utc_offset_secs,
        product: site::product(settings),
        now,
        wall_secs: request.wall.unix_secs,
    }
}
