//! Values: variables and escapes in them, and how they are written into a page.

/// How a value is written (`encoding` of `echo`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encoding {
    /// As it is.
    None,
    /// Percent-encoded.
    Url,
    /// With entities for what HTML would read as markup.
    #[default]
    Entity,
}

/// Writes a value.
pub fn encode(value: &[u8], encoding: Encoding, out: &mut Vec<u8>) {
    for byte in value {
        match (encoding, *byte) {
            (Encoding::Entity, b'<') => out.extend_from_slice(b"&lt;"),
            (Encoding::Entity, b'>') => out.extend_from_slice(b"&gt;"),
            (Encoding::Entity, b'&') => out.extend_from_slice(b"&amp;"),
            (Encoding::Entity, b'"') => out.extend_from_slice(b"&quot;"),
            (Encoding::Url, byte) if is_encoded(byte) => {
                out.extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
            (_, byte) => out.push(byte),
        }
    }
}

/// What nginx encodes in an HTML page's addresses: blanks, controls, `"`, `%`, `'`, `<`, `>` and all beyond ASCII.
const fn is_encoded(byte: u8) -> bool {
    !byte.is_ascii_graphic() || matches!(byte, b'"' | b'%' | b'\'' | b'<' | b'>')
}

/// Fills in variables: `$name`, `${name}`; a backslash before a quote, a dollar sign or a backslash takes its meaning
/// away. `None` where a dollar sign is followed by no name.
pub(super) fn fill(text: &[u8], variable: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'\\' => match text.get(at) {
                Some(&next @ (b'\\' | b'\'' | b'"' | b'$')) => {
                    out.push(next);
                    at += 1;
                }
                _ => out.push(byte),
            },
            b'$' => {
                let (name, bytes) = name(&text[at..])?;
                at += bytes;
                out.extend_from_slice(&variable(&name.to_ascii_lowercase()).unwrap_or_default());
            }
            _ => out.push(byte),
        }
    }
    Some(out)
}

/// The name behind a dollar sign, and how much of the text it takes.
fn name(text: &[u8]) -> Option<(&[u8], usize)> {
    let is_name = |byte: &u8| *byte == b'_' || byte.is_ascii_alphanumeric();
    let (name, bytes) = if let [b'{', inner @ ..] = text {
        let end = inner.iter().position(|byte| *byte == b'}')?;
        (&inner[..end], end + 2)
    } else {
        let end = text.iter().take_while(|byte| is_name(byte)).count();
        (&text[..end], end)
    };
    (!name.is_empty() && name.iter().all(is_name)).then_some((name, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_escapes_taken_off() {
        let variable = |name: &[u8]| (name == b"a_1").then(|| b"X".to_vec());
        for (text, expected) in [
            ("", Some("")),
            ("plain", Some("plain")),
            ("b$A_1", Some("bX")),
            ("${a_1}c", Some("Xc")),
            ("$none.", Some(".")),
            (r"\$a_1 \\ \' \x", Some(r"$a_1 \ ' \x")),
            ("$", None),
            ("$-", None),
            ("${a", None),
            ("${}", None),
        ] {
            let filled = fill(text.as_bytes(), variable);
            assert_eq!(filled, expected.map(|text| text.as_bytes().to_vec()), "{text}");
        }
    }

    #[test]
    fn values_are_written_so_that_they_are_no_markup() {
        for (encoding, expected) in [
            (Encoding::None, "<a&\"%/> \u{e9}"),
            (Encoding::Entity, "&lt;a&amp;&quot;%/&gt; \u{e9}"),
            (Encoding::Url, "%3Ca&%22%25/%3E%20%C3%A9"),
        ] {
            let mut out = Vec::new();
            encode("<a&\"%/> \u{e9}".as_bytes(), encoding, &mut out);
            assert_eq!(String::from_utf8(out).expect("text"), expected);
        }
    }
}
