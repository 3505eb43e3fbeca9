//! The wall: pure rooms depend on pure rooms and a short list of crates, and touch no socket, file,
//! thread, process or clock. And what every crate must keep: no unsafe code but in `sys`, one source,
//! known licences.

use std::path::Path;

use crate::source::{self, Source, is_name_byte};
use crate::{Complaints, licence, lock, read, shape};

/// The rooms behind the wall, by the names of their folders.
const PURE: [&str; 16] = [
    "lifecycle",
    "http",
    "http1",
    "http2",
    "http3",
    "native",
    "nats",
    "service",
    "ring",
    "config",
    "route",
    "gateway",
    "upstream",
    "storage",
    "filter",
    "webdav",
];
/// A room that drives the shell and must not reach out by itself: what happens in it follows from a seed.
const SEEDED: &str = "simulation";
/// What only that room may switch on.
const SEEDED_FEATURE: &str = "features = [\"simulation\"]";
/// What they may depend on, beside each other.
const PURE_MAY_USE: [&str; 21] = [
    "aho-corasick",
    "annotate-snippets",
    "base64",
    "bytes",
    "fancy-regex",
    "crc32fast",
    "foldhash",
    "hashbrown",
    "hmac",
    "httparse",
    "httpdate",
    "itoa",
    "md-5",
    "memchr",
    "prost",
    "quick-xml",
    "regex-automata",
    "regex-syntax",
    "serde_json",
    "sha2",
    "subtle",
];
/// The one room where unsafe code may stand.
const UNSAFE: &str = "crates/sys";
/// Modules of the standard library that reach out of a pure room.
const OUTSIDE_MODULES: [&str; 3] = ["fs", "thread", "process"];
/// Names that do; addresses, which are mere numbers, are not among them.
const OUTSIDE_NAMES: [&str; 7] = [
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "tokio",
];
/// Calls that ask the machine for the time. `SystemTime` itself, a mere number as a type, is not one.
const CLOCKS: [&str; 3] = ["Instant::now", "SystemTime::now", ".elapsed()"];
const FORBID: &str = "#![forbid(unsafe_code)]";

/// Checks all of it.
pub(crate) fn check(root: &Path) -> Complaints {
    let mut complaints = Complaints::new();
    let mut members = Vec::new();
    for folder in member_folders(root) {
        match read(root, &format!("{folder}/Cargo.toml")) {
            Err(more) => complaints.extend(more),
            Ok(manifest) => {
                members.extend(package_name(&manifest));
                complaints.extend(check_manifest(&folder, &manifest));
            }
        }
        complaints.extend(check_forbids_unsafe(root, &folder));
    }
    for source in source::read_all(root) {
        if is_pure(&source.path) || is_seeded(&source.path) {
            complaints.extend(check_source(&source));
        }
    }
    complaints.extend(shape::check(root));
    match read(root, "Cargo.lock") {
        Err(more) => complaints.extend(more),
        Ok(text) => {
            let packages = lock::parse(&text);
            complaints.extend(lock::check(&packages, &members));
            complaints.extend(licence::check(&packages));
        }
    }
    complaints
}

fn member_folders(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("crates"));
    let mut folders: Vec<String> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| format!("crates/{}", entry.file_name().to_string_lossy()))
        .collect();
    folders.push("xtask".to_owned());
    folders.sort();
    folders
}

fn is_pure(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates")
        && parts.next().is_some_and(|room| PURE.contains(&room))
        && parts.next() == Some("src")
}

fn is_seeded(path: &str) -> bool {
    path.strip_prefix("crates/").is_some_and(|path| path.starts_with(&format!("{SEEDED}/src/")))
}

fn package_name(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?;
    line.strip_suffix('"').map(str::to_owned)
}

fn check_manifest(folder: &str, manifest: &str) -> Complaints {
    let mut complaints = Complaints::new();
    if manifest.lines().any(|line| line.contains("package = \"")) {
        complaints.push(format!("{folder}: a renamed dependency hides what it is"));
    }
    let room = folder.strip_prefix("crates/");
    if room != Some(SEEDED) && manifest.contains(SEEDED_FEATURE) {
        complaints.push(format!("{folder}: only crates/{SEEDED} may switch the simulation on"));
    }
    let is_pure = room.is_some_and(|room| PURE.contains(&room));
    if is_pure {
        let own = PURE.map(|room| format!("sekisho-{room}"));
        for name in dependencies(manifest) {
            if !PURE_MAY_USE.contains(&name.as_str()) && !own.contains(&name) {
                complaints.push(format!("{folder}: a pure room must not depend on {name}"));
            }
        }
        if manifest.lines().any(|line| line.trim() == "[features]") {
            complaints.push(format!("{folder}: a pure room has no features"));
        }
    }
    complaints
}

/// The names in `[dependencies]`, `[build-dependencies]` and their forms for single targets; what only
/// tests use is not among them.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let last = |name: &str| section == name || section.ends_with(&format!(".{name}"));
            is_inside = last("dependencies") || last("build-dependencies");
            // `[dependencies.name]` is a section for one dependency.
            let single = section
                .rsplit_once('.')
                .filter(|(table, _)| matches!(*table, "dependencies" | "build-dependencies"));
            names.extend(single.map(|(_, name)| name.to_owned()));
        } else if is_inside && !line.is_empty() && !line.starts_with('#') {
            let end = line.find(['.', '=', ' ']).unwrap_or(line.len());
            names.push(line[..end].trim_matches('"').to_owned());
        }
    }
    names
}

