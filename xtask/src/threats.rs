//! Which test proves which answer to a threat or fault. The rows of `docs/threats.md` are written by hand but for
//! their last cell, which lists the tests that cite the row's id. A row without a test must begin its answer with the
//! reason (`Not spoken yet`, `Does not apply`), and none may be missing.

use std::path::Path;

use crate::citation::{self, Proofs, is_id};
use crate::{Complaints, check_generated, read};

const THREATS: &str = "docs/threats.md";
/// Each letter that ids begin with, and how many there are.
const KINDS: [(char, usize); 2] = [('V', 50), ('X', 20)];
const LETTERS: &str = "VX";
/// How the answer of a row begins that no test can prove.
const REASONS: [&str; 2] = ["Not spoken yet", "Does not apply"];

/// Writes the last cell of every row.
pub(crate) fn write(root: &Path) -> Complaints {
    match read(root, THREATS) {
        Ok(text) => {
            crate::write(root, THREATS, &filled_in(&text, &citation::read_all(root, LETTERS)))
        }
        Err(complaints) => complaints,
    }
}

/// Checks that the last cells are up to date, and that every row has a test or a reason.
pub(crate) fn check(root: &Path) -> Complaints {
    let text = match read(root, THREATS) {
        Ok(text) => text,
        Err(complaints) => return complaints,
    };
    let proofs = citation::read_all(root, LETTERS);
    let mut complaints = check_generated(root, THREATS, &filled_in(&text, &proofs), "spec");
    complaints.extend(unanswered(&text, &proofs));
    complaints
}

/// One row: its id, its name, and the content of all its cells but the last one.
struct Row<'a> {
    id: &'a str,
    answer: &'a str,
    by_hand: &'a str,
}

impl Row<'_> {
    /// `| V1 | class | answer | proofs |`; other lines are none.
    fn parse(line: &str) -> Option<Row<'_>> {
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        let &[id, class, answer, ..] = cells.as_slice() else { return None };
        let is_row = is_id(id, LETTERS) && !class.is_empty();
        // The part after the third cell is generated.
        let end = line.match_indices('|').nth(3).map_or(line.len(), |(at, _)| at);
        is_row.then(|| Row { id, answer, by_hand: line[..end].trim_end() })
    }

    fn has_reason(&self) -> bool {
        REASONS.iter().any(|reason| self.answer.starts_with(reason))
    }
}

fn filled_in(text: &str, proofs: &Proofs) -> String {
    let line = |line: &str| match Row::parse(line) {
        Some(row) => {
            let tests = proofs.get(row.id).map_or("–".to_owned(), citation::shown);
            format!("{} | {tests} |\n", row.by_hand)
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn unanswered(text: &str, proofs: &Proofs) -> Complaints {
    let rows: Vec<Row<'_>> = text.lines().filter_map(Row::parse).collect();
    let mut complaints = Complaints::new();
    for id in
        KINDS.iter().flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n}")))
    {
        match rows.iter().filter(|row| row.id == id).count() {
            1 => {}
            count => complaints.push(format!("{THREATS}: {id} has {count} rows instead of one")),
        }
    }
    for row in &rows {
        match (proofs.contains_key(row.id), row.has_reason()) {
            (false, false) if row.answer.is_empty() => {
                complaints.push(format!("{THREATS}: {} has no answer", row.id));
            }
            (false, false) => {
                complaints.push(format!("{THREATS}: {} has neither a test nor a reason", row.id));
            }
            (true, true) => {
                complaints.push(format!("{THREATS}: {} has tests, though it says why not", row.id));
            }
            _ => {}
        }
    }
    for id in proofs.keys().filter(|id| !rows.iter().any(|row| row.id == **id)) {
        complaints.push(format!("{THREATS}: tests cite {id}, which has no row"));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn proofs(ids: &[&str]) -> Proofs {
        let tests = BTreeMap::from([("f.rs".to_owned(), vec!["t".to_owned()])]);
        ids.iter().map(|id| ((*id).to_owned(), tests.clone())).collect()
    }

    /// A table with all rows, of which some are replaced.
    fn table(instead: &[(&str, &str)]) -> String {
        let ids = KINDS
            .iter()
            .flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n}")));
        let row = |id: String| match instead.iter().find(|(of, _)| *of == id) {
            Some((_, row)) => format!("{row}\n"),
            None => format!("| {id} | class | Not spoken yet. | – |\n"),
        };
        ids.map(row).collect()
    }

    #[test]
    fn the_last_cell_is_written_and_the_others_are_kept() {
        let text = "# T\n\n| id | what | answer | tests |\n|---|---|---|---|\n| V1 | a b | we `x` | old |\n| V2 | c | d |\n";
        let fresh = filled_in(text, &proofs(&["V1"]));
        let rows = "| V1 | a b | we `x` | `f.rs`: t |\n| V2 | c | d | – |\n";
        assert!(fresh.starts_with("# T\n\n| id | what | answer | tests |\n|---|"), "{fresh}");
        assert!(fresh.ends_with(rows), "{fresh}");
        assert_eq!(filled_in(&fresh, &proofs(&["V1"])), fresh);
    }

    #[test]
    fn a_row_has_a_test_or_a_reason() {
        let good = table(&[("V1", "| V1 | class | We do. | |")]);
        assert_eq!(unanswered(&good, &proofs(&["V1"])), Vec::<String>::new());
        let tables = [
            (good.as_str(), &[][..], "V1 has neither a test nor a reason"),
            (&table(&[("V9", "| V9 | class | | |")]), &[], "V9 has no answer"),
            (&table(&[]), &["X20"], "X20 has tests, though it says why not"),
            (&table(&[]), &["V51"], "tests cite V51, which has no row"),
            (&table(&[("X3", "")]), &[], "X3 has 0 rows"),
            (&table(&[("X3", "| X2 | class | Does not apply: so. | |")]), &[], "X2 has 2 rows"),
        ];
        for (text, cited, expected) in tables {
            let complaints = unanswered(text, &proofs(cited));
            assert!(
                complaints.iter().any(|one| one.contains(expected)),
                "{expected}: {complaints:?}"
            );
        }
    }
}
