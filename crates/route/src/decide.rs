//! The order in which answers are tried. Each step ends in an action or in another step; every step
//! that goes back to the beginning is counted, so there is always an end.

mod access;
mod directory;
mod file_op;
mod limits;
mod neighbour;
mod object;
mod origin;
mod program;
mod rewrite;
mod subrequest;
mod try_files;

use std::cell::Cell;
use std::mem;

use sekisho_config::{
    ErrorPage, ErrorStatus, ErrorTarget, Level, LocationId, Settings, Template, VerifyClient,
};
use sekisho_http::{Head, Method, Status, target};

pub use file_op::{Destination, FileOp, OWN_PREFIX, Store};

use crate::action::{Action, Files, Look};
use crate::path_mapping::{self, AliasFrom, Mapped};
use crate::route_state::{ClientVerdict, Request, RouteState};
use crate::table::Table;
use crate::variable::{self, NESTED_MAX, Scope};
use crate::{location, real_ip, redirect};

/// How often a request may be sent back to the beginning (nginx's bound).
const REDIRECTS_MAX: u8 = 10;

/// Where an authority looks whether a name is ours (RFC 8555 §8.3).
const ACME_FOLDER: &[u8] = b"/.well-known/acme-challenge/";

/// How a program hands its answer over to another target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handover {
    /// A local `Location`: as if the client had asked for it, so `internal` locations are closed to it.
    Location,
    /// `X-Accel-Redirect`: `internal` and named locations are open to it.
    Accel,
}

/// What files are good for.
const FILE_METHODS: [Method; 3] = [Method::Get, Method::Head, Method::Options];

impl Table {
    /// The whole decision for one request. Chooses the server first; whatever the exchange held is
    /// gone.
    pub fn decide<F: Files>(
        &self,
        request: &Request<'_>,
        route_state: &mut RouteState,
        files: &mut F,
    ) -> Action<F::File> {
        let chosen = self.choose_server(request.listen, request.head, route_state);
        if !route_state.is_routed {
            return Action::Error(Status::INTERNAL_SERVER_ERROR);
        }
        route_state.decided = Some(request.request_id);
        for name in request.head.dropped_names() {
            let text = format!("client sent invalid header line: \"{}\"", name.escape_ascii());
            route_state.log_entries.get_mut().add(Level::Info, text);
        }
        let mut decision = Decision { table: self, request, route_state, files };
        let root = self.server(decision.route_state.server).root;
        decision.find_client(root, Some(request.head));
        if let Some(token) = request.head.target().strip_prefix(ACME_FOLDER)
            && let Some(answer) = decision.files.acme_token(token)
        {
            decision.route_state.text = answer;
            return Action::Text(Status::OK);
        }
        let first = match chosen {
            Ok(()) if decision.route_state.captures.is_exhausted() => decision.undecided(),
            Ok(()) => match decision.refused_by_tls() {
                Some(status) => Next::Fail(status),
                None => decision.receive(),
            },
            Err(status) => Next::Fail(status),
        };
        decision.run(first)
    }

    /// The same for an answer that is already known to be an error, a refusal of the engine or a failed
    /// handler: `error_page` applies. Where nothing was decided for this request before (the exchange
    /// may still hold another one, told by its id), the server is chosen first.
    pub fn decide_error<F: Files>(
        &self,
        status: Status,
        request: &Request<'_>,
        route_state: &mut RouteState,
        files: &mut F,
    ) -> Action<F::File> {
        if route_state.decided != Some(request.request_id) {
            // The present error is answered, even if the host is invalid.
            let _ = self.choose_server(request.listen, request.head, route_state);
        }
        if !route_state.is_routed {
            return Action::Error(status);
        }
        route_state.decided = Some(request.request_id);
        // Whatever waited for this refusal waits no longer.
        route_state.access_progress.refusal = None;
        let mut decision = Decision { table: self, request, route_state, files };
        // The fields of a request that was refused are not to be relied upon.
        let root = self.server(decision.route_state.server).root;
        decision.find_client(root, None);
        decision.run(Next::Fail(status))
    }

