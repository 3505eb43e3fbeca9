//! Expressions of long lists (`map`): each is parsed when the file is read, and compiled when a text comes that has what
//! the expression cannot do without. Lists of tens of thousands load at once, and few of them are ever compiled.

use std::sync::OnceLock;

use regex::bytes::Regex;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

use crate::expression::compile;
use crate::literal::Literal;

/// Longer ones are compiled at once, as are those that say how often something is repeated: whether they take too much
/// memory is known only then.
const SOURCE_BYTES_MAX: usize = 256;
/// What is shorter is in too many texts.
const NEEDED_BYTES_MIN: usize = 3;

/// An expression that waits to be compiled.
#[derive(Debug)]
pub(crate) struct Listed {
    source: Box<str>,
    ignore_case: bool,
    /// What every text has that matches.
    needed: Literal,
    /// The names of the groups 1, 2, …
    groups: Box<[Option<Box<str>>]>,
    compiled: OnceLock<Option<Regex>>,
}

impl Listed {
    /// `None` for what is compiled at once.
    pub(crate) fn new(source: &str, ignore_case: bool) -> Option<Self> {
        if source.len() > SOURCE_BYTES_MAX || source.contains('{') {
            return None;
        }
        let mut parser = ParserBuilder::new();
        let hir = parser.unicode(false).utf8(false).build().parse(source).ok()?;
        let needed = needed(&hir).filter(|needed| needed.len() >= NEEDED_BYTES_MIN)?;
        let needed = Literal::anywhere(needed, ignore_case);
        let mut groups = Vec::new();
        list_groups(&hir, &mut groups);
        let (source, compiled) = (source.into(), OnceLock::new());
        Some(Self { source, ignore_case, needed, groups: groups.into(), compiled })
    }

    /// The compiled expression, for a text that it may match.
    pub(crate) fn regex(&self, text: &[u8]) -> Option<&Regex> {
        if !self.needed.is_match(text) {
            return None;
        }
        self.compiled.get_or_init(|| compile(&self.source, false, self.ignore_case).ok()).as_ref()
    }

    /// The names of the groups 1, 2, …
    pub(crate) fn groups(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.groups.iter().map(Option::as_deref)
    }
}

/// The longest text that stands in everything that matches.
fn needed(hir: &Hir) -> Option<&[u8]> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(&literal.0),
        HirKind::Capture(capture) => needed(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => needed(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().filter_map(needed).max_by_key(|text| text.len()),
        _ => None,
    }
}

fn list_groups(hir: &Hir, groups: &mut Vec<Option<Box<str>>>) {
    match hir.kind() {
        HirKind::Capture(capture) => {
            groups.push(capture.name.clone());
            list_groups(&capture.sub, groups);
        }
        HirKind::Repetition(repetition) => list_groups(&repetition.sub, groups),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            for part in parts {
                list_groups(part, groups);
            }
        }
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Expression;

    #[test]
    fn what_is_needed_is_in_every_text_that_matches() {
        let sources = [
            r"(?:^|\.)example\.(com|net)$",
            r"bot.*",
            r"^https?://[^/]*casino",
            r"(?<who>spider|bot)crawl(er)?",
            r"(a(bcd)+)?efgh",
            "xabcx?",
            r"(?:abc)+d",
        ];
        let subjects = [
            "",
            "example.com",
            "www.Example.NET",
            "example.org",
            "a robot",
            "http://x.test/casino",
            "https://my-casino.test/",
            "spidercrawl",
            "BOTcrawler",
            "abcdefgh",
            "efgh",
            "xabc",
            "abcabcd",
        ];
        for source in sources {
            for ignore_case in [false, true] {
                let listed = Expression::listed(source, ignore_case).expect(source);
                let compiled = Expression::compiled(source, false, ignore_case).expect(source);
                assert_eq!(listed.captures_len(), compiled.captures_len(), "{source}");
                assert_eq!(listed.group("WHO"), compiled.group("who"), "{source}");
                for subject in subjects {
                    let (mut found, mut expected) = (Vec::new(), Vec::new());
                    let text = subject.as_bytes();
                    let matched = listed.captures(text, &mut found);
                    assert_eq!(matched, compiled.captures(text, &mut expected));
                    assert_eq!(found, expected, "{source} {ignore_case} {subject}");
                    assert_eq!(listed.is_match(text), compiled.is_match(text));
                }
            }
        }
    }

    #[test]
    fn what_may_be_anything_is_compiled_at_once() {
        for source in ["a|b", ".*", "ab", "^$", "(?i)abcd", "abcd{2}", "(abcd", r"abcd(?!x)"] {
            assert!(Listed::new(source, false).is_none(), "{source}");
        }
        assert!(Listed::new(&"a".repeat(SOURCE_BYTES_MAX + 1), false).is_none());
    }
}
