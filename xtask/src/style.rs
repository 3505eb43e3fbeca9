//! The form of files: functions that fit on a screen, an opening that says what the file is for, no markers of
//! unfinished work. A file may be as long as its one subject.

use std::path::Path;

use crate::Complaints;
use crate::source::{self, Source, is_name_byte, item_end};

/// Maximum number of lines of a function.
const FUNCTION_LINES_MAX: usize = 80;
/// Functions that may be longer, by file and name: tables, one row after the other.
const TABLES: [(&str, &str); 3] = [
    ("crates/config/src/level/blank.rs", "blank_settings"),
    ("crates/route/src/variable.rs", "variable"),
    ("crates/server/src/control_plane/metrics.rs", "gather_with_stats"),
];
/// Functions that are to be split, with their present length: it must not grow.
const TOO_LONG: [(&str, &str, usize); 16] = [
    ("crates/config/src/resolve.rs", "resolve", 92),
    ("crates/handler/src/file_op/change.rs", "find", 108),
    ("crates/handler/src/file_op/delete.rs", "job", 97),
    ("crates/handler/src/listing.rs", "list", 102),
    ("crates/handler/src/storage/change.rs", "copy", 90),
    ("crates/handler/src/upstream.rs", "pass_on", 107),
    ("crates/handler/src/upstream/task/as_task.rs", "poll", 96),
    ("crates/native/src/client.rs", "frame", 106),
    ("crates/net/src/dispatch.rs", "answer_once", 107),
    ("crates/net/src/dispatch.rs", "start", 97),
    ("crates/net/src/subrequest.rs", "answer_once", 81),
    ("crates/properties/src/ring.rs", "check", 88),
    ("crates/server/src/certificates/acme.rs", "keep", 108),
    ("crates/server/src/control_plane/control.rs", "answer", 86),
    ("crates/server/src/run.rs", "start", 100),
    ("crates/simulation/src/native/server_session.rs", "see", 98),
];
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
    complaints.extend(long_functions(source));
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

fn long_functions(source: &Source) -> Complaints {
    let path = &source.path;
    let lines: Vec<&str> = source.code.lines().collect();
    let functions = source.shipped_code().filter_map(|(at, line)| {
        let name = function_name(line)?;
        let length = item_end(&lines, at) - at + 1;
        if TABLES.contains(&(path, name)) {
            return None;
        }
        let known = TOO_LONG.iter().find(|(file, function, _)| (*file, *function) == (path, name));
        let max = known.map_or(FUNCTION_LINES_MAX, |(_, _, lines)| *lines);
        (length > max)
            .then(|| format!("{path}:{}: {name} has {length} lines, {max} at most", at + 1))
    });
    functions.collect()
}

/// The name of the function whose signature begins in this line.
fn function_name(line: &str) -> Option<&str> {
    let (before, name) = line.split_once("fn ")?;
    let is_word = before.bytes().last().is_none_or(|byte| !is_name_byte(byte));
    let end = name.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(name.len());
    (is_word && end > 0).then(|| &name[..end])
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
        let long = |lines: usize| format!("//! A file.\npub fn a() {{\n{}}}\n", "\n".repeat(lines));
        assert!(complaints("crates/x/src/a.rs", &long(FUNCTION_LINES_MAX - 2)).is_empty());
        assert!(
            complaints("crates/x/src/a.rs", &long(FUNCTION_LINES_MAX - 1))[0].contains("a has 81")
        );
        assert!(complaints("crates/x/src/a.rs", "fn a() {}\n")[0].contains("`//!`"));
        assert!(
            complaints("crates/x/tests/a.rs", "fn a() { todo!() }\n")[0].contains(":1: todo!(")
        );
        let path = format!("// see {}/x\n", MACHINE[0]);
        assert_eq!(complaints("crates/x/tests/a.rs", &path).len(), 1);
    }
}