    /// Goes on after an [`Action::Wait`] that is over, where the decision stood: nothing is counted twice.
    pub fn resume<F: Files>(
        &self,
        request: &Request<'_>,
        route_state: &mut RouteState,
        files: &mut F,
    ) -> Action<F::File> {
        if !route_state.is_routed || route_state.decided != Some(request.request_id) {
            return Action::Error(Status::INTERNAL_SERVER_ERROR);
        }
        Decision { table: self, request, route_state, files }.run(Next::AccessChecks)
    }

    /// Goes on with the target that a program names, `path[?query]` or, for [`Handover::Accel`],
    /// `@name`: decided anew, at most 10 times for a request, with GET (or HEAD). A target that is none
    /// and one hand-over too many are the program's fault (502).
    pub fn redirect_internally<F: Files>(
        &self,
        handover: Handover,
        target: &[u8],
        request: &Request<'_>,
        route_state: &mut RouteState,
        files: &mut F,
    ) -> Action<F::File> {
        if !route_state.is_routed || route_state.decided != Some(request.request_id) {
            return Action::Error(Status::INTERNAL_SERVER_ERROR);
        }
        let mut decision = Decision { table: self, request, route_state, files };
        let first = decision.hand_over(handover, target);
        decision.run(first)
    }
}

/// What comes next.
enum Next<F> {
    /// Begin anew with the route state's path.
    Path,
    /// Look for the location of the route state's path.
    Search,
    /// Go on in the request's location.
    Location,
    /// Go on at the access checks of the request's location.
    AccessChecks,
    /// An error, for which there may be an `error_page`.
    Fail(Status),
    /// A redirect of the client to `route_state.text`; for it, too.
    Redirect(Status),
    Done(Action<F>),
}

struct Decision<'a, F> {
    table: &'a Table,
    request: &'a Request<'a>,
    route_state: &'a mut RouteState,
    files: &'a mut F,
}

impl<'a, F: Files> Decision<'a, F> {
    fn run(mut self, first: Next<F::File>) -> Action<F::File> {
        let mut next = first;
        loop {
            next = match next {
                Next::Path => self.at_server(),
                Next::Search => self.search(),
                Next::Location => self.at_location(),
                Next::AccessChecks => self.at_access_checks(),
                Next::Fail(status) => self.fail(status, Action::Error(status.on_the_wire())),
                Next::Redirect(status) => self.fail(status, Action::Redirect(status)),
                Next::Done(action) => {
                    let is_500 = matches!(action, Action::Error(Status::INTERNAL_SERVER_ERROR));
                    if is_500 || !self.route_state.is_undecided() {
                        return action;
                    }
                    self.undecided()
                }
            }
        }
    }

    /// The client's address behind a proxy: found once, by the server's settings or, if these have none, by
    /// the location's.
    fn find_client(&mut self, location: LocationId, head: Option<&Head>) {
        let real_ip = self.table.location(location).settings.real_ip.as_deref();
        if let Some(real_ip) = real_ip
            && self.route_state.real_address.is_none()
        {
            self.route_state.real_address = real_ip::find(real_ip, self.request.connection, head);
        }
        if let Some(client) = self.route_state.real_address {
            self.files.know_client(client);
        }
    }

