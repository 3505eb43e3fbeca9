//! From a path to a file name: `root` and `alias`. It must never let a client's bytes climb out of the
//! directory that the configuration named (F2).

use std::sync::Arc;

use sekisho_config::{Http, LocationId, LocationMatch, Part, PathMapping, Template, Variable};
use sekisho_http::target;

use crate::variable::Scope;

/// Which part of the path an `alias` replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum AliasFrom {
    /// None: the location has a `root`.
    #[default]
    Nothing,
    /// The first so many bytes: the prefix of the location that has the `alias`.
    Prefix(usize),
    /// All of it: the `alias` of a regular expression is the whole file name.
    Whole,
}

impl AliasFrom {
    /// For every location. One that has inherited its `alias` replaces the same prefix as the one it
    /// has it from, as in nginx.
    pub(crate) fn of_all(http: &Http) -> Vec<Self> {
        let mut all = vec![Self::default(); http.locations.len()];
        let mut waiting: Vec<(LocationId, Option<LocationId>)> = Vec::new();
        for server in &http.servers {
            waiting.extend(server.locations.iter().map(|&id| (id, None)));
        }
        while let Some((id, outer)) = waiting.pop() {
            let Some(location) = http.locations.get(id.0 as usize) else { continue };
            waiting.extend(location.locations.iter().map(|&nested| (nested, Some(id))));
            let alias = match &location.settings.path_mapping {
                PathMapping::Root(_) => continue,
                PathMapping::Alias(alias) => alias,
                PathMapping::AliasOfParent { prefix_bytes, .. } => {
                    all[id.0 as usize] = Self::Prefix(*prefix_bytes);
                    continue;
                }
            };
            let inherited = outer.filter(|outer| {
                let place = &http.locations[outer.0 as usize].settings.path_mapping;
                matches!(place, PathMapping::Alias(other) if Arc::ptr_eq(alias, other))
            });
            all[id.0 as usize] = match (inherited, &location.matches) {
                (Some(outer), _) => all[outer.0 as usize],
                (None, LocationMatch::Exact(path) | LocationMatch::Prefix { path, .. }) => {
                    Self::Prefix(path.len())
                }
                (None, LocationMatch::Regex(_)) => Self::Whole,
                (None, LocationMatch::Named(_) | LocationMatch::Server | LocationMatch::If) => {
                    Self::Prefix(0)
                }
            };
        }
        all
    }
}

/// A file name that has been written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapped {
    /// How much of it names a directory of the configuration.
    pub(crate) root_bytes: usize,
    /// Whether the rest keeps below that directory. What is not safe is not there.
    pub(crate) is_safe: bool,
}

/// Writes `$document_root`.
pub(crate) fn write_root(scope: &Scope<'_>, out: &mut Vec<u8>) {
    match &scope.settings().path_mapping {
        PathMapping::Root(template) => {
            let start = out.len();
            scope.nested(template, out);
            if out.len() > start {
                strip_slash(out);
            }
        }
        alias => scope.nested(template_of(alias), out),
    }
}

/// Writes the name of the file that `path` maps to in the scope's location, over what `out` holds.
pub(crate) fn write_file(scope: &Scope<'_>, path: &[u8], out: &mut Vec<u8>) -> Mapped {
    let rest = match scope.table.alias_from(scope.route_state.location) {
        AliasFrom::Nothing => path,
        AliasFrom::Prefix(bytes) => path.get(bytes..).unwrap_or_default(),
        AliasFrom::Whole => b"",
    };
    write_below_root(scope, rest, out)
}

/// Writes root or alias and `rest` behind it, over what `out` holds.
pub(crate) fn write_below_root(scope: &Scope<'_>, rest: &[u8], out: &mut Vec<u8>) -> Mapped {
    out.clear();
    let place = &scope.settings().path_mapping;
    let template = template_of(place);
    scope.nested(template, out);
    let is_root = matches!(place, PathMapping::Root(_));
    if is_root || rest.first() == Some(&b'/') {
        strip_slash(out);
    }
    let trusted = trusted_bytes(template).unwrap_or(out.len()).min(out.len());
    out.extend_from_slice(rest);
    // The directory ends where a slash follows, and something is always left for the rest.
    let root_bytes = out[..out.len().min(trusted + 1)].iter().rposition(|byte| *byte == b'/');
    let root_bytes = root_bytes.unwrap_or(0);
    // A resolved path below a fixed root is safe as it is. A prefix that ends within a segment is not:
    // `location /i { alias /data/; }` turns `/i../x` into `/data/../x`.
    // A path that a script has left without its slash (`try_files … index.php`) names nothing below a root.
    let is_below = !is_root || matches!(rest.first(), None | Some(b'/'));
    // A name with control bytes is none that is looked for.
    let is_safe = is_below
        && if is_root && template.as_literal().is_some() {
            !target::has_control(rest)
        } else {
            target::is_resolved(&out[root_bytes..])
        };
    Mapped { root_bytes, is_safe }
}

