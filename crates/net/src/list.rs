//! A folder is listed: what the listing needs to know of the request and of the site around it.

use std::rc::Rc;
use std::sync::Arc;

use sekisho_handler::listing::{self, Listed};
use sekisho_lifecycle::Moment;
use sekisho_route::{Exchange, Request};

use crate::site;
use crate::worker::{Placed, Worker};

/// Lists the folder that was decided on, or begins to.
pub(crate) fn list(
    worker: &Worker,
    placed: &Placed,
    request: &Request<'_>,
    exchange: &Exchange,
    fields: &mut Vec<u8>,
    now: Moment,
) -> Listed {
    let (site, server, location) = (&placed.site, exchange.server, exchange.location);
    let settings = &site.location(location).settings;
    let asked = Arc::clone(site);
    let call = listing::Call {
        file: &exchange.file,
        root_bytes: exchange.root_bytes,
        path: &exchange.path,
        query: &exchange.query,
        head: request.head,
        method: exchange.method,
        settings,
        settings_name: (site.serial(), location.0),
        is_ours: Rc::new(move |path| asked.table().location_of(server, path) == location),
        status: exchange.status,
        utc_offset_secs: request.wall.utc_offset_secs,
        product: site::product(settings),
        now,
        wall_secs: request.wall.unix_secs,
    };
    listing::list(&call, &mut worker.listings.borrow_mut(), fields)
}
