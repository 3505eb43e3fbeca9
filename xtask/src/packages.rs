//! The crates that are meant to be published: each has what a registry shows of it, and needs no crate that is not
//! published. That their archives build is checked by `cargo package` (docs/endpoint.md).

use std::fs;
use std::path::Path;

use crate::Complaints;

/// Those that other programs use, and what they stand on.
const PUBLISHED: [&str; 7] = ["endpoint", "http", "lifecycle", "native", "ring", "service", "sys"];

/// What is wrong with their manifests.
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
        for field in ["\ndescription = \"", "\nkeywords = [", "\ncategories = [", "\nlicense."] {
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
    complaints
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_meant_to_be_published_can_be() {
        let root = crate::workspace_root();
        assert_eq!(super::check(&root), crate::Complaints::new());
    }
}
