//! Which rule of `docs/SPEC.md` is proved by which test. A test cites a rule by naming its id in a
//! comment; a rule that `docs/spec-built.txt` calls built must be cited.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::source::{self, Source, is_name_byte, item_end};
use crate::{Complaints, check_generated, read};

const SPEC: &str = "docs/SPEC.md";
const BUILT: &str = "docs/spec-built.txt";
const COVERAGE: &str = "docs/spec-coverage.md";
/// The letters that rule ids begin with.
const LETTERS: &str = "LTHCFEO";
/// How much of a rule's text the table shows.
const SUMMARY_MAX: usize = 110;

/// Writes the table.
pub(crate) fn write(root: &Path) -> Complaints {
    match survey(root) {
        Ok(survey) => crate::write(root, COVERAGE, &survey.table()),
        Err(complaints) => complaints,
    }
}

/// Checks that the table is up to date and that what is built is proved.
pub(crate) fn check(root: &Path) -> Complaints {
    let (survey, built) = match (survey(root), read(root, BUILT)) {
        (Ok(survey), Ok(built)) => (survey, built),
        (Err(complaints), _) | (_, Err(complaints)) => return complaints,
    };
    let mut complaints = check_generated(root, COVERAGE, &survey.table(), "spec");
    complaints.extend(survey.unproved(&built));
    complaints
}

#[derive(PartialEq, Eq, Debug)]
struct Section {
    title: String,
    rules: Vec<Rule>,
}

#[derive(PartialEq, Eq, Debug)]
struct Rule {
    id: String,
    summary: String,
}

struct Survey {
    sections: Vec<Section>,
    /// Rule → file → tests, the latter in the order of the file.
    proofs: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

fn survey(root: &Path) -> Result<Survey, Complaints> {
    let sections = parse_sections(&read(root, SPEC)?);
    let mut proofs: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for source in source::read_all(root) {
        for (id, test) in citations(&source) {
            let tests = proofs.entry(id).or_default().entry(source.path.clone()).or_default();
            if !tests.contains(&test) {
                tests.push(test);
            }
        }
    }
    Ok(Survey { sections, proofs })
}

impl Survey {
    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.sections.iter().flat_map(|section| &section.rules)
    }

    fn table(&self) -> String {
        let all = self.rules().count();
        let proved = self.rules().filter(|rule| self.proofs.contains_key(&rule.id)).count();
        let mut out = format!(
            "# Which test proves which rule\n\n\
             Written by `cargo xtask spec` from `SPEC.md` and the tests that cite it; do not edit.\n\
             {proved} of {all} rules are cited by a test, {} are open.\n",
            all - proved
        );
        for section in &self.sections {
            let _ = write!(
                out,
                "\n## {}\n\n| rule | says | proved by |\n|---|---|---|\n",
                section.title
            );
            for rule in &section.rules {
                let proofs = self.proofs.get(&rule.id).map_or("**open**".to_owned(), shown);
                let _ = writeln!(out, "| {} | {} | {proofs} |", rule.id, rule.summary);
            }
        }
        out
    }

    /// Complaints about the list of what is built.
    fn unproved(&self, built: &str) -> Complaints {
        let mut complaints = Complaints::new();
        for id in built_ids(built) {
            if !self.rules().any(|rule| rule.id == id) {
                complaints.push(format!("{BUILT}: {id} is no rule of {SPEC}"));
            } else if !self.proofs.contains_key(id) {
                complaints.push(format!("{BUILT}: {id} is built, but no test cites it"));
            }
        }
        complaints
    }
}

fn shown(files: &BTreeMap<String, Vec<String>>) -> String {
    let one = |(file, tests): (&String, &Vec<String>)| format!("`{file}`: {}", tests.join(", "));
    files.iter().map(one).collect::<Vec<_>>().join("<br>")
}

fn built_ids(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty())
}

/// Rules stand as `- L12 text` or as a table's row `| L1 | … |`, below a title `## L. …`.
fn parse_sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push(Section { title: title.to_owned(), rules: Vec::new() });
            continue;
        }
        if let (Some(rule), Some(section)) = (parse_rule(line), sections.last_mut()) {
            section.rules.push(rule);
        }
    }
    sections.retain(|section| !section.rules.is_empty());
    sections
}

fn parse_rule(line: &str) -> Option<Rule> {
    let (id, text) = if let Some(row) = line.strip_prefix("| ") {
        let (id, cells) = row.split_once(" |")?;
        let cells = cells.split('|').map(str::trim).filter(|cell| !cell.is_empty());
        (id, cells.collect::<Vec<_>>().join(" · "))
    } else {
        let (id, text) = line.strip_prefix("- ")?.split_once(' ')?;
        (id, text.replace("**", "").replace('|', "\\|"))
    };
    is_id(id).then(|| Rule { id: id.to_owned(), summary: shortened(&text) })
}

