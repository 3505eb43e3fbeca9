//! A folder's README below its listing. What it says is text of strangers: every byte is escaped, and of
//! Markdown only a small part is read, never HTML.

use super::text;

/// How much of it is shown.
pub(super) const README_BYTES_MAX: u64 = 64 << 10;
/// How far the end of an emphasis, a link or a piece of code may be from its start: work stays linear.
const REACH: usize = 500;
/// How deep these may lie in each other.
const DEPTH: u8 = 3;

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

/// What the lines before have opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Paragraph,
    Quote,
    Bullets,
    Numbers,
    Code,
}

impl Open {
    fn begin(self) -> &'static [u8] {
        match self {
            Self::Nothing => b"",
            Self::Paragraph => b"<p>",
            Self::Quote => b"<blockquote>",
            Self::Bullets => b"<ul>\n<li>",
            Self::Numbers => b"<ol>\n<li>",
            Self::Code => b"<pre>",
        }
    }

    fn end(self) -> &'static [u8] {
        match self {
            Self::Nothing => b"",
            Self::Paragraph => b"</p>\n",
            Self::Quote => b"</blockquote>\n",
            Self::Bullets => b"</li></ul>\n",
            Self::Numbers => b"</li></ol>\n",
            Self::Code => b"</pre>\n",
        }
    }
}

/// Headings, paragraphs, lists, quotes, rules and code; all else is text.
fn markdown(content: &[u8], out: &mut Vec<u8>) {
    let mut open = Open::Nothing;
    for line in content.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let bare = line.trim_ascii();
        let is_fence = bare.starts_with(b"```") || bare.starts_with(b"~~~");
        if open == Open::Code && !is_fence {
            text::push_html(line, out);
            out.push(b'\n');
            continue;
        }
        let (kind, rest) = match bare {
            _ if is_fence => {
                let next = if open == Open::Code { Open::Nothing } else { Open::Code };
                out.extend_from_slice(open.end());
                out.extend_from_slice(next.begin());
                open = next;
                continue;
            }
            b"" => (Open::Nothing, bare),
            _ if is_rule(bare) => {
                out.extend_from_slice(open.end());
                out.extend_from_slice(b"<hr>\n");
                open = Open::Nothing;
                continue;
            }
            [b'#', ..] if let Some((level, title)) = heading(bare) => {
                out.extend_from_slice(open.end());
                open = Open::Nothing;
                // The page has the first level, the README's name the second.
                let tag = [b'h', b'0' + (level + 2).min(6)];
                out.push(b'<');
                out.extend_from_slice(&tag);
                out.push(b'>');
                inline(title, DEPTH, out);
                out.extend_from_slice(b"</");
                out.extend_from_slice(&tag);
                out.extend_from_slice(b">\n");
                continue;
            }
            [b'-' | b'*' | b'+', b' ', rest @ ..] => (Open::Bullets, rest),
            [b'>', rest @ ..] => (Open::Quote, rest.trim_ascii()),
            _ => match numbered(bare) {
                Some(rest) => (Open::Numbers, rest),
                // A line that goes on with what is open.
                None if open != Open::Nothing => {
                    out.push(b'\n');
                    inline(bare, DEPTH, out);
                    continue;
                }
                None => (Open::Paragraph, bare),
            },
        };
        if kind != open {
            out.extend_from_slice(open.end());
            out.extend_from_slice(kind.begin());
        } else if matches!(kind, Open::Bullets | Open::Numbers) {
            out.extend_from_slice(b"</li>\n<li>");
        } else {
            out.push(b'\n');
        }
        open = kind;
        inline(rest, DEPTH, out);
    }
    out.extend_from_slice(open.end());
}

fn is_rule(line: &[u8]) -> bool {
    let Some(first @ (b'-' | b'*' | b'_')) = line.first() else { return false };
    let is_all = line.iter().all(|byte| byte == first || *byte == b' ');
    is_all && line.iter().filter(|byte| *byte == first).nth(2).is_some()
}

fn heading(line: &[u8]) -> Option<(u8, &[u8])> {
    let level = line.iter().take_while(|byte| **byte == b'#').count();
    let title = line.get(level..)?.strip_prefix(b" ")?;
    let is_mark = |byte: &u8| *byte == b'#' || *byte == b' ';
    let end = title.iter().rposition(|byte| !is_mark(byte)).map_or(0, |last| last + 1);
    (level <= 6).then_some((level as u8, title[..end].trim_ascii()))
}

fn numbered(line: &[u8]) -> Option<&[u8]> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = line.get(digits..).filter(|_| (1..=9).contains(&digits))?;
    rest.strip_prefix(b". ").or_else(|| rest.strip_prefix(b") "))
}

