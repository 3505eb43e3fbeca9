//! Expressions as PCRE reads them, written for the engines here, which read some of the same text in another way: in a
//! class, `&&`, `--`, `~~` and `[` are characters and no operations on sets.

use std::borrow::Cow;

mod class;
mod group;

/// An expression that the engines read as PCRE reads its source.
#[derive(Debug)]
pub(crate) struct Translated {
    /// The expression.
    pub(crate) text: String,
    /// Whether something repeats without giving back (`a++`), which the linear engine would take for two repetitions.
    pub(crate) is_possessive: bool,
}

/// Translates an expression; the error is the reason why it cannot be used.
pub(crate) fn translated(source: &str, is_utf8: bool) -> Result<Translated, String> {
    // PCRE reads bytes, unless it is told that they are UTF-8: each is a character of its own.
    let source: Cow<'_, str> = if is_utf8 || source.is_ascii() {
        Cow::Borrowed(source)
    } else {
        Cow::Owned(source.bytes().map(char::from).collect())
    };
    let source = unquoted(&source);
    let mut reader = Reader {
        rest: &source,
        out: String::with_capacity(source.len()),
        groups: 0,
        is_spaced: vec![false],
        is_possessive: false,
    };
    while !reader.rest.is_empty() {
        reader.item()?;
    }
    Ok(Translated { text: reader.out, is_possessive: reader.is_possessive })
}

/// Without `\Q…\E`: what stands between them is escaped instead.
fn unquoted(source: &str) -> Cow<'_, str> {
    if !source.contains(r"\Q") && !source.contains(r"\E") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        rest = match behind.as_bytes().first() {
            Some(b'Q') => {
                let (quoted, behind) = behind[1..].split_once(r"\E").unwrap_or((&behind[1..], ""));
                for quoted in quoted.chars() {
                    let is_plain = quoted.is_alphanumeric() || !quoted.is_ascii();
                    out.extend((!is_plain).then_some('\\').into_iter().chain([quoted]));
                }
                behind
            }
            Some(b'E') => &behind[1..],
            // An escape and what it is for, so that an escaped backslash opens no quotation.
            _ => {
                let end = behind.chars().next().map_or(0, char::len_utf8);
                out.push('\\');
                out.push_str(&behind[..end]);
                &behind[end..]
            }
        };
    }
    out.push_str(rest);
    Cow::Owned(out)
}

struct Reader<'s> {
    rest: &'s str,
    out: String,
    /// How many groups that capture have been opened.
    groups: usize,
    /// For each open group, whether blanks and comments in it mean nothing (`(?x)`).
    is_spaced: Vec<bool>,
    is_possessive: bool,
}

impl<'s> Reader<'s> {
    /// Reads what comes next outside of classes.
    fn item(&mut self) -> Result<(), String> {
        let Some(first) = self.rest.chars().next() else { return Ok(()) };
        match first {
            '\\' => return self.escape(),
            '[' => return self.class(),
            '(' => return self.group(),
            '{' => self.brace(),
            '*' | '+' | '?' => {
                self.copy(1);
                self.possessive();
            }
            '#' if self.is_spaced.last() == Some(&true) => {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            }
            ')' => {
                self.is_spaced.pop();
                self.copy(1);
            }
            other => {
                self.push(other);
                self.rest = &self.rest[other.len_utf8()..];
            }
        }
        Ok(())
    }

    /// Writes a character that is not ASCII by its number.
    fn push(&mut self, plain: char) {
        if plain.is_ascii() {
            self.out.push(plain);
        } else {
            self.push_code(u32::from(plain));
        }
    }

    /// Takes what stands there as it is.
    fn copy(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.out.push_str(taken);
        self.rest = rest;
    }

    /// Whether this comes next; if so, it is behind us.
    fn skip(&mut self, text: &str) -> bool {
        let behind = self.rest.strip_prefix(text);
        self.rest = behind.unwrap_or(self.rest);
        behind.is_some()
    }

