//! The most common look-ahead, as an expression without one: `/\.(?!well-known).*` matches what does not
//! begin with some words, which linear matching can express in another way.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// More bytes in all the words would make the expression long.
const WORDS_BYTES_MAX: usize = 100;

/// The same expression without its look-ahead; `None` where that cannot be done. It can where `(?!…)` holds plain
/// words, and nothing or all of the rest follows in its alternative: `.*`, `(.*)$`, `.+` and the like. The groups stay
/// what they are; only where the whole match ends may differ.
pub(crate) fn without_look_ahead(source: &str) -> Option<String> {
    let (at, depth) = look_ahead(source)?;
    let (before, inside) = (&source[..at], &source[at + 3..]);
    let (words, behind) = words(inside)?;
    let (tail, others) = Tail::of(behind)?;
    if !is_last(others, depth) || (depth > 0 && tail.rest.is_empty()) {
        return None;
    }
    let mut out = format!("{before}{}", tail.open);
    words.guard(!tail.is_some, tail.end == "$", &mut out);
    for piece in [tail.rest, tail.end, others] {
        out.push_str(piece);
    }
    Some(out)
}

/// The position of the only `(?!`, and its depth in groups.
fn look_ahead(source: &str) -> Option<(usize, usize)> {
    let mut found = None;
    for (at, byte, depth) in marks(source) {
        if byte == b'(' && source[at..].starts_with("(?!") && found.replace((at, depth)).is_some() {
            return None;
        }
    }
    found
}

/// The parentheses and bars that mean something, each with the groups around it.
fn marks(source: &str) -> impl Iterator<Item = (usize, u8, usize)> {
    let (mut depth, mut classes, mut is_escaped) = (0_usize, 0_usize, false);
    source.bytes().enumerate().filter_map(move |(at, byte)| {
        if is_escaped {
            is_escaped = false;
            return None;
        }
        match byte {
            b'\\' => is_escaped = true,
            // In a class that is translated, brackets come in pairs.
            b'[' => classes += 1,
            b']' => classes = classes.saturating_sub(1),
            _ if classes > 0 => {}
            b'(' => {
                depth += 1;
                return Some((at, byte, depth - 1));
            }
            b')' => {
                depth = depth.saturating_sub(1);
                return Some((at, byte, depth));
            }
            b'|' => return Some((at, byte, depth)),
            _ => {}
        }
        None
    })
}

/// Whether nothing follows but other alternatives: of the group, and of those around it.
fn is_last(mut text: &str, depth: usize) -> bool {
    for _ in 0..depth {
        if text.starts_with('|') {
            // Where this group closes: the first parenthesis that nothing here has opened.
            let mut open = 0_usize;
            let close = marks(text).find_map(|(at, byte, _)| {
                match byte {
                    b'(' => open += 1,
                    b')' if open == 0 => return Some(at),
                    b')' => open -= 1,
                    _ => {}
                }
                None
            });
            let Some(close) = close else { return false };
            text = &text[close..];
        }
        let Some(rest) = text.strip_prefix(')') else { return false };
        text = rest;
    }
    text.is_empty() || text.starts_with('|')
}

/// Words by their bytes; a node without children ends one.
#[derive(Default)]
struct Words {
    next: BTreeMap<u8, Self>,
    is_end: bool,
}

/// Plain words with `|` between them up to the closing parenthesis, and what follows it.
fn words(inside: &str) -> Option<(Words, &str)> {
    let mut all = Words::default();
    let mut word = Vec::new();
    let mut total = 0;
    let mut bytes = inside.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'|' | b')' => {
                all.add(&std::mem::take(&mut word))?;
                if byte == b')' {
                    return Some((all, &inside[at + 1..]));
                }
            }
            b'\\' => {
                word.push(bytes.next().map(|(_, byte)| byte).filter(u8::is_ascii_punctuation)?);
            }
            b'-' | b'_' | b'/' | b'~' | b'%' | b'=' | b',' | b':' | b'@' => word.push(byte),
            _ if byte.is_ascii_alphanumeric() => word.push(byte),
            _ => return None,
        }
        total += 1;
        if total > WORDS_BYTES_MAX {
            return None;
        }
    }
    None
}

impl Words {
    fn add(&mut self, word: &[u8]) -> Option<()> {
        let mut node = self;
        for byte in word {
            node = node.next.entry(*byte).or_default();
        }
        node.is_end = true;
        (!word.is_empty()).then_some(())
    }

    /// What begins with none of the words, as far as must be read to know it: after each way into the words, the
    /// end or a byte that leads no further.
    fn guard(&self, may_end: bool, is_line: bool, out: &mut String) {
        let mut ways = vec![(String::new(), self)];
        out.push_str("(?:");
        while let Some((way, node)) = ways.pop() {
            let end = if may_end || !way.is_empty() { r"\z|" } else { "" };
            let _ = write!(out, "{way}(?:{end}[^");
            for (byte, child) in &node.next {
                let _ = write!(out, r"\x{byte:02x}");
                if !child.is_end {
                    ways.push((format!(r"{way}\x{byte:02x}"), child));
                }
            }
            out.push_str(if is_line { r"\n])" } else { "])" });
            out.push_str(if ways.is_empty() { ")" } else { "|" });
        }
    }
}

/// What follows the look-ahead: `open` before the guard, the rest behind it.
struct Tail<'s> {
    open: &'s str,
    rest: &'s str,
    end: &'s str,
    /// Whether there must be at least one byte.
    is_some: bool,
}

