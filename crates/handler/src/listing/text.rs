//! How names, numbers and times are written.

use sekisho_http::date::{self, Civil};
use sekisho_http::target;

/// Bytes that mean only themselves in HTML, XML, JSON and in the path of a link: RFC 3986's `pchar` without what HTML
/// gives a meaning of its own, and the slash of what a search has found below.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let bytes = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$()*+,;=:@/";
    let mut at = 0;
    while at < bytes.len() {
        plain[bytes[at] as usize] = true;
        at += 1;
    }
    plain
};

/// Whether a name is the same in every form.
pub(super) fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|byte| PLAIN[usize::from(*byte)])
}

/// A name within a link in an attribute.
pub(super) fn push_link(name: &[u8], out: &mut Vec<u8>) {
    for &byte in name {
        if PLAIN[usize::from(byte)] {
            out.push(byte);
        } else {
            target::push_escape(byte, out);
        }
    }
}

/// Text into HTML; bytes that are no UTF-8 are shown as replacement marks.
pub(super) fn push_html(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        let mut valid = chunk.valid().as_bytes();
        while let Some(at) = memchr::memchr3(b'&', b'<', b'>', valid)
            .into_iter()
            .chain(memchr::memchr2(b'"', b'\'', valid))
            .min()
        {
            out.extend_from_slice(&valid[..at]);
            out.extend_from_slice(match valid[at] {
                b'&' => b"&amp;",
                b'<' => b"&lt;",
                b'>' => b"&gt;",
                b'"' => b"&quot;",
                _ => b"&#39;",
            });
            valid = &valid[at + 1..];
        }
        out.extend_from_slice(valid);
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// A name into XML as nginx writes it: the bytes as they are, but for those that mean something. Bytes that are no UTF-8
/// become replacement marks: one such name would make the whole document invalid.
pub(super) fn push_xml(text: &[u8], out: &mut Vec<u8>) {
    push_each(text, out, |byte, out| match byte {
        b'&' => out.extend_from_slice(b"&amp;"),
        b'<' => out.extend_from_slice(b"&lt;"),
        b'>' => out.extend_from_slice(b"&gt;"),
        b'"' => out.extend_from_slice(b"&quot;"),
        byte => out.push(byte),
    });
}

/// A name into JSON as nginx writes it, and valid as in XML. Control bytes never come: such names are not listed.
pub(super) fn push_json(text: &[u8], out: &mut Vec<u8>) {
    push_each(text, out, |byte, out| {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    });
}

fn push_each(text: &[u8], out: &mut Vec<u8>, push: impl Fn(u8, &mut Vec<u8>)) {
    for chunk in text.utf8_chunks() {
        chunk.valid().bytes().for_each(|byte| push(byte, out));
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// A number.
pub(super) fn push_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A size as people say it: `512`, `1.5K`, `20M`.
pub(super) fn push_size(bytes: u64, out: &mut Vec<u8>) {
    const UNITS: [u8; 6] = *b"KMGTPE";
    if bytes < 1024 {
        return push_number(bytes, out);
    }
    let mut unit = 0;
    let mut shift = 10;
    // 1023.5 of a unit would be shown as 1024: that is one of the next.
    while unit + 1 < UNITS.len() && rounded(bytes, shift, 1) >= 1024 {
        unit += 1;
        shift += 10;
    }
    let tenths = rounded(bytes, shift, 10);
    if tenths < 100 {
        push_number(tenths / 10, out);
        out.extend_from_slice(&[b'.', b'0' + (tenths % 10) as u8]);
    } else {
        push_number(rounded(bytes, shift, 1), out);
    }
    out.push(UNITS[unit]);
}

/// So many parts of `1 << shift` bytes, to the nearest.
fn rounded(bytes: u64, shift: u32, parts: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(parts) + (1 << (shift - 1));
    (scaled >> shift) as u64
}

/// `2026-11-15`
pub(super) fn push_date(civil: Civil, out: &mut Vec<u8>) {
    date::push_four(civil.year, out);
    out.push(b'-');
    date::push_two(civil.month, out);
    out.push(b'-');
    date::push_two(civil.day, out);
}

/// `2026-11-15T12:59:42Z`
pub(crate) fn push_time(unix_secs: i64, out: &mut Vec<u8>) {
    let civil = date::civil(unix_secs);
    push_date(civil, out);
    out.push(b'T');
    date::push_time(&civil, out);
    out.push(b'Z');
}

/// How far a zone is ahead of UTC, as `+01:00`; nothing for UTC itself.
pub(super) fn push_offset(offset_secs: i32, out: &mut Vec<u8>) {
    if offset_secs == 0 {
        return;
    }
    out.push(if offset_secs < 0 { b'-' } else { b'+' });
    let minutes = offset_secs.unsigned_abs() / 60;
    date::push_two((minutes / 60) as u8, out);
    out.push(b':');
    date::push_two((minutes % 60) as u8, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("text")
    }

    /// V48
    #[test]
    fn every_name_is_escaped() {
        let html = written(|out| push_html(b"<b>&\"'\xff.", out));
        assert_eq!(html, "&lt;b&gt;&amp;&quot;&#39;\u{fffd}.");
        let link = written(|out| push_link(b"a&b'\"<%?#\xff/", out));
        assert_eq!(link, "a%26b%27%22%3C%25%3F%23%FF/");
        assert_eq!(written(|out| push_json(b"a\"b\\c", out)), "a\\\"b\\\\c");
        assert_eq!(written(|out| push_xml(b"<\"'&>", out)), "&lt;&quot;'&amp;&gt;");
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1536, "1.5K"),
            (10_188, "9.9K"),
            (10_230, "10K"),
            (20 << 20, "20M"),
            ((1 << 20) - 1, "1.0M"),
            (5_u64 << 40, "5.0T"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(written(|out| push_size(bytes, out)), text, "{bytes}");
        }
    }
}
