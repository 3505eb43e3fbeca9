//! Values with parameters: `form-data; name="a"; filename="b.txt"` (RFC 9110 §5.6.6, RFC 6266, RFC 7578).
//! What cannot be read ends the reading: nothing behind it is guessed.

use std::borrow::Cow;

use crate::token::is_token_byte;

/// The value before the first `;`, without white space around it.
pub fn head_of(value: &[u8]) -> &[u8] {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    value[..end].trim_ascii()
}

/// The parameters behind it, in order: names as they were written, values without their quotes.
pub fn parameters(value: &[u8]) -> Parameters<'_> {
    let start = memchr::memchr(b';', value).unwrap_or(value.len());
    Parameters { rest: &value[start..] }
}

/// The first parameter of this name, in any case.
pub fn parameter<'a>(value: &'a [u8], name: &[u8]) -> Option<Cow<'a, [u8]>> {
    parameters(value).find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// What a `Content-Disposition` calls the file: `filename*` before `filename` (RFC 6266 §4.3).
pub fn file_name(disposition: &[u8]) -> Option<Cow<'_, [u8]>> {
    let extended = parameter(disposition, b"filename*").and_then(|value| extended(&value));
    extended.map(Cow::Owned).or_else(|| parameter(disposition, b"filename"))
}

/// See [`parameters`].
#[derive(Clone, Debug)]
pub struct Parameters<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a [u8], Cow<'a, [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest).trim_ascii_start();
        let mut rest = rest.strip_prefix(b";")?.trim_ascii_start();
        while let Some(after) = rest.strip_prefix(b";") {
            rest = after.trim_ascii_start();
        }
        let equals = rest.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(equals);
        // Some write white space around it.
        let after = after.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
        if name.is_empty() {
            return None;
        }
        let (value, after) = if let Some(quoted) = after.strip_prefix(b"\"") {
            unquoted(quoted)?
        } else {
            let end = memchr::memchr(b';', after).unwrap_or(after.len());
            (Cow::Borrowed(after[..end].trim_ascii_end()), &after[end..])
        };
        self.rest = after;
        Some((name, value))
    }
}

/// A quoted string without its quotes, and what follows it. A backslash before a quote or another
/// backslash is an escape; before anything else it stands for itself, as in the paths that some browsers
/// send.
fn unquoted(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    if text[end] == b'"' {
        return Some((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let mut value = text[..end].to_vec();
    let mut at = end;
    loop {
        match text.get(at..)? {
            [b'"', rest @ ..] => return Some((Cow::Owned(value), rest)),
            [b'\\', escaped @ (b'"' | b'\\'), ..] => {
                value.push(*escaped);
                at += 2;
            }
            [byte, ..] => {
                value.push(*byte);
                at += 1;
            }
            [] => return None,
        }
    }
}

/// `UTF-8''na%C3%AFve.txt` (RFC 8187), in UTF-8 only.
fn extended(value: &[u8]) -> Option<Vec<u8>> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let (charset, _language, text) = (parts.next()?, parts.next()?, parts.next()?);
    if !charset.eq_ignore_ascii_case(b"utf-8") {
        return None;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        out.push((digit(0)? * 16 + digit(1)?) as u8);
        rest = &rest[2..];
    }
    std::str::from_utf8(&out).is_ok().then_some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(value: &str) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let pairs = parameters(value.as_bytes());
        pairs.map(|(name, value)| format!("{}={}", text(name), text(&value))).collect()
    }

    #[test]
    fn parameters_are_read_with_and_without_quotes() {
        for (value, expected) in [
            ("form-data", &[][..]),
            ("form-data; name=\"a\"", &["name=a"]),
            ("form-data;name=a;filename=b.txt", &["name=a", "filename=b.txt"]),
            ("x; a = \"b;c\" ; d=e f ; g=\"\"", &["a=b;c", "d=e f", "g="]),
            ("x; a=\"say \\\"hi\\\" \\\\ C:\\dir\\f\"", &["a=say \"hi\" \\ C:\\dir\\f"]),
            ("x;; ;a=b", &["a=b"]),
            ("x; a=\"open", &[]),
            ("x; a=b; =c; d=e", &["a=b"]),
            ("x; a=b; c; d=e", &["a=b"]),
        ] {
            assert_eq!(shown(value), expected, "{value}");
        }
        assert_eq!(head_of(b" form-data ; x=y"), b"form-data");
    }

    /// F5: RFC 6266.
    #[test]
    fn the_extended_name_of_a_file_comes_first() {
        let name = |value: &'static str| {
            file_name(value.as_bytes()).map(|name| String::from_utf8_lossy(&name).into_owned())
        };
        for (value, expected) in [
            ("attachment", None),
            ("attachment; filename=a.txt", Some("a.txt")),
            ("attachment; filename=\"a b.txt\"", Some("a b.txt")),
            ("attachment; filename=\"a\"; filename*=UTF-8''na%C3%AFve", Some("naïve")),
            ("attachment; filename*=utf-8'en'x%2fy; filename=\"a\"", Some("x/y")),
            ("attachment; filename=\"a\"; filename*=latin1''x", Some("a")),
            ("attachment; filename=\"a\"; filename*=UTF-8''%f", Some("a")),
            ("attachment; filename=\"a\"; filename*=UTF-8''%ff", Some("a")),
            ("attachment; FILENAME=a", Some("a")),
        ] {
            assert_eq!(name(value).as_deref(), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn no_value_panics(value in prop::collection::vec(any::<u8>(), 0..200)) {
            let count = parameters(&value).count();
            prop_assert!(count <= value.len());
            let _ = file_name(&value);
        }
    }
}
