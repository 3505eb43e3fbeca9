//! `try_files`: the first candidate that is there answers, or else the fallback.

use std::mem;

use sekisho_config::{Fallback, TryFile, TryFiles};
use sekisho_http::{Status, target};

use super::{Decision, Next};
use crate::action::{Files, Look};
use crate::path_mapping::{self, AliasFrom, Mapped};

impl<F: Files> Decision<'_, F> {
    pub(super) fn try_files(&mut self, try_files: &TryFiles) -> Next<F::File> {
        for candidate in &try_files.candidates {
            let mut value = mem::take(&mut self.route_state.value);
            let look = self.look_for_candidate(candidate, &mut value);
            self.route_state.value = value;
            match look {
                // What exists is only sent where nothing else answers: with `fastcgi_pass` it is a program.
                Look::File(_) if !candidate.is_dir && self.has_handler() => return self.content(),
                Look::File(file) if !candidate.is_dir => {
                    self.note_mirrors();
                    return self.found_file(file);
                }
                Look::Directory if candidate.is_dir => return self.content(),
                Look::Failed => return Next::Fail(Status::INTERNAL_SERVER_ERROR),
                Look::File(_) | Look::Directory | Look::Missing | Look::Denied => {}
            }
        }
        match &try_files.fallback {
            Fallback::Uri(template) => self.redirect_to_value(template),
            Fallback::Named(name) => self.redirect_to_named(name),
            Fallback::Status(status) => self.bare(*status),
        }
    }

    /// Looks for a candidate of `try_files`. If it is what was wanted, the path becomes the
    /// candidate's.
    fn look_for_candidate(&mut self, candidate: &TryFile, value: &mut Vec<u8>) -> Look<F::File> {
        let Some((mapped, replaced)) = self.map_candidate(candidate, value) else {
            return Look::Missing;
        };
        let look = self.look_at_file(mapped);
        if matches!((&look, candidate.is_dir), (Look::File(_), false) | (Look::Directory, true)) {
            self.take_candidate(replaced, value);
        } else {
            self.route_state.file.clear();
        }
        look
    }

    /// Writes the file of a candidate to `route_state.file`; with how much of the path it replaces, unless it is the
    /// whole file name. `None` if it names nothing below the root.
    pub(super) fn map_candidate(
        &mut self,
        candidate: &TryFile,
        value: &mut Vec<u8>,
    ) -> Option<(Mapped, Option<usize>)> {
        self.expand(&candidate.path, value);
        let replaced = match self.table.alias_from(self.route_state.location) {
            AliasFrom::Nothing => {
                if value.first() != Some(&b'/') {
                    // nginx appends it to the root without a slash, where it names nothing below the root.
                    self.route_state.file.clear();
                    return None;
                }
                Some(0)
            }
            // A candidate made of the path begins with the prefix that the alias replaces.
            AliasFrom::Prefix(bytes) => {
                let prefix = self.route_state.path.get(..bytes).unwrap_or(&self.route_state.path);
                if candidate.path.as_literal().is_none() && value.starts_with(prefix) {
                    value.drain(..prefix.len());
                }
                Some(prefix.len())
            }
            AliasFrom::Whole => None,
        };
        let mut file = mem::take(&mut self.route_state.file);
        let mut mapped =
            self.scoped(|scope| path_mapping::write_below_root(scope, value, &mut file));
        self.route_state.file = file;
        mapped.is_safe &= target::is_resolved(&self.route_state.file[mapped.root_bytes..]);
        Some((mapped, replaced))
    }

    /// The path becomes the candidate's.
    pub(super) fn take_candidate(&mut self, replaced: Option<usize>, value: &[u8]) {
        if let Some(bytes) = replaced {
            self.route_state.path.truncate(bytes);
            self.route_state.path.extend_from_slice(value);
        }
    }
}
