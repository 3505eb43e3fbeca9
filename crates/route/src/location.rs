//! Which location: nginx's search. An exact match ends it; otherwise the longest prefix is remembered,
//! what is nested in it is searched, and then the regular expressions are tried in the order of the
//! file, the nested ones first; `^~` on the prefix spares them.

use std::sync::Arc;

use sekisho_config::{Location, LocationId, LocationMatch, PatternList, Programs, Settings};

use crate::capture::Captures;

/// The locations directly within a server or a location.
#[derive(Debug, Default)]
pub(crate) struct Level {
    /// Sorted by path.
    exact: Vec<(Box<[u8]>, LocationId)>,
    /// Sorted by path.
    prefixes: Vec<Prefix>,
    /// Prefixes with a slash at their end that are passed on, without it, sorted: a request for one of these
    /// is redirected to the one with the slash.
    slashless: Vec<(Box<[u8]>, LocationId)>,
    /// In the order of the file.
    patterns: PatternList<LocationId>,
}

#[derive(Debug)]
struct Prefix {
    path: Box<[u8]>,
    id: LocationId,
    is_final: bool,
    /// The longest other prefix that this one begins with: an index.
    shorter: Option<usize>,
}

/// The result of the search on one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// An exact match or a regular expression: the search is over.
    Final(LocationId),
    /// A prefix: a regular expression further out may still win.
    Prefix(LocationId),
    Nothing,
}

impl Level {
    pub(crate) fn new(locations: &[Location], ids: &[LocationId]) -> Self {
        let (mut level, mut patterns) = (Self::default(), Vec::new());
        for &id in ids {
            let Some(location) = locations.get(id.0 as usize) else { continue };
            match &location.matches {
                LocationMatch::Exact(path) => level.exact.push((path.as_slice().into(), id)),
                LocationMatch::Prefix { path, is_final } => {
                    if is_passed_on(&location.settings)
                        && let Some(slashless) = path.strip_suffix(b"/")
                    {
                        level.slashless.push((slashless.into(), id));
                    }
                    let (path, is_final) = (path.as_slice().into(), *is_final);
                    level.prefixes.push(Prefix { path, id, is_final, shorter: None });
                }
                LocationMatch::Regex(pattern) => patterns.push((Arc::clone(pattern), id)),
                LocationMatch::Named(_) | LocationMatch::Server | LocationMatch::If => {}
            }
        }
        level.patterns = patterns.into();
        level.exact.sort_by(|a, b| a.0.cmp(&b.0));
        level.slashless.sort_by(|a, b| a.0.cmp(&b.0));
        level.prefixes.sort_by(|a, b| a.path.cmp(&b.path));
        for index in 1..level.prefixes.len() {
            // Everything that lies between a prefix and what begins with it begins with it too, so
            // the neighbour's chain of shorter ones holds ours.
            let mut candidate = Some(index - 1);
            while let Some(at) = candidate {
                if level.prefixes[index].path.starts_with(&level.prefixes[at].path) {
                    break;
                }
                candidate = level.prefixes[at].shorter;
            }
            level.prefixes[index].shorter = candidate;
        }
        level
    }

    fn exact(&self, path: &[u8]) -> Option<LocationId> {
        let at = self.exact.binary_search_by(|(other, _)| other.as_ref().cmp(path)).ok()?;
        Some(self.exact[at].1)
    }

    /// The location that the path is sent to with a slash, unless it has one of its own.
    fn slashless(&self, path: &[u8]) -> Option<LocationId> {
        let at = self.slashless.binary_search_by(|(other, _)| other.as_ref().cmp(path)).ok()?;
        let is_own = self.longest_prefix(path).is_some_and(|prefix| prefix.path.as_ref() == path);
        (!is_own).then_some(self.slashless[at].1)
    }

    fn longest_prefix(&self, path: &[u8]) -> Option<&Prefix> {
        let behind = self.prefixes.partition_point(|prefix| prefix.path.as_ref() <= path);
        let mut candidate = behind.checked_sub(1);
        while let Some(at) = candidate {
            let prefix = &self.prefixes[at];
            if path.starts_with(&prefix.path) {
                return Some(prefix);
            }
            candidate = prefix.shorter;
        }
        None
    }
}

/// Whether a program or another server answers for everything in a location.
fn is_passed_on(settings: &Settings) -> bool {
    let is_program =
        settings.cgi.as_ref().is_some_and(|cgi| matches!(cgi.programs, Programs::One(_)));
    is_program || settings.pass.is_some()
}

/// Whether a location was found for a path that lacks only its last slash.
pub(crate) fn lacks_slash(location: &Location, path: &[u8]) -> bool {
    matches!(&location.matches, LocationMatch::Prefix { path: own, .. } if own.len() > path.len())
}

/// The location for a path, searched from `root` (a server's own location); `root` when none matches.
/// `levels` are indexed by location.
pub(crate) fn find(
    levels: &[Level],
    root: LocationId,
    path: &[u8],
    captures: &mut Captures,
) -> LocationId {
    match find_within(levels, root, path, captures) {
        Found::Final(id) | Found::Prefix(id) => id,
        Found::Nothing => root,
    }
}

/// The recursion is as deep as the configuration nests.
fn find_within(levels: &[Level], outer: LocationId, path: &[u8], captures: &mut Captures) -> Found {
    let Some(level) = levels.get(outer.0 as usize) else { return Found::Nothing };
    if let Some(id) = level.exact(path) {
        return Found::Final(id);
    }
    if !level.slashless.is_empty()
        && let Some(id) = level.slashless(path)
    {
        return Found::Final(id);
    }
    let mut found = Found::Nothing;
    let mut tries_patterns = true;
    if let Some(prefix) = level.longest_prefix(path) {
        tries_patterns = !prefix.is_final;
        found = match find_within(levels, prefix.id, path, captures) {
            Found::Nothing => Found::Prefix(prefix.id),
            nested => nested,
        };
    }
    if tries_patterns && !matches!(found, Found::Final(_)) {
        for (pattern, id) in level.patterns.candidates(path) {
            if captures.matches(pattern, path) {
                return match find_within(levels, *id, path, captures) {
                    Found::Final(nested) | Found::Prefix(nested) => Found::Final(nested),
                    Found::Nothing => Found::Final(*id),
                };
            }
        }
    }
    found
}
