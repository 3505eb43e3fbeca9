//! File names that come from a client: reduced to one component that is safe to have in a folder.

/// The longest name that file systems take.
pub const BYTES_MAX: usize = 255;

/// One safe component made of what a client calls its file: what follows the last slash or backslash,
/// without leading dots, control bytes and bytes that are no UTF-8, cut to [`BYTES_MAX`] at a character's
/// border with its extension kept. `None` when nothing is left.
pub fn safe(name: &[u8]) -> Option<String> {
    let last = name.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or_default();
    let text = String::from_utf8_lossy(last);
    let mut safe: String = text
        .chars()
        .map(|c| if c == char::REPLACEMENT_CHARACTER { '_' } else { c })
        .filter(|c| !c.is_control() && !is_hidden(*c))
        .collect();
    let leading = safe.len() - safe.trim_start_matches(['.', ' ']).len();
    safe.drain(..leading);
    safe.truncate(safe.trim_end().len());
    if safe.is_empty() {
        return None;
    }
    let (stem, extension) = split(safe.as_bytes());
    Some(String::from_utf8_lossy(&joined(stem, "", extension)).into_owned())
}

/// The same name with a number: `name (1).ext`.
pub fn numbered(name: &[u8], number: u32) -> Vec<u8> {
    let (stem, extension) = split(name);
    joined(stem, &format!(" ({number})"), extension)
}

/// Characters that change the order in which the others are shown.
const fn is_hidden(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Stem and extension; the latter with its dot, and none that is longer than an extension is.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    const EXTENSION_MAX: usize = 32;
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0);
    let at = dot.filter(|at| name.len() - at <= EXTENSION_MAX).unwrap_or(name.len());
    // `x.tar.gz` is one name with one extension.
    let stem = &name[..at];
    let at = if stem.len() > 4 && stem.ends_with(b".tar") { at - 4 } else { at };
    name.split_at(at)
}

/// The three together, the first cut so that the whole is not too long.
fn joined(stem: &[u8], middle: &str, extension: &[u8]) -> Vec<u8> {
    let room = BYTES_MAX.saturating_sub(middle.len() + extension.len());
    let mut end = stem.len().min(room);
    // Not within a character.
    while end > 0 && stem.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    [&stem[..end], middle.as_bytes(), extension].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// F5, V20
    #[test]
    fn names_are_reduced_to_one_safe_component() {
        let long = "é".repeat(200) + ".jpeg";
        let cut = "é".repeat(125) + ".jpeg";
        for (name, expected) in [
            (&b"a.txt"[..], Some("a.txt")),
            (b"../../etc/passwd", Some("passwd")),
            (b"C:\\Users\\me\\photo.jpg", Some("photo.jpg")),
            (b"/abs/x", Some("x")),
            (b"a/", None),
            (b"", None),
            (b".", None),
            (b"..", None),
            (b"...", None),
            (b". .x", Some("x")),
            (b".htaccess", Some("htaccess")),
            (b".sekisho-upload-1", Some("sekisho-upload-1")),
            (b"a\0b\nc\x7f", Some("abc")),
            (b" a b ", Some("a b")),
            (b"\xff\xfe.txt", Some("__.txt")),
            ("日本 語.txt".as_bytes(), Some("日本 語.txt")),
            ("a\u{202e}gpj.exe".as_bytes(), Some("agpj.exe")),
            (long.as_bytes(), Some(cut.as_str())),
        ] {
            assert_eq!(safe(name).as_deref(), expected, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_number_comes_before_the_extension() {
        for (name, expected) in [
            ("a.txt", "a (1).txt"),
            ("a", "a (1)"),
            ("a.tar.gz", "a (1).tar.gz"),
            (".hidden", ".hidden (1)"),
            ("a.b.c", "a.b (1).c"),
            ("a.", "a (1)."),
        ] {
            assert_eq!(numbered(name.as_bytes(), 1), expected.as_bytes(), "{name}");
        }
        assert_eq!(numbered(&[b'x'; 255], 12).len(), BYTES_MAX);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_safe(name in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Some(safe) = safe(&name) {
                prop_assert!(!safe.is_empty() && safe.len() <= BYTES_MAX);
                prop_assert!(!safe.starts_with('.') && !safe.contains(['/', '\\', '\0', '\n']));
                prop_assert!(!safe.chars().any(char::is_control));
                let numbered = numbered(safe.as_bytes(), 7);
                prop_assert!(numbered.len() <= BYTES_MAX && !numbered.contains(&b'/'));
            }
        }
    }
}
