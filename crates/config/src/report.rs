//! What an operator reads when the file is wrong: message, place, source line, include chain and a
//! suggestion. A report owns all it shows, so it outlives the files.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level as Title, Origin, Renderer, Snippet};

/// After so many errors the rest is only counted as "and more".
pub const ERRORS_MAX: usize = 100;
/// So many warnings are kept.
pub const WARNINGS_MAX: usize = 100;
/// A longer source line is not shown.
const LINE_BYTES_MAX: usize = 2000;

/// A file that has been read, and from where it was included.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Where it is; `None` for what came with `-g`.
    pub path: Option<PathBuf>,
    /// What is in it.
    pub text: Arc<[u8]>,
    /// The `include` that brought it in.
    pub included_from: Option<Span>,
    line_starts: Arc<[u32]>,
}

impl SourceFile {
    /// A file with this text.
    pub fn new(path: Option<PathBuf>, text: Arc<[u8]>, included_from: Option<Span>) -> Self {
        let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let line_starts = std::iter::once(0).chain(ends.map(|(at, _)| at as u32 + 1)).collect();
        Self { path, text, included_from, line_starts }
    }

    /// The same file, brought in by another `include`.
    #[must_use]
    pub fn included_again(&self, from: Option<Span>) -> Self {
        Self { included_from: from, ..self.clone() }
    }

    /// As it is called in messages.
    pub fn name(&self) -> String {
        self.path
            .as_ref()
            .map_or_else(|| "command line".to_owned(), |path| path.display().to_string())
    }

    /// The line (from 0) in which this byte stands.
    pub fn line_of(&self, at: u32) -> usize {
        self.line_starts.partition_point(|start| *start <= at).saturating_sub(1)
    }

    fn line_start(&self, line: usize) -> usize {
        self.line_starts.get(line).map_or(self.text.len(), |start| *start as usize)
    }

    fn line_bytes(&self, line: usize) -> &[u8] {
        let end = self.line_starts.get(line + 1).map_or(self.text.len(), |next| *next as usize - 1);
        self.text.get(self.line_start(line)..end).unwrap_or_default()
    }
}

/// A stretch of text in a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// Index into the files.
    pub file: u32,
    /// The first byte.
    pub start: u32,
    /// Behind the last byte.
    pub end: u32,
}

/// How grave a report is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can, but something in it is likely not meant.
    Warning,
}

/// Where something is, ready to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcePosition {
    /// The file's name.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The source line; `None` when it is too long to show.
    source: Option<String>,
    /// What is underlined, in bytes of `source`.
    range: (usize, usize),
}

impl SourcePosition {
    fn of(files: &[SourceFile], span: Span) -> Option<Self> {
        let file = files.get(span.file as usize)?;
        let line = file.line_of(span.start);
        let bytes = file.line_bytes(line);
        let start = (span.start as usize - file.line_start(line)).min(bytes.len());
        let end = (span.end as usize - file.line_start(line)).clamp(start, bytes.len());
        // A tab is one character wide here: a caret stays under its word wherever tabs are set.
        let shown = |part: &[u8]| {
            let text = String::from_utf8_lossy(part).replace('\t', " ");
            text.replace(|c: char| c.is_control(), "\u{fffd}")
        };
        let (before, marked, behind) = (&bytes[..start], &bytes[start..end], &bytes[end..]);
        let column =
            if bytes.len() > LINE_BYTES_MAX { start } else { shown(before).chars().count() } + 1;
        let source = (bytes.len() <= LINE_BYTES_MAX).then(|| [before, marked, behind].map(shown));
        let range = source
            .as_ref()
            .map_or((0, 0), |[before, marked, _]| (before.len(), before.len() + marked.len()));
        Some(Self {
            file: file.name(),
            line: line + 1,
            column,
            source: source.map(|parts| parts.concat().trim_end().to_owned()),
            range,
        })
    }

    fn snippet(&self) -> Option<(&str, std::ops::Range<usize>)> {
        let source = self.source.as_deref()?;
        let start = self.range.0.min(source.len());
        Some((source, start..self.range.1.clamp(start, source.len())))
    }
}

/// One thing that is wrong, or likely wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// How grave.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// Where, unless it is nowhere in particular.
    pub place: Option<SourcePosition>,
    /// Further facts.
    pub notes: Vec<String>,
    /// What might help.
    pub help: Option<String>,
    /// A related position, and a text about it.
    pub related: Option<(SourcePosition, String)>,
    /// Whether it is about what is on this machine rather than about the text.
    pub is_of_machine: bool,
    /// File and byte, so that reports are shown in the order of the text.
    order: Option<(u32, u32)>,
}

