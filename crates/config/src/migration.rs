//! What becomes of an nginx configuration here: which of its directives work, which mean something else, which have no
//! effect and which are missing, and what takes their place.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::Outcome;
use crate::directive::{self, Body, Row, Status};
use crate::parse::Node;
use crate::report::{Report, Severity};

/// Directives that work and mean something else, and what. The reasons are in `docs/nginx.md`.
const DIFFERENT: &[(&str, &str)] = &[
    ("autoindex", "listings are another page: whole names, sorting, a filter"),
    ("auth_basic_user_file", "passwords of the old DES crypt are refused"),
    ("dav_methods", "201 for a new target and 204 for a replaced one, as RFC 4918 has it"),
    ("max_headers", "beyond it the answer is 431, not 400"),
    ("server_tokens", "the name in Server is sekisho"),
    ("stub_status", "a connection is counted from its first byte"),
];

/// What can be used in place of a directive that is missing.
pub(crate) fn instead_of(name: &str) -> Option<&'static str> {
    INSTEAD.iter().find(|(start, _)| name.starts_with(start)).map(|(_, what)| *what)
}

/// What takes the place of a missing directive, by how its name begins.
const INSTEAD: &[(&str, &str)] = &[
    ("proxy_cache_purge", "proxy_cache_bypass with a condition: it renews an entry"),
    ("fastcgi_cache_purge", "fastcgi_cache_bypass with a condition: it renews an entry"),
    ("scgi_cache_purge", "scgi_cache_bypass with a condition: it renews an entry"),
    ("uwsgi_cache_purge", "uwsgi_cache_bypass with a condition: it renews an entry"),
    ("auth_jwt", "auth_request to a service that checks tokens"),
    ("auth_pam", "auth_basic with a file of passwords, or auth_request"),
    ("dav_ext", "dav_methods covers PUT, DELETE, MKCOL, COPY and MOVE"),
    ("echo", "return 200 \"text\""),
    ("fancyindex", "autoindex: its page sorts and filters"),
    ("flv", "ranges: players seek by them"),
    ("geoip", "geoip2 with a database in MaxMind's format"),
    ("hls", "files that were cut beforehand"),
    ("image_filter", "images that were scaled beforehand, or a program (cgi)"),
    ("js_", "map, rewrite, or a program (cgi)"),
    ("lua", "map, rewrite, or a program (cgi)"),
    ("content_by_lua", "a program (cgi)"),
    ("mail", "a mail proxy of its own"),
    ("more_", "proxy_set_header"),
    ("mp4", "ranges: players seek by them"),
    ("f4f", "ranges: players seek by them"),
    ("perl", "a program (cgi)"),
    ("xslt", "a program (cgi)"),
];

/// A configuration, looked at.
#[derive(Debug, Default)]
pub struct Migration {
    /// How many directives work, and how many kinds of them there are.
    working: (usize, usize),
    /// What differs: where, and how.
    different: Vec<String>,
    /// What is accepted and changes nothing: how often, and why.
    ineffective: Vec<String>,
    /// What is missing: where, and what takes its place.
    missing: Vec<String>,
    /// What is wrong otherwise.
    wrong: Vec<String>,
    /// What is not on this machine, or cannot be used here.
    absent: Vec<String>,
    /// Whether the configuration is refused for what is absent.
    needs_absent: bool,
    files: usize,
}

/// How it ends, for scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It loads and means the same.
    Same,
    /// It loads; something differs.
    Different,
    /// It would load where the files, users and hosts are that it names.
    Absent,
    /// It does not load.
    Missing,
}

impl Migration {
    /// Looks at what was read.
    pub fn of(outcome: &Outcome) -> Self {
        let mut found = BTreeMap::new();
        gather(&outcome.tree.nodes, &mut found);
        let mut migration = Self { files: outcome.files.len(), ..Self::default() };
        for (name, Seen { row, count, line }) in &found {
            match row.status {
                Status::Active => {
                    migration.working.0 += count;
                    migration.working.1 += 1;
                    if let Some((_, how)) = DIFFERENT.iter().find(|(known, _)| known == name) {
                        let place = place(outcome, *line);
                        migration.different.push(format!("{place}: {name}: {how}"));
                    }
                }
                // The warning says it, and where.
                Status::Warned if is_missed(row) => {}
                Status::Silent | Status::Warned => {
                    migration.ineffective.push(format!("{name} ({count}): {}", row.doc));
                }
                Status::NotBuilt => {}
            }
        }
        for report in &outcome.reports {
            migration.add(report);
        }
        migration
    }

    fn add(&mut self, report: &Report) {
        let line = report.line();
        let text = line.trim_start_matches("[emerg] ").trim_start_matches("[warn] ");
        let is_missing = text.contains("is not supported") || text.contains("unknown directive");
        match report.severity {
            severity if report.is_of_machine => {
                self.needs_absent |= severity == Severity::Error;
                self.absent.push(text.to_owned());
            }
            Severity::Warning if is_told_of_row(text) => {}
            Severity::Warning => self.different.push(text.to_owned()),
            Severity::Error if is_missing => {
                let name = text.split('"').nth(1).unwrap_or_default();
                let instead = instead_of(name).map(|what| format!("; instead: {what}"));
                self.missing.push(format!("{text}{}", instead.unwrap_or_default()));
            }
            Severity::Error => self.wrong.push(text.to_owned()),
        }
    }

    /// How it ends.
    pub fn readiness(&self) -> Readiness {
        if !self.missing.is_empty() || !self.wrong.is_empty() {
            Readiness::Missing
        } else if self.needs_absent {
            Readiness::Absent
        } else if !self.different.is_empty() || !self.absent.is_empty() {
            Readiness::Different
        } else {
            Readiness::Same
        }
    }

