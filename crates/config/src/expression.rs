//! A compiled regular expression: compared as text where that is all it says, else matched in linear time where it can be, and by backtracking within a bound where
//! it asks for look-around, back references or atomic groups.

use std::ops::Range;

use regex_automata::Input;
use regex_automata::meta::{Config, Regex};
use regex_automata::util::primitives::{NonMaxUsize, PatternID};
use regex_automata::util::syntax;
use regex_syntax::hir::Hir;

use crate::listed::Listed;
use crate::literal::Literal;
use crate::needed::{Needed, needed};

/// Memory that one compiled expression may take.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// The ends of so many groups, the whole match among them, are noted without an allocation.
const GROUPS_INLINE: usize = 10;
/// How often one match may go back (V31). Sites need hundreds; beyond it there is no result.
const BACKTRACKS_MAX: usize = 50_000;

/// A compiled expression. It matches bytes, whatever their charset.
#[derive(Debug)]
pub struct Expression(Kind);

#[derive(Debug)]
enum Kind {
    /// A text without groups.
    Literal(Literal),
    /// One of a long list, compiled when it is first needed.
    Listed(Listed),
    /// Linear in the length of the text.
    Linear { regex: Regex, needed: Option<Needed> },
    /// With backtracking.
    Backtracking {
        regex: Box<fancy_regex::Regex>,
        /// Whether the text is read as UTF-8; else each byte is a character of its own.
        is_utf8: bool,
    },
}

/// What matching came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matched {
    /// It matches.
    Yes,
    /// It does not.
    No,
    /// It could not be found out within the bound: the caller must not take it for either.
    Exhausted,
}

impl Expression {
    /// For linear matching; the error is a text.
    pub(crate) fn linear(text: &str, is_utf8: bool, ignore_case: bool) -> Result<Self, String> {
        // Beyond ASCII, other letters may be the same but for their case.
        let literal = if is_utf8 { None } else { Self::literal(text, ignore_case) };
        literal.map_or_else(|| Self::compiled(text, is_utf8, ignore_case), Ok)
    }

    /// A text without groups, if it is one.
    pub(crate) fn literal(text: &str, ignore_case: bool) -> Option<Self> {
        Literal::new(text, ignore_case).map(|literal| Self(Kind::Literal(literal)))
    }

    /// Compiles for the linear engine.
    pub(crate) fn compiled(text: &str, is_utf8: bool, ignore_case: bool) -> Result<Self, String> {
        let hir = parse(text, is_utf8, ignore_case)?;
        // Beyond ASCII, a letter may have more than two cases.
        let needed = if is_utf8 { None } else { needed(&hir) };
        compile(&hir).map(|regex| Self(Kind::Linear { regex, needed }))
    }

    /// For linear matching, compiled when it is first needed; `None` for what is compiled at once.
    pub(crate) fn listed(text: &str, ignore_case: bool) -> Option<Self> {
        Listed::new(text, ignore_case).map(|listed| Self(Kind::Listed(listed)))
    }

    /// Compiles what linear matching cannot do; `None` where this engine cannot, either.
    pub(crate) fn backtracking(text: &str, is_utf8: bool, ignore_case: bool) -> Option<Self> {
        let text = if is_utf8 { text.to_owned() } else { characters(text.as_bytes()) };
        let regex = fancy_regex::RegexBuilder::new(&text)
            .case_insensitive(ignore_case)
            .backtrack_limit(BACKTRACKS_MAX)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .delegate_dfa_size_limit(COMPILED_BYTES_MAX)
            .build()
            .ok()?;
        Some(Self(Kind::Backtracking { regex: Box::new(regex), is_utf8 }))
    }

    /// Whether it matches, without its groups.
    pub fn matches(&self, text: &[u8]) -> Matched {
        let is_match = match &self.0 {
            Kind::Literal(literal) => literal.is_match(text),
            Kind::Listed(listed) => listed.regex(text).is_some_and(|regex| regex.is_match(text)),
            Kind::Linear { regex, .. } => regex.is_match(text),
            Kind::Backtracking { .. } => return self.captures(text, &mut Vec::new()),
        };
        if is_match { Matched::Yes } else { Matched::No }
    }

    /// Whether it is known to match.
    #[cfg(test)]
    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        self.matches(text) == Matched::Yes
    }

    /// How many groups there are, the whole match among them.
    pub fn captures_len(&self) -> usize {
        match &self.0 {
            Kind::Literal(_) => 1,
            Kind::Listed(listed) => listed.groups().len() + 1,
            Kind::Linear { regex, .. } => regex.captures_len(),
            Kind::Backtracking { regex, .. } => regex.captures_len(),
        }
    }

    /// Which of the groups 1, 2, … has this name, in any case.
    pub fn group(&self, name: &str) -> Option<usize> {
        self.names().position(|other| other.is_some_and(|other| other.eq_ignore_ascii_case(name)))
    }

    /// The names of the groups 1, 2, …
    pub fn names(&self) -> impl Iterator<Item = Option<&str>> {
        let (listed, linear, backtracking) = match &self.0 {
            Kind::Literal(_) => (None, None, None),
            Kind::Listed(listed) => (Some(listed.groups()), None, None),
            Kind::Linear { regex, .. } => {
                (None, Some(regex.group_info().pattern_names(PatternID::ZERO).skip(1)), None)
            }
            Kind::Backtracking { regex, .. } => (None, None, Some(regex.capture_names().skip(1))),
        };
        let listed = listed.into_iter().flatten();
        listed.chain(linear.into_iter().flatten()).chain(backtracking.into_iter().flatten())
    }

    /// Strings in lower case: a text that matches has one of them, in any case. `None` where it needs none.
    pub(crate) fn needed(&self) -> Option<Vec<&[u8]>> {
        match &self.0 {
            Kind::Literal(literal) => Some(vec![literal.text()]),
            Kind::Listed(listed) => Some(listed.needed().collect()),
            Kind::Linear { needed, .. } => {
                needed.as_ref().map(|texts| texts.iter().map(|text| &**text).collect())
            }
            Kind::Backtracking { .. } => None,
        }
    }

    /// Whether it matches; if so, the groups 1, 2, … are added: `None` for one that took no part.
    pub fn captures(&self, text: &[u8], groups: &mut Vec<Option<Range<usize>>>) -> Matched {
        match &self.0 {
            Kind::Literal(literal) if literal.is_match(text) => Matched::Yes,
            Kind::Literal(_) => Matched::No,
            Kind::Listed(listed) => match listed.regex(text) {
                Some(regex) => find(regex, text, groups),
                None => Matched::No,
            },
            Kind::Linear { regex, .. } => find(regex, text, groups),
            Kind::Backtracking { regex, is_utf8 } => backtrack(regex, *is_utf8, text, groups),
        }
    }
}

