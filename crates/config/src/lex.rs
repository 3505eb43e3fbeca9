//! Text into tokens, exactly as nginx reads it: words (plain or quoted), `;`, `{` and `}`, with the
//! place of each. Knows nothing of directives and never fails for good: after a mistake it goes on.

use std::ops::Range;

/// A word longer than this is an error (nginx stops at 4096).
pub const WORD_BYTES_MAX: usize = 64 * 1024;

/// What the text is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// A word: a directive's name or an argument.
    Word {
        /// Its meaning: quotes taken away, escapes resolved.
        text: Box<[u8]>,
        /// Whether it stood in quotes.
        quoted: bool,
    },
    /// `;`
    Semicolon,
    /// `{`
    Open,
    /// `}`
    Close,
    /// Something that cannot be read; the lexer goes on behind it.
    Mistake(Mistake),
}

/// What the lexer cannot read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// A closing quote with this byte right behind it.
    AfterQuote(u8),
    /// The text ends inside quotes.
    QuoteNotClosed(u8),
    /// A word beyond [`WORD_BYTES_MAX`].
    WordTooLong,
}

/// Reads tokens one by one. Work is linear in the text.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    /// A quoted word has just ended: a separator must follow.
    wants_separator: bool,
}

impl<'a> Lexer<'a> {
    /// A lexer at the beginning of `text`. A byte order mark is skipped.
    pub fn new(text: &'a [u8]) -> Self {
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { text, at, wants_separator: false }
    }

    /// Skips a block of Lua behind its opening brace, the closing one included; `false` if there is none.
    pub fn skip_lua(&mut self) -> bool {
        let mut depth = 1_usize;
        while let Some(byte) = self.peek() {
            let rest = &self.text[self.at..];
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                b'-' if rest.starts_with(b"--") => {
                    let long = long_bracket(&rest[2..]).map(|bytes| bytes + 2);
                    let line = rest.iter().position(|byte| *byte == b'\n');
                    self.at += long.or(line).unwrap_or(rest.len());
                    continue;
                }
                b'[' => {
                    self.at += long_bracket(rest).unwrap_or(1);
                    continue;
                }
                b'"' | b'\'' => match self.quote_end(byte) {
                    Some(end) => self.at = end,
                    None => return false,
                },
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return true;
            }
        }
        false
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_blank(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                // A comment begins only where a word could begin.
                b'#' if !self.wants_separator => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
            self.wants_separator = false;
        }
    }

    /// The end of a plain word that begins here: the next blank, `;` or `{` that is not part of `${`
    /// and not behind a backslash.
    fn plain_end(&self) -> usize {
        let mut at = self.at;
        let mut after_dollar = false;
        while let Some(&byte) = self.text.get(at) {
            match byte {
                b'{' if after_dollar => after_dollar = false,
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' => break,
                b'\\' => {
                    after_dollar = false;
                    at += 1;
                }
                _ => after_dollar = byte == b'$',
            }
            at += 1;
        }
        at.min(self.text.len())
    }

    /// The position of the quote that closes a quoted word.
    fn quote_end(&self, quote: u8) -> Option<usize> {
        let mut at = self.at + 1;
        while let Some(&byte) = self.text.get(at) {
            match byte {
                b'\\' => at += 1,
                _ if byte == quote => return Some(at),
                _ => {}
            }
            at += 1;
        }
        None
    }

    fn word(&mut self, inner: Range<usize>, quoted: bool) -> Token {
        if inner.len() > WORD_BYTES_MAX {
            return Token::Mistake(Mistake::WordTooLong);
        }
        let text = self.text.get(inner).unwrap_or_default();
        Token::Word { text: unescaped(text), quoted }
    }

    fn quoted(&mut self, quote: u8) -> Token {
        let Some(end) = self.quote_end(quote) else {
            self.at = self.text.len();
            return Token::Mistake(Mistake::QuoteNotClosed(quote));
        };
        let inner = self.at + 1..end;
        self.at = end + 1;
        self.wants_separator = true;
        self.word(inner, true)
    }
}

impl Iterator for Lexer<'_> {
    /// A token and the bytes it stands on.
    type Item = (Token, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        self.skip_blank();
        let start = self.at;
        let byte = self.peek()?;
        if self.wants_separator && !matches!(byte, b';' | b'{' | b')') {
            self.wants_separator = false;
            return Some((Token::Mistake(Mistake::AfterQuote(byte)), start..start + 1));
        }
        self.wants_separator = false;
        let token = match byte {
            b';' | b'{' | b'}' => {
                self.at += 1;
                match byte {
                    b';' => Token::Semicolon,
                    b'{' => Token::Open,
                    _ => Token::Close,
                }
            }
            b'"' | b'\'' => self.quoted(byte),
            _ => {
                let end = self.plain_end();
                self.at = end;
                self.word(start..end, false)
            }
        };
        Some((token, start..self.at))
    }
}