impl Report {
    /// An error at a place.
    pub fn error(
        files: &[SourceFile],
        span: impl Into<Option<Span>>,
        message: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Error, files, span.into(), message.into())
    }

    /// A warning at a place.
    pub fn warning(
        files: &[SourceFile],
        span: impl Into<Option<Span>>,
        message: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Warning, files, span.into(), message.into())
    }

    fn new(severity: Severity, files: &[SourceFile], span: Option<Span>, message: String) -> Self {
        let place = span.and_then(|span| SourcePosition::of(files, span));
        let mut notes = Vec::new();
        let mut file = span.and_then(|span| files.get(span.file as usize));
        // Includes are nested within a bound; each step leads to an earlier file.
        while let Some(from) = file.and_then(|file| file.included_from) {
            let Some(outer) = files.get(from.file as usize) else { break };
            notes.push(format!("included from {}:{}", outer.name(), outer.line_of(from.start) + 1));
            file = Some(outer);
        }
        let order = span.filter(|_| place.is_some()).map(|span| (span.file, span.start));
        Self {
            severity,
            message,
            place,
            notes,
            help: None,
            related: None,
            is_of_machine: false,
            order,
        }
    }

    /// The same about what is on this machine: elsewhere it may be otherwise.
    #[must_use]
    pub const fn of_machine(mut self) -> Self {
        self.is_of_machine = true;
        self
    }

    /// The same with one more note, which is printed before the include chain.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        let at = self.notes.iter().position(|note| note.starts_with("included from "));
        self.notes.insert(at.unwrap_or(self.notes.len()), note.into());
        self
    }

    /// The same with a suggestion.
    #[must_use]
    pub fn help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into().or(self.help);
        self
    }

    /// The same with another place that has to do with it.
    #[must_use]
    pub fn related(mut self, files: &[SourceFile], span: Span, label: impl Into<String>) -> Self {
        self.related = SourcePosition::of(files, span).map(|place| (place, label.into()));
        self
    }

    /// Whether the configuration cannot be used.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// As nginx logs it: `[emerg] message in FILE:LINE`.
    pub fn line(&self) -> String {
        let level = if self.is_error() { "emerg" } else { "warn" };
        let mut out = format!("[{level}] {}", self.message);
        if let Some(place) = &self.place {
            _ = write!(out, " in {}:{}", place.file, place.line);
        }
        out
    }

    /// As a compiler shows it, without a newline at the end.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let title = if self.is_error() { Title::ERROR } else { Title::WARNING };
        let mut group = Group::with_title(title.primary_title(self.message.as_str()));
        if let Some(place) = &self.place {
            group = shown_at(group, place, AnnotationKind::Primary, None);
        }
        if let Some((place, label)) = &self.related {
            group = shown_at(group, place, AnnotationKind::Context, Some(label));
        }
        let notes = self.notes.iter().map(|note| Title::NOTE.message(note.as_str()));
        group = group.elements(notes);
        if let Some(help) = &self.help {
            group = group.element(Title::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }
}

fn shown_at<'a>(
    group: Group<'a>,
    place: &'a SourcePosition,
    kind: AnnotationKind,
    label: Option<&'a str>,
) -> Group<'a> {
    let Some((source, range)) = place.snippet() else {
        return group
            .element(Origin::path(place.file.as_str()).line(place.line).char_column(place.column));
    };
    let mut annotation = kind.span(range);
    if let Some(label) = label {
        annotation = annotation.label(label);
    }
    group.element(
        Snippet::source(source)
            .line_start(place.line)
            .path(place.file.as_str())
            .annotation(annotation),
    )
}

/// Reports as they gather, within bounds.
#[derive(Debug, Default)]
pub struct Reports {
    list: Vec<Report>,
    errors: usize,
    warnings: usize,
}

impl Reports {
    /// Keeps a report, if there is still room for one of its kind.
    pub fn push(&mut self, report: Report) {
        let (count, max) = match report.severity {
            Severity::Error => (&mut self.errors, ERRORS_MAX),
            Severity::Warning => (&mut self.warnings, WARNINGS_MAX),
        };
        *count += 1;
        if *count <= max {
            self.list.push(report);
        }
    }

