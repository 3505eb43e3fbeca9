//! Character sets of texts, and how texts in one of them become texts in another.

use std::collections::HashMap;
use std::sync::Arc;

/// Which types have their charset named (`charset_types`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CharsetTypes {
    /// All text, scripts and feeds.
    Text,
    /// These.
    Listed(Arc<[String]>),
    /// `*`
    All,
}

impl CharsetTypes {
    /// Whether a media type is one of them. One that names its charset has it already.
    pub fn contain(&self, media_type: &[u8]) -> bool {
        const SCRIPTS: [&[u8]; 2] = [b"application/javascript", b"application/rss+xml"];
        if media_type.contains(&b';') {
            return false;
        }
        match self {
            Self::Text => media_type.starts_with(b"text/") || SCRIPTS.contains(&media_type),
            // nginx has text/html in the list in any case.
            Self::Listed(types) => {
                media_type == b"text/html"
                    || types.iter().any(|one| media_type.eq_ignore_ascii_case(one.as_bytes()))
            }
            Self::All => true,
        }
    }
}

/// All charsets that a configuration names, and its `charset_map`s.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Charsets {
    names: Vec<String>,
    maps: Vec<(String, String, Arc<Recode>)>,
}

impl Charsets {
    /// Notes a name.
    pub fn name(&mut self, name: &str) {
        if !self.knows(name.as_bytes()) {
            self.names.push(name.to_owned());
        }
    }

    /// Notes how texts are recoded from one charset to another.
    pub fn map(&mut self, from: &str, to: &str, recode: Recode) {
        self.name(from);
        self.name(to);
        self.maps.push((from.to_owned(), to.to_owned(), Arc::new(recode)));
    }

    /// Whether the configuration names it, in any case.
    pub fn knows(&self, name: &[u8]) -> bool {
        self.names.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// How texts of one charset become those of another.
    pub fn between(&self, from: &[u8], to: &[u8]) -> Option<&Arc<Recode>> {
        let is = |name: &str, other: &[u8]| name.as_bytes().eq_ignore_ascii_case(other);
        let map = self.maps.iter().find(|(source, target, _)| is(source, from) && is(target, to));
        map.map(|(.., recode)| recode)
    }
}

/// What the bytes of a text become (`charset_map`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recode {
    from: Source,
    /// Whether each is one byte, so that lengths and ranges stay what they are.
    pub keeps_length: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    /// By byte: the bytes that take its place, one to four.
    Bytes(Vec<([u8; 4], u8)>),
    /// From UTF-8: the byte of each character beyond ASCII.
    Utf8(HashMap<char, u8>),
}

impl Recode {
    /// Bytes below 128 stay what they are, the others become `?` until they are set.
    pub fn new() -> Self {
        let one = |byte: u8| ([byte, 0, 0, 0], 1);
        let by_byte = (0..=255).map(|byte| one(if byte < 128 { byte } else { b'?' })).collect();
        Self { from: Source::Bytes(by_byte), keeps_length: true }
    }

    /// A byte becomes these, of which there are one to four.
    pub fn set(&mut self, byte: u8, becomes: &[u8]) {
        let Source::Bytes(by_byte) = &mut self.from else { return };
        let mut bytes = [0; 4];
        let count = becomes.len().min(bytes.len());
        bytes[..count].copy_from_slice(&becomes[..count]);
        by_byte[usize::from(byte)] = (bytes, count as u8);
        self.keeps_length &= count == 1;
    }

    /// The other way round, where each byte becomes one byte.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let mut reversed = Self::new();
        if let Source::Bytes(by_byte) = &self.from {
            for (from, (to, _)) in (0..=255_u8).zip(by_byte) {
                if *to != [b'?', 0, 0, 0] || from == b'?' {
                    reversed.set(to[0], &[from]);
                }
            }
        }
        reversed
    }

    /// The other way round, where each byte becomes a character of UTF-8.
    #[must_use]
    pub fn reversed_from_utf8(&self) -> Self {
        let mut characters = HashMap::new();
        if let Source::Bytes(by_byte) = &self.from {
            for (from, (to, count)) in (0..=255_u8).zip(by_byte) {
                let character = std::str::from_utf8(&to[..usize::from(*count)]).ok();
                if let Some(character) = character.and_then(|text| text.chars().next())
                    && !character.is_ascii()
                {
                    characters.insert(character, from);
                }
            }
        }
        Self { from: Source::Utf8(characters), keeps_length: false }
    }
}

impl Default for Recode {
    fn default() -> Self {
        Self::new()
    }
}

