//! Hexadecimal digits.

const LOWER: &[u8; 16] = b"0123456789abcdef";

/// The two digits of a byte, in lower case.
pub const fn digits(byte: u8) -> [u8; 2] {
    [LOWER[(byte >> 4) as usize], LOWER[(byte & 15) as usize]]
}

/// The digits of bytes, in lower case.
pub fn text(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| digits(*byte)).map(char::from).collect()
}

/// The value of one digit, in either case.
pub const fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The bytes of digits, two for each; `None` for anything else.
pub fn bytes(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_were_written() {
        let all: Vec<u8> = (0..=255).collect();
        assert!(text(&all).starts_with("000102") && text(&all).ends_with("fdfeff"));
        assert_eq!(bytes(text(&all).as_bytes()), Some(all.clone()));
        assert_eq!(bytes(text(&all).to_uppercase().as_bytes()), Some(all));
        assert_eq!(
            (bytes(b""), bytes(b"0"), bytes(b"0g"), bytes(b"+1")),
            (Some(vec![]), None, None, None)
        );
    }
}
