//! A folder's README below its listing. Its text is not trusted: every byte is escaped, and HTML in it is
//! text as well. Markdown is read by pulldown-cmark; what comes out is written here.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag};

use super::text;

/// How much of it is shown.
pub(super) const README_BYTES_MAX: u64 = 64 << 10;
/// How deep elements lie in each other; what is deeper is shown without them.
const DEPTH_MAX: usize = 32;
/// How much longer than its text a page may become: tables are filled up with empty cells.
const GROWTH_MAX: usize = 32;

/// The names that are shown, the best first.
const NAMES: [&str; 3] = ["readme.md", "readme.txt", "readme"];

/// Whether a name is one to show rather than `other`.
pub(super) fn is_better(name: &[u8], other: Option<&[u8]>) -> bool {
    let rank =
        |name: &[u8]| NAMES.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    // Several spellings of one name can be there: which is shown must not depend on the file system.
    match (name.len() <= 10).then(|| rank(name)).flatten() {
        None => false,
        Some(at) => other.is_none_or(|other| (Some(at), name) < (rank(other), other)),
    }
}

/// Writes the section for a README.
pub(super) fn write(name: &[u8], content: &[u8], is_cut: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"<article aria-label=\"");
    text::push_html(name, out);
    out.extend_from_slice(b"\"><h2>");
    text::push_html(name, out);
    out.extend_from_slice(b"</h2>\n");
    if name.len() > 3 && name[name.len() - 3..].eq_ignore_ascii_case(b".md") {
        markdown(content, out);
    } else {
        out.extend_from_slice(b"<pre>");
        text::push_html(content, out);
        out.extend_from_slice(b"</pre>");
    }
    if is_cut {
        out.extend_from_slice("<p>\u{2026}</p>".as_bytes());
    }
    out.extend_from_slice(b"</article>\n");
}

/// CommonMark with tables, task lists and struck-out text. HTML in it is shown as the text that it is.
fn markdown(content: &[u8], out: &mut Vec<u8>) {
    let content = String::from_utf8_lossy(content);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS | Options::ENABLE_STRIKETHROUGH;
    let limit = out.len() + content.len() * GROWTH_MAX;
    let mut writer = Writer { out, open: Vec::new(), is_table_head: false, image: None };
    for event in Parser::new_ext(&content, options) {
        if writer.out.len() > limit {
            break;
        }
        writer.event(event);
    }
    writer.end();
}

/// Writes what the parser finds.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// What closes each element that is open; nothing for one that is not shown as one.
    open: Vec<&'static str>,
    is_table_head: bool,
    /// The address of the image whose description is being read, how deep it lies, and the description.
    image: Option<(String, usize, String)>,
}