/// Backslash escapes as nginx resolves them: `\"`, `\'`, `\\`, `\t`, `\r`, `\n`; any other backslash
/// stays, so that regular expressions need no doubling.
fn unescaped(text: &[u8]) -> Box<[u8]> {
    if memchr::memchr(b'\\', text).is_none() {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = match (byte, bytes.peek()) {
            (b'\\', Some(&next @ (b'"' | b'\'' | b'\\'))) => Some(next),
            (b'\\', Some(b't')) => Some(b'\t'),
            (b'\\', Some(b'r')) => Some(b'\r'),
            (b'\\', Some(b'n')) => Some(b'\n'),
            _ => None,
        };
        if escaped.is_some() {
            bytes.next();
        }
        out.push(escaped.unwrap_or(byte));
    }
    out.into()
}

/// Writes a word so that it is read back as the same word.
pub fn quote(word: &[u8], out: &mut Vec<u8>) {
    let is_plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:=~^*@+,%?&!|<>[]$".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        out.extend_from_slice(word);
        return;
    }
    out.push(b'"');
    for &byte in word {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// The length of a long bracket of Lua, `[[…]]` or `[=[…]=]`, if one begins here; to the end if it is not closed.
fn long_bracket(text: &[u8]) -> Option<usize> {
    let inside = text.strip_prefix(b"[")?;
    let level = inside.iter().take_while(|byte| **byte == b'=').count();
    let inside = inside.get(level..)?.strip_prefix(b"[")?;
    let close: Vec<u8> = [&b"]"[..], &b"=".repeat(level), b"]"].concat();
    let end = inside.windows(close.len()).position(|window| window == close);
    Some(end.map_or(text.len(), |at| 2 + level + at + close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        Lexer::new(text.as_bytes())
            .map(|(token, _)| match token {
                Token::Word { text, quoted: false } => String::from_utf8_lossy(&text).into_owned(),
                Token::Word { text, quoted: true } => {
                    format!("'{}'", String::from_utf8_lossy(&text))
                }
                Token::Semicolon => ";".to_owned(),
                Token::Open => "{".to_owned(),
                Token::Close => "}".to_owned(),
                Token::Mistake(mistake) => format!("{mistake:?}"),
            })
            .collect()
    }

    /// O2: the language is nginx's, down to its tokens.
    #[test]
    fn words_are_read_as_nginx_reads_them() {
        let table: &[(&str, &[&str])] = &[
            ("root /srv;", &["root", "/srv", ";"]),
            ("a{b c;}", &["a", "{", "b", "c", ";", "}"]),
            ("a b}c;", &["a", "b}c", ";"]),
            ("a b#c; # rest\nd;", &["a", "b#c", ";", "d", ";"]),
            ("a 'b c' \"d;e\";", &["a", "'b c'", "'d;e'", ";"]),
            ("a b'c;", &["a", "b'c", ";"]),
            ("a '';", &["a", "''", ";"]),
            ("a ${b}c;", &["a", "${b}c", ";"]),
            ("a $b{", &["a", "$b", "{"]),
            ("a x${y}z${w};", &["a", "x${y}z${w}", ";"]),
            (r"location ~ \.php$ {", &["location", "~", r"\.php$", "{"]),
            (r"a \;b c\ d;", &["a", r"\;b", r"c\ d", ";"]),
            (r#"a "say \"hi\"" 'it\'s';"#, &["a", "'say \"hi\"'", "'it's'", ";"]),
            (r"a \t\\n;", &["a", "\t\\n", ";"]),
            ("a \"x\ny\";", &["a", "'x\ny'", ";"]),
            ("if ($a = 'b') {", &["if", "($a", "=", "'b'", ")", "{"]),
            ("a 'b'{", &["a", "'b'", "{"]),
            ("\u{feff}a;", &["a", ";"]),
            ("a\\", &["a\\"]),
            ("", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(shown(text), *expected, "{text:?}");
        }
    }

    #[test]
    fn mistakes_are_tokens_and_reading_goes_on() {
        assert_eq!(shown("a 'b'c;"), ["a", "'b'", "AfterQuote(99)", "c", ";"]);
        assert_eq!(shown("a 'b'#c"), ["a", "'b'", "AfterQuote(35)"]);
        assert_eq!(shown("a 'b'}"), ["a", "'b'", "AfterQuote(125)", "}"]);
        assert_eq!(shown("a \"b;"), ["a", "QuoteNotClosed(34)"]);
        let long = "x".repeat(WORD_BYTES_MAX + 1);
        assert_eq!(shown(&format!("{long} b")), ["WordTooLong", "b"]);
    }

    #[test]
    fn a_word_knows_where_it_stands() {
        let spans: Vec<_> = Lexer::new(b"a 'b' ${c};").map(|(_, span)| span).collect();
        assert_eq!(spans, [0..1, 2..5, 6..10, 10..11]);
    }
}