fn check_forbids_unsafe(root: &Path, folder: &str) -> Complaints {
    if folder == UNSAFE {
        return Complaints::new();
    }
    let roots = ["src/lib.rs", "src/main.rs"].map(|file| format!("{folder}/{file}"));
    let mut complaints = Complaints::new();
    for path in roots.iter().filter(|path| root.join(path).is_file()) {
        if !read(root, path).is_ok_and(|text| text.lines().any(|line| line == FORBID)) {
            complaints.push(format!("{path}: {FORBID} is missing"));
        }
    }
    complaints
}

/// Complains about every place where a pure room reaches outside.
fn check_source(source: &Source) -> Complaints {
    let mut complaints = Complaints::new();
    let mut shipped = String::new();
    for (at, line) in source.shipped_code() {
        let names = OUTSIDE_NAMES.iter().filter(|name| has_word(line, name));
        let calls = CLOCKS.iter().filter(|call| line.contains(**call));
        for name in names.chain(calls) {
            complaints.push(format!("{}:{}: a pure room knows no {name}", source.path, at + 1));
        }
        shipped.push_str(line);
        shipped.push('\n');
    }
    for module in std_modules(&shipped) {
        if OUTSIDE_MODULES.contains(&module) {
            complaints.push(format!("{}: a pure room knows no std::{module}", source.path));
        }
    }
    complaints
}

/// The modules that code names behind `std::`, in groups as well: `std::{fs, io::{self, Read}}`.
fn std_modules(code: &str) -> Vec<&str> {
    let mut modules = Vec::new();
    for (at, _) in code.match_indices("std::") {
        if code[..at].bytes().next_back().is_some_and(is_name_byte) {
            continue;
        }
        let rest = &code[at + "std::".len()..];
        match rest.strip_prefix('{') {
            None => modules.extend(leading_name(rest)),
            Some(group) => modules.extend(group_heads(group)),
        }
    }
    modules
}

/// The first name of each member of a group, whose opening brace is already taken.
fn group_heads(group: &str) -> Vec<&str> {
    let mut heads = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, byte) in group.bytes().enumerate() {
        let is_end = byte == b'}' && depth == 0;
        if is_end || (byte == b',' && depth == 0) {
            heads.extend(leading_name(group[start..at].trim_start()));
            start = at + 1;
        }
        match byte {
            b'{' => depth += 1,
            b'}' if is_end => break,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    heads
}

fn leading_name(text: &str) -> Option<&str> {
    let end = text.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].bytes().next_back();
        let after = line[at + word.len()..].bytes().next();
        !before.is_some_and(is_name_byte) && !after.is_some_and(is_name_byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_in_all_their_forms() {
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\na.workspace = true\nb = \"1\"\n# c\n\n\
                        [dependencies.d]\nversion = \"1\"\n\n[dev-dependencies]\ne = \"1\"\n\n\
                        [target.'cfg(unix)'.dependencies]\nf = { version = \"1\" }\n\n[build-dependencies]\ng = \"1\"\n";
        assert_eq!(dependencies(manifest), ["a", "b", "d", "f", "g"]);
        assert_eq!(package_name(manifest).as_deref(), Some("x"));
    }

    #[test]
    fn a_pure_room_with_a_runtime_is_complained_about_and_a_shell_room_is_not() {
        let manifest = "[dependencies]\ntokio.workspace = true\nsekisho-http.workspace = true\n";
        assert_eq!(
            check_manifest("crates/http1", manifest),
            ["crates/http1: a pure room must not depend on tokio"]
        );
        assert!(check_manifest("crates/net", manifest).is_empty());
    }

    #[test]
    fn reaching_outside_is_seen_in_code_and_not_in_comments_literals_or_tests() {
        let text = "//! std::fs\nuse std::{fmt, fs::{self, File}};\nfn a() { tokio::spawn(t.elapsed()); }\n\
                    const A: &str = \"std::thread TcpStream\";\nuse std::net::IpAddr;\n\
                    #[cfg(test)]\nmod tests {\n    use std::thread;\n}\n";
        let source = Source::new("crates/http/src/a.rs".into(), text.into());
        assert_eq!(
            check_source(&source),
            [
                "crates/http/src/a.rs:3: a pure room knows no tokio",
                "crates/http/src/a.rs:3: a pure room knows no .elapsed()",
                "crates/http/src/a.rs: a pure room knows no std::fs"
            ]
        );
    }

    #[test]
    fn a_name_inside_of_another_is_not_that_name() {
        assert!(has_word("x: TcpStream,", "TcpStream"));
        assert!(!has_word("x: MyTcpStreams,", "TcpStream"));
        assert_eq!(std_modules("my_std::fs std::fmt::Write"), ["fmt"]);
    }

    #[test]
    fn only_the_sources_of_pure_rooms_are_behind_the_wall() {
        for (path, is) in [
            ("crates/http/src/lib.rs", true),
            ("crates/http/tests/a.rs", false),
            ("crates/net/src/lib.rs", false),
            ("xtask/src/main.rs", false),
        ] {
            assert_eq!(is_pure(path), is, "{path}");
        }
    }
}