    /// Refusals because of the connection, before the target is looked at.
    fn refused_by_tls(&self) -> Option<Status> {
        let connection = self.request.connection;
        if connection.is_clear_by_mistake {
            return Some(Status::PLAIN_AT_TLS_PORT);
        }
        let facts = connection.tls.as_deref()?;
        let server = self.route_state.server;
        let tls = &self.table.server(server).tls;
        // Early data may be somebody's repetition: nothing is changed by it (RFC 8470 §3).
        if facts.is_early && !(tls.early_data && self.request.head.method().is_safe()) {
            return Some(Status::TOO_EARLY);
        }
        if !tls.asks_for_certificate() {
            return None;
        }
        // The certificate was judged by the server whose name the handshake was for (S4).
        let shook = self.table.server_named(self.request.listen, facts.server_name.as_bytes());
        if shook != Some(server) {
            return Some(Status::MISDIRECTED_REQUEST);
        }
        match &facts.client {
            None if tls.verify == VerifyClient::On => Some(Status::NO_CLIENT_CERTIFICATE),
            Some(client) if matches!(client.result, ClientVerdict::Invalid(_)) => {
                Some(Status::BAD_CLIENT_CERTIFICATE)
            }
            _ => None,
        }
    }

    /// Target and method, before anything is looked for.
    fn receive(&mut self) -> Next<F::File> {
        let method = self.route_state.method;
        // An authority (RFC 9112 §3.2.3) would not pass for a path.
        if method == Method::Connect && target::is_authority(self.request.head.target()) {
            return self.refuse_method(&FILE_METHODS);
        }
        let Ok(target) = target::split(self.request.head.target()) else {
            return Next::Fail(Status::BAD_REQUEST);
        };
        self.route_state.query.extend_from_slice(target.query.unwrap_or_default());
        if target.path == b"*" {
            if method == Method::Options {
                redirect::write_methods(&FILE_METHODS, &mut self.route_state.allow);
                return Next::Done(Action::Options);
            }
            return Next::Fail(Status::BAD_REQUEST);
        }
        let merge_slashes = self.table.server(self.route_state.server).merge_slashes;
        if target::resolve(target.path, merge_slashes, &mut self.route_state.path).is_err() {
            return Next::Fail(Status::BAD_REQUEST);
        }
        match method {
            Method::Trace | Method::Connect => self.refuse_method(&FILE_METHODS),
            // The handler decides whether it takes the method.
            _ => Next::Path,
        }
    }

    /// The server's script, then the search for a location.
    fn at_server(&mut self) -> Next<F::File> {
        self.route_state.location = self.table.server(self.route_state.server).root;
        self.route_state.is_rewritten = false;
        if let Some(script) = self.settings().rewriting.script.as_deref()
            && let Some(next) = self.server_script(script)
        {
            return next;
        }
        self.search()
    }

    fn search(&mut self) -> Next<F::File> {
        self.route_state.location = self.find_location();
        if self.route_state.captures.is_exhausted() {
            return self.undecided();
        }
        if self.settings().internal && !self.route_state.is_internal {
            return Next::Fail(Status::NOT_FOUND);
        }
        let location = self.table.location(self.route_state.location);
        if location::lacks_slash(location, &self.route_state.path) {
            redirect::write_directory(self.table, self.request, self.route_state);
            return Next::Redirect(Status::MOVED_PERMANENTLY);
        }
        Next::Location
    }

    fn at_location(&mut self) -> Next<F::File> {
        let settings = self.settings();
        if let Some(methods) = &settings.allow_methods
            && !methods.contains(&self.meant_method())
        {
            return self.refuse_method(methods);
        }
        if let Some(script) = settings.rewriting.script.as_deref()
            && !self.is_limited(settings)
            && self.route_state.location != self.table.server(self.route_state.server).root
            && let Some(next) = self.location_script(script)
        {
            return next;
        }
        Next::AccessChecks
    }

    /// The request has passed the access checks.
    fn behind_access_checks(&mut self) -> Next<F::File> {
        match &self.settings().try_files {
            // Within `limit_except` nothing is tried, as in nginx: it has no `try_files` of its own.
            Some(_) if self.is_rewritten_alias() && !self.is_limited(self.settings()) => {
                Next::Fail(Status::INTERNAL_SERVER_ERROR)
            }
            Some(try_files) if !self.is_limited(self.settings()) => {
                if self.is_in_storage() {
                    self.try_objects(try_files)
                } else {
                    self.try_files(try_files)
                }
            }
            _ => self.content(),
        }
    }

