//! Escaping of values in a line of the access log (V27). Most values need none: they are looked through in
//! blocks that the compiler turns into vector instructions, and copied whole.

use sekisho_config::Escape;

/// How many bytes are looked at together.
const BLOCK: usize = 16;

/// Appends a value, escaped. Under [`Escape::Default`] a value that is not there is `-`.
pub(crate) fn push_escaped(how: Escape, value: &[u8], out: &mut Vec<u8>) {
    match how {
        Escape::Default if value.is_empty() => out.push(b'-'),
        Escape::Default => push_default(value, out),
        Escape::Json => push_json(value, out),
        Escape::None => out.extend_from_slice(value),
    }
}

/// The same for a value that has been appended already, from `start` on.
pub(crate) fn escape_from(how: Escape, start: usize, out: &mut Vec<u8>) {
    let value = &out[start..];
    let is_plain = match how {
        Escape::Default if value.is_empty() => return out.push(b'-'),
        Escape::Default => is_plain::<DEFAULT_LAST>(value),
        Escape::Json => is_plain::<JSON_LAST>(value),
        Escape::None => true,
    };
    if !is_plain {
        let value = out.split_off(start);
        push_escaped(how, &value, out);
    }
}

/// The last byte that stays as it is, of those from the space on.
const DEFAULT_LAST: u8 = b'~';
/// JSON allows DEL; what is above is UTF-8, or not.
const JSON_LAST: u8 = 0x7f;

const fn is_special<const LAST: u8>(byte: u8) -> bool {
    byte < b' ' || byte > LAST || byte == b'"' || byte == b'\\'
}

/// Whether no byte of the value needs an escape.
fn is_plain<const LAST: u8>(value: &[u8]) -> bool {
    let any = |bytes: &[u8]| bytes.iter().fold(false, |any, byte| any | is_special::<LAST>(*byte));
    let (blocks, rest) = value.as_chunks::<BLOCK>();
    let is_any = blocks.iter().any(|block| any(block));
    // The last block is looked at once more in part: cheaper than byte by byte.
    let rest = value.last_chunk::<BLOCK>().map_or(rest, |last| &last[..]);
    !is_any && !any(rest)
}

/// How many bytes at the start need no escape.
fn plain_bytes<const LAST: u8>(value: &[u8]) -> usize {
    let (blocks, _) = value.as_chunks::<BLOCK>();
    let whole = blocks.iter().take_while(|block| is_plain::<LAST>(&block[..])).count() * BLOCK;
    let rest = &value[whole..];
    whole + rest.iter().position(|byte| is_special::<LAST>(*byte)).unwrap_or(rest.len())
}

fn push_default(value: &[u8], out: &mut Vec<u8>) {
    if is_plain::<DEFAULT_LAST>(value) {
        return out.extend_from_slice(value);
    }
    let mut rest = value;
    loop {
        let (plain, after) = rest.split_at(plain_bytes::<DEFAULT_LAST>(rest));
        out.extend_from_slice(plain);
        let Some((byte, after)) = after.split_first() else { return };
        out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
        rest = after;
    }
}

/// nginx writes bytes that are not UTF-8 as they are, and the line is no longer JSON; here they become
/// the code points of the same number.
fn push_json(value: &[u8], out: &mut Vec<u8>) {
    if is_plain::<JSON_LAST>(value) {
        return out.extend_from_slice(value);
    }
    for chunk in value.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0x08 => out.extend_from_slice(b"\\b"),
                0x0c => out.extend_from_slice(b"\\f"),
                0..0x20 => push_code_point(byte, out),
                _ => out.push(byte),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_code_point(*byte, out));
    }
}

fn push_code_point(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\u00");
    out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
}

const fn digit(four_bits: u8) -> u8 {
    b"0123456789ABCDEF"[four_bits as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rule, byte by byte.
    fn by_rule(value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for &byte in value {
            if matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\') {
                out.push(byte);
            } else {
                out.extend(format!("\\x{byte:02X}").bytes());
            }
        }
        if value.is_empty() { b"-".to_vec() } else { out }
    }

    fn escaped(how: Escape, value: &[u8]) -> Vec<u8> {
        let mut out = b"kept".to_vec();
        push_escaped(how, value, &mut out);
        let mut in_place = [b"kept", value].concat();
        escape_from(how, 4, &mut in_place);
        assert_eq!(out, in_place, "both ways give the same");
        out.split_off(4)
    }

    /// V27: at every position, in values of every length.
    #[test]
    fn each_byte_is_escaped_wherever_it_stands() {
        for byte in 0..=255 {
            for (before, after) in [(0, 0), (1, 40), (15, 0), (16, 0), (16, 16), (31, 3), (40, 1)] {
                let value = [&vec![b'a'; before][..], &[byte], &vec![b'z'; after]].concat();
                assert_eq!(escaped(Escape::Default, &value), by_rule(&value), "{byte} {before}");
                let json = [b"\"", &escaped(Escape::Json, &value)[..], b"\""].concat();
                assert!(!json.iter().any(|byte| *byte < b' '), "{byte}");
                assert_eq!(escaped(Escape::None, &value), value);
            }
        }
    }

    proptest! {
        #[test]
        fn any_value_is_escaped_by_the_rule(value: Vec<u8>) {
            prop_assert_eq!(escaped(Escape::Default, &value), by_rule(&value));
        }
    }
}
