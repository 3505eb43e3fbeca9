//! Tokens into a tree of directives, with every `include` put in its place. Each node keeps its position.
//! Blocks and includes are nested only so deep, and there are only so many of each.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directive::{self, Body};
use crate::lex::{Lexer, Mistake, Token, quote};
use crate::report::{Report, Reports, SourceFile, Span};
use crate::source::{Source, glob, is_pattern, path_of};

/// Blocks within blocks.
pub const NESTING_MAX: usize = 100;
/// Files that include files.
pub const INCLUDE_DEPTH_MAX: usize = 50;
/// Files in all, one that is included twice counting twice.
pub const FILES_MAX: usize = 10_000;
/// Bytes in all files together.
pub const TOTAL_BYTES_MAX: usize = 64 << 20;
/// Directives in all.
pub const NODES_MAX: usize = 500_000;
/// Words of one directive.
pub const WORDS_MAX: usize = 20_000;

/// A word with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// Its meaning.
    pub text: Box<[u8]>,
    /// Whether it stood in quotes.
    pub quoted: bool,
    /// Where it stands.
    pub span: Span,
}

impl Word {
    /// For messages.
    pub fn shown(&self) -> String {
        const SHOWN_MAX: usize = 100;
        let text = String::from_utf8_lossy(&self.text);
        if text.chars().count() <= SHOWN_MAX {
            return text.into_owned();
        }
        text.chars().take(SHOWN_MAX).chain(['…']).collect()
    }
}

/// A directive: its name, its arguments, and its block if it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The name.
    pub name: Word,
    /// What follows it.
    pub args: Vec<Word>,
    /// What stands between `{` and `}`.
    pub body: Option<Vec<Node>>,
}

/// All that was read.
#[derive(Debug, Default)]
pub struct Tree {
    /// The files; spans point into them.
    pub files: Vec<SourceFile>,
    /// The directives of the outermost level.
    pub nodes: Vec<Node>,
    /// Reading ended early, so that things may be missing.
    pub is_cut: bool,
}

impl Tree {
    /// The tree as text that is read back as the same tree.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::new();
        render_into(&self.nodes, 0, &mut out);
        out
    }
}

fn render_into(nodes: &[Node], depth: usize, out: &mut Vec<u8>) {
    let indent = |out: &mut Vec<u8>| out.extend(std::iter::repeat_n(b' ', depth * 4));
    for node in nodes {
        indent(out);
        quote(&node.name.text, out);
        for arg in &node.args {
            out.push(b' ');
            quote(&arg.text, out);
        }
        if let Some(body) = &node.body {
            out.extend_from_slice(b" {\n");
            render_into(body, depth + 1, out);
            indent(out);
            out.extend_from_slice(b"}\n");
        } else {
            out.extend_from_slice(b";\n");
        }
    }
}

/// Reads one text that includes nothing from outside: for tools and fuzzing.
pub fn parse_bytes(text: &[u8]) -> (Tree, Vec<Report>) {
    struct Nothing;
    impl Source for Nothing {
        fn read(&self, _: &Path) -> Result<Vec<u8>, String> {
            Err("no files here".to_owned())
        }
        fn list(&self, _: &Path) -> Vec<std::ffi::OsString> {
            Vec::new()
        }
    }
    let mut reports = Reports::default();
    let mut parser = Parser::new(Path::new("/"), &Nothing, &mut reports);
    parser.text(Some(PathBuf::from("/text")), text);
    let tree = parser.finish();
    (tree, reports.finish())
}

/// Reads files into one tree.
pub struct Parser<'a> {
    /// Where relative includes begin.
    folder: &'a Path,
    source: &'a dyn Source,
    reports: &'a mut Reports,
    tree: Tree,
    known: HashMap<PathBuf, SourceFile>,
    bytes: usize,
    nodes: usize,
    depth: usize,
    /// The files that are being read, the innermost last.
    chain: Vec<PathBuf>,
    /// The file that is included next is in a block whose lines are not directives.
    in_free_block: bool,
    /// A bound was passed: nothing more is read.
    is_over: bool,
}

impl<'a> Parser<'a> {
    /// A parser whose relative includes begin in `folder`.
    pub fn new(folder: &'a Path, source: &'a dyn Source, reports: &'a mut Reports) -> Self {
        Self {
            folder,
            source,
            reports,
            tree: Tree::default(),
            known: HashMap::new(),
            bytes: 0,
            nodes: 0,
            depth: 0,
            chain: Vec::new(),
            in_free_block: false,
            is_over: false,
        }
    }

