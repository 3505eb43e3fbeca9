//! Rust files as the checks see them: which lines are code, which are comments, and which belong to
//! tests. Not a parser: it knows comments, literals and braces, and that is enough.

use std::fs;
use std::path::Path;

/// One Rust file.
pub(crate) struct Source {
    /// Its path in the checkout, with slashes.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
    /// The same text with blanks for the content of comments and literals; lines are kept.
    pub(crate) code: String,
    /// Line by line, whether it belongs to a test.
    pub(crate) is_test: Vec<bool>,
}

impl Source {
    /// Reads the structure of a file.
    pub(crate) fn new(path: String, text: String) -> Self {
        let code = code_only(&text);
        let is_test = test_lines(&path, &code);
        Self { path, text, code, is_test }
    }

    /// The code that ships, with blank lines in place of tests.
    pub(crate) fn shipped_code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().filter(|(at, _)| !self.is_test[*at])
    }
}

/// Every Rust file of the workspace's members, in the order of their paths.
pub(crate) fn read_all(root: &Path) -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in ["crates", "xtask"] {
        collect(root, folder, &mut paths);
    }
    paths.sort();
    let read =
        |path: String| Some(Source::new(path.clone(), fs::read_to_string(root.join(path)).ok()?));
    paths.into_iter().filter_map(read).collect()
}

fn collect(root: &Path, folder: &str, paths: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return };
    for entry in entries.flatten() {
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && !path.ends_with("/target") {
            collect(root, &path, paths);
        } else if Path::new(&path).extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn test_lines(path: &str, code: &str) -> Vec<bool> {
    let lines: Vec<&str> = code.lines().collect();
    if path.split('/').any(|part| part == "tests") {
        return vec![true; lines.len()];
    }
    let mut is_test = vec![false; lines.len()];
    let mut at = 0;
    while at < lines.len() {
        if lines[at].trim() == "#[cfg(test)]" {
            let end = item_end(&lines, at + 1);
            is_test[at..=end].fill(true);
            at = end;
        }
        at += 1;
    }
    is_test
}

/// The last line of the item that begins at line `start`: where its braces close, or its semicolon.
pub(crate) fn item_end(lines: &[&str], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, line) in lines.iter().enumerate().skip(start) {
        for byte in line.bytes() {
            match byte {
                b'{' => depth += 1,
                b'}' if depth <= 1 => return at,
                b'}' => depth -= 1,
                b';' if depth == 0 => return at,
                _ => {}
            }
        }
    }
    lines.len().saturating_sub(1)
}

/// Puts a blank in place of every byte of a comment or literal.
pub(crate) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let length = skipped_length(bytes, at);
        if length == 0 {
            out.push(bytes[at]);
            at += 1;
        } else {
            let end = (at + length).min(bytes.len());
            out.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The length of the comment or literal that begins here; 0 when none does.
fn skipped_length(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let follows_name = at > 0 && is_name_byte(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_length(rest),
        [b'"', ..] => quoted_length(rest, 0),
        [b'r', b'"' | b'#', ..] if !follows_name => raw_length(rest, 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !follows_name => raw_length(rest, 2),
        [b'\'', ..] => char_length(rest),
        _ => 0,
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted_length(rest: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_length(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return 0; // a raw identifier such as r#type
    }
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let start = prefix + hashes + 1;
    let end = rest[start..].windows(close.len()).position(|window| window == close);
    end.map_or(rest.len(), |end| start + end + close.len())
}

/// A character, or 0 for a lifetime.
fn char_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).position(|byte| *byte == b'\'');
        return end.map_or(0, |end| end + 4);
    }
    // One character of up to four bytes, then the quote.
    let end = rest.iter().skip(2).take(4).position(|byte| *byte == b'\'');
    match end {
        Some(0) => 3,
        Some(more) if !rest[1].is_ascii() => more + 3,
        _ => 0,
    }
}

/// Whether a byte is allowed in a name.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_become_blanks_and_lines_stay() {
        let cases = [
            ("a // std::fs\nb", "a\nb"),
            ("/* a /* b */ \n c */d", "\nd"),
            (r#"x("a\"{")y"#, "x()y"),
            ("r#\"a\"b\"#z", "z"),
            ("r#type", "r#type"),
            ("'{' 'a: &'a str", "'a:&'astr"),
            (r"'\'' '\\' '\u{1F600}'c", "c"),
            ("'é'c", "c"),
            ("br\"{\"c", "c"),
        ];
        for (text, code) in cases {
            assert_eq!(code_only(text).replace(' ', ""), code, "{text:?}");
            assert_eq!(code_only(text).len(), text.len(), "{text:?}");
        }
    }

    #[test]
    fn a_test_module_ends_with_its_brace() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n";
        let source = Source::new("crates/x/src/lib.rs".into(), text.into());
        assert_eq!(source.is_test, [false, true, true, true, true, false]);
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_ends_with_its_semicolon() {
        let text = "#[cfg(test)]\nmod tests;\nfn c() {}\n";
        let source = Source::new("crates/x/src/lib.rs".into(), text.into());
        assert_eq!(source.is_test, [true, true, false]);
    }

    #[test]
    fn everything_below_a_folder_of_tests_is_test_code() {
        let source = Source::new("crates/x/tests/a.rs".into(), "fn a() {}\n".into());
        assert_eq!(source.is_test, [true]);
    }
}