    /// What stands before the next `end`; both are behind us then.
    fn until(&mut self, end: char) -> Result<&'s str, String> {
        let (inside, behind) =
            self.rest.split_once(end).ok_or_else(|| format!("\"{end}\" is missing"))?;
        self.rest = behind;
        Ok(inside)
    }

    /// A number of repetitions, or a brace that is a character.
    fn brace(&mut self) {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let inside = self.rest[1..].split_once('}').map_or("", |(inside, _)| inside);
        let is_repetition = match inside.split_once(',') {
            Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
            None => is_number(inside),
        };
        if is_repetition {
            self.copy(inside.len() + 2);
            self.possessive();
        } else {
            self.out.push('\\');
            self.copy(1);
        }
    }

    /// Takes the sign behind a repetition: less rather than more, or without giving back.
    fn possessive(&mut self) {
        if self.rest.starts_with('?') {
            self.copy(1);
        } else if self.rest.starts_with('+') {
            self.is_possessive = true;
            self.copy(1);
        }
    }

    /// An escape outside of classes.
    fn escape(&mut self) -> Result<(), String> {
        self.rest = &self.rest[1..];
        let Some(first) = self.rest.chars().next() else {
            return Err("a backslash is at its end".to_owned());
        };
        match first {
            'R' => self.replace(1, r"(?:\r\n|[\n\x0b\f\r\x85])"),
            'N' => self.replace(1, r"[^\n]"),
            'd' | 'D' | 'h' | 'H' | 's' | 'S' | 'v' | 'V' | 'w' | 'W' => {
                let negation = if first.is_ascii_uppercase() { "^" } else { "" };
                let kind = kind(first);
                self.replace(1, &format!("[{negation}{kind}]"));
            }
            'g' => return self.reference(),
            'k' => {
                self.rest = &self.rest[1..];
                return self.named_reference();
            }
            'p' | 'P' | 'u' | 'U' => self.property(),
            '1'..='9' => {
                self.out.push('\\');
                self.copy(1);
            }
            _ => match self.coded()? {
                Some(code) => self.push_code(code),
                None => self.plain_escape(first),
            },
        }
        Ok(())
    }

    /// Replaces what stands there.
    fn replace(&mut self, bytes: usize, by: &str) {
        self.out.push_str(by);
        self.rest = &self.rest[bytes..];
    }

    /// An escape that the engines know, or a character that means only itself: `\<` is no border of a word.
    fn plain_escape(&mut self, first: char) {
        if first.is_ascii() && !matches!(first, '<' | '>') {
            self.out.push('\\');
        }
        self.push(first);
        self.rest = &self.rest[first.len_utf8()..];
    }

    /// `\p{…}`: its braces are no repetition.
    fn property(&mut self) {
        self.out.push('\\');
        let is_long = self.rest[1..].starts_with('{');
        let end = self.rest.find('}').filter(|_| is_long).map_or(1, |at| at + 1);
        self.copy(end);
    }

    /// A character by its number: `\x41`, `\x{41}`, `\o{101}`, `\0101`, `\cA`. We are behind the backslash.
    fn coded(&mut self) -> Result<Option<u32>, String> {
        let digits = |text: &str, radix: u32, most: usize| {
            text.chars().take(most).take_while(|c| c.is_digit(radix)).count()
        };
        let number = |text: &str, radix: u32| match text {
            "" => Ok(0),
            _ => u32::from_str_radix(text, radix).map_err(|_| format!("\"{text}\" is no number")),
        };
        let (code, length) = match self.rest.as_bytes() {
            [b'x' | b'o', b'{', ..] => {
                let radix = if self.rest.starts_with('x') { 16 } else { 8 };
                self.rest = &self.rest[2..];
                let inside = self.until('}')?;
                return number(inside, radix).map(Some);
            }
            [b'x', ..] => {
                let length = digits(&self.rest[1..], 16, 2);
                (number(&self.rest[1..=length], 16)?, 1 + length)
            }
            [b'0', ..] => {
                let length = digits(self.rest, 8, 3);
                (number(&self.rest[..length], 8)?, length)
            }
            [b'c', control @ 0x20..=0x7e, ..] => (u32::from(control.to_ascii_uppercase() ^ 64), 2),
            [b'e', ..] => (0x1b, 1),
            _ => return Ok(None),
        };
        self.rest = &self.rest[length..];
        Ok(Some(code))
    }

    fn push_code(&mut self, code: u32) {
        let text = if code < 256 { format!(r"\x{code:02x}") } else { format!(r"\x{{{code:x}}}") };
        self.out.push_str(&text);
    }
}

/// What `\w` and its like stand for, as members of a class. To PCRE a letter beyond ASCII is none.
fn kind(letter: char) -> &'static str {
    match letter.to_ascii_lowercase() {
        'd' => "0-9",
        'h' => r"\t\x20\xa0",
        's' => r"\t-\r\x20",
        'v' => r"\n\x0b\f\r\x85",
        _ => "0-9A-Za-z_",
    }
}

#[cfg(test)]
mod tests {
    use crate::pattern::{listed_pattern, pattern};

