//! What tests say that they prove. A test cites a rule (`docs/SPEC.md`), a threat or a fault (`docs/threats.md`) by
//! naming its id in a comment.

use std::collections::BTreeMap;
use std::path::Path;

use crate::source::{self, Source, is_name_byte, item_end};

/// Id → file → tests, the latter in the order of the file.
pub(crate) type Proofs = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// All that is cited in the checkout, of the ids that begin with these letters.
pub(crate) fn read_all(root: &Path, letters: &str) -> Proofs {
    let mut proofs = Proofs::new();
    for source in source::read_all(root) {
        for (id, test) in citations(&source, letters) {
            let tests = proofs.entry(id).or_default().entry(source.path.clone()).or_default();
            if !tests.contains(&test) {
                tests.push(test);
            }
        }
    }
    proofs
}

/// The tests that prove one thing, as a cell of a table.
pub(crate) fn shown(files: &BTreeMap<String, Vec<String>>) -> String {
    let one = |(file, tests): (&String, &Vec<String>)| format!("`{file}`: {}", tests.join(", "));
    files.iter().map(one).collect::<Vec<_>>().join("<br>")
}

/// Whether a word is an id: one of these letters, and a number.
pub(crate) fn is_id(word: &str, letters: &str) -> bool {
    let mut chars = word.chars();
    let is_letter = chars.next().is_some_and(|letter| letters.contains(letter));
    is_letter && word.len() > 1 && chars.all(|digit| digit.is_ascii_digit())
}

/// The ids that the tests of a file cite, each with the test that does. A comment outside of every
/// test (above one, or in a table or helper that one uses) counts for the next test below it.
fn citations(source: &Source, letters: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = source.code.lines().collect();
    let tests = tests_of(&lines);
    let mut found = Vec::new();
    for (at, (line, code)) in source.text.lines().zip(&lines).enumerate() {
        let Some(comment) = source.is_test[at].then(|| comment_of(line, code)).flatten() else {
            continue;
        };
        let test = tests.iter().find(|test| at <= test.end).or(tests.last());
        if let Some(test) = test {
            found.extend(ids_in(comment, letters).map(|id| (id.to_owned(), test.name.clone())));
        }
    }
    found
}

struct Test {
    name: String,
    end: usize,
}

/// The functions marked as tests, in the order of the file.
fn tests_of(lines: &[&str]) -> Vec<Test> {
    let mut tests = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !matches!(line.trim(), "#[test]" | "#[tokio::test]") {
            continue;
        }
        let named = lines.iter().enumerate().skip(at).find_map(|(at, line)| {
            let (_, rest) = line.split_once("fn ")?;
            Some((at, rest.split(|c: char| !c.is_ascii() || !is_name_byte(c as u8)).next()?))
        });
        if let Some((start, name)) = named {
            tests.push(Test { name: name.to_owned(), end: item_end(lines, start) });
        }
    }
    tests
}

/// The comment on a line, if there is one; a file's opening is none. `code` is the same line with
/// blanks in place of comments and literals, so a `//` inside of a string is not taken for one.
fn comment_of<'a>(line: &'a str, code: &str) -> Option<&'a str> {
    let end_of_code = code.trim_end().len();
    let start = end_of_code + line.get(end_of_code..)?.find("//")?;
    let comment = &line[start..];
    (!comment.starts_with("//!")).then_some(comment)
}

fn ids_in<'a>(comment: &'a str, letters: &str) -> impl Iterator<Item = &'a str> {
    comment
        .split(|c: char| !c.is_ascii() || !is_name_byte(c as u8))
        .filter(move |word| is_id(word, letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path.to_owned(), text.to_owned())
    }

    fn pairs(found: &[(String, String)]) -> Vec<(&str, &str)> {
        found.iter().map(|(id, test)| (id.as_str(), test.as_str())).collect()
    }

    #[test]
    fn a_citation_belongs_to_the_test_it_stands_in_or_above() {
        let text = "//! H1\nconst ROWS: [u8; 1] = [\n    1, // H2\n];\n\n/// H3: a rule\n#[test]\n\
                    fn first() {\n    // H4, H5\n    let s = \"// H6\";\n}\n\n#[test]\nfn second() {} // H7\n// H8\n";
        let found = citations(&source("crates/x/tests/a.rs", text), "H");
        let expected = [
            ("H2", "first"),
            ("H3", "first"),
            ("H4", "first"),
            ("H5", "first"),
            ("H7", "second"),
            ("H8", "second"),
        ];
        assert_eq!(pairs(&found), expected);
    }

    #[test]
    fn only_test_code_cites() {
        let text = "// H9\nfn a() {}\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn b() {\n        // H10\n    }\n}\n";
        let found = citations(&source("crates/x/src/a.rs", text), "H");
        assert_eq!(pairs(&found), [("H10", "b")]);
    }

    #[test]
    fn an_id_is_a_known_letter_and_digits() {
        for (word, is) in [("L1", true), ("O12", true), ("L", false), ("X1", false), ("H9a", false)]
        {
            assert_eq!(is_id(word, "LHTCO"), is, "{word}");
        }
        assert_eq!(
            ids_in("// xH9 H9, (T2) C1–C3", "HTC").collect::<Vec<_>>(),
            ["H9", "T2", "C1", "C3"]
        );
    }
}
