//! What regular expressions caught: `$1` and `$name`. Positions in copied text, so that an exchange borrows
//! nothing.

use std::cell::{Cell, RefCell};
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
    /// Named groups that the keys of `map`s have set, each once.
    mapped: RefCell<Vec<Mapped>>,
    /// How many matches there have been, those of `map`s among them.
    count: Cell<usize>,
    /// Whether an expression could not be decided within its bound.
    is_exhausted: bool,
    /// Whether an expression of a variable (`map`) could not be decided; that is logged where the variable is made.
    is_variable_exhausted: Cell<bool>,
    /// The match that `$1` is of; `None` where a script's expression has failed since.
    numbered: Option<usize>,
}

#[derive(Clone, Debug)]
struct Match {
    pattern: Arc<Pattern>,
    groups: Range<usize>,
    /// How many there were before it.
    at: usize,
}

/// What the key of a `map` has set.
#[derive(Clone, Debug)]
struct Mapped {
    name: String,
    value: Vec<u8>,
    /// How many matches there were before.
    at: usize,
}

impl Captures {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.groups.clear();
        self.matches.clear();
        self.mapped.get_mut().clear();
        self.count.set(0);
        self.numbered = None;
        self.is_exhausted = false;
        self.is_variable_exhausted.set(false);
    }

    /// Whether an expression could not be decided within its bound: then the request cannot be, either.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.is_exhausted || self.is_variable_exhausted.get()
    }

    /// A variable could not be determined, which is logged; whether it is the first one.
    pub(crate) fn exhaust_variable(&self) -> bool {
        !self.is_variable_exhausted.replace(true)
    }

    /// Whether a variable could not be determined.
    pub(crate) const fn is_variable_exhausted(&self) -> bool {
        self.is_variable_exhausted.get()
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
        let at = self.next();
        self.matches.push(Match { pattern: Arc::clone(pattern), groups, at });
        true
    }

    /// The number of the match that is noted now.
    fn next(&self) -> usize {
        self.count.replace(self.count.get() + 1)
    }

    /// Takes over the named groups of a `map`'s key that has matched: they are variables of the request.
    pub(crate) fn note_mapped(&self, key: &Self) {
        for found in &key.matches {
            let names = found.pattern.regex.names().zip(&key.groups[found.groups.clone()]);
            for (name, range) in names.filter_map(|(name, range)| Some((name?, range))) {
                let value = range.clone().and_then(|range| key.text.get(range)).unwrap_or_default();
                let at = self.next();
                let mut mapped = self.mapped.borrow_mut();
                mapped.retain(|other| !other.name.eq_ignore_ascii_case(name));
                mapped.push(Mapped { name: name.to_owned(), value: value.to_vec(), at });
            }
        }
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
        self.count.get()
    }

    /// `$1` … `$9`: of the newest match.
    pub(crate) fn numbered(&self, number: u8) -> Option<&[u8]> {
        let groups = &self.groups[self.matches.get(self.numbered?)?.groups.clone()];
        let range = groups.get(usize::from(number).checked_sub(1)?)?.clone()?;
        self.text.get(range)
    }

    /// Appends a named group: of the newest match whose pattern has it, from this one on. One that took no part is
    /// empty. Returns whether there is one.
    pub(crate) fn push_named(&self, first: usize, name: &str, out: &mut Vec<u8>) -> bool {
        let own = self.matches.iter().rev().find_map(|found| {
            let group = self.groups[found.groups.clone()].get(found.pattern.regex.group(name)?)?;
            let value = group.clone().and_then(|range| self.text.get(range)).unwrap_or_default();
            Some((found.at, value))
        });
        let mapped = self.mapped.borrow();
        let other = mapped.iter().find(|other| other.name.eq_ignore_ascii_case(name));
        let other = other.map(|other| (other.at, &*other.value));
        let newest = own.into_iter().chain(other).max_by_key(|(at, _)| *at);
        let Some((_, value)) = newest.filter(|(at, _)| *at >= first) else { return false };
        out.extend_from_slice(value);
        true
    }

    /// How much memory it holds.
    pub(crate) fn capacity(&self) -> usize {
        self.text.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named_since(captures: &Captures, first: usize, name: &str) -> Option<String> {
        let mut out = Vec::new();
        let is_there = captures.push_named(first, name, &mut out);
        is_there.then(|| String::from_utf8(out).expect("text"))
    }

    fn named(captures: &Captures, name: &str) -> Option<String> {
        named_since(captures, 0, name)
    }

    fn pattern(source: &str) -> Arc<Pattern> {
        Arc::new(Pattern::new(source, false).expect("a regex"))
    }

    #[test]
    fn numbers_are_of_the_newest_match_and_names_outlive_it() {
        let mut captures = Captures::default();
        assert_eq!(captures.numbered(1), None);
        assert!(captures.matches(&pattern(r"^(?P<user>\w+)\.(x)?(org)$"), b"kim.org"));
        assert_eq!(named(&captures, "user").as_deref(), Some("kim"));
        assert_eq!(captures.numbered(2), None);
        assert_eq!(captures.numbered(3), Some(&b"org"[..]));
        assert!(!captures.matches(&pattern("(z)"), b"/a/b"));
        assert!(captures.matches(&pattern("^/(.)/(.)"), b"/a/b"));
        assert_eq!(captures.numbered(1), Some(&b"a"[..]));
        assert_eq!(captures.numbered(2), Some(&b"b"[..]));
        assert_eq!(named(&captures, "user").as_deref(), Some("kim"));
        assert!(captures.matches(&pattern("a"), b"/a/b"));
        assert_eq!(captures.numbered(1), None);
        assert_eq!(captures.numbered(0), None);
        assert!(captures.matches(&pattern("/(?P<user>b)"), b"/a/b"));
        assert_eq!(named(&captures, "user").as_deref(), Some("b"));
        assert_eq!(named(&captures, "USER").as_deref(), Some("b"));
        captures.clear();
        assert_eq!(named(&captures, "user"), None);
    }

    #[test]
    fn a_failed_expression_of_a_script_takes_the_numbers_away_and_leaves_the_names() {
        let mut captures = Captures::default();
        assert!(captures.matches_or_forgets(&pattern("(?P<user>k)(z)?"), b"k"));
        assert_eq!(captures.numbered(1), Some(&b"k"[..]));
        let mark = captures.count();
        assert!(!captures.matches_or_forgets(&pattern("(z)"), b"k"));
        assert_eq!(captures.numbered(1), None);
        assert_eq!(named(&captures, "user").as_deref(), Some("k"));
        assert_eq!(named_since(&captures, mark, "user"), None);
        assert!(captures.matches_or_forgets(&pattern("(?P<user>z)?k"), b"k"));
        assert_eq!(named(&captures, "user").as_deref(), Some(""), "it took no part");
    }

    #[test]
    fn the_newest_of_a_map_and_of_the_others_holds() {
        let mut captures = Captures::default();
        let mapped = |captures: &Captures, text: &[u8]| {
            let mut key = Captures::default();
            assert!(key.matches(&pattern("(?P<id>k.)(?P<none>z)?(x)?"), text));
            captures.note_mapped(&key);
        };
        mapped(&captures, b"k1");
        assert_eq!(named(&captures, "ID").as_deref(), Some("k1"));
        assert_eq!(named(&captures, "none").as_deref(), Some(""), "it took no part");
        assert_eq!(captures.numbered(1), None, "numbers are the map's own");
        assert!(captures.matches(&pattern("(?P<id>l.)"), b"l2"));
        assert_eq!(named(&captures, "id").as_deref(), Some("l2"));
        mapped(&captures, b"k3");
        assert_eq!(named(&captures, "id").as_deref(), Some("k3"));
        assert_eq!(named_since(&captures, captures.count(), "id"), None);
        captures.clear();
        assert_eq!(named(&captures, "id"), None);
    }
}
