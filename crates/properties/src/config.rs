//! Any text as configuration: never a panic, always either a configuration or at least one error; what is
//! read without an error is read the same when it is written again; and a table made of it can be asked.
//!
//! A byte 0xff begins another file, `a.conf`, `b.conf`, … beside the first, for `include`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{config_syntax, site};
use sekisho_config::directive::{self, Body};
use sekisho_config::parse::{Node, parse_bytes};
use sekisho_config::report::{ERRORS_MAX, WARNINGS_MAX};
use sekisho_config::{Memory, Options, Outcome, Report, load};
use sekisho_http::{Head, Version};
use sekisho_route::Table;

const MAIN: &str = "/etc/s/main.conf";
/// So many reports are shown as an operator would see them.
const SHOWN_MAX: usize = 4;
/// So many unknown directives are reported in every run.
const UNKNOWN_MAX: usize = 1;

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let mut memory = Memory::default();
    let names = ["main", "a", "b", "c", "d"];
    for (name, text) in names.iter().zip(data.splitn(names.len(), |byte| *byte == 0xff)) {
        memory.files.insert(PathBuf::from(format!("/etc/s/{name}.conf")), text.to_vec());
    }
    // To look for the word that was meant takes longer than all the rest: most texts full of unknown words
    // are only parsed.
    let unknown: usize =
        memory.files.values().map(|text| unknown(&parse_bytes(text).0.nodes)).sum();
    let is_loaded = unknown <= UNKNOWN_MAX || data.len() % 64 == 0;
    let outcome = is_loaded.then(|| loaded(&memory));
    let text = &memory.files[Path::new(MAIN)];
    let (tree, reports) = parse_bytes(text);
    if !reports.iter().any(Report::is_error) {
        let written = config_syntax::is_written_again(&tree);
        // Where nothing is included, the whole meaning is in this text.
        if let Some(outcome) = &outcome
            && !text.windows(7).any(|word| word == b"include")
            // To resolve it all once more is half of the work.
            && data.len() % 4 == 0
        {
            assert_eq!(shape(outcome), shape(&loaded(&Memory::of(MAIN, written))));
        }
    }
    if let Some(config) = outcome.and_then(|outcome| outcome.config) {
        let table = Table::new(Arc::new(config));
        for target in ["/", "/a/../b.html?x=../y", "/i../x%2e", "http://a.example/c"] {
            let mut head = Head::default();
            head.begin(b"GET", target.as_bytes(), Version::Http11);
            head.push(b"Host", b"b.example");
            site::decide(&table, &head, false);
        }
    }
}

fn loaded(memory: &Memory) -> Outcome {
    let outcome = load(Path::new(MAIN), &Options::new("/p"), memory);
    assert_eq!(outcome.config.is_none(), outcome.reports.iter().any(Report::is_error));
    assert!(outcome.reports.len() <= ERRORS_MAX + WARNINGS_MAX + 1);
    for (at, report) in outcome.reports.iter().enumerate() {
        assert!(!report.message.is_empty() && !report.line().is_empty());
        // To show one takes longer than to find it.
        if at < SHOWN_MAX {
            assert!(!report.render(at % 2 == 0).is_empty());
        }
    }
    outcome
}

/// How many directives are unknown.
fn unknown(nodes: &[Node]) -> usize {
    let of_node = |node: &Node| match directive::by_name(&node.name.text).first() {
        None => 1,
        Some(row) if row.body == Body::Entries => 0,
        Some(_) => node.body.as_deref().map_or(0, unknown),
    };
    nodes.iter().map(of_node).sum()
}

/// As much of a configuration as can be compared.
fn shape(outcome: &Outcome) -> Option<String> {
    let config = outcome.config.as_ref()?;
    let http = &config.http;
    let matches: Vec<_> = http.locations.iter().map(|location| &location.matches).collect();
    let places: Vec<_> =
        http.locations.iter().map(|location| &location.settings.path_mapping).collect();
    Some(format!("{:?} {:?} {matches:?} {places:?} {}", config.main, http.listens, http.maps.len()))
}
