//! Regular expressions of the configuration: made once, matched in linear time.

use std::sync::Arc;

use regex::bytes::RegexBuilder;

use crate::look_ahead::without_look_ahead;
use crate::model::Pattern;

/// Memory that one compiled expression may take.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// A longer expression is an error.
const SOURCE_BYTES_MAX: usize = 16 * 1024;

/// Why an expression cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPattern {
    /// What is wrong.
    pub reason: String,
    /// Whether it asks for what this engine leaves out on purpose.
    pub is_not_offered: bool,
}

/// What nginx users may miss, as a note.
pub const NOT_OFFERED: &str = "look-around and back references are not offered, as matching takes linear time; \"(?!word)\" is, before \".*\" or the end";

/// Compiles an expression. Bytes are matched, and `.` is any byte, as in nginx; `(*UTF8)` in front
/// makes it any character.
pub fn pattern(source: &str, ignore_case: bool) -> Result<Arc<Pattern>, BadPattern> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(BadPattern { reason: "it is too long".to_owned(), is_not_offered: false });
    }
    let utf8 = source.strip_prefix("(*UTF8)").or_else(|| source.strip_prefix("(*UTF)"));
    let build = |text: &str| {
        RegexBuilder::new(text)
            .unicode(utf8.is_some())
            .case_insensitive(ignore_case)
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(COMPILED_BYTES_MAX)
            .build()
    };
    let text = utf8.unwrap_or(source);
    let made = match build(text) {
        Err(error) => without_look_ahead(text).and_then(|text| build(&text).ok()).ok_or(error),
        made => made,
    };
    match made {
        Ok(regex) => Ok(Arc::new(Pattern { source: source.to_owned(), regex })),
        Err(error) => {
            let text = error.to_string();
            // The engine draws its own picture; its last line is the reason.
            let last = text.lines().last().unwrap_or_default();
            let reason = last.strip_prefix("error: ").unwrap_or(last).to_owned();
            let is_not_offered =
                ["look-around", "backreference"].iter().any(|word| reason.contains(word))
                    || ["(?>", "++", "*+", "?+"].iter().any(|word| source.contains(word));
            Err(BadPattern { reason, is_not_offered })
        }
    }
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
    fn what_cannot_be_matched_in_linear_time_is_refused_with_a_reason() {
        for source in ["(?=a)", "(?<!a)b", r"(a)\1", "(?>a)b"] {
            assert!(pattern(source, false).unwrap_err().is_not_offered, "{source}");
        }
        for source in ["(", "[a", "a{999}{999}{999}"] {
            assert!(!pattern(source, false).unwrap_err().is_not_offered, "{source}");
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
