//! `Authorization: Basic`: user and password (RFC 7617). A password goes from here into a comparison and
//! nowhere else.

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};

/// Appends `user:password` to `out` and says where in what was appended the colon is; `None`, with nothing
/// appended, where the field has no such credentials.
pub(crate) fn decode(field: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let (scheme, encoded) = field.split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let start = out.len();
    let colon = decode_base64(encoded.trim_ascii(), &STANDARD, out)
        .and_then(|()| out[start..].iter().position(|byte| *byte == b':'))
        // An empty user name is invalid, as in nginx.
        .filter(|colon| *colon > 0);
    if colon.is_none() {
        out.truncate(start);
    }
    colon
}

/// Base64 as clients write it.
pub const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
/// Base64 as links have it, with `-` and `_`.
pub(crate) const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
/// Padding and the last bits say nothing, as in nginx.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

/// Appends what is encoded, up to the padding. `None` for anything else; what was appended by then is the caller's to
/// take away.
pub fn decode_base64(text: &[u8], engine: &GeneralPurpose, out: &mut Vec<u8>) -> Option<()> {
    let end = memchr::memchr(b'=', text).unwrap_or(text.len());
    engine.decode_vec(&text[..end], out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_found_or_nothing_is() {
        for (field, expected) in [
            ("Basic YW5uOnNlY3JldA==", Some(("ann", "secret"))),
            ("basic YW5uOnNlY3JldA", Some(("ann", "secret"))),
            ("BASIC  YW5uOnNlY3JldA== ", Some(("ann", "secret"))),
            ("Basic YW5uOmE6Yg==", Some(("ann", "a:b"))),
            ("Basic OnNlY3JldA==", None),
            ("Basic YW5uOg==", Some(("ann", ""))),
            ("Basic Og==", None),
            ("Basic YW5u", None),
            ("Basic ", None),
            ("Basic", None),
            ("Basic YW5uOnNlY3JldA==!", Some(("ann", "secret"))),
            ("Basic YW5u!nNlY3JldA==", None),
            ("Basic YW5uO", None),
            ("Bearer YW5uOnNlY3JldA==", None),
            ("", None),
        ] {
            let mut out = b"before".to_vec();
            let colon = decode(field.as_bytes(), &mut out);
            let decoded = &out[6..];
            let found = colon.map(|at| (&decoded[..at], &decoded[at + 1..]));
            assert_eq!(found, expected.map(|(a, b)| (a.as_bytes(), b.as_bytes())), "{field}");
            assert!(colon.is_some() || decoded.is_empty(), "{field}");
        }
    }
}
