//! A request target: what it resolves to is absolute, without dot segments, NUL or control bytes; it stays
//! the same when it is encoded and resolved again; and whatever a site makes of it, no file outside its
//! root is looked at.
//!
//! The first line is the target, the second the host, the third the field `X`.

use std::path::{Component, Path};
use std::sync::LazyLock;

use crate::site;
use sekisho_http::{Head, Version, target};
use sekisho_route::Table;

static TABLE: LazyLock<Table> = LazyLock::new(site::table);

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let mut lines = data.splitn(3, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (text, host, field) = (line(), line(), line());
    if let Ok(parts) = target::split(text) {
        assert!(parts.path == b"*" || parts.path.starts_with(b"/"));
        assert!(!parts.path.contains(&b'?') && !parts.path.contains(&b'#'));
        assert!(parts.query.is_none_or(|query| !query.contains(&b'#')));
        for merge in [true, false] {
            resolves(parts.path, merge);
        }
    }
    for merge in [true, false] {
        resolves(text, merge);
    }
    let mut head = Head::default();
    head.begin(b"GET", text, Version::Http11);
    head.push(b"Host", host);
    head.push(b"X", field);
    site::decide(&TABLE, &head, true);
}

fn resolves(path: &[u8], merge: bool) {
    let mut first = b"left over".to_vec();
    if target::resolve(path, merge, &mut first).is_err() {
        assert!(first.is_empty(), "what is refused leaves nothing behind");
        return;
    }
    assert_eq!(first.first(), Some(&b'/'));
    assert!(first.len() <= path.len(), "decoding never makes it longer");
    assert!(!first.iter().any(|byte| matches!(byte, 0 | b'\n' | b'\r')));
    assert!(!first.split(|byte| *byte == b'/').any(|part| part == b"." || part == b".."));
    assert!(target::is_dotless(&first));
    assert!(!merge || !first.windows(2).any(|pair| pair == b"//"));

    let (mut encoded, mut second) = (Vec::new(), Vec::new());
    target::encode_path(&first, &mut encoded);
    assert!(encoded.iter().all(u8::is_ascii_graphic));
    assert_eq!(target::resolve(&encoded, merge, &mut second), Ok(()));
    assert_eq!(first, second, "resolved once, it stays");

    if let Ok(text) = std::str::from_utf8(&first) {
        // As the file system would walk it: below the root there is no way up.
        let joined = format!("/srv/www{text}");
        let mut depth = 0_usize;
        for part in Path::new(&joined).components().skip(3) {
            match part {
                Component::Normal(_) => depth += 1,
                Component::CurDir => {}
                _ => panic!("{joined} leaves its root at depth {depth}"),
            }
        }
    }
}
