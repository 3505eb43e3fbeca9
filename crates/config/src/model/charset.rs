//! Character sets of texts, and how bytes of one become those of another.

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

/// What each byte of a text becomes (`charset_map`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recode {
    /// By byte: the bytes that take its place, one to four.
    by_byte: Vec<([u8; 4], u8)>,
    /// Whether each is one byte, so that lengths and ranges stay what they are.
    pub keeps_length: bool,
}

impl Recode {
    /// Bytes below 128 stay what they are, the others become `?` until they are set.
    pub fn new() -> Self {
        let one = |byte: u8| ([byte, 0, 0, 0], 1);
        let by_byte = (0..=255).map(|byte| one(if byte < 128 { byte } else { b'?' })).collect();
        Self { by_byte, keeps_length: true }
    }

    /// A byte becomes these, of which there are one to four.
    pub fn set(&mut self, byte: u8, becomes: &[u8]) {
        let mut bytes = [0; 4];
        let count = becomes.len().min(bytes.len());
        bytes[..count].copy_from_slice(&becomes[..count]);
        self.by_byte[usize::from(byte)] = (bytes, count as u8);
        self.keeps_length &= count == 1;
    }

    /// The other way round, where each byte becomes one byte.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let mut reversed = Self::new();
        for (from, (to, _)) in (0..=255_u8).zip(&self.by_byte) {
            if *to != [b'?', 0, 0, 0] || from == b'?' {
                reversed.set(to[0], &[from]);
            }
        }
        reversed
    }

    /// Appends a text in the other charset.
    pub fn push(&self, text: &[u8], out: &mut Vec<u8>) {
        out.reserve(text.len());
        for byte in text {
            let (bytes, count) = &self.by_byte[usize::from(*byte)];
            out.extend_from_slice(&bytes[..usize::from(*count)]);
        }
    }
}

impl Default for Recode {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recoded(recode: &Recode, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        recode.push(text, &mut out);
        out
    }

    #[test]
    fn bytes_become_what_the_map_says() {
        let mut recode = Recode::new();
        recode.set(0xc0, &[0xfe]);
        assert_eq!(recoded(&recode, b"a\xc0\xc1"), b"a\xfe?");
        assert_eq!(recoded(&recode.reversed(), b"a\xfe"), b"a\xc0");
        assert!(recode.keeps_length);
        recode.set(0x80, "\u{20ac}".as_bytes());
        assert!(!recode.keeps_length);
        assert_eq!(recoded(&recode, b"5\x80"), "5\u{20ac}".as_bytes());
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
