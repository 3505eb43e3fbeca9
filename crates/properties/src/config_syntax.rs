//! The syntax of a configuration alone, for which whole configurations are too slow to be tried often: any text is a
//! tree or has an error with a place in the text; a tree is read the same when it is written again.

use sekisho_config::Report;
use sekisho_config::parse::{Node, Tree, parse_bytes};
use sekisho_config::report::{ERRORS_MAX, WARNINGS_MAX};

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let (tree, reports) = parse_bytes(data);
    assert!(reports.len() <= ERRORS_MAX + WARNINGS_MAX + 1);
    for report in &reports {
        assert!(!report.message.is_empty() && !report.line().is_empty());
    }
    if !reports.iter().any(Report::is_error) {
        is_written_again(&tree);
    }
}

/// Writes a tree, reads that, and gives what was written.
pub fn is_written_again(tree: &Tree) -> Vec<u8> {
    let written = tree.render();
    let (again, reports) = parse_bytes(&written);
    assert!(!reports.iter().any(Report::is_error), "{reports:?}");
    assert!(is_same(&tree.nodes, &again.nodes), "{}", String::from_utf8_lossy(&written));
    assert_eq!(again.render(), written);
    written
}

fn is_same(left: &[Node], right: &[Node]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(left, right)| {
            left.name.text == right.name.text
                && left.args.iter().map(|arg| &arg.text).eq(right.args.iter().map(|arg| &arg.text))
                && match (&left.body, &right.body) {
                    (Some(left), Some(right)) => is_same(left, right),
                    (None, None) => true,
                    _ => false,
                }
        })
}
