//! What `Cargo.lock` says: every crate comes from the one registry, and none comes twice in versions
//! that do not fit together, unless a reason stands here.

use crate::Complaints;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates that come in more than one major version, and why that is borne.
const TWICE: [(&str, &str); 7] = [
    ("bit-vec", "the new one belongs to an optional part of rcgen that is never built"),
    ("untrusted", "the old one belongs to a part of aws-lc-rs that instant-acme asks for"),
    ("base64", "the old one belongs to instant-acme"),
    ("getrandom", "the old one belongs to ring, an optional part of rustls that is never built"),
    ("windows-sys", "the same, and nothing is built for Windows"),
    ("bitflags", "the old one belongs to an optional part of jiff that is never built"),
    ("syn", "procedural macros move to the new one by and by; it runs at build time only"),
];

/// One locked crate.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Where it comes from; a crate of the workspace has no source.
    pub(crate) source: Option<String>,
    /// The checksum of what comes from there.
    pub(crate) checksum: Option<String>,
}

/// Reads the lock file's packages. Cargo writes it, so its lines are regular.
pub(crate) fn parse(text: &str) -> Vec<Package> {
    text.split("[[package]]").skip(1).filter_map(parse_package).collect()
}

fn parse_package(block: &str) -> Option<Package> {
    let value = |key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
        line.strip_suffix('"').map(str::to_owned)
    };
    let (name, version) = (value("name")?, value("version")?);
    Some(Package { name, version, source: value("source"), checksum: value("checksum") })
}

/// Complains about foreign sources and needless doubles. `members` are the workspace's own crates.
pub(crate) fn check(packages: &[Package], members: &[String]) -> Complaints {
    let mut complaints = Complaints::new();
    for package in packages {
        match package.source.as_deref() {
            Some(REGISTRY) => {}
            Some(other) => complaints.push(format!("{} comes from {other}", package.name)),
            None if members.contains(&package.name) => {}
            None => complaints.push(format!("{} comes from a folder outside", package.name)),
        }
    }
    for (at, package) in packages.iter().enumerate() {
        let rival = packages[..at].iter().find(|other| {
            other.name == package.name && major(&other.version) != major(&package.version)
        });
        let is_borne = TWICE.iter().any(|(name, _)| *name == package.name);
        if let (Some(rival), false) = (rival, is_borne) {
            let (name, old, new) = (&package.name, &rival.version, &package.version);
            complaints.push(format!("{name} comes twice: {old} and {new}"));
        }
    }
    complaints
}

/// The part of a version that must be the same for two versions to fit: `1` of 1.2.3, `0.2` of 0.2.3.
fn major(version: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in version.split('.') {
        parts.push(part);
        if part != "0" {
            break;
        }
    }
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, source: Option<&str>) -> Package {
        let (source, checksum) = (source.map(Into::into), None);
        Package { name: name.into(), version: version.into(), source, checksum }
    }

    #[test]
    fn a_lock_file_is_read() {
        let text = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.2.3\"\nsource = \"s\"\n\
                    checksum = \"c\"\n\n[[package]]\nname = \"b\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
        let first = Package { checksum: Some("c".into()), ..package("a", "1.2.3", Some("s")) };
        assert_eq!(parse(text), [first, package("b", "0.1.0", None)]);
    }

    #[test]
    fn versions_fit_by_their_first_number_that_is_not_zero() {
        for (version, expected) in [("1.2.3", "1"), ("0.2.3", "0.2"), ("0.0.3", "0.0.3")] {
            assert_eq!(major(version), expected);
        }
    }

    #[test]
    fn foreign_sources_and_doubles_are_complained_about() {
        let registry = Some(REGISTRY);
        let packages = [
            package("mine", "0.1.0", None),
            package("stranger", "0.1.0", None),
            package("git", "1.0.0", Some("git+https://example.org")),
            package("fits", "1.0.0", registry),
            package("fits", "1.1.0", registry),
            package("twice", "0.1.0", registry),
            package("twice", "0.2.0", registry),
        ];
        let complaints = check(&packages, &["mine".to_owned()]);
        assert_eq!(
            complaints,
            [
                "stranger comes from a folder outside",
                "git comes from git+https://example.org",
                "twice comes twice: 0.1.0 and 0.2.0"
            ]
        );
    }
}
