//! Where in the text something is named that turns out to be wrong on the machine, after the text itself was
//! found to be right.

use std::path::Path;

use crate::Outcome;
use crate::parse::Node;
use crate::report::{Report, Span};
use crate::source::path_of;

impl Outcome {
    /// A warning about a path, with the place where one of these directives names it, or what it lies in.
    pub fn warning_about(&self, directives: &[&str], path: &Path, message: String) -> Report {
        let mut closest = None;
        look(&self.tree.nodes, directives, path, &mut closest);
        let span = closest.map(|(_, span)| span);
        Report::warning(&self.tree.files, span, message).of_machine()
    }

    /// Whether one of these directives names the path: it is not a default.
    pub fn is_named(&self, directives: &[&str], path: &Path) -> bool {
        let mut closest = None;
        look(&self.tree.nodes, directives, path, &mut closest);
        closest.is_some()
    }

    /// The same as an error: the configuration cannot be used.
    pub fn refuse_for(&mut self, directives: &[&str], path: &Path, message: String) {
        let mut closest = None;
        look(&self.tree.nodes, directives, path, &mut closest);
        let span = closest.map(|(_, span)| span);
        let report = Report::error(&self.tree.files, span, message).of_machine();
        // What is named twice is wrong once.
        if !self.reports.contains(&report) {
            self.reports.push(report);
        }
        self.refuse();
    }

    /// A warning about a file of the configuration, with the place where it is included.
    pub fn warning_about_file(&self, path: &Path, message: String) -> Report {
        let file = self.tree.files.iter().find(|file| file.path.as_deref() == Some(path));
        let span = file.and_then(|file| file.included_from);
        Report::warning(&self.tree.files, span, message).of_machine()
    }
}

/// Finds the word that says most of a path. Blocks are nested within a bound.
fn look(nodes: &[Node], directives: &[&str], path: &Path, closest: &mut Option<(usize, Span)>) {
    for node in nodes {
        if directives.iter().any(|name| name.as_bytes() == &*node.name.text) {
            for word in &node.args {
                let said = said_of(&word.text, path);
                if said > closest.map_or(0, |(most, _)| most) {
                    *closest = Some((said, word.span));
                }
            }
        }
        look(node.body.as_deref().unwrap_or_default(), directives, path, closest);
    }
}

/// How many bytes of a path a word says, from its beginning or, where the word is relative, at its end.
fn said_of(word: &[u8], path: &Path) -> usize {
    let fixed = match word.iter().position(|byte| *byte == b'$') {
        // The folder before the part that has the variable.
        Some(at) => {
            &word[..word[..at].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)]
        }
        None => word,
    };
    let named = path_of(fixed);
    let is_said = |named: &Path| {
        let has_name = named.file_name().is_some();
        if named.is_absolute() {
            path.starts_with(named)
        } else {
            has_name && path.ends_with(named)
        }
    };
    if is_said(&named) {
        return fixed.len();
    }
    // The folder of a file that is named: not as close as its own name.
    let folder = named.parent().filter(|folder| folder.is_absolute() && *folder == path);
    folder.map_or(0, |folder| folder.as_os_str().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, Options, load};

    #[test]
    fn a_path_is_found_where_it_is_named_most_closely() {
        let text = "error_log logs/e.log;\nhttp {\nserver { access_log /var/log/x;\nroot /srv/a;\nlocation /b { root /srv/a/b; }\n\
                    location /c { root /srv/$host/x; }\n} }";
        let source = Memory::of("/p/c", text);
        let outcome = load(Path::new("/p/c"), &Options::new("/p"), &source);
        for (directives, path, place) in [
            (&["root"][..], "/srv/a", " in /p/c:4"),
            (&["root"], "/srv/a/up", " in /p/c:4"),
            (&["root"], "/srv/a/b/x", " in /p/c:5"),
            (&["root"], "/srv/", " in /p/c:6"),
            (&["root"], "/elsewhere", ""),
            (&["alias"], "/srv/a", ""),
            (&["error_log", "access_log"], "/p/logs/e.log", " in /p/c:1"),
            (&["error_log"], "/p/logs", ""),
            (&["access_log"], "/var/log", " in /p/c:3"),
        ] {
            let report = outcome.warning_about(directives, Path::new(path), "it".to_owned());
            assert_eq!(report.line(), format!("[warn] it{place}"), "{path}");
        }
    }

    #[test]
    fn a_file_is_found_where_it_is_included() {
        let mut source = Memory::of("/c", "\ninclude /more/*.conf;");
        source.files.insert("/more/a.conf".into(), Vec::new());
        let outcome = load(Path::new("/c"), &Options::new("/"), &source);
        let line = |path: &str| outcome.warning_about_file(Path::new(path), "it".to_owned()).line();
        assert_eq!(line("/more/a.conf"), "[warn] it in /c:2");
        assert_eq!(line("/c"), "[warn] it");
    }
}
