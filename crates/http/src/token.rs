//! Which bytes names and values of fields may have (RFC 9110 §5.5, §5.6.2).

/// By byte: whether it is allowed in a token.
const TOKEN: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] = matches!(byte as u8, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%'
            | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};

/// Whether a byte is allowed in a token.
#[inline]
pub const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Whether these bytes are a token.
#[inline]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().copied().all(is_token_byte)
}

/// Whether a byte is allowed in a field value: anything but control bytes, of which only HTAB may.
#[inline]
pub const fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Whether these bytes may be a field value. Looks at all of them, which is faster than to stop at the first that may not.
#[inline]
pub fn is_value(bytes: &[u8]) -> bool {
    !bytes.iter().fold(false, |is_bad, byte| is_bad | !is_value_byte(*byte))
}
