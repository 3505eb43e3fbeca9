//! Percent escapes and UTF-8: a path resolves to what a second, simple reading of RFC 3986 makes of it, or is
//! refused by both; what is written as an escape is read back; hosts are read alike by all parsers; and
//! names of files come out as one safe component.
//!
//! The whole input is a path, a host, a name and a text.

use sekisho_http::target::TargetError;
use sekisho_http::{file_name, parameters, target};
use sekisho_http1::parse::is_host;

/// Holds the readers to it.
pub fn check(data: &[u8]) {
    for merge in [true, false] {
        let mut found = b"left over".to_vec();
        let result = target::resolve(data, merge, &mut found);
        let wanted = resolved(data, merge);
        match (&result, &wanted) {
            (Ok(()), Ok(path)) => assert_eq!(&found, path, "{}", data.escape_ascii()),
            (Err(error), Err(possible)) => {
                assert!(found.is_empty(), "what is refused leaves nothing behind");
                assert!(possible.contains(error), "{error} for {}", data.escape_ascii());
            }
            _ => panic!("{result:?}, not {wanted:?}, for {}", data.escape_ascii()),
        }
    }
    any_bytes_survive(data);
    host(data);
    names(data);
}

/// Decode, then split, then resolve segment by segment. All errors that there are, because which of them the
/// parser finds first does not matter.
fn resolved(path: &[u8], merge: bool) -> Result<Vec<u8>, Vec<TargetError>> {
    let path = path.split(|byte| *byte == b'#').next().unwrap_or_default();
    let Some(rest) = path.strip_prefix(b"/") else { return Err(vec![TargetError::NotAPath]) };
    let mut errors = Vec::new();
    let mut stack: Vec<Vec<u8>> = Vec::new();
    let rest = decoded(rest, &mut errors);
    let segments: Vec<&[u8]> = rest.split(|byte| *byte == b'/').collect();
    for (at, segment) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        match *segment {
            b"." if is_last => stack.push(Vec::new()),
            b"." => {}
            b".." => {
                if stack.pop().is_none() {
                    errors.push(TargetError::AboveRoot);
                }
                if is_last {
                    stack.push(Vec::new());
                }
            }
            b"" if merge && !is_last => {}
            _ => stack.push(segment.to_vec()),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok([b"/", stack.join(&b'/').as_slice()].concat())
}

fn decoded(raw: &[u8], errors: &mut Vec<TargetError>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < raw.len() {
        let is_escape = raw[at] == b'%';
        let byte = if is_escape {
            let digits = raw.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
            let digits = digits.filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let Some(byte) = digits.and_then(|two| u8::from_str_radix(two, 16).ok()) else {
                errors.push(TargetError::BadEscape);
                at += 1;
                continue;
            };
            at += 3;
            byte
        } else {
            at += 1;
            raw[at - 1]
        };
        match byte {
            0 => errors.push(TargetError::Nul),
            b'\n' | b'\r' => errors.push(TargetError::ControlByte),
            1..=0x1f | 0x7f if !is_escape => errors.push(TargetError::ControlByte),
            _ => {}
        }
        out.push(byte);
    }
    out
}

/// What can be a name in a path survives being written into a URI, and stays one segment.
fn any_bytes_survive(data: &[u8]) {
    let segment: Vec<u8> =
        data.iter().copied().filter(|byte| !byte.is_ascii_control() && *byte != b'/').collect();
    if matches!(segment.as_slice(), b"." | b"..") {
        return;
    }
    let path = [b"/", segment.as_slice()].concat();
    let (mut encoded, mut back) = (Vec::new(), Vec::new());
    target::encode_path(&path, &mut encoded);
    assert!(encoded.iter().all(|byte| byte.is_ascii_graphic() && !b"\"<>#?".contains(byte)));
    assert_eq!(target::resolve(&encoded, true, &mut back), Ok(()));
    assert_eq!(back, path);
    // Written twice, it is read once.
    let mut twice = Vec::new();
    target::encode_path(&encoded, &mut twice);
    assert_eq!(target::resolve(&twice, true, &mut back), Ok(()));
    assert_eq!(back, encoded, "decoded once, not twice");
}

/// A host is refused or comes out in its one form; the parser of heads and the router agree.
fn host(value: &[u8]) {
    let mut out = b"left over".to_vec();
    match target::host(value, &mut out) {
        Ok(()) => {
            assert!(is_host(value), "{}", value.escape_ascii());
            assert!(!out.is_empty());
            assert!(out.iter().all(|byte| byte.is_ascii_graphic() && !b"/\\?#@".contains(byte)));
            assert!(!out.iter().any(u8::is_ascii_uppercase));
            let mut again = Vec::new();
            assert_eq!(target::host(&out, &mut again), Ok(()));
            assert_eq!(out, again, "a host stays as it is");
            let lower = value.to_ascii_lowercase();
            assert!(lower.starts_with(&out), "nothing is made up");
        }
        Err(_) => assert!(!is_host(value), "{}", value.escape_ascii()),
    }
}

/// A text written as RFC 8187 has it is read back; a name of a file becomes one safe component, which stays.
fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut field = b"attachment; filename=\"other\"; filename*=UTF-8''".to_vec();
    for byte in text.bytes() {
        target::push_escape(byte, &mut field);
    }
    let name = parameters::file_name(&field).expect("a name");
    assert_eq!(*name, *text.as_bytes());
    let Some(safe) = file_name::safe(data) else { return };
    assert!(!safe.is_empty() && safe.len() <= file_name::BYTES_MAX);
    assert!(!safe.starts_with('.') && !safe.contains(['/', '\\']));
    assert!(!safe.chars().any(char::is_control));
    let numbered = file_name::numbered(safe.as_bytes(), 4711);
    assert!(numbered.len() <= file_name::BYTES_MAX && !numbered.contains(&b'/'));
    assert!(std::str::from_utf8(&numbered).is_ok(), "cut within a character");
    let again = file_name::safe(safe.as_bytes());
    assert_eq!(again.as_deref(), Some(safe.as_str()), "safe once, it stays");
}
