//! The text as commands and what stands between them. However it is cut, what comes out is the same, and no more is
//! held than one command may have.

/// What every command begins with.
const OPEN: &[u8] = b"<!--#";
/// nginx's bounds.
const NAME_BYTES_MAX: usize = 32;
const PARAMETERS_MAX: usize = 16;

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// Its name as written.
    pub name: Vec<u8>,
    /// Names and values as written; what is escaped in a value still is.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// All of it as it stood in the text.
    pub raw: Vec<u8>,
}

impl Command {
    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&[u8]> {
        let mut all = self.parameters.iter();
        all.find(|(own, _)| own == name.as_bytes()).map(|(_, value)| &**value)
    }
}

/// What the text has next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Text between commands.
    Text(Vec<u8>),
    /// A command.
    Command(Command),
    /// What begins like a command and is none, up to its end.
    Invalid(Vec<u8>),
}

/// Cuts a text.
#[derive(Debug)]
pub struct Parser {
    value_bytes_max: usize,
    held: Vec<u8>,
    /// How much of it has been given.
    given: usize,
    has_ended: bool,
    /// It is within something that is no command: everything up to `-->` is passed over.
    is_in_invalid: bool,
}

/// What came of looking at the start of a command.
enum Read {
    Command(Command, usize),
    /// More is needed.
    More,
    Invalid,
}

impl Parser {
    /// Nothing has come yet; `value_bytes_max` is `ssi_value_length`.
    pub const fn new(value_bytes_max: usize) -> Self {
        let (given, has_ended, is_in_invalid) = (0, false, false);
        Self { value_bytes_max, held: Vec::new(), given, has_ended, is_in_invalid }
    }

    /// Takes a piece of the text.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.given);
        self.given = 0;
        self.held.extend_from_slice(bytes);
    }

    /// No more comes.
    pub const fn end(&mut self) {
        self.has_ended = true;
    }

    /// How much it holds.
    pub const fn held_bytes(&self) -> usize {
        self.held.len() - self.given
    }

    fn rest(&self) -> &[u8] {
        &self.held[self.given..]
    }

    /// What the text has next; `None` where more has to come, or nothing is left.
    pub fn next_event(&mut self) -> Option<Event> {
        if self.is_in_invalid {
            let Some(end) = find(self.rest(), b"-->") else {
                // What may be the beginning of its end stays.
                let kept = if self.has_ended { 0 } else { self.held_bytes().min(2) };
                self.given = self.held.len() - kept;
                return None;
            };
            self.given += end + 3;
            self.is_in_invalid = false;
        }
        let start = open_at(self.rest(), self.has_ended);
        if start > 0 {
            let text = self.rest()[..start].to_vec();
            self.given += start;
            return Some(Event::Text(text));
        }
        if self.held_bytes() < OPEN.len() {
            return None;
        }
        match self.read() {
            Read::Command(command, bytes) => {
                self.given += bytes;
                Some(Event::Command(command))
            }
            Read::More if !self.has_ended => None,
            Read::More | Read::Invalid => {
                let shown = self.rest()[..self.held_bytes().min(NAME_BYTES_MAX)].to_vec();
                self.is_in_invalid = true;
                self.given += OPEN.len();
                Some(Event::Invalid(shown))
            }
        }
    }

    /// Reads the command at the start of what is held.
    fn read(&self) -> Read {
        let text = self.rest();
        let mut cursor = Cursor { text, at: OPEN.len() };
        cursor.skip_blanks();
        let name = match cursor.word(b"") {
            Some(name) if name.len() > NAME_BYTES_MAX => return Read::Invalid,
            Some([]) => return Read::Invalid,
            Some(name) => name.to_vec(),
            None if text.len() - OPEN.len() > NAME_BYTES_MAX * 2 => return Read::Invalid,
            None => return Read::More,
        };
        let mut parameters = Vec::new();
        loop {
            cursor.skip_blanks();
            match cursor.peek() {
                None => return Read::More,
                Some(b'-') => {
                    return match cursor.rest() {
                        rest if rest.starts_with(b"-->") => {
                            let end = cursor.at + 3;
                            let raw = text[..end].to_vec();
                            Read::Command(Command { name, parameters, raw }, end)
                        }
                        rest if b"-->".starts_with(rest) => Read::More,
                        _ => Read::Invalid,
                    };
                }
                Some(_) if parameters.len() >= PARAMETERS_MAX => return Read::Invalid,
                Some(_) => {}
            }
            let name = match cursor.word(b"=") {
                Some(name) if name.is_empty() || name.len() > NAME_BYTES_MAX => {
                    return Read::Invalid;
                }
                Some(name) => name.to_vec(),
                None if cursor.rest().len() > NAME_BYTES_MAX => return Read::Invalid,
                None => return Read::More,
            };
            cursor.skip_blanks();
            match cursor.peek() {
                None => return Read::More,
                Some(b'=') => cursor.at += 1,
                Some(_) => return Read::Invalid,
            }
            cursor.skip_blanks();
            let quote = match cursor.peek() {
                None => return Read::More,
                Some(quote @ (b'"' | b'\'')) => quote,
                Some(_) => return Read::Invalid,
            };
            cursor.at += 1;
            match cursor.quoted(quote) {
                Some(value) if value.len() > self.value_bytes_max => return Read::Invalid,
                Some(value) => parameters.push((name, value.to_vec())),
                None if cursor.rest().len() > self.value_bytes_max => return Read::Invalid,
                None => return Read::More,
            }
        }
    }
}

