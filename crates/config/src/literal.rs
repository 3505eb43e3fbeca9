//! The simplest regular expressions: a text, and whether it stands at the beginning, at the end or between the borders
//! of words. Lists of tens of thousands of them are read and matched without an engine.

/// A text that is looked for.
#[derive(Debug)]
pub(crate) struct Literal {
    /// In lower case where case does not matter; never empty.
    text: Box<[u8]>,
    ignore_case: bool,
    before: Edge,
    after: Edge,
}

/// What must be on one side of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Edge {
    Anything,
    /// `^` or `$`
    End,
    /// `\b`
    WordBorder,
}

impl Literal {
    /// The expression, if it is one of these.
    pub(crate) fn new(source: &str, ignore_case: bool) -> Option<Self> {
        let (ignore_case, source) = match source.strip_prefix("(?i)") {
            Some(rest) => (true, rest),
            None => (ignore_case, source),
        };
        let (before, mut rest) = edge(source, "^");
        let mut text = Vec::with_capacity(rest.len());
        let after = loop {
            let (after, behind) = edge(rest, "$");
            if behind.is_empty() {
                break after;
            }
            let mut bytes = rest.bytes();
            let byte = match bytes.next()? {
                b'\\' => bytes.next().filter(u8::is_ascii_punctuation)?,
                byte if byte.is_ascii_alphanumeric() => byte,
                byte @ (b' ' | b'-' | b'_' | b'/' | b',' | b':' | b';' | b'=' | b'@' | b'~'
                | b'%' | b'!' | b'"' | b'\'' | b'<' | b'>' | b'&') => byte,
                _ => return None,
            };
            text.push(if ignore_case { byte.to_ascii_lowercase() } else { byte });
            rest = &rest[rest.len() - bytes.len()..];
        };
        let text = text.into_boxed_slice();
        (!text.is_empty()).then_some(Self { text, ignore_case, before, after })
    }

    /// This text in any case, wherever it stands; it is in lower case, and not empty.
    pub(crate) const fn anywhere(text: Box<[u8]>) -> Self {
        Self { text, ignore_case: true, before: Edge::Anything, after: Edge::Anything }
    }

    /// What is looked for.
    pub(crate) const fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether the text is there.
    pub(crate) fn is_match(&self, subject: &[u8]) -> bool {
        let Some(last) = subject.len().checked_sub(self.text.len()) else { return false };
        let from = if self.after == Edge::End { last } else { 0 };
        let to = if self.before == Edge::End { 0 } else { last };
        let first = self.text[0];
        let other = if self.ignore_case { first.to_ascii_uppercase() } else { first };
        let mut at = from;
        while at <= to {
            let Some(found) = memchr::memchr2(first, other, &subject[at..=to]) else {
                return false;
            };
            at += found;
            if self.is_at(subject, at) {
                return true;
            }
            at += 1;
        }
        false
    }

    fn is_at(&self, subject: &[u8], at: usize) -> bool {
        let end = at + self.text.len();
        let found = &subject[at..end];
        let is_equal = if self.ignore_case {
            found.eq_ignore_ascii_case(&self.text)
        } else {
            *found == *self.text
        };
        let holds = |edge, at| edge != Edge::WordBorder || is_word_border(subject, at);
        is_equal && holds(self.before, at) && holds(self.after, end)
    }
}

/// What an expression begins with, and the rest of it.
fn edge<'s>(source: &'s str, end: &str) -> (Edge, &'s str) {
    if let Some(rest) = source.strip_prefix(end) {
        return (Edge::End, rest);
    }
    let border = source.strip_prefix(r"(?:\b)").or_else(|| source.strip_prefix(r"\b"));
    border.map_or((Edge::Anything, source), |rest| (Edge::WordBorder, rest))
}

fn is_word_border(subject: &[u8], at: usize) -> bool {
    let is_word = |byte: &u8| *byte == b'_' || byte.is_ascii_alphanumeric();
    let before = at.checked_sub(1).and_then(|at| subject.get(at)).is_some_and(is_word);
    before != subject.get(at).is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Expression;

    #[test]
    fn it_matches_what_the_engine_matches() {
        let sources = [
            "bot",
            "^bot",
            "bot$",
            "^bot$",
            r"\bbot\b",
            r"(?:\b)a\.bot(?:\b)",
            r"^\-bot",
            "(?i)Bot",
            r"a\/b",
            "x-y_z",
            r"\bbot",
            r"bot\b",
            r"\b\-bot",
        ];
        let subjects = [
            "",
            "bot",
            "Bot",
            "a bot",
            "bots",
            "robot",
            "a.bot",
            "axbot",
            "A.BOT-1",
            "-bot",
            "a/b",
            "x-y_z",
            "bot bot",
            "robot bot",
            "bot_",
            "b",
            "-bot-",
            "a-bot",
            "bo\u{17f}t",
        ];
        for source in sources {
            for ignore_case in [false, true] {
                let literal = Literal::new(source, ignore_case).expect(source);
                let engine = Expression::compiled(source, false, ignore_case).expect(source);
                for subject in subjects {
                    let expected = engine.is_match(subject.as_bytes());
                    let found = literal.is_match(subject.as_bytes());
                    assert_eq!(found, expected, "{source} {ignore_case} {subject}");
                }
            }
        }
    }

    #[test]
    fn what_means_more_is_left_to_the_engine() {
        for source in [
            "",
            "^",
            "$",
            "^$",
            r"\b",
            "a.b",
            "a|b",
            "a*",
            "(a)",
            "[a]",
            r"\d",
            r"a\b\b",
            "^^a",
            "a$b",
            "caf\u{e9}",
            "a{2}",
            "a+",
            "a?",
            r"\Bx",
            "a#b",
            r"\",
            "(?:a)",
            "(?i)",
            r"a\bb",
        ] {
            assert!(Literal::new(source, false).is_none(), "{source}");
        }
    }
}