    /// Adds the directives of this text; no path means the command line.
    pub fn text(&mut self, path: Option<PathBuf>, text: &[u8]) {
        let file = SourceFile::new(path, Arc::from(text), None);
        let nodes = self.file(file);
        self.tree.nodes.extend(nodes);
    }

    /// Adds the directives of this file.
    pub fn main_file(&mut self, path: &Path) {
        let nodes = self.read(path, None);
        self.tree.nodes.extend(nodes);
    }

    /// The tree.
    pub fn finish(mut self) -> Tree {
        self.tree.is_cut = self.is_over;
        self.tree
    }

    fn report(&mut self, report: Report) {
        self.reports.push(report);
        self.is_over |= self.reports.is_full();
    }

    fn error(&mut self, span: Option<Span>, message: impl Into<String>) {
        let report = Report::error(&self.tree.files, span, message);
        self.report(report);
    }

    /// A bound is passed: an error, and the end of reading.
    fn give_up(&mut self, span: Option<Span>, message: String) {
        self.error(span, message);
        self.is_over = true;
    }

    fn include(&mut self, word: &Word, in_free_block: bool) -> Vec<Node> {
        let path = self.folder.join(path_of(&word.text));
        if !is_pattern(&path) {
            self.in_free_block = in_free_block;
            return self.read(&path, Some(word.span));
        }
        match glob(&path, self.source) {
            Ok(paths) => {
                let mut nodes = Vec::new();
                for path in paths {
                    self.in_free_block = in_free_block;
                    nodes.extend(self.read(&path, Some(word.span)));
                }
                nodes
            }
            Err(reason) => {
                self.error(
                    Some(word.span),
                    format!("cannot read \"{}\": {reason}", path.display()),
                );
                Vec::new()
            }
        }
    }

    fn read(&mut self, path: &Path, from: Option<Span>) -> Vec<Node> {
        if self.is_over {
            return Vec::new();
        }
        if self.chain.iter().any(|open| open == path) {
            self.error(from, format!("\"{}\" includes itself", path.display()));
            return Vec::new();
        }
        if self.chain.len() >= INCLUDE_DEPTH_MAX {
            self.error(from, format!("files are included more than {INCLUDE_DEPTH_MAX} deep"));
            return Vec::new();
        }
        let file = match self.known.get(path) {
            Some(file) => file.included_again(from),
            None => match self.source.read(path) {
                Ok(text) => SourceFile::new(Some(path.to_owned()), Arc::from(text), from),
                Err(reason) => {
                    self.error(from, format!("cannot read \"{}\": {reason}", path.display()));
                    return Vec::new();
                }
            },
        };
        self.known.insert(path.to_owned(), file.clone());
        self.chain.push(path.to_owned());
        let nodes = self.file(file);
        self.chain.pop();
        nodes
    }

    fn file(&mut self, file: SourceFile) -> Vec<Node> {
        self.bytes = self.bytes.saturating_add(file.text.len());
        let from = file.included_from;
        if self.bytes > TOTAL_BYTES_MAX {
            self.give_up(from, format!("more than {} MiB of configuration", TOTAL_BYTES_MAX >> 20));
            return Vec::new();
        }
        if self.tree.files.len() >= FILES_MAX {
            self.give_up(from, format!("more than {FILES_MAX} files"));
            return Vec::new();
        }
        let text = Arc::clone(&file.text);
        let id = self.tree.files.len() as u32;
        self.tree.files.push(file);
        let base = Block { is_free: std::mem::take(&mut self.in_free_block), ..Block::default() };
        Reading { parser: self, file: id, open: vec![base], words: Vec::new(), is_broken: false }
            .all(&text)
    }
}

/// A block that has begun.
#[derive(Default)]
struct Block {
    /// What began it; `None` for the file itself.
    head: Option<(Word, Vec<Word>)>,
    nodes: Vec<Node>,
    /// Its lines are not directives (`types`, `map`).
    is_free: bool,
}

/// One file while it is read.
struct Reading<'p, 'a> {
    parser: &'p mut Parser<'a>,
    file: u32,
    open: Vec<Block>,
    words: Vec<Word>,
    /// The directive that is being read has a mistake in it already.
    is_broken: bool,
}