impl Writer<'_> {
    fn event(&mut self, event: Event<'_>) {
        if self.image.is_some() {
            return self.describe(event);
        }
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(_) => self.close(),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(text) => {
                self.out.extend_from_slice(b"<code>");
                self.text(&text);
                self.out.extend_from_slice(b"</code>");
            }
            Event::SoftBreak => self.out.push(b'\n'),
            Event::HardBreak => self.out.extend_from_slice(b"<br>\n"),
            Event::Rule => self.out.extend_from_slice(b"<hr>\n"),
            Event::TaskListMarker(is_done) => {
                self.text(if is_done { "\u{2611} " } else { "\u{2610} " });
            }
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        let (begin, end) = match tag {
            Tag::Paragraph | Tag::HtmlBlock => ("<p>", "</p>\n"),
            // The page has a heading of its own, and the README another one.
            Tag::Heading { level: HeadingLevel::H1, .. } => ("<h3>", "</h3>\n"),
            Tag::Heading { level: HeadingLevel::H2, .. } => ("<h4>", "</h4>\n"),
            Tag::Heading { level: HeadingLevel::H3, .. } => ("<h5>", "</h5>\n"),
            Tag::Heading { .. } => ("<h6>", "</h6>\n"),
            Tag::BlockQuote(_) => ("<blockquote>", "</blockquote>\n"),
            Tag::CodeBlock(_) => ("<pre>", "</pre>\n"),
            Tag::List(None) => ("<ul>\n", "</ul>\n"),
            Tag::List(Some(_)) => ("<ol>\n", "</ol>\n"),
            Tag::Item => ("<li>", "</li>\n"),
            Tag::Table(_) => ("<table>\n", "</table>\n"),
            Tag::TableHead | Tag::TableRow => ("<tr>", "</tr>\n"),
            Tag::TableCell if self.is_table_head => ("<th>", "</th>"),
            Tag::TableCell => ("<td>", "</td>"),
            Tag::Emphasis => ("<em>", "</em>"),
            Tag::Strong => ("<strong>", "</strong>"),
            Tag::Strikethrough => ("<del>", "</del>"),
            Tag::Link { dest_url, .. } => return self.link(dest_url.as_bytes()),
            Tag::Image { dest_url, .. } => {
                self.image = Some((dest_url.into_string(), 0, String::new()));
                return;
            }
            _ => ("", ""),
        };
        self.is_table_head = match begin {
            "<tr>" => matches!(tag, Tag::TableHead),
            _ => self.is_table_head,
        };
        self.open(begin, end);
    }

    fn open(&mut self, begin: &'static str, end: &'static str) {
        let is_shown = self.open.len() < DEPTH_MAX;
        self.out.extend_from_slice(if is_shown { begin } else { "" }.as_bytes());
        self.open.push(if is_shown { end } else { "" });
    }

    fn link(&mut self, address: &[u8]) {
        if !is_harmless(address) || self.open.len() >= DEPTH_MAX {
            return self.open("", "");
        }
        self.out.extend_from_slice(b"<a rel=\"noreferrer\" href=\"");
        text::push_html(address, self.out);
        self.out.extend_from_slice(b"\">");
        self.open.push("</a>");
    }

    /// Reads on within an image until it ends.
    fn describe(&mut self, event: Event<'_>) {
        let Some((_, depth, words)) = &mut self.image else { return };
        match event {
            Event::Text(text) | Event::Code(text) => words.push_str(&text),
            Event::Start(_) => *depth += 1,
            Event::End(_) if *depth > 0 => *depth -= 1,
            Event::End(_) => self.end_image(),
            _ => {}
        }
    }

    /// A picture of this server is shown; one of another server would reveal the reader to it, and is named
    /// instead.
    fn end_image(&mut self) {
        let Some((address, _, words)) = self.image.take() else { return };
        let address = address.as_bytes();
        let is_own = !has_scheme(address) && !address.starts_with(b"//") && is_harmless(address);
        if !is_own {
            return self.text(&words);
        }
        self.out.extend_from_slice(b"<img alt=\"");
        self.text(&words);
        self.out.extend_from_slice(b"\" src=\"");
        text::push_html(address, self.out);
        self.out.extend_from_slice(b"\">");
    }

    fn text(&mut self, text: &str) {
        text::push_html(text.as_bytes(), self.out);
    }

    fn close(&mut self) {
        let end = self.open.pop().unwrap_or_default();
        self.out.extend_from_slice(end.as_bytes());
    }

    /// Closes what is open still.
    fn end(mut self) {
        self.end_image();
        while !self.open.is_empty() {
            self.close();
        }
    }
}

/// Whether an address names a way to reach it, such as `https:`.
fn has_scheme(address: &[u8]) -> bool {
    let end = address.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(address.len());
    address[..end].contains(&b':')
}

