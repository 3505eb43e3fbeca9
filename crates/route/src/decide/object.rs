//! Where the root is a `storage`: objects are looked for as files are, but each look takes time and is a wait.

use std::mem;

use sekisho_config::{Fallback, TryFiles};
use sekisho_http::{Status, target};

use super::{Decision, Next, file_op};
use crate::access_checks::Wait;
use crate::action::{Action, Files};
use crate::object::ObjectLook;
use crate::path_mapping::Mapped;
use crate::route_state::RouteState;

impl<F: Files> Decision<'_, F> {
    /// Whether the location's root is a `storage`.
    pub(super) fn is_in_storage(&self) -> bool {
        self.settings().pass.as_deref().is_some_and(|pass| pass.storage.is_some())
    }

    /// An object that is asked for, changed or listed.
    pub(super) fn object(&mut self) -> Next<F::File> {
        if let Some(next) = self.file_op() {
            return next;
        }
        if let Err(next) = self.method_outcome() {
            return next;
        }
        let mapped = self.map_path();
        if !mapped.is_safe || file_op::has_own_name(&self.route_state.file[mapped.root_bytes..]) {
            return Next::Fail(Status::NOT_FOUND);
        }
        if self.route_state.path.last() == Some(&b'/') {
            return self.object_index(mapped);
        }
        // The object itself has been asked for, and is not there: it may be a folder without its slash.
        match self.known_object() {
            Some(ObjectLook::Missing) => {
                self.route_state.file.push(b'/');
                match self.look_at_object(mapped) {
                    None => self.ask_for_object(true),
                    Some(ObjectLook::Folder) => self.redirect_to_directory(),
                    Some(ObjectLook::Failed(status)) => Next::Fail(status),
                    Some(_) => Next::Fail(Status::NOT_FOUND),
                }
            }
            _ => Next::Done(Action::Pass),
        }
    }

    /// The first index that is there, or a listing.
    fn object_index(&mut self, mapped: Mapped) -> Next<F::File> {
        let settings = self.settings();
        let directory_bytes = self.route_state.file.len();
        for template in settings.index.iter() {
            let mut name = mem::take(&mut self.route_state.value);
            self.expand(template, &mut name);
            self.route_state.file.extend_from_slice(&name);
            self.route_state.value = name;
            if self.route_state.value.first() == Some(&b'/') {
                return self.redirect_to_index();
            }
            if target::is_resolved(&self.route_state.file[mapped.root_bytes..]) {
                match self.look_at_object(mapped) {
                    None => return self.ask_for_object(true),
                    Some(ObjectLook::Object) => return self.found_object_index(),
                    Some(ObjectLook::Failed(status)) => return Next::Fail(status),
                    Some(ObjectLook::Folder | ObjectLook::Missing) => {}
                }
            }
            self.route_state.file.truncate(directory_bytes);
        }
        match self.look_at_object(mapped) {
            None => self.ask_for_object(true),
            Some(ObjectLook::Failed(status)) => Next::Fail(status),
            Some(ObjectLook::Missing) => Next::Fail(Status::NOT_FOUND),
            Some(_) if settings.autoindex => Next::Done(Action::Listing),
            Some(_) => Next::Fail(Status::FORBIDDEN),
        }
    }

    /// An index, whose name is in `route_state.value`, is there: its location answers.
    fn found_object_index(&mut self) -> Next<F::File> {
        let RouteState { path, value, .. } = &mut *self.route_state;
        path.extend_from_slice(value);
        match self.count_redirect() {
            Ok(()) => Next::Path,
            Err(next) => next,
        }
    }

    /// `try_files`
    pub(super) fn try_objects(&mut self, try_files: &TryFiles) -> Next<F::File> {
        for candidate in &try_files.candidates {
            let mut value = mem::take(&mut self.route_state.value);
            let mapped = self.map_candidate(candidate, &mut value);
            let look = mapped.map_or(Some(ObjectLook::Missing), |(mapped, _)| {
                if candidate.is_dir && self.route_state.file.last() != Some(&b'/') {
                    self.route_state.file.push(b'/');
                }
                self.look_at_object(mapped)
            });
            let is_it = matches!(
                (look, candidate.is_dir),
                (Some(ObjectLook::Object), false) | (Some(ObjectLook::Folder), true)
            );
            if is_it && let Some((_, replaced)) = mapped {
                self.take_candidate(replaced, &value);
            }
            self.route_state.value = value;
            match look {
                None => return self.ask_for_object(false),
                Some(ObjectLook::Failed(status)) => return Next::Fail(status),
                Some(_) if is_it => return self.content(),
                Some(_) => self.route_state.file.clear(),
            }
        }
        match &try_files.fallback {
            Fallback::Uri(template) => self.redirect_to_value(template),
            Fallback::Named(name) => self.redirect_to_named(name),
            Fallback::Status(status) => self.bare(*status),
        }
    }

    /// What is known of `route_state.file`; `None` where it has to be asked for.
    fn look_at_object(&mut self, mapped: Mapped) -> Option<ObjectLook> {
        self.route_state.root_bytes = mapped.root_bytes;
        let below = &self.route_state.file[mapped.root_bytes..];
        if !mapped.is_safe || file_op::has_own_name(below) {
            return Some(ObjectLook::Missing);
        }
        let RouteState { objects, file, .. } = &mut *self.route_state;
        objects.get_or_insert_default().look(file)
    }

    /// The same without asking.
    fn known_object(&self) -> Option<ObjectLook> {
        let objects = self.route_state.objects.as_deref()?;
        objects.known(&self.route_state.file)
    }

    /// The decision waits; where it `has_noted` its copies, they are noted again when it goes on.
    fn ask_for_object(&mut self, has_noted: bool) -> Next<F::File> {
        if has_noted && self.settings().mirrors.is_some() && !self.route_state.is_subrequest {
            self.route_state.mirrored.pop();
        }
        Next::Done(Action::Wait(Wait::Object))
    }
}
