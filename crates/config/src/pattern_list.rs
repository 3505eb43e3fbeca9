//! Expressions of one list, tried in order: the regex locations of a level, the regex names of the servers behind an
//! address, the expressions of a `map`. One automaton finds which of them a text can match; only those are tried.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::model::Pattern;

/// Fewer expressions are tried one by one: a search for what they need would take as long.
const FILTERED_MIN: usize = 6;

/// Expressions, and what belongs to each.
#[derive(Debug)]
pub struct PatternList<T> {
    list: Vec<(Arc<Pattern>, T)>,
    filter: Option<Filter>,
}

/// Finds the strings that expressions need.
#[derive(Debug)]
struct Filter {
    strings: AhoCorasick,
    /// The expression that needs each string.
    users: Box<[u32]>,
    /// Expressions that need none, in order.
    unfiltered: Box<[u32]>,
}

impl<T> Default for PatternList<T> {
    fn default() -> Self {
        Self { list: Vec::new(), filter: None }
    }
}

impl<T> From<Vec<(Arc<Pattern>, T)>> for PatternList<T> {
    fn from(list: Vec<(Arc<Pattern>, T)>) -> Self {
        let filter = Filter::new(&list);
        Self { list, filter }
    }
}

impl<T> PatternList<T> {
    /// All of them, in order.
    pub fn as_slice(&self) -> &[(Arc<Pattern>, T)] {
        &self.list
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The patterns that may match a text, in order. No other pattern matches it.
    pub fn candidates(&self, text: &[u8]) -> impl Iterator<Item = &(Arc<Pattern>, T)> {
        let (all, some) = match &self.filter {
            None => (Some(self.list.iter()), None),
            Some(filter) => (None, Some(filter.candidates(text))),
        };
        let some = some.into_iter().flatten().filter_map(|at| self.list.get(at as usize));
        all.into_iter().flatten().chain(some)
    }
}

impl Filter {
    /// `None` where there are too few expressions, or none needs anything.
    fn new<T>(list: &[(Arc<Pattern>, T)]) -> Option<Self> {
        if list.len() < FILTERED_MIN {
            return None;
        }
        let (mut strings, mut users, mut unfiltered) = (Vec::new(), Vec::new(), Vec::new());
        for ((pattern, _), at) in list.iter().zip(0_u32..) {
            match pattern.regex.needed() {
                Some(needed) => {
                    users.extend(needed.iter().map(|_| at));
                    strings.extend(needed);
                }
                None => unfiltered.push(at),
            }
        }
        if list.len() - unfiltered.len() < FILTERED_MIN {
            return None;
        }
        let mut builder = AhoCorasick::builder();
        builder.match_kind(MatchKind::Standard).ascii_case_insensitive(true).prefilter(false);
        let strings = builder.build(strings).ok()?;
        Some(Self { strings, users: users.into(), unfiltered: unfiltered.into() })
    }

    fn candidates(&self, text: &[u8]) -> impl Iterator<Item = u32> {
        let found = self.strings.find_overlapping_iter(text);
        let found = found.map(|found| self.users[found.pattern().as_usize()]);
        let mut found: Vec<u32> = found.collect();
        found.sort_unstable();
        found.dedup();
        let (mut found, mut unfiltered) =
            (found.into_iter().peekable(), self.unfiltered.iter().copied().peekable());
        std::iter::from_fn(move || match (found.peek(), unfiltered.peek()) {
            (Some(one), Some(other)) if one < other => found.next(),
            (Some(_), None) => found.next(),
            _ => unfiltered.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::expression::Matched;
    use crate::pattern::listed_pattern;

    /// Pieces of expressions, some of which need the same strings and overlap.
    const PIECES: [&str; 18] = [
        "/img",
        "/api/",
        r"\.php",
        "(gif|jpe?g|png)",
        r"(\d+)",
        ".*",
        "[a-z]+",
        "^",
        "$",
        "a",
        "(?i)INDEX",
        r"(?=/)",
        "(?:abc|abcd|b)",
        "(x|)",
        "(/img)+",
        r"\bimg\b",
        "é",
        "(?<n>ngi)nx",
    ];

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let word = prop::sample::select(vec![
            "/img", "/IMG", "/api/", ".php", ".gif", "jpeg", "17", "abcd", "b", "index", "nginx",
            "é", "/", " ", "\u{ff}", "x",
        ]);
        prop::collection::vec(word, 0..6).prop_map(|words| words.concat().into_bytes())
    }

    proptest! {
        /// Expressions match in the same order, with the same groups, as if each were tried.
        #[test]
        fn no_expression_that_matches_is_left_out(
            sources in prop::collection::vec(
                (prop::collection::vec(prop::sample::select(PIECES.to_vec()), 1..4), any::<bool>()),
                0..24,
            ),
            texts in prop::collection::vec(text(), 1..8),
        ) {
            let made = sources.iter().enumerate().filter_map(|(at, (pieces, ignore_case))| {
                Some((listed_pattern(&pieces.concat(), *ignore_case).ok()?, at))
            });
            let list = PatternList::from(made.collect::<Vec<_>>());
            for text in texts {
                let matches = |(pattern, at): &(Arc<Pattern>, usize)| {
                    let mut groups = Vec::new();
                    let matched = pattern.regex.captures(&text, &mut groups);
                    (matched != Matched::No).then_some((*at, matched, groups))
                };
                let expected: Vec<_> = list.as_slice().iter().filter_map(matches).collect();
                let found: Vec<_> = list.candidates(&text).filter_map(matches).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn of_many_expressions_few_are_tried() {
        let made = (0..1000)
            .map(|at| (listed_pattern(&format!(r"^/r{at}/(\d+)$"), false).expect("a pattern"), at));
        let list = PatternList::from(made.collect::<Vec<_>>());
        assert_eq!(list.candidates(b"/r999/1").map(|(_, at)| *at).collect::<Vec<_>>(), [999]);
        assert_eq!(list.candidates(b"/r1000/1").count(), 0);
    }
}
