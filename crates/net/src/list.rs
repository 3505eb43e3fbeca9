//! A folder is listed: what the listing needs to know of the request and of the site around it.

use std::fmt;
use std::rc::Rc;

use sekisho_config::{Level, ServerId};
use sekisho_handler::cgi::Surroundings as _;
use sekisho_handler::listing::{self, Listed};
use sekisho_lifecycle::Moment;
use sekisho_route::{Exchange, Request};

use crate::site;
use crate::work::Around;

/// The server around a listing.
#[derive(Debug)]
struct Surroundings {
    around: Around,
    server: ServerId,
}

impl listing::Surroundings for Surroundings {
    fn is_ours(&self, path: &[u8]) -> bool {
        let table = self.around.bound_site.site.table();
        table.is_alike(self.server, self.around.location, path)
    }

    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        self.around.report(level, message);
    }

    fn denial_hint(&self, errno: rustix::io::Errno) -> String {
        self.around.denial_hint(errno)
    }
}

/// Lists the folder that was decided on, or begins to.
pub(crate) fn list(
    around: Around,
    request: &Request<'_>,
    exchange: &Exchange,
    fields: &mut Vec<u8>,
    now: Moment,
) -> Listed {
    let (worker, bound_site) = (Rc::clone(&around.worker), Rc::clone(&around.bound_site));
    let (site, location) = (&bound_site.site, exchange.location);
    let settings = &site.location(location).settings;
    let call = listing::Call {
        file: &exchange.file,
        root_bytes: exchange.root_bytes,
        path: &exchange.path,
        query: &exchange.query,
        head: request.head,
        method: exchange.method,
        settings,
        settings_name: (site.serial(), location.0),
        around: Rc::new(Surroundings { around, server: exchange.server }),
        status: exchange.status,
        utc_offset_secs: request.wall.utc_offset_secs,
        product: site::product(settings),
        now,
        wall_secs: request.wall.unix_secs,
    };
    listing::list(&call, &mut worker.listings.borrow_mut(), fields)
}
