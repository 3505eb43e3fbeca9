//! Folders: the missing slash, the index files, and the answer without one (F3).

use std::mem;

use sekisho_config::Programs;
use sekisho_http::{Method, Status, target};

use super::{Decision, Next};
use crate::action::{Action, Files, Look};
use crate::path_mapping::Mapped;
use crate::redirect;
use crate::route_state::RouteState;

impl<F: Files> Decision<'_, F> {
    /// A directory was asked for without its slash.
    pub(super) fn redirect_to_directory(&mut self) -> Next<F::File> {
        if self.route_state.method != Method::Post
            && let Err(next) = self.method_outcome()
        {
            return next;
        }
        redirect::write_directory(self.table, self.request, self.route_state);
        Next::Redirect(Status::MOVED_PERMANENTLY)
    }

    /// A path that ends in a slash: the first index file that is there, or a listing.
    pub(super) fn index(&mut self, mapped: Mapped) -> Next<F::File> {
        let settings = self.settings();
        let directory_bytes = self.route_state.file.len();
        let mut is_directory = false;
        for template in settings.index.iter() {
            let mut name = mem::take(&mut self.route_state.value);
            self.expand(template, &mut name);
            self.route_state.file.extend_from_slice(&name);
            self.route_state.value = name;
            if self.route_state.value.first() == Some(&b'/') {
                return self.redirect_to_index();
            }
            // Also a name that the configuration wrote: `index ../x` would put its dots into the path.
            let mut named = mapped;
            named.is_safe &= target::is_resolved(&self.route_state.file[named.root_bytes..]);
            match self.look_at_file(named) {
                Look::File(file) => return self.found_index(file),
                Look::Missing | Look::Directory => {}
                Look::Denied => return Next::Fail(Status::FORBIDDEN),
                Look::Failed => return Next::Fail(Status::INTERNAL_SERVER_ERROR),
            }
            self.route_state.file.truncate(directory_bytes);
            if !is_directory {
                match self.directory_outcome(mapped) {
                    Ok(()) => is_directory = true,
                    Err(status) => return Next::Fail(status),
                }
            }
        }
        if !is_directory && let Err(status) = self.directory_outcome(mapped) {
            return Next::Fail(status);
        }
        if self.route_state.method != Method::Post {
            if let Err(next) = self.method_outcome() {
                return next;
            }
            if settings.autoindex {
                return Next::Done(Action::Listing);
            }
        }
        // If every file is a program, a folder without an index is not found (C1).
        let runs_all =
            settings.cgi.as_ref().is_some_and(|cgi| matches!(cgi.programs, Programs::All));
        Next::Fail(if runs_all { Status::NOT_FOUND } else { Status::FORBIDDEN })
    }

    fn directory_outcome(&mut self, mapped: Mapped) -> Result<(), Status> {
        match self.look_at_file(mapped) {
            Look::Directory => Ok(()),
            Look::Missing => Err(Status::NOT_FOUND),
            Look::Denied => Err(Status::FORBIDDEN),
            // Only an `alias` without a slash at its end leads to a file: as in nginx, our own configuration is
            // wrong.
            Look::File(_) | Look::Failed => Err(Status::INTERNAL_SERVER_ERROR),
        }
    }

    /// An absolute `index` is not looked for: it is a redirect, and keeps the arguments.
    pub(super) fn redirect_to_index(&mut self) -> Next<F::File> {
        if let Err(next) = self.count_redirect() {
            return next;
        }
        if !target::is_resolved(&self.route_state.value) {
            return Next::Fail(Status::NOT_FOUND);
        }
        let RouteState { path, value, .. } = &mut *self.route_state;
        path.clone_from(value);
        Next::Path
    }

    /// An index file, whose name is in `route_state.value`, has been found. It may belong to another
    /// location; if it does not, the opened file is the answer.
    fn found_index(&mut self, file: F::File) -> Next<F::File> {
        let RouteState { path, value, .. } = &mut *self.route_state;
        path.extend_from_slice(value);
        let location = self.find_location();
        if location == self.route_state.location
            && self.settings().mirrors.is_none()
            && self.settings().try_files.is_none()
            && self.table.is_place_fixed(location)
            && !self.table.has_script(location)
        {
            self.route_state.is_internal = true;
            return self.found_file(file);
        }
        match self.count_redirect() {
            Ok(()) => Next::Path,
            Err(next) => next,
        }
    }
}