    /// One page about it.
    pub fn page(&self, name: &str) -> String {
        let (count, kinds) = self.working;
        let files = self.files;
        let mut out = format!("{name}: {files} file{}\n", if files == 1 { "" } else { "s" });
        let _ = writeln!(out, "\nWorks: {count} directives of {kinds} kinds");
        for (title, lines) in [
            ("Differs", &self.different),
            ("Has no effect and needs none", &self.ineffective),
            ("Missing", &self.missing),
            ("Wrong", &self.wrong),
            ("Differs on this machine", &self.absent),
        ] {
            if lines.is_empty() {
                continue;
            }
            let _ = writeln!(out, "\n{title}: {}", lines.len());
            for line in lines {
                let _ = writeln!(out, "  {line}");
            }
        }
        out.push_str(match self.readiness() {
            Readiness::Same => "\nIt loads, and means the same.\n",
            Readiness::Different => {
                "\nIt loads. Read what differs; the reasons are in docs/nginx.md.\n"
            }
            Readiness::Absent => {
                "\nIt does not load on this machine until what it names is there and can be used.\n"
            }
            Readiness::Missing => {
                "\nIt does not load until what is missing or wrong is removed or replaced.\n"
            }
        });
        out
    }
}

/// Whether a directive has no effect here though somebody may miss what it does.
fn is_missed(row: &Row) -> bool {
    row.status == Status::Warned && row.doc.contains("is not supported")
}

/// Whether a warning says no more than the row of a directive, which is listed.
fn is_told_of_row(text: &str) -> bool {
    let name = text.strip_prefix('"').and_then(|text| text.split_once("\" is ignored:"));
    let rows = name.map(|(name, _)| directive::by_name(name.as_bytes())).unwrap_or_default();
    rows.first().is_some_and(|row| row.status == Status::Warned && !is_missed(row))
}

/// Of one directive: its row, how often it was found, and where first.
struct Seen {
    row: &'static Row,
    count: usize,
    line: (u32, u32),
}

fn gather(nodes: &[Node], found: &mut BTreeMap<&'static str, Seen>) {
    for node in nodes {
        let Some(row) = directive::by_name(&node.name.text).first() else { continue };
        let span = node.name.span;
        let seen = Seen { row, count: 0, line: (span.file, span.start) };
        found.entry(row.name).or_insert(seen).count += 1;
        if row.body != Body::Entries {
            gather(node.body.as_deref().unwrap_or_default(), found);
        }
    }
}

fn place(outcome: &Outcome, (file, at): (u32, u32)) -> String {
    outcome
        .tree
        .files
        .get(file as usize)
        .map_or_else(String::new, |file| format!("{}:{}", file.name(), file.line_of(at) + 1))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::source::Memory;
    use crate::{Options, load};

    fn migration(text: &str) -> Migration {
        let source = Memory::of("/nginx.conf", text);
        Migration::of(&load(Path::new("/nginx.conf"), &Options::new("/"), &source))
    }

    /// O2
    #[test]
    fn a_configuration_is_told_by_what_becomes_of_it() {
        let same = migration("http { server { listen 80; root /srv; } }");
        assert_eq!(same.readiness(), Readiness::Same);
        assert!(same.page("x").contains("Works: 4 directives of 4 kinds"), "{}", same.page("x"));

        let different =
            migration("http {\n server { listen 80; root /srv; autoindex on; tcp_nopush on; } }");
        assert_eq!(different.readiness(), Readiness::Different);
        let page = different.page("x");
        assert!(page.contains("/nginx.conf:2: autoindex: listings"), "{page}");
        assert!(page.contains("tcp_nopush (1): "), "{page}");

        let missing = migration("http { server { listen 80; image_filter test; nonsense on; } }");
        assert_eq!(missing.readiness(), Readiness::Missing);
        let page = missing.page("x");
        assert!(page.contains("\"image_filter\" is not supported yet"), "{page}");
        assert!(page.contains("; instead: images that were scaled beforehand"), "{page}");
        assert!(page.contains("Missing: 2"), "{page}");
    }

    /// O2
    #[test]
    fn what_is_left_out_with_a_warning_differs() {
        let text = "daemon on;\nhttp { server { listen 80; http3_hq on;\n\
                    directio 4m; ssl_protocols TLSv1.1 TLSv1.2; } }";
        let page = migration(text).page("x");
        for line in [
            "\"http3_hq\" is ignored: HTTP/0.9 over QUIC is not supported in /nginx.conf:2",
            "\"TLSv1.1\" is ignored: it is not supported in /nginx.conf:3",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(page.contains("Differs: 2\n") && page.contains("needs none: 1\n"), "{page}");
        let same = migration("daemon off; http { server { listen 80; root /srv; } }");
        assert_eq!(same.readiness(), Readiness::Same, "{}", same.page("x"));
    }

    /// O2
    #[test]
    fn what_purges_a_cache_has_a_replacement() {
        let text = "http { server { proxy_cache_purge PURGE from all; fastcgi_cache_purge x y; } }";
        let missing = migration(text);
        assert_eq!(missing.readiness(), Readiness::Missing);
        let page = missing.page("x");
        assert!(page.contains("; instead: proxy_cache_bypass with a condition"), "{page}");
        assert!(page.contains("; instead: fastcgi_cache_bypass with a condition"), "{page}");
    }

    /// Every name that is said to differ works; every name that has a replacement does not.
    #[test]
    fn what_is_told_of_a_directive_is_true() {
        for (name, _) in DIFFERENT {
            let rows = directive::by_name(name.as_bytes());
            assert!(rows.iter().any(|row| row.status == Status::Active), "{name}");
        }
    }
}
