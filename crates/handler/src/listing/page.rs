//! The HTML page: it works without a script and is better with one. Style and script are
//! constant and part of the page; the policy in its head allows these two and nothing else (V48).

use std::sync::Arc;

use sekisho_http::{date, target};

use super::entry::Shown;
use super::order::{By, SortOrder};
use super::text;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A folder.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
%3Cpath fill='%239a6700' d='M1 3h5l2 2h7v9H1z'/%3E%3C/svg%3E";

/// The digests of style and script, as a policy names them; a test keeps them true.
macro_rules! digests {
    (style $style:literal, script $script:literal) => {
        #[cfg(test)]
        const DIGESTS: [&str; 2] = [$style, $script];
        /// What a page may load and do.
        pub(super) const POLICY: &str = concat!(
            "default-src 'none'; style-src 'sha256-",
            $style,
            "'; script-src 'sha256-",
            $script,
            "'; img-src 'self' data:; media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; ",
            "frame-ancestors 'self'",
        );
    };
}

digests! {
    style "uMCQBcE8EmgoFejzsNUnCsGMxVZ6MmTN511aEQ81S9s=",
    script "FlCs4SeqWDrqvjziuPrg+1MX6EqQIMoklBsc1JKP1Ks="
}

/// What can be done on a page beside looking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each thing that can be done")]
pub(super) struct Offers {
    /// Files can be put here.
    pub(super) put: bool,
    /// A file that there is can be replaced by that.
    pub(super) replace: bool,
    /// Forms with files can be sent here.
    pub(super) post: bool,
    /// Files can be deleted.
    pub(super) delete: bool,
    /// Files and folders can be given another name.
    pub(super) rename: bool,
    /// Empty folders, too.
    pub(super) rmdir: bool,
    /// Folders can be deleted with all that is in them.
    pub(super) rmtree: bool,
    /// Folders can be made.
    pub(super) mkcol: bool,
    /// The folder can be fetched as a whole.
    pub(super) zip: bool,
    pub(super) tar: bool,
    /// Names in the folders below can be searched.
    pub(super) search: bool,
}

/// How a page looks.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// The address of the folder.
    pub(super) path: Vec<u8>,
    /// The title of the top folder.
    pub(super) title: Option<Arc<str>>,
    pub(super) order: SortOrder,
    pub(super) offers: Offers,
    /// What was searched for, where this is what was found.
    pub(super) search: Option<Vec<u8>>,
    pub(super) exact_size: bool,
    /// How far local time is ahead of UTC; 0 where UTC is shown.
    pub(super) offset_secs: i32,
}