/// The text up to its first full stop or colon, or as much of it as the table has room for.
fn shortened(text: &str) -> String {
    let sentence = text.split(". ").next().unwrap_or(text).trim_end_matches(['.', ':']);
    if sentence.chars().count() <= SUMMARY_MAX {
        return sentence.to_owned();
    }
    let cut: String = sentence.chars().take(SUMMARY_MAX).collect();
    let whole_words = cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words);
    // A code span that was cut open would swallow the rest of the row.
    let fence = if whole_words.matches('`').count() % 2 == 1 { "`" } else { "" };
    format!("{whole_words}{fence} …")
}

fn is_id(word: &str) -> bool {
    let mut chars = word.chars();
    let is_letter = chars.next().is_some_and(|letter| LETTERS.contains(letter));
    is_letter && word.len() > 1 && chars.all(|digit| digit.is_ascii_digit())
}

/// The rules that the tests of a file cite, each with the test that does. A comment outside of every
/// test (above one, or in a table or helper that one uses) counts for the next test below it.
fn citations(source: &Source) -> Vec<(String, String)> {
    let lines: Vec<&str> = source.code.lines().collect();
    let tests = tests_of(&lines);
    let mut found = Vec::new();
    for (at, (line, code)) in source.text.lines().zip(&lines).enumerate() {
        let Some(comment) = source.is_test[at].then(|| comment_of(line, code)).flatten() else {
            continue;
        };
        let test = tests.iter().find(|test| at <= test.end).or(tests.last());
        if let Some(test) = test {
            found.extend(ids_in(comment).map(|id| (id.to_owned(), test.name.clone())));
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

fn ids_in(comment: &str) -> impl Iterator<Item = &str> {
    comment.split(|c: char| !c.is_ascii() || !is_name_byte(c as u8)).filter(|word| is_id(word))
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
    fn rules_are_found_as_bullets_and_as_rows() {
        let text = "# T\n\n## L. Life\n\n| id | state |\n|---|---|\n| L1 | vacant | idle |\n\n\
                    - L12 A **lost** transport. More.\n- plain\n\n## T. Time\n\n| directive | x |\n- T1 Clock\n";
        let sections = parse_sections(text);
        let rule = |id: &str, summary: &str| Rule { id: id.into(), summary: summary.into() };
        let life = vec![rule("L1", "vacant · idle"), rule("L12", "A lost transport")];
        let expected = vec![
            Section { title: "L. Life".into(), rules: life },
            Section { title: "T. Time".into(), rules: vec![rule("T1", "Clock")] },
        ];
        assert_eq!(sections, expected);
    }

    #[test]
    fn a_long_rule_is_cut_between_words_and_outside_of_code() {
        let short = shortened(&format!("`{}`", "word ".repeat(40)));
        assert!(short.ends_with("word` …"), "{short}");
        assert!(short.chars().count() <= SUMMARY_MAX + 3);
    }

    #[test]
    fn a_citation_belongs_to_the_test_it_stands_in_or_above() {
        let text = "//! H1\nconst ROWS: [u8; 1] = [\n    1, // H2\n];\n\n/// H3: a rule\n#[test]\n\
                    fn first() {\n    // H4, H5\n    let s = \"// H6\";\n}\n\n#[test]\nfn second() {} // H7\n// H8\n";
        let found = citations(&source("crates/x/tests/a.rs", text));
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
        let found = citations(&source("crates/x/src/a.rs", text));
        assert_eq!(pairs(&found), [("H10", "b")]);
    }

    #[test]
    fn an_id_is_a_known_letter_and_digits() {
        for (word, is) in [("L1", true), ("O12", true), ("L", false), ("X1", false), ("H9a", false)]
        {
            assert_eq!(is_id(word), is, "{word}");
        }
        assert_eq!(ids_in("// xH9 H9, (T2) C1–C3").collect::<Vec<_>>(), ["H9", "T2", "C1", "C3"]);
    }

    #[test]
    fn what_is_called_built_must_exist_and_be_proved() {
        let rule = |id: &str| Rule { id: id.into(), summary: String::new() };
        let sections = vec![Section { title: "L".into(), rules: vec![rule("L1"), rule("L2")] }];
        let tests = BTreeMap::from([("f.rs".to_owned(), vec!["t".to_owned()])]);
        let survey = Survey { sections, proofs: BTreeMap::from([("L1".to_owned(), tests)]) };
        let complaints = survey.unproved("# life\nL1 # proved\nL2\n\nL99\n");
        assert_eq!(complaints.len(), 2);
        assert!(complaints[0].contains("L2 is built") && complaints[1].contains("L99 is no rule"));
        assert!(survey.table().contains("| L1 |  | `f.rs`: t |\n| L2 |  | **open** |"));
    }
}
