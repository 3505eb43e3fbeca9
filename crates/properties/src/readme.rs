//! A folder's README as HTML: whatever it says, only known tags come out, each closed where it was opened; no
//! other byte that means something to a browser stays bare; a link leads to a page and runs nothing; and the
//! page is not much longer than the text.
//!
//! The input is a README; its first byte says whether it is Markdown.

#[path = "../../handler/src/listing/readme.rs"]
#[allow(dead_code, reason = "of a borrowed file not everything is needed")]
mod section;
#[path = "../../handler/src/listing/text.rs"]
#[allow(dead_code, reason = "of a borrowed file not everything is needed")]
mod text;

/// Of the longest line of one byte a list item is made.
const GROWTH_MAX: usize = 40;
const AROUND_MAX: usize = 200;

/// Holds the writer to it.
pub fn check(data: &[u8]) {
    let Some((first, content)) = data.split_first() else { return };
    let name: &[u8] = if first & 7 == 0 { b"README" } else { b"ReadMe.MD" };
    let mut out = Vec::new();
    section::write(name, content, first & 8 != 0, &mut out);
    assert!(
        out.len() <= content.len() * GROWTH_MAX + AROUND_MAX,
        "{} of {}",
        out.len(),
        content.len()
    );
    let html = std::str::from_utf8(&out).expect("a page is UTF-8");
    well_formed(html);
}

fn well_formed(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        plain(&rest[..at]);
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        match tag {
            "table" | "tr" | "th" | "td" | "del" | "p" | "pre" | "code" | "em" | "strong"
            | "ul" | "ol" | "li" | "blockquote" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                open.push(tag);
            }
            "hr" | "br" => {}
            _ if tag.starts_with("img alt=\"") => {
                let (alt, source) =
                    tag["img alt=\"".len()..].split_once("\" src=\"").expect("a source");
                plain(alt);
                link(source.strip_suffix('"').expect("a quote"));
                let end = source.find(['/', '?', '#', ':']).unwrap_or(source.len());
                assert!(!source.starts_with("//") && !source[end..].starts_with(':'), "{html}");
            }
            _ if tag.starts_with("article aria-label=\"") => open.push("article"),
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(&tag[1..]), "{html}"),
            _ => {
                let address = tag.strip_prefix("a rel=\"noreferrer\" href=\"");
                let address = address.and_then(|rest| rest.strip_suffix('"'));
                link(address.unwrap_or_else(|| panic!("a tag <{tag}> in {html}")));
                open.push("a");
            }
        }
    }
    plain(rest);
    assert!(open.is_empty(), "{open:?} stay open in {html}");
}

/// Text in which a browser sees no more than text.
fn plain(text: &str) {
    assert!(!text.contains(['<', '>', '"', '\'']), "{text}");
    for (at, _) in text.match_indices('&') {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
        assert!(known.iter().any(|one| text[at..].starts_with(one)), "{text}");
    }
}

/// As a browser reads it: what stands before the first colon is a scheme unless another mark comes before.
fn link(address: &str) {
    plain(address);
    assert!(!address.is_empty() && !address.contains(|c: char| c.is_ascii_control() || c == ' '));
    let end = address.find(['/', '?', '#', ':']).unwrap_or(address.len());
    if address[end..].starts_with(':') {
        let scheme = address[..end].to_ascii_lowercase();
        assert!(matches!(scheme.as_str(), "http" | "https" | "mailto"), "{address}");
    }
}
