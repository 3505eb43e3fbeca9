//! What a release is made of, from `Cargo.lock`, as CycloneDX 1.5: every crate with its version and checksum.

use std::fmt::Write as _;
use std::path::Path;

use crate::{Complaints, lock, read};

/// The text of the list.
pub(crate) fn text(root: &Path) -> Result<String, Complaints> {
    let locked = read(root, "Cargo.lock")?;
    let mut components = String::new();
    for package in lock::parse(&locked).iter().filter(|package| package.source.is_some()) {
        let (name, version) = (&package.name, &package.version);
        if !components.is_empty() {
            components.push_str(",\n");
        }
        let hash = package.checksum.as_ref().map_or(String::new(), |checksum| {
            format!(",\"hashes\":[{{\"alg\":\"SHA-256\",\"content\":\"{checksum}\"}}]")
        });
        _ = write!(
            components,
            "    {{\"type\":\"library\",\"name\":\"{name}\",\"version\":\"{version}\",\
             \"purl\":\"pkg:cargo/{name}@{version}\"{hash}}}"
        );
    }
    Ok(format!(
        "{{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.5\",\n  \"version\": 1,\n  \"metadata\": \
         {{\"component\":{{\"type\":\"application\",\"name\":\"sekisho\"}}}},\n  \"components\": [\n{components}\n  ]\n}}"
    ))
}