    /// A code and nothing else: an error, or an empty answer.
    fn bare(&mut self, status: Status) -> Next<F::File> {
        if status.code() >= 300 {
            return Next::Fail(status);
        }
        self.route_state.text.clear();
        Next::Done(Action::Text(self.route_state.status.unwrap_or(status)))
    }

    /// Whether another server, or a page about this one, answers here and no file.
    fn has_handler(&self) -> bool {
        let settings = self.settings();
        settings.pass.is_some() || settings.status.is_some() || settings.service.is_some()
    }

    /// Programs, file operations, files and directories.
    pub(crate) fn content(&mut self) -> Next<F::File> {
        let settings = self.settings();
        self.note_mirrors();
        if settings.service.is_some() && !self.is_limited(settings) {
            // The service decides which methods there are.
            return Next::Done(Action::Service);
        }
        let is_for_files =
            settings.cgi.is_none() && settings.file_ops.is_none() && settings.status.is_none();
        let limit = settings.limit_except.as_deref().filter(|_| self.is_limited(settings));
        if let Some(location) = limit.and_then(|limit| limit.passes) {
            // Its own server answers the methods that the block is about.
            self.route_state.location = location;
            return Next::Done(Action::Pass);
        }
        if let Some(pass) = &settings.pass {
            if pass.storage.is_some() {
                return self.object();
            }
            // The other server decides which methods there are, also within `limit_except`, as in nginx.
            return Next::Done(Action::Pass);
        }
        let is_known = matches!(
            self.route_state.method,
            Method::Get | Method::Head | Method::Post | Method::Options
        );
        if is_for_files
            && !is_known
            && let Err(next) = self.method_outcome()
        {
            return next;
        }
        if self.is_rewritten_alias() {
            return Next::Fail(Status::INTERNAL_SERVER_ERROR);
        }
        if let Some(form) = self.settings().status
            && !self.is_limited(self.settings())
        {
            return match self.method_outcome() {
                Ok(()) => Next::Done(Action::Status(form)),
                Err(next) => next,
            };
        }
        if let Some(cgi) = self.settings().cgi.as_deref() {
            return self.program(cgi);
        }
        if let Some(next) = self.file_op() {
            return next;
        }
        // As in nginx, a missing file is 404 for POST, too; an existing one does not take POST.
        match self.method_outcome() {
            Err(next) if self.route_state.method != Method::Post => next,
            _ => {
                let mapped = self.map_path();
                self.file_or_directory(mapped)
            }
        }
    }

    /// Whether the path no longer has the prefix that an alias replaces, as a script has changed it: nginx
    /// answers 500.
    fn is_rewritten_alias(&self) -> bool {
        self.route_state.is_rewritten
            && self.table.alias_from(self.route_state.location) != AliasFrom::Nothing
    }

    fn file_or_directory(&mut self, mapped: Mapped) -> Next<F::File> {
        if self.route_state.path.last() == Some(&b'/') {
            if self.settings().random_index
                && mapped.is_safe
                && let Some(next) = self.random_file()
            {
                return next;
            }
            return self.index(mapped);
        }
        match self.look_at_file(mapped) {
            Look::File(file) => self.found_file(file),
            Look::Directory => self.redirect_to_directory(),
            Look::Missing if mapped.is_safe => self.neighbour_alone(),
            Look::Missing => Next::Fail(Status::NOT_FOUND),
            Look::Denied => Next::Fail(Status::FORBIDDEN),
            Look::Failed => Next::Fail(Status::INTERNAL_SERVER_ERROR),
        }
    }

