//! The forms of a listing: the page, and nginx's XML, JSON and JSONP to the byte.

use sekisho_config::ListingFormat;
use sekisho_http::{Fields, Head, Known, date};

use super::entry::{Facts, Shown};
use super::order::argument;
use super::page::{self, Page};
use super::text;

/// How long the name of a callback may be (nginx's bound).
const CALLBACK_BYTES_MAX: usize = 128;

/// The form of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Html,
    Xml,
    Json,
    /// JSON within a call of this function.
    Jsonp(Vec<u8>),
}

/// A callback that is no name of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadCallback;

impl Form {
    /// The form for a request. A listing for people is JSON for clients that prefer that.
    pub(super) fn of(
        format: ListingFormat,
        head: &Head,
        query: &[u8],
    ) -> Result<Self, BadCallback> {
        Ok(match format {
            ListingFormat::Html if prefers_json(head) => Self::Json,
            ListingFormat::Html => Self::Html,
            ListingFormat::Xml => Self::Xml,
            ListingFormat::Json => Self::Json,
            ListingFormat::Jsonp => match callback(query)? {
                b"" => Self::Json,
                name => Self::Jsonp(name.to_vec()),
            },
        })
    }

    /// Adds the fields that say what it is.
    pub(super) fn push_fields(&self, fields: &mut Fields) {
        let media_type = match self {
            Self::Html => crate::answer::HTML,
            Self::Xml => "text/xml; charset=utf-8",
            Self::Json => "application/json",
            Self::Jsonp(_) => "application/javascript",
        };
        fields.push("Content-Type", media_type);
        if matches!(self, Self::Html) {
            fields.push("Content-Security-Policy", page::POLICY);
            fields.push("X-Content-Type-Options", "nosniff");
        }
    }
}

/// Whether JSON is named in `Accept` and the page is not, or is wanted less.
fn prefers_json(head: &Head) -> bool {
    let (mut json, mut html) = (0, 0);
    for range in head.all_known(Known::Accept).flat_map(|value| value.split(|byte| *byte == b',')) {
        let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| {
            let (name, value) = part.split_at_checked(2)?;
            name.eq_ignore_ascii_case(b"q=").then(|| thousandths(value))
        });
        let weight = weight.unwrap_or(1000);
        if kind.eq_ignore_ascii_case(b"application/json") {
            json = json.max(weight);
        } else if kind.eq_ignore_ascii_case(b"text/html") {
            html = html.max(weight);
        }
    }
    json > html
}

/// A weight (RFC 9110 §12.4.2); what is none counts as nothing.
fn thousandths(value: &[u8]) -> u32 {
    let (whole, part) = match value {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', part @ ..] if part.len() <= 3 => (whole, part),
        _ => return 0,
    };
    let mut thousandths = u32::from(whole - b'0');
    for at in 0..3 {
        let digit = part.get(at).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return 0;
        }
        thousandths = thousandths * 10 + u32::from(digit - b'0');
    }
    thousandths.min(1000)
}

/// The function that `?callback=` names; empty for none.
fn callback(query: &[u8]) -> Result<&[u8], BadCallback> {
    let name = argument(query, b"callback").unwrap_or_default();
    let is_byte = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let is_name = name.len() <= CALLBACK_BYTES_MAX && name.iter().all(is_byte);
    if is_name { Ok(name) } else { Err(BadCallback) }
}

/// Writes a listing.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) form: Form,
    pub(super) page: Page,
    pub(super) folders: u64,
    pub(super) files: u64,
    /// The latest change of anything that was written.
    pub(super) newest: i64,
}

impl Writer {
    pub(super) fn new(form: Form, page: Page) -> Self {
        Self { form, page, folders: 0, files: 0, newest: 0 }
    }

    /// What comes before the entries.
    pub(super) fn begin(&self, out: &mut Vec<u8>) {
        match &self.form {
            Form::Html => self.page.begin(out),
            Form::Xml => out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n"),
            Form::Json => out.extend_from_slice(b"["),
            Form::Jsonp(callback) => {
                out.extend_from_slice(b"/* callback */\r\n");
                out.extend_from_slice(callback);
                out.extend_from_slice(b"([");
            }
        }
    }