struct Cursor<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Cursor<'t> {
    fn rest(&self) -> &'t [u8] {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().iter().take_while(|byte| is_blank(**byte)).count();
    }

    /// Up to a blank, the end of the command or one of `ends`; `None` where that has not come.
    fn word(&mut self, ends: &[u8]) -> Option<&'t [u8]> {
        let rest = self.rest();
        let end =
            rest.iter().position(|byte| is_blank(*byte) || *byte == b'-' || ends.contains(byte))?;
        self.at += end;
        Some(&rest[..end])
    }

    /// Up to the quote that ends it, which is passed.
    fn quoted(&mut self, quote: u8) -> Option<&'t [u8]> {
        let rest = self.rest();
        let mut is_escaped = false;
        for (at, byte) in rest.iter().enumerate() {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                _ if *byte == quote => {
                    self.at += at + 1;
                    return Some(&rest[..at]);
                }
                _ => {}
            }
        }
        None
    }
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Where the next command begins, or may begin.
fn open_at(text: &[u8], has_ended: bool) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|byte| *byte == OPEN[0]) {
        let rest = &text[from + at..];
        let common = rest.len().min(OPEN.len());
        if rest[..common] == OPEN[..common] && (common == OPEN.len() || !has_ended) {
            return from + at;
        }
        from += at + 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str, cut: usize) -> Vec<String> {
        let mut parser = Parser::new(20);
        let mut all: Vec<String> = Vec::new();
        let mut note = |parser: &mut Parser| {
            while let Some(event) = parser.next_event() {
                let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                match (event, all.last_mut()) {
                    (Event::Text(text), Some(last)) if last.starts_with('t') => {
                        *last += &shown(&text);
                    }
                    (Event::Text(text), _) => all.push(format!("t{}", shown(&text))),
                    (Event::Invalid(_), _) => all.push("!".to_owned()),
                    (Event::Command(command), _) => {
                        let mut line = shown(&command.name);
                        for (name, value) in &command.parameters {
                            line += &[" ", &shown(name), "=", &shown(value)].concat();
                        }
                        assert!(command.raw.starts_with(OPEN) && command.raw.ends_with(b"-->"));
                        all.push(line);
                    }
                }
            }
        };
        for piece in text.as_bytes().chunks(cut) {
            parser.push(piece);
            note(&mut parser);
        }
        parser.end();
        note(&mut parser);
        assert_eq!(parser.held_bytes(), 0, "{text}");
        all
    }

    #[test]
    fn commands_are_found_however_the_text_is_cut() {
        let table: &[(&str, &[&str])] = &[
            ("plain", &["tplain"]),
            ("a<!--#echo var=\"x\" -->b", &["ta", "echo var=x", "tb"]),
            ("<!--# else -->", &["else"]),
            ("<!--#endif-->", &["endif"]),
            ("<!--#include virtual='/a-b?c' wait=\"yes\"-->", &["include virtual=/a-b?c wait=yes"]),
            ("<!--#set var = \"a\"\n value='it\\'s' -->", &["set var=a value=it\\'s"]),
            ("<!-- no --><!--", &["t<!-- no --><!--"]),
            ("<<!--#else-->", &["t<", "else"]),
            ("<!--#echo var=x -->y", &["!", "ty"]),
            ("<!--#echo var=\"x\" - ->y-->z", &["!", "tz"]),
            ("<!--#echo var=\"x", &["!"]),
            ("<!--#echo var=\"123456789012345678901\" -->y", &["!", "ty"]),
            (
                "<!--#echo var=\"12345678901234567890\" -->y",
                &["echo var=12345678901234567890", "ty"],
            ),
            ("<!--# -->y", &["!", "ty"]),
            ("<!--#aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa -->y", &["!", "ty"]),
        ];
        for (text, expected) in table {
            for cut in 1..=text.len() {
                assert_eq!(events(text, cut), *expected, "{text} by {cut}");
            }
        }
    }

    #[test]
    fn no_more_is_held_than_a_command_may_have() {
        let mut parser = Parser::new(20);
        parser.push(b"<!--#echo");
        for _ in 0..1000 {
            parser.push(b" a=\"bbbbbbbbbb\"");
            while parser.next_event().is_some() {}
            assert!(parser.held_bytes() < 1000);
        }
    }
}
