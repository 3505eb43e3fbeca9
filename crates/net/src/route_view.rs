//! What the router asks for one request: files, and the access checks before them. Every answer here is
//! immediate; a password check that takes time becomes a task.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::{ConnectionLimit, Level, LocationId, RateLimit, Settings};
use sekisho_handler::limits::{ConnectionPermit, SharedZone};
use sekisho_handler::password::{self, Answer, PasswordQuery, Worked};
use sekisho_handler::wait::PasswordContext;
use sekisho_handler::{OpenFile, View};
use sekisho_route::{
    AccessChecks, Files, Look, Password, Rated, Request, RequestIdSeed, Seen, Taken,
};

use crate::error_context::{ErrorContext, RequestText};
use crate::work::WorkerContext;
use crate::worker::{BoundSite, Worker};

/// What the router sees. It remembers the first path that failed: that is what the client asked for, even if
/// an `error_page` was served since.
pub(crate) struct RouteView<'a> {
    pub(crate) view: View<'a>,
    pub(crate) errno: Option<rustix::io::Errno>,
    pub(crate) path: &'a mut Vec<u8>,
    pub(crate) worker: &'a Worker,
    pub(crate) bound_site: &'a BoundSite,
    pub(crate) request: &'a Request<'a>,
    /// The places that this request has taken.
    pub(crate) permits: &'a mut Vec<ConnectionPermit>,
    /// What a password waits for.
    pub(crate) question: Option<PasswordQuery>,
    /// The client's address.
    pub(crate) client: Option<SocketAddr>,
}

impl RouteView<'_> {
    fn note<F>(&mut self, look: Look<F>, path: &[u8]) -> Look<F> {
        let came_to_nothing = matches!(look, Look::Missing | Look::Denied | Look::Failed);
        if came_to_nothing && self.errno.is_none() {
            self.errno = self.view.cache.last_error();
            self.path.extend_from_slice(path);
        }
        look
    }

    fn zone(&self, zone: sekisho_config::ZoneId) -> Option<&Arc<SharedZone>> {
        self.bound_site.site.zones().get(zone.0 as usize)
    }

    fn write(&self, location: LocationId, level: Level, message: fmt::Arguments<'_>) {
        self.write_about(location, level, message, Some(self.request.request_id));
    }

    fn write_about(
        &self,
        location: LocationId,
        level: Level,
        message: fmt::Arguments<'_>,
        id: Option<RequestIdSeed>,
    ) {
        let logger = self.bound_site.site.error_logger(location);
        if logger.wants(level) {
            let table = self.bound_site.site.table();
            let about = ErrorContext {
                client: self.client,
                server: table.server(table.location(location).server),
                request: RequestText::of(self.request.head),
                upstream: None,
                id,
            };
            let stamp = self.worker.clock.stamp(self.view.now);
            let message = format_args!("{message}, {about}");
            logger.write(level, stamp, Some(self.request.connection.id), message);
        }
    }
}

impl Files for RouteView<'_> {
    type File = Rc<OpenFile>;

    fn acme_token(&mut self, token: &[u8]) -> Option<Vec<u8>> {
        crate::tls::acme::key_authorization(token)
    }

    fn know_client(&mut self, client: SocketAddr) {
        self.client = Some(client);
    }

    fn look(&mut self, path: &[u8], root_bytes: usize, settings: &Settings) -> Look<Self::File> {
        let look = self.view.look(path, root_bytes, settings);
        self.note(look, path)
    }

    /// A neighbour that is not there is no trouble, and not what was asked for.
    fn look_for_neighbour(
        &mut self,
        path: &[u8],
        root_bytes: usize,
        settings: &Settings,
    ) -> Option<Self::File> {
        self.view.look_for_neighbour(path, root_bytes, settings)
    }

    fn look_for_program(
        &mut self,
        path: &[u8],
        root_bytes: usize,
        settings: &Settings,
    ) -> Look<()> {
        let look = self.view.look_for_program(path, root_bytes, settings);
        self.note(look, path)
    }

    fn inspect(&mut self, path: &[u8], root_bytes: usize, settings: &Settings) -> Option<Seen> {
        self.view.inspect(path, root_bytes, settings)
    }
}

impl AccessChecks for RouteView<'_> {
    fn look_at_rate(&mut self, limit: &RateLimit, key: &[u8], counts: bool) -> Rated {
        let zone = self.zone(limit.zone);
        zone.map_or(Rated::NoRoom, |zone| zone.look_at_rate(limit, key, counts, self.view.now))
    }

    fn count_request(&mut self, limit: &RateLimit, key: &[u8]) -> u64 {
        self.zone(limit.zone).map_or(0, |zone| zone.count_request(limit, key, self.view.now))
    }

    fn acquire_permit(&mut self, limit: &ConnectionLimit, key: &[u8]) -> Taken {
        match self.zone(limit.zone).map(|zone| zone.acquire_permit(limit, key)) {
            Some(Ok(permit)) => {
                self.permits.push(permit);
                Taken::Yes
            }
            Some(Err(taken)) => taken,
            None => Taken::NoRoom,
        }
    }

    fn release_permits(&mut self) {
        self.permits.clear();
    }

    fn password(
        &mut self,
        location: LocationId,
        file: &[u8],
        user: &[u8],
        password: &[u8],
    ) -> Password {
        let files = &self.worker.shared.user_files;
        let password_cache = self.worker.password_cache.borrow();
        let asked = [file, user, password];
        match password::ask(files, &password_cache, asked, self.view.now, self.view.wall_secs) {
            Answer::Known(result) => result,
            Answer::Later(question) => {
                self.question = Some(question);
                Password::Later
            }
            Answer::Trouble(result, error) => {
                // It may have been replaced by one that the sandbox does not know yet.
                self.worker.shared.sandbox_recheck.notify_one();
                let is_missing = result == Password::NoFile;
                let level = if is_missing { Level::Error } else { Level::Crit };
                let file = file.escape_ascii();
                self.write(location, level, format_args!("open() \"{file}\" failed: {error}"));
                result
            }
            Answer::Unusable(why) => {
                let (user, file) = (user.escape_ascii(), file.escape_ascii());
                let message = format_args!("the password of user \"{user}\" in \"{file}\" {why}");
                self.write(location, Level::Error, message);
                Password::Wrong
            }
        }
    }

    fn report(&mut self, location: LocationId, level: Level, message: fmt::Arguments<'_>) {
        self.write(location, level, message);
    }

    fn report_user(&mut self, location: LocationId, message: fmt::Arguments<'_>) {
        self.write_about(location, Level::Error, message, None);
    }
}

impl PasswordContext for WorkerContext {
    fn keep(&self, worked: Worked) {
        let mut password_cache = self.worker.password_cache.borrow_mut();
        worked.keep(&self.worker.shared.user_files, &mut password_cache, self.worker.clock.now());
    }

    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        sekisho_handler::cgi::HandlerContext::report(self, level, message);
    }
}