/// Parses for the linear engine.
pub(crate) fn parse(text: &str, is_utf8: bool, ignore_case: bool) -> Result<Hir, String> {
    let config = syntax::Config::new().unicode(is_utf8).utf8(false).case_insensitive(ignore_case);
    syntax::parse_with(text, &config).map_err(|error| error.to_string())
}

/// Compiles for the linear engine.
pub(crate) fn compile(hir: &Hir) -> Result<Regex, String> {
    let config = Config::new()
        .utf8_empty(false)
        .nfa_size_limit(Some(COMPILED_BYTES_MAX))
        .hybrid_cache_capacity(COMPILED_BYTES_MAX);
    Regex::builder().configure(config).build_from_hir(hir).map_err(|error| {
        error.size_limit().map_or_else(
            || error.to_string(),
            |limit| format!("Compiled regex exceeds size limit of {limit} bytes."),
        )
    })
}

fn find(regex: &Regex, text: &[u8], groups: &mut Vec<Option<Range<usize>>>) -> Matched {
    let count = regex.captures_len();
    if count == 1 {
        return if regex.is_match(text) { Matched::Yes } else { Matched::No };
    }
    let mut inline = [None; 2 * GROUPS_INLINE];
    let mut many;
    let ends = if let Some(ends) = inline.get_mut(..2 * count) {
        ends
    } else {
        many = vec![None; 2 * count];
        &mut many
    };
    if regex.search_slots(&Input::new(text), ends).is_none() {
        return Matched::No;
    }
    let group = |ends: &[Option<NonMaxUsize>; 2]| Some(ends[0]?.get()..ends[1]?.get());
    groups.extend(ends.as_chunks().0.iter().skip(1).map(group));
    Matched::Yes
}

fn backtrack(
    regex: &fancy_regex::Regex,
    is_utf8: bool,
    text: &[u8],
    groups: &mut Vec<Option<Range<usize>>>,
) -> Matched {
    // Nearly all that is matched is ASCII, and then both readings are the same.
    let plain = std::str::from_utf8(text).ok().filter(|text| is_utf8 || text.is_ascii());
    let written;
    let read = match plain {
        Some(plain) => plain,
        None if is_utf8 => return Matched::No,
        None => {
            written = characters(text);
            &written
        }
    };
    let found = match regex.captures(read) {
        Ok(Some(found)) => found,
        Ok(None) => return Matched::No,
        Err(_) => return Matched::Exhausted,
    };
    // If the text had to be converted, each character represents one byte.
    let place = |at: usize| if plain.is_some() { at } else { read[..at].chars().count() };
    groups.extend(
        (1..found.len())
            .map(|n| found.get(n).map(|group| place(group.start())..place(group.end()))),
    );
    Matched::Yes
}

/// Each byte as the character of its number.
fn characters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str, text: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
        let expression = Expression::backtracking(source, false, false).expect("an expression");
        let mut groups = Vec::new();
        let is_match = expression.captures(text, &mut groups) == Matched::Yes;
        is_match.then(|| {
            groups.into_iter().map(|group| group.map(|range| text[range].to_vec())).collect()
        })
    }

    #[test]
    fn groups_of_both_engines_are_ranges_of_bytes() {
        assert_eq!(found(r"^/(?!x)(.)(\w+)?$", b"/\xff"), Some(vec![Some(b"\xff".to_vec()), None]));
        assert_eq!(found(r"(?<=\xe9)(.*)$", b"caf\xe9\xe9s"), Some(vec![Some(b"\xe9s".to_vec())]));
        assert_eq!(found(r"^(a|b)\1$", b"bb"), Some(vec![Some(b"b".to_vec())]));
        assert_eq!(found(r"^(a|b)\1$", b"ba"), None);
        let linear = Expression::linear("(?P<x>a)(b)?", false, true).expect("an expression");
        let mut groups = Vec::new();
        assert_eq!(linear.captures(b"-A", &mut groups), Matched::Yes);
        assert_eq!((groups, linear.group("X")), (vec![Some(1..2), None], Some(0)));
    }

    /// V31
    #[test]
    fn an_expression_that_would_take_for_ever_has_no_verdict() {
        let expression = Expression::backtracking(r"^(?:a|a)*(?=b)$", false, false).expect("one");
        let text = "a".repeat(4000);
        assert_eq!(expression.captures(text.as_bytes(), &mut Vec::new()), Matched::Exhausted);
        assert!(!expression.is_match(text.as_bytes()));
    }
}
