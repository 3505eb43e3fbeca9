//! `storage` blocks, and what cannot be done where one is the root.

use std::sync::Arc;

use sekisho_http::Coding;

use super::Walk;
use crate::directive::Context;
use crate::directive::storage::{Chosen, StorageParts};
use crate::level::Level;
use crate::model::{
    Archives, Branch, Condition, ExtMethods, LocationMatch, Neighbour, Part, Step, Storage,
    Variable,
};
use crate::parse::Node;

impl Walk<'_> {
    /// `storage`
    pub(super) fn storage(&mut self, http: &Level, node: &Node) {
        let word = node.args.first().unwrap_or(&node.name);
        let name = word.shown();
        self.scope.storage = StorageParts::default();
        let mut level = http.child(Context::Storage, LocationMatch::Server);
        self.fill(&mut level, node.body.as_deref().unwrap_or_default());
        let parts = std::mem::take(&mut self.scope.storage);
        if self.scope.storages.iter().any(|(known, _)| *known == name) {
            return self.error(word.span, format!("duplicate \"storage\" \"{name}\""));
        }
        match parts.finish(http, word, &mut self.scope) {
            Ok(chosen) => self.scope.storages.push((name, chosen)),
            Err(fault) => self.fault(node, fault),
        }
    }

    /// What a store cannot do is refused where it is asked for, and not left out in silence.
    pub(super) fn check_storage(&mut self, level: &Level) {
        let settings = &level.settings;
        let Some(storage) = settings.pass.as_deref().and_then(|pass| pass.storage.as_ref()) else {
            return;
        };
        let is_static = |coding| settings.compression.of(coding).neighbour != Neighbour::Off;
        let file_ops = settings.file_ops.as_deref();
        let refused = [
            ("cgi", settings.cgi.is_some()),
            ("random_index", settings.random_index),
            ("if", level.own.steps.iter().any(looks_at_files)),
            ("gzip_static", is_static(Coding::Gzip)),
            ("brotli_static", is_static(Coding::Brotli)),
            ("zstd_static", is_static(Coding::Zstd)),
            ("autoindex_archive", settings.listing.archives != Archives::default()),
            ("autoindex_search", settings.listing.search),
            ("dav_ext_methods", file_ops.is_some_and(|it| changes_more(it.ext_methods))),
        ];
        let name = storage.name.clone();
        for (directive, _) in refused.into_iter().filter(|(_, is_on)| *is_on) {
            let span = level.seen.get(directive).or_else(|| level.seen.get("root")).copied();
            let message = format!(
                "\"{directive}\" is not supported with a storage root (\"root storage:{name}\")"
            );
            let mut report = crate::report::Report::error(self.scope.files, span, message);
            if directive == "dav_ext_methods" {
                report.help = Some("PROPFIND and OPTIONS are".to_owned());
            }
            self.scope.reports.push(report);
        }
    }
}

/// Those that are object storage.
pub(super) fn objects(all: Vec<(String, Chosen)>) -> Vec<Arc<Storage>> {
    let object = |(_, chosen): (String, Chosen)| match chosen {
        Chosen::Objects(storage) => Some(storage),
        Chosen::Folder(_) => None,
    };
    all.into_iter().filter_map(object).collect()
}

/// A store keeps neither the properties of clients nor locks.
const fn changes_more(methods: ExtMethods) -> bool {
    methods.proppatch || methods.lock || methods.unlock
}

/// Whether a step asks for a file below the root, which only a store could say.
fn looks_at_files(step: &Step) -> bool {
    let below = [Variable::RequestFilename, Variable::DocumentRoot, Variable::RealpathRoot];
    let is_below =
        |part: &Part| matches!(part, Part::Variable(variable) if below.contains(variable));
    let Step::If(Branch { condition: Condition::File { path, .. }, .. }) = step else {
        return false;
    };
    path.parts.iter().any(is_below)
}
