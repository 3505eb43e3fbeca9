//! Text that is replaced in a body (`sub_filter`): the leftmost match counts, and of several at one place the one
//! that the configuration names first, as in nginx. However the body is cut, the result is the same.

/// What is looked for and what comes in its place. Letters of ASCII match in either case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    /// What is looked for; in lower case.
    pattern: Vec<u8>,
    replacement: Vec<u8>,
}

impl Pair {
    /// A pair; `None` where there is nothing to look for.
    pub fn new(pattern: &[u8], replacement: Vec<u8>) -> Option<Self> {
        (!pattern.is_empty()).then(|| Self { pattern: pattern.to_ascii_lowercase(), replacement })
    }
}

/// What the text at a place is.
enum Found {
    /// The pair with this number.
    Pair(usize),
    /// It may become one when more has come.
    Maybe,
    Nothing,
}

/// A body in which text is replaced.
#[derive(Debug)]
pub struct Substituter {
    pairs: Vec<Pair>,
    /// `sub_filter_once`: a pair that was used is not looked for again.
    is_once: bool,
    is_used: Vec<bool>,
    /// Which bytes a match may begin with.
    first: Box<[bool; 256]>,
    /// What may be the beginning of a match.
    held: Vec<u8>,
}

impl Substituter {
    /// Looks for these.
    pub fn new(pairs: Vec<Pair>, is_once: bool) -> Self {
        let is_used = vec![false; pairs.len()];
        let mut made =
            Self { pairs, is_once, is_used, first: Box::new([false; 256]), held: Vec::new() };
        made.note_first();
        made
    }

    fn note_first(&mut self) {
        self.first.fill(false);
        for (pair, is_used) in self.pairs.iter().zip(&self.is_used) {
            if let (Some(byte), false) = (pair.pattern.first(), *is_used) {
                self.first[usize::from(*byte)] = true;
                self.first[usize::from(byte.to_ascii_uppercase())] = true;
            }
        }
    }

    /// Takes a piece of the body; gives what is decided.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.held.is_empty() {
            let rest = self.scan(bytes, out);
            self.held.extend_from_slice(&bytes[rest..]);
            return;
        }
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        let rest = self.scan(&held, out);
        held.drain(..rest);
        self.held = held;
    }

    /// No more comes: what was held is no match.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        // A match that was waited for may hide one that is complete.
        let held = std::mem::take(&mut self.held);
        let mut at = 0;
        while at < held.len() {
            if let Some(pair) = self.complete_at(&held[at..]) {
                at += self.replace(pair, out);
            } else {
                out.push(held[at]);
                at += 1;
            }
        }
    }

    /// How many bytes it holds back.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Replaces in `text`; where it must wait for more.
    fn scan(&mut self, text: &[u8], out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        let mut plain = 0;
        while at < text.len() {
            if !self.first[usize::from(text[at])] {
                at += 1;
                continue;
            }
            match self.find_at(&text[at..]) {
                Found::Nothing => at += 1,
                Found::Maybe => break,
                Found::Pair(pair) => {
                    out.extend_from_slice(&text[plain..at]);
                    at += self.replace(pair, out);
                    plain = at;
                }
            }
        }
        out.extend_from_slice(&text[plain..at]);
        at
    }

    fn replace(&mut self, pair: usize, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&self.pairs[pair].replacement);
        if self.is_once {
            self.is_used[pair] = true;
            self.note_first();
        }
        self.pairs[pair].pattern.len()
    }

    fn live(&self) -> impl Iterator<Item = (usize, &Pair)> {
        self.pairs.iter().enumerate().filter(|(at, _)| !self.is_used[*at])
    }

    fn find_at(&self, text: &[u8]) -> Found {
        for (at, Pair { pattern, .. }) in self.live() {
            let common = pattern.len().min(text.len());
            if text[..common].eq_ignore_ascii_case(&pattern[..common]) {
                return if common == pattern.len() { Found::Pair(at) } else { Found::Maybe };
            }
        }
        Found::Nothing
    }

    fn complete_at(&self, text: &[u8]) -> Option<usize> {
        let mut live = self.live();
        live.find(|(_, Pair { pattern, .. })| {
            text.get(..pattern.len()).is_some_and(|start| start.eq_ignore_ascii_case(pattern))
        })
        .map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(pairs: &[(&str, &str)], is_once: bool, text: &str, cut: usize) -> String {
        let pairs = pairs
            .iter()
            .filter_map(|(from, to)| Pair::new(from.as_bytes(), to.as_bytes().to_vec()));
        let mut filter = Substituter::new(pairs.collect(), is_once);
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(cut) {
            filter.push(piece, &mut out);
            assert!(filter.held_bytes() < 16);
        }
        filter.finish(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_leftmost_match_counts_however_the_text_is_cut() {
        type Row = (&'static [(&'static str, &'static str)], bool, &'static str, &'static str);
        let table: &[Row] = &[
            (&[("foo", "bar")], true, "foofoo", "barfoo"),
            (&[("foo", "bar")], false, "xFOOfOox", "xbarbarx"),
            (&[("foo", "bar")], false, "foofo", "barfo"),
            (&[("abac", "_")], true, "abaabac", "aba_"),
            (&[("ababX", "_")], true, "abababx", "ab_"),
            (&[("aab", "_")], true, "aaaab", "aa_"),
            (&[("A", "B")], false, "CAAC", "CBBC"),
            // Of two at one place the first, of two places the left one.
            (&[("ab", "1"), ("abc", "2")], false, "abcabc", "1c1c"),
            (&[("abc", "2"), ("ab", "1")], false, "abcabx", "21x"),
            (&[("bc", "2"), ("ab", "1")], false, "abc", "1c"),
            // A longer one that does not come hides no shorter one.
            (&[("abcd", "2"), ("ab", "1")], false, "xabc", "x1c"),
            (&[("abcd", "2"), ("bc", "1")], false, "abc", "a1"),
            // Each one once.
            (&[("a", "b"), ("b", "c")], true, "aabb", "bacb"),
            (&[("a", "")], false, "banana", "bnn"),
            (&[("a", "aa")], false, "aa", "aaaa"),
            (&[], false, "text", "text"),
        ];
        for (pairs, is_once, text, expected) in table {
            for cut in 1..=text.len() {
                assert_eq!(
                    replaced(pairs, *is_once, text, cut),
                    *expected,
                    "{pairs:?} {text} by {cut}"
                );
            }
        }
        assert_eq!(Pair::new(b"", Vec::new()), None);
    }
}
