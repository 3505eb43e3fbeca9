//! Golden files: every `good/*.conf` loads, every `bad/*.conf` fails, each with exactly the diagnostics in the
//! `.txt` beside it. `UPDATE=1` writes them anew.

use std::fs;
use std::path::{Path, PathBuf};

use sekisho_config::{Memory, Options, Outcome, load, reference};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The files below a folder, as if it were `/conf`.
fn files_of(folder: &Path, at: &Path, memory: &mut Memory) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = at.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            files_of(&entry.path(), &path, memory);
        } else {
            memory.files.insert(path, fs::read(entry.path()).unwrap());
        }
    }
}

fn cases(folder: &str) -> Vec<(String, Outcome)> {
    let mut memory = Memory::default();
    files_of(&golden().join(folder), Path::new("/conf"), &mut memory);
    let names = memory.files.keys().filter(|path| path.parent() == Some(Path::new("/conf")));
    let names = names.filter(|path| path.extension().is_some_and(|end| end == "conf"));
    names
        .map(|path| {
            let outcome = load(path, &Options::new("/prefix"), &memory);
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), outcome)
        })
        .collect()
}

fn compare(path: &Path, text: &str, differing: &mut Vec<String>) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, text).unwrap();
    } else if fs::read_to_string(path).unwrap_or_default() != text {
        differing.push(format!("{}:\n{text}", path.display()));
    }
}

fn shown(outcome: &Outcome) -> String {
    outcome.reports.iter().map(|report| report.render(false) + "\n\n").collect()
}

/// O2: every error is reported with file, line, column, source line, include chain and suggestion.
#[test]
fn each_bad_file_has_its_exact_diagnostic() {
    let cases = cases("bad");
    assert!(cases.len() >= 60, "{}", cases.len());
    let mut differing = Vec::new();
    for (name, outcome) in cases {
        assert!(outcome.has_errors(), "{name} loads");
        compare(&golden().join(format!("bad/{name}.txt")), &shown(&outcome), &mut differing);
    }
    assert!(differing.is_empty(), "{}", differing.concat());
}

/// O2: what nginx has and this server does not need is accepted, with a warning where an operator may miss
/// it.
#[test]
fn each_good_file_loads_with_exactly_its_warnings() {
    let mut differing = Vec::new();
    for (name, outcome) in cases("good") {
        assert!(!outcome.has_errors(), "{name}: {}", shown(&outcome));
        compare(&golden().join(format!("good/{name}.txt")), &shown(&outcome), &mut differing);
    }
    assert!(differing.is_empty(), "{}", differing.concat());
}

/// O2: the files that Debian ships with nginx load as they are.
#[test]
fn the_stock_configuration_of_a_distribution_loads() {
    let mut memory = Memory::default();
    files_of(&golden().join("stock"), Path::new("/etc/nginx"), &mut memory);
    let outcome =
        load(Path::new("/etc/nginx/nginx.conf"), &Options::new("/usr/share/nginx"), &memory);
    let lines: Vec<String> = outcome.reports.iter().map(sekisho_config::Report::line).collect();
    let expected =
        ["[warn] \"TLSv1.1\" is ignored: it is not supported in /etc/nginx/nginx.conf:33"];
    assert_eq!(lines, expected);
    let config = outcome.config.unwrap();
    assert_eq!(config.http.listens.len(), 2);
    assert_eq!(config.main.worker_connections, 768);
    let server = &config.http.locations[config.http.servers[0].root.0 as usize].settings;
    assert_eq!(&*server.types.by_extension[&b"woff2"[..]], "font/woff2");
    assert_eq!(&*server.default_type, "application/octet-stream");
    let order: Vec<_> = outcome.files.iter().map(|(path, _)| path.to_str().unwrap()).collect();
    let expected =
        ["/etc/nginx/nginx.conf", "/etc/nginx/mime.types", "/etc/nginx/sites-enabled/default"];
    assert_eq!(order, expected);
}

/// The committed reference is the one that the table gives.
#[test]
fn the_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/directives.md");
    let mut differing = Vec::new();
    compare(&path, &reference::markdown(), &mut differing);
    assert!(differing.is_empty(), "run the tests of this crate with UPDATE=1");
}
