//! A page as a script: what its fenced blocks, in their order, ask a reader to do.
//!
//! - A block whose first line is a comment with a path is a file of that name.
//! - Other blocks of `nginx` are tested by `sekisho -t`, in the first context that takes them.
//! - Blocks of `sh` are run. A line that ends with `# 404` must have that status, one that ends with `# prints WORDS` must print
//!   them; a line without such a comment must not fail.
//! - A comment `<!-- run … -->` is run, too: what a reader has, and the test has not.

use std::fmt::Write as _;

/// A fenced block.
#[derive(Debug)]
struct Block<'a> {
    line: usize,
    language: &'a str,
    text: String,
}

/// The blocks of a page.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    blocks: Vec<Block<'a>>,
}

/// Blocks that are not run: pictures of a terminal, parts of files.
const SHOWN: [&str; 10] =
    ["text", "console", "ini", "html", "yaml", "python", "rust", "json", "toml", "proto"];

impl<'a> Page<'a> {
    pub(crate) fn of(source: &'a str) -> Self {
        let mut blocks = Vec::new();
        let mut lines = source.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            let (language, end) = if let Some(language) = line.trim_start().strip_prefix("```") {
                (language, "```")
            } else if line == "<!-- run" {
                ("run", "-->")
            } else {
                continue;
            };
            let text = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != end);
            let text = text.flat_map(|line| [line, "\n"]).collect();
            blocks.push(Block { line: at + 2, language, text });
        }
        Self { blocks }
    }

    /// Whether there is something to run.
    pub(crate) fn has_code(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.language, "sh" | "nginx"))
    }

    /// The blocks of a language, with their lines.
    pub(crate) fn blocks_of(&self, language: &str) -> impl Iterator<Item = (usize, &str)> {
        let blocks = self.blocks.iter().filter(move |block| block.language == language);
        blocks.map(|block| (block.line, &*block.text))
    }

    /// Blocks of languages that this test knows nothing of, with their lines.
    pub(crate) fn unknown_languages(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_known = |name: &str| matches!(name, "sh" | "nginx" | "run") || SHOWN.contains(&name);
        let unknown = self.blocks.iter().filter(move |block| !is_known(block.language));
        unknown.map(|block| (block.line, block.language))
    }

    /// The script.
    pub(crate) fn script(&self) -> String {
        let mut script = String::new();
        for block in &self.blocks {
            let Block { line, language, text } = block;
            let here = |command: &str| format!("{command} <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\n");
            _ = writeln!(script, "at_line {line}");
            match (*language, file_of(text)) {
                ("run", _) => script.push_str(text),
                ("sh", _) => commands(text, &mut script),
                ("nginx" | "python", Some(path)) => {
                    script.push_str(&here(&format!("write_file {path}")));
                }
                ("nginx", None) => script.push_str(&here("test_snippet")),
                _ => {}
            }
        }
        script
    }
}

/// The path in the comment of the first line.
fn file_of(text: &str) -> Option<&str> {
    let path = text.lines().next()?.strip_prefix("# ")?;
    (path.starts_with('/') && !path.contains(' ')).then_some(path)
}

/// The commands of a block, with what their comments promise.
fn commands(text: &str, script: &mut String) {
    for line in text.lines() {
        let (command, comment) = match line.rsplit_once(" # ") {
            Some((command, comment)) => (command.trim_end(), comment),
            None => (line, ""),
        };
        let status = comment.get(..3).filter(|digits| digits.parse::<u16>().is_ok());
        let checked = match (comment.strip_prefix("prints "), status) {
            (Some(words), _) => format!("must_print '{words}' {command}\n"),
            (None, Some(status)) => format!("must_answer {status} {command}\n"),
            (None, None) => format!("{line}\n"),
        };
        script.push_str(&checked);
    }
}

#[test]
fn a_page_becomes_a_script() {
    let source = "# T\n```nginx\n# /etc/x.conf\na;\n```\n```sh\ncurl x    # 404 Not Found\ncurl y # prints it's\n```\n\
                  ```nginx\nlisten 80;\n```\n";
    let page = Page::of(source);
    let script = page.script();
    assert!(script.contains("write_file /etc/x.conf <<'END_OF_BLOCK'\n# /etc/x.conf\na;\nEND"));
    assert!(script.contains("at_line 7\nmust_answer 404 curl x\n"), "{script}");
    assert!(script.contains("test_snippet <<'END_OF_BLOCK'\nlisten 80;\nEND_OF_BLOCK\n"));
    assert!(page.has_code() && page.unknown_languages().next().is_none());
}