/// Whether an address leads to a page or a file, and runs nothing.
fn is_harmless(address: &[u8]) -> bool {
    let is_visible = address.iter().all(|byte| byte.is_ascii_graphic() || *byte >= 0x80);
    let known = [&b"http://"[..], b"https://", b"mailto:"];
    let has_known = known.iter().any(|scheme| {
        address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    is_visible && !address.is_empty() && (has_known || !has_scheme(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let mut out = Vec::new();
        markdown(text.as_bytes(), &mut out);
        String::from_utf8(out).expect("text")
    }

    /// F4, V48: what a README says is never HTML of its own.
    #[test]
    fn a_readme_is_escaped_everywhere() {
        for text in [
            "<script>alert(1)</script>",
            "# <img src=x onerror=alert(1)>",
            "- <b>",
            "> <b>",
            "```\n<b>\n```",
            "`<b>`",
            "**<b>**",
            "[<b>](http://x/\"onclick=\"x)",
            "[x](javascript:alert(1))",
            "[x](JaVaScript:alert(1))",
            "[x](data:text/html,<b>)",
            "[x](java\tscript:x)",
            "![<b>](x)",
            "\\<b>",
        ] {
            let html = rendered(text).to_lowercase();
            assert!(!html.contains("<b") || html.contains("<blockquote"), "{text}: {html}");
            assert!(
                !html.contains("<script") && !html.contains("onerror=alert(1)>"),
                "{text}: {html}"
            );
            assert!(!html.contains("href=\"javascript") && !html.contains("href=\"data"), "{html}");
            assert!(!html.contains("\"onclick"), "{html}");
        }
    }

    #[test]
    fn markdown_is_read() {
        for (text, html) in [
            ("# A *b* #", "<h3>A <em>b</em></h3>\n"),
            ("a\nb\n\nc", "<p>a\nb</p>\n<p>c</p>\n"),
            ("- a\n- b\n  c\n", "<ul>\n<li>a</li>\n<li>b\nc</li>\n</ul>\n"),
            ("1. a\n2. b", "<ol>\n<li>a</li>\n<li>b</li>\n</ol>\n"),
            ("- a\n  - b", "<ul>\n<li>a<ul>\n<li>b</li>\n</ul>\n</li>\n</ul>\n"),
            ("- [x] a\n- [ ] b", "<ul>\n<li>\u{2611} a</li>\n<li>\u{2610} b</li>\n</ul>\n"),
            ("> a\n> b", "<blockquote><p>a\nb</p>\n</blockquote>\n"),
            ("```sh\na < b\n```\nx", "<pre>a &lt; b\n</pre>\n<p>x</p>\n"),
            (
                "|a|b|\n|-|-|\n|1|`2`|",
                "<table>\n<tr><th>a</th><th>b</th></tr>\n<tr><td>1</td><td><code>2</code></td></tr>\n</table>\n",
            ),
            ("~~a~~", "<p><del>a</del></p>\n"),
            (
                "<https://a.example>",
                "<p><a rel=\"noreferrer\" href=\"https://a.example\">https://a.example</a></p>\n",
            ),
            ("![a *b*](c.png)", "<p><img alt=\"a b\" src=\"c.png\"></p>\n"),
            ("![a](https://b.example/c.png)", "<p>a</p>\n"),
            ("![a](//b.example/c.png)", "<p>a</p>\n"),
            ("---", "<hr>\n"),
            (
                "**a** `b*c*` [d](e.txt)",
                "<p><strong>a</strong> <code>b*c*</code> <a rel=\"noreferrer\" href=\"e.txt\">d</a></p>\n",
            ),
            ("a * b * c", "<p>a * b * c</p>\n"),
            ("2 \\* 3", "<p>2 * 3</p>\n"),
            ("#hash", "<p>#hash</p>\n"),
        ] {
            assert_eq!(rendered(text), html, "{text}");
        }
    }

    /// V14
    #[test]
    fn hostile_text_takes_no_long_time() {
        for piece in ["[", "*", "**", "`", "![", "[](", "\\", ">", "- ", "|a\n", "<", "&"] {
            let text = piece.repeat(README_BYTES_MAX as usize / piece.len());
            let html = rendered(&text);
            assert!(html.len() < text.len() * 40, "{piece}");
        }
    }

    #[test]
    fn the_best_name_is_shown() {
        assert!(is_better(b"README.md", None));
        assert!(is_better(b"ReadMe.MD", Some(b"README.txt")));
        assert!(!is_better(b"README", Some(b"README.txt")));
        assert!(is_better(b"README.md", Some(b"readme.md")));
        assert!(!is_better(b"readme.md", Some(b"README.md")));
        assert!(!is_better(b"README.html", None));
    }
}
