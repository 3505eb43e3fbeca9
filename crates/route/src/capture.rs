//! What regular expressions caught: `$1` and `$name`. Positions in copied text, so that an exchange borrows
//! nothing.

use std::ops::Range;
use std::sync::Arc;

use sekisho_config::{Matched, Pattern};

/// The captures of an exchange, in the order of the matches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Captures {
    text: Vec<u8>,
    /// Groups 1, 2, … of each match; `None` for one that took no part.
    groups: Vec<Option<Range<usize>>>,
    matches: Vec<Match>,
    /// Whether an expression could not be decided within its bound.
    is_exhausted: bool,
    /// The match that `$1` is of; `None` where a script's expression has failed since.
    numbered: Option<usize>,
}

#[derive(Clone, Debug)]
struct Match {
    pattern: Arc<Pattern>,
    groups: Range<usize>,
}

impl Captures {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.groups.clear();
        self.matches.clear();
        self.numbered = None;
        self.is_exhausted = false;
    }

    /// Whether an expression could not be decided within its bound: then the request cannot be, either.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Whether the pattern matches; if so, its captures are the newest.
    pub(crate) fn matches(&mut self, pattern: &Arc<Pattern>, text: &[u8]) -> bool {
        let start = self.groups.len();
        match pattern.regex.captures(text, &mut self.groups) {
            Matched::Yes => {}
            Matched::No => return false,
            Matched::Exhausted => {
                self.is_exhausted = true;
                return false;
            }
        }
        if self.groups.len() > start {
            let base = self.text.len();
            self.text.extend_from_slice(text);
            for range in self.groups[start..].iter_mut().flatten() {
                *range = base + range.start..base + range.end;
            }
        }
        let groups = start..self.groups.len();
        self.numbered = Some(self.matches.len());
        self.matches.push(Match { pattern: Arc::clone(pattern), groups });
        true
    }

    /// The same for an expression of a script: one that fails leaves no `$1` behind, as in nginx.
    pub(crate) fn matches_or_forgets(&mut self, pattern: &Arc<Pattern>, text: &[u8]) -> bool {
        let is_match = self.matches(pattern, text);
        if !is_match {
            self.numbered = None;
        }
        is_match
    }

    /// How many matches there have been.
    pub(crate) fn count(&self) -> usize {
        self.matches.len()
    }

    /// `$1` … `$9`: of the newest match.
    pub(crate) fn numbered(&self, number: u8) -> Option<&[u8]> {
        let groups = &self.groups[self.matches.get(self.numbered?)?.groups.clone()];
        let range = groups.get(usize::from(number).checked_sub(1)?)?.clone()?;
        self.text.get(range)
    }

    /// A named group: of the newest match whose pattern has it. One that took no part is empty.
    pub(crate) fn named(&self, name: &str) -> Option<&[u8]> {
        self.named_since(0, name)
    }

    /// The same, of the matches from this one on.
    pub(crate) fn named_since(&self, first: usize, name: &str) -> Option<&[u8]> {
        self.matches.get(first..)?.iter().rev().find_map(|found| {
            let group = self.groups[found.groups.clone()].get(found.pattern.regex.group(name)?)?;
            Some(group.clone().and_then(|range| self.text.get(range)).unwrap_or_default())
        })
    }

    /// How much memory it holds.
    pub(crate) fn capacity(&self) -> usize {
        self.text.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(source: &str) -> Arc<Pattern> {
        Arc::new(Pattern::new(source, false).expect("a regex"))
    }

    #[test]
    fn numbers_are_of_the_newest_match_and_names_outlive_it() {
        let mut captures = Captures::default();
        assert_eq!(captures.numbered(1), None);
        assert!(captures.matches(&pattern(r"^(?P<user>\w+)\.(x)?(org)$"), b"kim.org"));
        assert_eq!(captures.named("user"), Some(&b"kim"[..]));
        assert_eq!(captures.numbered(2), None);
        assert_eq!(captures.numbered(3), Some(&b"org"[..]));
        assert!(!captures.matches(&pattern("(z)"), b"/a/b"));
        assert!(captures.matches(&pattern("^/(.)/(.)"), b"/a/b"));
        assert_eq!(captures.numbered(1), Some(&b"a"[..]));
        assert_eq!(captures.numbered(2), Some(&b"b"[..]));
        assert_eq!(captures.named("user"), Some(&b"kim"[..]));
        assert!(captures.matches(&pattern("a"), b"/a/b"));
        assert_eq!(captures.numbered(1), None);
        assert_eq!(captures.numbered(0), None);
        assert!(captures.matches(&pattern("/(?P<user>b)"), b"/a/b"));
        assert_eq!(captures.named("user"), Some(&b"b"[..]));
        assert_eq!(captures.named("USER"), Some(&b"b"[..]));
        captures.clear();
        assert_eq!(captures.named("user"), None);
    }

    #[test]
    fn a_failed_expression_of_a_script_takes_the_numbers_away_and_leaves_the_names() {
        let mut captures = Captures::default();
        assert!(captures.matches_or_forgets(&pattern("(?P<user>k)(z)?"), b"k"));
        assert_eq!(captures.numbered(1), Some(&b"k"[..]));
        let mark = captures.count();
        assert!(!captures.matches_or_forgets(&pattern("(z)"), b"k"));
        assert_eq!(captures.numbered(1), None);
        assert_eq!(captures.named("user"), Some(&b"k"[..]));
        assert_eq!(captures.named_since(mark, "user"), None);
        assert!(captures.matches_or_forgets(&pattern("(?P<user>z)?k"), b"k"));
        assert_eq!(captures.named("user"), Some(&b""[..]), "it took no part");
    }
}