impl Page {
    /// Everything before the first entry.
    pub(super) fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>",
        );
        if let Some(text) = &self.search {
            text::push_html(text, out);
            out.extend_from_slice(b" - search in ");
        } else {
            text::push_html(self.title.as_deref().unwrap_or("Index of").as_bytes(), out);
            out.push(b' ');
        }
        text::push_html(&self.path, out);
        // Browsers would ask for /favicon.ico otherwise.
        push_all(&["</title>\n<link rel=\"icon\" href=\"", ICON, "\">\n<style>"], out);
        out.extend_from_slice(STYLE.as_bytes());
        out.extend_from_slice(b"</style>\n<script>");
        out.extend_from_slice(SCRIPT.as_bytes());
        out.extend_from_slice(b"</script></head>\n<body data-can=\"");
        let offers = self.offers;
        let Offers { put, replace, post, delete, rename, rmdir, rmtree, mkcol, zip, tar, search } =
            offers;
        let words = [
            (put, "put "),
            (replace, "replace "),
            (post, "post "),
            (delete, "delete "),
            (rename, "move "),
            (rmdir, "rmdir "),
            (rmtree, "rmtree "),
            (mkcol, "mkcol "),
            (zip, "zip "),
            (tar, "tar "),
        ];
        for (_, word) in words.iter().filter(|(is_offered, _)| *is_offered) {
            out.extend_from_slice(word.as_bytes());
        }
        out.extend_from_slice(b"\">\n<header><nav aria-label=\"Path\"><h1>");
        self.crumbs(out);
        out.extend_from_slice(b"</h1></nav><div class=\"tools\">");
        self.filter(search, out);
        for (is_offered, kind) in [(zip, "zip"), (tar, "tar")] {
            if is_offered {
                push_all(
                    &["<a href=\"?download=", kind, "\" download>Download .", kind, "</a>"],
                    out,
                );
            }
        }
        out.extend_from_slice(
            b"<button id=\"theme\" type=\"button\" aria-label=\"Switch between light and dark\" \
title=\"Light or dark\" hidden>\xe2\x97\x90</button></div></header>\n<main>\n",
        );
        if self.search.is_none() {
            self.forms(out);
        }
        out.extend_from_slice(
            b"<p id=\"said\" role=\"status\"></p>\n<table id=\"list\"><thead><tr>",
        );
        for (by, word, label) in
            [(By::Name, "name", "Name"), (By::Size, "size", "Size"), (By::Time, "time", "Modified")]
        {
            self.column(by, word, label, out);
        }
        out.extend_from_slice(b"</tr></thead>\n<tbody>\n");
        if self.search.is_some() {
            out.extend_from_slice(
                b"<tr class=\"u\"><td><a href=\"./\">back to the folder</a><td><td>\n",
            );
        } else if self.path != b"/" {
            out.extend_from_slice(b"<tr class=\"u\"><td><a href=\"../\">../</a><td><td>\n");
        }
    }

    /// One entry. Formatted by hand, as there may be many; tags that HTML does not need are left out.
    pub(super) fn row(&self, entry: Shown<'_>, out: &mut Vec<u8>) {
        let Shown { name, is_folder, is_link, facts } = entry;
        out.reserve(200 + 8 * name.len());
        out.extend_from_slice(match (is_folder, is_link) {
            (true, false) => b"<tr class=\"d\"><td><a href=\"",
            // Nothing in the folder goes with it.
            (true, true) => b"<tr class=\"d\" data-link><td><a href=\"",
            (false, _) => b"<tr><td><a href=\"",
        });
        if name.contains(&b':') {
            // Not to be read as a scheme.
            out.extend_from_slice(b"./");
        }
        let slash: &[u8] = if is_folder { b"/" } else { b"" };
        if text::is_plain(name) {
            out.extend_from_slice(name);
            out.extend_from_slice(slash);
            out.extend_from_slice(b"\">");
            out.extend_from_slice(name);
        } else {
            text::push_link(name, out);
            out.extend_from_slice(slash);
            out.extend_from_slice(b"\">");
            text::push_html(name, out);
        }
        out.extend_from_slice(slash);
        out.extend_from_slice(b"</a><td");
        if is_folder {
            out.extend_from_slice(b">-");
        } else if self.exact_size {
            out.push(b'>');
            text::push_number(facts.size, out);
        } else {
            out.extend_from_slice(b" title=\"");
            text::push_number(facts.size, out);
            out.extend_from_slice(if facts.size == 1 { b" byte\">" } else { b" bytes\">" });
            text::push_size(facts.size, out);
        }
        if is_folder && facts.modified == 0 {
            // In object storage folders have no time.
            out.extend_from_slice(b"<td>-\n");
            return;
        }
        out.extend_from_slice(b"<td><time datetime=\"");
        text::push_time(facts.modified, out);
        out.extend_from_slice(b"\">");
        let civil = date::civil(facts.modified.saturating_add(i64::from(self.offset_secs)));
        text::push_date(civil, out);
        out.push(b' ');
        date::push_two(civil.hour, out);
        out.push(b':');
        date::push_two(civil.minute, out);
        out.extend_from_slice(b"</time>\n");
    }

    /// What follows the last entry; the README comes between this and [`Page::end`].
    pub(super) fn count(&self, folders: u64, files: u64, is_cut: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"</tbody></table>\n<p id=\"count\">");
        let mut is_first = true;
        for (count, one, many) in [(folders, " folder", " folders"), (files, " file", " files")] {
            if count == 0 {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                out.extend_from_slice(b", ");
            }
            text::push_number(count, out);
            out.extend_from_slice(if count == 1 { one } else { many }.as_bytes());
        }
        if is_first {
            let is_search = self.search.is_some();
            let text: &[u8] =
                if is_search { b"Nothing was found." } else { b"This folder is empty." };
            out.extend_from_slice(text);
        }
        if is_cut && self.search.is_some() {
            out.extend_from_slice(b"; there may be more: search in a folder below");
        } else if is_cut {
            out.extend_from_slice(b"; there are more, which are not listed");
        }
        out.extend_from_slice(b"</p>\n");
    }

    /// The last bytes.
    pub(super) fn end(out: &mut Vec<u8>) {
        out.extend_from_slice(b"</main></body></html>\n");
    }

    /// The field that filters by script, and searches by Enter.
    fn filter(&self, can_search: bool, out: &mut Vec<u8>) {
        if !can_search {
            out.extend_from_slice(
                b"<input id=\"filter\" type=\"search\" placeholder=\"Filter\" \
aria-label=\"Filter the list\" hidden>",
            );
            return;
        }
        out.extend_from_slice(
            b"<form role=\"search\"><input id=\"filter\" name=\"search\" type=\"search\" \
placeholder=\"Filter, Enter: search below\" aria-label=\"Filter the list; Enter searches all folders below\" \
value=\"",
        );
        text::push_html(self.search.as_deref().unwrap_or_default(), out);
        out.extend_from_slice(b"\"></form>");
    }

    /// The path, each folder of it a link. Relative, so that it holds behind another server too.
    fn crumbs(&self, out: &mut Vec<u8>) {
        let segments = || self.path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let depth = segments().count();
        let link = |up: usize, out: &mut Vec<u8>| {
            out.extend_from_slice(b"<a href=\"");
            match up {
                0 => out.extend_from_slice(b"./\" aria-current=\"page"),
                up => (0..up).for_each(|_| out.extend_from_slice(b"../")),
            }
            out.extend_from_slice(b"\">");
        };
        link(depth, out);
        text::push_html(self.title.as_deref().unwrap_or("Home").as_bytes(), out);
        out.extend_from_slice(b"</a>");
        for (at, segment) in segments().enumerate() {
            out.extend_from_slice(b"<span>/</span>");
            link(depth - 1 - at, out);
            text::push_html(segment, out);
            out.extend_from_slice(b"</a>");
        }
    }

    /// Where files are put. Without a script the form itself is sent, where forms are taken.
    fn forms(&self, out: &mut Vec<u8>) {
        let Offers { put, post, mkcol, .. } = self.offers;
        if put || post {
            out.extend_from_slice(
                b"<form id=\"drop\" method=\"post\" enctype=\"multipart/form-data\"",
            );
            out.extend_from_slice(if post { b">" } else { b" hidden>" });
            out.extend_from_slice(
                b"<label for=\"files\">Drop files here, or choose some:</label>\
<input id=\"files\" name=\"file\" type=\"file\" multiple>\
<button type=\"submit\">Upload</button></form>\n<ul id=\"jobs\" aria-label=\"Uploads\"></ul>\n",
            );
        }
        if mkcol {
            out.extend_from_slice(
                b"<p><button id=\"folder\" type=\"button\" hidden>New folder</button></p>\n",
            );
        }
    }

    fn column(&self, by: By, word: &str, label: &str, out: &mut Vec<u8>) {
        let is_sorted = self.order.by == by;
        let is_descending = is_sorted && self.order.is_descending;
        out.extend_from_slice(b"<th scope=\"col\"");
        if is_sorted {
            let direction = if is_descending { "descending" } else { "ascending" };
            push_all(&[" aria-sort=\"", direction, "\""], out);
        }
        // What is sorted by already is turned round; the newest and the largest are looked for first.
        let next = match (is_sorted, by) {
            (true, _) => !is_descending,
            (false, By::Size | By::Time) => true,
            (false, _) => false,
        };
        let next = if next { "desc" } else { "asc" };
        out.extend_from_slice(b"><a href=\"?");
        if let Some(text) = &self.search {
            out.extend_from_slice(b"search=");
            for &byte in text {
                if byte.is_ascii_alphanumeric() {
                    out.push(byte);
                } else {
                    target::push_escape(byte, out);
                }
            }
            out.extend_from_slice(b"&amp;");
        }
        push_all(&["sort=", word, "&amp;order=", next, "\">", label, "</a>"], out);
        if by == By::Time {
            // The script shows the browser's own zone instead.
            out.extend_from_slice(b" <small id=\"zone\">UTC");
            text::push_offset(self.offset_secs, out);
            out.extend_from_slice(b"</small>");
        }
        out.extend_from_slice(b"</th>");
    }
}