    /// An error or redirect: the `error_page` for its code, or else the action.
    fn fail(&mut self, status: Status, otherwise: Action<F::File>) -> Next<F::File> {
        let settings = self.settings();
        self.route_state.status = None;
        if !self.route_state.is_error_page
            && !settings.error_pages.is_empty()
            && self.route_state.redirects <= REDIRECTS_MAX
        {
            self.route_state.is_error_page = !settings.recursive_error_pages;
            let mut pages = settings.error_pages.iter();
            if let Some(page) = pages.find(|page| page.is_for(status)) {
                if matches!(otherwise, Action::Redirect(_)) {
                    // The page is another, the redirect stays one.
                    let RouteState { text, redirect, origin_bytes, .. } = &mut *self.route_state;
                    text.get(*origin_bytes..).unwrap_or_default().clone_into(redirect);
                }
                return self.error_page(page, status);
            }
        }
        if matches!(otherwise, Action::Redirect(_)) {
            self.route_state.redirect.clear();
        }
        Next::Done(otherwise)
    }

    fn error_page(&mut self, page: &ErrorPage, status: Status) -> Next<F::File> {
        self.route_state.status = match page.status {
            ErrorStatus::Keep => Some(status.on_the_wire()),
            ErrorStatus::FromTarget => None,
            ErrorStatus::Fixed(status) => Some(status),
        };
        match &page.target {
            // What variables have left without a slash is an address, as in nginx.
            ErrorTarget::Uri(template) if !self.is_path(template) => {
                self.redirect_for_error(template, page.status)
            }
            ErrorTarget::Uri(template) => {
                if !matches!(self.route_state.method, Method::Get | Method::Head) {
                    self.route_state.method = Method::Get;
                }
                self.redirect_to_value(template)
            }
            ErrorTarget::Named(name) => self.redirect_to_named(name),
            ErrorTarget::Redirect(template) => self.redirect_for_error(template, page.status),
        }
    }

    /// Whether a value begins as a path does.
    fn is_path(&mut self, template: &Template) -> bool {
        let mut value = mem::take(&mut self.route_state.value);
        self.expand(template, &mut value);
        let is_path = value.first() == Some(&b'/');
        self.route_state.value = value;
        is_path
    }

    /// The `error_page` is an address to which the client is sent.
    fn redirect_for_error(&mut self, template: &Template, status: ErrorStatus) -> Next<F::File> {
        let mut value = mem::take(&mut self.route_state.value);
        self.expand(template, &mut value);
        redirect::write_address(self.table, self.request, self.route_state, &value);
        self.route_state.value = value;
        self.route_state.status = None;
        self.route_state.redirect.clear();
        Next::Done(Action::Redirect(match status {
            ErrorStatus::Fixed(status) if status.is_redirect() => status,
            _ => Status::FOUND,
        }))
    }

    /// An internal redirect to `path[?args]`; the arguments of the request go.
    fn redirect_to_value(&mut self, template: &Template) -> Next<F::File> {
        if let Err(next) = self.count_redirect() {
            return next;
        }
        let mut value = mem::take(&mut self.route_state.value);
        self.expand(template, &mut value);
        let mark = value.iter().position(|byte| *byte == b'?');
        let (path, query) = match mark {
            Some(mark) => (&value[..mark], &value[mark + 1..]),
            None => (&value[..], &[][..]),
        };
        // A path made of variables is not resolved again: one that would need it is not there.
        let is_path = !path.is_empty() && target::is_dotless(path);
        if is_path {
            path.clone_into(&mut self.route_state.path);
            self.route_state.is_moved = true;
            query.clone_into(&mut self.route_state.query);
        }
        self.route_state.value = value;
        if is_path { Next::Path } else { Next::Fail(Status::NOT_FOUND) }
    }

