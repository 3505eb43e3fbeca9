//! nginx's configuration language into one finished, immutable [`Config`]. Pure: files are read through
//! a [`Source`] that the shell provides; no file, socket or clock is touched here.
#![forbid(unsafe_code)]

pub mod directive;
pub mod level;
pub mod lex;
pub mod listen;
pub mod migration;
pub mod model;
pub mod parse;
pub mod pattern;
pub mod reference;
pub mod report;
pub mod source;
pub mod template;
pub mod value;

mod body_first;
mod charset;
mod cipher;
mod expression;
mod filters;
mod guards;
#[cfg(test)]
mod inheritance;
mod listed;
mod literal;
mod look_ahead;
mod lookup;
mod machine;
mod map;
mod names;
mod needed;
mod pattern_list;
mod pcre;
mod positions;
mod resolve;
mod texts;
mod types;
mod upstreams;

use std::path::{Path, PathBuf};

pub use directive::proxy::split_url;
pub use expression::{Expression, Matched};
pub use machine::DEFAULT_USER;
pub use model::*;
pub use pattern_list::PatternList;
pub use report::{Report, Severity};
pub use source::{Memory, Source};

use parse::{Parser, Tree};
use report::Reports;

/// What the command line and the machine say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// `-p`: where relative paths begin.
    pub prefix: PathBuf,
    /// `-g`: directives that are read before the file.
    pub globals: Option<String>,
    /// What `server_name $hostname` means.
    pub hostname: String,
    /// Defaults other than the table's: a directive and its arguments, such as `error_log` and `stderr`
    /// for `-e stderr`.
    pub defaults: Vec<(String, Vec<String>)>,
    /// The services that the program has for `service`.
    pub services: Vec<String>,
}

impl Options {
    /// Nothing but a prefix.
    pub fn new(prefix: impl Into<PathBuf>) -> Self {
        Self {
            prefix: prefix.into(),
            globals: None,
            hostname: String::new(),
            defaults: Vec::new(),
            services: vec!["echo".to_owned()],
        }
    }

    /// The same with another default for a directive.
    #[must_use]
    pub fn with_default(mut self, name: &str, args: &[&str]) -> Self {
        self.defaults.push((name.to_owned(), args.iter().map(|arg| (*arg).to_owned()).collect()));
        self
    }
}

/// What came of loading.
#[derive(Debug)]
pub struct Outcome {
    /// The configuration, unless there was an error.
    pub config: Option<Config>,
    /// Errors and warnings.
    pub reports: Vec<Report>,
    /// Every file that was read, once, in the order of reading: for `-T`.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// What was read, to find the place of something.
    pub tree: Tree,
    /// A configuration that was refused, without what is wrong in it: for what the machine has against it.
    refused: Option<Config>,
    /// Whether the text is right in itself.
    pub is_right: bool,
}

impl Outcome {
    /// Whether anything was wrong.
    pub fn has_errors(&self) -> bool {
        self.config.is_none()
    }

    /// The configuration, also one that is refused: to find what else is wrong with it.
    pub fn inspected(&self) -> Option<&Config> {
        self.config.as_ref().or(self.refused.as_ref())
    }

    /// The configuration cannot be used.
    fn refuse(&mut self) {
        self.refused = self.config.take().or(self.refused.take());
    }
}

/// Reads the file and all it includes, and resolves it. A relative path begins at the prefix, as nginx's
/// `-c` does; relative includes begin where the file is.
pub fn load(main_file: &Path, options: &Options, source: &dyn Source) -> Outcome {
    let main_file = options.prefix.join(main_file);
    let folder = main_file.parent().unwrap_or(Path::new("/"));
    let mut reports = Reports::default();
    let mut parser = Parser::new(folder, source, &mut reports);
    if let Some(globals) = &options.globals {
        parser.text(None, globals.as_bytes());
    }
    parser.main_file(&main_file);
    let tree = parser.finish();
    let config = resolve::resolve(&tree, options, &mut reports);
    let is_right = !reports.has_errors();
    let (mut config, mut is_fine) = (config, is_right);
    if let Some(config) = &mut config {
        is_fine &= machine::check(config, &tree, source, &mut reports)
            & machine::find_upstreams(config, &tree, source, &mut reports)
            & machine::find_proxies(config, &tree, source, &mut reports)
            & machine::find_resolvers(config, &tree, source, &mut reports);
    }
    let mut seen = std::collections::HashSet::new();
    let files = tree.files.iter().filter_map(|file| {
        let path = file.path.as_ref().filter(|path| seen.insert((*path).clone()))?;
        Some((path.clone(), file.text.to_vec()))
    });
    let files = files.collect();
    let mut outcome =
        Outcome { config, files, reports: reports.finish(), tree, refused: None, is_right };
    if !is_fine {
        outcome.refuse();
    }
    outcome
}