impl Reading<'_, '_> {
    fn all(mut self, text: &[u8]) -> Vec<Node> {
        let depth = self.parser.depth;
        let mut lexer = Lexer::new(text);
        while let Some((token, range)) = lexer.next() {
            let span = Span { file: self.file, start: range.start as u32, end: range.end as u32 };
            match token {
                Token::Word { text, quoted } => self.word(Word { text, quoted, span }),
                Token::Semicolon => self.semicolon(span),
                Token::Open if self.is_lua() => {
                    // Another language: its braces, quotes and semicolons are not ours to read.
                    if lexer.skip_lua() {
                        self.open(span);
                        self.close(span);
                    } else {
                        let message = "unexpected end of file, expecting \"}\" of a Lua block";
                        self.parser.give_up(Some(span), message.to_owned());
                    }
                }
                Token::Open => self.open(span),
                Token::Close => self.close(span),
                Token::Mistake(mistake) => self.mistake(mistake, span),
            }
            if self.parser.is_over {
                break;
            }
        }
        if !self.parser.is_over {
            self.end(text.len() as u32);
        }
        self.parser.depth = depth;
        while self.open.len() > 1 {
            self.close_block();
        }
        self.open.pop().map(|block| block.nodes).unwrap_or_default()
    }

    fn is_lua(&self) -> bool {
        self.words.first().is_some_and(|name| name.text.ends_with(b"_by_lua_block"))
    }

    fn word(&mut self, word: Word) {
        if self.words.len() == WORDS_MAX {
            let span = Some(word.span);
            self.parser
                .give_up(span, format!("more than {WORDS_MAX} words without \";\" or \"{{\""));
            return;
        }
        self.words.push(word);
    }

    fn mistake(&mut self, mistake: Mistake, span: Span) {
        let message = match mistake {
            Mistake::AfterQuote(byte) => {
                format!(
                    "unexpected \"{}\" after a closing quote",
                    char::from(byte).escape_default()
                )
            }
            Mistake::QuoteNotClosed(quote) => {
                let quote = char::from(quote);
                // All that follows was swallowed, so the rest of the file is not judged.
                let span = Span { end: span.start + 1, ..span };
                self.parser.give_up(
                    Some(span),
                    format!("unexpected end of file, expecting a closing {quote}"),
                );
                return;
            }
            Mistake::WordTooLong => {
                format!("a word of {} bytes is too long", span.end - span.start)
            }
        };
        self.parser.error(Some(span), message);
        self.is_broken = true;
    }

    fn semicolon(&mut self, span: Span) {
        // One mistake is one report.
        if std::mem::take(&mut self.is_broken) {
            return self.words.clear();
        }
        if self.words.is_empty() {
            self.parser.error(Some(span), "unexpected \";\"");
            return;
        }
        let mut words = std::mem::take(&mut self.words);
        self.split_where_a_semicolon_is_missing(&mut words, Body::None);
        let args = words.split_off(1);
        if let Some(name) = words.pop() {
            self.directive(Node { name, args, body: None });
        }
        self.words = words;
    }

    fn open(&mut self, span: Span) {
        let mut words = std::mem::take(&mut self.words);
        self.is_broken = false;
        self.parser.depth += 1;
        if self.parser.depth > NESTING_MAX {
            self.parser
                .give_up(Some(span), format!("blocks are nested more than {NESTING_MAX} deep"));
            return;
        }
        if words.is_empty() {
            self.parser.error(Some(span), "unexpected \"{\"");
            words.push(Word { text: Box::default(), quoted: false, span });
        }
        let body = directive::by_name(&words[0].text).first().map_or(Body::None, |row| row.body);
        self.split_where_a_semicolon_is_missing(&mut words, body);
        let name = words.remove(0);
        let rows = directive::by_name(&name.text);
        let is_free = rows.iter().any(|row| row.body == Body::Entries);
        self.open.push(Block { head: Some((name, words)), nodes: Vec::new(), is_free });
    }

    fn close(&mut self, span: Span) {
        if let Some(last) = self.words.last() {
            let end = Span { start: last.span.end.saturating_sub(1), ..last.span };
            self.missing_semicolon(end, "before \"}\"");
            let words = std::mem::take(&mut self.words);
            let mut words = words.into_iter();
            if let Some(name) = words.next() {
                self.directive(Node { name, args: words.collect(), body: None });
            }
        }
        if self.open.len() == 1 {
            self.parser.error(Some(span), "unexpected \"}\"");
            return;
        }
        self.parser.depth -= 1;
        self.close_block();
    }

