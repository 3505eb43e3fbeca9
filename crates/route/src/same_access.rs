//! Whether two paths have the same access rules: what a listing shows of the files below it (an archive, a
//! README) must be no more than each of them shows by itself.

use sekisho_config::{Condition, LocationId, ServerId, Settings, Step, Template, Variable};

use crate::table::Table;

impl Table {
    /// Whether a client that was admitted to one path of this location would be admitted to this path, too:
    /// the same location answers for it, and neither a script nor a password there depends on the path.
    pub fn has_same_access(&self, server: ServerId, location: LocationId, path: &[u8]) -> bool {
        let own = &self.location(location).settings;
        let outer = &self.location(self.server(server).root).settings;
        self.location_of(server, path) == location
            && is_for_every_path(own)
            && is_for_every_path(outer)
    }

    /// Whether a file of this name at this path, on the server of this location, would be a program or what a
    /// program is given: asked for by its path, or with more of a path behind it (`PATH_INFO`).
    pub fn is_run(&self, location: LocationId, path: &[u8], file: &[u8]) -> bool {
        let server = self.location(location).server;
        let cgi_of = |path: &[u8]| {
            let there = self.location_of(server, path);
            self.location(there).settings.cgi.as_deref()
        };
        cgi_of(path).is_some_and(|cgi| cgi.is_given(file))
            || cgi_of(&[path, b"/"].concat()).is_some_and(|cgi| cgi.is_program(file))
    }

    /// Whether the entries below a folder may have other rules than the folder itself, so that an operation
    /// on all of them must ask [`is_entry_of`](Self::is_entry_of) for each. `folder` ends with a slash.
    pub fn has_entries_to_check(&self, location: LocationId, folder: &[u8]) -> bool {
        let server = self.location(location).server;
        self.may_have_locations_below(server, folder)
            || self.location(location).settings.cgi.is_some()
            || !self.has_same_access(server, location, folder)
    }

    /// Whether an operation on a folder, allowed by a location, may take this entry of it along: the same
    /// location answers for its path, and nothing there is run. The path of a folder ends with a slash.
    pub fn is_entry_of(&self, location: LocationId, path: &[u8]) -> bool {
        let server = self.location(location).server;
        let is_folder = path.ends_with(b"/");
        self.has_same_access(server, location, path)
            && (is_folder || !self.is_run(location, path, path))
    }
}

/// Whether neither the script nor the password of a level depends on the requested path.
fn is_for_every_path(settings: &Settings) -> bool {
    let script = settings.rewriting.script.as_deref();
    let password = settings.access.as_deref().and_then(|access| access.password.as_ref());
    let is_fixed = |template: &Template| template.as_literal().is_some();
    script.is_none_or(|script| are_for_every_path(&script.steps))
        && password.is_none_or(|rule| is_fixed(&rule.realm) && is_fixed(&rule.file.path))
}

/// Whether these steps do with every path what they have done with one that got through them. A `return` that
/// this path did not reach is reached by no path, if the conditions before it are the same for all.
fn are_for_every_path(steps: &[Step]) -> bool {
    steps.iter().all(|step| match step {
        Step::Set(..) | Step::Break | Step::Return(_) => true,
        Step::Rewrite(_) => false,
        Step::If(branch) => is_of_client(&branch.condition) && are_for_every_path(&branch.steps),
    })
}

/// Whether a condition depends only on the client and its connection, not on the path.
fn is_of_client(condition: &Condition) -> bool {
    use Variable as V;
    let (variable, value) = match condition {
        Condition::Is(variable) | Condition::Matches { variable, .. } => (variable, None),
        Condition::Equals { variable, value, .. } => (variable, Some(value)),
        Condition::File { .. } => return false,
    };
    let is_client = matches!(
        variable,
        V::BinaryRemoteAddr
            | V::Cookie(_)
            | V::Host
            | V::Http(_)
            | V::Https
            | V::RemoteAddr
            | V::RequestMethod
            | V::Scheme
            | V::Tls(_)
            | V::ServerAddr
            | V::ServerName
            | V::ServerPort
            | V::ServerProtocol
    );
    is_client && value.is_none_or(|value| value.as_literal().is_some())
}
