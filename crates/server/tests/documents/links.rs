//! Links between the documents: files that are there, and headings that are there, named as GitHub and mdBook name
//! them.

use std::fs;
use std::path::Path;

use crate::text;

/// The links that lead nowhere, each with its place.
pub(crate) fn dead(repository: &Path) -> Vec<String> {
    let docs = text::documents(&repository.join("docs"));
    let mut all: Vec<_> =
        docs.into_iter().map(|(name, text)| (format!("docs/{name}"), text)).collect();
    for name in ["README.md", "CHANGELOG.md"] {
        all.push((name.to_owned(), fs::read_to_string(repository.join(name)).expect(name)));
    }
    let mut dead = Vec::new();
    for (name, source) in &all {
        let folder = repository.join(name);
        let folder = folder.parent().expect("a folder");
        for (line, text) in text::prose(source) {
            for link in links(text) {
                if link.contains("://") || link.starts_with("mailto:") {
                    continue;
                }
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target =
                    if path.is_empty() { repository.join(name) } else { folder.join(path) };
                if !target.exists() {
                    dead.push(format!("{name}:{line}: {link}: no such file"));
                    continue;
                }
                // The site has the folder `docs` and nothing else.
                let target = target.canonicalize().expect("there");
                if name.starts_with("docs/") && !target.starts_with(repository.join("docs")) {
                    dead.push(format!("{name}:{line}: {link}: not a part of the site"));
                }
                let headings = || headings(&fs::read_to_string(&target).unwrap_or_default());
                if !anchor.is_empty() && !headings().iter().any(|heading| heading == anchor) {
                    dead.push(format!("{name}:{line}: {link}: no such heading"));
                }
            }
        }
    }
    dead
}

/// The targets of the links and pictures of a line, without those in code.
fn links(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let outside = line.split('`').step_by(2);
    for part in outside {
        for after in part.split("](").skip(1) {
            found.extend(after.split([')', ' ']).next());
        }
    }
    found
}

/// The names of the headings of a page.
fn headings(source: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (_, line) in text::prose(source) {
        let Some(heading) = line.strip_prefix('#') else { continue };
        let heading = heading.trim_start_matches('#').trim();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let count = names.iter().filter(|known| **known == name).count();
        names.push(if count == 0 { name } else { format!("{name}-{count}") });
    }
    names
}

#[test]
fn links_and_headings_are_found() {
    assert_eq!(links("a [b](c.md#d) `[no](no)` [`e`](f.md \"title\")"), ["c.md#d", "f.md"]);
    assert_eq!(headings("# A `b` c's\n## A\n```\n# no\n```\n# A"), ["a-b-cs", "a", "a-1"]);
}
