//! The crates that are meant to be published: each has what a registry shows of it, needs no crate that is not
//! published, and its documentation cites no rule of the specification, which its readers do not have. That their archives
//! build is checked by `packaging/crates`.

use std::fs;
use std::path::Path;

use crate::source::{self, Source};
use crate::{Complaints, citation};

/// Those that other programs use, and what they stand on.
const PUBLISHED: [&str; 7] = ["endpoint", "http", "lifecycle", "native", "ring", "service", "sys"];

/// What rules are named by.
const LETTERS: &str = "CEFHLOSTUVX";

/// What is wrong with their manifests, files and documentation.
pub(crate) fn check(root: &Path) -> Complaints {
    let mut complaints = Complaints::new();
    let mut published = Vec::new();
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    for entry in crates {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        if !manifest.contains("\npublish = true\n") {
            continue;
        }
        let fields = ["\ndescription = \"", "\nkeywords = [", "\ncategories = [", "\nlicense."];
        for field in fields.into_iter().chain(["\nreadme = \"README.md\"", "\ndocumentation = \""])
        {
            if !manifest.contains(field) {
                complaints
                    .push(format!("crates/{name}/Cargo.toml has no{}", field.replace('\n', " ")));
            }
        }
        for word in ["Pure:", "Shell:"] {
            if manifest.contains(word) {
                complaints.push(format!("crates/{name}/Cargo.toml: {word} means nothing outside"));
            }
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        if read(&entry.path().join("README.md")).is_empty() {
            complaints.push(format!("crates/{name}/README.md is missing"));
        }
        if read(&entry.path().join("LICENSE")) != read(&root.join("LICENSE")) {
            complaints.push(format!("crates/{name}/LICENSE is not that of the project"));
        }
        let needed = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let needed = needed.split("\n[").next().unwrap_or_default();
        for line in needed.lines() {
            let crate_name = line.split(['.', ' ']).next().unwrap_or_default();
            let own = crate_name.strip_prefix("sekisho-");
            if own.is_some_and(|own| !PUBLISHED.contains(&own)) {
                complaints
                    .push(format!("crates/{name} needs {crate_name}, which is not published"));
            }
        }
        published.push(name);
    }
    published.sort_unstable();
    if published != PUBLISHED {
        complaints.push(format!("published are {published:?}, and meant are {PUBLISHED:?}"));
    }
    let script = fs::read_to_string(root.join("packaging/crates")).unwrap_or_default();
    for name in PUBLISHED.iter().filter(|name| !script.contains(&format!("sekisho-{name}"))) {
        complaints.push(format!("packaging/crates does not name sekisho-{name}"));
    }
    for source in source::read_all(root) {
        let parts = source.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        if parts.is_some_and(|(name, _)| PUBLISHED.contains(&name)) {
            complaints.extend(rules_in_documentation(&source));
        }
    }
    complaints
}

/// Rules that documentation cites, outside of tests.
fn rules_in_documentation(source: &Source) -> Complaints {
    let mut complaints = Complaints::new();
    let lines = source.text.lines().enumerate().filter(|(at, _)| !source.is_test[*at]);
    for (at, line) in lines {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            continue;
        };
        let words = text.split([' ', '(', ')', ',', '.', ':', ';', '–']);
        for word in words.filter(|word| citation::is_id(word, LETTERS)) {
            let (path, line) = (&source.path, at + 1);
            complaints.push(format!("{path}:{line}: {word} means nothing outside"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_cites_no_rule_and_tests_may() {
        let text = "//! A ring (E7).\n\n/// UTF-8 in `%C3%AF`, RFC 8187.\n// E7\nfn a() {}\n#[cfg(test)]\nmod tests {\n    /// E7\n}\n";
        let source = Source::new("crates/ring/src/lib.rs".to_owned(), text.to_owned());
        let found = rules_in_documentation(&source);
        assert_eq!(found, ["crates/ring/src/lib.rs:1: E7 means nothing outside"]);
    }

    #[test]
    fn what_is_meant_to_be_published_can_be() {
        let root = crate::workspace_root();
        assert_eq!(check(&root), Complaints::new());
    }
}