    /// One entry.
    pub(super) fn row(&mut self, entry: Shown<'_>, out: &mut Vec<u8>) {
        let Shown { name, is_folder, facts, .. } = entry;
        self.newest = self.newest.max(facts.modified);
        match self.form {
            Form::Html => self.page.row(entry, out),
            Form::Xml => xml_row(name, is_folder, facts, out),
            Form::Json | Form::Jsonp(_) => {
                let is_first = self.folders + self.files == 0;
                out.extend_from_slice(if is_first { b"\r\n" } else { b",\r\n" });
                json_row(name, is_folder, facts, out);
            }
        }
        *(if is_folder { &mut self.folders } else { &mut self.files }) += 1;
    }

    /// What comes after the entries, but for the README and [`Writer::end`].
    pub(super) fn count(&self, is_cut: bool, out: &mut Vec<u8>) {
        if self.form == Form::Html {
            self.page.count(self.folders, self.files, is_cut, out);
        }
    }

    /// The end.
    pub(super) fn end(&self, out: &mut Vec<u8>) {
        match self.form {
            Form::Html => Page::end(out),
            Form::Xml => out.extend_from_slice(b"</list>\r\n"),
            Form::Json => out.extend_from_slice(b"\r\n]"),
            Form::Jsonp(_) => out.extend_from_slice(b"\r\n]);"),
        }
    }
}

fn xml_row(name: &[u8], is_folder: bool, facts: Facts, out: &mut Vec<u8>) {
    let tag: &[u8] = if is_folder { b"directory" } else { b"file" };
    out.push(b'<');
    out.extend_from_slice(tag);
    out.extend_from_slice(b" mtime=\"");
    text::push_time(facts.modified, out);
    if !is_folder {
        out.extend_from_slice(b"\" size=\"");
        text::push_number(facts.size, out);
    }
    out.extend_from_slice(b"\">");
    text::push_xml(name, out);
    out.extend_from_slice(b"</");
    out.extend_from_slice(tag);
    out.extend_from_slice(b">\r\n");
}

fn json_row(name: &[u8], is_folder: bool, facts: Facts, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{ \"name\":\"");
    text::push_json(name, out);
    out.extend_from_slice(b"\", \"type\":\"");
    out.extend_from_slice(if is_folder { b"directory" } else { b"file" });
    out.extend_from_slice(b"\", \"mtime\":\"");
    date::write(facts.modified, out);
    out.push(b'"');
    if !is_folder {
        out.extend_from_slice(b", \"size\":");
        text::push_number(facts.size, out);
    }
    out.extend_from_slice(b" }");
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_http::Version;

    /// F4: JSON by `Accept`.
    #[test]
    fn the_accept_field_chooses_between_page_and_json() {
        for (accept, is_json) in [
            ("", false),
            ("*/*", false),
            ("text/html,application/xhtml+xml,*/*;q=0.8", false),
            ("application/json", true),
            ("Application/JSON; q=0.5", true),
            ("application/json, text/plain, */*", true),
            ("application/json, text/html", false),
            ("application/json, text/html;q=0.9", true),
            ("application/json;q=0.8, text/html;q=0.9", false),
            ("application/json;q=0", false),
            ("application/json;q=x", false),
        ] {
            let mut head = Head::default();
            head.begin(b"GET", b"/", Version::Http11);
            if !accept.is_empty() {
                head.push(b"Accept", accept.as_bytes());
            }
            let form = Form::of(ListingFormat::Html, &head, b"").expect("a form");
            assert_eq!(form == Form::Json, is_json, "{accept}");
        }
    }

    #[test]
    fn a_callback_is_the_name_of_a_function() {
        let form = |query: &str| Form::of(ListingFormat::Jsonp, &Head::default(), query.as_bytes());
        assert_eq!(form(""), Ok(Form::Json));
        assert_eq!(form("callback="), Ok(Form::Json));
        assert_eq!(form("callback=a.b_1"), Ok(Form::Jsonp(b"a.b_1".to_vec())));
        for bad in ["callback=a-b", "callback=alert(1)", "callback=%61", "callback=a%0a"] {
            assert_eq!(form(bad), Err(BadCallback), "{bad}");
        }
        assert_eq!(form(&format!("callback={}", "a".repeat(129))), Err(BadCallback));
    }
}
