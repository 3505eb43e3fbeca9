//! Which program answers, and which part of the path is its own: the steps of the decision where
//! `cgi`, `cgi_pass` or `cgi_extension` holds. Whether there is a program is decided here, before any
//! process is made (C1); what is a program is never sent as a file.

use std::mem;

use sekisho_config::{Cgi, CgiPass, Level, Programs};
use sekisho_http::{Method, Status, target};

use super::file_op::has_own_name;
use super::{Decision, Handover, Next};
use crate::action::{Action, Files, Look};
use crate::path_mapping::{self, Mapped};

/// What a walk down a path found.
enum Walk {
    /// A program, in the first so many bytes of the file name.
    Program(usize),
    /// None.
    Nothing,
    /// It could not be found out.
    Fail(Status),
}

impl<F: Files> Decision<'_, F> {
    /// Content where programs are run.
    pub(super) fn program(&mut self, cgi: &Cgi) -> Next<F::File> {
        match &cgi.programs {
            Programs::One(pass) => self.pass(pass),
            Programs::All => self.any_program(),
            Programs::ByExtension => self.listed_program(cgi),
        }
    }

    /// A regular file, `route_state.file`, has been found at the whole path: run it if it is a program
    /// here, or else serve it.
    pub(super) fn found_file(&mut self, file: F::File) -> Next<F::File> {
        if let Some(cgi) = self.settings().cgi.as_deref()
            && cgi.is_program(&self.route_state.file)
        {
            return self.run_program(self.route_state.path.len());
        }
        if let Some(next) = self.file_op() {
            return next;
        }
        match self.method_outcome() {
            Ok(()) => Next::Done(Action::File(self.neighbour().unwrap_or(file))),
            Err(next) => next,
        }
    }

    /// The target that a program hands its answer over to.
    pub(super) fn hand_over(&mut self, handover: Handover, target: &[u8]) -> Next<F::File> {
        if self.count_redirect().is_err() {
            return Next::Fail(Status::BAD_GATEWAY);
        }
        self.route_state.is_internal = handover == Handover::Accel;
        if self.route_state.method != Method::Head {
            self.route_state.method = Method::Get;
        }
        if handover == Handover::Accel && target.first() == Some(&b'@') {
            let name = std::str::from_utf8(target).ok();
            let named = |name| self.table.named_location(self.route_state.server, name);
            let Some(location) = name.and_then(named) else {
                let name = target.escape_ascii();
                self.log_entry(Level::Error, format!("could not find named location \"{name}\""));
                return Next::Fail(Status::BAD_GATEWAY);
            };
            self.route_state.location = location;
            return Next::Location;
        }
        // A fragment is meant for a client, and an internal redirect has none.
        let named = target.split(|byte| *byte == b'#').next().unwrap_or_default();
        let Some(target) = target::split(named)
            .ok()
            .filter(|target| target.authority.is_none() && target.path != b"*")
        else {
            return self.unsafe_target(named);
        };
        let merge_slashes = self.table.server(self.route_state.server).merge_slashes;
        // The path stays as it was when the new one is none: an error page may want it.
        let mut path = mem::take(&mut self.route_state.value);
        let is_path = target::resolve(target.path, merge_slashes, &mut path).is_ok();
        if is_path {
            mem::swap(&mut self.route_state.path, &mut path);
            self.route_state.is_moved = true;
            self.route_state.query.clear();
            self.route_state.query.extend_from_slice(target.query.unwrap_or_default());
        }
        self.route_state.value = path;
        if is_path { Next::Path } else { self.unsafe_target(named) }
    }

    /// A target that a program must not name; in nginx's words.
    fn unsafe_target(&self, target: &[u8]) -> Next<F::File> {
        let target = target.escape_ascii();
        self.log_entry(Level::Error, format!("unsafe URI \"{target}\" was detected"));
        Next::Fail(Status::BAD_GATEWAY)
    }

    /// `cgi_pass`: the program is given, the location's prefix is its name.
    fn pass(&mut self, pass: &CgiPass) -> Next<F::File> {
        let mut file = mem::take(&mut self.route_state.file);
        let mapped =
            self.scoped(|scope| path_mapping::write_value(scope, &pass.program, &mut file));
        self.route_state.file = file;
        match self.look_at_program(self.route_state.file.len(), mapped) {
            Look::File(()) => {
                let path = &self.route_state.path;
                // A prefix that ends within a segment cannot be told from the rest.
                let is_split = matches!(path.get(pass.prefix_bytes..), Some([] | [b'/', ..]));
                self.run_program(if is_split { pass.prefix_bytes } else { path.len() })
            }
            Look::Directory | Look::Missing => Next::Fail(Status::NOT_FOUND),
            Look::Denied => Next::Fail(Status::FORBIDDEN),
            Look::Failed => Next::Fail(Status::INTERNAL_SERVER_ERROR),
        }
    }

    /// `cgi on`: the file at the path, or one that the path goes on behind.
    fn any_program(&mut self) -> Next<F::File> {
        let mapped = self.map_path();
        match self.look_at_program(self.route_state.file.len(), mapped) {
            Look::File(()) => self.run_program(self.route_state.path.len()),
            Look::Directory => self.folder_of_programs(mapped),
            Look::Missing => match self.walk(mapped, |_| true) {
                Walk::Program(bytes) => self.run_walked(bytes),
                Walk::Nothing => Next::Fail(Status::NOT_FOUND),
                Walk::Fail(status) => Next::Fail(status),
            },
            Look::Denied => Next::Fail(Status::FORBIDDEN),
            Look::Failed => Next::Fail(Status::INTERNAL_SERVER_ERROR),
        }
    }

    /// A directory among programs: its index if it has one (F3); else there is no program, and what is no
    /// regular file is not there (C1).
    fn folder_of_programs(&mut self, mapped: Mapped) -> Next<F::File> {
        if self.route_state.path.last() == Some(&b'/') {
            self.index(mapped)
        } else if self.settings().autoindex || self.has_index(mapped) {
            self.redirect_to_directory()
        } else {
            Next::Fail(Status::NOT_FOUND)
        }
    }

    /// Whether the directory that was asked for without its slash has an index file.
    fn has_index(&mut self, mapped: Mapped) -> bool {
        let settings = self.settings();
        let directory_bytes = self.route_state.file.len();
        settings.index.iter().any(|template| {
            let mut name = mem::take(&mut self.route_state.value);
            self.expand(template, &mut name);
            self.route_state.file.push(b'/');
            self.route_state.file.extend_from_slice(&name);
            self.route_state.value = name;
            let mut named = mapped;
            named.is_safe &= target::is_resolved(&self.route_state.file[named.root_bytes..]);
            // One that is absolute is not looked for.
            let is_there = self.route_state.value.first() == Some(&b'/')
                || matches!(self.look_at_file(named), Look::File(_));
            self.route_state.file.truncate(directory_bytes);
            is_there
        })
    }

    /// `cgi_extension`: a listed name on the path, or else files as ever.
    fn listed_program(&mut self, cgi: &Cgi) -> Next<F::File> {
        let mapped = self.map_path();
        match self.walk(mapped, |name| cgi.extension_of(name).is_some()) {
            Walk::Program(bytes) => self.run_walked(bytes),
            Walk::Nothing => match self.file_op() {
                Some(next) => next,
                None => self.file_or_directory(mapped),
            },
            Walk::Fail(status) => Next::Fail(status),
        }
    }

    /// Looks down the path for the regular file that has the rest of the path behind it: there is at
    /// most one, as files have nothing below them. Goes only as deep as there are directories.
    fn walk(&mut self, mapped: Mapped, is_candidate: impl Fn(&[u8]) -> bool) -> Walk {
        let file_bytes = self.route_state.file.len();
        // Only where file name and path are the same can one be cut with the other.
        let pairs = self.route_state.file.iter().rev().zip(self.route_state.path.iter().rev());
        let shared = pairs.take_while(|(a, b)| a == b).count();
        let first = (mapped.root_bytes + 1).max(file_bytes - shared + 1);
        for end in first..=file_bytes {
            let file = &self.route_state.file;
            let is_end = file.get(end).is_none_or(|next| *next == b'/');
            if !is_end || file[end - 1] == b'/' || !is_candidate(&file[..end]) {
                continue;
            }
            match self.look_at_program(end, mapped) {
                Look::File(()) => return Walk::Program(end),
                Look::Directory => {}
                Look::Missing => return Walk::Nothing,
                Look::Denied => return Walk::Fail(Status::FORBIDDEN),
                Look::Failed => return Walk::Fail(Status::INTERNAL_SERVER_ERROR),
            }
        }
        Walk::Nothing
    }

    fn look_at_program(&mut self, bytes: usize, mapped: Mapped) -> Look<()> {
        self.route_state.root_bytes = mapped.root_bytes;
        let file = &self.route_state.file[..bytes];
        if !mapped.is_safe || has_own_name(file.get(mapped.root_bytes..).unwrap_or_default()) {
            return Look::Missing;
        }
        let settings = self.settings();
        self.files.look_for_program(file, mapped.root_bytes, settings)
    }

    /// Runs the program that the first `bytes` of the file name are.
    fn run_walked(&mut self, bytes: usize) -> Next<F::File> {
        let behind = self.route_state.file.len() - bytes;
        self.route_state.file.truncate(bytes);
        self.run_program(self.route_state.path.len() - behind)
    }

    fn run_program(&mut self, script_bytes: usize) -> Next<F::File> {
        // Programs put what they get into lines.
        if target::has_control(&self.route_state.path) {
            return Next::Fail(Status::NOT_FOUND);
        }
        self.route_state.script_bytes = script_bytes;
        Next::Done(Action::Cgi)
    }
}
