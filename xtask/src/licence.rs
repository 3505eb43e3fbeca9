//! Licences of the crates we build on, as their own manifests in cargo's local store say. A crate that
//! was never fetched (for another system, say) has no manifest there and is not judged.

use std::path::PathBuf;
use std::{env, fs};

use crate::Complaints;
use crate::lock::Package;

/// What may be linked into a program under MIT or Apache-2.0. The same list is in `deny.toml`.
const ALLOWED: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Complains about crates under other licences.
pub(crate) fn check(packages: &[Package]) -> Complaints {
    let stores = stores();
    let mut complaints = Complaints::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let folder = format!("{}-{}", package.name, package.version);
        let manifest = stores
            .iter()
            .find_map(|store| fs::read_to_string(store.join(&folder).join("Cargo.toml")).ok());
        let Some(manifest) = manifest else { continue };
        match licence_of(&manifest) {
            Some(licence) if is_allowed(licence) => {}
            Some(licence) => complaints.push(format!("{folder}: licence {licence}")),
            None => complaints.push(format!("{folder}: no licence")),
        }
    }
    complaints
}

/// Where cargo keeps what it fetched.
fn stores() -> Vec<PathBuf> {
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let Some(home) = home else { return Vec::new() };
    let entries = fs::read_dir(home.join("registry/src"));
    entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn licence_of(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("license = \""))?;
    line.strip_suffix('"')
}

/// An SPDX expression holds when one of its alternatives does, of which every part must be allowed.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_ascii_whitespace().collect();
    let mut at = 0;
    let holds = alternatives(&words, &mut at);
    holds && at == words.len()
}

fn alternatives(words: &[&str], at: &mut usize) -> bool {
    let mut holds = parts(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        holds |= parts(words, at);
    }
    holds
}

fn parts(words: &[&str], at: &mut usize) -> bool {
    let mut holds = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        holds &= one(words, at);
    }
    holds
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let holds = alternatives(words, at);
        *at += 1;
        return holds;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        return ALLOWED.contains(&format!("{word} WITH {exception}").as_str());
    }
    ALLOWED.contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated() {
        for (expression, is) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-2.0", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
            ("Apache-2.0 WITH other-exception", false),
            ("", false),
            ("MIT GPL-3.0", false),
        ] {
            assert_eq!(is_allowed(expression), is, "{expression:?}");
        }
    }

    #[test]
    fn a_licence_is_read_from_a_manifest() {
        assert_eq!(licence_of("[package]\nname = \"a\"\nlicense = \"MIT\"\n"), Some("MIT"));
        assert_eq!(licence_of("[package]\nlicense-file = \"L\"\n"), None);
    }
}
