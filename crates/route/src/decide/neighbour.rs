//! Neighbours that are compressed already: `file.zst`, `file.br`, `file.gz` beside `file`. They are looked at
//! as every file is, with the same root and the same policy for symbolic links.

use sekisho_config::{Cgi, Neighbour};
use sekisho_http::{Accepted, Coding, Status};

use super::file_op::has_own_name;
use super::{Decision, Next};
use crate::action::{Action, Files};
use crate::compression;

impl<F: Files> Decision<'_, F> {
    /// There is no file; as in nginx, a neighbour is served all the same, unless what is missing would be a
    /// program.
    pub(super) fn neighbour_alone(&mut self) -> Next<F::File> {
        let is_program = |cgi: &Cgi| cgi.is_program(&self.route_state.file);
        if self.settings().cgi.as_deref().is_some_and(is_program) {
            return Next::Fail(Status::NOT_FOUND);
        }
        let Some(file) = self.neighbour() else { return Next::Fail(Status::NOT_FOUND) };
        match self.method_outcome() {
            Ok(()) => Next::Done(Action::File(file)),
            Err(next) => next,
        }
    }

    /// The neighbour of `route_state.file` that is to be served in its place, if there is one. Remembers in the
    /// exchange which coding it has, and whether another client might have got something else.
    pub(super) fn neighbour(&mut self) -> Option<F::File> {
        self.route_state.coding = None;
        let settings = self.settings();
        let compression = &*settings.compression;
        let below = self.route_state.file.get(self.route_state.root_bytes..).unwrap_or_default();
        if !compression.has_neighbours() || has_own_name(below) {
            return None;
        }
        let accepted = Accepted::of(self.request.head);
        let is_taken = |coding: Coding| match compression.of(coding).neighbour {
            Neighbour::Off => false,
            Neighbour::Always => true,
            Neighbour::On => {
                accepted.contains(coding)
                    && compression::takes_coding(compression, coding, self.request.head)
            }
        };
        // What the client likes best comes first, and then what it does not take: that is looked at only to
        // know whether the answer depends on the client.
        let others = Coding::ALL.into_iter().filter(|coding| !accepted.contains(*coding));
        for coding in accepted.iter().chain(others) {
            let neighbour = compression.of(coding).neighbour;
            if neighbour == Neighbour::Off || (self.route_state.has_neighbours && !is_taken(coding))
            {
                continue;
            }
            let bytes = self.route_state.file.len();
            self.route_state.file.extend_from_slice(coding.extension().as_bytes());
            let root_bytes = self.route_state.root_bytes;
            let file = self.files.look_for_neighbour(&self.route_state.file, root_bytes, settings);
            self.route_state.file.truncate(bytes);
            let Some(file) = file else { continue };
            self.route_state.has_neighbours |= neighbour == Neighbour::On;
            if is_taken(coding) {
                self.route_state.coding = Some(coding);
                return Some(file);
            }
        }
        None
    }
}