fn push_all(parts: &[&str], out: &mut Vec<u8>) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::entry::Facts;
    use base64::Engine;
    use sha2::{Digest, Sha256};

    /// V48: the policy allows exactly the style and the script that are in the page.
    #[test]
    fn the_policy_names_the_style_and_the_script() {
        let digest = |text: &str| {
            base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text.as_bytes()))
        };
        let digests = [digest(STYLE), digest(SCRIPT)];
        if std::env::var_os("UPDATE").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/listing/page.rs");
            let mut source = std::fs::read_to_string(path).expect("the source");
            for (word, digest) in ["style", "script"].into_iter().zip(&digests) {
                let start = source.find(&format!("    {word} \"")).expect("the place");
                let end = start + source[start..].find('\n').expect("a line");
                let comma = if word == "style" { "," } else { "" };
                source.replace_range(start..end, &format!("    {word} \"{digest}\"{comma}"));
            }
            std::fs::write(path, source).expect("written");
            return;
        }
        assert_eq!(DIGESTS, digests, "run with UPDATE=1 and build again");
    }

    #[test]
    fn the_constant_part_of_a_page_is_small() {
        assert!(STYLE.len() + SCRIPT.len() < 32 << 10);
        assert!(!SCRIPT.contains("</script") && !STYLE.contains("</style"));
    }

    fn page(path: &str) -> Page {
        Page {
            path: path.as_bytes().to_vec(),
            title: None,
            order: SortOrder { by: By::Name, is_descending: false },
            offers: Offers::default(),
            search: None,
            exact_size: false,
            offset_secs: 0,
        }
    }

    fn begun(page: &Page) -> String {
        let mut out = Vec::new();
        page.begin(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn every_folder_of_the_path_is_a_link() {
        let html = begun(&page("/a/b <c>/"));
        assert!(html.contains("<title>Index of /a/b &lt;c&gt;/</title>"), "{html}");
        let crumbs = "<h1><a href=\"../../\">Home</a><span>/</span><a href=\"../\">a</a>\
<span>/</span><a href=\"./\" aria-current=\"page\">b &lt;c&gt;</a></h1>";
        assert!(html.contains(crumbs), "{html}");
        assert!(html.contains("href=\"../\">../</a>"));
        let top = begun(&page("/"));
        assert!(top.contains("<h1><a href=\"./\" aria-current=\"page\">Home</a></h1>"));
        assert!(!top.contains("\"../\""));
    }

    #[test]
    fn the_links_of_the_columns_turn_the_order_round() {
        let mut sorted = page("/");
        let html = begun(&sorted);
        for part in [
            "aria-sort=\"ascending\"><a href=\"?sort=name&amp;order=desc\">Name",
            "<th scope=\"col\"><a href=\"?sort=size&amp;order=desc\">Size",
            "<th scope=\"col\"><a href=\"?sort=time&amp;order=desc\">Modified",
        ] {
            assert!(html.contains(part), "{html}");
        }
        sorted.order = SortOrder { by: By::Size, is_descending: true };
        let html = begun(&sorted);
        assert!(html.contains("aria-sort=\"descending\"><a href=\"?sort=size&amp;order=asc\">"));
        assert!(html.contains("<th scope=\"col\"><a href=\"?sort=name&amp;order=asc\">"));
    }

    #[test]
    fn a_row_has_its_link_its_size_and_its_time() {
        let mut out = Vec::new();
        let facts = Facts { size: 1536, modified: 784_111_777 };
        let mut page = page("/");
        let is_link = false;
        let file = |name| Shown { name, is_folder: false, is_link, facts };
        page.row(file(b"a:b&'.txt"), &mut out);
        page.exact_size = true;
        page.offset_secs = 3600;
        page.row(file(b"c"), &mut out);
        page.row(Shown { name: b"d", is_folder: true, is_link, facts }, &mut out);
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "<tr><td><a href=\"./a:b%26%27.txt\">a:b&amp;&#39;.txt</a><td title=\"1536 bytes\">1.5K\
<td><time datetime=\"1994-11-06T08:49:37Z\">1994-11-06 08:49</time>\n\
<tr><td><a href=\"c\">c</a><td>1536\
<td><time datetime=\"1994-11-06T08:49:37Z\">1994-11-06 09:49</time>\n\
<tr class=\"d\"><td><a href=\"d/\">d/</a><td>-\
<td><time datetime=\"1994-11-06T08:49:37Z\">1994-11-06 09:49</time>\n"
        );
    }

    /// Clients may give their files any time (`X-OC-Mtime`), and some file systems keep it.
    #[test]
    fn the_last_time_there_is_is_shown_anywhere_in_the_world() {
        for offset_secs in [50_400, 0, -43_200] {
            let page = Page { offset_secs, ..page("/") };
            let mut out = Vec::new();
            let facts = Facts { size: 0, modified: i64::MAX };
            let is_folder = false;
            page.row(Shown { name: b"a", is_folder, is_link: false, facts }, &mut out);
            assert!(String::from_utf8(out).expect("text").contains("9999-12-31T23:59:59Z"));
        }
    }

    #[test]
    fn only_what_is_allowed_is_offered() {
        let mut page = page("/");
        let html = begun(&page);
        assert!(
            !html.contains("<form")
                && !html.contains("href=\"?download=")
                && !html.contains("folder\"")
        );
        page.offers = Offers { put: true, mkcol: true, zip: true, ..Offers::default() };
        let html = begun(&page);
        assert!(html.contains("data-can=\"put mkcol zip \""), "{html}");
        assert!(html.contains("enctype=\"multipart/form-data\" hidden>"));
        assert!(html.contains("?download=zip\"") && !html.contains("?download=tar\""));
        page.offers = Offers { search: true, post: true, ..Offers::default() };
        page.search = Some(b"a \"<&".to_vec());
        let html = begun(&page);
        assert!(html.contains("<form role=\"search\">") && !html.contains("multipart"), "{html}");
        assert!(
            html.contains("value=\"a &quot;&lt;&amp;\">") && html.contains("back to the folder")
        );
        assert!(html.contains("?search=a%20%22%3C%26&amp;sort=size"), "{html}");
        page.search = None;
        page.offers = Offers { post: true, ..Offers::default() };
        assert!(begun(&page).contains("enctype=\"multipart/form-data\">"));
    }
}