/// A text that is recoded piece by piece.
#[derive(Clone, Debug)]
pub struct Recoding {
    recode: Arc<Recode>,
    /// The beginning of a character whose end has not come yet.
    begun: Vec<u8>,
}

impl Recoding {
    /// At the beginning of a text.
    pub fn new(recode: &Arc<Recode>) -> Self {
        Self { recode: Arc::clone(recode), begun: Vec::new() }
    }

    /// Appends a piece of the text in the other charset.
    pub fn push(&mut self, text: &[u8], out: &mut Vec<u8>) {
        match &self.recode.from {
            Source::Bytes(by_byte) => {
                out.reserve(text.len());
                for byte in text {
                    let (bytes, count) = &by_byte[usize::from(*byte)];
                    out.extend_from_slice(&bytes[..usize::from(*count)]);
                }
            }
            Source::Utf8(characters) => {
                let whole;
                let text = if self.begun.is_empty() {
                    text
                } else {
                    self.begun.extend_from_slice(text);
                    whole = std::mem::take(&mut self.begun);
                    &whole
                };
                self.begun = from_utf8(characters, text, out).to_vec();
            }
        }
    }

    /// The text is over.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.begun).is_empty() {
            out.push(b'?');
        }
    }
}

/// Recodes from UTF-8, as nginx does: a character without a byte of its own becomes a reference of HTML, what is no
/// character `?`. What is left is the beginning of a character.
fn from_utf8<'t>(characters: &HashMap<char, u8>, text: &'t [u8], out: &mut Vec<u8>) -> &'t [u8] {
    let mut rest = text;
    loop {
        let (valid, error_bytes) = match std::str::from_utf8(rest) {
            Ok(valid) => (valid, None),
            Err(error) => {
                let valid = std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default();
                (valid, Some(error.error_len()))
            }
        };
        for character in valid.chars() {
            match (u8::try_from(character).ok().filter(u8::is_ascii), characters.get(&character)) {
                (Some(byte), _) | (None, Some(&byte)) => out.push(byte),
                (None, None) => {
                    out.extend_from_slice(format!("&#{};", u32::from(character)).as_bytes());
                }
            }
        }
        rest = &rest[valid.len()..];
        match error_bytes {
            None => return &[],
            Some(None) => return rest,
            Some(Some(bytes)) => {
                out.push(b'?');
                rest = &rest[bytes..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recoded(recode: &Recode, pieces: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut recoding = Recoding::new(&Arc::new(recode.clone()));
        for piece in pieces {
            recoding.push(piece, &mut out);
        }
        recoding.finish(&mut out);
        out
    }

    #[test]
    fn bytes_become_what_the_map_says() {
        let mut recode = Recode::new();
        recode.set(0xc0, &[0xfe]);
        assert_eq!(recoded(&recode, &[b"a\xc0\xc1"]), b"a\xfe?");
        assert_eq!(recoded(&recode.reversed(), &[b"a\xfe"]), b"a\xc0");
        assert!(recode.keeps_length);
        recode.set(0x80, "\u{20ac}".as_bytes());
        assert!(!recode.keeps_length);
        assert_eq!(recoded(&recode, &[b"5\x80"]), "5\u{20ac}".as_bytes());
    }

    #[test]
    fn characters_of_utf8_become_bytes_however_they_are_cut() {
        let mut recode = Recode::new();
        recode.set(0x80, "\u{20ac}".as_bytes());
        let back = recode.reversed_from_utf8();
        let text = "5\u{20ac} \u{e4}\u{1f600}.".as_bytes();
        let expected = b"5\x80 &#228;&#128512;.";
        for at in 0..=text.len() {
            let (first, second) = text.split_at(at);
            assert_eq!(recoded(&back, &[first, second]), expected, "{at}");
        }
        assert_eq!(recoded(&back, &[b"a\xffb\xe2\x82"]), b"a?b?");
        assert_eq!(recoded(&back, &[b"\xe2", b"\x82", b"\xac\xe2", b"x"]), b"\x80?x");
    }

    #[test]
    fn types_that_name_a_charset_are_left_alone() {
        let listed = CharsetTypes::Listed(["application/json".to_owned()].into());
        for (types, media_type, is_one) in [
            (&CharsetTypes::Text, "text/x", true),
            (&CharsetTypes::Text, "text/x; charset=y", false),
            (&CharsetTypes::Text, "image/png", false),
            (&CharsetTypes::All, "image/png", true),
            (&listed, "application/json", true),
            (&listed, "text/html", true),
            (&listed, "text/css", false),
        ] {
            assert_eq!(types.contain(media_type.as_bytes()), is_one, "{media_type}");
        }
    }
}