    /// Whether there has been an error.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether looking further has no use.
    pub fn is_full(&self) -> bool {
        self.errors > ERRORS_MAX
    }

    /// All of them, in the order of the text; those without a place last.
    pub fn finish(mut self) -> Vec<Report> {
        self.list.sort_by_key(|report| (report.order.is_none(), report.order));
        if self.is_full() {
            self.list.push(Report::error(
                &[],
                None,
                format!("more than {ERRORS_MAX} errors: the others are not shown"),
            ));
        }
        self.list
    }
}

/// `did you mean "x"?`, if one of the words is near enough to this one.
pub fn did_you_mean<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<String> {
    const WORD_MAX: usize = 64;
    if word.is_empty() || word.len() > WORD_MAX {
        return None;
    }
    let length = word.chars().count();
    let reach = (length / 3).max(1);
    words
        // What differs more in length alone is out of reach; known words are ASCII.
        .filter(|known| known.len().abs_diff(length) <= reach)
        .map(|known| (distance(word, known), known))
        .filter(|(distance, known)| *distance <= reach && *known != word)
        .min()
        .map(|(_, known)| format!("did you mean \"{known}\"?"))
}

/// How many letters must be put in, taken out, changed or swapped with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut cost = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(from.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<SourceFile> {
        let outer = Arc::from(b"http {\n\tinclude b.conf;\n}\n".as_slice());
        let inner = Arc::from(b"root /a;\n\tsendfil on;\n".as_slice());
        let from = Span { file: 0, start: 8, end: 15 };
        vec![
            SourceFile::new(Some(PathBuf::from("/a.conf")), outer, None),
            SourceFile::new(Some(PathBuf::from("/b.conf")), inner, Some(from)),
        ]
    }

    /// O2: file, line, column, the source line, the include chain and a suggestion.
    #[test]
    fn a_report_shows_place_line_chain_and_suggestion() {
        let report = Report::error(
            &files(),
            Span { file: 1, start: 10, end: 17 },
            "unknown directive \"sendfil\"",
        )
        .help(did_you_mean("sendfil", ["sendfile", "send_timeout"].into_iter()));
        assert_eq!(report.line(), "[emerg] unknown directive \"sendfil\" in /b.conf:2");
        let expected = "\
error: unknown directive \"sendfil\"
 --> /b.conf:2:2
  |
2 |  sendfil on;
  |  ^^^^^^^
  |
  = note: included from /a.conf:2
  = help: did you mean \"sendfile\"?";
        assert_eq!(report.render(false), expected);
        assert!(report.render(true).contains("\u{1b}["));
    }

    #[test]
    fn a_place_is_shown_whatever_the_bytes_are() {
        let text: Arc<[u8]> = Arc::from(b"a \xff\xfe\x1b[0m b\n".as_slice());
        let files = [SourceFile::new(None, text, None)];
        for start in 0..12 {
            for end in start..13 {
                let shown = Report::error(&files, Span { file: 0, start, end }, "x").render(false);
                assert!(!shown.contains('\u{1b}'), "{shown}");
            }
        }
        let long: Arc<[u8]> = Arc::from("x".repeat(LINE_BYTES_MAX + 1).into_bytes());
        let files = [SourceFile::new(None, long, None)];
        let shown = Report::error(&files, Span { file: 0, start: 5, end: 9 }, "x").render(false);
        assert!(shown.contains("command line:1:6") && shown.len() < 100, "{shown}");
    }

    #[test]
    fn reports_stop_at_their_bound_and_say_so() {
        let mut reports = Reports::default();
        for n in 0..=ERRORS_MAX {
            assert!(!reports.is_full());
            reports.push(Report::error(&[], None, format!("{n}")));
        }
        assert!(reports.is_full());
        let list = reports.finish();
        assert_eq!(list.len(), ERRORS_MAX + 1);
        assert_eq!(
            list[ERRORS_MAX].line(),
            "[emerg] more than 100 errors: the others are not shown"
        );
    }

    #[test]
    fn suggestions_are_near_or_absent() {
        let table = [
            ("lisen", Some("did you mean \"listen\"?")),
            ("serevr", Some("did you mean \"server\"?")),
            ("rot", Some("did you mean \"root\"?")),
            ("xyzzy", None),
            ("", None),
        ];
        for (word, expected) in table {
            let found = did_you_mean(word, ["listen", "server", "root"].into_iter());
            assert_eq!(found.as_deref(), expected, "{word}");
        }
    }
}