/// Code, emphasis and links within a line.
fn inline(line: &[u8], depth: u8, out: &mut Vec<u8>) {
    let mut rest = line;
    let mut plain = 0;
    while let Some(at) = rest[plain..].iter().position(|byte| b"`*[!\\".contains(byte)) {
        let at = plain + at;
        let Some((made, taken)) = span(&rest[at..], depth) else {
            plain = at + 1;
            continue;
        };
        text::push_html(&rest[..at], out);
        out.extend_from_slice(&made);
        rest = &rest[at + taken..];
        plain = 0;
    }
    text::push_html(rest, out);
}

/// What begins at the front, as HTML, and how many bytes it took; `None` if that is only a byte.
fn span(text: &[u8], depth: u8) -> Option<(Vec<u8>, usize)> {
    let mut out = Vec::new();
    let taken = match text {
        [b'\\', byte, ..] if byte.is_ascii_punctuation() => {
            text::push_html(&[*byte], &mut out);
            2
        }
        [b'`', rest @ ..] => {
            let end = find(rest, b"`")?;
            out.extend_from_slice(b"<code>");
            text::push_html(&rest[..end], &mut out);
            out.extend_from_slice(b"</code>");
            end + 2
        }
        [b'*', b'*', rest @ ..] if depth > 0 => {
            let end = find(rest, b"**").filter(|end| *end > 0)?;
            out.extend_from_slice(b"<strong>");
            inline(&rest[..end], depth - 1, &mut out);
            out.extend_from_slice(b"</strong>");
            end + 4
        }
        [b'*', rest @ ..] if depth > 0 && !rest.starts_with(b" ") => {
            let end = find(rest, b"*").filter(|end| *end > 0)?;
            out.extend_from_slice(b"<em>");
            inline(&rest[..end], depth - 1, &mut out);
            out.extend_from_slice(b"</em>");
            end + 2
        }
        // Nothing is fetched for a README: a picture is its description.
        [b'!', b'[', rest @ ..] if depth > 0 => {
            let (label, _, taken) = link(rest)?;
            inline(label, depth - 1, &mut out);
            taken + 2
        }
        [b'[', rest @ ..] if depth > 0 => {
            let (label, address, taken) = link(rest)?;
            if is_harmless(address) {
                out.extend_from_slice(b"<a rel=\"noreferrer\" href=\"");
                text::push_html(address, &mut out);
                out.extend_from_slice(b"\">");
                inline(label, depth - 1, &mut out);
                out.extend_from_slice(b"</a>");
            } else {
                inline(label, depth - 1, &mut out);
            }
            taken + 1
        }
        _ => return None,
    };
    Some((out, taken))
}

/// `label](address)`, and how long that is.
fn link(text: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    let middle = find(text, b"](")?;
    let after = &text[middle + 2..];
    let end = find(after, b")")?;
    Some((&text[..middle], &after[..end], middle + end + 3))
}

/// Whether an address leads to a page or a file, and runs nothing.
fn is_harmless(address: &[u8]) -> bool {
    let is_visible = address.iter().all(|byte| byte.is_ascii_graphic() || *byte >= 0x80);
    let known = [&b"http://"[..], b"https://", b"mailto:"];
    let has_known = known.iter().any(|scheme| {
        address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    let name_end = address.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(address.len());
    is_visible && !address.is_empty() && (has_known || !address[..name_end].contains(&b':'))
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let text = &text[..text.len().min(REACH)];
    memchr::memmem::find(text, wanted)
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
            assert!(!html.contains("<script") && !html.contains("<img"), "{text}: {html}");
            assert!(!html.contains("href=\"javascript") && !html.contains("href=\"data"), "{html}");
            assert!(!html.contains("\"onclick"), "{html}");
        }
    }

    #[test]
    fn a_small_part_of_markdown_is_read() {
        for (text, html) in [
            ("# A *b* #", "<h3>A <em>b</em></h3>\n"),
            ("a\nb\n\nc", "<p>a\nb</p>\n<p>c</p>\n"),
            ("- a\n- b\n  c\n", "<ul>\n<li>a</li>\n<li>b\nc</li></ul>\n"),
            ("1. a\n2) b", "<ol>\n<li>a</li>\n<li>b</li></ol>\n"),
            ("> a\n> b", "<blockquote>a\nb</blockquote>\n"),
            ("```sh\na < b\n```\nx", "<pre>a &lt; b\n</pre>\n<p>x</p>\n"),
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
        for piece in ["[", "*", "**", "`", "![", "[](", "\\"] {
            let text = piece.repeat(README_BYTES_MAX as usize / piece.len());
            let html = rendered(&text);
            assert!(html.len() < text.len() * 20, "{piece}");
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
