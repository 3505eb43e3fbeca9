//! Whether files that clients store are run as programs elsewhere: by another path (`alias`), by another server, or
//! because the program of a `cgi_pass` lies among them. Within one server and one root every upload is
//! checked for that; across them that is not possible, so it is reported by `-t`, at a start and at a reload
//! (V26).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sekisho_config::{
    Config, Location, LocationMatch, Outcome, PathMapping, Programs, Report, ServerId, Template,
};

/// So many are reported; the others are likely the same.
const TOLD_MAX: usize = 10;
const HELP: &str = "separate the folders of uploads and of programs";

/// By which rule paths become files.
#[derive(Clone, Copy, Debug)]
struct Mapping<'a> {
    server: ServerId,
    place: &'a PathMapping,
}

impl<'a> Mapping<'a> {
    fn of(location: &'a Location) -> Self {
        Self { server: location.server, place: &location.settings.path_mapping }
    }

    /// Whether the same path is the same file by both.
    fn is_same(self, other: Self) -> bool {
        use PathMapping::{Alias, AliasOfParent, Root};
        self.server == other.server
            && match (self.place, other.place) {
                (Root(one), Root(other)) => one == other,
                // An alias replaces the prefix of its own location: it equals only the same directive.
                (
                    Alias(one) | AliasOfParent { alias: one, .. },
                    Alias(other) | AliasOfParent { alias: other, .. },
                ) => Arc::ptr_eq(one, other),
                _ => false,
            }
    }
}

/// A folder, or a file, and by which rule clients reach it.
#[derive(Debug)]
struct Area<'a> {
    path: PathBuf,
    mapping: Mapping<'a>,
    /// Whether it is a program that is run wherever it lies.
    is_program: bool,
}

/// What is written here and run there.
pub(crate) fn warnings(config: &Config, outcome: &Outcome) -> Vec<Report> {
    let locations = &config.http.locations;
    let written: Vec<Area<'_>> = locations.iter().flat_map(written).collect();
    if written.is_empty() {
        return Vec::new();
    }
    let run: Vec<Area<'_>> = locations.iter().flat_map(run).collect();
    let mut told: Vec<(&Path, &Path)> = Vec::new();
    for store in &written {
        for programs in &run {
            let pair = (store.path.as_path(), programs.path.as_path());
            if is_unguarded(store, programs) && !told.contains(&pair) {
                told.push(pair);
            }
        }
    }
    let report = |(store, programs): (&Path, &Path)| {
        let message = format!(
            "clients may store files in \"{}\", and files of \"{}\" are run: clients can run programs",
            store.display(),
            programs.display(),
        );
        let directives = ["root", "alias", "upload_store", "cgi_pass"];
        outcome.warning_about(&directives, store, message).help(HELP.to_owned())
    };
    told.into_iter().take(TOLD_MAX).map(report).collect()
}

/// Whether what is stored in one may be run by the other, and no check of an upload sees it.
fn is_unguarded(store: &Area<'_>, programs: &Area<'_>) -> bool {
    if programs.is_program {
        return programs.path.starts_with(&store.path);
    }
    // By the same rule, the same file has the same path, which is looked at when it is stored.
    let is_checked = store.mapping.is_same(programs.mapping);
    let is_shared =
        programs.path.starts_with(&store.path) || store.path.starts_with(&programs.path);
    is_shared && !is_checked
}

/// Where clients of a location may store files.
fn written(location: &Location) -> Vec<Area<'_>> {
    let Some(file_ops) = location.settings.file_ops.as_deref() else { return Vec::new() };
    let mapping = Mapping::of(location);
    let store = file_ops.store.as_ref().and_then(ground);
    let is_below = file_ops.changes_own_folder() || (file_ops.store.is_some() && store.is_none());
    let own = folder_of(location).filter(|_| is_below);
    [own, store]
        .into_iter()
        .flatten()
        .map(|path| Area { path: resolved(&path), mapping, is_program: false })
        .collect()
}

/// What a location runs.
fn run(location: &Location) -> Vec<Area<'_>> {
    let Some(cgi) = location.settings.cgi.as_deref() else { return Vec::new() };
    let mapping = Mapping::of(location);
    let mut all: Vec<Area<'_>> = Vec::new();
    let mut program = |bytes: &[u8]| {
        let path = resolved(Path::new(OsStr::from_bytes(bytes)));
        all.push(Area { path, mapping, is_program: true });
    };
    let listed = cgi.extensions.iter().filter_map(|listed| listed.interpreter.as_ref());
    for interpreter in listed.chain(&cgi.interpreter) {
        if let Some(path) = interpreter.program.as_literal() {
            program(path);
        }
    }
    match &cgi.programs {
        Programs::One(pass) => {
            if let Some(path) = pass.program.as_literal() {
                program(path);
            }
        }
        Programs::All | Programs::ByExtension => {
            let path = folder_of(location).map(|path| resolved(&path));
            all.extend(path.map(|path| Area { path, mapping, is_program: false }));
        }
    }
    all
}

/// The folder that the files of a location lie in, or one around it.
fn folder_of(location: &Location) -> Option<PathBuf> {
    match (&location.settings.path_mapping, &location.matches) {
        (
            PathMapping::Root(root),
            LocationMatch::Prefix { path: below, .. } | LocationMatch::Exact(below),
        ) => {
            let below = below.strip_prefix(b"/").unwrap_or(below);
            Some(ground(root)?.join(OsStr::from_bytes(below)))
        }
        (
            PathMapping::Root(place)
            | PathMapping::Alias(place)
            | PathMapping::AliasOfParent { alias: place, .. },
            _,
        ) => ground(place),
    }
}

/// What a template says before its first variable, as a folder.
fn ground(template: &Template) -> Option<PathBuf> {
    if let Some(path) = template.as_literal() {
        return Some(PathBuf::from(OsStr::from_bytes(path)));
    }
    let sekisho_config::Part::Literal(text) = template.parts.first()? else { return None };
    let end = text.iter().rposition(|byte| *byte == b'/')?;
    (end > 0).then(|| PathBuf::from(OsStr::from_bytes(&text[..=end])))
}

/// As the kernel sees it, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let mut behind = Vec::new();
    let mut at = path;
    loop {
        if let Ok(real) = fs::canonicalize(at) {
            return behind.iter().rev().fold(real, |all, name| all.join(name));
        }
        match (at.file_name(), at.parent()) {
            (Some(name), Some(parent)) => {
                behind.push(name.to_owned());
                at = parent;
            }
            _ => return path.to_owned(),
        }
    }
}
