//! Which rule of `docs/SPEC.md` is proved by which test. A test cites a rule by naming its id in a
//! comment; a rule that `docs/spec-built.txt` calls built must be cited.

use std::fmt::Write as _;
use std::path::Path;

use crate::citation::{self, Proofs, is_id};
use crate::{Complaints, check_generated, read};

const SPEC: &str = "docs/SPEC.md";
const BUILT: &str = "docs/spec-built.txt";
const COVERAGE: &str = "docs/spec-coverage.md";
/// The letters that rule ids begin with.
const LETTERS: &str = "LTHCFEOSMUNQK";
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
    proofs: Proofs,
}

fn survey(root: &Path) -> Result<Survey, Complaints> {
    let sections = parse_sections(&read(root, SPEC)?);
    Ok(Survey { sections, proofs: citation::read_all(root, LETTERS) })
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
                let proofs =
                    self.proofs.get(&rule.id).map_or("**open**".to_owned(), citation::shown);
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
    is_id(id, LETTERS).then(|| Rule { id: id.to_owned(), summary: shortened(&text) })
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

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
