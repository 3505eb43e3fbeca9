//! Regular expressions of the configuration: made once, matched in linear time unless they ask for more.

use std::sync::Arc;

use crate::expression::Expression;
use crate::look_ahead::without_look_ahead;
use crate::model::Pattern;
use crate::pcre::translated;

/// A longer expression is an error.
const SOURCE_BYTES_MAX: usize = 16 * 1024;

/// Why an expression cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPattern {
    /// What is wrong.
    pub reason: String,
}

impl Pattern {
    /// Compiles an expression. Bytes are matched, and `.` is any byte, as in nginx; `(*UTF8)` in front makes it any
    /// character. Only what linear matching cannot do (look-around, back references, atomic groups) is left to an
    /// engine that goes back, within a bound.
    pub fn new(source: &str, ignore_case: bool) -> Result<Self, BadPattern> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(BadPattern { reason: "it is too long".to_owned() });
        }
        let utf8 = source.strip_prefix("(*UTF8)").or_else(|| source.strip_prefix("(*UTF)"));
        let is_utf8 = utf8.is_some();
        let translated =
            translated(utf8.unwrap_or(source), is_utf8).map_err(|reason| BadPattern { reason })?;
        let text = &translated.text;
        let linear = |text: &str| Expression::linear(text, is_utf8, ignore_case);
        let backtracking = || Expression::backtracking(text, is_utf8, ignore_case);
        let made = if translated.is_possessive {
            let reason = || linear(text).err().unwrap_or_else(|| "it is too large".to_owned());
            backtracking().ok_or_else(reason)
        } else {
            linear(text).or_else(|error| {
                let simpler = without_look_ahead(text).and_then(|text| linear(&text).ok());
                let is_too_large = error.contains("size limit");
                simpler.or_else(|| if is_too_large { None } else { backtracking() }).ok_or(error)
            })
        };
        match made {
            Ok(regex) => Ok(Self { source: source.to_owned(), regex }),
            Err(text) => {
                // The engine draws its own picture; its last line is the reason.
                let last = text.lines().last().unwrap_or_default();
                let reason = last.strip_prefix("error: ").unwrap_or(last).to_owned();
                Err(BadPattern { reason })
            }
        }
    }
}

/// An expression of a list that may be long: compiled when it is first needed, if it can be.
pub fn listed_pattern(source: &str, ignore_case: bool) -> Result<Arc<Pattern>, BadPattern> {
    let plain = Expression::literal(source, ignore_case);
    let listed = || {
        let translated = translated(source, false).ok().filter(|made| !made.is_possessive)?;
        Expression::listed(&translated.text, ignore_case)
    };
    match plain.or_else(listed) {
        Some(regex) => Ok(Arc::new(Pattern { source: source.to_owned(), regex })),
        None => pattern(source, ignore_case),
    }
}

/// Compiles an expression that is shared.
pub fn pattern(source: &str, ignore_case: bool) -> Result<Arc<Pattern>, BadPattern> {
    Pattern::new(source, ignore_case).map(Arc::new)
}

/// The names of the groups, read from the text alone.
pub fn group_names(source: &str) -> impl Iterator<Item = &str> {
    source.split("(?").skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix('P').unwrap_or(rest);
        let (open, close) = match rest.as_bytes().first()? {
            b'<' => ('<', '>'),
            b'\'' => ('\'', '\''),
            _ => return None,
        };
        let (name, _) = rest.strip_prefix(open)?.split_once(close)?;
        let is_name =
            !name.is_empty() && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric());
        is_name.then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_as_nginx_users_write_them_are_accepted() {
        for source in [
            r"\.php$",
            r"^/u/(?<id>\d+)/(?P<rest>.*)$",
            r"\.(gif|jpe?g)$",
            r"^\/a\-b",
            "(?i)x",
            r"[^/]+",
        ] {
            assert!(pattern(source, false).is_ok(), "{source}");
        }
        let any = pattern("^a.b$", false).unwrap();
        assert!(any.regex.is_match(b"a\xffb"));
        assert!(pattern("PHP$", true).unwrap().regex.is_match(b"x.php"));
    }

    /// V31
    #[test]
    fn what_linear_matching_cannot_do_is_done_within_a_bound() {
        for (source, text, is_match) in [
            ("a(?=b)", "ab", true),
            ("a(?=b)", "ac", false),
            ("(?<!a)b", "ab", false),
            ("(?<!a)b", "cb", true),
            (r"^(a)\1$", "aa", true),
            ("^(?>a+)ab", "aaab", false),
            ("^a++b", "aab", true),
            (r"^\Qa.b\E(\d)$", "a.b7", true),
            (r"^\Qa.b\E(\d)$", "axb7", false),
            (r"^a\hb[\h]c$", "a\tb c", true),
            (r"^a\R+$", "a\r\n\n", true),
            (r"^\\h$", r"\h", true),
            (r"^\p{N}+$", "123", true),
            (r"^\p{N}+$", "12x", false),
            (r"^/(?:build|tests|config(?!uration)|lib)(?:$|/)", "/config/x", true),
            (r"^/(?:build|tests|config(?!uration)|lib)(?:$|/)", "/configuration/x", false),
            (r"^/(?!(?:media|files)/)(.*\.(?:php|sh))$", "/media/a.php", false),
            (r"^/(?!(?:media|files)/)(.*\.(?:php|sh))$", "/other/a.php", true),
        ] {
            let found =
                pattern(source, false).unwrap_or_else(|bad| panic!("{source}: {}", bad.reason));
            assert_eq!(found.regex.is_match(text.as_bytes()), is_match, "{source} {text}");
        }
        for source in ["(", "[a", "a{999}{999}{999}"] {
            assert!(pattern(source, false).is_err(), "{source}");
        }
        assert!(pattern(&"(".repeat(20_000), false).is_err());
        assert!(pattern(&"(".repeat(10_000), false).is_err());
    }

    #[test]
    fn names_of_groups_are_found() {
        let found: Vec<_> = group_names("(?<a>x)(?:y)(?P<b_1>z)(?<!no)(?'q'w)(?<>)").collect();
        assert_eq!(found, ["a", "b_1", "q"]);
    }
}