    /// Goes on in a named location; the path stays.
    fn redirect_to_named(&mut self, name: &str) -> Next<F::File> {
        if let Err(next) = self.count_redirect() {
            return next;
        }
        match self.table.named_location(self.route_state.server, name) {
            Some(location) => {
                self.route_state.location = location;
                Next::Location
            }
            None => Next::Fail(Status::INTERNAL_SERVER_ERROR),
        }
    }

    fn count_redirect(&mut self) -> Result<(), Next<F::File>> {
        self.route_state.redirects = self.route_state.redirects.saturating_add(1);
        if self.route_state.redirects > REDIRECTS_MAX {
            let path = self.route_state.path.escape_ascii();
            let text = format!("rewrite or internal redirection cycle while processing \"{path}\"");
            self.log_entry(Level::Error, text);
            return Err(self.give_up());
        }
        self.route_state.is_internal = true;
        self.route_state.file.clear();
        self.route_state.root_bytes = 0;
        self.route_state.script_bytes = 0;
        Ok(())
    }

    /// An expression could not be decided within its bound: neither answer would be right.
    fn undecided(&mut self) -> Next<F::File> {
        if !self.route_state.captures.is_variable_exhausted() {
            let text = "a regular expression took too many steps".to_owned();
            self.route_state.log_entries.get_mut().add(Level::Error, text);
        }
        self.give_up()
    }

    /// Our own configuration leads nowhere: no `error_page` would help.
    fn give_up(&mut self) -> Next<F::File> {
        self.route_state.status = None;
        Next::Done(Action::Error(Status::INTERNAL_SERVER_ERROR))
    }

    /// Whether the method is one for files; if not, what comes instead.
    fn method_outcome(&mut self) -> Result<(), Next<F::File>> {
        let method = self.route_state.method;
        if matches!(method, Method::Get | Method::Head) {
            return Ok(());
        }
        self.write_allowed();
        Err(match method {
            Method::Options => Next::Done(Action::Options),
            // H12: an unknown method is not implemented.
            Method::Other => Next::Fail(Status::NOT_IMPLEMENTED),
            _ => Next::Fail(Status::METHOD_NOT_ALLOWED),
        })
    }

    fn refuse_method(&mut self, allowed: &[Method]) -> Next<F::File> {
        redirect::write_methods(allowed, &mut self.route_state.allow);
        Next::Fail(Status::METHOD_NOT_ALLOWED)
    }

    fn settings(&self) -> &'a Settings {
        &self.table.location(self.route_state.location).settings
    }

    fn find_location(&mut self) -> LocationId {
        let RouteState { server, path, captures, .. } = &mut *self.route_state;
        self.table.find_location(*server, path, captures)
    }

    /// Maps the path to a file name, in `route_state.file`.
    fn map_path(&mut self) -> Mapped {
        let mut file = mem::take(&mut self.route_state.file);
        let mapped = self
            .scoped(|scope| path_mapping::write_file(scope, &scope.route_state.path, &mut file));
        self.route_state.file = file;
        self.route_state.root_bytes = mapped.root_bytes;
        mapped
    }

    fn look_at_file(&mut self, mapped: Mapped) -> Look<F::File> {
        self.route_state.root_bytes = mapped.root_bytes;
        // Unfinished uploads are not served, whichever location leads to them.
        if !mapped.is_safe || file_op::has_own_name(&self.route_state.file[mapped.root_bytes..]) {
            return Look::Missing;
        }
        let settings = self.settings();
        self.files.look(&self.route_state.file, mapped.root_bytes, settings)
    }

    fn expand(&self, template: &Template, out: &mut Vec<u8>) {
        out.clear();
        variable::expand(template, self.table, self.request, self.route_state, None, out);
    }

    fn scoped<T>(&self, work: impl FnOnce(&Scope<'_>) -> T) -> T {
        let nested = Cell::new(NESTED_MAX);
        work(&Scope {
            table: self.table,
            request: self.request,
            route_state: self.route_state,
            sent: None,
            captures: &self.route_state.captures,
            nested: &nested,
        })
    }
}