impl<'s> Tail<'s> {
    /// Reads it off, and what follows it.
    fn of(text: &'s str) -> Option<(Self, &'s str)> {
        let start = match text.strip_prefix("(?") {
            Some(rest) => 3 + rest.find(['>', ':'])?,
            None => usize::from(text.starts_with('(')),
        };
        let (open, text) = text.split_at(start);
        let (is_some, text) = match (text.strip_prefix(".*"), text.strip_prefix(".+")) {
            (Some(text), _) => (false, text),
            (_, Some(text)) => (true, text),
            _ if open.is_empty() => {
                return Some((Self { open, rest: "", end: "", is_some: false }, text));
            }
            _ => return None,
        };
        let (rest, text) = match open {
            "" => (".*", text),
            _ => (".*)", text.strip_prefix(')')?),
        };
        let end = if text.starts_with('$') { "$" } else { "" };
        Some((Self { open, rest, end, is_some }, &text[end.len()..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::pattern;

    fn captured(source: &str, ignore_case: bool, text: &str) -> Option<Vec<Option<String>>> {
        let made = pattern(source, ignore_case).unwrap_or_else(|bad| panic!("{source}: {bad:?}"));
        let mut groups = Vec::new();
        if made.regex.captures(text.as_bytes(), &mut groups) != crate::Matched::Yes {
            return None;
        }
        Some(groups.into_iter().map(|group| group.map(|range| text[range].to_owned())).collect())
    }

    #[test]
    fn hidden_files_but_not_well_known_ones() {
        for source in [
            r"/\.(?!well-known).*",
            r"/\.(?!well-known)",
            r"/\.(?!well-known).*$",
            r"(?:^|/)\.(?!well-known)",
        ] {
            for text in ["/.git/config", "/a/.htaccess", "/.", "/.well", "/.well-knowN", "/.w"] {
                assert!(captured(source, false, text).is_some(), "{source} {text}");
            }
            for text in ["/.well-known", "/.well-known/acme-challenge/x", "/a.b", "/"] {
                assert!(captured(source, false, text).is_none(), "{source} {text}");
            }
            assert!(captured(source, true, "/.Well-KNOWN/x").is_none(), "{source}");
        }
        assert!(captured(r"/\.(?!well-known\/)", false, "/.well-known").is_some());
        assert!(captured(r"/\.(?!well-known\/)", false, "/.well-known/").is_none());
        // One of several dots is enough, as with look-ahead.
        assert!(captured(r"/\.(?!well-known)", false, "/.well-known/.x").is_some());
    }

    #[test]
    fn groups_hold_what_they_would() {
        let group = |text: &str| Some(vec![Some(text.to_owned())]);
        let source = r"^/(?!api|assets/|app\.php)(.*)$";
        for (text, expected) in [
            ("/", group("")),
            ("/x/y", group("x/y")),
            ("/ap", group("ap")),
            ("/app.txt", group("app.txt")),
            ("/assets", group("assets")),
            ("/assets/x", None),
            ("/api", None),
            ("/apis", None),
            ("/app.php/x", None),
        ] {
            assert_eq!(captured(source, false, text), expected, "{text}");
        }
        let source = "^/(?!api)(?<rest>.+)$";
        assert_eq!(captured(source, false, "/"), None);
        assert_eq!(captured(source, false, "/a"), group("a"));
        assert_eq!(captured(source, false, "/api"), None);
    }

    #[test]
    fn it_may_stand_at_the_end_of_an_alternative() {
        // Of the configuration that Drupal sites share.
        let source = r"\.(inc|po)(~|\.sw[op])?$|/(\.(?!well-known).*)|Entries.*|/#.*#$";
        for (text, is_match) in [
            ("/a.inc~", true),
            ("/.git/x", true),
            ("/Entries", true),
            ("/#x#", true),
            ("/.well-known/x", false),
            ("/a.php", false),
        ] {
            assert_eq!(captured(source, false, text).is_some(), is_match, "{text}");
        }
        let groups = captured(source, false, "/.git/x").unwrap();
        assert_eq!(groups, [None, None, Some(".git/x".to_owned())]);
        for (text, is_match) in [("xab", false), ("xac", true), ("xa", true), ("xd)", true)] {
            let found = captured(r"x(?:a(?!b).*|d[)])|y", false, text);
            assert_eq!(found.is_some(), is_match, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_said_otherwise_is_left_alone() {
        for source in [
            r"a(?!b)c",
            r"(a(?!b))",
            r"(a(?!b).*)c",
            r"(a(?!b).*|c)d",
            r"(a(?!b).*)?",
            r"((a(?!b).*)|c)+",
            r"(a(?!b).*",
            r"a(?!b*).*",
            r"a(?!(b)).*",
            r"a(?!).*",
            r"a(?!b|).*",
            r"a(?!b)+",
            r"(?!a)(?!b).*",
            r"a(?!\d).*",
            r"a(?!b$).*",
            r"a(?!b",
            r"[(?!b)]",
            r"\(?!b)",
            r"a(?!b)(.*",
            r"a(?!b)(?.*)",
        ] {
            assert_eq!(without_look_ahead(source), None, "{source}");
        }
        assert_eq!(without_look_ahead(&format!("(?!{})", "a".repeat(101))), None);
        assert!(pattern(&format!("(?!{})", "a".repeat(99)), true).is_ok());
    }
}
