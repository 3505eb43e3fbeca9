//! The Markdown files, and what of them is text and not code.

use std::fs;
use std::path::Path;

/// The documents of a folder and of the folders below: their paths from there, and their text.
pub(crate) fn documents(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    gather(folder, "", &mut found);
    found.sort();
    found
}

fn gather(folder: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let name = format!("{prefix}{}", entry.file_name().display());
        if entry.path().is_dir() {
            gather(&entry.path(), &format!("{name}/"), found);
        } else if entry.path().extension().is_some_and(|extension| extension == "md") {
            found.push((name, fs::read_to_string(entry.path()).expect("text")));
        }
    }
}

/// The lines outside of fenced blocks, with their numbers.
pub(crate) fn prose(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    source.lines().enumerate().filter_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            return None;
        }
        (!is_code).then_some((at + 1, line))
    })
}