/// Writes the name of a file that a value alone gives, over what `out` holds.
pub(crate) fn write_value(scope: &Scope<'_>, template: &Template, out: &mut Vec<u8>) -> Mapped {
    out.clear();
    scope.nested(template, out);
    let trusted = trusted_bytes(template).unwrap_or(out.len()).min(out.len());
    let root_bytes = out[..trusted].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let is_safe = target::is_resolved(&out[root_bytes..]);
    Mapped { root_bytes, is_safe }
}

/// Writes the name of a file that a condition asks about, over what `out` holds. What `$document_root` and
/// `$request_filename` begin with is the configuration's own, as where files are looked for; all else must be
/// free of dot segments.
pub(crate) fn write_asked(scope: &Scope<'_>, template: &Template, out: &mut Vec<u8>) -> Mapped {
    match template.parts.as_slice() {
        [Part::Variable(Variable::RequestFilename)] => {
            let mapped = write_file(scope, &scope.route_state.path, out);
            // A script may have put anything into the path.
            let is_safe = target::is_resolved(&out[mapped.root_bytes..]);
            Mapped { is_safe, ..mapped }
        }
        [Part::Variable(Variable::DocumentRoot | Variable::RealpathRoot), rest @ ..]
            if template_of(&scope.settings().path_mapping).as_literal().is_some() =>
        {
            out.clear();
            write_root(scope, out);
            let trusted = out.len();
            for part in rest {
                scope.part(part, out);
            }
            let end = out.len().min(trusted + 1);
            let root_bytes = out[..end].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            Mapped { root_bytes, is_safe: target::is_resolved(&out[root_bytes..]) }
        }
        _ => write_value(scope, template, out),
    }
}

/// Writes the name of the folder that an `upload_store` gives, over what `out` holds. The whole of a
/// fixed one is the configuration's own; else what comes before the first variable is, and
/// `$document_root` and `$request_filename` count for what they are made of.
pub(crate) fn write_store(scope: &Scope<'_>, template: &Template, out: &mut Vec<u8>) -> Mapped {
    out.clear();
    let trusted = match template.parts.as_slice() {
        [Part::Variable(Variable::RequestFilename)] => {
            return write_file(scope, &scope.route_state.path, out);
        }
        [Part::Variable(Variable::DocumentRoot), ..] => {
            write_root(scope, out);
            let bytes = out.len();
            out.clear();
            trusted_bytes(template_of(&scope.settings().path_mapping)).unwrap_or(bytes)
        }
        _ => trusted_bytes(template).unwrap_or(usize::MAX),
    };
    scope.nested(template, out);
    strip_slash(out);
    // The directory ends where a slash follows, or with the name.
    let root_bytes = match out.get(trusted) {
        None => out.len(),
        Some(b'/') => trusted,
        Some(_) => out[..trusted].iter().rposition(|byte| *byte == b'/').unwrap_or(0),
    };
    let is_safe = root_bytes == out.len() || target::is_resolved(&out[root_bytes..]);
    Mapped { root_bytes, is_safe }
}

/// The root or alias itself.
pub(crate) fn template_of(place: &PathMapping) -> &Template {
    match place {
        PathMapping::Root(template)
        | PathMapping::Alias(template)
        | PathMapping::AliasOfParent { alias: template, .. } => template,
    }
}

/// How many bytes of a value are literal text of the configuration; `None` for all.
fn trusted_bytes(template: &Template) -> Option<usize> {
    if template.as_literal().is_some() {
        return None;
    }
    match template.parts.first() {
        Some(Part::Literal(text)) => Some(text.len()),
        _ => Some(0),
    }
}

fn strip_slash(out: &mut Vec<u8>) {
    if out.last() == Some(&b'/') {
        out.pop();
    }
}
