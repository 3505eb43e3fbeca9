//! Expressions of long lists (`map`): each is parsed when the file is read, and compiled when a text comes that has what
//! the expression cannot do without. Lists of tens of thousands load at once, and few of them are ever compiled.

use std::sync::OnceLock;

use regex_automata::meta::Regex;
use regex_syntax::hir::{Hir, HirKind};

use crate::expression::{compile, parse};
use crate::literal::Literal;
use crate::needed::needed;

/// Longer ones are compiled at once, as are those that say how often something is repeated: whether they take too much
/// memory is known only then.
const SOURCE_BYTES_MAX: usize = 256;

/// An expression that waits to be compiled.
#[derive(Debug)]
pub(crate) struct Listed {
    source: Box<str>,
    ignore_case: bool,
    /// Every text that matches has one of these.
    needed: Box<[Literal]>,
    /// The names of the groups 1, 2, …
    groups: Box<[Option<Box<str>>]>,
    compiled: OnceLock<Option<Box<Regex>>>,
}

impl Listed {
    /// `None` for what is compiled at once.
    pub(crate) fn new(source: &str, ignore_case: bool) -> Option<Self> {
        if source.len() > SOURCE_BYTES_MAX || source.contains('{') {
            return None;
        }
        let hir = parse(source, false, ignore_case).ok()?;
        let needed = needed(&hir)?.into_iter().map(Literal::anywhere).collect();
        let mut groups = Vec::new();
        list_groups(&hir, &mut groups);
        let (source, compiled) = (source.into(), OnceLock::new());
        Some(Self { source, ignore_case, needed, groups: groups.into(), compiled })
    }

    /// The compiled expression, for a text that it may match.
    pub(crate) fn regex(&self, text: &[u8]) -> Option<&Regex> {
        if !self.needed.iter().any(|needed| needed.is_match(text)) {
            return None;
        }
        let hir = || parse(&self.source, false, self.ignore_case);
        let compiled = || hir().and_then(|hir| compile(&hir)).ok().map(Box::new);
        self.compiled.get_or_init(compiled).as_deref()
    }

    /// Strings of which every text that matches has one.
    pub(crate) fn needed(&self) -> impl Iterator<Item = &[u8]> {
        self.needed.iter().map(Literal::text)
    }

    /// The names of the groups 1, 2, …
    pub(crate) fn groups(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.groups.iter().map(Option::as_deref)
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
            r"\.(com|net|test)$",
            "(?i)Spider|robot",
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
        for source in ["a|b", ".*", "ab", "^$", "(?i)abcd|e", "abcd{2}", "(abcd", r"abcd(?!x)"] {
            assert!(Listed::new(source, false).is_none(), "{source}");
        }
        assert!(Listed::new(&"a".repeat(SOURCE_BYTES_MAX + 1), false).is_none());
    }
}
