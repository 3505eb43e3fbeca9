//! Subjects: words with dots between them.

/// The longest word of ours.
const TOKEN_BYTES_MAX: usize = 64;

/// Whether this may be one word of a subject: letters, digits, `-` and `_`.
pub fn is_token(text: &[u8]) -> bool {
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.iter().all(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_no_dots_blanks_or_wildcards() {
        for (text, expected) in [
            ("edge", true),
            ("node-7_b", true),
            ("", false),
            ("a.b", false),
            ("*", false),
            (">", false),
            ("a b", false),
            ("a\r\n", false),
            (&"x".repeat(64), true),
            (&"x".repeat(65), false),
        ] {
            assert_eq!(is_token(text.as_bytes()), expected, "{text:?}");
        }
    }
}
