//! Locations: where they are allowed, what they inherit, and that none is defined twice.

use std::collections::HashMap;
use std::sync::Arc;

use crate::charset::recode_of;

use super::{Inner, Walk};
use crate::directive::{Body, Context, answers};
use crate::level::{Directive, Level};
use crate::model::{
    CgiPass, LimitExcept, LocationId, LocationMatch, Part, PathMapping, Programs, Script, ServerId,
    Settings, Step, Template,
};
use crate::names::{location_match, shown};
use crate::parse::Node;
use crate::report::{Report, Span};

impl Walk<'_> {
    /// The locations among the blocks of a finished level. Blocks are nested within a bound.
    pub(super) fn locations(
        &mut self,
        parent: &Level,
        server: ServerId,
        blocks: &[Inner<'_>],
    ) -> Vec<LocationId> {
        let mut seen = HashMap::new();
        let mut ids = Vec::new();
        for (row, node) in blocks {
            if row.body == Body::Block(Context::Location) && !self.scope.reports.is_full() {
                ids.extend(self.location(parent, server, node, &mut seen));
            }
        }
        ids
    }

    fn location(
        &mut self,
        parent: &Level,
        server: ServerId,
        node: &Node,
        seen: &mut HashMap<(u8, Vec<u8>), Span>,
    ) -> Option<LocationId> {
        let matches = match location_match(node) {
            Ok(matches) => matches,
            Err(fault) => {
                self.fault(node, fault);
                return None;
            }
        };
        let span = node.args.last().map_or(node.name.span, |word| word.span);
        self.check_place(parent, &matches, span);
        self.check_twice(&matches, span, seen);
        let mut level = parent.child(Context::Location, matches.clone());
        let body = node.body.as_deref().unwrap_or_default();
        let blocks = self.fill(&mut level, body);
        if !level.says("root") && !level.says("alias") {
            inherit_alias(parent, &mut level);
        }
        level.finish();
        self.health_check(&mut level);
        self.check_password(&level);
        self.set_recode(&mut level);
        self.check_program(&level);
        self.check_storage(&level);
        let mut limited = None;
        for (row, node) in &blocks {
            if row.body == Body::Block(Context::LimitExcept) {
                let directive = Directive { row, node, is_default: false };
                limited = self.limit_except(&mut level, &directive, server);
            }
        }
        if let LocationMatch::Named(name) = &matches {
            self.named.get_mut(server.0 as usize)?.insert(name.clone());
        }
        let id = self.push_location(matches, server, &level);
        let mut inner = self.script(&mut level, id, server, &blocks);
        inner.extend(limited);
        inner.extend(self.locations(&level, server, &blocks));
        self.http.locations.get_mut(id.0 as usize)?.locations = inner;
        Some(id)
    }

    /// Makes the script of a finished level, which is `id` already. Returns the locations that its `if`s are:
    /// none for those of a server, which have no settings.
    pub(super) fn script(
        &mut self,
        level: &mut Level,
        id: LocationId,
        server: ServerId,
        blocks: &[Inner<'_>],
    ) -> Vec<LocationId> {
        let mut steps = std::mem::take(&mut level.own.steps);
        let branches = steps.iter_mut().filter_map(|step| match step {
            Step::If(branch) => Some(branch),
            _ => None,
        });
        // Each `if` has left its step, in the same order.
        let bodies = blocks.iter().filter(|(row, _)| row.body == Body::Block(Context::LocationIf));
        let mut ids = Vec::new();
        for (branch, (_, node)) in branches.zip(bodies) {
            let context = match level.context {
                Context::Server => Context::ServerIf,
                _ => Context::LocationIf,
            };
            let mut inner = level.child(context, level.matches.clone());
            self.fill(&mut inner, node.body.as_deref().unwrap_or_default());
            inner.finish();
            branch.steps = std::mem::take(&mut inner.own.steps);
            if context == Context::LocationIf {
                let id = self.push_location(LocationMatch::If, server, &inner);
                branch.location = Some(id);
                ids.push(id);
            }
        }
        if !steps.is_empty()
            && let Some(location) = self.http.locations.get_mut(id.0 as usize)
        {
            location.settings.rewriting.script = Some(Arc::new(Script { steps }));
        }
        ids
    }

    /// What stands within what, as in nginx.
    fn check_place(&mut self, parent: &Level, matches: &LocationMatch, span: Span) {
        let name = shown(matches);
        let outer = shown(&parent.matches);
        let path = match matches {
            LocationMatch::Exact(path) | LocationMatch::Prefix { path, .. } => Some(path),
            _ => None,
        };
        let is_outside = |prefix: &[u8]| path.is_some_and(|path| !path.starts_with(prefix));
        let wrong = match (&parent.matches, matches) {
            (LocationMatch::Server, _) => None,
            (LocationMatch::Exact(_), _) => {
                Some(format!("location \"{name}\" cannot be inside the exact location \"{outer}\""))
            }
            (LocationMatch::Named(_), _) => {
                Some(format!("location \"{name}\" cannot be inside the named location \"{outer}\""))
            }
            (_, LocationMatch::Named(_)) => {
                Some(format!("named location \"{name}\" can be on the server level only"))
            }
            (LocationMatch::Prefix { path: prefix, .. }, _) if is_outside(prefix) => {
                Some(format!("location \"{name}\" is outside location \"{outer}\""))
            }
            (LocationMatch::Regex(_), _) if path.is_some() => {
                Some(format!("location \"{name}\" is outside location \"{outer}\""))
            }
            _ => None,
        };
        if let Some(message) = wrong {
            self.error(span, message);
        } else if path.is_some_and(|path| !path.starts_with(b"/")) {
            let message = format!("location \"{name}\" never matches: a path begins with \"/\"");
            let report = Report::warning(self.scope.files, span, message);
            let help =
                name.contains('*').then(|| "a regular expression needs \"~\" before it".to_owned());
            self.scope.reports.push(report.help(help));
        }
    }

    fn check_twice(
        &mut self,
        matches: &LocationMatch,
        span: Span,
        seen: &mut HashMap<(u8, Vec<u8>), Span>,
    ) {
        let key = match matches {
            LocationMatch::Exact(path) => (0, path.clone()),
            LocationMatch::Prefix { path, .. } => (1, path.clone()),
            LocationMatch::Named(name) => (2, name.clone().into_bytes()),
            // Of two equal expressions the first one is taken, as in nginx.
            LocationMatch::Regex(_) | LocationMatch::Server | LocationMatch::If => return,
        };
        if let Some(before) = seen.insert(key, span) {
            let message = format!("duplicate location \"{}\"", shown(matches));
            let report = Report::error(self.scope.files, span, message);
            self.scope.reports.push(report.related(self.scope.files, before, "the other one"));
        }
    }

    /// Returns the location that the block is, where it passes requests on.
    fn limit_except(
        &mut self,
        level: &mut Level,
        directive: &Directive<'_>,
        server: ServerId,
    ) -> Option<LocationId> {
        let mut inner = level.child(Context::LimitExcept, level.matches.clone());
        self.fill(&mut inner, directive.node.body.as_deref().unwrap_or_default());
        inner.finish();
        self.check_password(&inner);
        match answers::methods(directive, true) {
            Ok(methods) => {
                let access = inner.settings.access.clone();
                let is_own = inner.settings.pass.is_some();
                let passes = is_own.then(|| self.push_location(LocationMatch::If, server, &inner));
                let limit = LimitExcept { methods, access, passes };
                level.settings.limit_except = Some(Arc::new(limit));
                passes
            }
            Err(fault) => {
                self.fault(directive.node, fault);
                None
            }
        }
    }

    /// `auth_basic` without a file of passwords admits every client, as in nginx.
    pub(super) fn check_password(&mut self, level: &Level) {
        let guards = &level.guards;
        if let Some(span) = level.seen.get("auth_basic")
            && guards.realm.is_some()
            && guards.user_file.is_none()
        {
            let message = "\"auth_basic\" without \"auth_basic_user_file\" lets everybody in";
            self.scope.warn(*span, message);
        }
    }

    /// How texts of the level are recoded.
    pub(super) fn set_recode(&mut self, level: &mut Level) {
        let Settings { charset, source_charset, .. } = &level.settings;
        [charset, source_charset]
            .into_iter()
            .flatten()
            .for_each(|name| self.scope.charsets.name(name));
        match recode_of(level, &self.scope.charsets) {
            Ok(recode) => level.settings.recode = recode,
            Err((from, to)) => {
                let says =
                    ["source_charset", "charset"].iter().find_map(|name| level.seen.get(name));
                let message =
                    format!("no \"charset_map\" between the charsets \"{from}\" and \"{to}\"");
                let report = Report::error(self.scope.files, says.copied(), message);
                self.scope.reports.push(report);
            }
        }
    }

    /// An interpreter is no program: PHP would print its own file, a shell would run what clients send.
    pub(super) fn check_program(&mut self, level: &Level) {
        let Some(cgi) = level.settings.cgi.as_deref().filter(|_| level.cgi.is_pass_own) else {
            return;
        };
        let Programs::One(CgiPass { program, args, .. }) = &cgi.programs else { return };
        let Some(path) = program.as_literal() else { return };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let Some((_, extension)) =
            INTERPRETERS.iter().find(|(known, _)| is_version_of(name, known))
        else {
            return;
        };
        let is_told = cgi.variables.iter().any(|(name, _)| name == "SCRIPT_FILENAME");
        let has_script = *extension == ".php" && is_told;
        if has_script || !args.is_empty() || cgi.interpreter_of(path).is_some() {
            return;
        }
        let path = path.escape_ascii();
        let message = format!(
            "\"{path}\" is an interpreter: it would run its own file or the body of a request"
        );
        let help = format!("say which files it runs: cgi_extension {extension} {path};");
        let span = level.seen.get("cgi_pass").or_else(|| level.seen.get("cgi")).copied();
        let report = Report::warning(self.scope.files, span, message).help(help);
        self.scope.reports.push(report);
    }
}

/// Interpreters by the name of their file, and what their programs end in.
const INTERPRETERS: [(&[u8], &str); 11] = [
    (b"php-cgi", ".php"),
    (b"php", ".php"),
    (b"python", ".py"),
    (b"perl", ".pl"),
    (b"ruby", ".rb"),
    (b"node", ".js"),
    (b"lua", ".lua"),
    (b"bash", ".sh"),
    (b"dash", ".sh"),
    (b"zsh", ".sh"),
    (b"sh", ".sh"),
];

/// Whether a file of this name is an interpreter of that name, with or without the number of its version.
fn is_version_of(file: &[u8], name: &[u8]) -> bool {
    let version = file.strip_prefix(name);
    version.is_some_and(|rest| rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.'))
}

/// An alias replaces the prefix of the location that has it; a location within sees the rest of its own
/// path added to it.
fn inherit_alias(parent: &Level, level: &mut Level) {
    let (PathMapping::Alias(alias), LocationMatch::Prefix { path: prefix, .. }) =
        (&parent.settings.path_mapping, &parent.matches)
    else {
        return;
    };
    level.settings.path_mapping = match &level.matches {
        LocationMatch::Exact(path) | LocationMatch::Prefix { path, .. } => {
            let rest = path.get(prefix.len()..).unwrap_or_default();
            PathMapping::Alias(Arc::new(with_more(alias, rest)))
        }
        _ => PathMapping::AliasOfParent { alias: Arc::clone(alias), prefix_bytes: prefix.len() },
    };
}

fn with_more(template: &Template, text: &[u8]) -> Template {
    let mut longer = template.clone();
    match longer.parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Literal(last)) => last.extend_from_slice(text),
        _ => longer.parts.push(Part::Literal(text.to_vec())),
    }
    longer
}