    /// Expressions, what they match in PCRE, and what they do not.
    const READ: &[(&str, &[&str], &[&str])] = &[
        // In a class, everything but escapes, ranges and names is a character.
        ("[;&&|]", &["x;y", "x|y", "&"], &["xy", ""]),
        ("^[a[b]c]$", &["ac]", "[c]", "bc]"], &["a", "b", "c", "ac"]),
        ("[[]", &["[", "a[0]"], &["]", "a"]),
        ("^[^[]+$", &["a]", "a&&b"], &["[", "a[b"]),
        ("^[a[b]$", &["a", "[", "b"], &["]", "c"]),
        ("^[]a]$", &["]", "a"], &["[", "b"]),
        ("^[^]a]$", &["[", "b"], &["]", "a"]),
        ("^[+--]$", &["+", ",", "-"], &["*", ".", "a"]),
        (r"^[\w~~-]+$", &["a_~-", "~"], &["", "+", "a b"]),
        ("^[a-c-e]$", &["a", "b", "-", "e"], &["d", "f"]),
        (r"^[\w-.]+$", &["a-b.c"], &["a b", "+"]),
        ("^[a&&b~~c]+$", &["a&b~c"], &["d"]),
        (r"^[\]\\^-]+$", &["]^-", r"\"], &["[", "a"]),
        (r"^[\Q]-^\E]+$", &["]-^"], &["a", "["]),
        (r"^[\x41-\x43\104\o{105}\cA\b]+$", &["ABCDE\x01\x08"], &["F", "4", "a"]),
        ("^[ #]+$", &["# "], &["", "\t"]),
        ("(?x)^[ #]+$ # [", &["# "], &["", "\t"]),
        (r"^[\h]\h\H\V\N$", &["\t xyz", "  xxx"], &["\t\t\tab"]),
        (r"^(?=.)\w+$", &["a_1"], &["é", "-"]),
        (r"^(?=.)[\W\d]+$", &["é", "1-"], &["a"]),
        (r"^(?=.)\S+\s$", &["à "], &["à", " "]),
        ("^[[:alpha:][:digit:]_]+$", &["a_1"], &["a:", "["]),
        ("^[[:^alpha:]]+$", &["1["], &["a"]),
        ("^[[:alpha]+$", &["alpha:["], &["]", "b"]),
        ("^[é]+$", &["é", "éé"], &["e", "à"]),
        ("^[à-ü]+$", &["é"], &["e"]),
        ("(*UTF8)^[à-ü]$", &["é"], &["e", "éé"]),
        // References.
        (r"^(a|b)\g1$", &["aa", "bb"], &["ab"]),
        (r"^(a|b)\g{1}1$", &["aa1", "bb1"], &["ab1", "aa"]),
        (r"^(a|b)(c)?\g{-2}$", &["aca", "bb"], &["acc"]),
        (r"^(?<x>a|b)\g{x}\k{x}\k'x'(?P=x)$", &["aaaaa"], &["aaaab"]),
        ("^(?'x'a|b)c$", &["ac"], &["c"]),
        // Characters by their number, and others.
        (r"^\cA\o{101}\x{42}\x43\0104\e$", &["\x01ABC\x084\x1b"], &["AABCD"]),
        (r"^\<a\>$", &["<a>"], &["a"]),
        ("^a{,2}{x}$", &["a{,2}{x}"], &["aa"]),
        (r"^\ba\b{start}$", &[], &["a", " a"]),
        (r"^a\Q.b\E.\Ec$", &["a.bxc"], &["axbxc"]),
        ("^é+$", &["é"], &["éé", "e"]),
        // Options, comments and repetitions that give nothing back.
        ("(?i)^a(?^:a)$", &["aa", "Aa"], &["aA", "AA"]),
        ("^(?^i:a)b$", &["ab", "Ab"], &["aB"]),
        ("^a(?#[(])b$", &["ab"], &["a[b"]),
        ("^a++ab$", &[], &["ab", "aab", "aaab"]),
        ("^a{1,2}+ab$", &["aaab"], &["aab", "ab"]),
        (r"^(a)?(?(1)b|c)$", &["ab", "c"], &["ac", "b"]),
    ];

    #[test]
    fn expressions_mean_what_they_mean_in_pcre() {
        for (source, matching, others) in READ {
            for make in [pattern, listed_pattern] {
                let made = make(source, false).unwrap_or_else(|bad| panic!("{source}: {bad:?}"));
                for (texts, is_match) in [(matching, true), (others, false)] {
                    for text in *texts {
                        let found = made.regex.is_match(text.as_bytes());
                        assert_eq!(found, is_match, "{source} {text}");
                    }
                }
            }
        }
        assert!(pattern("^[;&&|]$", true).is_ok_and(|made| made.regex.is_match(b"|")));
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        for (source, reason) in [
            ("(?<x>a(?P>x)?)", "recursion is not supported"),
            ("(a(?1)?)", "recursion is not supported"),
            ("(a(?-1)?)", "recursion is not supported"),
            ("(?R)", "recursion is not supported"),
            (r"(a)\g<1>", "recursion is not supported"),
            ("[a--b]", "invalid character class range, the start must be <= the end"),
            ("[a", r#"a "[" has no "]""#),
            ("[]", r#"a "[" has no "]""#),
            ("[[:letters:]]", r#"there is no class "letters""#),
            (r"[\y]", r#""\y" is unknown in a class"#),
            (r"a\", "a backslash is at its end"),
            (r"\g{-1}", r#"there is no group "-1""#),
            (r"\x{zz}", r#""zz" is no number"#),
            (r"\x{41", r#""}" is missing"#),
        ] {
            let found = pattern(source, false).map(|_| "nothing").map_err(|bad| bad.reason);
            assert_eq!(found, Err(reason.to_owned()), "{source}");
        }
    }

    #[test]
    fn an_expression_may_end_anywhere() {
        for (source, ..) in READ {
            for (at, _) in source.char_indices() {
                let _ = pattern(&source[..at], false);
                let _ = pattern(&source[at..], true);
            }
        }
    }
}
