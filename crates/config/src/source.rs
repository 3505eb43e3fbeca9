//! Where configuration text comes from. The shell implements [`Source`] over real files; [`Memory`]
//! holds them in memory. Wildcards are matched here, over directory listings.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// More matches of one pattern than this are an error.
pub const MATCHES_MAX: usize = 10_000;

/// Files, as far as configuration needs them. Reasons are short texts: "no such file", without the path.
pub trait Source {
    /// The bytes of a file, or the reason why it cannot be read.
    fn read(&self, path: &Path) -> Result<Vec<u8>, String>;
    /// The names in a directory, in any order; nothing where there is no such directory.
    fn list(&self, path: &Path) -> Vec<OsString>;
    /// Why the process cannot become this user; nothing where it can, or does not have to.
    fn cannot_become(&self, _user: &str) -> Option<String> {
        None
    }
    /// The same for a group.
    fn cannot_join(&self, _group: &str) -> Option<String> {
        None
    }
    /// The addresses of a host, for servers that requests are passed to.
    fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        let address = host.parse().map(|address: IpAddr| vec![SocketAddr::new(address, port)]);
        address.map_err(|_| "no includes here".to_owned())
    }
    /// Whether a server with this `user` would be root; `None` where none is named.
    fn would_be_root(&self, _user: Option<&str>) -> bool {
        false
    }
}

/// Files in memory, by their whole path.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Path to content.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Memory {
    /// One file.
    pub fn of(path: impl Into<PathBuf>, text: impl Into<Vec<u8>>) -> Self {
        Self { files: BTreeMap::from([(path.into(), text.into())]) }
    }
}

impl Source for Memory {
    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        self.files.get(path).cloned().ok_or_else(|| "no such file".to_owned())
    }

    fn list(&self, path: &Path) -> Vec<OsString> {
        let mut names: Vec<OsString> = self
            .files
            .keys()
            .filter_map(|file| file.strip_prefix(path).ok()?.components().next())
            .map(|name| name.as_os_str().to_owned())
            .collect();
        names.dedup();
        names
    }
}

/// Whether nginx would take this path for a pattern.
pub fn is_pattern(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// Every path that matches, sorted; `*`, `?` and `[…]` work in every component, and hidden names are
/// matched only by a component that begins with a dot, as glob(3) has it.
pub fn glob(pattern: &Path, source: &dyn Source) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![PathBuf::new()];
    // A literal component behind a wildcard must be looked for; before one, it is only walked through.
    let mut is_checked = false;
    for component in pattern.components() {
        let Component::Normal(name) = component else {
            for path in &mut found {
                path.push(component);
            }
            continue;
        };
        let is_wild = is_pattern(Path::new(name));
        is_checked |= is_wild;
        if !is_checked {
            for path in &mut found {
                path.push(name);
            }
            continue;
        }
        let mut next = Vec::new();
        for folder in &found {
            let names = source.list(folder);
            let matching = names.into_iter().filter(|entry| {
                if is_wild { matches(name.as_bytes(), entry.as_bytes()) } else { entry == name }
            });
            for entry in matching {
                if next.len() == MATCHES_MAX {
                    return Err(format!("more than {MATCHES_MAX} files match"));
                }
                next.push(folder.join(entry));
            }
        }
        found = next;
    }
    found.sort();
    Ok(found)
}

/// Whether a name matches one component of a pattern. Linear but for `*`, which goes back to the last
/// one only: at worst the product of the two lengths, and both are file names.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(&byte) = name.get(n) {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        if let Some(step) = one_matches(pattern.get(p..).unwrap_or_default(), byte) {
            p += step;
            n += 1;
            continue;
        }
        let Some((after, taken)) = star else { return false };
        star = Some((after, taken + 1));
        p = after;
        n = taken + 1;
    }
    pattern.get(p..).unwrap_or_default().iter().all(|&byte| byte == b'*')
}

/// How many bytes of the pattern match this one byte.
fn one_matches(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', next, ..] => (*next == byte).then_some(2),
        [b'[', rest @ ..] => match set_matches(rest, byte) {
            Some((is_in, len)) => is_in.then_some(len + 1),
            // A bracket that is never closed means itself.
            None => (byte == b'[').then_some(1),
        },
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

/// Whether the byte is in the set, and how long the set is with its closing bracket.
fn set_matches(set: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(set.first(), Some(b'!' | b'^'));
    let begin = usize::from(negated);
    let mut at = begin;
    let mut is_in = false;
    loop {
        let &low = set.get(at)?;
        if low == b']' && at > begin {
            return Some((is_in != negated, at + 1));
        }
        match (set.get(at + 1), set.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                is_in |= (low..=high).contains(&byte);
                at += 3;
            }
            _ => {
                is_in |= low == byte;
                at += 1;
            }
        }
    }
}

/// A path from the bytes of a word.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_a_shell() {
        let table = [
            ("*", "a", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", false),
            ("*.conf", "a.conf.bak", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?", "a", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]a]", "]", true),
            ("[a", "[a", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("**", "abc", true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn wildcards_work_in_every_component_and_the_result_is_sorted() {
        let mut memory = Memory::default();
        for path in ["/e/b/x.conf", "/e/a/x.conf", "/e/a/y.conf", "/e/.h/x.conf", "/e/z.conf"] {
            memory.files.insert(PathBuf::from(path), Vec::new());
        }
        let found = |pattern: &str| glob(Path::new(pattern), &memory).unwrap();
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(found("/e/*/x.conf"), paths(&["/e/a/x.conf", "/e/b/x.conf"]));
        assert_eq!(found("/e/[ab]/?.conf"), paths(&["/e/a/x.conf", "/e/a/y.conf", "/e/b/x.conf"]));
        assert_eq!(found("/e/*.conf"), paths(&["/e/z.conf"]));
        assert_eq!(found("/none/*"), paths(&[]));
        assert_eq!(found("/e/*/none"), paths(&[]));
    }

    #[test]
    fn a_pattern_with_many_stars_ends() {
        assert!(!matches("*a".repeat(60).as_bytes(), "a".repeat(59).as_bytes()));
        assert!(!matches(format!("{}b", "*a".repeat(100)).as_bytes(), "a".repeat(255).as_bytes()));
    }
}
