//! What regular expressions caught: `$1` and `$name`. Positions in copied text, so that an exchange
//! borrows from nobody.

use std::ops::Range;
use std::sync::Arc;

use sekisho_config::Pattern;

/// The captures of an exchange, in the order of the matches.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    text: Vec<u8>,
    /// Groups 1, 2, … of each match; `None` for one that took no part.
    groups: Vec<Option<Range<usize>>>,
    matches: Vec<Match>,
}

#[derive(Debug)]
struct Match {
    pattern: Arc<Pattern>,
    groups: Range<usize>,
}

impl Captures {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.groups.clear();
        self.matches.clear();
    }

    /// Whether the pattern matches; if so, its captures are the newest.
    pub(crate) fn matches(&mut self, pattern: &Arc<Pattern>, text: &[u8]) -> bool {
        let start = self.groups.len();
        if pattern.regex.captures_len() == 1 {
            if !pattern.regex.is_match(text) {
                return false;
            }
        } else {
            let mut found = pattern.regex.capture_locations();
            if pattern.regex.captures_read(&mut found, text).is_none() {
                return false;
            }
            let base = self.text.len();
            self.text.extend_from_slice(text);
            self.groups.extend(
                (1..found.len()).map(|n| found.get(n).map(|(from, to)| base + from..base + to)),
            );
        }
        let groups = start..self.groups.len();
        self.matches.push(Match { pattern: Arc::clone(pattern), groups });
        true
    }

    /// `$1` … `$9`: of the newest match.
    pub(crate) fn numbered(&self, number: u8) -> Option<&[u8]> {
        let groups = &self.groups[self.matches.last()?.groups.clone()];
        let range = groups.get(usize::from(number).checked_sub(1)?)?.clone()?;
        self.text.get(range)
    }

    /// A named group: of the newest match whose pattern has it.
    pub(crate) fn named(&self, name: &str) -> Option<&[u8]> {
        self.matches.iter().rev().find_map(|found| {
            let names = found.pattern.regex.capture_names().skip(1);
            let index = names.into_iter().position(|other| other == Some(name))?;
            let range = self.groups[found.groups.clone()].get(index)?.clone()?;
            self.text.get(range)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(source: &str) -> Arc<Pattern> {
        let regex = regex::bytes::Regex::new(source).expect("a regex");
        Arc::new(Pattern { source: source.into(), regex })
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
        captures.clear();
        assert_eq!(captures.named("user"), None);
    }
}