    fn close_block(&mut self) {
        let Some(Block { head: Some((name, args)), nodes, .. }) = self.open.pop() else { return };
        self.add(Node { name, args, body: Some(nodes) });
    }

    fn end(&mut self, at: u32) {
        let end = Span { file: self.file, start: at.saturating_sub(1), end: at };
        if let Some(first) = self.words.first() {
            let message = "unexpected end of file, expecting \";\" or \"{\"";
            let report = Report::error(&self.parser.tree.files, first.span, message);
            self.parser.report(report.note("the directive that begins here does not end"));
        } else if let Some((name, _)) = self.open.last().and_then(|block| block.head.as_ref()) {
            let message = "unexpected end of file, expecting \"}\"";
            let report = Report::error(&self.parser.tree.files, end, message);
            let files = &self.parser.tree.files;
            self.parser.report(report.related(files, name.span, "this block is not closed"));
        }
    }

    fn directive(&mut self, node: Node) {
        if &*node.name.text == b"include" {
            if let [word] = node.args.as_slice() {
                let in_free_block = self.open.last().is_some_and(|block| block.is_free);
                let nodes = self.parser.include(word, in_free_block);
                if let Some(block) = self.open.last_mut() {
                    block.nodes.extend(nodes);
                }
            } else {
                let message = "invalid number of arguments in \"include\" directive";
                self.parser.error(Some(node.name.span), message);
            }
            return;
        }
        self.add(node);
    }

    fn add(&mut self, node: Node) {
        self.parser.nodes += 1;
        if self.parser.nodes > NODES_MAX {
            self.parser.give_up(Some(node.name.span), format!("more than {NODES_MAX} directives"));
            return;
        }
        if let Some(block) = self.open.last_mut() {
            block.nodes.push(node);
        }
    }

    /// Where a line begins with the name of a directive, the line above it has most likely lost its
    /// semicolon. If the words make no sense otherwise, that is the error, and both are read as meant;
    /// if nginx would take them as they are, so do we, with a warning.
    fn split_where_a_semicolon_is_missing(&mut self, words: &mut Vec<Word>, body: Body) {
        if self.open.last().is_some_and(|block| block.is_free) {
            return;
        }
        let mut from = 1;
        while let Some(at) = self.line_begins_with_directive(words, from) {
            if self.parser.is_over {
                return;
            }
            let rows = directive::by_name(&words[0].text);
            let fits = rows.iter().any(|row| row.body == body && row.takes(words.len() - 1));
            let last = words[at - 1].span;
            let end = Span { start: last.end.saturating_sub(1), ..last };
            if fits {
                let message = format!(
                    "\"{}\" is taken as an argument of \"{}\"",
                    words[at].shown(),
                    words[0].shown()
                );
                let report = Report::warning(&self.parser.tree.files, words[at].span, message);
                self.parser.report(report.help("is a \";\" missing on the line above?".to_owned()));
                from = at + 1;
                continue;
            }
            self.missing_semicolon(end, &format!("after \"{}\"", words[at - 1].shown()));
            let rest = words.split_off(at);
            let mut first = std::mem::replace(words, rest).into_iter();
            if let Some(name) = first.next() {
                self.directive(Node { name, args: first.collect(), body: None });
            }
            from = 1;
        }
    }

    fn line_begins_with_directive(&self, words: &[Word], from: usize) -> Option<usize> {
        let file = self.parser.tree.files.get(self.file as usize)?;
        // Most directives are on one line: nothing to look for.
        let (first, last) = (words.first()?, words.last()?);
        if file.line_of(first.span.start) == file.line_of(last.span.start) {
            return None;
        }
        (from..words.len()).find(|&at| {
            let (before, word) = (&words[at - 1], &words[at]);
            !word.quoted
                && !directive::by_name(&word.text).is_empty()
                && file.line_of(before.span.end) < file.line_of(word.span.start)
        })
    }

    fn missing_semicolon(&mut self, span: Span, place: &str) {
        let report = Report::error(&self.parser.tree.files, span, format!("missing \";\" {place}"));
        self.parser.report(report);
    }
}
