//! What the released binary is made of, as CycloneDX 1.5: every crate that is linked into it, with its version, licence
//! and checksum. `cargo tree` says which crates these are, `Cargo.lock` has the checksums.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::lock::{self, Package};
use crate::{Complaints, read};

/// The text of the list.
pub(crate) fn text(root: &Path) -> Result<String, Complaints> {
    let locked = read(root, "Cargo.lock")?;
    let packages = lock::parse(&locked);
    let linked = linked(root)?;
    let version = packages.iter().find(|package| package.name == "sekisho").map(|it| &it.version);
    let version = version.map_or("", String::as_str);
    let components: Vec<String> =
        packages.iter().filter_map(|package| component(package, &linked)).collect();
    Ok(format!(
        "{{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.5\",\n  \"version\": 1,\n  \"metadata\": \
         {{\"component\":{{\"type\":\"application\",\"name\":\"sekisho\",\"version\":\"{version}\",\
         \"licenses\":[{{\"expression\":\"MIT\"}}]}}}},\n  \"components\": [\n{}\n  ]\n}}",
        components.join(",\n")
    ))
}

/// The licences of the crates that are linked into the binary, by name and version.
fn linked(root: &Path) -> Result<BTreeMap<(String, String), String>, Complaints> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .current_dir(root)
        .args(["tree", "--locked", "-p", "sekisho", "-e", "normal,no-proc-macro"])
        .args(["--prefix", "none", "--format", "{p}|{l}"])
        .output();
    match tree {
        Ok(tree) if tree.status.success() => Ok(parse(&String::from_utf8_lossy(&tree.stdout))),
        Ok(tree) => Err(vec![format!("cargo tree: {}", String::from_utf8_lossy(&tree.stderr))]),
        Err(error) => Err(vec![format!("cargo tree: {error}")]),
    }
}

/// Lines such as `regex v1.12.2|MIT OR Apache-2.0`; a crate that was shown before ends in `(*)`.
fn parse(tree: &str) -> BTreeMap<(String, String), String> {
    let line = |line: &str| {
        let (package, licence) = line.split_once('|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        // An old form of cargo's for `OR`.
        let licence = licence.trim_end_matches(" (*)").replace('/', " OR ");
        Some(((name.to_owned(), version.to_owned()), licence))
    };
    tree.lines().filter_map(line).collect()
}

/// The entry of a crate of the registry that is linked.
fn component(package: &Package, linked: &BTreeMap<(String, String), String>) -> Option<String> {
    package.source.as_ref()?;
    let (name, version) = (&package.name, &package.version);
    let licence = linked.get(&(name.clone(), version.clone()))?;
    let hash = package.checksum.as_ref().map_or(String::new(), |checksum| {
        format!(",\"hashes\":[{{\"alg\":\"SHA-256\",\"content\":\"{checksum}\"}}]")
    });
    Some(format!(
        "    {{\"type\":\"library\",\"bom-ref\":\"{name}@{version}\",\"name\":\"{name}\",\"version\":\"{version}\",\
         \"licenses\":[{{\"expression\":\"{licence}\"}}],\"purl\":\"pkg:cargo/{name}@{version}\"{hash}}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_linked_crates_of_the_registry_are_listed_with_their_licences() {
        let linked = parse(
            "sekisho v0.1.0 (/src/crates/server)|MIT\nbytes v1.2.3|MIT\nold v0.1.0|MIT/Apache-2.0 (*)\n\n",
        );
        let package = |name: &str, version: &str, source: Option<&str>| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            source: source.map(str::to_owned),
            checksum: Some("00ff".to_owned()),
        };
        let old = component(&package("old", "0.1.0", Some("registry")), &linked).expect("listed");
        assert!(old.contains("\"expression\":\"MIT OR Apache-2.0\""), "{old}");
        assert!(
            old.contains("\"content\":\"00ff\"") && old.contains("pkg:cargo/old@0.1.0"),
            "{old}"
        );
        assert_eq!(component(&package("sekisho", "0.1.0", None), &linked), None);
        assert_eq!(component(&package("bytes", "9.0.0", Some("registry")), &linked), None);
        assert_eq!(component(&package("proptest", "1.0.0", Some("registry")), &linked), None);
    }
}
