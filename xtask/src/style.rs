//! The shape of files: not too long, opened by what they are for, free of words that must not stay.

use std::path::Path;

use crate::Complaints;
use crate::source::{self, Source};

/// A file that is longer is two rooms.
const LINES_MAX: usize = 700;
/// Macros that say "not done".
const UNDONE: [&str; 3] = ["todo!(", "unimplemented!(", "dbg!("];
/// Paths of one machine, which mean nothing on another. In pieces, or this file would be found.
const MACHINE: [&str; 2] = [concat!("/root/", ".cargo"), concat!("/root/", ".rustup")];

/// Checks every Rust file.
pub(crate) fn check(root: &Path) -> Complaints {
    source::read_all(root).iter().flat_map(check_source).collect()
}

fn check_source(source: &Source) -> Complaints {
    let mut complaints = Complaints::new();
    let path = &source.path;
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        complaints.push(format!("{path}: {lines} lines, at most {LINES_MAX} read well"));
    }
    if path.contains("/src/") && !source.text.starts_with("//!") {
        complaints.push(format!("{path}: does not open with what it is for (`//!`)"));
    }
    for (at, (line, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
        let undone = UNDONE.iter().filter(|word| code.contains(**word));
        let machine = MACHINE.iter().filter(|word| line.contains(**word));
        for word in undone.chain(machine) {
            complaints.push(format!("{path}:{}: {word} must not stay", at + 1));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Complaints {
        check_source(&Source::new(path.into(), text.into()))
    }

    #[test]
    fn a_file_in_good_shape_passes() {
        assert!(complaints("crates/x/src/a.rs", "//! A room.\n\nfn a() {} // todo!(\n").is_empty());
        assert!(complaints("crates/x/tests/a.rs", "fn a() {}\n").is_empty());
    }

    #[test]
    fn length_opening_and_words_are_complained_about() {
        let long = format!("//! A room.\n{}", "\n".repeat(LINES_MAX));
        assert!(complaints("crates/x/src/a.rs", &long)[0].contains("701 lines"));
        assert!(complaints("crates/x/src/a.rs", "fn a() {}\n")[0].contains("`//!`"));
        assert!(
            complaints("crates/x/tests/a.rs", "fn a() { todo!() }\n")[0].contains(":1: todo!(")
        );
        let path = format!("// see {}/x\n", MACHINE[0]);
        assert_eq!(complaints("crates/x/tests/a.rs", &path).len(), 1);
    }
}
